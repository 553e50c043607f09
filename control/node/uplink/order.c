#include "control/node/uplink/order.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/base/size.h"
#include "control/node/link/groups.h"
#include "control/node/link/server.h"
#include "control/node/link/share.h"
#include "control/node/model/allocation.h"
#include "control/node/model/writer.h"
#include "control/node/ops/checkpoint.h"
#include "control/node/ops/checkpointed_sessions.h"
#include "control/node/ops/grant.h"
#include "control/node/ops/migration.h"
#include "control/node/ops/operation.h"
#include "control/node/ops/receive.h"
#include "control/node/ops/replace.h"
#include "control/node/uplink/allocation_use.h"
#include "rpc/base/log.h"

enum { REMOVE_MS = 8000 /* an order to remove is answered by then: a server may hang in the driver */ };

/* An order of several allocations, answered when all of them are done. */
struct order {
    struct flyt_node_commit commit; /* what it has removed */
    flyt_node_applied_fn done;
    void *user;
    flyt_apply_res res;
    unsigned left;
};

/* What an allocation is to be, and is not before that is written. Another order waits behind what is being written. */
struct flyt_node_pending {
    struct flyt_node_change change; /* the allocation's; first */
    struct flyt_node *node;
    struct flyt_node_allocation *allocation;
    struct order *order;
    unsigned index;
    sd_event_source *timer;
    struct flyt_error err; /* why it waits */
    struct flyt_node_commit commit;
    struct flyt_node_pending *next; /* the last order that has come since, FLYT_NODE_CHANGE_BEGINNING; NULL: none */
};

static struct flyt_node_pending *pending_of(const struct flyt_node_allocation *allocation)
{
    return (struct flyt_node_pending *)allocation->pending;
}

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

static void apply_one(struct flyt_node *node, struct order *order, unsigned index, const flyt_allocation *from);

static void free_pending(struct flyt_node_pending *pending)
{
    sd_event_source_disable_unref(pending->timer);
    flyt_node_commit_forget(pending->node, &pending->commit);
    xdr_free((xdrproc_t)xdr_flyt_allocation, &pending->change.wanted);
    free(pending);
}

/* Answers it, then who waits behind it: an allocation that goes has nobody who could. */
static void finish_pending(struct flyt_node_allocation *allocation, flyt_status status, const char *text)
{
    struct flyt_node_pending *pending = pending_of(allocation);

    if (!pending)
        return;
    struct flyt_node_pending *next = pending->next;
    struct flyt_node *node = pending->node;
    allocation->pending = NULL;
    answer(pending->order, pending->index, allocation, allocation->now.id, status, text);
    free_pending(pending);
    if (!next)
        return;
    apply_one(node, next->order, next->index, &next->change.wanted);
    free_pending(next);
}

static const char unwritten[] = "it is removed, but the node's state file cannot be written and still has it";

static void on_end_written(void *user, int status)
{
    struct flyt_node_pending *pending = user;

    answer(pending->order, pending->index, NULL, pending->change.wanted.id,
           status ? FLYT_STATUS_UNAVAILABLE : FLYT_STATUS_OK, status ? unwritten : "");
    free_pending(pending);
}

/* The allocation goes: orders for it are carried out no more, but for those to end it. */
static void drop_pending(struct flyt_node_allocation *allocation, bool is_final)
{
    struct flyt_node_pending *pending = pending_of(allocation), *next;

    allocation->pending = NULL;
    for (; pending; pending = next) {
        next = pending->next;
        flyt_node_commit_forget(pending->node, &pending->commit);
        if (is_final && pending->change.wanted.state == FLYT_ALLOCATION_ENDING) {
            flyt_node_commit(pending->node, &pending->commit, on_end_written, pending);
            continue;
        }
        answer(pending->order, pending->index, NULL, allocation->now.id, FLYT_STATUS_NOT_FOUND,
               "the allocation was removed");
        free_pending(pending);
    }
}

/* ---- removal ---- */

