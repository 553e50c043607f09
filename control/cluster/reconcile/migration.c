/* The way of a migration: recorded, ordered to its node, followed, and its end (migration.h says how). Between nodes
 * it is migration_nodes.c's, but for its beginning and its end. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "control/base/peer.h"
#include "control/cluster/io/event.h"
#include "control/cluster/io/executor.h"
#include "control/cluster/io/grant.h"
#include "control/cluster/io/keep.h"
#include "control/cluster/io/link.h"
#include "control/cluster/io/migration_document.h"
#include "control/cluster/io/reply.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/migration_rules.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/part.h"
#include "control/cluster/model/text.h"
#include "control/cluster/model/vm.h"
#include "control/cluster/reconcile/migration.h"
#include "control/cluster/reconcile/resize.h"
#include "control/store/store.h"
#include "rpc/base/clock.h"

enum {
    SILENT_MS = 5000, /* a node that says nothing of one is asked */
    AGAIN_MS = 1000,  /* so soon, where it cannot say yet */
    ASK_MS = 10000,   /* and answers within this */
};

static bool is_part_of(const struct flyt_held *held, const struct flyt_card *card)
{
    for (unsigned i = 0; i < held->part_count; i++)
        if (held->parts[i].card == card)
            return true;
    return false;
}

static void count_all(const struct flyt_held *held, const struct flyt_migration *migration)
{
    for (unsigned i = 0; i < held->part_count; i++) {
        if (held->parts[i].card)
            flyt_gpu_count(held->parts[i].card);
        if (migration->others[i].card)
            flyt_gpu_count(migration->others[i].card);
    }
}

void flyt_migration_count(const struct flyt_held *held)
{
    count_all(held, held->migration);
}

/* It is the allocation's no more: what `others` has is free, its documents are written without it. */
static void let_go(struct flyt_held *held, struct flyt_migration *migration, bool is_written)
{
    flyt_held_charge(held, false);
    held->migration = NULL;
    flyt_held_charge(held, true);
    for (unsigned i = 0; i < held->part_count; i++) {
        struct flyt_card *card = migration->others[i].card;
        if (card && !is_part_of(held, card)) {
            flyt_gpu_detach(card, held);
            if (is_written)
                flyt_kept_change(card->kept, NULL);
        }
    }
    count_all(held, migration);
}

/* It is over, and held->migration with it: whoever waits for that sees it (moved_status). */
static void end(struct flyt_held *held, struct flyt_migration *migration, flyt_status status)
{
    migration->ended_ms = flyt_wall_ms();
    flyt_migration_tell_end(migration);
    if (migration->call)
        flyt_call_outcome(migration->call, status, "%s", migration->reason);
    migration->call = NULL;
    held->moved_status = status;
    flyt_text_set(&held->moved_text, migration->reason);
    flyt_migration_free(migration);
    flyt_held_write_and_order(held);
    flyt_held_look_soon(held);
}

static void set_reason(struct flyt_migration *migration, const char *text)
{
    snprintf(migration->reason, sizeof migration->reason, "%s", text);
}

/* All stays as it was. */
void flyt_migration_fail(struct flyt_held *held, flyt_status status, const char *text)
{
    struct flyt_migration *migration = held->migration;

    let_go(held, migration, true);
    migration->use.phase = FLYT_MIGRATION_FAILED;
    migration->use.outcome.status = status ? status : FLYT_STATUS_UNAVAILABLE;
    set_reason(migration, *text ? text : "the node does not say why");
    if (migration->state >= FLYT_MOVE_ORDERED) {
        /* The node may hold that revision for another state: the present one gets a number of its own. */
        if (held->revision < migration->revision)
            held->revision = migration->revision;
        held->revision++;
    }
    end(held, migration, migration->use.outcome.status);
}

void flyt_migration_end(struct flyt_held *held)
{
    struct flyt_migration *migration = held->migration;

    let_go(held, migration, true);
    end(held, migration, FLYT_STATUS_OK);
}

