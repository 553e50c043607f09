/* NCCL's operations, which are parts of groups, and what the client answers by itself: versions, texts, memory. */
#include "cpu/library/nccl.h"

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

FLYT_LIB_ENTRY int ncclCommRegister(void *comm, void *buff, size_t size, void **handle)
{
    struct flyt_args_ncclCommRegister sent = {
        .comm = (uint64_t)(uintptr_t)comm, .buffer = (uint64_t)(uintptr_t)buff, .bytes = size};
    struct flyt_lib_call call = {.row = &flyt_lib_row_ncclCommRegister, .arguments = &sent};
    if (!flyt_nccl_comm(comm) || !buff || !size || !handle)
        return NCCL_ARGUMENT;
    flyt_lib_begin(&call);
    sent.handle_bytes = flyt_lib_out(&call, handle, sizeof *handle, false);
    return flyt_lib_finish(&call);
}

FLYT_LIB_ENTRY int ncclCommDeregister(void *comm, void *handle)
{
    struct flyt_args_ncclCommDeregister sent = {.comm = (uint64_t)(uintptr_t)comm,
                                                .handle = (uint64_t)(uintptr_t)handle};
    struct flyt_lib_call call = {.row = &flyt_lib_row_ncclCommDeregister, .arguments = &sent};
    if (!flyt_nccl_comm(comm))
        return NCCL_ARGUMENT;
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

FLYT_LIB_ENTRY int ncclRedOpCreatePreMulSum(int *op, void *scalar, int datatype, int residence, void *comm)
{
    struct flyt_args_ncclRedOpCreatePreMulSum sent;
    size_t bytes = flyt_nccl_type_bytes(datatype);
    bool is_on_host = residence == 1; /* ncclScalarHostImmediate */
    if (!op || !scalar || !bytes || !flyt_nccl_comm(comm))
        return flyt_nccl_fail(NCCL_ARGUMENT);
    memset(&sent, 0, sizeof sent);
    struct flyt_lib_call call = {.row = &flyt_lib_row_ncclRedOpCreatePreMulSum, .arguments = &sent};
    flyt_lib_begin(&call);
    sent.comm = (uint64_t)(uintptr_t)comm;
    sent.datatype = datatype;
    sent.residence = residence;
    sent.address = is_on_host ? 0 : (uint64_t)(uintptr_t)scalar;
    sent.scalar_bytes = flyt_lib_in(&call, is_on_host ? scalar : NULL, bytes, true);
    sent.op_bytes = flyt_lib_out(&call, op, sizeof *op, false);
    return flyt_lib_finish(&call);
}

FLYT_LIB_ENTRY int ncclRedOpDestroy(int op, void *comm)
{
    struct flyt_args_ncclRedOpDestroy sent = {.comm = (uint64_t)(uintptr_t)comm, .op = op};
    struct flyt_lib_call call = {.row = &flyt_lib_row_ncclRedOpDestroy, .arguments = &sent};
    if (!flyt_nccl_comm(comm))
        return flyt_nccl_fail(NCCL_ARGUMENT);
    flyt_lib_begin(&call);
    return flyt_lib_finish(&call);
}
