#include "cpu/server/stream.h"

#include <stdlib.h>

#include "cpu/server/call.h"
#include "cpu/server/scrub.h"
#include "cpu/server/session.h"
#include "flyt_serve.h"

enum { MARKERS_FIRST = 16 };

CUresult flyt_stream_new(struct flyt_device *device, uint64_t id, unsigned flags, int priority, bool is_legacy,
                         struct flyt_stream **ret_stream)
{
    const struct flyt_driver *driver = device->session->driver;
    struct flyt_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = driver->cuGreenCtxStreamCreate(&stream->cu_stream, device->partition->cu_green,
                                                     CU_STREAM_NON_BLOCKING, flyt_turn_priority(device, priority));
    if (result != CUDA_SUCCESS) {
        free(stream);
        return result;
    }
    stream->object.id = id;
    stream->device = device;
    stream->priority = priority;
    stream->device_next = device->streams_first;
    if (device->streams_first)
        device->streams_first->device_prev = stream;
    device->streams_first = stream;
    device->stream_count++;
    stream->is_legacy = is_legacy;
    stream->is_blocking = !is_legacy && !(flags & CU_STREAM_NON_BLOCKING);
    flyt_pace_init(&stream->pace, device->session->manager != NULL, FLYT_STREAM_DEPTH_MAX);
    /* legacy_seen is 0: what the legacy stream got before this stream existed is waited for, too. */
    *ret_stream = stream;
    return CUDA_SUCCESS;
}

static void leave_device(struct flyt_stream *stream)
{
    struct flyt_device *device = stream->device;
    *(stream->device_prev ? &stream->device_prev->device_next : &device->streams_first) = stream->device_next;
    if (stream->device_next)
        stream->device_next->device_prev = stream->device_prev;
    device->stream_count--;
}

static void leave_busy(struct flyt_stream *stream)
{
    if (!stream->is_busy)
        return;
    struct flyt_session *session = stream->device->session;
    *(stream->busy_prev ? &stream->busy_prev->busy_next : &session->busy_first) = stream->busy_next;
    *(stream->busy_next ? &stream->busy_next->busy_prev : &session->busy_last) = stream->busy_prev;
    stream->busy_prev = stream->busy_next = NULL;
    stream->is_busy = false;
    stream->device->busy_count--;
}

static void enter_busy(struct flyt_stream *stream)
{
    struct flyt_session *session = stream->device->session;
    stream->busy_prev = session->busy_last;
    *(session->busy_last ? &session->busy_last->busy_next : &session->busy_first) = stream;
    session->busy_last = stream;
    stream->is_busy = true;
    stream->device->busy_count++;
    if (stream->pace.is_measured)
        flyt_pace_begin(&stream->pace, session->clock_ns());
}

static void leave_full(struct flyt_stream *stream)
{
    if (!stream->is_full)
        return;
    struct flyt_stream **link = &stream->device->session->full_first;
    while (*link != stream)
        link = &(*link)->full_next;
    *link = stream->full_next;
    stream->is_full = false;
}

void flyt_stream_remove(struct flyt_stream *stream)
{
    flyt_object_remove(&stream->device->session->objects, &stream->object);
    stream->is_removed = true;
    /* Parked calls that still name it will not find it, and will not count themselves off. */
    if (stream->is_blocking)
        stream->device->blocking_parked_count -= stream->object.parked_count;
}

static void drop_markers(struct flyt_stream *stream)
{
    while (stream->marker_count) {
        flyt_moment_unref(stream->markers[stream->marker_first].moment);
        stream->marker_first = (stream->marker_first + 1) % stream->marker_room;
        stream->marker_count--;
    }
}

void flyt_stream_renumber(struct flyt_stream *stream, uint64_t sequence)
{
    drop_markers(stream); /* of work that is done: they have numbers from before */
    stream->marked = stream->submitted;
    stream->submitted_sequence = stream->completed_sequence = sequence;
    stream->executed_calls = 0;
}

struct flyt_stream *flyt_stream_free(struct flyt_stream *stream)
{
    if (!stream)
        return NULL;
    flyt_page_remove_stream(stream->device->session, stream);
    flyt_order_forget(stream);
    leave_device(stream);
    leave_busy(stream);
    leave_full(stream);
    drop_markers(stream);
    free(stream->markers);
    stream->device->session->driver->cuStreamDestroy(stream->cu_stream);
    free(stream);
    return NULL;
}

