/*
 * An endpoint whose bytes go through two rings in shared memory (rings.h), beside a socket that carries none. The
 * socket tells that the other end is there, and is the bell: who sleeps says so in the rings, and is sent a byte. Where
 * nobody sleeps a write is a copy, and a read another one, without a system call.
 */
#include "rpc/transport/endpoint/endpoint.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/transport/endpoint/endpoint_poll.h"
#include "rpc/transport/endpoint/rings.h"

enum {
    BELLS_MAX = 64,     /* that are taken at once */
    NAP_NS = 100 * 1000 /* where there is no bell to wait for, or one that may be another one's */
};

struct shm_endpoint {
    struct flyt_endpoint endpoint;
    struct flyt_endpoint *plain;
    int fd; /* plain's */
    struct flyt_rings rings;
    unsigned limit_ms; /* of waiting for room; 0: none */
    /* The other end writes nothing more; reads nothing more, too. */
    _Atomic(bool) has_ended, is_gone;
    /* Who takes bells is alone with them: another one's would be lost. */
    pthread_mutex_t mutex;
    unsigned waiter_count;
};

static struct shm_endpoint *of(struct flyt_endpoint *endpoint)
{
    return (struct shm_endpoint *)endpoint;
}

/* ---- bells ---- */

/* Pairs with announce: either the sleeper sees what was written, or this end sees that it sleeps. */
static void ring_bell(struct shm_endpoint *self, _Atomic(uint32_t) *sleeps)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (!atomic_load_explicit(sleeps, memory_order_relaxed) || !atomic_exchange(sleeps, 0))
        return;
    /* Where the socket is full of bells there is one. */
    if (send(self->fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno != EAGAIN && errno != EINTR)
        atomic_store(&self->is_gone, true);
}

static void announce(struct shm_endpoint *self, unsigned events)
{
    if (events & FLYT_ENDPOINT_IN)
        atomic_store(&self->rings.in.ring->reader_sleeps, 1);
    if (events & FLYT_ENDPOINT_OUT)
        atomic_store(&self->rings.out.ring->writer_sleeps, 1);
    atomic_thread_fence(memory_order_seq_cst);
}

/* An end that was not announced is that of both directions: its process is no more. */
static void note_end(struct shm_endpoint *self)
{
    if (!atomic_load(&self->rings.in.ring->has_ended))
        atomic_store(&self->is_gone, true);
    atomic_store(&self->has_ended, true);
}

/* The socket can be read. Whether the bells were taken: not where somebody else waits, who may be meant. */
static bool take_bells(struct shm_endpoint *self)
{
    char bells[BELLS_MAX];

    pthread_mutex_lock(&self->mutex);
    bool is_alone = self->waiter_count == 1;
    ssize_t count = recv(self->fd, bells, sizeof bells, MSG_DONTWAIT | (is_alone ? 0 : MSG_PEEK));
    const int error = count < 0 ? errno : 0;
    pthread_mutex_unlock(&self->mutex);
    if (!count || (error && error != EAGAIN && error != EINTR))
        note_end(self);
    return is_alone || count <= 0;
}

static void enter(struct shm_endpoint *self)
{
    pthread_mutex_lock(&self->mutex);
    self->waiter_count++;
    pthread_mutex_unlock(&self->mutex);
}

/* The last one that leaves takes the announcements back: nobody has to ring for it. */
static void leave(struct shm_endpoint *self)
{
    pthread_mutex_lock(&self->mutex);
    if (!--self->waiter_count) {
        atomic_store_explicit(&self->rings.in.ring->reader_sleeps, 0, memory_order_relaxed);
        atomic_store_explicit(&self->rings.out.ring->writer_sleeps, 0, memory_order_relaxed);
    }
    pthread_mutex_unlock(&self->mutex);
}

/* ---- waiting ---- */

static int found_of(const struct shm_endpoint *self, unsigned events)
{
    const bool has_ended = atomic_load(&self->has_ended), is_gone = atomic_load(&self->is_gone);
    int found = 0;

    if (events & FLYT_ENDPOINT_IN && (has_ended || flyt_ring_has_bytes(&self->rings.in)))
        found |= FLYT_ENDPOINT_IN;
    if (events & FLYT_ENDPOINT_OUT && (is_gone || flyt_ring_has_room(&self->rings.out)))
        found |= FLYT_ENDPOINT_OUT;
    if (events & FLYT_ENDPOINT_ENDED && has_ended)
        found |= FLYT_ENDPOINT_ENDED;
    return found;
}

static int64_t shorter(int64_t timeout_ns)
{
    return timeout_ns >= 0 && timeout_ns < NAP_NS ? timeout_ns : NAP_NS;
}

/* Sleeps once, and learns what woke it. WOKEN, 0 or a negative errno. */
static int sleep_once(struct shm_endpoint *self, int wake_fd, int64_t timeout_ns)
{
    /* An end that writes nothing more sends no bells, either: room is looked for. Its socket can be read for ever, and
     * tells by POLLHUP that all is over. */
    const bool has_ended = atomic_load(&self->has_ended);
    const struct flyt_endpoint_signs signs = {
        .in = has_ended ? -1 : self->fd, .out = has_ended ? self->fd : -1, .ended = -1};

    int seen = flyt_endpoint_poll(&signs, wake_fd, has_ended ? shorter(timeout_ns) : timeout_ns);
    if (seen < 0)
        return seen;
    if (seen & FLYT_ENDPOINT_OUT)
        atomic_store(&self->is_gone, true);
    if (!(seen & FLYT_ENDPOINT_IN) || take_bells(self))
        return seen & FLYT_ENDPOINT_WOKEN;
    return flyt_endpoint_poll(NULL, wake_fd, shorter(timeout_ns));
}