struct flyt_node_removal {
    struct flyt_node_allocation *allocation; /* NULL: it has gone, and that is written */
    struct order *order;
    sd_event_source *timer;
    struct flyt_node_commit commit;
};

/* The first failure is the order's. */
static void note_failure(struct order *order, flyt_status status, const char *text)
{
    if (status == FLYT_STATUS_OK || order->res.outcome.status != FLYT_STATUS_OK)
        return;
    free(order->res.outcome.text);
    order->res.outcome = (flyt_outcome){status, strdup(text)};
}

static void finish_removal(struct flyt_node_allocation *allocation, flyt_status status, const char *text)
{
    struct flyt_node_removal *removal = allocation->removal;

    if (!removal)
        return;
    struct order *order = removal->order;
    allocation->removal = NULL;
    sd_event_source_disable_unref(removal->timer);
    free(removal);
    note_failure(order, status, text);
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
        note_failure(order, FLYT_STATUS_UNAVAILABLE, "the node has no memory");
        order_step(order);
        return;
    }
    removal->allocation = allocation;
    removal->order = order;
    allocation->removal = removal;
}

static void on_removal_written(void *user, int status)
{
    struct flyt_node_removal *removal = user;
    struct order *order = removal->order;

    free(removal);
    note_failure(order, status ? FLYT_STATUS_UNAVAILABLE : FLYT_STATUS_OK, unwritten);
    order_step(order);
}

void flyt_node_order_end(struct flyt_node_allocation *allocation, bool is_final)
{
    struct flyt_node_removal *removal = allocation->removal;

    drop_pending(allocation, is_final);
    if (!is_final)
        finish_removal(allocation, FLYT_STATUS_UNAVAILABLE, "the node manager ends");
    if (!is_final || !removal)
        return;
    allocation->removal = NULL;
    removal->allocation = NULL;
    removal->timer = sd_event_source_disable_unref(removal->timer);
    flyt_node_commit((struct flyt_node *)allocation->node, &removal->commit, on_removal_written, removal);
}

/* ---- checks ---- */

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
        if (flyt_node_server_allocation(server) == allocation)
            flyt_node_server_end(server, reason);
    flyt_node_checkpointed_drop_all(node, allocation, reason);
    flyt_node_replace_end_all(node, allocation, reason);
}

/* It is written: it holds. *before are its parts until then, the caller's. */
static void take(struct flyt_node_allocation *allocation, struct flyt_node_pending *pending,
                 flyt_allocation *ret_before)
{
    *ret_before = allocation->now;
    allocation->now = pending->change.wanted;
    pending->change.wanted = (flyt_allocation){0};
    pending->change.stage = FLYT_NODE_CHANGE_BEGINNING;
}

static void carry_out(struct flyt_node *node, struct flyt_node_allocation *allocation, const flyt_allocation *before)
{
    for (unsigned i = 0; i < allocation->now.slots.slots_len; i++) {
        flyt_node_groups_change(node, allocation, i);
        if (before->slots.slots_val[i].memory_bytes == allocation->now.slots.slots_val[i].memory_bytes)
            continue;
        for (struct flyt_node_server *server = node->servers; server; server = server->next)
            if (flyt_node_server_allocation(server) == allocation)
                flyt_node_server_tell_limit(server, i, allocation->now.slots.slots_val[i].memory_bytes,
                                            allocation->now.revision, allocation->now.when_free);
    }
    flyt_node_share_change(node, allocation, before);
    flyt_node_groups_look(node, allocation);
    if (allocation->now.state == FLYT_ALLOCATION_ENDING)
        end_sessions(node, allocation, "the allocation of this VM was taken back");
}

static void on_change_written(void *user, int status)
{
    struct flyt_node_pending *pending = user;
    struct flyt_node_allocation *allocation = pending->allocation;
    flyt_allocation before;

    if (status) {
        put_limits_back(allocation, allocation->now.slots.slots_len, pending->change.wanted.revision);
        finish_pending(allocation, FLYT_STATUS_UNAVAILABLE,
                       "the node cannot set the limit: its state file cannot be written");
        return;
    }
    take(allocation, pending, &before);
    carry_out(pending->node, allocation, &before);
    xdr_free((xdrproc_t)xdr_flyt_allocation, &before);
    finish_pending(allocation, FLYT_STATUS_OK, "");
}

