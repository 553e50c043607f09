#include "control/node/order.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/base/size.h"
#include "control/node/allocation.h"
#include "control/node/checkpoint.h"
#include "control/node/groups.h"
#include "control/node/migration.h"
#include "control/node/receive.h"
#include "control/node/restore.h"
#include "control/node/resume.h"
#include "control/node/share.h"
#include "control/node/server.h"
#include "control/node/suspended.h"
#include "rpc/base/log.h"

enum { REMOVE_MS = 8000 /* an order to remove is answered by then: a server may hang in the driver */ };

/* An order of several allocations, answered when all of them are done. */
struct order {
    flyt_node_applied_fn done;
    void *user;
    flyt_apply_res res;
    unsigned left;
};

struct flyt_node_pending {
    struct flyt_node *node;
    struct flyt_node_allocation *allocation;
    struct order *order;
    unsigned index;
    flyt_allocation wanted;
    sd_event_source *timer;
    bool is_retrying;
};

static void order_step(struct order *order)
{
    if (--order->left)
        return;
    order->done(order->user, &order->res);
    xdr_free((xdrproc_t)xdr_flyt_apply_res, &order->res);
    free(order);
}

static void answer(struct order *order, unsigned index, const struct flyt_node_allocation *allocation, uint64_t id,
                   flyt_status status, const char *text)
{
    flyt_allocation_use *use = &order->res.uses.uses_val[index];
    char *copy = strdup(text);

    if (allocation)
        flyt_node_allocation_use(allocation, status, copy, use);
    else
        *use = (flyt_allocation_use){.id = id, .outcome = {status, copy}};
    if (status != FLYT_STATUS_OK)
        flyt_warn("allocation %016" PRIx64 ": an order is not carried out: %s", id, text);
    order_step(order);
}

static void finish_pending(struct flyt_node_allocation *allocation, flyt_status status, const char *text)
{
    struct flyt_node_pending *pending = allocation->pending;

    if (!pending)
        return;
    allocation->pending = NULL;
    sd_event_source_disable_unref(pending->timer);
    answer(pending->order, pending->index, allocation, allocation->now.id, status, text);
    xdr_free((xdrproc_t)xdr_flyt_allocation, &pending->wanted);
    free(pending);
}

/* ---- removal ---- */

struct flyt_node_removal {
    struct flyt_node_allocation *allocation;
    struct order *order;
    sd_event_source *timer;
};

static void finish_removal(struct flyt_node_allocation *allocation, flyt_status status, const char *text)
{
    struct flyt_node_removal *removal = allocation->removal;

    if (!removal)
        return;
    struct order *order = removal->order;
    allocation->removal = NULL;
    sd_event_source_disable_unref(removal->timer);
    free(removal);
    if (status != FLYT_STATUS_OK && order->res.outcome.status == FLYT_STATUS_OK) {
        free(order->res.outcome.text);
        order->res.outcome = (flyt_outcome){status, strdup(text)};
    }
    order_step(order);
}

static int on_removal_timeout(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_node_removal *removal = user;

    finish_removal(removal->allocation, FLYT_STATUS_IN_USE, "programs of the allocation have not ended yet");
    return 0;
}

/* Who hears that it is removed gives away what it had: so not before it has gone. */
static void wait_for_end(struct flyt_node *node, struct flyt_node_allocation *allocation, struct order *order)
{
    struct flyt_node_removal *removal = calloc(1, sizeof *removal);

    finish_removal(allocation, FLYT_STATUS_CONFLICT, "another order came");
    order->left++;
    if (!removal || sd_event_add_time_relative(node->event, &removal->timer, CLOCK_MONOTONIC, REMOVE_MS * 1000, 1000,
                                               on_removal_timeout, removal) < 0) {
        free(removal);
        free(order->res.outcome.text);
        order->res.outcome = (flyt_outcome){FLYT_STATUS_UNAVAILABLE, strdup("the node has no memory")};
        order_step(order);
        return;
    }
    removal->allocation = allocation;
    removal->order = order;
    allocation->removal = removal;
}

void flyt_node_order_end(struct flyt_node_allocation *allocation, bool is_final)
{
    finish_pending(allocation, FLYT_STATUS_NOT_FOUND, "the allocation was removed");
    finish_removal(allocation, is_final ? FLYT_STATUS_OK : FLYT_STATUS_UNAVAILABLE, "the node manager ends");
}

/* ---- checks ---- */

