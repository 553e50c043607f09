#include "cpu/client/cuda/copy_batch.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/client/bulk/copy_plan.h"
#include "cpu/client/bulk/range.h"
#include "cpu/client/core/instance.h"
#include "cpu/client/core/restore_call.h"
#include "cpu/client/core/thread.h"
#include "cpu/client/cuda/array.h"
#include "cpu/client/cuda/capture.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/copy.h"
#include "cpu/client/cuda/device.h"
#include "cpu/client/cuda/stream.h"
#include "cpu/client/cuda/stream_record.h"
#include "cpu/client/cuda/watch.h"

static bool is_good_order(CUmemcpySrcAccessOrder order)
{
    return order >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM && order <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
}

/* Whether the program may use the source for something else when the call returns, and a copy would still read it. */
static bool is_read_late(CUmemcpySrcAccessOrder order, CUdeviceptr src, size_t bytes)
{
    return order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL && flyt_range_is_pinned(src, bytes);
}

static CUresult enter(CUstream stream, size_t *ret_failed)
{
    CUresult result = flyt_client_enter();
    if (ret_failed)
        *ret_failed = SIZE_MAX;
    return result || (stream && stream != CU_STREAM_LEGACY) ? result : CUDA_ERROR_INVALID_VALUE;
}

/* The last copies are sent; *ret_failed of one that was not. */
static CUresult leave(CUresult result, size_t failed, size_t *ret_failed, bool is_waited_for, CUstream stream)
{
    if (result && ret_failed)
        *ret_failed = failed;
    return result || !is_waited_for ? result : flyt_stream_synchronize(stream);
}

static bool are_good_attributes(const CUmemcpyAttributes *attributes, const size_t *firsts, size_t attribute_count,
                                size_t count)
{
    if (!attributes || !firsts || !attribute_count || attribute_count > count || firsts[0])
        return false;
    for (size_t i = 0; i < attribute_count; i++)
        if (!is_good_order(attributes[i].srcAccessOrder) ||
            attributes[i].flags & ~(unsigned)CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE ||
            (i && firsts[i] <= firsts[i - 1]) || firsts[i] >= count)
            return false;
    return true;
}

