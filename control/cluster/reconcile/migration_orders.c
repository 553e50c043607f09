/*
 * What the nodes of a migration are ordered, and what they say of it. What differs between the orders is in one table.
 * An order that could not be given, or was not answered, is given again when it is still the next step, a second later
 * or when the node is back.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/base/peer.h"
#include "control/cluster/io/executor.h"
#include "control/cluster/io/link.h"
#include "control/cluster/io/reply.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/node.h"
#include "control/cluster/reconcile/migration.h"
#include "rpc/base/clock.h"

enum {
    ANSWER_MS = 10000,
    SWITCH_MS = 5000, /* SWITCH is answered by then: the target takes 2 s at most, the source nothing */
    TIMEOUT_S = 3600, /* as nodes have it */
};

/* ---- what a node says ---- */

/* Of a side; within a node of both, for which the source speaks. */
static void set_standing(struct flyt_migration *migration, unsigned side, enum flyt_migration_standing standing)
{
    migration->sides[side].standing = standing;
    if (!migration->is_between)
        migration->sides[!side].standing = standing;
}

/* Programs that have left stand still no shorter than they did: where they seem to, the node was restarted, and has
 * lost what it knew. */
static void keep_use(struct flyt_migration *migration, unsigned index, const flyt_migration_use *use)
{
    struct flyt_migration_side *side = &migration->sides[index];

    if (!flyt_migration_is_moved(migration) || use->standstill_us >= side->use.standstill_us) {
        side->use = *use;
        side->use_us = flyt_clock_ns() / 1000;
    }
    side->use.phase = use->phase;
    side->use.outcome.status = use->outcome.status;
    side->use.outcome.text = NULL;
    if (use->phase == FLYT_MIGRATION_DONE && use->outcome.text && *use->outcome.text)
        snprintf(migration->remark, sizeof migration->remark, "%s", use->outcome.text);
    if (index == FLYT_MIGRATION_SOURCE && migration->state != FLYT_MOVE_RELEASING)
        migration->use = side->use;
}

static void hear(struct flyt_migration *migration, unsigned index, flyt_status status, const flyt_migration_use *use)
{
    struct flyt_migration_side *side = &migration->sides[index];
    bool has_use = use && status == FLYT_STATUS_OK;

    side->heard_ms = flyt_clock_ms();
    for (unsigned i = 0; i < FLYT_MIGRATION_SIDES; i++) {
        struct flyt_migration_word word = {.status = status,
                                           .phase = has_use ? use->phase : 0,
                                           .is_between = migration->is_between,
                                           .is_moved = flyt_migration_is_moved(migration),
                                           .has_registered = migration->sides[i].has_registered,
                                           .has_allocation = migration->sides[i].has_allocation};
        if (i == index || !migration->is_between)
            migration->sides[i].standing = flyt_migration_standing_of(&word, i);
    }
    if (has_use)
        keep_use(migration, index, use);
    if (!flyt_standing_is_out(side->standing) || migration->sides[FLYT_MIGRATION_TARGET].standing == FLYT_STANDING_DONE)
        return;
    if (!has_use)
        flyt_migration_note_failure(migration, FLYT_STATUS_UNAVAILABLE,
                                    "node %s knows nothing of it: the order did not reach it, or it was restarted",
                                    side->node->key);
    else
        flyt_migration_note_failure(migration, use->outcome.status, "%s",
                                    use->outcome.text && *use->outcome.text ? use->outcome.text
                                                                            : "the node does not say why");
}

/* Within a node what it has decides only until it has said that they have moved. */
static bool is_heard(const struct flyt_migration *migration)
{
    return migration->state >= FLYT_MOVE_ORDERED && (migration->is_between || !flyt_migration_is_moved(migration));
}

static unsigned side_of(const struct flyt_migration *migration, const struct flyt_node *node)
{
    return migration->sides[FLYT_MIGRATION_SOURCE].node == node ? FLYT_MIGRATION_SOURCE : FLYT_MIGRATION_TARGET;
}

