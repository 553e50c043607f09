/*
 * What is under way for an allocation, and what excludes what: one table.
 */
#ifndef FLYT_NODE_OPERATION_H
#define FLYT_NODE_OPERATION_H

#include "control/node/model/allocation.h"
#include "rpc/base/error.h"

enum flyt_node_operation {
    FLYT_NODE_OPERATION_CHANGE, /* an order changes or ends the allocation */
    FLYT_NODE_OPERATION_MIGRATION,
    FLYT_NODE_OPERATION_CHECKPOINT,
    FLYT_NODE_OPERATION_RESTORE,
    FLYT_NODE_OPERATION_RECEIVE,
    FLYT_NODE_OPERATION_COUNT,
};

/* Whether one of a kind is under way for an allocation; each operation installs its own (ops/sessions.c). */
typedef bool flyt_node_operation_fn(const struct flyt_node_allocation *allocation);

bool flyt_node_operation_is(const struct flyt_node_allocation *allocation, enum flyt_node_operation operation);
/* Whether one of that kind, which is not RECEIVE, may begin: FLYT_STATUS_OK, or FLYT_STATUS_CONFLICT and *err, which
 * names what is under way. */
flyt_status flyt_node_operation_check(const struct flyt_node_allocation *allocation, enum flyt_node_operation operation,
                                      struct flyt_error *err);

#endif
