#include "control/node/ops/move_state.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/node/host/machine.h"
#include "control/node/link/link_dispatch.h"
#include "control/node/link/share.h"
#include "control/node/memory/extent.h"
#include "control/node/model/allocation.h"
#include "control/node/ops/migration.h"
#include "control/node/ops/ops.h"
#include "control/node/ops/replace.h"
#include "control/node/ops/send.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"

/* ---- what happens to its servers ---- */

static bool is_by_will(const struct flyt_node_server *server)
{
    return server->state == FLYT_NODE_SERVER_ENDING && !server->fault.is_hit;
}

/* Before LEAVE. A session that was ended (is_ended), or ends by itself, takes its move along; what else there is goes
 * on. */
static void lose_session(struct flyt_node_move *move, bool is_ended)
{
    flyt_node_move_source_let_go(move);
    flyt_node_move_disconnect(move);
    if (!is_ended)
        flyt_node_move_fail(move, -EPIPE, "its server process has ended unexpectedly");
    else if (flyt_node_move_is_loaded(move) && move->way->is_far && !move->migration->is_committed)
        flyt_node_move_fail(move, -EPIPE, "it has ended while it stood still, and is at the other node as a whole");
    else
        move->migration->ended_count++;
    flyt_node_target_end(move->target.server);
    flyt_node_move_set_stage(move, FLYT_NODE_MOVE_OVER);
}

void flyt_node_move_on_message(struct flyt_node_server *server, const struct flyt_manager_link_message *told, int fd)
{
    struct flyt_node_move *move = flyt_node_move_at(server);

    if (!move && server->left_move_id)
        flyt_node_move_source_hear_returned(server, told);
    if (move && move->source == server)
        flyt_node_move_source_on_message(move, told, fd);
    else
        flyt_close(fd);
}

static uint64_t us_between(uint64_t begin_ns, uint64_t end_ns)
{
    return begin_ns && end_ns > begin_ns ? (end_ns - begin_ns) / 1000 : 0;
}

/* One line, with all steps of its standstill one behind the other. What the source has measured itself is the first
 * ones; `told` is the rest until its node manager knew. */
static void log_moved(const struct flyt_node_move *move, const struct flyt_node_server *server, uint64_t now_ns)
{
    const struct flyt_node_move_times *times = &move->times;
    const struct flyt_manager_link_stopped *stopped = &move->stopped;
    uint64_t source_us = stopped->stop_us + stopped->drain_us + stopped->copy_us;
    uint64_t until_us = us_between(times->stop_ns, times->stopped_ns);

    flyt_info("session %016" PRIx64 ": has moved, vm=%s program=%s gpu=%u server_pid=%d standstill_us=%" PRIu64
              " stop_us=%" PRIu64 " drain_us=%" PRIu64 " pages_us=%" PRIu64 " save_us=%" PRIu64 " told_us=%" PRIu64
              " load_us=%" PRIu64 " commit_us=%" PRIu64 " come_us=%" PRIu64 " give_us=%" PRIu64 " go_on_us=%" PRIu64
              " locked_ahead=%u",
              move->session_id, server->session->allocation->now.vm_ip, server->session->ticket.program,
              server->gpu->index, (int)server->pid, move->standstill_us, stopped->stop_us, stopped->drain_us,
              stopped->copy_us > stopped->save_us ? stopped->copy_us - stopped->save_us : 0, stopped->save_us,
              until_us > source_us ? until_us - source_us : 0, us_between(times->stopped_ns, times->loaded_ns),
              us_between(times->loaded_ns, times->leave_ns), us_between(times->leave_ns, times->client_ns),
              us_between(times->client_ns, times->given_ns), us_between(times->given_ns, now_ns),
              move->locked.locked_count);
}

/* Of the source. */
static void on_use(struct flyt_node_server *server)
{
    struct flyt_node_move *move = flyt_node_move_at(server);

    if (move->stage == FLYT_NODE_MOVE_NEW)
        flyt_node_migration_wake(move->migration);
}

static void on_gone_on(struct flyt_node_target *target, struct flyt_node_server *server)
{
    struct flyt_node_move *move = flyt_node_move_by(&target->role);
    const uint64_t now_ns = flyt_clock_ns();

    move->was_moved = true;
    move->standstill_us = us_between(move->times.stop_ns, now_ns);
    move->node->sessions_moved++;
    flyt_node_move_set_stage(move, FLYT_NODE_MOVE_OVER);
    log_moved(move, server, now_ns);
    flyt_node_move_source_end(move);
}

