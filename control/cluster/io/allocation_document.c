/*
 * Allocations in the store: an entry in the document of each GPU that they have a part of, made of the model and read
 * back into it.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "control/cluster/io/allocation_document.h"
#include "control/cluster/io/migration_document.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/capacity.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/part.h"
#include "control/cluster/model/share.h"
#include "control/cluster/model/text.h"
#include "rpc/base/clock.h"
#include "rpc/base/time_slice_rules.h"

static void add_groups(cJSON *object, const char *name, const struct flyt_groupset *groups)
{
    cJSON *array = cJSON_AddArrayToObject(object, name);

    for (unsigned i = 0; i < FLYT_GROUPS_MAX; i++)
        if (flyt_groupset_has(groups, i))
            cJSON_AddItemToArray(array, cJSON_CreateNumber(i));
}

cJSON *flyt_held_part_entry(const struct flyt_held *held, const struct flyt_part *parts, const struct flyt_card *card,
                            uint64_t revision)
{
    const struct flyt_part *part = NULL;
    unsigned slot = 0;

    for (; slot < held->part_count && !part; slot++)
        if (parts[slot].card == card)
            part = &parts[slot];
    cJSON *entry = part ? cJSON_CreateObject() : NULL;
    if (!entry)
        return NULL;
    cJSON_AddStringToObject(entry, "id", held->id_text);
    cJSON_AddStringToObject(entry, "vm_ip", held->vm_ip);
    cJSON_AddStringToObject(entry, "tenant", held->tenant);
    cJSON_AddStringToObject(entry, "state", flyt_held_state_name(held->state));
    cJSON_AddStringToObject(entry, "isolation", held->isolation == FLYT_ISOLATION_STRICT ? "strict" : "shared");
    cJSON_AddNumberToObject(entry, "revision", (double)revision);
    cJSON_AddNumberToObject(entry, "generation", held->generation);
    cJSON_AddNumberToObject(entry, "slot", slot - 1);
    cJSON_AddNumberToObject(entry, "slot_count", held->part_count);
    add_groups(entry, "sm_groups", &part->groups);
    cJSON_AddNumberToObject(entry, "sm_count", part->sm_count);
    cJSON_AddNumberToObject(entry, "wanted_sms", part->wanted_sms);
    cJSON_AddNumberToObject(entry, "memory_bytes", (double)part->memory_bytes);
    if (flyt_groupset_count(&part->leaving))
        add_groups(entry, "leaving_groups", &part->leaving);
    if (part->leaving_bytes)
        cJSON_AddNumberToObject(entry, "leaving_bytes", (double)part->leaving_bytes);
    cJSON_AddNumberToObject(entry, "sessions", held->sessions_max);
    flyt_share_add_json(held, entry);
    cJSON_AddNumberToObject(entry, "shown_sms", held->shown_sms);
    cJSON_AddBoolToObject(entry, "reserved", held->is_reserved);
    cJSON_AddBoolToObject(entry, "when_free", held->when_free);
    cJSON_AddBoolToObject(entry, "encrypted", held->is_encrypted);
    cJSON_AddNumberToObject(entry, "created_ms", (double)held->created_ms);
    cJSON_AddNumberToObject(entry, "idle_since_ms", (double)held->idle_since_ms);
    return entry;
}

cJSON *flyt_held_entry(const struct flyt_held *held, const struct flyt_card *card)
{
    const struct flyt_migration *migration = held->migration;
    cJSON *entry = flyt_held_part_entry(held, held->parts, card, held->revision);

    /* Where its programs were, until the documents of the GPUs where they are have been written. */
    if (!entry && migration && migration->is_moved)
        entry = flyt_held_part_entry(held, migration->others, card, migration->source_revision);
    if (entry && migration)
        flyt_migration_mark(migration, entry);
    return entry;
}

/* Within bounds, whatever a hand has written there; else 0. */
static double number(const cJSON *object, const char *name, double min, double max)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);

    return cJSON_IsNumber(item) && item->valuedouble >= min && item->valuedouble <= max ? item->valuedouble : 0;
}

static unsigned small(const cJSON *object, const char *name)
{
    return (unsigned)number(object, name, 0, UINT_MAX);
}

/* Such as a document can hold exactly. */
static uint64_t big(const cJSON *object, const char *name)
{
    return (uint64_t)number(object, name, 0, (double)(1ull << 53));
}

static const char *text(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);

    return cJSON_IsString(item) ? item->valuestring : "";
}

static void read_groups(const cJSON *object, const char *name, struct flyt_groupset *groups)
{
    const cJSON *item;

    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(object, name))
    {
        if (cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble < FLYT_GROUPS_MAX)
            flyt_groupset_add(groups, (unsigned)item->valuedouble);
    }
}

