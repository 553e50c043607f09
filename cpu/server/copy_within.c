/* Copies within device memory, between devices too, and memory_set. */
#include "cpu/server/call.h"
#include "cpu/server/copy.h"
#include "cpu/server/session.h"
#include "flyt_serve.h"

static bool is_packed(const flyt_box *box)
{
    return (box->height == 1 || box->pitch_bytes == box->width_bytes) &&
           (box->depth == 1 || box->slice_bytes == box->height * box->width_bytes);
}

/* Rows between the beginnings of two slices; 0 where that is no whole number of rows. */
static uint64_t rows_apart(const flyt_box *box)
{
    if (box->depth == 1)
        return box->height;
    uint64_t rows =
        box->pitch_bytes && box->slice_bytes % box->pitch_bytes == 0 ? box->slice_bytes / box->pitch_bytes : 0;
    return rows >= box->height ? rows : 0;
}

static uint64_t pitch_of(const flyt_box *box)
{
    return box->height == 1 && box->depth == 1 ? box->width_bytes : box->pitch_bytes;
}

static CUresult copy_boxes(struct flyt_stream *stream, const flyt_box *dst, const flyt_box *src)
{
    CUDA_MEMCPY3D copy = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = src->address,
        .srcPitch = pitch_of(src),
        .srcHeight = rows_apart(src),
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = dst->address,
        .dstPitch = pitch_of(dst),
        .dstHeight = rows_apart(dst),
        .WidthInBytes = dst->width_bytes,
        .Height = dst->height,
        .Depth = dst->depth,
    };
    return stream->device->session->driver->cuMemcpy3DAsync(&copy, stream->cu_stream);
}

static CUresult copy_between_devices(struct flyt_stream *stream, const flyt_box *dst, struct flyt_device *dst_device,
                                     const flyt_box *src, struct flyt_device *src_device)
{
    CUDA_MEMCPY3D_PEER copy = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = src->address,
        .srcContext = src_device->partition->cu_context,
        .srcPitch = pitch_of(src),
        .srcHeight = rows_apart(src),
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = dst->address,
        .dstContext = dst_device->partition->cu_context,
        .dstPitch = pitch_of(dst),
        .dstHeight = rows_apart(dst),
        .WidthInBytes = dst->width_bytes,
        .Height = dst->height,
        .Depth = dst->depth,
    };
    return stream->device->session->driver->cuMemcpy3DPeerAsync(&copy, stream->cu_stream);
}

CUresult flyt_serve_copy_within(struct flyt_call *call, const flyt_copy_within_args *args, struct flyt_stream *stream)
{
    const struct flyt_driver *driver = call->session->driver;
    const flyt_box *dst = &args->dst, *src = &args->src;
    struct flyt_device *dst_device, *src_device;
    uint64_t bytes, src_bytes;
    if (dst->width_bytes != src->width_bytes || dst->height != src->height || dst->depth != src->depth)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = flyt_box_check(call->session, dst, &bytes, &dst_device);
    if (result == CUDA_SUCCESS)
        result = flyt_box_check(call->session, src, &src_bytes, &src_device);
    if (result != CUDA_SUCCESS || !bytes)
        return result;
    flyt_constant_note_written(call->session, dst->address);
    flyt_constant_note_used(call->session, src->address);
    bool is_line = is_packed(dst) && is_packed(src);
    if (!is_line && (!rows_apart(dst) || !rows_apart(src)))
        return CUDA_ERROR_INVALID_VALUE;
    result = flyt_stream_enter_for(stream, dst_device == src_device ? dst_device : stream->device);
    if (result != CUDA_SUCCESS)
        return result;
    struct flyt_stream *carrier;
    result = flyt_carrier_begin(stream, dst_device == src_device ? dst_device : stream->device, &carrier);
    if (result != CUDA_SUCCESS)
        return result;
    if (is_line && dst_device == src_device)
        result = driver->cuMemcpyDtoDAsync(dst->address, src->address, bytes, carrier->cu_stream);
    else if (is_line)
        result = driver->cuMemcpyPeerAsync(dst->address, dst_device->partition->cu_context, src->address,
                                           src_device->partition->cu_context, bytes, carrier->cu_stream);
    else if (dst_device == src_device)
        result = copy_boxes(carrier, dst, src);
    else
        result = copy_between_devices(carrier, dst, dst_device, src, src_device);
    return flyt_stream_leave(stream, call->sequence, flyt_carrier_end(stream, carrier, result));
}

/* ---- memory_set ---- */

static CUresult set_line(struct flyt_stream *stream, uint64_t address, uint64_t bytes, unsigned element_bytes,
                         uint32_t value)
{
    const struct flyt_driver *driver = stream->device->session->driver;
    switch (element_bytes) {
    case 1:
        return driver->cuMemsetD8Async(address, (unsigned char)value, bytes, stream->cu_stream);
    case 2:
        return driver->cuMemsetD16Async(address, (unsigned short)value, bytes / 2, stream->cu_stream);
    default:
        return driver->cuMemsetD32Async(address, value, bytes / 4, stream->cu_stream);
    }
}

static CUresult set_slice(struct flyt_stream *stream, const flyt_box *box, uint64_t address, unsigned element_bytes,
                          uint32_t value)
{
    const struct flyt_driver *driver = stream->device->session->driver;
    if (box->height == 1)
        return set_line(stream, address, box->width_bytes, element_bytes, value);
    switch (element_bytes) {
    case 1:
        return driver->cuMemsetD2D8Async(address, box->pitch_bytes, (unsigned char)value, box->width_bytes, box->height,
                                         stream->cu_stream);
    case 2:
        return driver->cuMemsetD2D16Async(address, box->pitch_bytes, (unsigned short)value, box->width_bytes / 2,
                                          box->height, stream->cu_stream);
    default:
        return driver->cuMemsetD2D32Async(address, box->pitch_bytes, value, box->width_bytes / 4, box->height,
                                          stream->cu_stream);
    }
}

CUresult flyt_serve_memory_set(struct flyt_call *call, const flyt_memory_set_args *args, struct flyt_stream *stream)
{
    const flyt_box *box = &args->dst;
    unsigned element_bytes = args->element_bytes;
    struct flyt_device *device;
    uint64_t bytes;
    if (element_bytes != 1 && element_bytes != 2 && element_bytes != 4)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = flyt_box_check(call->session, box, &bytes, &device);
    if (result != CUDA_SUCCESS || !bytes)
        return result;
    if (box->width_bytes % element_bytes || box->address % element_bytes ||
        (box->height > 1 && box->pitch_bytes % element_bytes) || (box->depth > 1 && box->slice_bytes % element_bytes))
        return CUDA_ERROR_INVALID_VALUE;
    flyt_constant_note_written(call->session, box->address);
    result = flyt_stream_enter_for(stream, device);
    if (result != CUDA_SUCCESS)
        return result;
    struct flyt_stream *carrier;
    result = flyt_carrier_begin(stream, device, &carrier);
    if (result != CUDA_SUCCESS)
        return result;
    if (is_packed(box))
        result = set_line(carrier, box->address, bytes, element_bytes, args->value);
    else
        for (uint64_t slice = 0; slice < box->depth && result == CUDA_SUCCESS; slice++)
            result = set_slice(carrier, box, box->address + slice * box->slice_bytes, element_bytes, args->value);
    return flyt_stream_leave(stream, call->sequence, flyt_carrier_end(stream, carrier, result));
}
