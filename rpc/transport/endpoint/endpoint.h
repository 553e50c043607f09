/*
 * One end of a stream of bytes between two processes or threads, as a table of functions: what lies beneath a channel,
 * a connection, and the halves of both (input.h, output.h). Nothing above it knows what carries the bytes.
 *
 *   endpoint_socket.c  tcp and unix sockets
 *   secure_endpoint.c  TLS over either, which encrypts and decrypts in place
 *   shm_endpoint.c     two rings in shared memory, beside a socket
 *   endpoint_memory.c  between two threads of a process
 *
 * One thread at a time reads and one writes, each while the other one is at it; any number wait; any thread ends it.
 * Whoever waits for more than its bytes names a descriptor on which others wake it.
 */
#ifndef FLYT_TRANSPORT_ENDPOINT_H
#define FLYT_TRANSPORT_ENDPOINT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "rpc/base/error.h"

struct flyt_rings;
struct flyt_vigil;

/* What is waited for, and what there is. IN: something can be read, or the end; OUT: something can be written; ENDED:
 * the other end writes nothing more, though what it had written may be still to be read. */
enum { FLYT_ENDPOINT_IN = 1, FLYT_ENDPOINT_OUT = 2, FLYT_ENDPOINT_WOKEN = 4, FLYT_ENDPOINT_ENDED = 8 };

/* What ends: nothing more is written, and the other end finds the end of the stream behind what was; or all of it. */
enum flyt_endpoint_end { FLYT_ENDPOINT_WRITING, FLYT_ENDPOINT_BOTH };

struct flyt_endpoint;

/* Each is called by the function of the same name below, which says what it does. */
struct flyt_endpoint_ops {
    ssize_t (*write)(struct flyt_endpoint *endpoint, const struct iovec *parts, size_t count, bool may_wait);
    ssize_t (*read)(struct flyt_endpoint *endpoint, const struct iovec *parts, size_t count, bool may_wait);
    int (*wait)(struct flyt_endpoint *endpoint, unsigned events, int wake_fd, int64_t timeout_ns);
    bool (*has_more)(const struct flyt_endpoint *endpoint);
    void (*shut)(struct flyt_endpoint *endpoint, enum flyt_endpoint_end end);
    bool (*is_alive)(struct flyt_endpoint *endpoint, struct flyt_vigil *vigil);
    void (*limit_writing)(struct flyt_endpoint *endpoint, unsigned timeout_ms);
    int (*fd)(const struct flyt_endpoint *endpoint);
    int (*duplicate)(const struct flyt_endpoint *endpoint, struct flyt_endpoint **ret_duplicate);
    int (*make_beside)(struct flyt_endpoint *endpoint, struct flyt_endpoint **ret_beside);
    int (*connect_beside)(struct flyt_endpoint *beside, struct flyt_endpoint *endpoint, uint64_t deadline_ms,
                          int cancel_fd);
    /* NULL: descriptors do not come through. */
    int (*send_descriptors)(struct flyt_endpoint *endpoint, const void *data, size_t bytes, const int *fds,
                            unsigned fd_count);
    int (*receive_descriptors)(struct flyt_endpoint *endpoint, void *data, size_t bytes_max, int *ret_fds,
                               unsigned fd_count_max, unsigned *ret_fd_count);
    void (*abandon)(struct flyt_endpoint *endpoint);
    void (*close)(struct flyt_endpoint *endpoint);
    bool reads_memory; /* a look for bytes is no system call */
};

/* What every implementation begins with. */
struct flyt_endpoint {
    const struct flyt_endpoint_ops *ops;
    /* Bytes that were taken have not gone out: a write, if only of nothing, sends them. */
    _Atomic(bool) has_pending;
};

/*
 * Over a connected stream socket, which is taken over; it will block, but where it must not. 0, or -ENOMEM: then the
 * descriptor stays the caller's.
 */
int flyt_endpoint_of_socket(int fd, struct flyt_endpoint **ret_endpoint);
/* Frees it without its socket, which is the caller's again. */
int flyt_endpoint_release_socket(struct flyt_endpoint *endpoint);

