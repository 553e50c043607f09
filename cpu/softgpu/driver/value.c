/* Memory operations of streams: writes of a value, and waits for one. A wait has a thread of the queue to itself. */
#include <cuda.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cpu/softgpu/driver/driver.h"
#include "cpu/softgpu/driver/memory.h"
#include "cpu/softgpu/driver/queue.h"

enum { OPS_MAX = 256, PAUSE_NS = 50000 };

struct value_op {
    struct flyt_soft_op op;
    struct flyt_soft_device *device;
    unsigned count;
    CUstreamBatchMemOpParams params[];
};

/* The bytes of memory that an operation is about; 0: none. waitValue and writeValue have one layout. */
static unsigned value_bytes(const CUstreamBatchMemOpParams *params)
{
    switch (params->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        return sizeof(uint32_t);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        return sizeof(uint64_t);
    default:
        return 0;
    }
}

static bool is_wait(const CUstreamBatchMemOpParams *params)
{
    return params->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || params->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
}

static bool is_valid(const CUstreamBatchMemOpParams *params)
{
    unsigned bytes = value_bytes(params);

    if (params->operation == CU_STREAM_MEM_OP_BARRIER)
        return params->memoryBarrier.flags <= CU_STREAM_MEMORY_BARRIER_TYPE_GPU;
    if (!bytes || params->writeValue.address % bytes || !flyt_soft_is_device_memory(params->writeValue.address, bytes))
        return false;
    /* CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER is only of the functions before _v2. */
    return params->writeValue.flags <= (is_wait(params) ? (unsigned)CU_STREAM_WAIT_VALUE_NOR : 0);
}

/* ---- execution ---- */

static void write_value(const CUstreamBatchMemOpParams *params)
{
    if (value_bytes(params) == sizeof(uint32_t))
        atomic_store((_Atomic uint32_t *)params->writeValue.address, params->writeValue.value);
    else
        atomic_store((_Atomic uint64_t *)params->writeValue.address, params->writeValue.value64);
}

/* What a wait compares, as 64 bits; a difference of 32 bits keeps its sign. */
static bool is_reached(const CUstreamBatchMemOpParams *params)
{
    bool is_long = value_bytes(params) == sizeof(uint64_t);
    uint64_t mask = is_long ? UINT64_MAX : UINT32_MAX;
    uint64_t wanted = is_long ? params->waitValue.value64 : params->waitValue.value;
    uint64_t there = is_long ? atomic_load((_Atomic uint64_t *)params->waitValue.address)
                             : atomic_load((_Atomic uint32_t *)params->waitValue.address);

    switch (params->waitValue.flags) {
    case CU_STREAM_WAIT_VALUE_GEQ:
        return is_long ? (int64_t)(there - wanted) >= 0 : (int32_t)(uint32_t)(there - wanted) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return there == wanted;
    case CU_STREAM_WAIT_VALUE_AND:
        return (there & wanted) != 0;
    default:
        return (~(there | wanted) & mask) != 0;
    }
}

static CUresult value_run(struct flyt_soft_op *op)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    struct value_op *value = (struct value_op *)op;

    for (unsigned i = 0; i < value->count; i++) {
        const CUstreamBatchMemOpParams *params = &value->params[i];
        unsigned bytes = value_bytes(params);
        do {
            /* Looked at each time: what was mapped may be gone, which on a GPU is a fault. */
            if (bytes && !flyt_soft_is_device_memory(params->writeValue.address, bytes))
                return CUDA_ERROR_ILLEGAL_ADDRESS;
            if (!is_wait(params) || is_reached(params))
                break;
            nanosleep(&pause, NULL);
        } while (atomic_load(&value->device->sticky) == CUDA_SUCCESS);
        if (bytes && !is_wait(params))
            write_value(params);
    }
    return CUDA_SUCCESS;
}

static void value_free(struct flyt_soft_op *op)
{
    free(op);
}

/* ---- the call ---- */

FLYT_SOFT_API cuStreamBatchMemOp(CUstream stream_handle, unsigned int count, CUstreamBatchMemOpParams *params,
                                 unsigned int flags)
{
    struct CUctx_st *ctx;
    struct CUstream_st *stream;
    CUresult r = flyt_soft_enter(&ctx);

    if (r == CUDA_SUCCESS)
        r = flyt_soft_stream_find(ctx, stream_handle, &stream);
    if (r != CUDA_SUCCESS)
        return r;
    if (count >= OPS_MAX || flags || (count && !params))
        return CUDA_ERROR_INVALID_VALUE;
    if (!count)
        return CUDA_SUCCESS;
    for (unsigned i = 0; i < count; i++)
        if (!is_valid(&params[i]))
            return CUDA_ERROR_INVALID_VALUE;
    struct value_op *value = malloc(sizeof(*value) + count * sizeof(*params));
    if (!value)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *value =
        (struct value_op){.op = {.run = value_run, .free = value_free}, .device = stream->ctx->device, .count = count};
    memcpy(value->params, params, count * sizeof(*params));
    flyt_soft_stream_push(stream, &value->op);
    return CUDA_SUCCESS;
}
