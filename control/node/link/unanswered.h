/*
 * Orders that a server has not answered: since when, and when that is looked at again (retransmit.h).
 */
#ifndef FLYT_NODE_UNANSWERED_H
#define FLYT_NODE_UNANSWERED_H

#include "control/node/model/server.h"

enum {
    FLYT_NODE_RETRANSMIT_MIN_MS = 1000, /* the first pause; each is twice the one before, up to */
    FLYT_NODE_RETRANSMIT_MAX_MS = 16000,
};

/* Once more after a pause, which is twice the one before. */
void flyt_node_unanswered_arm(struct flyt_node_server *server);
/* The next number of a LIMIT; higher than those of the node manager before. */
uint64_t flyt_node_retransmit_number(struct flyt_node_server *server);
/* It was told something that it is to answer. */
void flyt_node_retransmit_await(struct flyt_node_server *server);
/* It has answered something. */
void flyt_node_retransmit_answered(struct flyt_node_server *server);

#endif
