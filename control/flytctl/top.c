/* top: GPUs and VMs at work. A VM's use is what its allocations say; how busy it is, how its sessions' GPU time grew.
 */
#include <stdlib.h>
#include <string.h>

#include "control/flytctl/commands.h"
#include "control/flytctl/json.h"
#include "control/flytctl/screen.h"
#include "control/flytctl/text.h"
#include "control/flytctl/view.h"
#include "rpc/base/clock.h"

enum { DELAY_MS = 2000 };

static const struct flyt_column gpu_columns[] = {
    {.title = "GPU", .field = "node", .of = "index"},
    {.title = "TYPE", .field = "type", .may_shrink = true},
    {.title = "BUSY", .field = "busy_pct", .format = FLYT_SHOW_PCT},
    {.title = "USED", .field = "memory_used_bytes", .format = FLYT_SHOW_SIZE},
    {.title = "ALLOCATED", .field = "memory_allocated_bytes", .format = FLYT_SHOW_SIZE, .of = "memory_bytes"},
    {.title = "SMS", .field = "sms_allocated", .format = FLYT_SHOW_NUMBER, .of = "sms"},
    {.title = "SLOTS", .field = "client_slots_allocated", .format = FLYT_SHOW_NUMBER, .of = "client_slots"},
    {.title = "POWER-W", .field = "power_w", .format = FLYT_SHOW_NUMBER},
    {.title = "CELSIUS", .field = "temperature_c", .format = FLYT_SHOW_NUMBER},
    {.title = "HEALTH", .field = "health"},
    {0},
};

static const struct flyt_column vm_columns[] = {
    {.title = "VM", .field = "vm_ip"},
    {.title = "NAME", .field = "name", .may_shrink = true},
    {.title = "NODE", .field = "node"},
    {.title = "BUSY", .field = "busy_pct", .format = FLYT_SHOW_PCT},
    {.title = "USED", .field = "memory_used_bytes", .format = FLYT_SHOW_SIZE, .of = "memory_bytes"},
    {.title = "SMS", .field = "sms", .format = FLYT_SHOW_NUMBER},
    {.title = "SESSIONS", .field = "sessions", .format = FLYT_SHOW_NUMBER, .of = "sessions_max"},
    {0},
};

struct top {
    cJSON *before; /* session id -> GPU time in µs, at before_ms; NULL: this is the first time */
    uint64_t before_ms;
};

static void add_to(cJSON *object, const char *field, double number)
{
    cJSON *value = cJSON_GetObjectItemCaseSensitive(object, field);

    if (value)
        cJSON_SetNumberValue(value, value->valuedouble + number);
    else
        cJSON_AddNumberToObject(object, field, number);
}

/* One object for each VM that has an allocation; by its vm_ip. */
static cJSON *sum_vms(const cJSON *allocations, const cJSON *vms)
{
    static const char *const summed[] = {"memory_used_bytes", "memory_bytes", "sms"};
    cJSON *by_vm = flyt_must(cJSON_CreateObject());
    const cJSON *row;

    cJSON_ArrayForEach(row, allocations)
    {
        const char *vm_ip = flyt_row_text(row, "vm_ip");
        cJSON *sum = cJSON_GetObjectItemCaseSensitive(by_vm, vm_ip);
        bool is_new = !sum;
        if (is_new) {
            sum = flyt_must(cJSON_AddObjectToObject(by_vm, vm_ip));
            cJSON_AddStringToObject(sum, "vm_ip", vm_ip);
            cJSON_AddStringToObject(sum, "node", flyt_row_text(row, "node"));
            cJSON_AddNumberToObject(sum, "sessions", flyt_row_number(row, "sessions"));
            cJSON_AddNumberToObject(sum, "sessions_max", flyt_row_number(row, "sessions_max"));
        }
        for (size_t i = 0; i < sizeof summed / sizeof summed[0]; i++)
            add_to(sum, summed[i], flyt_row_number(row, summed[i]));
    }
    cJSON_ArrayForEach(row, vms)
    {
        cJSON *sum = cJSON_GetObjectItemCaseSensitive(by_vm, flyt_row_text(row, "vm_ip"));
        if (sum && *flyt_row_text(row, "name"))
            cJSON_AddStringToObject(sum, "name", flyt_row_text(row, "name"));
    }
    return by_vm;
}

/* Adds busy_pct where the time before is known; keeps the times of now. */
static void add_busy(struct top *top, cJSON *by_vm, const cJSON *sessions)
{
    uint64_t now_ms = flyt_clock_ms();
    cJSON *now = flyt_must(cJSON_CreateObject());
    double elapsed_us = (double)(now_ms - top->before_ms) * 1000;
    const cJSON *row;

    cJSON_ArrayForEach(row, sessions)
    {
        const char *id = flyt_row_text(row, "id");
        const cJSON *before = top->before ? cJSON_GetObjectItemCaseSensitive(top->before, id) : NULL;
        cJSON *sum = cJSON_GetObjectItemCaseSensitive(by_vm, flyt_row_text(row, "vm_ip"));
        double gpu_us = flyt_row_number(row, "gpu_time_us");
        cJSON_AddNumberToObject(now, id, gpu_us);
        if (sum && before && elapsed_us > 0 && gpu_us >= before->valuedouble)
            add_to(sum, "busy_pct", (gpu_us - before->valuedouble) / elapsed_us * 100);
    }
    cJSON_Delete(top->before);
    top->before = now;
    top->before_ms = now_ms;
}

