/* Migrations in the store: what is about to arrive on a GPU, read back into the model (migration.h says how). */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/cluster/io/allocation_document.h"
#include "control/cluster/io/keep.h"
#include "control/cluster/io/migration_document.h"
#include "control/cluster/io/reply.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/migration_rules.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/part.h"
#include "control/cluster/model/text.h"
#include "rpc/base/clock.h"
#include "rpc/base/ticket.h"

int flyt_migration_entry(const struct flyt_held *held, const struct flyt_card *card, cJSON **ret_entry)
{
    const struct flyt_migration *migration = held->migration;

    *ret_entry = NULL;
    return migration && !flyt_migration_is_moved(migration)
               ? flyt_held_part_entry(held, migration->others, card, held->revision, migration, true, ret_entry)
               : 0;
}

/* NULL: -EINVAL, the entry is of no migration or of another one; -ENOMEM. */
static struct flyt_migration *migration_of(struct flyt_held *held, const struct flyt_entry *its, const cJSON *entry,
                                           int *ret_status)
{
    *ret_status = -EINVAL;
    if (!its->migration_id || (held->migration && held->migration->id != its->migration_id))
        return NULL;
    if (held->migration)
        return held->migration;
    struct flyt_migration *migration = calloc(1, sizeof *migration);
    *ret_status = -ENOMEM;
    if (!migration)
        return NULL;
    migration->held = held;
    migration->id = its->migration_id;
    snprintf(migration->id_text, sizeof migration->id_text, "%016" PRIx64, migration->id);
    if ((*its->migration_from && flyt_text_set(&migration->from, its->migration_from)) ||
        flyt_entry_read_migration(entry, migration)) {
        flyt_migration_free(migration);
        return NULL;
    }
    return held->migration = migration;
}

static bool has_attached(const struct flyt_card *card, const struct flyt_held *held)
{
    for (unsigned i = 0; i < card->held_count; i++)
        if (card->held[i] == held)
            return true;
    return false;
}

static int attach_once(struct flyt_card *card, struct flyt_held *held)
{
    return has_attached(card, held) ? 0 : flyt_gpu_attach(card, held);
}

int flyt_migration_load(struct flyt_card *card, const cJSON *entry)
{
    struct flyt_entry its;
    struct flyt_part part;
    int status;
    struct flyt_held *held = flyt_held_of_entry(card, entry, &its, &part, &status);
    struct flyt_migration *migration = held ? migration_of(held, &its, entry, &status) : NULL;

    if (!migration)
        return status;
    if (migration->others[its.slot].card)
        return -EINVAL;
    migration->others[its.slot] = part;
    migration->others[its.slot].card = card;
    migration->is_arriving[its.slot] = true;
    if (its.migration_revision > migration->revision)
        migration->revision = its.migration_revision;
    status = flyt_entry_read_migration(entry, migration);
    return status ? status : attach_once(card, held);
}

int flyt_migration_load_twice(struct flyt_held *held, const struct flyt_entry *its, const struct flyt_part *part,
                              const cJSON *entry)
{
    int status;
    struct flyt_migration *migration = migration_of(held, its, entry, &status);
    const unsigned slot = its->slot;
    bool is_newer = part->revision > held->parts[slot].revision;

    if (!migration)
        return status;
    if (migration->others[slot].card)
        return -EINVAL;
    /* Only who has moved is listed by two: the newer one is where it is. */
    migration->state = FLYT_MOVE_TO_TARGET;
    migration->others[slot] = is_newer ? held->parts[slot] : *part;
    if (is_newer) {
        held->parts[slot] = *part;
        held->node = part->card->node;
    }
    return attach_once(part->card, held);
}

/* Nothing was ordered before all of it was recorded: what there is of it goes. */
static void give_up(struct flyt_held *held, struct flyt_migration *migration)
{
    held->migration = NULL;
    for (unsigned i = 0; i < held->part_count; i++) {
        struct flyt_card *card = migration->others[i].card;
        bool is_part = false;
        for (unsigned j = 0; j < held->part_count; j++)
            is_part |= held->parts[j].card == card;
        if (card && !is_part)
            flyt_gpu_detach(card, held);
        if (card) {
            flyt_gpu_count(card);
            flyt_kept_change(card->kept, NULL);
        }
    }
    flyt_migration_free(migration);
}