static int wait_for(struct flyt_endpoint *endpoint, unsigned events, int wake_fd, int64_t timeout_ns)
{
    struct shm_endpoint *self = of(endpoint);
    const uint64_t begin_ns = flyt_clock_ns();
    int64_t left_ns = timeout_ns;

    if (!events)
        return flyt_endpoint_poll(NULL, wake_fd, timeout_ns);
    enter(self);
    int woken = 0, found = found_of(self, events);
    if (found && wake_fd >= 0)
        woken = flyt_endpoint_poll(NULL, wake_fd, 0);
    while (!found && !woken) {
        announce(self, events);
        found = found_of(self, events);
        if (found)
            break;
        woken = sleep_once(self, wake_fd, left_ns);
        found = found_of(self, events);
        if (timeout_ns < 0)
            continue;
        const uint64_t passed_ns = flyt_clock_ns() - begin_ns;
        if (passed_ns >= (uint64_t)timeout_ns)
            break;
        left_ns = timeout_ns - (int64_t)passed_ns;
    }
    leave(self);
    return woken < 0 && !found ? woken : found | (woken > 0 ? woken : 0);
}

/* ---- bytes ---- */

static ssize_t write_parts(struct flyt_endpoint *endpoint, const struct iovec *parts, size_t count, bool may_wait)
{
    struct shm_endpoint *self = of(endpoint);
    const int64_t limit_ns = self->limit_ms ? self->limit_ms * INT64_C(1000000) : -1;

    for (;;) {
        if (atomic_load_explicit(&self->is_gone, memory_order_relaxed))
            return -EPIPE;
        ssize_t total = flyt_ring_write(&self->rings.out, parts, count);
        if (total > 0)
            ring_bell(self, &self->rings.out.ring->reader_sleeps);
        if (total)
            return total;
        if (!may_wait || !wait_for(endpoint, FLYT_ENDPOINT_OUT, -1, limit_ns))
            return -EAGAIN;
    }
}

static ssize_t read_parts(struct flyt_endpoint *endpoint, const struct iovec *parts, size_t count, bool may_wait)
{
    struct shm_endpoint *self = of(endpoint);

    for (;;) {
        /* First: what was written before the end is in the ring when the end is seen. */
        const bool has_ended = atomic_load(&self->has_ended);
        ssize_t total = flyt_ring_read(&self->rings.in, parts, count);
        if (total > 0)
            ring_bell(self, &self->rings.in.ring->writer_sleeps);
        if (total)
            return total;
        if (has_ended)
            return -EPIPE;
        if (!may_wait)
            return -EAGAIN;
        wait_for(endpoint, FLYT_ENDPOINT_IN, -1, -1);
    }
}

static bool has_more(const struct flyt_endpoint *endpoint)
{
    return flyt_ring_has_bytes(&((const struct shm_endpoint *)endpoint)->rings.in);
}

/* ---- the rest is the socket's ---- */

static void shut(struct flyt_endpoint *endpoint, enum flyt_endpoint_end end)
{
    struct shm_endpoint *self = of(endpoint);

    if (end == FLYT_ENDPOINT_WRITING)
        atomic_store(&self->rings.out.ring->has_ended, 1);
    else
        atomic_store(&self->is_gone, true);
    flyt_endpoint_shut(self->plain, end);
}

static bool is_alive(struct flyt_endpoint *endpoint, struct flyt_vigil *vigil)
{
    return flyt_endpoint_is_alive(of(endpoint)->plain, vigil);
}

static void limit_writing(struct flyt_endpoint *endpoint, unsigned timeout_ms)
{
    of(endpoint)->limit_ms = timeout_ms;
}

static int fd_of(const struct flyt_endpoint *endpoint)
{
    return ((const struct shm_endpoint *)endpoint)->fd;
}

static int duplicate(const struct flyt_endpoint *endpoint, struct flyt_endpoint **ret_duplicate)
{
    return flyt_endpoint_duplicate(((const struct shm_endpoint *)endpoint)->plain, ret_duplicate);
}

static int make_beside(struct flyt_endpoint *endpoint, struct flyt_endpoint **ret_beside)
{
    return flyt_endpoint_make_beside(of(endpoint)->plain, ret_beside);
}

static void abandon(struct flyt_endpoint *endpoint)
{
    flyt_endpoint_abandon(of(endpoint)->plain);
}

static void close_all(struct flyt_endpoint *endpoint)
{
    struct shm_endpoint *self = of(endpoint);

    flyt_endpoint_close(self->plain);
    flyt_rings_close(&self->rings);
    pthread_mutex_destroy(&self->mutex);
    free(self);
}

/* connect_beside is asked of what make_beside has made, which is a socket's. */
static const struct flyt_endpoint_ops operations = {
    .write = write_parts,
    .read = read_parts,
    .wait = wait_for,
    .has_more = has_more,
    .shut = shut,
    .is_alive = is_alive,
    .limit_writing = limit_writing,
    .fd = fd_of,
    .duplicate = duplicate,
    .make_beside = make_beside,
    .abandon = abandon,
    .close = close_all,
    .reads_memory = true,
};

int flyt_endpoint_over_rings(struct flyt_endpoint *plain, struct flyt_rings *rings, struct flyt_endpoint **ret_endpoint)
{
    struct shm_endpoint *self = calloc(1, sizeof *self);

    if (!self)
        return -ENOMEM;
    self->endpoint.ops = &operations;
    self->plain = plain;
    self->fd = flyt_endpoint_fd(plain);
    rings->fd = flyt_close(rings->fd); /* the mapping is enough */
    self->rings = *rings;
    *rings = (struct flyt_rings){.fd = -1};
    pthread_mutex_init(&self->mutex, NULL);
    *ret_endpoint = &self->endpoint;
    return 0;
}
