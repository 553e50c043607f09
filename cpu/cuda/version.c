/*
 * What the library says of itself: initialisation, versions, and the addresses of its entry points.
 */
#include "cpu/cuda/driver.h"
#include <string.h>
#include "flyt_entry_points.h"
#include "rpc/base/log.h"

/* flyt-server refuses a libcuda.so.1 that exports this name: it would forward to itself. */
extern const char flyt_client_marker[] __attribute__((visibility("default")));
const char flyt_client_marker[] = "libcuda.so.1 of Flyt: forwards to a flyt-server";

CUresult CUDAAPI cuInit(unsigned flags)
{
    return flags ? CUDA_ERROR_INVALID_VALUE : flyt_client_init();
}

CUresult CUDAAPI cuDriverGetVersion(int *ret_version)
{
    if (!ret_version)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_version = flyt_client_driver_version();
    return CUDA_SUCCESS;
}

/* ---- cuGetProcAddress ---- */

/* The first entry point of that name; *ret_count of them follow each other, none: NULL. */
static const struct flyt_entry_point *entry_points_find(const char *name, size_t *ret_count)
{
    size_t low = 0, high = flyt_entry_point_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(flyt_entry_points[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    size_t end = low;
    while (end < flyt_entry_point_count && strcmp(flyt_entry_points[end].name, name) == 0)
        end++;
    *ret_count = end - low;
    return end > low ? &flyt_entry_points[low] : NULL;
}

/*
 * The newest interface of `name` that cuda_version knows. A function that has per-thread variants is looked for among
 * those alone where they are asked for, as NVIDIA's driver does: cuMemcpy of CUDA 4.0 has none before 7.0, and the
 * answer is then "version not sufficient". Functions without a stream have no variants and are found in any case.
 */
static void *entry_point_address(const char *name, int cuda_version, bool is_per_thread,
                                 CUdriverProcAddressQueryResult *ret_status)
{
    size_t count;
    const struct flyt_entry_point *points = entry_points_find(name, &count);
    bool has_per_thread = false;
    for (size_t i = 0; i < count; i++)
        has_per_thread |= points[i].is_per_thread;

    void *address = NULL;
    for (size_t i = 0; i < count; i++)
        if (points[i].is_per_thread == (is_per_thread && has_per_thread) && points[i].cuda_version <= cuda_version)
            address = points[i].address;
    *ret_status = address ? CU_GET_PROC_ADDRESS_SUCCESS
                  : count ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                          : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return address;
}

/* A name that is not there is no error of this call: the address is NULL and the status says why. Works before cuInit.
 * Functions that refuse are found: their names are told when they are called. */
CUresult CUDAAPI cuGetProcAddress_v2(const char *symbol, void **ret_address, int cuda_version, cuuint64_t flags,
                                     CUdriverProcAddressQueryResult *ret_status)
{
    const cuuint64_t known = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    if (!symbol || !ret_address || flags & ~known || cuda_version > flyt_client_newest_version())
        return CUDA_ERROR_INVALID_VALUE;
    CUdriverProcAddressQueryResult status;
    if (cuda_version < 0)
        cuda_version = flyt_client_newest_version(); /* NVIDIA's driver gives the newest interface then */
    *ret_address =
        entry_point_address(symbol, cuda_version, flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status);
    if (ret_status)
        *ret_status = status;
    return CUDA_SUCCESS;
}

/* Before CUDA 12 a missing name was an error. */
CUresult CUDAAPI cuGetProcAddress(const char *symbol, void **ret_address, int cuda_version, cuuint64_t flags)
{
    void *address = NULL;
    if (!ret_address)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = cuGetProcAddress_v2(symbol, &address, cuda_version, flags, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    if (!address)
        return CUDA_ERROR_NOT_FOUND;
    *ret_address = address;
    return CUDA_SUCCESS;
}
