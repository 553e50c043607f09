/* Events: each cuEventRecord makes a new record, so that what waits for an earlier one is not disturbed. */
#include <stdlib.h>

#include "cpu/softgpu/driver/driver.h"
#include "cpu/softgpu/driver/event.h"
#include "cpu/softgpu/driver/queue.h"

enum { EVENT_FLAGS = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING };

struct flyt_soft_record *flyt_soft_event_record(CUevent event)
{
    struct flyt_soft_record *record;

    pthread_mutex_lock(&event->mutex);
    record = event->record ? flyt_soft_record_ref(event->record) : NULL;
    pthread_mutex_unlock(&event->mutex);
    return record;
}

void flyt_soft_event_set(CUevent event, struct flyt_soft_record *record)
{
    struct flyt_soft_record *old;

    pthread_mutex_lock(&event->mutex);
    old = event->record;
    event->record = record;
    pthread_mutex_unlock(&event->mutex);
    flyt_soft_record_unref(old);
}

bool flyt_soft_event_suits(CUevent event, const struct CUctx_st *ctx)
{
    return event->ctx->device == ctx->device;
}

FLYT_SOFT_API cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
    struct CUctx_st *ctx;
    struct CUevent_st *event;
    CUresult r = flyt_soft_enter(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (!phEvent || Flags & ~(unsigned)(EVENT_FLAGS | CU_EVENT_INTERPROCESS))
        return CUDA_ERROR_INVALID_VALUE;
    if (Flags & CU_EVENT_INTERPROCESS)
        return Flags & CU_EVENT_DISABLE_TIMING ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    event = calloc(1, sizeof(*event));
    if (!event)
        return CUDA_ERROR_OUT_OF_MEMORY;
    event->kind = FLYT_SOFT_EVENT;
    event->flags = Flags;
    event->ctx = ctx;
    pthread_mutex_init(&event->mutex, NULL);
    flyt_soft_context_ref(ctx);
    *phEvent = event;
    return CUDA_SUCCESS;
}

/* The current context and a check of the event's handle. */
static CUresult enter_event(CUevent event, struct CUctx_st **ret_ctx)
{
    CUresult r = flyt_soft_enter(ret_ctx);

    if (r != CUDA_SUCCESS)
        return r;
    return flyt_soft_is(event, FLYT_SOFT_EVENT) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

FLYT_SOFT_API cuEventDestroy(CUevent hEvent)
{
    struct CUctx_st *ctx;
    CUresult r = flyt_soft_enter_broken(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (!flyt_soft_is(hEvent, FLYT_SOFT_EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    flyt_soft_record_unref(hEvent->record);
    flyt_soft_context_unref(hEvent->ctx);
    pthread_mutex_destroy(&hEvent->mutex);
    hEvent->kind = FLYT_SOFT_DEAD;
    free(hEvent);
    return flyt_soft_leave(ctx, CUDA_SUCCESS);
}

FLYT_SOFT_API cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags)
{
    struct CUctx_st *ctx;
    struct CUstream_st *stream;
    struct flyt_soft_record *record;
    CUresult r = enter_event(hEvent, &ctx);

    if (r == CUDA_SUCCESS)
        r = flyt_soft_stream_take(ctx, hStream, &stream);
    if (r != CUDA_SUCCESS)
        return r;
    if (flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    if (!flyt_soft_event_suits(hEvent, stream->ctx))
        return CUDA_ERROR_INVALID_HANDLE;
    record = flyt_soft_record_new();
    if (!record)
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = flyt_soft_stream_mark(stream, NULL, flyt_soft_record_ref(record));
    if (r == CUDA_SUCCESS)
        flyt_soft_event_set(hEvent, record);
    else
        flyt_soft_record_unref(record);
    return r;
}

FLYT_SOFT_API cuEventRecord(CUevent hEvent, CUstream hStream)
{
    return cuEventRecordWithFlags(hEvent, hStream, 0);
}

FLYT_SOFT_API cuEventQuery(CUevent hEvent)
{
    struct CUctx_st *ctx;
    struct flyt_soft_record *record;
    bool is_complete;
    CUresult r = enter_event(hEvent, &ctx);

    if (r != CUDA_SUCCESS)
        return r;
    record = flyt_soft_event_record(hEvent);
    is_complete = !record || flyt_soft_record_is_complete(record, NULL);
    flyt_soft_record_unref(record);
    return is_complete ? atomic_load(&ctx->device->sticky) : CUDA_ERROR_NOT_READY;
}

FLYT_SOFT_API cuEventSynchronize(CUevent hEvent)
{
    struct CUctx_st *ctx;
    struct flyt_soft_record *record;
    CUresult r = enter_event(hEvent, &ctx);

    if (r != CUDA_SUCCESS)
        return r;
    record = flyt_soft_event_record(hEvent);
    if (record)
        flyt_soft_record_wait(record);
    flyt_soft_record_unref(record);
    flyt_soft_print_flush(ctx->device);
    return atomic_load(&ctx->device->sticky);
}

/* When the event's latest record was completed. */
static CUresult event_time(CUevent event, uint64_t *ret_time_ns)
{
    struct flyt_soft_record *record;
    CUresult r = CUDA_SUCCESS;

    if (!flyt_soft_is(event, FLYT_SOFT_EVENT) || event->flags & CU_EVENT_DISABLE_TIMING)
        return CUDA_ERROR_INVALID_HANDLE;
    record = flyt_soft_event_record(event);
    if (!record)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!flyt_soft_record_is_complete(record, ret_time_ns))
        r = CUDA_ERROR_NOT_READY;
    flyt_soft_record_unref(record);
    return r;
}

FLYT_SOFT_API cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    struct CUctx_st *ctx;
    uint64_t start_ns, end_ns;
    CUresult r = flyt_soft_enter(&ctx);

    if (r == CUDA_SUCCESS && !pMilliseconds)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        r = event_time(hStart, &start_ns);
    if (r == CUDA_SUCCESS)
        r = event_time(hEnd, &end_ns);
    if (r == CUDA_SUCCESS)
        *pMilliseconds = (float)((double)(int64_t)(end_ns - start_ns) / 1e6);
    return r;
}
