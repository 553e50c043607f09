/* Capture: what libraries launch into a stream that captures becomes nodes of a graph (graph.h). */
#include "cpu/softgpu/driver/driver.h"
#include "cpu/softgpu/driver/graph.h"
#include "cpu/softgpu/driver/queue.h"

CUresult flyt_soft_capture_work(struct CUstream_st *stream, const struct flyt_soft_work *work)
{
    return flyt_soft_graph_append(stream->captured, work) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void flyt_soft_capture_drop(struct CUstream_st *stream)
{
    flyt_soft_graph_free(stream->captured);
    stream->captured = NULL;
    stream->is_capture_failed = false;
}

static CUresult enter_capture(CUstream handle, struct CUstream_st **ret_stream)
{
    struct CUctx_st *ctx;
    CUresult r = flyt_soft_enter(&ctx);

    return r == CUDA_SUCCESS ? flyt_soft_stream_find(ctx, handle, ret_stream) : r;
}

/* Only what libraries launch is captured. */
FLYT_SOFT_API cuStreamBeginCapture(CUstream hStream, CUstreamCaptureMode mode)
{
    struct CUstream_st *stream;
    CUresult r = enter_capture(hStream, &stream);

    if (r != CUDA_SUCCESS)
        return r;
    if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->is_legacy)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->captured)
        return CUDA_ERROR_ILLEGAL_STATE;
    stream->captured = flyt_soft_graph_new(NULL);
    return stream->captured ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

FLYT_SOFT_API cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
    struct CUstream_st *stream;
    CUresult r = enter_capture(hStream, &stream);

    if (r != CUDA_SUCCESS)
        return r;
    if (!phGraph)
        return CUDA_ERROR_INVALID_VALUE;
    if (!stream->captured)
        return CUDA_ERROR_ILLEGAL_STATE;
    *phGraph = stream->is_capture_failed ? NULL : stream->captured;
    if (*phGraph)
        stream->captured = NULL;
    flyt_soft_capture_drop(stream);
    return *phGraph ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

FLYT_SOFT_API cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
    struct CUstream_st *stream;
    CUresult r = enter_capture(hStream, &stream);

    if (r != CUDA_SUCCESS)
        return r;
    if (!captureStatus)
        return CUDA_ERROR_INVALID_VALUE;
    *captureStatus = !stream->captured           ? CU_STREAM_CAPTURE_STATUS_NONE
                     : stream->is_capture_failed ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                                 : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
}
