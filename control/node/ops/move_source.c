#include "control/node/ops/move_state.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "control/node/link/link_dispatch.h"
#include "control/node/link/share.h"
#include "control/node/memory/extent.h"
#include "control/node/model/allocation.h"
#include "control/node/ops/migration.h"
#include "control/node/ops/replace.h"
#include "control/node/ops/send.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/log.h"

/* ---- what it is told ---- */

void flyt_node_move_source_ask(struct flyt_node_move *move, const struct flyt_manager_link_streams *streams,
                               const int *fds, unsigned fd_count)
{
    const flyt_migration_bounds *bounds = &move->migration->bounds;

    struct flyt_manager_link_message *message = flyt_node_link_message(FLYT_MANAGER_LINK_MOVE);
    message->move = (struct flyt_manager_link_move){.move_id = move->move_id,
                                                    .kind = move->way->link_kind,
                                                    .rounds_max = bounds->rounds_max,
                                                    .rest_bytes = bounds->rest_bytes,
                                                    .is_far = move->way->is_far,
                                                    .with_sharers = 1};
    if (streams)
        message->move.streams = *streams;
    if (streams && move->way->is_far)
        message->move.packing = move->migration->sending->packing;
    flyt_node_move_set_stage(move, FLYT_NODE_MOVE_ASKED);
    flyt_node_move_send_all(move, move->source, message, fds, fd_count);
    explicit_bzero(&message->move.streams, sizeof message->move.streams);
}

void flyt_node_move_stop(struct flyt_node_move *move, uint64_t timeout_us)
{
    if (move->stage != FLYT_NODE_MOVE_COPYING || flyt_node_move_is_made_to_fail(move, move->way->stop_point))
        return;
    flyt_node_move_set_stage(move, FLYT_NODE_MOVE_STOPPING);
    move->times = (struct flyt_node_move_times){.stop_ns = flyt_clock_ns()};
    struct flyt_manager_link_message *message = flyt_node_link_message(FLYT_MANAGER_LINK_STOP);
    message->stop.move_id = move->move_id;
    message->stop.timeout_us = timeout_us;
    flyt_node_move_send(move, move->source, message, -1);
}

void flyt_node_move_last(struct flyt_node_move *move)
{
    if (!flyt_node_move_waits_for_last(move) || flyt_node_move_is_made_to_fail(move, "node.migrate.last"))
        return;
    move->state.phase = FLYT_MANAGER_LINK_MOVE_LAST; /* one that has to drain once more says DRAINED again */
    struct flyt_manager_link_message *message = flyt_node_link_message(FLYT_MANAGER_LINK_LAST);
    message->stop.move_id = move->move_id;
    flyt_node_move_send(move, move->source, message, -1);
}

void flyt_node_move_source_mirror(struct flyt_node_move *move, const struct flyt_manager_link_extent *extent, int fd)
{
    struct flyt_manager_link_message *message = flyt_node_link_message(FLYT_MANAGER_LINK_MIRROR);

    message->extent = *extent;
    flyt_node_move_send(move, move->source, message, fd);
}

void flyt_node_move_source_ask_locks(struct flyt_node_move *move)
{
    struct flyt_manager_link_message *message = flyt_node_link_message(FLYT_MANAGER_LINK_LOCKS_WANTED);

    message->stop.move_id = move->move_id;
    flyt_node_move_send(move, move->source, message, -1);
}

void flyt_node_move_source_go_on(struct flyt_node_move *move)
{
    struct flyt_manager_link_message *message = flyt_node_link_message(FLYT_MANAGER_LINK_GO_ON);

    flyt_node_link_queue_clear(&move->source->queue);
    message->stop.move_id = move->move_id;
    flyt_node_link_queue_send(&move->source->queue, message, -1); /* where it has gone, its end says so */
}

static void leave(struct flyt_node_move *move)
{
    flyt_node_move_set_stage(move, FLYT_NODE_MOVE_LEFT);
    if (!move->way->is_far)
        flyt_node_target_set_state(&move->target, FLYT_NODE_TARGET_WAITING);
}

