/* suspend, resume: recorded in the VM's document, and acknowledged when its programs have stopped or go on. */
#include <stdlib.h>
#include <string.h>

#include "control/flytctl/actions.h"

enum { TIMEOUT_MS = 30000 };

static void put_json(struct flyt_ctl *ctl, const char *vm_ip, const flyt_resize_res *res)
{
    char *json = NULL;
    size_t bytes;
    FILE *out = flyt_must(open_memstream(&json, &bytes));

    flyt_resize_put_head(out, vm_ip, res);
    fputc('}', out);
    fclose(out);
    flyt_json_put(ctl->out, flyt_must(json), bytes, ctl->is_terminal);
    free(json);
}

/* revision 0: it holds no allocation. */
static void put_end(struct flyt_ctl *ctl, const char *vm, const char *word, unsigned long long revision)
{
    fputs("VM ", ctl->out);
    flyt_text_put(ctl->out, vm);
    if (revision)
        fprintf(ctl->out, " is %s, revision %llu\n", word, revision);
    else
        fprintf(ctl->out, " is %s; it holds no allocation now\n", word);
}

enum flyt_exit flyt_run_suspend(struct flyt_ctl *ctl, const struct flyt_arguments *arguments)
{
    const struct flyt_value *timeout = flyt_option_get(arguments, "timeout");
    bool is_suspended = !strcmp(arguments->command->name, "suspend");
    flyt_resize_args args = {.is_suspended = {.is_set = true, .value = is_suspended},
                             /* 0 is the cluster manager's own default */
                             .timeout_ms = !timeout->is_set  ? TIMEOUT_MS
                                           : timeout->number ? (unsigned)timeout->number
                                                             : 1};
    const char *word = is_suspended ? "suspended" : "resumed";
    flyt_resize_res res;

    enum flyt_exit status = flyt_select_vm(ctl, arguments->words[0], &args.vm);
    if (status == FLYT_EXIT_OK)
        status = flyt_link_call(ctl, FLYT_RESIZE, (xdrproc_t)xdr_flyt_resize_args, &args,
                                (xdrproc_t)xdr_flyt_resize_res, &res, sizeof res, args.timeout_ms);
    if (status != FLYT_EXIT_OK) {
        free(args.vm);
        return status;
    }
    status = res.outcome.status == FLYT_STATUS_TIMEOUT ? FLYT_EXIT_PENDING : flyt_exit_of(res.outcome.status);
    if (ctl->output == FLYT_OUTPUT_JSON)
        put_json(ctl, args.vm, &res);
    else if (status == FLYT_EXIT_OK && res.uses.uses_len)
        put_end(ctl, args.vm, word, (unsigned long long)res.revision);
    else if (status == FLYT_EXIT_OK)
        put_end(ctl, args.vm, word, 0);
    if (status != FLYT_EXIT_OK && (ctl->output != FLYT_OUTPUT_JSON || status == FLYT_EXIT_PENDING))
        flyt_complain(status, "%s", *res.outcome.text ? res.outcome.text : flyt_status_name(res.outcome.status));
    xdr_free((xdrproc_t)xdr_flyt_resize_res, &res);
    free(args.vm);
    return status;
}