void flyt_serve_node_migration(struct flyt_call *call, void *data)
{
    const flyt_migration_use *use = data;
    struct flyt_node *node = flyt_call_link(call)->node;

    if (!node || !node->is_registered) {
        flyt_call_outcome(call, FLYT_STATUS_NOT_FOUND, "register again");
        return;
    }
    struct flyt_cluster_allocation *allocation = flyt_allocation_find(node->cluster, use->allocation_id);
    struct flyt_migration *migration = allocation ? allocation->migration : NULL;
    if (!migration || migration->id != use->id || !flyt_migration_is_on(allocation, node)) {
        flyt_call_outcome(call, FLYT_STATUS_NOT_FOUND, "there is no migration %016" PRIx64 " of allocation %016" PRIx64,
                          (uint64_t)use->id, (uint64_t)use->allocation_id);
        return;
    }
    if (is_heard(migration))
        hear(migration, side_of(migration, node), FLYT_STATUS_OK, use);
    flyt_allocation_look_soon(allocation);
    flyt_call_outcome(call, FLYT_STATUS_OK, "%s", ""); /* `use` is the call's */
}

/* Within a node: whether it has the allocation on the target. On the GPU where they were both are the same: the
 * revision tells. */
static bool is_at_target(const struct flyt_cluster_allocation *allocation, const flyt_allocation *wire)
{
    const struct flyt_migration *migration = allocation->migration;

    if (wire->slots.slots_len != allocation->slot_count)
        return false;
    for (unsigned i = 0; i < allocation->slot_count; i++)
        if (strcmp(wire->slots.slots_val[i].gpu_uuid, migration->others[i].gpu->key))
            return false;
    return !flyt_allocation_is_on(allocation, migration->others[0].gpu) ||
           (migration->revision && wire->revision >= migration->revision);
}

void flyt_migration_registered(struct flyt_cluster_allocation *allocation, const struct flyt_node *node,
                               const flyt_allocation *wire)
{
    struct flyt_migration *migration = allocation->migration;

    for (unsigned i = 0; is_heard(migration) && i < FLYT_MIGRATION_SIDES; i++) {
        struct flyt_migration_side *side = &migration->sides[i];
        if (side->node != node)
            continue;
        side->has_registered = true;
        side->has_allocation =
            wire && (migration->is_between || is_at_target(allocation, wire) == (i == FLYT_MIGRATION_TARGET));
        if (migration->state >= FLYT_MOVE_UNDER_WAY)
            side->standing = FLYT_STANDING_UNKNOWN;
    }
}

/* ---- what a node answers ---- */

/* It has not taken an order, and has nothing of it; of the first one: nobody has. */
static void not_taken(struct flyt_migration *migration, unsigned index)
{
    set_standing(migration, index, FLYT_STANDING_ABSENT);
    if (migration->state == FLYT_MOVE_ORDERED)
        flyt_migration_set_state(migration, FLYT_MOVE_RECORDED);
}

/* To MIGRATE, RECEIVE or SEND. A node that has said meanwhile how far it is stands where it said. */
static void take_begun(struct flyt_migration *migration, unsigned index, bool is_cancel, const void *result)
{
    const struct flyt_migration_side *side = &migration->sides[index];
    const flyt_outcome *outcome = result;

    if (outcome->status != FLYT_STATUS_OK) {
        not_taken(migration, index);
        flyt_migration_note_failure(migration, outcome->status, "node %s refused: %.400s", side->node->key,
                                    outcome->text);
    } else if (side->standing == FLYT_STANDING_ABSENT || side->standing == FLYT_STANDING_UNKNOWN) {
        set_standing(migration, index, FLYT_STANDING_COPYING);
    }
}

