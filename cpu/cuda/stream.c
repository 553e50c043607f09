/*
 * Streams, host functions, and what little there is of capture: nothing can be captured, so no stream ever is.
 */
#include "cpu/cuda/driver.h"
#include "cpu/client/function.h"

/* ---- streams ---- */

CUresult CUDAAPI cuStreamCreateWithPriority(CUstream *ret_stream, unsigned flags, int priority)
{
    FLYT_CUDA_ENTER();
    return ret_stream ? flyt_stream_create(flags, priority, ret_stream) : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuStreamCreate(CUstream *ret_stream, unsigned flags)
{
    return cuStreamCreateWithPriority(ret_stream, flags, 0);
}

CUresult CUDAAPI cuStreamDestroy_v2(CUstream stream)
{
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE; /* even before cuInit */
    FLYT_CUDA_ENTER();
    return flyt_cuda_unless_released(flyt_stream_destroy(stream));
}
FLYT_CUDA_SAME(cuStreamDestroy, cuStreamDestroy_v2);

CUresult CUDAAPI cuStreamQuery(CUstream stream)
{
    FLYT_CUDA_ENTER();
    return flyt_cuda_unless_released(flyt_stream_query(stream));
}
FLYT_CUDA_PTSZ(cuStreamQuery, (CUstream stream), (flyt_stream_per_thread(stream)))

CUresult CUDAAPI cuStreamSynchronize(CUstream stream)
{
    FLYT_CUDA_ENTER();
    return flyt_cuda_unless_released(flyt_stream_synchronize(stream));
}
FLYT_CUDA_PTSZ(cuStreamSynchronize, (CUstream stream), (flyt_stream_per_thread(stream)))

CUresult CUDAAPI cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    FLYT_CUDA_ENTER();
    return flyt_stream_wait_event(stream, event, flags);
}
FLYT_CUDA_PTSZ(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags),
               (flyt_stream_per_thread(stream), event, flags))

CUresult CUDAAPI cuStreamGetFlags(CUstream stream, unsigned *ret_flags)
{
    FLYT_CUDA_ENTER();
    return ret_flags ? flyt_stream_flags(stream, ret_flags) : flyt_cuda_invalid_value();
}
FLYT_CUDA_PTSZ(cuStreamGetFlags, (CUstream stream, unsigned *ret_flags), (flyt_stream_per_thread(stream), ret_flags))

CUresult CUDAAPI cuStreamGetPriority(CUstream stream, int *ret_priority)
{
    FLYT_CUDA_ENTER();
    return ret_priority ? flyt_stream_priority(stream, ret_priority) : flyt_cuda_invalid_value();
}
FLYT_CUDA_PTSZ(cuStreamGetPriority, (CUstream stream, int *ret_priority),
               (flyt_stream_per_thread(stream), ret_priority))

CUresult CUDAAPI cuStreamGetId(CUstream stream, unsigned long long *ret_id)
{
    FLYT_CUDA_ENTER();
    return ret_id ? flyt_stream_number(stream, ret_id) : flyt_cuda_invalid_value();
}
FLYT_CUDA_PTSZ(cuStreamGetId, (CUstream stream, unsigned long long *ret_id), (flyt_stream_per_thread(stream), ret_id))

CUresult CUDAAPI cuStreamGetDevice(CUstream stream, CUdevice *ret_device)
{
    FLYT_CUDA_ENTER();
    return ret_device ? flyt_stream_device(stream, ret_device) : flyt_cuda_invalid_value();
}
FLYT_CUDA_PTSZ(cuStreamGetDevice, (CUstream stream, CUdevice *ret_device), (flyt_stream_per_thread(stream), ret_device))

CUresult CUDAAPI cuStreamGetCtx(CUstream stream, CUcontext *ret_context)
{
    FLYT_CUDA_ENTER();
    return ret_context ? flyt_stream_context(stream, ret_context) : flyt_cuda_invalid_value();
}
FLYT_CUDA_PTSZ(cuStreamGetCtx, (CUstream stream, CUcontext *ret_context), (flyt_stream_per_thread(stream), ret_context))

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

CUresult CUDAAPI cuLaunchHostFunc(CUstream stream, CUhostFn function, void *user)
{
    FLYT_CUDA_ENTER();
    return function ? flyt_host_function_launch(stream, function, user) : flyt_cuda_invalid_value();
}
FLYT_CUDA_PTSZ(cuLaunchHostFunc, (CUstream stream, CUhostFn function, void *user),
               (flyt_stream_per_thread(stream), function, user))

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

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    FLYT_CUDA_ENTER();
    return mode ? flyt_capture_mode_exchange(mode) : CUDA_ERROR_INVALID_VALUE;
}
