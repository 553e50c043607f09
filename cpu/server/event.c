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

CUresult flyt_serve_event_create(struct flyt_call *call, const flyt_event_create_args *args)
{
    const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING;
    if (args->flags & CU_EVENT_INTERPROCESS)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (args->flags & ~known)
        return CUDA_ERROR_INVALID_VALUE;
    struct flyt_device *device;
    CUresult result = flyt_session_use_device(call->session, args->device, &device);
    if (result != CUDA_SUCCESS)
        return result;
    struct flyt_event *event = calloc(1, sizeof *event);
    if (!event)
        return CUDA_ERROR_OUT_OF_MEMORY;
    event->object.id = args->event_id;
    event->device = device;
    event->has_timing = !(args->flags & CU_EVENT_DISABLE_TIMING);
    result = flyt_session_insert(call->session, &event->object, FLYT_ID_EVENT);
    if (result != CUDA_SUCCESS)
        free(event);
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
    if (!start->moment || !end->moment || start->device != end->device)
        return CUDA_ERROR_INVALID_HANDLE;
    return call->session->driver->cuEventElapsedTime(&res->elapsed_ms, start->moment->cu_event, end->moment->cu_event);
}
