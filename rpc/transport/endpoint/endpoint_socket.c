#include "rpc/transport/endpoint/endpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/transport/endpoint/endpoint_poll.h"
#include "rpc/transport/endpoint/listen.h"

struct socket_endpoint {
    struct flyt_endpoint endpoint;
    int fd; /* blocks; who must not says so with each call */
};

static int fd_of(const struct flyt_endpoint *endpoint)
{
    return ((const struct socket_endpoint *)endpoint)->fd;
}

/* A peer that resets the connection has ended it, as one that closes it has. */
static ssize_t failure(void)
{
    return errno == ECONNRESET ? -EPIPE : -errno;
}

static ssize_t write_parts(struct flyt_endpoint *endpoint, const struct iovec *parts, size_t count, bool may_wait)
{
    struct msghdr message = {.msg_iov = (struct iovec *)parts, .msg_iovlen = count};
    ssize_t sent;

    do {
        sent = sendmsg(fd_of(endpoint), &message, MSG_NOSIGNAL | (may_wait ? 0 : MSG_DONTWAIT));
    } while (sent < 0 && errno == EINTR);
    return sent < 0 ? failure() : sent;
}

static ssize_t read_parts(struct flyt_endpoint *endpoint, const struct iovec *parts, size_t count, bool may_wait)
{
    struct msghdr message = {.msg_iov = (struct iovec *)parts, .msg_iovlen = count};
    ssize_t received;

    do {
        received = recvmsg(fd_of(endpoint), &message, may_wait ? 0 : MSG_DONTWAIT);
    } while (received < 0 && errno == EINTR);
    return received < 0 ? failure() : received ? received : -EPIPE;
}

static int wait_for(struct flyt_endpoint *endpoint, unsigned events, int wake_fd, int64_t timeout_ns)
{
    const int fd = fd_of(endpoint);
    const struct flyt_endpoint_signs signs = {.in = events & FLYT_ENDPOINT_IN ? fd : -1,
                                              .out = events & FLYT_ENDPOINT_OUT ? fd : -1,
                                              .ended = events & FLYT_ENDPOINT_ENDED ? fd : -1,
                                              .out_event = POLLOUT,
                                              .ended_event = POLLRDHUP};

    return flyt_endpoint_poll(&signs, wake_fd, timeout_ns);
}