/* There is nobody to be told. Of one that goes on at another node nothing is left here. */
static void leave_dead(struct flyt_node_move *move)
{
    struct flyt_node_session *waiting = move->waiting;

    move->times.leave_ns = flyt_clock_ns();
    if (!move->way->is_far) {
        leave(move);
        flyt_node_replace_renew(waiting);
        return;
    }
    move->standstill_us = (move->times.leave_ns - move->times.stop_ns) / 1000;
    move->was_moved = true;
    waiting->has_gone = true;
    flyt_node_move_source_let_go(move);
    flyt_node_move_set_stage(move, FLYT_NODE_MOVE_OVER);
    flyt_node_replace_end(waiting, "");
}

void flyt_node_move_source_forsake(struct flyt_node_move *move)
{
    if (move->waiting) {
        leave_dead(move);
        return;
    }
    move->source->session->has_gone = true;
    flyt_node_server_set_state(move->source, FLYT_NODE_SERVER_LEFT);
    if (move->stage != FLYT_NODE_MOVE_LEFT)
        leave(move);
    flyt_node_server_kill(move->source);
}

bool flyt_node_move_may_leave(const struct flyt_node_move *move)
{
    return move->waiting ? move->waiting->state == FLYT_NODE_SESSION_WAITING
                         : move->source->state == FLYT_NODE_SERVER_SERVING;
}

void flyt_node_move_leave(struct flyt_node_move *move)
{
    bool is_sent = move->way->is_far;

    /* One that is being ended leaves by its end. */
    if (!flyt_node_move_is_loaded(move) || !flyt_node_move_may_leave(move) ||
        flyt_node_move_is_made_to_fail(move, move->way->leave_point))
        return;
    if (move->waiting) { /* its client looks for it already */
        leave_dead(move);
        return;
    }
    struct flyt_manager_link_message *message = flyt_node_link_message(FLYT_MANAGER_LINK_LEAVE);
    message->stop.move_id = move->move_id;
    /* The other node, and who knows where that is, decide how long. */
    message->stop.timeout_us = is_sent ? FLYT_MANAGER_LINK_FOR_EVER : 0;
    move->source->session->has_gone = is_sent;
    flyt_node_server_set_state(move->source, FLYT_NODE_SERVER_LEFT);
    leave(move);
    flyt_node_move_send(move, move->source, message, -1);
    move->times.leave_ns = flyt_clock_ns();
}

int flyt_node_move_source_take_back(struct flyt_node_server *source, const struct flyt_node_ticket *ticket, int fd,
                                    const void *record, size_t bytes)
{
    if (source->link_fd < 0)
        return -EPIPE;
    struct flyt_manager_link_message *message = flyt_node_link_message(FLYT_MANAGER_LINK_TAKE_BACK);
    message->stop.move_id = flyt_node_move_at(source) ? flyt_node_move_at(source)->move_id : source->left_move_id;
    if (source->session->is_encrypted)
        memcpy(message->stop.channel_key, ticket->channel_key, sizeof message->stop.channel_key);
    message->data_bytes = (uint32_t)bytes;
    memcpy(message->data, record, bytes);
    int status = flyt_node_link_queue_try(&source->queue, message, &fd, 1);
    explicit_bzero(message->stop.channel_key, sizeof message->stop.channel_key);
    if (status)
        return status;
    flyt_close(fd);
    flyt_node_session_client_came(source->session, ticket);
    flyt_node_server_set_state(source, FLYT_NODE_SERVER_SERVING);
    source->session->has_gone = false;
    source->has.use.is_replaceable = 0;
    if (flyt_node_move_at(source)) {
        flyt_node_move_at(source)->is_taken_back = true;
        flyt_node_move_at(source)->stage_ms = flyt_clock_ms();
    }
    flyt_info("session %016" PRIx64 ": goes on where it was, vm=%s program=%s server_pid=%d", source->session->id,
              flyt_node_server_allocation(source)->now.vm_ip, source->session->ticket.program, (int)source->pid);
    return 0;
}

/* ---- what it says ---- */

/* It can be moved. By way of the host its target was wanted before. */
static void has_begun(struct flyt_node_move *move)
{
    flyt_node_move_set_stage(move, FLYT_NODE_MOVE_COPYING);
    if (!move->way->is_far && !move->way->is_by_host)
        flyt_node_target_await(&move->target, move->target.gpu);
}