/* ---- it has moved ---- */

void flyt_migration_write(struct flyt_held *held)
{
    held->migration->write_ms = flyt_clock_ms();
    held->migration->write = flyt_held_write(held);
}

/* Its documents are to be the target's. */
static void settle(struct flyt_held *held)
{
    struct flyt_migration *migration = held->migration;
    struct flyt_part parts[FLYT_SLOTS_MAX];
    size_t bytes = held->part_count * sizeof *parts;

    memcpy(parts, held->parts, bytes);
    memcpy(held->parts, migration->others, bytes);
    memcpy(migration->others, parts, bytes);
    flyt_migration_set_state(migration, FLYT_MOVE_TO_TARGET);
    migration->source_revision = held->revision;
    if (held->revision < migration->revision)
        held->revision = migration->revision;
    held->revision++;
    migration->use.phase = FLYT_MIGRATION_DONE;
    migration->use.outcome.status = FLYT_STATUS_OK;
    count_all(held, migration);
    flyt_migration_write(held);
}

/* ---- what the node says ---- */

static void take_use(struct flyt_migration *migration, const flyt_migration_use *use)
{
    migration->use = *use;
    migration->use.outcome.text = NULL;
    migration->has_figures = use->phase == FLYT_MIGRATION_DONE;
    set_reason(migration, use->outcome.text ? use->outcome.text : "");
}

/* What it has registered may be from before: it is to say it anew. */
static void have_it_register(struct flyt_held *held)
{
    if (held->node->link)
        flyt_link_close(held->node->link, "it knows nothing of a migration that it was ordered");
}

static void look_at_answer(struct flyt_held *held, flyt_status status, const flyt_migration_use *use)
{
    struct flyt_migration *migration = held->migration;
    enum flyt_migration_verdict verdict =
        flyt_migration_judge(status, use ? use->phase : 0, migration->is_registered_there);
    bool is_forgotten = status == FLYT_STATUS_NOT_FOUND;
    char text[512];

    migration->heard_ms = flyt_clock_ms();
    if (verdict == FLYT_MIGRATION_UNKNOWN)
        migration->heard_ms -= SILENT_MS - AGAIN_MS;
    if (flyt_migration_is_moved(migration))
        return;
    if (is_forgotten && !migration->has_registered) {
        have_it_register(held);
        return;
    }
    if (use && status == FLYT_STATUS_OK)
        take_use(migration, use);
    if (verdict == FLYT_MIGRATION_HAS_MOVED) {
        settle(held);
    } else if (verdict == FLYT_MIGRATION_HAS_STAYED && is_forgotten) {
        snprintf(text, sizeof text,
                 "node %s knows nothing of it: the order did not reach it, or it was restarted; the programs are where "
                 "they were",
                 held->node->key);
        flyt_migration_fail(held, FLYT_STATUS_UNAVAILABLE, text);
    } else if (verdict == FLYT_MIGRATION_HAS_STAYED) {
        snprintf(text, sizeof text, "%s", migration->reason);
        flyt_migration_fail(held, migration->use.outcome.status, text);
    }
}

void flyt_serve_node_migration(struct flyt_call *call, void *data)
{
    const flyt_migration_use *use = data;
    struct flyt_node *node = flyt_call_link(call)->node;

    if (!node || !node->is_registered) {
        flyt_call_outcome(call, FLYT_STATUS_NOT_FOUND, "register again");
        return;
    }
    struct flyt_held *held = flyt_held_find(node->cluster, use->allocation_id);
    bool is_known = held && held->migration && held->migration->id == use->id &&
                    (held->migration->is_between ? flyt_migration_is_on(held, node) : held->node == node);
    if (!is_known) {
        flyt_call_outcome(call, FLYT_STATUS_NOT_FOUND, "there is no migration %016" PRIx64 " of allocation %016" PRIx64,
                          (uint64_t)use->id, (uint64_t)use->allocation_id);
        return;
    }
    if (held->migration->is_between)
        flyt_migration_nodes_heard(held, node, use);
    else
        look_at_answer(held, FLYT_STATUS_OK, use);
    flyt_call_outcome(call, FLYT_STATUS_OK, "%s", ""); /* `use` is the call's */
}

