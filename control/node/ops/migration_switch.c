#include "control/node/ops/migration_switch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/base/size.h"
#include "control/node/link/broker.h"
#include "control/node/link/groups.h"
#include "control/node/link/server.h"
#include "control/node/link/share.h"
#include "control/node/memory/extent.h"
#include "control/node/model/allocation.h"
#include "control/node/model/waiting.h"
#include "control/node/model/writer.h"
#include "control/node/ops/grant.h"
#include "control/node/ops/operation.h"
#include "control/node/ops/ops.h"
#include "control/node/ops/replace.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/log.h"

/* ---- the order ---- */

/* `one` may be NULL: the node has it no more. 0.0: no server has said it yet. */
static bool is_of_same_capability(const struct flyt_node_gpu *one, const struct flyt_node_gpu *other)
{
    return one && one->compute_major && one->compute_major == other->compute_major &&
           one->compute_minor == other->compute_minor;
}

const struct flyt_node_way *flyt_node_switch_way(const struct flyt_node_allocation *allocation,
                                                 const flyt_allocation *wanted)
{
    struct flyt_node_way_ends ends = {true, true, true, true};

    for (u_int i = 0; i < wanted->slots.slots_len; i++) {
        const struct flyt_node_gpu *gpu = allocation->slots[i].gpu;
        const struct flyt_node_gpu *other =
            flyt_node_gpus_find(&allocation->node->gpus, wanted->slots.slots_val[i].gpu_uuid);
        ends.is_same_gpu &= gpu == other;
        ends.is_same_capability &= gpu == other || is_of_same_capability(gpu, other);
    }
    return flyt_node_way_between(&ends);
}

static bool is_same_but_devices(const flyt_allocation *now, const flyt_allocation *wanted)
{
    bool is_same = now->slots.slots_len == wanted->slots.slots_len && !strcmp(now->vm_ip, wanted->vm_ip) &&
                   now->isolation == wanted->isolation && wanted->state != FLYT_ALLOCATION_ENDING;

    for (u_int i = 0; is_same && i < wanted->slots.slots_len; i++)
        is_same = now->slots.slots_val[i].device_index == wanted->slots.slots_val[i].device_index;
    return is_same;
}

static flyt_status check_wanted(const struct flyt_node_allocation *allocation, const flyt_allocation *wanted,
                                struct flyt_error *err)
{
    const flyt_allocation *now = &allocation->now;

    if (wanted->revision <= now->revision) {
        flyt_error_set(err, -ESTALE, "the node has revision %" PRIu64 " of the allocation of VM %.255s",
                       (uint64_t)now->revision, now->vm_ip);
        return FLYT_STATUS_STALE;
    }
    if (!is_same_but_devices(now, wanted)) {
        flyt_error_set(err, -EINVAL,
                       "a migration changes the GPUs of VM %.255s, and neither their number nor its class", now->vm_ip);
        return FLYT_STATUS_INVALID;
    }
    return FLYT_STATUS_OK;
}

int flyt_node_switch_check_shared(const struct flyt_node_allocation *allocation, struct flyt_error *err)
{
    const struct flyt_node_session *stray = flyt_node_broker_find_stray(allocation);

    return stray ? flyt_error_set(err, -ENOTSUP,
                                  "program %s of VM %.255s cannot be moved: it has memory of another process's, which "
                                  "that one has freed or was ended with",
                                  stray->ticket.program, allocation->now.vm_ip)
                 : 0;
}