/* Of the target. */
static void on_end(struct flyt_node_server *server, const char *reason)
{
    struct flyt_node_move *move = flyt_node_move_at(server);

    if (move->source)
        flyt_node_server_end(move->source, reason);
}

/* Before LEAVE: whether what is at the target, or on its way there, is the session as its server process has left it.
 */
static bool is_all_there(const struct flyt_node_move *move, const struct flyt_node_server *source)
{
    if (move->stage != FLYT_NODE_MOVE_STOPPED || move->outcome || (!move->target.server && !move->way->is_far) ||
        source->state != FLYT_NODE_SERVER_SERVING || source->fault.is_hit || !source->record)
        return false;
    return flyt_call_record_read(source->record).begun <= move->stopped.sequence;
}

/* Its session waits without it, for the target. */
static void lose_dead_source(struct flyt_node_move *move, struct flyt_node_server *server)
{
    move->source = NULL;
    move->waiting = server->session;
    move->waiting->role = &move->role;
}

static bool on_process_end(struct flyt_node_server *server)
{
    struct flyt_node_move *move = flyt_node_move_at(server);

    if (!move)
        return false;
    if (move->target.server == server) {
        flyt_node_target_leave(&move->target);
        flyt_node_move_target_lose(move, server);
        return false;
    }
    server->role = NULL;
    if (is_all_there(move, server)) {
        move->may_stay = flyt_node_replace_may_wait(server);
        lose_dead_source(move, server);
        return true;
    }
    if (move->stage < FLYT_NODE_MOVE_LEFT) {
        lose_session(move, is_by_will(server));
    } else if (move->stage == FLYT_NODE_MOVE_LEFT && move->way->is_far) {
        move->source = NULL; /* nobody misses it but who may want it back */
        move->was_moved = true;
        flyt_node_move_set_stage(move, FLYT_NODE_MOVE_OVER);
    } else if (flyt_node_move_is_left(move) && !is_by_will(server) && move->target.server && !move->outcome) {
        lose_dead_source(move, server);
        return true;
    } else if (flyt_node_move_is_given(move)) {
        flyt_node_extents_drop(move->node, &server->has.extents, server->has.server_id);
        flyt_node_extents_leave(&move->kept);
        flyt_node_share_leave(server);
        flyt_node_session_leave(server);
        move->source = NULL;
    } else {
        move->source = NULL;
        if (move->stage != FLYT_NODE_MOVE_OVER) {
            if (!is_by_will(server))
                flyt_node_move_fail(move, -EPIPE, "its server process has ended unexpectedly");
            flyt_node_target_end(move->target.server);
            flyt_node_move_set_stage(move, FLYT_NODE_MOVE_OVER);
        }
    }
    flyt_node_migration_wake(move->migration);
    return false;
}

static bool hides(const struct flyt_node_server *server)
{
    return server->state == FLYT_NODE_SERVER_LEFT && flyt_node_move_is_given(flyt_node_move_at(server));
}

static void forget(struct flyt_node_session *session, bool is_ended)
{
    struct flyt_node_move *move = flyt_node_move_of(session);

    if (flyt_node_move_is_loaded(move) && move->way->is_far)
        flyt_node_move_fail(move, -EPIPE, "it has ended while it stood still, and is at the other node as a whole");
    flyt_node_move_source_let_go(move);
    flyt_node_target_end(move->target.server);
    flyt_node_move_set_stage(move, FLYT_NODE_MOVE_OVER);
}

static void on_failed(struct flyt_node_target *target, enum flyt_node_target_end how, int outcome, const char *sentence)
{
    flyt_node_move_fail(flyt_node_move_by(&target->role), outcome, "%s", sentence);
}

/* Either has the session, when it is given and when its source has gone. */
#define MOVE_ROLE                                                                                                      \
    .on_exit = on_process_end, .describe = flyt_node_move_describe, .charge = flyt_node_move_charge,                   \
    .charge_back = flyt_node_move_charge_back, .given = flyt_node_move_given, .forget = forget,                        \
    .is_undecided = flyt_node_move_is_undecided