static flyt_status check_slot(const struct flyt_node *node, const flyt_allocation *wanted, const flyt_slot *slot,
                              struct flyt_error *err)
{
    const struct flyt_node_gpu *gpu = flyt_node_gpus_find(&node->gpus, slot->gpu_uuid);
    unsigned group = 0;

    if (!gpu) {
        flyt_error_set(err, -ENODEV, "node %s has no GPU %s", node->name, slot->gpu_uuid);
        return FLYT_STATUS_NOT_FOUND;
    }
    if (slot->device_index >= FLYT_DEVICES_MAX || gpu->isolation != wanted->isolation) {
        flyt_error_set(err, -EINVAL, "GPU %s serves %s VMs only", gpu->uuid,
                       gpu->isolation == FLYT_ISOLATION_STRICT ? "strict" : "shared");
        return FLYT_STATUS_INVALID;
    }
    for (u_int i = 0; i < slot->sm_groups.sm_groups_len; i++) {
        if (slot->sm_groups.sm_groups_val[i] < (gpu->is_known ? gpu->group_count : FLYT_GROUPS_MAX))
            continue;
        flyt_error_set(err, -EINVAL, "GPU %s has %u SM groups, no group %u", gpu->uuid, gpu->group_count,
                       slot->sm_groups.sm_groups_val[i]);
        return FLYT_STATUS_INVALID;
    }
    if (flyt_node_share_check(slot, err))
        return FLYT_STATUS_INVALID;
    const struct flyt_node_allocation *other = flyt_node_groups_conflict(node, wanted->id, slot, &group);
    if (other) {
        flyt_error_set(err, -EBUSY, "SM group %u of GPU %s is still used by VM %.255s", group, gpu->uuid,
                       other->now.vm_ip);
        return FLYT_STATUS_CONFLICT;
    }
    return FLYT_STATUS_OK;
}

flyt_status flyt_node_order_check(const struct flyt_node *node, const flyt_allocation *wanted, struct flyt_error *err)
{
    flyt_status status = FLYT_STATUS_OK;

    if (!wanted->id || !wanted->slots.slots_len || !*wanted->vm_ip || wanted->state < FLYT_ALLOCATION_ACTIVE ||
        wanted->state > FLYT_ALLOCATION_ORPHAN) {
        flyt_error_set(err, -EINVAL, "an allocation needs an id, a VM, a state and a device");
        return FLYT_STATUS_INVALID;
    }
    for (u_int i = 0; i < wanted->slots.slots_len && status == FLYT_STATUS_OK; i++)
        status = check_slot(node, wanted, &wanted->slots.slots_val[i], err);
    return status;
}

/* Other devices than before: only without programs. */
static bool has_other_devices(const flyt_allocation *one, const flyt_allocation *other)
{
    if (one->slots.slots_len != other->slots.slots_len)
        return true;
    for (u_int i = 0; i < one->slots.slots_len; i++)
        if (strcmp(one->slots.slots_val[i].gpu_uuid, other->slots.slots_val[i].gpu_uuid) != 0 ||
            one->slots.slots_val[i].device_index != other->slots.slots_val[i].device_index)
            return true;
    return false;
}

/* To what holds, of the first slots. */
static void put_limits_back(struct flyt_node_allocation *allocation, unsigned count, uint64_t revision)
{
    for (unsigned i = 0; i < count; i++)
        if (allocation->slots[i].ledger)
            flyt_ledger_set_limit(allocation->slots[i].ledger, allocation->now.slots.slots_val[i].memory_bytes,
                                  revision, true, NULL);
}

/* Sets the limits of all slots, or of none. 0; -EBUSY: *ret_slot has more in use; another negative errno. */
static int set_limits(struct flyt_node_allocation *allocation, const flyt_allocation *wanted, unsigned *ret_slot,
                      uint64_t *ret_used_bytes)
{
    for (unsigned i = 0; i < wanted->slots.slots_len; i++) {
        const flyt_slot *slot = &wanted->slots.slots_val[i];
        if (!allocation->slots[i].ledger)
            continue; /* made with the limit when it is clear that nobody brings one back */
        int status = flyt_ledger_set_limit(allocation->slots[i].ledger, slot->memory_bytes, wanted->revision,
                                           wanted->when_free, ret_used_bytes);
        if (!status)
            continue;
        *ret_slot = i;
        put_limits_back(allocation, i, wanted->revision);
        return status;
    }
    return 0;
}

static void end_sessions(struct flyt_node *node, const struct flyt_node_allocation *allocation, const char *reason)
{
    for (struct flyt_node_server *server = node->servers; server; server = server->next)
        if (server->allocation == allocation)
            flyt_node_server_end(server, reason);
    flyt_node_suspended_drop_all(node, allocation, reason);
    flyt_node_resume_end_all(node, allocation, reason);
}

