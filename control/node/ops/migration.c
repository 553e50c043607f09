#include "control/node/ops/migration.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/node/link/groups.h"
#include "control/node/link/server.h"
#include "control/node/model/writer.h"
#include "control/node/ops/migration_switch.h"
#include "control/node/ops/ops.h"
#include "control/node/ops/send.h"
#include "rpc/base/clock.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/log.h"

static struct flyt_node_migration *of(const struct flyt_node_operation *operation)
{
    return (struct flyt_node_migration *)operation;
}

/* ---- figures ---- */

static uint64_t larger(uint64_t one, uint64_t other)
{
    return one > other ? one : other;
}

/* One that is to go on at another node stands still from the order to stop until it has left, as far as this node sees
 * it: who asks meanwhile is told how long that is so far, for the other node goes on counting. */
static uint64_t standstill_us(const struct flyt_node_move *move)
{
    bool is_standing = move->way->is_far && move->times.stop_ns && move->stage != FLYT_NODE_MOVE_OVER;

    return is_standing && !move->standstill_us ? (flyt_clock_ns() - move->times.stop_ns) / 1000 : move->standstill_us;
}

static void add_move(const struct flyt_node_move *move, flyt_migration_use *use)
{
    const struct flyt_manager_link_move_state *state = &move->state;

    use->copied_bytes += state->copied_bytes;
    use->last_bytes += move->stopped.pages_last * state->page_bytes;
    use->standstill_us = larger(use->standstill_us, standstill_us(move));
    use->round = (u_int)larger(use->round, state->round);
    if (move->stage == FLYT_NODE_MOVE_OVER && !move->was_moved)
        return; /* of an earlier try, or its program has ended */
    use->session_count++;
    use->memory_bytes += state->pages_count * state->page_bytes;
    use->left_bytes += state->pages_left * state->page_bytes;
    use->dirty_bytes += state->pages_dirty * state->page_bytes;
}

static uint64_t copied_bytes(const struct flyt_node_migration *migration)
{
    uint64_t bytes = 0;

    for (const struct flyt_node_move *move = migration->moves; move; move = move->next)
        bytes += move->state.copied_bytes;
    return bytes;
}

static void measure(struct flyt_node_migration *migration, uint64_t now_ms)
{
    if (now_ms - migration->second_ms < 1000)
        return;
    uint64_t bytes = copied_bytes(migration);
    migration->use.bytes_per_s = (bytes - migration->second_bytes) * 1000 / (now_ms - migration->second_ms);
    migration->second_ms = now_ms;
    migration->second_bytes = bytes;
}

static void use(const struct flyt_node_operation *operation, flyt_migration_use *ret_use)
{
    const struct flyt_node_migration *migration = of(operation);

    *ret_use = migration->use;
    if (!flyt_node_operation_has_ended(&migration->op))
        for (const struct flyt_node_move *move = migration->moves; move; move = move->next)
            add_move(move, ret_use);
    ret_use->id = migration->op.id;
    ret_use->allocation_id = migration->op.allocation_id;
    ret_use->phase = migration->op.phase;
    ret_use->outcome = flyt_node_operation_outcome(&migration->op);
    ret_use->elapsed_ms = flyt_node_operation_elapsed_ms(&migration->op);
}

/* ---- moves ---- */

static bool add_session(struct flyt_node_migration *migration, struct flyt_node_server *server)
{
    struct flyt_node_move *move = flyt_node_move_new(migration, server, migration->way);

    if (!move)
        return false;
    move->next = migration->moves;
    migration->moves = move;
    return true;
}

/* All that the allocation has: those that are about to end take no part. */
static bool add_sessions(struct flyt_node_migration *migration)
{
    struct flyt_node *node = migration->op.node;
    bool is_good = true;

    for (struct flyt_node_server *server = node->servers; server && is_good; server = server->next)
        if (flyt_node_server_allocation(server) == migration->op.allocation &&
            server->state == FLYT_NODE_SERVER_SERVING)
            is_good = add_session(migration, server);
    return is_good;
}

