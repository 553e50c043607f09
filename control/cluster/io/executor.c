/* Writes allocations, and orders to their nodes what was written: nothing else orders an allocation. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/base/peer.h"
#include "control/cluster/io/event.h"
#include "control/cluster/io/executor.h"
#include "control/cluster/io/store_writer.h"
#include "control/cluster/io/leader.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/capacity.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/slot.h"
#include "control/cluster/model/share.h"
#include "control/cluster/model/text.h"
#include "control/store/store.h"
#include "rpc/base/clock.h"
#include "rpc/base/log.h"

/* ---- looking at what has come of it ---- */

static void observe(struct flyt_cluster *cluster, uint64_t id)
{
    struct flyt_cluster_allocation *allocation = flyt_allocation_find(cluster, id); /* it may have gone */

    if (allocation)
        cluster->ops->allocation_observed(allocation);
}

static int on_look(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_cluster *cluster = user;
    struct flyt_cluster_allocation *allocation;
    size_t count = 0;

    cluster->look_timer = sd_event_source_disable_unref(source);
    TAILQ_FOREACH(allocation, &cluster->unseen, unseen_entry)
    count++;
    while (count-- && (allocation = TAILQ_FIRST(&cluster->unseen))) {
        flyt_allocation_look_never(allocation);
        cluster->ops->allocation_observed(allocation);
    }
    return 0;
}

void flyt_allocation_look_soon(struct flyt_cluster_allocation *allocation)
{
    struct flyt_cluster *cluster = allocation->cluster;

    if (allocation->is_unseen)
        return;
    allocation->is_unseen = true;
    TAILQ_INSERT_TAIL(&cluster->unseen, allocation, unseen_entry);
    /* Without memory the look that is taken at everything each second finds it. */
    if (!cluster->look_timer)
        sd_event_add_time_relative(cluster->event, &cluster->look_timer, CLOCK_MONOTONIC, 0, 0, on_look, cluster);
}

void flyt_allocation_look_never(struct flyt_cluster_allocation *allocation)
{
    if (allocation->is_unseen)
        TAILQ_REMOVE(&allocation->cluster->unseen, allocation, unseen_entry);
    allocation->is_unseen = false;
}

/* ---- writing ---- */

struct writing {
    struct flyt_cluster *cluster;
    uint64_t id, revision, number;
    unsigned left;
    enum flyt_store_result result;
    char err[256];
    struct flyt_record_wait waits[]; /* of each document */
};

static void order_written(struct flyt_cluster_allocation *allocation);

static void note_failure(struct flyt_cluster_allocation *allocation, uint64_t number, uint64_t revision,
                         const char *err)
{
    if (number > allocation->write_failed)
        allocation->write_failed = number;
    if (revision <= allocation->failed_revision)
        return;
    allocation->failed_revision = revision;
    if (flyt_text_set(&allocation->failed_text, err))
        flyt_warn("allocation %s: no memory for why it was not written", allocation->id_text);
}

static void note_success(struct flyt_cluster_allocation *allocation, uint64_t number, uint64_t revision)
{
    if (number > allocation->write_done)
        allocation->write_done = number;
    if (revision > allocation->written_revision)
        allocation->written_revision = revision;
}

static void slot_written(void *user, enum flyt_store_result result, const char *err)
{
    struct writing *writing = user;

    if (result != FLYT_STORE_OK && writing->result == FLYT_STORE_OK) {
        writing->result = result;
        snprintf(writing->err, sizeof writing->err, "%s", err);
    }
    if (--writing->left)
        return;
    struct flyt_cluster_allocation *allocation = flyt_allocation_find(writing->cluster, writing->id);
    if (allocation && writing->result == FLYT_STORE_OK)
        note_success(allocation, writing->number, writing->revision);
    else if (allocation)
        note_failure(allocation, writing->number, writing->revision, writing->err);
    if (allocation)
        order_written(allocation);
    observe(writing->cluster, writing->id);
    free(writing);
}

uint64_t flyt_allocation_write(struct flyt_cluster_allocation *allocation)
{
    struct flyt_cluster_gpu *gpus[2 * FLYT_SLOTS_MAX];
    uint64_t number = ++allocation->write_asked;
    unsigned count = 0;

    for (unsigned i = 0; i < allocation->slot_count; i++)
        gpus[count++] = allocation->slots[i].gpu;
    for (unsigned i = 0; allocation->migration && i < allocation->slot_count; i++)
        gpus[count++] = allocation->migration->others[i].gpu;
    struct writing *writing = calloc(1, sizeof *writing + count * sizeof *writing->waits);
    if (!writing) {
        note_failure(allocation, number, allocation->revision, "no memory");
        flyt_allocation_look_soon(allocation);
        return number;
    }
    *writing = (struct writing){.cluster = allocation->cluster,
                                .id = allocation->id,
                                .revision = allocation->revision,
                                .number = number,
                                .left = count,
                                .result = FLYT_STORE_OK};
    for (unsigned i = 0; i < count; i++) {
        writing->waits[i] = (struct flyt_record_wait){.done = slot_written, .user = writing};
        flyt_record_change(gpus[i]->record, &writing->waits[i]);
    }
    return number;
}