/* Everything was checked and the limits are set: the order holds. Takes over the parts of *wanted. False: the state
 * cannot be kept, and nothing has changed. */
static bool commit(struct flyt_node *node, struct flyt_node_allocation *allocation, flyt_allocation *wanted)
{
    flyt_allocation before = allocation->now;

    allocation->now = *wanted;
    if (flyt_node_save(node)) {
        allocation->now = before;
        put_limits_back(allocation, allocation->now.slots.slots_len, wanted->revision);
        return false;
    }
    *wanted = before; /* the caller frees it */
    for (unsigned i = 0; i < allocation->now.slots.slots_len; i++) {
        flyt_node_groups_change(node, allocation, i);
        if (before.slots.slots_val[i].memory_bytes == allocation->now.slots.slots_val[i].memory_bytes)
            continue;
        for (struct flyt_node_server *server = node->servers; server; server = server->next)
            if (server->allocation == allocation)
                flyt_node_server_tell_limit(server, i, allocation->now.slots.slots_val[i].memory_bytes,
                                            allocation->now.revision, allocation->now.when_free);
    }
    flyt_node_share_change(node, allocation, &before);
    flyt_node_groups_look(node, allocation);
    if (allocation->now.state == FLYT_ALLOCATION_ENDING)
        end_sessions(node, allocation, "the allocation of this VM was taken back");
    return true;
}

/* Limits, then the rest. False: memory is in use that servers may still give back. */
static bool try_change(struct flyt_node *node, struct flyt_node_allocation *allocation, flyt_allocation *wanted,
                       flyt_status *ret_status, struct flyt_error *err)
{
    unsigned slot = 0;
    uint64_t used_bytes = 0;
    char used[FLYT_SIZE_TEXT_BYTES], most[FLYT_SIZE_TEXT_BYTES];
    int status = set_limits(allocation, wanted, &slot, &used_bytes);

    *ret_status = FLYT_STATUS_OK;
    if (status == -EBUSY) {
        flyt_error_set(err, status, "%s of device %u are in use, more than the %s wanted",
                       flyt_size_text(used_bytes, used), wanted->slots.slots_val[slot].device_index,
                       flyt_size_text(wanted->slots.slots_val[slot].memory_bytes, most));
        *ret_status = FLYT_STATUS_IN_USE;
        return false;
    }
    if (status || !commit(node, allocation, wanted)) {
        flyt_error_set(err, status, "the node cannot set the limit: %s",
                       status ? strerror(-status) : "its state file cannot be written");
        *ret_status = FLYT_STATUS_UNAVAILABLE;
    }
    return true;
}

void flyt_node_order_retry(struct flyt_node *node, struct flyt_node_allocation *allocation)
{
    struct flyt_node_pending *pending = allocation->pending;
    struct flyt_error err = {0};
    flyt_status status;

    if (!pending || pending->is_retrying)
        return;
    pending->is_retrying = true;
    bool is_done = try_change(node, allocation, &pending->wanted, &status, &err);
    pending->is_retrying = false;
    /* When all have given back what they keep for later, what is still in use stays so. */
    if (is_done || !flyt_node_server_owes_answer(node, allocation))
        finish_pending(allocation, status, err.text);
}

static int on_limit_timeout(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_node_pending *pending = user;
    struct flyt_node_allocation *allocation = pending->allocation;
    struct flyt_error err = {0};
    flyt_status status;

    try_change(pending->node, allocation, &pending->wanted, &status, &err);
    finish_pending(allocation, status, err.text);
    return 0;
}

/* Asks servers to give back what they cache, and goes on when they have, or have nothing more, or after limit_wait. */
static void wait_for_memory(struct flyt_node *node, struct flyt_node_allocation *allocation, struct order *order,
                            unsigned index, flyt_allocation *wanted, const char *text)
{
    struct flyt_node_pending *pending = calloc(1, sizeof *pending);

    if (!pending || !allocation->session_count ||
        sd_event_add_time_relative(node->event, &pending->timer, CLOCK_MONOTONIC, node->settings->limit_wait_ms * 1000,
                                   1000, on_limit_timeout, pending) < 0) {
        free(pending);
        answer(order, index, allocation, allocation->now.id, FLYT_STATUS_IN_USE, text);
        return;
    }
    *pending = (struct flyt_node_pending){node, allocation, order, index, *wanted, pending->timer, false};
    *wanted = (flyt_allocation){0};
    allocation->pending = pending;
    for (unsigned i = 0; i < pending->wanted.slots.slots_len; i++)
        for (struct flyt_node_server *server = node->servers; server; server = server->next)
            if (server->allocation == allocation)
                flyt_node_server_tell_limit(server, i, pending->wanted.slots.slots_val[i].memory_bytes,
                                            pending->wanted.revision, false);
    /* Its sessions may all be without a server: nobody has anything to give back. */
    if (!flyt_node_server_owes_answer(node, allocation))
        flyt_node_order_retry(node, allocation);
}