/* Limits, then the rest, when that is written. False: memory is in use that servers may still give back. */
static bool try_change(struct flyt_node_pending *pending)
{
    struct flyt_node_allocation *allocation = pending->allocation;
    const flyt_allocation *wanted = &pending->change.wanted;
    char used[FLYT_SIZE_TEXT_BYTES], most[FLYT_SIZE_TEXT_BYTES];
    struct flyt_error err = {0};
    uint64_t used_bytes = 0;
    unsigned slot = 0;

    int status = set_limits(allocation, wanted, &slot, &used_bytes);
    if (status == -EBUSY) {
        flyt_error_set(&pending->err, status, "%s of device %u are in use, more than the %s wanted",
                       flyt_size_text(used_bytes, used), wanted->slots.slots_val[slot].device_index,
                       flyt_size_text(wanted->slots.slots_val[slot].memory_bytes, most));
        return false;
    }
    if (status) {
        flyt_error_set(&err, status, "the node cannot set the limit: %s", strerror(-status));
        finish_pending(allocation, FLYT_STATUS_UNAVAILABLE, err.text);
        return true;
    }
    pending->timer = sd_event_source_disable_unref(pending->timer);
    pending->change.stage = FLYT_NODE_CHANGE_CHANGING;
    flyt_node_commit(pending->node, &pending->commit, on_change_written, pending);
    return true;
}

static void finish_in_use(struct flyt_node_pending *pending)
{
    const struct flyt_error err = pending->err;

    finish_pending(pending->allocation, FLYT_STATUS_IN_USE, err.text);
}

void flyt_node_order_retry(struct flyt_node *node, struct flyt_node_allocation *allocation)
{
    struct flyt_node_pending *pending = pending_of(allocation);

    if (!pending || pending->change.stage != FLYT_NODE_CHANGE_WAITING || try_change(pending))
        return;
    /* When all have given back what they keep for later, what is still in use stays so. */
    if (!flyt_node_server_owes_answer(node, allocation))
        finish_in_use(pending);
}

static int on_limit_timeout(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_node_pending *pending = user;

    if (!try_change(pending))
        finish_in_use(pending);
    return 0;
}

/* Asks servers to give back what they cache, and goes on when they have, or have nothing more, or after limit_wait. */
static void wait_for_memory(struct flyt_node_pending *pending)
{
    struct flyt_node_allocation *allocation = pending->allocation;
    struct flyt_node *node = pending->node;

    if (!allocation->session_count ||
        sd_event_add_time_relative(node->event, &pending->timer, CLOCK_MONOTONIC, node->settings->limit_wait_ms * 1000,
                                   1000, on_limit_timeout, pending) < 0) {
        finish_in_use(pending);
        return;
    }
    pending->change.stage = FLYT_NODE_CHANGE_WAITING;
    for (unsigned i = 0; i < pending->change.wanted.slots.slots_len; i++)
        for (struct flyt_node_server *server = node->servers; server; server = server->next)
            if (flyt_node_server_allocation(server) == allocation)
                flyt_node_server_tell_limit(server, i, pending->change.wanted.slots.slots_val[i].memory_bytes,
                                            pending->change.wanted.revision, false);
    /* Its sessions may all be without a server: nobody has anything to give back. */
    if (!flyt_node_server_owes_answer(node, allocation))
        flyt_node_order_retry(node, allocation);
}

/* Nothing has begun on the devices that it had. */
static void on_replacement_written(void *user, int status)
{
    struct flyt_node_pending *pending = user;
    struct flyt_node_allocation *allocation = pending->allocation;
    flyt_allocation before;

    if (!status) {
        flyt_node_share_drop(allocation);
        take(allocation, pending, &before);
        flyt_node_allocation_set_up(pending->node, allocation);
        status = flyt_node_allocation_make_ledgers(pending->node, allocation);
        xdr_free((xdrproc_t)xdr_flyt_allocation, &before);
        if (flyt_node_share_set(allocation))
            status = -ENOMEM;
    }
    finish_pending(allocation, status ? FLYT_STATUS_UNAVAILABLE : FLYT_STATUS_OK,
                   status ? "the node cannot keep it" : "");
}

