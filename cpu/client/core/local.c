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
#include "rpc/transport/listen.h"
#include "rpc/transport/message.h"

/* A record's mark (RFC 5531, section 11): its length, and that no fragment follows. */
enum { MARK_BYTES = 4, RECORD_BYTES_MAX = 65536 };
enum { RETRY_MS = 50, CLOSED_MAX = 2 };
static const uint32_t last_fragment = 0x80000000u;

const char *flyt_local_path(void)
{
    const char *path = getenv("FLYT_CLIENT_SOCKET");
    return path && *path ? path : FLYT_LOCAL_SOCKET;
}

static int read_all(int fd, void *data, size_t bytes, uint64_t deadline_ms)
{
    for (size_t used = 0; used < bytes;) {
        int status = flyt_wait_ready(fd, POLLIN, deadline_ms, -1);
        if (status)
            return status;
        ssize_t got = recv(fd, (char *)data + used, bytes - used, 0);
        if (got == 0)
            return -EPIPE;
        if (got < 0 && errno != EINTR && errno != EAGAIN)
            return -errno;
        used += got > 0 ? (size_t)got : 0;
    }
    return 0;
}

/* One record; *ret_data is malloc'ed. */
static int read_record(int fd, uint64_t deadline_ms, unsigned char **ret_data, size_t *ret_bytes)
{
    unsigned char mark[MARK_BYTES];
    int status = read_all(fd, mark, sizeof mark, deadline_ms);
    if (status)
        return status;
    uint32_t word = (uint32_t)mark[0] << 24 | (uint32_t)mark[1] << 16 | (uint32_t)mark[2] << 8 | mark[3];
    size_t bytes = word & ~last_fragment;
    if (!(word & last_fragment) || bytes > RECORD_BYTES_MAX)
        return -EBADMSG;
    unsigned char *data = malloc(bytes ? bytes : 1);
    if (!data)
        return -ENOMEM;
    status = read_all(fd, data, bytes, deadline_ms);
    if (status) {
        free(data);
        return status;
    }
    *ret_data = data;
    *ret_bytes = bytes;
    return 0;
}

static int send_call(int fd, const char *program_name)
{
    struct flyt_bytes call = {.bytes_max = RECORD_BYTES_MAX};
    flyt_local_attach_args args = {.build = (char *)flyt_build_name, .program_name = (char *)program_name};
    uint32_t mark = 0;
    XDR xdrs;
    int status = 0;
    flyt_xdr_encode_init(&xdrs, &call);
    if (!xdr_opaque(&xdrs, (char *)&mark, sizeof mark) ||
        !flyt_call_head_put(&xdrs, 1, FLYT_LOCAL_PROGRAM, FLYT_LOCAL_VERSION, FLYT_LOCAL_ATTACH) ||
        !xdr_flyt_local_attach_args(&xdrs, &args)) {
        flyt_bytes_fini(&call);
        return -ENOMEM;
    }
    mark = htonl(last_fragment | (uint32_t)(call.used - MARK_BYTES));
    memcpy(call.data, &mark, sizeof mark);
    ssize_t sent = send(fd, call.data, call.used, MSG_NOSIGNAL);
    if (sent != (ssize_t)call.used)
        status = sent < 0 ? -errno : -EPIPE;
    flyt_bytes_fini(&call);
    return status;
}

/* The reply; of notices that come before it is only noted that there were any. */
static int receive_reply(struct flyt_local *local, uint64_t deadline_ms, flyt_local_attach_res *ret_res)
{
    for (;;) {
        unsigned char *record;
        size_t bytes;
        struct flyt_reply_head head;
        XDR xdrs;
        int status = read_record(local->fd, deadline_ms, &record, &bytes);
        if (status)
            return status;
        if (flyt_message_is_call(record, bytes)) {
            local->has_news = true;
            free(record);
            continue;
        }
        memset(ret_res, 0, sizeof *ret_res);
        if (flyt_reply_head_get(record, bytes, &head) != 0 || !head.is_accepted || head.status != SUCCESS) {
            status = -EPROTO;
        } else {
            flyt_xdr_decode_init(&xdrs, record + head.bytes, bytes - head.bytes, NULL);
            if (!xdr_flyt_local_attach_res(&xdrs, ret_res)) {
                xdr_free((xdrproc_t)xdr_flyt_local_attach_res, ret_res);
                status = -EPROTO;
            }
        }
        free(record);
        return status;
    }
}

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

static void take_grant(struct flyt_local *local, const flyt_local_attach_res *res)
{
    local->url_count = res->urls.urls_len;
    for (unsigned i = 0; i < local->url_count; i++)
        snprintf(local->urls[i], sizeof local->urls[i], "%s", res->urls.urls_val[i]);
    local->credentials_bytes = res->credentials.credentials_len;
    memcpy(local->credentials, res->credentials.credentials_val, local->credentials_bytes);
    memcpy(local->secret, res->secret, sizeof local->secret);
    local->is_encrypted = res->is_encrypted;
}

static int ask(struct flyt_local *local, struct flyt_error *err)
{
    uint64_t deadline_ms = flyt_clock_ms() + FLYT_LOCAL_TIMEOUT_MS;
    flyt_local_attach_res res;
    char program_name[FLYT_NAME_BYTES_MAX + 1];
    snprintf(program_name, sizeof program_name, "%s", program_invocation_short_name);
    int status = send_call(local->fd, program_name);
    if (status == 0)
        status = receive_reply(local, deadline_ms, &res);
    if (status)
        return flyt_error_set(err, status, "the client manager at %s does not answer: %s", flyt_local_path(),
                              status == -EPIPE ? "it closed the connection (is this user allowed?)"
                                               : strerror(-status));
    status = status_code(res.outcome.status);
    if (status == 0 && (!res.urls.urls_len || !res.credentials.credentials_len))
        status = flyt_error_set(err, -EPROTO, "the client manager at %s names no server", flyt_local_path());
    else if (status)
        flyt_error_set(err, status, "the client manager gives no GPU: %.400s", res.outcome.text);
    else
        take_grant(local, &res);
    explicit_bzero(res.secret, sizeof res.secret);
    xdr_free((xdrproc_t)xdr_flyt_local_attach_res, &res);
    return status;
}

static int attach_once(struct flyt_local *local, struct flyt_error *err)
{
    if (local->fd < 0) {
        char url[FLYT_URL_TEXT_BYTES];
        struct flyt_error cause = {0};
        snprintf(url, sizeof url, "unix://%s", flyt_local_path());
        if (access(flyt_local_path(), F_OK) != 0)
            return flyt_error_set(err, -ENOENT, "there is no client manager: %s: %s", flyt_local_path(),
                                  strerror(errno));
        int status = flyt_connect(url, FLYT_LOCAL_TIMEOUT_MS, &cause, &local->fd);
        if (status)
            return flyt_error_set(err, status, "cannot reach the client manager: %.400s", cause.text);
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