void flyt_node_migration_join(struct flyt_node_server *server)
{
    struct flyt_node_migration *migration = flyt_node_migration_of(flyt_node_server_allocation(server));

    if (!migration || migration->is_failing || migration->op.phase > FLYT_MIGRATION_COPYING ||
        migration->pause_until_ms)
        return; /* a new try begins with all that there are by then */
    if (!add_session(migration, server))
        flyt_node_operation_fail(&migration->op, FLYT_STATUS_UNAVAILABLE, "the node has no memory");
    flyt_node_migration_wake(migration);
}

/* Whether it had ended before the present pause, and only its process goes now. */
static bool is_counted(const struct flyt_node_migration *migration, uint64_t session_id)
{
    for (const struct flyt_node_move *move = migration->moves; move; move = move->next)
        if (move->session_id == session_id)
            return move->is_counted;
    return false;
}

void flyt_node_migration_leave(const struct flyt_node_session *session)
{
    struct flyt_node_migration *migration = flyt_node_migration_of(session->allocation);

    if (migration && migration->pause_until_ms && !migration->is_failing && !is_counted(migration, session->id))
        migration->ended_count++;
}

static bool holds(const struct flyt_node_operation *operation)
{
    return operation->phase >= FLYT_MIGRATION_STOPPING && !of(operation)->is_failing;
}

static bool is_any_copying(const struct flyt_node_migration *migration)
{
    for (const struct flyt_node_move *move = migration->moves; move; move = move->next)
        if (flyt_node_move_is_copying(move))
            return true;
    return false;
}

/* Whether everything of all is at their targets, but of those that are over. */
static bool are_all_loaded(const struct flyt_node_migration *migration)
{
    for (const struct flyt_node_move *move = migration->moves; move; move = move->next)
        if (move->stage != FLYT_NODE_MOVE_OVER && !flyt_node_move_is_loaded(move))
            return false;
    return true;
}

static bool are_all_done(const struct flyt_node_migration *migration)
{
    for (const struct flyt_node_move *move = migration->moves; move; move = move->next)
        if (!flyt_node_move_is_done(move))
            return false;
    return true;
}

/* Then nothing can be rolled back: a program may have seen that it is elsewhere. */
static bool is_any_moved(const struct flyt_node_migration *migration)
{
    if (migration->op.is_let_go)
        return true;
    for (const struct flyt_node_move *move = migration->moves; move; move = move->next)
        if (move->was_moved)
            return true;
    return false;
}

static bool are_all_ready(const struct flyt_node_migration *migration)
{
    for (const struct flyt_node_move *move = migration->moves; move; move = move->next)
        if (!flyt_node_move_is_ready(move))
            return false;
    return true;
}

/* ---- the end ---- */

static void tell_end(struct flyt_node_migration *migration)
{
    struct flyt_node *node = migration->op.node;
    const flyt_migration_use *use = &migration->use;
    bool is_done = migration->op.phase == FLYT_MIGRATION_DONE;
    const char *mark = *migration->op.text ? "; " : "";

    if (is_done)
        flyt_info("migration %016" PRIx64 ": done, vm=%s programs=%u ended=%u standstill_us=%" PRIu64
                  " copied_bytes=%" PRIu64 " last_bytes=%" PRIu64 " rounds=%u elapsed_ms=%" PRIu64,
                  migration->op.id, migration->op.vm_ip, use->session_count, migration->ended_count,
                  (uint64_t)use->standstill_us, (uint64_t)use->copied_bytes, (uint64_t)use->last_bytes, use->round,
                  (uint64_t)use->elapsed_ms);
    else
        flyt_warn("migration %016" PRIx64 ": failed, vm=%s: %s", migration->op.id, migration->op.vm_ip,
                  migration->op.text);
    if (is_done && migration->way->is_far)
        flyt_node_tell(node, "migration.left", migration->op.vm_ip,
                       "%u programs of VM %s have left: they go on at another node (%" PRIu64
                       " bytes were copied in %u rounds, of these %" PRIu64 " while they stood still)%s%s",
                       use->session_count, migration->op.vm_ip, (uint64_t)use->copied_bytes, use->round,
                       (uint64_t)use->last_bytes, mark, migration->op.text);
    else if (is_done)
        flyt_node_tell(
            node, "migration.done", migration->op.vm_ip,
            "%u programs of VM %s go on at other server processes: they stood still for %" PRIu64 " us, copied %" PRIu64
            " bytes in %u rounds, of these %" PRIu64 " while they stood still, in %" PRIu64 " ms%s%s",
            use->session_count, migration->op.vm_ip, (uint64_t)use->standstill_us, (uint64_t)use->copied_bytes,
            use->round, (uint64_t)use->last_bytes, (uint64_t)use->elapsed_ms, mark, migration->op.text);
    else
        flyt_node_tell(node, "migration.failed", migration->op.vm_ip,
                       "the programs of VM %s go on where they were: %s (after %" PRIu64 " ms, %" PRIu64
                       " bytes were copied)",
                       migration->op.vm_ip, migration->op.text, (uint64_t)use->elapsed_ms, (uint64_t)use->copied_bytes);
}

