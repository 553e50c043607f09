/* migrate: begun by one call, then followed in the view "migrations", so that who follows may come and go. */
#include "control/flytctl/migrate.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "control/flytctl/actions.h"
#include "control/flytctl/follow.h"
#include "control/flytctl/move_estimate.h"
#include "control/flytctl/view.h"

enum {
    PREPARE_MS = 60000 /* how much longer the answer to the beginning may take: it is when the node has taken it */
};

/* ---- what is shown meanwhile ---- */

/* When all of it will be over (move_estimate.h). */
static void put_estimate(FILE *out, const cJSON *row, struct flyt_move_pace *pace)
{
    const struct flyt_move_figures figures = {.round = (unsigned)flyt_row_number(row, "round"),
                                              .rounds_max = (unsigned)flyt_row_number(row, "rounds_max"),
                                              .memory_bytes = flyt_row_number(row, "memory_bytes"),
                                              .copied_bytes = flyt_row_number(row, "copied_bytes"),
                                              .dirty_bytes = flyt_row_number(row, "dirty_bytes"),
                                              .left_bytes = flyt_row_number(row, "left_bytes"),
                                              .rest_bytes = flyt_row_number(row, "rest_bytes"),
                                              .bytes_per_s = flyt_row_number(row, "bytes_per_s"),
                                              .elapsed_ms = flyt_row_number(row, "elapsed_ms")};
    char span[FLYT_NUMBER_BYTES];

    flyt_move_pace_note(pace, &figures);
    const struct flyt_move_estimate estimate = flyt_move_estimate(pace, &figures);
    if (estimate.end == FLYT_MOVE_UNKNOWN)
        return;
    flyt_text_span(span, estimate.ms);
    fprintf(out, ", %s %s more%s", estimate.end == FLYT_MOVE_AT_LEAST ? "at least" : "about", span,
            estimate.end == FLYT_MOVE_BY_ROUNDS ? " (ends by the round limit)" : "");
}

/* "copying round 3: 1.2GiB of 4.0GiB copied, 64MiB changed, 900MiB/s, about 2s more" */
static void put_progress(FILE *out, const cJSON *row, void *user)
{
    char copied[FLYT_NUMBER_BYTES], memory[FLYT_NUMBER_BYTES], dirty[FLYT_NUMBER_BYTES], rate[FLYT_NUMBER_BYTES];
    double per_s = flyt_row_number(row, "bytes_per_s");

    fprintf(out, "VM %s to %s: %s", flyt_row_text(row, "vm_ip"), flyt_row_text(row, "target"),
            flyt_row_text(row, "phase"));
    if (strcmp(flyt_row_text(row, "phase"), "copying") != 0) {
        if (*flyt_row_text(row, "reason"))
            fprintf(out, ", %s", flyt_row_text(row, "reason")); /* why it waits, or is about to fail */
        return;
    }
    flyt_text_size(copied, flyt_row_number(row, "copied_bytes"));
    flyt_text_size(memory, flyt_row_number(row, "memory_bytes"));
    flyt_text_size(dirty, flyt_row_number(row, "dirty_bytes"));
    fprintf(out, " round %.0f, %s copied of %s, %s changed", flyt_row_number(row, "round"), copied, memory, dirty);
    if (per_s > 0) {
        flyt_text_size(rate, per_s);
        fprintf(out, ", %s/s", rate);
    }
    put_estimate(out, row, user);
}

void flyt_migrate_put_end(struct flyt_ctl *ctl, const cJSON *row)
{
    char copied[FLYT_NUMBER_BYTES];

    if (!strcmp(flyt_row_text(row, "phase"), "done")) {
        flyt_text_size(copied, flyt_row_number(row, "copied_bytes"));
        flyt_text_put(ctl->out, flyt_row_text(row, "vm_ip"));
        fprintf(ctl->out, " has moved to ");
        flyt_text_put(ctl->out, flyt_row_text(row, "target"));
        fprintf(ctl->out, ": %.0f program%s, %s copied in %.0f round%s and %.1f s, standstill %.1f ms\n",
                flyt_row_number(row, "sessions"), flyt_row_number(row, "sessions") == 1 ? "" : "s", copied,
                flyt_row_number(row, "round"), flyt_row_number(row, "round") == 1 ? "" : "s",
                flyt_row_number(row, "elapsed_ms") / 1000, flyt_row_number(row, "standstill_us") / 1000);
    } else {
        flyt_text_put(ctl->out, flyt_row_text(row, "vm_ip"));
        fputs(" stays where it is: ", ctl->out);
        flyt_text_put(ctl->out, flyt_row_text(row, "reason"));
        fputc('\n', ctl->out);
    }
}

/* Until it is over. */
static enum flyt_exit follow(struct flyt_ctl *ctl, const char *vm_ip, const char *id, cJSON **ret_row)
{
    char *meanwhile =
        flyt_text_format("`flytctl migrations %s` shows it, `flytctl migrate %s --cancel` ends it", id, vm_ip);
    struct flyt_move_pace pace = {0};
    const struct flyt_following following = {.view = "migrations",
                                             .word = "migration",
                                             .id = id,
                                             .put_progress = put_progress,
                                             .user = &pace,
                                             .meanwhile = meanwhile};
    enum flyt_exit status = flyt_follow(ctl, &following, ret_row);

