#include "control/node/host/link_queue.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/base/close_aside.h"
#include "rpc/base/descriptors.h"

enum { RETRY_MIN_US = 2000, RETRY_MAX_US = 128000 };

struct flyt_node_queued {
    struct flyt_node_queued *next;
    unsigned fd_count;
    int fds[FLYT_NODE_LINK_QUEUE_FDS_MAX];
    struct flyt_tally *left; /* of files: counts who closes them; else NULL */
    size_t bytes;
    unsigned char head[]; /* of the message, up to the end of its data */
};

static size_t bytes_of(const struct flyt_manager_link_message *message)
{
    return offsetof(struct flyt_manager_link_message, data) + message->data_bytes;
}

static void close_all(const int *fds, unsigned count, struct flyt_tally *left)
{
    for (unsigned i = 0; i < count; i++) {
        int fd = fds[i];
        if (left)
            flyt_close_aside(&fd, 1, left);
        else
            flyt_close(fd);
    }
}

static void forget_first(struct flyt_node_link_queue *queue)
{
    struct flyt_node_queued *queued = queue->first;

    queue->first = queued->next;
    if (!queue->first)
        queue->last = NULL;
    queue->count--;
    queue->bytes -= queued->bytes;
    close_all(queued->fds, queued->fd_count, queued->left);
    flyt_tally_unref(queued->left);
    explicit_bzero(queued->head, queued->bytes); /* a session's keys may be in it */
    free(queued);
}

struct flyt_manager_link_message *flyt_node_link_message(enum flyt_manager_link_kind kind)
{
    static struct flyt_manager_link_message message; /* 64 KiB: too much for a stack; the loop's thread only */

    message.kind = kind;
    message.data_bytes = 0;
    memset(&message.ready, 0,
           offsetof(struct flyt_manager_link_message, data) - offsetof(struct flyt_manager_link_message, ready));
    return &message;
}

void flyt_node_link_queue_init(struct flyt_node_link_queue *queue, sd_event *event, const int *link_fd)
{
    *queue = (struct flyt_node_link_queue){.event = event, .link_fd = link_fd};
}

void flyt_node_link_queue_clear(struct flyt_node_link_queue *queue)
{
    while (queue->first)
        forget_first(queue);
    queue->timer = sd_event_source_disable_unref(queue->timer);
}

void flyt_node_link_queue_fini(struct flyt_node_link_queue *queue)
{
    flyt_node_link_queue_clear(queue);
    *queue = (struct flyt_node_link_queue){0};
}

static int on_retry(sd_event_source *source, uint64_t usec, void *user);

/* A socket's buffer is full, or too many descriptors are on their way to it, or there is no memory just now. */
static bool is_later(int status)
{
    return status == -EAGAIN || status == -ETOOMANYREFS || status == -EINTR || status == -ENOBUFS || status == -ENOMEM;
}

static int send_now(const struct flyt_node_link_queue *queue, const struct flyt_manager_link_message *message,
                    const int *fds, unsigned fd_count)
{
    return *queue->link_fd < 0 ? -EPIPE : flyt_manager_link_send(*queue->link_fd, message, fds, fd_count);
}

static void flush(struct flyt_node_link_queue *queue)
{
    static struct flyt_manager_link_message message; /* 64 KiB; the loop's thread only */
    int status = 0;

    while (queue->first && !status) {
        struct flyt_node_queued *queued = queue->first;
        memcpy(&message, queued->head, queued->bytes);
        message.data[message.data_bytes] = 0;
        status = send_now(queue, &message, queued->fds, queued->fd_count);
        if (status)
            continue;
        forget_first(queue);
        queue->retry_us = 0;
    }
    explicit_bzero(&message.ready, offsetof(struct flyt_manager_link_message, data) -
                                       offsetof(struct flyt_manager_link_message, ready));
    queue->timer = sd_event_source_disable_unref(queue->timer);
    queue->retry_us = !queue->retry_us                     ? RETRY_MIN_US
                      : queue->retry_us * 2 > RETRY_MAX_US ? RETRY_MAX_US
                                                           : queue->retry_us * 2;
    if (is_later(status) && sd_event_add_time_relative(queue->event, &queue->timer, CLOCK_MONOTONIC, queue->retry_us, 1,
                                                       on_retry, queue) >= 0)
        return;
    if (status) {
        queue->failure = status;
        flyt_node_link_queue_clear(queue);
    }
}