static void change(struct flyt_node *node, struct flyt_node_allocation *allocation, struct order *order, unsigned index,
                   flyt_allocation *wanted)
{
    struct flyt_error err = {0};
    flyt_status status;

    if (has_other_devices(&allocation->now, wanted)) {
        if (flyt_node_allocation_sessions(allocation)) {
            answer(order, index, allocation, wanted->id, FLYT_STATUS_IN_USE,
                   "its programs still run on the devices that it had");
            return;
        }
        flyt_node_share_drop(allocation);
        flyt_allocation before = allocation->now;
        allocation->now = *wanted;
        bool is_kept = !flyt_node_save(node);
        if (is_kept) {
            *wanted = before;
            flyt_node_allocation_set_up(node, allocation);
            is_kept = !flyt_node_allocation_make_ledgers(node, allocation);
        } else {
            allocation->now = before;
        }
        is_kept = !flyt_node_share_set(node, allocation) && is_kept;
        answer(order, index, allocation, allocation->now.id, is_kept ? FLYT_STATUS_OK : FLYT_STATUS_UNAVAILABLE,
               is_kept ? "" : "the node cannot keep it");
        return;
    }
    if (try_change(node, allocation, wanted, &status, &err))
        answer(order, index, allocation, allocation->now.id, status, err.text);
    else
        wait_for_memory(node, allocation, order, index, wanted, err.text);
}

int flyt_node_order_create(struct flyt_node *node, flyt_allocation *wanted,
                           struct flyt_node_allocation **ret_allocation)
{
    struct flyt_node_allocation *allocation = NULL;

    int status = flyt_node_allocation_add(node, wanted, &allocation);
    if (!status)
        status = flyt_node_allocation_make_ledgers(node, allocation);
    if (!status)
        status = flyt_node_share_set(node, allocation);
    if (!status)
        *ret_allocation = allocation;
    else if (allocation)
        flyt_node_allocation_free(node, allocation, true);
    return status;
}

static void create(struct flyt_node *node, struct order *order, unsigned index, flyt_allocation *wanted)
{
    struct flyt_node_allocation *allocation = NULL;
    uint64_t id = wanted->id;

    int status = flyt_node_order_create(node, wanted, &allocation);
    if (!status)
        status = flyt_node_save(node);
    if (status) {
        if (allocation)
            flyt_node_allocation_free(node, allocation, true);
        answer(order, index, NULL, id, FLYT_STATUS_UNAVAILABLE, "the node cannot keep it");
        return;
    }
    flyt_info("allocation %016" PRIx64 ": granted, vm=%s devices=%u memory_bytes=%" PRIu64, id, allocation->now.vm_ip,
              allocation->now.slots.slots_len, (uint64_t)allocation->now.slots.slots_val[0].memory_bytes);
    answer(order, index, allocation, id, FLYT_STATUS_OK, "");
}

