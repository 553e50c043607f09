/* A communicator of the software NCCL, and groups: what a thread has begun and not yet ended. */
#ifndef FLYT_SOFTGPU_LIBRARY_NCCL_COMM_H
#define FLYT_SOFTGPU_LIBRARY_NCCL_COMM_H

#include <cuda.h>

#include "cpu/softgpu/library/nccl_link.h"

#define FLYT_SOFT_NCCL __attribute__((visibility("default")))

enum { NCCL_USER_OPS_MAX = 64, NCCL_BUFFERS_MAX = 64 };

struct flyt_soft_nccl_comm {
    struct flyt_soft_nccl_link *link;
    CUcontext ctx;
    CUdevice device;
    uint32_t number;
    int rank, ranks;
    /* What it has begun, in the order of its calls: */
    uint64_t sequence, *sent, *received; /* of collective operations; of messages to and from each rank */
    atomic_bool is_aborted;
    atomic_int status;   /* an asynchronous error */
    atomic_uint pending; /* works in streams */
    struct {
        bool is_used, is_on_device;
        int type;
        const void *address;
        unsigned char value[8];
    } user_ops[NCCL_USER_OPS_MAX];
    const void *buffers[NCCL_BUFFERS_MAX]; /* that are registered; NULL: a free place */
};

/* What a group does with a communicator when it ends: first all of them begin, then all are awaited. */
struct flyt_soft_nccl_task {
    struct flyt_soft_nccl_comm *comm, **ret_comm; /* ret_comm: of a split */
    struct flyt_soft_nccl_message message;        /* MESSAGE_JOIN or MESSAGE_SPLIT */
    struct flyt_soft_nccl_id id;
};

struct flyt_soft_nccl_op {
    struct flyt_soft_nccl_comm *comm;
    CUstream stream;
    int function, type, op, peer;
    size_t count;
    const void *send;
    void *receive;
    uint64_t sequence; /* given when the group ends */
};

/* Both are kept in the calling thread's group, which ends at once where none has begun. */
int flyt_soft_nccl_add_task(const struct flyt_soft_nccl_task *task);
int flyt_soft_nccl_add_op(const struct flyt_soft_nccl_op *op);
/* Begins a task; and awaits it. */
int flyt_soft_nccl_task_begin(struct flyt_soft_nccl_task *task);
int flyt_soft_nccl_task_finish(struct flyt_soft_nccl_task *task);
/* Gives `count` operations to a stream, as one work. */
int flyt_soft_nccl_push(const struct flyt_soft_nccl_op *ops, unsigned count);

FLYT_SOFT_NCCL int ncclGroupStart(void);
FLYT_SOFT_NCCL int ncclGroupEnd(void);

#endif