static const struct flyt_node_role_ops role_ops = {.kind = FLYT_NODE_ROLE_MOVE,
                                                   .on_message = flyt_node_move_on_message,
                                                   .on_extent = flyt_node_move_extent,
                                                   .on_extent_gone = flyt_node_move_extent_gone,
                                                   .on_use = on_use,
                                                   .hides = hides,
                                                   MOVE_ROLE};
static const struct flyt_node_target_ops target_ops = {
    .role = {.kind = FLYT_NODE_ROLE_MOVE_TARGET,
             .on_message = flyt_node_target_on_message,
             .on_extent_gone = flyt_node_target_on_extent_gone,
             .on_use = flyt_node_target_on_use,
             .on_end = on_end,
             MOVE_ROLE},
    .look = flyt_node_move_target_look,
    .prepared = flyt_node_move_target_prepared,
    .made = flyt_node_move_target_made,
    .unmade = flyt_node_move_target_unmade,
    .locked = flyt_node_move_target_locked,
    .loaded = flyt_node_move_target_loaded,
    .gone_on = on_gone_on,
    .failed = on_failed,
    .late = {[FLYT_NODE_TARGET_WANTED] = "no server process became ready in time",
             [FLYT_NODE_TARGET_PREPARING] = "its new server process does not answer"},
};

/* ---- beginning ---- */

struct flyt_node_move *flyt_node_move_new(struct flyt_node_migration *migration, struct flyt_node_server *source,
                                          const struct flyt_node_way *way)
{
    struct flyt_node_move *move = calloc(1, sizeof *move);

    if (!move)
        return NULL;
    *move = (struct flyt_node_move){.role = {&role_ops},
                                    .migration = migration,
                                    .node = source->node,
                                    .move_id = flyt_node_random(),
                                    .session_id = source->session->id,
                                    .way = way,
                                    .stage_ms = flyt_clock_ms(),
                                    .source = source};
    snprintf(move->program, sizeof move->program, "%s", source->session->ticket.program);
    source->role = &move->role;
    flyt_node_target_init(&move->target, source->node, &migration->op, &target_ops);
    move->target.move_id = move->move_id;
    flyt_node_target_want(
        &move->target,
        way->is_far ? NULL : flyt_node_gpus_find(&source->node->gpus, migration->wanted.slots.slots_val[0].gpu_uuid));
    return move;
}

struct flyt_node_move *flyt_node_move_of_left(struct flyt_node_migration *migration, struct flyt_node_server *source)
{
    struct flyt_node_move *move = flyt_node_move_new(migration, source, migration->way);

    if (move) {
        move->move_id = source->left_move_id;
        source->left_move_id = 0;
        source->session->has_gone = true;
        flyt_node_move_set_stage(move, FLYT_NODE_MOVE_LEFT);
    }
    return move;
}

struct flyt_node_move *flyt_node_move_free(struct flyt_node_move *move)
{
    if (!move)
        return NULL;
    flyt_node_move_disconnect(move);
    flyt_node_move_source_let_go(move);
    flyt_node_move_target_forget(move);
    flyt_node_extents_leave(&move->kept);
    flyt_node_target_fini(&move->target);
    free(move);
    return NULL;
}

bool flyt_node_move_is_done(const struct flyt_node_move *move)
{
    return move->stage == FLYT_NODE_MOVE_OVER && !move->source && !move->waiting && !move->target.server;
}

/* ---- ending ---- */

void flyt_node_move_cancel(struct flyt_node_move *move)
{
    struct flyt_node_session *waiting = move->waiting;

    flyt_node_move_disconnect(move);
    if (move->source && move->stage >= FLYT_NODE_MOVE_ASKED && move->stage < FLYT_NODE_MOVE_LEFT)
        flyt_node_move_source_go_on(move);
    if (move->way->is_far && move->times.stop_ns) /* it has stood still for nothing */
        move->standstill_us = (flyt_clock_ns() - move->times.stop_ns) / 1000;
    flyt_node_move_source_let_go(move);
    flyt_node_target_end(move->target.server);
    if (waiting && !move->may_stay)
        flyt_node_replace_end(waiting, "its server process has ended, and it does not move");
    else if (waiting)
        flyt_node_replace_renew(waiting);
    flyt_node_move_set_stage(move, FLYT_NODE_MOVE_OVER);
}

