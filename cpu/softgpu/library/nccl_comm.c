/* NCCL's communicators on the software GPU. */
#include "cpu/softgpu/library/nccl_comm.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cpu/softgpu/driver/work.h"

typedef struct flyt_soft_nccl_comm *comm_t;

FLYT_SOFT_NCCL int ncclGetVersion(int *version);
FLYT_SOFT_NCCL int ncclGetVersion(int *version)
{
    if (!version)
        return NCCL_INVALID_ARGUMENT;
    *version = 22809;
    return NCCL_SUCCESS;
}

FLYT_SOFT_NCCL int ncclGetUniqueId(struct flyt_soft_nccl_id *ret_id);
FLYT_SOFT_NCCL int ncclGetUniqueId(struct flyt_soft_nccl_id *ret_id)
{
    return ret_id ? flyt_soft_nccl_hub_new(ret_id) : NCCL_INVALID_ARGUMENT;
}

/* ---- making ---- */

static void comm_free(comm_t comm)
{
    free(comm->sent);
    free(comm->received);
    free(comm);
}

/* In the current context. NULL: there is none, or no memory. */
static comm_t comm_new(int ranks)
{
    comm_t comm = calloc(1, sizeof(*comm));

    if (!comm)
        return NULL;
    comm->sent = calloc((size_t)ranks, sizeof(*comm->sent));
    comm->received = calloc((size_t)ranks, sizeof(*comm->received));
    comm->ranks = ranks;
    if (!comm->sent || !comm->received || cuCtxGetCurrent(&comm->ctx) != CUDA_SUCCESS || !comm->ctx ||
        cuCtxGetDevice(&comm->device) != CUDA_SUCCESS) {
        comm_free(comm);
        return NULL;
    }
    return comm;
}

static int begin_join(struct flyt_soft_nccl_task *task)
{
    comm_t comm = task->comm;

    comm->link = flyt_soft_nccl_link_open(&task->id);
    if (!comm->link)
        return NCCL_SYSTEM_ERROR;
    task->message.bytes = sizeof(task->id.secret);
    flyt_soft_nccl_link_send(comm->link, &task->message, task->id.secret);
    return NCCL_SUCCESS;
}

int flyt_soft_nccl_task_begin(struct flyt_soft_nccl_task *task)
{
    if (task->message.kind == MESSAGE_JOIN)
        return begin_join(task);
    task->message.comm = task->comm->number;
    task->message.sequence = ++task->comm->sequence;
    flyt_soft_nccl_link_send(task->comm->link, &task->message, NULL);
    return NCCL_SUCCESS;
}

/* The child that the hub has made. */
static int make_child(struct flyt_soft_nccl_task *task, const struct flyt_soft_nccl_message *result)
{
    CUcontext before;
    comm_t child = NULL;

    *task->ret_comm = NULL;
    if (result->status || !result->ranks)
        return result->status;
    if (cuCtxGetCurrent(&before) == CUDA_SUCCESS && cuCtxSetCurrent(task->comm->ctx) == CUDA_SUCCESS) {
        child = comm_new(result->ranks);
        (void)cuCtxSetCurrent(before);
    }
    if (!child)
        return NCCL_SYSTEM_ERROR;
    child->number = (uint32_t)result->root;
    child->rank = result->rank;
    child->link = flyt_soft_nccl_link_ref(task->comm->link);
    *task->ret_comm = child;
    return NCCL_SUCCESS;
}

int flyt_soft_nccl_task_finish(struct flyt_soft_nccl_task *task)
{
    comm_t comm = task->comm;
    struct flyt_soft_nccl_message wanted = {
        .kind = MESSAGE_RESULT, .comm = comm->number, .sequence = task->message.sequence};
    struct flyt_soft_nccl_inbox *answer =
        comm->link ? flyt_soft_nccl_link_wait(comm->link, &wanted, &comm->is_aborted, true) : NULL;
    int status = answer ? answer->message.status : NCCL_REMOTE_ERROR;

    if (answer && task->message.kind == MESSAGE_SPLIT)
        status = make_child(task, &answer->message);
    if (answer)
        free(answer->data);
    free(answer);
    if (!status || task->message.kind == MESSAGE_SPLIT)
        return status;
    if (comm->link)
        flyt_soft_nccl_link_unref(comm->link, 0, false);
    comm_free(comm);
    *task->ret_comm = NULL;
    return status;
}

