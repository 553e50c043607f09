#include "control/node/ops/operation.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "control/node/model/server.h"
#include "control/node/ops/ops.h"
#include "control/node/state/remembered.h"
#include "rpc/base/clock.h"

/* ---- what excludes what ---- */

#define BIT(kind) (1u << FLYT_NODE_OPERATION_##kind)

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

static bool is_changed(const struct flyt_node_allocation *allocation)
{
    return allocation->pending || allocation->is_removed || allocation->now.state == FLYT_ALLOCATION_ENDING;
}

static flyt_status check_conflicts(const struct flyt_node_allocation *allocation, enum flyt_node_operation_kind kind,
                                   struct flyt_error *err)
{
    for (unsigned i = FLYT_NODE_OPERATION_COUNT; i-- > 0;)
        if (conflicts[kind] & 1u << i &&
            (i == FLYT_NODE_OPERATION_CHANGE ? is_changed(allocation)
                                             : flyt_node_operation_of(allocation, i) != NULL)) {
            flyt_error_set(err, -EBUSY, sentences[i], allocation->now.vm_ip);
            return FLYT_STATUS_CONFLICT;
        }
    return FLYT_STATUS_OK;
}

flyt_status flyt_node_operation_check(const struct flyt_node_allocation *allocation, enum flyt_node_operation_kind kind,
                                      struct flyt_error *err)
{
    if (!allocation) {
        flyt_error_set(err, -ENOENT, "the node has no such allocation (any more)");
        return FLYT_STATUS_NOT_FOUND;
    }
    flyt_status status = check_conflicts(allocation, kind, err);
    if (status == FLYT_STATUS_OK && kind != FLYT_NODE_OPERATION_CHANGE &&
        (!flyt_node_allocation_is_complete(allocation) || flyt_node_allocation_absent(allocation))) {
        flyt_error_set(err, -EAGAIN, "programs of VM %.255s may still come back after the node manager's restart",
                       allocation->now.vm_ip);
        status = FLYT_STATUS_UNAVAILABLE;
    }
    return status;
}

flyt_status flyt_node_operation_check_session(const struct flyt_node_server *server, const char *what,
                                              struct flyt_error *err)
{
    const char *vm_ip = flyt_node_server_allocation(server)->now.vm_ip;

    if (server->state != FLYT_NODE_SERVER_SERVING || server->role || server->left_move_id) {
        flyt_error_set(err, -EBUSY, "program %s of VM %.255s is on its way to a server process",
                       server->session->ticket.program, vm_ip);
        return FLYT_STATUS_IN_USE;
    }
    if (server->link_fd < 0) {
        flyt_error_set(err, -EBUSY, "program %s of VM %.255s cannot be %s: " FLYT_NODE_LINK_LOST_TEXT,
                       server->session->ticket.program, vm_ip, what);
        return FLYT_STATUS_IN_USE;
    }
    if (server->has.has_use && !server->has.use.can_move) {
        flyt_error_set(err, -ENOTSUP,
                       "program %s of VM %.255s cannot be %s: its client library or its server process is of an "
                       "older build",
                       server->session->ticket.program, vm_ip, what);
        return FLYT_STATUS_NOT_SUPPORTED;
    }
    return FLYT_STATUS_OK;
}

/* ---- phases ---- */

#define MOVING(phase) (1u << FLYT_MIGRATION_##phase)
#define SAVING(phase) (1u << FLYT_SAVING_##phase)

enum { PHASES = FLYT_MIGRATION_ARRIVED + 1 };

_Static_assert((int)FLYT_MIGRATION_DONE == (int)FLYT_SAVING_DONE &&
                   (int)FLYT_MIGRATION_FAILED == (int)FLYT_SAVING_FAILED &&
                   (int)FLYT_MIGRATION_PREPARING == (int)FLYT_SAVING_PREPARING,
               "an operation begins and ends alike");

/* By kind and phase: which ones may follow, besides FAILED. A migration that is tried again is PREPARING; to another
 * node it goes by ARRIVED. A receive is what its programs are until SWITCH, which may be of none. */
