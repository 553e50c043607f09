#include "control/base/connector.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"

enum { FULL_QUEUE_MS = 5 };

struct flyt_connector {
    struct flyt_connector_config config; /* without addresses */
    sd_event *event;
    sd_event_source *io, *attempt; /* attempt: the time of the address that is tried, or when it goes on */
    unsigned tried;                /* how many, the present one too */
    int status;                    /* of the last one; -EAGAIN: its queue was full, the same once more */
    int fd;                        /* being connected; -1: none */
    struct flyt_connector_address addresses[];
};

static void try_next(struct flyt_connector *self);

static unsigned number_of(const struct flyt_connector *self)
{
    return (self->config.first + self->tried - 1) % self->config.count;
}

static void stop(struct flyt_connector *self)
{
    self->attempt = sd_event_source_disable_unref(self->attempt);
    self->io = sd_event_source_disable_unref(self->io);
    self->fd = flyt_close(self->fd);
}

static int on_io(sd_event_source *source, int fd, uint32_t events, void *user)
{
    struct flyt_connector *self = user;
    int error = 0;
    socklen_t bytes = sizeof error;

    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes))
        error = errno;
    if (error) {
        stop(self);
        self->status = -error;
        try_next(self);
        return 0;
    }
    self->fd = -1;
    stop(self);
    self->config.done(self->config.user, 0, fd, number_of(self));
    return 0;
}

static int on_attempt_over(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_connector *self = user;

    if (self->fd >= 0)
        self->status = -ETIMEDOUT;
    else if (self->status == -EAGAIN)
        self->tried--;
    stop(self);
    try_next(self);
    return 0;
}

static int set_attempt(struct flyt_connector *self, uint64_t ms)
{
    int status = sd_event_add_time_relative(self->event, &self->attempt, CLOCK_MONOTONIC, ms * 1000, 1000,
                                            on_attempt_over, self);

    return status < 0 ? status : 0;
}

static int begin_to_connect(struct flyt_connector *self, const struct flyt_connector_address *to, unsigned left)
{
    uint64_t within_ms = (uint64_t)flyt_clock_left_ms(self->config.deadline_ms) / left + 1;

    flyt_auto_close int fd = socket(to->address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    int error = connect(fd, to->address, to->bytes) ? errno : 0;
    if (error == EAGAIN) { /* a unix listener's queue is full, unix(7): there is nothing to wait for */
        self->status = -EAGAIN;
        return set_attempt(self, FULL_QUEUE_MS);
    }
    if (error && error != EINPROGRESS && error != EINTR)
        return -error;
    int status = set_attempt(self, within_ms);
    if (!status)
        status = sd_event_add_io(self->event, &self->io, fd, EPOLLOUT, on_io, self);
    if (status < 0)
        return status;
    self->fd = fd;
    fd = -1;
    return 0;
}

/* Whether the next address is under way. */
static bool begin_next(struct flyt_connector *self)
{
    const unsigned left = self->config.count - self->tried++;
    int status = begin_to_connect(self, &self->addresses[number_of(self)], left);

    if (!status)
        return true;
    self->status = status;
    stop(self);
    return false;
}

static void try_next(struct flyt_connector *self)
{
    while (self->tried < self->config.count)
        if (begin_next(self))
            return;
    self->config.done(self->config.user, self->status, -1, number_of(self));
}

int flyt_connector_new(sd_event *event, const struct flyt_connector_config *config,
                       struct flyt_connector **ret_connector)
{
    struct flyt_connector *self = calloc(1, sizeof *self + config->count * sizeof self->addresses[0]);

    if (!self)
        return -ENOMEM;
    self->config = *config;
    self->config.addresses = NULL;
    memcpy(self->addresses, config->addresses, config->count * sizeof self->addresses[0]);
    self->event = sd_event_ref(event);
    self->fd = -1;
    int status = begin_next(self) ? 0 : set_attempt(self, 0); /* the loop goes on, or tells */
    if (status) {
        flyt_connector_free(self);
        return status;
    }
    *ret_connector = self;
    return 0;
}

struct flyt_connector *flyt_connector_free(struct flyt_connector *connector)
{
    if (!connector)
        return NULL;
    stop(connector);
    sd_event_unref(connector->event);
    free(connector);
    return NULL;
}
