/* NCCL's operations on the software GPU, and groups of them. */
#include <stdlib.h>
#include <string.h>

#include "cpu/softgpu/driver/work.h"
#include "cpu/softgpu/library/nccl_comm.h"

typedef struct flyt_soft_nccl_comm *comm_t;
typedef struct flyt_soft_nccl_op op_t;

/* ---- what a stream does ---- */

struct work {
    unsigned count;
    struct {
        op_t op;
        unsigned char factor[8]; /* of an operator of the program's */
        bool has_factor;
    } * ops;
};

/* How many times its count an operation reads and writes on this rank. */
static size_t parts_read(const op_t *op)
{
    bool is_root = op->peer == op->comm->rank;

    switch ((enum flyt_soft_nccl_function)op->function) {
    case BROADCAST:
        return is_root;
    case SCATTER:
        return is_root ? (size_t)op->comm->ranks : 0;
    case REDUCE_SCATTER:
    case ALL_TO_ALL:
        return (size_t)op->comm->ranks;
    case RECV:
        return 0;
    default:
        return 1;
    }
}

static size_t parts_written(const op_t *op)
{
    bool is_root = op->peer == op->comm->rank;

    switch ((enum flyt_soft_nccl_function)op->function) {
    case REDUCE:
        return is_root;
    case GATHER:
        return is_root ? (size_t)op->comm->ranks : 0;
    case ALL_GATHER:
    case ALL_TO_ALL:
        return (size_t)op->comm->ranks;
    case SEND:
        return 0;
    default:
        return 1;
    }
}

static bool is_collective(const op_t *op)
{
    return op->function < SEND;
}

static struct flyt_soft_nccl_message message_of(const op_t *op, size_t bytes, bool has_factor)
{
    return (struct flyt_soft_nccl_message){.kind = is_collective(op) ? MESSAGE_COLLECT : MESSAGE_DIRECT,
                                           .comm = op->comm->number,
                                           .sequence = op->sequence,
                                           .bytes = bytes,
                                           .count = op->count,
                                           .rank = op->comm->rank,
                                           .function = op->function,
                                           .type = op->type,
                                           .op = has_factor ? NCCL_SUM : op->op,
                                           .root = op->peer};
}

/* Sends what this rank has for it. */
static CUresult begin(const op_t *op, const void *factor)
{
    size_t numbers = parts_read(op) * op->count, bytes = numbers * flyt_soft_nccl_type_bytes(op->type);
    struct flyt_soft_nccl_message message = message_of(op, bytes, factor);
    void *scaled = NULL;

    if (op->function == RECV)
        return CUDA_SUCCESS;
    if (!flyt_soft_work_reaches(op->send, bytes))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    if (factor && bytes) {
        scaled = malloc(bytes);
        if (!scaled)
            return CUDA_ERROR_OUT_OF_MEMORY;
        memcpy(scaled, op->send, bytes);
        flyt_soft_nccl_scale(op->type, scaled, numbers, factor);
    }
    flyt_soft_nccl_link_send(op->comm->link, &message, scaled ? scaled : op->send);
    free(scaled);
    return CUDA_SUCCESS;
}

/* Waits for what it gets. Where the communicator is aborted nothing comes. */
static CUresult finish(const op_t *op)
{
    size_t bytes = parts_written(op) * op->count * flyt_soft_nccl_type_bytes(op->type);
    struct flyt_soft_nccl_message wanted = {.kind = is_collective(op) ? MESSAGE_RESULT : MESSAGE_DIRECT,
                                            .comm = op->comm->number,
                                            .sequence = op->sequence,
                                            .root = op->peer};
    CUresult result = CUDA_SUCCESS;

    if (op->function == SEND)
        return CUDA_SUCCESS;
    struct flyt_soft_nccl_inbox *answer =
        flyt_soft_nccl_link_wait(op->comm->link, &wanted, &op->comm->is_aborted, false);
    if (!answer)
        return CUDA_SUCCESS;
    if (answer->message.status || answer->message.bytes != bytes)
        atomic_store(&op->comm->status, answer->message.status ? answer->message.status : NCCL_INVALID_USAGE);
    else if (!flyt_soft_work_reaches(op->receive, bytes))
        result = CUDA_ERROR_ILLEGAL_ADDRESS;
    else if (bytes)
        memcpy(op->receive, answer->data, bytes);
    free(answer->data);
    free(answer);
    return result;
}

