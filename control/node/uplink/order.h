/*
 * Orders for allocations: from the cluster manager, or from the node itself. They are absolute states at a revision;
 * applying one twice changes nothing. One that needs memory which programs still have waits for them.
 */
#ifndef FLYT_NODE_ORDER_H
#define FLYT_NODE_ORDER_H

#include <stdbool.h>

#include "control/node/model/node.h"
#include "rpc/base/error.h"

/* `res` is freed after this returns. */
typedef void (*flyt_node_applied_fn)(void *user, flyt_apply_res *res);
/* Carries out an order; `done` is called once, at once or later: what is removed has gone, with its programs, or the
 * outcome says that it has not yet. */
void flyt_node_apply(struct flyt_node *node, const flyt_apply_args *args, flyt_node_applied_fn done, void *user);
/* Takes one back: its sessions end, then it goes; while servers of before a restart may still come back, not before
 * that is over. The state is not written. */
void flyt_node_order_remove(struct flyt_node *node, struct flyt_node_allocation *allocation, const char *reason);

/* A server has given back memory: an order may go on. */
void flyt_node_order_retry(struct flyt_node *node, struct flyt_node_allocation *allocation);
/* The allocation goes: answers the orders that wait for something of it. */
void flyt_node_order_end(struct flyt_node_allocation *allocation, bool is_final);

#endif
