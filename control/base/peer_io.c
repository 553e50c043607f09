/* A peer's bytes: reading and sending, in clear or through TLS; what the kernel knows of the other end. */
#include "control/base/peer_state.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include "control/base/tls_state.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"

enum { TLS_RECORD_BYTES = 16384 };

/* Bytes, -EAGAIN, -EPIPE at the end, or another negative errno. */
static int receive_some(struct flyt_peer *peer, void *data, size_t bytes)
{
    ssize_t received;

    do {
        received = recv(peer->fd, data, bytes, MSG_DONTWAIT);
    } while (received < 0 && errno == EINTR);
    if (received < 0)
        return errno == ECONNRESET ? -EPIPE : -errno;
    return received ? (int)received : -EPIPE;
}

static int keep(struct flyt_peer *peer, const void *data, size_t bytes, struct flyt_error *err)
{
    int status = flyt_input_preload(&peer->input, data, bytes);

    return status ? flyt_error_set(err, status, "out of memory") : (int)bytes;
}

int flyt_peer_receive(struct flyt_peer *peer, struct flyt_error *err)
{
    unsigned char data[TLS_RECORD_BYTES];

    if (!peer->ssl) {
        int received = receive_some(peer, data, sizeof data);
        if (received == -EAGAIN)
            return received;
        if (received < 0)
            return flyt_error_set(err, received, "%s",
                                  received == -EPIPE ? "it closed the connection" : strerror(-received));
        return keep(peer, data, (size_t)received, err);
    }
    peer->wants_write = false;
    int received = flyt_tls_read(peer->ssl, data, sizeof data, &peer->wants_write, err);
    if (received <= 0)
        return received;
    return keep(peer, data, (size_t)received, err);
}

static int send_some(struct flyt_peer *peer, const struct flyt_outgoing *record, struct flyt_error *err)
{
    const struct iovec part = {.iov_base = record->data + record->sent_bytes,
                               .iov_len = record->bytes - record->sent_bytes};
    struct msghdr message = {.msg_iov = (struct iovec *)&part, .msg_iovlen = 1};
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof record->fd)] = {0};
    ssize_t sent;

    if (peer->ssl)
        return flyt_tls_write(peer->ssl, part.iov_base, part.iov_len, &peer->wants_write, err);
    if (record->has_fd && !record->sent_bytes) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        *head = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof record->fd)};
        memcpy(CMSG_DATA(head), &record->fd, sizeof record->fd);
    }
    do {
        sent = sendmsg(peer->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0 && errno != EAGAIN)
        return flyt_error_set(err, errno == ECONNRESET ? -EPIPE : -errno, "sending failed: %m");
    return sent < 0 ? -EAGAIN : (int)sent;
}

int flyt_peer_send(struct flyt_peer *peer, struct flyt_error *err)
{
    struct flyt_outgoing *record;

    while ((record = STAILQ_FIRST(&peer->output))) {
        int sent = send_some(peer, record, err);
        if (sent < 0)
            return sent;
        peer->progress_ms = flyt_clock_ms();
        record->sent_bytes += (size_t)sent;
        if (record->sent_bytes < record->bytes)
            continue;
        STAILQ_REMOVE_HEAD(&peer->output, link);
        peer->unsent_bytes -= flyt_outgoing_cost(record);
        flyt_outgoing_free(record);
    }
    return 0;
}

struct flyt_outgoing *flyt_outgoing_free(struct flyt_outgoing *record)
{
    if (record) {
        if (record->has_fd)
            flyt_close(record->fd);
        free(record->data);
        free(record);
    }
    return NULL;
}

bool flyt_peer_has_room(struct flyt_peer *peer)
{
    return peer->unsent_bytes <= FLYT_PEER_OUTPUT_BYTES_MAX && (!peer->door || peer->door_ops->has_room(peer));
}

void flyt_peer_queue(struct flyt_peer *peer, struct flyt_outgoing *record)
{
    if (STAILQ_EMPTY(&peer->output))
        peer->progress_ms = flyt_clock_ms();
    STAILQ_INSERT_TAIL(&peer->output, record, link);
    peer->unsent_bytes += flyt_outgoing_cost(record);
    flyt_peer_wake(peer);
}

/* ---- who is there ---- */

static void describe_unix(struct flyt_peer *peer)
{
    struct ucred credentials = {.uid = (uid_t)-1};
    socklen_t bytes = sizeof credentials;
    struct flyt_identity *identity = &peer->identity;

    if (getsockopt(peer->fd, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes))
        return;
    identity->uid = credentials.uid;
    identity->pid = credentials.pid;
    snprintf(identity->address, sizeof identity->address, "unix uid=%u pid=%d", credentials.uid, credentials.pid);
    snprintf(peer->door_address, sizeof peer->door_address, "uid=%u", credentials.uid);
    identity->role = peer->is_server ? FLYT_ROLE_OPERATOR : FLYT_ROLE_MANAGER;
    if (peer->is_server)
        snprintf(identity->name, sizeof identity->name, "uid=%u", credentials.uid);
    peer->has_identity = true;
}

void flyt_peer_describe(struct flyt_peer *peer)
{
    struct sockaddr_storage address = {0};
    socklen_t bytes = sizeof address;
    struct flyt_identity *identity = &peer->identity;
    char host[NI_MAXHOST], port[NI_MAXSERV];

    *identity = (struct flyt_identity){.role = FLYT_ROLE_ANONYMOUS, .uid = (uid_t)-1};
    if (getpeername(peer->fd, (struct sockaddr *)&address, &bytes))
        return;
    if (address.ss_family == AF_UNIX) {
        describe_unix(peer);
        return;
    }
    if (getnameinfo((struct sockaddr *)&address, bytes, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV))
        return;
    const char *numbers = strncmp(host, "::ffff:", 7) ? host : host + 7; /* IPv4 on an IPv6 socket */
    snprintf(identity->address, sizeof identity->address, strchr(numbers, ':') ? "[%.200s]:%s" : "%.200s:%s", numbers,
             port);
    snprintf(peer->door_address, sizeof peer->door_address, "%.200s", numbers);
    if (!peer->is_server && !peer->tls) {
        identity->role = FLYT_ROLE_MANAGER; /* over loopback it is believed */
        peer->has_identity = true;
    }
}