CUresult flyt_copy_batch(const CUdeviceptr *dsts, const CUdeviceptr *srcs, const size_t *sizes, size_t count,
                         const CUmemcpyAttributes *attributes, const size_t *firsts, size_t attribute_count,
                         CUstream stream, size_t *ret_failed)
{
    CUresult result = enter(stream, ret_failed);
    if (!result &&
        (!dsts || !srcs || !sizes || !count || !are_good_attributes(attributes, firsts, attribute_count, count)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    bool is_waited_for = false;
    size_t at = 0;
    for (size_t of = 0; at < count && !result; at++) {
        of += of + 1 < attribute_count && firsts[of + 1] <= at;
        result = flyt_copy_range(FLYT_PLACE_ANY, dsts[at], FLYT_PLACE_ANY, srcs[at], sizes[at], stream, true);
        is_waited_for |= is_read_late(attributes[of].srcAccessOrder, srcs[at], sizes[at]);
    }
    return leave(result, at - 1, ret_failed, is_waited_for, stream);
}

/* ---- boxes ---- */

/* Bytes of an element, which the arrays of the copy tell. Of blocks extents and offsets count those. */
static CUresult find_element(const CUDA_MEMCPY3D_BATCH_OP *box, unsigned *ret_bytes)
{
    const bool is_from_array = box->src.type == CU_MEMCPY_OPERAND_TYPE_ARRAY;
    const bool is_to_array = box->dst.type == CU_MEMCPY_OPERAND_TYPE_ARRAY;
    struct flyt_array_element src = {1, 1}, dst = {1, 1};
    CUresult result = is_from_array ? flyt_array_element(box->src.op.array.array, &src) : CUDA_SUCCESS;
    if (!result && is_to_array)
        result = flyt_array_element(box->dst.op.array.array, &dst);
    if (!result && is_from_array && is_to_array && src.bytes != dst.bytes)
        result = CUDA_ERROR_INVALID_VALUE;
    *ret_bytes = is_from_array ? src.bytes : dst.bytes;
    return result;
}

static CUresult lower_pointer(const CUmemcpy3DOperand *operand, const CUextent3D *extent, unsigned element_bytes,
                              struct flyt_copy_side *ret_side)
{
    const size_t row = operand->op.ptr.rowLength ? operand->op.ptr.rowLength : extent->width;
    const size_t rows = operand->op.ptr.layerHeight ? operand->op.ptr.layerHeight : extent->height;
    size_t pitch, slice;
    if (row < extent->width || rows < extent->height || __builtin_mul_overflow(row, element_bytes, &pitch) ||
        __builtin_mul_overflow(pitch, rows, &slice))
        return CUDA_ERROR_INVALID_VALUE;
    *ret_side = (struct flyt_copy_side){
        .place = FLYT_PLACE_ANY, .address = operand->op.ptr.ptr, .pitch_bytes = pitch, .slice_bytes = slice};
    return CUDA_SUCCESS;
}

static CUresult lower(const CUmemcpy3DOperand *operand, const CUextent3D *extent, unsigned element_bytes,
                      struct flyt_copy_side *ret_side)
{
    if (operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER)
        return lower_pointer(operand, extent, element_bytes, ret_side);
    struct flyt_array_at at = {operand->op.array.array, 0, operand->op.array.offset.y, operand->op.array.offset.z};
    if (operand->type != CU_MEMCPY_OPERAND_TYPE_ARRAY ||
        __builtin_mul_overflow(operand->op.array.offset.x, element_bytes, &at.x_bytes))
        return CUDA_ERROR_INVALID_VALUE;
    return flyt_array_copy_side(&at, extent->width * element_bytes, extent->height, extent->depth, ret_side);
}

static CUresult copy_box(const CUDA_MEMCPY3D_BATCH_OP *box, CUstream stream, bool *ret_is_late)
{
    const CUextent3D *extent = &box->extent;
    struct flyt_copy copy = {.height = extent->height, .depth = extent->depth};
    unsigned element_bytes;
    uint64_t span;
    CUresult result = find_element(box, &element_bytes);
    if (result)
        return result;
    if (!extent->width || !extent->height || !extent->depth || !is_good_order(box->srcAccessOrder) ||
        box->flags & ~(unsigned)CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE ||
        __builtin_mul_overflow(extent->width, element_bytes, &copy.width_bytes))
        return CUDA_ERROR_INVALID_VALUE;
    result = lower(&box->src, extent, element_bytes, &copy.src);
    if (!result)
        result = lower(&box->dst, extent, element_bytes, &copy.dst);
    if (!result && !flyt_copy_span(&copy, &copy.src, &span))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    *ret_is_late |= is_read_late(box->srcAccessOrder, copy.src.address, span);
    return flyt_copy(&copy, stream, true);
}

CUresult flyt_copy_batch_boxes(const CUDA_MEMCPY3D_BATCH_OP *boxes, size_t count, unsigned long long flags,
                               CUstream stream, size_t *ret_failed)
{
    CUresult result = enter(stream, ret_failed);
    if (!result && (!boxes || !count || flags))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    bool is_waited_for = false;
    size_t at = 0;
    for (; at < count && !result; at++)
        result = copy_box(&boxes[at], stream, &is_waited_for);
    return leave(result, at - 1, ret_failed, is_waited_for, stream);
}

/* ---- decompression ---- */

/* Algorithms that the program has used, by device: what it needs of another server. */
static _Atomic unsigned used_algorithms[FLYT_DEVICES_MAX];

static bool is_of_device(const void *address, size_t bytes, int device)
{
    struct flyt_range range;
    const uint64_t at = (uint64_t)(uintptr_t)address;
    return bytes && flyt_range_find(at, &range) && !flyt_range_is_host(&range) && range.device == device &&
           range.kind != FLYT_RANGE_VARIABLE && flyt_range_holds(&range, at, bytes);
}

/* Without dstNumBytes all that there is from the address on is room. */
static size_t room_at(const void *address, size_t bytes_max)
{
    struct flyt_range range;
    const uint64_t at = (uint64_t)(uintptr_t)address;
    if (!flyt_range_find(at, &range) || range.base + range.bytes <= at)
        return 0;
    const uint64_t bytes = range.base + range.bytes - at;
    return bytes < bytes_max ? bytes : bytes_max;
}

static bool pack_decompression(const CUmemDecompressParams *params, const struct flyt_device_info *info, int device,
                               flyt_decompression *ret_packed)
{
    static const unsigned char zeros[sizeof params->padding];
    const unsigned algorithm = params->algo;
    const size_t bytes_max = (size_t)(unsigned)info->attributes[CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH];
    const size_t dst_bytes = params->dstNumBytes ? params->dstNumBytes : room_at(params->dst, bytes_max);
    bool is_known = algorithm && !(algorithm & (algorithm - 1)) &&
                    algorithm & (unsigned)info->attributes[CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK];
    if (!is_known || params->srcNumBytes > bytes_max || dst_bytes > bytes_max ||
        memcmp(params->padding, zeros, sizeof zeros) != 0 || !is_of_device(params->src, params->srcNumBytes, device) ||
        !is_of_device(params->dst, dst_bytes, device) ||
        !is_of_device(params->dstActBytes, sizeof *params->dstActBytes, device) ||
        (uintptr_t)params->dstActBytes % sizeof *params->dstActBytes)
        return false;
    *ret_packed = (flyt_decompression){.src = (uint64_t)(uintptr_t)params->src,
                                       .src_bytes = params->srcNumBytes,
                                       .dst = (uint64_t)(uintptr_t)params->dst,
                                       .dst_bytes = dst_bytes,
                                       .written_address = (uint64_t)(uintptr_t)params->dstActBytes,
                                       .algorithm = algorithm};
    return true;
}

static CUresult send_decompressions(struct flyt_stream *stream, flyt_decompression *packed, unsigned count)
{
    CUresult result = flyt_stream_begin(stream);
    if (result)
        return result;
    flyt_memory_decompress_args args = {.thread = flyt_thread_number(),
                                        .stream_id = stream->stream_id,
                                        .batch = {.batch_len = count, .batch_val = packed}};
    uint64_t sequence = 0;
    result =
        flyt_client_status(flyt_send_memory_decompress(flyt_client.channel, &args, &sequence), "memory_decompress");
    if (!result)
        flyt_stream_sent(stream, sequence);
    return result;
}

/* All of it is looked at before anything is sent. */
static CUresult decompress(const CUmemDecompressParams *list, size_t count, size_t *ret_failed, CUstream handle,
                           const struct flyt_device_info *info, int device)
{
    struct flyt_stream *stream;
    flyt_decompression *packed = calloc(count, sizeof *packed);
    CUresult result = packed ? flyt_stream_get(handle, &stream) : CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < count && !result; i++) {
        if (pack_decompression(&list[i], info, device, &packed[i])) {
            atomic_fetch_or(&used_algorithms[device], packed[i].algorithm);
            continue;
        }
        *ret_failed = i;
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (!result && flyt_capture_is_any())
        result = flyt_capture_refuse(stream);
    if (!result)
        result = flyt_watch_before(stream);
    for (size_t i = 0; i < count && !result; i += FLYT_DECOMPRESSIONS_MAX) {
        size_t rest = count - i;
        result = send_decompressions(stream, &packed[i],
                                     rest < FLYT_DECOMPRESSIONS_MAX ? (unsigned)rest : FLYT_DECOMPRESSIONS_MAX);
    }
    free(packed);
    return result;
}

CUresult flyt_decompress_batch(const CUmemDecompressParams *list, size_t count, unsigned flags, size_t *ret_failed,
                               CUstream stream)
{
    uint64_t context_id;
    int device;
    const struct flyt_device_info *info;
    size_t failed = SIZE_MAX;
    CUresult result = flyt_client_enter();
    if (!result)
        result = flyt_context_get(&context_id, &device);
    if (!result)
        result = flyt_device_info(device, &info);
    if (!result && !info->attributes[CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK])
        result = CUDA_ERROR_NOT_SUPPORTED;
    if (!result && (!list || !count || flags))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = decompress(list, count, &failed, stream, info, device);
    if (ret_failed)
        *ret_failed = failed;
    return result;
}

int flyt_decompress_restore(struct flyt_restore *restore)
{
    int status = 0;
    for (unsigned device = 0; device < FLYT_DEVICES_MAX && !status; device++) {
        const unsigned used = atomic_load(&used_algorithms[device]);
        if (!used)
            continue;
        flyt_device_info_args args = {.thread = FLYT_RESTORE_THREAD, .device = device};
        flyt_device_info_res res = {0};
        int called = flyt_call_device_info(restore->fresh, &args, &res);
        unsigned mask = 0;
        if (res.attributes.attributes_len > CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK)
            mask = (unsigned)res.attributes.attributes_val[CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK];
        CUresult result = res.result || !(used & ~mask) ? (CUresult)res.result : CUDA_ERROR_NOT_SUPPORTED;
        status = flyt_restore_answered(restore, called, (int)result, "decompression by GPU %u", device);
        xdr_free((xdrproc_t)xdr_flyt_device_info_res, (char *)&res);
    }
    return status;
}
