#include "control/node/ops/move_state.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "control/node/memory/charge.h"
#include "control/node/memory/extent.h"
#include "control/node/model/allocation.h"
#include "control/node/ops/migration.h"
#include "control/node/ops/send.h"
#include "rpc/base/clock.h"
#include "rpc/base/log.h"

/* ---- what the session has ---- */

/* What was made at the target is held as memory of a session is. */
static void hold_made(struct flyt_node_move *move)
{
    struct flyt_node_server *target = move->target.server;

    for (struct flyt_node_move_extent *extent = move->extents; extent; extent = extent->next) {
        int status =
            flyt_node_extent_add(move->node, &target->has.extents, target->has.server_id, &extent->extent, extent->fd);
        extent->fd = -1;
        if (status)
            flyt_warn("session %016" PRIx64 ": memory of it is not held: %s", move->session_id, strerror(-status));
    }
    if (move->stopped.last_extent_id > target->has.extents.last_id)
        target->has.extents.last_id = move->stopped.last_extent_id;
}

bool flyt_node_move_given(struct flyt_node_session *session)
{
    struct flyt_node_move *move = flyt_node_move_of(session);
    struct flyt_node_holding *had = flyt_node_session_has(session);
    struct flyt_node_server *target = move->target.server;

    if (move->way->is_given)
        flyt_node_extents_move(move->node, &had->extents, had->server_id, &target->has.extents, target->has.server_id);
    else
        hold_made(move);
    flyt_node_move_target_forget(move);
    if (move->way->is_given && move->source)
        flyt_node_charge_lend(move->source, session->allocation, &target->has);
    target->has.use.is_coming = 1;
    if (!move->source) { /* it has no process any more, and nothing of it is of use */
        flyt_node_extents_drop(move->node, &had->extents, had->server_id);
        flyt_node_extents_leave(&move->kept);
        flyt_node_move_source_let_go(move);
    }
    flyt_node_target_set_state(&move->target, FLYT_NODE_TARGET_GIVEN);
    move->times.given_ns = flyt_clock_ns();
    return true;
}

/* ---- its connection ---- */

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

void flyt_node_move_describe(const struct flyt_node_session *session, struct flyt_manager_link_resume *ret_resume)
{
    const struct flyt_node_move *move = flyt_node_move_of(session);
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

bool flyt_node_move_is_undecided(const struct flyt_node_session *session)
{
    return flyt_node_move_of(session)->stage < FLYT_NODE_MOVE_LEFT;
}

/* Whether its client is on its way from its present server, or back to that. */
static bool is_on_its_way(const struct flyt_node_server *server)
{
    const struct flyt_node_move *move = flyt_node_move_at(server);

    return server->state != FLYT_NODE_SERVER_ENDING &&
           (server->left_move_id || (move && (server->state == FLYT_NODE_SERVER_LEFT || move->is_taken_back)));
}

int flyt_node_move_find_token(struct flyt_node *node, const struct flyt_node_allocation *allocation, const void *token,
                              size_t bytes, struct flyt_node_server **ret_source, struct flyt_error *err)
{
    const struct flyt_node_session *session = flyt_node_session_find_token(node, allocation, token, bytes);
    struct flyt_node_server *source = session ? session->present : NULL;

    if (source && !is_on_its_way(source))
        source = NULL;
    const struct flyt_node_migration *left = flyt_node_migration_departed(allocation);
    if (left && (!source || (flyt_node_move_at(source) && flyt_node_move_is_left(flyt_node_move_at(source)))))
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
    if (move && flyt_node_move_is_given(move)) {
        flyt_node_move_fail(move, -ECONNRESET, "its program has lost its new server process");
        flyt_node_target_end(move->target.server);
        return flyt_error_set(err, -EBUSY, "the server process that was to take the session is being ended");
    }
    if (move && flyt_node_move_is_left(move) &&
        (move->outcome || !move->target.server || flyt_node_target_has_come(move->target.server)))
        return flyt_error_set(err, -EBUSY, "the session is being given to a server already");
    *ret_source = source;
    return 0;
}

int flyt_node_move_take_client(struct flyt_node_server *source, const struct flyt_node_ticket *ticket, int fd,
                               const void *record, size_t bytes)
{
    struct flyt_node_move *move = flyt_node_move_at(source);

    if (!move || !flyt_node_move_is_left(move))
        return flyt_node_move_source_take_back(source, ticket, fd, record, bytes);
    move->times.client_ns = flyt_clock_ns();
    return flyt_node_target_give(&move->target, ticket, fd, record, bytes);
}