static const unsigned follows[FLYT_NODE_OPERATION_COUNT][PHASES] = {
    [FLYT_NODE_OPERATION_MIGRATION] = {[FLYT_MIGRATION_PREPARING] = MOVING(COPYING) | MOVING(STOPPING),
                                       [FLYT_MIGRATION_COPYING] = MOVING(STOPPING) | MOVING(PREPARING),
                                       [FLYT_MIGRATION_STOPPING] =
                                           MOVING(SWITCHING) | MOVING(ARRIVED) | MOVING(PREPARING),
                                       [FLYT_MIGRATION_ARRIVED] = MOVING(SWITCHING),
                                       [FLYT_MIGRATION_SWITCHING] = MOVING(DONE)},
    [FLYT_NODE_OPERATION_RECEIVE] = {[FLYT_MIGRATION_PREPARING] = MOVING(COPYING) | MOVING(ARRIVED) | MOVING(SWITCHING),
                                     [FLYT_MIGRATION_COPYING] = MOVING(PREPARING) | MOVING(ARRIVED) | MOVING(SWITCHING),
                                     [FLYT_MIGRATION_ARRIVED] = MOVING(PREPARING) | MOVING(COPYING) | MOVING(SWITCHING),
                                     [FLYT_MIGRATION_SWITCHING] = MOVING(DONE)},
    [FLYT_NODE_OPERATION_CHECKPOINT] = {[FLYT_SAVING_PREPARING] = SAVING(COPYING),
                                        [FLYT_SAVING_COPYING] = SAVING(STOPPING),
                                        [FLYT_SAVING_STOPPING] = SAVING(SWITCHING) | SAVING(DONE),
                                        [FLYT_SAVING_SWITCHING] = SAVING(DONE)},
    [FLYT_NODE_OPERATION_RESTORE] = {[FLYT_SAVING_PREPARING] = SAVING(COPYING),
                                     [FLYT_SAVING_COPYING] = SAVING(SWITCHING),
                                     [FLYT_SAVING_SWITCHING] = SAVING(DONE)},
};

void flyt_node_operation_set_phase(struct flyt_node_operation *operation, unsigned phase)
{
    if (operation->phase == phase)
        return;
    assert(!flyt_node_operation_has_ended(operation) &&
           (follows[operation->ops->kind][operation->phase] | MOVING(FAILED)) & 1u << phase);
    operation->phase = phase;
    operation->has_changed = true;
    flyt_node_changed(operation->node);
}

bool flyt_node_operation_has_ended(const struct flyt_node_operation *operation)
{
    return operation->phase == FLYT_MIGRATION_DONE || operation->phase == FLYT_MIGRATION_FAILED;
}

/* ---- one of them ---- */

void flyt_node_operation_init(struct flyt_node_operation *operation, const struct flyt_node_operation_ops *ops,
                              struct flyt_node *node, struct flyt_node_allocation *allocation, uint64_t id)
{
    *operation = (struct flyt_node_operation){.ops = ops,
                                              .node = node,
                                              .allocation = allocation,
                                              .id = id,
                                              .allocation_id = allocation ? allocation->now.id : 0,
                                              .phase = FLYT_MIGRATION_PREPARING,
                                              .has_changed = true,
                                              .started_ms = flyt_clock_ms()};
    snprintf(operation->vm_ip, sizeof operation->vm_ip, "%s", allocation ? allocation->now.vm_ip : "");
}

static int on_timer(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_node_operation *operation = user;

    flyt_node_operation_wake_in(operation, FLYT_NODE_OPERATION_TICK_MS);
    operation->ops->step(operation); /* it may be gone then */
    return 0;
}

int flyt_node_operation_begin(struct flyt_node_operation *operation)
{
    struct flyt_node_operation **list = &operation->node->ops->operations[operation->ops->kind];

    if (sd_event_add_time_relative(operation->node->event, &operation->timer, CLOCK_MONOTONIC, 0, 1, on_timer,
                                   operation) < 0)
        return -ENOMEM;
    operation->next = *list;
    *list = operation;
    return 0;
}

void flyt_node_operation_wake_in(struct flyt_node_operation *operation, uint64_t ms)
{
    if (!operation || !operation->timer)
        return;
    sd_event_source_set_time_relative(operation->timer, ms * 1000);
    sd_event_source_set_enabled(operation->timer, SD_EVENT_ONESHOT);
}

void flyt_node_operation_wake(struct flyt_node_operation *operation)
{
    flyt_node_operation_wake_in(operation, 0);
}

void flyt_node_operation_fail(struct flyt_node_operation *operation, flyt_status status, const char *format, ...)
{
    va_list arguments;

    if (flyt_node_operation_is_to_fail(operation) || flyt_node_operation_has_ended(operation) ||
        (operation->ops->is_decided && operation->ops->is_decided(operation)))
        return;
    operation->status = status;
    va_start(arguments, format);
    vsnprintf(operation->text, sizeof operation->text, format, arguments);
    va_end(arguments);
    flyt_node_operation_wake(operation);
}

flyt_status flyt_node_operation_status(int outcome)
{
    return outcome == -ENOTSUP                        ? FLYT_STATUS_NOT_SUPPORTED
           : outcome == -ENOMEM || outcome == -ENOSPC ? FLYT_STATUS_NO_CAPACITY
           : outcome == -ETIMEDOUT                    ? FLYT_STATUS_TIMEOUT
           : outcome == -EBUSY                        ? FLYT_STATUS_IN_USE
                                                      : FLYT_STATUS_UNAVAILABLE;
}