/* Of a call to the node about one: it may be over by the time of the answer. */
struct asking {
    struct flyt_cluster *cluster;
    uint64_t allocation_id, id;
};

static struct flyt_held *asked_of(struct asking *asking)
{
    struct flyt_held *held = flyt_held_find(asking->cluster, asking->allocation_id);

    return held && held->migration && held->migration->id == asking->id ? held : NULL;
}

static struct asking *asking_new(const struct flyt_held *held)
{
    struct asking *asking = calloc(1, sizeof *asking);

    if (asking)
        *asking = (struct asking){held->cluster, held->id, held->migration->id};
    return asking;
}

static void answered(void *user, int status, void *result)
{
    struct asking *asking = user;
    struct flyt_held *held = asked_of(asking);
    const flyt_order_migration_res *res = result;
    char text[256];

    free(asking);
    if (!held)
        return;
    held->migration->is_asking = false;
    held->migration->heard_ms = flyt_clock_ms();
    if (status == -EPROTO) {
        snprintf(text, sizeof text, "node %s (build %s) cannot move programs: it is older than this cluster manager",
                 held->node->key, held->node->build ? held->node->build : "?");
        flyt_migration_fail(held, FLYT_STATUS_NOT_SUPPORTED, text);
    } else if (!status) {
        if (res->outcome.status == FLYT_STATUS_CONFLICT)
            held->migration->is_cancelled = false; /* too late for that */
        look_at_answer(held, res->outcome.status, &res->use);
    }
}

static void ask(struct flyt_held *held)
{
    struct flyt_migration *migration = held->migration;
    struct flyt_node *node = held->node;

    if (!migration || migration->state < FLYT_MOVE_ORDERED || flyt_migration_is_moved(migration) ||
        migration->is_asking || !node->is_registered)
        return;
    const flyt_order_migration_args args = {
        .epoch = held->cluster->epoch, .migration_id = migration->id, .cancel = migration->is_cancelled};
    struct asking *asking = asking_new(held);
    migration->heard_ms = flyt_clock_ms();
    migration->is_asking = asking && !flyt_peer_call(node->link->peer, FLYT_ORDER_PROGRAM, FLYT_ORDER_VERSION,
                                                     FLYT_ORDER_MIGRATION, (xdrproc_t)xdr_flyt_order_migration_args,
                                                     &args, (xdrproc_t)xdr_flyt_order_migration_res,
                                                     sizeof(flyt_order_migration_res), ASK_MS, answered, asking);
    if (!migration->is_asking)
        free(asking);
}

void flyt_migration_ask(struct flyt_held *held, const struct flyt_node *node)
{
    if (held->migration && held->migration->is_between)
        flyt_migration_nodes_ask(held, node);
    else if (!node || held->node == node)
        ask(held);
}

void flyt_migration_registered(struct flyt_held *held, const struct flyt_node *node, const flyt_allocation *wire)
{
    struct flyt_migration *migration = held->migration;
    bool is_there = wire && wire->slots.slots_len == held->part_count;

    if (migration->is_between) {
        flyt_migration_nodes_registered(held, node, wire);
        return;
    }
    for (unsigned i = 0; is_there && i < held->part_count; i++) {
        const flyt_slot *slot = &wire->slots.slots_val[i];
        is_there = migration->others[i].card && !strcmp(slot->gpu_uuid, migration->others[i].card->key);
    }
    /* On the GPU where they were both are the same: the revision tells. */
    if (is_there && is_part_of(held, migration->others[0].card))
        is_there = migration->revision && wire->revision >= migration->revision;
    migration->is_registered_there = is_there;
    migration->has_registered = true;
}

/* ---- the beginning ---- */

