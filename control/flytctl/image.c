/* image show, image verify: checkpoint images in files. Nothing is asked of a cluster manager. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "control/flytctl/commands.h"
#include "control/flytctl/json.h"
#include "control/flytctl/text.h"
#include "control/flytctl/view.h"
#include "cpu/image/folder.h"
#include "cpu/image/verify.h"

static enum flyt_exit complain(const struct flyt_error *err)
{
    return flyt_complain(err->code == -ENOENT                          ? FLYT_EXIT_NOT_FOUND
                         : err->code == -EACCES || err->code == -EPERM ? FLYT_EXIT_DENIED
                                                                       : FLYT_EXIT_REFUSED,
                         "%s", err->text);
}

/* A folder's entries and an image's parents are named by their ids. */
static void add_id(cJSON *object, const char *field, const void *id)
{
    char text[FLYT_CHECKPOINT_ID_TEXT_BYTES];

    flyt_checkpoint_id_text(id, text);
    if (flyt_checkpoint_id_is_none(id))
        cJSON_AddNullToObject(object, field);
    else
        cJSON_AddStringToObject(object, field, text);
}

static void add_text(cJSON *object, const char *field, const char *format, uint64_t number)
{
    char *text = flyt_text_format(format, number);

    cJSON_AddStringToObject(object, field, text);
    free(text);
}

static void put_json(struct flyt_ctl *ctl, const cJSON *value)
{
    char *text = flyt_must(cJSON_PrintUnformatted(value));

    flyt_json_put(ctl->out, text, strlen(text), ctl->is_terminal);
    free(text);
}

/* ---- one image ---- */

static void add_head(cJSON *object, const flyt_checkpoint_head *head)
{
    char *capability = flyt_text_format("%u.%u", head->compute_major, head->compute_minor);

    add_id(object, "id", head->id);
    add_id(object, "parent_id", head->parent_id);
    cJSON_AddNumberToObject(object, "created_ms", (double)head->created_ms);
    cJSON_AddStringToObject(object, "build", head->build);
    cJSON_AddStringToObject(object, "program", head->program_name);
    cJSON_AddNumberToObject(object, "pid", head->pid);
    add_text(object, "session_id", "%016" PRIx64, head->session_id);
    cJSON_AddStringToObject(object, "vm", head->vm);
    cJSON_AddStringToObject(object, "gpu_type", head->gpu_type);
    cJSON_AddStringToObject(object, "compute_capability", capability);
    cJSON_AddNumberToObject(object, "driver_version", head->driver_version);
    cJSON_AddNumberToObject(object, "sm_count", head->sm_count);
    cJSON_AddNumberToObject(object, "page_bytes", head->page_bytes);
    cJSON_AddNumberToObject(object, "page_hash", head->page_hash);
    free(capability);
}

static void add_slots(cJSON *object, const struct flyt_checkpoint_totals *totals)
{
    cJSON *slots = flyt_must(cJSON_AddArrayToObject(object, "slots"));

    for (uint32_t i = 0; i < totals->slot_count; i++) {
        cJSON *slot = flyt_must(cJSON_CreateObject());
        cJSON_AddNumberToObject(slot, "slot", totals->slots[i].slot);
        add_text(slot, "window_address", "%#" PRIx64, totals->slots[i].window_address);
        cJSON_AddNumberToObject(slot, "memory_limit_bytes", (double)totals->slots[i].memory_limit_bytes);
        cJSON_AddItemToArray(slots, slot);
    }
}

static void add_objects(cJSON *object, const struct flyt_checkpoint_totals *totals)
{
    cJSON *objects = flyt_must(cJSON_AddObjectToObject(object, "objects"));

    for (uint32_t kind = 0; kind < FLYT_CHECKPOINT_KINDS; kind++) {
        const char *name = flyt_checkpoint_kind_name(kind);
        if (totals->object_counts[kind])
            cJSON_AddNumberToObject(objects, name ? name : "other", (double)totals->object_counts[kind]);
    }
}

