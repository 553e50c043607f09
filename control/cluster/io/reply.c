/* Replies that several procedures give, and who makes a call. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/base/json_memory.h"
#include "control/base/peer.h"
#include "control/cluster/io/reply.h"
#include "rpc/base/error.h"

static flyt_outcome outcome_of(flyt_status status, const char *format, va_list args)
{
    char text[FLYT_TEXT_BYTES_MAX];

    vsnprintf(text, sizeof text, format, args);
    return (flyt_outcome){.status = status, .text = strdup(text)};
}

flyt_status flyt_refuse(struct flyt_error *err, flyt_status status, const char *format, ...)
{
    char text[sizeof err->text];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    flyt_error_set(err, -EINVAL, "%s", text);
    return status;
}

/* Every result begins with an outcome; all else zero is a valid, empty result. */
union any_result {
    flyt_outcome outcome;
    flyt_hello_res hello;
    flyt_enrol_res enrol;
    flyt_register_res registration;
    flyt_heartbeat_res heartbeat;
    flyt_attach_res attach;
    flyt_view_res view;
    flyt_resize_res resize;
    flyt_drain_res drain;
    flyt_migrate_res migrate;
    flyt_saving_begun_res op;
    flyt_token_res token;
    flyt_backup_res backup;
    flyt_vm_usage_res usage;
};

void flyt_call_outcome(struct flyt_call *call, flyt_status status, const char *format, ...)
{
    static char empty[] = "";
    union any_result result;
    va_list args;

    /* Strings must be there, and an enumeration must have one of its values: both results that have such members. */
    memset(&result, 0, sizeof result);
    va_start(args, format);
    flyt_outcome outcome = outcome_of(status, format, args);
    va_end(args);
    char *text = outcome.text;
    if (!outcome.text)
        outcome.text = empty;
    result.outcome = outcome;
    flyt_call_reply(call, &result);
    free(text);
}

const char *const flyt_kind_names[] = {"nobody", "node", "vm", "operator", "viewer", NULL};

const char *flyt_kind_name(enum flyt_peer_kind kind)
{
    return flyt_kind_names[kind <= FLYT_PEER_VIEWER ? kind : 0];
}

const char *flyt_call_who(const struct flyt_call *call, char *who)
{
    const struct flyt_identity *identity = flyt_call_identity(call);
    const char *role = "nobody";

    for (unsigned kind = FLYT_PEER_NODE; kind <= FLYT_PEER_VIEWER; kind++)
        if (identity->role == (enum flyt_role)(1 << kind))
            role = flyt_kind_name((enum flyt_peer_kind)kind);
    snprintf(who, FLYT_NAME_BYTES_MAX + 1, "%s:%.240s", role, identity->name);
    return who;
}

void flyt_view_reply(struct flyt_call *call, flyt_status status, const char *text, cJSON *array, uint64_t next)
{
    char *json = array ? cJSON_PrintUnformatted(array) : NULL;
    flyt_view_res res = {.outcome = {status, (char *)text}, .next = next};
    /* Of this answer or of something else since the last one: what is not shown must not look as if it were not there.
     */
    bool is_whole = !flyt_json_take_failure();

    cJSON_Delete(array);
    if (!json || !is_whole || strlen(json) > FLYT_VIEW_BYTES_MAX) {
        flyt_call_outcome(call, FLYT_STATUS_UNAVAILABLE, "the answer is too long, or there is no memory for it");
        free(json);
        return;
    }
    res.json.json_val = json;
    res.json.json_len = (u_int)strlen(json);
    flyt_call_reply(call, &res);
    free(json);
}
