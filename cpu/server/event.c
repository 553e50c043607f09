#include "cpu/server/event.h"

#include <errno.h>
#include <stdlib.h>

#include "cpu/server/call.h"
#include "cpu/server/session.h"
#include "flyt_serve.h"

void flyt_event_destroy(struct flyt_event *event)
{
    flyt_object_remove(&event->device->session->objects, &event->object);
    flyt_moment_unref(event->moment);
    free(event);
}

/* The event's last moment becomes this one, whose reference is taken over. */
static void set_moment(struct flyt_event *event, struct flyt_moment *moment)
{
    flyt_moment_unref(event->moment);
    event->moment = moment;
    event->origin = FLYT_EVENT_HERE;
}

CUresult flyt_event_park(struct flyt_session *session, uint32_t procedure, const uint64_t *ids,
                         struct flyt_moment **ret_moment)
{
    *ret_moment = NULL;
    if (procedure != FLYT_EVENT_RECORD && procedure != FLYT_STREAM_WAIT_EVENT)
        return CUDA_SUCCESS;
    struct flyt_event *event = flyt_session_find_event(session, ids[procedure == FLYT_EVENT_RECORD ? 0 : 1]);
    if (!event)
        return CUDA_SUCCESS;
    if (procedure == FLYT_EVENT_RECORD) {
        struct flyt_moment *moment;
        CUresult result = flyt_device_use(event->device);
        if (result == CUDA_SUCCESS)
            result = flyt_moment_promise(event->device, event->has_timing, &moment);
        if (result != CUDA_SUCCESS)
            return result;
        set_moment(event, moment);
    }
    *ret_moment = flyt_moment_ref(event->moment);
    return CUDA_SUCCESS;
}

static CUresult create(struct flyt_session *session, const flyt_event_create_args *args)
{
    const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING;
    if (args->flags & CU_EVENT_INTERPROCESS)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (args->flags & ~known)
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

CUresult flyt_serve_event_create(struct flyt_call *call, const flyt_event_create_args *args)
{
    CUresult result = create(call->session, args);
    call->session->objects.refused_count += result != CUDA_SUCCESS;
    return result;
}

CUresult flyt_serve_event_destroy(struct flyt_call *call, const flyt_event_destroy_args *args, struct flyt_event *event)
{
    flyt_event_destroy(event);
    return CUDA_SUCCESS;
}

CUresult flyt_serve_event_record(struct flyt_call *call, const flyt_event_record_args *args, struct flyt_event *event,
                                 struct flyt_stream *stream)
{
    if (args->flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    if (event->device != stream->device)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = flyt_stream_enter_freely(stream);
    if (result != CUDA_SUCCESS)
        return result;
    const struct flyt_parked *parked = call->session->park.dispatched;
    struct flyt_moment *moment = parked ? parked->moment : NULL;
    if (moment) {
        result = flyt_stream_leave(stream, call->sequence, flyt_moment_keep(moment, stream));
    } else {
        result = flyt_stream_leave(stream, call->sequence, flyt_moment_record(stream, event->has_timing, &moment));
        if (result == CUDA_SUCCESS)
            set_moment(event, moment);
    }
    if (result != CUDA_SUCCESS)
        return result;
    /* It tells how far the stream has come as well as a marker of our own would. */
    return flyt_stream_add_marker(stream, moment);
}

CUresult flyt_serve_event_query(struct flyt_call *call, const flyt_event_query_args *args, struct flyt_event *event,
                                flyt_event_query_res *res)
{
    return flyt_moment_poll(event->moment);
}

CUresult flyt_serve_event_synchronize(struct flyt_call *call, const flyt_event_synchronize_args *args,
                                      struct flyt_event *event, flyt_event_synchronize_res *res)
{
    struct flyt_moment_set set = {0};
    CUresult result = flyt_moment_set_add(&set, flyt_moment_ref(event->moment));
    return result == CUDA_SUCCESS ? flyt_job_reply_after(call, &set) : result;
}

CUresult flyt_serve_event_restore(struct flyt_call *call, const flyt_event_restore_args *args, struct flyt_event *event)
{
    if (call->session->resume.state != FLYT_RESUME_UNDER_WAY)
        return CUDA_ERROR_NOT_PERMITTED;
    if (args->has_time > 1)
        return CUDA_ERROR_INVALID_VALUE;
    const struct flyt_state_event *known = flyt_prepare_event(call->session, event->object.id);
    bool is_known = !args->has_time && known && known->has_time;
    set_moment(event, NULL);
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
    CUresult result = flyt_moment_poll(base->moment);
    if (result == CUDA_SUCCESS)
        result =
            event->device->session->driver->cuEventElapsedTime(&ms, base->moment->cu_event, event->moment->cu_event);
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
           (event->origin == FLYT_EVENT_HERE ? event->moment != NULL : event->origin == FLYT_EVENT_RESTORED_WITH_TIME);
}

CUresult flyt_serve_event_elapsed(struct flyt_call *call, const flyt_event_elapsed_args *args, struct flyt_event *start,
                                  struct flyt_event *end, flyt_event_elapsed_res *res)
{
    if (!start->has_timing || !end->has_timing)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = flyt_moment_poll(start->moment);
    if (result == CUDA_SUCCESS)
        result = flyt_moment_poll(end->moment);
    if (result != CUDA_SUCCESS)
        return result;
    if (!has_time(start) || !has_time(end) || start->device != end->device)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!start->moment || !end->moment)
        return elapsed_across(start, end, &res->elapsed_ms);
    return call->session->driver->cuEventElapsedTime(&res->elapsed_ms, start->moment->cu_event, end->moment->cu_event);
}
