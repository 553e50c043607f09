/* Calls about events. */
#include "cpu/server/core/event.h"
#include <errno.h>
#include <stdlib.h>
#include "cpu/server/core/call.h"
#include "cpu/server/core/event_share.h"
#include "cpu/server/core/session.h"
#include "cpu/server/core/submit.h"
#include "flyt_serve.h"

CUresult flyt_serve_event_create(struct flyt_call *call, const flyt_event_create_args *args)
{
    struct flyt_session *session = call->session;
    const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    if (args->flags & CU_EVENT_INTERPROCESS && !session->manager)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (args->flags & ~known || (args->flags & CU_EVENT_INTERPROCESS && !(args->flags & CU_EVENT_DISABLE_TIMING)))
        return CUDA_ERROR_INVALID_VALUE;
    struct flyt_device *device;
    CUresult result = flyt_session_use_device(session, args->device, &device);
    if (result != CUDA_SUCCESS)
        return result;
    struct flyt_event *event = calloc(1, sizeof *event);
    if (!event)
        return CUDA_ERROR_OUT_OF_MEMORY;
    event->object.id = args->event_id;
    event->device = device;
    event->has_timing = !(args->flags & CU_EVENT_DISABLE_TIMING);
    result = flyt_session_insert(session, &event->object, FLYT_ID_EVENT);
    if (result != CUDA_SUCCESS)
        free(event);
    return result;
}

CUresult flyt_serve_event_destroy(struct flyt_call *call, const flyt_event_destroy_args *args, struct flyt_event *event)
{
    flyt_event_destroy(event);
    return CUDA_SUCCESS;
}

struct record {
    struct flyt_event *event;
    struct flyt_fence *fence; /* NULL: none was promised when the call was deferred */
};

static CUresult submit_record(void *user, struct flyt_stream *target)
{
    struct record *self = user;
    if (self->fence)
        return flyt_fence_keep(self->fence, target);
    CUresult result = flyt_fence_record(target, self->event->has_timing, &self->fence);
    return result == CUDA_SUCCESS ? flyt_event_set(self->event, self->fence) : result;
}

CUresult flyt_serve_event_record(struct flyt_call *call, const flyt_event_record_args *args, struct flyt_event *event,
                                 struct flyt_stream *stream)
{
    if (args->flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    if (event->device != stream->device)
        return CUDA_ERROR_INVALID_HANDLE;
    const struct flyt_deferred *deferred = call->session->defer.dispatched;
    struct record record = {event, deferred ? deferred->fence : NULL};
    CUresult result =
        flyt_stream_submit(stream, call->sequence, FLYT_SUBMIT_FREE, stream->device, submit_record, &record);
    /* It tells how far the stream has come as well as a marker of our own would. */
    return result == CUDA_SUCCESS ? flyt_stream_add_marker(stream, record.fence) : result;
}

CUresult flyt_serve_event_query(struct flyt_call *call, const flyt_event_query_args *args, struct flyt_event *event,
                                flyt_event_query_res *res)
{
    CUresult result = flyt_event_share_look(event->share);
    return result == CUDA_SUCCESS ? flyt_fence_poll(event->fence) : result;
}

CUresult flyt_serve_event_synchronize(struct flyt_call *call, const flyt_event_synchronize_args *args,
                                      struct flyt_event *event, flyt_event_synchronize_res *res)
{
    struct flyt_fence_set set = {0};
    CUresult result = flyt_event_share_look(event->share);
    if (result == CUDA_SUCCESS)
        result = flyt_fence_set_add(&set, flyt_fence_ref(event->fence));
    return result == CUDA_SUCCESS ? flyt_job_reply_after(call, &set) : result;
}

CUresult flyt_serve_event_restore(struct flyt_call *call, const flyt_event_restore_args *args, struct flyt_event *event)
{
    if (call->session->resume.state != FLYT_RESUME_UNDER_WAY)
        return CUDA_ERROR_NOT_PERMITTED;
    if (args->has_time > 1)
        return CUDA_ERROR_INVALID_VALUE;
    const struct flyt_state_event *known = call->session->observer->event_before(call->session, event->object.id);
    bool is_known = !args->has_time && known && known->has_time;
    flyt_event_see(event, NULL);
    event->origin = args->has_time || is_known ? FLYT_EVENT_RESTORED_WITH_TIME : FLYT_EVENT_RESTORED;
    event->time_ns = is_known ? known->time_ns : args->time_ns;
    return CUDA_SUCCESS;
}

/* A time in ms behind that of the device's base, which is also that of the session's clock. */
static CUresult time_of(const struct flyt_event *event, double *ret_ms)
{
    const struct flyt_resume_base *base = &event->device->base;
    float ms;
    if (event->origin == FLYT_EVENT_RESTORED_WITH_TIME) {
        *ret_ms = (double)(int64_t)(event->time_ns - base->time_ns) / 1e6;
        return CUDA_SUCCESS;
    }
    CUresult result = flyt_fence_poll(base->fence);
    if (result == CUDA_SUCCESS)
        result = event->device->session->driver->cuEventElapsedTime(&ms, base->fence->cu_event, event->fence->cu_event);
    if (result == CUDA_SUCCESS)
        *ret_ms = (double)ms;
    return result;
}

/* Where one of them, at least, was recorded at another server. */
static CUresult elapsed_across(const struct flyt_event *start, const struct flyt_event *end, float *ret_ms)
{
    double start_ms, end_ms;
    CUresult result = time_of(start, &start_ms);
    if (result == CUDA_SUCCESS)
        result = time_of(end, &end_ms);
    if (result == CUDA_SUCCESS)
        *ret_ms = (float)(end_ms - start_ms);
    return result;
}

/* Whether it has a time that is known here. */
static bool has_time(const struct flyt_event *event)
{
    return event->has_timing &&
           (event->origin == FLYT_EVENT_HERE ? event->fence != NULL : event->origin == FLYT_EVENT_RESTORED_WITH_TIME);
}

CUresult flyt_serve_event_elapsed(struct flyt_call *call, const flyt_event_elapsed_args *args, struct flyt_event *start,
                                  struct flyt_event *end, flyt_event_elapsed_res *res)
{
    if (!start->has_timing || !end->has_timing)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = flyt_fence_poll(start->fence);
    if (result == CUDA_SUCCESS)
        result = flyt_fence_poll(end->fence);
    if (result != CUDA_SUCCESS)
        return result;
    if (!has_time(start) || !has_time(end) || start->device != end->device)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!start->fence || !end->fence)
        return elapsed_across(start, end, &res->elapsed_ms);
    return call->session->driver->cuEventElapsedTime(&res->elapsed_ms, start->fence->cu_event, end->fence->cu_event);
}
