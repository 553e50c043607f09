/*
 * The way of a migration: what is seen of it, the next step (flyt_migration_next), and what comes of that. Each word of
 * a node, each answer and each write that has ended leads here (flyt_migration_look).
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "control/base/fields.h"
#include "control/cluster/io/event.h"
#include "control/cluster/io/executor.h"
#include "control/cluster/io/grant.h"
#include "control/cluster/io/link.h"
#include "control/cluster/io/migration_document.h"
#include "control/cluster/io/reply.h"
#include "control/cluster/io/store_writer.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/slot.h"
#include "control/cluster/model/text.h"
#include "control/cluster/model/vm.h"
#include "control/cluster/reconcile/migration.h"
#include "control/store/store.h"
#include "rpc/base/clock.h"

/* What the GPUs of both sides have left. */
static void count_all(const struct flyt_cluster_allocation *allocation, const struct flyt_migration *migration)
{
    for (unsigned i = 0; i < allocation->slot_count; i++) {
        if (allocation->slots[i].gpu)
            flyt_gpu_count(allocation->slots[i].gpu);
        if (migration->others[i].gpu)
            flyt_gpu_count(migration->others[i].gpu);
    }
}

void flyt_migration_note_failure(struct flyt_migration *migration, flyt_status status, const char *format, ...)
{
    va_list args;

    if (migration->failed_status)
        return;
    migration->failed_status = status ? status : FLYT_STATUS_UNAVAILABLE;
    va_start(args, format);
    vsnprintf(migration->reason, sizeof migration->reason, format, args);
    va_end(args);
}

/* ---- the end ---- */