/*
 * TLS 1.3 (secure.h) over `plain`, which is taken over where this succeeds, from its next byte on.
 * The client's end makes the handshake here, until deadline_ms (rpc/base/clock.h) or until cancel_fd (-1: none) is
 * readable: 0; -EPROTONOSUPPORT: the first byte that came is not TLS, and is still to be read (an answer in clear,
 * which nobody vouches for); -EACCES: the other end has not this key; -ENOSYS (no OpenSSL 3), -ENOMEM, -ETIMEDOUT,
 * -ECANCELED, -EPIPE or another negative errno; with a sentence. After a failure `plain` is as it was. So does a
 * server's end that waits for it (flyt_endpoint_take_encryption). Another server's end makes it in its first read or
 * write, in FLYT_SECURE_HANDSHAKE_MS from here at most; where it fails, that is logged and the stream is at its end. 0,
 * -ENOSYS (no OpenSSL 3) or -ENOMEM, with a sentence.
 */
int flyt_endpoint_encrypt(struct flyt_endpoint *plain, const unsigned char *key, uint64_t deadline_ms, int cancel_fd,
                          struct flyt_error *err, struct flyt_endpoint **ret_endpoint);
int flyt_endpoint_take_encryption(struct flyt_endpoint *plain, const unsigned char *key, uint64_t deadline_ms,
                                  int cancel_fd, struct flyt_error *err, struct flyt_endpoint **ret_endpoint);
int flyt_endpoint_expect_encryption(struct flyt_endpoint *plain, const unsigned char *key, struct flyt_error *err,
                                    struct flyt_endpoint **ret_endpoint);

/*
 * Through rings (rings.h) from the next byte on, beside `plain`, a socket's, at whose other end the same is done. Both
 * are taken over where this succeeds: 0, or -ENOMEM.
 */
int flyt_endpoint_over_rings(struct flyt_endpoint *plain, struct flyt_rings *rings,
                             struct flyt_endpoint **ret_endpoint);

/* Where an endpoint in memory leads: `arrive` gets the other end, which is its own from then on, of every one that is
 * connected. Any thread. Outlives all of them. */
struct flyt_memory_listener {
    void (*arrive)(void *user, struct flyt_endpoint *endpoint);
    void *user;
};
/* 0 or -ENOMEM or another negative errno. */
int flyt_endpoint_in_memory(const struct flyt_memory_listener *listener, struct flyt_endpoint **ret_endpoint);

/*
 * Writes some of the parts, which are not empty, or what is pending; may_wait: until something could be written, or all
 * that was pending. The number of bytes that were taken; -EAGAIN: none without waiting, or within limit_writing; -EPIPE
 * or another negative errno.
 */
static inline ssize_t flyt_endpoint_write(struct flyt_endpoint *endpoint, const struct iovec *parts, size_t count,
                                          bool may_wait)
{
    return endpoint->ops->write(endpoint, parts, count, may_wait);
}

/* Reads into the parts, which have room; may_wait: until there is something. Bytes read; -EAGAIN; -EPIPE at the end of
 * the stream; -EBADMSG: it is not what the other end has sent; or another negative errno. */
static inline ssize_t flyt_endpoint_read(struct flyt_endpoint *endpoint, const struct iovec *parts, size_t count,
                                         bool may_wait)
{
    return endpoint->ops->read(endpoint, parts, count, may_wait);
}

/*
 * Waits for any of `events` (0: none), until wake_fd (-1: none) is readable, or for timeout_ns (negative: for ever).
 * What there is of them, FLYT_ENDPOINT_WOKEN among it; 0: nothing within the time; or a negative errno, -EINTR among
 * them. IN may be told too often, and stays until a read has found nothing.
 */
static inline int flyt_endpoint_wait(struct flyt_endpoint *endpoint, unsigned events, int wake_fd, int64_t timeout_ns)
{
    return endpoint->ops->wait(endpoint, events, wake_fd, timeout_ns);
}

