#include "cpu/server/core/defer.h"

#include <stdlib.h>

#include "cpu/server/core/call.h"
#include "cpu/server/core/progress.h"
#include "cpu/server/core/session.h"
#include "rpc/base/log.h"

static struct flyt_object *find(struct flyt_session *session, uint64_t id)
{
    return flyt_object_find(&session->objects, id);
}

static struct flyt_stream *as_stream(struct flyt_object *object)
{
    return flyt_id_type(object->id) == FLYT_ID_STREAM ? (struct flyt_stream *)object : NULL;
}

/*
 * A call waits for earlier ones that name a stream of its own, a sequential object, or an object that it ends. What it
 * wants of an event was settled when it came (event.h): that gives no order, but the event must be there until then.
 */

/* Whether an object that is no stream gives the call of this row, whose handle of this number it is, an order. */
static bool is_ordering(const struct flyt_object *object, const struct flyt_procedure *row, unsigned handle)
{
    return object && (object->is_sequential || row->ended_id == handle + 1);
}

bool flyt_defer_must_wait(const struct flyt_call *call)
{
    const struct flyt_session *session = call->session;
    if (call->row->is_after_all && (session->defer.first || flyt_jobs_unexecuted(session, true) != UINT64_MAX))
        return true;
    for (unsigned i = 0; i < call->handle_count; i++) {
        struct flyt_object *object = call->handles[i].object;
        const struct flyt_stream *stream = object ? as_stream(object) : NULL;
        if (!stream && !is_ordering(object, call->row, i))
            continue;
        if (object->deferred_count)
            return true;
        if (!stream)
            continue;
        if (!flyt_stream_is_ready(stream))
            return true;
        if (stream->is_blocking && stream->device->legacy->object.deferred_count)
            return true;
        if (stream->is_legacy && stream->device->blocking_deferred_count)
            return true;
    }
    return false;
}

/* Adds to what the deferred calls of each object count up to; -1 when a call leaves. */
static void count(struct flyt_session *session, const struct flyt_deferred *deferred, int step)
{
    for (unsigned i = 0; i < deferred->id_count; i++) {
        struct flyt_object *object = find(session, deferred->ids[i]);
        /* Objects that the call makes, or that were destroyed, are not there. */
        if (!object || (step < 0 && !object->deferred_count))
            continue;
        object->deferred_count += (unsigned)step;
        struct flyt_stream *stream = as_stream(object);
        if (stream && stream->is_blocking)
            stream->device->blocking_deferred_count += (unsigned)step;
    }
}

void flyt_defer_add(struct flyt_call *call)
{
    struct flyt_session *session = call->session;
    struct flyt_defer *defer = &session->defer;
    if (defer->dispatched) {
        defer->dispatched->is_deferred_again = true;
        return;
    }
    struct flyt_record *record = flyt_connection_record(session->connection);
    struct flyt_deferred *deferred = record ? calloc(1, sizeof *deferred) : NULL;
    if (!deferred || defer->bytes + record->bytes > FLYT_DEFER_BYTES_MAX) {
        flyt_fail("session %s: no memory to keep a call that has to wait, deferred_calls=%zu deferred_bytes=%zu",
                  session->label, defer->count, defer->bytes);
        free(record);
        free(deferred);
        session->is_ended = true;
        return;
    }
    CUresult result = flyt_event_defer(call, &deferred->fence);
    if (result != CUDA_SUCCESS) {
        flyt_fail("session %s: no driver event for a call that has to wait, cuda_result=%d", session->label,
                  (int)result);
        session->is_ended = true;
    }
    deferred->record = record;
    deferred->sequence = call->sequence;
    deferred->thread = call->thread;
    deferred->row = call->row;
    deferred->id_count = call->handle_count;
    for (unsigned i = 0; i < call->handle_count; i++)
        deferred->ids[i] = call->handles[i].id;
    deferred->prev = defer->last;
    *(defer->last ? &defer->last->next : &defer->first) = deferred;
    defer->last = deferred;
    defer->count++;
    defer->bytes += record->bytes;
    count(session, deferred, 1);
}

/* Whether something holds the deferred call: an earlier one that stayed in this pass, or a stream that is not ready. */
static bool is_held(struct flyt_session *session, const struct flyt_deferred *deferred)
{
    uint64_t pass = session->defer.pass;
    if (deferred->row->is_after_all &&
        (deferred != session->defer.first || flyt_jobs_unexecuted(session, true) < deferred->sequence))
        return true;
    for (unsigned i = 0; i < deferred->id_count; i++) {
        struct flyt_object *object = find(session, deferred->ids[i]);
        const struct flyt_stream *stream = object ? as_stream(object) : NULL;
        if (!stream && !is_ordering(object, deferred->row, i))
            continue;
        if (object->blocked_pass == pass)
            return true;
        if (!stream)
            continue;
        if (!flyt_stream_is_ready(stream))
            return true;
        if (stream->is_blocking && stream->device->legacy->object.blocked_pass == pass)
            return true;
        if (stream->is_legacy && stream->device->blocking_pass == pass)
            return true;
    }
    return false;
}

/* Holds what comes after a call that stays. */
static void hold_later(struct flyt_session *session, const struct flyt_deferred *deferred)
{
    for (unsigned i = 0; i < deferred->id_count; i++) {
        struct flyt_object *object = find(session, deferred->ids[i]);
        if (!object)
            continue;
        object->blocked_pass = session->defer.pass;
        struct flyt_stream *stream = as_stream(object);
        if (stream && stream->is_blocking)
            stream->device->blocking_pass = session->defer.pass;
    }
}

static void leave(struct flyt_session *session, struct flyt_deferred *deferred)
{
    struct flyt_defer *defer = &session->defer;
    *(deferred->prev ? &deferred->prev->next : &defer->first) = deferred->next;
    *(deferred->next ? &deferred->next->prev : &defer->last) = deferred->prev;
    defer->count--;
    defer->bytes -= deferred->record->bytes;
    if (deferred->row->recorded_id)
        flyt_fence_break(deferred->fence); /* the call failed */
    flyt_fence_unref(deferred->fence);
    free(deferred->record);
    free(deferred);
}

void flyt_defer_scan(struct flyt_session *session)
{
    struct flyt_defer *defer = &session->defer;
    session->is_scan_due = session->is_retry_due = false;
    defer->pass++;
    struct flyt_deferred *next;
    for (struct flyt_deferred *deferred = defer->first; deferred && !session->is_ended; deferred = next) {
        next = deferred->next;
        if (is_held(session, deferred)) {
            hold_later(session, deferred);
            continue;
        }
        /* The call's handler must not find the call itself waiting. */
        count(session, deferred, -1);
        deferred->is_deferred_again = false;
        defer->dispatched = deferred;
        flyt_connection_dispatch(session->connection, deferred->record);
        defer->dispatched = NULL;
        if (deferred->is_deferred_again) {
            count(session, deferred, 1);
            hold_later(session, deferred);
            continue;
        }
        next = deferred->next;
        leave(session, deferred);
    }
}

bool flyt_defer_has(const struct flyt_session *session, uint32_t procedure, uint64_t before_sequence)
{
    for (const struct flyt_deferred *deferred = session->defer.first; deferred; deferred = deferred->next)
        if (deferred->sequence < before_sequence && deferred->record->procedure == procedure)
            return true;
    return false;
}

void flyt_defer_fini(struct flyt_session *session)
{
    while (session->defer.first)
        leave(session, session->defer.first);
}
