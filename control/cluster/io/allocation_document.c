/*
 * Allocations in the store: an entry in the document of each GPU that they have a part of, made of the model and read
 * back into it.
 */
#include <errno.h>

#include "control/cluster/io/allocation_document.h"
#include "control/cluster/io/document.h"
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
#include "rpc/base/ticket.h"
#include "rpc/base/time_slice_rules.h"

enum { ENTRY, HELD, PART, SHARE, WINDOW, WISH, WAY, PARTS };

#define OF_ENTRY(kind, member) FLYT_##kind(struct flyt_entry, member), .part = ENTRY
#define OF_HELD(kind, ...)     FLYT_##kind(struct flyt_held, __VA_ARGS__), .part = HELD
#define OF_PART(kind, member)  FLYT_##kind(struct flyt_part, member), .part = PART
#define OF_SHARE(member)       FLYT_NUMBER(struct flyt_share, member)
#define OF_WISH(kind, member)  FLYT_##kind(struct flyt_migration, member), .part = WISH
#define OF_WAY(kind, ...)      FLYT_##kind(struct flyt_migration, __VA_ARGS__), .part = WAY

static const struct flyt_field fields[] = {
    {"id", OF_ENTRY(ID, id), .rules = FLYT_NEEDED},
    {"vm_ip", OF_ENTRY(TEXT, vm_ip), .rules = FLYT_NEEDED | FLYT_BORROWED},
    {"tenant", OF_ENTRY(TEXT, tenant), .rules = FLYT_BORROWED},
    {"state", OF_HELD(CHOICE, state, flyt_held_state_names), .min = FLYT_ALLOCATION_ACTIVE,
     .max = FLYT_ALLOCATION_ENDING},
    {"isolation", OF_HELD(CHOICE, isolation, flyt_isolation_names)},
    {"revision", OF_ENTRY(NUMBER, revision)},
    {"generation", OF_HELD(NUMBER, generation)},
    {"slot", OF_ENTRY(NUMBER, slot), .max = FLYT_SLOTS_MAX - 1, .rules = FLYT_NEEDED},
    {"slot_count", OF_ENTRY(NUMBER, slot_count), .min = 1, .max = FLYT_SLOTS_MAX, .rules = FLYT_NEEDED},
    {"sm_groups", OF_PART(BITS, groups)},
    {"sm_count", OF_PART(NUMBER, sm_count)},
    {"wanted_sms", OF_PART(NUMBER, wanted_sms)},
    {"memory_bytes", OF_PART(NUMBER, memory_bytes)},
    {"leaving_groups", OF_PART(BITS, leaving), .rules = FLYT_SPARSE},
    {"leaving_bytes", OF_PART(NUMBER, leaving_bytes), .rules = FLYT_SPARSE},
    {"sessions", OF_HELD(NUMBER, sessions_max)},
    {"sharing", OF_HELD(CHOICE, share.is_timed, flyt_sharing_names)},
    {"minimum_share", OF_SHARE(minimum_pct), .part = SHARE, .max = 100},
    {"maximum_share", OF_SHARE(maximum_pct), .part = SHARE, .max = 100},
    {"window_ms", OF_SHARE(window_ms), .part = WINDOW, .min = FLYT_TIME_SLICE_WINDOW_MIN_MS,
     .max = FLYT_TIME_SLICE_WINDOW_MAX_MS},
    {"priority", OF_HELD(NUMBER, priority)},
    {"suspended", OF_HELD(FLAG, is_suspended)},
    {"shown_sms", OF_HELD(NUMBER, shown_sms)},
    {"reserved", OF_HELD(FLAG, is_reserved)},
    {"when_free", OF_HELD(FLAG, when_free)},
    {"encrypted", OF_HELD(FLAG, is_encrypted)},
    {"created_ms", OF_HELD(NUMBER, created_ms)},
    {"idle_since_ms", OF_HELD(NUMBER, idle_since_ms)},
    {"migration", OF_ENTRY(ID, migration_id), .rules = FLYT_SPARSE},
    {"migration_from", OF_ENTRY(TEXT, migration_from), .rules = FLYT_SPARSE | FLYT_BORROWED},
    {"migration_who", OF_WISH(CHARS, who)},
    {"migration_started_ms", OF_WISH(NUMBER, started_ms)},
    {"migration_rounds_max", OF_WISH(NUMBER, bounds.rounds_max), .rules = FLYT_SPARSE},
    {"migration_stop_ms", OF_WISH(NUMBER, bounds.stop_ms), .rules = FLYT_SPARSE},
    {"migration_timeout_s", OF_WISH(NUMBER, bounds.timeout_s), .rules = FLYT_SPARSE},
    {"migration_rest_bytes", OF_WISH(NUMBER, bounds.rest_bytes), .rules = FLYT_SPARSE},
    {"migration_streams", OF_WISH(NUMBER, stream_count), .max = FLYT_MIGRATION_STREAMS_MAX, .rules = FLYT_SPARSE},
    {"migration_forced", OF_WISH(FLAG, is_forced), .rules = FLYT_SPARSE},
    {"migration_packing", OF_WAY(CHOICE, packing, flyt_migration_packing_names), .rules = FLYT_OPEN},
    {"migration_encrypted", OF_WAY(FLAG, is_encrypted)},
    {"migration_revision", OF_ENTRY(NUMBER, migration_revision), .rules = FLYT_SPARSE},
    {0},
};

