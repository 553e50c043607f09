#include "control/node/ops/send.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/node/link/link_dispatch.h"
#include "control/node/model/writer.h"
#include "control/node/ops/checkpointed_sessions.h"
#include "control/node/ops/migration_switch.h"
#include "control/node/state/departed.h"
#include "cpu/image/writer.h"
#include "rpc/base/clock.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/log.h"

static const struct flyt_node_way_ends to_another_node = {.is_same_node = false};

/* ---- what there is of the other node ---- */

struct flyt_node_sending *flyt_node_sending_free(struct flyt_node_sending *sending)
{
    if (!sending)
        return NULL;
    flyt_node_resolver_free(sending->resolver);
    explicit_bzero(sending->secret, sizeof sending->secret);
    free(sending);
    return NULL;
}

static int sending_new(const flyt_order_send_args *args, struct flyt_node_sending **ret_sending, struct flyt_error *err)
{
    struct flyt_node_sending *sending = calloc(1, sizeof *sending);

    if (!sending)
        return flyt_error_set(err, -ENOMEM, "the node has no memory");
    snprintf(sending->node, sizeof sending->node, "%s", args->node);
    memcpy(sending->secret, args->secret, sizeof sending->secret);
    sending->stream_count = args->stream_count;
    sending->packing = args->packing;
    sending->is_encrypted = args->is_encrypted;
    int status = flyt_node_resolver_new(args->urls.urls_val, args->urls.urls_len, &sending->resolver, err);
    if (status)
        flyt_node_sending_free(sending);
    else
        *ret_sending = sending;
    return status;
}

/* ---- the order ---- */

static flyt_status check_suspended(const struct flyt_node *node, const struct flyt_node_allocation *allocation,
                                   struct flyt_error *err)
{
    const struct flyt_node_checkpointed *checkpointed = node->state.checkpointed;

    while (checkpointed && checkpointed->allocation_id != allocation->now.id)
        checkpointed = checkpointed->next;
    if (!checkpointed)
        return FLYT_STATUS_OK;
    flyt_error_set(err, -EBUSY, "program %.100s of VM %.255s waits in an image of this node", checkpointed->program,
                   allocation->now.vm_ip);
    return FLYT_STATUS_IN_USE;
}

/* As far as servers have said what they understand: of the others it is seen before anything of theirs stops. */
static flyt_status check_servers(const struct flyt_node *node, const struct flyt_node_allocation *allocation,
                                 struct flyt_error *err)
{
    for (const struct flyt_node_server *server = node->servers; server; server = server->next) {
        if (flyt_node_server_allocation(server) != allocation || server->state == FLYT_NODE_SERVER_ENDING ||
            !server->has.has_use || server->has.use.can_move >= FLYT_MANAGER_LINK_CAN_MOVE_SEND)
            continue;
        flyt_error_set(err, -ENOTSUP, "program %.100s of VM %.255s cannot be moved: " FLYT_NODE_MOVE_TOO_OLD,
                       server->session->ticket.program, allocation->now.vm_ip);
        return FLYT_STATUS_NOT_SUPPORTED;
    }
    return FLYT_STATUS_OK;
}

static flyt_status check(const struct flyt_node *node, const struct flyt_node_allocation *allocation,
                         const flyt_order_send_args *args, struct flyt_error *err)
{
    unsigned session_count = 0;

    if (!args->migration_id || args->stream_count > FLYT_MIGRATION_STREAMS_MAX ||
        args->packing > FLYT_CHECKPOINT_PACK_ZSTD) {
        flyt_error_set(err, -EINVAL, "a migration needs an id, at most %u streams, and a known packing",
                       FLYT_MIGRATION_STREAMS_MAX);
        return FLYT_STATUS_INVALID;
    }
    flyt_status status = flyt_node_switch_check_programs(node, allocation, &session_count, err);
    if (status == FLYT_STATUS_OK)
        status = check_servers(node, allocation, err);
    if (status == FLYT_STATUS_OK)
        status = check_suspended(node, allocation, err);
    if (status == FLYT_STATUS_OK && flyt_fault_point("node.send.accept") == FLYT_FAULT_ERROR) {
        flyt_error_set(err, -EIO, "a test lets it fail at node.send.accept");
        status = FLYT_STATUS_UNAVAILABLE;
    }
    return status;
}

