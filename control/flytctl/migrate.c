/* migrate: begun by one call, then followed in the view "migrations", so that who follows may come and go. */
#include "control/flytctl/migrate.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "control/flytctl/actions.h"
#include "control/flytctl/view.h"

enum {
    LOOK_MS = 250,
    LOST_MAX = 30,       /* looks in a row that the cluster manager does not answer: it may be restarted, … */
    LOST_WAIT_MS = 1000, /* … so that much apart */
    PREPARE_MS = 60000,  /* how much longer the answer to the beginning may take: it is when the node has taken it */
};

/* ---- Ctrl-C: it ends the following, not what is followed ---- */

struct interruption {
    sigset_t before;
    struct sigaction action_before;
};

static volatile sig_atomic_t is_interrupted;

static void on_interrupt(int number)
{
    is_interrupted = 1;
}

/* Blocked but while we wait, so that no call is cut. */
static void catch_interrupt(struct interruption *interruption)
{
    const struct sigaction action = {.sa_handler = on_interrupt};
    sigset_t blocked;

    is_interrupted = 0;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGINT);
    sigprocmask(SIG_BLOCK, &blocked, &interruption->before);
    sigaction(SIGINT, &action, &interruption->action_before);
}

static void let_interrupt(const struct interruption *interruption)
{
    sigaction(SIGINT, &interruption->action_before, NULL);
    sigprocmask(SIG_SETMASK, &interruption->before, NULL);
}

/* Whether it was interrupted. */
static bool wait_ms(const struct interruption *interruption, unsigned ms)
{
    const struct timespec left = {ms / 1000, ms % 1000 * 1000000l};
    sigset_t open = interruption->before;

    sigdelset(&open, SIGINT);
    if (!is_interrupted)
        ppoll(NULL, 0, &left, &open);
    return is_interrupted;
}

/* ---- what is shown meanwhile ---- */

static bool is_over(const cJSON *row)
{
    const char *phase = flyt_row_text(row, "phase");

    return !strcmp(phase, "done") || !strcmp(phase, "failed");
}

/* "copying round 3: 1.2GiB of 4.0GiB copied, 64MiB changed, 900MiB/s, about 2s" */
static void put_progress(FILE *out, const cJSON *row)
{
    char copied[FLYT_NUMBER_BYTES], memory[FLYT_NUMBER_BYTES], dirty[FLYT_NUMBER_BYTES], rate[FLYT_NUMBER_BYTES],
        left[FLYT_NUMBER_BYTES];
    double per_s = flyt_row_number(row, "bytes_per_s"), left_bytes = flyt_row_number(row, "left_bytes");

    fprintf(out, "VM %s to %s: %s", flyt_row_text(row, "vm_ip"), flyt_row_text(row, "target"),
            flyt_row_text(row, "phase"));
    if (strcmp(flyt_row_text(row, "phase"), "copying") != 0)
        return;
    flyt_text_size(copied, flyt_row_number(row, "copied_bytes"));
    flyt_text_size(memory, flyt_row_number(row, "memory_bytes"));
    flyt_text_size(dirty, flyt_row_number(row, "dirty_bytes"));
    fprintf(out, " round %.0f, %s copied of %s, %s changed", flyt_row_number(row, "round"), copied, memory, dirty);
    if (per_s <= 0)
        return;
    flyt_text_size(rate, per_s);
    flyt_text_span(left, left_bytes / per_s * 1000);
    fprintf(out, ", %s/s, this round %s more", rate, left);
}

/* On a terminal one line that is written over; elsewhere one for each phase and round; nothing where the end is JSON.
 */
struct shown {
    char phase[32];
    double round;
    bool is_open; /* a line without its end stands on the terminal */
};

static void end_line(struct flyt_ctl *ctl, struct shown *shown)
{
    if (shown->is_open)
        fputs("\r\033[K", ctl->out);
    shown->is_open = false;
    fflush(ctl->out);
}