static bool are_complete(const struct flyt_held *held)
{
    const struct flyt_migration *migration = held->migration;

    for (unsigned i = 0; i < held->part_count; i++)
        if (!held->parts[i].card || !migration->others[i].card ||
            held->parts[i].card->node == migration->others[i].card->node)
            return false;
    return true;
}

/*
 * Between nodes the side with the newest entry in `allocations` has it: all parts are there, also where the writing was
 * cut off after the first ones. False: parts are missing, on the side that has it no more, or not yet.
 */
static bool settle_sides(struct flyt_held *held)
{
    struct flyt_migration *migration = held->migration;
    uint64_t newest[FLYT_MIGRATION_SIDES] = {0};
    struct flyt_part sides[FLYT_MIGRATION_SIDES][FLYT_SLOTS_MAX];

    if (!are_complete(held))
        return false;
    for (unsigned i = 0; i < held->part_count; i++) {
        bool is_target = strcmp(held->parts[i].card->node->key, migration->from) != 0;
        sides[is_target][i] = held->parts[i];
        sides[!is_target][i] = migration->others[i];
        if (held->parts[i].revision > newest[is_target])
            newest[is_target] = held->parts[i].revision;
        if (!migration->is_arriving[i] && migration->others[i].revision > newest[!is_target])
            newest[!is_target] = migration->others[i].revision;
    }
    bool is_moved = newest[FLYT_MIGRATION_TARGET] > newest[FLYT_MIGRATION_SOURCE];
    migration->is_between = true;
    migration->state = is_moved ? FLYT_MOVE_TO_TARGET : FLYT_MOVE_TO_SOURCE;
    for (unsigned i = 0; i < FLYT_MIGRATION_SIDES; i++)
        migration->sides[i].node = sides[i][0].card->node;
    memcpy(held->parts, sides[is_moved], held->part_count * sizeof *held->parts);
    memcpy(migration->others, sides[!is_moved], held->part_count * sizeof *held->parts);
    held->node = migration->sides[is_moved].node;
    return true;
}

static bool settle_near(struct flyt_held *held)
{
    struct flyt_migration *migration = held->migration;
    bool is_complete = true;

    for (unsigned i = 0; i < held->part_count; i++) {
        struct flyt_part *part = &held->parts[i], *other = &migration->others[i];
        is_complete &= part->card && other->card && other->card->node == part->card->node;
        /* Several GPUs, and the writing was cut off after the first ones that list what has moved there. */
        if (!flyt_migration_is_moved(migration) || !migration->is_arriving[i] || !is_complete)
            continue;
        struct flyt_part source = *part;
        *part = *other;
        *other = source;
    }
    migration->sides[FLYT_MIGRATION_SOURCE].node = migration->sides[FLYT_MIGRATION_TARGET].node = held->node;
    return is_complete;
}

void flyt_migration_loaded(struct flyt_held *held)
{
    struct flyt_migration *migration = held->migration;

    if (!migration)
        return;
    if (!(migration->from ? settle_sides(held) : settle_near(held))) {
        give_up(held, migration);
        return;
    }
    bool is_moved = flyt_migration_is_moved(migration);
    migration->source = flyt_migration_places(is_moved ? migration->others : held->parts, held->part_count);
    migration->target = flyt_migration_places(is_moved ? held->parts : migration->others, held->part_count);
    if (!is_moved && !migration->is_between)
        migration->state = FLYT_MOVE_ORDERED;
    migration->heard_ms = flyt_clock_ms();
    migration->use.id = migration->id;
    migration->use.allocation_id = held->id;
    migration->use.phase = is_moved ? FLYT_MIGRATION_DONE : FLYT_MIGRATION_PREPARING;
    if (is_moved) {
        migration->source_revision = 0;
        for (unsigned i = 0; i < held->part_count; i++)
            if (migration->others[i].revision > migration->source_revision)
                migration->source_revision = migration->others[i].revision;
        held->revision++;
    }
    for (unsigned i = 0; i < held->part_count; i++) {
        flyt_gpu_count(held->parts[i].card);
        flyt_gpu_count(migration->others[i].card);
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
