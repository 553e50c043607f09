#include "control/node/ops/sessions.h"

#include "control/node/ops/checkpoint.h"
#include "control/node/ops/migration.h"
#include "control/node/ops/move.h"
#include "control/node/ops/receive.h"
#include "control/node/ops/replace.h"
#include "control/node/ops/restore.h"
#include "control/node/ops/session_load.h"

static enum flyt_node_session_fate fate_of(const struct flyt_node_server *server)
{
    /* It was on its way here, and goes on where it was; or it has gone on its way from here. */
    if (server->has_gone || flyt_node_receive_keeps(server->node, server->session_id))
        return FLYT_NODE_SESSION_ELSEWHERE;
    return flyt_node_checkpointed_find(server->node, server->session_id) ? FLYT_NODE_SESSION_IN_IMAGE
                                                                         : FLYT_NODE_SESSION_ENDS;
}

static void forget(struct flyt_node_server *server)
{
    flyt_node_replace_abandon(server);
    flyt_node_replace_fail(server);
}

static bool is_changed(const struct flyt_node_allocation *allocation)
{
    return allocation->pending || allocation->is_removed || allocation->now.state == FLYT_ALLOCATION_ENDING;
}

static bool is_migrated(const struct flyt_node_allocation *allocation)
{
    return flyt_node_migration_of(allocation) != NULL;
}

static bool is_checkpointed(const struct flyt_node_allocation *allocation)
{
    return flyt_node_checkpoint_of(allocation) != NULL;
}

static bool is_restored(const struct flyt_node_allocation *allocation)
{
    return flyt_node_restore_of(allocation) != NULL;
}

static bool is_received(const struct flyt_node_allocation *allocation)
{
    return flyt_node_receive_of(allocation) != NULL;
}

flyt_node_operation_fn *const flyt_node_operations[FLYT_NODE_OPERATION_COUNT] = {
    [FLYT_NODE_OPERATION_CHANGE] = is_changed,          [FLYT_NODE_OPERATION_MIGRATION] = is_migrated,
    [FLYT_NODE_OPERATION_CHECKPOINT] = is_checkpointed, [FLYT_NODE_OPERATION_RESTORE] = is_restored,
    [FLYT_NODE_OPERATION_RECEIVE] = is_received,
};

const struct flyt_node_session_ops flyt_node_sessions = {
    .begun = flyt_node_migration_join,
    .ends = flyt_node_migration_leave,
    .fate = fate_of,
    .on_message = flyt_node_move_on_message,
    .on_use = flyt_node_replace_use_came,
    .on_link_end = flyt_node_replace_foresee,
    .may_wait = flyt_node_replace_may_wait,
    .wait = flyt_node_replace_wait,
    .forget = forget,
    .has_entry = flyt_node_session_load_has,
};
