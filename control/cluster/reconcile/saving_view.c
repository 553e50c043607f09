/* What people see of checkpoints and restores: the view, the list of those that are over, events. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/cluster/io/event.h"
#include "control/cluster/io/measure.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/saving.h"
#include "control/cluster/model/vm.h"
#include "control/cluster/reconcile/saving.h"

const char *flyt_saving_phase_name(flyt_saving_phase phase)
{
    static const char *const names[] = {"unknown", "preparing", "copying", "stopping", "switching", "done", "failed"};

    return phase >= FLYT_SAVING_PREPARING && phase <= FLYT_SAVING_FAILED ? names[phase] : names[0];
}

static void add_number(cJSON *object, const char *name, uint64_t number)
{
    cJSON_AddNumberToObject(object, name, (double)number);
}

static void add_text(cJSON *object, const char *name, const char *text)
{
    if (*text)
        cJSON_AddStringToObject(object, name, text);
    else
        cJSON_AddNullToObject(object, name);
}

static void add_id(cJSON *object, const char *name, uint64_t id)
{
    char text[17] = "";

    if (id)
        snprintf(text, sizeof text, "%016" PRIx64, id);
    add_text(object, name, text);
}

cJSON *flyt_saving_json(const struct flyt_saving *saving)
{
    const flyt_saving_use *use = &saving->use;
    cJSON *object = cJSON_CreateObject();

    cJSON_AddStringToObject(object, "id", saving->id_text);
    cJSON_AddStringToObject(object, "kind", saving->is_restore ? "restore" : "checkpoint");
    add_text(object, "vm_ip", saving->vm_ip);
    add_id(object, "allocation", saving->allocation_id);
    add_id(object, "session", saving->session_id);
    cJSON_AddStringToObject(object, "node", saving->node);
    cJSON_AddStringToObject(object, "folder", saving->folder);
    cJSON_AddBoolToObject(object, "leave_running", saving->leaves_running);
    cJSON_AddStringToObject(object, "phase", flyt_saving_phase_name(use->phase));
    add_text(object, "reason", saving->reason);
    add_text(object, "who", saving->who);
    add_number(object, "sessions", use->session_count);
    add_number(object, "memory_bytes", use->memory_bytes);
    add_number(object, "copied_bytes", use->copied_bytes);
    add_number(object, "kept_bytes", use->kept_bytes);
    add_number(object, "standstill_us", use->standstill_us);
    add_number(object, "elapsed_ms", use->elapsed_ms);
    add_number(object, "started_ms", saving->started_ms);
    if (saving->ended_ms)
        add_number(object, "ended_ms", saving->ended_ms);
    else
        cJSON_AddNullToObject(object, "ended_ms");
    return object;
}

/* Takes it over. */
static void remember(struct flyt_cluster *cluster, cJSON *object)
{
    if (!cluster->savings_over)
        cluster->savings_over = cJSON_CreateArray();
    if (!object || !cluster->savings_over || !cJSON_AddItemToArray(cluster->savings_over, object)) {
        cJSON_Delete(object);
        return;
    }
    while (cJSON_GetArraySize(cluster->savings_over) > FLYT_SAVINGS_SHOWN)
        cJSON_DeleteItemFromArray(cluster->savings_over, 0);
}

/* ---- events ---- */

void flyt_saving_tell_begin(struct flyt_saving *saving)
{
    if (saving->is_restore)
        flyt_event_add(saving->cluster, "restore.started", saving->who, saving->node, NULL, flyt_saving_json(saving),
                       "programs on node %s go on from images in %s: restore %s", saving->node, saving->folder,
                       saving->id_text);
    else
        flyt_event_add(saving->cluster, "checkpoint.started", saving->who, saving->vm_ip, NULL,
                       flyt_saving_json(saving), "programs of VM %s are written to %s on node %s: checkpoint %s",
                       saving->vm_ip, saving->folder, saving->node, saving->id_text);
}

void flyt_saving_tell_end(struct flyt_saving *saving)
{
    cJSON *object = flyt_saving_json(saving);
    const bool is_done = saving->use.phase == FLYT_SAVING_DONE;
    const unsigned count = saving->use.session_count;

    remember(saving->cluster, cJSON_Duplicate(object, true));
    flyt_measure_saving(saving->cluster, saving);
    if (saving->is_restore)
        flyt_event_add(saving->cluster, is_done ? "restore.done" : "restore.failed", saving->who, saving->node, NULL,
                       object, "%u program%s on node %s from images in %s%s%s", count,
                       count == 1 ? " goes on" : "s go on", saving->node, saving->folder,
                       is_done ? "" : "; not all: ", is_done ? "" : saving->reason);
    else if (is_done)
        flyt_event_add(saving->cluster, "checkpoint.done", saving->who, saving->vm_ip, NULL, object,
                       "%u program%s of VM %s: written to %s on node %s, and %s", count, count == 1 ? "" : "s",
                       saving->vm_ip, saving->folder, saving->node,
                       saving->leaves_running ? "running on" : "waiting for a restore");
    else
        flyt_event_add(saving->cluster, "checkpoint.failed", saving->who, saving->vm_ip, NULL, object,
                       "programs of VM %s are not written to %s on node %s: %s", saving->vm_ip, saving->folder,
                       saving->node, saving->reason);
}