static struct flyt_held *load_new(struct flyt_cluster *cluster, const cJSON *entry, uint64_t id, unsigned part_count)
{
    struct flyt_held *held = flyt_held_new(cluster, id, text(entry, "vm_ip"), text(entry, "tenant"), part_count);

    if (!held)
        return NULL;
    for (unsigned i = FLYT_ALLOCATION_ACTIVE; i <= FLYT_ALLOCATION_ENDING; i++)
        if (!strcmp(text(entry, "state"), flyt_held_state_name((enum flyt_allocation_state)i)))
            held->state = (enum flyt_allocation_state)i;
    held->isolation = strcmp(text(entry, "isolation"), "strict") ? FLYT_ISOLATION_SHARED : FLYT_ISOLATION_STRICT;
    held->generation = small(entry, "generation");
    held->sessions_max = small(entry, "sessions");
    held->priority = (int)number(entry, "priority", INT_MIN, INT_MAX);
    held->share = (struct flyt_share){.is_timed = !strcmp(text(entry, "sharing"), "time"),
                                      .minimum_pct = (unsigned)number(entry, "minimum_share", 0, 100),
                                      .maximum_pct = (unsigned)number(entry, "maximum_share", 0, 100),
                                      .window_ms = (unsigned)number(entry, "window_ms", FLYT_TIME_SLICE_WINDOW_MIN_MS,
                                                                    FLYT_TIME_SLICE_WINDOW_MAX_MS)};
    if (!held->share.window_ms)
        held->share.window_ms = (unsigned)cluster->settings->window_ms;
    held->shown_sms = small(entry, "shown_sms");
    held->is_suspended = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(entry, "suspended"));
    held->is_reserved = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(entry, "reserved"));
    held->when_free = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(entry, "when_free"));
    held->is_encrypted = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(entry, "encrypted"));
    held->created_ms = big(entry, "created_ms");
    /* Only what passed while no manager was there is measured by the wall clock. */
    held->idle_since_ms = big(entry, "idle_since_ms");
    held->idle_clock_ms = flyt_clock_ms();
    held->lingered_ms =
        held->idle_since_ms && held->idle_since_ms < flyt_wall_ms() ? flyt_wall_ms() - held->idle_since_ms : 0;
    held->revision = 0;
    return held;
}

void flyt_held_read_part(const cJSON *entry, unsigned slot, struct flyt_part *ret_part)
{
    *ret_part = (struct flyt_part){.device_index = slot,
                                   .sm_count = small(entry, "sm_count"),
                                   .wanted_sms = small(entry, "wanted_sms"),
                                   .memory_bytes = big(entry, "memory_bytes"),
                                   .leaving_bytes = big(entry, "leaving_bytes"),
                                   .revision = big(entry, "revision")};
    read_groups(entry, "sm_groups", &ret_part->groups);
    read_groups(entry, "leaving_groups", &ret_part->leaving);
}

struct flyt_held *flyt_held_of_entry(struct flyt_cluster *cluster, const cJSON *entry, unsigned *ret_slot,
                                     int *ret_status)
{
    unsigned slot_count = small(entry, "slot_count"), slot = small(entry, "slot");
    uint64_t id = strtoull(text(entry, "id"), NULL, 16), revision = big(entry, "revision");

    *ret_status = -EINVAL;
    if (!id || !*text(entry, "vm_ip") || !slot_count || slot_count > FLYT_SLOTS_MAX || slot >= slot_count)
        return NULL;
    struct flyt_held *held = flyt_held_find(cluster, id);
    if (!held && !(held = load_new(cluster, entry, id, slot_count))) {
        *ret_status = -ENOMEM;
        return NULL;
    }
    if (slot_count != held->part_count)
        return NULL;
    /* Entries of one allocation may differ by a write that was cut off: the newest one's revision goes on. */
    if (revision > held->revision)
        held->revision = revision;
    *ret_status = 0;
    *ret_slot = slot;
    return held;
}

int flyt_held_load(struct flyt_card *card, const cJSON *entry)
{
    struct flyt_part part;
    unsigned slot;
    int status;
    struct flyt_held *held = flyt_held_of_entry(card->node->cluster, entry, &slot, &status);

    if (!held)
        return status;
    flyt_held_read_part(entry, slot, &part);
    part.card = card;
    if (held->parts[slot].card)
        return flyt_migration_load_twice(held, slot, &part, entry);
    held->parts[slot] = part;
    held->node = card->node;
    return flyt_gpu_attach(card, held);
}