/* ---- ordering ---- */

int flyt_allocation_wire(const struct flyt_cluster_allocation *allocation, flyt_allocation *ret_wire)
{
    return flyt_allocation_wire_parts(allocation, allocation->slots, ret_wire);
}

int flyt_allocation_wire_parts(const struct flyt_cluster_allocation *allocation, const struct flyt_cluster_slot *slots,
                               flyt_allocation *ret_wire)
{
    flyt_allocation wire = {.id = allocation->id,
                            .vm_ip = allocation->vm_ip,
                            .tenant = allocation->tenant,
                            .state = allocation->state,
                            .isolation = allocation->isolation,
                            .revision = allocation->revision,
                            .generation = allocation->generation,
                            .sessions_max = allocation->sessions_max,
                            .when_free = allocation->when_free,
                            .is_encrypted = allocation->is_encrypted,
                            .is_suspended = allocation->is_suspended,
                            .shown_sms = allocation->shown_sms};

    wire.slots.slots_val = calloc(allocation->slot_count, sizeof *wire.slots.slots_val);
    if (!wire.slots.slots_val)
        return -ENOMEM;
    for (unsigned i = 0; i < allocation->slot_count; i++) {
        const struct flyt_cluster_slot *slot = &slots[i];
        flyt_slot *wire_slot = &wire.slots.slots_val[i];
        unsigned group_count = flyt_groupset_count(&slot->groups);
        wire_slot->gpu_uuid = (char *)slot->gpu->key;
        wire_slot->device_index = slot->device_index;
        wire_slot->sm_count = slot->sm_count;
        wire_slot->memory_bytes = slot->memory_bytes;
        flyt_share_fill(allocation, slot, wire_slot);
        wire_slot->sm_groups.sm_groups_val = calloc(group_count + 1, sizeof *wire_slot->sm_groups.sm_groups_val);
        wire.slots.slots_len = i + 1;
        if (!wire_slot->sm_groups.sm_groups_val) {
            flyt_allocation_wire_free(&wire);
            return -ENOMEM;
        }
        for (unsigned group = 0; group < FLYT_GROUPS_MAX; group++)
            if (flyt_groupset_has(&slot->groups, group))
                wire_slot->sm_groups.sm_groups_val[wire_slot->sm_groups.sm_groups_len++] = group;
    }
    *ret_wire = wire;
    return 0;
}

void flyt_allocation_wire_free(flyt_allocation *wire)
{
    for (unsigned i = 0; i < wire->slots.slots_len; i++)
        free(wire->slots.slots_val[i].sm_groups.sm_groups_val);
    free(wire->slots.slots_val);
    memset(wire, 0, sizeof *wire);
}

struct ordering {
    struct flyt_cluster *cluster;
    uint64_t id, revision;
    bool is_removal;
};

/* What an order of this revision has come to. Who changed it looks at that before the order is given again. */
static void note_answer(struct flyt_cluster_allocation *allocation, uint64_t revision, int error,
                        const flyt_outcome *outcome)
{
    allocation->answer_count++;
    allocation->answered_revision = revision;
    allocation->answer_error = error;
    allocation->answer_status = error ? FLYT_STATUS_OK : outcome->status;
    /* An order that was answered well, and not taken, is not given again at once either. */
    if (error || outcome->status != FLYT_STATUS_OK || allocation->applied_revision < revision)
        allocation->mend_ms = flyt_clock_ms() + FLYT_MEND_MS;
    if (!error && flyt_text_set(&allocation->answer_text, outcome->text))
        flyt_warn("allocation %s: no memory for its node's answer", allocation->id_text);
}

/* The node is gone, or the order went wrong on the way: it is given again when the node registers or asks. */
static void order_failed(struct flyt_cluster_allocation *allocation, uint64_t revision, int status)
{
    flyt_debug("allocation %s: order to node %s failed: %s", allocation->id_text, allocation->node->key,
               strerror(-status));
    note_answer(allocation, revision, status, NULL);
    flyt_allocation_look_soon(allocation);
}

bool flyt_allocation_outgrow(struct flyt_cluster_allocation *allocation, uint64_t revision, unsigned generation)
{
    if (revision < allocation->revision && generation <= allocation->generation)
        return false;
    if ((revision > allocation->revision && revision > FLYT_REVISION_MAX) ||
        (generation > allocation->generation && generation > FLYT_GENERATION_MAX)) {
        if (allocation->doubted_revision != revision)
            flyt_event_add(allocation->cluster, "allocation.impossible", "manager", allocation->id_text, NULL, NULL,
                           "node %s has allocation %s at revision %" PRIu64
                           ", generation %u, which no manager can have "
                           "given: its state is damaged, or it lies; `flytctl allocation kill %s` takes it away",
                           allocation->node->key, allocation->id_text, revision, generation, allocation->id_text);
        allocation->doubted_revision = revision;
        return false;
    }
    allocation->revision = (revision > allocation->revision ? revision : allocation->revision) + 1;
    if (generation > allocation->generation)
        allocation->generation = generation;
    return true;
}