/* First all send, then all wait: messages in both directions do not wait for each other. */
static CUresult run(void *record)
{
    const struct work *work = record;
    CUresult result = CUDA_SUCCESS;

    for (unsigned i = 0; i < work->count && result == CUDA_SUCCESS; i++) {
        const op_t *op = &work->ops[i].op;
        bool is_user = op->op >= NCCL_OPS, is_at_hand = work->ops[i].has_factor;
        const void *place =
            is_at_hand ? work->ops[i].factor : op->comm->user_ops[is_user ? op->op - NCCL_OPS : 0].address;

        if (is_user && !is_at_hand && !flyt_soft_work_reaches(place, flyt_soft_nccl_type_bytes(op->type)))
            result = CUDA_ERROR_ILLEGAL_ADDRESS;
        else
            result = begin(op, is_user ? place : NULL);
    }
    for (unsigned i = 0; i < work->count && result == CUDA_SUCCESS; i++)
        result = finish(&work->ops[i].op);
    return result;
}

static void end_work(void *record)
{
    struct work *work = record;

    for (unsigned i = 0; i < work->count; i++)
        atomic_fetch_sub(&work->ops[i].op.comm->pending, 1);
    free(work->ops);
}

static CUresult push_in(CUcontext ctx, CUstream stream, const struct work *work)
{
    CUresult result = cuCtxPushCurrent(ctx);

    if (result != CUDA_SUCCESS)
        return result;
    result = flyt_soft_work_push(stream, run, end_work, work, sizeof(*work));
    (void)cuCtxPopCurrent(NULL);
    return result;
}

int flyt_soft_nccl_push(const op_t *ops, unsigned count)
{
    struct work work = {.count = count, .ops = calloc(count, sizeof(*work.ops))};

    if (!work.ops)
        return NCCL_SYSTEM_ERROR;
    for (unsigned i = 0; i < count; i++) {
        int place = ops[i].op - NCCL_OPS;

        work.ops[i].op = ops[i];
        atomic_fetch_add(&ops[i].comm->pending, 1);
        if (place < 0 || ops[i].comm->user_ops[place].is_on_device)
            continue;
        work.ops[i].has_factor = true;
        memcpy(work.ops[i].factor, ops[i].comm->user_ops[place].value, sizeof(work.ops[i].factor));
    }
    if (push_in(ops->comm->ctx, ops->stream, &work) == CUDA_SUCCESS)
        return NCCL_SUCCESS;
    end_work(&work);
    return NCCL_CUDA_ERROR;
}

/* ---- groups ---- */

enum { TASKS_MAX = 256, OPS_MAX = 1024 };

static _Thread_local struct {
    unsigned depth, task_count, op_count;
    int status;
    struct flyt_soft_nccl_task *tasks;
    op_t *ops;
} group;

FLYT_SOFT_NCCL int ncclGroupStart(void)
{
    group.depth++;
    return NCCL_SUCCESS;
}

static int note(int status)
{
    if (!group.status)
        group.status = status;
    return status;
}

int flyt_soft_nccl_add_task(const struct flyt_soft_nccl_task *task)
{
    if (!group.tasks)
        group.tasks = calloc(TASKS_MAX, sizeof(*group.tasks));
    if (!group.tasks || group.task_count == TASKS_MAX)
        return note(NCCL_SYSTEM_ERROR);
    (void)ncclGroupStart();
    group.tasks[group.task_count++] = *task;
    return ncclGroupEnd();
}

int flyt_soft_nccl_add_op(const op_t *op)
{
    if (!group.ops)
        group.ops = calloc(OPS_MAX, sizeof(*group.ops));
    if (!group.ops || group.op_count == OPS_MAX)
        return note(NCCL_SYSTEM_ERROR);
    (void)ncclGroupStart();
    group.ops[group.op_count++] = *op;
    return ncclGroupEnd();
}

static int do_tasks(void)
{
    int status = NCCL_SUCCESS;

    for (unsigned i = 0; i < group.task_count; i++) {
        int one = flyt_soft_nccl_task_begin(&group.tasks[i]);
        status = status ? status : one;
    }
    for (unsigned i = 0; i < group.task_count; i++) {
        int one = flyt_soft_nccl_task_finish(&group.tasks[i]);
        status = status ? status : one;
    }
    return status;
}

/* The numbers by which its ranks tell operations apart, in the order in which they were called. */
static void give_sequences(void)
{
    for (unsigned i = 0; i < group.op_count; i++) {
        op_t *op = &group.ops[i];

        op->sequence = is_collective(op)      ? ++op->comm->sequence
                       : op->function == SEND ? ++op->comm->sent[op->peer]
                                              : ++op->comm->received[op->peer];
    }
}

static int do_ops(void)
{
    op_t *ops = calloc(group.op_count, sizeof(*ops));
    int status = ops ? NCCL_SUCCESS : NCCL_SYSTEM_ERROR;

    give_sequences();
    for (unsigned i = 0; i < group.op_count && !status; i++) {
        unsigned count = 0;
        const op_t first = group.ops[i];

        if (!first.comm)
            continue;
        for (unsigned k = i; k < group.op_count; k++)
            if (group.ops[k].comm && group.ops[k].stream == first.stream && group.ops[k].comm->ctx == first.comm->ctx) {
                ops[count++] = group.ops[k];
                group.ops[k].comm = NULL;
            }
        status = flyt_soft_nccl_push(ops, count);
    }
    free(ops);
    return status;
}

