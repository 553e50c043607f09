/* What people see of migrations: the view, the list of those that are over, events. */
#include <stdio.h>
#include <string.h>

#include "control/cluster/io/event.h"
#include "control/cluster/io/measure.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/migration_rules.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/part.h"
#include "control/cluster/model/vm.h"
#include "control/cluster/reconcile/migration.h"

static void add_number(cJSON *object, const char *name, uint64_t number)
{
    cJSON_AddNumberToObject(object, name, (double)number);
}

static void add_text(cJSON *object, const char *name, const char *text)
{
    if (text && *text)
        cJSON_AddStringToObject(object, name, text);
    else
        cJSON_AddNullToObject(object, name);
}

static void add_uuids(cJSON *object, const char *name, const struct flyt_part *parts, unsigned count)
{
    cJSON *array = cJSON_AddArrayToObject(object, name);

    for (unsigned i = 0; i < count; i++)
        if (parts[i].card)
            cJSON_AddItemToArray(array, cJSON_CreateString(parts[i].card->key));
}

cJSON *flyt_migration_json(const struct flyt_migration *migration)
{
    const struct flyt_held *held = migration->held;
    const flyt_migration_use *use = &migration->use;
    const struct flyt_part *source = migration->is_moved ? migration->others : held->parts;
    const struct flyt_part *target = migration->is_moved ? held->parts : migration->others;
    const flyt_migration_phase phase =
        migration->is_moved && !migration->ended_ms ? FLYT_MIGRATION_SWITCHING : use->phase;
    cJSON *object = cJSON_CreateObject();

    cJSON_AddStringToObject(object, "id", migration->id_text);
    cJSON_AddStringToObject(object, "allocation", held->id_text);
    cJSON_AddStringToObject(object, "vm_ip", held->vm_ip);
    add_text(object, "node", migration->sides[FLYT_MIGRATION_SOURCE].node->key);
    add_text(object, "target_node", migration->sides[FLYT_MIGRATION_TARGET].node->key);
    add_text(object, "source", migration->source);
    add_text(object, "target", migration->target);
    add_uuids(object, "source_gpus", source, held->part_count);
    add_uuids(object, "target_gpus", target, held->part_count);
    if (migration->is_between && migration->stream_count) { /* not known of one that an older manager has recorded */
        add_number(object, "streams", migration->stream_count);
        add_text(object, "packing", flyt_migration_packing_name(migration->packing));
        cJSON_AddBoolToObject(object, "encrypted", migration->is_encrypted);
    }
    cJSON_AddStringToObject(object, "phase", flyt_migration_phase_name(phase));
    cJSON_AddBoolToObject(object, "cancelled", migration->is_cancelled);
    add_text(object, "reason", migration->reason);
    add_text(object, "who", migration->who);
    cJSON_AddBoolToObject(object, "forced", migration->is_forced);
    add_number(object, "rounds_max", migration->bounds.rounds_max);
    add_number(object, "stop_ms", migration->bounds.stop_ms);
    add_number(object, "timeout_s", migration->bounds.timeout_s);
    add_number(object, "rest_bytes", migration->bounds.rest_bytes);
    add_number(object, "sessions", use->session_count);
    add_number(object, "round", use->round);
    add_number(object, "memory_bytes", use->memory_bytes);
    add_number(object, "copied_bytes", use->copied_bytes);
    add_number(object, "left_bytes", use->left_bytes);
    add_number(object, "dirty_bytes", use->dirty_bytes);
    add_number(object, "bytes_per_s", use->bytes_per_s);
    add_number(object, "elapsed_ms", use->elapsed_ms);
    add_number(object, "standstill_us", use->standstill_us);
    add_number(object, "last_bytes", use->last_bytes);
    add_number(object, "started_ms", migration->started_ms);
    if (migration->ended_ms)
        add_number(object, "ended_ms", migration->ended_ms);
    else
        cJSON_AddNullToObject(object, "ended_ms");
    return object;
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

    cJSON_ArrayForEach(over, migration->held->cluster->migrations)
    {
        const char *id = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(over, "id"));
        if (id && !strcmp(id, migration->id_text))
            return true;
    }
    return false;
}

void flyt_migration_tell_end(struct flyt_migration *migration)
{
    struct flyt_held *held = migration->held;
    struct flyt_cluster *cluster = held->cluster;
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
        flyt_event_add(cluster, "migration.done", migration->who, held->vm_ip, NULL, object,
                       "VM %s has moved from %s to %s: %s%s%s", held->vm_ip, migration->source, migration->target,
                       figures, *remark ? "; " : "", remark);
    else
        flyt_event_add(cluster, "migration.failed", migration->who, held->vm_ip, NULL, object,
                       "VM %s stays on %s, it has not moved to %s: %s (%s)", held->vm_ip,
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
    for (size_t i = 0; i < cluster->held.count; i++) {
        const struct flyt_held *held = cluster->held.items[i];
        cJSON *object = held->migration ? flyt_migration_json(held->migration) : NULL;
        if (object && is_selected(object, selector))
            cJSON_AddItemToArray(array, object);
        else
            cJSON_Delete(object);
    }
    return array;
}
