/*
 * NCCL on the software GPU. A unique id names a socket of the process that made it, where a hub (nccl_hub.c) serves the
 * communicators that begin there: each rank has a connection, whether it is in that process or in another one. What a
 * rank has for a collective operation goes to the hub, which computes when all have come, and sends each rank what it
 * gets. A message from rank to rank goes through the hub, too.
 *
 * Operations are work of their streams, which waits for the hub's answer. A connection that ends is told by the
 * communicator's asynchronous error, and the work waits until the communicator is aborted, as NCCL's does.
 */
#ifndef FLYT_SOFTGPU_LIBRARY_NCCL_H
#define FLYT_SOFTGPU_LIBRARY_NCCL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ncclResult_t, ncclRedOp_t and ncclDataType_t, as NVIDIA declares them. */
enum {
    NCCL_SUCCESS,
    NCCL_CUDA_ERROR,
    NCCL_SYSTEM_ERROR,
    NCCL_INTERNAL_ERROR,
    NCCL_INVALID_ARGUMENT,
    NCCL_INVALID_USAGE,
    NCCL_REMOTE_ERROR
};
enum { NCCL_SUM, NCCL_PROD, NCCL_MAX, NCCL_MIN, NCCL_AVG, NCCL_OPS };
enum { NCCL_TYPES = 12, NCCL_RANKS_MAX = 256 };

enum flyt_soft_nccl_function {
    ALL_REDUCE,
    REDUCE,
    BROADCAST,
    ALL_GATHER,
    REDUCE_SCATTER,
    ALL_TO_ALL,
    GATHER,
    SCATTER,
    SEND,
    RECV
};

struct flyt_soft_nccl_id {
    char name[32]; /* of the socket, in the abstract namespace; a sign of ours begins it */
    unsigned char secret[32];
    char rest[64];
};

enum flyt_soft_nccl_kind {
    MESSAGE_JOIN,    /* to the hub: rank, ranks, the secret as bytes. Answered by MESSAGE_RESULT when all ranks have */
    MESSAGE_COLLECT, /* to the hub: what a rank has for a collective operation. Answered likewise */
    MESSAGE_SPLIT,   /* to the hub: color and key in `root` and `op`. Answered likewise: comm, rank, ranks */
    MESSAGE_RESULT,
    MESSAGE_DIRECT, /* to the hub, and from there to rank `root`, which gets the sender in its place */
    MESSAGE_LEAVE,  /* to the hub: the rank's end is no failure */
    MESSAGE_LOST    /* from the hub: another rank has failed */
};

/* What a message begins with; `bytes` bytes follow. `sequence` tells apart what a communicator does. */
struct flyt_soft_nccl_message {
    uint32_t kind, comm;
    uint64_t sequence, bytes, count;
    int32_t rank, ranks, function, type, op, root, status, reserved;
};

/* Makes a hub and its id. ncclResult_t. */
int flyt_soft_nccl_hub_new(struct flyt_soft_nccl_id *ret_id);
/* A connection to the hub of an id; negative: there is none. */
int flyt_soft_nccl_hub_connect(const struct flyt_soft_nccl_id *id);

/* Whole messages. false: the connection has ended. */
bool flyt_soft_nccl_write(int fd, const struct flyt_soft_nccl_message *message, const void *data);
/* *ret_data is the caller's, NULL for none. */
bool flyt_soft_nccl_read(int fd, struct flyt_soft_nccl_message *ret_message, void **ret_data);

/* Bytes of a number; 0: unknown. */
size_t flyt_soft_nccl_type_bytes(int type);
/* into = into OP from, number by number; the average is a sum until the end. */
void flyt_soft_nccl_combine(int type, int op, void *into, const void *from, size_t count);
/* Divides each number by `by`, integers towards 0. */
void flyt_soft_nccl_divide(int type, void *numbers, size_t count, int by);
/* Multiplies each number by the one at `factor`. */
void flyt_soft_nccl_scale(int type, void *numbers, size_t count, const void *factor);

#endif
