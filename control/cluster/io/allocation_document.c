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
#include "control/cluster/model/slot.h"
#include "control/cluster/model/share.h"
#include "control/cluster/model/text.h"
#include "rpc/base/clock.h"
#include "rpc/base/ticket.h"
#include "rpc/base/time_slice_rules.h"

enum { ENTRY, ALLOCATION, SLOT, SHARE, WINDOW, DESIRED, WAY, PARTS };

#define OF_ENTRY(kind, member)   FLYT_##kind(struct flyt_entry, member), .part = ENTRY
#define OF_ALLOCATION(kind, ...) FLYT_##kind(struct flyt_cluster_allocation, __VA_ARGS__), .part = ALLOCATION
#define OF_SLOT(kind, member)    FLYT_##kind(struct flyt_cluster_slot, member), .part = SLOT
#define OF_SHARE(member)         FLYT_NUMBER(struct flyt_share, member)
#define OF_DESIRED(kind, member) FLYT_##kind(struct flyt_migration, member), .part = DESIRED
#define OF_WAY(kind, ...)        FLYT_##kind(struct flyt_migration, __VA_ARGS__), .part = WAY

static const struct flyt_field fields[] = {
    {"id", OF_ENTRY(ID, id), .rules = FLYT_NEEDED},
    {"vm_ip", OF_ENTRY(TEXT, vm_ip), .rules = FLYT_NEEDED | FLYT_BORROWED},
    {"tenant", OF_ENTRY(TEXT, tenant), .rules = FLYT_BORROWED},
    {"state", OF_ALLOCATION(CHOICE, state, flyt_allocation_state_names), .min = FLYT_ALLOCATION_ACTIVE,
     .max = FLYT_ALLOCATION_ENDING},
    {"isolation", OF_ALLOCATION(CHOICE, isolation, flyt_isolation_names)},
    {"revision", OF_ENTRY(NUMBER, revision)},
    {"generation", OF_ALLOCATION(NUMBER, generation)},
    {"slot", OF_ENTRY(NUMBER, slot), .max = FLYT_SLOTS_MAX - 1, .rules = FLYT_NEEDED},
    {"slot_count", OF_ENTRY(NUMBER, slot_count), .min = 1, .max = FLYT_SLOTS_MAX, .rules = FLYT_NEEDED},
    {"sm_groups", OF_SLOT(BITS, groups)},
    {"sm_count", OF_SLOT(NUMBER, sm_count)},
    {"wanted_sms", OF_SLOT(NUMBER, wanted_sms)},
    {"memory_bytes", OF_SLOT(NUMBER, memory_bytes)},
    {"leaving_groups", OF_SLOT(BITS, leaving), .rules = FLYT_SPARSE},
    {"leaving_bytes", OF_SLOT(NUMBER, leaving_bytes), .rules = FLYT_SPARSE},
    {"sessions", OF_ALLOCATION(NUMBER, sessions_max)},
    {"sharing", OF_ALLOCATION(CHOICE, share.is_timed, flyt_sharing_names)},
    {"minimum_share", OF_SHARE(minimum_pct), .part = SHARE, .max = 100},
    {"maximum_share", OF_SHARE(maximum_pct), .part = SHARE, .max = 100},
    {"window_ms", OF_SHARE(window_ms), .part = WINDOW, .min = FLYT_TIME_SLICE_WINDOW_MIN_MS,
     .max = FLYT_TIME_SLICE_WINDOW_MAX_MS},
    {"priority", OF_ALLOCATION(NUMBER, priority)},
    {"suspended", OF_ALLOCATION(FLAG, is_suspended)},
    {"shown_sms", OF_ALLOCATION(NUMBER, shown_sms)},
    {"reserved", OF_ALLOCATION(FLAG, is_reserved)},
    {"when_free", OF_ALLOCATION(FLAG, when_free)},
    {"encrypted", OF_ALLOCATION(FLAG, is_encrypted)},
    {"created_ms", OF_ALLOCATION(NUMBER, created_ms)},
    {"idle_since_ms", OF_ALLOCATION(NUMBER, idle_since_ms)},
    {"migration", OF_ENTRY(ID, migration_id), .rules = FLYT_SPARSE},
    {"migration_from", OF_ENTRY(TEXT, migration_from), .rules = FLYT_SPARSE | FLYT_BORROWED},
    {"migration_who", OF_DESIRED(CHARS, who)},
    {"migration_started_ms", OF_DESIRED(NUMBER, started_ms)},
    {"migration_rounds_max", OF_DESIRED(NUMBER, bounds.rounds_max), .rules = FLYT_SPARSE},
    {"migration_stop_ms", OF_DESIRED(NUMBER, bounds.stop_ms), .rules = FLYT_SPARSE},
    {"migration_timeout_s", OF_DESIRED(NUMBER, bounds.timeout_s), .rules = FLYT_SPARSE},
    {"migration_rest_bytes", OF_DESIRED(NUMBER, bounds.rest_bytes), .rules = FLYT_SPARSE},
    {"migration_streams", OF_DESIRED(NUMBER, stream_count), .max = FLYT_MIGRATION_STREAMS_MAX, .rules = FLYT_SPARSE},
    {"migration_forced", OF_DESIRED(FLAG, is_forced), .rules = FLYT_SPARSE},
    {"migration_packing", OF_WAY(CHOICE, packing, flyt_migration_packing_names), .rules = FLYT_OPEN},
    {"migration_encrypted", OF_WAY(FLAG, is_encrypted)},
    {"migration_revision", OF_ENTRY(NUMBER, migration_revision), .rules = FLYT_SPARSE},
    {0},
};