/* Nothing of it is left but what is told of it. */
static void release(struct flyt_node_migration *migration)
{
    struct flyt_node_move *move;

    flyt_node_operation_stop(&migration->op);
    flyt_node_commit_forget(migration->op.node, &migration->commit);
    while ((move = migration->moves)) {
        migration->moves = move->next;
        flyt_node_move_free(move);
    }
    xdr_free((xdrproc_t)xdr_flyt_allocation, &migration->wanted);
    migration->wanted = (flyt_allocation){0};
    flyt_node_send_give_up(migration);
    migration->sending = flyt_node_sending_free(migration->sending);
}

void flyt_node_migration_dismiss(struct flyt_node_migration *migration)
{
    release(migration);
    free(migration);
}

static void finish(struct flyt_node_migration *migration, flyt_migration_phase phase)
{
    struct flyt_node *node = migration->op.node;
    struct flyt_node_allocation *allocation = migration->op.allocation;
    flyt_migration_use so_far;

    if (phase == FLYT_MIGRATION_DONE && migration->ended_count)
        snprintf(migration->op.text, sizeof migration->op.text, "%u of its programs ended meanwhile",
                 migration->ended_count);
    use(&migration->op, &so_far);
    migration->use = so_far;
    migration->use.bytes_per_s = migration->use.left_bytes = 0;
    migration->use.outcome = (flyt_outcome){0};
    if (allocation)
        flyt_node_switch_release(migration);
    flyt_node_operation_end(&migration->op, phase);
    node->migrations_ended++;
    node->migrations_done += phase == FLYT_MIGRATION_DONE;
    if (phase == FLYT_MIGRATION_DONE && node->observe && !migration->is_found)
        node->observe(node->metrics, &migration->use);
    tell_end(migration);
    release(migration);
    if (allocation)
        flyt_node_groups_look(node, allocation);
    flyt_node_operations_forget_old(node, FLYT_NODE_OPERATION_MIGRATION);
    flyt_node_raise(node,
                    FLYT_NODE_EVENT_SERVERS); /* programs that waited for its end, and other servers that may start */
}

static void drop(struct flyt_node_operation *operation, const char *reason)
{
    struct flyt_node_migration *migration = of(operation);

    if (migration->way->is_far && migration->is_committed) {
        flyt_node_send_end(migration);
        return;
    }
    if (!migration->is_failing) {
        migration->is_failing = true;
        migration->op.status = FLYT_STATUS_OK; /* that is why, whatever was wrong before */
        flyt_node_operation_fail(operation, FLYT_STATUS_CONFLICT, "%s", reason);
    }
    /* Whatever its sessions are: they end. */
    for (struct flyt_node_move *move = migration->moves; move; move = move->next)
        if (move->stage < FLYT_NODE_MOVE_LEFT)
            flyt_node_move_cancel(move);
        else if (flyt_node_move_is_given(move))
            flyt_node_move_return(move);
        else if (move->stage != FLYT_NODE_MOVE_OVER)
            flyt_node_move_lose(move, reason);
    flyt_node_migration_wake(migration);
}

static void forget(struct flyt_node_operation *operation)
{
    struct flyt_node_migration *migration = of(operation);

    flyt_node_commit_forget(operation->node, &migration->commit);
    migration->writing = FLYT_NODE_MIGRATION_SETTLED;
}

/* ---- failing ---- */