/* All of its programs must be such as can be moved, as far as that is known. */
static flyt_status check_sessions(const struct flyt_node *node, const struct flyt_node_allocation *allocation,
                                  unsigned *ret_count, struct flyt_error *err)
{
    for (const struct flyt_node_session *session = node->sessions; session; session = session->next)
        if (session->allocation == allocation && flyt_node_session_is_away(session)) {
            flyt_error_set(err, -EBUSY,
                           "program %s of VM %.255s has lost its server process, and has not come back yet",
                           session->ticket.program, allocation->now.vm_ip);
            return FLYT_STATUS_IN_USE;
        }
    for (const struct flyt_node_server *server = node->servers; server; server = server->next) {
        if (flyt_node_server_allocation(server) != allocation || server->state == FLYT_NODE_SERVER_ENDING)
            continue;
        ++*ret_count;
        flyt_status status = flyt_node_operation_check_session(server, "moved", err);
        if (status != FLYT_STATUS_OK)
            return status;
        if (!flyt_node_extents_are_whole(&server->has.extents)) {
            flyt_error_set(err, -ENOTSUP,
                           "program %s of VM %.255s cannot be moved: the node manager does not hold all of its memory",
                           server->session->ticket.program, allocation->now.vm_ip);
            return FLYT_STATUS_NOT_SUPPORTED;
        }
    }
    return flyt_node_switch_check_shared(allocation, err) ? FLYT_STATUS_NOT_SUPPORTED : FLYT_STATUS_OK;
}

flyt_status flyt_node_switch_check_programs(const struct flyt_node *node, const struct flyt_node_allocation *allocation,
                                            unsigned *ret_count, struct flyt_error *err)
{
    flyt_status status = flyt_node_operation_check(allocation, FLYT_NODE_OPERATION_MIGRATION, err);

    return status == FLYT_STATUS_OK ? check_sessions(node, allocation, ret_count, err) : status;
}

static uint64_t memory_of_slot(const struct flyt_node_allocation *allocation, unsigned i)
{
    struct flyt_ledger_state state;

    flyt_ledger_read(allocation->slots[i].ledger, &state);
    return state.used_bytes;
}

static flyt_status check_gpu(const struct flyt_node *node, const struct flyt_node_allocation *allocation,
                             const flyt_allocation *wanted, unsigned i, unsigned session_count, struct flyt_error *err)
{
    const flyt_slot *slot = &wanted->slots.slots_val[i];
    const struct flyt_node_gpu *gpu = flyt_node_gpus_find(&node->gpus, slot->gpu_uuid);
    const unsigned taken_count = node->starts[gpu->index].serving + flyt_node_replace_count(node, gpu) +
                                 flyt_node_waiting_promised_on(node, gpu);
    char needed[FLYT_SIZE_TEXT_BYTES], there[FLYT_SIZE_TEXT_BYTES];
    uint64_t used_bytes = memory_of_slot(allocation, i);

    if (gpu->health == FLYT_HEALTH_FAILED) {
        flyt_error_set(err, -ENODEV, "GPU %u of node %.255s has failed: %.200s", gpu->index, node->name,
                       gpu->health_text);
        return FLYT_STATUS_UNAVAILABLE;
    }
    if (taken_count + session_count + node->settings->warm > node->settings->client_slots) {
        flyt_error_set(err, -EBUSY, "GPU %u of node %.255s has no %u client slots left", gpu->index, node->name,
                       session_count);
        return FLYT_STATUS_NO_CAPACITY;
    }
    if (used_bytes > slot->memory_bytes && !wanted->when_free) {
        flyt_error_set(err, -EBUSY, "%s of device %u are in use, more than the %s wanted",
                       flyt_size_text(used_bytes, needed), slot->device_index,
                       flyt_size_text(slot->memory_bytes, there));
        return FLYT_STATUS_IN_USE;
    }
    /* On the same GPU nothing is copied. What others may still take is the cluster manager's to know. */
    uint64_t free_bytes = gpu->memory_bytes > gpu->used_bytes ? gpu->memory_bytes - gpu->used_bytes : 0;
    if (gpu->is_known && gpu != allocation->slots[i].gpu &&
        (slot->memory_bytes > gpu->memory_bytes || used_bytes > free_bytes)) {
        bool is_small = slot->memory_bytes > gpu->memory_bytes;
        flyt_error_set(err, -ENOMEM, "GPU %u of node %.255s has no room: %s are needed, %s are there", gpu->index,
                       node->name, flyt_size_text(is_small ? slot->memory_bytes : used_bytes, needed),
                       flyt_size_text(is_small ? gpu->memory_bytes : free_bytes, there));
        return FLYT_STATUS_NO_CAPACITY;
    }
    return FLYT_STATUS_OK;
}