FLYT_SOFT_NCCL int ncclCommInitRankConfig(comm_t *comm, int ranks, struct flyt_soft_nccl_id id, int rank, void *config);
FLYT_SOFT_NCCL int ncclCommInitRankConfig(comm_t *comm, int ranks, struct flyt_soft_nccl_id id, int rank, void *config)
{
    struct flyt_soft_nccl_task task = {.ret_comm = comm, .id = id};

    (void)config;
    if (!comm || ranks < 1 || ranks > NCCL_RANKS_MAX || rank < 0 || rank >= ranks)
        return NCCL_INVALID_ARGUMENT;
    task.comm = *comm = comm_new(ranks);
    if (!task.comm)
        return NCCL_CUDA_ERROR;
    task.comm->rank = rank;
    task.message = (struct flyt_soft_nccl_message){.kind = MESSAGE_JOIN, .rank = rank, .ranks = ranks};
    return flyt_soft_nccl_add_task(&task);
}

FLYT_SOFT_NCCL int ncclCommInitRank(comm_t *comm, int ranks, struct flyt_soft_nccl_id id, int rank);
FLYT_SOFT_NCCL int ncclCommInitRank(comm_t *comm, int ranks, struct flyt_soft_nccl_id id, int rank)
{
    return ncclCommInitRankConfig(comm, ranks, id, rank, NULL);
}

FLYT_SOFT_NCCL int ncclCommInitRankScalable(comm_t *comm, int ranks, int rank, int id_count,
                                            struct flyt_soft_nccl_id *ids, void *config);
FLYT_SOFT_NCCL int ncclCommInitRankScalable(comm_t *comm, int ranks, int rank, int id_count,
                                            struct flyt_soft_nccl_id *ids, void *config)
{
    return id_count > 0 && ids ? ncclCommInitRankConfig(comm, ranks, ids[0], rank, config) : NCCL_INVALID_ARGUMENT;
}

FLYT_SOFT_NCCL int ncclCommSplit(comm_t comm, int color, int key, comm_t *ret_comm, void *config);
FLYT_SOFT_NCCL int ncclCommSplit(comm_t comm, int color, int key, comm_t *ret_comm, void *config)
{
    (void)config;
    if (!comm || !ret_comm || color < -1)
        return NCCL_INVALID_ARGUMENT;
    return flyt_soft_nccl_add_task(&(struct flyt_soft_nccl_task){
        .comm = comm,
        .ret_comm = ret_comm,
        .message = {.kind = MESSAGE_SPLIT, .rank = comm->rank, .root = color, .op = key}});
}

/* ---- ending ---- */

