#include "cpu/client/core/local_call.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/url.h"
#include "rpc/transport/endpoint/listen.h"
#include "rpc/transport/message.h"

/* A record's mark (RFC 5531, section 11): its length, and that no fragment follows. */
enum { MARK_BYTES = 4, CALL_BYTES_MAX = 65536 };
static const uint32_t last_fragment = 0x80000000u;

const char *flyt_local_path(void)
{
    const char *path = getenv("FLYT_CLIENT_SOCKET");
    return path && *path ? path : FLYT_LOCAL_SOCKET;
}

/* As recv(2), or a negative errno; with the descriptor that has come, where one is wanted and it is the first. */
static ssize_t receive(int fd, void *data, size_t bytes, int *ret_fd)
{
    unsigned count = 0;
    int came_fd;
    if (!ret_fd || *ret_fd >= 0) {
        ssize_t got = recv(fd, data, bytes, 0);
        return got < 0 ? -errno : got;
    }
    ssize_t got = flyt_descriptors_receive(fd, data, bytes, &came_fd, 1, &count);
    if (got > 0 && count)
        *ret_fd = came_fd;
    return got;
}

static int read_all(int fd, void *data, size_t bytes, uint64_t deadline_ms, int *ret_fd)
{
    for (size_t used = 0; used < bytes;) {
        int status = flyt_wait_ready(fd, POLLIN, deadline_ms, -1);
        if (status)
            return status;
        ssize_t got = receive(fd, (char *)data + used, bytes - used, ret_fd);
        if (got == 0)
            return -EPIPE;
        if (got < 0 && got != -EINTR && got != -EAGAIN)
            return (int)got;
        used += got > 0 ? (size_t)got : 0;
    }
    return 0;
}

/* One record; *ret_data is malloc'ed. */
static int read_record(int fd, const struct flyt_local_question *question, uint64_t deadline_ms,
                       unsigned char **ret_data, size_t *ret_bytes)
{
    unsigned char mark[MARK_BYTES];
    int status = read_all(fd, mark, sizeof mark, deadline_ms, question->ret_fd);
    if (status)
        return status;
    uint32_t word = (uint32_t)mark[0] << 24 | (uint32_t)mark[1] << 16 | (uint32_t)mark[2] << 8 | mark[3];
    size_t bytes = word & ~last_fragment;
    if (!(word & last_fragment) || bytes > question->record_bytes_max)
        return -EBADMSG;
    unsigned char *data = malloc(bytes ? bytes : 1);
    if (!data)
        return -ENOMEM;
    status = read_all(fd, data, bytes, deadline_ms, NULL);
    if (status) {
        free(data);
        return status;
    }
    *ret_data = data;
    *ret_bytes = bytes;
    return 0;
}

int flyt_local_connect(unsigned timeout_ms, struct flyt_error *err, int *ret_fd)
{
    char url[FLYT_URL_TEXT_BYTES];
    struct flyt_error cause = {0};
    if (access(flyt_local_path(), F_OK) != 0)
        return flyt_error_set(err, -ENOENT, "there is no client manager: %s: %s", flyt_local_path(), strerror(errno));
    snprintf(url, sizeof url, "unix://%s", flyt_local_path());
    int status = flyt_connect(url, timeout_ms, &cause, ret_fd);
    return status ? flyt_error_set(err, status, "cannot reach the client manager: %.400s", cause.text) : 0;
}

static int send_call(int fd, const struct flyt_local_question *question)
{
    struct flyt_bytes call = {.bytes_max = CALL_BYTES_MAX};
    uint32_t mark = 0;
    XDR xdrs;
    int status = 0;
    flyt_xdr_encode_init(&xdrs, &call);
    if (!xdr_opaque(&xdrs, (char *)&mark, sizeof mark) ||
        !flyt_call_head_put(&xdrs, 1, FLYT_LOCAL_PROGRAM, FLYT_LOCAL_VERSION, question->procedure) ||
        (question->xdr_args && !question->xdr_args(&xdrs, (void *)question->args))) {
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

static int decode(const struct flyt_local_question *question, unsigned char *record, size_t bytes, void *ret_res)
{
    struct flyt_reply_head head;
    XDR xdrs;
    if (flyt_reply_head_get(record, bytes, &head) != 0 || !head.is_accepted || head.status != SUCCESS)
        return -EPROTO;
    void *res = calloc(1, question->res_bytes);
    if (!res)
        return -ENOMEM;
    flyt_xdr_decode_init(&xdrs, record + head.bytes, bytes - head.bytes, NULL);
    bool is_right = question->xdr_res(&xdrs, res);
    if (is_right)
        memcpy(ret_res, res, question->res_bytes);
    else
        xdr_free(question->xdr_res, res);
    explicit_bzero(res, question->res_bytes);
    free(res);
    return is_right ? 0 : -EPROTO;
}

int flyt_local_ask(int fd, const struct flyt_local_question *question, uint64_t deadline_ms, bool *has_news,
                   void *ret_res)
{
    if (question->ret_fd)
        *question->ret_fd = -1;
    int status = send_call(fd, question);
    while (!status) {
        unsigned char *record;
        size_t bytes;
        status = read_record(fd, question, deadline_ms, &record, &bytes);
        if (status)
            break;
        bool is_notice = flyt_message_is_call(record, bytes);
        if (!is_notice)
            status = decode(question, record, bytes, ret_res);
        else if (has_news)
            *has_news = true;
        free(record);
        if (!is_notice)
            break;
    }
    if (status && question->ret_fd)
        *question->ret_fd = flyt_close(*question->ret_fd);
    return status;
}
