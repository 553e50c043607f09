/* Writes allocations, and orders to their nodes what was written: nothing else orders an allocation. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/base/peer.h"
#include "control/cluster/io/event.h"
#include "control/cluster/io/executor.h"
#include "control/cluster/io/keep.h"
#include "control/cluster/io/leader.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/capacity.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/part.h"
#include "control/cluster/model/share.h"
#include "control/cluster/model/text.h"
#include "control/store/store.h"
#include "rpc/base/log.h"

struct writing {
    struct flyt_cluster *cluster;
    uint64_t id, revision;
    unsigned left;
    enum flyt_store_result result;
    char err[256];
    void (*done)(void *user, struct flyt_held *held, enum flyt_store_result result, const char *err);
    void *user;
    struct flyt_kept_wait waits[]; /* of each document */
};

static void order_written(struct flyt_held *held);

static void note_write(struct flyt_held *held, const struct writing *writing)
{
    if (writing->result == FLYT_STORE_OK && writing->revision > held->written_revision)
        held->written_revision = writing->revision;
    if (writing->result == FLYT_STORE_OK || writing->revision <= held->failed_revision)
        return;
    held->failed_revision = writing->revision;
    if (flyt_text_set(&held->failed_text, writing->err))
        flyt_warn("allocation %s: no memory for why it was not written", held->id_text);
}

static void part_written(void *user, enum flyt_store_result result, const char *err)
{
    struct writing *writing = user;

    if (result != FLYT_STORE_OK && writing->result == FLYT_STORE_OK) {
        writing->result = result;
        snprintf(writing->err, sizeof writing->err, "%s", err);
    }
    if (--writing->left)
        return;
    struct flyt_held *held = flyt_held_find(writing->cluster, writing->id);
    if (held)
        note_write(held, writing);
    if (writing->done)
        writing->done(writing->user, held, writing->result, writing->err);
    held = flyt_held_find(writing->cluster, writing->id); /* whoever was told may have forgotten it */
    if (held)
        order_written(held);
    held = flyt_held_find(writing->cluster, writing->id);
    if (held)
        held->cluster->ops->allocation_observed(held);
    free(writing);
}

void flyt_held_write(struct flyt_held *held,
                     void (*done)(void *user, struct flyt_held *held, enum flyt_store_result result, const char *err),
                     void *user)
{
    struct flyt_card *cards[2 * FLYT_SLOTS_MAX];
    unsigned count = 0;

    for (unsigned i = 0; i < held->part_count; i++)
        cards[count++] = held->parts[i].card;
    for (unsigned i = 0; held->migration && i < held->part_count; i++)
        cards[count++] = held->migration->others[i].card;
    struct writing *writing = calloc(1, sizeof *writing + count * sizeof *writing->waits);
    if (!writing) {
        /* Who is in the middle of something is not looked at from here: the next second's look finds it. */
        note_write(held,
                   &(struct writing){.revision = held->revision, .result = FLYT_STORE_UNAVAILABLE, .err = "no memory"});
        if (done)
            done(user, held, FLYT_STORE_UNAVAILABLE, "no memory");
        return;
    }
    *writing = (struct writing){.cluster = held->cluster,
                                .id = held->id,
                                .revision = held->revision,
                                .left = count,
                                .result = FLYT_STORE_OK,
                                .done = done,
                                .user = user};
    for (unsigned i = 0; i < count; i++) {
        writing->waits[i] = (struct flyt_kept_wait){.done = part_written, .user = writing};
        flyt_kept_change(cards[i]->kept, &writing->waits[i]);
    }
}

struct flyt_order_waiter {
    uint64_t revision;
    flyt_order_done_fn done;
    void *user;
    STAILQ_ENTRY(flyt_order_waiter) entry;
};

static void tell_orders(struct flyt_held *held, uint64_t revision, int status, const flyt_outcome *outcome)
{
    STAILQ_HEAD(, flyt_order_waiter) told = STAILQ_HEAD_INITIALIZER(told);
    struct flyt_order_waiter *waiter, *next;

    for (waiter = STAILQ_FIRST(&held->order_waiters); waiter; waiter = next) {
        next = STAILQ_NEXT(waiter, entry);
        if (waiter->revision > revision)
            continue;
        STAILQ_REMOVE(&held->order_waiters, waiter, flyt_order_waiter, entry);
        STAILQ_INSERT_TAIL(&told, waiter, entry);
    }
    /* held may go while they are told. */
    while ((waiter = STAILQ_FIRST(&told))) {
        STAILQ_REMOVE_HEAD(&told, entry);
        waiter->done(waiter->user, status, outcome);
        free(waiter);
    }
}

