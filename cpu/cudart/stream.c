/* Streams. cudaStreamLegacy and cudaStreamPerThread are the driver API's CU_STREAM_LEGACY and CU_STREAM_PER_THREAD. */
#include "cpu/cudart/cudart.h"

/* ---- order ---- */

/* ---- what a stream is ---- */

/* ---- capture: no stream is ever captured, which these may be asked of all the same ---- */

/* CUDA_SUCCESS where the stream exists. */
static CUresult check_stream(cudaStream_t stream)
{
    unsigned flags;
    CUresult result = flyt_cudart_enter();

    return result != CUDA_SUCCESS ? result : flyt_stream_flags(stream, &flags);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *pCaptureStatus)
{
    CUresult result;

    if (!pCaptureStatus)
        return flyt_cudart_fail(cudaErrorInvalidValue);
    result = check_stream(stream);
    if (result == CUDA_SUCCESS)
        *pCaptureStatus = cudaStreamCaptureStatusNone;
    return flyt_cudart_result(result);
}

FLYT_CUDART_PTSZ(cudaStreamIsCapturing, (cudaStream_t stream, enum cudaStreamCaptureStatus *pCaptureStatus),
                 (flyt_stream_per_thread(stream), pCaptureStatus))

/* The other results are only defined for a stream that is being captured. */
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *captureStatus_out,
                                     unsigned long long *id_out, cudaGraph_t *graph_out,
                                     const cudaGraphNode_t **dependencies_out, const cudaGraphEdgeData **edgeData_out,
                                     size_t *numDependencies_out)
{
    return cudaStreamIsCapturing(stream, captureStatus_out);
}

FLYT_CUDART_PTSZ(cudaStreamGetCaptureInfo,
                 (cudaStream_t stream, enum cudaStreamCaptureStatus *captureStatus_out, unsigned long long *id_out,
                  cudaGraph_t *graph_out, const cudaGraphNode_t **dependencies_out,
                  const cudaGraphEdgeData **edgeData_out, size_t *numDependencies_out),
                 (flyt_stream_per_thread(stream), captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out,
                  numDependencies_out))

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    CUstreamCaptureMode exchanged;
    CUresult result;

    if (!mode)
        return flyt_cudart_fail(cudaErrorInvalidValue);
    exchanged = (CUstreamCaptureMode)*mode;
    result = flyt_capture_mode_exchange(&exchanged);
    if (result == CUDA_SUCCESS)
        *mode = (enum cudaStreamCaptureMode)exchanged;
    return flyt_cudart_result(result);
}