static void take_switched(struct flyt_migration *migration, unsigned index, bool is_cancel, const void *result)
{
    struct flyt_migration_side *side = &migration->sides[index];
    const flyt_order_migration_res *res = result;
    bool is_source = index == FLYT_MIGRATION_SOURCE;
    flyt_status status = res->outcome.status;

    if (status == FLYT_STATUS_OK) {
        hear(migration, index, FLYT_STATUS_OK, &res->use);
        if (side->standing == FLYT_STANDING_COPYING || side->standing == FLYT_STANDING_ARRIVED)
            side->standing = FLYT_STANDING_SWITCHED;
        if (!is_source && !migration->opened_us)
            migration->opened_us = flyt_clock_ns() / 1000;
        return;
    }
    flyt_migration_note_failure(migration, status, "node %s: %.400s", side->node->key,
                                *res->outcome.text ? res->outcome.text : "it does not say why it cannot switch");
    if (status == FLYT_STATUS_NOT_FOUND)
        hear(migration, index, status, NULL);
    else if (status == FLYT_STATUS_CONFLICT && is_source)
        side->standing = FLYT_STANDING_FAILED; /* its programs go on there */
    else if (status == FLYT_STATUS_CONFLICT)
        hear(migration, index, FLYT_STATUS_OK, &res->use);
    else
        side->standing = FLYT_STANDING_UNKNOWN;
}

static void take_back(struct flyt_migration *migration, unsigned index, bool is_cancel, const void *result)
{
    flyt_status status = ((const flyt_outcome *)result)->status;

    migration->sides[index].standing = status == FLYT_STATUS_OK || status == FLYT_STATUS_CONFLICT ? FLYT_STANDING_FAILED
                                       : status == FLYT_STATUS_NOT_FOUND                          ? FLYT_STANDING_ABSENT
                                                                         : FLYT_STANDING_UNKNOWN;
}

/* Too late to be cancelled: what it says then is how far it is. Within a node it goes on, whoever wanted it to fail. */
static void take_asked(struct flyt_migration *migration, unsigned index, bool is_cancel, const void *result)
{
    const flyt_order_migration_res *res = result;
    bool is_too_late = is_cancel && res->outcome.status == FLYT_STATUS_CONFLICT;

    if (!is_heard(migration))
        return;
    if (is_too_late && !migration->is_between) {
        migration->is_cancelled = false;
        migration->failed_status = FLYT_STATUS_OK;
        migration->reason[0] = '\0';
    }
    hear(migration, index, is_too_late ? FLYT_STATUS_OK : res->outcome.status, &res->use);
}

static void take_released(struct flyt_migration *migration, unsigned index, bool is_cancel, const void *result)
{
    migration->is_released |= ((const flyt_outcome *)result)->status == FLYT_STATUS_OK;
}

/* ---- what a node is told ---- */

struct order_args {
    union {
        flyt_order_migrate_args migrate;
        flyt_order_receive_args receive;
        flyt_order_send_args send;
        flyt_order_switch_args change;
        flyt_order_send_back_args back;
        flyt_order_migration_args ask;
        flyt_apply_args apply;
    };
    flyt_allocation *wire; /* in one of them; NULL: none */
    u_quad_t removed;
};

/* As it is to be on the target. */
static int make_wire(struct flyt_cluster_allocation *allocation, flyt_allocation *ret_wire, struct order_args *args)
{
    int status = flyt_allocation_wire_parts(allocation, allocation->migration->others, ret_wire);

    if (!status) {
        ret_wire->revision = allocation->migration->revision;
        args->wire = ret_wire;
    }
    return status;
}

static int make_migrate(struct flyt_cluster_allocation *allocation, unsigned side, bool is_cancel,
                        struct order_args *args)
{
    args->migrate = (flyt_order_migrate_args){.epoch = allocation->cluster->epoch,
                                              .migration_id = allocation->migration->id,
                                              .bounds = allocation->migration->bounds};
    return make_wire(allocation, &args->migrate.allocation, args);
}

