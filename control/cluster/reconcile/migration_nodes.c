/*
 * A migration between two nodes, from its orders to its end. Each word of a node, each answer and each write that has
 * ended leads to the next step that flyt_migration_next finds; what could not be said is said again, a second later or
 * when the node is back.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/base/peer.h"
#include "control/cluster/io/event.h"
#include "control/cluster/io/executor.h"
#include "control/cluster/io/grant.h"
#include "control/cluster/io/link.h"
#include "control/cluster/io/reply.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/migration_rules.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/slot.h"
#include "control/cluster/reconcile/migration.h"
#include "control/store/store.h"
#include "rpc/base/clock.h"

enum {
    SILENT_MS = 5000, /* a node that says nothing is asked */
    AGAIN_MS = 1000,  /* so soon, where it cannot say yet; and nothing is ordered twice within this */
    ANSWER_MS = 10000,
    SWITCH_MS = 5000, /* SWITCH is answered by then: the target takes 2 s at most, the source nothing */
    TIMEOUT_S = 3600, /* as nodes have it */
};

static const char *const side_tasks[FLYT_MIGRATION_SIDES] = {"send programs to another node",
                                                             "receive programs of another node"};

static struct flyt_migration_side *side_of(struct flyt_migration *migration, const struct flyt_node *node)
{
    return &migration->sides[migration->sides[FLYT_MIGRATION_SOURCE].node == node ? FLYT_MIGRATION_SOURCE
                                                                                  : FLYT_MIGRATION_TARGET];
}

