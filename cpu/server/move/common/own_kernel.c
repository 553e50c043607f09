#include "cpu/server/move/common/own_kernel.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "cpu/server/cuda/jit.h"
#include "flyt_page_hash_ptx.h"
#include "flyt_scan_ptx.h"
#include "rpc/base/log.h"

static const struct {
    const char *name, *ptx;
    size_t bytes; /* with the zero at its end */
} kernels[FLYT_OWN_KERNELS] = {
    [FLYT_OWN_PAGE_HASH] = {"page_hash", flyt_page_hash_ptx, sizeof flyt_page_hash_ptx},
    [FLYT_OWN_SCAN] = {"scan", flyt_scan_ptx, sizeof flyt_scan_ptx},
};

enum { DEVICES = 64 }; /* bits of `devices` */

struct flyt_own_code {
    const struct flyt_driver *driver;
    CUdevice cu_device;
    CUcontext cu_context;
    bool has_thread; /* false: flyt_own_code_end_device */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* Under the mutex. */
    struct own_kernel {
        bool is_done;      /* the thread has tried it */
        CUlibrary library; /* NULL: it could not be compiled */
        uint64_t devices;  /* that have it, a bit for each CUdevice */
    } kernels[FLYT_OWN_KERNELS];
};

/* Places the kernel in the current context now, not with its first launch. */
static CUresult place(const struct flyt_driver *driver, CUlibrary library)
{
    CUmodule module;
    CUkernel kernel;
    CUfunction function;
    CUresult result = driver->cuLibraryGetModule(&module, library);
    if (result == CUDA_SUCCESS)
        result = driver->cuLibraryEnumerateKernels(&kernel, 1, library);
    if (result == CUDA_SUCCESS)
        result = driver->cuKernelGetFunction(&function, kernel);
    return result == CUDA_SUCCESS ? driver->cuFuncLoad(function) : result;
}

static CUresult load(const struct flyt_driver *driver, const void *image, CUlibrary *ret_library)
{
    CUlibrary library;
    CUresult result = driver->cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = place(driver, library);
    if (result == CUDA_SUCCESS)
        *ret_library = library;
    else
        driver->cuLibraryUnload(library);
    return result;
}

static CUresult compile(const struct flyt_driver *driver, enum flyt_own_kernel which, CUlibrary *ret_library)
{
    char *image;
    uint64_t bytes;
    CUresult result =
        flyt_jit_link(driver, kernels[which].ptx, kernels[which].bytes, kernels[which].name, NULL, &image, &bytes);
    if (result != CUDA_SUCCESS)
        return result;
    result = load(driver, image, ret_library);
    free(image);
    return result;
}

/* 0: of a device with so high a number nothing is kept. */
static uint64_t device_bit(CUdevice device)
{
    return device >= 0 && device < DEVICES ? UINT64_C(1) << device : 0;
}

static void *run(void *user)
{
    struct flyt_own_code *code = user;
    const CUresult context = code->driver->cuCtxSetCurrent(code->cu_context);
    for (unsigned n = 0; n < FLYT_OWN_KERNELS; n++) {
        struct own_kernel *kernel = &code->kernels[n];
        CUlibrary library = NULL;
        CUresult result = context == CUDA_SUCCESS ? compile(code->driver, n, &library) : context;
        if (result != CUDA_SUCCESS)
            flyt_warn("a kernel of the server's own cannot be compiled ahead, name=%s cuda_result=%d", kernels[n].name,
                      (int)result);
        pthread_mutex_lock(&code->mutex);
        *kernel = (struct own_kernel){
            .is_done = true, .library = library, .devices = library ? device_bit(code->cu_device) : 0};
        pthread_cond_broadcast(&code->changed);
        pthread_mutex_unlock(&code->mutex);
    }
    return NULL;
}

static bool start(struct flyt_own_code *code)
{
    code->has_thread = pthread_create(&code->thread, NULL, run, code) == 0;
    return code->has_thread;
}