void flyt_node_move_return(struct flyt_node_move *move)
{
    if (move->stage < FLYT_NODE_MOVE_LEFT) {
        flyt_node_move_cancel(move);
    } else if (flyt_node_move_is_given(move)) {
        flyt_node_target_end(move->target.server); /* its end makes it the source's again */
    } else if (move->stage == FLYT_NODE_MOVE_LEFT && move->source && move->source->state == FLYT_NODE_SERVER_LEFT) {
        flyt_node_target_end(move->target.server);
        move->source->session->has_gone = false;
        flyt_node_move_set_stage(move, FLYT_NODE_MOVE_RETURNING);
    } else if (move->stage == FLYT_NODE_MOVE_LEFT && move->source && move->source->state == FLYT_NODE_SERVER_SERVING) {
        flyt_node_target_end(move->target.server); /* it has never left (flyt_node_move_source_goes_on) */
        flyt_node_move_source_let_go(move);
        flyt_node_move_set_stage(move, FLYT_NODE_MOVE_OVER);
    } else if (move->stage == FLYT_NODE_MOVE_LEFT) {
        flyt_node_move_lose(move, "its server process and the one where it was to go on have both ended");
    }
}

void flyt_node_move_end_left(struct flyt_node_move *move)
{
    if (move->stage != FLYT_NODE_MOVE_LEFT || !move->source)
        return;
    if (!move->standstill_us && move->times.stop_ns) /* LEFT has not been heard: it has stood still for so long */
        move->standstill_us = (flyt_clock_ns() - move->times.stop_ns) / 1000;
    flyt_node_server_end(move->source, NULL);
}

/* ---- orders ---- */

/* After LEAVE a client that does not come is waited for no longer than it tries. */
static void advance_switch(struct flyt_node_move *move)
{
    const uint64_t since_ms = flyt_node_move_is_given(move) ? move->target.state_ms : move->stage_ms;

    if (flyt_clock_ms() - since_ms <= move->node->ops->switch_ms)
        return;
    flyt_node_move_on_message_target(move);
    if (move->stage == FLYT_NODE_MOVE_OVER)
        return;
    if (flyt_node_move_is_given(move)) {
        flyt_node_move_fail(move, -ETIMEDOUT, "its new server process has not said in time that it goes on");
        flyt_node_target_end(move->target.server);
    } else {
        flyt_node_move_lose(move, "its program was to go on at another server process, and has not come in time");
    }
}

/* What speaks against it, as its server has said what it understands; NULL: nothing. */
static const char *find_obstacle(const struct flyt_node_move *move)
{
    const struct flyt_manager_link_use *use = &move->source->has.use;

    if (!use->can_move)
        return "it cannot be moved: its client library or its server process is of an older build";
    if (move->way->link_kind != FLYT_MANAGER_LINK_MOVE_SEND || use->can_move >= FLYT_MANAGER_LINK_CAN_MOVE_SEND)
        return NULL;
    return move->way->is_far ? FLYT_NODE_MOVE_TOO_OLD
                             : "its GPU does not reach the other one's memory, and its server process is older "
                               "than moving by way of the host's: it can once the program was started anew";
}

/* It is clear whether its server understands the move. */
static void begin(struct flyt_node_move *move)
{
    const char *obstacle = find_obstacle(move);

    if (move->source->link_fd < 0)
        flyt_node_move_fail(move, -EPIPE, "%s", FLYT_NODE_LINK_LOST_TEXT);
    else if (obstacle)
        flyt_node_move_fail(move, -ENOTSUP, "%s", obstacle);
    else if (move->way->is_far)
        flyt_node_move_connect(move);
    else if (move->way->is_by_host)
        flyt_node_target_await(&move->target, move->target.gpu); /* it is asked when somebody listens */
    else
        flyt_node_move_source_ask(move, NULL, NULL, 0);
}

/* Before LEAVE: its session ends, by itself or by an order. Its server says so before it goes, and connections that it
 * closes then are seen before its process has gone: what its new server says of them is no failure, nor is there
 * anybody to wait for. */
static bool is_ending(const struct flyt_node_move *move)
{
    if (move->stage >= FLYT_NODE_MOVE_LEFT)
        return false;
    return move->waiting ? move->waiting->state == FLYT_NODE_SESSION_ENDING : move->source && is_by_will(move->source);
}

static void end_with_session(struct flyt_node_move *move)
{
    move->outcome = 0;
    lose_session(move, true);
}