static struct flyt_node_pending *pending_new(struct flyt_node *node, struct flyt_node_allocation *allocation,
                                             struct order *order, unsigned index, flyt_allocation *wanted)
{
    struct flyt_node_pending *pending = calloc(1, sizeof *pending);

    if (!pending)
        return NULL;
    *pending = (struct flyt_node_pending){
        .node = node, .allocation = allocation, .order = order, .index = index, .change.wanted = *wanted};
    *wanted = (flyt_allocation){0};
    return pending;
}

static void change(struct flyt_node *node, struct flyt_node_allocation *allocation, struct order *order, unsigned index,
                   flyt_allocation *wanted)
{
    struct flyt_node_pending *pending = pending_new(node, allocation, order, index, wanted);

    if (!pending) {
        answer(order, index, allocation, wanted->id, FLYT_STATUS_UNAVAILABLE, "the node has no memory");
        return;
    }
    allocation->pending = &pending->change;
    if (!has_other_devices(&allocation->now, &pending->change.wanted)) {
        if (!try_change(pending))
            wait_for_memory(pending);
    } else if (flyt_node_allocation_sessions(allocation)) {
        finish_pending(allocation, FLYT_STATUS_IN_USE, "its programs still run on the devices that it had");
    } else {
        pending->change.stage = FLYT_NODE_CHANGE_REPLACING;
        flyt_node_commit(node, &pending->commit, on_replacement_written, pending);
    }
}

/* Behind what is being written; only the last one counts. */
static void queue_behind(struct flyt_node *node, struct flyt_node_allocation *allocation, struct order *order,
                         unsigned index, const flyt_allocation *from)
{
    struct flyt_node_pending *first = pending_of(allocation), *displaced = first->next;
    flyt_allocation wanted = {0};

    struct flyt_node_pending *pending =
        flyt_node_allocation_copy(from, &wanted) ? NULL : pending_new(node, allocation, order, index, &wanted);
    if (!pending) {
        xdr_free((xdrproc_t)xdr_flyt_allocation, &wanted);
        answer(order, index, allocation, from->id, FLYT_STATUS_UNAVAILABLE, "the node has no memory");
        return;
    }
    first->next = pending;
    if (!displaced)
        return;
    answer(displaced->order, displaced->index, allocation, from->id, FLYT_STATUS_CONFLICT, "another order came");
    free_pending(displaced);
}

static void on_creation_written(void *user, int status)
{
    struct flyt_node_pending *pending = user;
    struct flyt_node_allocation *allocation = pending->allocation;
    const flyt_allocation *now = &allocation->now;

    if (status) {
        allocation->pending = NULL;
        answer(pending->order, pending->index, NULL, now->id, FLYT_STATUS_UNAVAILABLE, "the node cannot keep it");
        struct flyt_node_pending *next = pending->next;
        struct flyt_node *node = pending->node;
        flyt_node_allocation_free(node, allocation, true);
        free_pending(pending);
        if (next)
            apply_one(node, next->order, next->index, &next->change.wanted);
        if (next)
            free_pending(next);
        return;
    }
    flyt_info("allocation %016" PRIx64 ": granted, vm=%s devices=%u memory_bytes=%" PRIu64, (uint64_t)now->id,
              now->vm_ip, now->slots.slots_len, (uint64_t)now->slots.slots_val[0].memory_bytes);
    finish_pending(allocation, FLYT_STATUS_OK, "");
}