/* All go on where they are, and it begins again after a pause. */
static void begin_anew(struct flyt_node_migration *migration)
{
    for (struct flyt_node_move *move = migration->moves; move; move = move->next) {
        move->is_counted = move->stage == FLYT_NODE_MOVE_OVER;
        if (!move->is_counted)
            flyt_node_move_cancel(move);
        move->outcome = 0;
    }
    flyt_node_commit_forget(migration->op.node, &migration->commit);
    migration->writing = FLYT_NODE_MIGRATION_UNWRITTEN;
    migration->pause_until_ms = flyt_clock_ms() + FLYT_NODE_MIGRATION_PAUSE_MS;
    flyt_node_operation_set_phase(&migration->op, FLYT_MIGRATION_PREPARING);
    flyt_node_raise(migration->op.node, FLYT_NODE_EVENT_SERVERS); /* programs that waited */
}

static void try_again(struct flyt_node_migration *migration, const struct flyt_node_move *failed)
{
    flyt_info("migration %016" PRIx64 ": tried again, vm=%s program=%s tries=%u: %s", migration->op.id,
              migration->op.vm_ip, failed->program, migration->tries, failed->sentence);
    migration->tries++;
    begin_anew(migration);
}

/* Once: a VM's programs are on the same GPUs, so that what one's cannot reach the others' cannot. */
static void go_by_host(struct flyt_node_migration *migration, const struct flyt_node_move *failed)
{
    flyt_info("migration %016" PRIx64 ": goes through host memory, vm=%s program=%s: %s", migration->op.id,
              migration->op.vm_ip, failed->program, failed->sentence);
    migration->way = flyt_node_way_between(&(struct flyt_node_way_ends){.is_same_node = true, .is_reachable = false});
    begin_anew(migration);
}

static void roll_back(struct flyt_node_migration *migration)
{
    migration->is_failing = true;
    if (migration->is_committed && migration->way->is_far)
        flyt_node_send_undo(migration);
    else if (migration->is_committed)
        flyt_node_switch_undo(migration);
    for (struct flyt_node_move *move = migration->moves; move; move = move->next) {
        if (move->stage != FLYT_NODE_MOVE_OVER)
            flyt_node_move_return(move);
        move->outcome = 0;
    }
    flyt_node_raise(migration->op.node, FLYT_NODE_EVENT_SERVERS);
}

/* One target failed when others' sessions had gone on. */
static void lose(struct flyt_node_migration *migration, struct flyt_node_move *move)
{
    char reason[600];

    if (flyt_node_move_is_given(move))
        return; /* when it has ended */
    snprintf(reason, sizeof reason, "it was to go on at another GPU, as its VM's other programs do by now: %.500s",
             move->sentence);
    move->outcome = 0;
    migration->lost_count++;
    flyt_node_tell(migration->op.node, "migration.session_lost", migration->op.vm_ip, "program %s of VM %s: %s",
                   move->program, migration->op.vm_ip, reason);
    if (move->stage != FLYT_NODE_MOVE_OVER)
        flyt_node_move_lose(move, reason);
}

static bool has_any_failed(const struct flyt_node_migration *migration)
{
    for (const struct flyt_node_move *move = migration->moves; move; move = move->next)
        if (move->outcome)
            return true;
    return false;
}

static void see_to_failures(struct flyt_node_migration *migration)
{
    if (migration->way->is_far && migration->is_committed)
        flyt_node_send_forgive(migration);
    for (struct flyt_node_move *move = migration->moves; move; move = move->next)
        flyt_node_move_on_message_source(move);
    if (has_any_failed(migration) && !migration->is_failing)
        for (struct flyt_node_move *move = migration->moves; move; move = move->next)
            flyt_node_move_on_message_target(move);
    for (struct flyt_node_move *move = migration->moves; move; move = move->next) {
        if (!move->outcome)
            continue;
        if (migration->is_failing) {
            move->outcome = 0;
            continue;
        }
        if (move->may_try_again && !migration->is_committed && migration->op.phase != FLYT_MIGRATION_ARRIVED &&
            migration->tries < FLYT_NODE_MIGRATION_TRIES && migration->op.status == FLYT_STATUS_OK) {
            try_again(migration, move);
            return;
        }
        if (move->outcome == -ENOLINK && move->way->is_mirrored && !migration->is_committed &&
            migration->op.status == FLYT_STATUS_OK) {
            go_by_host(migration, move);
            return;
        }
        if (migration->is_committed && is_any_moved(migration)) {
            lose(migration, move);
            continue;
        }
        flyt_node_operation_fail(&migration->op, flyt_node_operation_status(move->outcome),
                                 "program %.100s of VM %.60s: %.300s", move->program, migration->op.vm_ip,
                                 move->sentence);
    }
    if (migration->op.status != FLYT_STATUS_OK && !migration->is_failing)
        roll_back(migration);
}