void flyt_node_move_on_message_source(struct flyt_node_move *move)
{
    if (!move->outcome || !move->source || move->stage >= FLYT_NODE_MOVE_LEFT)
        return;
    flyt_node_server_read_all(move->source);
    if (is_ending(move))
        end_with_session(move);
}

/* What comes after that is bounded with the source. */
static void advance_target(struct flyt_node_target *target)
{
    static const uint64_t limits_ms[FLYT_NODE_TARGET_STATES] = {
        [FLYT_NODE_TARGET_WANTED] = FLYT_NODE_MOVE_WARM_MS, [FLYT_NODE_TARGET_PREPARING] = FLYT_NODE_MOVE_PREPARE_MS};

    flyt_node_target_advance(target, limits_ms[target->state]);
}

void flyt_node_move_advance(struct flyt_node_move *move)
{
    if (is_ending(move))
        end_with_session(move);
    if (move->outcome)
        return;
    advance_target(&move->target);
    if (move->outcome)
        return;
    switch (move->stage) {
    case FLYT_NODE_MOVE_NEW:
        if (move->source->has.has_use && move->target.state == FLYT_NODE_TARGET_NEW)
            begin(move);
        else if (!move->source->has.has_use && flyt_node_move_is_late(move, FLYT_NODE_MOVE_USE_MS))
            flyt_node_move_fail(move, -ENOTSUP, "its server process has not said that it can be moved");
        break;
    case FLYT_NODE_MOVE_CONNECTING:
        flyt_node_move_connect(move);
        break;
    case FLYT_NODE_MOVE_ASKED:
        if (flyt_node_move_is_late(move, FLYT_NODE_MOVE_BEGIN_MS))
            flyt_node_move_fail(move, -ETIMEDOUT, "its server process does not answer");
        break;
    case FLYT_NODE_MOVE_COPYING:
        if ((move->awaited_count || move->locks_are_awaited) &&
            flyt_clock_ms() - move->asked_ms > FLYT_NODE_MOVE_PREPARE_MS)
            flyt_node_move_fail(move, -ETIMEDOUT, "its new server process does not make or lock its memory in time");
        break;
    case FLYT_NODE_MOVE_STOPPING:
        if (flyt_node_move_is_late(move, move->migration->bounds.stop_ms + FLYT_NODE_MOVE_STOP_GRACE_MS))
            flyt_node_move_fail(move, -ETIMEDOUT, "its server process does not say whether its program has stopped");
        break;
    case FLYT_NODE_MOVE_STOPPED:
        if (!flyt_node_move_is_loaded(move) && flyt_node_move_is_late(move, FLYT_NODE_MOVE_STATE_MS))
            flyt_node_move_fail(move, -ETIMEDOUT, "its new server process does not take over what it has in time");
        break;
    case FLYT_NODE_MOVE_LEFT:
        if (!move->way->is_far) /* else who orders it knows when it is over */
            advance_switch(move);
        break;
    case FLYT_NODE_MOVE_RETURNING:
        advance_switch(move);
        break;
    default:
        break;
    }
}

bool flyt_node_move_is_ready(const struct flyt_node_move *move)
{
    return move->stage == FLYT_NODE_MOVE_OVER || (flyt_node_move_is_copying(move) && move->is_ready &&
                                                  !move->awaited_count && !move->locks_are_awaited && !move->outcome);
}

/* A client that it was given back to may never have come there: it comes again. */
static const char *keep_left(struct flyt_node_server *server, struct flyt_node_move *move, uint64_t left_move_id)
{
    uint64_t known_id = move && move->stage >= FLYT_NODE_MOVE_LEFT ? move->move_id : server->left_move_id;

    if (known_id != left_move_id)
        return "its program has left it, and is not known to come back";
    flyt_node_server_set_state(server, FLYT_NODE_SERVER_LEFT);
    if (move)
        move->is_taken_back = false;
    return NULL;
}

const char *flyt_node_move_link_lost(struct flyt_node_server *server, uint64_t left_move_id)
{
    struct flyt_node_move *move =
        flyt_node_move_at(server) && flyt_node_move_at(server)->source == server ? flyt_node_move_at(server) : NULL;

    if (left_move_id)
        return keep_left(server, move, left_move_id);
    if (server->left_move_id) {
        flyt_node_move_source_returned(server);
        flyt_node_server_set_state(server, FLYT_NODE_SERVER_SERVING);
    }
    return move ? flyt_node_move_source_goes_on(move) : NULL;
}
