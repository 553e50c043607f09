/* Boxes of device memory: checking them, and copying parts of them from and to packed host memory. */
#include "cpu/server/cuda/copy.h"

#include "cpu/server/cuda/array.h"
#include "cpu/server/cuda/memory.h"
#include "cpu/server/core/session.h"
#include "cpu/server/core/stream.h"

/* The driver refuses larger pitches; such rows are copied one by one. */
static const uint64_t pitch_bytes_max = 0x7fffffff;

CUresult flyt_box_check(struct flyt_session *session, const flyt_box *box, uint64_t *ret_bytes,
                        struct flyt_device **ret_device)
{
    uint64_t rows, bytes, slices_span, rows_span, span;
    if (flyt_box_is_array(box))
        return flyt_array_box_check(session, box, ret_bytes, ret_device);
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

/* Whole rows of one slice; a single one where the pitch is more than the driver takes. */
static CUresult copy_rows(struct flyt_stream *stream, const flyt_box *box, uint64_t address, char *host, uint64_t rows,
                          bool to_device)
{
    if (rows == 1 || box->pitch_bytes == box->width_bytes)
        return copy_line(stream, address, host, rows * box->width_bytes, to_device);
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

/* Part of a row, whole rows of a slice, or whole slices of a box of an array, from there on. */
static CUresult copy_array(struct flyt_stream *stream, const flyt_box *box, const struct flyt_array_side *at,
                           const struct flyt_array_extents *part, char *host, bool to_device)
{
    CUDA_MEMCPY3D copy = {.WidthInBytes = part->width, .Height = part->height, .Depth = part->depth};
    if (to_device) {
        copy.srcMemoryType = CU_MEMORYTYPE_HOST;
        copy.srcHost = host;
        copy.srcPitch = box->width_bytes;
        copy.srcHeight = box->height;
        copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
        copy.dstArray = at->cu_array;
        copy.dstXInBytes = at->x_bytes;
        copy.dstY = at->y;
        copy.dstZ = at->z;
    } else {
        copy.dstMemoryType = CU_MEMORYTYPE_HOST;
        copy.dstHost = host;
        copy.dstPitch = box->width_bytes;
        copy.dstHeight = box->height;
        copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
        copy.srcArray = at->cu_array;
        copy.srcXInBytes = at->x_bytes;
        copy.srcY = at->y;
        copy.srcZ = at->z;
    }
    return stream->device->session->driver->cuMemcpy3DAsync(&copy, stream->cu_stream);
}

/* submit, of a box of an array. */
static CUresult submit_array(struct flyt_pieces *pieces, struct flyt_stream *stream)
{
    struct flyt_box_copy *self = (struct flyt_box_copy *)pieces;
    const flyt_box *box = &self->box;
    const uint64_t width = box->width_bytes, slice_packed = width * box->height, bytes = pieces->left;
    const uint64_t row = self->offset_bytes % slice_packed / width, column = self->offset_bytes % width;
    struct flyt_array_extents part = {.width = width, .height = 1, .depth = 1};
    struct flyt_array_side at;
    CUresult result = flyt_array_side(stream->device->session, box, &at);
    if (result != CUDA_SUCCESS)
        return result;
    at.x_bytes += column;
    at.y += row;
    at.z += self->offset_bytes / slice_packed;
    if (column || bytes < width) {
        part.width = width - column < bytes ? width - column : bytes;
    } else if (!row && bytes >= slice_packed) {
        part.height = box->height;
        part.depth = bytes / slice_packed;
    } else {
        part.height = box->height - row < bytes / width ? box->height - row : bytes / width;
    }
    const uint64_t step = part.width * part.height * part.depth;
    result = copy_array(stream, box, &at, &part, self->host, self->to_device);
    self->host += step;
    self->offset_bytes += step;
    pieces->left -= step;
    return result;
}

static bool has_regular_slices(const flyt_box *box)
{
    return box->pitch_bytes && box->pitch_bytes <= pitch_bytes_max && box->slice_bytes % box->pitch_bytes == 0 &&
           box->slice_bytes / box->pitch_bytes >= box->height;
}

/* One driver call copies all of it, a handful any part of it. */
static bool is_regular(const flyt_box *box)
{
    if (flyt_box_is_array(box))
        return true;
    if (box->depth > 1)
        return has_regular_slices(box);
    return box->height == 1 || box->pitch_bytes <= pitch_bytes_max;
}

/* The rest of a row, whole slices, or whole rows of a slice: as much as one driver call takes. */
static CUresult submit(struct flyt_pieces *pieces, struct flyt_stream *stream)
{
    struct flyt_box_copy *self = (struct flyt_box_copy *)pieces;
    const flyt_box *box = &self->box;
    uint64_t width = box->width_bytes, slice_packed = width * box->height, bytes = pieces->left;
    uint64_t slice = self->offset_bytes / slice_packed, row = self->offset_bytes % slice_packed / width;
    uint64_t column = self->offset_bytes % width, step;
    uint64_t address = box->address + slice * box->slice_bytes + row * box->pitch_bytes + column;
    CUresult result;
    if (column || bytes < width) {
        step = width - column < bytes ? width - column : bytes;
        result = copy_line(stream, address, self->host, step, self->to_device);
    } else if (!row && bytes >= 2 * slice_packed && has_regular_slices(box)) {
        step = bytes / slice_packed * slice_packed;
        result = copy_slices(stream, box, address, self->host, step / slice_packed, self->to_device);
    } else {
        uint64_t rows = box->height - row < bytes / width ? box->height - row : bytes / width;
        if (box->pitch_bytes > pitch_bytes_max)
            rows = 1;
        step = rows * width;
        result = copy_rows(stream, box, address, self->host, rows, self->to_device);
    }
    self->host += step;
    self->offset_bytes += step;
    pieces->left -= step;
    return result;
}

struct flyt_box_copy flyt_box_copy_begin(struct flyt_device *device, const flyt_box *box, void *host,
                                         uint64_t offset_bytes, uint64_t bytes, bool to_device)
{
    return (struct flyt_box_copy){.pieces = {.device = device,
                                             .left = bytes,
                                             .is_few = is_regular(box),
                                             .submit = flyt_box_is_array(box) ? submit_array : submit},
                                  .box = *box,
                                  .host = host,
                                  .offset_bytes = offset_bytes,
                                  .to_device = to_device};
}

bool flyt_box_is_packed(const flyt_box *box)
{
    if (flyt_box_is_array(box))
        return false;
    return (box->height == 1 || box->pitch_bytes == box->width_bytes) &&
           (box->depth == 1 || box->slice_bytes == box->height * box->width_bytes);
}

uint64_t flyt_box_rows_apart(const flyt_box *box)
{
    if (box->depth == 1 || flyt_box_is_array(box))
        return box->height;
    uint64_t rows =
        box->pitch_bytes && box->slice_bytes % box->pitch_bytes == 0 ? box->slice_bytes / box->pitch_bytes : 0;
    return rows >= box->height ? rows : 0;
}

uint64_t flyt_box_pitch(const flyt_box *box)
{
    bool is_row = box->height == 1 && box->depth == 1;
    return is_row || flyt_box_is_array(box) ? box->width_bytes : box->pitch_bytes;
}

flyt_box flyt_box_simplify(const flyt_box *box)
{
    flyt_box simple = *box;
    if (flyt_box_is_array(box))
        return simple;
    if (box->height == 1 &&
        (box->depth == 1 || box->slice_bytes == box->width_bytes || box->slice_bytes <= pitch_bytes_max)) {
        simple.height = box->depth; /* slices are the rows */
        simple.pitch_bytes = box->slice_bytes;
        simple.depth = 1;
    } else if (box->height > 1 && box->depth > 1 && box->slice_bytes % box->height == 0 &&
               box->slice_bytes / box->height == box->pitch_bytes) {
        simple.height = box->height * box->depth;
        simple.depth = 1;
    }
    if (simple.depth == 1 && (simple.height == 1 || simple.pitch_bytes == simple.width_bytes))
        return flyt_box_line(box->address, simple.height * simple.width_bytes);
    return simple;
}
