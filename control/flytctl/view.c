#include "control/flytctl/view.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "control/flytctl/json.h"
#include "control/flytctl/link.h"
#include "control/flytctl/text.h"

/* A column: title and field, then format and second field where there are any, then the rest by name. */
#define C(title_, field_, ...)                                                                                         \
    {                                                                                                                  \
        .title = title_, .field = field_, __VA_ARGS__                                                                  \
    }
#define WIDE    .is_wide = true
#define SHRINK  .may_shrink = true
#define MISSING .may_be_missing = true

static const struct flyt_column status_columns[] = {
    C("manager", "manager"),
    C("build", "build"),
    C("leader", "leader"),
    C("epoch", "epoch", FLYT_SHOW_NUMBER),
    C("store", "store"),
    C("store ok", "store_ok"),
    C("up", "uptime_ms", FLYT_SHOW_SPAN),
    C("nodes up", "nodes_up", FLYT_SHOW_NUMBER, "nodes"),
    C("GPUs healthy", "gpus_healthy", FLYT_SHOW_NUMBER, "gpus"),
    C("VMs", "vms", FLYT_SHOW_NUMBER),
    C("allocations", "allocations", FLYT_SHOW_NUMBER),
    C("sessions", "sessions", FLYT_SHOW_NUMBER),
    C("SMs allocated", "sms_allocated", FLYT_SHOW_NUMBER, "sms_total"),
    C("memory allocated", "memory_allocated_bytes", FLYT_SHOW_SIZE, "memory_total_bytes"),
    {0},
};

static const struct flyt_column node_columns[] = {
    C("NAME", "name"),
    C("STATE", "state"),
    C("SCHEDULE", "schedule"),
    C("GPUS", "gpus", FLYT_SHOW_NUMBER),
    C("ALLOCATIONS", "allocations", FLYT_SHOW_NUMBER),
    C("SESSIONS", "sessions", FLYT_SHOW_NUMBER),
    C("SEEN", "last_seen_ms", FLYT_SHOW_AGE),
    C("HOST", "host_ip"),
    C("BUILD", "build", WIDE),
    C("SERVER-UIDS", "server_uids", WIDE),
    C("LIBRARIES", "libraries", WIDE),
    C("DATA-URLS", "data_urls", WIDE, SHRINK),
    {0},
};

static const struct flyt_column gpu_columns[] = {
    C("GPU", "node", FLYT_SHOW_TEXT, "index"),
    C("TYPE", "type", SHRINK),
    C("HEALTH", "health"),
    C("SCHEDULE", "schedule"),
    C("SMS", "sms_allocated", FLYT_SHOW_NUMBER, "sms"),
    C("MEMORY", "memory_allocated_bytes", FLYT_SHOW_SIZE, "memory_bytes"),
    C("USED", "memory_used_bytes", FLYT_SHOW_SIZE),
    C("BUSY", "busy_pct", FLYT_SHOW_PCT),
    C("SLOTS", "client_slots_allocated", FLYT_SHOW_NUMBER, "client_slots"),
    C("SERVERS", "servers", FLYT_SHOW_NUMBER, WIDE),
    C("WARM", "warm", FLYT_SHOW_NUMBER, WIDE),
    C("ISOLATION", "isolation", WIDE),
    C("TIME", "minimum_share_allocated", FLYT_SHOW_PCT, WIDE),
    C("SMS-SHARED", "sms_time_shared", FLYT_SHOW_NUMBER, WIDE),
    C("GROUPS", "groups_allocated", FLYT_SHOW_NUMBER, "groups", WIDE),
    C("GROUP-SIZE", "group_size", FLYT_SHOW_NUMBER, WIDE),
    C("POWER-W", "power_w", FLYT_SHOW_NUMBER, WIDE),
    C("CELSIUS", "temperature_c", FLYT_SHOW_NUMBER, WIDE),
    C("ALLOCATIONS", "allocations", FLYT_SHOW_NUMBER, WIDE),
    C("UUID", "uuid", WIDE),
    C("REMARK", "health_text", WIDE, SHRINK),
    {0},
};

static const struct flyt_column vm_columns[] = {
    C("VM", "vm_ip"),
    C("NAME", "name", SHRINK),
    C("TENANT", "tenant", SHRINK),
    C("STATE", "state"),
    C("SMS", "sms", FLYT_SHOW_NUMBER),
    C("MEMORY", "memory_bytes", FLYT_SHOW_SIZE),
    C("GPUS", "devices", FLYT_SHOW_NUMBER),
    C("CONNECTED", "connected"),
    C("PROGRAMS", "programs", FLYT_SHOW_NUMBER),
    C("NODE", "node"),
    C("SESSIONS-MAX", "sessions_max", FLYT_SHOW_NUMBER, WIDE),
    C("ALLOCATION", "allocation", WIDE),
    C("HOST", "host_ip", WIDE),
    C("ADDRESS", "address", WIDE),
    C("REASON", "reason", SHRINK),
    {0},
};

