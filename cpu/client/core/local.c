#include "cpu/client/core/local.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control.h"
#include "rpc/base/build_name.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"
#include "rpc/base/machine.h"

enum { RECORD_BYTES_MAX = 65536 };
enum { RETRY_MS = 50, CLOSED_MAX = 2 };

static int status_code(flyt_status status)
{
    switch (status) {
    case FLYT_STATUS_OK:
        return 0;
    case FLYT_STATUS_DENIED:
    case FLYT_STATUS_HELD:
        return -EACCES;
    case FLYT_STATUS_NOT_FOUND:
        return -ENODEV;
    case FLYT_STATUS_NO_CAPACITY:
    case FLYT_STATUS_QUOTA:
        return -EBUSY;
    case FLYT_STATUS_TIMEOUT:
        return -ETIMEDOUT;
    default:
        return -EAGAIN;
    }
}

_Static_assert((int)FLYT_LOCAL_URLS_MAX == FLYT_URLS_MAX &&
                   (int)FLYT_LOCAL_CREDENTIALS_BYTES_MAX == FLYT_CREDENTIALS_MAX &&
                   (int)FLYT_TICKET_KEY_BYTES == FLYT_KEY_BYTES && (int)FLYT_URL_TEXT_BYTES > FLYT_URL_BYTES_MAX,
               "local.h repeats bounds of control_limits.h");

/* Those of this machine come first: what is absent or refuses there (a container has its host's boot id, and other
 * files) is followed by the others. 0, or -EPROTO, which changes nothing: there are none. */
static int take_grant(struct flyt_local *local, const flyt_local_attach_res *res, struct flyt_error *err)
{
    char boot_id[FLYT_URL_BOOT_ID_BYTES], urls[FLYT_LOCAL_URLS_MAX][FLYT_URL_TEXT_BYTES];

    flyt_machine_boot_id(boot_id);
    unsigned count = flyt_url_order(res->urls.urls_val, res->urls.urls_len, boot_id, urls);
    if (!count)
        return flyt_error_set(err, -EPROTO, "the client manager at %s names no server%s", flyt_local_path(),
                              res->urls.urls_len ? " but at unix sockets of another machine" : "");
    for (unsigned i = 0; i < count; i++) {
        local->is_elsewhere |= i >= local->url_count || strcmp(local->urls[i], urls[i]);
        memcpy(local->urls[i], urls[i], sizeof urls[i]);
    }
    local->url_count = count;
    local->credentials_bytes = res->credentials.credentials_len;
    memcpy(local->credentials, res->credentials.credentials_val, local->credentials_bytes);
    memcpy(local->secret, res->secret, sizeof local->secret);
    local->is_encrypted = res->is_encrypted;
    return 0;
}

static int ask(struct flyt_local *local, struct flyt_error *err)
{
    flyt_local_attach_res res;
    char program_name[FLYT_NAME_BYTES_MAX + 1];
    const flyt_local_attach_args args = {.build = (char *)flyt_build_name, .program_name = program_name};
    const struct flyt_local_question question = {.procedure = FLYT_LOCAL_ATTACH,
                                                 .xdr_args = (xdrproc_t)xdr_flyt_local_attach_args,
                                                 .args = &args,
                                                 .xdr_res = (xdrproc_t)xdr_flyt_local_attach_res,
                                                 .res_bytes = sizeof res,
                                                 .record_bytes_max = RECORD_BYTES_MAX};
    snprintf(program_name, sizeof program_name, "%s", program_invocation_short_name);
    int status = flyt_local_ask(local->fd, &question, flyt_clock_ms() + FLYT_LOCAL_TIMEOUT_MS, &local->has_news, &res);
    if (status)
        return flyt_error_set(err, status, "the client manager at %s does not answer: %s", flyt_local_path(),
                              status == -EPIPE ? "it closed the connection (is this user allowed?)"
                                               : strerror(-status));
    status = status_code(res.outcome.status);
    if (status)
        flyt_error_set(err, status, "the client manager gives no GPU: %.400s", res.outcome.text);
    else if (!res.credentials.credentials_len)
        status = flyt_error_set(err, -EPROTO, "the client manager at %s proves nothing to a server", flyt_local_path());
    else
        status = take_grant(local, &res, err);
    explicit_bzero(res.secret, sizeof res.secret);
    xdr_free((xdrproc_t)xdr_flyt_local_attach_res, &res);
    return status;
}