/* Whether something has come, or a part of it, that reads have not given: for who expects nothing more. Any thread,
 * while another one reads. What belongs to a handshake is nothing. */
static inline bool flyt_endpoint_has_more(const struct flyt_endpoint *endpoint)
{
    return endpoint->ops->has_more(endpoint);
}

/* Writes all of it, and waits for that. 0, or as flyt_endpoint_write. */
int flyt_endpoint_write_all(struct flyt_endpoint *endpoint, const void *data, size_t bytes);

/* 0, -ETIMEDOUT, -ECANCELED (wake_fd is readable) or a negative errno. */
int flyt_endpoint_await(struct flyt_endpoint *endpoint, unsigned events, int wake_fd, uint64_t deadline_ms);

/* Any thread; who is in a read or a write that is ended returns from it. Does not wait. */
static inline void flyt_endpoint_shut(struct flyt_endpoint *endpoint, enum flyt_endpoint_end end)
{
    endpoint->ops->shut(endpoint, end);
}

/* Whether the other end has not been found silent for too long though it owes an answer; to be asked every
 * FLYT_PEER_CHECK_MS (listen.h). */
static inline bool flyt_endpoint_is_alive(struct flyt_endpoint *endpoint, struct flyt_vigil *vigil)
{
    return endpoint->ops->is_alive(endpoint, vigil);
}

/* A write that waits for longer than this fails, from now on. */
static inline void flyt_endpoint_limit_writing(struct flyt_endpoint *endpoint, unsigned timeout_ms)
{
    endpoint->ops->limit_writing(endpoint, timeout_ms);
}

/* The socket, for questions about who is at its other end; -1: there is none. */
static inline int flyt_endpoint_fd(const struct flyt_endpoint *endpoint)
{
    return endpoint->ops->fd(endpoint);
}

/*
 * The same end once more, for a thread that reads and writes nothing and has its own time: it waits for ENDED, asks
 * whether the other end is alive, and shuts, without a word of TLS. It outlives the first, and closing it ends nothing.
 * 0, -ENOMEM or another negative errno.
 */
static inline int flyt_endpoint_duplicate(const struct flyt_endpoint *endpoint, struct flyt_endpoint **ret_duplicate)
{
    return endpoint->ops->duplicate(endpoint, ret_duplicate);
}

/*
 * A further one to where this one leads, which need not be where its name leads by now, and in clear. In two steps, so
 * that the owner knows it while the second one waits: it is made; then connected, until deadline_ms (rpc/base/clock.h)
 * or until cancel_fd (-1: none) becomes readable. 0; -ETIMEDOUT, -ECANCELED or what connect(2) says: it is then of no
 * use and still the caller's.
 */
static inline int flyt_endpoint_make_beside(struct flyt_endpoint *endpoint, struct flyt_endpoint **ret_beside)
{
    return endpoint->ops->make_beside(endpoint, ret_beside);
}

static inline int flyt_endpoint_connect_beside(struct flyt_endpoint *beside, struct flyt_endpoint *endpoint,
                                               uint64_t deadline_ms, int cancel_fd)
{
    return beside->ops->connect_beside(beside, endpoint, deadline_ms, cancel_fd);
}

/* Whether descriptors come through: then as flyt_descriptors_send and _receive. */
static inline bool flyt_endpoint_passes_descriptors(const struct flyt_endpoint *endpoint)
{
    return endpoint->ops->send_descriptors;
}

/* In a forked child: lets go of the descriptors without a word. The memory stays. NULL is allowed. */
static inline void flyt_endpoint_abandon(struct flyt_endpoint *endpoint)
{
    if (endpoint)
        endpoint->ops->abandon(endpoint);
}

/* Nobody uses it any more. NULL is allowed. Returns NULL. */
static inline struct flyt_endpoint *flyt_endpoint_close(struct flyt_endpoint *endpoint)
{
    if (endpoint)
        endpoint->ops->close(endpoint);
    return NULL;
}

#endif
