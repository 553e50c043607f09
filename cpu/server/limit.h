/*
 * Orders about a slot's memory limit (rpc/transport/server_link.h, LIMIT): what the session keeps for later is given
 * back, and the order is answered when that is all that it has to give.
 *
 * A program that has freed memory may take it for free, in its other processes too, although the server has not read
 * the call yet: so the answer waits until the input has been empty for a moment and what was freed is no longer used by
 * the GPU, FLYT_LIMIT_ANSWER_MS at most.
 *
 * The submission thread.
 */
#ifndef FLYT_SERVER_LIMIT_H
#define FLYT_SERVER_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "rpc/transport/server_link.h"

struct flyt_session;

enum {
    FLYT_LIMIT_ANSWER_MS = 500, /* below FLYT_ACCOUNT_NEED_MS, for which others wait */
    FLYT_LIMIT_QUIET_US = 20000, /* without a call: what a client keeps in its own buffer comes in that time */
};

/* Of a slot: orders that are not answered. */
struct flyt_limit_order {
    struct flyt_server_link_limit limit; /* the last one */
    unsigned count;
    uint64_t since_ns; /* the last one came */
};

/* Gives back what is free, and leaves the answer to flyt_limit_answer. */
void flyt_limit_take(struct flyt_session *session, const struct flyt_server_link_limit *limit);
/* Answers where it is time to. idle_ns: for so long there was no call. Returns whether some are still unanswered. */
bool flyt_limit_answer(struct flyt_session *session, uint64_t idle_ns);

#endif