bool flyt_node_operation_is_late(const struct flyt_node_operation *operation)
{
    return flyt_clock_ms() - operation->started_ms > operation->timeout_s * 1000ull;
}

bool flyt_node_operation_lets_go(struct flyt_node_operation *operation, unsigned whole_count, unsigned expected_count,
                                 bool have_others)
{
    uint64_t now_ms = flyt_clock_ms();

    if (!whole_count)
        return false;
    if (!operation->whole_ms)
        operation->whole_ms = now_ms;
    operation->is_let_go |=
        whole_count == expected_count || have_others || now_ms - operation->whole_ms >= operation->node->ops->whole_ms;
    return operation->is_let_go;
}

void flyt_node_operation_stop(struct flyt_node_operation *operation)
{
    operation->timer = sd_event_source_disable_unref(operation->timer);
    operation->allocation = NULL;
}

void flyt_node_operation_end(struct flyt_node_operation *operation, unsigned phase)
{
    flyt_node_operation_stop(operation);
    operation->ended_ms = flyt_clock_ms();
    flyt_node_operation_set_phase(operation, phase);
}

flyt_outcome flyt_node_operation_outcome(const struct flyt_node_operation *operation)
{
    bool has_ended = flyt_node_operation_has_ended(operation);

    return (flyt_outcome){has_ended ? operation->status : FLYT_STATUS_OK,
                          has_ended ? (char *)operation->text : (char *)""};
}

uint64_t flyt_node_operation_elapsed_ms(const struct flyt_node_operation *operation)
{
    return (flyt_node_operation_has_ended(operation) ? operation->ended_ms : flyt_clock_ms()) - operation->started_ms;
}

void flyt_node_operation_remove(struct flyt_node_operation *operation)
{
    struct flyt_node_operation **link = &operation->node->ops->operations[operation->ops->kind];

    while (*link != operation)
        link = &(*link)->next;
    *link = operation->next;
}

/* ---- all of them ---- */

struct flyt_node_operation *flyt_node_operation_first(const struct flyt_node *node, enum flyt_node_operation_kind kind)
{
    return node->ops->operations[kind];
}

struct flyt_node_operation *flyt_node_operation_find(const struct flyt_node *node, enum flyt_node_operation_kind kind,
                                                     uint64_t id)
{
    struct flyt_node_operation *operation = flyt_node_operation_first(node, kind);

    while (operation && operation->id != id)
        operation = operation->next;
    return operation;
}

static bool concerns(const struct flyt_node_operation *operation, const struct flyt_node_allocation *allocation)
{
    return operation->ops->concerns ? operation->ops->concerns(operation, allocation)
                                    : operation->allocation == allocation;
}

struct flyt_node_operation *flyt_node_operation_of(const struct flyt_node_allocation *allocation,
                                                   enum flyt_node_operation_kind kind)
{
    struct flyt_node_operation *operation = flyt_node_operation_first(allocation->node, kind);

    while (operation && !concerns(operation, allocation))
        operation = operation->next;
    return operation;
}

bool flyt_node_operations_hold(const struct flyt_node_allocation *allocation)
{
    for (unsigned kind = 0; kind < FLYT_NODE_OPERATION_COUNT; kind++) {
        const struct flyt_node_operation *operation = flyt_node_operation_of(allocation, kind);
        if (operation && operation->ops->holds && operation->ops->holds(operation))
            return true;
    }
    return false;
}

void flyt_node_operations_drop(struct flyt_node_allocation *allocation, const char *reason)
{
    for (unsigned kind = 0; kind < FLYT_NODE_OPERATION_COUNT; kind++) {
        struct flyt_node_operation *operation = flyt_node_operation_of(allocation, kind);
        if (operation && operation->ops->drop)
            operation->ops->drop(operation, reason);
    }
}

void flyt_node_operations_forget(struct flyt_node_allocation *allocation, bool is_final)
{
    flyt_node_operations_drop(allocation, "the allocation was removed");
    for (unsigned kind = 0; kind < FLYT_NODE_OPERATION_COUNT; kind++) {
        struct flyt_node_operation *operation = flyt_node_operation_of(allocation, kind);
        if (operation && operation->ops->forget)
            operation->ops->forget(operation);
        if (operation && operation->allocation == allocation)
            operation->allocation = NULL;
    }
}

void flyt_node_operations_forget_old(struct flyt_node *node, enum flyt_node_operation_kind kind)
{
    struct flyt_node_operation **link = &node->ops->operations[kind], *operation;
    struct flyt_node_remembered so_far = {0};

    while ((operation = *link)) {
        if (!flyt_node_operation_has_ended(operation) || flyt_node_remember(&so_far, operation->is_told)) {
            link = &operation->next;
            continue;
        }
        *link = operation->next;
        free(operation);
    }
}
