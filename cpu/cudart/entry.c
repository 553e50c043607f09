/*
 * cudaGetDriverEntryPoint: functions of the driver API for programs that are not linked with it. They come from the
 * libcuda.so.1 that lies beside the core, never from another: handles of NVIDIA's mean nothing here.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "cpu/cudart/cudart.h"
#include "rpc/base/log.h"

enum { PATH_BYTES_MAX = 4096 };

typedef CUresult (*proc_address_fn)(const char *symbol, void **function, int version, cuuint64_t flags,
                                    CUdriverProcAddressQueryResult *status);

/* The driver library's path. False: the core's place is unknown, or too long. */
static bool driver_path(char *path, size_t path_bytes)
{
    Dl_info core;
    const char *slash;
    int written;

    if (!dladdr((const void *)(uintptr_t)flyt_client_init, &core) || !core.dli_fname)
        return false;
    slash = strrchr(core.dli_fname, '/');
    written =
        snprintf(path, path_bytes, "%.*slibcuda.so.1", slash ? (int)(slash - core.dli_fname + 1) : 0, core.dli_fname);
    return written > 0 && (size_t)written < path_bytes;
}

/* Its cuGetProcAddress, kept after the first question. The library stays open: its functions are given away. */
static proc_address_fn find_proc_address(void)
{
    static _Atomic(proc_address_fn) found;
    proc_address_fn function = atomic_load_explicit(&found, memory_order_acquire);
    char path[PATH_BYTES_MAX];
    void *library;

    if (function)
        return function;
    library = driver_path(path, sizeof(path)) ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) {
        flyt_fail("driver entry points cannot be had: libcuda.so.1 is not beside libflyt-client.so.1");
        return NULL;
    }
    /* POSIX lets dlsym's answer be used so; ISO C has no cast for it. */
    *(void **)&function = dlsym(library, "cuGetProcAddress_v2");
    if (!function)
        dlclose(library);
    else
        atomic_store_explicit(&found, function, memory_order_release);
    return function;
}

static cudaError_t get_entry_point(const char *symbol, void **function, unsigned version, unsigned long long flags,
                                   enum cudaDriverEntryPointQueryResult *ret_status)
{
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    proc_address_fn proc_address;
    void *found = NULL;
    CUresult result;

    if (!symbol || !function || flags > cudaEnablePerThreadDefaultStream ||
        version > (unsigned)flyt_client_newest_version())
        return flyt_cudart_fail(cudaErrorInvalidValue);
    result = flyt_client_init();
    if (result != CUDA_SUCCESS)
        return flyt_cudart_result(result);
    proc_address = find_proc_address();
    if (!proc_address)
        return flyt_cudart_fail(cudaErrorSharedObjectInitFailed);
    /* cudaEnableLegacyStream and its kin have the numbers of CU_GET_PROC_ADDRESS_LEGACY_STREAM and its kin. */
    result = proc_address(symbol, &found, (int)version, flags, &status);
    /* That there is none is no error here: the pointer is NULL and the status says why. */
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_FOUND)
        return flyt_cudart_result(result);
    *function = found;
    if (ret_status)
        *ret_status = (enum cudaDriverEntryPointQueryResult)status;
    return cudaSuccess;
}

/* What cudaEnableDefault means in the variants for per-thread default streams. */
static unsigned long long per_thread_flags(unsigned long long flags)
{
    return flags == cudaEnableDefault ? cudaEnablePerThreadDefaultStream : flags;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **funcPtr, unsigned int cudaVersion,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *driverStatus)
{
    return get_entry_point(symbol, funcPtr, cudaVersion, flags, driverStatus);
}

FLYT_CUDART_PTSZ(cudaGetDriverEntryPointByVersion,
                 (const char *symbol, void **funcPtr, unsigned int cudaVersion, unsigned long long flags,
                  enum cudaDriverEntryPointQueryResult *driverStatus),
                 (symbol, funcPtr, cudaVersion, per_thread_flags(flags), driverStatus))

cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **funcPtr, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *driverStatus)
{
    return get_entry_point(symbol, funcPtr, CUDART_VERSION, flags, driverStatus);
}

__attribute__((visibility("default"))) cudaError_t
cudaGetDriverEntryPoint_ptsz(const char *symbol, void **funcPtr, unsigned long long flags,
                             enum cudaDriverEntryPointQueryResult *driverStatus);
cudaError_t cudaGetDriverEntryPoint_ptsz(const char *symbol, void **funcPtr, unsigned long long flags,
                                         enum cudaDriverEntryPointQueryResult *driverStatus)
{
    return get_entry_point(symbol, funcPtr, CUDART_VERSION, per_thread_flags(flags), driverStatus);
}
