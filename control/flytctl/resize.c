/* resize: the one command that may end with "recorded, not acknowledged yet", or with SMs that are not free yet. */
#include <stdlib.h>
#include <string.h>

#include "control/flytctl/actions.h"
#include "control/flytctl/migrate.h"

enum {
    TIMEOUT_MS = 30000,
    DRAIN_MS = 60000,     /* --wait vacated without --deadline */
    KILL_WAIT_MS = 25000, /* how much longer the cluster manager takes to see that programs have gone */
};

void flyt_resize_put_head(FILE *out, const char *vm_ip, const flyt_resize_res *res)
{
    fprintf(out, "{\"status\":\"%s\",\"text\":", flyt_status_name(res->outcome.status));
    flyt_json_put_string(out, res->outcome.text);
    fputs(",\"vm_ip\":", out);
    flyt_json_put_string(out, vm_ip);
    fprintf(out, ",\"revision\":%llu", (unsigned long long)res->revision);
}

static void put_json(struct flyt_ctl *ctl, const char *vm_ip, const flyt_resize_res *res, const flyt_drain_res *drain)
{
    char *json = NULL;
    size_t bytes;
    FILE *out = flyt_must(open_memstream(&json, &bytes));

    flyt_resize_put_head(out, vm_ip, res);
    fputs(",\"uses\":[", out);
    for (u_int i = 0; i < res->uses.uses_len; i++) {
        const flyt_allocation_use *use = &res->uses.uses_val[i];
        fprintf(out, "%s{\"allocation\":\"%016llx\",\"revision_applied\":%llu,\"sessions\":%u,\"slots\":[",
                i ? "," : "", (unsigned long long)use->id, (unsigned long long)use->revision, use->session_count);
        for (u_int j = 0; j < use->slots.slots_len; j++) {
            const flyt_slot_use *slot = &use->slots.slots_val[j];
            fprintf(out, "%s{\"sms_now\":%u,\"memory_now_bytes\":%llu,\"memory_used_bytes\":%llu}", j ? "," : "",
                    slot->sm_count, (unsigned long long)slot->memory_bytes,
                    (unsigned long long)slot->memory_used_bytes);
        }
        fputs("]}", out);
    }
    fprintf(out, "],\"sms_draining\":%u,\"%s\":[", drain->sm_count, drain->outcome.status ? "draining" : "ended");
    for (u_int i = 0; i < drain->sessions.sessions_len; i++) {
        const flyt_draining *one = &drain->sessions.sessions_val[i];
        fprintf(out, "%s{\"session\":\"%016llx\",\"program\":", i ? "," : "", (unsigned long long)one->session_id);
        flyt_json_put_string(out, one->program_name);
        fprintf(out, ",\"client_pid\":%u}", one->client_pid);
    }
    fputs("]}", out);
    fclose(out);
    flyt_json_put(ctl->out, flyt_must(json), bytes, ctl->is_terminal);
    free(json);
}

static void put_uses(struct flyt_ctl *ctl, const flyt_resize_res *res, const flyt_set_number *sms)
{
    for (u_int i = 0; i < res->uses.uses_len; i++) {
        const flyt_allocation_use *use = &res->uses.uses_val[i];
        for (u_int j = 0; j < use->slots.slots_len; j++) {
            const flyt_slot_use *slot = &use->slots.slots_val[j];
            char now[FLYT_NUMBER_BYTES], used[FLYT_NUMBER_BYTES];
            flyt_text_size(now, (double)slot->memory_bytes);
            flyt_text_size(used, (double)slot->memory_used_bytes);
            fprintf(ctl->out, "allocation %016llx, device %u: %u SMs", (unsigned long long)use->id, j, slot->sm_count);
            if (sms->is_set && slot->switch_state != FLYT_SWITCH_TARGET && slot->sm_count > sms->value)
                fprintf(ctl->out, " (%llu rounded up to whole groups)", (unsigned long long)sms->value);
            fprintf(ctl->out, ", %s, of which %s in use\n", now, used);
        }
    }
}

