/* What people see of migrations: the view, the list of those that are over, events. */
#include <stdio.h>
#include <string.h>

#include "control/cluster/io/document.h"
#include "control/cluster/io/event.h"
#include "control/cluster/io/measure.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/migration_rules.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/slot.h"
#include "control/cluster/model/vm.h"
#include "control/cluster/reconcile/migration.h"

/* What is not in the model as it is shown. */
struct shown {
    const char *source_node, *target_node, *phase;
    const char *source_gpus[FLYT_SLOTS_MAX], *target_gpus[FLYT_SLOTS_MAX];
    unsigned source_count, target_count;
};

static const struct flyt_field uuid_fields[] = {{"", .kind = FLYT_FIELD_TEXT, .size = sizeof(char *)}, {0}};
static const struct flyt_item uuid_item = {.fields = uuid_fields, .bytes = sizeof(char *)};

#define OF(kind, ...)            FLYT_##kind(struct flyt_migration, __VA_ARGS__), .part = MIGRATION
#define OF_ALLOCATION(kind, ...) FLYT_##kind(struct flyt_cluster_allocation, __VA_ARGS__), .part = ALLOCATION
#define OF_SHOWN(kind, ...)      FLYT_##kind(struct shown, __VA_ARGS__), .part = SHOWN
#define OF_USE(member)           OF(NUMBER, use.member), .rules = FLYT_EXACT
enum { MIGRATION, ALLOCATION, SHOWN, WAY, PARTS };

static const struct flyt_field fields[] = {
    {"id", OF(ID, id)},
    {"allocation", OF_ALLOCATION(ID, id)},
    {"vm_ip", OF_ALLOCATION(TEXT, vm_ip)},
    {"node", OF_SHOWN(TEXT, source_node), .rules = FLYT_NULLABLE},
    {"target_node", OF_SHOWN(TEXT, target_node), .rules = FLYT_NULLABLE},
    {"source", OF(TEXT, source), .rules = FLYT_NULLABLE},
    {"target", OF(TEXT, target), .rules = FLYT_NULLABLE},
    {"source_gpus", OF_SHOWN(ARRAY, source_gpus, source_count, &uuid_item)},
    {"target_gpus", OF_SHOWN(ARRAY, target_gpus, target_count, &uuid_item)},
    {"streams", FLYT_NUMBER(struct flyt_migration, stream_count), .part = WAY},
    {"packing", FLYT_CHOICE(struct flyt_migration, packing, flyt_migration_packing_names), .part = WAY,
     .rules = FLYT_OPEN},
    {"encrypted", FLYT_FLAG(struct flyt_migration, is_encrypted), .part = WAY},
    {"phase", OF_SHOWN(TEXT, phase)},
    {"cancelled", OF(FLAG, is_cancelled)},
    {"reason", OF(CHARS, reason), .rules = FLYT_NULLABLE},
    {"who", OF(CHARS, who), .rules = FLYT_NULLABLE},
    {"forced", OF(FLAG, is_forced)},
    {"rounds_max", OF(NUMBER, bounds.rounds_max)},
    {"stop_ms", OF(NUMBER, bounds.stop_ms)},
    {"timeout_s", OF(NUMBER, bounds.timeout_s)},
    {"rest_bytes", OF(NUMBER, bounds.rest_bytes), .rules = FLYT_EXACT},
    {"sessions", OF_USE(session_count)},
    {"round", OF_USE(round)},
    {"memory_bytes", OF_USE(memory_bytes)},
    {"copied_bytes", OF_USE(copied_bytes)},
    {"left_bytes", OF_USE(left_bytes)},
    {"dirty_bytes", OF_USE(dirty_bytes)},
    {"bytes_per_s", OF_USE(bytes_per_s)},
    {"elapsed_ms", OF_USE(elapsed_ms)},
    {"standstill_us", OF_USE(standstill_us)},
    {"last_bytes", OF_USE(last_bytes)},
    {"started_ms", OF(NUMBER, started_ms)},
    {"ended_ms", OF(NUMBER, ended_ms), .rules = FLYT_NULLABLE},
    {0},
};

static unsigned list_uuids(const struct flyt_cluster_slot *slots, unsigned count, const char **uuids)
{
    unsigned listed = 0;

    for (unsigned i = 0; i < count; i++)
        if (slots[i].gpu)
            uuids[listed++] = slots[i].gpu->key;
    return listed;
}