static void create(struct flyt_node *node, struct order *order, unsigned index, flyt_allocation *wanted)
{
    struct flyt_node_allocation *allocation = NULL;
    flyt_allocation nothing = {0};
    uint64_t id = wanted->id;

    struct flyt_node_pending *pending = pending_new(node, NULL, order, index, &nothing);
    if (!pending || flyt_node_grant_create(node, wanted, &allocation)) {
        free(pending);
        answer(order, index, NULL, id, FLYT_STATUS_UNAVAILABLE, "the node cannot keep it");
        return;
    }
    pending->allocation = allocation;
    pending->change.stage = FLYT_NODE_CHANGE_CREATING;
    allocation->pending = &pending->change;
    flyt_node_commit(node, &pending->commit, on_creation_written, pending);
}

static void apply_one(struct flyt_node *node, struct order *order, unsigned index, const flyt_allocation *from)
{
    struct flyt_node_allocation *allocation = flyt_node_allocation_find(node, from->id);
    flyt_allocation wanted = {0};
    struct flyt_error err = {0};

    if (allocation && flyt_node_allocation_is_being_written(allocation)) {
        queue_behind(node, allocation, order, index, from);
        return;
    }
    if (from->revision > FLYT_NODE_REVISION_MAX) {
        answer(order, index, allocation, from->id, FLYT_STATUS_INVALID, "no leader can have come to that revision");
        return;
    }
    if (allocation && (allocation->is_removed || from->revision < allocation->now.revision)) {
        answer(order, index, allocation, from->id, FLYT_STATUS_STALE, "the node has a later revision");
        return;
    }
    if (allocation && from->revision == allocation->now.revision && allocation->now.state != FLYT_ALLOCATION_ORPHAN) {
        answer(order, index, allocation, from->id, FLYT_STATUS_OK, "");
        return;
    }
    /* What is under way holds what it needs: another change waits for its end, but for the allocation's own. */
    if (allocation && from->state != FLYT_ALLOCATION_ENDING &&
        flyt_node_operation_check(allocation, FLYT_NODE_OPERATION_CHANGE, &err) != FLYT_STATUS_OK) {
        answer(order, index, allocation, from->id, FLYT_STATUS_CONFLICT, err.text);
        return;
    }
    if (allocation && from->state == FLYT_ALLOCATION_ENDING)
        flyt_node_operations_drop(allocation, "the allocation of this VM was taken back");
    flyt_status status = flyt_node_grant_check(node, from, &err);
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
    if (flyt_node_allocation_is_being_written(allocation) && allocation->pending->stage == FLYT_NODE_CHANGE_CHANGING)
        put_limits_back(allocation, allocation->now.slots.slots_len, allocation->pending->wanted.revision);
    drop_pending(allocation, true);
    flyt_node_operations_drop(allocation, reason);
    allocation->is_removed = true;
    allocation->now.state = FLYT_ALLOCATION_ENDING;
    end_sessions(node, allocation, reason);
    if (!flyt_node_allocation_sessions(allocation) && !flyt_node_receive_of(allocation))
        flyt_node_allocation_free(node, allocation, true);
}

static void on_removals_written(void *user, int status)
{
    struct order *order = user;

    note_failure(order, status ? FLYT_STATUS_UNAVAILABLE : FLYT_STATUS_OK, unwritten);
    order_step(order);
}

void flyt_node_apply(struct flyt_node *node, const flyt_apply_args *args, flyt_node_applied_fn done, void *user)
{
    struct order *order = calloc(1, sizeof *order);
    unsigned count = args->allocations.allocations_len;
    flyt_apply_res bad = {.outcome = {FLYT_STATUS_UNAVAILABLE, (char *)"the node has no memory"},
                          .epoch = node->state.epoch};

    if (order)
        order->res.uses.uses_val = calloc(count + 1, sizeof *order->res.uses.uses_val);
    if (!order || !order->res.uses.uses_val || !flyt_node_is_led(node, args->epoch, &bad.outcome)) {
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
    if (args->removed.removed_len) {
        order->left++;
        flyt_node_commit(node, &order->commit, on_removals_written, order);
    }
    for (u_int i = 0; i < count; i++)
        apply_one(node, order, i, &args->allocations.allocations_val[i]);
    order_step(order);
}
