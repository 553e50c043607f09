/* Events. */
#include "cpu/client/event.h"

#include "cpu/cudart/cudart.h"

static cudaError_t create(cudaEvent_t *event, unsigned flags)
{
    CUresult result;

    /* Another process has no use for the time. */
    if (!event || ((flags & cudaEventInterprocess) && !(flags & cudaEventDisableTiming)))
        return flyt_cudart_fail(cudaErrorInvalidValue);
    result = flyt_cudart_enter();
    /* cudaEventBlockingSync and its kin have the numbers of CU_EVENT_BLOCKING_SYNC and its kin. */
    return flyt_cudart_result(result != CUDA_SUCCESS ? result : flyt_event_create(flags, event));
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return create(event, cudaEventDefault);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    return create(event, flags);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    return flyt_cudart_result(flyt_event_destroy(event));
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags)
{
    CUresult result = flyt_cudart_enter();

    return flyt_cudart_result(result != CUDA_SUCCESS ? result : flyt_event_record(event, stream, flags));
}

FLYT_CUDART_PTSZ(cudaEventRecordWithFlags, (cudaEvent_t event, cudaStream_t stream, unsigned int flags),
                 (event, flyt_stream_per_thread(stream), flags))

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

FLYT_CUDART_PTSZ(cudaEventRecord, (cudaEvent_t event, cudaStream_t stream), (event, flyt_stream_per_thread(stream)))

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    CUresult result = flyt_cudart_enter();

    return flyt_cudart_result(result != CUDA_SUCCESS ? result : flyt_event_query(event));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    CUresult result = flyt_cudart_enter();

    return flyt_cudart_result(result != CUDA_SUCCESS ? result : flyt_event_synchronize(event));
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    CUresult result;

    if (!ms)
        return flyt_cudart_fail(cudaErrorInvalidValue);
    result = flyt_cudart_enter();
    return flyt_cudart_result(result != CUDA_SUCCESS ? result : flyt_event_elapsed(start, end, ms));
}