static void put_draining(struct flyt_ctl *ctl, const flyt_drain_res *drain)
{
    for (u_int i = 0; i < drain->sessions.sessions_len; i++) {
        const flyt_draining *one = &drain->sessions.sessions_val[i];
        flyt_text_put(ctl->out, one->program_name);
        fprintf(ctl->out, " (pid %u, session %016llx) %s\n", one->client_pid, (unsigned long long)one->session_id,
                drain->outcome.status == FLYT_STATUS_OK ? "was ended: it had work on SMs that were taken away"
                                                        : "has work on SMs that were taken away");
    }
}

/* Whether the node says that nothing runs on SMs which the VM does not have. */
static bool has_drained(const flyt_resize_res *res)
{
    for (u_int i = 0; i < res->uses.uses_len; i++)
        for (u_int j = 0; j < res->uses.uses_val[i].slots.slots_len; j++)
            if (res->uses.uses_val[i].slots.slots_val[j].switch_state != FLYT_SWITCH_VACATED)
                return false;
    return true;
}

/*
 * Asks what still runs on SMs that were taken away; with --wait vacated waits for it, and with --kill ends it. The exit
 * status: 0 as far as nobody waits for that. *ret_drain is to be freed.
 */
static enum flyt_exit wait_for_drain(struct flyt_ctl *ctl, const struct flyt_arguments *arguments, char *vm,
                                     flyt_drain_res *ret_drain)
{
    const struct flyt_value *wait = flyt_option_get(arguments, "wait"), *limit = flyt_option_get(arguments, "deadline");
    bool kill = flyt_option_is(arguments, "kill"),
         is_waiting = kill || (wait->is_set && !strcmp(wait->texts[0], "vacated"));
    flyt_drain_args args = {.vm = vm,
                            .timeout_ms = !is_waiting     ? 0
                                          : limit->is_set ? (u_int)limit->number
                                                          : DRAIN_MS,
                            .kill = kill};
    enum flyt_exit status =
        flyt_link_call(ctl, FLYT_DRAIN, (xdrproc_t)xdr_flyt_drain_args, &args, (xdrproc_t)xdr_flyt_drain_res, ret_drain,
                       sizeof *ret_drain, (uint64_t)args.timeout_ms + (kill ? KILL_WAIT_MS : 0));
    if (status != FLYT_EXIT_OK)
        return status;
    if (ret_drain->outcome.status == FLYT_STATUS_OK)
        return FLYT_EXIT_OK;
    if (ret_drain->outcome.status != FLYT_STATUS_TIMEOUT)
        return flyt_complain(flyt_exit_of(ret_drain->outcome.status), "%s", ret_drain->outcome.text);
    return is_waiting ? flyt_complain(FLYT_EXIT_PENDING, "%s", ret_drain->outcome.text) : FLYT_EXIT_OK;
}

static void put_text(struct flyt_ctl *ctl, const flyt_resize_args *args, const flyt_resize_res *res,
                     const flyt_drain_res *drain)
{
    if (res->outcome.status == FLYT_STATUS_OK) {
        fputs("VM ", ctl->out);
        flyt_text_put(ctl->out, args->vm);
        if (res->uses.uses_len)
            fprintf(ctl->out, " is resized, revision %llu\n", (unsigned long long)res->revision);
        else
            fputs(" holds no allocation now: the next one has the new size\n", ctl->out);
    }
    put_uses(ctl, res, &args->compute_units);
    if (drain->sm_count)
        fprintf(ctl->out, "%u SMs draining\n", drain->sm_count);
    put_draining(ctl, drain);
}

/* There is no room where it is. */
static enum flyt_exit migrate(struct flyt_ctl *ctl, const flyt_resize_args *resize)
{
    static char anywhere[] = "";
    const flyt_migrate_args args = {.vm = resize->vm,
                                    .target = anywhere,
                                    .force = resize->force,
                                    .compute_units = resize->compute_units,
                                    .memory_bytes = resize->memory_bytes};
    cJSON *row = NULL;
    enum flyt_exit status = flyt_migrate(ctl, &args, false, false, &row);

    if (ctl->output == FLYT_OUTPUT_JSON) {
        char *text = flyt_must(cJSON_PrintUnformatted(row));
        flyt_json_put(ctl->out, text, strlen(text), ctl->is_terminal);
        free(text);
    } else if (status == FLYT_EXIT_OK) {
        flyt_migrate_put_end(ctl, row);
    }
    cJSON_Delete(row);
    return status;
}