flyt_status flyt_node_send(struct flyt_node *node, const flyt_order_send_args *args, struct flyt_error *err)
{
    struct flyt_node_allocation *allocation = flyt_node_allocation_find(node, args->allocation_id);

    if (flyt_node_migration_find(node, args->migration_id))
        return FLYT_STATUS_OK;
    flyt_status status = check(node, allocation, args, err);
    if (status != FLYT_STATUS_OK)
        return status;
    struct flyt_node_migration *migration = flyt_node_migration_new(allocation, args->migration_id, &args->bounds);
    int code = migration ? sending_new(args, &migration->sending, err)
                         : flyt_error_set(err, -ENOMEM, "the node has no memory");
    if (!code) {
        migration->way = flyt_node_way_between(&to_another_node);
        code = flyt_node_migration_begin(migration, true);
        if (code)
            flyt_error_set(err, code, "the node has no memory");
    }
    if (code) {
        if (migration)
            flyt_node_migration_dismiss(migration);
        return code == -EINVAL ? FLYT_STATUS_INVALID : FLYT_STATUS_UNAVAILABLE;
    }
    flyt_info("migration %016" PRIx64 ": begins, vm=%s programs=%u to=%s streams=%u encrypted=%d", migration->op.id,
              migration->op.vm_ip, allocation->session_count, migration->sending->node, args->stream_count,
              args->is_encrypted != 0);
    flyt_node_tell(node, "migration.started", migration->op.vm_ip, "%u programs of VM %s move to node %s",
                   allocation->session_count, migration->op.vm_ip, migration->sending->node);
    flyt_node_changed(node);
    return FLYT_STATUS_OK;
}

/* ---- there ---- */

void flyt_node_send_arrive(struct flyt_node_migration *migration)
{
    /* One that lost its server process between two tries, and waits for its client or has just been taken over. */
    const struct flyt_node_session *left_out = flyt_node_switch_find_left_out(migration);

    if (left_out) {
        flyt_node_operation_fail(&migration->op, FLYT_STATUS_IN_USE,
                                 "program %.100s of VM %.255s has lost its server process meanwhile",
                                 left_out->ticket.program, migration->op.vm_ip);
        return;
    }
    migration->sending->arrived_ms = flyt_clock_ms();
    flyt_node_operation_set_phase(&migration->op, FLYT_MIGRATION_ARRIVED);
}

bool flyt_node_send_is_late(const struct flyt_node_migration *migration)
{
    uint64_t limit_ms = migration->bounds.stop_ms;

    if (migration->op.phase != FLYT_MIGRATION_ARRIVED)
        return false;
    if (limit_ms < FLYT_NODE_SEND_ARRIVED_MS)
        limit_ms = FLYT_NODE_SEND_ARRIVED_MS;
    return flyt_clock_ms() - migration->sending->arrived_ms > limit_ms + FLYT_NODE_SEND_GRACE_MS;
}

/* ---- the switch ---- */

/* Why it cannot be; NULL: it can. */
static const char *find_obstacle(const struct flyt_node_migration *migration)
{
    if (migration->is_failing || migration->op.status != FLYT_STATUS_OK)
        return *migration->op.text ? migration->op.text : "it has failed";
    if (migration->op.phase != FLYT_MIGRATION_ARRIVED)
        return "not everything has arrived there";
    if (flyt_node_switch_find_left_out(migration))
        return "a program has lost its server process meanwhile";
    for (const struct flyt_node_move *move = migration->moves; move; move = move->next) {
        if (move->outcome)
            return move->sentence;
        if (move->stage != FLYT_NODE_MOVE_OVER && (!flyt_node_move_is_loaded(move) || !flyt_node_move_may_leave(move)))
            return "a program is being ended";
    }
    return flyt_fault_point("node.send.switch") == FLYT_FAULT_ERROR ? "a test lets it fail at node.send.switch" : NULL;
}

