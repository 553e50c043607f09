/*
 * Kernels: attributes, occupancy, launch. A CUkernel and its CUfunction are the same id, in every context.
 */
#include "cpu/cuda/driver.h"
#include "cpu/client/cuda/kernel.h"
#include "cpu/client/cuda/module.h"
#include "cpu/cuda/lower.h"

static CUfunction as_function(CUkernel kernel)
{
    return (CUfunction)kernel;
}

/* ---- kernels ---- */

CUresult CUDAAPI cuKernelGetFunction(CUfunction *ret_function, CUkernel kernel)
{
    FLYT_CUDA_ENTER();
    CUresult result = flyt_cuda_need_context();
    if (result != CUDA_SUCCESS)
        return result;
    if (!ret_function)
        return CUDA_ERROR_INVALID_VALUE;
    CUlibrary library;
    result = flyt_kernel_library(kernel, &library);
    if (result == CUDA_SUCCESS)
        *ret_function = as_function(kernel);
    return result;
}

/* These three name their device; −1 is none. */

CUresult CUDAAPI cuKernelGetAttribute(int *ret_value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device)
{
    FLYT_CUDA_ENTER();
    if (!ret_value)
        return CUDA_ERROR_INVALID_VALUE;
    if (device < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    return flyt_kernel_attribute(as_function(kernel), device, attribute, ret_value);
}

CUresult CUDAAPI cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device)
{
    FLYT_CUDA_ENTER();
    if (device < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    return flyt_kernel_attribute_set(as_function(kernel), device, attribute, value);
}

CUresult CUDAAPI cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice device)
{
    FLYT_CUDA_ENTER();
    if (device < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    return flyt_kernel_cache_config_set(as_function(kernel), device, config);
}

/* ---- occupancy ---- */

/* ---- launch ---- */

static struct flyt_launch launch_of_config(const CUlaunchConfig *config, CUfunction function)
{
    return (struct flyt_launch){
        .function = function,
        .grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
        .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
        .dynamic_shared_bytes = config->sharedMemBytes,
        .stream = config->hStream,
        .attributes = config->attrs,
        .attribute_count = config->numAttrs,
    };
}

static bool config_is_valid(const CUlaunchConfig *config)
{
    return config && (config->attrs || !config->numAttrs);
}

CUresult CUDAAPI cuOccupancyMaxPotentialClusterSize(int *ret_cluster_blocks, CUfunction function,
                                                    const CUlaunchConfig *config)
{
    FLYT_CUDA_ENTER();
    if (!ret_cluster_blocks || !config_is_valid(config))
        return flyt_cuda_invalid_value();
    struct flyt_launch launch = launch_of_config(config, function);
    return flyt_kernel_max_cluster_size(&launch, ret_cluster_blocks);
}

CUresult CUDAAPI cuOccupancyMaxActiveClusters(int *ret_clusters, CUfunction function, const CUlaunchConfig *config)
{
    FLYT_CUDA_ENTER();
    if (!ret_clusters || !config_is_valid(config))
        return flyt_cuda_invalid_value();
    struct flyt_launch launch = launch_of_config(config, function);
    return flyt_kernel_max_active_clusters(&launch, ret_clusters);
}

CUresult flyt_cuda_launch_params(struct flyt_launch *launch, void **params, void **extra)
{
    for (; extra && extra[0] != CU_LAUNCH_PARAM_END; extra += 2) {
        if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            launch->param_buffer = extra[1];
        else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE && extra[1])
            launch->param_buffer_bytes = *(const size_t *)extra[1];
        else
            return CUDA_ERROR_INVALID_VALUE;
    }
    if (launch->param_buffer && params)
        return CUDA_ERROR_INVALID_VALUE;
    launch->params = params;
    return CUDA_SUCCESS;
}

static CUresult launch_with(struct flyt_launch *launch, void **params, void **extra)
{
    CUresult result = flyt_cuda_launch_params(launch, params, extra);
    return result == CUDA_SUCCESS ? flyt_cuda_context_first(flyt_kernel_launch(launch)) : flyt_cuda_invalid_value();
}

CUresult CUDAAPI cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
    FLYT_CUDA_ENTER();
    if (!config_is_valid(config))
        return flyt_cuda_invalid_value();
    struct flyt_launch launch = launch_of_config(config, function);
    return launch_with(&launch, params, extra);
}

CUresult CUDAAPI cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
    FLYT_CUDA_ENTER();
    if (!config_is_valid(config))
        return flyt_cuda_invalid_value();
    struct flyt_launch launch = launch_of_config(config, function);
    launch.stream = flyt_stream_per_thread(launch.stream);
    return launch_with(&launch, params, extra);
}

#define LAUNCH_PARAMETERS                                                                                              \
    CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,        \
        unsigned block_z, unsigned dynamic_shared_bytes, CUstream stream, void **params
#define LAUNCH_ARGUMENTS_PER_THREAD                                                                                    \
    function, grid_x, grid_y, grid_z, block_x, block_y, block_z, dynamic_shared_bytes, flyt_stream_per_thread(stream), \
        params

CUresult CUDAAPI cuLaunchKernel(LAUNCH_PARAMETERS, void **extra)
{
    FLYT_CUDA_ENTER();
    struct flyt_launch launch = {.function = function,
                                 .grid = {grid_x, grid_y, grid_z},
                                 .block = {block_x, block_y, block_z},
                                 .dynamic_shared_bytes = dynamic_shared_bytes,
                                 .stream = stream};
    return launch_with(&launch, params, extra);
}
FLYT_CUDA_PTSZ(cuLaunchKernel, (LAUNCH_PARAMETERS, void **extra), (LAUNCH_ARGUMENTS_PER_THREAD, extra))

CUresult CUDAAPI cuLaunchCooperativeKernel(LAUNCH_PARAMETERS)
{
    FLYT_CUDA_ENTER();
    const CUlaunchAttribute cooperative = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value = {.cooperative = 1}};
    struct flyt_launch launch = {.function = function,
                                 .grid = {grid_x, grid_y, grid_z},
                                 .block = {block_x, block_y, block_z},
                                 .dynamic_shared_bytes = dynamic_shared_bytes,
                                 .stream = stream,
                                 .params = params,
                                 .attributes = &cooperative,
                                 .attribute_count = 1};
    return flyt_cuda_context_first(flyt_kernel_launch(&launch));
}
FLYT_CUDA_PTSZ(cuLaunchCooperativeKernel, (LAUNCH_PARAMETERS), (LAUNCH_ARGUMENTS_PER_THREAD))
