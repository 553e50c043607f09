#include "cpu/client/cuda/capture.h"

#include <stdlib.h>
#include <string.h>
#include "cpu/client/core/thread.h"
#include "cpu/client/cuda/event_record.h"
#include "cpu/client/cuda/stream_record.h"

struct flyt_captures flyt_captures = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* ---- captures and their streams ---- */

struct flyt_capture *flyt_capture_of_locked(const struct flyt_stream *stream)
{
    const uint64_t number = stream->captured.number;
    struct flyt_capture *capture = number ? flyt_captures.first : NULL;
    while (capture && capture->number != number)
        capture = capture->next;
    return capture;
}

void flyt_capture_join_locked(struct flyt_capture *capture, struct flyt_stream *stream)
{
    stream->captured.number = capture->number;
    stream->captured.ends.count = 0;
    stream->capture_next = capture->streams;
    capture->streams = stream;
}

void flyt_capture_leave_locked(struct flyt_capture *capture)
{
    struct flyt_capture **link = &flyt_captures.first;
    while (capture->streams) {
        struct flyt_stream *stream = capture->streams;
        capture->streams = stream->capture_next;
        stream->captured.number = 0;
        stream->captured.ends.count = 0;
    }
    while (*link != capture)
        link = &(*link)->next;
    *link = capture->next;
    atomic_fetch_sub(&flyt_captures.count, 1);
}

bool flyt_capture_ends_add(struct flyt_capture_ends *ends, uint64_t node_id, const CUgraphEdgeData *data)
{
    const CUgraphEdgeData whole = {0};
    data = data ? data : &whole;
    for (unsigned i = 0; i < ends->count; i++)
        if (ends->list[i].node_id == node_id) { /* what two edges differ in, one without data covers */
            if (memcmp(&ends->list[i].data, data, sizeof *data) != 0)
                ends->list[i].data = whole;
            return true;
        }
    if (ends->count == ends->room) {
        unsigned room = ends->room ? 2 * ends->room : 4;
        struct flyt_capture_end *list = realloc(ends->list, room * sizeof *list);
        if (!list)
            return false;
        ends->list = list;
        ends->room = room;
    }
    ends->list[ends->count++] = (struct flyt_capture_end){.node_id = node_id, .data = *data};
    return true;
}

static bool add_all(struct flyt_capture_ends *to, const struct flyt_capture_ends *from)
{
    bool is_added = true;
    for (unsigned i = 0; i < from->count && is_added; i++)
        is_added = flyt_capture_ends_add(to, from->list[i].node_id, &from->list[i].data);
    return is_added;
}

static bool is_blocking(const struct flyt_stream *stream)
{
    return !stream->is_legacy && !(stream->flags & CU_STREAM_NON_BLOCKING);
}

/* Whether a blocking stream of the device takes part. */
static bool has_blocking_locked(const struct flyt_capture *capture, int device)
{
    const struct flyt_stream *stream = capture->streams;
    while (stream && !(is_blocking(stream) && stream->device == device))
        stream = stream->capture_next;
    return stream;
}

static bool has_device_locked(const struct flyt_capture *capture, int device)
{
    const struct flyt_stream *stream = capture->streams;
    while (stream && stream->device != device)
        stream = stream->capture_next;
    return stream;
}

bool flyt_capture_is_implicit_locked(const struct flyt_stream *stream)
{
    for (const struct flyt_capture *one = flyt_captures.first; one && stream->is_legacy; one = one->next)
        if (has_blocking_locked(one, stream->device))
            return true;
    return false;
}

