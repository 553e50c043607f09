/*
 * Parked calls: those that have to wait, kept as the records that they came in.
 *
 * Calls are executed in order of arrival, except that a call waits while an earlier one waits that names one of its
 * streams (two launches of one kernel into different streams have no order); while its stream cannot take it (a job
 * holds it, or it is full); while an earlier call waits that records the event which it waits for; and, if its row says
 * `after all`, while any earlier call waits. The legacy default stream counts as an object of every call on a blocking
 * stream of its device, and the other way round. An object that is sequential (a generator in its numbers) gives its
 * calls an order as a stream does. An event is destroyed when no waiting call names it. Nothing else
 * waits: no slow or full stream stops another.
 *
 * A deferred call is dispatched again, with its sequence number, when nothing holds it any more; it may be deferred
 * again then, in its old place.
 */
#ifndef FLYT_SERVER_DEFER_H
#define FLYT_SERVER_DEFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct flyt_call;
struct flyt_fence;
struct flyt_object;
struct flyt_procedure;
struct flyt_record;
struct flyt_session;

enum {
    FLYT_CALL_IDS_MAX = 8, /* no row of rpc/api names more: rpc/gen/rows.py checks it, and so does every stub */
    /* More bytes than this in deferred records end the session: credits keep a client that follows the rules far below.
     */
    FLYT_DEFER_BYTES_MAX = 1 << 30,
};

/* An object of an `ordered` kind among a call's arguments: what calls may have to wait for each other by. */
struct flyt_handle {
    uint64_t id;
    struct flyt_object *object; /* NULL: there is none of this id, or not yet */
};

struct flyt_deferred {
    struct flyt_deferred *prev, *next;
    struct flyt_record *record;
    const struct flyt_procedure *row; /* what is known of its procedure */
    struct flyt_fence *fence;         /* what it means with its event (event.h), or NULL */
    uint64_t sequence;
    uint32_t thread;
    uint64_t ids[FLYT_CALL_IDS_MAX]; /* of its handles: their objects may go, and others come, while it waits */
    unsigned id_count;
    bool is_deferred_again; /* while it is being dispatched */
};

struct flyt_defer {
    struct flyt_deferred *first, *last; /* by rising sequence number */
    struct flyt_deferred *dispatched;   /* the one that is being dispatched again, or NULL */
    size_t count;
    size_t bytes;
    uint64_t pass; /* counts passes over the list */
};

/* Whether a call that has just come must be deferred. */
bool flyt_defer_must_wait(const struct flyt_call *call);

/* Parks the call that is being dispatched. Where memory or the bound is at its end, the session ends. */
void flyt_defer_add(struct flyt_call *call);

/* Dispatches every deferred call that nothing holds. */
void flyt_defer_scan(struct flyt_session *session);

/* Whether a call of the procedure with a lower sequence number is deferred. */
bool flyt_defer_has(const struct flyt_session *session, uint32_t procedure, uint64_t before_sequence);

void flyt_defer_fini(struct flyt_session *session);

#endif