static const char *text_of(const cJSON *object, const char *name)
{
    const char *value = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));

    return value ? value : "";
}

static uint64_t id_of(const cJSON *object, const char *name)
{
    return strtoull(text_of(object, name), NULL, 16);
}

static uint64_t number_of(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);

    return cJSON_IsNumber(item) && item->valuedouble > 0 && item->valuedouble < 0x1p53 ? (uint64_t)item->valuedouble
                                                                                       : 0;
}

/* One that has begun under another manager: it goes on to be followed. */
static void load(struct flyt_cluster *cluster, const cJSON *object)
{
    const uint64_t id = id_of(object, "id");
    struct flyt_saving *saving =
        id && *text_of(object, "node") && !flyt_saving_find(cluster, id) ? flyt_saving_new(cluster, id) : NULL;

    if (!saving)
        return;
    saving->is_begun = true;
    saving->is_restore = !strcmp(text_of(object, "kind"), "restore");
    saving->allocation_id = id_of(object, "allocation");
    saving->session_id = id_of(object, "session");
    saving->leaves_running = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(object, "leave_running"));
    saving->started_ms = number_of(object, "started_ms");
    snprintf(saving->who, sizeof saving->who, "%s", text_of(object, "who"));
    snprintf(saving->node, sizeof saving->node, "%s", text_of(object, "node"));
    snprintf(saving->folder, sizeof saving->folder, "%s", text_of(object, "folder"));
    snprintf(saving->vm_ip, sizeof saving->vm_ip, "%s", text_of(object, "vm_ip"));
    saving->next = cluster->savings;
    cluster->savings = saving;
}

static void unload(struct flyt_cluster *cluster, uint64_t id)
{
    for (struct flyt_saving **link = &cluster->savings, *saving; (saving = *link); link = &saving->next) {
        if (saving->id != id)
            continue;
        *link = saving->next;
        flyt_saving_free(saving);
        return;
    }
}

static bool is_end(const char *kind)
{
    return !strcmp(kind, "checkpoint.done") || !strcmp(kind, "checkpoint.failed") || !strcmp(kind, "restore.done") ||
           !strcmp(kind, "restore.failed");
}

void flyt_saving_load_event(struct flyt_cluster *cluster, const char *kind, const char *after)
{
    const bool is_begin = !strcmp(kind, "checkpoint.started") || !strcmp(kind, "restore.started");
    cJSON *object = is_begin || is_end(kind) ? cJSON_Parse(after) : NULL; /* a node's own event has none */

    if (object && is_begin)
        load(cluster, object);
    else if (object)
        unload(cluster, id_of(object, "id"));
    if (object && !is_begin)
        remember(cluster, object);
    else
        cJSON_Delete(object);
}

/* "checkpoint 0123456789abcdef: …" */
static uint64_t id_in(const char *text)
{
    const char *word = strchr(text, ' ');
    char *behind = NULL;
    const uint64_t id = word ? strtoull(word + 1, &behind, 16) : 0;

    return behind && behind == word + 17 && *behind == ':' ? id : 0;
}

bool flyt_saving_is_told(struct flyt_cluster *cluster, const char *kind, const char *text)
{
    const uint64_t id = is_end(kind) ? id_in(text) : 0;
    struct flyt_saving *saving = id ? flyt_saving_find(cluster, id) : NULL;
    const cJSON *over;

    if (saving) {
        flyt_saving_ask(saving);
        return true;
    }
    cJSON_ArrayForEach(over, cluster->savings_over)
    {
        if (id && id_of(over, "id") == id)
            return true;
    }
    return false;
}

/* ---- the view ---- */

static bool is_selected(const cJSON *object, const char *selector)
{
    const bool is_id = *text_of(object, "id") && !strncmp(text_of(object, "id"), selector, strlen(selector));

    return !*selector || is_id || !strcmp(text_of(object, "vm_ip"), selector) ||
           !strcmp(text_of(object, "node"), selector);
}

cJSON *flyt_saving_view(struct flyt_cluster *cluster, const char *selector)
{
    const struct flyt_vm *vm = *selector ? flyt_vm_find(cluster, selector, NULL) : NULL;
    cJSON *array = cJSON_CreateArray();
    const cJSON *over;

    if (vm)
        selector = vm->key;
    cJSON_ArrayForEach(over, cluster->savings_over)
    {
        if (is_selected(over, selector))
            cJSON_AddItemToArray(array, cJSON_Duplicate(over, true));
    }
    for (const struct flyt_saving *saving = cluster->savings; saving; saving = saving->next) {
        cJSON *object = flyt_saving_json(saving);
        if (object && saving->is_begun && is_selected(object, selector))
            cJSON_AddItemToArray(array, object);
        else
            cJSON_Delete(object);
    }
    return array;
}