static void take_answer(struct flyt_cluster_allocation *allocation, const struct ordering *ordering,
                        const flyt_apply_res *res)
{
    struct flyt_cluster *cluster = allocation->cluster;
    const flyt_allocation_use *use = NULL;

    if (res->outcome.status == FLYT_STATUS_STALE && res->epoch > cluster->epoch) {
        note_answer(allocation, ordering->revision, -ESTALE, &res->outcome);
        flyt_lead_claimed(cluster, allocation->node, res->epoch); /* everything may be forgotten */
        return;
    }
    if (res->outcome.status != FLYT_STATUS_OK) {
        note_answer(allocation, ordering->revision, 0, &res->outcome);
        return;
    }
    if (ordering->is_removal) {
        allocation->is_gone = true;
        return;
    }
    for (unsigned i = 0; i < res->uses.uses_len && !use; i++)
        if (res->uses.uses_val[i].id == allocation->id)
            use = &res->uses.uses_val[i];
    if (use && use->outcome.status == FLYT_STATUS_STALE &&
        flyt_allocation_outgrow(allocation, use->revision, allocation->generation)) {
        flyt_allocation_write_and_order(allocation);
        return;
    }
    if (use)
        flyt_allocation_note_use(allocation, use);
    note_answer(allocation, ordering->revision, 0, use ? &use->outcome : &res->outcome);
}

static void order_answered(void *user, int status, void *result)
{
    struct ordering ordering = *(struct ordering *)user;
    struct flyt_cluster_allocation *allocation = flyt_allocation_find(ordering.cluster, ordering.id);

    free(user);
    if (!allocation)
        return;
    allocation->is_ordering = false;
    if (status)
        order_failed(allocation, ordering.revision, status);
    else
        take_answer(allocation, &ordering, result);
    observe(ordering.cluster, ordering.id);
    allocation = flyt_allocation_find(ordering.cluster, ordering.id);
    /* What has changed meanwhile, or because of this answer, follows. */
    if (allocation && allocation->revision > ordering.revision)
        flyt_allocation_order(allocation);
}

static void order_written(struct flyt_cluster_allocation *allocation)
{
    if (allocation->is_order_due && flyt_allocation_is_written(allocation))
        flyt_allocation_order(allocation);
}

/* One order of an allocation is under way at a time: a later change is sent after it. */
void flyt_allocation_order(struct flyt_cluster_allocation *allocation)
{
    struct flyt_node *node = allocation->node;
    struct ordering *ordering;
    flyt_allocation wire;
    u_quad_t id = allocation->id;
    flyt_apply_args args = {.epoch = allocation->cluster->epoch};
    int status = -ENOTCONN;

    if (allocation->is_gone)
        return; /* its node has been ordered the last that there is */
    if (allocation->is_ordering || flyt_migration_holds_orders(allocation))
        return; /* the end of that order, or of the migration, sends what holds then */
    allocation->is_order_due = !flyt_allocation_is_written(allocation);
    if (allocation->is_order_due)
        return; /* what was not written is never ordered: the end of the write sends it */
    bool is_removal = allocation->state == FLYT_ALLOCATION_ENDING || allocation->is_leaving;
    if (!node->is_registered || !node->link) {
        order_failed(allocation, allocation->revision, status);
        return;
    }
    ordering = calloc(1, sizeof *ordering);
    if (!ordering || (!is_removal && flyt_allocation_wire(allocation, &wire))) {
        free(ordering);
        order_failed(allocation, allocation->revision, -ENOMEM);
        return;
    }
    *ordering = (struct ordering){allocation->cluster, allocation->id, allocation->revision, is_removal};
    if (is_removal) {
        args.removed.removed_val = &id;
        args.removed.removed_len = 1;
    } else {
        args.allocations.allocations_val = &wire;
        args.allocations.allocations_len = 1;
    }
    allocation->is_ordering = true;
    status = flyt_peer_call(node->link->peer, FLYT_ORDER_PROGRAM, FLYT_ORDER_VERSION, FLYT_ORDER_APPLY,
                            (xdrproc_t)xdr_flyt_apply_args, &args, (xdrproc_t)xdr_flyt_apply_res,
                            sizeof(flyt_apply_res), allocation->cluster->settings->order_ms, order_answered, ordering);
    if (!is_removal)
        flyt_allocation_wire_free(&wire);
    if (!status)
        return;
    allocation->is_ordering = false;
    free(ordering);
    order_failed(allocation, allocation->revision, status);
}

void flyt_allocation_write_and_order(struct flyt_cluster_allocation *allocation)
{
    allocation->is_order_due = true;
    flyt_allocation_write(allocation);
}