/* It is the allocation's no more: what `others` has is free, its documents are written without it. */
static void let_go(struct flyt_cluster_allocation *allocation, struct flyt_migration *migration, bool is_written)
{
    flyt_allocation_charge(allocation, false);
    allocation->migration = NULL;
    flyt_allocation_charge(allocation, true);
    for (unsigned i = 0; i < allocation->slot_count; i++) {
        struct flyt_cluster_gpu *gpu = migration->others[i].gpu;
        if (gpu && !flyt_allocation_is_on(allocation, gpu)) {
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

/* All stays as it was; `reason` and failed_status say why. */
static void end_failed(struct flyt_cluster_allocation *allocation)
{
    struct flyt_migration *migration = allocation->migration;

    flyt_migration_note_failure(migration, FLYT_STATUS_UNAVAILABLE, "its nodes do not say why");
    let_go(allocation, migration, true);
    migration->use.phase = FLYT_MIGRATION_FAILED;
    migration->use.outcome.status = migration->failed_status;
    if (migration->state >= FLYT_MOVE_ORDERED) {
        /* A node may hold that revision for another state: the present one gets a number of its own. */
        if (allocation->revision < migration->revision)
            allocation->revision = migration->revision;
        allocation->revision++;
    }
    end(allocation, migration, migration->failed_status);
}

static void end_done(struct flyt_cluster_allocation *allocation)
{
    struct flyt_migration *migration = allocation->migration;

    snprintf(migration->reason, sizeof migration->reason, "%s", migration->remark);
    let_go(allocation, migration, true);
    end(allocation, migration, FLYT_STATUS_OK);
}

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

    migration->use = source->session_count || !migration->is_between ? *source : *target;
    migration->has_figures = !migration->is_between  ? source->phase == FLYT_MIGRATION_DONE
                             : source->session_count ? source->standstill_us > 0
                                                     : !target->session_count;
    migration->use.standstill_us = sum_us > both_us + least_us ? sum_us - both_us : least_us;
    if (migration->use.elapsed_ms < target->elapsed_ms)
        migration->use.elapsed_ms = target->elapsed_ms;
    migration->use.phase = FLYT_MIGRATION_DONE;
    migration->use.outcome.status = migration->failed_status = FLYT_STATUS_OK;
    migration->reason[0] = '\0';
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

static void write_documents(struct flyt_cluster_allocation *allocation)
{
    allocation->migration->write_ms = flyt_clock_ms();
    allocation->migration->write = flyt_allocation_write(allocation);
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
    snprintf(migration->who, sizeof migration->who, "%s", desired->who);
    for (unsigned i = 0; i < allocation->slot_count; i++) {
        if (flyt_allocation_is_on(allocation, others[i].gpu) || !flyt_gpu_attach(others[i].gpu, allocation))
            continue;
        while (i--)
            if (!flyt_allocation_is_on(allocation, others[i].gpu))
                flyt_gpu_detach(others[i].gpu, allocation);
        flyt_migration_free(migration);
        return -ENOMEM;
    }
    migration->call = call;
    flyt_allocation_charge(allocation, false);
    allocation->migration = migration;
    flyt_allocation_charge(allocation, true);
    count_all(allocation, migration);
    write_documents(allocation);
    return 0;
}

/* ---- from outside ---- */

void flyt_migration_cancel(struct flyt_cluster_allocation *allocation, const char *why)
{
    struct flyt_migration *migration = allocation->migration;

    if (!migration || flyt_migration_is_moved(migration) || migration->is_cancelled)
        return;
    migration->is_cancelled = true;
    flyt_migration_note_failure(migration, FLYT_STATUS_CONFLICT, "%s", why);
    flyt_allocation_look_soon(allocation);
}

void flyt_migration_drop(struct flyt_cluster_allocation *allocation, const char *why, bool is_written)
{
    struct flyt_migration *migration = allocation->migration;

    if (!migration)
        return;
    if (migration->is_between && migration->state >= FLYT_MOVE_ORDERED)
        flyt_migration_order_drop(allocation);
    let_go(allocation, migration, is_written);
    migration->use.phase = FLYT_MIGRATION_FAILED;
    migration->use.outcome.status = FLYT_STATUS_UNAVAILABLE;
    snprintf(migration->reason, sizeof migration->reason, "%s", why);
    migration->ended_ms = flyt_wall_ms();
    flyt_migration_tell_end(migration);
    if (migration->call)
        flyt_call_outcome(migration->call, FLYT_STATUS_UNAVAILABLE, "%s", why);
    migration->call = NULL;
    flyt_migration_free(migration);
}

bool flyt_migration_fenced(struct flyt_cluster_allocation *allocation, const struct flyt_node *node)
{
    struct flyt_migration *migration = allocation->migration;
    struct flyt_migration_side *source = &migration->sides[FLYT_MIGRATION_SOURCE],
                               *side = source->node == node ? source : &migration->sides[FLYT_MIGRATION_TARGET];

    if (!migration->is_between || migration->state < FLYT_MOVE_ORDERED ||
        (migration->state == FLYT_MOVE_RELEASING && side != source))
        return allocation->node != node;
    side->standing = FLYT_STANDING_ABSENT;
    flyt_migration_note_failure(migration, FLYT_STATUS_UNAVAILABLE, "node %s was fenced", node->key);
    bool stays = side == source ? flyt_migration_is_moved(migration)
                                : !(flyt_migration_is_moved(migration) && source->standing == FLYT_STANDING_ABSENT);
    if (stays)
        flyt_allocation_look_soon(allocation);
    return stays;
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
    if (allocation->node != side->node)
        allocation->is_gone = false; /* that is what the other node said */
    allocation->node = side->node;
    allocation->applied_revision = is_moved ? migration->revision : migration->source_revision;
    migration->source_revision = allocation->revision;
    if (allocation->revision < migration->revision)
        allocation->revision = migration->revision;
    allocation->revision++;
    flyt_migration_set_state(migration, is_moved ? FLYT_MOVE_TO_TARGET : FLYT_MOVE_TO_SOURCE);
    side->has_registered = false;
    count_all(allocation, migration);
    write_documents(allocation);
}

static void undo(struct flyt_cluster_allocation *allocation)
{
    struct flyt_migration *migration = allocation->migration;

    flyt_migration_note_failure(migration, FLYT_STATUS_UNAVAILABLE, "node %s has not taken them",
                                migration->sides[FLYT_MIGRATION_TARGET].node->key);
    flyt_event_add(allocation->cluster, "migration.back", "manager", allocation->vm_ip, NULL,
                   flyt_migration_json(migration), "VM %s goes back from %s to %s: %s", allocation->vm_ip,
                   migration->target, migration->source, migration->reason);
    change_sides(allocation, false);
}

/* ---- steps ---- */

static void begin(struct flyt_cluster_allocation *allocation)
{
    struct flyt_migration *migration = allocation->migration;

    flyt_migration_set_state(migration, FLYT_MOVE_RECORDED);
    migration->sides[FLYT_MIGRATION_SOURCE].heard_ms = flyt_clock_ms(); /* it has time from now on */
    flyt_event_add(allocation->cluster, "migration.started", migration->who, allocation->vm_ip, NULL,
                   flyt_migration_json(migration), "VM %s moves from %s to %s: migration %s", allocation->vm_ip,
                   migration->source, migration->target, migration->id_text);
}

static void order_first(struct flyt_cluster_allocation *allocation)
{
    struct flyt_migration *migration = allocation->migration;
    const struct flyt_migration_way *way = &flyt_migration_ways[migration->is_between];

    migration->revision = allocation->revision + 1;
    for (unsigned i = 0; i < FLYT_MIGRATION_SIDES; i++)
        migration->sides[i].standing = FLYT_STANDING_ABSENT;
    if (flyt_migration_order_begin(allocation, way->begin_side, way->begin))
        flyt_migration_set_state(migration, FLYT_MOVE_ORDERED);
}

static void order_next(struct flyt_cluster_allocation *allocation)
{
    struct flyt_migration *migration = allocation->migration;
    struct flyt_migration_side *source = &migration->sides[FLYT_MIGRATION_SOURCE];
    const struct flyt_migration_way *way = &flyt_migration_ways[migration->is_between];

    flyt_migration_set_state(migration, FLYT_MOVE_UNDER_WAY);
    if (way->follow && !migration->failed_status &&
        flyt_migration_order_begin(allocation, FLYT_MIGRATION_SOURCE, way->follow))
        source->standing = FLYT_STANDING_UNKNOWN; /* until it has answered; so far it knew nothing of it */
    explicit_bzero(migration->secret, sizeof migration->secret);
}

/* What it has registered may be from before: it is to say it anew. */
static void have_it_register(struct flyt_migration *migration)
{
    const struct flyt_migration_side *target = &migration->sides[FLYT_MIGRATION_TARGET];

    for (unsigned i = 0; i < FLYT_MIGRATION_SIDES; i++)
        if (migration->sides[i].node == target->node)
            migration->sides[i].standing = FLYT_STANDING_UNKNOWN;
    if (target->node->link)
        flyt_link_close(target->node->link, "it knows nothing of a migration that it was ordered");
}

static void tell_vm(const struct flyt_cluster_allocation *allocation, const char *place)
{
    char text[64];

    snprintf(text, sizeof text, "its programs have moved to %s", place);
    if (allocation->vm)
        flyt_vm_tell(allocation->vm, text);
}

static void release(struct flyt_cluster_allocation *allocation)
{
    struct flyt_migration *migration = allocation->migration;
    const struct flyt_node *node = migration->sides[FLYT_MIGRATION_SOURCE].node;

    if (!node->is_registered)
        snprintf(migration->reason, sizeof migration->reason,
                 "its programs go on there; what it had on node %.100s, which is not connected, is freed when that is "
                 "back",
                 node->key);
    flyt_migration_order(allocation, FLYT_MIGRATION_SOURCE, FLYT_ORDER_APPLY, false);
}

/* Who asked hears that it has failed; the source is to have what was held back while its programs moved. */
static void withdraw(struct flyt_cluster_allocation *allocation)
{
    struct flyt_migration *migration = allocation->migration;

    flyt_migration_note_failure(migration, FLYT_STATUS_UNAVAILABLE, "node %s is not connected any more",
                                migration->sides[FLYT_MIGRATION_TARGET].node->key);
    migration->use.phase = FLYT_MIGRATION_FAILED;
    if (migration->call)
        flyt_call_outcome(migration->call, migration->failed_status, "%s", migration->reason);
    migration->call = NULL;
    flyt_migration_set_state(migration, FLYT_MOVE_WITHDRAWN);
    flyt_allocation_order(allocation);
}

/* ---- what is next ---- */

static unsigned see_flags(const struct flyt_cluster_allocation *allocation)
{
    const struct flyt_migration *migration = allocation->migration;
    const struct flyt_migration_side *source = &migration->sides[FLYT_MIGRATION_SOURCE],
                                     *target = &migration->sides[FLYT_MIGRATION_TARGET];
    const struct flyt_migration_way *way = &flyt_migration_ways[migration->is_between];
    const struct flyt_cluster *cluster = allocation->cluster;
    uint64_t now_ms = flyt_clock_ms();
    bool is_written = migration->write && allocation->write_done >= migration->write;
    bool has_failed = !is_written && (!migration->write || allocation->write_failed >= migration->write);
    bool is_ready = !allocation->is_ordering && allocation->written_revision >= allocation->revision &&
                    allocation->applied_revision >= allocation->revision;
    bool is_late = cluster->is_store_available && now_ms - source->heard_ms >= FLYT_MIGRATION_SILENT_MS;
    bool is_lost =
        !source->node->is_registered && now_ms - source->node->last_heard_ms > cluster->settings->node_lost_ms;
    bool is_released = !way->is_by_orders || migration->is_released || source->node->is_fenced;

    return (migration->is_between ? FLYT_MIGRATION_IS_BETWEEN : 0) |
           (migration->failed_status ? FLYT_MIGRATION_IS_FAILING : 0) | (is_written ? FLYT_MIGRATION_IS_WRITTEN : 0) |
           (has_failed ? FLYT_MIGRATION_HAS_FAILED : 0) |
           (now_ms - migration->write_ms >= FLYT_MIGRATION_AGAIN_MS ? FLYT_MIGRATION_IS_DUE : 0) |
           (is_ready ? FLYT_MIGRATION_IS_READY : 0) | (is_late ? FLYT_MIGRATION_IS_LATE : 0) |
           (!migration->sides[way->begin_side].is_calling ? FLYT_MIGRATION_IS_ANSWERED : 0) |
           (target->node->is_registered ? FLYT_MIGRATION_IS_TARGET_THERE : 0) |
           (is_lost ? FLYT_MIGRATION_IS_SOURCE_LOST : 0) | (allocation->is_ordering ? FLYT_MIGRATION_IS_ORDERING : 0) |
           (is_released ? FLYT_MIGRATION_IS_RELEASED : 0);
}

static struct flyt_migration_seen see(const struct flyt_cluster_allocation *allocation)
{
    const struct flyt_migration *migration = allocation->migration;
    struct flyt_migration_seen seen = {.state = migration->state, .flags = see_flags(allocation)};

    for (unsigned i = 0; i < FLYT_MIGRATION_SIDES; i++) {
        seen.standings[i] = migration->sides[i].standing;
        seen.silent_ms[i] = flyt_clock_ms() - migration->sides[i].heard_ms;
    }
    return seen;
}

/* Whether to look on at once. */
static bool do_step(struct flyt_cluster_allocation *allocation, enum flyt_migration_step step)
{
    struct flyt_migration *migration = allocation->migration;
    const char *place = flyt_migration_ways[migration->is_between].place;

    switch (step) {
    case FLYT_STEP_WAIT:
    case FLYT_STEPS:
        return false;
    case FLYT_STEP_WRITE:
        write_documents(allocation);
        return false;
    case FLYT_STEP_BEGIN:
        begin(allocation);
        return true;
    case FLYT_STEP_FAIL_UNRECORDED:
        flyt_migration_note_failure(migration, FLYT_STATUS_UNAVAILABLE, "the store did not take it: %.400s",
                                    allocation->failed_text ? allocation->failed_text : "no memory");
        end_failed(allocation);
        return false;
    case FLYT_STEP_FAIL_LATE:
        flyt_migration_note_failure(migration, FLYT_STATUS_UNAVAILABLE,
                                    "its node has not taken the last change of it in time");
        end_failed(allocation);
        return false;
    case FLYT_STEP_ORDER:
        order_first(allocation);
        return migration->failed_status != FLYT_STATUS_OK;
    case FLYT_STEP_FOLLOW:
        order_next(allocation);
        return true;
    case FLYT_STEP_REGISTER:
        have_it_register(migration);
        return false;
    case FLYT_STEP_SWITCH_TARGET:
        flyt_migration_order(allocation, FLYT_MIGRATION_TARGET, FLYT_ORDER_SWITCH, false);
        return false;
    case FLYT_STEP_MOVE:
        change_sides(allocation, true);
        return false;
    case FLYT_STEP_COMMIT:
        flyt_migration_set_state(migration, FLYT_MOVE_COMMITTED);
        return true;
    case FLYT_STEP_SWITCH_SOURCE:
        flyt_migration_order(allocation, FLYT_MIGRATION_SOURCE, FLYT_ORDER_SWITCH, false);
        return false;
    case FLYT_STEP_TELL:
        flyt_migration_set_state(migration, FLYT_MOVE_LEFT);
        tell_vm(allocation, place);
        return true;
    case FLYT_STEP_FINISH:
        if (migration->state != FLYT_MOVE_LEFT) /* the VM does not know yet */
            tell_vm(allocation, place);
        sum_up(migration);
        flyt_migration_set_state(migration, FLYT_MOVE_RELEASING);
        return true;
    case FLYT_STEP_RELEASE:
        release(allocation);
        return false;
    case FLYT_STEP_DONE:
        end_done(allocation);
        return false;
    case FLYT_STEP_CANCEL_SOURCE:
        flyt_migration_order(allocation, FLYT_MIGRATION_SOURCE, FLYT_ORDER_MIGRATION, true);
        return false;
    case FLYT_STEP_CANCEL_TARGET:
        flyt_migration_order(allocation, FLYT_MIGRATION_TARGET, FLYT_ORDER_MIGRATION, true);
        return false;
    case FLYT_STEP_UNDO:
        undo(allocation);
        return false;
    case FLYT_STEP_RETURN:
        flyt_migration_set_state(migration, FLYT_MOVE_UNDER_WAY);
        if (allocation->vm)
            flyt_vm_tell(allocation->vm, "its programs go on where they were");
        return true;
    case FLYT_STEP_SEND_BACK:
        flyt_migration_order(allocation, FLYT_MIGRATION_SOURCE, FLYT_ORDER_SEND_BACK, false);
        return false;
    case FLYT_STEP_WITHDRAW:
        withdraw(allocation);
        return false;
    case FLYT_STEP_RESUME:
        flyt_migration_set_state(migration, FLYT_MOVE_UNDER_WAY);
        return true;
    case FLYT_STEP_END:
        end_failed(allocation);
        return false;
    }
    return false;
}

/* A side that was fenced has nothing of it, also where whoever led before has fenced it. */
static void note_fenced(struct flyt_cluster_allocation *allocation)
{
    struct flyt_migration *migration = allocation->migration;

    if (!migration || !migration->is_between || migration->state < FLYT_MOVE_UNDER_WAY)
        return;
    for (unsigned i = 0; i < FLYT_MIGRATION_SIDES; i++)
        if (migration->sides[i].node->is_fenced)
            migration->sides[i].standing = FLYT_STANDING_ABSENT;
    allocation->is_gone |= !flyt_migration_is_moved(migration) && allocation->node->is_fenced;
}

void flyt_migration_look(struct flyt_cluster_allocation *allocation)
{
    bool goes_on = true;

    note_fenced(allocation);
    while (goes_on && allocation->migration) {
        struct flyt_migration_seen seen = see(allocation);
        for (unsigned i = 0; i < FLYT_MIGRATION_SIDES; i++)
            if (flyt_migration_is_to_be_asked(&seen, i))
                flyt_migration_order(allocation, i, FLYT_ORDER_MIGRATION, false);
        goes_on = do_step(allocation, flyt_migration_next(&seen));
    }
}