static void add_totals(cJSON *object, const struct flyt_checkpoint_summary *summary)
{
    const struct flyt_checkpoint_totals *totals = &summary->totals;
    const struct {
        const char *field;
        uint64_t number;
    } numbers[] = {
        {"records", totals->record_count},
        {"records_skipped", totals->skipped_count},
        {"rounds", totals->round_count},
        {"extents", totals->extent_count},
        {"extent_bytes", totals->extent_bytes},
        {"allocations", totals->allocation_count},
        {"allocation_bytes", totals->allocation_bytes},
        {"module_images", totals->module_image_count},
        {"module_image_bytes", totals->module_image_bytes},
        {"objects_gone", totals->object_gone_count},
        {"globals", totals->global_count},
        {"global_bytes", totals->global_bytes},
        {"constants", totals->constant_count},
        {"constant_bytes", totals->constant_bytes},
        {"pages_raw", totals->page_counts[FLYT_CHECKPOINT_RAW]},
        {"pages_zero", totals->page_counts[FLYT_CHECKPOINT_ZERO]},
        {"pages_lz4", totals->page_counts[FLYT_CHECKPOINT_LZ4]},
        {"pages_zstd", totals->page_counts[FLYT_CHECKPOINT_ZSTD]},
        {"pages_parent", totals->page_counts[FLYT_CHECKPOINT_PARENT]},
        {"pages_inherited", summary->inherited_page_count},
        {"page_payload_bytes", totals->page_payload_bytes},
        {"calls_received", totals->sequence.received},
        {"calls_executed", totals->sequence.executed},
        {"calls_completed", totals->sequence.completed},
    };

    for (unsigned i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        cJSON_AddNumberToObject(object, numbers[i].field, (double)numbers[i].number);
    add_slots(object, totals);
    add_objects(object, totals);
}

static cJSON *describe(const char *path, const struct flyt_checkpoint_summary *summary, const struct flyt_error *err)
{
    cJSON *object = flyt_must(cJSON_CreateObject());
    cJSON *parents;

    cJSON_AddStringToObject(object, "file", path);
    cJSON_AddBoolToObject(object, "is_sound", !err->code);
    cJSON_AddStringToObject(object, "error", err->code ? err->text : "");
    cJSON_AddNumberToObject(object, "bytes", (double)summary->stream_bytes);
    parents = flyt_must(cJSON_AddArrayToObject(object, "parents"));
    for (uint32_t i = 0; i < summary->parent_count; i++) {
        char id[FLYT_CHECKPOINT_ID_TEXT_BYTES];
        flyt_checkpoint_id_text(summary->parent_ids + (size_t)i * FLYT_CHECKPOINT_ID_BYTES, id);
        cJSON_AddItemToArray(parents, flyt_must(cJSON_CreateString(id)));
    }
    if (summary->has_head) {
        add_head(object, &summary->head);
        add_totals(object, summary);
    }
    return object;
}

static const struct flyt_column image_columns[] = {
    {"image", "id", .format = FLYT_SHOW_TEXT},
    {"file", "file", .format = FLYT_SHOW_TEXT},
    {"size", "bytes", .format = FLYT_SHOW_SIZE},
    {"sound", "is_sound", .format = FLYT_SHOW_TEXT},
    {"builds on", "parent_id", .format = FLYT_SHOW_TEXT},
    {"parents read", "parents", .format = FLYT_SHOW_TEXT},
    {"made", "created_ms", .format = FLYT_SHOW_MOMENT},
    {"by Flyt", "build", .format = FLYT_SHOW_TEXT},
    {"program", "program", .format = FLYT_SHOW_TEXT},
    {"pid", "pid", .format = FLYT_SHOW_NUMBER},
    {"session", "session_id", .format = FLYT_SHOW_TEXT},
    {"VM", "vm", .format = FLYT_SHOW_TEXT},
    {"GPU", "gpu_type", .format = FLYT_SHOW_TEXT},
    {"compute capability", "compute_capability", .format = FLYT_SHOW_TEXT},
    {"driver", "driver_version", .format = FLYT_SHOW_NUMBER},
    {"SMs", "sm_count", .format = FLYT_SHOW_NUMBER},
    {"slots", "slot_texts", .format = FLYT_SHOW_TEXT},
    {"rounds", "rounds", .format = FLYT_SHOW_NUMBER},
    {"extents", "extents", .format = FLYT_SHOW_NUMBER},
    {"  memory", "extent_bytes", .format = FLYT_SHOW_SIZE},
    {"allocations", "allocations", .format = FLYT_SHOW_NUMBER},
    {"  memory", "allocation_bytes", .format = FLYT_SHOW_SIZE},
    {"module images", "module_images", .format = FLYT_SHOW_NUMBER},
    {"  size", "module_image_bytes", .format = FLYT_SHOW_SIZE},
    {"objects", "object_texts", .format = FLYT_SHOW_TEXT},
    {"objects gone", "objects_gone", .format = FLYT_SHOW_NUMBER},
    {"globals", "globals", .format = FLYT_SHOW_NUMBER},
    {"  size", "global_bytes", .format = FLYT_SHOW_SIZE},
    {"constants", "constants", .format = FLYT_SHOW_NUMBER},
    {"  size", "constant_bytes", .format = FLYT_SHOW_SIZE},
    {"pages raw", "pages_raw", .format = FLYT_SHOW_NUMBER},
    {"  zero", "pages_zero", .format = FLYT_SHOW_NUMBER},
    {"  lz4", "pages_lz4", .format = FLYT_SHOW_NUMBER},
    {"  zstd", "pages_zstd", .format = FLYT_SHOW_NUMBER},
    {"  as the parent", "pages_parent", .format = FLYT_SHOW_NUMBER},
    {"  not in here", "pages_inherited", .format = FLYT_SHOW_NUMBER},
    {"  contents", "page_payload_bytes", .format = FLYT_SHOW_SIZE},
    {"calls received", "calls_received", .format = FLYT_SHOW_NUMBER},
    {"  executed", "calls_executed", .format = FLYT_SHOW_NUMBER},
    {"  completed", "calls_completed", .format = FLYT_SHOW_NUMBER},
    {0},
};

/* What has more than one value, as a table's cells want it. */
static void add_texts(cJSON *object)
{
    cJSON *slots = flyt_must(cJSON_AddArrayToObject(object, "slot_texts"));
    cJSON *objects = flyt_must(cJSON_AddArrayToObject(object, "object_texts"));
    const cJSON *slot, *kind, *read_slots = cJSON_GetObjectItem(object, "slots");
    const cJSON *read_objects = cJSON_GetObjectItem(object, "objects");

    cJSON_ArrayForEach(slot, read_slots)
    {
        char limit[FLYT_NUMBER_BYTES];
        double limit_bytes = flyt_row_number(slot, "memory_limit_bytes");
        flyt_text_size(limit, limit_bytes);
        char *text = flyt_text_format("%.0f (%s)", flyt_row_number(slot, "slot"), limit_bytes > 0 ? limit : "no limit");
        cJSON_AddItemToArray(slots, flyt_must(cJSON_CreateString(text)));
        free(text);
    }
    cJSON_ArrayForEach(kind, read_objects)
    {
        char *text = flyt_text_format("%s %.0f", kind->string, kind->valuedouble);
        cJSON_AddItemToArray(objects, flyt_must(cJSON_CreateString(text)));
        free(text);
    }
}

static enum flyt_exit show_file(struct flyt_ctl *ctl, const char *path)
{
    const struct flyt_layout layout = {.is_wide = true, .now_ms = flyt_now_ms()};
    struct flyt_checkpoint_summary summary;
    struct flyt_error err = {.code = 0};
    int status = flyt_checkpoint_verify(path, true, &summary, &err);
    cJSON *object = describe(path, &summary, &err);

    if (ctl->output == FLYT_OUTPUT_JSON) {
        put_json(ctl, object);
    } else if (summary.has_head) {
        add_texts(object);
        flyt_table_put_object(ctl->out, image_columns, object, &layout);
    }
    cJSON_Delete(object);
    flyt_checkpoint_summary_fini(&summary);
    return status ? complain(&err) : FLYT_EXIT_OK;
}

/* ---- a folder ---- */

static const struct flyt_column folder_columns[] = {
    {"IMAGE", "id", .format = FLYT_SHOW_TEXT},
    {"BUILDS ON", "parent_id", .format = FLYT_SHOW_TEXT},
    {"MADE", "created_ms", .format = FLYT_SHOW_MOMENT},
    {"PROGRAM", "program", .format = FLYT_SHOW_TEXT},
    {"SIZE", "bytes", .format = FLYT_SHOW_SIZE},
    {"NEWEST", "is_newest", .format = FLYT_SHOW_TEXT},
    {"STATE", "state", .format = FLYT_SHOW_TEXT, .may_shrink = true},
    {0},
};

static cJSON *describe_entry(const struct flyt_checkpoint_entry *entry, bool is_newest)
{
    cJSON *row = flyt_must(cJSON_CreateObject());
    char *id = flyt_text_format("%.*s", FLYT_CHECKPOINT_ID_TEXT_BYTES - 1, entry->name);

    cJSON_AddStringToObject(row, "id", id);
    cJSON_AddStringToObject(row, "file", entry->name);
    cJSON_AddNumberToObject(row, "bytes", (double)entry->bytes);
    add_id(row, "parent_id", entry->parent_id);
    if (entry->created_ms)
        cJSON_AddNumberToObject(row, "created_ms", (double)entry->created_ms);
    cJSON_AddStringToObject(row, "program", entry->program);
    add_text(row, "session_id", "%016" PRIx64, entry->session_id);
    cJSON_AddBoolToObject(row, "is_usable", entry->is_usable);
    cJSON_AddBoolToObject(row, "is_newest", is_newest);
    cJSON_AddStringToObject(row, "state", entry->is_usable ? "whole" : entry->err.text);
    free(id);
    return row;
}

static enum flyt_exit show_folder(struct flyt_ctl *ctl, const char *path)
{
    struct flyt_checkpoint_folder folder;
    struct flyt_error err;
    bool is_any_bad = false;

    if (flyt_checkpoint_folder_read(path, &folder, &err))
        return complain(&err);
    const struct flyt_checkpoint_entry *newest = flyt_checkpoint_folder_newest(&folder);
    cJSON *rows = flyt_must(cJSON_CreateArray());
    for (uint32_t i = 0; i < folder.entry_count; i++) {
        cJSON_AddItemToArray(rows, describe_entry(&folder.entries[i], &folder.entries[i] == newest));
        is_any_bad |= !folder.entries[i].is_usable;
    }
    if (ctl->output == FLYT_OUTPUT_JSON)
        put_json(ctl, rows);
    else
        flyt_view_put_rows(ctl, folder_columns, rows);
    cJSON_Delete(rows);
    flyt_checkpoint_folder_fini(&folder);
    return is_any_bad ? flyt_complain(FLYT_EXIT_REFUSED, "%s: not all images can be used", path) : FLYT_EXIT_OK;
}

/* ---- verify ---- */

/* One line for a sound image, in JSON an object in any case. */
static enum flyt_exit verify_file(struct flyt_ctl *ctl, const char *path, cJSON *rows)
{
    struct flyt_checkpoint_summary summary;
    struct flyt_error err = {.code = 0};
    enum flyt_exit status = FLYT_EXIT_OK;

    flyt_checkpoint_verify(path, true, &summary, &err);
    if (ctl->output == FLYT_OUTPUT_JSON) {
        cJSON *row = flyt_must(cJSON_CreateObject());
        cJSON_AddStringToObject(row, "file", path);
        cJSON_AddBoolToObject(row, "is_sound", !err.code);
        cJSON_AddStringToObject(row, "error", err.code ? err.text : "");
        cJSON_AddNumberToObject(row, "parents", summary.parent_count);
        cJSON_AddItemToArray(rows, row);
    } else if (!err.code) {
        flyt_text_put(ctl->out, path);
        fprintf(ctl->out, summary.parent_count ? ": sound, and so are its parents: %" PRIu32 "\n" : ": sound\n",
                summary.parent_count);
    }
    if (err.code)
        status = complain(&err);
    flyt_checkpoint_summary_fini(&summary);
    return status;
}

/* Those that nothing sound builds on: their parents are read with them. */
static enum flyt_exit verify_folder(struct flyt_ctl *ctl, const char *path, cJSON *rows)
{
    struct flyt_checkpoint_folder folder;
    enum flyt_exit status = FLYT_EXIT_OK;
    struct flyt_error err;

    if (flyt_checkpoint_folder_read(path, &folder, &err))
        return complain(&err);
    for (uint32_t i = 0; i < folder.entry_count; i++) {
        char *file = flyt_text_format("%s/%s", path, folder.entries[i].name);
        if (!folder.entries[i].is_parent || !folder.entries[i].is_usable) {
            enum flyt_exit one = verify_file(ctl, file, rows);
            status = one != FLYT_EXIT_OK ? FLYT_EXIT_REFUSED : status;
        }
        free(file);
    }
    if (!folder.entry_count)
        status = flyt_complain(FLYT_EXIT_NOT_FOUND, "%s: there are no images", path);
    flyt_checkpoint_folder_fini(&folder);
    return status;
}

static bool is_folder(const char *path)
{
    struct stat about;

    return !stat(path, &about) && S_ISDIR(about.st_mode);
}

enum flyt_exit flyt_run_image_show(struct flyt_ctl *ctl, const struct flyt_arguments *arguments)
{
    const char *path = arguments->words[0];

    return is_folder(path) ? show_folder(ctl, path) : show_file(ctl, path);
}

enum flyt_exit flyt_run_image_verify(struct flyt_ctl *ctl, const struct flyt_arguments *arguments)
{
    const char *path = arguments->words[0];
    cJSON *rows = flyt_must(cJSON_CreateArray());
    enum flyt_exit status = is_folder(path) ? verify_folder(ctl, path, rows) : verify_file(ctl, path, rows);

    if (ctl->output == FLYT_OUTPUT_JSON)
        put_json(ctl, rows);
    cJSON_Delete(rows);
    return status;
}