struct flyt_own_code *flyt_own_code_begin(const struct flyt_driver *driver, CUdevice cu_device, CUcontext cu_context)
{
    struct flyt_own_code *code = calloc(1, sizeof *code);
    if (!code)
        return NULL;
    code->driver = driver;
    code->cu_device = cu_device;
    code->cu_context = cu_context;
    pthread_mutex_init(&code->mutex, NULL);
    pthread_cond_init(&code->changed, NULL);
    if (start(code))
        return code;
    pthread_cond_destroy(&code->changed);
    pthread_mutex_destroy(&code->mutex);
    free(code);
    return NULL;
}

void flyt_own_code_end_device(struct flyt_own_code *code)
{
    if (code->has_thread)
        pthread_join(code->thread, NULL);
    code->has_thread = false;
    for (unsigned n = 0; n < FLYT_OWN_KERNELS; n++) {
        if (code->kernels[n].library)
            code->driver->cuLibraryUnload(code->kernels[n].library);
        code->kernels[n] = (struct own_kernel){.is_done = true};
    }
}

/* Anew, for this device first. */
static void begin_again(struct flyt_own_code *code, CUdevice cu_device, CUcontext cu_primary)
{
    code->cu_device = cu_device;
    code->cu_context = cu_primary;
    for (unsigned n = 0; n < FLYT_OWN_KERNELS; n++)
        code->kernels[n].is_done = false;
    if (!start(code))
        for (unsigned n = 0; n < FLYT_OWN_KERNELS; n++)
            code->kernels[n].is_done = true;
}

struct flyt_own_code *flyt_own_code_free(struct flyt_own_code *code)
{
    if (!code)
        return NULL;
    flyt_own_code_end_device(code);
    pthread_cond_destroy(&code->changed);
    pthread_mutex_destroy(&code->mutex);
    free(code);
    return NULL;
}

/* When the thread has tried it. */
static struct own_kernel await(struct flyt_own_code *code, enum flyt_own_kernel which)
{
    pthread_mutex_lock(&code->mutex);
    while (!code->kernels[which].is_done)
        pthread_cond_wait(&code->changed, &code->mutex);
    const struct own_kernel kernel = code->kernels[which];
    pthread_mutex_unlock(&code->mutex);
    return kernel;
}

void flyt_own_code_add_device(struct flyt_own_code *code, CUdevice cu_device, CUcontext cu_primary)
{
    if (!code->has_thread) {
        begin_again(code, cu_device, cu_primary);
        return;
    }
    /* The first one is the thread's: nobody waits for that. */
    if (cu_device == code->cu_device || code->driver->cuCtxSetCurrent(cu_primary) != CUDA_SUCCESS)
        return;
    const uint64_t device = device_bit(cu_device);
    for (unsigned n = 0; n < FLYT_OWN_KERNELS; n++) {
        const struct own_kernel kernel = await(code, n);
        if (!kernel.library || kernel.devices & device || place(code->driver, kernel.library) != CUDA_SUCCESS)
            continue;
        pthread_mutex_lock(&code->mutex);
        code->kernels[n].devices |= device;
        pthread_mutex_unlock(&code->mutex);
    }
}

CUresult flyt_own_kernel_load(const struct flyt_driver *driver, CUdevice cu_device, enum flyt_own_kernel which,
                              CUlibrary *ret_library)
{
    const struct own_kernel kernel = driver->own ? await(driver->own, which) : (struct own_kernel){0};
    if (!kernel.library || !(kernel.devices & device_bit(cu_device)))
        return load(driver, kernels[which].ptx, ret_library);
    *ret_library = kernel.library;
    return CUDA_SUCCESS;
}

CUresult flyt_own_kernel_unload(const struct flyt_driver *driver, CUlibrary library)
{
    for (unsigned n = 0; driver->own && n < FLYT_OWN_KERNELS; n++)
        if (await(driver->own, n).library == library)
            return CUDA_SUCCESS;
    return driver->cuLibraryUnload(library);
}
