#include "control/node/ops/operation.h"

#include <errno.h>

#define BIT(operation) (1u << FLYT_NODE_OPERATION_##operation)

/* By what is to begin: what must not be under way then. Restores are of sessions: those of one allocation go on side by
 * side. A receive makes its allocation: nothing can be under way for that. */
static const unsigned conflicts[FLYT_NODE_OPERATION_COUNT] = {
    [FLYT_NODE_OPERATION_CHANGE] = BIT(MIGRATION) | BIT(CHECKPOINT) | BIT(RESTORE) | BIT(RECEIVE),
    [FLYT_NODE_OPERATION_MIGRATION] = BIT(MIGRATION) | BIT(CHECKPOINT) | BIT(RESTORE) | BIT(RECEIVE) | BIT(CHANGE),
    [FLYT_NODE_OPERATION_CHECKPOINT] = BIT(MIGRATION) | BIT(CHECKPOINT) | BIT(RESTORE) | BIT(RECEIVE) | BIT(CHANGE),
    [FLYT_NODE_OPERATION_RESTORE] = BIT(MIGRATION) | BIT(CHECKPOINT) | BIT(RECEIVE) | BIT(CHANGE),
};

static const char *const sentences[FLYT_NODE_OPERATION_COUNT] = {
    [FLYT_NODE_OPERATION_CHANGE] = "another order for VM %.255s is under way",
    [FLYT_NODE_OPERATION_MIGRATION] = "a migration of VM %.255s is under way",
    [FLYT_NODE_OPERATION_CHECKPOINT] = "a checkpoint of VM %.255s is under way",
    [FLYT_NODE_OPERATION_RESTORE] = "a restore of VM %.255s is under way",
    [FLYT_NODE_OPERATION_RECEIVE] = "the programs of VM %.255s are on their way to this node",
};

bool flyt_node_operation_is(const struct flyt_node_allocation *allocation, enum flyt_node_operation operation)
{
    return allocation->node->operations[operation](allocation);
}

flyt_status flyt_node_operation_check(const struct flyt_node_allocation *allocation, enum flyt_node_operation operation,
                                      struct flyt_error *err)
{
    for (unsigned i = FLYT_NODE_OPERATION_COUNT; i-- > 0;)
        if (conflicts[operation] & 1u << i && flyt_node_operation_is(allocation, i)) {
            flyt_error_set(err, -EBUSY, sentences[i], allocation->now.vm_ip);
            return FLYT_STATUS_CONFLICT;
        }
    return FLYT_STATUS_OK;
}
