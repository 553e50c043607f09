/*
 * The one way of messages to a server, in their order: what a server does not take at once, or the kernel has no memory
 * for, is sent when it can be. Nothing else sends to a server that the node manager knows. The loop's thread.
 *
 * A message that was sent waits in the server's socket until the server reads it, or ends with the link: then the
 * server comes back and says what it has (reattach.c). What a server does not answer is sent again (retransmit.h).
 */
#ifndef FLYT_NODE_LINK_QUEUE_H
#define FLYT_NODE_LINK_QUEUE_H

#include <stdbool.h>
#include <systemd/sd-event.h>

#include "rpc/base/tally.h"
#include "rpc/transport/manager_link.h"

struct flyt_node_queued;

/* What a server may leave unread: an order for each extent of a session, and all that is kept of its libraries
 * (move.h), with room. Descriptors count as their messages do. */
enum {
    FLYT_NODE_LINK_QUEUE_MAX = 16384,                                 /* messages */
    FLYT_NODE_LINK_QUEUE_BYTES_MAX = 128 << 20,                       /* of memory */
    FLYT_NODE_LINK_QUEUE_FDS_MAX = FLYT_MANAGER_LINK_DESCRIPTORS_MAX, /* descriptors of a message */
};

/* All zero but for `event`: nothing is queued. */
struct flyt_node_link_queue {
    sd_event *event;
    const int *link_fd; /* the server's socket, as it is when something is sent; -1: it has hung up */
    struct flyt_node_queued *first, *last;
    unsigned count; /* of these */
    size_t bytes;
    sd_event_source *timer; /* until it takes more */
    uint64_t retry_us;      /* the last pause before that */
    int failure;            /* a negative errno: the link has ended, and what was queued cannot be sent any more */
};

/* An empty message of this kind, to be filled in and sent. There is one only: it is good until this is called again. */
struct flyt_manager_link_message *flyt_node_link_message(enum flyt_manager_link_kind kind);

/* `link_fd` belongs to the server, and outlives the queue. */
void flyt_node_link_queue_init(struct flyt_node_link_queue *queue, sd_event *event, const int *link_fd);
/* What is queued is forgotten. All zero is allowed. */
void flyt_node_link_queue_fini(struct flyt_node_link_queue *queue);
/* What is queued and not sent is forgotten; the queue is of use on. */
void flyt_node_link_queue_clear(struct flyt_node_link_queue *queue);
/*
 * Sends it behind what is queued, now or later; a copy of it is made. fd: the descriptor of a kind that has one, which
 * is taken over in every case; else -1. 0; -ENOMEM; -ENOBUFS: as much is queued as may be, and stays queued; -EPIPE:
 * the server has hung up; -EINVAL: no such message. A failure that shows later stays in queue->failure.
 */
int flyt_node_link_queue_send(struct flyt_node_link_queue *queue, const struct flyt_manager_link_message *message,
                              int fd);
/* The same for a kind with several descriptors, fd_count of them, which are all taken over in every case. */
int flyt_node_link_queue_send_all(struct flyt_node_link_queue *queue, const struct flyt_manager_link_message *message,
                                  const int *fds, unsigned fd_count);
/* The same; the descriptors are of files on a disk that may not answer: they are closed by threads (close_aside.h),
 * which `left` counts. */
int flyt_node_link_queue_send_files(struct flyt_node_link_queue *queue, const struct flyt_manager_link_message *message,
                                    const int *fds, unsigned fd_count, struct flyt_tally *left);
/* The same; the descriptors stay the caller's: copies of them wait where it is not sent at once. */
int flyt_node_link_queue_lend(struct flyt_node_link_queue *queue, const struct flyt_manager_link_message *message,
                              const int *fds, unsigned fd_count);
/* Now or not at all: 0; -EAGAIN: something is queued, or the server does not take it now; as the others. The
 * descriptors stay the caller's. */
int flyt_node_link_queue_try(struct flyt_node_link_queue *queue, const struct flyt_manager_link_message *message,
                             const int *fds, unsigned fd_count);
/* Whether all has been sent. */
bool flyt_node_link_queue_is_empty(const struct flyt_node_link_queue *queue);

#endif