flyt_status flyt_node_switch_check(struct flyt_node *node, const flyt_order_migrate_args *args,
                                   struct flyt_node_allocation **ret_allocation, struct flyt_error *err)
{
    const flyt_allocation *wanted = &args->allocation;
    struct flyt_node_allocation *allocation = flyt_node_allocation_find(node, wanted->id);
    unsigned session_count = 0;

    if (!args->migration_id) {
        flyt_error_set(err, -EINVAL, "a migration needs an id");
        return FLYT_STATUS_INVALID;
    }
    flyt_status status = flyt_node_operation_check(allocation, FLYT_NODE_OPERATION_MIGRATION, err);
    if (status == FLYT_STATUS_OK)
        status = check_wanted(allocation, wanted, err);
    if (status == FLYT_STATUS_OK)
        status = flyt_node_grant_check(node, wanted, err);
    if (status == FLYT_STATUS_OK)
        status = check_sessions(node, allocation, &session_count, err);
    for (unsigned i = 0; i < wanted->slots.slots_len && status == FLYT_STATUS_OK; i++)
        status = check_gpu(node, allocation, wanted, i, session_count, err);
    if (status == FLYT_STATUS_OK && flyt_fault_point("node.migrate.accept") == FLYT_FAULT_ERROR) {
        flyt_error_set(err, -EIO, "a test lets it fail at node.migrate.accept");
        status = FLYT_STATUS_UNAVAILABLE;
    }
    *ret_allocation = allocation;
    return status;
}

/* ---- both sides ---- */

void flyt_node_switch_hold(struct flyt_node_migration *migration)
{
    for (unsigned i = 0; i < migration->wanted.slots.slots_len; i++) {
        struct flyt_node_slot *slot = &migration->op.allocation->slots[i];
        const flyt_slot *wanted = &migration->wanted.slots.slots_val[i];
        slot->held_gpu = flyt_node_gpus_find(&migration->op.node->gpus, wanted->gpu_uuid);
        flyt_node_slot_read_groups(wanted, slot->held);
    }
}

/* The slot is as `now` says; what it was is held. */
static void change_side(struct flyt_node_allocation *allocation, unsigned i, uint64_t groups_revision)
{
    struct flyt_node_slot *slot = &allocation->slots[i];
    const flyt_slot *now = &allocation->now.slots.slots_val[i];
    struct flyt_node_gpu *left = slot->gpu;

    memcpy(slot->held, slot->holding, sizeof slot->held);
    slot->gpu = slot->held_gpu;
    slot->held_gpu = left;
    flyt_node_slot_read_groups(now, slot->groups);
    memcpy(slot->holding, slot->groups, sizeof slot->holding);
    slot->sm_count_now = flyt_node_slot_sms(slot, now);
    slot->switch_state = FLYT_SWITCH_VACATED;
    slot->groups_revision = groups_revision;
    slot->is_over = false;
}

/* Limits as `as` says, of the first slots. */
static void set_limits(struct flyt_node_allocation *allocation, const flyt_allocation *as, unsigned count,
                       uint64_t revision)
{
    for (unsigned i = 0; i < count; i++)
        flyt_ledger_set_limit(allocation->slots[i].ledger, as->slots.slots_val[i].memory_bytes, revision, true, NULL);
}

static int try_limits(struct flyt_node_allocation *allocation, const flyt_allocation *wanted, struct flyt_error *err)
{
    for (unsigned i = 0; i < wanted->slots.slots_len; i++) {
        const flyt_slot *slot = &wanted->slots.slots_val[i];
        int status = flyt_ledger_set_limit(allocation->slots[i].ledger, slot->memory_bytes, wanted->revision,
                                           wanted->when_free, NULL);
        if (!status)
            continue;
        set_limits(allocation, &allocation->now, i, wanted->revision);
        return flyt_error_set(err, status, "the memory limit of device %u cannot be set: %s", slot->device_index,
                              status == -EBUSY ? "more is in use" : strerror(-status));
    }
    return 0;
}