int flyt_node_migration_cancel(struct flyt_node_migration *migration, const char *reason)
{
    if (flyt_node_operation_has_ended(&migration->op) || migration->is_committed || migration->is_failing ||
        migration->writing == FLYT_NODE_MIGRATION_COMMITTING)
        return -EALREADY;
    flyt_node_operation_fail(&migration->op, FLYT_STATUS_CONFLICT, "%s", reason);
    return 0;
}

/* ---- going on ---- */

static void on_written_ahead(void *user, int status)
{
    struct flyt_node_migration *migration = user;

    migration->writing = FLYT_NODE_MIGRATION_AHEAD;
    flyt_node_migration_wake(migration);
}

/* While they run: a disk may take longer than all that follows. */
static bool is_written_ahead(struct flyt_node_migration *migration)
{
    if (migration->writing == FLYT_NODE_MIGRATION_UNWRITTEN && !migration->way->is_far) {
        migration->writing = FLYT_NODE_MIGRATION_WRITING_AHEAD;
        flyt_node_switch_write_ahead(migration, on_written_ahead);
    }
    return migration->writing != FLYT_NODE_MIGRATION_WRITING_AHEAD;
}

static void stop_all(struct flyt_node_migration *migration)
{
    flyt_node_operation_set_phase(&migration->op, FLYT_MIGRATION_STOPPING);
    migration->stop_ms = flyt_clock_ms();
    for (struct flyt_node_move *move = migration->moves; move; move = move->next)
        flyt_node_move_stop(move, (uint64_t)migration->bounds.stop_ms * 1000);
}

static bool is_whole(const struct flyt_node_move *move)
{
    return flyt_node_move_is_given(move) && move->target.is_whole && move->target.server;
}

/* As long as none has gone on, all can go back. */
static void let_go(struct flyt_node_migration *migration)
{
    unsigned whole_count = 0, expected_count = 0;

    for (const struct flyt_node_move *move = migration->moves; move; move = move->next) {
        whole_count += is_whole(move);
        expected_count += move->stage != FLYT_NODE_MOVE_OVER;
    }
    if (!flyt_node_operation_lets_go(&migration->op, whole_count, expected_count, false))
        return;
    for (struct flyt_node_move *move = migration->moves; move; move = move->next)
        if (is_whole(move))
            flyt_node_target_let_go(&move->target);
}

/* It may fail by now because its allocation is to end. */
static void on_committed(void *user, int status)
{
    struct flyt_node_migration *migration = user;

    migration->writing = FLYT_NODE_MIGRATION_COMMITTED;
    flyt_node_migration_wake(migration);
    if (status || migration->is_failing) {
        flyt_node_switch_unwrite(migration);
        flyt_node_save_soon(migration->op.node);
        flyt_node_operation_fail(&migration->op, FLYT_STATUS_UNAVAILABLE, "the node's state file cannot be written");
        return;
    }
    flyt_node_switch_commit(migration);
    flyt_node_operation_set_phase(&migration->op, FLYT_MIGRATION_SWITCHING);
    for (struct flyt_node_move *move = migration->moves; move; move = move->next)
        flyt_node_move_leave(move);
    flyt_node_raise(migration->op.node, FLYT_NODE_EVENT_SERVERS);
}

static void commit(struct flyt_node_migration *migration)
{
    struct flyt_error err = {0};

    int status = flyt_node_switch_write(migration, on_committed, &err);
    if (status)
        flyt_node_operation_fail(&migration->op, status == -EBUSY ? FLYT_STATUS_IN_USE : FLYT_STATUS_UNAVAILABLE, "%s",
                                 err.text);
    else
        migration->writing = FLYT_NODE_MIGRATION_COMMITTING;
}