static void answer(struct flyt_node_migration *migration, flyt_status status, const char *text)
{
    flyt_node_sent_fn done = migration->sending->switching.done;

    migration->sending->switching.done = NULL;
    if (done)
        done(migration->sending->switching.user, migration, status, text);
}

static void refuse(struct flyt_node_migration *migration, const char *obstacle)
{
    struct flyt_error err = {0};

    flyt_node_operation_fail(&migration->op, FLYT_STATUS_UNAVAILABLE, "%s", obstacle);
    flyt_error_set(&err, -EBUSY, "the programs of VM %.255s go on at node %s: %.200s", migration->op.vm_ip,
                   migration->op.node->name, obstacle);
    answer(migration, FLYT_STATUS_CONFLICT, err.text);
}

static void on_switch_written(void *user, int status)
{
    struct flyt_node_migration *migration = user;

    migration->writing = FLYT_NODE_MIGRATION_COMMITTED;
    if (status || migration->is_failing) {
        flyt_node_departed_remove(&migration->op.node->state, migration->op.allocation_id);
        flyt_node_save_soon(migration->op.node);
        refuse(migration, status ? "the node's state file cannot be written" : migration->op.text);
        return;
    }
    migration->is_committed = true;
    flyt_node_operation_set_phase(&migration->op, FLYT_MIGRATION_SWITCHING);
    for (struct flyt_node_move *move = migration->moves; move; move = move->next)
        flyt_node_move_leave(move);
    flyt_node_migration_wake(migration);
    flyt_node_raise(migration->op.node, FLYT_NODE_EVENT_SERVERS); /* programs that wait are told to ask again */
    answer(migration, FLYT_STATUS_OK, "");
}

void flyt_node_send_switch(struct flyt_node_migration *migration, flyt_node_sent_fn done, void *user)
{
    if (migration->is_committed || migration->op.phase == FLYT_MIGRATION_DONE) {
        done(user, migration, FLYT_STATUS_OK, "");
        return;
    }
    if (flyt_node_operation_has_ended(&migration->op)) {
        done(user, migration, FLYT_STATUS_CONFLICT, migration->op.text);
        return;
    }
    if (migration->sending->switching.done) {
        done(user, migration, FLYT_STATUS_UNAVAILABLE, "the same order is being carried out");
        return;
    }
    migration->sending->switching.done = done;
    migration->sending->switching.user = user;
    /* What sources have said, and was not read, decides: one may go on already. */
    for (struct flyt_node_move *move = migration->moves; move; move = move->next)
        if (move->source)
            flyt_node_server_read_all(move->source);
    const char *obstacle = find_obstacle(migration);
    if (!obstacle && flyt_node_departed_add(&migration->op.node->state, migration->op.allocation_id, migration->op.id))
        obstacle = "the node has no memory";
    if (obstacle) {
        refuse(migration, obstacle);
        return;
    }
    migration->writing = FLYT_NODE_MIGRATION_COMMITTING;
    flyt_node_commit(migration->op.node, &migration->commit, on_switch_written, migration);
}

void flyt_node_send_give_up(struct flyt_node_migration *migration)
{
    if (migration->sending)
        answer(migration, FLYT_STATUS_UNAVAILABLE, *migration->op.text ? migration->op.text : "the node manager ends");
}

void flyt_node_send_forgive(struct flyt_node_migration *migration)
{
    for (struct flyt_node_move *move = migration->moves; move; move = move->next) {
        if (!move->outcome)
            continue;
        flyt_warn("migration %016" PRIx64 ": program %s, vm=%s: it is to go on at another node, and cannot be told: %s",
                  migration->op.id, move->program, migration->op.vm_ip, move->sentence);
        move->outcome = 0;
        if ((move->source || move->waiting) &&
            (move->stage == FLYT_NODE_MOVE_STOPPED || move->stage == FLYT_NODE_MOVE_LEFT))
            flyt_node_move_source_forsake(move);
    }
}

