/*
 * Orders that a session's server has not answered (LIMIT, SM, SHARE) are sent again, as what they are by then: they set
 * absolute state, and one that comes twice does no harm. KILL is answered by the process's end, which kill_grace
 * bounds; NEED_DONE and EXTENT_CREDITED are answers, for which the server asks again; a move's orders have their own
 * deadlines.
 *
 * A server that owes an answer for FLYT_NODE_UNANSWERED_MS is told of by an event, and is sent a LIMIT, which every
 * server answers soon whatever its program does. One that has not said anything for `server_lost` then is ended. The
 * loop's thread.
 */
#ifndef FLYT_NODE_RETRANSMIT_H
#define FLYT_NODE_RETRANSMIT_H

#include "control/node/link/unanswered.h"

enum {
    FLYT_NODE_UNANSWERED_MS = 30000,
};
/* Some time later: sends again what is not answered, or gives up. */
int flyt_node_retransmit_on_time(sd_event_source *source, uint64_t usec, void *user);

#endif
