/* What people see of checkpoints and restores: the view, the list of those that are over, events. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/cluster/io/document.h"
#include "control/cluster/io/event.h"
#include "control/cluster/io/measure.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/checkpoint_op.h"
#include "control/cluster/model/vm.h"
#include "control/cluster/reconcile/checkpoint_op.h"

const char *flyt_checkpoint_op_phase_name(flyt_saving_phase phase)
{
    static const char *const names[] = {"unknown", "preparing", "copying", "stopping", "switching", "done", "failed"};

    return phase >= FLYT_SAVING_PREPARING && phase <= FLYT_SAVING_FAILED ? names[phase] : names[0];
}

static const char *const kinds[] = {"checkpoint", "restore", NULL};

/* What the begin of one says, and who leads next reads there. */
#define OF(kind, ...)  FLYT_##kind(struct flyt_checkpoint_op, __VA_ARGS__), .part = SAVING
#define OF_USE(member) FLYT_NUMBER(flyt_saving_use, member), .part = USE, .rules = FLYT_EXACT
enum { SAVING, PHASE, USE, END, PARTS };

static const struct flyt_field fields[] = {
    {"id", OF(ID, id), .rules = FLYT_NEEDED},
    {"kind", OF(CHOICE, is_restore, kinds)},
    {"vm_ip", OF(CHARS, vm_ip), .rules = FLYT_NULLABLE},
    {"allocation", OF(ID, allocation_id), .rules = FLYT_NULLABLE},
    {"session", OF(ID, session_id), .rules = FLYT_NULLABLE},
    {"node", OF(CHARS, node), .rules = FLYT_NEEDED},
    {"folder", OF(CHARS, folder)},
    {"leave_running", OF(FLAG, leaves_running)},
    {"phase", .kind = FLYT_FIELD_TEXT, .size = sizeof(char *), .part = PHASE},
    {"reason", OF(CHARS, reason), .rules = FLYT_NULLABLE},
    {"who", OF(CHARS, who), .rules = FLYT_NULLABLE},
    {"sessions", OF_USE(session_count)},
    {"memory_bytes", OF_USE(memory_bytes)},
    {"copied_bytes", OF_USE(copied_bytes)},
    {"kept_bytes", OF_USE(kept_bytes)},
    {"standstill_us", OF_USE(standstill_us)},
    {"elapsed_ms", OF_USE(elapsed_ms)},
    {"started_ms", OF(NUMBER, started_ms)},
    {"ended_ms", FLYT_NUMBER(struct flyt_checkpoint_op, ended_ms), .part = END, .rules = FLYT_NULLABLE},
    {0},
};

static cJSON *op_json(const struct flyt_checkpoint_op *op)
{
    const char *phase = flyt_checkpoint_op_phase_name(op->use.phase);

    return flyt_document_write(fields, (const void *const[PARTS]){op, &phase, &op->use, op}, "checkpoint", op->id_text);
}

/* Takes it over. */
static void remember(struct flyt_cluster *cluster, cJSON *object)
{
    if (!cluster->checkpoint_ops_over)
        cluster->checkpoint_ops_over = cJSON_CreateArray();
    if (!object || !cluster->checkpoint_ops_over || !cJSON_AddItemToArray(cluster->checkpoint_ops_over, object)) {
        cJSON_Delete(object);
        return;
    }
    while (cJSON_GetArraySize(cluster->checkpoint_ops_over) > FLYT_CHECKPOINT_OPS_SHOWN)
        cJSON_DeleteItemFromArray(cluster->checkpoint_ops_over, 0);
}

/* ---- events ---- */

void flyt_checkpoint_op_tell_begin(struct flyt_checkpoint_op *op)
{
    if (op->is_restore)
        flyt_event_add(op->cluster, "restore.started", op->who, op->node, NULL, op_json(op),
                       "programs on node %s go on from images in %s: restore %s", op->node, op->folder, op->id_text);
    else
        flyt_event_add(op->cluster, "checkpoint.started", op->who, op->vm_ip, NULL, op_json(op),
                       "programs of VM %s are written to %s on node %s: checkpoint %s", op->vm_ip, op->folder, op->node,
                       op->id_text);
}

