/* The profiler's switch: the server's driver has it. */
#include "cpu/cuda/driver.h"
#include "cpu/client/cuda/device.h"

static CUresult profiler_set(bool is_on)
{
    FLYT_CUDA_ENTER();
    CUresult result = flyt_cuda_need_context();
    return result != CUDA_SUCCESS ? result : flyt_profiler_set(is_on);
}

CUresult CUDAAPI cuProfilerStart(void)
{
    return profiler_set(true);
}

CUresult CUDAAPI cuProfilerStop(void)
{
    return profiler_set(false);
}