static int make_receive(struct flyt_cluster_allocation *allocation, unsigned side, bool is_cancel,
                        struct order_args *args)
{
    const struct flyt_migration *migration = allocation->migration;

    args->receive = (flyt_order_receive_args){
        .epoch = allocation->cluster->epoch,
        .migration_id = migration->id,
        .timeout_s = migration->bounds.timeout_s ? migration->bounds.timeout_s : TIMEOUT_S,
        .is_encrypted = migration->is_encrypted,
    };
    memcpy(args->receive.secret, migration->secret, sizeof args->receive.secret);
    return make_wire(allocation, &args->receive.allocation, args);
}

static int make_send(struct flyt_cluster_allocation *allocation, unsigned side, bool is_cancel, struct order_args *args)
{
    const struct flyt_migration *migration = allocation->migration;
    const struct flyt_node *target = migration->sides[FLYT_MIGRATION_TARGET].node;

    args->send = (flyt_order_send_args){
        .epoch = allocation->cluster->epoch,
        .migration_id = migration->id,
        .allocation_id = allocation->id,
        .bounds = migration->bounds,
        .node = (char *)target->key,
        .urls = {.urls_len = target->data_url_count, .urls_val = (char **)target->data_urls},
        .stream_count = migration->stream_count,
        .packing = migration->packing,
        .is_encrypted = migration->is_encrypted,
    };
    memcpy(args->send.secret, migration->secret, sizeof args->send.secret);
    return 0;
}

static int make_switch(struct flyt_cluster_allocation *allocation, unsigned side, bool is_cancel,
                       struct order_args *args)
{
    struct flyt_migration *migration = allocation->migration;

    args->change = (flyt_order_switch_args){.epoch = allocation->cluster->epoch,
                                            .migration_id = migration->id,
                                            .session_count = migration->sides[FLYT_MIGRATION_SOURCE].use.session_count};
    if (side == FLYT_MIGRATION_SOURCE)
        migration->switched_us = flyt_clock_ns() / 1000;
    return 0;
}

static int make_back(struct flyt_cluster_allocation *allocation, unsigned side, bool is_cancel, struct order_args *args)
{
    args->back = (flyt_order_send_back_args){.epoch = allocation->cluster->epoch,
                                             .migration_id = allocation->migration->id,
                                             .reason = allocation->migration->reason};
    return 0;
}

static int make_question(struct flyt_cluster_allocation *allocation, unsigned side, bool is_cancel,
                         struct order_args *args)
{
    args->ask = (flyt_order_migration_args){
        .epoch = allocation->cluster->epoch, .migration_id = allocation->migration->id, .cancel = is_cancel};
    return 0;
}

static int make_removal(struct flyt_cluster_allocation *allocation, unsigned side, bool is_cancel,
                        struct order_args *args)
{
    args->removed = allocation->id;
    args->apply = (flyt_apply_args){.epoch = allocation->cluster->epoch, .removed = {1, &args->removed}};
    return 0;
}

/* ---- the orders ---- */

#define XDR(args, result) (xdrproc_t) xdr_##args, (xdrproc_t)xdr_##result, sizeof(result)

