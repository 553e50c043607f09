/*
 * An allocation as a JSON object, for the node manager's state file. By names, so that the file of another build is of
 * use: what that did not know keeps its zero, what this one does not know is left out. Numbers are text, exact in 64
 * bits.
 */
#ifndef FLYT_NODE_STATE_ALLOCATION_H
#define FLYT_NODE_STATE_ALLOCATION_H

#include "control/base/fields.h"

/* Of a flyt_allocation, which is freed by xdr_free(xdr_flyt_allocation) as well. */
extern const struct flyt_item flyt_node_state_allocation_item;

#endif
