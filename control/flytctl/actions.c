#include "control/flytctl/actions.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "control/flytctl/migrate.h"
#include "rpc/base/build_name.h"

enum flyt_exit flyt_act(struct flyt_ctl *ctl, uint32_t procedure, xdrproc_t xdr_args, const void *args,
                        const char *format, ...)
{
    flyt_outcome outcome;
    va_list arguments;
    char *done;
    enum flyt_exit status =
        flyt_link_call(ctl, procedure, xdr_args, args, (xdrproc_t)xdr_flyt_outcome, &outcome, sizeof outcome, 0);

    if (status != FLYT_EXIT_OK)
        return status;
    va_start(arguments, format);
    if (vasprintf(&done, format, arguments) < 0)
        done = NULL;
    va_end(arguments);
    status = flyt_finish(ctl, &outcome, "%s", (char *)flyt_must(done));
    free(done);
    xdr_free((xdrproc_t)xdr_flyt_outcome, &outcome);
    return status;
}

flyt_set_number flyt_set_number_of(const struct flyt_arguments *arguments, const char *name)
{
    const struct flyt_value *value = flyt_option_get(arguments, name);

    return (flyt_set_number){.is_set = value->is_set, .value = value->number};
}

flyt_set_text flyt_set_text_of(const struct flyt_arguments *arguments, const char *name)
{
    const struct flyt_value *value = flyt_option_get(arguments, name);

    return (flyt_set_text){.is_set = value->is_set, .value = (char *)(value->is_set ? value->texts[0] : "")};
}

/* ---- small commands ---- */

enum flyt_exit flyt_run_schedule(struct flyt_ctl *ctl, const struct flyt_arguments *arguments)
{
    const char *verb = arguments->command->name;
    bool is_drain = !strcmp(verb, "drain");
    flyt_schedule_args args = {.schedule = is_drain                  ? FLYT_SCHEDULE_DRAINING
                                           : !strcmp(verb, "cordon") ? FLYT_SCHEDULE_CORDONED
                                                                     : FLYT_SCHEDULE_ACTIVE};
    struct flyt_view view = {0};
    flyt_view_res res;
    enum flyt_exit status = flyt_select_target(ctl, arguments->words[0], &args.kind, &args.target);

    if (status != FLYT_EXIT_OK)
        return status;
    status = flyt_link_call(ctl, FLYT_SCHEDULE, (xdrproc_t)xdr_flyt_schedule_args, &args, (xdrproc_t)xdr_flyt_view_res,
                            &res, sizeof res, 0);
    free(args.target);
    if (status != FLYT_EXIT_OK)
        return status;
    if (res.outcome.status != FLYT_STATUS_OK || !is_drain || !res.json.json_len)
        status = flyt_finish(ctl, &res.outcome, "%s %s%s", arguments->words[0],
                             is_drain        ? "is drained"
                             : args.schedule ? "is cordoned"
                                             : "takes new work",
                             is_drain ? ": nothing is left on it" : "");
    else
        status = flyt_view_parse(res.json.json_val, res.json.json_len, &view);
    if (view.rows && is_drain && flyt_option_is(arguments, "migrate") && cJSON_GetArraySize(view.rows)) {
        const flyt_migrate_args how = flyt_migrate_how(arguments);
        status = flyt_migrate_all(ctl, &how, view.rows);
        flyt_view_free(&view);
    } else if (view.rows) {
        flyt_view_put(ctl, "allocations", &view);
        if (!cJSON_GetArraySize(view.rows))
            flyt_complain(FLYT_EXIT_OK, "%s is drained: nothing is left on it", arguments->words[0]);
        flyt_view_free(&view);
    }
    xdr_free((xdrproc_t)xdr_flyt_view_res, &res);
    return status;
}

enum flyt_exit flyt_run_gpu_set(struct flyt_ctl *ctl, const struct flyt_arguments *arguments)
{
    const struct flyt_value *size = flyt_option_get(arguments, "group-size");
    flyt_gpu_set_args args = {.group_size = size->number ? 8 : 2};

    if (!size->is_set)
        return flyt_complain(FLYT_EXIT_USAGE, "gpu set needs --group-size 2 or --group-size 8");
    enum flyt_exit status = flyt_select_gpu(ctl, arguments->words[0], &args.gpu);
    if (status == FLYT_EXIT_OK)
        status = flyt_act(ctl, FLYT_GPU_SET, (xdrproc_t)xdr_flyt_gpu_set_args, &args, "%s has groups of %u SMs",
                          arguments->words[0], args.group_size);
    free(args.gpu);
    return status;
}

enum flyt_exit flyt_run_allocation(struct flyt_ctl *ctl, const struct flyt_arguments *arguments)
{
    bool is_kill = !strcmp(arguments->command->name, "allocation kill");
    flyt_allocation_args args = {.action = is_kill ? FLYT_ALLOCATION_KILL : FLYT_ALLOCATION_ADOPT};
    enum flyt_exit status = flyt_select_id(ctl, "allocations", arguments->words[0], &args.id);

