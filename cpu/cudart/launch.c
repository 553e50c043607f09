/*
 * Launches. <<<grid, block, shared, stream>>> pushes its configuration, evaluates the kernel's arguments and calls the
 * stub that nvcc made, which pops the configuration and launches: by __cudaLaunchKernel with what __cudaGetKernel gave
 * it the first time, or, made by other and older compilers, by cudaLaunchKernel with its own address.
 */
#include "cpu/client/cuda/kernel.h"

#include <stdlib.h>

#include "cpu/cudart/cudart.h"
#include "cpu/cudart/registry.h"

/* crt/device_functions.h declares these for C++ only. */
#pragma GCC visibility push(default)
unsigned __cudaPushCallConfiguration(dim3 gridDim, dim3 blockDim, size_t sharedMem, struct CUstream_st *stream);
cudaError_t __cudaPopCallConfiguration(dim3 *gridDim, dim3 *blockDim, size_t *sharedMem, void *stream);
cudaError_t __cudaGetKernel(cudaKernel_t *kernelPtr, const void *hostFun);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 gridDim, dim3 blockDim, void **args, size_t sharedMem,
                               cudaStream_t stream);
#pragma GCC visibility pop

_Static_assert(sizeof(cudaLaunchAttribute) == sizeof(CUlaunchAttribute), "attributes are passed on as they are");
_Static_assert(offsetof(cudaLaunchAttribute, val) == offsetof(CUlaunchAttribute, value), "as above");

/* ---- configurations: a stack, as the arguments of a launch may themselves launch ---- */

enum { SMALL_DEPTH = 4 };

struct configuration {
    dim3 grid, block;
    size_t shared_bytes;
    cudaStream_t stream;
    struct configuration *below; /* those beyond SMALL_DEPTH are allocated */
};

static _Thread_local struct {
    unsigned depth; /* of `small` */
    struct configuration small[SMALL_DEPTH];
    struct configuration *top; /* above `small` */
} configurations;

unsigned __cudaPushCallConfiguration(dim3 gridDim, dim3 blockDim, size_t sharedMem, struct CUstream_st *stream)
{
    struct configuration *place;

    if (__builtin_expect(configurations.depth < SMALL_DEPTH, 1)) {
        place = &configurations.small[configurations.depth++];
    } else {
        place = malloc(sizeof(*place));
        if (!place)
            return flyt_cudart_fail(cudaErrorMemoryAllocation);
        place->below = configurations.top;
        configurations.top = place;
    }
    place->grid = gridDim;
    place->block = blockDim;
    place->shared_bytes = sharedMem;
    place->stream = stream;
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *gridDim, dim3 *blockDim, size_t *sharedMem, void *stream)
{
    struct configuration *place = configurations.top;

    if (__builtin_expect(!place, 1)) {
        if (configurations.depth == 0)
            return flyt_cudart_fail(cudaErrorMissingConfiguration);
        place = &configurations.small[--configurations.depth];
    }
    *gridDim = place->grid;
    *blockDim = place->block;
    *sharedMem = place->shared_bytes;
    *(cudaStream_t *)stream = place->stream;
    if (place == configurations.top) {
        configurations.top = place->below;
        free(place);
    }
    return cudaSuccess;
}

/* ---- launching ---- */

/* Of shared_bytes the low 32 bits count, as in NVIDIA's runtime. A grid or block out of range is cudaErrorInvalidValue:
 * what NVIDIA's runtime returns too, since its version 13 (before: cudaErrorInvalidConfiguration). */
static inline cudaError_t launch_kernel(CUfunction function, const void *symbol, dim3 grid, dim3 block, void **args,
                                        size_t shared_bytes, cudaStream_t stream, const CUlaunchAttribute *attributes,
                                        unsigned attribute_count)
{
    struct flyt_launch launch = {.function = function,
                                 .symbol = symbol,
                                 .grid = {grid.x, grid.y, grid.z},
                                 .block = {block.x, block.y, block.z},
                                 .dynamic_shared_bytes = (unsigned)shared_bytes,
                                 .stream = stream,
                                 .params = args,
                                 .attributes = attributes,
                                 .attribute_count = attribute_count};

    return flyt_cudart_result(flyt_kernel_launch(&launch));
}