const struct flyt_node_session *flyt_node_switch_find_left_out(const struct flyt_node_migration *migration)
{
    const struct flyt_node_allocation *allocation = migration->op.allocation;

    for (const struct flyt_node_session *session = migration->op.node->sessions; session; session = session->next) {
        const struct flyt_node_role *role = flyt_node_session_role(session);
        bool is_ending = session->present && session->present->state == FLYT_NODE_SERVER_ENDING;
        if (session->allocation == allocation && session->state != FLYT_NODE_SESSION_LOADING && !is_ending &&
            !flyt_node_role_is_move(role))
            return session;
    }
    return NULL;
}

void flyt_node_switch_write_ahead(struct flyt_node_migration *migration, void (*done)(void *user, int status))
{
    struct flyt_node_allocation *allocation = migration->op.allocation;

    allocation->becoming = &migration->wanted;
    flyt_node_commit_ahead(migration->op.node, &migration->commit, done, migration);
    allocation->becoming = NULL;
}

int flyt_node_switch_write(struct flyt_node_migration *migration, void (*done)(void *user, int status),
                           struct flyt_error *err)
{
    struct flyt_node_allocation *allocation = migration->op.allocation;

    if (flyt_fault_point("node.migrate.commit") == FLYT_FAULT_ERROR)
        return flyt_error_set(err, -EIO, "a test lets it fail at node.migrate.commit");
    /* One that lost its server process between two tries, and waits for its client or has just been taken over. */
    const struct flyt_node_session *left_out = flyt_node_switch_find_left_out(migration);
    if (left_out)
        return flyt_error_set(err, -EBUSY, "program %s of VM %.255s has lost its server process meanwhile",
                              left_out->ticket.program, allocation->now.vm_ip);
    int status = try_limits(allocation, &migration->wanted, err);
    if (status)
        return status;
    allocation->becoming = &migration->wanted;
    flyt_node_commit_at_once(migration->op.node, &migration->commit, done, migration);
    return 0;
}

void flyt_node_switch_unwrite(struct flyt_node_migration *migration)
{
    struct flyt_node_allocation *allocation = migration->op.allocation;

    allocation->becoming = NULL;
    set_limits(allocation, &allocation->now, allocation->now.slots.slots_len, migration->wanted.revision);
}

void flyt_node_switch_commit(struct flyt_node_migration *migration)
{
    struct flyt_node_allocation *allocation = migration->op.allocation;
    flyt_allocation before = allocation->now;

    allocation->becoming = NULL;
    allocation->now = migration->wanted;
    migration->wanted = before;
    migration->is_committed = true;
    for (unsigned i = 0; i < allocation->now.slots.slots_len; i++) {
        migration->groups_revision[i] = allocation->slots[i].groups_revision;
        change_side(allocation, i, allocation->now.revision);
    }
    flyt_node_share_set(allocation);
}

void flyt_node_switch_undo(struct flyt_node_migration *migration)
{
    struct flyt_node_allocation *allocation = migration->op.allocation;
    flyt_allocation committed = allocation->now;

    allocation->now = migration->wanted;
    migration->wanted = committed;
    migration->is_committed = false;
    /* Until this is written a restart finds the programs where they are all the same. */
    flyt_node_save_soon(migration->op.node);
    for (unsigned i = 0; i < allocation->now.slots.slots_len; i++)
        change_side(allocation, i, migration->groups_revision[i]);
    set_limits(allocation, &allocation->now, allocation->now.slots.slots_len, committed.revision);
    flyt_node_share_set(allocation);
    flyt_node_changed(migration->op.node);
}

bool flyt_node_switch_is_clear(const struct flyt_node_migration *migration)
{
    const struct flyt_node_allocation *allocation = migration->op.allocation;

    for (const struct flyt_node_server *server = migration->op.node->servers; server; server = server->next)
        for (unsigned i = 0; i < allocation->now.slots.slots_len; i++)
            if (flyt_node_server_allocation(server) == allocation && server->state == FLYT_NODE_SERVER_ENDING &&
                server->has.gpus[i] && server->has.gpus[i] == allocation->slots[i].held_gpu)
                return false;
    return true;
}

