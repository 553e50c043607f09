/* Streams. cudaStreamLegacy and cudaStreamPerThread are the driver API's CU_STREAM_LEGACY and CU_STREAM_PER_THREAD. */
#include "cpu/cudart/cudart.h"

static cudaError_t create(cudaStream_t *stream, unsigned flags, int priority)
{
    CUresult result;

    if (!stream)
        return flyt_cudart_fail(cudaErrorInvalidValue);
    result = flyt_cudart_enter();
    return flyt_cudart_result(result != CUDA_SUCCESS ? result : flyt_stream_create(flags, priority, stream));
}

cudaError_t cudaStreamCreate(cudaStream_t *pStream)
{
    return create(pStream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *pStream, unsigned int flags)
{
    return create(pStream, flags, 0);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *pStream, unsigned int flags, int priority)
{
    return create(pStream, flags, priority);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    return flyt_cudart_result(flyt_stream_destroy(stream));
}

/* ---- order ---- */

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    CUresult result = flyt_cudart_enter();

    return flyt_cudart_result(result != CUDA_SUCCESS ? result : flyt_stream_query(stream));
}

FLYT_CUDART_PTSZ(cudaStreamQuery, (cudaStream_t stream), (flyt_stream_per_thread(stream)))

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    CUresult result = flyt_cudart_enter();

    return flyt_cudart_result(result != CUDA_SUCCESS ? result : flyt_stream_synchronize(stream));
}

FLYT_CUDART_PTSZ(cudaStreamSynchronize, (cudaStream_t stream), (flyt_stream_per_thread(stream)))

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
    CUresult result = flyt_cudart_enter();

    return flyt_cudart_result(result != CUDA_SUCCESS ? result : flyt_stream_wait_event(stream, event, flags));
}

FLYT_CUDART_PTSZ(cudaStreamWaitEvent, (cudaStream_t stream, cudaEvent_t event, unsigned int flags),
                 (flyt_stream_per_thread(stream), event, flags))

/* ---- what a stream is ---- */

cudaError_t cudaStreamGetPriority(cudaStream_t hStream, int *priority)
{
    CUresult result;

    if (!priority)
        return flyt_cudart_fail(cudaErrorInvalidValue);
    result = flyt_cudart_enter();
    return flyt_cudart_result(result != CUDA_SUCCESS ? result : flyt_stream_priority(hStream, priority));
}

FLYT_CUDART_PTSZ(cudaStreamGetPriority, (cudaStream_t hStream, int *priority),
                 (flyt_stream_per_thread(hStream), priority))

cudaError_t cudaStreamGetFlags(cudaStream_t hStream, unsigned int *flags)
{
    CUresult result;

    if (!flags)
        return flyt_cudart_fail(cudaErrorInvalidValue);
    result = flyt_cudart_enter();
    return flyt_cudart_result(result != CUDA_SUCCESS ? result : flyt_stream_flags(hStream, flags));
}

FLYT_CUDART_PTSZ(cudaStreamGetFlags, (cudaStream_t hStream, unsigned int *flags),
                 (flyt_stream_per_thread(hStream), flags))

cudaError_t cudaStreamGetId(cudaStream_t hStream, unsigned long long *streamId)
{
    CUresult result;

    if (!streamId)
        return flyt_cudart_fail(cudaErrorInvalidValue);
    result = flyt_cudart_enter();
    return flyt_cudart_result(result != CUDA_SUCCESS ? result : flyt_stream_number(hStream, streamId));
}

FLYT_CUDART_PTSZ(cudaStreamGetId, (cudaStream_t hStream, unsigned long long *streamId),
                 (flyt_stream_per_thread(hStream), streamId))

cudaError_t cudaStreamGetDevice(cudaStream_t hStream, int *device)
{
    CUresult result;

    if (!device)
        return flyt_cudart_fail(cudaErrorInvalidValue);
    result = flyt_cudart_enter();
    return flyt_cudart_result(result != CUDA_SUCCESS ? result : flyt_stream_device(hStream, device));
}

FLYT_CUDART_PTSZ(cudaStreamGetDevice, (cudaStream_t hStream, int *device), (flyt_stream_per_thread(hStream), device))

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