/* Every result begins with an outcome, or is one. */
static const struct order {
    unsigned procedure;
    const char *task;    /* what a node cannot do that does not know it; NULL: it has begun, and knows it */
    uint64_t timeout_ms; /* 0: as settings say */
    xdrproc_t xdr_args, xdr_result;
    size_t result_bytes;
    int (*make)(struct flyt_cluster_allocation *allocation, unsigned side, bool is_cancel, struct order_args *args);
    void (*take)(struct flyt_migration *migration, unsigned side, bool is_cancel, const void *result);
} orders[] = {
    {FLYT_ORDER_MIGRATE, "move programs", 0, XDR(flyt_order_migrate_args, flyt_outcome), make_migrate, take_begun},
    {FLYT_ORDER_RECEIVE, "receive programs of another node", 0, XDR(flyt_order_receive_args, flyt_outcome),
     make_receive, take_begun},
    {FLYT_ORDER_SEND, "send programs to another node", 0, XDR(flyt_order_send_args, flyt_outcome), make_send,
     take_begun},
    {FLYT_ORDER_SWITCH, NULL, SWITCH_MS, XDR(flyt_order_switch_args, flyt_order_migration_res), make_switch,
     take_switched},
    {FLYT_ORDER_SEND_BACK, NULL, 0, XDR(flyt_order_send_back_args, flyt_outcome), make_back, take_back},
    {FLYT_ORDER_MIGRATION, "move programs", ANSWER_MS, XDR(flyt_order_migration_args, flyt_order_migration_res),
     make_question, take_asked},
    {FLYT_ORDER_APPLY, NULL, 0, XDR(flyt_apply_args, flyt_apply_res), make_removal, take_released},
};

static const struct order *order_of(unsigned procedure)
{
    const struct order *order = orders;

    while (order->procedure != procedure)
        order++;
    return order;
}

struct calling {
    struct flyt_cluster *cluster;
    const struct order *order;
    uint64_t allocation_id, id;
    unsigned side;
    bool is_cancel;
};

static int call_node(struct flyt_node *node, const struct order *order, const void *args, flyt_call_done_fn done,
                     void *user)
{
    if (!node->is_registered || !node->link)
        return -ENOTCONN;
    return flyt_peer_call(node->link->peer, FLYT_ORDER_PROGRAM, FLYT_ORDER_VERSION, order->procedure, order->xdr_args,
                          args, order->xdr_result, order->result_bytes,
                          order->timeout_ms ? order->timeout_ms : node->cluster->settings->order_ms, done, user);
}

/* The node could not be asked, or has not answered. */
static void not_answered(struct flyt_migration *migration, const struct calling *calling, int status)
{
    const struct flyt_node *node = migration->sides[calling->side].node;

    if (status == -ENOSYS && calling->order->task && !flyt_migration_is_moved(migration)) {
        not_taken(migration, calling->side);
        flyt_migration_note_failure(migration, FLYT_STATUS_NOT_SUPPORTED,
                                    "node %s (build %s) cannot %s: it is older than this cluster manager", node->key,
                                    node->build ? node->build : "?", calling->order->task);
        return;
    }
    if (calling->order->procedure != FLYT_ORDER_SEND) /* that is not known since it was ordered, or by its reports */
        set_standing(migration, calling->side, FLYT_STANDING_UNKNOWN);
    if (calling->order->procedure == FLYT_ORDER_RECEIVE)
        flyt_migration_note_failure(migration, FLYT_STATUS_UNAVAILABLE, "node %s did not answer: %s", node->key,
                                    strerror(-status));
}

/* Whether who asked for it is to hear now that it has begun. Within a node a cancellation may be too late from here on:
 * what comes of it is told elsewhere. */
static bool has_begun(const struct flyt_migration *migration, const struct calling *calling)
{
    const struct flyt_migration_way *way = &flyt_migration_ways[migration->is_between];

    if (calling->order->procedure != (way->follow ? way->follow : way->begin))
        return false;
    return migration->is_between ? !migration->failed_status
                                 : !flyt_standing_is_out(migration->sides[calling->side].standing);
}

static void answered(void *user, int status, void *result)
{
    const struct calling calling = *(struct calling *)user;
    struct flyt_cluster_allocation *allocation = flyt_allocation_find(calling.cluster, calling.allocation_id);
    struct flyt_migration *migration = allocation ? allocation->migration : NULL;

    free(user);
    if (!migration || migration->id != calling.id)
        return;
    migration->sides[calling.side].is_calling = false;
    migration->sides[calling.side].heard_ms = flyt_clock_ms();
    if (status)
        not_answered(migration, &calling, status);
    else
        calling.order->take(migration, calling.side, calling.is_cancel, result);
    if (has_begun(migration, &calling))
        flyt_migration_reply(allocation);
    flyt_allocation_look_soon(allocation);
}

