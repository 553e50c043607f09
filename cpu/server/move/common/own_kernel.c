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

struct flyt_own_code {
    const struct flyt_driver *driver;
    CUcontext cu_context;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* Under the mutex. */
    unsigned done_count;            /* of the kernels, in their order */
    char *images[FLYT_OWN_KERNELS]; /* NULL: it could not be compiled */
};

static void *run(void *user)
{
    struct flyt_own_code *code = user;
    const CUresult context = code->driver->cuCtxSetCurrent(code->cu_context);
    for (unsigned n = 0; n < FLYT_OWN_KERNELS; n++) {
        char *image = NULL;
        uint64_t bytes;
        CUresult result = context == CUDA_SUCCESS ? flyt_jit_link(code->driver, kernels[n].ptx, kernels[n].bytes,
                                                                  kernels[n].name, NULL, &image, &bytes)
                                                  : context;
        if (result != CUDA_SUCCESS)
            flyt_warn("a kernel of the server's own cannot be compiled ahead, name=%s cuda_result=%d", kernels[n].name,
                      (int)result);
        pthread_mutex_lock(&code->mutex);
        code->images[n] = image;
        code->done_count = n + 1;
        pthread_cond_broadcast(&code->changed);
        pthread_mutex_unlock(&code->mutex);
    }
    return NULL;
}

struct flyt_own_code *flyt_own_code_begin(const struct flyt_driver *driver, CUcontext cu_context)
{
    struct flyt_own_code *code = calloc(1, sizeof *code);
    if (!code)
        return NULL;
    code->driver = driver;
    code->cu_context = cu_context;
    pthread_mutex_init(&code->mutex, NULL);
    pthread_cond_init(&code->changed, NULL);
    if (pthread_create(&code->thread, NULL, run, code) == 0)
        return code;
    pthread_cond_destroy(&code->changed);
    pthread_mutex_destroy(&code->mutex);
    free(code);
    return NULL;
}

struct flyt_own_code *flyt_own_code_free(struct flyt_own_code *code)
{
    if (!code)
        return NULL;
    pthread_join(code->thread, NULL);
    for (unsigned n = 0; n < FLYT_OWN_KERNELS; n++)
        free(code->images[n]);
    pthread_cond_destroy(&code->changed);
    pthread_mutex_destroy(&code->mutex);
    free(code);
    return NULL;
}

/* NULL: there is none. */
static const void *await_image(struct flyt_own_code *code, enum flyt_own_kernel which)
{
    pthread_mutex_lock(&code->mutex);
    while (code->done_count <= (unsigned)which)
        pthread_cond_wait(&code->changed, &code->mutex);
    const void *image = code->images[which];
    pthread_mutex_unlock(&code->mutex);
    return image;
}

/* Compiles and places it now, not with its first launch. */
static CUresult load(const struct flyt_driver *driver, const void *image, CUlibrary *ret_library)
{
    CUlibrary library;
    CUmodule module;
    CUresult result = driver->cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver->cuLibraryGetModule(&module, library);
    if (result == CUDA_SUCCESS)
        *ret_library = library;
    else
        driver->cuLibraryUnload(library);
    return result;
}

CUresult flyt_own_kernel_load(const struct flyt_driver *driver, enum flyt_own_kernel which, CUlibrary *ret_library)
{
    const void *image = driver->own ? await_image(driver->own, which) : NULL;
    if (image && load(driver, image, ret_library) == CUDA_SUCCESS)
        return CUDA_SUCCESS;
    return load(driver, kernels[which].ptx, ret_library);
}
