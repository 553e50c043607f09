/*
 * Parked calls: those that have to wait, kept as the records that they came in.
 *
 * Calls are executed in order of arrival, except that a call waits while an earlier one waits that names one of its
 * streams (two launches of one kernel into different streams have no order); while its stream cannot take it (a job
 * holds it, or it is full); while an earlier call waits that records the event which it waits for; and, if its row says
 * `after all`, while any earlier call waits. The legacy default stream counts as an object of every call on a blocking
 * stream of its device, and the other way round. An event is destroyed when no waiting call names it. Nothing else
 * waits: no slow or full stream stops another.
 *
 * A parked call is dispatched again, with its sequence number, when nothing holds it any more; it may be parked again
 * then, in its old place.
 */
#ifndef FLYT_SERVER_PARK_H
#define FLYT_SERVER_PARK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct flyt_call;
struct flyt_moment;
struct flyt_record;
struct flyt_session;

enum {
    FLYT_CALL_IDS_MAX = 3,
    /* More bytes than this in parked records end the session: credits keep a client that follows the rules far below.
     */
    FLYT_PARK_BYTES_MAX = 1 << 30,
};

struct flyt_parked {
    struct flyt_parked *prev, *next;
    struct flyt_record *record;
    struct flyt_moment *moment; /* what it means with its event (event.h), or NULL */
    uint64_t sequence;
    uint32_t thread;
    uint64_t ids[FLYT_CALL_IDS_MAX];
    unsigned id_count;
    bool is_after_all;
    bool is_parked_again; /* while it is being dispatched */
};

struct flyt_park {
    struct flyt_parked *first, *last; /* by rising sequence number */
    struct flyt_parked *dispatched;   /* the one that is being dispatched again, or NULL */
    size_t count;
    size_t bytes;
    uint64_t pass; /* counts passes over the list */
};

/* Whether a call that has just come must be parked. */
bool flyt_park_must_wait(struct flyt_session *session, uint32_t procedure, const uint64_t *ids, unsigned id_count,
                         bool is_after_all);

/* Parks the call that is being dispatched. Where memory or the bound is at its end, the session ends. */
void flyt_park_add(struct flyt_call *call, const uint64_t *ids, unsigned id_count, bool is_after_all);

/* Dispatches every parked call that nothing holds. */
void flyt_park_scan(struct flyt_session *session);

/* Whether a call of the procedure with a lower sequence number is parked. */
bool flyt_park_has(const struct flyt_session *session, uint32_t procedure, uint64_t before_sequence);

/* The lowest sequence number of a parked call, or UINT64_MAX. */
uint64_t flyt_park_first_sequence(const struct flyt_session *session);

void flyt_park_fini(struct flyt_session *session);

#endif