/* Until the works of its streams have let go of it. */
static void wait_for_works(comm_t comm)
{
    while (atomic_load(&comm->pending))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

FLYT_SOFT_NCCL int ncclCommFinalize(comm_t comm);
FLYT_SOFT_NCCL int ncclCommFinalize(comm_t comm)
{
    if (!comm)
        return NCCL_INVALID_ARGUMENT;
    wait_for_works(comm);
    return NCCL_SUCCESS;
}

FLYT_SOFT_NCCL int ncclCommDestroy(comm_t comm);
FLYT_SOFT_NCCL int ncclCommDestroy(comm_t comm)
{
    if (!comm)
        return NCCL_SUCCESS;
    wait_for_works(comm);
    flyt_soft_nccl_link_unref(comm->link, comm->number, true);
    comm_free(comm);
    return NCCL_SUCCESS;
}

FLYT_SOFT_NCCL int ncclCommAbort(comm_t comm);
FLYT_SOFT_NCCL int ncclCommAbort(comm_t comm)
{
    if (!comm)
        return NCCL_SUCCESS;
    atomic_store(&comm->is_aborted, true);
    flyt_soft_nccl_link_wake(comm->link);
    wait_for_works(comm);
    flyt_soft_nccl_link_unref(comm->link, comm->number, false);
    comm_free(comm);
    return NCCL_SUCCESS;
}

/* ---- asking ---- */

FLYT_SOFT_NCCL int ncclCommGetAsyncError(comm_t comm, int *ret_error);
FLYT_SOFT_NCCL int ncclCommGetAsyncError(comm_t comm, int *ret_error)
{
    if (!comm || !ret_error)
        return NCCL_INVALID_ARGUMENT;
    *ret_error = atomic_load(&comm->status);
    if (!*ret_error && flyt_soft_nccl_link_has_lost(comm->link, comm->number))
        *ret_error = NCCL_REMOTE_ERROR;
    return NCCL_SUCCESS;
}

FLYT_SOFT_NCCL const char *ncclGetLastError(comm_t comm);
FLYT_SOFT_NCCL const char *ncclGetLastError(comm_t comm)
{
    int error = NCCL_SUCCESS;

    if (comm)
        (void)ncclCommGetAsyncError(comm, &error);
    return error == NCCL_REMOTE_ERROR ? "another rank of the communicator has ended" : "";
}

#define TELLS(name, field)                                                                                             \
    FLYT_SOFT_NCCL int name(comm_t comm, int *ret);                                                                    \
    FLYT_SOFT_NCCL int name(comm_t comm, int *ret)                                                                     \
    {                                                                                                                  \
        if (!comm || !ret)                                                                                             \
            return NCCL_INVALID_ARGUMENT;                                                                              \
        *ret = comm->field;                                                                                            \
        return NCCL_SUCCESS;                                                                                           \
    }

TELLS(ncclCommCount, ranks)
TELLS(ncclCommUserRank, rank)
TELLS(ncclCommCuDevice, device)

/* ---- operators ---- */

FLYT_SOFT_NCCL int ncclRedOpCreatePreMulSum(int *ret_op, void *scalar, int type, int residence, comm_t comm);
FLYT_SOFT_NCCL int ncclRedOpCreatePreMulSum(int *ret_op, void *scalar, int type, int residence, comm_t comm)
{
    size_t bytes = flyt_soft_nccl_type_bytes(type);

    if (!ret_op || !scalar || !bytes || residence < 0 || residence > 1 || !comm)
        return NCCL_INVALID_ARGUMENT;
    for (int i = 0; i < NCCL_USER_OPS_MAX; i++) {
        if (comm->user_ops[i].is_used)
            continue;
        comm->user_ops[i].is_used = true;
        comm->user_ops[i].is_on_device = residence == 0;
        comm->user_ops[i].type = type;
        comm->user_ops[i].address = scalar;
        if (residence)
            memcpy(comm->user_ops[i].value, scalar, bytes);
        *ret_op = NCCL_OPS + i;
        return NCCL_SUCCESS;
    }
    return NCCL_INTERNAL_ERROR;
}

FLYT_SOFT_NCCL int ncclRedOpDestroy(int op, comm_t comm);
FLYT_SOFT_NCCL int ncclRedOpDestroy(int op, comm_t comm)
{
    int place = op - NCCL_OPS;

    if (!comm || place < 0 || place >= NCCL_USER_OPS_MAX || !comm->user_ops[place].is_used)
        return NCCL_INVALID_ARGUMENT;
    comm->user_ops[place].is_used = false;
    return NCCL_SUCCESS;
}

/* ---- buffers that are registered: all are as fast, so that it is counted which ones are ---- */

FLYT_SOFT_NCCL int ncclCommRegister(comm_t comm, void *buffer, size_t bytes, void **ret_handle);
FLYT_SOFT_NCCL int ncclCommRegister(comm_t comm, void *buffer, size_t bytes, void **ret_handle)
{
    if (!comm || !bytes || !ret_handle || !flyt_soft_work_reaches(buffer, bytes))
        return NCCL_INVALID_ARGUMENT;
    for (int i = 0; i < NCCL_BUFFERS_MAX; i++) {
        if (comm->buffers[i])
            continue;
        comm->buffers[i] = buffer;
        *ret_handle = &comm->buffers[i];
        return NCCL_SUCCESS;
    }
    return NCCL_SYSTEM_ERROR;
}

FLYT_SOFT_NCCL int ncclCommDeregister(comm_t comm, void *handle);
FLYT_SOFT_NCCL int ncclCommDeregister(comm_t comm, void *handle)
{
    for (int i = 0; comm && i < NCCL_BUFFERS_MAX; i++) {
        if (handle != &comm->buffers[i] || !comm->buffers[i])
            continue;
        comm->buffers[i] = NULL;
        return NCCL_SUCCESS;
    }
    return NCCL_INVALID_ARGUMENT;
}