int flyt_held_wire(const struct flyt_held *held, flyt_allocation *ret_wire)
{
    return flyt_held_wire_parts(held, held->parts, ret_wire);
}

int flyt_held_wire_parts(const struct flyt_held *held, const struct flyt_part *parts, flyt_allocation *ret_wire)
{
    flyt_allocation wire = {.id = held->id,
                            .vm_ip = held->vm_ip,
                            .tenant = held->tenant,
                            .state = held->state,
                            .isolation = held->isolation,
                            .revision = held->revision,
                            .generation = held->generation,
                            .sessions_max = held->sessions_max,
                            .when_free = held->when_free,
                            .is_encrypted = held->is_encrypted,
                            .is_suspended = held->is_suspended,
                            .shown_sms = held->shown_sms};

    wire.slots.slots_val = calloc(held->part_count, sizeof *wire.slots.slots_val);
    if (!wire.slots.slots_val)
        return -ENOMEM;
    for (unsigned i = 0; i < held->part_count; i++) {
        const struct flyt_part *part = &parts[i];
        flyt_slot *slot = &wire.slots.slots_val[i];
        unsigned group_count = flyt_groupset_count(&part->groups);
        slot->gpu_uuid = (char *)part->card->key;
        slot->device_index = part->device_index;
        slot->sm_count = part->sm_count;
        slot->memory_bytes = part->memory_bytes;
        flyt_share_fill(held, part, slot);
        slot->sm_groups.sm_groups_val = calloc(group_count + 1, sizeof *slot->sm_groups.sm_groups_val);
        wire.slots.slots_len = i + 1;
        if (!slot->sm_groups.sm_groups_val) {
            flyt_held_wire_free(&wire);
            return -ENOMEM;
        }
        for (unsigned group = 0; group < FLYT_GROUPS_MAX; group++)
            if (flyt_groupset_has(&part->groups, group))
                slot->sm_groups.sm_groups_val[slot->sm_groups.sm_groups_len++] = group;
    }
    *ret_wire = wire;
    return 0;
}

void flyt_held_wire_free(flyt_allocation *wire)
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

static void send_order(struct flyt_held *held);

/* What an order of this revision has come to. Who waits is told; held may go. */
static void note_answer(struct flyt_held *held, uint64_t revision, int error, const flyt_outcome *outcome)
{
    held->answered_revision = revision;
    held->answer_error = error;
    held->answer_status = error ? FLYT_STATUS_OK : outcome->status;
    if (!error && flyt_text_set(&held->answer_text, outcome->text))
        flyt_warn("allocation %s: no memory for its node's answer", held->id_text);
    tell_orders(held, revision, error, outcome);
}

/* The node is gone, or the order went wrong on the way: it is given again when the node registers or asks. */
static void order_failed(struct flyt_held *held, uint64_t revision, int status)
{
    flyt_debug("allocation %s: order to node %s failed: %s", held->id_text, held->node->key, strerror(-status));
    note_answer(held, revision, status, NULL);
}

bool flyt_held_outgrow(struct flyt_held *held, uint64_t revision, unsigned generation)
{
    if (revision < held->revision && generation <= held->generation)
        return false;
    if ((revision > held->revision && revision > FLYT_REVISION_MAX) ||
        (generation > held->generation && generation > FLYT_GENERATION_MAX)) {
        if (held->doubted_revision != revision)
            flyt_event_add(held->cluster, "allocation.impossible", "manager", held->id_text, NULL, NULL,
                           "node %s has allocation %s at revision %" PRIu64
                           ", generation %u, which no manager can have "
                           "given: its state is damaged, or it lies; `flytctl allocation kill %s` takes it away",
                           held->node->key, held->id_text, revision, generation, held->id_text);
        held->doubted_revision = revision;
        return false;
    }
    held->revision = (revision > held->revision ? revision : held->revision) + 1;
    if (generation > held->generation)
        held->generation = generation;
    return true;
}

/* The node's answer to an order; held may go. */
static void take_answer(struct flyt_held *held, const struct ordering *ordering, const flyt_apply_res *res)
{
    struct flyt_cluster *cluster = held->cluster;
    const flyt_allocation_use *use = NULL;

    if (res->outcome.status == FLYT_STATUS_STALE && res->epoch > cluster->epoch) {
        flyt_lead_claimed(cluster, held->node, res->epoch);
        note_answer(held, ordering->revision, -ESTALE, &res->outcome);
        return;
    }
    if (res->outcome.status != FLYT_STATUS_OK) {
        note_answer(held, ordering->revision, 0, &res->outcome);
        return;
    }
    if (ordering->is_removal) {
        cluster->ops->allocation_removed(held);
        return;
    }
    for (unsigned i = 0; i < res->uses.uses_len && !use; i++)
        if (res->uses.uses_val[i].id == held->id)
            use = &res->uses.uses_val[i];
    if (use && use->outcome.status == FLYT_STATUS_STALE && flyt_held_outgrow(held, use->revision, held->generation)) {
        flyt_held_write_and_order(held);
        return;
    }
    flyt_outcome outcome = use ? use->outcome : res->outcome;
    if (use)
        cluster->ops->allocation_used(held, use);
    note_answer(held, ordering->revision, 0, &outcome);
}