/* What one session writes with its last work may be memory of another one's, which is copied then. */
static void copy_last(struct flyt_node_migration *migration)
{
    struct flyt_error err = {0};
    bool is_any_waiting = false;

    for (const struct flyt_node_move *move = migration->moves; move; move = move->next) {
        if (!flyt_node_move_is_drained(move))
            return;
        is_any_waiting |= flyt_node_move_waits_for_last(move);
    }
    if (!is_any_waiting)
        return;
    if (flyt_node_switch_check_shared(migration->op.allocation, &err)) {
        flyt_node_operation_fail(&migration->op, FLYT_STATUS_NOT_SUPPORTED, "%s", err.text);
        return;
    }
    for (struct flyt_node_move *move = migration->moves; move; move = move->next)
        flyt_node_move_last(move);
}

static void look_at_phase(struct flyt_node_migration *migration)
{
    if (migration->op.phase == FLYT_MIGRATION_PREPARING && is_any_copying(migration))
        flyt_node_operation_set_phase(&migration->op, FLYT_MIGRATION_COPYING);
    if (migration->op.phase <= FLYT_MIGRATION_COPYING && are_all_ready(migration) && is_written_ahead(migration))
        stop_all(migration);
    if (migration->op.phase == FLYT_MIGRATION_STOPPING)
        copy_last(migration);
    if (migration->op.phase != FLYT_MIGRATION_STOPPING || !are_all_loaded(migration))
        return;
    if (migration->way->is_far)
        flyt_node_send_arrive(migration);
    else
        commit(migration);
}

/* After the pause of a new try. */
static void begin_again(struct flyt_node_migration *migration)
{
    migration->pause_until_ms = 0;
    if (!add_sessions(migration))
        flyt_node_operation_fail(&migration->op, FLYT_STATUS_UNAVAILABLE, "the node has no memory");
}

static void check_time(struct flyt_node_migration *migration)
{
    if (flyt_node_send_is_late(migration))
        flyt_node_operation_fail(&migration->op, FLYT_STATUS_TIMEOUT,
                                 "the cluster manager has not said in time that they may leave");
    if (!migration->is_committed && flyt_node_operation_is_late(&migration->op))
        flyt_node_operation_fail(&migration->op, FLYT_STATUS_TIMEOUT, "it was not through after %u s",
                                 migration->op.timeout_s);
}

static void advance(struct flyt_node_migration *migration)
{
    uint64_t now_ms = flyt_clock_ms();

    if (migration->pause_until_ms && now_ms >= migration->pause_until_ms && !migration->is_failing &&
        are_all_done(migration)) /* what the last try's targets made is free again */
        begin_again(migration);
    for (struct flyt_node_move *move = migration->moves; move; move = move->next)
        flyt_node_move_advance(move);
    check_time(migration);
    measure(migration, now_ms);
    see_to_failures(migration);
    if (!migration->is_failing && !migration->pause_until_ms)
        look_at_phase(migration);
    see_to_failures(migration);
    if (!migration->is_failing)
        let_go(migration);
}

static void on_settled(void *user, int status)
{
    struct flyt_node_migration *migration = user;

    migration->writing = FLYT_NODE_MIGRATION_SETTLED; /* where it cannot be written that is tried again (writer.h) */
    flyt_node_migration_wake(migration);
}

/* What was not waited for is on the disk before anybody is told, and what was written ahead in vain is gone. */
static bool is_settled(struct flyt_node_migration *migration)
{
    if (migration->writing == FLYT_NODE_MIGRATION_UNWRITTEN || migration->way->is_far)
        return true;
    if (migration->writing < FLYT_NODE_MIGRATION_SETTLING) {
        flyt_node_commit_forget(migration->op.node, &migration->commit);
        migration->writing = FLYT_NODE_MIGRATION_SETTLING;
        flyt_node_commit(migration->op.node, &migration->commit, on_settled, migration);
    }
    return migration->writing == FLYT_NODE_MIGRATION_SETTLED;
}

static bool may_end(const struct flyt_node_migration *migration)
{
    return migration->is_failing || (migration->op.phase == FLYT_MIGRATION_SWITCHING &&
                                     (!migration->way->is_far || migration->sending->is_taken_back));
}