static bool has_more(const struct flyt_endpoint *endpoint)
{
    unsigned char byte;

    return recv(fd_of(endpoint), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

static void shut(struct flyt_endpoint *endpoint, enum flyt_endpoint_end end)
{
    shutdown(fd_of(endpoint), end == FLYT_ENDPOINT_WRITING ? SHUT_WR : SHUT_RDWR);
}

static bool is_alive(struct flyt_endpoint *endpoint, struct flyt_vigil *vigil)
{
    return !flyt_vigil_is_lost(vigil, fd_of(endpoint));
}

static bool is_always_alive(struct flyt_endpoint *endpoint, struct flyt_vigil *vigil)
{
    return true; /* it is on this machine: its end is told */
}

static void limit_writing(struct flyt_endpoint *endpoint, unsigned timeout_ms)
{
    const struct timeval limit = {.tv_sec = timeout_ms / 1000, .tv_usec = (timeout_ms % 1000) * 1000};

    setsockopt(fd_of(endpoint), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

static int connect_beside(struct flyt_endpoint *beside, struct flyt_endpoint *endpoint, uint64_t deadline_ms,
                          int cancel_fd)
{
    return flyt_connect_beside(fd_of(beside), flyt_endpoint_fd(endpoint), deadline_ms, cancel_fd);
}

static int send_descriptors(struct flyt_endpoint *endpoint, const void *data, size_t bytes, const int *fds,
                            unsigned fd_count)
{
    return flyt_descriptors_send(fd_of(endpoint), data, bytes, fds, fd_count);
}

static int receive_descriptors(struct flyt_endpoint *endpoint, void *data, size_t bytes_max, int *ret_fds,
                               unsigned fd_count_max, unsigned *ret_fd_count)
{
    return flyt_descriptors_receive(fd_of(endpoint), data, bytes_max, ret_fds, fd_count_max, ret_fd_count);
}

static void abandon(struct flyt_endpoint *endpoint)
{
    struct socket_endpoint *self = (struct socket_endpoint *)endpoint;

    self->fd = flyt_close(self->fd);
}

static void close_socket(struct flyt_endpoint *endpoint)
{
    abandon(endpoint);
    free(endpoint);
}

static int duplicate(const struct flyt_endpoint *endpoint, struct flyt_endpoint **ret_duplicate);
static int make_beside(struct flyt_endpoint *endpoint, struct flyt_endpoint **ret_beside);

#define COMMON_OPS                                                                                                     \
    .write = write_parts, .read = read_parts, .wait = wait_for, .has_more = has_more, .shut = shut,                    \
    .limit_writing = limit_writing, .fd = fd_of, .duplicate = duplicate, .make_beside = make_beside,                   \
    .connect_beside = connect_beside, .abandon = abandon, .close = close_socket

static const struct flyt_endpoint_ops tcp_ops = {COMMON_OPS, .is_alive = is_alive};
static const struct flyt_endpoint_ops unix_ops = {COMMON_OPS, .is_alive = is_always_alive,
                                                  .send_descriptors = send_descriptors,
                                                  .receive_descriptors = receive_descriptors};

static int make(int fd, const struct flyt_endpoint_ops *ops, struct flyt_endpoint **ret_endpoint)
{
    struct socket_endpoint *self = malloc(sizeof *self);

    if (!self)
        return -ENOMEM;
    *self = (struct socket_endpoint){.endpoint = {.ops = ops}, .fd = fd};
    *ret_endpoint = &self->endpoint;
    return 0;
}

/* Of a socket that it takes over where it succeeds; or a negative errno in place of one. */
static int make_of(int fd, const struct flyt_endpoint_ops *ops, struct flyt_endpoint **ret_endpoint)
{
    int status = fd < 0 ? fd : make(fd, ops, ret_endpoint);

    if (fd >= 0 && status)
        flyt_close(fd);
    return status;
}

static int duplicate(const struct flyt_endpoint *endpoint, struct flyt_endpoint **ret_duplicate)
{
    int fd = fcntl(fd_of(endpoint), F_DUPFD_CLOEXEC, 0);

    return make_of(fd < 0 ? -errno : fd, endpoint->ops, ret_duplicate);
}

static int make_beside(struct flyt_endpoint *endpoint, struct flyt_endpoint **ret_beside)
{
    return make_of(flyt_socket_beside(fd_of(endpoint)), endpoint->ops, ret_beside);
}

int flyt_endpoint_of_socket(int fd, struct flyt_endpoint **ret_endpoint)
{
    int domain = AF_UNSPEC, flags = fcntl(fd, F_GETFL);
    socklen_t bytes = sizeof domain;

    getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes);
    if (flags >= 0 && flags & O_NONBLOCK)
        fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
    return make(fd, domain == AF_UNIX ? &unix_ops : &tcp_ops, ret_endpoint);
}

int flyt_endpoint_release_socket(struct flyt_endpoint *endpoint)
{
    int fd = fd_of(endpoint);

    free(endpoint);
    return fd;
}

int flyt_endpoint_write_all(struct flyt_endpoint *endpoint, const void *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const struct iovec part = {.iov_base = (char *)data + done, .iov_len = bytes - done};
        ssize_t written = flyt_endpoint_write(endpoint, &part, 1, true);
        if (written < 0 && written != -EINTR)
            return (int)written;
        done += written > 0 ? (size_t)written : 0;
    }
    return 0;
}

int flyt_endpoint_await(struct flyt_endpoint *endpoint, unsigned events, int wake_fd, uint64_t deadline_ms)
{
    int found;

    do {
        found = flyt_endpoint_wait(endpoint, events, wake_fd, flyt_clock_left_ms(deadline_ms) * INT64_C(1000000));
    } while (found == -EINTR);
    if (found <= 0)
        return found ? found : -ETIMEDOUT;
    return found & FLYT_ENDPOINT_WOKEN ? -ECANCELED : 0;
}