static const struct flyt_column allocation_columns[] = {
    C("ID", "id"),
    C("VM", "vm_ip"),
    C("NODE", "node"),
    C("GPU", "gpu", SHRINK),
    C("SLOT", "slot", FLYT_SHOW_NUMBER, MISSING),
    C("STATE", "state"),
    C("SMS", "sms_now", FLYT_SHOW_NUMBER, "sms", MISSING),
    C("USED", "memory_used_bytes", FLYT_SHOW_SIZE, "memory_now_bytes", MISSING),
    C("MEMORY", "memory_bytes", FLYT_SHOW_SIZE, MISSING),
    C("SESSIONS", "sessions", FLYT_SHOW_NUMBER, "sessions_max", MISSING),
    C("AGE", "created_ms", FLYT_SHOW_AGE, MISSING),
    C("TENANT", "tenant", WIDE),
    C("PEAK", "memory_peak_bytes", FLYT_SHOW_SIZE, WIDE),
    C("REVISION", "revision_applied", FLYT_SHOW_NUMBER, "revision", WIDE),
    C("GENERATION", "generation", FLYT_SHOW_NUMBER, WIDE),
    C("SWITCH", "switch_state", WIDE),
    C("SUSPEND", "suspend_state", WIDE),
    C("SHARING", "sharing", WIDE),
    C("MINIMUM", "minimum_share", FLYT_SHOW_PCT, WIDE),
    C("MAXIMUM", "maximum_share", FLYT_SHOW_PCT, WIDE),
    C("PRIORITY", "priority", FLYT_SHOW_NUMBER, WIDE),
    C("DRAINING", "sms_draining", FLYT_SHOW_NUMBER, WIDE),
    C("SM-GROUPS", "sm_groups", WIDE, SHRINK),
    {0},
};

static const struct flyt_column session_columns[] = {
    C("ID", "id"),
    C("VM", "vm_ip"),
    C("NODE", "node"),
    C("PROGRAM", "program", SHRINK),
    C("STATE", "state"),
    C("PID", "client_pid", FLYT_SHOW_NUMBER),
    C("AGE", "started_ms", FLYT_SHOW_AGE),
    C("MEMORY", "memory_bytes", FLYT_SHOW_SIZE),
    C("GPU-TIME", "gpu_time_us", FLYT_SHOW_SPAN_US),
    C("CALLS", "calls", FLYT_SHOW_NUMBER),
    C("ENCRYPTED", "encrypted"),
    C("ALLOCATION", "allocation", WIDE),
    C("CLIENT", "client_address", WIDE),
    C("TRANSPORT", "transport", WIDE),
    C("SERVER-PID", "server_pid", FLYT_SHOW_NUMBER, WIDE),
    C("SERVER-UID", "server_uid", FLYT_SHOW_NUMBER, WIDE),
    C("SMS-NEEDED", "sms_needed", FLYT_SHOW_NUMBER, WIDE),
    C("REPLACEABLE", "replaceable", WIDE),
    C("LIBRARIES", "libraries", WIDE),
    C("WHY-NOT", "why_not", WIDE, SHRINK),
    {0},
};

static const struct flyt_column migration_columns[] = {
    C("ID", "id"),
    C("VM", "vm_ip"),
    C("FROM", "source", SHRINK),
    C("TO", "target", SHRINK),
    C("PHASE", "phase"),
    C("ROUND", "round", FLYT_SHOW_NUMBER),
    C("COPIED", "copied_bytes", FLYT_SHOW_SIZE, "memory_bytes"),
    C("CHANGED", "dirty_bytes", FLYT_SHOW_SIZE),
    C("STANDSTILL", "standstill_us", FLYT_SHOW_MS_OF_US),
    C("BEGAN", "started_ms", FLYT_SHOW_AGE),
    C("SESSIONS", "sessions", FLYT_SHOW_NUMBER, WIDE),
    C("RATE", "bytes_per_s", FLYT_SHOW_SIZE, WIDE),
    C("LEFT", "left_bytes", FLYT_SHOW_SIZE, WIDE),
    C("STREAMS", "streams", FLYT_SHOW_NUMBER, WIDE),
    C("PACK", "packing", WIDE),
    C("ENCRYPTED", "encrypted", WIDE),
    C("LAST", "last_bytes", FLYT_SHOW_SIZE, WIDE),
    C("TOOK", "elapsed_ms", FLYT_SHOW_SPAN, WIDE),
    C("ALLOCATION", "allocation", WIDE),
    C("WHO", "who", WIDE, SHRINK),
    C("REASON", "reason", SHRINK),
    {0},
};

