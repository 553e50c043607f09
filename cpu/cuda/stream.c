/*
 * Host functions, and what little there is of capture: nothing can be captured, so no stream ever is.
 */
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

/* ---- capture ---- */

/* Also what cuStreamGetCaptureInfo says in all versions: the other results are set only while capturing. */
CUresult CUDAAPI cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *ret_status)
{
    FLYT_CUDA_ENTER();
    unsigned flags;
    CUresult result = flyt_stream_flags(stream, &flags);
    if (result != CUDA_SUCCESS)
        return result;
    if (!ret_status)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}
FLYT_CUDA_PTSZ(cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus *ret_status),
               (flyt_stream_per_thread(stream), ret_status))

CUresult CUDAAPI cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *ret_status, cuuint64_t *ret_id)
{
    return cuStreamIsCapturing(stream, ret_status);
}
FLYT_CUDA_PTSZ(cuStreamGetCaptureInfo, (CUstream stream, CUstreamCaptureStatus *ret_status, cuuint64_t *ret_id),
               (flyt_stream_per_thread(stream), ret_status, ret_id))

CUresult CUDAAPI cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *ret_status, cuuint64_t *ret_id,
                                           CUgraph *ret_graph, const CUgraphNode **ret_nodes, size_t *ret_node_count)
{
    return cuStreamIsCapturing(stream, ret_status);
}
FLYT_CUDA_PTSZ(cuStreamGetCaptureInfo_v2,
               (CUstream stream, CUstreamCaptureStatus *ret_status, cuuint64_t *ret_id, CUgraph *ret_graph,
                const CUgraphNode **ret_nodes, size_t *ret_node_count),
               (flyt_stream_per_thread(stream), ret_status, ret_id, ret_graph, ret_nodes, ret_node_count))

CUresult CUDAAPI cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *ret_status, cuuint64_t *ret_id,
                                           CUgraph *ret_graph, const CUgraphNode **ret_nodes,
                                           const CUgraphEdgeData **ret_edges, size_t *ret_node_count)
{
    return cuStreamIsCapturing(stream, ret_status);
}
FLYT_CUDA_PTSZ(cuStreamGetCaptureInfo_v3,
               (CUstream stream, CUstreamCaptureStatus *ret_status, cuuint64_t *ret_id, CUgraph *ret_graph,
                const CUgraphNode **ret_nodes, const CUgraphEdgeData **ret_edges, size_t *ret_node_count),
               (flyt_stream_per_thread(stream), ret_status, ret_id, ret_graph, ret_nodes, ret_edges, ret_node_count))