void flyt_migration_reply(struct flyt_held *held)
{
    struct flyt_migration *migration = held->migration;
    char places[FLYT_SLOTS_MAX][FLYT_NAME_BYTES_MAX + 1];
    flyt_name targets[FLYT_SLOTS_MAX];
    static char empty[] = "";

    for (unsigned i = 0; i < held->part_count; i++) {
        const struct flyt_card *card = migration->others[i].card;
        snprintf(places[i], sizeof places[i], "%.240s:%u", card->node->key, flyt_gpu_capacity(card)->index);
        targets[i] = places[i];
    }
    flyt_migrate_res res = {
        .outcome = {FLYT_STATUS_OK, empty}, .migration_id = migration->id, .targets = {held->part_count, targets}};
    if (migration->call)
        flyt_call_reply(migration->call, &res);
    migration->call = NULL;
}

static void begun(void *user, int status, void *result)
{
    struct asking *asking = user;
    struct flyt_held *held = asked_of(asking);
    const flyt_outcome *outcome = result;
    char text[512];

    free(asking);
    if (!held || flyt_migration_is_moved(held->migration))
        return;
    held->migration->heard_ms = flyt_clock_ms();
    if (status == -EPROTO) {
        flyt_migration_set_state(held->migration, FLYT_MOVE_RECORDED); /* it knows nothing of it */
        snprintf(text, sizeof text, "node %s (build %s) cannot move programs: it is older than this cluster manager",
                 held->node->key, held->node->build ? held->node->build : "?");
        flyt_migration_fail(held, FLYT_STATUS_NOT_SUPPORTED, text);
    } else if (status) {
        flyt_migration_reply(
            held); /* recorded, and it may have begun: the node is asked when it is back, or in a moment */
    } else if (outcome->status != FLYT_STATUS_OK) {
        flyt_migration_set_state(held->migration, FLYT_MOVE_RECORDED);
        snprintf(text, sizeof text, "node %s refused: %.400s", held->node->key, outcome->text);
        flyt_migration_fail(held, outcome->status, text);
    } else {
        flyt_migration_reply(held);
        if (held->migration->is_cancelled)
            ask(held);
    }
}

/* As it is to be there. */
static int make_wire(const struct flyt_held *held, flyt_allocation *ret_wire)
{
    int status = flyt_held_wire_parts(held, held->migration->others, ret_wire);

    if (!status)
        ret_wire->revision = held->migration->revision;
    return status;
}

static void order(struct flyt_held *held)
{
    struct flyt_migration *migration = held->migration;
    struct flyt_node *node = held->node;
    flyt_order_migrate_args args = {
        .epoch = held->cluster->epoch, .migration_id = migration->id, .bounds = migration->bounds};

    if (!node->is_registered) {
        flyt_migration_fail(held, FLYT_STATUS_UNAVAILABLE, "its node is not connected any more: nothing was moved");
        return;
    }
    struct asking *asking = asking_new(held);
    migration->revision = held->revision + 1;
    if (!asking || make_wire(held, &args.allocation)) {
        free(asking);
        flyt_migration_fail(held, FLYT_STATUS_UNAVAILABLE, "the cluster manager has no memory");
        return;
    }
    migration->heard_ms = flyt_clock_ms();
    migration->has_registered = migration->is_registered_there = false;
    int status = flyt_peer_call(node->link->peer, FLYT_ORDER_PROGRAM, FLYT_ORDER_VERSION, FLYT_ORDER_MIGRATE,
                                (xdrproc_t)xdr_flyt_order_migrate_args, &args, (xdrproc_t)xdr_flyt_outcome,
                                sizeof(flyt_outcome), held->cluster->settings->order_ms, begun, asking);
    flyt_held_wire_free(&args.allocation);
    if (!status) {
        flyt_migration_set_state(migration, FLYT_MOVE_ORDERED);
        return;
    }
    free(asking);
    flyt_migration_fail(held, FLYT_STATUS_UNAVAILABLE, "its node cannot be asked: nothing was moved");
}