static const struct flyt_column checkpoint_columns[] = {
    C("ID", "id"),
    C("KIND", "kind"),
    C("VM", "vm_ip"),
    C("NODE", "node"),
    C("FOLDER", "folder", SHRINK),
    C("PHASE", "phase"),
    C("SESSIONS", "sessions", FLYT_SHOW_NUMBER),
    C("COPIED", "copied_bytes", FLYT_SHOW_SIZE, "memory_bytes"),
    C("KEPT", "kept_bytes", FLYT_SHOW_SIZE),
    C("BEGAN", "started_ms", FLYT_SHOW_AGE),
    C("STANDSTILL", "standstill_us", FLYT_SHOW_MS_OF_US, WIDE),
    C("TOOK", "elapsed_ms", FLYT_SHOW_SPAN, WIDE),
    C("LEAVE-RUNNING", "leave_running", WIDE),
    C("SESSION", "session", WIDE),
    C("ALLOCATION", "allocation", WIDE),
    C("WHO", "who", WIDE, SHRINK),
    C("REASON", "reason", SHRINK),
    {0},
};

static const struct flyt_column tenant_columns[] = {
    C("TENANT", "name"),
    C("VMS", "vms_allocated", FLYT_SHOW_NUMBER, "vms"),
    C("SMS", "sms_allocated", FLYT_SHOW_NUMBER, "compute_units"),
    C("MEMORY", "memory_allocated_bytes", FLYT_SHOW_SIZE, "memory_bytes"),
    C("SESSIONS", "sessions_allocated", FLYT_SHOW_NUMBER, "sessions"),
    {0},
};

static const struct flyt_column member_columns[] = {
    C("MEMBER", "member"),
    C("SINCE", "enrolled_ms", FLYT_SHOW_MOMENT),
    C("CERTIFICATE", "serial"),
    {0},
};

static const struct flyt_column event_columns[] = {
    C("TIME", "time_ms", FLYT_SHOW_MOMENT),
    C("KIND", "kind"),
    C("OBJECT", "object", SHRINK),
    C("WHO", "who", SHRINK),
    C("NUMBER", "sequence", FLYT_SHOW_NUMBER, WIDE),
    C("TEXT", "text", SHRINK),
    C("BEFORE", "before", WIDE, SHRINK),
    C("AFTER", "after", WIDE, SHRINK),
    {0},
};

static const struct {
    const char *view;
    const struct flyt_column *columns;
} tables[] = {
    {"status", status_columns},
    {"nodes", node_columns},
    {"gpus", gpu_columns},
    {"vms", vm_columns},
    {"tenants", tenant_columns},
    {"members", member_columns},
    {"events", event_columns},
    {"allocations", allocation_columns},
    {"sessions", session_columns},
    {"migrations", migration_columns},
    {"checkpoints", checkpoint_columns},
};

const struct flyt_column *flyt_view_columns(const char *view)
{
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        if (!strcmp(tables[i].view, view))
            return tables[i].columns;
    return NULL;
}

const char *flyt_row_text(const cJSON *row, const char *field)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(row, field));

    return text ? text : "";
}

double flyt_row_number(const cJSON *row, const char *field)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(row, field);

    return cJSON_IsNumber(value) ? value->valuedouble : 0;
}

uint64_t flyt_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* ---- reading ---- */

void flyt_view_free(struct flyt_view *view)
{
    cJSON_Delete(view->rows);
    free(view->json);
    *view = (struct flyt_view){0};
}

enum flyt_exit flyt_view_parse(const char *json, size_t bytes, struct flyt_view *ret_view)
{
    const char *end = NULL;
    cJSON *parsed = cJSON_ParseWithLengthOpts(json, bytes, &end, false);

    while (parsed && end && end < json + bytes && strchr(" \t\r\n", *end) && *end)
        end++;
    if (parsed && end == json + bytes && cJSON_IsObject(parsed)) {
        cJSON *array = flyt_must(cJSON_CreateArray());
        cJSON_AddItemToArray(array, parsed);
        parsed = array;
    }
    const cJSON *row = parsed ? parsed->child : NULL;
    while (row && cJSON_IsObject(row))
        row = row->next;
    if (!cJSON_IsArray(parsed) || end != json + bytes || row) {
        cJSON_Delete(parsed);
        return flyt_complain(FLYT_EXIT_UNREACHABLE,
                             "the cluster manager's answer is not the JSON that was expected (%zu bytes)", bytes);
    }
    *ret_view = (struct flyt_view){.rows = parsed, .json = flyt_must(malloc(bytes + 1)), .json_bytes = bytes};
    memcpy(ret_view->json, json, bytes);
    ret_view->json[bytes] = 0;
    return FLYT_EXIT_OK;
}