static void step(struct flyt_node_operation *operation)
{
    struct flyt_node_migration *migration = of(operation);

    if (migration->writing == FLYT_NODE_MIGRATION_COMMITTING)
        return;
    advance(migration);
    /* Warm servers that are wanted, or were taken. */
    if (operation->phase <= FLYT_MIGRATION_COPYING && !migration->is_failing)
        flyt_node_raise(operation->node, FLYT_NODE_EVENT_SERVERS);
    if (!are_all_done(migration) || (operation->allocation && !flyt_node_switch_is_clear(migration)))
        return;
    if (may_end(migration) && is_settled(migration))
        finish(migration, migration->is_failing ? FLYT_MIGRATION_FAILED : FLYT_MIGRATION_DONE);
}

static const struct flyt_node_operation_ops ops = {
    .kind = FLYT_NODE_OPERATION_MIGRATION, .step = step, .drop = drop, .forget = forget, .holds = holds, .use = use};

/* ---- beginning ---- */

static flyt_migration_bounds complete(const flyt_migration_bounds *wished)
{
    flyt_migration_bounds bounds = *wished;

    if (!bounds.rounds_max)
        bounds.rounds_max = FLYT_NODE_MIGRATION_ROUNDS;
    if (bounds.rounds_max > FLYT_MANAGER_LINK_ROUNDS_MAX)
        bounds.rounds_max = FLYT_MANAGER_LINK_ROUNDS_MAX;
    if (!bounds.stop_ms)
        bounds.stop_ms = FLYT_NODE_MIGRATION_STOP_MS;
    if (!bounds.timeout_s)
        bounds.timeout_s = FLYT_NODE_MIGRATION_TIMEOUT_S;
    if (!bounds.rest_bytes)
        bounds.rest_bytes = (uint64_t)FLYT_NODE_MIGRATION_REST_MIB << 20;
    return bounds;
}

struct flyt_node_migration *flyt_node_migration_new(struct flyt_node_allocation *allocation, uint64_t id,
                                                    const flyt_migration_bounds *wished)
{
    struct flyt_node_migration *migration = calloc(1, sizeof *migration);

    if (!migration)
        return NULL;
    flyt_node_operation_init(&migration->op, &ops, allocation->node, allocation, id);
    migration->bounds = complete(wished);
    migration->op.timeout_s = migration->bounds.timeout_s;
    migration->tries = 1;
    migration->second_ms = flyt_clock_ms();
    return migration;
}

int flyt_node_migration_begin(struct flyt_node_migration *migration, bool with_sessions)
{
    return with_sessions && !add_sessions(migration) ? -ENOMEM : flyt_node_operation_begin(&migration->op);
}

flyt_status flyt_node_migrate(struct flyt_node *node, const flyt_order_migrate_args *args, struct flyt_error *err)
{
    struct flyt_node_allocation *allocation = NULL;

    if (flyt_node_migration_find(node, args->migration_id))
        return FLYT_STATUS_OK;
    flyt_status status = flyt_node_switch_check(node, args, &allocation, err);
    if (status != FLYT_STATUS_OK)
        return status;
    struct flyt_node_migration *migration = flyt_node_migration_new(allocation, args->migration_id, &args->bounds);
    if (migration)
        migration->way = flyt_node_switch_way(allocation, &args->allocation);
    if (!migration || flyt_node_allocation_copy(&args->allocation, &migration->wanted) ||
        flyt_node_migration_begin(migration, true)) {
        if (migration)
            flyt_node_migration_dismiss(migration);
        flyt_error_set(err, -ENOMEM, "the node has no memory");
        return FLYT_STATUS_UNAVAILABLE;
    }
    flyt_node_switch_hold(migration);
    flyt_info("migration %016" PRIx64 ": begins, vm=%s programs=%u %s", migration->op.id, migration->op.vm_ip,
              allocation->session_count, migration->way->text);
    flyt_node_tell(node, "migration.started", migration->op.vm_ip, "%u programs of VM %s move to GPU %s",
                   allocation->session_count, migration->op.vm_ip, migration->wanted.slots.slots_val[0].gpu_uuid);
    flyt_node_changed(node);
    flyt_node_raise(node, FLYT_NODE_EVENT_SERVERS);
    return FLYT_STATUS_OK;
}

void flyt_node_migrations_fini(struct flyt_node *node)
{
    struct flyt_node_migration *migration;

    while ((migration = flyt_node_migration_first(node))) {
        flyt_node_operation_remove(&migration->op);
        flyt_node_migration_dismiss(migration);
    }
}
