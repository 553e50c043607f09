/*
 * An endpoint between two threads of one process: two rings of bytes, and for each two descriptors that tell whether
 * there is something to be read and room to write, so that it is waited for as sockets are.
 */
#include "rpc/transport/endpoint/endpoint.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <poll.h>
#include "rpc/base/descriptors.h"
#include "rpc/transport/endpoint/endpoint_poll.h"

enum { RING_BYTES = 256 * 1024 };

/* A descriptor that is readable while something holds. */
struct sign {
    int fd;
    bool is_up;
};

struct ring {
    unsigned char bytes[RING_BYTES];
    size_t begin, used;
    bool is_ended;  /* nothing more is written */
    bool is_closed; /* nor read */
    struct sign is_readable, has_room, is_over;
};

struct line {
    pthread_mutex_t mutex;
    struct ring rings[2]; /* [i]: what end i writes */
    unsigned end_count;   /* duplicates among them */
};

struct memory_endpoint {
    struct flyt_endpoint endpoint;
    const struct flyt_memory_listener *listener;
    struct line *line; /* NULL: it is not connected */
    unsigned end;
    bool is_duplicate;
    unsigned limit_ms; /* of waiting for room; 0: none */
};

static struct memory_endpoint *of(struct flyt_endpoint *endpoint)
{
    return (struct memory_endpoint *)endpoint;
}

static struct ring *written(const struct memory_endpoint *self)
{
    return &self->line->rings[self->end];
}

static struct ring *read_from(const struct memory_endpoint *self)
{
    return &self->line->rings[!self->end];
}

/* ---- rings; under the line's mutex ---- */

static void set_sign(struct sign *sign, bool is_up)
{
    eventfd_t value;

    if (sign->is_up == is_up)
        return;
    sign->is_up = is_up;
    if (is_up)
        eventfd_write(sign->fd, 1);
    else
        eventfd_read(sign->fd, &value);
}

/* Whoever waits is told of an end, too. */
static void set_signs(struct ring *ring)
{
    set_sign(&ring->is_readable, ring->used || ring->is_ended || ring->is_closed);
    set_sign(&ring->has_room, ring->used < RING_BYTES || ring->is_ended || ring->is_closed);
    set_sign(&ring->is_over, ring->is_ended || ring->is_closed);
}

/* One straight piece into the ring, or out of it. How many bytes. */
static size_t put(struct ring *ring, const void *data, size_t bytes)
{
    size_t at = (ring->begin + ring->used) % RING_BYTES, room = RING_BYTES - ring->used;
    size_t straight = RING_BYTES - at < room ? RING_BYTES - at : room;

    bytes = bytes < straight ? bytes : straight;
    memcpy(ring->bytes + at, data, bytes);
    ring->used += bytes;
    return bytes;
}

static size_t take(struct ring *ring, void *place, size_t bytes)
{
    size_t straight = RING_BYTES - ring->begin < ring->used ? RING_BYTES - ring->begin : ring->used;

    bytes = bytes < straight ? bytes : straight;
    memcpy(place, ring->bytes + ring->begin, bytes);
    ring->begin = (ring->begin + bytes) % RING_BYTES;
    ring->used -= bytes;
    return bytes;
}

/* ---- operations ---- */

static int wait_for(struct flyt_endpoint *endpoint, unsigned events, int wake_fd, int64_t timeout_ns)
{
    const struct memory_endpoint *self = of(endpoint);
    const struct flyt_endpoint_signs signs = {.in = events & FLYT_ENDPOINT_IN ? read_from(self)->is_readable.fd : -1,
                                              .out = events & FLYT_ENDPOINT_OUT ? written(self)->has_room.fd : -1,
                                              .ended = events & FLYT_ENDPOINT_ENDED ? read_from(self)->is_over.fd : -1,
                                              .out_event = POLLIN,
                                              .ended_event = POLLIN};

    return flyt_endpoint_poll(&signs, wake_fd, timeout_ns);
}