static void on_state(struct flyt_node_move *move, const struct flyt_manager_link_message *told)
{
    const struct flyt_manager_link_move_state *state = &told->move_state;

    if (state->phase != FLYT_MANAGER_LINK_MOVE_OVER && state->phase != FLYT_MANAGER_LINK_MOVE_REFUSED)
        move->state = *state;
    if (move->stage == FLYT_NODE_MOVE_RETURNING) {
        if (state->phase != FLYT_MANAGER_LINK_MOVE_OVER)
            return;
        flyt_node_move_source_let_go(move);
        flyt_node_move_set_stage(move, FLYT_NODE_MOVE_OVER);
        return;
    }
    if (move->stage >= FLYT_NODE_MOVE_LEFT)
        return;
    if (!move->outcome)
        move->may_try_again = state->outcome == -EBUSY || state->outcome == -ETIMEDOUT;
    if (state->outcome || state->phase == FLYT_MANAGER_LINK_MOVE_REFUSED || state->phase == FLYT_MANAGER_LINK_MOVE_OVER)
        flyt_node_move_fail(move, state->outcome ? state->outcome : -ECANCELED, "%.400s",
                            told->data_bytes ? (const char *)told->data : "its server process has given the move up");
    else if (move->stage == FLYT_NODE_MOVE_ASKED)
        has_begun(move);
    if (state->phase <= FLYT_MANAGER_LINK_MOVE_READY)
        move->is_ready = state->phase == FLYT_MANAGER_LINK_MOVE_READY;
    flyt_node_migration_wake(move->migration);
}

static void on_stopped(struct flyt_node_move *move, const struct flyt_manager_link_message *told, int fd)
{
    bool is_sent = move->way->is_far;

    if (move->stage != FLYT_NODE_MOVE_STOPPING || move->outcome || (!move->target.server && !is_sent)) {
        flyt_close(fd);
        return;
    }
    move->stopped = told->stopped;
    if (told->stopped.outcome) {
        flyt_close(fd);
        move->may_try_again = told->stopped.outcome == -ETIMEDOUT || told->stopped.outcome == -EBUSY;
        flyt_node_move_fail(move, told->stopped.outcome, "%.400s",
                            told->data_bytes ? (const char *)told->data : strerror(-told->stopped.outcome));
        return;
    }
    if (is_sent) { /* what there is is at the other node, which has said so */
        flyt_close(fd);
        if (!flyt_node_move_is_made_to_fail(move, "node.send.arrive"))
            flyt_node_move_set_stage(move, FLYT_NODE_MOVE_STOPPED);
        return;
    }
    if (flyt_node_move_is_made_to_fail(move, "node.migrate.state")) {
        flyt_close(fd);
        return;
    }
    if (move->way->is_by_host) { /* what there is is at the target, which says so, too */
        flyt_close(fd);
        move->times.stopped_ns = flyt_clock_ns();
        flyt_node_move_set_stage(move, FLYT_NODE_MOVE_STOPPED);
        flyt_node_move_target_compare(move);
        return;
    }
    /* All memory was told before. */
    if (move->stopped.extent_count != move->extent_count || move->awaited_count) {
        flyt_close(fd);
        flyt_node_move_fail(move, -EIO,
                            "its server process has %" PRIu64 " extents of memory, of which the node manager knows %u",
                            move->stopped.extent_count, move->extent_count - move->awaited_count);
        return;
    }
    flyt_node_move_set_stage(move, FLYT_NODE_MOVE_STOPPED);
    flyt_node_move_target_load(move, fd);
    move->times.stopped_ns = flyt_clock_ns();
}

static bool is_of(const struct flyt_node_move *move, const struct flyt_manager_link_message *told)
{
    switch (told->kind) {
    case FLYT_MANAGER_LINK_MOVE_STATE:
        return told->move_state.move_id == move->move_id;
    case FLYT_MANAGER_LINK_STOPPED:
        return told->stopped.move_id == move->move_id;
    case FLYT_MANAGER_LINK_LEFT:
        return told->stop.move_id == move->move_id;
    case FLYT_MANAGER_LINK_LOCKS:
        return told->locks.move_id == move->move_id;
    case FLYT_MANAGER_LINK_LIBRARY: /* those of an earlier move come before it says that it can be moved */
        return move->stage >= FLYT_NODE_MOVE_COPYING && move->stage < FLYT_NODE_MOVE_LEFT;
    default:
        return true;
    }
}