    if (!*ret_row)
        *ret_row = flyt_follow_refusal(vm_ip, "unknown", "the cluster manager did not answer");
    free(meanwhile);
    return status;
}

enum flyt_exit flyt_migrate(struct flyt_ctl *ctl, const flyt_migrate_args *args, bool is_detached, bool is_quiet,
                            cJSON **ret_row)
{
    flyt_migrate_res res;
    char id[17];
    enum flyt_exit status = flyt_link_call(ctl, FLYT_MIGRATE, (xdrproc_t)xdr_flyt_migrate_args, args,
                                           (xdrproc_t)xdr_flyt_migrate_res, &res, sizeof res, PREPARE_MS);

    if (status != FLYT_EXIT_OK) {
        *ret_row = flyt_follow_refusal(args->vm, "unknown", "the cluster manager did not answer");
        return status;
    }
    if (res.outcome.status != FLYT_STATUS_OK || !res.migration_id) {
        const char *text = *res.outcome.text ? res.outcome.text : flyt_status_name(res.outcome.status);
        *ret_row = flyt_follow_refusal(args->vm, "refused", text);
        cJSON_AddStringToObject(*ret_row, "status", flyt_status_name(res.outcome.status));
        status = flyt_exit_of(res.outcome.status);
        if (!is_quiet)
            flyt_complain(status, "%s", text);
        xdr_free((xdrproc_t)xdr_flyt_migrate_res, &res);
        return status;
    }
    snprintf(id, sizeof id, "%016" PRIx64, (uint64_t)res.migration_id);
    xdr_free((xdrproc_t)xdr_flyt_migrate_res, &res);
    if (is_detached) {
        *ret_row = flyt_follow_read(ctl, &(struct flyt_following){.view = "migrations", .word = "migration", .id = id},
                                    &status);
        if (!*ret_row)
            *ret_row = flyt_follow_refusal(args->vm, "unknown", "the cluster manager did not answer");
        return status;
    }
    status = follow(ctl, args->vm, id, ret_row);
    if (status != FLYT_EXIT_OK || !strcmp(flyt_row_text(*ret_row, "phase"), "done"))
        return status;
    return is_quiet ? FLYT_EXIT_REFUSED
                    : flyt_complain(FLYT_EXIT_REFUSED, "VM %s stays where it is: %s", args->vm,
                                    flyt_row_text(*ret_row, "reason"));
}

/* --pack's words are in the packings' order (commands.c). */
flyt_migrate_args flyt_migrate_how(const struct flyt_arguments *arguments)
{
    static char empty[] = "";

    return (flyt_migrate_args){
        .vm = empty,
        .target = empty,
        .bounds =
            {
                .rounds_max = (unsigned)flyt_option_get(arguments, "rounds")->number,
                .stop_ms = (unsigned)flyt_option_get(arguments, "stop-timeout")->number,
                .timeout_s = (unsigned)((flyt_option_get(arguments, "timeout")->number + 999) / 1000),
                .rest_bytes = flyt_option_get(arguments, "rest")->number,
            },
        .stream_count = (unsigned)flyt_option_get(arguments, "streams")->number,
        .packing = (unsigned)flyt_option_get(arguments, "pack")->number,
    };
}

/* ---- the command ---- */

/* The VM's migration that is under way; NULL and *ret_status: there is none. */
static cJSON *row_under_way(struct flyt_ctl *ctl, const char *vm_ip, enum flyt_exit *ret_status)
{
    struct flyt_view view;
    cJSON *row, *found = NULL;

    *ret_status = flyt_view_read(ctl, "migrations", vm_ip, &view);
    if (*ret_status != FLYT_EXIT_OK)
        return NULL;
    cJSON_ArrayForEach(row, view.rows)
    {
        if (!flyt_follow_is_over(row))
            found = row;
    }
    if (found)
        found = cJSON_DetachItemViaPointer(view.rows, found);
    else
        *ret_status = flyt_complain(FLYT_EXIT_NOT_FOUND, "VM %s does not move", vm_ip);
    flyt_view_free(&view);
    return found;
}

/* Asks for its end, and waits for that: whether it came too late is known then. */
static enum flyt_exit cancel(struct flyt_ctl *ctl, char *vm_ip, bool is_detached)
{
    const flyt_migrate_cancel_args args = {.vm = vm_ip};
    flyt_outcome outcome = {0};
    enum flyt_exit status;
    cJSON *row = row_under_way(ctl, vm_ip, &status), *end = NULL;

