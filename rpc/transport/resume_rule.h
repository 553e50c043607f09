/*
 * Whether a session can go on at another server when its connection has ended. One rule, pure functions: nothing may
 * be executed twice but what says of itself that it may, nothing may be left out, and no answer may be missing.
 */
#ifndef FLYT_TRANSPORT_RESUME_RULE_H
#define FLYT_TRANSPORT_RESUME_RULE_H

#include <stdbool.h>
#include <stdint.h>

#include "rpc/transport/call_record.h"

/* What is known when the old connection has been read to its end and nothing is written any more. */
struct flyt_resume_state {
    uint64_t complete;       /* the last call that is known to be complete, as are all before it */
    uint64_t written;        /* the last call of which a byte has been given to the socket; those behind it wait */
    uint64_t gone;           /* calls up to this one are no longer kept and could not be sent again */
    uint64_t awaited;        /* the first call whose reply is waited for; UINT64_MAX: none */
    unsigned plain_awaited;  /* written calls without a number whose reply is waited for */
    unsigned transfer_count; /* transfers of which a chunk may have been sent, and not the last */
    bool is_torn;            /* the connection ended within a record that came */
    /* The server has said where it stopped: `complete` is the last call that it executed, and those behind it, written
     * or not, are to be executed by the next one. */
    bool is_moved;
    uint64_t error_count; /* errors of calls that the server has told, and that have been heard */
};

/*
 * NULL: the session goes on behind call *ret_after; those above it are sent (again), in order. Otherwise what was
 * unfinished, in a few words for the end of a sentence; *ret_after is untouched.
 */
const char *flyt_resume_obstacle(const struct flyt_resume_state *state, uint64_t *ret_after);

/*
 * The same where the dead server's own record is known: what it had not begun is sent again, written or not, and what
 * it had begun if that may be repeated. last_fixed: the last call up to record->begun that may not be executed twice
 * (0: none). `complete` and is_moved of the state do not matter.
 */
const char *flyt_resume_obstacle_of_record(const struct flyt_resume_state *state, const struct flyt_call_state *record,
                                           uint64_t last_fixed, uint64_t *ret_after);

/* Whether there is an obstacle that no record could remove. It is as flyt_resume_obstacle's, or NULL. */
const char *flyt_resume_obstacle_for_ever(const struct flyt_resume_state *state);

#endif
