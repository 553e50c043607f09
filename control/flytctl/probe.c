#include "control/flytctl/probe.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rpc/base/descriptors.h"
#include "rpc/transport/endpoint/listen.h"

/* xdr_void takes no arguments, which the cast passes by way of a type that fits everything. */
#define NOTHING ((xdrproc_t)(void (*)(void))xdr_void)

static int error_of(CLIENT *client, const char *url, struct flyt_error *err)
{
    struct rpc_err cause;

    clnt_geterr(client, &cause);
    switch (cause.re_status) {
    case RPC_TIMEDOUT:
        return flyt_error_set(err, -ETIMEDOUT, "%s does not answer", url);
    case RPC_CANTRECV:
    case RPC_CANTSEND:
        return flyt_error_set(err, -EPIPE, "%s closes the connection", url);
    default:
        return flyt_error_set(err, -EPROTO, "%s: %s", url, clnt_sperrno(cause.re_status));
    }
}

int flyt_probe(const char *url, uint32_t program, uint32_t version, uint32_t procedure, xdrproc_t xdr_res, void *result,
               unsigned timeout_ms, struct flyt_error *err)
{
    struct timeval timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1000};
    struct sockaddr_storage address;
    socklen_t bytes = sizeof address;
    flyt_auto_close int fd = -1;

    int status = flyt_connect(url, timeout_ms, err, &fd);
    if (status)
        return status;
    if (getpeername(fd, (struct sockaddr *)&address, &bytes))
        return flyt_error_set(err, -errno, "%s: %s", url, strerror(errno));
    /* Sending must not wait for ever either: the call is short, but the other end may be anything. */
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    struct netbuf where = {.maxlen = sizeof address, .len = bytes, .buf = &address};
    CLIENT *client = clnt_vc_create(fd, &where, program, version, 0, 0);
    if (!client)
        return flyt_error_set(err, -EPROTO, "%s", clnt_spcreateerror(url));
    if (clnt_call(client, procedure, NOTHING, NULL, xdr_res, result, timeout) != RPC_SUCCESS)
        status = error_of(client, url, err);
    clnt_destroy(client);
    return status;
}

int flyt_probe_null(const char *url, uint32_t program, uint32_t version, unsigned timeout_ms, struct flyt_error *err)
{
    return flyt_probe(url, program, version, 0, NOTHING, NULL, timeout_ms, err);
}

struct handshake {
    bool is_over, has_ended;
    struct flyt_error cause;
};

static void on_ended(struct flyt_peer *peer, const struct flyt_error *cause, void *user)
{
    struct handshake *handshake = user;

    handshake->is_over = handshake->has_ended = true;
    handshake->cause = *cause;
}

static void on_answer(void *user, int status, void *result)
{
    struct handshake *handshake = user;

    if (!status)
        handshake->is_over = true;
    else if (status == -ETIMEDOUT)
        handshake->is_over = flyt_error_set(&handshake->cause, status, "no answer") != 0;
}

int flyt_probe_tls(const char *url, struct flyt_tls *tls, unsigned timeout_ms, struct flyt_error *err)
{
    struct handshake handshake = {.is_over = false};
    struct flyt_peer *peer = NULL;
    sd_event *event = NULL;
    int status = sd_event_new(&event);

    if (status < 0)
        return flyt_error_set(err, status, "no event loop can be made: %s", strerror(-status));
    const struct flyt_peer_config config = {.event = event, .user = &handshake, .ended = on_ended};
    status = flyt_peer_connect(url, tls, &config, timeout_ms, err, &peer);
    /* A certificate that is no member is told so by the end of the connection, after the handshake: a call shows it. */
    if (!status)
        status = flyt_peer_call(peer, FLYT_CONTROL_PROGRAM, FLYT_CONTROL_VERSION, FLYT_CONTROL_NULL, NULL, NULL, NULL,
                                0, 2 * timeout_ms, on_answer, &handshake);
    while (!status && !handshake.is_over)
        if ((status = sd_event_run(event, UINT64_MAX)) > 0)
            status = 0;
    if (handshake.cause.code)
        status = flyt_error_set(err, handshake.cause.code, "%s%s", handshake.cause.text,
                                handshake.cause.code == -EPIPE ? ", as for a certificate that is no member" : "");
    if (!handshake.has_ended)
        flyt_peer_close(peer);
    sd_event_unref(event);
    return status;
}
