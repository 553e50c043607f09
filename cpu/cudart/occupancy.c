/* Occupancy: how large a kernel's clusters may be, and how many of them fit on the device. */
#include "cpu/client/cuda/kernel.h"

#include "cpu/cudart/cudart.h"
#include "cpu/cudart/registry.h"

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
