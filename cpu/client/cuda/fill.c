#include <stdlib.h>
#include <string.h>
#include "cpu/client/bulk/copy_plan.h"
#include "cpu/client/bulk/range.h"
#include "cpu/client/bulk/transfer.h"
#include "cpu/client/core/instance.h"
#include "cpu/client/core/thread.h"
#include "cpu/client/cuda/copy.h"
#include "cpu/client/cuda/copy_raw.h"
#include "cpu/client/cuda/function_queue.h"
#include "cpu/client/cuda/host.h"
#include "cpu/client/cuda/stream_record.h"
#include "cpu/client/cuda/watch.h"

static void fill_row(void *row, uint64_t width, unsigned element_bytes, uint32_t value)
{
    uint16_t half = (uint16_t)value;
    if (element_bytes == 1)
        memset(row, (int)(value & 0xff), width);
    for (uint64_t i = 0; element_bytes == 2 && i < width; i++)
        memcpy((char *)row + 2 * i, &half, 2);
    for (uint64_t i = 0; element_bytes == 4 && i < width; i++)
        memcpy((char *)row + 4 * i, &value, 4);
}

static void fill_now(const struct flyt_fill *fill)
{
    for (uint64_t row = 0; row < fill->height * fill->depth; row++) {
        uint64_t place =
            fill->address + row / fill->height * fill->slice_bytes + row % fill->height * fill->pitch_bytes;
        fill_row((void *)(uintptr_t)place, fill->width, fill->element_bytes, fill->value); /* NOLINT: the program's */
    }
}

static void fill_later(void *user)
{
    fill_now(user);
    free(user);
}

CUresult flyt_fill_host_later(struct flyt_stream *stream, const struct flyt_fill *fill)
{
    struct flyt_fill *later = malloc(sizeof *later);
    if (!later)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *later = *fill;
    CUresult result = flyt_function_launch_own(stream, fill_later, later);
    if (result)
        free(later);
    return result;
}

static CUresult send_fill(struct flyt_stream *stream, const void *what, uint64_t *ret_sequence)
{
    const struct flyt_fill *fill = what;
    flyt_memory_set_args args = {.thread = flyt_thread_number(),
                                 .stream_id = stream->stream_id,
                                 .element_bytes = fill->element_bytes,
                                 .value = fill->value};
    args.dst = (flyt_box){.address = fill->address,
                          .width_bytes = fill->width * fill->element_bytes,
                          .height = fill->height,
                          .depth = fill->depth,
                          .pitch_bytes = fill->pitch_bytes,
                          .slice_bytes = fill->slice_bytes};
    return flyt_client_status(flyt_send_memory_set(flyt_client.channel, &args, ret_sequence), "memory_set");
}

static CUresult fill_device(struct flyt_stream *stream, const struct flyt_fill *fill)
{
    uint64_t sequence = 0;
    CUresult result = flyt_stream_begin(stream);
    if (result)
        return result;
    result = send_fill(stream, fill, &sequence);
    flyt_stream_sent(stream, sequence);
    return result;
}

/* CUDA_ERROR_NOT_READY: the session's present server fills no such memory. */
static CUresult send_shared(struct flyt_stream *stream, const void *what, uint64_t *ret_sequence)
{
    return flyt_channel_fills_region(flyt_client.channel) ? send_fill(stream, what, ret_sequence)
                                                          : CUDA_ERROR_NOT_READY;
}

/* The GPU fills memory of which kernels have addresses, in the stream's order: one before it may wait for what the
 * program does next. CUDA_ERROR_NOT_READY: it is none; or bytes of an earlier copy are still to come there. */
static CUresult fill_shared(struct flyt_stream *stream, const struct flyt_fill *fill)
{
    uint64_t server;
    struct flyt_range range;
    if (!flyt_host_is_reached() || !flyt_host_is_mapped(fill->address) || !flyt_range_find(fill->address, &range) ||
        flyt_transfer_writes(range.base, range.bytes) || !flyt_host_is_shared(fill->address, &server))
        return CUDA_ERROR_NOT_READY;
    return flyt_copy_send_shared(stream, server, send_shared, fill);
}