static CUresult grow_markers(struct flyt_stream *stream)
{
    unsigned room = stream->marker_room ? 2 * stream->marker_room : MARKERS_FIRST;
    struct flyt_stream_marker *markers = calloc(room, sizeof *markers);
    if (!markers)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned i = 0; i < stream->marker_count; i++)
        markers[i] = stream->markers[(stream->marker_first + i) % stream->marker_room];
    free(stream->markers);
    stream->markers = markers;
    stream->marker_room = room;
    stream->marker_first = 0;
    return CUDA_SUCCESS;
}

CUresult flyt_stream_add_marker(struct flyt_stream *stream, struct flyt_moment *moment)
{
    if (stream->marker_count == stream->marker_room) {
        CUresult result = grow_markers(stream);
        if (result != CUDA_SUCCESS)
            return result;
    }
    unsigned place = (stream->marker_first + stream->marker_count++) % stream->marker_room;
    stream->markers[place] = (struct flyt_stream_marker){
        .moment = flyt_moment_ref(moment), .number = stream->submitted, .sequence = stream->submitted_sequence};
    stream->marked = stream->submitted;
    return CUDA_SUCCESS;
}

CUresult flyt_stream_mark(struct flyt_stream *stream, struct flyt_moment **ret_moment)
{
    if (stream->completed == stream->submitted) {
        *ret_moment = NULL;
        return CUDA_SUCCESS;
    }
    if (stream->marked == stream->submitted) {
        unsigned last = (stream->marker_first + stream->marker_count - 1) % stream->marker_room;
        *ret_moment = flyt_moment_ref(stream->markers[last].moment);
        return CUDA_SUCCESS;
    }
    CUresult result = flyt_device_use(stream->device);
    struct flyt_moment *moment;
    if (result == CUDA_SUCCESS)
        result = flyt_moment_record(stream, false, &moment);
    if (result != CUDA_SUCCESS)
        return flyt_session_check(stream->device->session, result);
    result = flyt_stream_add_marker(stream, moment);
    if (result != CUDA_SUCCESS) {
        flyt_moment_unref(moment);
        return result;
    }
    *ret_moment = moment;
    return CUDA_SUCCESS;
}

/* The call up to which the stream is done when this marker is reached and no later one is. A call of several pieces
 * has a marker for each, and is done with the last. */
static uint64_t reached_sequence(const struct flyt_stream *stream, const struct flyt_stream_marker *marker)
{
    uint64_t next = stream->submitted_sequence;
    if (stream->marker_count > 1)
        next = stream->markers[(stream->marker_first + 1) % stream->marker_room].sequence;
    bool is_last = marker->number == stream->submitted || next != marker->sequence;
    bool has_more = stream->job && stream->job->sequence == marker->sequence;
    return is_last && !has_more ? marker->sequence : marker->sequence - 1;
}

bool flyt_stream_poll(struct flyt_stream *stream)
{
    uint64_t before = stream->completed;
    while (stream->marker_count) {
        struct flyt_stream_marker *marker = &stream->markers[stream->marker_first];
        if (flyt_moment_poll(marker->moment) == CUDA_ERROR_NOT_READY)
            break;
        stream->completed = marker->number;
        stream->completed_sequence = reached_sequence(stream, marker);
        flyt_moment_unref(marker->moment);
        stream->marker_first = (stream->marker_first + 1) % stream->marker_room;
        stream->marker_count--;
    }
    if (stream->pace.is_measured && stream->completed != before)
        flyt_pace_take(&stream->pace, before, stream->completed, stream->device->session->clock_ns(),
                       FLYT_STREAM_DEPTH_MAX);
    if (stream->completed != stream->submitted)
        return false;
    leave_busy(stream);
    return true;
}

CUresult flyt_stream_query(struct flyt_stream *stream)
{
    struct flyt_session *session = stream->device->session;
    if (stream->completed == stream->submitted)
        return session->fatal;
    CUresult result = flyt_session_check(session, session->driver->cuStreamQuery(stream->cu_stream));
    if (result != CUDA_SUCCESS)
        return result;
    /* Markers are reached now, or will be said to be at the next look: everything is done all the same. */
    flyt_stream_poll(stream);
    if (!stream->marker_count) {
        stream->completed = stream->submitted;
        stream->completed_sequence = stream->submitted_sequence;
        leave_busy(stream);
    }
    return CUDA_SUCCESS;
}

