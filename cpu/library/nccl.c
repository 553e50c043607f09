/* NCCL's operations, which are parts of groups, and what the client answers by itself: versions, texts, memory. */
#include "cpu/library/nccl_kin.h"

#include <limits.h>
#include <stdatomic.h>
#include <string.h>

#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/memory.h"

enum { VERSION = 22809 };

FLYT_LIB_ENTRY int ncclGetVersion(int *version)
{
    if (!version)
        return NCCL_ARGUMENT;
    *version = VERSION;
    return NCCL_SUCCESS;
}

FLYT_LIB_ENTRY const char *ncclGetErrorString(int result)
{
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
                                        "unhandled system error (run with NCCL_DEBUG=INFO for details)",
                                        "internal error - please report this issue to the NCCL developers",
                                        "invalid argument (run with NCCL_DEBUG=WARN for details)",
                                        "invalid usage (run with NCCL_DEBUG=WARN for details)",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return result >= 0 && result < (int)(sizeof texts / sizeof texts[0]) ? texts[result] : "unknown result code";
}

FLYT_LIB_ENTRY void ncclResetDebugInit(void)
{
}

/* ---- memory ---- */

FLYT_LIB_ENTRY int ncclMemAlloc(void **ptr, size_t size)
{
    CUdeviceptr address;
    if (!ptr || !size)
        return NCCL_ARGUMENT;
    CUresult result = flyt_runtime_enter();
    if (!result)
        result = flyt_memory_alloc(size, &address);
    if (result)
        return result == CUDA_ERROR_OUT_OF_MEMORY ? flyt_lib_nccl.memory : 1; /* ncclUnhandledCudaError */
    *ptr = (void *)(uintptr_t)address;
    return NCCL_SUCCESS;
}

FLYT_LIB_ENTRY int ncclMemFree(void *ptr)
{
    CUresult result = flyt_runtime_enter();
    if (!result && ptr)
        result = flyt_memory_free((CUdeviceptr)(uintptr_t)ptr);
    return result ? NCCL_ARGUMENT : NCCL_SUCCESS;
}

/* ---- buffers that are registered ---- */

/* Numbers of what communicators are given, which another server knows by them, too. */
static _Atomic uint64_t given_count;

static void note_buffer(struct flyt_lib_call *call, int status)
{
    struct flyt_args_ncclCommRegister *sent = call->arguments;
    const uint64_t *handle = call->note_user;
    if (!status && *handle)
        flyt_nccl_keep(sent->comm, call->row, sent->number, sent, sizeof *sent);
}

FLYT_LIB_ENTRY int ncclCommRegister(void *comm, void *buff, size_t size, void **handle)
{
    struct flyt_args_ncclCommRegister sent;
    struct flyt_lib_call call = {
        .row = &flyt_lib_row_ncclCommRegister, .arguments = &sent, .note = note_buffer, .note_user = handle};
    if (!flyt_nccl_comm(comm) || !buff || !size || !handle)
        return NCCL_ARGUMENT;
    memset(&sent, 0, sizeof sent);
    sent.comm = (uint64_t)(uintptr_t)comm;
    sent.buffer = (uint64_t)(uintptr_t)buff;
    sent.bytes = size;
    sent.number = atomic_fetch_add(&given_count, 1) + 1;
    flyt_lib_begin(&call);
    sent.handle_bytes = flyt_lib_out(&call, handle, sizeof *handle, false);
    return flyt_lib_finish(&call);
}

static void note_buffer_end(struct flyt_lib_call *call, int status)
{
    const struct flyt_args_ncclCommDeregister *sent = call->arguments;
    if (!status)
        flyt_nccl_let_go(sent->comm, &flyt_lib_row_ncclCommRegister, sent->handle);
}

FLYT_LIB_ENTRY int ncclCommDeregister(void *comm, void *handle)
{
    struct flyt_args_ncclCommDeregister sent = {.comm = (uint64_t)(uintptr_t)comm,
                                                .handle = (uint64_t)(uintptr_t)handle};
    struct flyt_lib_call call = {.row = &flyt_lib_row_ncclCommDeregister, .arguments = &sent, .note = note_buffer_end};
    if (!flyt_nccl_comm(comm))
        return NCCL_ARGUMENT;
    if (flyt_nccl_has_lost(sent.comm, &flyt_lib_row_ncclCommRegister, sent.handle)) {
        flyt_nccl_let_go(sent.comm, &flyt_lib_row_ncclCommRegister, sent.handle);
        return NCCL_SUCCESS;
    }
    flyt_lib_begin(&call);
    return flyt_lib_finish(&call);
}

/* ---- operations ---- */

static int operate(enum flyt_nccl_function function, const void *send, void *receive, size_t count, int type, int op,
                   int peer, void *comm, void *stream)
{
    struct flyt_nccl_op one = {.function = function,
                               .type = type,
                               .op = op,
                               .peer = peer,
                               .count = count,
                               .send = (uint64_t)(uintptr_t)send,
                               .receive = (uint64_t)(uintptr_t)receive};
    return flyt_nccl_add_op(&one, comm, stream);
}

FLYT_LIB_ENTRY int ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count, int datatype, int op, void *comm,
                                 void *stream)
{
    return operate(FLYT_NCCL_ALL_REDUCE, sendbuff, recvbuff, count, datatype, op, 0, comm, stream);
}

FLYT_LIB_ENTRY int ncclReduce(const void *sendbuff, void *recvbuff, size_t count, int datatype, int op, int root,
                              void *comm, void *stream)
{
    return operate(FLYT_NCCL_REDUCE, sendbuff, recvbuff, count, datatype, op, root, comm, stream);
}