static void order_answered(void *user, int status, void *result)
{
    struct ordering ordering = *(struct ordering *)user;
    struct flyt_held *held = flyt_held_find(ordering.cluster, ordering.id);

    free(user);
    if (!held)
        return;
    held->is_ordering = false;
    if (status)
        order_failed(held, ordering.revision, status);
    else
        take_answer(held, &ordering, result);
    held = flyt_held_find(ordering.cluster, ordering.id);
    if (!held)
        return;
    /* Who asked for a later order meanwhile waits for that one's answer, whatever has become of this one. */
    if (!held->is_ordering && (!STAILQ_EMPTY(&held->order_waiters) || held->revision > ordering.revision))
        send_order(held);
    else if (!status && !held->is_ordering)
        ordering.cluster->ops->allocation_answered(held);
    held = flyt_held_find(ordering.cluster, ordering.id);
    if (held)
        ordering.cluster->ops->allocation_observed(held);
}

static void order_written(struct flyt_held *held)
{
    if (held->is_order_due && flyt_held_is_written(held))
        send_order(held);
}

/* Sends what holds now. One order of an allocation is under way at a time: a later change is sent after it. */
static void send_order(struct flyt_held *held)
{
    struct flyt_node *node = held->node;
    struct ordering *ordering;
    flyt_allocation wire;
    u_quad_t id = held->id;
    flyt_apply_args args = {.epoch = held->cluster->epoch};
    int status = -ENOTCONN;

    if (held->is_ordering || flyt_migration_holds_orders(held))
        return; /* the end of that order, or of the migration, sends what holds then */
    held->is_order_due = !flyt_held_is_written(held);
    if (held->is_order_due)
        return; /* what was not written is never ordered: the end of the write sends it */
    bool is_removal = held->state == FLYT_ALLOCATION_ENDING || held->is_leaving;
    if (!node->is_registered || !node->link) {
        order_failed(held, held->revision, status);
        return;
    }
    ordering = calloc(1, sizeof *ordering);
    if (!ordering || (!is_removal && flyt_held_wire(held, &wire))) {
        free(ordering);
        order_failed(held, held->revision, -ENOMEM);
        return;
    }
    *ordering = (struct ordering){held->cluster, held->id, held->revision, is_removal};
    if (is_removal) {
        args.removed.removed_val = &id;
        args.removed.removed_len = 1;
    } else {
        args.allocations.allocations_val = &wire;
        args.allocations.allocations_len = 1;
    }
    held->is_ordering = true;
    status = flyt_peer_call(node->link->peer, FLYT_ORDER_PROGRAM, FLYT_ORDER_VERSION, FLYT_ORDER_APPLY,
                            (xdrproc_t)xdr_flyt_apply_args, &args, (xdrproc_t)xdr_flyt_apply_res,
                            sizeof(flyt_apply_res), held->cluster->settings->order_ms, order_answered, ordering);
    if (!is_removal)
        flyt_held_wire_free(&wire);
    if (!status)
        return;
    held->is_ordering = false;
    free(ordering);
    order_failed(held, held->revision, status);
}

void flyt_held_order(struct flyt_held *held, flyt_order_done_fn done, void *user)
{
    struct flyt_order_waiter *waiter = done ? calloc(1, sizeof *waiter) : NULL;

    if (done && !waiter) {
        done(user, -ENOMEM, NULL);
        return;
    }
    if (waiter) {
        *waiter = (struct flyt_order_waiter){.revision = held->revision, .done = done, .user = user};
        STAILQ_INSERT_TAIL(&held->order_waiters, waiter, entry);
    }
    send_order(held);
}

static void state_written(void *user, struct flyt_held *held, enum flyt_store_result result, const char *err)
{
    /* What was not written is written again and ordered then, by the look that is taken every second. */
    if (held && result == FLYT_STORE_OK)
        flyt_held_order(held, NULL, NULL);
}

void flyt_held_write_and_order(struct flyt_held *held)
{
    flyt_held_write(held, state_written, NULL);
}

void flyt_held_cancel_orders(struct flyt_held *held)
{
    tell_orders(held, UINT64_MAX, -ECANCELED, NULL);
}