/* One order at a time, and none again at once. */
static bool may_call(const struct flyt_migration_side *side, const struct order *order, bool is_cancel)
{
    bool is_same = side->called == order->procedure && side->was_cancel == is_cancel;

    return side->node->is_registered && !side->is_calling &&
           !(is_same && flyt_clock_ms() - side->called_ms < FLYT_MIGRATION_AGAIN_MS);
}

static int call_side(struct flyt_cluster_allocation *allocation, unsigned index, const struct order *order,
                     bool is_cancel, const struct order_args *args)
{
    struct flyt_migration_side *side = &allocation->migration->sides[index];
    struct calling *calling = calloc(1, sizeof *calling);

    if (!calling)
        return -ENOMEM;
    *calling =
        (struct calling){allocation->cluster, order, allocation->id, allocation->migration->id, index, is_cancel};
    int status = call_node(side->node, order, args, answered, calling);
    side->is_calling = !status;
    if (status)
        free(calling);
    return status;
}

bool flyt_migration_order(struct flyt_cluster_allocation *allocation, unsigned index, unsigned procedure,
                          bool is_cancel)
{
    const struct order *order = order_of(procedure);
    struct flyt_migration_side *side = &allocation->migration->sides[index];
    struct order_args args = {0};

    if (!may_call(side, order, is_cancel))
        return false;
    side->called = procedure;
    side->was_cancel = is_cancel;
    side->called_ms = side->heard_ms = flyt_clock_ms();
    int status = order->make(allocation, index, is_cancel, &args);
    if (!status)
        status = call_side(allocation, index, order, is_cancel, &args);
    if (args.wire)
        flyt_allocation_wire_free(args.wire);
    explicit_bzero(&args, sizeof args); /* the secret */
    return !status;
}

bool flyt_migration_order_begin(struct flyt_cluster_allocation *allocation, unsigned side, unsigned procedure)
{
    struct flyt_migration *migration = allocation->migration;

    if (flyt_migration_order(allocation, side, procedure, false))
        return true;
    flyt_migration_note_failure(migration, FLYT_STATUS_UNAVAILABLE, "node %s cannot be asked to %s: nothing was moved",
                                migration->sides[side].node->key, order_of(procedure)->task);
    return false;
}

void flyt_migration_ask(struct flyt_cluster_allocation *allocation, const struct flyt_node *node)
{
    const struct flyt_migration *migration = allocation->migration;

    for (unsigned i = 0; migration && migration->state >= FLYT_MOVE_UNDER_WAY && is_heard(migration) &&
                         i < flyt_migration_ways[migration->is_between].asked_count;
         i++)
        if (migration->sides[i].node == node)
            flyt_migration_order(allocation, i, FLYT_ORDER_MIGRATION, false);
}

/* ---- forgotten ---- */

static void ignored(void *user, int status, void *result)
{
    /* A node that has not heard it hears it when it registers. */
}

void flyt_migration_remove_strays(struct flyt_node *node, u_quad_t *ids, u_int count)
{
    const flyt_apply_args args = {.epoch = node->cluster->epoch, .removed = {.removed_len = count, .removed_val = ids}};

    call_node(node, order_of(FLYT_ORDER_APPLY), &args, ignored, NULL);
}

void flyt_migration_order_drop(struct flyt_cluster_allocation *allocation)
{
    struct order_args cancel;

    make_question(allocation, FLYT_MIGRATION_SOURCE, true, &cancel);
    for (unsigned i = 0; i < FLYT_MIGRATION_SIDES; i++) {
        struct flyt_node *node = allocation->migration->sides[i].node;
        call_node(node, order_of(FLYT_ORDER_MIGRATION), &cancel, ignored, NULL);
        flyt_migration_remove_strays(node, &(u_quad_t){allocation->id}, 1);
    }
}