static int attach_once(struct flyt_local *local, struct flyt_error *err)
{
    if (local->fd < 0) {
        int status = flyt_local_connect(FLYT_LOCAL_TIMEOUT_MS, err, &local->fd);
        if (status)
            return status;
    }
    int status = ask(local, err);
    if (status)
        local->fd = flyt_close(local->fd);
    return status;
}

/* A client manager that is being restarted: its socket is there, and nobody listens, or it has just closed what it had
 * accepted. One that lets this user not in closes every connection, which is not tried for long. */
int flyt_local_attach(struct flyt_local *local, struct flyt_error *err)
{
    uint64_t until_ms = flyt_clock_ms() + FLYT_LOCAL_RESTART_MS;
    unsigned closed_count = 0;
    bool was_there = false;
    for (;;) {
        int status = attach_once(local, err);
        bool is_closed = status == -EPIPE || status == -ECONNRESET;
        closed_count += is_closed;
        bool is_restarting = status == -ECONNREFUSED || (status == -ENOENT && was_there);
        if ((!is_closed || closed_count > CLOSED_MAX) && (!is_restarting || flyt_clock_ms() > until_ms))
            return status;
        was_there = true;
        poll(NULL, 0, RETRY_MS);
    }
}

/* A question without which the session goes on. What a client manager of an older version does not know it refuses, and
 * the connection stays; else it is closed. */
static int ask_aside(struct flyt_local *local, const struct flyt_local_question *question, void *ret_res)
{
    int status = local->fd < 0 ? -EPIPE
                               : flyt_local_ask(local->fd, question, flyt_clock_ms() + FLYT_LOCAL_TIMEOUT_MS,
                                                &local->has_news, ret_res);
    if (status && status != -EPROTO)
        local->fd = flyt_close(local->fd);
    return status;
}

int flyt_local_open_memory(struct flyt_local *local)
{
    flyt_outcome outcome;
    int fd = -1;
    const struct flyt_local_question question = {.procedure = FLYT_LOCAL_MEMORY,
                                                 .xdr_res = (xdrproc_t)xdr_flyt_outcome,
                                                 .res_bytes = sizeof outcome,
                                                 .record_bytes_max = RECORD_BYTES_MAX,
                                                 .ret_fd = &fd};
    if (ask_aside(local, &question, &outcome))
        return -1;
    if (outcome.status != FLYT_STATUS_OK) {
        flyt_debug("no memory of the VM's: %s", outcome.text);
        fd = flyt_close(fd);
    }
    xdr_free((xdrproc_t)xdr_flyt_outcome, &outcome);
    return fd;
}

bool flyt_local_wants_managed_on_host(struct flyt_local *local)
{
    flyt_local_settings_res res;
    const struct flyt_local_question question = {.procedure = FLYT_LOCAL_SETTINGS,
                                                 .xdr_res = (xdrproc_t)xdr_flyt_local_settings_res,
                                                 .res_bytes = sizeof res,
                                                 .record_bytes_max = RECORD_BYTES_MAX};
    if (ask_aside(local, &question, &res))
        return false;
    bool is_wanted = res.outcome.status == FLYT_STATUS_OK && res.managed_memory == FLYT_MANAGED_MEMORY_HOST;
    xdr_free((xdrproc_t)xdr_flyt_local_settings_res, &res);
    return is_wanted;
}

bool flyt_local_has_changed(struct flyt_local *local)
{
    char thrown_away[4096];
    bool has_changed = local->has_news;
    ssize_t got = 0;
    local->has_news = false;
    /* What a notice says is asked of the server anyway: that it came is enough. */
    while (local->fd >= 0 && (got = recv(local->fd, thrown_away, sizeof thrown_away, MSG_DONTWAIT)) > 0)
        has_changed = true;
    if (local->fd >= 0 && got == 0)
        local->fd = flyt_close(local->fd); /* the client manager has ended; the session goes on without it */
    return has_changed;
}

void flyt_local_close(struct flyt_local *local)
{
    flyt_close(local->fd);
    explicit_bzero(local, sizeof *local);
    local->fd = -1;
}