int flyt_allocation_slot_entry(const struct flyt_cluster_allocation *allocation, const struct flyt_cluster_slot *slots,
                               const struct flyt_cluster_gpu *gpu, uint64_t revision,
                               const struct flyt_migration *migration, bool is_arriving, cJSON **ret_entry)
{
    const bool is_strict = allocation->isolation == FLYT_ISOLATION_STRICT;
    const bool is_between = migration && migration->is_between;
    /* Of one within its node the entries that arrive say it all; bounds that were not given have no member. */
    const struct flyt_migration *desired = is_between || is_arriving ? migration : NULL;
    struct flyt_entry entry = {.id = allocation->id,
                               .vm_ip = allocation->vm_ip,
                               .tenant = allocation->tenant,
                               .revision = revision,
                               .slot_count = allocation->slot_count,
                               .migration_id = migration ? migration->id : 0,
                               .migration_from = is_between ? migration->sides[FLYT_MIGRATION_SOURCE].node->key : NULL,
                               .migration_revision = is_arriving ? allocation->revision + 1 : 0};

    while (entry.slot < allocation->slot_count && slots[entry.slot].gpu != gpu)
        entry.slot++;
    *ret_entry = NULL;
    if (entry.slot == allocation->slot_count)
        return 0;
    const void *const its_parts[PARTS] = {
        [ENTRY] = &entry,
        [ALLOCATION] = allocation,
        [SLOT] = &slots[entry.slot],
        [SHARE] = allocation->share.is_timed ? &allocation->share : NULL,
        [WINDOW] = allocation->share.is_timed || is_strict ? &allocation->share : NULL,
        [DESIRED] = desired,
        [WAY] =
            desired && desired->stream_count ? desired : NULL, /* else not known: an older manager has recorded it */
    };
    *ret_entry = flyt_document_write(fields, its_parts, "allocation", allocation->id_text);
    return *ret_entry ? 0 : -ENOMEM;
}

int flyt_allocation_entry(const struct flyt_cluster_allocation *allocation, const struct flyt_cluster_gpu *gpu,
                          cJSON **ret_entry)
{
    const struct flyt_migration *migration = allocation->migration;

    *ret_entry = NULL;
    if (allocation->state == FLYT_ALLOCATION_ORPHAN)
        return 0;
    int status = flyt_allocation_slot_entry(allocation, allocation->slots, gpu, allocation->revision, migration, false,
                                            ret_entry);
    /* Where its programs were, until the documents of the GPUs where they are have been written. */
    if (!status && !*ret_entry && migration && flyt_migration_is_moved(migration))
        status = flyt_allocation_slot_entry(allocation, migration->others, gpu, migration->source_revision, migration,
                                            false, ret_entry);
    return status;
}