static int on_retry(sd_event_source *source, uint64_t usec, void *user)
{
    flush(user);
    return 0;
}

static int send_all(struct flyt_node_link_queue *queue, const struct flyt_manager_link_message *message, const int *fds,
                    unsigned fd_count, struct flyt_tally *left)
{
    size_t bytes = bytes_of(message);
    bool is_full = queue->count >= FLYT_NODE_LINK_QUEUE_MAX || bytes > FLYT_NODE_LINK_QUEUE_BYTES_MAX - queue->bytes;
    bool is_odd = fd_count > FLYT_NODE_LINK_QUEUE_FDS_MAX;
    struct flyt_node_queued *queued = queue->failure || is_full || is_odd ? NULL : malloc(sizeof *queued + bytes);

    if (!queued) {
        close_all(fds, fd_count, left);
        return queue->failure ? queue->failure : is_odd ? -EINVAL : is_full ? -ENOBUFS : -ENOMEM;
    }
    queued->next = NULL;
    queued->fd_count = fd_count;
    for (unsigned i = 0; i < fd_count; i++)
        queued->fds[i] = fds[i];
    queued->left = flyt_tally_ref(left);
    queued->bytes = bytes;
    queue->count++;
    queue->bytes += bytes;
    memcpy(queued->head, message, queued->bytes);
    *(queue->last ? &queue->last->next : &queue->first) = queued;
    queue->last = queued;
    if (!queue->timer)
        flush(queue);
    return queue->failure;
}

int flyt_node_link_queue_send_all(struct flyt_node_link_queue *queue, const struct flyt_manager_link_message *message,
                                  const int *fds, unsigned fd_count)
{
    return send_all(queue, message, fds, fd_count, NULL);
}

int flyt_node_link_queue_send_files(struct flyt_node_link_queue *queue, const struct flyt_manager_link_message *message,
                                    const int *fds, unsigned fd_count, struct flyt_tally *left)
{
    return send_all(queue, message, fds, fd_count, left);
}

int flyt_node_link_queue_send(struct flyt_node_link_queue *queue, const struct flyt_manager_link_message *message,
                              int fd)
{
    return flyt_node_link_queue_send_all(queue, message, &fd, fd >= 0);
}

int flyt_node_link_queue_lend(struct flyt_node_link_queue *queue, const struct flyt_manager_link_message *message,
                              const int *fds, unsigned fd_count)
{
    int copies[FLYT_NODE_LINK_QUEUE_FDS_MAX];
    int status = flyt_node_link_queue_try(queue, message, fds, fd_count);

    if (status != -EAGAIN)
        return status;
    for (unsigned i = 0; i < fd_count; i++) {
        copies[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 0);
        if (copies[i] >= 0)
            continue;
        status = -errno;
        close_all(copies, i, NULL);
        return status;
    }
    return send_all(queue, message, copies, fd_count, NULL);
}

int flyt_node_link_queue_try(struct flyt_node_link_queue *queue, const struct flyt_manager_link_message *message,
                             const int *fds, unsigned fd_count)
{
    if (queue->failure)
        return queue->failure;
    if (fd_count > FLYT_NODE_LINK_QUEUE_FDS_MAX)
        return -EINVAL;
    int status = queue->first ? -EAGAIN : send_now(queue, message, fds, fd_count);
    return is_later(status) ? -EAGAIN : status;
}

bool flyt_node_link_queue_is_empty(const struct flyt_node_link_queue *queue)
{
    return !queue->first;
}
