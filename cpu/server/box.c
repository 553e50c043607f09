/* Boxes of device memory: checking them, and copying parts of them from and to packed host memory. */
#include "cpu/server/copy.h"

#include "cpu/server/session.h"
#include "cpu/server/stream.h"

/* The driver refuses larger pitches; such rows are copied one by one. */
static const uint64_t pitch_bytes_max = 0x7fffffff;

CUresult flyt_box_check(struct flyt_session *session, const flyt_box *box, uint64_t *ret_bytes,
                        struct flyt_device **ret_device)
{
    uint64_t rows, bytes, slices_span, rows_span, span;
    *ret_bytes = 0;
    if (__builtin_mul_overflow(box->height, box->depth, &rows) ||
        __builtin_mul_overflow(rows, box->width_bytes, &bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (!bytes)
        return CUDA_SUCCESS;
    if ((box->height > 1 && box->pitch_bytes < box->width_bytes) ||
        (box->depth > 1 && box->slice_bytes < box->width_bytes) ||
        __builtin_mul_overflow(box->depth - 1, box->slice_bytes, &slices_span) ||
        __builtin_mul_overflow(box->height - 1, box->pitch_bytes, &rows_span) ||
        __builtin_add_overflow(slices_span, rows_span, &span) ||
        __builtin_add_overflow(span, box->width_bytes, &span) ||
        !flyt_memory_covers(session, box->address, span, ret_device))
        return CUDA_ERROR_INVALID_VALUE;
    *ret_bytes = bytes;
    return CUDA_SUCCESS;
}

static CUresult copy_line(struct flyt_stream *stream, uint64_t address, char *host, uint64_t bytes, bool to_device)
{
    const struct flyt_driver *driver = stream->device->session->driver;
    return to_device ? driver->cuMemcpyHtoDAsync(address, host, bytes, stream->cu_stream)
                     : driver->cuMemcpyDtoHAsync(host, address, bytes, stream->cu_stream);
}

/* Whole rows of one slice. */
static CUresult copy_rows(struct flyt_stream *stream, const flyt_box *box, uint64_t address, char *host, uint64_t rows,
                          bool to_device)
{
    if (rows == 1 || box->pitch_bytes == box->width_bytes)
        return copy_line(stream, address, host, rows * box->width_bytes, to_device);
    if (box->pitch_bytes > pitch_bytes_max) {
        CUresult result = CUDA_SUCCESS;
        for (uint64_t row = 0; row < rows && result == CUDA_SUCCESS; row++)
            result = copy_line(stream, address + row * box->pitch_bytes, host + row * box->width_bytes,
                               box->width_bytes, to_device);
        return result;
    }
    CUDA_MEMCPY2D copy = {
        .srcMemoryType = to_device ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
        .srcHost = to_device ? host : NULL,
        .srcDevice = to_device ? 0 : address,
        .srcPitch = to_device ? box->width_bytes : box->pitch_bytes,
        .dstMemoryType = to_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
        .dstHost = to_device ? NULL : host,
        .dstDevice = to_device ? address : 0,
        .dstPitch = to_device ? box->pitch_bytes : box->width_bytes,
        .WidthInBytes = box->width_bytes,
        .Height = rows,
    };
    return stream->device->session->driver->cuMemcpy2DAsync(&copy, stream->cu_stream);
}

/* Whole slices, whose distance is a multiple of the pitch. */
static CUresult copy_slices(struct flyt_stream *stream, const flyt_box *box, uint64_t address, char *host,
                            uint64_t slices, bool to_device)
{
    uint64_t rows_apart = box->slice_bytes / box->pitch_bytes;
    CUDA_MEMCPY3D copy = {
        .srcMemoryType = to_device ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
        .srcHost = to_device ? host : NULL,
        .srcDevice = to_device ? 0 : address,
        .srcPitch = to_device ? box->width_bytes : box->pitch_bytes,
        .srcHeight = to_device ? box->height : rows_apart,
        .dstMemoryType = to_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
        .dstHost = to_device ? NULL : host,
        .dstDevice = to_device ? address : 0,
        .dstPitch = to_device ? box->pitch_bytes : box->width_bytes,
        .dstHeight = to_device ? rows_apart : box->height,
        .WidthInBytes = box->width_bytes,
        .Height = box->height,
        .Depth = slices,
    };
    return stream->device->session->driver->cuMemcpy3DAsync(&copy, stream->cu_stream);
}

static bool has_regular_slices(const flyt_box *box)
{
    return box->pitch_bytes && box->pitch_bytes <= pitch_bytes_max && box->slice_bytes % box->pitch_bytes == 0 &&
           box->slice_bytes / box->pitch_bytes >= box->height;
}

static CUresult copy_parts(struct flyt_stream *stream, const flyt_box *box, char *at, uint64_t offset_bytes,
                           uint64_t bytes, bool to_device)
{
    uint64_t width = box->width_bytes, slice_packed = width * box->height;
    CUresult result = CUDA_SUCCESS;
    /* From the offset to the end of its row, then to the end of its slice, then by slices; and down again. */
    while (bytes && result == CUDA_SUCCESS) {
        uint64_t slice = offset_bytes / slice_packed, row = offset_bytes % slice_packed / width;
        uint64_t column = offset_bytes % width;
        uint64_t address = box->address + slice * box->slice_bytes + row * box->pitch_bytes + column;
        uint64_t step;
        if (column || bytes < width) {
            step = width - column < bytes ? width - column : bytes;
            result = copy_line(stream, address, at, step, to_device);
        } else if (!row && bytes >= 2 * slice_packed && has_regular_slices(box)) {
            step = bytes / slice_packed * slice_packed;
            result = copy_slices(stream, box, address, at, step / slice_packed, to_device);
        } else {
            uint64_t rows = box->height - row < bytes / width ? box->height - row : bytes / width;
            step = rows * width;
            result = copy_rows(stream, box, address, at, rows, to_device);
        }
        at += step;
        offset_bytes += step;
        bytes -= step;
    }
    return result;
}

CUresult flyt_copy_packed(struct flyt_stream *stream, struct flyt_device *device, const flyt_box *box, void *host,
                          uint64_t offset_bytes, uint64_t bytes, bool to_device)
{
    struct flyt_stream *carrier;
    CUresult result = flyt_carrier_begin(stream, device, &carrier);
    if (result != CUDA_SUCCESS)
        return result;
    return flyt_carrier_end(stream, carrier, copy_parts(carrier, box, host, offset_bytes, bytes, to_device));
}