/* What the legacy stream would be ordered with. */
static CUresult implicit_locked(const struct flyt_stream *stream)
{
    CUresult result = CUDA_SUCCESS;
    for (struct flyt_capture *one = flyt_captures.first; one && stream->is_legacy; one = one->next)
        if (has_blocking_locked(one, stream->device)) {
            one->is_invalid = true;
            result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
    return result;
}

/* ---- questions before calls ---- */

static CUresult ask_work_locked(struct flyt_stream *stream, bool *ret_is_captured)
{
    const struct flyt_capture *capture = flyt_capture_of_locked(stream);
    *ret_is_captured = capture;
    if (capture)
        return capture->is_invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
    return implicit_locked(stream);
}

CUresult flyt_capture_ask_work(struct flyt_stream *stream, bool *ret_is_captured)
{
    pthread_mutex_lock(&flyt_captures.mutex);
    CUresult result = ask_work_locked(stream, ret_is_captured);
    pthread_mutex_unlock(&flyt_captures.mutex);
    return result;
}

static CUresult refuse_locked(struct flyt_stream *stream)
{
    struct flyt_capture *capture = flyt_capture_of_locked(stream);
    if (!capture)
        return implicit_locked(stream);
    if (capture->is_invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    capture->is_invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult flyt_capture_refuse(struct flyt_stream *stream)
{
    if (!flyt_capture_is_any())
        return CUDA_SUCCESS;
    pthread_mutex_lock(&flyt_captures.mutex);
    CUresult result = refuse_locked(stream);
    pthread_mutex_unlock(&flyt_captures.mutex);
    return result;
}

/* Whether the calling thread's mode lets the capture forbid it calls that are not safe. */
static bool forbids(const struct flyt_capture *capture)
{
    const CUstreamCaptureMode mode = flyt_thread_self->capture_mode;
    if (mode == CU_STREAM_CAPTURE_MODE_RELAXED || capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return false;
    return capture->thread == flyt_thread_self->number ||
           (mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static CUresult ask_unsafe_locked(void)
{
    CUresult result = CUDA_SUCCESS;
    for (struct flyt_capture *one = flyt_captures.first; one; one = one->next)
        if (forbids(one)) {
            one->is_invalid = true;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    return result;
}

CUresult flyt_capture_ask_unsafe(void)
{
    if (!flyt_capture_is_any())
        return CUDA_SUCCESS;
    pthread_mutex_lock(&flyt_captures.mutex);
    CUresult result = ask_unsafe_locked();
    pthread_mutex_unlock(&flyt_captures.mutex);
    return result;
}

CUresult flyt_capture_ask_wait(struct flyt_stream *stream)
{
    if (!flyt_capture_is_any())
        return CUDA_SUCCESS;
    pthread_mutex_lock(&flyt_captures.mutex);
    CUresult result = refuse_locked(stream);
    if (!result)
        result = ask_unsafe_locked();
    pthread_mutex_unlock(&flyt_captures.mutex);
    return result;
}

CUresult flyt_capture_ask_wait_device(int device)
{
    CUresult result = CUDA_SUCCESS;
    if (!flyt_capture_is_any())
        return CUDA_SUCCESS;
    pthread_mutex_lock(&flyt_captures.mutex);
    for (struct flyt_capture *one = flyt_captures.first; one; one = one->next)
        if (has_device_locked(one, device)) {
            one->is_invalid = true;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    if (!result)
        result = ask_unsafe_locked();
    pthread_mutex_unlock(&flyt_captures.mutex);
    return result;
}

CUresult flyt_capture_ask_event(struct flyt_event *event)
{
    if (!flyt_capture_is_any() && !event->captured.number)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&flyt_captures.mutex);
    CUresult result = event->captured.number ? CUDA_ERROR_CAPTURED_EVENT : ask_unsafe_locked();
    for (struct flyt_capture *one = flyt_captures.first; one; one = one->next)
        if (event->captured.number == one->number)
            one->is_invalid = true;
    pthread_mutex_unlock(&flyt_captures.mutex);
    return result;
}

/* ---- events that order streams ---- */

CUresult flyt_capture_record_locked(struct flyt_stream *stream, struct flyt_event *event, bool *ret_is_captured)
{
    CUresult result = ask_work_locked(stream, ret_is_captured);
    if (result)
        return result;
    event->captured.number = 0;
    event->captured.ends.count = 0;
    if (!*ret_is_captured)
        return CUDA_SUCCESS;
    if (!add_all(&event->captured.ends, &stream->captured.ends))
        return CUDA_ERROR_OUT_OF_MEMORY;
    event->captured.number = stream->captured.number;
    return CUDA_SUCCESS;
}

CUresult flyt_capture_record(struct flyt_stream *stream, struct flyt_event *event, unsigned flags,
                             bool *ret_is_captured)
{
    *ret_is_captured = false;
    if (!flyt_capture_is_any() && !event->captured.number)
        return flags ? CUDA_ERROR_ILLEGAL_STATE : CUDA_SUCCESS;
    if (flags != CU_EVENT_RECORD_EXTERNAL) {
        pthread_mutex_lock(&flyt_captures.mutex);
        CUresult result = flyt_capture_record_locked(stream, event, ret_is_captured);
        pthread_mutex_unlock(&flyt_captures.mutex);
        return result;
    }
    CUresult result = flyt_capture_ask_work(stream, ret_is_captured);
    if (!result && !*ret_is_captured)
        result = CUDA_ERROR_ILLEGAL_STATE;
    return result ? result : flyt_captures.ops->external(stream, event, false);
}

/* One that was recorded in a capture: the stream comes after the nodes that it stands for. */
static CUresult follow_locked(struct flyt_stream *stream, const struct flyt_event *event, struct flyt_capture *own)
{
    struct flyt_capture *capture = flyt_captures.first;
    while (capture && capture->number != event->captured.number)
        capture = capture->next;
    if (!capture)
        return CUDA_ERROR_CAPTURED_EVENT;
    if (own && own != capture) {
        own->is_invalid = capture->is_invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (capture->is_invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream->is_legacy) {
        capture->is_invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    if (!own)
        flyt_capture_join_locked(capture, stream);
    return add_all(&stream->captured.ends, &event->captured.ends) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult wait_event_locked(struct flyt_stream *stream, struct flyt_event *event, bool *ret_is_captured)
{
    struct flyt_capture *own = flyt_capture_of_locked(stream);
    if (event->captured.number) {
        *ret_is_captured = true;
        return follow_locked(stream, event, own);
    }
    CUresult result = ask_work_locked(stream, ret_is_captured);
    if (result || !own)
        return result;
    own->is_invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
}

CUresult flyt_capture_wait_event(struct flyt_stream *stream, struct flyt_event *event, unsigned flags,
                                 bool *ret_is_captured)
{
    *ret_is_captured = false;
    if (!flyt_capture_is_any() && !event->captured.number)
        return flags ? CUDA_ERROR_ILLEGAL_STATE : CUDA_SUCCESS;
    if (flags != CU_EVENT_WAIT_EXTERNAL) {
        pthread_mutex_lock(&flyt_captures.mutex);
        CUresult result = wait_event_locked(stream, event, ret_is_captured);
        pthread_mutex_unlock(&flyt_captures.mutex);
        return result;
    }
    CUresult result = flyt_capture_ask_work(stream, ret_is_captured);
    if (!result && !*ret_is_captured)
        result = CUDA_ERROR_ILLEGAL_STATE;
    return result ? result : flyt_captures.ops->external(stream, event, true);
}

/* ---- the end of objects ---- */

static void free_ends(struct flyt_captured *captured)
{
    free(captured->ends.list);
    *captured = (struct flyt_captured){0};
}

void flyt_capture_stream_ends(struct flyt_stream *stream)
{
    if (!stream->captured.number && !stream->captured.ends.list)
        return;
    pthread_mutex_lock(&flyt_captures.mutex);
    struct flyt_capture *capture = flyt_capture_of_locked(stream);
    if (capture) {
        struct flyt_stream **link = &capture->streams;
        while (*link != stream)
            link = &(*link)->capture_next;
        *link = stream->capture_next;
        capture->is_invalid = true;
        if (capture->origin == stream)
            flyt_captures.ops->abandon_locked(capture);
    }
    free_ends(&stream->captured);
    pthread_mutex_unlock(&flyt_captures.mutex);
}

void flyt_capture_event_ends(struct flyt_event *event)
{
    pthread_mutex_lock(&flyt_captures.mutex);
    free_ends(&event->captured);
    pthread_mutex_unlock(&flyt_captures.mutex);
}