void flyt_node_switch_release(struct flyt_node_migration *migration)
{
    struct flyt_node_allocation *allocation = migration->op.allocation;

    for (unsigned i = 0; i < allocation->now.slots.slots_len; i++) {
        struct flyt_node_slot *slot = &allocation->slots[i];
        if (slot->held_gpu && slot->held_gpu != slot->gpu)
            flyt_node_share_forget(allocation, i, slot->held_gpu);
        slot->held_gpu = NULL;
        memset(slot->held, 0, sizeof slot->held);
    }
    flyt_node_changed(migration->op.node);
}

/* ---- after a restart ---- */

static int take_slot(flyt_slot *slot, const struct flyt_manager_link_slot *its)
{
    char uuid[FLYT_NODE_UUID_BYTES];
    u_int *groups = calloc(FLYT_GROUPS_MAX, sizeof *groups);

    flyt_node_uuid_print(its->gpu_uuid, uuid);
    char *gpu_uuid = strdup(uuid);
    if (!groups || !gpu_uuid) {
        free(groups);
        free(gpu_uuid);
        return -ENOMEM;
    }
    free(slot->gpu_uuid);
    free(slot->sm_groups.sm_groups_val);
    slot->gpu_uuid = gpu_uuid;
    slot->sm_groups.sm_groups_val = groups;
    slot->sm_groups.sm_groups_len = 0;
    for (unsigned group = 0; group < FLYT_GROUPS_MAX; group++)
        if (flyt_manager_link_has_group(its->groups, group))
            groups[slot->sm_groups.sm_groups_len++] = group;
    slot->sm_count = its->sm_count;
    slot->memory_bytes = its->memory_bytes;
    slot->minimum_share_pct = its->minimum_share_pct;
    slot->maximum_share_pct = its->maximum_share_pct;
    slot->window_ms = its->window_ms;
    slot->priority = its->priority;
    return 0;
}

/* The allocation is where this session is. */
static void go_back(struct flyt_node *node, struct flyt_node_allocation *allocation,
                    const struct flyt_manager_link_session *session)
{
    for (unsigned i = 0; i < allocation->now.slots.slots_len; i++) {
        struct flyt_node_slot *slot = &allocation->slots[i];
        if (take_slot(&allocation->now.slots.slots_val[i], &session->slots[i])) {
            flyt_fail("allocation %016" PRIx64 ": it is not what its programs have: no memory",
                      (uint64_t)allocation->now.id);
            return;
        }
        change_side(allocation, i, slot->groups_revision);
        memcpy(slot->groups, session->slots[i].groups, sizeof slot->groups);
        for (unsigned j = 0; j < sizeof slot->held; j++)
            slot->holding[j] |= slot->groups[j];
        slot->held_gpu = NULL;
    }
    set_limits(allocation, &allocation->now, allocation->now.slots.slots_len, allocation->now.revision);
    flyt_warn("allocation %016" PRIx64
              ": a migration was not through when the node manager was restarted, and is undone, "
              "vm=%s",
              (uint64_t)allocation->now.id, allocation->now.vm_ip);
    node->ops->went_back_count++; /* the cluster manager has been told otherwise */
    flyt_node_save_soon(node);
}

void flyt_node_switch_settle(struct flyt_node *node, struct flyt_node_allocation *allocation)
{
    const struct flyt_node_server *other = NULL;
    bool has_own = false;

    for (const struct flyt_node_server *server = node->servers; server; server = server->next) {
        bool is_its = flyt_node_server_allocation(server) == allocation && server->state != FLYT_NODE_SERVER_ENDING;
        has_own |= is_its && !server->came_with;
        other = is_its && server->came_with ? server : other;
    }
    if (!other || (node->is_reattaching && flyt_node_allocation_absent(allocation)))
        return;
    if (!has_own)
        go_back(node, allocation, other->came_with);
    for (struct flyt_node_server *server = node->servers; server; server = server->next) {
        if (flyt_node_server_allocation(server) != allocation || !server->came_with)
            continue;
        free(server->came_with);
        server->came_with = NULL;
        if (has_own)
            flyt_node_server_end(server, "its VM's other programs had moved to another GPU when the node manager was "
                                         "restarted, and this one had not");
    }
    flyt_node_share_set(allocation);
    flyt_node_share_give(allocation);
    flyt_node_groups_look(node, allocation);
    flyt_node_changed(node);
}
