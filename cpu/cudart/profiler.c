/* cudaProfilerStart and cudaProfilerStop switch the profiler of the server's process. */
#include "cpu/cudart/cudart.h"

#include "cpu/client/cuda/device.h"

#pragma GCC visibility push(default)
#include <cuda_profiler_api.h>
#pragma GCC visibility pop

static cudaError_t set_profiler(bool is_on)
{
    CUresult result = flyt_cudart_enter();

    return flyt_cudart_result(result != CUDA_SUCCESS ? result : flyt_profiler_set(is_on));
}

cudaError_t cudaProfilerStart(void)
{
    return set_profiler(true);
}

cudaError_t cudaProfilerStop(void)
{
    return set_profiler(false);
}