static ssize_t write_now(struct memory_endpoint *self, const struct iovec *parts, size_t count)
{
    struct ring *ring = written(self);
    ssize_t total = 0;

    pthread_mutex_lock(&self->line->mutex);
    bool is_over = ring->is_ended || ring->is_closed;
    for (size_t i = 0; i < count && !is_over; i++) {
        size_t done = 0, step = 1;
        for (; done < parts[i].iov_len && step; done += step)
            step = put(ring, (const char *)parts[i].iov_base + done, parts[i].iov_len - done);
        total += (ssize_t)done;
        if (done < parts[i].iov_len)
            break;
    }
    set_signs(ring);
    pthread_mutex_unlock(&self->line->mutex);
    return is_over ? -EPIPE : total ? total : -EAGAIN;
}

static ssize_t write_parts(struct flyt_endpoint *endpoint, const struct iovec *parts, size_t count, bool may_wait)
{
    struct memory_endpoint *self = of(endpoint);

    if (!self->line)
        return -ENOTCONN;
    for (;;) {
        ssize_t total = write_now(self, parts, count);
        if (total != -EAGAIN || !may_wait)
            return total;
        int64_t limit_ns = self->limit_ms ? self->limit_ms * INT64_C(1000000) : -1;
        if (!wait_for(endpoint, FLYT_ENDPOINT_OUT, -1, limit_ns))
            return -EAGAIN;
    }
}

static ssize_t read_now(struct memory_endpoint *self, const struct iovec *parts, size_t count)
{
    struct ring *ring = read_from(self);
    ssize_t total = 0;

    pthread_mutex_lock(&self->line->mutex);
    for (size_t i = 0; i < count && ring->used; i++) {
        size_t done = 0, step = 1;
        for (; done < parts[i].iov_len && step; done += step)
            step = take(ring, (char *)parts[i].iov_base + done, parts[i].iov_len - done);
        total += (ssize_t)done;
    }
    bool is_over = ring->is_ended || ring->is_closed;
    set_signs(ring);
    pthread_mutex_unlock(&self->line->mutex);
    return total ? total : is_over ? -EPIPE : -EAGAIN;
}

static ssize_t read_parts(struct flyt_endpoint *endpoint, const struct iovec *parts, size_t count, bool may_wait)
{
    struct memory_endpoint *self = of(endpoint);

    if (!self->line)
        return -ENOTCONN;
    for (;;) {
        ssize_t total = read_now(self, parts, count);
        if (total != -EAGAIN || !may_wait)
            return total;
        wait_for(endpoint, FLYT_ENDPOINT_IN, -1, -1);
    }
}

static bool has_more(const struct flyt_endpoint *endpoint)
{
    const struct memory_endpoint *self = (const struct memory_endpoint *)endpoint;

    pthread_mutex_lock(&self->line->mutex);
    bool has_some = read_from(self)->used;
    pthread_mutex_unlock(&self->line->mutex);
    return has_some;
}

static void shut(struct flyt_endpoint *endpoint, enum flyt_endpoint_end end)
{
    struct memory_endpoint *self = of(endpoint);

    if (!self->line)
        return;
    pthread_mutex_lock(&self->line->mutex);
    written(self)->is_ended = true;
    set_signs(written(self));
    if (end == FLYT_ENDPOINT_BOTH) {
        read_from(self)->is_closed = true;
        set_signs(read_from(self));
    }
    pthread_mutex_unlock(&self->line->mutex);
}

static bool is_alive(struct flyt_endpoint *endpoint, struct flyt_vigil *vigil)
{
    return true;
}

static void limit_writing(struct flyt_endpoint *endpoint, unsigned timeout_ms)
{
    of(endpoint)->limit_ms = timeout_ms;
}

static int no_fd(const struct flyt_endpoint *endpoint)
{
    return -1;
}

/* The threads that had the other ends are not in a forked child. */
static void abandon(struct flyt_endpoint *endpoint)
{
}

static void free_line(struct line *line)
{
    for (unsigned i = 0; i < 2; i++) {
        flyt_close(line->rings[i].is_readable.fd);
        flyt_close(line->rings[i].has_room.fd);
        flyt_close(line->rings[i].is_over.fd);
    }
    pthread_mutex_destroy(&line->mutex);
    free(line);
}

