/*
 * Orders about a slot's memory limit (rpc/transport/manager_link.h, LIMIT): what the session keeps for later is given
 * back, and the order is answered when that is all that it has to give.
 *
 * A program that has freed memory may take it for free, in its other processes too, although the server has not read
 * the call yet, and the client may not have sent it: so the answer waits until the client has sent all that it had when
 * the order came (send_all.h), what that frees or unloads is no longer deferred, and neither GPU nor driver use it any
 * more; FLYT_LIMIT_ANSWER_MS at most.
 *
 * The submission thread.
 */
#ifndef FLYT_SERVER_LIMIT_H
#define FLYT_SERVER_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "rpc/transport/manager_link.h"

struct flyt_session;

enum {
    /* Of the client, for which a loaded machine may have no CPU for long, and of the kernels that use what was freed.
     * Below FLYT_ACCOUNT_NEED_MS, for which others wait. They are refused what they ask for so much later where a
     * client is stopped. */
    FLYT_LIMIT_ANSWER_MS = 2000,
    FLYT_LIMIT_OLDER_QUIET_US = 20000, /* without a call, where the client is too old to be asked */
};

/* Gives back what is free, and leaves the answer to flyt_limit_answer. */
void flyt_limit_take(struct flyt_session *session, const struct flyt_manager_link_limit *limit);
/* Answers where it is time to, and asks the client. idle_ns: for so long there was no call. Returns whether some are
 * still unanswered. */
bool flyt_limit_answer(struct flyt_session *session, uint64_t idle_ns);

#endif