static int by_use(const void *one, const void *other)
{
    const cJSON *a = *(cJSON *const *)one, *b = *(cJSON *const *)other;
    double more = flyt_row_number(b, "memory_used_bytes") - flyt_row_number(a, "memory_used_bytes");

    return more > 0 ? 1 : more < 0 ? -1 : strcmp(flyt_row_text(a, "vm_ip"), flyt_row_text(b, "vm_ip"));
}

/* The objects as an array, those that use most first. Takes by_vm. */
static cJSON *sort_vms(cJSON *by_vm)
{
    size_t count = (size_t)cJSON_GetArraySize(by_vm), at = 0;
    cJSON **rows = flyt_must(calloc(count + 1, sizeof *rows)), *array = flyt_must(cJSON_CreateArray());

    while (by_vm->child)
        rows[at++] = cJSON_DetachItemViaPointer(by_vm, by_vm->child);
    cJSON_Delete(by_vm);
    qsort(rows, count, sizeof *rows, by_use);
    for (size_t i = 0; i < count; i++)
        cJSON_AddItemToArray(array, rows[i]);
    free(rows);
    return array;
}

static void put_head(struct flyt_ctl *ctl, const cJSON *status)
{
    char up[FLYT_NUMBER_BYTES], now[FLYT_NUMBER_BYTES];

    flyt_text_span(up, flyt_row_number(status, "uptime_ms"));
    flyt_text_moment(now, (double)flyt_now_ms());
    char *manager = flyt_text_safe(flyt_row_text(status, "manager"), strlen(flyt_row_text(status, "manager")));
    fprintf(ctl->out, "%s: up %s, %.0f of %.0f nodes, %.0f GPUs, %.0f VMs, %.0f sessions, %s\n\n", manager, up,
            flyt_row_number(status, "nodes_up"), flyt_row_number(status, "nodes"), flyt_row_number(status, "gpus"),
            flyt_row_number(status, "vms"), flyt_row_number(status, "sessions"), now);
    free(manager);
}

static void put_json(struct flyt_ctl *ctl, const cJSON *gpus, const cJSON *vms)
{
    char *gpu_text = flyt_must(cJSON_PrintUnformatted(gpus)), *vm_text = flyt_must(cJSON_PrintUnformatted(vms));
    char *all = flyt_text_format("{\"gpus\":%s,\"vms\":%s}", gpu_text, vm_text);

    flyt_json_put(ctl->out, all, strlen(all), false);
    free(all);
    free(gpu_text);
    free(vm_text);
}

static enum flyt_exit show(struct flyt_ctl *ctl, void *user)
{
    static const char *const names[] = {"status", "gpus", "vms", "allocations", "sessions"};
    enum { STATUS, GPUS, VMS, ALLOCATIONS, SESSIONS, COUNT };
    struct flyt_view views[COUNT] = {{0}};
    enum flyt_exit status = FLYT_EXIT_OK;

    for (unsigned i = 0; i < COUNT && status == FLYT_EXIT_OK; i++)
        status = flyt_view_read(ctl, names[i], "", &views[i]);
    if (status == FLYT_EXIT_OK) {
        cJSON *by_vm = sum_vms(views[ALLOCATIONS].rows, views[VMS].rows);
        add_busy(user, by_vm, views[SESSIONS].rows);
        cJSON *vms = sort_vms(by_vm);
        if (ctl->output == FLYT_OUTPUT_JSON) {
            put_json(ctl, views[GPUS].rows, vms);
        } else {
            put_head(ctl, views[STATUS].rows->child);
            flyt_view_put_rows(ctl, gpu_columns, views[GPUS].rows);
            fputc('\n', ctl->out);
            flyt_view_put_rows(ctl, vm_columns, vms);
        }
        cJSON_Delete(vms);
    }
    for (unsigned i = 0; i < COUNT; i++)
        flyt_view_free(&views[i]);
    return status;
}

enum flyt_exit flyt_run_top(struct flyt_ctl *ctl, const struct flyt_arguments *arguments)
{
    const struct flyt_value *count = flyt_option_get(arguments, "count"), *delay = flyt_option_get(arguments, "delay");
    struct top top = {.before = NULL};
    enum flyt_exit status = flyt_screen_run(ctl, delay->is_set ? delay->number : DELAY_MS,
                                            count->is_set      ? count->number
                                            : ctl->is_terminal ? 0
                                                               : 1,
                                            show, &top);

    cJSON_Delete(top.before);
    return status;
}