/* ---- back ---- */

void flyt_node_send_undo(struct flyt_node_migration *migration)
{
    for (const struct flyt_node_move *move = migration->moves; move; move = move->next)
        if (move->was_moved)
            flyt_node_tell(migration->op.node, "migration.session_lost", migration->op.vm_ip,
                           "program %s of VM %s was to go on at another node, which has not taken it, and what was "
                           "left of it here has ended",
                           move->program, migration->op.vm_ip);
    migration->is_committed = false;
    flyt_node_departed_remove(&migration->op.node->state, migration->op.allocation_id);
    flyt_node_save_soon(migration->op.node); /* until it is written a restart finds it as it was, and is told again */
}

flyt_status flyt_node_send_back(struct flyt_node_migration *migration, const char *reason, struct flyt_error *err)
{
    if (migration->op.phase == FLYT_MIGRATION_DONE || (migration->sending && migration->sending->is_taken_back)) {
        flyt_error_set(err, -EBUSY, "the programs of VM %.255s have ended here", migration->op.vm_ip);
        return FLYT_STATUS_CONFLICT;
    }
    if (flyt_node_operation_has_ended(&migration->op) || migration->is_failing)
        return FLYT_STATUS_OK;
    flyt_node_operation_fail(&migration->op, FLYT_STATUS_UNAVAILABLE, "%s", *reason ? reason : "it was sent back");
    return FLYT_STATUS_OK;
}

void flyt_node_send_end(struct flyt_node_migration *migration)
{
    if (migration->sending->is_taken_back)
        return;
    migration->sending->is_taken_back = true;
    for (struct flyt_node_move *move = migration->moves; move; move = move->next) {
        migration->op.node->sessions_moved += move->stage == FLYT_NODE_MOVE_LEFT || move->was_moved;
        move->was_moved |= move->stage == FLYT_NODE_MOVE_LEFT;
        flyt_node_move_end_left(move);
    }
    flyt_node_migration_wake(migration);
}

/* ---- for others ---- */

static int restore(struct flyt_node_allocation *allocation, uint64_t migration_id)
{
    const flyt_migration_bounds bounds = {0};
    struct flyt_node_migration *migration = flyt_node_migration_new(allocation, migration_id, &bounds);

    if (!migration)
        return -ENOMEM;
    migration->way = flyt_node_way_between(&to_another_node);
    migration->sending = calloc(1, sizeof *migration->sending);
    migration->op.phase = FLYT_MIGRATION_SWITCHING;
    migration->is_committed = migration->is_found = true;
    if (migration->sending && !flyt_node_migration_begin(migration, false))
        return 0;
    flyt_node_migration_dismiss(migration);
    return -ENOMEM;
}

int flyt_node_send_restore(struct flyt_node *node)
{
    int status = 0;

    for (struct flyt_node_allocation *allocation = node->allocations; allocation && !status;
         allocation = allocation->next) {
        uint64_t migration_id = flyt_node_departed_find(&node->state, allocation->now.id);
        if (migration_id && !allocation->is_removed)
            status = restore(allocation, migration_id);
    }
    return status;
}

bool flyt_node_send_take_back_server(struct flyt_node_server *server)
{
    struct flyt_node_migration *migration = flyt_node_migration_of(flyt_node_server_allocation(server));

    if (!migration || !migration->sending || (!migration->is_committed && !migration->is_failing))
        return false;
    if (!server->left_move_id && migration->is_committed)
        flyt_node_operation_fail(&migration->op, FLYT_STATUS_UNAVAILABLE,
                                 "program %.100s of VM %.60s had not left when the node manager was restarted",
                                 server->session->ticket.program, migration->op.vm_ip);
    if (!server->left_move_id)
        return false;
    struct flyt_node_move *move = flyt_node_move_of_left(migration, server);
    if (!move)
        return false;
    move->next = migration->moves;
    migration->moves = move;
    if (migration->is_failing)
        flyt_node_move_return(move);
    flyt_node_migration_wake(migration);
    return true;
}
