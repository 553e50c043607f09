/* Host functions and callbacks of streams. */
#include "cpu/client/cuda/function.h"

#include "cpu/cudart/cudart.h"

/* `handle` is what the callback is told as its stream: the program's own argument, not what it stands for. */
static cudaError_t add_callback(cudaStream_t stream, cudaStream_t handle, cudaStreamCallback_t callback, void *userData,
                                unsigned flags)
{
    /* The core calls it with a CUresult: as an argument an int like cudaError_t, and the numbers that can occur here
     * are the same. */
    CUstreamCallback as_driver = (CUstreamCallback)(void (*)(void))callback;
    CUresult result;

    if (!callback)
        return flyt_cudart_fail(cudaErrorInvalidValue);
    result = flyt_cudart_enter();
    if (result == CUDA_SUCCESS)
        result = flyt_stream_callback_add(stream, handle, as_driver, userData, flags);
    return flyt_cudart_result(result);
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void *userData,
                                  unsigned int flags)
{
    return add_callback(stream, stream, callback, userData, flags);
}

__attribute__((visibility("default"))) cudaError_t
cudaStreamAddCallback_ptsz(cudaStream_t stream, cudaStreamCallback_t callback, void *userData, unsigned int flags);
cudaError_t cudaStreamAddCallback_ptsz(cudaStream_t stream, cudaStreamCallback_t callback, void *userData,
                                       unsigned int flags)
{
    return add_callback(flyt_stream_per_thread(stream), stream, callback, userData, flags);
}