static struct flyt_migration *migration_new(struct flyt_held *held, const struct flyt_part *others)
{
    struct flyt_migration *migration = calloc(1, sizeof *migration);

    if (!migration)
        return NULL;
    migration->held = held;
    while (!migration->id)
        if (getrandom(&migration->id, sizeof migration->id, 0) != sizeof migration->id)
            migration->id = 0;
    snprintf(migration->id_text, sizeof migration->id_text, "%016" PRIx64, migration->id);
    memcpy(migration->others, others, held->part_count * sizeof *others);
    migration->sides[FLYT_MIGRATION_SOURCE].node = held->node;
    migration->sides[FLYT_MIGRATION_TARGET].node = others[0].card->node;
    migration->is_between = others[0].card->node != held->node;
    migration->source = flyt_migration_places(held->parts, held->part_count);
    migration->target = flyt_migration_places(others, held->part_count);
    if (migration->source && migration->target)
        return migration;
    return flyt_migration_free(migration);
}

int flyt_migration_start(struct flyt_held *held, const struct flyt_migration_wish *wish, const struct flyt_part *others,
                         struct flyt_call *call)
{
    struct flyt_migration *migration = migration_new(held, others);

    if (!migration)
        return -ENOMEM;
    migration->bounds = wish->bounds;
    migration->is_forced = wish->force;
    if (migration->is_between) {
        migration->stream_count = wish->stream_count ? wish->stream_count : FLYT_MIGRATION_STREAMS;
        migration->packing = wish->packing;
        migration->is_encrypted = flyt_migration_is_encrypted(held, others[0].card->node);
        if (getrandom(migration->secret, sizeof migration->secret, 0) != sizeof migration->secret) {
            flyt_migration_free(migration);
            return -ENOMEM;
        }
    }
    migration->use.id = migration->id;
    migration->use.allocation_id = held->id;
    migration->use.phase = FLYT_MIGRATION_PREPARING;
    migration->use.session_count = held->session_count;
    migration->started_ms = flyt_wall_ms();
    migration->heard_ms = flyt_clock_ms();
    snprintf(migration->who, sizeof migration->who, "%s", wish->who);
    for (unsigned i = 0; i < held->part_count; i++) {
        if (is_part_of(held, others[i].card) || !flyt_gpu_attach(others[i].card, held))
            continue;
        while (i--)
            if (!is_part_of(held, others[i].card))
                flyt_gpu_detach(others[i].card, held);
        flyt_migration_free(migration);
        return -ENOMEM;
    }
    migration->call = call;
    flyt_held_charge(held, false);
    held->migration = migration;
    flyt_held_charge(held, true);
    count_all(held, migration);
    flyt_migration_write(held);
    return 0;
}

/* ---- other ends ---- */

void flyt_migration_cancel(struct flyt_held *held, const char *why)
{
    struct flyt_migration *migration = held->migration;

    if (!migration || flyt_migration_is_moved(migration) || migration->is_cancelled)
        return;
    migration->is_cancelled = true;
    set_reason(migration, why);
    if (migration->is_between && migration->state >= FLYT_MOVE_ORDERED)
        flyt_migration_nodes_cancel(migration);
    else if (migration->state >= FLYT_MOVE_ORDERED)
        ask(held);
    flyt_held_look_soon(held);
}

void flyt_migration_drop(struct flyt_held *held, const char *why, bool is_written)
{
    struct flyt_migration *migration = held->migration;

    if (!migration)
        return;
    if (migration->is_between && migration->state >= FLYT_MOVE_ORDERED)
        flyt_migration_nodes_drop(held);
    let_go(held, migration, is_written);
    migration->use.phase = FLYT_MIGRATION_FAILED;
    migration->use.outcome.status = FLYT_STATUS_UNAVAILABLE;
    set_reason(migration, why);
    migration->ended_ms = flyt_wall_ms();
    flyt_migration_tell_end(migration);
    if (migration->call)
        flyt_call_outcome(migration->call, FLYT_STATUS_UNAVAILABLE, "%s", why);
    migration->call = NULL;
    flyt_migration_free(migration);
}

