/* Memory operations of streams: writes of a value, and waits for one, which has a thread of the queue to itself; and
 * decompression. */
#include <cuda.h>
#include <lz4.h>
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
        r = flyt_soft_stream_take(ctx, stream_handle, &stream);
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

/* ---- decompression ---- */

/*
 * Decompression of device memory, as GPUs of compute capability 10.0 have an engine for it: LZ4 blocks. Memory must
 * have been made for it (cuMemAlloc, or cuMemCreate with CU_MEM_CREATE_USAGE_HW_DECOMPRESS). What cannot be
 * decompressed, or not into dstNumBytes, has written 0 bytes by its own account, and harms nothing else.
 */
struct decompress_op {
    struct flyt_soft_op op;
    size_t count;
    CUmemDecompressParams params[];
};

static bool may_touch(const void *address, uint64_t bytes)
{
    return flyt_soft_is_device_memory((uint64_t)(uintptr_t)address, bytes);
}

static bool is_reachable(const CUmemDecompressParams *params)
{
    return may_touch(params->src, params->srcNumBytes) && may_touch(params->dst, params->dstNumBytes) &&
           may_touch(params->dstActBytes, sizeof(*params->dstActBytes));
}

static CUresult decompress_run(struct flyt_soft_op *op)
{
    struct decompress_op *batch = (struct decompress_op *)op;

    for (size_t i = 0; i < batch->count; i++) {
        const CUmemDecompressParams *params = &batch->params[i];
        /* What was mapped may be gone, which on a GPU is a fault. */
        if (!is_reachable(params))
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        int bytes = LZ4_decompress_safe(params->src, params->dst, (int)params->srcNumBytes, (int)params->dstNumBytes);
        *params->dstActBytes = bytes < 0 ? 0 : (cuuint32_t)bytes;
    }
    return CUDA_SUCCESS;
}

static void decompress_free(struct flyt_soft_op *op)
{
    free(op);
}

static bool can_be_done(const CUmemDecompressParams *params, CUcontext ctx)
{
    static const unsigned char zeros[sizeof(params->padding)];
    bool has_sizes = params->srcNumBytes && params->srcNumBytes <= FLYT_SOFT_DECOMPRESS_BYTES_MAX &&
                     params->dstNumBytes && params->dstNumBytes <= FLYT_SOFT_DECOMPRESS_BYTES_MAX;
    const void *const addresses[] = {params->src, params->dst, params->dstActBytes};

    if (params->algo != CU_MEM_DECOMPRESS_ALGORITHM_LZ4 || !has_sizes ||
        memcmp(params->padding, zeros, sizeof(zeros)) || (uintptr_t)params->dstActBytes % sizeof(cuuint32_t) ||
        !is_reachable(params))
        return false;
    for (unsigned i = 0; i < sizeof(addresses) / sizeof(*addresses); i++)
        if (!flyt_soft_is_decompressible(ctx->device, (uint64_t)(uintptr_t)addresses[i]))
            return false;
    return true;
}

FLYT_SOFT_API cuMemBatchDecompressAsync(CUmemDecompressParams *paramsArray, size_t count, unsigned int flags,
                                        size_t *errorIndex, CUstream stream_handle)
{
    struct CUctx_st *ctx;
    struct CUstream_st *stream;
    CUresult r = flyt_soft_enter(&ctx);

    if (errorIndex)
        *errorIndex = SIZE_MAX;
    if (r == CUDA_SUCCESS && !flyt_soft_decompresses(ctx->device))
        r = CUDA_ERROR_NOT_SUPPORTED;
    if (r == CUDA_SUCCESS)
        r = flyt_soft_stream_take(ctx, stream_handle, &stream);
    if (r != CUDA_SUCCESS)
        return r;
    if (!paramsArray || !count || flags)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        if (can_be_done(&paramsArray[i], ctx))
            continue;
        if (errorIndex)
            *errorIndex = i;
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct decompress_op *batch = calloc(1, sizeof(*batch) + count * sizeof(*paramsArray));
    if (!batch)
        return CUDA_ERROR_OUT_OF_MEMORY;
    batch->op = (struct flyt_soft_op){.run = decompress_run, .free = decompress_free};
    batch->count = count;
    memcpy(batch->params, paramsArray, count * sizeof(*paramsArray));
    flyt_soft_stream_push(stream, &batch->op);
    return CUDA_SUCCESS;
}