enum flyt_exit flyt_view_read_page(struct flyt_ctl *ctl, const char *view, const char *selector, uint64_t after,
                                   unsigned wait_ms, struct flyt_view *ret_view)
{
    flyt_view_args args = {.view = (char *)view, .selector = (char *)selector, .after = after, .wait_ms = wait_ms};
    flyt_view_res res;
    enum flyt_exit status = flyt_link_call(ctl, FLYT_VIEW, (xdrproc_t)xdr_flyt_view_args, &args,
                                           (xdrproc_t)xdr_flyt_view_res, &res, sizeof res, wait_ms);

    if (status != FLYT_EXIT_OK)
        return status;
    if (res.outcome.status != FLYT_STATUS_OK)
        status = flyt_complain(flyt_exit_of(res.outcome.status), "%s",
                               *res.outcome.text ? res.outcome.text : flyt_status_name(res.outcome.status));
    else
        status = flyt_view_parse(res.json.json_val, res.json.json_len, ret_view);
    if (status == FLYT_EXIT_OK)
        ret_view->next = res.next;
    xdr_free((xdrproc_t)xdr_flyt_view_res, &res);
    return status;
}

/* The text between the brackets of an array. */
static const char *inside(const struct flyt_view *view, size_t *ret_bytes)
{
    const char *begin = strchr(view->json, '['), *end = strrchr(view->json, ']');

    *ret_bytes = begin && end > begin ? (size_t)(end - begin) - 1 : 0;
    return begin ? begin + 1 : "";
}

static void join(struct flyt_view *all, struct flyt_view *page)
{
    size_t first_bytes, second_bytes;
    const char *first = inside(all, &first_bytes), *second = inside(page, &second_bytes);
    bool is_apart = cJSON_GetArraySize(all->rows) && cJSON_GetArraySize(page->rows);

    char *json = flyt_must(malloc(first_bytes + second_bytes + 4));
    size_t bytes = 0;
    json[bytes++] = '[';
    memcpy(json + bytes, first, first_bytes);
    bytes += first_bytes;
    if (is_apart)
        json[bytes++] = ',';
    memcpy(json + bytes, second, second_bytes);
    bytes += second_bytes;
    json[bytes++] = ']';
    json[bytes] = 0;
    free(all->json);
    all->json = json;
    all->json_bytes = bytes;
    if (page->rows->child) {
        if (!all->rows->child) {
            all->rows->child = page->rows->child;
        } else {
            cJSON *last = all->rows->child->prev; /* cJSON: the first one's prev is the last one */
            last->next = page->rows->child;
            all->rows->child->prev = page->rows->child->prev;
            page->rows->child->prev = last;
        }
        page->rows->child = NULL;
    }
    all->next = page->next;
    flyt_view_free(page);
}

enum flyt_exit flyt_view_read(struct flyt_ctl *ctl, const char *view, const char *selector, struct flyt_view *ret_view)
{
    bool is_events = !strcmp(view, "events");
    struct flyt_view all = {0};
    uint64_t after = 0;
    bool is_last = false;

    for (bool is_first = true; !is_last; is_first = false) {
        struct flyt_view page;
        enum flyt_exit status = flyt_view_read_page(ctl, view, selector, after, 0, &page);
        if (status == FLYT_EXIT_OK && page.next && page.next <= after &&
            (!is_events || cJSON_GetArraySize(page.rows))) {
            flyt_view_free(&page);
            status = flyt_complain(FLYT_EXIT_UNREACHABLE, "the cluster manager sends the same page again and again");
        }
        if (status != FLYT_EXIT_OK) {
            flyt_view_free(&all);
            return status;
        }
        after = page.next;
        is_last = !page.next || (is_events && !cJSON_GetArraySize(page.rows));
        if (is_first)
            all = page;
        else
            join(&all, &page);
    }
    *ret_view = all;
    return FLYT_EXIT_OK;
}

/* ---- printing ---- */

void flyt_view_put_rows(struct flyt_ctl *ctl, const struct flyt_column *columns, const cJSON *rows)
{
    const struct flyt_layout layout = {
        .is_wide = ctl->output == FLYT_OUTPUT_WIDE, .width = ctl->width, .now_ms = flyt_now_ms()};

    flyt_table_put(ctl->out, columns, rows, &layout);
}

void flyt_view_put(struct flyt_ctl *ctl, const char *view_name, const struct flyt_view *view)
{
    if (ctl->output == FLYT_OUTPUT_JSON)
        flyt_json_put(ctl->out, view->json, view->json_bytes, ctl->is_terminal);
    else
        flyt_view_put_rows(ctl, flyt_view_columns(view_name), view->rows);
}
