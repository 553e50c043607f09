#include "control/node/ops/move_state.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "control/node/link/link_dispatch.h"
#include "control/node/ops/migration.h"
#include "rpc/base/clock.h"
#include "rpc/base/fault_point.h"

#define STAGE(name) (1u << FLYT_NODE_MOVE_##name)

/* Which stages may follow one, besides OVER. */
static const unsigned next_stages[] = {
    [FLYT_NODE_MOVE_NEW] = STAGE(CONNECTING) | STAGE(ASKED) | STAGE(LEFT), /* LEFT: before a restart */
    [FLYT_NODE_MOVE_CONNECTING] = STAGE(ASKED),
    [FLYT_NODE_MOVE_ASKED] = STAGE(COPYING),
    [FLYT_NODE_MOVE_COPYING] = STAGE(STOPPING),
    [FLYT_NODE_MOVE_STOPPING] = STAGE(STOPPED),
    [FLYT_NODE_MOVE_STOPPED] = STAGE(LEFT),
    [FLYT_NODE_MOVE_LEFT] = STAGE(RETURNING),
    [FLYT_NODE_MOVE_RETURNING] = 0,
    [FLYT_NODE_MOVE_OVER] = 0,
};

/* Where memory is given nothing is copied between PREPARE and STOP. */
static bool is_hasty(const struct flyt_node_move *move)
{
    return (move->stage >= FLYT_NODE_MOVE_STOPPING && move->stage < FLYT_NODE_MOVE_OVER) ||
           (move->way->is_given && move->target.state >= FLYT_NODE_TARGET_PREPARING &&
            move->target.state < FLYT_NODE_TARGET_OVER);
}

void flyt_node_move_set_stage(struct flyt_node_move *move, enum flyt_node_move_stage stage)
{
    assert(move->stage != FLYT_NODE_MOVE_OVER && (next_stages[move->stage] | STAGE(OVER)) & 1u << stage);
    move->stage = stage;
    move->stage_ms = flyt_clock_ms();
    if (stage >= FLYT_NODE_MOVE_RETURNING && move->target.state != FLYT_NODE_TARGET_OVER)
        flyt_node_target_set_state(&move->target, FLYT_NODE_TARGET_OVER);
    flyt_node_target_hurry(&move->target, is_hasty(move));
    flyt_node_migration_wake(move->migration);
}

void flyt_node_move_fail(struct flyt_node_move *move, int status, const char *format, ...)
{
    va_list arguments;

    if (move->outcome || move->stage == FLYT_NODE_MOVE_OVER)
        return;
    move->outcome = status;
    va_start(arguments, format);
    vsnprintf(move->sentence, sizeof move->sentence, format, arguments);
    va_end(arguments);
    flyt_node_migration_wake(move->migration);
}

bool flyt_node_move_is_made_to_fail(struct flyt_node_move *move, const char *point)
{
    if (flyt_fault_point(point) != FLYT_FAULT_ERROR)
        return false;
    flyt_node_move_fail(move, -EIO, "a test lets it fail at %s", point);
    return true;
}

bool flyt_node_move_is_late(const struct flyt_node_move *move, uint64_t limit_ms)
{
    return flyt_clock_ms() - move->stage_ms > limit_ms;
}

void flyt_node_move_send_all(struct flyt_node_move *move, struct flyt_node_server *server,
                             const struct flyt_manager_link_message *message, const int *fds, unsigned fd_count)
{
    int status = flyt_node_link_queue_send_all(&server->queue, message, fds, fd_count);

    if (status == -ENOBUFS)
        flyt_node_move_fail(move, status, "server process %d does not read what it is told: %u messages wait for it",
                            (int)server->pid, server->queue.count);
    else if (status && status != -EPIPE) /* where it has gone, its end says so */
        flyt_node_move_fail(move, status, "server process %d cannot be told what it is to do: %s", (int)server->pid,
                            strerror(-status));
}

void flyt_node_move_send(struct flyt_node_move *move, struct flyt_node_server *server,
                         const struct flyt_manager_link_message *message, int fd)
{
    flyt_node_move_send_all(move, server, message, &fd, fd >= 0);
}

void flyt_node_move_on_message_target(struct flyt_node_move *move)
{
    if (flyt_node_move_is_given(move) && move->target.server)
        flyt_node_server_read_all(move->target.server);
}

bool flyt_node_move_waits_for_last(const struct flyt_node_move *move)
{
    return move->stage == FLYT_NODE_MOVE_STOPPING && move->state.phase == FLYT_MANAGER_LINK_MOVE_DRAINED &&
           !move->outcome;
}

bool flyt_node_move_is_drained(const struct flyt_node_move *move)
{
    return move->stage > FLYT_NODE_MOVE_STOPPING ||
           (move->stage == FLYT_NODE_MOVE_STOPPING && move->state.phase >= FLYT_MANAGER_LINK_MOVE_LAST &&
            move->state.phase != FLYT_MANAGER_LINK_MOVE_OVER);
}