cudaError_t __cudaGetKernel(cudaKernel_t *kernelPtr, const void *hostFun)
{
    struct flyt_address_node *node = flyt_cudart_kernel_node(hostFun);

    /* Whether its module can be loaded is not asked here: the stub would never ask again, so each launch tells. */
    if (!node)
        return flyt_cudart_fail(cudaErrorInvalidDeviceFunction);
    *kernelPtr = (cudaKernel_t)(void *)node;
    return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 gridDim, dim3 blockDim, void **args, size_t sharedMem,
                               cudaStream_t stream)
{
    CUfunction function;
    CUresult result = flyt_cudart_enter();
    cudaError_t error;

    if (__builtin_expect(result != CUDA_SUCCESS, 0))
        return flyt_cudart_result(result);
    error = flyt_cudart_node_kernel(kernel, &function);
    if (__builtin_expect(error != cudaSuccess, 0))
        return flyt_cudart_fail(error);
    return launch_kernel(function, flyt_cudart_node_symbol(kernel), gridDim, blockDim, args, sharedMem, stream, NULL,
                         0);
}

FLYT_CUDART_PTSZ(__cudaLaunchKernel,
                 (cudaKernel_t kernel, dim3 gridDim, dim3 blockDim, void **args, size_t sharedMem, cudaStream_t stream),
                 (kernel, gridDim, blockDim, args, sharedMem, flyt_stream_per_thread(stream)))

cudaError_t cudaLaunchKernel(const void *func, dim3 gridDim, dim3 blockDim, void **args, size_t sharedMem,
                             cudaStream_t stream)
{
    CUfunction function;
    cudaError_t error = flyt_cudart_enter_kernel(func, &function);

    if (__builtin_expect(error != cudaSuccess, 0))
        return flyt_cudart_fail(error);
    return launch_kernel(function, func, gridDim, blockDim, args, sharedMem, stream, NULL, 0);
}

FLYT_CUDART_PTSZ(cudaLaunchKernel,
                 (const void *func, dim3 gridDim, dim3 blockDim, void **args, size_t sharedMem, cudaStream_t stream),
                 (func, gridDim, blockDim, args, sharedMem, flyt_stream_per_thread(stream)))

cudaError_t cudaLaunchCooperativeKernel(const void *func, dim3 gridDim, dim3 blockDim, void **args, size_t sharedMem,
                                        cudaStream_t stream)
{
    const CUlaunchAttribute cooperative = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value = {.cooperative = 1}};
    CUfunction function;
    cudaError_t error = flyt_cudart_enter_kernel(func, &function);

    if (error != cudaSuccess)
        return flyt_cudart_fail(error);
    return launch_kernel(function, func, gridDim, blockDim, args, sharedMem, stream, &cooperative, 1);
}

FLYT_CUDART_PTSZ(cudaLaunchCooperativeKernel,
                 (const void *func, dim3 gridDim, dim3 blockDim, void **args, size_t sharedMem, cudaStream_t stream),
                 (func, gridDim, blockDim, args, sharedMem, flyt_stream_per_thread(stream)))

static cudaError_t launch_configured(const cudaLaunchConfig_t *config, const void *func, void **args,
                                     cudaStream_t stream)
{
    CUfunction function;
    cudaError_t error = flyt_cudart_enter_kernel(func, &function);

    if (error != cudaSuccess)
        return flyt_cudart_fail(error);
    if (config->numAttrs > 0 && !config->attrs)
        return flyt_cudart_fail(cudaErrorInvalidValue);
    return launch_kernel(function, func, config->gridDim, config->blockDim, args, config->dynamicSmemBytes, stream,
                         (const CUlaunchAttribute *)(const void *)config->attrs, config->numAttrs);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *func, void **args)
{
    return config ? launch_configured(config, func, args, config->stream) : flyt_cudart_fail(cudaErrorInvalidValue);
}

__attribute__((visibility("default"))) cudaError_t cudaLaunchKernelExC_ptsz(const cudaLaunchConfig_t *config,
                                                                            const void *func, void **args);
cudaError_t cudaLaunchKernelExC_ptsz(const cudaLaunchConfig_t *config, const void *func, void **args)
{
    return config ? launch_configured(config, func, args, flyt_stream_per_thread(config->stream))
                  : flyt_cudart_fail(cudaErrorInvalidValue);
}