    if (status != FLYT_EXIT_OK)
        return status;
    return flyt_act(ctl, FLYT_ALLOCATION, (xdrproc_t)xdr_flyt_allocation_args, &args, "allocation %016llx is %s",
                    (unsigned long long)args.id, is_kill ? "ended" : "adopted");
}

enum flyt_exit flyt_run_adopt(struct flyt_ctl *ctl, const struct flyt_arguments *arguments)
{
    flyt_adopt_args args = {.node = (char *)arguments->words[0]};

    args.gpus.gpus_len = arguments->word_count - 1;
    args.gpus.gpus_val = (flyt_name *)&arguments->words[1];
    return flyt_act(ctl, FLYT_NODE_ADOPT, (xdrproc_t)xdr_flyt_adopt_args, &args, "%u GPU%s %s %s's now",
                    args.gpus.gpus_len, args.gpus.gpus_len == 1 ? "" : "s", args.gpus.gpus_len == 1 ? "is" : "are",
                    arguments->words[0]);
}

enum flyt_exit flyt_run_fence(struct flyt_ctl *ctl, const struct flyt_arguments *arguments)
{
    flyt_fence_args args = {.node = (char *)arguments->words[0], .is_confirmed_dead = true};

    if (!flyt_option_is(arguments, "confirmed-dead"))
        return flyt_complain(FLYT_EXIT_USAGE,
                             "node fence frees everything that %s had, so its programs must be dead for certain: make "
                             "sure that the machine is off, then say --confirmed-dead",
                             arguments->words[0]);
    return flyt_act(ctl, FLYT_NODE_FENCE, (xdrproc_t)xdr_flyt_fence_args, &args, "%s is fenced", arguments->words[0]);
}

enum flyt_exit flyt_run_session_kill(struct flyt_ctl *ctl, const struct flyt_arguments *arguments)
{
    flyt_session_args args = {0};
    enum flyt_exit status = flyt_select_id(ctl, "sessions", arguments->words[0], &args.id);

    if (status != FLYT_EXIT_OK)
        return status;
    return flyt_act(ctl, FLYT_SESSION_KILL, (xdrproc_t)xdr_flyt_session_args, &args, "session %016llx is ended",
                    (unsigned long long)args.id);
}

enum flyt_exit flyt_run_tenant_set(struct flyt_ctl *ctl, const struct flyt_arguments *arguments)
{
    const struct flyt_value *memory = flyt_option_get(arguments, "memory");
    flyt_tenant_set_args args = {.tenant = (char *)arguments->words[0],
                                 .compute_units = flyt_set_number_of(arguments, "sm"),
                                 .memory_bytes = {.is_set = memory->is_set},
                                 .sessions_max = flyt_set_number_of(arguments, "sessions"),
                                 .vm_count = flyt_set_number_of(arguments, "vms"),
                                 .remove = flyt_option_is(arguments, "remove")};
    uint64_t bytes = 0;

    if (memory->is_set && strcmp(memory->texts[0], "0") && flyt_option_size(memory->texts[0], &bytes))
        return flyt_complain(FLYT_EXIT_USAGE, "--memory takes a size such as 8G (GiB), or 0 for no limit, not '%s'",
                             memory->texts[0]);
    args.memory_bytes.value = bytes;
    bool is_any = args.compute_units.is_set || memory->is_set || args.sessions_max.is_set || args.vm_count.is_set;
    if (is_any == (bool)args.remove)
        return flyt_complain(FLYT_EXIT_USAGE, "tenant set needs one of --sm, --memory, --sessions, --vms; or --remove");
    return flyt_act(ctl, FLYT_TENANT_SET, (xdrproc_t)xdr_flyt_tenant_set_args, &args, "the quotas of tenant %s are %s",
                    args.tenant, args.remove ? "removed" : "set");
}

enum flyt_exit flyt_run_version(struct flyt_ctl *ctl, const struct flyt_arguments *arguments)
{
    struct flyt_view view;
    bool is_json = ctl->output == FLYT_OUTPUT_JSON;

    if (!is_json) {
        fprintf(ctl->out, "flytctl %s\n", flyt_build_name);
        fflush(ctl->out);
    }
    enum flyt_exit status = flyt_view_read(ctl, "status", "", &view);
    if (status == FLYT_EXIT_OK)
        flyt_view_free(&view);
    if (is_json) {
        fputs("{\"flytctl\":", ctl->out);
        flyt_json_put_string(ctl->out, flyt_build_name);
        fputs(",\"manager\":", ctl->out);
        if (status == FLYT_EXIT_OK)
            flyt_json_put_string(ctl->out, flyt_link_build(ctl));
        else
            fputs("null", ctl->out);
        fputs("}\n", ctl->out);
    } else if (status == FLYT_EXIT_OK) {
        char *build = flyt_text_safe(flyt_link_build(ctl), strlen(flyt_link_build(ctl)));
        fprintf(ctl->out, "flyt-cluster-manager %s at ", build);
        flyt_text_put(ctl->out, flyt_link_address(ctl)); /* another manager may have named it */
        fputc('\n', ctl->out);
        free(build);
    }
    return status;
}
