/* Occupancy: how many blocks of a kernel fit on a multiprocessor, and how many clusters on the device. */
#include "cpu/client/cuda/kernel.h"

#include "cpu/cudart/cudart.h"
#include "cpu/cudart/registry.h"

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *numBlocks, const void *func, int blockSize,
                                                                   size_t dynamicSMemSize, unsigned int flags)
{
    CUfunction function;
    cudaError_t error = numBlocks ? flyt_cudart_enter_kernel(func, &function) : cudaErrorInvalidValue;

    if (error != cudaSuccess)
        return flyt_cudart_fail(error);
    return flyt_cudart_result(flyt_kernel_occupancy(function, blockSize, dynamicSMemSize, flags, numBlocks));
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks, const void *func, int blockSize,
                                                          size_t dynamicSMemSize)
{
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(numBlocks, func, blockSize, dynamicSMemSize,
                                                                  cudaOccupancyDefault);
}

cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t *dynamicSmemSize, const void *func, int numBlocks,
                                                      int blockSize)
{
    CUfunction function;
    cudaError_t error = dynamicSmemSize ? flyt_cudart_enter_kernel(func, &function) : cudaErrorInvalidValue;

    if (error != cudaSuccess)
        return flyt_cudart_fail(error);
    return flyt_cudart_result(flyt_kernel_available_shared(function, numBlocks, blockSize, dynamicSmemSize));
}

/* A question about the launch that `config` describes. */
static cudaError_t ask_of_launch(int *ret_count, const void *func, const cudaLaunchConfig_t *config,
                                 CUresult (*ask)(const struct flyt_launch *, int *))
{
    struct flyt_launch launch;
    cudaError_t error;

    if (!ret_count || !config || config->dynamicSmemBytes > UINT32_MAX || (config->numAttrs > 0 && !config->attrs))
        return flyt_cudart_fail(cudaErrorInvalidValue);
    launch = (struct flyt_launch){
        .grid = {config->gridDim.x, config->gridDim.y, config->gridDim.z},
        .block = {config->blockDim.x, config->blockDim.y, config->blockDim.z},
        .dynamic_shared_bytes = (unsigned)config->dynamicSmemBytes,
        .stream = config->stream,
        .attributes = (const CUlaunchAttribute *)(const void *)config->attrs,
        .attribute_count = config->numAttrs,
    };
    error = flyt_cudart_enter_kernel(func, &launch.function);
    return error != cudaSuccess ? flyt_cudart_fail(error) : flyt_cudart_result(ask(&launch, ret_count));
}

cudaError_t cudaOccupancyMaxPotentialClusterSize(int *clusterSize, const void *func,
                                                 const cudaLaunchConfig_t *launchConfig)
{
    return ask_of_launch(clusterSize, func, launchConfig, flyt_kernel_max_cluster_size);
}

cudaError_t cudaOccupancyMaxActiveClusters(int *numClusters, const void *func, const cudaLaunchConfig_t *launchConfig)
{
    return ask_of_launch(numClusters, func, launchConfig, flyt_kernel_max_active_clusters);
}