bool flyt_stream_is_ready(const struct flyt_stream *stream)
{
    if (stream->job || stream->is_full)
        return false;
    if (stream->is_blocking)
        return !stream->device->legacy->job;
    return !stream->is_legacy || !stream->device->blocking_job_count;
}

/* Whether there is room in the stream; where not, it is put on the list of full ones. */
static bool has_room(struct flyt_stream *stream)
{
    if (stream->submitted - stream->completed < stream->pace.depth)
        return true;
    flyt_stream_poll(stream);
    if (stream->submitted - stream->completed < stream->pace.depth)
        return true;
    if (!stream->is_full) {
        struct flyt_session *session = stream->device->session;
        struct flyt_moment *moment;
        /* The last marker may be far from the end where markers were rarer than they are now: then this one tells. A
         * failure is one of the driver, which every later call meets. */
        if (stream->pace.is_measured && flyt_stream_mark(stream, &moment) == CUDA_SUCCESS)
            flyt_moment_unref(moment);
        stream->is_full = true;
        stream->full_next = session->full_first;
        session->full_first = stream;
    }
    return false;
}

bool flyt_stream_poll_full(struct flyt_session *session)
{
    struct flyt_stream **link = &session->full_first;
    while (*link) {
        struct flyt_stream *stream = *link;
        flyt_stream_poll(stream);
        if (stream->submitted - stream->completed < stream->pace.depth) {
            *link = stream->full_next;
            stream->is_full = false;
            session->is_scan_due = true;
        } else {
            link = &stream->full_next;
        }
    }
    return session->full_first != NULL;
}

CUresult flyt_stream_enter(struct flyt_stream *stream)
{
    return flyt_stream_enter_for(stream, stream->device);
}

CUresult flyt_stream_enter_for(struct flyt_stream *stream, struct flyt_device *device)
{
    if ((stream->device->turn.is_closed || device->turn.is_closed) && !flyt_turn_ask_both(stream->device, device))
        return FLYT_CALL_PARKED;
    return flyt_stream_enter_freely(stream);
}

CUresult flyt_stream_enter_freely(struct flyt_stream *stream)
{
    if (!flyt_stream_is_ready(stream) || !has_room(stream))
        return FLYT_CALL_PARKED;
    CUresult result = flyt_device_use(stream->device);
    if (result == CUDA_SUCCESS && (stream->is_blocking || stream->is_legacy))
        result = flyt_order_enter(stream);
    if (result == CUDA_SUCCESS && stream->scrub_seen != stream->device->session->scrub_number)
        result = flyt_scrub_join(stream);
    return result;
}

void flyt_stream_note_wait(struct flyt_stream *stream)
{
    flyt_pace_wait(&stream->pace, stream->submitted + 1);
}

/* A call before which all are executed: that, or an earlier one than that, which is being executed. */
static uint64_t executed_before(const struct flyt_session *session)
{
    uint64_t executed = flyt_session_progress(session).executed;
    return executed < session->received_sequence ? executed : session->received_sequence - 1;
}

CUresult flyt_stream_leave(struct flyt_stream *stream, uint64_t sequence, CUresult result)
{
    if (result != CUDA_SUCCESS)
        return flyt_session_check(stream->device->session, result);
    if (!stream->is_busy) {
        enter_busy(stream);
        /* Nothing before this call is missing in this stream. A wait, made for a call that is still to be submitted,
         * has the number of the last one that was. */
        uint64_t before =
            sequence > stream->submitted_sequence ? sequence - 1 : executed_before(stream->device->session);
        if (stream->completed_sequence < before)
            stream->completed_sequence = before;
    }
    stream->submitted++;
    stream->submitted_sequence = sequence;
    if (stream->is_blocking)
        flyt_order_leave(stream);
    if (stream->submitted - stream->marked < stream->pace.mark_interval)
        return CUDA_SUCCESS;
    struct flyt_moment *moment;
    result = flyt_stream_mark(stream, &moment);
    if (result == CUDA_SUCCESS)
        flyt_moment_unref(moment);
    return result;
}

CUresult flyt_stream_mark_busy(struct flyt_session *session, const struct flyt_device *device,
                               struct flyt_moment_set *set)
{
    struct flyt_stream *next;
    for (struct flyt_stream *stream = session->busy_first; stream; stream = next) {
        next = stream->busy_next;
        if ((device && stream->device != device) || flyt_stream_poll(stream))
            continue;
        struct flyt_moment *moment;
        CUresult result = flyt_stream_mark(stream, &moment);
        if (result == CUDA_SUCCESS)
            result = flyt_moment_set_add(set, moment);
        if (result != CUDA_SUCCESS)
            return result;
    }
    return CUDA_SUCCESS;
}