FLYT_LIB_ENTRY int ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count, int datatype, int root, void *comm,
                                 void *stream)
{
    return operate(FLYT_NCCL_BROADCAST, sendbuff, recvbuff, count, datatype, 0, root, comm, stream);
}

FLYT_LIB_ENTRY int ncclBcast(void *buff, size_t count, int datatype, int root, void *comm, void *stream)
{
    return operate(FLYT_NCCL_BROADCAST, buff, buff, count, datatype, 0, root, comm, stream);
}

FLYT_LIB_ENTRY int ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount, int datatype, void *comm,
                                 void *stream)
{
    return operate(FLYT_NCCL_ALL_GATHER, sendbuff, recvbuff, sendcount, datatype, 0, 0, comm, stream);
}

FLYT_LIB_ENTRY int ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount, int datatype, int op,
                                     void *comm, void *stream)
{
    return operate(FLYT_NCCL_REDUCE_SCATTER, sendbuff, recvbuff, recvcount, datatype, op, 0, comm, stream);
}

FLYT_LIB_ENTRY int ncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count, int datatype, void *comm,
                                void *stream)
{
    return operate(FLYT_NCCL_ALL_TO_ALL, sendbuff, recvbuff, count, datatype, 0, 0, comm, stream);
}

FLYT_LIB_ENTRY int ncclGather(const void *sendbuff, void *recvbuff, size_t count, int datatype, int root, void *comm,
                              void *stream)
{
    return operate(FLYT_NCCL_GATHER, sendbuff, recvbuff, count, datatype, 0, root, comm, stream);
}

FLYT_LIB_ENTRY int ncclScatter(const void *sendbuff, void *recvbuff, size_t count, int datatype, int root, void *comm,
                               void *stream)
{
    return operate(FLYT_NCCL_SCATTER, sendbuff, recvbuff, count, datatype, 0, root, comm, stream);
}

FLYT_LIB_ENTRY int ncclSend(const void *sendbuff, size_t count, int datatype, int peer, void *comm, void *stream)
{
    return operate(FLYT_NCCL_SEND, sendbuff, NULL, count, datatype, 0, peer, comm, stream);
}

FLYT_LIB_ENTRY int ncclRecv(void *recvbuff, size_t count, int datatype, int peer, void *comm, void *stream)
{
    return operate(FLYT_NCCL_RECV, NULL, recvbuff, count, datatype, 0, peer, comm, stream);
}

/* ---- operators of the program's ---- */

/* What travels of one, with its scalar where that lies in host memory. */
struct sent_operator {
    struct flyt_args_ncclRedOpCreatePreMulSum args;
    unsigned char scalar[8] FLYT_LIB_ALIGNED;
};
_Static_assert(offsetof(struct sent_operator, scalar) - sizeof(struct flyt_args_ncclRedOpCreatePreMulSum) <
                   FLYT_LIB_ALIGN,
               "as the call has it");

/* Negative: there are none left. */
static int next_operator(void)
{
    uint64_t number = FLYT_NCCL_OPS_BUILT_IN + atomic_fetch_add(&given_count, 1);
    return number <= INT_MAX ? (int)number : -1;
}

static void note_operator(struct flyt_lib_call *call, int status)
{
    const struct sent_operator *sent = call->arguments;
    size_t bytes = sent->args.scalar_bytes ? sizeof *sent : offsetof(struct sent_operator, scalar);
    if (!status)
        flyt_nccl_keep(sent->args.comm, call->row, (uint64_t)sent->args.op, sent, bytes);
}

FLYT_LIB_ENTRY int ncclRedOpCreatePreMulSum(int *op, void *scalar, int datatype, int residence, void *comm)
{
    struct sent_operator sent;
    size_t bytes = flyt_nccl_type_bytes(datatype);
    bool is_on_host = residence == 1; /* ncclScalarHostImmediate */
    if (!op || !scalar || !bytes || !flyt_nccl_comm(comm))
        return flyt_nccl_fail(NCCL_ARGUMENT);
    memset(&sent, 0, sizeof sent);
    struct flyt_lib_call call = {
        .row = &flyt_lib_row_ncclRedOpCreatePreMulSum, .arguments = &sent, .note = note_operator};
    if (is_on_host)
        memcpy(sent.scalar, scalar, bytes);
    flyt_lib_begin(&call);
    sent.args.comm = (uint64_t)(uintptr_t)comm;
    sent.args.datatype = datatype;
    sent.args.residence = residence;
    sent.args.address = is_on_host ? 0 : (uint64_t)(uintptr_t)scalar;
    sent.args.op = next_operator();
    if (sent.args.op < 0)
        return flyt_nccl_fail(flyt_lib_nccl.memory);
    sent.args.scalar_bytes = flyt_lib_in(&call, is_on_host ? sent.scalar : NULL, bytes, true);
    int status = flyt_lib_finish(&call);
    if (!status)
        *op = sent.args.op;
    return status;
}

static void note_operator_end(struct flyt_lib_call *call, int status)
{
    const struct flyt_args_ncclRedOpDestroy *sent = call->arguments;
    if (!status)
        flyt_nccl_let_go(sent->comm, &flyt_lib_row_ncclRedOpCreatePreMulSum, (uint64_t)sent->op);
}

FLYT_LIB_ENTRY int ncclRedOpDestroy(int op, void *comm)
{
    struct flyt_args_ncclRedOpDestroy sent = {.comm = (uint64_t)(uintptr_t)comm, .op = op};
    struct flyt_lib_call call = {.row = &flyt_lib_row_ncclRedOpDestroy, .arguments = &sent, .note = note_operator_end};
    if (!flyt_nccl_comm(comm))
        return flyt_nccl_fail(NCCL_ARGUMENT);
    flyt_lib_begin(&call);
    return flyt_lib_finish(&call);
}
