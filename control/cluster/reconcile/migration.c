/* The way of a migration: recorded, ordered to its node, followed, and its end (migration.h says how). Between nodes
 * it is migration_nodes.c's, but for its beginning and its end. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "control/base/fields.h"
#include "control/base/peer.h"
#include "control/cluster/io/event.h"
#include "control/cluster/io/executor.h"
#include "control/cluster/io/grant.h"
#include "control/cluster/io/store_writer.h"
#include "control/cluster/io/link.h"
#include "control/cluster/io/migration_document.h"
#include "control/cluster/io/reply.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/migration_rules.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/slot.h"
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

static bool is_slot_of(const struct flyt_cluster_allocation *allocation, const struct flyt_cluster_gpu *gpu)
{
    for (unsigned i = 0; i < allocation->slot_count; i++)
        if (allocation->slots[i].gpu == gpu)
            return true;
    return false;
}

static void count_all(const struct flyt_cluster_allocation *allocation, const struct flyt_migration *migration)
{
    for (unsigned i = 0; i < allocation->slot_count; i++) {
        if (allocation->slots[i].gpu)
            flyt_gpu_count(allocation->slots[i].gpu);
        if (migration->others[i].gpu)
            flyt_gpu_count(migration->others[i].gpu);
    }
}

void flyt_migration_count(const struct flyt_cluster_allocation *allocation)
{
    count_all(allocation, allocation->migration);
}

/* It is the allocation's no more: what `others` has is free, its documents are written without it. */
static void let_go(struct flyt_cluster_allocation *allocation, struct flyt_migration *migration, bool is_written)
{
    flyt_allocation_charge(allocation, false);
    allocation->migration = NULL;
    flyt_allocation_charge(allocation, true);
    for (unsigned i = 0; i < allocation->slot_count; i++) {
        struct flyt_cluster_gpu *gpu = migration->others[i].gpu;
        if (gpu && !is_slot_of(allocation, gpu)) {
            flyt_gpu_detach(gpu, allocation);
            if (is_written)
                flyt_record_change(gpu->record, NULL);
        }
    }
    count_all(allocation, migration);
}

/* It is over, and allocation->migration with it: whoever waits for that sees it (moved_status). */
static void end(struct flyt_cluster_allocation *allocation, struct flyt_migration *migration, flyt_status status)
{
    migration->ended_ms = flyt_wall_ms();
    flyt_migration_tell_end(migration);
    if (migration->call)
        flyt_call_outcome(migration->call, status, "%s", migration->reason);
    migration->call = NULL;
    allocation->moved_status = status;
    flyt_text_set(&allocation->moved_text, migration->reason);
    flyt_migration_free(migration);
    flyt_allocation_write_and_order(allocation);
    flyt_allocation_look_soon(allocation);
}

static void set_reason(struct flyt_migration *migration, const char *text)
{
    snprintf(migration->reason, sizeof migration->reason, "%s", text);
}

/* All stays as it was. */
void flyt_migration_fail(struct flyt_cluster_allocation *allocation, flyt_status status, const char *text)
{
    struct flyt_migration *migration = allocation->migration;

    let_go(allocation, migration, true);
    migration->use.phase = FLYT_MIGRATION_FAILED;
    migration->use.outcome.status = status ? status : FLYT_STATUS_UNAVAILABLE;
    set_reason(migration, *text ? text : "the node does not say why");
    if (migration->state >= FLYT_MOVE_ORDERED) {
        /* The node may hold that revision for another state: the present one gets a number of its own. */
        if (allocation->revision < migration->revision)
            allocation->revision = migration->revision;
        allocation->revision++;
    }
    end(allocation, migration, migration->use.outcome.status);
}

void flyt_migration_end(struct flyt_cluster_allocation *allocation)
{
    struct flyt_migration *migration = allocation->migration;

    let_go(allocation, migration, true);
    end(allocation, migration, FLYT_STATUS_OK);
}

/* ---- it has moved ---- */