static void close_end(struct flyt_endpoint *endpoint)
{
    struct memory_endpoint *self = of(endpoint);
    struct line *line = self->line;

    if (!self->is_duplicate)
        shut(endpoint, FLYT_ENDPOINT_BOTH);
    free(self);
    if (!line)
        return;
    pthread_mutex_lock(&line->mutex);
    bool is_last = !--line->end_count;
    pthread_mutex_unlock(&line->mutex);
    if (is_last)
        free_line(line);
}

static int duplicate(const struct flyt_endpoint *endpoint, struct flyt_endpoint **ret_duplicate);
static int make_beside(struct flyt_endpoint *endpoint, struct flyt_endpoint **ret_beside);
static int connect_beside(struct flyt_endpoint *beside, struct flyt_endpoint *endpoint, uint64_t deadline_ms,
                          int cancel_fd);

static const struct flyt_endpoint_ops operations = {
    .write = write_parts,
    .read = read_parts,
    .wait = wait_for,
    .has_more = has_more,
    .shut = shut,
    .is_alive = is_alive,
    .limit_writing = limit_writing,
    .fd = no_fd,
    .duplicate = duplicate,
    .make_beside = make_beside,
    .connect_beside = connect_beside,
    .abandon = abandon,
    .close = close_end,
};

/* ---- making ---- */

static struct line *new_line(void)
{
    struct line *line = calloc(1, sizeof *line);
    bool is_good = line;

    if (!line)
        return NULL;
    line->end_count = 2;
    pthread_mutex_init(&line->mutex, NULL);
    for (unsigned i = 0; i < 2; i++) {
        struct ring *ring = &line->rings[i];
        ring->is_readable.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        ring->has_room.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        ring->is_over.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        is_good = is_good && ring->is_readable.fd >= 0 && ring->has_room.fd >= 0 && ring->is_over.fd >= 0;
    }
    if (!is_good) {
        free_line(line);
        return NULL;
    }
    for (unsigned i = 0; i < 2; i++)
        set_signs(&line->rings[i]);
    return line;
}

static struct memory_endpoint *new_end(const struct flyt_memory_listener *listener, struct line *line, unsigned end)
{
    struct memory_endpoint *self = malloc(sizeof *self);

    if (self)
        *self =
            (struct memory_endpoint){.endpoint = {.ops = &operations}, .listener = listener, .line = line, .end = end};
    return self;
}

static int connect_end(struct memory_endpoint *self)
{
    struct line *line = new_line();
    struct memory_endpoint *other = line ? new_end(self->listener, line, 1) : NULL;

    if (!other) {
        if (line)
            free_line(line);
        return -ENOMEM;
    }
    self->line = line;
    self->listener->arrive(self->listener->user, &other->endpoint);
    return 0;
}

static int duplicate(const struct flyt_endpoint *endpoint, struct flyt_endpoint **ret_duplicate)
{
    const struct memory_endpoint *self = (const struct memory_endpoint *)endpoint;
    struct memory_endpoint *other = self->line ? new_end(self->listener, self->line, self->end) : NULL;

    if (!other)
        return self->line ? -ENOMEM : -ENOTCONN;
    other->is_duplicate = true;
    pthread_mutex_lock(&self->line->mutex);
    self->line->end_count++;
    pthread_mutex_unlock(&self->line->mutex);
    *ret_duplicate = &other->endpoint;
    return 0;
}

static int make_beside(struct flyt_endpoint *endpoint, struct flyt_endpoint **ret_beside)
{
    struct memory_endpoint *self = new_end(of(endpoint)->listener, NULL, 0);

    if (!self)
        return -ENOMEM;
    *ret_beside = &self->endpoint;
    return 0;
}

static int connect_beside(struct flyt_endpoint *beside, struct flyt_endpoint *endpoint, uint64_t deadline_ms,
                          int cancel_fd)
{
    return connect_end(of(beside));
}

int flyt_endpoint_in_memory(const struct flyt_memory_listener *listener, struct flyt_endpoint **ret_endpoint)
{
    struct memory_endpoint *self = new_end(listener, NULL, 0);
    int status = self ? connect_end(self) : -ENOMEM;

    if (status) {
        free(self);
        return status;
    }
    *ret_endpoint = &self->endpoint;
    return 0;
}