static CUresult fill_host(struct flyt_stream *stream, const struct flyt_fill *fill, bool is_async)
{
    CUresult result = is_async ? fill_shared(stream, fill) : CUDA_ERROR_NOT_READY;
    if (result != CUDA_ERROR_NOT_READY)
        return result;
    result = flyt_stream_wait(stream);
    if (!result)
        fill_now(fill);
    return result;
}

/* Whose memory is filled. */
enum owner {
    DEVICE,
    HOST,
    MANAGED,
    UNKNOWN /* it may be a variable that only device code knows, which the server decides */
};

static CUresult check(const struct flyt_fill *fill, enum owner *ret_owner)
{
    struct flyt_range range;
    uint64_t span, width_bytes, whole_rows;
    if (fill->element_bytes != 1 && fill->element_bytes != 2 && fill->element_bytes != 4)
        return CUDA_ERROR_INVALID_VALUE;
    if (__builtin_mul_overflow(fill->width, (uint64_t)fill->element_bytes, &width_bytes) ||
        __builtin_mul_overflow(fill->height, fill->depth, &whole_rows) || fill->address % fill->element_bytes ||
        (fill->height > 1 && fill->pitch_bytes % fill->element_bytes))
        return CUDA_ERROR_INVALID_VALUE;
    struct flyt_copy shape = {.width_bytes = width_bytes, .height = fill->height, .depth = fill->depth};
    shape.dst = (struct flyt_copy_side){FLYT_PLACE_ANY, fill->address, fill->pitch_bytes, fill->slice_bytes};
    if (!fill->address || !flyt_copy_span(&shape, &shape.dst, &span))
        return CUDA_ERROR_INVALID_VALUE;
    *ret_owner = UNKNOWN;
    if (!flyt_range_find(fill->address, &range)) {
        bool is_wrong = flyt_is_device_address(fill->address) || flyt_range_is_foreign(fill->address);
        return is_wrong ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    }
    *ret_owner = flyt_range_is_host(&range) ? HOST : range.is_managed ? MANAGED : DEVICE;
    return flyt_range_holds(&range, fill->address, span) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult flyt_fill_check(const struct flyt_fill *fill, bool *ret_is_host)
{
    enum owner owner;
    if (!fill->width || !fill->height || !fill->depth)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check(fill, &owner);
    *ret_is_host = !result && owner == HOST;
    return result;
}

CUresult flyt_fill(const struct flyt_fill *fill, CUstream stream_handle, bool is_async)
{
    struct flyt_stream *stream;
    enum owner owner;
    CUresult result = flyt_client_enter();
    if (!result)
        result = flyt_stream_get(stream_handle, &stream);
    bool is_captured = false;
    if (!result && flyt_capture_is_any())
        result = flyt_capture_ask_work(stream, &is_captured);
    if (result || !fill->width || !fill->height || !fill->depth)
        return result;
    result = check(fill, &owner);
    if (is_captured)
        return result ? result : flyt_captures.ops->fill(stream, fill);
    if (!result && owner == MANAGED)
        result = flyt_watch_before_use(stream, fill->address);
    if (result)
        return result;
    result = owner == HOST ? fill_host(stream, fill, is_async) : fill_device(stream, fill);
    if (result || is_async || ((owner == DEVICE || owner == HOST) && !flyt_range_is_synchronous(fill->address)))
        return result;
    /* CUDA fills managed memory synchronously; what is unknown may be nobody's, which the server's word tells. */
    result = flyt_stream_wait(stream);
    return result ? result : flyt_client_enter();
}

CUresult flyt_fill_of_graph(struct flyt_stream *stream, const struct flyt_fill *fill)
{
    CUresult result = flyt_watch_before_use(stream, fill->address);
    return result ? result : fill_device(stream, fill);
}

CUresult flyt_fill_raw(struct flyt_stream *stream, uint64_t address, unsigned char value, uint64_t bytes)
{
    const struct flyt_fill fill = {
        .address = address, .width = bytes, .height = 1, .depth = 1, .element_bytes = 1, .value = value};
    return fill_device(stream, &fill);
}

/* ---- memory operations of streams ---- */

/* The part of device memory that an operation is about: 0 bytes: none. */
static unsigned op_bytes(CUstreamBatchMemOpType operation)
{
    switch (operation) {
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

static bool is_wait(CUstreamBatchMemOpType operation)
{
    return operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
}

/* CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER is none of these functions' ("not supported in the v2 API"), and no device
 * flushes remote writes: CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES is 0. */
static CUresult check_flags(CUstreamBatchMemOpType operation, unsigned flags)
{
    if (is_wait(operation) && flags & CU_STREAM_WAIT_VALUE_FLUSH)
        return CUDA_ERROR_NOT_SUPPORTED;
    return flags <= (is_wait(operation) ? CU_STREAM_WAIT_VALUE_NOR : 0u) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult pack_op(const CUstreamBatchMemOpParams *op, flyt_stream_op *ret_packed)
{
    struct flyt_range range;
    unsigned bytes = op_bytes(op->operation);
    *ret_packed = (flyt_stream_op){.operation = op->operation, .flags = op->memoryBarrier.flags};
    if (op->operation == CU_STREAM_MEM_OP_BARRIER)
        return op->memoryBarrier.flags <= CU_STREAM_MEMORY_BARRIER_TYPE_GPU ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (op->operation == CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES)
        return CUDA_ERROR_NOT_SUPPORTED;
    /* waitValue and writeValue have one layout. */
    uint64_t address = op->writeValue.address;
    if (!bytes || address % bytes || !flyt_range_find(address, &range) || flyt_range_is_host(&range))
        return CUDA_ERROR_INVALID_VALUE;
    ret_packed->flags = op->writeValue.flags;
    ret_packed->address = address;
    ret_packed->value = bytes == sizeof(uint32_t) ? op->writeValue.value : op->writeValue.value64;
    return check_flags(op->operation, op->writeValue.flags);
}

static CUresult send_ops(struct flyt_stream *stream, unsigned count, flyt_stream_op *packed);

CUresult flyt_stream_memory_ops(CUstream handle, unsigned count, const CUstreamBatchMemOpParams *ops, unsigned flags)
{
    flyt_stream_op packed[FLYT_STREAM_OPS_MAX];
    struct flyt_stream *stream;
    CUresult result = flyt_client_enter();
    if (!result && (count > FLYT_STREAM_OPS_MAX || flags || (count && !ops)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = flyt_stream_get(handle, &stream);
    if (!count)
        return result;
    bool is_captured = false;
    for (unsigned i = 0; i < count && !result; i++)
        result = pack_op(&ops[i], &packed[i]);
    if (!result && flyt_capture_is_any())
        result = flyt_capture_ask_work(stream, &is_captured);
    if (!result && is_captured)
        return flyt_captures.ops->memory_ops(stream, count, ops);
    return result ? result : send_ops(stream, count, packed);
}

CUresult flyt_memory_ops_of_graph(struct flyt_stream *stream, unsigned count, const CUstreamBatchMemOpParams *ops)
{
    flyt_stream_op packed[FLYT_STREAM_OPS_MAX];
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < count && !result; i++)
        result = pack_op(&ops[i], &packed[i]);
    return result ? result : send_ops(stream, count, packed);
}

static CUresult send_ops(struct flyt_stream *stream, unsigned count, flyt_stream_op *packed)
{
    CUresult result = flyt_watch_before(stream);
    if (!result)
        result = flyt_stream_begin(stream);
    if (result)
        return result;
    flyt_stream_memory_ops_args args = {
        .thread = flyt_thread_number(), .stream_id = stream->stream_id, .ops = {.ops_len = count, .ops_val = packed}};
    uint64_t sequence = 0;
    result =
        flyt_client_status(flyt_send_stream_memory_ops(flyt_client.channel, &args, &sequence), "stream_memory_ops");
    if (!result)
        flyt_stream_sent(stream, sequence);
    return result;
}

CUresult flyt_stream_memory_op(CUstream handle, CUstreamBatchMemOpType operation, CUdeviceptr address, uint64_t value,
                               unsigned flags)
{
    CUstreamBatchMemOpParams op = {
        .writeValue = {.operation = operation, .address = address, .value64 = value, .flags = flags}};
    return flyt_stream_memory_ops(handle, 1, &op, 0);
}
