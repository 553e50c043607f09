/* Events. */
#include "cpu/cuda/driver.h"
#include "cpu/client/event.h"

CUresult CUDAAPI cuEventCreate(CUevent *ret_event, unsigned flags)
{
    FLYT_CUDA_ENTER();
    return ret_event ? flyt_event_create(flags, ret_event) : flyt_cuda_invalid_value();
}

CUresult CUDAAPI cuEventDestroy_v2(CUevent event)
{
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE; /* even before cuInit */
    FLYT_CUDA_ENTER();
    return flyt_cuda_unless_released(flyt_event_destroy(event));
}
FLYT_CUDA_SAME(cuEventDestroy, cuEventDestroy_v2);

CUresult CUDAAPI cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags)
{
    FLYT_CUDA_ENTER();
    return flyt_event_record(event, stream, flags);
}
FLYT_CUDA_PTSZ(cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned flags),
               (event, flyt_stream_per_thread(stream), flags))

CUresult CUDAAPI cuEventRecord(CUevent event, CUstream stream)
{
    return cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_DEFAULT);
}
FLYT_CUDA_PTSZ(cuEventRecord, (CUevent event, CUstream stream), (event, flyt_stream_per_thread(stream)))

CUresult CUDAAPI cuEventQuery(CUevent event)
{
    FLYT_CUDA_ENTER();
    return flyt_cuda_unless_released(flyt_event_query(event));
}

CUresult CUDAAPI cuEventSynchronize(CUevent event)
{
    FLYT_CUDA_ENTER();
    return flyt_cuda_unless_released(flyt_event_synchronize(event));
}

CUresult CUDAAPI cuEventElapsedTime_v2(float *ret_elapsed_ms, CUevent start, CUevent end)
{
    FLYT_CUDA_ENTER();
    return ret_elapsed_ms ? flyt_event_elapsed(start, end, ret_elapsed_ms) : CUDA_ERROR_INVALID_VALUE;
}
FLYT_CUDA_SAME(cuEventElapsedTime, cuEventElapsedTime_v2);
