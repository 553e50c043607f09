/* Calls about streams. */
#include "cpu/server/core/stream.h"
#include <stdlib.h>
#include "cpu/server/core/call.h"
#include "cpu/server/core/event.h"
#include "cpu/server/core/event_share.h"
#include "cpu/server/cuda/reserve.h"
#include "cpu/server/cuda/settings.h"
#include "cpu/server/core/session.h"
#include "cpu/server/core/submit.h"
#include "flyt_serve.h"

CUresult flyt_serve_stream_create(struct flyt_call *call, const flyt_stream_create_args *args)
{
    struct flyt_session *session = call->session;
    if (args->flags & ~(unsigned)CU_STREAM_NON_BLOCKING || flyt_id_number(args->stream_id) < FLYT_ID_STREAM_FIRST)
        return CUDA_ERROR_INVALID_VALUE;
    struct flyt_device *device;
    struct flyt_stream *stream;
    CUresult result = flyt_session_use_device(session, args->device, &device);
    if (result == CUDA_SUCCESS)
        result = flyt_reserve_streams(device, device->stream_count + 1);
    if (result == CUDA_SUCCESS)
        result = flyt_stream_new(device, args->stream_id, args->flags, args->priority, false, &stream);
    if (result != CUDA_SUCCESS)
        return flyt_session_check(session, result);
    result = flyt_session_insert(session, &stream->object, FLYT_ID_STREAM);
    if (result == CUDA_SUCCESS)
        flyt_progress_writer_add_stream(session, stream);
    else
        flyt_stream_free(stream);
    return result;
}

struct retire_job {
    struct flyt_job job;
    struct flyt_stream *stream;
};

static CUresult retire_advance(struct flyt_job *job)
{
    return flyt_stream_query(((struct retire_job *)job)->stream);
}

static void retire_finish(struct flyt_job *job, CUresult result)
{
}

static void retire_free(struct flyt_job *job)
{
    struct retire_job *self = (struct retire_job *)job;
    flyt_stream_free(self->stream);
    free(self);
}

static const struct flyt_job_ops retire_ops = {retire_advance, retire_finish, retire_free};

/* A destroyed stream that still works: its id is taken away at once, and the stream is freed when it is idle. */
static CUresult retire(struct flyt_call *call, struct flyt_stream *stream)
{
    struct retire_job *self = calloc(1, sizeof *self);
    if (!self)
        return CUDA_ERROR_OUT_OF_MEMORY;
    self->stream = stream;
    flyt_stream_remove(stream);
    flyt_job_start(&self->job, &retire_ops, call, NULL);
    return CUDA_SUCCESS;
}

CUresult flyt_serve_stream_destroy(struct flyt_call *call, const flyt_stream_destroy_args *args,
                                   struct flyt_stream *stream)
{
    if (stream->is_legacy)
        return CUDA_ERROR_INVALID_HANDLE;
    if (stream->job)
        return FLYT_CALL_RETRY;
    /* Streams that the stream's work holds back wait for its markers' fences, which live on. But what is busy when it
     * goes must still be waited for by the legacy stream and by memory that is freed: so it goes when it is idle. */
    if (!flyt_stream_poll(stream) && flyt_stream_query(stream) == CUDA_ERROR_NOT_READY) {
        return retire(call, stream);
    }
    flyt_stream_remove(stream);
    flyt_stream_free(stream);
    return CUDA_SUCCESS;
}

CUresult flyt_serve_stream_query(struct flyt_call *call, const flyt_stream_query_args *args, struct flyt_stream *stream,
                                 flyt_stream_query_res *res)
{
    if (stream->job || stream->object.deferred_count)
        return CUDA_ERROR_NOT_READY;
    if (!stream->is_legacy)
        return flyt_stream_query(stream);
    if (stream->device->blocking_job_count || stream->device->blocking_deferred_count)
        return CUDA_ERROR_NOT_READY;
    /* The legacy stream is done when the blocking streams are that its next work would wait for. */
    for (struct flyt_stream *other = stream->device->dirty_first; other; other = other->dirty_next) {
        CUresult result = flyt_stream_query(other);
        if (result != CUDA_SUCCESS)
            return result;
    }
    return flyt_stream_query(stream);
}

CUresult flyt_serve_stream_synchronize(struct flyt_call *call, const flyt_stream_synchronize_args *args,
                                       struct flyt_stream *stream, flyt_stream_synchronize_res *res)
{
    struct flyt_fence_set set = {0};
    struct flyt_fence *fence = NULL;
    CUresult result = CUDA_SUCCESS;
    if (stream->is_legacy) {
        for (struct flyt_stream *other = stream->device->dirty_first; other && result == CUDA_SUCCESS;
             other = other->dirty_next) {
            result = flyt_stream_mark(other, &fence);
            if (result == CUDA_SUCCESS)
                result = flyt_fence_set_add(&set, fence);
        }
    }
    if (result == CUDA_SUCCESS)
        result = flyt_stream_mark(stream, &fence);
    if (result == CUDA_SUCCESS)
        result = flyt_fence_set_add(&set, fence);
    if (result != CUDA_SUCCESS) {
        flyt_fence_set_fini(&set);
        return result;
    }
    return flyt_job_reply_after(call, &set);
}

CUresult flyt_serve_stream_wait_event(struct flyt_call *call, const flyt_stream_wait_event_args *args,
                                      struct flyt_stream *stream, struct flyt_event *event)
{
    if (args->flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    const struct flyt_deferred *deferred = call->session->defer.dispatched;
    CUresult result = deferred ? CUDA_SUCCESS : flyt_event_share_look(event->share);
    if (result != CUDA_SUCCESS)
        return result;
    struct flyt_fence *fence = deferred ? deferred->fence : event->fence;
    if (!fence || fence->result == CUDA_SUCCESS)
        return CUDA_SUCCESS;
    if (!fence->is_recorded)
        return FLYT_CALL_RETRY;
    return flyt_submit_wait(stream, call->sequence, FLYT_SUBMIT_FREE, fence);
}

CUresult flyt_serve_stream_attribute_set(struct flyt_call *call, const flyt_stream_attribute_set_args *args,
                                         struct flyt_stream *stream, flyt_stream_attribute_set_res *res)
{
    if (flyt_settings_is_passed_over(call->session))
        return CUDA_SUCCESS;
    CUresult result = flyt_device_use(stream->device);
    return result == CUDA_SUCCESS ? flyt_stream_attribute_set(stream, args->attribute.id, args->attribute.value)
                                  : result;
}
