#include "cpu/server/core/stream.h"

#include <stdlib.h>
#include <string.h>

#include "cpu/server/core/call.h"
#include "cpu/server/core/green.h"
#include "cpu/server/core/job.h"
#include "cpu/server/core/priority.h"
#include "cpu/server/core/session.h"
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
                                                     CU_STREAM_NON_BLOCKING, flyt_priority(device, priority));
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

static void drop_markers(struct flyt_stream *stream)
{
    while (stream->marker_count) {
        flyt_fence_unref(stream->markers[stream->marker_first].fence);
        stream->marker_first = (stream->marker_first + 1) % stream->marker_room;
        stream->marker_count--;
    }
}

/* ---- attributes ---- */

static CUresult apply(const struct flyt_stream *stream, CUstream cu_stream, unsigned attribute, const uint32_t *words)
{
    CUlaunchAttributeValue value = {0};
    memcpy(&value, words, FLYT_STREAM_ATTRIBUTE_WORDS * sizeof *words);
    if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY)
        value.priority = flyt_priority(stream->device, value.priority);
    return stream->device->session->driver->cuStreamSetAttribute(cu_stream, (CUstreamAttrID)attribute, &value);
}

CUresult flyt_stream_attribute_set(struct flyt_stream *stream, unsigned attribute,
                                   const uint32_t value[FLYT_STREAM_ATTRIBUTE_WORDS])
{
    int place = flyt_stream_attribute_place(attribute);
    if (place < 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = apply(stream, stream->cu_stream, attribute, value);
    if (result != CUDA_SUCCESS)
        return result;
    stream->set_attributes |= 1u << place;
    memcpy(stream->attributes[place], value, sizeof stream->attributes[place]);
    return CUDA_SUCCESS;
}

CUresult flyt_stream_attributes_apply(const struct flyt_stream *stream, CUstream cu_stream)
{
    CUresult result = CUDA_SUCCESS;
    for (int place = 0; place < FLYT_STREAM_ATTRIBUTE_COUNT && result == CUDA_SUCCESS; place++) {
        unsigned bytes;
        if (stream->set_attributes >> place & 1)
            result = apply(stream, cu_stream, flyt_stream_attribute_at(place, &bytes), stream->attributes[place]);
    }
    return result;
}

CUresult flyt_stream_replace(struct flyt_stream *stream)
{
    struct flyt_device *device = stream->device;
    const struct flyt_driver *driver = device->session->driver;
    const struct flyt_partition_context *partition;
    CUstream cu_stream;
    CUresult result = flyt_green_partition(stream->green, device, device->group_size, device->groups, &partition);
    if (result == CUDA_SUCCESS)
        result = driver->cuGreenCtxStreamCreate(&cu_stream, partition->cu_green, CU_STREAM_NON_BLOCKING,
                                                flyt_priority(device, stream->priority));
    if (result != CUDA_SUCCESS)
        return result;
    if (stream->cu_stream)
        driver->cuStreamDestroy(stream->cu_stream);
    stream->cu_stream = cu_stream;
    return CUDA_SUCCESS;
}

CUresult flyt_stream_attributes_forget(struct flyt_stream *stream)
{
    if (!stream->set_attributes)
        return CUDA_SUCCESS;
    stream->set_attributes = 0;
    return flyt_stream_replace(stream);
}

void flyt_stream_end(struct flyt_stream *stream)
{
    drop_markers(stream);
    stream->device->session->driver->cuStreamDestroy(stream->cu_stream);
    stream->cu_stream = NULL;
}

CUresult flyt_stream_enter_green(struct flyt_stream *stream, struct flyt_green *green)
{
    struct flyt_green *const before = stream->green;
    stream->green = green;
    CUresult result = flyt_stream_replace(stream);
    if (result != CUDA_SUCCESS)
        stream->green = before;
    return result == CUDA_SUCCESS ? flyt_stream_attributes_apply(stream, stream->cu_stream) : result;
}

/* ---- lists ---- */

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

void flyt_stream_enter_busy(struct flyt_stream *stream)
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

static void leave_dirty(struct flyt_stream *stream)
{
    if (!stream->is_dirty)
        return;
    struct flyt_stream **link = &stream->device->dirty_first;
    while (*link != stream)
        link = &(*link)->dirty_next;
    *link = stream->dirty_next;
    stream->is_dirty = false;
}

void flyt_stream_remove(struct flyt_stream *stream)
{
    flyt_object_remove(&stream->device->session->objects, &stream->object);
    stream->is_removed = true;
    /* Parked calls that still name it will not find it, and will not count themselves off. */
    if (stream->is_blocking)
        stream->device->blocking_deferred_count -= stream->object.deferred_count;
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
    flyt_progress_writer_remove_stream(stream->device->session, stream);
    leave_dirty(stream);
    leave_device(stream);
    leave_busy(stream);
    leave_full(stream);
    drop_markers(stream);
    free(stream->markers);
    stream->device->session->driver->cuStreamDestroy(stream->cu_stream);
    free(stream);
    return NULL;
}

void flyt_stream_drop(struct flyt_stream *stream, const struct flyt_device *device)
{
    if (device && (stream->device != device || stream->is_legacy || stream->job))
        return;
    flyt_stream_remove(stream);
    flyt_stream_free(stream);
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

CUresult flyt_stream_add_marker(struct flyt_stream *stream, struct flyt_fence *fence)
{
    if (stream->marker_count == stream->marker_room) {
        CUresult result = grow_markers(stream);
        if (result != CUDA_SUCCESS)
            return result;
    }
    unsigned place = (stream->marker_first + stream->marker_count++) % stream->marker_room;
    stream->markers[place] = (struct flyt_stream_marker){
        .fence = flyt_fence_ref(fence), .number = stream->submitted, .sequence = stream->submitted_sequence};
    stream->marked = stream->submitted;
    return CUDA_SUCCESS;
}

CUresult flyt_stream_mark(struct flyt_stream *stream, struct flyt_fence **ret_fence)
{
    if (stream->completed == stream->submitted) {
        *ret_fence = NULL;
        return CUDA_SUCCESS;
    }
    if (stream->marked == stream->submitted) {
        unsigned last = (stream->marker_first + stream->marker_count - 1) % stream->marker_room;
        *ret_fence = flyt_fence_ref(stream->markers[last].fence);
        return CUDA_SUCCESS;
    }
    CUresult result = flyt_device_use(stream->device);
    struct flyt_fence *fence;
    if (result == CUDA_SUCCESS)
        result = flyt_fence_record(stream, false, &fence);
    if (result != CUDA_SUCCESS)
        return flyt_session_check(stream->device->session, result);
    result = flyt_stream_add_marker(stream, fence);
    if (result != CUDA_SUCCESS) {
        flyt_fence_unref(fence);
        return result;
    }
    *ret_fence = fence;
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

/* The session is fatal: nobody waits for the stream's work any more, of which no more is said to be completed. */
static void give_up(struct flyt_stream *stream)
{
    drop_markers(stream);
    stream->completed = stream->marked = stream->submitted;
    leave_busy(stream);
}

bool flyt_stream_poll(struct flyt_stream *stream)
{
    uint64_t before = stream->completed;
    if (stream->device->session->fatal != CUDA_SUCCESS)
        give_up(stream);
    while (stream->marker_count) {
        struct flyt_stream_marker *marker = &stream->markers[stream->marker_first];
        CUresult result = flyt_fence_poll(marker->fence);
        if (result == CUDA_ERROR_NOT_READY)
            break;
        if (result != CUDA_SUCCESS) {
            give_up(stream);
            return true;
        }
        stream->completed = marker->number;
        stream->completed_sequence = reached_sequence(stream, marker);
        flyt_fence_unref(marker->fence);
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
    CUresult result = flyt_session_check_work(session, session->driver->cuStreamQuery(stream->cu_stream));
    if (result != CUDA_SUCCESS)
        return result;
    /* Markers are reached now, or will be said to be at the next look: everything is done all the same. */
    flyt_stream_poll(stream);
    if (!stream->marker_count && session->fatal == CUDA_SUCCESS) {
        stream->completed = stream->submitted;
        stream->completed_sequence = stream->submitted_sequence;
        leave_busy(stream);
    }
    return session->fatal;
}

bool flyt_stream_is_ready(const struct flyt_stream *stream)
{
    if (stream->job || stream->is_full)
        return false;
    if (stream->is_blocking)
        return !stream->device->legacy->job;
    return !stream->is_legacy || !stream->device->blocking_job_count;
}

bool flyt_stream_has_room(struct flyt_stream *stream)
{
    if (stream->submitted - stream->completed < stream->pace.depth)
        return true;
    flyt_stream_poll(stream);
    if (stream->submitted - stream->completed < stream->pace.depth)
        return true;
    if (!stream->is_full) {
        struct flyt_session *session = stream->device->session;
        struct flyt_fence *fence;
        /* The last marker may be far from the end where markers were rarer than they are now: then this one tells. A
         * failure is one of the driver, which every later call meets. */
        if (stream->pace.is_measured && flyt_stream_mark(stream, &fence) == CUDA_SUCCESS)
            flyt_fence_unref(fence);
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

CUresult flyt_stream_mark_busy(struct flyt_session *session, const struct flyt_device *device,
                               struct flyt_fence_set *set)
{
    struct flyt_stream *next;
    for (struct flyt_stream *stream = session->busy_first; stream; stream = next) {
        next = stream->busy_next;
        if ((device && stream->device != device) || flyt_stream_poll(stream))
            continue;
        struct flyt_fence *fence;
        CUresult result = flyt_stream_mark(stream, &fence);
        if (result == CUDA_SUCCESS)
            result = flyt_fence_set_add(set, fence);
        if (result != CUDA_SUCCESS)
            return result;
    }
    return CUDA_SUCCESS;
}

void *flyt_stream_job_after_all(struct flyt_call *call, size_t bytes, CUresult *ret_result)
{
    struct flyt_job *job = calloc(1, bytes);
    *ret_result = job ? flyt_stream_mark_busy(call->session, NULL, &job->after) : CUDA_ERROR_OUT_OF_MEMORY;
    if (*ret_result == CUDA_SUCCESS)
        return job;
    if (job)
        flyt_fence_set_fini(&job->after);
    free(job);
    return NULL;
}

void flyt_session_poll_streams(struct flyt_session *session)
{
    struct flyt_stream *next;
    for (struct flyt_stream *stream = session->busy_first; stream; stream = next) {
        next = stream->busy_next;
        flyt_stream_poll(stream);
    }
}
