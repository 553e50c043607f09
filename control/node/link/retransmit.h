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

#include "control/node/link/server.h"

enum {
    FLYT_NODE_RETRANSMIT_MIN_MS = 1000, /* the first pause; each is twice the one before, up to */
    FLYT_NODE_RETRANSMIT_MAX_MS = 16000,
    FLYT_NODE_UNANSWERED_MS = 30000,
};

/* It was told something that it is to answer. */
void flyt_node_retransmit_await(struct flyt_node_server *server);
/* It has answered something. */
void flyt_node_retransmit_answered(struct flyt_node_server *server);
/* Nothing of it is awaited any more. */
void flyt_node_retransmit_fini(struct flyt_node_server *server);
/* The next number of a LIMIT; higher than those of the node manager before. */
uint64_t flyt_node_retransmit_number(struct flyt_node_server *server);
/* Ends a server that does not listen, with an event that says why. */
void flyt_node_retransmit_give_up(struct flyt_node_server *server, const char *reason);

#endif