/* It fails with this, unless it fails already. */
static void note_failure(struct flyt_migration *migration, flyt_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void note_failure(struct flyt_migration *migration, flyt_status status, const char *format, ...)
{
    va_list args;

    if (migration->failed_status)
        return;
    migration->failed_status = status ? status : FLYT_STATUS_UNAVAILABLE;
    va_start(args, format);
    vsnprintf(migration->reason, sizeof migration->reason, format, args);
    va_end(args);
}

static void hear(struct flyt_migration *migration, struct flyt_migration_side *side, flyt_status status,
                 const flyt_migration_use *use)
{
    bool is_source = side == &migration->sides[FLYT_MIGRATION_SOURCE];

    side->heard_ms = flyt_clock_ms();
    side->standing = flyt_migration_standing_of(status, use ? use->phase : 0,
                                                !is_source && flyt_migration_is_moved(migration) &&
                                                    side->has_registered && side->has_allocation);
    /* A source that has forgotten it and has the allocation: it was restarted before its programs left. */
    if (is_source && status == FLYT_STATUS_NOT_FOUND && side->has_registered && side->has_allocation)
        side->standing = FLYT_STANDING_FAILED;
    if (status == FLYT_STATUS_NOT_FOUND)
        note_failure(migration, FLYT_STATUS_UNAVAILABLE,
                     "node %s knows nothing of it: the order did not reach it, or it was restarted", side->node->key);
    if (status != FLYT_STATUS_OK || !use)
        return;
    /* Programs that have left stand still no shorter than they did: where they seem to, the node was restarted, and has
     * lost what it knew. */
    if (!flyt_migration_is_moved(migration) || use->standstill_us >= side->use.standstill_us) {
        side->use = *use;
        side->use_us = flyt_clock_ns() / 1000;
    }
    side->use.phase = use->phase;
    side->use.outcome.status = use->outcome.status;
    side->use.outcome.text = NULL;
    if (is_source && migration->state != FLYT_MOVE_RELEASING)
        migration->use = side->use;
    if (side->standing == FLYT_STANDING_FAILED)
        note_failure(migration, use->outcome.status, "%s",
                     use->outcome.text && *use->outcome.text ? use->outcome.text : "the node does not say why");
}

/* ---- calls ---- */

struct calling {
    struct flyt_cluster *cluster;
    uint64_t allocation_id, id;
    unsigned side, procedure;
    bool is_cancel;
};

/* What a procedure takes and gives; every result begins with an outcome. */
struct order_kind {
    unsigned procedure;
    xdrproc_t xdr_args, xdr_result;
    size_t result_bytes;
};

static const struct order_kind receive_kind = {FLYT_ORDER_RECEIVE, (xdrproc_t)xdr_flyt_order_receive_args,
                                               (xdrproc_t)xdr_flyt_outcome, sizeof(flyt_outcome)},
                               send_kind = {FLYT_ORDER_SEND, (xdrproc_t)xdr_flyt_order_send_args,
                                            (xdrproc_t)xdr_flyt_outcome, sizeof(flyt_outcome)},
                               switch_kind = {FLYT_ORDER_SWITCH, (xdrproc_t)xdr_flyt_order_switch_args,
                                              (xdrproc_t)xdr_flyt_order_migration_res,
                                              sizeof(flyt_order_migration_res)},
                               back_kind = {FLYT_ORDER_SEND_BACK, (xdrproc_t)xdr_flyt_order_send_back_args,
                                            (xdrproc_t)xdr_flyt_outcome, sizeof(flyt_outcome)},
                               ask_kind = {FLYT_ORDER_MIGRATION, (xdrproc_t)xdr_flyt_order_migration_args,
                                           (xdrproc_t)xdr_flyt_order_migration_res, sizeof(flyt_order_migration_res)},
                               apply_kind = {FLYT_ORDER_APPLY, (xdrproc_t)xdr_flyt_apply_args,
                                             (xdrproc_t)xdr_flyt_apply_res, sizeof(flyt_apply_res)};

static void answered(void *user, int status, void *result);
static void end_done(struct flyt_cluster_allocation *allocation);

static int call_node(struct flyt_node *node, const struct order_kind *kind, const void *args, uint64_t timeout_ms,
                     flyt_call_done_fn done, void *user)
{
    if (!node->is_registered || !node->link)
        return -ENOTCONN;
    return flyt_peer_call(node->link->peer, FLYT_ORDER_PROGRAM, FLYT_ORDER_VERSION, kind->procedure, kind->xdr_args,
                          args, kind->xdr_result, kind->result_bytes, timeout_ms, done, user);
}

/* Whether this order may be given now: one at a time, and none again at once. */
static bool may_call(const struct flyt_migration_side *side, unsigned procedure, bool is_cancel)
{
    bool is_same = side->called == procedure && side->was_cancel == is_cancel;

    return side->node->is_registered && !side->is_calling && !(is_same && flyt_clock_ms() - side->called_ms < AGAIN_MS);
}

/* 0, or why it was not given. `answered` says what comes of it. */
static int call_side(struct flyt_cluster_allocation *allocation, unsigned index, const struct order_kind *kind,
                     bool is_cancel, const void *args, uint64_t timeout_ms)
{
    struct flyt_migration_side *side = &allocation->migration->sides[index];
    struct calling *calling = calloc(1, sizeof *calling);

    side->called = kind->procedure;
    side->was_cancel = is_cancel;
    side->called_ms = side->heard_ms = flyt_clock_ms();
    if (!calling)
        return -ENOMEM;
    *calling = (struct calling){allocation->cluster, allocation->id, allocation->migration->id, index,
                                kind->procedure,     is_cancel};
    int status = call_node(side->node, kind, args, timeout_ms, answered, calling);
    side->is_calling = !status;
    if (status)
        free(calling);
    return status;
}

static void ask(struct flyt_cluster_allocation *allocation, unsigned index, bool is_cancel)
{
    const flyt_order_migration_args args = {
        .epoch = allocation->cluster->epoch, .migration_id = allocation->migration->id, .cancel = is_cancel};

    if (may_call(&allocation->migration->sides[index], FLYT_ORDER_MIGRATION, is_cancel))
        call_side(allocation, index, &ask_kind, is_cancel, &args, ANSWER_MS);
}

static void order_switch(struct flyt_cluster_allocation *allocation, unsigned index)
{
    const struct flyt_migration *migration = allocation->migration;
    const flyt_order_switch_args args = {
        .epoch = allocation->cluster->epoch,
        .migration_id = migration->id,
        .session_count = migration->sides[FLYT_MIGRATION_SOURCE].use.session_count,
    };

    if (!may_call(&migration->sides[index], FLYT_ORDER_SWITCH, false))
        return;
    if (index == FLYT_MIGRATION_SOURCE)
        allocation->migration->switched_us = flyt_clock_ns() / 1000;
    call_side(allocation, index, &switch_kind, false, &args, SWITCH_MS);
}

static void order_back(struct flyt_cluster_allocation *allocation)
{
    struct flyt_migration *migration = allocation->migration;
    const flyt_order_send_back_args args = {
        .epoch = allocation->cluster->epoch, .migration_id = migration->id, .reason = migration->reason};

    if (may_call(&migration->sides[FLYT_MIGRATION_SOURCE], FLYT_ORDER_SEND_BACK, false))
        call_side(allocation, FLYT_MIGRATION_SOURCE, &back_kind, false, &args, allocation->cluster->settings->order_ms);
}

static flyt_apply_args removal(const struct flyt_cluster_allocation *allocation, u_quad_t *id)
{
    *id = allocation->id;
    return (flyt_apply_args){.epoch = allocation->cluster->epoch, .removed = {.removed_len = 1, .removed_val = id}};
}

/* ---- to both nodes ---- */

static void order_send(struct flyt_cluster_allocation *allocation)
{
    struct flyt_migration *migration = allocation->migration;
    const struct flyt_node *target = migration->sides[FLYT_MIGRATION_TARGET].node;
    flyt_order_send_args args = {
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

    memcpy(args.secret, migration->secret, sizeof args.secret);
    explicit_bzero(migration->secret, sizeof migration->secret);
    flyt_migration_set_state(migration, FLYT_MOVE_SENT);
    if (migration->is_cancelled || migration->failed_status) {
        flyt_allocation_look_soon(allocation);
    } else if (call_side(allocation, FLYT_MIGRATION_SOURCE, &send_kind, false, &args,
                         allocation->cluster->settings->order_ms)) {
        note_failure(migration, FLYT_STATUS_UNAVAILABLE, "node %s is not connected any more: nothing was moved",
                     migration->sides[FLYT_MIGRATION_SOURCE].node->key);
        flyt_allocation_look_soon(allocation);
    } else { /* until it has answered; so far it knew nothing of it */
        migration->sides[FLYT_MIGRATION_SOURCE].standing = FLYT_STANDING_UNKNOWN;
    }
    explicit_bzero(args.secret, sizeof args.secret);
}

void flyt_migration_nodes_order(struct flyt_cluster_allocation *allocation)
{
    struct flyt_migration *migration = allocation->migration;
    struct flyt_migration_side *target = &migration->sides[FLYT_MIGRATION_TARGET];
    flyt_order_receive_args args = {
        .epoch = allocation->cluster->epoch,
        .migration_id = migration->id,
        .timeout_s = migration->bounds.timeout_s ? migration->bounds.timeout_s : TIMEOUT_S,
        .is_encrypted = migration->is_encrypted,
    };
    char text[256];

    migration->revision = allocation->revision + 1;
    migration->sides[FLYT_MIGRATION_SOURCE].standing = target->standing = FLYT_STANDING_ABSENT;
    int status = flyt_allocation_wire_parts(allocation, migration->others, &args.allocation);
    if (!status) {
        args.allocation.revision = migration->revision;
        memcpy(args.secret, migration->secret, sizeof args.secret);
        status = call_side(allocation, FLYT_MIGRATION_TARGET, &receive_kind, false, &args,
                           allocation->cluster->settings->order_ms);
        explicit_bzero(args.secret, sizeof args.secret);
        flyt_allocation_wire_free(&args.allocation);
    }
    if (!status) {
        flyt_migration_set_state(migration, FLYT_MOVE_ORDERED);
        return;
    }
    snprintf(text, sizeof text, "node %.100s cannot be asked to receive them: nothing was moved", target->node->key);
    flyt_migration_fail(allocation, FLYT_STATUS_UNAVAILABLE, text);
}

/* ---- answers ---- */

/* The node could not be asked, or has not answered. */
static void not_answered(struct flyt_migration *migration, const struct calling *calling, int status)
{
    struct flyt_migration_side *side = &migration->sides[calling->side];
    bool is_beginning = calling->procedure == FLYT_ORDER_RECEIVE || calling->procedure == FLYT_ORDER_SEND;

    if (status == -EPROTO && is_beginning) {
        side->standing = FLYT_STANDING_ABSENT;
        note_failure(migration, FLYT_STATUS_NOT_SUPPORTED,
                     "node %s (build %s) cannot %s: it is older than this cluster manager", side->node->key,
                     side->node->build ? side->node->build : "?", side_tasks[calling->side]);
        return;
    }
    if (calling->procedure != FLYT_ORDER_SEND) /* that is not known since it was ordered, or by its reports */
        side->standing = FLYT_STANDING_UNKNOWN;
    if (calling->procedure == FLYT_ORDER_RECEIVE)
        note_failure(migration, FLYT_STATUS_UNAVAILABLE, "node %s did not answer: %s", side->node->key,
                     strerror(-status));
}

/* To RECEIVE or SEND. A node that has said meanwhile how far it is stands where it said. */
static void take_begun(struct flyt_migration *migration, struct flyt_migration_side *side, const flyt_outcome *outcome)
{
    if (outcome->status != FLYT_STATUS_OK) {
        side->standing = FLYT_STANDING_ABSENT;
        note_failure(migration, outcome->status, "node %s refused: %.400s", side->node->key, outcome->text);
    } else if (side->standing == FLYT_STANDING_ABSENT || side->standing == FLYT_STANDING_UNKNOWN) {
        side->standing = FLYT_STANDING_COPYING;
    }
}

static void take_switched(struct flyt_migration *migration, struct flyt_migration_side *side,
                          const flyt_order_migration_res *res)
{
    bool is_source = side == &migration->sides[FLYT_MIGRATION_SOURCE];
    flyt_status status = res->outcome.status;

    if (status == FLYT_STATUS_OK) {
        hear(migration, side, FLYT_STATUS_OK, &res->use);
        if (side->standing == FLYT_STANDING_COPYING || side->standing == FLYT_STANDING_ARRIVED)
            side->standing = FLYT_STANDING_SWITCHED;
        if (!is_source && !migration->opened_us)
            migration->opened_us = flyt_clock_ns() / 1000;
        return;
    }
    note_failure(migration, status, "node %s: %.400s", side->node->key,
                 *res->outcome.text ? res->outcome.text : "it does not say why it cannot switch");
    if (status == FLYT_STATUS_NOT_FOUND)
        hear(migration, side, status, NULL);
    else if (status == FLYT_STATUS_CONFLICT && is_source)
        side->standing = FLYT_STANDING_FAILED; /* its programs go on there */
    else if (status == FLYT_STATUS_CONFLICT)
        hear(migration, side, FLYT_STATUS_OK, &res->use);
    else
        side->standing = FLYT_STANDING_UNKNOWN;
}

static void take_back(struct flyt_migration_side *side, const flyt_outcome *outcome)
{
    side->standing = outcome->status == FLYT_STATUS_OK || outcome->status == FLYT_STATUS_CONFLICT ? FLYT_STANDING_FAILED
                     : outcome->status == FLYT_STATUS_NOT_FOUND                                   ? FLYT_STANDING_ABSENT
                                                                : FLYT_STANDING_UNKNOWN;
}

static void take_answer(struct flyt_cluster_allocation *allocation, const struct calling *calling, const void *result)
{
    struct flyt_migration *migration = allocation->migration;
    struct flyt_migration_side *side = &migration->sides[calling->side];
    const flyt_outcome *outcome = result;
    const flyt_order_migration_res *res = result;

    side->heard_ms = flyt_clock_ms();
    switch (calling->procedure) {
    case FLYT_ORDER_RECEIVE:
    case FLYT_ORDER_SEND:
        take_begun(migration, side, outcome);
        break;
    case FLYT_ORDER_SWITCH:
        take_switched(migration, side, res);
        break;
    case FLYT_ORDER_SEND_BACK:
        take_back(side, outcome);
        break;
    case FLYT_ORDER_MIGRATION:
        /* Too late to be cancelled: what it says then is how far it is. */
        hear(migration, side,
             outcome->status == FLYT_STATUS_CONFLICT && calling->is_cancel ? FLYT_STATUS_OK : outcome->status,
             &res->use);
        /* What it had when it registered is from before: it is to say it anew. */
        if (side->standing == FLYT_STANDING_ABSENT && flyt_migration_is_moved(migration) &&
            calling->side == FLYT_MIGRATION_TARGET && !side->has_registered) {
            side->standing = FLYT_STANDING_UNKNOWN;
            if (side->node->link)
                flyt_link_close(side->node->link, "it knows nothing of a migration that it was ordered");
        }
        break;
    default:
        break;
    }
}

static void answered(void *user, int status, void *result)
{
    struct calling calling = *(struct calling *)user;
    struct flyt_cluster_allocation *allocation = flyt_allocation_find(calling.cluster, calling.allocation_id);
    const flyt_outcome *outcome = result;

    free(user);
    if (!allocation || !allocation->migration || allocation->migration->id != calling.id)
        return;
    struct flyt_migration *migration = allocation->migration;
    migration->sides[calling.side].is_calling = false;
    if (calling.procedure == FLYT_ORDER_APPLY) { /* the source has let go of it, or is told again */
        if (!status && outcome->status == FLYT_STATUS_OK)
            end_done(allocation);
        return;
    }
    if (status)
        not_answered(migration, &calling, status);
    else
        take_answer(allocation, &calling, result);
    if (calling.procedure == FLYT_ORDER_RECEIVE) {
        order_send(allocation);
        return;
    }
    if (calling.procedure == FLYT_ORDER_SEND && !migration->failed_status)
        flyt_migration_reply(allocation);
    flyt_allocation_look_soon(allocation);
}

void flyt_migration_nodes_heard(struct flyt_cluster_allocation *allocation, const struct flyt_node *node,
                                const flyt_migration_use *use)
{
    hear(allocation->migration, side_of(allocation->migration, node), FLYT_STATUS_OK, use);
    flyt_allocation_look_soon(allocation);
}

void flyt_migration_nodes_ask(struct flyt_cluster_allocation *allocation, const struct flyt_node *node)
{
    struct flyt_migration *migration = allocation->migration;

    for (unsigned i = 0; migration->state >= FLYT_MOVE_SENT && i < FLYT_MIGRATION_SIDES; i++)
        if (!node || migration->sides[i].node == node)
            ask(allocation, i, false);
}

void flyt_migration_nodes_registered(struct flyt_cluster_allocation *allocation, const struct flyt_node *node,
                                     const flyt_allocation *wire)
{
    struct flyt_migration_side *side = side_of(allocation->migration, node);

    side->has_registered = true;
    side->has_allocation = wire != NULL;
    if (allocation->migration->state >= FLYT_MOVE_SENT)
        side->standing = FLYT_STANDING_UNKNOWN;
}

/* ---- the documents change sides ---- */

static void change_sides(struct flyt_cluster_allocation *allocation, bool is_moved)
{
    struct flyt_migration *migration = allocation->migration;
    struct flyt_migration_side *side = &migration->sides[is_moved ? FLYT_MIGRATION_TARGET : FLYT_MIGRATION_SOURCE];
    struct flyt_cluster_slot slots[FLYT_SLOTS_MAX];
    size_t bytes = allocation->slot_count * sizeof *slots;

    memcpy(slots, allocation->slots, bytes);
    memcpy(allocation->slots, migration->others, bytes);
    memcpy(migration->others, slots, bytes);
    allocation->node = side->node;
    allocation->is_gone = false; /* that is what the other node said */
    allocation->applied_revision = is_moved ? migration->revision : migration->source_revision;
    migration->source_revision = allocation->revision;
    if (allocation->revision < migration->revision)
        allocation->revision = migration->revision;
    allocation->revision++;
    flyt_migration_set_state(migration, is_moved ? FLYT_MOVE_TO_TARGET : FLYT_MOVE_TO_SOURCE);
    side->has_registered = false;
    flyt_migration_count(allocation);
    flyt_migration_write(allocation);
}

static void undo(struct flyt_cluster_allocation *allocation)
{
    struct flyt_migration *migration = allocation->migration;

    note_failure(migration, FLYT_STATUS_UNAVAILABLE, "node %s has not taken them",
                 migration->sides[FLYT_MIGRATION_TARGET].node->key);
    flyt_event_add(allocation->cluster, "migration.back", "manager", allocation->vm_ip, NULL,
                   flyt_migration_json(migration), "VM %s goes back from %s to %s: %s", allocation->vm_ip,
                   migration->target, migration->source, migration->reason);
    change_sides(allocation, false);
}

/* The VM hears where its programs are as soon as they can have left. */
static void tell(struct flyt_cluster_allocation *allocation)
{
    struct flyt_migration *migration = allocation->migration;
    const struct flyt_migration_side *source = &migration->sides[FLYT_MIGRATION_SOURCE],
                                     *target = &migration->sides[FLYT_MIGRATION_TARGET];
    bool is_lost = !source->node->is_registered &&
                   flyt_clock_ms() - source->node->last_heard_ms > allocation->cluster->settings->node_lost_ms;
    bool have_left = source->standing == FLYT_STANDING_SWITCHED || source->standing == FLYT_STANDING_DONE ||
                     source->standing == FLYT_STANDING_ABSENT || target->standing == FLYT_STANDING_DONE || is_lost;

    if (migration->state != FLYT_MOVE_COMMITTED || !have_left)
        return;
    flyt_migration_set_state(migration, FLYT_MOVE_LEFT);
    if (allocation->vm)
        flyt_vm_tell(allocation->vm, "its programs have moved to another node");
    flyt_allocation_look_soon(allocation);
}

/* ---- the end ---- */

/* Until when the source has counted, as far as is known: it was told to let its programs go, or has said nothing since,
 * and was restarted. 0: it has said nothing. */
static uint64_t counted_until_us(const struct flyt_migration *migration)
{
    uint64_t use_us = migration->sides[FLYT_MIGRATION_SOURCE].use_us;

    return migration->switched_us && migration->switched_us < use_us ? migration->switched_us : use_us;
}

/*
 * From when its programs were told to stop until the last one went on: what both nodes have measured, less the time in
 * which both have, the target having let programs in already and the source not yet let them go; or with the time in
 * which neither has, the source's node manager having died with what it had counted. No less than it was.
 */
static void sum_up(struct flyt_migration *migration)
{
    const flyt_migration_use *source = &migration->sides[FLYT_MIGRATION_SOURCE].use,
                             *target = &migration->sides[FLYT_MIGRATION_TARGET].use;
    uint64_t until_us = counted_until_us(migration), opened_us = migration->opened_us;
    uint64_t both_us = opened_us && until_us > opened_us ? until_us - opened_us : 0;
    uint64_t neither_us = until_us && opened_us > until_us ? opened_us - until_us : 0;
    uint64_t sum_us = source->standstill_us + neither_us + target->standstill_us;
    uint64_t least_us = source->standstill_us > target->standstill_us ? source->standstill_us : target->standstill_us;

    migration->use = source->session_count ? *source : *target;
    migration->has_figures = source->session_count ? source->standstill_us > 0 : !target->session_count;
    migration->use.standstill_us = sum_us > both_us + least_us ? sum_us - both_us : least_us;
    if (migration->use.elapsed_ms < target->elapsed_ms)
        migration->use.elapsed_ms = target->elapsed_ms;
    migration->use.phase = FLYT_MIGRATION_DONE;
    migration->use.outcome.status = migration->failed_status = FLYT_STATUS_OK;
    migration->reason[0] = '\0';
}

static void end_done(struct flyt_cluster_allocation *allocation)
{
    allocation->migration->reason[0] = '\0';
    flyt_migration_end(allocation);
}

void flyt_migration_nodes_release(struct flyt_cluster_allocation *allocation)
{
    struct flyt_migration *migration = allocation->migration;
    struct flyt_migration_side *source = &migration->sides[FLYT_MIGRATION_SOURCE];
    u_quad_t id;
    const flyt_apply_args args = removal(allocation, &id);

    if (migration->state != FLYT_MOVE_RELEASING) {
        sum_up(migration);
        flyt_migration_set_state(migration, FLYT_MOVE_RELEASING);
    }
    if (source->node->is_fenced) {
        end_done(allocation);
        return;
    }
    if (!source->node->is_registered)
        snprintf(migration->reason, sizeof migration->reason,
                 "its programs go on there; what it had on node %.100s, which is not connected, is freed when that is "
                 "back",
                 source->node->key);
    if (may_call(source, FLYT_ORDER_APPLY, false))
        call_side(allocation, FLYT_MIGRATION_SOURCE, &apply_kind, false, &args,
                  allocation->cluster->settings->order_ms);
}

static void end_failed(struct flyt_cluster_allocation *allocation)
{
    struct flyt_migration *migration = allocation->migration;
    char text[sizeof migration->reason];

    snprintf(text, sizeof text, "%s", migration->reason);
    flyt_migration_fail(allocation, migration->failed_status, text);
}

/* Who asked hears that it has failed; the source is to have what was held back while its programs moved. */
static void withdraw(struct flyt_cluster_allocation *allocation)
{
    struct flyt_migration *migration = allocation->migration;

    note_failure(migration, FLYT_STATUS_UNAVAILABLE, "node %s is not connected any more",
                 migration->sides[FLYT_MIGRATION_TARGET].node->key);
    migration->use.phase = FLYT_MIGRATION_FAILED;
    if (migration->call)
        flyt_call_outcome(migration->call, migration->failed_status, "%s", migration->reason);
    migration->call = NULL;
    flyt_migration_set_state(migration, FLYT_MOVE_WITHDRAWN);
    flyt_allocation_order(allocation);
}

/* ---- steps ---- */

/* A node that may have something of it and says nothing is asked. */
static void ask_silent(struct flyt_cluster_allocation *allocation)
{
    const struct flyt_migration *migration = allocation->migration;
    uint64_t now_ms = flyt_clock_ms();

    for (unsigned i = 0; i < FLYT_MIGRATION_SIDES; i++) {
        const struct flyt_migration_side *side = &migration->sides[i];
        uint64_t limit_ms = side->standing == FLYT_STANDING_UNKNOWN ? AGAIN_MS : SILENT_MS;
        if (!flyt_standing_is_out(side->standing) && now_ms - side->heard_ms >= limit_ms)
            ask(allocation, i, false);
    }
}

/* A side that was fenced has nothing of it, also where whoever led before has fenced it. */
static void note_fenced(struct flyt_cluster_allocation *allocation)
{
    struct flyt_migration *migration = allocation->migration;

    for (unsigned i = 0; i < FLYT_MIGRATION_SIDES; i++)
        if (migration->sides[i].node->is_fenced)
            migration->sides[i].standing = FLYT_STANDING_ABSENT;
    allocation->is_gone |= !flyt_migration_is_moved(migration) && allocation->node->is_fenced;
}

void flyt_migration_nodes_compare(struct flyt_cluster_allocation *allocation)
{
    struct flyt_migration *migration = allocation->migration;
    struct flyt_migration_side *sides = migration->sides;

    note_fenced(allocation);
    ask_silent(allocation);
    tell(allocation);
    switch (flyt_migration_next(flyt_migration_is_moved(migration), migration->is_cancelled || migration->failed_status,
                                sides[FLYT_MIGRATION_SOURCE].standing, sides[FLYT_MIGRATION_TARGET].standing,
                                sides[FLYT_MIGRATION_TARGET].node->is_registered)) {
    case FLYT_STEP_WAIT:
        break;
    case FLYT_STEP_SWITCH_TARGET:
        order_switch(allocation, FLYT_MIGRATION_TARGET);
        break;
    case FLYT_STEP_COMMIT:
        change_sides(allocation, true);
        break;
    case FLYT_STEP_SWITCH_SOURCE:
        order_switch(allocation, FLYT_MIGRATION_SOURCE);
        break;
    case FLYT_STEP_FINISH:
        flyt_migration_nodes_release(allocation);
        break;
    case FLYT_STEP_CANCEL_SOURCE:
        ask(allocation, FLYT_MIGRATION_SOURCE, true);
        break;
    case FLYT_STEP_CANCEL_TARGET:
        ask(allocation, FLYT_MIGRATION_TARGET, true);
        break;
    case FLYT_STEP_UNDO:
        undo(allocation);
        break;
    case FLYT_STEP_SEND_BACK:
        order_back(allocation);
        break;
    case FLYT_STEP_WITHDRAW:
        withdraw(allocation);
        break;
    case FLYT_STEP_END:
        end_failed(allocation);
        break;
    }
}

void flyt_migration_nodes_cancel(struct flyt_migration *migration)
{
    if (!migration->failed_status)
        migration->failed_status = FLYT_STATUS_CONFLICT; /* `reason` is why */
}

bool flyt_migration_nodes_fenced(struct flyt_cluster_allocation *allocation, const struct flyt_node *node)
{
    struct flyt_migration *migration = allocation->migration;
    struct flyt_migration_side *side = side_of(migration, node);
    const struct flyt_migration_side *source = &migration->sides[FLYT_MIGRATION_SOURCE];

    if (migration->state < FLYT_MOVE_SENT || (migration->state == FLYT_MOVE_RELEASING && side != source))
        return allocation->node != node;
    side->standing = FLYT_STANDING_ABSENT;
    note_failure(migration, FLYT_STATUS_UNAVAILABLE, "node %s was fenced", node->key);
    bool stays = side == source ? flyt_migration_is_moved(migration)
                                : !(flyt_migration_is_moved(migration) && source->standing == FLYT_STANDING_ABSENT);
    if (stays)
        flyt_allocation_look_soon(allocation);
    return stays;
}

/* ---- forgotten ---- */

static void ignored(void *user, int status, void *result)
{
    /* A node that has not heard it hears it when it registers. */
}

void flyt_migration_remove_strays(struct flyt_node *node, u_quad_t *ids, u_int count)
{
    const flyt_apply_args args = {.epoch = node->cluster->epoch, .removed = {.removed_len = count, .removed_val = ids}};

    call_node(node, &apply_kind, &args, node->cluster->settings->order_ms, ignored, NULL);
}

void flyt_migration_nodes_drop(const struct flyt_cluster_allocation *allocation)
{
    const struct flyt_migration *migration = allocation->migration;
    const flyt_order_migration_args cancel = {
        .epoch = allocation->cluster->epoch, .migration_id = migration->id, .cancel = true};

    for (unsigned i = 0; i < FLYT_MIGRATION_SIDES; i++) {
        struct flyt_node *node = migration->sides[i].node;
        call_node(node, &ask_kind, &cancel, ANSWER_MS, ignored, NULL);
        flyt_migration_remove_strays(node, &(u_quad_t){allocation->id}, 1);
    }
}