static void apply_one(struct flyt_node *node, struct order *order, unsigned index, const flyt_allocation *from)
{
    struct flyt_node_allocation *allocation = flyt_node_allocation_find(node, from->id);
    flyt_allocation wanted = {0};
    struct flyt_error err = {0};
    char text[320];

    if (allocation && (allocation->is_removed || from->revision < allocation->now.revision)) {
        answer(order, index, allocation, from->id, FLYT_STATUS_STALE, "the node has a later revision");
        return;
    }
    if (allocation && from->revision == allocation->now.revision && allocation->now.state != FLYT_ALLOCATION_ORPHAN) {
        answer(order, index, allocation, from->id, FLYT_STATUS_OK, "");
        return;
    }
    /* A migration holds what it needs: what is to be otherwise waits for its end, but for the allocation's own. */
    struct flyt_node_migration *migration = allocation ? flyt_node_migration_of(allocation) : NULL;
    if (migration && from->state != FLYT_ALLOCATION_ENDING) {
        snprintf(text, sizeof text, "a migration of VM %.255s is under way", allocation->now.vm_ip);
        answer(order, index, allocation, from->id, FLYT_STATUS_CONFLICT, text);
        return;
    }
    if (allocation && from->state != FLYT_ALLOCATION_ENDING &&
        (flyt_node_checkpoint_of(allocation) || flyt_node_restore_of(allocation))) {
        snprintf(text, sizeof text, "a checkpoint or a restore of VM %.255s is under way", allocation->now.vm_ip);
        answer(order, index, allocation, from->id, FLYT_STATUS_CONFLICT, text);
        return;
    }
    if (allocation && from->state != FLYT_ALLOCATION_ENDING && flyt_node_receive_of(allocation)) {
        snprintf(text, sizeof text, "the programs of VM %.255s are on their way to this node", allocation->now.vm_ip);
        answer(order, index, allocation, from->id, FLYT_STATUS_CONFLICT, text);
        return;
    }
    if (migration)
        flyt_node_migration_drop(allocation, "the allocation of this VM was taken back");
    if (allocation && from->state == FLYT_ALLOCATION_ENDING)
        flyt_node_receive_drop(allocation, "the allocation of this VM was taken back");
    if (allocation && from->state == FLYT_ALLOCATION_ENDING)
        flyt_node_checkpoint_drop(allocation, "the allocation of this VM was taken back");
    flyt_status status = flyt_node_order_check(node, from, &err);
    if (status == FLYT_STATUS_OK && flyt_node_allocation_copy(from, &wanted)) {
        status = FLYT_STATUS_UNAVAILABLE;
        flyt_error_set(&err, -ENOMEM, "the node has no memory");
    }
    if (status != FLYT_STATUS_OK) {
        answer(order, index, allocation, from->id, status, err.text);
        return;
    }
    if (allocation)
        finish_pending(allocation, FLYT_STATUS_CONFLICT, "another order came");
    if (allocation)
        change(node, allocation, order, index, &wanted);
    else
        create(node, order, index, &wanted);
    xdr_free((xdrproc_t)xdr_flyt_allocation, &wanted);
}

void flyt_node_order_remove(struct flyt_node *node, struct flyt_node_allocation *allocation, const char *reason)
{
    if (allocation->is_removed)
        return;
    finish_pending(allocation, FLYT_STATUS_NOT_FOUND, "the allocation was removed");
    flyt_node_migration_drop(allocation, reason);
    flyt_node_checkpoint_drop(allocation, reason);
    flyt_node_receive_drop(allocation, reason);
    allocation->is_removed = true;
    allocation->now.state = FLYT_ALLOCATION_ENDING;
    end_sessions(node, allocation, reason);
    if (!flyt_node_allocation_sessions(allocation) && !flyt_node_receive_of(allocation))
        flyt_node_allocation_free(node, allocation, true);
}

void flyt_node_apply(struct flyt_node *node, const flyt_apply_args *args, flyt_node_applied_fn done, void *user)
{
    struct order *order = calloc(1, sizeof *order);
    unsigned count = args->allocations.allocations_len;
    flyt_apply_res bad = {.outcome = {FLYT_STATUS_UNAVAILABLE, (char *)"the node has no memory"},
                          .epoch = node->state.epoch};

    if (order)
        order->res.uses.uses_val = calloc(count + 1, sizeof *order->res.uses.uses_val);
    int status = order && order->res.uses.uses_val ? flyt_node_see_epoch(node, args->epoch) : -ENOMEM;
    if (status) {
        if (status == -ESTALE)
            bad.outcome = (flyt_outcome){FLYT_STATUS_STALE, (char *)"the node follows a later leader"};
        if (order)
            free(order->res.uses.uses_val);
        free(order);
        done(user, &bad);
        return;
    }
    order->done = done;
    order->user = user;
    order->left = count + 1;
    order->res.epoch = node->state.epoch;
    order->res.outcome.text = strdup("");
    order->res.uses.uses_len = count;
    /* First what goes: what comes may need its groups. */
    for (u_int i = 0; i < args->removed.removed_len; i++) {
        struct flyt_node_allocation *allocation = flyt_node_allocation_find(node, args->removed.removed_val[i]);
        if (allocation)
            flyt_node_order_remove(node, allocation, "the allocation of this VM was taken back");
        allocation = flyt_node_allocation_find(node, args->removed.removed_val[i]);
        if (allocation)
            wait_for_end(node, allocation, order);
    }
    if (args->removed.removed_len)
        flyt_node_save(node);
    for (u_int i = 0; i < count; i++)
        apply_one(node, order, i, &args->allocations.allocations_val[i]);
    order_step(order);
}
