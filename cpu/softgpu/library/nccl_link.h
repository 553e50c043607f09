/* A rank's connection to its hub, which a communicator shares with those that were split from it: what comes is kept
 * until it is asked for. */
#ifndef FLYT_SOFTGPU_LIBRARY_NCCL_LINK_H
#define FLYT_SOFTGPU_LIBRARY_NCCL_LINK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "cpu/softgpu/library/nccl.h"

struct flyt_soft_nccl_inbox {
    struct flyt_soft_nccl_inbox *next;
    struct flyt_soft_nccl_message message;
    void *data;
};

struct flyt_soft_nccl_link {
    atomic_uint refs;
    int fd;
    pthread_t thread;
    pthread_mutex_t write_mutex, mutex; /* mutex: of all below, and of the flags that waits look at */
    pthread_cond_t changed;
    bool is_lost; /* the hub is gone */
    uint32_t lost_comms[64];
    unsigned lost_count;
    struct flyt_soft_nccl_inbox *first;
};

/* NULL: there is no hub, or no memory. */
struct flyt_soft_nccl_link *flyt_soft_nccl_link_open(const struct flyt_soft_nccl_id *id);
struct flyt_soft_nccl_link *flyt_soft_nccl_link_ref(struct flyt_soft_nccl_link *link);
/* has_left: the hub is told that the end is meant. */
void flyt_soft_nccl_link_unref(struct flyt_soft_nccl_link *link, uint32_t comm, bool has_left);
void flyt_soft_nccl_link_send(struct flyt_soft_nccl_link *link, const struct flyt_soft_nccl_message *message,
                              const void *data);
bool flyt_soft_nccl_link_has_lost(struct flyt_soft_nccl_link *link, uint32_t comm);

/* Waits for what came of that kind, communicator, sequence and (of MESSAGE_DIRECT) sender. NULL: *aborted became true,
 * or, with `ends`, the communicator is lost. Its data is the caller's, with the rest. */
struct flyt_soft_nccl_inbox *flyt_soft_nccl_link_wait(struct flyt_soft_nccl_link *link,
                                                      const struct flyt_soft_nccl_message *wanted,
                                                      const atomic_bool *aborted, bool ends);
/* Lets the waits look at what they wait for. */
void flyt_soft_nccl_link_wake(struct flyt_soft_nccl_link *link);

#endif
