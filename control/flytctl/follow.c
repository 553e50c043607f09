/* Following what was begun, in a view (follow.h). */
#include "control/flytctl/follow.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "control/flytctl/json.h"
#include "control/flytctl/text.h"
#include "control/flytctl/view.h"

enum {
    LOOK_MS = 250,
    LOST_MAX = 30,       /* looks in a row that the cluster manager does not answer: it may be restarted, … */
    LOST_WAIT_MS = 1000, /* … so that much apart */
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

bool flyt_follow_is_over(const cJSON *row)
{
    const char *phase = flyt_row_text(row, "phase");

    return !strcmp(phase, "done") || !strcmp(phase, "failed");
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

static void show(struct flyt_ctl *ctl, const struct flyt_following *following, const cJSON *row, struct shown *shown)
{
    const char *phase = flyt_row_text(row, "phase");
    double round = flyt_row_number(row, "round");
    bool is_news = strcmp(phase, shown->phase) != 0 || (!strcmp(phase, "copying") && round > shown->round);
    char *line = NULL;
    size_t bytes;

    if (ctl->output == FLYT_OUTPUT_JSON || flyt_follow_is_over(row) || (!ctl->is_terminal && !is_news))
        return;
    snprintf(shown->phase, sizeof shown->phase, "%s", phase);
    shown->round = round;
    FILE *out = flyt_must(open_memstream(&line, &bytes));
    following->put_progress(out, row, following->user);
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

/* ---- following ---- */

cJSON *flyt_follow_refusal(const char *vm_ip, const char *phase, const char *reason)
{
    cJSON *row = flyt_must(cJSON_CreateObject());

    cJSON_AddStringToObject(row, "vm_ip", vm_ip);
    cJSON_AddStringToObject(row, "phase", phase);
    cJSON_AddStringToObject(row, "reason", reason);
    return row;
}

cJSON *flyt_follow_read(struct flyt_ctl *ctl, const struct flyt_following *following, enum flyt_exit *ret_status)
{
    struct flyt_view view;

    *ret_status = flyt_view_read(ctl, following->view, following->id, &view);
    if (*ret_status != FLYT_EXIT_OK)
        return NULL;
    cJSON *row = view.rows->child ? cJSON_DetachItemViaPointer(view.rows, view.rows->child) : NULL;
    if (!row)
        *ret_status = flyt_complain(FLYT_EXIT_NOT_FOUND, "the cluster manager knows %s %s no more", following->word,
                                    following->id);
    flyt_view_free(&view);
    return row;
}

enum flyt_exit flyt_follow(struct flyt_ctl *ctl, const struct flyt_following *following, cJSON **ret_row)
{
    struct interruption interruption;
    struct shown shown = {0};
    enum flyt_exit status = FLYT_EXIT_OK;
    cJSON *row = NULL;
    unsigned lost = 0;

    catch_interrupt(&interruption);
    for (;;) {
        cJSON *next = flyt_follow_read(ctl, following, &status);
        lost = next ? 0 : lost + 1;
        if (next) {
            cJSON_Delete(row);
            row = next;
            show(ctl, following, row, &shown);
        }
        bool is_lost = !next && (status != FLYT_EXIT_UNREACHABLE || lost > LOST_MAX);
        if (is_lost || (next && flyt_follow_is_over(row)))
            break;
        if (wait_ms(&interruption, next ? LOOK_MS : LOST_WAIT_MS)) {
            end_line(ctl, &shown);
            status = flyt_complain(FLYT_EXIT_PENDING, "it goes on in the background: %s", following->meanwhile);
            break;
        }
    }
    let_interrupt(&interruption);
    end_line(ctl, &shown);
    *ret_row = row;
    return status;
}

void flyt_follow_put_json(struct flyt_ctl *ctl, const cJSON *row)
{
    char *text = flyt_must(cJSON_PrintUnformatted(row));

    flyt_json_put(ctl->out, text, strlen(text), ctl->is_terminal);
    free(text);
}
