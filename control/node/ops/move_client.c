#include "control/node/ops/move_state.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "control/node/link/link_dispatch.h"
#include "control/node/link/share.h"
#include "control/node/memory/charge.h"
#include "control/node/memory/extent.h"
#include "control/node/model/allocation.h"
#include "control/node/ops/migration.h"
#include "control/node/ops/replace.h"
#include "control/node/ops/send.h"
#include "rpc/base/clock.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/log.h"
#include "rpc/base/ticket.h"

/* ---- what the session has ---- */

/* What was made at the target is held as memory of a session is. */
static void hold_made(struct flyt_node_move *move)
{
    struct flyt_node_server *target = move->target;

    for (struct flyt_node_move_extent *extent = move->extents; extent; extent = extent->next) {
        int status = flyt_node_extent_add(move->node, &target->extents, target->server_id, &extent->extent, extent->fd);
        extent->fd = -1;
        if (status)
            flyt_warn("session %016" PRIx64 ": memory of it is not held: %s", move->session_id, strerror(-status));
    }
    if (move->stopped.last_extent_id > target->extents.last_id)
        target->extents.last_id = move->stopped.last_extent_id;
}

bool flyt_node_move_given(struct flyt_node_server *source)
{
    struct flyt_node_move *move = flyt_node_move_at(source);
    struct flyt_node_server *target = move->target;

    if (move->kind == FLYT_MANAGER_LINK_MOVE_GIVE)
        flyt_node_extents_move(move->node, &source->extents, source->server_id, &target->extents, target->server_id);
    else
        hold_made(move);
    flyt_node_move_target_forget(move);
    if (move->kind == FLYT_MANAGER_LINK_MOVE_GIVE && source->state != FLYT_NODE_SERVER_AWAY)
        flyt_node_charge_lend(source, target);
    target->use.is_coming = 1;
    if (source->state == FLYT_NODE_SERVER_AWAY) { /* it has no process any more, and nothing of it is of use */
        flyt_node_extents_drop(move->node, &source->extents, source->server_id);
        flyt_node_extents_leave(&move->kept);
        flyt_node_move_source_let_go(move);
    }
    flyt_node_move_set_stage(move, FLYT_NODE_MOVE_GIVEN);
    move->times.given_ns = flyt_clock_ns();
    return true;
}

/* ---- its connection ---- */

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

struct flyt_node_server *flyt_node_move_target_of(const struct flyt_node_server *session)
{
    return flyt_node_move_at(session)->target;
}

void flyt_node_move_describe(const struct flyt_node_server *session, struct flyt_manager_link_resume *ret_resume)
{
    const struct flyt_node_move *move = flyt_node_move_at(session);
    const uint64_t sequence = move->stopped.sequence;

    ret_resume->extent_count = move->stopped.extent_count;
    ret_resume->last_extent_id = move->stopped.last_extent_id;
    ret_resume->is_made = 1;
    ret_resume->is_held = flyt_node_migration_waits(move->migration);
    if (!ret_resume->has_record)
        return;
    /* STOPPED says as much of it; what the record has above that was done there and is not at the target. */
    ret_resume->begun = larger(ret_resume->begun, sequence);
    ret_resume->executed = larger(ret_resume->executed, sequence);
    ret_resume->completed = larger(ret_resume->completed, sequence);
}

bool flyt_node_move_is_undecided(const struct flyt_node_server *session)
{
    return flyt_node_move_at(session) && flyt_node_move_at(session)->stage < FLYT_NODE_MOVE_LEFT;
}

int flyt_node_move_find_token(struct flyt_node *node, const struct flyt_node_allocation *allocation, const void *token,
                              size_t bytes, struct flyt_node_server **ret_source, struct flyt_error *err)
{
    struct flyt_node_server *source = node->servers;

    for (; source; source = source->next)
        if (source->allocation == allocation && source->state != FLYT_NODE_SERVER_ENDING &&
            bytes == sizeof source->session->token &&
            ((source->state == FLYT_NODE_SERVER_LEFT && flyt_node_move_at(source)) || source->left_move_id ||
             (flyt_node_move_at(source) && flyt_node_move_at(source)->is_taken_back)) &&
            flyt_equal_in_constant_time(source->session->token, token, bytes))
            break;
    const struct flyt_node_migration *left = flyt_node_migration_departed(allocation);
    if (left && (!source || (flyt_node_move_at(source) && flyt_node_move_at(source)->stage == FLYT_NODE_MOVE_LEFT)))
        return flyt_error_set(err, -EBUSY, "the session goes on at node %.255s: ask where that is",
                              *left->sending->node ? left->sending->node : "(another one)");
    if (!source)
        return -ENOENT;
    struct flyt_node_move *move = flyt_node_move_at(source);
    if (!move && source->came_with)
        return flyt_error_set(err, -EBUSY, "it is not known yet where the session goes on");
    if (move)
        flyt_node_move_on_message_target(move);
    if (move && move->stage == FLYT_NODE_MOVE_OVER)
        return -ENOENT;
    if (move && move->stage == FLYT_NODE_MOVE_GIVEN) {
        flyt_node_move_fail(move, -ECONNRESET, "its program has lost its new server process");
        flyt_node_replace_end_target(move->target);
        return flyt_error_set(err, -EBUSY, "the server process that was to take the session is being ended");
    }
    if (move && move->stage == FLYT_NODE_MOVE_LEFT &&
        (move->outcome || !move->target || flyt_node_replace_has_come(move->target)))
        return flyt_error_set(err, -EBUSY, "the session is being given to a server already");
    *ret_source = source;
    return 0;
}

int flyt_node_move_take_client(struct flyt_node_server *source, const struct flyt_node_ticket *ticket, int fd,
                               const void *record, size_t bytes)
{
    if (flyt_node_move_at(source) && flyt_node_move_at(source)->stage == FLYT_NODE_MOVE_LEFT)
        flyt_node_move_at(source)->times.client_ns = flyt_clock_ns();
    if (flyt_node_move_at(source) && flyt_node_move_at(source)->stage == FLYT_NODE_MOVE_LEFT)
        return flyt_node_replace_give(flyt_node_move_at(source)->target, source, ticket, fd, record, bytes);
    return flyt_node_move_source_take_back(source, ticket, fd, record, bytes);
}