static void show(struct flyt_ctl *ctl, const cJSON *row, struct shown *shown)
{
    const char *phase = flyt_row_text(row, "phase");
    double round = flyt_row_number(row, "round");
    bool is_news = strcmp(phase, shown->phase) != 0 || (!strcmp(phase, "copying") && round > shown->round);
    char *line = NULL;
    size_t bytes;

    if (ctl->output == FLYT_OUTPUT_JSON || is_over(row) || (!ctl->is_terminal && !is_news))
        return;
    snprintf(shown->phase, sizeof shown->phase, "%s", phase);
    shown->round = round;
    FILE *out = flyt_must(open_memstream(&line, &bytes));
    put_progress(out, row);
    fclose(out);
    char *safe = flyt_text_safe(flyt_must(line), bytes);
    unsigned width;
    size_t fitting = ctl->is_terminal && ctl->width ? flyt_text_fit(safe, ctl->width - 1, &width) : strlen(safe);
    end_line(ctl, shown);
    fprintf(ctl->out, "%.*s%s", (int)fitting, safe, ctl->is_terminal ? "" : "\n");
    shown->is_open = ctl->is_terminal;
    fflush(ctl->out);
    free(safe);
    free(line);
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

/* ---- following ---- */

static cJSON *row_of_refusal(const char *vm_ip, const char *phase, const char *reason)
{
    cJSON *row = flyt_must(cJSON_CreateObject());

    cJSON_AddStringToObject(row, "vm_ip", vm_ip);
    cJSON_AddStringToObject(row, "phase", phase);
    cJSON_AddStringToObject(row, "reason", reason);
    return row;
}

/* The row of a migration; NULL and *ret_status: it cannot be had. */
static cJSON *read_row(struct flyt_ctl *ctl, const char *id, enum flyt_exit *ret_status)
{
    struct flyt_view view;

    *ret_status = flyt_view_read(ctl, "migrations", id, &view);
    if (*ret_status != FLYT_EXIT_OK)
        return NULL;
    cJSON *row = view.rows->child ? cJSON_DetachItemViaPointer(view.rows, view.rows->child) : NULL;
    if (!row)
        *ret_status = flyt_complain(FLYT_EXIT_NOT_FOUND, "the cluster manager knows migration %s no more", id);
    flyt_view_free(&view);
    return row;
}

/* Until it is over. */
static enum flyt_exit follow(struct flyt_ctl *ctl, const char *vm_ip, const char *id, cJSON **ret_row)
{
    struct interruption interruption;
    struct shown shown = {0};
    enum flyt_exit status = FLYT_EXIT_OK;
    cJSON *row = NULL;
    unsigned lost = 0;

    catch_interrupt(&interruption);
    for (;;) {
        cJSON *next = read_row(ctl, id, &status);
        lost = next ? 0 : lost + 1;
        if (next) {
            cJSON_Delete(row);
            row = next;
            show(ctl, row, &shown);
        }
        bool is_lost = !next && (status != FLYT_EXIT_UNREACHABLE || lost > LOST_MAX);
        if (is_lost || (next && is_over(row)))
            break;
        if (wait_ms(&interruption, next ? LOOK_MS : LOST_WAIT_MS)) {
            end_line(ctl, &shown);
            status = flyt_complain(FLYT_EXIT_PENDING,
                                   "it goes on in the background: `flytctl migrations %s` shows it, `flytctl migrate "
                                   "%s --cancel` ends it",
                                   id, vm_ip);
            break;
        }
    }
    let_interrupt(&interruption);
    end_line(ctl, &shown);
    *ret_row = row ? row : row_of_refusal(vm_ip, "unknown", "the cluster manager did not answer");
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
        *ret_row = row_of_refusal(args->vm, "unknown", "the cluster manager did not answer");
        return status;
    }
    if (res.outcome.status != FLYT_STATUS_OK || !res.migration_id) {
        const char *text = *res.outcome.text ? res.outcome.text : flyt_status_name(res.outcome.status);
        *ret_row = row_of_refusal(args->vm, "refused", text);
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
        *ret_row = read_row(ctl, id, &status);
        if (!*ret_row)
            *ret_row = row_of_refusal(args->vm, "unknown", "the cluster manager did not answer");
        return status;
    }
    status = follow(ctl, args->vm, id, ret_row);
    if (status != FLYT_EXIT_OK || !strcmp(flyt_row_text(*ret_row, "phase"), "done"))
        return status;
    return is_quiet ? FLYT_EXIT_REFUSED
                    : flyt_complain(FLYT_EXIT_REFUSED, "VM %s stays where it is: %s", args->vm,
                                    flyt_row_text(*ret_row, "reason"));
}

flyt_migration_bounds flyt_migrate_bounds(const struct flyt_arguments *arguments)
{
    return (flyt_migration_bounds){
        .rounds_max = (unsigned)flyt_option_get(arguments, "rounds")->number,
        .stop_ms = (unsigned)flyt_option_get(arguments, "stop-timeout")->number,
        .timeout_s = (unsigned)((flyt_option_get(arguments, "timeout")->number + 999) / 1000),
        .rest_bytes = flyt_option_get(arguments, "rest")->number,
    };
}

/* ---- the command ---- */

static void put_row(struct flyt_ctl *ctl, const cJSON *row)
{
    char *text = flyt_must(cJSON_PrintUnformatted(row));

    flyt_json_put(ctl->out, text, strlen(text), ctl->is_terminal);
    free(text);
}

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
        if (!is_over(row))
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
            put_row(ctl, end);
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
    flyt_migrate_args args = {.target = (char *)(to->is_set ? to->texts[0] : ""),
                              .bounds = flyt_migrate_bounds(arguments),
                              .force = flyt_option_is(arguments, "force")};
    cJSON *row = NULL;
    enum flyt_exit status = flyt_select_vm(ctl, arguments->words[0], &args.vm);

    if (status != FLYT_EXIT_OK)
        return status;
    if (flyt_option_is(arguments, "cancel")) {
        status = to->is_set || args.force
                     ? flyt_complain(FLYT_EXIT_USAGE, "--cancel ends a migration: it goes without --to and --force")
                     : cancel(ctl, args.vm, is_detached);
        free(args.vm);
        return status;
    }
    status = flyt_migrate(ctl, &args, is_detached, false, &row);
    if (ctl->output == FLYT_OUTPUT_JSON)
        put_row(ctl, row);
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

enum flyt_exit flyt_migrate_all(struct flyt_ctl *ctl, const flyt_migration_bounds *bounds, const cJSON *allocations)
{
    cJSON *all = flyt_must(cJSON_CreateArray());
    enum flyt_exit status = FLYT_EXIT_OK;
    const cJSON *row;
    unsigned moved = 0, stayed = 0;

    cJSON_ArrayForEach(row, allocations)
    {
        flyt_migrate_args args = {.vm = (char *)flyt_row_text(row, "vm_ip"), .target = (char *)"", .bounds = *bounds};
        cJSON *end = NULL;
        if (!is_first_of_vm(row))
            continue;
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
        put_row(ctl, all);
    else if (stayed)
        flyt_complain(status, "%u moved, %u not: what stays ends by itself, or is ended (`flytctl allocation kill`)",
                      moved, stayed);
    cJSON_Delete(all);
    return status;
}
