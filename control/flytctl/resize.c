/* resize: the one command that may end with "recorded, not acknowledged yet". */
#include <stdlib.h>
#include <string.h>

#include "control/flytctl/actions.h"

enum { TIMEOUT_MS = 30000 };

static void put_json(struct flyt_ctl *ctl, const char *vm_ip, const flyt_resize_res *res)
{
    char *json = NULL;
    size_t bytes;
    FILE *out = flyt_must(open_memstream(&json, &bytes));

    fprintf(out, "{\"status\":\"%s\",\"text\":", flyt_status_name(res->outcome.status));
    flyt_json_put_string(out, res->outcome.text);
    fputs(",\"vm_ip\":", out);
    flyt_json_put_string(out, vm_ip);
    fprintf(out, ",\"revision\":%llu,\"uses\":[", (unsigned long long)res->revision);
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
    fputs("]}", out);
    fclose(out);
    flyt_json_put(ctl->out, flyt_must(json), bytes, ctl->is_terminal);
    free(json);
}

static void put_uses(struct flyt_ctl *ctl, const flyt_resize_res *res)
{
    for (u_int i = 0; i < res->uses.uses_len; i++) {
        const flyt_allocation_use *use = &res->uses.uses_val[i];
        for (u_int j = 0; j < use->slots.slots_len; j++) {
            const flyt_slot_use *slot = &use->slots.slots_val[j];
            char now[FLYT_NUMBER_BYTES], used[FLYT_NUMBER_BYTES];
            flyt_text_size(now, (double)slot->memory_bytes);
            flyt_text_size(used, (double)slot->memory_used_bytes);
            fprintf(ctl->out, "allocation %016llx, device %u: %u SMs, %s, of which %s in use\n",
                    (unsigned long long)use->id, j, slot->sm_count, now, used);
        }
    }
}

enum flyt_exit flyt_run_resize(struct flyt_ctl *ctl, const struct flyt_arguments *arguments)
{
    const struct flyt_value *timeout = flyt_option_get(arguments, "timeout");
    flyt_resize_args args = {.compute_units = flyt_set_number_of(arguments, "sm"),
                             .memory_bytes = flyt_set_number_of(arguments, "memory"),
                             .when_free = flyt_option_is(arguments, "when-free"),
                             .force = flyt_option_is(arguments, "force"),
                             /* 0 is the cluster manager's own default */
                             .timeout_ms = !timeout->is_set  ? TIMEOUT_MS
                                           : timeout->number ? (unsigned)timeout->number
                                                             : 1};
    flyt_resize_res res;

    if (!args.compute_units.is_set && !args.memory_bytes.is_set)
        return flyt_complain(FLYT_EXIT_USAGE, "resize needs --sm or --memory");
    enum flyt_exit status = flyt_select_vm(ctl, arguments->words[0], &args.vm);
    if (status == FLYT_EXIT_OK)
        status = flyt_link_call(ctl, FLYT_RESIZE, (xdrproc_t)xdr_flyt_resize_args, &args,
                                (xdrproc_t)xdr_flyt_resize_res, &res, sizeof res, args.timeout_ms);
    if (status != FLYT_EXIT_OK) {
        free(args.vm);
        return status;
    }
    bool is_pending = res.outcome.status == FLYT_STATUS_TIMEOUT;
    status = is_pending ? FLYT_EXIT_PENDING : flyt_exit_of(res.outcome.status);
    if (ctl->output == FLYT_OUTPUT_JSON) {
        put_json(ctl, args.vm, &res);
    } else {
        if (status == FLYT_EXIT_OK && res.uses.uses_len)
            fprintf(ctl->out, "VM %s is resized, revision %llu\n", args.vm, (unsigned long long)res.revision);
        else if (status == FLYT_EXIT_OK)
            fprintf(ctl->out, "VM %s holds no allocation now: the next one has the new size\n", args.vm);
        put_uses(ctl, &res);
    }
    if (is_pending)
        flyt_complain(status, "%s",
                      *res.outcome.text ? res.outcome.text
                                        : "recorded, but not every running program has acknowledged it yet");
    else if (status != FLYT_EXIT_OK && ctl->output != FLYT_OUTPUT_JSON)
        flyt_complain(status, "%s", *res.outcome.text ? res.outcome.text : flyt_status_name(res.outcome.status));
    xdr_free((xdrproc_t)xdr_flyt_resize_res, &res);
    free(args.vm);
    return status;
}
