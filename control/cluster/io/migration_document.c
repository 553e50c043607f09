/* Migrations in the store: what is about to arrive on a GPU, read back into the model (migration.h says how). */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/cluster/io/allocation_document.h"
#include "control/cluster/io/store_writer.h"
#include "control/cluster/io/migration_document.h"
#include "control/cluster/io/reply.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/migration_rules.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/slot.h"
#include "control/cluster/model/text.h"
#include "rpc/base/ticket.h"

int flyt_migration_entry(const struct flyt_cluster_allocation *allocation, const struct flyt_cluster_gpu *gpu,
                         cJSON **ret_entry)
{
    const struct flyt_migration *migration = allocation->migration;

    *ret_entry = NULL;
    return migration && !flyt_migration_is_moved(migration)
               ? flyt_allocation_slot_entry(allocation, migration->others, gpu, allocation->revision, migration, true,
                                            ret_entry)
               : 0;
}

/* NULL: -EINVAL, the entry is of no migration or of another one; -ENOMEM. */
static struct flyt_migration *migration_of(struct flyt_cluster_allocation *allocation, const struct flyt_entry *its,
                                           const cJSON *entry, int *ret_status)
{
    *ret_status = -EINVAL;
    if (!its->migration_id || (allocation->migration && allocation->migration->id != its->migration_id))
        return NULL;
    if (allocation->migration)
        return allocation->migration;
    struct flyt_migration *migration = calloc(1, sizeof *migration);
    *ret_status = -ENOMEM;
    if (!migration)
        return NULL;
    migration->allocation = allocation;
    migration->id = its->migration_id;
    snprintf(migration->id_text, sizeof migration->id_text, "%016" PRIx64, migration->id);
    if ((*its->migration_from && flyt_text_set(&migration->from, its->migration_from)) ||
        flyt_entry_read_migration(entry, migration)) {
        flyt_migration_free(migration);
        return NULL;
    }
    return allocation->migration = migration;
}

static bool has_attached(const struct flyt_cluster_gpu *gpu, const struct flyt_cluster_allocation *allocation)
{
    for (unsigned i = 0; i < gpu->allocation_count; i++)
        if (gpu->allocations[i] == allocation)
            return true;
    return false;
}

static int attach_once(struct flyt_cluster_gpu *gpu, struct flyt_cluster_allocation *allocation)
{
    return has_attached(gpu, allocation) ? 0 : flyt_gpu_attach(gpu, allocation);
}

int flyt_migration_load(struct flyt_cluster_gpu *gpu, const cJSON *entry)
{
    struct flyt_entry its;
    struct flyt_cluster_slot slot;
    int status;
    struct flyt_cluster_allocation *allocation = flyt_allocation_of_entry(gpu, entry, &its, &slot, &status);
    struct flyt_migration *migration = allocation ? migration_of(allocation, &its, entry, &status) : NULL;

    if (!migration)
        return status;
    if (migration->others[its.slot].gpu)
        return -EINVAL;
    migration->others[its.slot] = slot;
    migration->others[its.slot].gpu = gpu;
    migration->is_arriving[its.slot] = true;
    if (its.migration_revision > migration->revision)
        migration->revision = its.migration_revision;
    status = flyt_entry_read_migration(entry, migration);
    return status ? status : attach_once(gpu, allocation);
}

/* A migration that was over: the document of where its programs were was not written any more without it. */
static int move_slot(struct flyt_cluster_allocation *allocation, const struct flyt_cluster_slot *slot)
{
    struct flyt_cluster_slot *own = &allocation->slots[slot->device_index];
    struct flyt_cluster_gpu *left = own->gpu;

    *own = *slot;
    allocation->node = slot->gpu->node;
    flyt_gpu_detach(left, allocation);
    flyt_gpu_count(left);
    flyt_record_change(left->record, NULL);
    return attach_once(slot->gpu, allocation);
}

int flyt_migration_load_twice(struct flyt_cluster_allocation *allocation, const struct flyt_entry *its,
                              const struct flyt_cluster_slot *slot, const cJSON *entry)
{
    int status;
    const unsigned slot_index = its->slot;
    bool is_newer = slot->revision > allocation->slots[slot_index].revision;

    if (is_newer && !its->migration_id)
        return move_slot(allocation, slot);
    struct flyt_migration *migration = migration_of(allocation, its, entry, &status);
    if (!migration)
        return status;
    if (migration->others[slot_index].gpu)
        return -EINVAL;
    /* Only who has moved is listed by two: the newer one is where it is. */
    migration->state = FLYT_MOVE_TO_TARGET;
    migration->others[slot_index] = is_newer ? allocation->slots[slot_index] : *slot;
    if (is_newer) {
        allocation->slots[slot_index] = *slot;
        allocation->node = slot->gpu->node;
    }
    return attach_once(slot->gpu, allocation);
}

/* Nothing was ordered before all of it was recorded: what there is of it goes. */
static void give_up(struct flyt_cluster_allocation *allocation, struct flyt_migration *migration)
{
    allocation->migration = NULL;
    for (unsigned i = 0; i < allocation->slot_count; i++) {
        struct flyt_cluster_gpu *gpu = migration->others[i].gpu;
        if (!gpu)
            continue;
        if (!flyt_allocation_is_on(allocation, gpu))
            flyt_gpu_detach(gpu, allocation);
        flyt_gpu_count(gpu);
        flyt_record_change(gpu->record, NULL);
    }
    flyt_migration_free(migration);
}

