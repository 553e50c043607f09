/* A stream's context, and host functions. */
#include "cpu/cuda/driver.h"
#include "cpu/client/cuda/function.h"

/* A program has no green contexts of its own. */
CUresult CUDAAPI cuStreamGetCtx_v2(CUstream stream, CUcontext *ret_context, CUgreenCtx *ret_green_context)
{
    CUresult result = cuStreamGetCtx(stream, ret_context);
    if (result == CUDA_SUCCESS && ret_green_context)
        *ret_green_context = NULL;
    return result;
}
FLYT_CUDA_PTSZ(cuStreamGetCtx_v2, (CUstream stream, CUcontext *ret_context, CUgreenCtx *ret_green_context),
               (flyt_stream_per_thread(stream), ret_context, ret_green_context))

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
