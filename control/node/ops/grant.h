/*
 * Whether an allocation can be as an order wants it on this node, and making one.
 */
#ifndef FLYT_NODE_GRANT_H
#define FLYT_NODE_GRANT_H

#include "control/node/model/allocation.h"
#include "rpc/base/error.h"
/* Whether the allocation can be so on this node: devices, isolation, SM groups, shares. OK, or why not and *err. */
flyt_status flyt_node_grant_check(const struct flyt_node *node, const flyt_allocation *wanted, struct flyt_error *err);
/* Makes an allocation that there is not, with all that belongs to it, but for the state, which is the caller's to save.
 * Takes over the parts of *wanted. 0; or a negative errno and nothing of it is there. */
int flyt_node_grant_create(struct flyt_node *node, flyt_allocation *wanted,
                           struct flyt_node_allocation **ret_allocation);
/* Frees it where it was removed and nothing of it is left. */
void flyt_node_grant_end(struct flyt_node *node, struct flyt_node_allocation *allocation);

#endif