/* ---- what is next ---- */

static unsigned see(const struct flyt_held *held)
{
    const struct flyt_migration *migration = held->migration;
    bool is_written = migration->write && held->write_done >= migration->write;
    bool has_failed = !is_written && (!migration->write || held->write_failed >= migration->write);
    bool is_ready =
        !held->is_ordering && held->written_revision >= held->revision && held->applied_revision >= held->revision;
    bool is_silent = held->cluster->is_store_available && flyt_clock_ms() - migration->heard_ms >= SILENT_MS;

    return (is_written ? FLYT_MOVE_IS_WRITTEN : 0) | (has_failed ? FLYT_MOVE_HAS_FAILED : 0) |
           (flyt_clock_ms() - migration->write_ms >= AGAIN_MS ? FLYT_MOVE_IS_DUE : 0) |
           (migration->is_cancelled ? FLYT_MOVE_IS_CANCELLED : 0) | (is_ready ? FLYT_MOVE_IS_READY : 0) |
           (is_silent ? FLYT_MOVE_IS_SILENT : 0) | (migration->is_between ? FLYT_MOVE_IS_BETWEEN : 0);
}

static void begin(struct flyt_held *held)
{
    struct flyt_migration *migration = held->migration;

    flyt_migration_set_state(migration, FLYT_MOVE_RECORDED);
    flyt_event_add(held->cluster, "migration.started", migration->who, held->vm_ip, NULL,
                   flyt_migration_json(migration), "VM %s moves from %s to %s: migration %s", held->vm_ip,
                   migration->source, migration->target, migration->id_text);
}

/* Whether to look on at once. */
static bool do_step(struct flyt_held *held, enum flyt_move_step step)
{
    struct flyt_migration *migration = held->migration;
    char text[sizeof migration->reason];

    switch (step) {
    case FLYT_MOVE_WAIT:
        return false;
    case FLYT_MOVE_BEGIN:
        begin(held);
        return true;
    case FLYT_MOVE_FAIL_UNRECORDED:
        snprintf(text, sizeof text, "the store did not take it: %.400s",
                 held->failed_text ? held->failed_text : "no memory");
        flyt_migration_fail(held, FLYT_STATUS_UNAVAILABLE, text);
        return false;
    case FLYT_MOVE_FAIL_CANCELLED:
        snprintf(text, sizeof text, "%s", migration->reason);
        flyt_migration_fail(held, FLYT_STATUS_CONFLICT, text);
        return false;
    case FLYT_MOVE_FAIL_LATE:
        flyt_migration_fail(held, FLYT_STATUS_UNAVAILABLE, "its node has not taken the last change of it in time");
        return false;
    case FLYT_MOVE_ORDER:
        if (migration->is_between)
            flyt_migration_nodes_order(held);
        else
            order(held);
        return false;
    case FLYT_MOVE_ASK:
        ask(held);
        return false;
    case FLYT_MOVE_WRITE:
        flyt_migration_write(held);
        return false;
    case FLYT_MOVE_END:
        if (held->vm)
            flyt_vm_tell(held->vm, "its programs have moved to another GPU");
        flyt_migration_end(held);
        return false;
    case FLYT_MOVE_COMMIT:
        flyt_migration_set_state(migration, FLYT_MOVE_COMMITTED);
        return true;
    case FLYT_MOVE_RETURN:
        flyt_migration_set_state(migration, FLYT_MOVE_SENT);
        if (held->vm)
            flyt_vm_tell(held->vm, "its programs go on where they were");
        return true;
    case FLYT_MOVE_COMPARE:
        flyt_migration_nodes_compare(held);
        return false;
    case FLYT_MOVE_RELEASE:
        flyt_migration_nodes_release(held);
        return false;
    }
    return false;
}

void flyt_migration_look(struct flyt_held *held)
{
    while (held->migration && do_step(held, flyt_move_next(held->migration->state, see(held))))
        ;
}
