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

/* ---- looking at what has come of it ---- */

static void observe(struct flyt_cluster *cluster, uint64_t id)
{
    struct flyt_held *held = flyt_held_find(cluster, id); /* it may have gone */

    if (held)
        cluster->ops->allocation_observed(held);
}

static int on_look(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_cluster *cluster = user;
    struct flyt_held *held;
    size_t count = 0;

    cluster->look_timer = sd_event_source_disable_unref(source);
    TAILQ_FOREACH(held, &cluster->unseen, unseen_entry)
    count++;
    while (count-- && (held = TAILQ_FIRST(&cluster->unseen))) {
        flyt_held_look_never(held);
        cluster->ops->allocation_observed(held);
    }
    return 0;
}

void flyt_held_look_soon(struct flyt_held *held)
{
    struct flyt_cluster *cluster = held->cluster;

    if (held->is_unseen)
        return;
    held->is_unseen = true;
    TAILQ_INSERT_TAIL(&cluster->unseen, held, unseen_entry);
    /* Without memory the look that is taken at everything each second finds it. */
    if (!cluster->look_timer)
        sd_event_add_time_relative(cluster->event, &cluster->look_timer, CLOCK_MONOTONIC, 0, 0, on_look, cluster);
}

void flyt_held_look_never(struct flyt_held *held)
{
    if (held->is_unseen)
        TAILQ_REMOVE(&held->cluster->unseen, held, unseen_entry);
    held->is_unseen = false;
}

/* ---- writing ---- */

struct writing {
    struct flyt_cluster *cluster;
    uint64_t id, revision, number;
    unsigned left;
    enum flyt_store_result result;
    char err[256];
    struct flyt_kept_wait waits[]; /* of each document */
};

static void order_written(struct flyt_held *held);

static void note_failure(struct flyt_held *held, uint64_t number, uint64_t revision, const char *err)
{
    if (number > held->write_failed)
        held->write_failed = number;
    if (revision <= held->failed_revision)
        return;
    held->failed_revision = revision;
    if (flyt_text_set(&held->failed_text, err))
        flyt_warn("allocation %s: no memory for why it was not written", held->id_text);
}

static void note_success(struct flyt_held *held, uint64_t number, uint64_t revision)
{
    if (number > held->write_done)
        held->write_done = number;
    if (revision > held->written_revision)
        held->written_revision = revision;
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
    if (held && writing->result == FLYT_STORE_OK)
        note_success(held, writing->number, writing->revision);
    else if (held)
        note_failure(held, writing->number, writing->revision, writing->err);
    if (held)
        order_written(held);
    observe(writing->cluster, writing->id);
    free(writing);
}

uint64_t flyt_held_write(struct flyt_held *held)
{
    struct flyt_card *cards[2 * FLYT_SLOTS_MAX];
    uint64_t number = ++held->write_asked;
    unsigned count = 0;

    for (unsigned i = 0; i < held->part_count; i++)
        cards[count++] = held->parts[i].card;
    for (unsigned i = 0; held->migration && i < held->part_count; i++)
        cards[count++] = held->migration->others[i].card;
    struct writing *writing = calloc(1, sizeof *writing + count * sizeof *writing->waits);
    if (!writing) {
        note_failure(held, number, held->revision, "no memory");
        flyt_held_look_soon(held);
        return number;
    }
    *writing = (struct writing){.cluster = held->cluster,
                                .id = held->id,
                                .revision = held->revision,
                                .number = number,
                                .left = count,
                                .result = FLYT_STORE_OK};
    for (unsigned i = 0; i < count; i++) {
        writing->waits[i] = (struct flyt_kept_wait){.done = part_written, .user = writing};
        flyt_kept_change(cards[i]->kept, &writing->waits[i]);
    }
    return number;
}

/* ---- ordering ---- */

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

/* What an order of this revision has come to. */
static void note_answer(struct flyt_held *held, uint64_t revision, int error, const flyt_outcome *outcome)
{
    held->answer_count++;
    held->answered_revision = revision;
    held->answer_error = error;
    held->answer_status = error ? FLYT_STATUS_OK : outcome->status;
    if (!error && flyt_text_set(&held->answer_text, outcome->text))
        flyt_warn("allocation %s: no memory for its node's answer", held->id_text);
}

/* The node is gone, or the order went wrong on the way: it is given again when the node registers or asks. */
static void order_failed(struct flyt_held *held, uint64_t revision, int status)
{
    flyt_debug("allocation %s: order to node %s failed: %s", held->id_text, held->node->key, strerror(-status));
    note_answer(held, revision, status, NULL);
    flyt_held_look_soon(held);
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

static void take_answer(struct flyt_held *held, const struct ordering *ordering, const flyt_apply_res *res)
{
    struct flyt_cluster *cluster = held->cluster;
    const flyt_allocation_use *use = NULL;

    if (res->outcome.status == FLYT_STATUS_STALE && res->epoch > cluster->epoch) {
        note_answer(held, ordering->revision, -ESTALE, &res->outcome);
        flyt_lead_claimed(cluster, held->node, res->epoch); /* everything may be forgotten */
        return;
    }
    if (res->outcome.status != FLYT_STATUS_OK) {
        note_answer(held, ordering->revision, 0, &res->outcome);
        return;
    }
    if (ordering->is_removal) {
        held->is_gone = true;
        return;
    }
    for (unsigned i = 0; i < res->uses.uses_len && !use; i++)
        if (res->uses.uses_val[i].id == held->id)
            use = &res->uses.uses_val[i];
    if (use && use->outcome.status == FLYT_STATUS_STALE && flyt_held_outgrow(held, use->revision, held->generation)) {
        flyt_held_write_and_order(held);
        return;
    }
    if (use)
        flyt_held_note_use(held, use);
    note_answer(held, ordering->revision, 0, use ? &use->outcome : &res->outcome);
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
    /* What has changed meanwhile follows, whatever has become of this one. */
    if (held && !held->is_gone && held->revision > ordering.revision)
        flyt_held_order(held);
    observe(ordering.cluster, ordering.id);
}

static void order_written(struct flyt_held *held)
{
    if (held->is_order_due && flyt_held_is_written(held))
        flyt_held_order(held);
}

/* One order of an allocation is under way at a time: a later change is sent after it. */
void flyt_held_order(struct flyt_held *held)
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

void flyt_held_write_and_order(struct flyt_held *held)
{
    held->is_order_due = true;
    flyt_held_write(held);
}
