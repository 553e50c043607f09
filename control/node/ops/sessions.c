#include "control/node/ops/sessions.h"

#include "control/node/ops/checkpoint.h"
#include "control/node/ops/migration.h"
#include "control/node/ops/move.h"
#include "control/node/ops/receive.h"
#include "control/node/ops/replace.h"
#include "control/node/ops/restore.h"

static enum flyt_node_session_fate fate_of(const struct flyt_node_session *session)
{
    /* It was on its way here, and goes on where it was; or it has gone on its way from here. */
    if (session->has_gone || flyt_node_receive_keeps(session->node, session->id))
        return FLYT_NODE_SESSION_ELSEWHERE;
    return flyt_node_checkpointed_find(session->node, session->id) ? FLYT_NODE_SESSION_IN_IMAGE
                                                                   : FLYT_NODE_SESSION_ENDS;
}

static void end(const struct flyt_node_session *session)
{
    flyt_node_migration_leave(session);
    flyt_node_target_abandon(session);
}

static void forget(struct flyt_node_server *server)
{
    if (server->session && server->session->present == server)
        flyt_node_target_abandon(server->session);
    flyt_node_replace_forget(server);
}

const struct flyt_node_session_ops flyt_node_sessions = {
    .begun = flyt_node_migration_join,
    .ends = end,
    .fate = fate_of,
    .on_message = flyt_node_move_on_message,
    .on_use = flyt_node_replace_use_came,
    .on_link_end = flyt_node_replace_foresee,
    .may_wait = flyt_node_replace_may_wait,
    .wait = flyt_node_replace_wait,
    .forget = forget,
};