void flyt_node_move_source_on_message(struct flyt_node_move *move, const struct flyt_manager_link_message *told, int fd)
{
    bool is_its = is_of(move, told);

    if (is_its && told->kind == FLYT_MANAGER_LINK_MOVE_STATE)
        on_state(move, told);
    else if (is_its && told->kind == FLYT_MANAGER_LINK_LIBRARY && !move->outcome &&
             move->way->link_kind != FLYT_MANAGER_LINK_MOVE_SEND)
        flyt_node_move_target_library(move, told); /* else the image has them */
    else if (is_its && told->kind == FLYT_MANAGER_LINK_LEFT && move->way->is_far && move->times.stop_ns)
        move->standstill_us = (flyt_clock_ns() - move->times.stop_ns) / 1000;
    if (is_its && told->kind == FLYT_MANAGER_LINK_STOPPED)
        on_stopped(move, told, fd);
    else if (is_its && told->kind == FLYT_MANAGER_LINK_LOCKS)
        flyt_node_move_target_locks(move, told, fd);
    else
        flyt_close(fd);
}

void flyt_node_move_source_returned(struct flyt_node_server *server)
{
    server->left_move_id = 0;
    server->timer = sd_event_source_disable_unref(server->timer);
}

void flyt_node_move_source_hear_returned(struct flyt_node_server *server, const struct flyt_manager_link_message *told)
{
    if (told->kind == FLYT_MANAGER_LINK_MOVE_STATE && told->move_state.phase == FLYT_MANAGER_LINK_MOVE_OVER &&
        told->move_state.move_id == server->left_move_id)
        flyt_node_move_source_returned(server);
}

/* After SWITCH nothing fails that can be made up for: as after a restart, those that have left are given back. */
static void fail_by_link(struct flyt_node_move *move)
{
    struct flyt_node_migration *migration = move->migration;

    if (!migration->way->is_far || !migration->is_committed) {
        flyt_node_move_fail(move, -EPIPE, "%s", FLYT_NODE_LINK_LOST_TEXT);
        return;
    }
    flyt_node_operation_fail(&migration->op, FLYT_STATUS_UNAVAILABLE, "program %.100s of VM %.60s had not left: %s",
                             move->program, migration->op.vm_ip, FLYT_NODE_LINK_LOST_TEXT);
}

const char *flyt_node_move_source_goes_on(struct flyt_node_move *move)
{
    struct flyt_node_server *source = move->source;

    if (flyt_node_move_is_given(move))
        return "its program goes on at another server process";
    if (move->stage >= FLYT_NODE_MOVE_ASKED && move->stage <= FLYT_NODE_MOVE_LEFT)
        fail_by_link(move);
    if (move->stage < FLYT_NODE_MOVE_LEFT)
        return NULL;
    source->session->has_gone = false;
    flyt_node_server_set_state(source, FLYT_NODE_SERVER_SERVING);
    if (move->stage == FLYT_NODE_MOVE_RETURNING) { /* it has the session again, and that was not heard */
        flyt_node_move_source_let_go(move);
        flyt_node_move_set_stage(move, FLYT_NODE_MOVE_OVER);
    }
    return NULL;
}

/* ---- it is left ---- */

void flyt_node_move_source_let_go(struct flyt_node_move *move)
{
    if (move->source)
        move->source->role = NULL;
    if (move->waiting)
        move->waiting->role = NULL;
    move->source = NULL;
    move->waiting = NULL;
}

void flyt_node_move_source_end(struct flyt_node_move *move)
{
    struct flyt_node_server *source = move->source;

    if (!source)
        return;
    flyt_node_extents_leave(&move->kept);
    flyt_node_extents_drop(move->node, &source->has.extents, source->has.server_id);
    flyt_node_share_leave(source);
    flyt_node_session_leave(source);
    if (flyt_fault_point("node.migrate.source_end") == FLYT_FAULT_ERROR)
        flyt_node_server_kill(source); /* as one that does not listen */
    else
        flyt_node_server_end(source, NULL);
}

void flyt_node_move_lose(struct flyt_node_move *move, const char *reason)
{
    struct flyt_node_server *source = move->source;
    struct flyt_node_session *waiting = move->waiting;

    flyt_node_target_end(move->target.server);
    flyt_node_move_source_let_go(move);
    flyt_node_move_set_stage(move, FLYT_NODE_MOVE_OVER);
    if (waiting)
        flyt_node_replace_end(waiting, reason);
    else if (source)
        flyt_node_server_end(source, reason);
}