enum flyt_exit flyt_run_resize(struct flyt_ctl *ctl, const struct flyt_arguments *arguments)
{
    const struct flyt_value *timeout = flyt_option_get(arguments, "timeout"),
                            *wait = flyt_option_get(arguments, "wait");
    flyt_resize_args args = {.compute_units = flyt_set_number_of(arguments, "sm"),
                             .memory_bytes = flyt_set_number_of(arguments, "memory"),
                             .minimum_share_pct = flyt_set_number_of(arguments, "minimum-share"),
                             .maximum_share_pct = flyt_set_number_of(arguments, "maximum-share"),
                             .window_ms = flyt_set_number_of(arguments, "window"),
                             .priority = flyt_set_number_of(arguments, "priority"),
                             .when_free = flyt_option_is(arguments, "when-free"),
                             .force = flyt_option_is(arguments, "force"),
                             /* 0 is the cluster manager's own default */
                             .timeout_ms = !timeout->is_set  ? TIMEOUT_MS
                                           : timeout->number ? (unsigned)timeout->number
                                                             : 1};
    flyt_resize_res res;
    flyt_drain_res drain = {0};

    if (!args.compute_units.is_set && !args.memory_bytes.is_set && !args.minimum_share_pct.is_set &&
        !args.maximum_share_pct.is_set && !args.window_ms.is_set && !args.priority.is_set)
        return flyt_complain(FLYT_EXIT_USAGE, "resize needs --sm, --memory, --priority or a share of the time");
    if (flyt_option_is(arguments, "migrate") &&
        ((!args.compute_units.is_set && !args.memory_bytes.is_set) || args.minimum_share_pct.is_set ||
         args.maximum_share_pct.is_set || args.window_ms.is_set || args.priority.is_set))
        return flyt_complain(FLYT_EXIT_USAGE, "--migrate goes with --sm and --memory alone");
    if (flyt_option_is(arguments, "kill") && wait->is_set && strcmp(wait->texts[0], "vacated") != 0)
        return flyt_complain(FLYT_EXIT_USAGE, "--kill goes with --wait vacated");
    enum flyt_exit status = flyt_select_vm(ctl, arguments->words[0], &args.vm);
    if (status == FLYT_EXIT_OK)
        status = flyt_link_call(ctl, FLYT_RESIZE, (xdrproc_t)xdr_flyt_resize_args, &args,
                                (xdrproc_t)xdr_flyt_resize_res, &res, sizeof res, args.timeout_ms);
    if (status != FLYT_EXIT_OK) {
        free(args.vm);
        return status;
    }
    if (res.outcome.status == FLYT_STATUS_NO_CAPACITY && flyt_option_is(arguments, "migrate")) {
        xdr_free((xdrproc_t)xdr_flyt_resize_res, &res);
        status = migrate(ctl, &args);
        free(args.vm);
        return status;
    }
    bool is_pending = res.outcome.status == FLYT_STATUS_TIMEOUT;
    status = is_pending ? FLYT_EXIT_PENDING : flyt_exit_of(res.outcome.status);
    enum flyt_exit drained = FLYT_EXIT_OK;
    /* Programs that have not switched in time are those that --kill is for, too. */
    if ((status == FLYT_EXIT_OK && !has_drained(&res)) || (is_pending && flyt_option_is(arguments, "kill")))
        drained = wait_for_drain(ctl, arguments, args.vm, &drain);
    if (is_pending && drained == FLYT_EXIT_OK && flyt_option_is(arguments, "kill") && drain.sessions.sessions_len)
        is_pending = false, status = FLYT_EXIT_OK;
    if (ctl->output == FLYT_OUTPUT_JSON)
        put_json(ctl, args.vm, &res, &drain);
    else
        put_text(ctl, &args, &res, &drain);
    if (is_pending)
        flyt_complain(status, "%s",
                      *res.outcome.text ? res.outcome.text
                                        : "recorded, but not every running program has acknowledged it yet");
    else if (status != FLYT_EXIT_OK && ctl->output != FLYT_OUTPUT_JSON)
        flyt_complain(status, "%s", *res.outcome.text ? res.outcome.text : flyt_status_name(res.outcome.status));
    xdr_free((xdrproc_t)xdr_flyt_resize_res, &res);
    xdr_free((xdrproc_t)xdr_flyt_drain_res, &drain);
    free(args.vm);
    return status == FLYT_EXIT_OK ? drained : status;
}
