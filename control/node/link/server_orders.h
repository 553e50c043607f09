/*
 * Orders to servers about memory and SM groups, and what servers of one VM need of each other's memory.
 */
#ifndef FLYT_NODE_SERVER_ORDERS_H
#define FLYT_NODE_SERVER_ORDERS_H

#include "control/node/model/allocation.h"
#include "control/node/model/server.h"
/* The last one of that slot once more. */
void flyt_node_server_repeat_limit(struct flyt_node_server *server, unsigned slot);
/* A slot's limit or groups have changed. */
void flyt_node_server_tell_limit(struct flyt_node_server *server, unsigned slot, uint64_t bytes, uint64_t revision,
                                 bool when_free);
/* It has answered. */
void flyt_node_server_limit_done(struct flyt_node_server *server, const struct flyt_manager_link_limit_done *done);
/* Whether a server of the allocation has not answered what it was told of its limits. */
bool flyt_node_server_owes_answer(const struct flyt_node *node, const struct flyt_node_allocation *allocation);
/* A server of the allocation has answered, or has gone: tells those that need memory, where nobody else is awaited. */
void flyt_node_server_answer_needs(struct flyt_node *node, const struct flyt_node_allocation *allocation);
/* It needs memory that others of its allocation may cache: they are asked for it, and it is told when they have given
 * it back. */
void flyt_node_server_needs(struct flyt_node_server *server, const struct flyt_manager_link_need *need);
void flyt_node_server_tell_groups(struct flyt_node_server *server, unsigned slot);

#endif
