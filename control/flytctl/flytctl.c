#include "control/flytctl/flytctl.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "control/flytctl/json.h"
#include "control/flytctl/text.h"

enum flyt_exit flyt_complain(enum flyt_exit status, const char *format, ...)
{
    va_list arguments;
    char *text;

    va_start(arguments, format);
    if (vasprintf(&text, format, arguments) < 0)
        text = NULL;
    va_end(arguments);
    flyt_must(text);
    fflush(stdout);
    fputs("flytctl: ", stderr);
    flyt_text_put(stderr, text);
    fputc('\n', stderr);
    free(text);
    return status;
}

static const struct {
    const char *name;
    enum flyt_exit exit;
} statuses[] = {
    [FLYT_STATUS_OK] = {"ok", FLYT_EXIT_OK},
    [FLYT_STATUS_INVALID] = {"invalid", FLYT_EXIT_USAGE},
    [FLYT_STATUS_NOT_FOUND] = {"not_found", FLYT_EXIT_NOT_FOUND},
    [FLYT_STATUS_EXISTS] = {"exists", FLYT_EXIT_REFUSED},
    [FLYT_STATUS_CONFLICT] = {"conflict", FLYT_EXIT_REFUSED},
    [FLYT_STATUS_DENIED] = {"denied", FLYT_EXIT_DENIED},
    [FLYT_STATUS_NO_CAPACITY] = {"no_capacity", FLYT_EXIT_REFUSED},
    [FLYT_STATUS_QUOTA] = {"quota", FLYT_EXIT_REFUSED},
    [FLYT_STATUS_IN_USE] = {"in_use", FLYT_EXIT_REFUSED},
    [FLYT_STATUS_NOT_LEADER] = {"not_leader", FLYT_EXIT_UNREACHABLE},
    [FLYT_STATUS_UNAVAILABLE] = {"unavailable", FLYT_EXIT_UNREACHABLE},
    [FLYT_STATUS_TIMEOUT] = {"timeout", FLYT_EXIT_UNREACHABLE},
    [FLYT_STATUS_NOT_SUPPORTED] = {"not_supported", FLYT_EXIT_REFUSED},
    [FLYT_STATUS_STALE] = {"stale", FLYT_EXIT_REFUSED},
    [FLYT_STATUS_HELD] = {"held", FLYT_EXIT_REFUSED},
};
enum { STATUS_COUNT = sizeof statuses / sizeof statuses[0] };

enum flyt_exit flyt_exit_of(flyt_status status)
{
    return (unsigned)status < STATUS_COUNT ? statuses[status].exit : FLYT_EXIT_REFUSED;
}

const char *flyt_status_name(flyt_status status)
{
    return (unsigned)status < STATUS_COUNT ? statuses[status].name : "unknown";
}

enum flyt_exit flyt_finish(struct flyt_ctl *ctl, const flyt_outcome *outcome, const char *format, ...)
{
    enum flyt_exit status = flyt_exit_of(outcome->status);
    const char *text = *outcome->text ? outcome->text : flyt_status_name(outcome->status);
    va_list arguments;

    if (ctl->output == FLYT_OUTPUT_JSON) {
        fprintf(ctl->out, "{\"status\":\"%s\",\"text\":", flyt_status_name(outcome->status));
        flyt_json_put_string(ctl->out, outcome->text);
        fputs("}\n", ctl->out);
        return status;
    }
    if (status != FLYT_EXIT_OK)
        return flyt_complain(status, "%s", text);
    va_start(arguments, format);
    char *done = NULL;
    if (vasprintf(&done, format, arguments) < 0)
        done = NULL;
    va_end(arguments);
    flyt_text_put(ctl->out, flyt_must(done)); /* names in it may be a node's or a VM's */
    free(done);
    if (*outcome->text) {
        fputs(": ", ctl->out);
        flyt_text_put(ctl->out, outcome->text);
    }
    fputc('\n', ctl->out);
    return status;
}