int flyt_held_part_entry(const struct flyt_held *held, const struct flyt_part *parts, const struct flyt_card *card,
                         uint64_t revision, const struct flyt_migration *migration, bool is_arriving, cJSON **ret_entry)
{
    const bool is_strict = held->isolation == FLYT_ISOLATION_STRICT;
    const bool is_between = migration && migration->is_between;
    /* Of one within its node the entries that arrive say it all; bounds that were not given have no member. */
    const struct flyt_migration *wish = is_between || is_arriving ? migration : NULL;
    struct flyt_entry entry = {.id = held->id,
                               .vm_ip = held->vm_ip,
                               .tenant = held->tenant,
                               .revision = revision,
                               .slot_count = held->part_count,
                               .migration_id = migration ? migration->id : 0,
                               .migration_from = is_between ? migration->sides[FLYT_MIGRATION_SOURCE].node->key : NULL,
                               .migration_revision = is_arriving ? held->revision + 1 : 0};

    while (entry.slot < held->part_count && parts[entry.slot].card != card)
        entry.slot++;
    *ret_entry = NULL;
    if (entry.slot == held->part_count)
        return 0;
    const void *const its_parts[PARTS] = {
        [ENTRY] = &entry,
        [HELD] = held,
        [PART] = &parts[entry.slot],
        [SHARE] = held->share.is_timed ? &held->share : NULL,
        [WINDOW] = held->share.is_timed || is_strict ? &held->share : NULL,
        [WISH] = wish,
        [WAY] = wish && wish->stream_count ? wish : NULL, /* else not known: an older manager has recorded it */
    };
    *ret_entry = flyt_document_write(fields, its_parts, "allocation", held->id_text);
    return *ret_entry ? 0 : -ENOMEM;
}

int flyt_held_entry(const struct flyt_held *held, const struct flyt_card *card, cJSON **ret_entry)
{
    const struct flyt_migration *migration = held->migration;

    *ret_entry = NULL;
    if (held->state == FLYT_ALLOCATION_ORPHAN)
        return 0;
    int status = flyt_held_part_entry(held, held->parts, card, held->revision, migration, false, ret_entry);
    /* Where its programs were, until the documents of the GPUs where they are have been written. */
    if (!status && !*ret_entry && migration && flyt_migration_is_moved(migration))
        status = flyt_held_part_entry(held, migration->others, card, migration->source_revision, migration, false,
                                      ret_entry);
    return status;
}

int flyt_entry_read_migration(const cJSON *entry, struct flyt_migration *migration)
{
    void *const parts[PARTS] = {[WISH] = migration, [WAY] = migration};

    return flyt_document_read(fields, entry, parts, "migration", migration->id_text);
}

/* What all of its entries have. */
static int read_allocation(struct flyt_held *held, const cJSON *entry)
{
    void *const parts[PARTS] = {[HELD] = held, [SHARE] = &held->share, [WINDOW] = &held->share};
    const uint64_t now_ms = flyt_wall_ms();
    int status = flyt_document_read(fields, entry, parts, "allocation", held->id_text);

    if (!held->state)
        held->state = FLYT_ALLOCATION_ACTIVE;
    if (!held->share.window_ms)
        held->share.window_ms = (unsigned)held->cluster->settings->window_ms;
    /* Only what passed while no manager was there is measured by the wall clock. */
    held->idle_clock_ms = flyt_clock_ms();
    held->lingered_ms = held->idle_since_ms && held->idle_since_ms < now_ms ? now_ms - held->idle_since_ms : 0;
    return status;
}

struct flyt_held *flyt_held_of_entry(const struct flyt_card *card, const cJSON *entry, struct flyt_entry *ret_entry,
                                     struct flyt_part *ret_part, int *ret_status)
{
    struct flyt_cluster *cluster = card->node->cluster;

    *ret_part = (struct flyt_part){0};
    *ret_status = flyt_document_read(fields, entry, (void *const[PARTS]){[ENTRY] = ret_entry, [PART] = ret_part},
                                     "an allocation of gpu", card->key);
    if (*ret_status)
        return NULL;
    *ret_status = -EINVAL;
    if (!*ret_entry->vm_ip || ret_entry->slot >= ret_entry->slot_count)
        return NULL;
    ret_part->device_index = ret_entry->slot;
    ret_part->revision = ret_entry->revision;
    struct flyt_held *held = flyt_held_find(cluster, ret_entry->id);
    bool is_new = !held;
    if (is_new) {
        held = flyt_held_new(cluster, ret_entry->id, ret_entry->vm_ip, ret_entry->tenant, ret_entry->slot_count);
        if (held)
            held->revision = 0;
    }
    if (!held) {
        *ret_status = -ENOMEM;
        return NULL;
    }
    if (ret_entry->slot_count != held->part_count)
        return NULL;
    *ret_status = 0;
    /* Entries of one allocation may differ by a write that was cut off: the newest one goes on. */
    if (is_new || ret_entry->revision > held->revision) {
        held->revision = ret_entry->revision;
        *ret_status = read_allocation(held, entry);
    }
    return *ret_status ? NULL : held;
}

int flyt_held_load(struct flyt_card *card, const cJSON *entry)
{
    struct flyt_entry its;
    struct flyt_part part;
    int status;
    struct flyt_held *held = flyt_held_of_entry(card, entry, &its, &part, &status);

    if (!held)
        return status;
    part.card = card;
    if (held->parts[its.slot].card)
        return flyt_migration_load_twice(held, &its, &part, entry);
    held->parts[its.slot] = part;
    held->node = card->node;
    return flyt_gpu_attach(card, held);
}