FLYT_SOFT_NCCL int ncclGroupEnd(void)
{
    if (!group.depth)
        return NCCL_INVALID_USAGE;
    if (--group.depth)
        return NCCL_SUCCESS;
    int status = group.status;
    if (group.task_count) {
        int done = do_tasks();
        status = status ? status : done;
    }
    if (!status && group.op_count)
        status = do_ops();
    free(group.tasks);
    free(group.ops);
    memset(&group, 0, sizeof(group));
    return status;
}

/* ---- entry points ---- */

static int operate(int function, const void *send, void *receive, size_t count, int type, int op, int peer, comm_t comm,
                   CUstream stream)
{
    int place = op - NCCL_OPS;
    bool is_known = comm && comm->link && flyt_soft_nccl_type_bytes(type) && op >= 0 && peer >= 0 && peer < comm->ranks;

    if (!is_known || place >= NCCL_USER_OPS_MAX ||
        (place >= 0 && (!comm->user_ops[place].is_used || comm->user_ops[place].type != type)))
        return note(NCCL_INVALID_ARGUMENT);
    if (flyt_soft_nccl_link_has_lost(comm->link, comm->number))
        return note(NCCL_REMOTE_ERROR);
    return flyt_soft_nccl_add_op(&(op_t){.comm = comm,
                                         .stream = stream,
                                         .function = function,
                                         .type = type,
                                         .op = op,
                                         .peer = peer,
                                         .count = count,
                                         .send = send,
                                         .receive = receive});
}

#define REDUCES(name, function)                                                                                        \
    FLYT_SOFT_NCCL int name(const void *send, void *receive, size_t count, int type, int op, comm_t comm, CUstream s); \
    FLYT_SOFT_NCCL int name(const void *send, void *receive, size_t count, int type, int op, comm_t comm, CUstream s)  \
    {                                                                                                                  \
        return operate(function, send, receive, count, type, op, 0, comm, s);                                          \
    }
#define MOVES(name, function)                                                                                          \
    FLYT_SOFT_NCCL int name(const void *send, void *receive, size_t count, int type, comm_t comm, CUstream s);         \
    FLYT_SOFT_NCCL int name(const void *send, void *receive, size_t count, int type, comm_t comm, CUstream s)          \
    {                                                                                                                  \
        return operate(function, send, receive, count, type, 0, 0, comm, s);                                           \
    }
#define MOVES_WITH_ROOT(name, function)                                                                                \
    FLYT_SOFT_NCCL int name(const void *send, void *receive, size_t count, int type, int root, comm_t comm,            \
                            CUstream s);                                                                               \
    FLYT_SOFT_NCCL int name(const void *send, void *receive, size_t count, int type, int root, comm_t comm,            \
                            CUstream s)                                                                                \
    {                                                                                                                  \
        return operate(function, send, receive, count, type, 0, root, comm, s);                                        \
    }

REDUCES(ncclAllReduce, ALL_REDUCE)
REDUCES(ncclReduceScatter, REDUCE_SCATTER)
MOVES(ncclAllGather, ALL_GATHER)
MOVES(ncclAlltoAll, ALL_TO_ALL)
MOVES_WITH_ROOT(ncclBroadcast, BROADCAST)
MOVES_WITH_ROOT(ncclGather, GATHER)
MOVES_WITH_ROOT(ncclScatter, SCATTER)

FLYT_SOFT_NCCL int ncclReduce(const void *send, void *receive, size_t count, int type, int op, int root, comm_t comm,
                              CUstream s);
FLYT_SOFT_NCCL int ncclReduce(const void *send, void *receive, size_t count, int type, int op, int root, comm_t comm,
                              CUstream s)
{
    return operate(REDUCE, send, receive, count, type, op, root, comm, s);
}

FLYT_SOFT_NCCL int ncclSend(const void *send, size_t count, int type, int peer, comm_t comm, CUstream s);
FLYT_SOFT_NCCL int ncclSend(const void *send, size_t count, int type, int peer, comm_t comm, CUstream s)
{
    return operate(SEND, send, NULL, count, type, 0, peer, comm, s);
}

FLYT_SOFT_NCCL int ncclRecv(void *receive, size_t count, int type, int peer, comm_t comm, CUstream s);
FLYT_SOFT_NCCL int ncclRecv(void *receive, size_t count, int type, int peer, comm_t comm, CUstream s)
{
    return operate(RECV, NULL, receive, count, type, 0, peer, comm, s);
}
