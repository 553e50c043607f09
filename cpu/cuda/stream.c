/* A stream's context, and host functions. */
#include "cpu/cuda/driver.h"
#include "cpu/client/cuda/function.h"
#include "cpu/client/green/green.h"

/* Of a stream in a green context, the primary context that this is a part of. */
CUresult CUDAAPI cuStreamGetCtx_v2(CUstream stream, CUcontext *ret_context, CUgreenCtx *ret_green)
{
    CUgreenCtx green = NULL;
    CUresult result = cuStreamGetCtx(stream, ret_context);
    if (result == CUDA_SUCCESS)
        result = flyt_green_of_stream(stream, &green);
    if (result == CUDA_SUCCESS && green)
        *ret_context = (CUcontext)(uintptr_t)flyt_context_owner((uint64_t)(uintptr_t)*ret_context);
    if (result == CUDA_SUCCESS && ret_green)
        *ret_green = green;
    return result;
}
FLYT_CUDA_PTSZ(cuStreamGetCtx_v2, (CUstream stream, CUcontext *ret_context, CUgreenCtx *ret_green),
               (flyt_stream_per_thread(stream), ret_context, ret_green))

/* ---- host functions ---- */

/* `handle` is what the program called its stream, and what its callback will hear. */
static CUresult callback_add(CUstream stream, CUstream handle, CUstreamCallback callback, void *user, unsigned flags)
{
    FLYT_CUDA_ENTER();
    return callback ? flyt_stream_callback_add(stream, handle, callback, user, flags) : flyt_cuda_invalid_value();
}

CUresult CUDAAPI cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void *user, unsigned flags)
{
    return callback_add(stream, stream, callback, user, flags);
}

CUresult CUDAAPI cuStreamAddCallback_ptsz(CUstream stream, CUstreamCallback callback, void *user, unsigned flags)
{
    return callback_add(flyt_stream_per_thread(stream), stream, callback, user, flags);
}
