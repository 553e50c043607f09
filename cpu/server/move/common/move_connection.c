#include "cpu/server/move/common/move_connection.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/transport/endpoint/endpoint.h"
#include "rpc/transport/endpoint/listen.h"

enum { THROWN_BYTES = 65536 };

/* The connection's endpoint becomes one that encrypts; it is as it was where that fails. */
static int encrypt(struct flyt_move_connection *connection, const unsigned char *key, bool is_sender, int cancel_fd,
                   struct flyt_error *err)
{
    const uint64_t deadline_ms = flyt_clock_ms() + FLYT_MOVE_CONNECTION_CONNECT_MS;
    if (is_sender)
        return flyt_endpoint_encrypt(connection->endpoint, key, deadline_ms, cancel_fd, err, &connection->endpoint);
    return flyt_endpoint_take_encryption(connection->endpoint, key, deadline_ms, cancel_fd, err, &connection->endpoint);
}

/* In clear so far. */
static int open_clear(struct flyt_move_connection *connection, int fd, struct flyt_error *err)
{
    *connection = (struct flyt_move_connection){.fd = -1, .low_bytes = 1};
    flyt_socket_tune(fd);
    int status = flyt_endpoint_of_socket(fd, &connection->endpoint);
    if (status) {
        flyt_close(fd);
        return flyt_error_set(err, status, "%s", strerror(-status));
    }
    connection->fd = fd;
    return 0;
}

int flyt_move_connection_open(struct flyt_move_connection *connection, int fd, const unsigned char *key, bool is_sender,
                              int cancel_fd, struct flyt_error *err)
{
    int status = open_clear(connection, fd, err);
    if (!status && key && is_sender)
        status = encrypt(connection, key, true, cancel_fd, err);
    else if (!status && key)
        status = flyt_endpoint_expect_encryption(connection->endpoint, key, err, &connection->endpoint);
    if (status)
        flyt_move_connection_close(connection);
    return status;
}

int flyt_move_connection_open_stream(struct flyt_move_connection *connection, int fd, const unsigned char *key,
                                     bool is_sender, struct flyt_error *err)
{
    int status = open_clear(connection, fd, err);
    if (status)
        return status;
    connection->is_encrypted = key;
    connection->is_sender = is_sender;
    if (key)
        memcpy(connection->key, key, sizeof connection->key);
    atomic_store(&connection->is_begun, !key);
    return 0;
}

int flyt_move_connection_begin(struct flyt_move_connection *connection, int cancel_fd, struct flyt_error *err)
{
    int status =
        connection->is_encrypted ? encrypt(connection, connection->key, connection->is_sender, cancel_fd, err) : 0;
    explicit_bzero(connection->key, sizeof connection->key);
    if (!status)
        atomic_store(&connection->is_begun, true);
    return status;
}

void flyt_move_connection_close(struct flyt_move_connection *connection)
{
    if (connection->endpoint)
        flyt_endpoint_shut(connection->endpoint, FLYT_ENDPOINT_BOTH);
    connection->endpoint = flyt_endpoint_close(connection->endpoint);
    explicit_bzero(connection->key, sizeof connection->key);
    connection->fd = -1;
}

/* Until it can take something. 0, -ECANCELED or another negative errno. */
static int await_room(const struct flyt_move_connection *connection, int cancel_fd)
{
    int found = flyt_endpoint_wait(connection->endpoint, FLYT_ENDPOINT_OUT, cancel_fd, -1);
    if (found < 0)
        return found == -EINTR ? 0 : found;
    return found & FLYT_ENDPOINT_WOKEN ? -ECANCELED : 0;
}

ssize_t flyt_move_connection_try_send(const struct flyt_move_connection *connection, const void *bytes, size_t count)
{
    const struct iovec part = {(void *)bytes, count};
    return flyt_endpoint_write(connection->endpoint, &part, count != 0, false);
}

bool flyt_move_connection_is_pending(const struct flyt_move_connection *connection)
{
    return atomic_load(&connection->endpoint->has_pending);
}

bool flyt_move_connection_is_ready(const struct flyt_move_connection *connection)
{
    return flyt_endpoint_wait(connection->endpoint, FLYT_ENDPOINT_IN, -1, 0) > 0;
}

void flyt_move_connection_end(const struct flyt_move_connection *connection)
{
    flyt_endpoint_shut(connection->endpoint, FLYT_ENDPOINT_BOTH);
}

int flyt_move_connection_send(const struct flyt_move_connection *connection, struct iovec *parts, unsigned count,
                              int cancel_fd)
{
    for (;;) {
        for (; count && !parts->iov_len; parts++)
            count--;
        if (!count && !flyt_move_connection_is_pending(connection))
            return 0;
        ssize_t sent = flyt_endpoint_write(connection->endpoint, parts, count, false);
        int status = sent == -EAGAIN ? await_room(connection, cancel_fd) : sent < 0 ? (int)sent : 0;
        if (status)
            return status;
        for (; sent > 0 && (size_t)sent >= parts->iov_len; parts++, count--)
            sent -= (ssize_t)parts->iov_len;
        if (sent > 0) {
            parts->iov_base = (char *)parts->iov_base + sent;
            parts->iov_len -= (size_t)sent;
        }
    }
}

int flyt_move_connection_await(const struct flyt_move_connection *connection, int cancel_fd, int timeout_ms)
{
    return flyt_endpoint_await(connection->endpoint, FLYT_ENDPOINT_IN, cancel_fd,
                               flyt_clock_ms() + (unsigned)timeout_ms);
}

/* What is encrypted may be OpenSSL's already: of that no number of bytes is due from the socket. */
int flyt_move_connection_await_part(struct flyt_move_connection *connection, size_t due_bytes, int cancel_fd,
                                    int timeout_ms)
{
    const int low_bytes = connection->is_encrypted                     ? 1
                          : due_bytes < FLYT_MOVE_CONNECTION_LOW_BYTES ? (int)due_bytes
                                                                       : FLYT_MOVE_CONNECTION_LOW_BYTES;
    if (low_bytes != connection->low_bytes) {
        setsockopt(connection->fd, SOL_SOCKET, SO_RCVLOWAT, &low_bytes,
                   sizeof low_bytes); /* or it is woken up more often */
        connection->low_bytes = low_bytes;
    }
    return flyt_move_connection_await(connection, cancel_fd, timeout_ms);
}

bool flyt_move_connection_has_more(const struct flyt_move_connection *connection)
{
    return atomic_load(&connection->is_begun) && flyt_endpoint_has_more(connection->endpoint);
}

int flyt_move_connection_read(const struct flyt_move_connection *connection, void *place, size_t bytes)
{
    const struct iovec part = {place, bytes};
    ssize_t count = flyt_endpoint_read(connection->endpoint, &part, 1, false);
    return count == -EPIPE ? 0 : (int)count;
}

void flyt_move_connection_part(const struct flyt_move_connection *connection)
{
    unsigned char thrown[THROWN_BYTES];
    uint64_t deadline_ms = flyt_clock_ms() + FLYT_MOVE_CONNECTION_FAREWELL_MS;
    flyt_endpoint_shut(connection->endpoint, FLYT_ENDPOINT_WRITING);
    for (int left_ms; (left_ms = flyt_clock_left_ms(deadline_ms)) > 0;) {
        int status = flyt_move_connection_await(connection, -1, left_ms);
        if (status || (status = flyt_move_connection_read(connection, thrown, sizeof thrown)) == 0 ||
            (status < 0 && status != -EAGAIN))
            return;
    }
}