/* ---- calls ---- */

static CUresult create(struct flyt_session *session, const flyt_stream_create_args *args)
{
    if (args->flags & ~(unsigned)CU_STREAM_NON_BLOCKING || flyt_id_number(args->stream_id) < FLYT_STREAM_NUMBER_FIRST)
        return CUDA_ERROR_INVALID_VALUE;
    struct flyt_device *device;
    struct flyt_stream *stream;
    CUresult result = flyt_session_use_device(session, args->device, &device);
    if (result == CUDA_SUCCESS)
        result = flyt_stream_new(device, args->stream_id, args->flags, args->priority, false, &stream);
    if (result != CUDA_SUCCESS)
        return flyt_session_check(session, result);
    result = flyt_session_insert(session, &stream->object, FLYT_ID_STREAM);
    if (result == CUDA_SUCCESS)
        flyt_page_add_stream(session, stream);
    else
        flyt_stream_free(stream);
    return result;
}

CUresult flyt_serve_stream_create(struct flyt_call *call, const flyt_stream_create_args *args)
{
    CUresult result = create(call->session, args);
    call->session->objects.refused_count += result != CUDA_SUCCESS;
    return result;
}

CUresult flyt_serve_stream_destroy(struct flyt_call *call, const flyt_stream_destroy_args *args,
                                   struct flyt_stream *stream)
{
    if (stream->is_legacy)
        return CUDA_ERROR_INVALID_HANDLE;
    if (stream->job)
        return FLYT_CALL_PARKED;
    /* Streams that the stream's work holds back wait for its markers' moments, which live on. But what is busy when it
     * goes must still be waited for by the legacy stream and by memory that is freed: so it goes when it is idle. */
    if (!flyt_stream_poll(stream) && flyt_stream_query(stream) == CUDA_ERROR_NOT_READY) {
        call->stream = NULL;
        return flyt_job_retire_stream(call, stream);
    }
    call->stream = NULL;
    flyt_stream_remove(stream);
    flyt_stream_free(stream);
    return CUDA_SUCCESS;
}

CUresult flyt_serve_stream_query(struct flyt_call *call, const flyt_stream_query_args *args, struct flyt_stream *stream,
                                 flyt_stream_query_res *res)
{
    if (stream->job || stream->object.parked_count)
        return CUDA_ERROR_NOT_READY;
    if (!stream->is_legacy)
        return flyt_stream_query(stream);
    if (stream->device->blocking_job_count || stream->device->blocking_parked_count)
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
    struct flyt_moment_set set = {0};
    struct flyt_moment *moment = NULL;
    CUresult result = CUDA_SUCCESS;
    if (stream->is_legacy) {
        for (struct flyt_stream *other = stream->device->dirty_first; other && result == CUDA_SUCCESS;
             other = other->dirty_next) {
            result = flyt_stream_mark(other, &moment);
            if (result == CUDA_SUCCESS)
                result = flyt_moment_set_add(&set, moment);
        }
    }
    if (result == CUDA_SUCCESS)
        result = flyt_stream_mark(stream, &moment);
    if (result == CUDA_SUCCESS)
        result = flyt_moment_set_add(&set, moment);
    if (result != CUDA_SUCCESS) {
        flyt_moment_set_fini(&set);
        return result;
    }
    return flyt_job_reply_after(call, &set);
}

CUresult flyt_serve_stream_wait_event(struct flyt_call *call, const flyt_stream_wait_event_args *args,
                                      struct flyt_stream *stream, struct flyt_event *event)
{
    if (args->flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    const struct flyt_parked *parked = call->session->park.dispatched;
    struct flyt_moment *moment = parked ? parked->moment : event->moment;
    if (!moment || moment->result == CUDA_SUCCESS)
        return CUDA_SUCCESS;
    if (!moment->is_recorded)
        return FLYT_CALL_PARKED;
    CUresult result = flyt_stream_enter_freely(stream);
    if (result != CUDA_SUCCESS)
        return result;
    result = call->session->driver->cuStreamWaitEvent(stream->cu_stream, moment->cu_event, CU_EVENT_WAIT_DEFAULT);
    flyt_stream_note_wait(stream);
    return flyt_stream_leave(stream, call->sequence, result);
}