static bool are_complete(const struct flyt_cluster_allocation *allocation)
{
    const struct flyt_migration *migration = allocation->migration;

    for (unsigned i = 0; i < allocation->slot_count; i++)
        if (!allocation->slots[i].gpu || !migration->others[i].gpu ||
            allocation->slots[i].gpu->node == migration->others[i].gpu->node)
            return false;
    return true;
}

/*
 * Between nodes the side with the newest entry in `allocations` has it: all parts are there, also where the writing was
 * cut off after the first ones. False: parts are missing, on the side that has it no more, or not yet.
 */
static bool settle_sides(struct flyt_cluster_allocation *allocation)
{
    struct flyt_migration *migration = allocation->migration;
    uint64_t newest[FLYT_MIGRATION_SIDES] = {0};
    struct flyt_cluster_slot sides[FLYT_MIGRATION_SIDES][FLYT_SLOTS_MAX];

    if (!are_complete(allocation))
        return false;
    for (unsigned i = 0; i < allocation->slot_count; i++) {
        bool is_target = strcmp(allocation->slots[i].gpu->node->key, migration->from) != 0;
        sides[is_target][i] = allocation->slots[i];
        sides[!is_target][i] = migration->others[i];
        if (allocation->slots[i].revision > newest[is_target])
            newest[is_target] = allocation->slots[i].revision;
        if (!migration->is_arriving[i] && migration->others[i].revision > newest[!is_target])
            newest[!is_target] = migration->others[i].revision;
    }
    bool is_moved = newest[FLYT_MIGRATION_TARGET] > newest[FLYT_MIGRATION_SOURCE];
    migration->is_between = true;
    migration->state = is_moved ? FLYT_MOVE_TO_TARGET : FLYT_MOVE_TO_SOURCE;
    for (unsigned i = 0; i < FLYT_MIGRATION_SIDES; i++)
        migration->sides[i].node = sides[i][0].gpu->node;
    memcpy(allocation->slots, sides[is_moved], allocation->slot_count * sizeof *allocation->slots);
    memcpy(migration->others, sides[!is_moved], allocation->slot_count * sizeof *allocation->slots);
    allocation->node = migration->sides[is_moved].node;
    return true;
}

static bool settle_near(struct flyt_cluster_allocation *allocation)
{
    struct flyt_migration *migration = allocation->migration;
    bool is_complete = true;

    for (unsigned i = 0; i < allocation->slot_count; i++) {
        struct flyt_cluster_slot *slot = &allocation->slots[i], *other = &migration->others[i];
        is_complete &= slot->gpu && other->gpu && other->gpu->node == slot->gpu->node;
        /* Several GPUs, and the writing was cut off after the first ones that list what has moved there. */
        if (!flyt_migration_is_moved(migration) || !migration->is_arriving[i] || !is_complete)
            continue;
        struct flyt_cluster_slot source = *slot;
        *slot = *other;
        *other = source;
    }
    migration->sides[FLYT_MIGRATION_SOURCE].node = migration->sides[FLYT_MIGRATION_TARGET].node = allocation->node;
    return is_complete;
}

void flyt_migration_loaded(struct flyt_cluster_allocation *allocation)
{
    struct flyt_migration *migration = allocation->migration;

    if (!migration)
        return;
    if (!(migration->from ? settle_sides(allocation) : settle_near(allocation))) {
        give_up(allocation, migration);
        return;
    }
    bool is_moved = flyt_migration_is_moved(migration);
    migration->source = flyt_migration_places(is_moved ? migration->others : allocation->slots, allocation->slot_count);
    migration->target = flyt_migration_places(is_moved ? allocation->slots : migration->others, allocation->slot_count);
    migration->state = is_moved ? FLYT_MOVE_TO_TARGET : FLYT_MOVE_TO_SOURCE;
    migration->use.id = migration->id;
    migration->use.allocation_id = allocation->id;
    migration->use.phase = is_moved ? FLYT_MIGRATION_DONE : FLYT_MIGRATION_PREPARING;
    if (is_moved) {
        migration->source_revision = 0;
        for (unsigned i = 0; i < allocation->slot_count; i++)
            if (migration->others[i].revision > migration->source_revision)
                migration->source_revision = migration->others[i].revision;
        allocation->revision++;
    }
    for (unsigned i = 0; i < allocation->slot_count; i++) {
        flyt_gpu_count(allocation->slots[i].gpu);
        flyt_gpu_count(migration->others[i].gpu);
    }
}

struct flyt_migration *flyt_migration_free(struct flyt_migration *migration)
{
    if (!migration)
        return NULL;
    if (migration->call)
        flyt_call_outcome(migration->call, FLYT_STATUS_UNAVAILABLE,
                          "this cluster manager leads no longer: `flytctl migrations` says what has become of it");
    explicit_bzero(migration->secret, sizeof migration->secret);
    free(migration->source);
    free(migration->target);
    free(migration->from);
    free(migration);
    return NULL;
}