void flyt_migration_write(struct flyt_cluster_allocation *allocation)
{
    allocation->migration->write_ms = flyt_clock_ms();
    allocation->migration->write = flyt_allocation_write(allocation);
}

/* Its documents are to be the target's. */
static void settle(struct flyt_cluster_allocation *allocation)
{
    struct flyt_migration *migration = allocation->migration;
    struct flyt_cluster_slot slots[FLYT_SLOTS_MAX];
    size_t bytes = allocation->slot_count * sizeof *slots;

    memcpy(slots, allocation->slots, bytes);
    memcpy(allocation->slots, migration->others, bytes);
    memcpy(migration->others, slots, bytes);
    flyt_migration_set_state(migration, FLYT_MOVE_TO_TARGET);
    migration->source_revision = allocation->revision;
    if (allocation->revision < migration->revision)
        allocation->revision = migration->revision;
    allocation->revision++;
    migration->use.phase = FLYT_MIGRATION_DONE;
    migration->use.outcome.status = FLYT_STATUS_OK;
    count_all(allocation, migration);
    flyt_migration_write(allocation);
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
static void have_it_register(struct flyt_cluster_allocation *allocation)
{
    if (allocation->node->link)
        flyt_link_close(allocation->node->link, "it knows nothing of a migration that it was ordered");
}

static void look_at_answer(struct flyt_cluster_allocation *allocation, flyt_status status,
                           const flyt_migration_use *use)
{
    struct flyt_migration *migration = allocation->migration;
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
        have_it_register(allocation);
        return;
    }
    if (use && status == FLYT_STATUS_OK)
        take_use(migration, use);
    if (verdict == FLYT_MIGRATION_HAS_MOVED) {
        settle(allocation);
    } else if (verdict == FLYT_MIGRATION_HAS_STAYED && is_forgotten) {
        snprintf(text, sizeof text,
                 "node %s knows nothing of it: the order did not reach it, or it was restarted; the programs are where "
                 "they were",
                 allocation->node->key);
        flyt_migration_fail(allocation, FLYT_STATUS_UNAVAILABLE, text);
    } else if (verdict == FLYT_MIGRATION_HAS_STAYED) {
        snprintf(text, sizeof text, "%s", migration->reason);
        flyt_migration_fail(allocation, migration->use.outcome.status, text);
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
    struct flyt_cluster_allocation *allocation = flyt_allocation_find(node->cluster, use->allocation_id);
    bool is_known =
        allocation && allocation->migration && allocation->migration->id == use->id &&
        (allocation->migration->is_between ? flyt_migration_is_on(allocation, node) : allocation->node == node);
    if (!is_known) {
        flyt_call_outcome(call, FLYT_STATUS_NOT_FOUND, "there is no migration %016" PRIx64 " of allocation %016" PRIx64,
                          (uint64_t)use->id, (uint64_t)use->allocation_id);
        return;
    }
    if (allocation->migration->is_between)
        flyt_migration_nodes_heard(allocation, node, use);
    else
        look_at_answer(allocation, FLYT_STATUS_OK, use);
    flyt_call_outcome(call, FLYT_STATUS_OK, "%s", ""); /* `use` is the call's */
}

/* Of a call to the node about one: it may be over by the time of the answer. */
struct asking {
    struct flyt_cluster *cluster;
    uint64_t allocation_id, id;
};

static struct flyt_cluster_allocation *asked_of(struct asking *asking)
{
    struct flyt_cluster_allocation *allocation = flyt_allocation_find(asking->cluster, asking->allocation_id);

    return allocation && allocation->migration && allocation->migration->id == asking->id ? allocation : NULL;
}

static struct asking *asking_new(const struct flyt_cluster_allocation *allocation)
{
    struct asking *asking = calloc(1, sizeof *asking);

    if (asking)
        *asking = (struct asking){allocation->cluster, allocation->id, allocation->migration->id};
    return asking;
}

static void answered(void *user, int status, void *result)
{
    struct asking *asking = user;
    struct flyt_cluster_allocation *allocation = asked_of(asking);
    const flyt_order_migration_res *res = result;
    char text[256];

    free(asking);
    if (!allocation)
        return;
    allocation->migration->is_asking = false;
    allocation->migration->heard_ms = flyt_clock_ms();
    if (status == -EPROTO) {
        snprintf(text, sizeof text, "node %s (build %s) cannot move programs: it is older than this cluster manager",
                 allocation->node->key, allocation->node->build ? allocation->node->build : "?");
        flyt_migration_fail(allocation, FLYT_STATUS_NOT_SUPPORTED, text);
    } else if (!status) {
        if (res->outcome.status == FLYT_STATUS_CONFLICT)
            allocation->migration->is_cancelled = false; /* too late for that */
        look_at_answer(allocation, res->outcome.status, &res->use);
    }
}

static void ask(struct flyt_cluster_allocation *allocation)
{
    struct flyt_migration *migration = allocation->migration;
    struct flyt_node *node = allocation->node;

    if (!migration || migration->state < FLYT_MOVE_ORDERED || flyt_migration_is_moved(migration) ||
        migration->is_asking || !node->is_registered)
        return;
    const flyt_order_migration_args args = {
        .epoch = allocation->cluster->epoch, .migration_id = migration->id, .cancel = migration->is_cancelled};
    struct asking *asking = asking_new(allocation);
    migration->heard_ms = flyt_clock_ms();
    migration->is_asking = asking && !flyt_peer_call(node->link->peer, FLYT_ORDER_PROGRAM, FLYT_ORDER_VERSION,
                                                     FLYT_ORDER_MIGRATION, (xdrproc_t)xdr_flyt_order_migration_args,
                                                     &args, (xdrproc_t)xdr_flyt_order_migration_res,
                                                     sizeof(flyt_order_migration_res), ASK_MS, answered, asking);
    if (!migration->is_asking)
        free(asking);
}

void flyt_migration_ask(struct flyt_cluster_allocation *allocation, const struct flyt_node *node)
{
    if (allocation->migration && allocation->migration->is_between)
        flyt_migration_nodes_ask(allocation, node);
    else if (!node || allocation->node == node)
        ask(allocation);
}

void flyt_migration_registered(struct flyt_cluster_allocation *allocation, const struct flyt_node *node,
                               const flyt_allocation *wire)
{
    struct flyt_migration *migration = allocation->migration;
    bool is_there = wire && wire->slots.slots_len == allocation->slot_count;

    if (migration->is_between) {
        flyt_migration_nodes_registered(allocation, node, wire);
        return;
    }
    for (unsigned i = 0; is_there && i < allocation->slot_count; i++) {
        const flyt_slot *slot = &wire->slots.slots_val[i];
        is_there = migration->others[i].gpu && !strcmp(slot->gpu_uuid, migration->others[i].gpu->key);
    }
    /* On the GPU where they were both are the same: the revision tells. */
    if (is_there && is_slot_of(allocation, migration->others[0].gpu))
        is_there = migration->revision && wire->revision >= migration->revision;
    migration->is_registered_there = is_there;
    migration->has_registered = true;
}

/* ---- the beginning ---- */

void flyt_migration_reply(struct flyt_cluster_allocation *allocation)
{
    struct flyt_migration *migration = allocation->migration;
    char places[FLYT_SLOTS_MAX][FLYT_NAME_BYTES_MAX + 1];
    flyt_name targets[FLYT_SLOTS_MAX];
    static char empty[] = "";

    for (unsigned i = 0; i < allocation->slot_count; i++) {
        const struct flyt_cluster_gpu *gpu = migration->others[i].gpu;
        snprintf(places[i], sizeof places[i], "%.240s:%u", gpu->node->key, flyt_gpu_capacity(gpu)->index);
        targets[i] = places[i];
    }
    flyt_migrate_res res = {.outcome = {FLYT_STATUS_OK, empty},
                            .migration_id = migration->id,
                            .targets = {allocation->slot_count, targets}};
    if (migration->call)
        flyt_call_reply(migration->call, &res);
    migration->call = NULL;
}

static void begun(void *user, int status, void *result)
{
    struct asking *asking = user;
    struct flyt_cluster_allocation *allocation = asked_of(asking);
    const flyt_outcome *outcome = result;
    char text[512];

    free(asking);
    if (!allocation || flyt_migration_is_moved(allocation->migration))
        return;
    allocation->migration->heard_ms = flyt_clock_ms();
    if (status == -EPROTO) {
        flyt_migration_set_state(allocation->migration, FLYT_MOVE_RECORDED); /* it knows nothing of it */
        snprintf(text, sizeof text, "node %s (build %s) cannot move programs: it is older than this cluster manager",
                 allocation->node->key, allocation->node->build ? allocation->node->build : "?");
        flyt_migration_fail(allocation, FLYT_STATUS_NOT_SUPPORTED, text);
    } else if (status) {
        flyt_migration_reply(
            allocation); /* recorded, and it may have begun: the node is asked when it is back, or in a moment */
    } else if (outcome->status != FLYT_STATUS_OK) {
        flyt_migration_set_state(allocation->migration, FLYT_MOVE_RECORDED);
        snprintf(text, sizeof text, "node %s refused: %.400s", allocation->node->key, outcome->text);
        flyt_migration_fail(allocation, outcome->status, text);
    } else {
        flyt_migration_reply(allocation);
        if (allocation->migration->is_cancelled)
            ask(allocation);
    }
}

/* As it is to be there. */
static int make_wire(const struct flyt_cluster_allocation *allocation, flyt_allocation *ret_wire)
{
    int status = flyt_allocation_wire_parts(allocation, allocation->migration->others, ret_wire);

    if (!status)
        ret_wire->revision = allocation->migration->revision;
    return status;
}

static void order(struct flyt_cluster_allocation *allocation)
{
    struct flyt_migration *migration = allocation->migration;
    struct flyt_node *node = allocation->node;
    flyt_order_migrate_args args = {
        .epoch = allocation->cluster->epoch, .migration_id = migration->id, .bounds = migration->bounds};

    if (!node->is_registered) {
        flyt_migration_fail(allocation, FLYT_STATUS_UNAVAILABLE,
                            "its node is not connected any more: nothing was moved");
        return;
    }
    struct asking *asking = asking_new(allocation);
    migration->revision = allocation->revision + 1;
    if (!asking || make_wire(allocation, &args.allocation)) {
        free(asking);
        flyt_migration_fail(allocation, FLYT_STATUS_UNAVAILABLE, "the cluster manager has no memory");
        return;
    }
    migration->heard_ms = flyt_clock_ms();
    migration->has_registered = migration->is_registered_there = false;
    int status = flyt_peer_call(node->link->peer, FLYT_ORDER_PROGRAM, FLYT_ORDER_VERSION, FLYT_ORDER_MIGRATE,
                                (xdrproc_t)xdr_flyt_order_migrate_args, &args, (xdrproc_t)xdr_flyt_outcome,
                                sizeof(flyt_outcome), allocation->cluster->settings->order_ms, begun, asking);
    flyt_allocation_wire_free(&args.allocation);
    if (!status) {
        flyt_migration_set_state(migration, FLYT_MOVE_ORDERED);
        return;
    }
    free(asking);
    flyt_migration_fail(allocation, FLYT_STATUS_UNAVAILABLE, "its node cannot be asked: nothing was moved");
}

static struct flyt_migration *migration_new(struct flyt_cluster_allocation *allocation,
                                            const struct flyt_cluster_slot *others)
{
    struct flyt_migration *migration = calloc(1, sizeof *migration);

    if (!migration)
        return NULL;
    migration->allocation = allocation;
    while (!migration->id)
        if (getrandom(&migration->id, sizeof migration->id, 0) != sizeof migration->id)
            migration->id = 0;
    snprintf(migration->id_text, sizeof migration->id_text, "%016" PRIx64, migration->id);
    memcpy(migration->others, others, allocation->slot_count * sizeof *others);
    migration->sides[FLYT_MIGRATION_SOURCE].node = allocation->node;
    migration->sides[FLYT_MIGRATION_TARGET].node = others[0].gpu->node;
    migration->is_between = others[0].gpu->node != allocation->node;
    migration->source = flyt_migration_places(allocation->slots, allocation->slot_count);
    migration->target = flyt_migration_places(others, allocation->slot_count);
    if (migration->source && migration->target)
        return migration;
    return flyt_migration_free(migration);
}

int flyt_migration_start(struct flyt_cluster_allocation *allocation, const struct flyt_migration_desired *desired,
                         const struct flyt_cluster_slot *others, struct flyt_call *call)
{
    struct flyt_migration *migration = migration_new(allocation, others);

    if (!migration)
        return -ENOMEM;
    migration->bounds = desired->bounds;
    if (migration->bounds.rest_bytes > FLYT_FIELD_NUMBER_MAX) /* what there is at all is less */
        migration->bounds.rest_bytes = FLYT_FIELD_NUMBER_MAX;
    migration->is_forced = desired->force;
    if (migration->is_between) {
        migration->stream_count = desired->stream_count ? desired->stream_count : FLYT_MIGRATION_STREAMS;
        migration->packing = desired->packing;
        migration->is_encrypted = flyt_migration_is_encrypted(allocation, others[0].gpu->node);
        if (getrandom(migration->secret, sizeof migration->secret, 0) != sizeof migration->secret) {
            flyt_migration_free(migration);
            return -ENOMEM;
        }
    }
    migration->use.id = migration->id;
    migration->use.allocation_id = allocation->id;
    migration->use.phase = FLYT_MIGRATION_PREPARING;
    migration->use.session_count = allocation->session_count;
    migration->started_ms = flyt_wall_ms();
    migration->heard_ms = flyt_clock_ms();
    snprintf(migration->who, sizeof migration->who, "%s", desired->who);
    for (unsigned i = 0; i < allocation->slot_count; i++) {
        if (is_slot_of(allocation, others[i].gpu) || !flyt_gpu_attach(others[i].gpu, allocation))
            continue;
        while (i--)
            if (!is_slot_of(allocation, others[i].gpu))
                flyt_gpu_detach(others[i].gpu, allocation);
        flyt_migration_free(migration);
        return -ENOMEM;
    }
    migration->call = call;
    flyt_allocation_charge(allocation, false);
    allocation->migration = migration;
    flyt_allocation_charge(allocation, true);
    count_all(allocation, migration);
    flyt_migration_write(allocation);
    return 0;
}

/* ---- other ends ---- */

void flyt_migration_cancel(struct flyt_cluster_allocation *allocation, const char *why)
{
    struct flyt_migration *migration = allocation->migration;

    if (!migration || flyt_migration_is_moved(migration) || migration->is_cancelled)
        return;
    migration->is_cancelled = true;
    set_reason(migration, why);
    if (migration->is_between && migration->state >= FLYT_MOVE_ORDERED)
        flyt_migration_nodes_cancel(migration);
    else if (migration->state >= FLYT_MOVE_ORDERED)
        ask(allocation);
    flyt_allocation_look_soon(allocation);
}

void flyt_migration_drop(struct flyt_cluster_allocation *allocation, const char *why, bool is_written)
{
    struct flyt_migration *migration = allocation->migration;

    if (!migration)
        return;
    if (migration->is_between && migration->state >= FLYT_MOVE_ORDERED)
        flyt_migration_nodes_drop(allocation);
    let_go(allocation, migration, is_written);
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

static unsigned see(const struct flyt_cluster_allocation *allocation)
{
    const struct flyt_migration *migration = allocation->migration;
    bool is_written = migration->write && allocation->write_done >= migration->write;
    bool has_failed = !is_written && (!migration->write || allocation->write_failed >= migration->write);
    bool is_ready = !allocation->is_ordering && allocation->written_revision >= allocation->revision &&
                    allocation->applied_revision >= allocation->revision;
    const struct flyt_migration_side *target = &migration->sides[FLYT_MIGRATION_TARGET];
    bool is_back = migration->is_between && !allocation->is_ordering &&
                   (target->node->is_registered || flyt_standing_is_out(target->standing));
    bool is_silent = allocation->cluster->is_store_available && flyt_clock_ms() - migration->heard_ms >= SILENT_MS;

    return (is_written ? FLYT_MOVE_IS_WRITTEN : 0) | (has_failed ? FLYT_MOVE_HAS_FAILED : 0) |
           (flyt_clock_ms() - migration->write_ms >= AGAIN_MS ? FLYT_MOVE_IS_DUE : 0) |
           (migration->is_cancelled ? FLYT_MOVE_IS_CANCELLED : 0) | (is_ready ? FLYT_MOVE_IS_READY : 0) |
           (is_silent ? FLYT_MOVE_IS_SILENT : 0) | (migration->is_between ? FLYT_MOVE_IS_BETWEEN : 0) |
           (is_back ? FLYT_MOVE_IS_BACK : 0);
}

static void begin(struct flyt_cluster_allocation *allocation)
{
    struct flyt_migration *migration = allocation->migration;

    flyt_migration_set_state(migration, FLYT_MOVE_RECORDED);
    migration->heard_ms = flyt_clock_ms(); /* its node has time from now on */
    flyt_event_add(allocation->cluster, "migration.started", migration->who, allocation->vm_ip, NULL,
                   flyt_migration_json(migration), "VM %s moves from %s to %s: migration %s", allocation->vm_ip,
                   migration->source, migration->target, migration->id_text);
}

/* Whether to look on at once. */
static bool do_step(struct flyt_cluster_allocation *allocation, enum flyt_move_step step)
{
    struct flyt_migration *migration = allocation->migration;
    char text[sizeof migration->reason];

    switch (step) {
    case FLYT_MOVE_WAIT:
        return false;
    case FLYT_MOVE_BEGIN:
        begin(allocation);
        return true;
    case FLYT_MOVE_FAIL_UNRECORDED:
        snprintf(text, sizeof text, "the store did not take it: %.400s",
                 allocation->failed_text ? allocation->failed_text : "no memory");
        flyt_migration_fail(allocation, FLYT_STATUS_UNAVAILABLE, text);
        return false;
    case FLYT_MOVE_FAIL_CANCELLED:
        snprintf(text, sizeof text, "%s", migration->reason);
        flyt_migration_fail(allocation, FLYT_STATUS_CONFLICT, text);
        return false;
    case FLYT_MOVE_FAIL_LATE:
        flyt_migration_fail(allocation, FLYT_STATUS_UNAVAILABLE,
                            "its node has not taken the last change of it in time");
        return false;
    case FLYT_MOVE_ORDER:
        if (migration->is_between)
            flyt_migration_nodes_order(allocation);
        else
            order(allocation);
        return false;
    case FLYT_MOVE_ASK:
        ask(allocation);
        return false;
    case FLYT_MOVE_WRITE:
        flyt_migration_write(allocation);
        return false;
    case FLYT_MOVE_END:
        if (allocation->vm)
            flyt_vm_tell(allocation->vm, "its programs have moved to another GPU");
        flyt_migration_end(allocation);
        return false;
    case FLYT_MOVE_COMMIT:
        flyt_migration_set_state(migration, FLYT_MOVE_COMMITTED);
        return true;
    case FLYT_MOVE_RETURN:
        flyt_migration_set_state(migration, FLYT_MOVE_SENT);
        if (allocation->vm)
            flyt_vm_tell(allocation->vm, "its programs go on where they were");
        flyt_allocation_look_soon(allocation);
        return true;
    case FLYT_MOVE_RESUME:
        flyt_migration_set_state(migration, FLYT_MOVE_SENT);
        return true;
    case FLYT_MOVE_COMPARE:
        flyt_migration_nodes_compare(allocation);
        return false;
    case FLYT_MOVE_RELEASE:
        flyt_migration_nodes_release(allocation);
        return false;
    }
    return false;
}

void flyt_migration_look(struct flyt_cluster_allocation *allocation)
{
    while (allocation->migration && do_step(allocation, flyt_move_next(allocation->migration->state, see(allocation))))
        ;
}