cJSON *flyt_migration_json(const struct flyt_migration *migration)
{
    const struct flyt_cluster_allocation *allocation = migration->allocation;
    const bool is_moved = flyt_migration_is_moved(migration);
    struct shown shown = {.source_node = migration->sides[FLYT_MIGRATION_SOURCE].node->key,
                          .target_node = migration->sides[FLYT_MIGRATION_TARGET].node->key,
                          .phase = flyt_migration_phase_name(is_moved && !migration->ended_ms ? FLYT_MIGRATION_SWITCHING
                                                                                              : migration->use.phase)};
    /* Not known of one within a node, or that an older manager has recorded. */
    const struct flyt_migration *way = migration->is_between && migration->stream_count ? migration : NULL;

    shown.source_count =
        list_uuids(is_moved ? migration->others : allocation->slots, allocation->slot_count, shown.source_gpus);
    shown.target_count =
        list_uuids(is_moved ? allocation->slots : migration->others, allocation->slot_count, shown.target_gpus);
    return flyt_document_write(fields, (const void *const[PARTS]){migration, allocation, &shown, way}, "migration",
                               migration->id_text);
}

/* Takes it over. */
static void remember(struct flyt_cluster *cluster, cJSON *object)
{
    if (!cluster->migrations)
        cluster->migrations = cJSON_CreateArray();
    if (!object || !cluster->migrations || !cJSON_AddItemToArray(cluster->migrations, object)) {
        cJSON_Delete(object);
        return;
    }
    while (cJSON_GetArraySize(cluster->migrations) > FLYT_MIGRATIONS_SHOWN)
        cJSON_DeleteItemFromArray(cluster->migrations, 0);
}

void flyt_migration_load_event(struct flyt_cluster *cluster, const char *kind, const char *after)
{
    if (!strcmp(kind, "migration.done") || !strcmp(kind, "migration.failed"))
        remember(cluster, cJSON_Parse(after));
}

/* By who led before: whose writing of the documents was cut off behind that. */
static bool is_told(const struct flyt_migration *migration)
{
    const cJSON *over;

    cJSON_ArrayForEach(over, migration->allocation->cluster->migrations)
    {
        const char *id = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(over, "id"));
        if (id && !strcmp(id, migration->id_text))
            return true;
    }
    return false;
}

void flyt_migration_tell_end(struct flyt_migration *migration)
{
    struct flyt_cluster_allocation *allocation = migration->allocation;
    struct flyt_cluster *cluster = allocation->cluster;
    bool is_done = migration->use.phase == FLYT_MIGRATION_DONE;
    char figures[256] = "nothing was copied";
    const char *remark = is_done ? migration->reason : "";

    if (is_told(migration))
        return;
    cJSON *object = flyt_migration_json(migration);
    if (is_done && !migration->has_figures)
        snprintf(figures, sizeof figures, "what it took is not known, for a manager was restarted meanwhile");
    else if (is_done || migration->use.elapsed_ms)
        flyt_migration_figures(&migration->use, figures, sizeof figures);
    remember(cluster, cJSON_Duplicate(object, true));
    flyt_measure_migration(cluster, migration);
    if (is_done)
        flyt_event_add(cluster, "migration.done", migration->who, allocation->vm_ip, NULL, object,
                       "VM %s has moved from %s to %s: %s%s%s", allocation->vm_ip, migration->source, migration->target,
                       figures, *remark ? "; " : "", remark);
    else
        flyt_event_add(cluster, "migration.failed", migration->who, allocation->vm_ip, NULL, object,
                       "VM %s stays on %s, it has not moved to %s: %s (%s)", allocation->vm_ip,
                       migration->source ? migration->source : "?", migration->target ? migration->target : "?",
                       migration->reason, figures);
}

static bool is_selected(const cJSON *object, const char *selector)
{
    static const char *const names[] = {"vm_ip", "node", "target_node", "source", "target"};
    const char *ids[] = {"id", "allocation"};
    const char *value;

    if (!*selector)
        return true;
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if ((value = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, names[i]))) &&
            !strcmp(value, selector))
            return true;
    for (unsigned i = 0; i < sizeof ids / sizeof *ids; i++)
        if ((value = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, ids[i]))) &&
            !strncmp(value, selector, strlen(selector)))
            return true;
    return false;
}

cJSON *flyt_migration_view(struct flyt_cluster *cluster, const char *selector)
{
    const struct flyt_vm *vm = *selector ? flyt_vm_find(cluster, selector, NULL) : NULL;
    cJSON *array = cJSON_CreateArray();
    const cJSON *over;

    if (vm)
        selector = vm->key;
    cJSON_ArrayForEach(over, cluster->migrations)
    {
        if (is_selected(over, selector))
            cJSON_AddItemToArray(array, cJSON_Duplicate(over, true));
    }
    for (size_t i = 0; i < cluster->allocations.count; i++) {
        const struct flyt_cluster_allocation *allocation = cluster->allocations.items[i];
        cJSON *object = allocation->migration ? flyt_migration_json(allocation->migration) : NULL;
        if (object && is_selected(object, selector))
            cJSON_AddItemToArray(array, object);
        else
            cJSON_Delete(object);
    }
    return array;
}
