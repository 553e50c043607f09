#include "cpu/server/park.h"

#include <stdlib.h>

#include "cpu/server/call.h"
#include "cpu/server/session.h"
#include "rpc/base/log.h"

/* The object of an id, if it is one whose calls have an order. NULL: unknown, or calls on it may pass each other. */
static struct flyt_object *find(struct flyt_session *session, uint64_t id)
{
    bool is_ordered = flyt_id_type(id) == FLYT_ID_STREAM || flyt_id_type(id) == FLYT_ID_EVENT;
    return is_ordered ? flyt_object_find(&session->objects, id) : NULL;
}

static struct flyt_stream *as_stream(struct flyt_object *object)
{
    return flyt_id_type(object->id) == FLYT_ID_STREAM ? (struct flyt_stream *)object : NULL;
}

/* Whether calls of the procedure wait for earlier ones that name the object. What one wants of an event was settled
 * when it came (event.h): that gives no order, but the event must be there until then. */
static bool is_obstacle(const struct flyt_object *object, uint32_t procedure)
{
    return object && (flyt_id_type(object->id) == FLYT_ID_STREAM || procedure == FLYT_EVENT_DESTROY);
}

bool flyt_park_must_wait(struct flyt_session *session, uint32_t procedure, const uint64_t *ids, unsigned id_count,
                         bool is_after_all)
{
    if (is_after_all && (session->park.first || flyt_jobs_unexecuted(session, true) != UINT64_MAX))
        return true;
    for (unsigned i = 0; i < id_count; i++) {
        struct flyt_object *object = find(session, ids[i]);
        if (!is_obstacle(object, procedure))
            continue;
        if (object->parked_count)
            return true;
        struct flyt_stream *stream = as_stream(object);
        if (!stream)
            continue;
        if (!flyt_stream_is_ready(stream))
            return true;
        if (stream->is_blocking && stream->device->legacy->object.parked_count)
            return true;
        if (stream->is_legacy && stream->device->blocking_parked_count)
            return true;
    }
    return false;
}

/* Adds to what the parked calls of each object count up to; -1 when a call leaves. */
static void count(struct flyt_session *session, const struct flyt_parked *parked, int step)
{
    for (unsigned i = 0; i < parked->id_count; i++) {
        struct flyt_object *object = find(session, parked->ids[i]);
        /* Objects that the call makes, or that were destroyed, are not there. */
        if (!object || (step < 0 && !object->parked_count))
            continue;
        object->parked_count += (unsigned)step;
        struct flyt_stream *stream = as_stream(object);
        if (stream && stream->is_blocking)
            stream->device->blocking_parked_count += (unsigned)step;
    }
}

void flyt_park_add(struct flyt_call *call, const uint64_t *ids, unsigned id_count, bool is_after_all)
{
    struct flyt_session *session = call->session;
    struct flyt_park *park = &session->park;
    if (park->dispatched) {
        park->dispatched->is_parked_again = true;
        return;
    }
    struct flyt_record *record = flyt_connection_record(session->connection);
    struct flyt_parked *parked = record ? calloc(1, sizeof *parked) : NULL;
    if (!parked || park->bytes + record->bytes > FLYT_PARK_BYTES_MAX) {
        flyt_fail("session %s: no memory to keep a call that has to wait, parked_calls=%zu parked_bytes=%zu",
                  session->label, park->count, park->bytes);
        free(record);
        free(parked);
        session->is_ended = true;
        return;
    }
    CUresult result = flyt_event_park(session, call->procedure, ids, &parked->moment);
    if (result != CUDA_SUCCESS) {
        flyt_fail("session %s: no driver event for a call that has to wait, cuda_result=%d", session->label,
                  (int)result);
        session->is_ended = true;
    }
    parked->record = record;
    parked->sequence = call->sequence;
    parked->thread = call->thread;
    parked->is_after_all = is_after_all;
    parked->id_count = id_count;
    memcpy(parked->ids, ids, id_count * sizeof *ids);
    parked->prev = park->last;
    *(park->last ? &park->last->next : &park->first) = parked;
    park->last = parked;
    park->count++;
    park->bytes += record->bytes;
    count(session, parked, 1);
}

/* Whether something holds the parked call: an earlier one that stayed in this pass, or a stream that is not ready. */
static bool is_held(struct flyt_session *session, const struct flyt_parked *parked)
{
    uint64_t pass = session->park.pass;
    if (parked->is_after_all &&
        (parked != session->park.first || flyt_jobs_unexecuted(session, true) < parked->sequence))
        return true;
    for (unsigned i = 0; i < parked->id_count; i++) {
        struct flyt_object *object = find(session, parked->ids[i]);
        if (!is_obstacle(object, parked->record->procedure))
            continue;
        if (object->blocked_pass == pass)
            return true;
        struct flyt_stream *stream = as_stream(object);
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
static void hold_later(struct flyt_session *session, const struct flyt_parked *parked)
{
    for (unsigned i = 0; i < parked->id_count; i++) {
        struct flyt_object *object = find(session, parked->ids[i]);
        if (!object)
            continue;
        object->blocked_pass = session->park.pass;
        struct flyt_stream *stream = as_stream(object);
        if (stream && stream->is_blocking)
            stream->device->blocking_pass = session->park.pass;
    }
}

static void leave(struct flyt_session *session, struct flyt_parked *parked)
{
    struct flyt_park *park = &session->park;
    *(parked->prev ? &parked->prev->next : &park->first) = parked->next;
    *(parked->next ? &parked->next->prev : &park->last) = parked->prev;
    park->count--;
    park->bytes -= parked->record->bytes;
    if (parked->record->procedure == FLYT_EVENT_RECORD)
        flyt_moment_break(parked->moment); /* the call failed */
    flyt_moment_unref(parked->moment);
    free(parked->record);
    free(parked);
}

void flyt_park_scan(struct flyt_session *session)
{
    struct flyt_park *park = &session->park;
    session->is_scan_due = session->is_retry_due = false;
    park->pass++;
    struct flyt_parked *next;
    for (struct flyt_parked *parked = park->first; parked && !session->is_ended; parked = next) {
        next = parked->next;
        if (is_held(session, parked)) {
            hold_later(session, parked);
            continue;
        }
        /* The call's handler must not find the call itself waiting. */
        count(session, parked, -1);
        parked->is_parked_again = false;
        park->dispatched = parked;
        flyt_connection_dispatch(session->connection, parked->record);
        park->dispatched = NULL;
        if (parked->is_parked_again) {
            count(session, parked, 1);
            hold_later(session, parked);
            continue;
        }
        next = parked->next;
        leave(session, parked);
    }
}

bool flyt_park_has(const struct flyt_session *session, uint32_t procedure, uint64_t before_sequence)
{
    for (const struct flyt_parked *parked = session->park.first; parked; parked = parked->next)
        if (parked->sequence < before_sequence && parked->record->procedure == procedure)
            return true;
    return false;
}

uint64_t flyt_park_first_sequence(const struct flyt_session *session)
{
    return session->park.first ? session->park.first->sequence : UINT64_MAX;
}

void flyt_park_fini(struct flyt_session *session)
{
    while (session->park.first)
        leave(session, session->park.first);
}