void flyt_checkpoint_op_tell_end(struct flyt_checkpoint_op *op)
{
    cJSON *object = op_json(op);
    const bool is_done = op->use.phase == FLYT_SAVING_DONE;
    const unsigned count = op->use.session_count;

    remember(op->cluster, cJSON_Duplicate(object, true));
    flyt_measure_checkpoint_op(op->cluster, op);
    if (op->is_restore)
        flyt_event_add(op->cluster, is_done ? "restore.done" : "restore.failed", op->who, op->node, NULL, object,
                       "%u program%s on node %s from images in %s%s%s", count, count == 1 ? " goes on" : "s go on",
                       op->node, op->folder, is_done ? "" : "; not all: ", is_done ? "" : op->reason);
    else if (is_done)
        flyt_event_add(op->cluster, "checkpoint.done", op->who, op->vm_ip, NULL, object,
                       "%u program%s of VM %s: written to %s on node %s, and %s", count, count == 1 ? "" : "s",
                       op->vm_ip, op->folder, op->node, op->leaves_running ? "running on" : "waiting for a restore");
    else
        flyt_event_add(op->cluster, "checkpoint.failed", op->who, op->vm_ip, NULL, object,
                       "programs of VM %s are not written to %s on node %s: %s", op->vm_ip, op->folder, op->node,
                       op->reason);
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

/* One that has begun under another manager: it goes on to be followed. */
static void load(struct flyt_cluster *cluster, const cJSON *object)
{
    const uint64_t id = id_of(object, "id");
    struct flyt_checkpoint_op *op =
        id && !flyt_checkpoint_op_find(cluster, id) ? flyt_checkpoint_op_new(cluster, id) : NULL;

    if (!op)
        return;
    if (flyt_document_read(fields, object, (void *const[PARTS]){[SAVING] = op}, "an event of a", "checkpoint") ||
        !*op->node) {
        flyt_checkpoint_op_free(op);
        return;
    }
    op->is_begun = true;
    op->next = cluster->checkpoint_ops;
    cluster->checkpoint_ops = op;
}

static void unload(struct flyt_cluster *cluster, uint64_t id)
{
    for (struct flyt_checkpoint_op **link = &cluster->checkpoint_ops, *op; (op = *link); link = &op->next) {
        if (op->id != id)
            continue;
        *link = op->next;
        flyt_checkpoint_op_free(op);
        return;
    }
}

static bool is_end(const char *kind)
{
    return !strcmp(kind, "checkpoint.done") || !strcmp(kind, "checkpoint.failed") || !strcmp(kind, "restore.done") ||
           !strcmp(kind, "restore.failed");
}

void flyt_checkpoint_op_load_event(struct flyt_cluster *cluster, const char *kind, const char *after)
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

bool flyt_checkpoint_op_is_told(struct flyt_cluster *cluster, const char *kind, const char *text)
{
    const uint64_t id = is_end(kind) ? id_in(text) : 0;
    struct flyt_checkpoint_op *op = id ? flyt_checkpoint_op_find(cluster, id) : NULL;
    const cJSON *over;

    if (op) {
        flyt_checkpoint_op_ask(op);
        return true;
    }
    cJSON_ArrayForEach(over, cluster->checkpoint_ops_over)
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

cJSON *flyt_checkpoint_op_view(struct flyt_cluster *cluster, const char *selector)
{
    const struct flyt_vm *vm = *selector ? flyt_vm_find(cluster, selector, NULL) : NULL;
    cJSON *array = cJSON_CreateArray();
    const cJSON *over;

    if (vm)
        selector = vm->key;
    cJSON_ArrayForEach(over, cluster->checkpoint_ops_over)
    {
        if (is_selected(over, selector))
            cJSON_AddItemToArray(array, cJSON_Duplicate(over, true));
    }
    for (const struct flyt_checkpoint_op *op = cluster->checkpoint_ops; op; op = op->next) {
        cJSON *object = op_json(op);
        if (object && op->is_begun && is_selected(object, selector))
            cJSON_AddItemToArray(array, object);
        else
            cJSON_Delete(object);
    }
    return array;
}