    if (!row)
        return status;
    status = flyt_link_call(ctl, FLYT_MIGRATE_CANCEL, (xdrproc_t)xdr_flyt_migrate_cancel_args, &args,
                            (xdrproc_t)xdr_flyt_outcome, &outcome, sizeof outcome, 0);
    bool is_begun = status == FLYT_EXIT_OK && outcome.status == FLYT_STATUS_OK;
    if (status == FLYT_EXIT_OK && (!is_begun || is_detached))
        status = flyt_finish(ctl, &outcome, "the migration of VM %s is to end", vm_ip);
    if (is_begun && !is_detached) {
        status = follow(ctl, vm_ip, flyt_row_text(row, "id"), &end);
        if (ctl->output == FLYT_OUTPUT_JSON)
            flyt_follow_put_json(ctl, end);
        if (status == FLYT_EXIT_OK && !strcmp(flyt_row_text(end, "phase"), "done"))
            status = flyt_complain(FLYT_EXIT_REFUSED, "it was too late: VM %s has moved to %s", vm_ip,
                                   flyt_row_text(end, "target"));
        else if (status == FLYT_EXIT_OK && ctl->output != FLYT_OUTPUT_JSON)
            flyt_migrate_put_end(ctl, end);
        cJSON_Delete(end);
    }
    xdr_free((xdrproc_t)xdr_flyt_outcome, &outcome);
    cJSON_Delete(row);
    return status;
}

static void put_begun(struct flyt_ctl *ctl, const cJSON *row)
{
    fputs("VM ", ctl->out);
    flyt_text_put(ctl->out, flyt_row_text(row, "vm_ip"));
    fputs(" moves to ", ctl->out);
    flyt_text_put(ctl->out, flyt_row_text(row, "target"));
    fputs(": `flytctl migrations ", ctl->out);
    flyt_text_put(ctl->out, flyt_row_text(row, "id"));
    fputs("` shows how far it is\n", ctl->out);
}

enum flyt_exit flyt_run_migrate(struct flyt_ctl *ctl, const struct flyt_arguments *arguments)
{
    const struct flyt_value *to = flyt_option_get(arguments, "to");
    bool is_detached = flyt_option_is(arguments, "detach");
    flyt_migrate_args args = flyt_migrate_how(arguments);
    cJSON *row = NULL;
    enum flyt_exit status = flyt_select_vm(ctl, arguments->words[0], &args.vm);

    if (status != FLYT_EXIT_OK)
        return status;
    args.target = to->is_set ? (char *)to->texts[0] : args.target;
    args.force = flyt_option_is(arguments, "force");
    if (flyt_option_is(arguments, "cancel")) {
        status = to->is_set || args.force
                     ? flyt_complain(FLYT_EXIT_USAGE, "--cancel ends a migration: it goes without --to and --force")
                     : cancel(ctl, args.vm, is_detached);
        free(args.vm);
        return status;
    }
    status = flyt_migrate(ctl, &args, is_detached, false, &row);
    if (ctl->output == FLYT_OUTPUT_JSON)
        flyt_follow_put_json(ctl, row);
    else if (status == FLYT_EXIT_OK && is_detached)
        put_begun(ctl, row);
    else if (status == FLYT_EXIT_OK)
        flyt_migrate_put_end(ctl, row);
    cJSON_Delete(row);
    free(args.vm);
    return status;
}

/* ---- drain --migrate ---- */

static bool is_first_of_vm(const cJSON *row)
{
    for (const cJSON *before = row->prev; before->next;
         before = before->prev) /* cJSON: the first one's prev is the last */
        if (!strcmp(flyt_row_text(before, "vm_ip"), flyt_row_text(row, "vm_ip")))
            return false;
    return true;
}

enum flyt_exit flyt_migrate_all(struct flyt_ctl *ctl, const flyt_migrate_args *how, const cJSON *allocations)
{
    cJSON *all = flyt_must(cJSON_CreateArray());
    enum flyt_exit status = FLYT_EXIT_OK;
    const cJSON *row;
    unsigned moved = 0, stayed = 0;

    cJSON_ArrayForEach(row, allocations)
    {
        flyt_migrate_args args = *how;
        cJSON *end = NULL;
        if (!is_first_of_vm(row))
            continue;
        args.vm = (char *)flyt_row_text(row, "vm_ip");
        enum flyt_exit one = flyt_migrate(ctl, &args, false, true, &end);
        moved += one == FLYT_EXIT_OK;
        stayed += one != FLYT_EXIT_OK;
        if (ctl->output != FLYT_OUTPUT_JSON && one != FLYT_EXIT_PENDING)
            flyt_migrate_put_end(ctl, end);
        fflush(ctl->out);
        cJSON_AddItemToArray(all, end);
        if (one != FLYT_EXIT_OK && (status == FLYT_EXIT_OK || one == FLYT_EXIT_PENDING))
            status = one == FLYT_EXIT_PENDING || one == FLYT_EXIT_UNREACHABLE || one == FLYT_EXIT_DENIED
                         ? one
                         : FLYT_EXIT_REFUSED;
        if (one == FLYT_EXIT_PENDING || one == FLYT_EXIT_UNREACHABLE || one == FLYT_EXIT_DENIED)
            break; /* the others would fare no better */
    }
    if (ctl->output == FLYT_OUTPUT_JSON)
        flyt_follow_put_json(ctl, all);
    else if (stayed)
        flyt_complain(status, "%u moved, %u not: what stays ends by itself, or is ended (`flytctl allocation kill`)",
                      moved, stayed);
    cJSON_Delete(all);
    return status;
}