int flyt_entry_read_migration(const cJSON *entry, struct flyt_migration *migration)
{
    void *const parts[PARTS] = {[DESIRED] = migration, [WAY] = migration};

    return flyt_document_read(fields, entry, parts, "migration", migration->id_text);
}

/* What all of its entries have. */
static int read_allocation(struct flyt_cluster_allocation *allocation, const cJSON *entry)
{
    void *const parts[PARTS] = {[ALLOCATION] = allocation, [SHARE] = &allocation->share, [WINDOW] = &allocation->share};
    const uint64_t now_ms = flyt_wall_ms();
    int status = flyt_document_read(fields, entry, parts, "allocation", allocation->id_text);

    if (!allocation->state)
        allocation->state = FLYT_ALLOCATION_ACTIVE;
    if (!allocation->share.window_ms)
        allocation->share.window_ms = (unsigned)allocation->cluster->settings->window_ms;
    /* Only what passed while no manager was there is measured by the wall clock. */
    allocation->idle_clock_ms = flyt_clock_ms();
    allocation->lingered_ms =
        allocation->idle_since_ms && allocation->idle_since_ms < now_ms ? now_ms - allocation->idle_since_ms : 0;
    return status;
}

struct flyt_cluster_allocation *flyt_allocation_of_entry(const struct flyt_cluster_gpu *gpu, const cJSON *entry,
                                                         struct flyt_entry *ret_entry,
                                                         struct flyt_cluster_slot *ret_slot, int *ret_status)
{
    struct flyt_cluster *cluster = gpu->node->cluster;

    *ret_slot = (struct flyt_cluster_slot){0};
    *ret_status = flyt_document_read(fields, entry, (void *const[PARTS]){[ENTRY] = ret_entry, [SLOT] = ret_slot},
                                     "an allocation of gpu", gpu->key);
    if (*ret_status)
        return NULL;
    *ret_status = -EINVAL;
    if (!*ret_entry->vm_ip || ret_entry->slot >= ret_entry->slot_count)
        return NULL;
    ret_slot->device_index = ret_entry->slot;
    ret_slot->revision = ret_entry->revision;
    struct flyt_cluster_allocation *allocation = flyt_allocation_find(cluster, ret_entry->id);
    bool is_new = !allocation;
    if (is_new) {
        allocation =
            flyt_allocation_new(cluster, ret_entry->id, ret_entry->vm_ip, ret_entry->tenant, ret_entry->slot_count);
        if (allocation)
            allocation->revision = 0;
    }
    if (!allocation) {
        *ret_status = -ENOMEM;
        return NULL;
    }
    if (ret_entry->slot_count != allocation->slot_count)
        return NULL;
    *ret_status = 0;
    /* Entries of one allocation may differ by a write that was cut off: the newest one goes on. */
    if (is_new || ret_entry->revision > allocation->revision) {
        allocation->revision = ret_entry->revision;
        *ret_status = read_allocation(allocation, entry);
    }
    return *ret_status ? NULL : allocation;
}

int flyt_allocation_load(struct flyt_cluster_gpu *gpu, const cJSON *entry)
{
    struct flyt_entry its;
    struct flyt_cluster_slot slot;
    int status;
    struct flyt_cluster_allocation *allocation = flyt_allocation_of_entry(gpu, entry, &its, &slot, &status);

    if (!allocation)
        return status;
    slot.gpu = gpu;
    if (allocation->slots[its.slot].gpu)
        return flyt_migration_load_twice(allocation, &its, &slot, entry);
    allocation->slots[its.slot] = slot;
    allocation->node = gpu->node;
    return flyt_gpu_attach(gpu, allocation);
}
