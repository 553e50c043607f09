#include "cpu/server/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/transport/listen.h"
#include "rpc/transport/secure.h"

enum { THROWN_BYTES = 65536 };

static int encrypt(struct flyt_peer *peer, int fd, const unsigned char *key, bool is_sender, int cancel_fd,
                   struct flyt_error *err)
{
    if (!is_sender)
        return flyt_secure_accept(fd, key, err, &peer->secure, &peer->fd);
    int status =
        flyt_secure_connect(fd, key, flyt_clock_ms() + FLYT_PEER_CONNECT_MS, cancel_fd, err, &peer->secure, &peer->fd);
    if (status)
        flyt_close(fd);
    return status;
}

/* Closes it where it fails. */
static int stop_blocking(struct flyt_peer *peer, struct flyt_error *err)
{
    int flags = fcntl(peer->fd, F_GETFL);
    if (flags >= 0 && fcntl(peer->fd, F_SETFL, flags | O_NONBLOCK) == 0)
        return 0;
    int status = flyt_error_set(err, -errno, "a connection to the other server cannot be used: %m");
    flyt_peer_close(peer);
    return status;
}

int flyt_peer_open(struct flyt_peer *peer, int fd, const unsigned char *key, bool is_sender, int cancel_fd,
                   struct flyt_error *err)
{
    *peer = (struct flyt_peer){.fd = -1, .low_bytes = 1};
    flyt_socket_tune(fd);
    int status = 0;
    if (key)
        status = encrypt(peer, fd, key, is_sender, cancel_fd, err);
    else
        peer->fd = fd;
    if (status)
        return status;
    return stop_blocking(peer, err);
}

int flyt_peer_open_stream(struct flyt_peer *peer, int fd, const unsigned char *key, bool is_sender,
                          struct flyt_error *err)
{
    *peer = (struct flyt_peer){.fd = -1, .low_bytes = 1};
    flyt_socket_tune(fd);
    int status = key ? flyt_secure_new(fd, !is_sender, key, err, &peer->secure) : 0;
    if (status)
        return status;
    peer->fd = fd;
    peer->is_direct = key != NULL;
    return stop_blocking(peer, err);
}

int flyt_peer_begin(struct flyt_peer *peer, int cancel_fd, struct flyt_error *err)
{
    return peer->is_direct ? flyt_secure_begin(peer->secure, flyt_clock_ms() + FLYT_PEER_CONNECT_MS, cancel_fd, err)
                           : 0;
}

void flyt_peer_close(struct flyt_peer *peer)
{
    if (peer->fd >= 0)
        shutdown(peer->fd, SHUT_RDWR);
    peer->fd = peer->is_direct ? -1 : flyt_close(peer->fd);
    peer->secure = flyt_secure_free(peer->secure);
}

/* 0: there is something of `events`; else as flyt_peer_await. */
static int wait_for(const struct flyt_peer *peer, short events, int cancel_fd, int timeout_ms)
{
    struct pollfd polls[] = {{.fd = peer->fd, .events = events}, {.fd = cancel_fd, .events = POLLIN}};
    int count;
    do {
        count = poll(polls, 2, timeout_ms);
    } while (count < 0 && errno == EINTR);
    if (count < 0)
        return -errno;
    return polls[1].revents ? -ECANCELED : count ? 0 : -ETIMEDOUT;
}

/* Sends what is encrypted so far. */
static int flush(const struct flyt_peer *peer, int cancel_fd)
{
    int status;
    while ((status = flyt_secure_flush(peer->secure)) == -EAGAIN)
        if ((status = wait_for(peer, POLLOUT, cancel_fd, -1)) != 0)
            return status;
    return status == -ECONNRESET ? -EPIPE : status;
}

static int send_sealed(const struct flyt_peer *peer, const struct iovec *parts, unsigned count, int cancel_fd)
{
    int status = 0;
    for (unsigned i = 0; i < count; i++)
        for (size_t done = 0; done < parts[i].iov_len && !status;) {
            ssize_t taken =
                flyt_secure_seal(peer->secure, (const char *)parts[i].iov_base + done, parts[i].iov_len - done);
            if (taken < 0)
                return (int)taken;
            done += (size_t)taken;
            status = taken ? 0 : flush(peer, cancel_fd);
        }
    return status ? status : flush(peer, cancel_fd);
}

int flyt_peer_send(const struct flyt_peer *peer, struct iovec *parts, unsigned count, int cancel_fd)
{
    if (peer->is_direct)
        return send_sealed(peer, parts, count, cancel_fd);
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
    while (message.msg_iovlen) {
        ssize_t sent = sendmsg(peer->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno != EAGAIN)
            return errno == ECONNRESET ? -EPIPE : -errno;
        if (sent < 0) {
            int status = wait_for(peer, POLLOUT, cancel_fd, -1);
            if (status)
                return status;
            continue;
        }
        for (; message.msg_iovlen && (size_t)sent >= message.msg_iov->iov_len; message.msg_iov++, message.msg_iovlen--)
            sent -= (ssize_t)message.msg_iov->iov_len;
        if (message.msg_iovlen) {
            message.msg_iov->iov_base = (char *)message.msg_iov->iov_base + sent;
            message.msg_iov->iov_len -= (size_t)sent;
        }
    }
    return 0;
}

int flyt_peer_await(const struct flyt_peer *peer, int cancel_fd, int timeout_ms)
{
    return wait_for(peer, POLLIN, cancel_fd, timeout_ms);
}

/* What is encrypted may be OpenSSL's already: of that no number of bytes is due from the socket. */
int flyt_peer_await_part(struct flyt_peer *peer, size_t due_bytes, int cancel_fd, int timeout_ms)
{
    const int low_bytes = peer->is_direct ? 1 : due_bytes < FLYT_PEER_LOW_BYTES ? (int)due_bytes : FLYT_PEER_LOW_BYTES;
    if (low_bytes != peer->low_bytes) {
        setsockopt(peer->fd, SOL_SOCKET, SO_RCVLOWAT, &low_bytes, sizeof low_bytes); /* or it is woken up more often */
        peer->low_bytes = low_bytes;
    }
    return wait_for(peer, POLLIN, cancel_fd, timeout_ms);
}

bool flyt_peer_has_more(const struct flyt_peer *peer)
{
    unsigned char byte;
    return peer->is_direct ? flyt_secure_has_part(peer->secure) : recv(peer->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

int flyt_peer_read(const struct flyt_peer *peer, void *place, size_t bytes)
{
    ssize_t count;
    if (peer->is_direct)
        return flyt_secure_unseal(peer->secure, place, bytes);
    do {
        count = recv(peer->fd, place, bytes, MSG_DONTWAIT);
    } while (count < 0 && errno == EINTR);
    return count < 0 ? -errno : (int)count;
}

void flyt_peer_part(const struct flyt_peer *peer)
{
    unsigned char thrown[THROWN_BYTES];
    uint64_t deadline_ms = flyt_clock_ms() + FLYT_PEER_FAREWELL_MS;
    shutdown(peer->fd, SHUT_WR);
    for (int left_ms; (left_ms = flyt_clock_left_ms(deadline_ms)) > 0;) {
        int status = flyt_peer_await(peer, -1, left_ms);
        if (status || (status = flyt_peer_read(peer, thrown, sizeof thrown)) == 0 || (status < 0 && status != -EAGAIN))
            return;
    }
}
