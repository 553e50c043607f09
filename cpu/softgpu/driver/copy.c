/* Copies, of arrays too, and fills of linear memory. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cpu/softgpu/driver/array.h"
#include "cpu/softgpu/driver/driver.h"
#include "cpu/softgpu/driver/graph.h"
#include "cpu/softgpu/driver/queue.h"
#include "rpc/api/array_format.h"

/* A pageable source up to this is copied when the call is made, so that the call need not wait for the stream. */
enum { STAGED_BYTES_MAX = 64 << 10 };

/* One side of a copy: rows of bytes in slices. */
struct side {
    uint64_t address;
    uint64_t pitch_bytes;
    uint64_t slice_bytes;
    bool is_device; /* must be device memory; else the process's memory, of which only NULL is refused */
    struct flyt_soft_pixels *pixels; /* of an array, in which the box was found to lie; else NULL */
};

struct box {
    uint64_t width_bytes, height, depth;
};

struct copy_op {
    struct flyt_soft_op op;
    struct side to, from;
    struct box box;
    char staged[]; /* the source, where it was taken at the call */
};

struct fill_op {
    struct flyt_soft_op op;
    struct side to;
    struct box box;
    uint32_t value;
    unsigned value_bytes;
};

/* From the first byte to the last one that the box touches, gaps included. False: more than an address can say. */
static bool side_extent(const struct side *side, const struct box *box, uint64_t *ret_bytes)
{
    uint64_t rows, slices, sum;

    if (__builtin_mul_overflow(box->height - 1, side->pitch_bytes, &rows) ||
        __builtin_mul_overflow(box->depth - 1, side->slice_bytes, &slices) ||
        __builtin_add_overflow(rows, slices, &sum) || __builtin_add_overflow(sum, box->width_bytes, &sum))
        return false;
    *ret_bytes = sum;
    return sum < FLYT_SOFT_SPAN_BYTES;
}

static bool side_is_valid(const struct side *side, const struct box *box)
{
    uint64_t bytes;

    if (side->pixels)
        return true;
    if (!side_extent(side, box, &bytes))
        return false;
    return side->is_device ? flyt_soft_is_device_memory(side->address, bytes) : side->address != 0;
}

static bool is_empty(const struct box *box)
{
    return !box->width_bytes || !box->height || !box->depth;
}

/* ---- execution ---- */

static char *row(const struct side *side, uint64_t y, uint64_t z)
{
    return (char *)(side->address + z * side->slice_bytes + y * side->pitch_bytes);
}

static CUresult copy_run(struct flyt_soft_op *op)
{
    struct copy_op *copy = (struct copy_op *)op;
    const struct box *box = &copy->box;

    /* Looked at again: what was mapped at the call may be gone, which on a GPU is a fault. */
    if (!side_is_valid(&copy->to, box) || !side_is_valid(&copy->from, box))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    for (uint64_t z = 0; z < box->depth; z++)
        for (uint64_t y = 0; y < box->height; y++)
            memmove(row(&copy->to, y, z), row(&copy->from, y, z), box->width_bytes);
    return CUDA_SUCCESS;
}

/* Extents that are filled with 0 give their pages back: memory is committed as it is touched, and clearing what was
 * never touched commits none. */
static void fill_bytes(char *at, uint64_t bytes, int value)
{
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    char *first = (char *)(((uintptr_t)at + page_bytes - 1) & ~(page_bytes - 1));
    char *end = (char *)(((uintptr_t)at + bytes) & ~(page_bytes - 1));

    if (value || bytes < FLYT_SOFT_GRANULE_BYTES || madvise(first, (size_t)(end - first), MADV_REMOVE)) {
        memset(at, value, bytes);
        return;
    }
    memset(at, 0, (size_t)(first - at));
    memset(end, 0, (size_t)(at + bytes - end));
}

static void fill_row(char *at, uint64_t bytes, uint32_t value, unsigned value_bytes)
{
    if (value_bytes == 1) {
        fill_bytes(at, bytes, (int)value);
        return;
    }
    if (value_bytes == 2) {
        uint16_t half = (uint16_t)value;

        for (uint64_t i = 0; i < bytes; i += sizeof(half))
            memcpy(at + i, &half, sizeof(half));
        return;
    }
    for (uint64_t i = 0; i < bytes; i += sizeof(value))
        memcpy(at + i, &value, sizeof(value));
}

static CUresult fill_run(struct flyt_soft_op *op)
{
    struct fill_op *fill = (struct fill_op *)op;

    if (!side_is_valid(&fill->to, &fill->box))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    for (uint64_t y = 0; y < fill->box.height; y++)
        fill_row(row(&fill->to, y, 0), fill->box.width_bytes, fill->value, fill->value_bytes);
    return CUDA_SUCCESS;
}

static void op_free(struct flyt_soft_op *op)
{
    free(op);
}

static void copy_free(struct flyt_soft_op *op)
{
    struct copy_op *copy = (struct copy_op *)op;

    if (copy->to.pixels)
        flyt_soft_pixels_unref(copy->to.pixels);
    if (copy->from.pixels)
        flyt_soft_pixels_unref(copy->from.pixels);
    free(copy);
}

/* ---- issue ---- */

/* Whether the call must not return before the copy is done, because the host's side is not page-locked. */
static bool is_pageable(const struct side *side)
{
    return !side->is_device && !side->pixels && !flyt_soft_is_pinned(side->address);
}

/*
 * Appends a copy to the stream. is_sync: wait for it. A copy out of or into pageable memory is over when the call
 * returns, as far as the host can tell.
 */
static CUresult copy(CUstream handle, struct side to, struct side from, const struct box *box, bool is_sync)
{
    struct CUctx_st *ctx;
    struct CUstream_st *stream;
    struct copy_op *copy_op;
    bool is_staged;
    uint64_t number;
    CUresult r = flyt_soft_enter(&ctx);

    if (r == CUDA_SUCCESS)
        r = flyt_soft_stream_take(ctx, handle, &stream);
    if (r != CUDA_SUCCESS || is_empty(box))
        return r;
    if (!side_is_valid(&to, box) || !side_is_valid(&from, box))
        return CUDA_ERROR_INVALID_VALUE;
    if (is_pageable(&to))
        is_sync = true;
    is_staged = !is_sync && is_pageable(&from) && box->height * box->depth == 1 && box->width_bytes <= STAGED_BYTES_MAX;
    if (!is_staged && is_pageable(&from))
        is_sync = true;
    copy_op = malloc(sizeof(*copy_op) + (is_staged ? box->width_bytes : 0));
    if (!copy_op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *copy_op = (struct copy_op){.op = {.run = copy_run, .free = copy_free}, .to = to, .from = from, .box = *box};
    if (to.pixels)
        flyt_soft_pixels_ref(to.pixels);
    if (from.pixels)
        flyt_soft_pixels_ref(from.pixels);
    if (is_staged) {
        memcpy(copy_op->staged, (const void *)from.address, box->width_bytes);
        copy_op->from = (struct side){.address = (uint64_t)copy_op->staged};
    }
    number = flyt_soft_stream_push(stream, &copy_op->op);
    return is_sync ? flyt_soft_stream_finish(stream, number) : CUDA_SUCCESS;
}

/* A side that is one run of bytes. */
static struct side device_side(uint64_t address)
{
    return (struct side){.address = address, .is_device = true};
}

static struct side host_side(const void *p)
{
    return (struct side){.address = (uint64_t)p};
}

/* A side whose kind the address tells: what lies in the span of device addresses must be mapped there. */
static struct side unified_side(uint64_t address)
{
    return (struct side){.address = address, .is_device = flyt_soft_is_in_span(address)};
}

static CUresult copy_line(CUstream stream, struct side to, struct side from, size_t bytes, bool is_sync)
{
    struct box box = {.width_bytes = bytes, .height = 1, .depth = 1};

    return copy(stream, to, from, &box, is_sync);
}

FLYT_SOFT_API cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
    return copy_line(NULL, unified_side(dst), unified_side(src), ByteCount, true);
}

FLYT_SOFT_API cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream)
{
    return copy_line(hStream, unified_side(dst), unified_side(src), ByteCount, false);
}

FLYT_SOFT_API cuMemcpyHtoD(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)
{
    return copy_line(NULL, device_side(dstDevice), host_side(srcHost), ByteCount, true);
}

FLYT_SOFT_API cuMemcpyHtoDAsync(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream)
{
    return copy_line(hStream, device_side(dstDevice), host_side(srcHost), ByteCount, false);
}

FLYT_SOFT_API cuMemcpyDtoH(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
    return copy_line(NULL, host_side(dstHost), device_side(srcDevice), ByteCount, true);
}

FLYT_SOFT_API cuMemcpyDtoHAsync(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
    return copy_line(hStream, host_side(dstHost), device_side(srcDevice), ByteCount, false);
}

FLYT_SOFT_API cuMemcpyDtoD(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount)
{
    return copy_line(NULL, device_side(dstDevice), device_side(srcDevice), ByteCount, true);
}

FLYT_SOFT_API cuMemcpyDtoDAsync(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
    return copy_line(hStream, device_side(dstDevice), device_side(srcDevice), ByteCount, false);
}

FLYT_SOFT_API cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                                CUcontext srcContext, size_t ByteCount, CUstream hStream)
{
    if (!flyt_soft_is(dstContext, FLYT_SOFT_CONTEXT) || !flyt_soft_is(srcContext, FLYT_SOFT_CONTEXT))
        return CUDA_ERROR_INVALID_CONTEXT;
    return copy_line(hStream, device_side(dstDevice), device_side(srcDevice), ByteCount, false);
}

FLYT_SOFT_API cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
                           size_t ByteCount)
{
    if (!flyt_soft_is(dstContext, FLYT_SOFT_CONTEXT) || !flyt_soft_is(srcContext, FLYT_SOFT_CONTEXT))
        return CUDA_ERROR_INVALID_CONTEXT;
    return copy_line(NULL, device_side(dstDevice), device_side(srcDevice), ByteCount, true);
}

/* ---- two and three dimensions ---- */

/* What CUDA_MEMCPY2D and CUDA_MEMCPY3D say of one side. */
struct side_request {
    CUmemorytype type;
    const void *host;
    uint64_t device;
    CUarray array;
    uint64_t x_bytes, y, z;
    uint64_t pitch_bytes, slice_height;
};

/* A box of an array, whole elements of it. */
static CUresult array_side(const struct side_request *request, const struct box *box, struct side *ret_side)
{
    const struct flyt_ptx_level *level;
    const struct flyt_ptx_image *image;
    uint64_t width_bytes, height;
    CUresult r = flyt_soft_array_level(request->array, &level);

    if (r != CUDA_SUCCESS)
        return r;
    image = &request->array->pixels->image;
    width_bytes = flyt_array_elements(level->width, 1u << image->block_shift) * image->texel_bytes;
    height = flyt_array_elements(level->height, 1u << image->block_shift);
    if (request->x_bytes % image->texel_bytes || box->width_bytes % image->texel_bytes ||
        request->x_bytes > width_bytes || box->width_bytes > width_bytes - request->x_bytes || request->y > height ||
        box->height > height - request->y || request->z > level->depth || box->depth > level->depth - request->z)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_side = (struct side){.address = level->address + request->z * level->slice_bytes +
                                         request->y * level->row_bytes + request->x_bytes,
                              .pitch_bytes = level->row_bytes,
                              .slice_bytes = level->slice_bytes,
                              .pixels = request->array->pixels};
    return CUDA_SUCCESS;
}

static CUresult side_make(const struct side_request *request, const struct box *box, struct side *ret_side)
{
    uint64_t pitch = request->pitch_bytes, slice, offset, part;

    switch (request->type) {
    case CU_MEMORYTYPE_HOST:
        *ret_side = host_side(request->host);
        break;
    case CU_MEMORYTYPE_DEVICE:
        *ret_side = device_side(request->device);
        break;
    case CU_MEMORYTYPE_UNIFIED:
        *ret_side = unified_side(request->device);
        break;
    case CU_MEMORYTYPE_ARRAY:
        return array_side(request, box, ret_side);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    if ((box->height > 1 || box->depth > 1) &&
        (pitch < request->x_bytes || pitch - request->x_bytes < box->width_bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (box->depth > 1 && request->slice_height < box->height)
        return CUDA_ERROR_INVALID_VALUE;
    if (__builtin_mul_overflow(pitch, request->slice_height, &slice) ||
        __builtin_mul_overflow(request->z, slice, &offset) || __builtin_mul_overflow(request->y, pitch, &part) ||
        __builtin_add_overflow(offset, part, &offset) || __builtin_add_overflow(offset, request->x_bytes, &offset) ||
        __builtin_add_overflow(ret_side->address, offset, &ret_side->address))
        return CUDA_ERROR_INVALID_VALUE;
    ret_side->pitch_bytes = pitch;
    ret_side->slice_bytes = slice;
    return CUDA_SUCCESS;
}

static CUresult copy_requested(CUstream stream, const struct side_request *to_request,
                               const struct side_request *from_request, const struct box *box, bool is_sync)
{
    struct side to, from;
    CUresult r = side_make(to_request, box, &to);

    if (r == CUDA_SUCCESS)
        r = side_make(from_request, box, &from);
    return r == CUDA_SUCCESS ? copy(stream, to, from, box, is_sync) : r;
}

static CUresult copy_2d(const CUDA_MEMCPY2D *c, CUstream stream, bool is_sync)
{
    struct side_request to, from;
    struct box box;

    if (!c)
        return CUDA_ERROR_INVALID_VALUE;
    box = (struct box){.width_bytes = c->WidthInBytes, .height = c->Height, .depth = 1};
    to = (struct side_request){.type = c->dstMemoryType,
                               .host = c->dstHost,
                               .device = c->dstDevice,
                               .array = c->dstArray,
                               .x_bytes = c->dstXInBytes,
                               .y = c->dstY,
                               .pitch_bytes = c->dstPitch};
    from = (struct side_request){.type = c->srcMemoryType,
                                 .host = c->srcHost,
                                 .device = c->srcDevice,
                                 .array = c->srcArray,
                                 .x_bytes = c->srcXInBytes,
                                 .y = c->srcY,
                                 .pitch_bytes = c->srcPitch};
    return copy_requested(stream, &to, &from, &box, is_sync);
}

static CUresult requests_3d(const CUDA_MEMCPY3D *c, struct side_request *ret_to, struct side_request *ret_from,
                            struct box *ret_box)
{
    if (!c || c->srcLOD || c->dstLOD)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_box = (struct box){.width_bytes = c->WidthInBytes, .height = c->Height, .depth = c->Depth};
    *ret_to = (struct side_request){.type = c->dstMemoryType,
                                    .host = c->dstHost,
                                    .device = c->dstDevice,
                                    .array = c->dstArray,
                                    .x_bytes = c->dstXInBytes,
                                    .y = c->dstY,
                                    .z = c->dstZ,
                                    .pitch_bytes = c->dstPitch,
                                    .slice_height = c->dstHeight};
    *ret_from = (struct side_request){.type = c->srcMemoryType,
                                      .host = c->srcHost,
                                      .device = c->srcDevice,
                                      .array = c->srcArray,
                                      .x_bytes = c->srcXInBytes,
                                      .y = c->srcY,
                                      .z = c->srcZ,
                                      .pitch_bytes = c->srcPitch,
                                      .slice_height = c->srcHeight};
    return CUDA_SUCCESS;
}

static CUresult copy_3d(const CUDA_MEMCPY3D *c, CUstream stream, bool is_sync)
{
    struct side_request to, from;
    struct box box;
    CUresult r = requests_3d(c, &to, &from, &box);

    return r == CUDA_SUCCESS ? copy_requested(stream, &to, &from, &box, is_sync) : r;
}

/* The contexts only tell the devices, which the addresses tell as well. */
static CUresult copy_3d_peer(const CUDA_MEMCPY3D_PEER *c, CUstream stream, bool is_sync)
{
    CUDA_MEMCPY3D plain;

    if (!c)
        return CUDA_ERROR_INVALID_VALUE;
    plain = (CUDA_MEMCPY3D){
        .srcXInBytes = c->srcXInBytes,
        .srcY = c->srcY,
        .srcZ = c->srcZ,
        .srcLOD = c->srcLOD,
        .srcMemoryType = c->srcMemoryType,
        .srcHost = c->srcHost,
        .srcDevice = c->srcDevice,
        .srcArray = c->srcArray,
        .srcPitch = c->srcPitch,
        .srcHeight = c->srcHeight,
        .dstXInBytes = c->dstXInBytes,
        .dstY = c->dstY,
        .dstZ = c->dstZ,
        .dstLOD = c->dstLOD,
        .dstMemoryType = c->dstMemoryType,
        .dstHost = c->dstHost,
        .dstDevice = c->dstDevice,
        .dstArray = c->dstArray,
        .dstPitch = c->dstPitch,
        .dstHeight = c->dstHeight,
        .WidthInBytes = c->WidthInBytes,
        .Height = c->Height,
        .Depth = c->Depth,
    };
    return copy_3d(&plain, stream, is_sync);
}

FLYT_SOFT_API cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *pCopy)
{
    return copy_3d_peer(pCopy, NULL, true);
}

FLYT_SOFT_API cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *pCopy, CUstream hStream)
{
    return copy_3d_peer(pCopy, hStream, false);
}

FLYT_SOFT_API cuMemcpy2D(const CUDA_MEMCPY2D *pCopy)
{
    return copy_2d(pCopy, NULL, true);
}

FLYT_SOFT_API cuMemcpy2DUnaligned(const CUDA_MEMCPY2D *pCopy)
{
    return copy_2d(pCopy, NULL, true);
}

FLYT_SOFT_API cuMemcpy2DAsync(const CUDA_MEMCPY2D *pCopy, CUstream hStream)
{
    return copy_2d(pCopy, hStream, false);
}

FLYT_SOFT_API cuMemcpy3D(const CUDA_MEMCPY3D *pCopy)
{
    return copy_3d(pCopy, NULL, true);
}

FLYT_SOFT_API cuMemcpy3DAsync(const CUDA_MEMCPY3D *pCopy, CUstream hStream)
{
    return copy_3d(pCopy, hStream, false);
}

CUresult flyt_soft_copy_op_new(const CUDA_MEMCPY3D *c, struct flyt_soft_op **ret_op)
{
    struct copy_op *copy_op;
    struct side_request to_request, from_request;
    struct side to, from;
    struct box box;
    CUresult r = requests_3d(c, &to_request, &from_request, &box);

    if (r == CUDA_SUCCESS && (to_request.type == CU_MEMORYTYPE_ARRAY || from_request.type == CU_MEMORYTYPE_ARRAY))
        r = CUDA_ERROR_NOT_SUPPORTED; /* nothing would keep the array while the graph has it */
    if (r == CUDA_SUCCESS)
        r = side_make(&to_request, &box, &to);
    if (r == CUDA_SUCCESS)
        r = side_make(&from_request, &box, &from);
    if (r != CUDA_SUCCESS)
        return r;
    if (is_empty(&box) || !side_is_valid(&to, &box) || !side_is_valid(&from, &box))
        return CUDA_ERROR_INVALID_VALUE;
    copy_op = malloc(sizeof(*copy_op));
    if (!copy_op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *copy_op = (struct copy_op){.op = {.run = copy_run, .free = op_free}, .to = to, .from = from, .box = box};
    *ret_op = &copy_op->op;
    return CUDA_SUCCESS;
}

/* ---- fills ---- */

CUresult flyt_soft_fill_op_new(const CUDA_MEMSET_NODE_PARAMS *params, struct flyt_soft_op **ret_op)
{
    struct box box = {.height = params->height, .depth = 1};
    struct side to = {.address = params->dst, .pitch_bytes = params->pitch, .is_device = true};
    const unsigned value_bytes = params->elementSize;
    struct fill_op *fill_op;

    if ((value_bytes != 1 && value_bytes != 2 && value_bytes != 4) ||
        __builtin_mul_overflow(params->width, value_bytes, &box.width_bytes) || is_empty(&box))
        return CUDA_ERROR_INVALID_VALUE;
    if (params->dst % value_bytes ||
        (params->height > 1 && (params->pitch % value_bytes || params->pitch < box.width_bytes)) ||
        !side_is_valid(&to, &box))
        return CUDA_ERROR_INVALID_VALUE;
    fill_op = malloc(sizeof(*fill_op));
    if (!fill_op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *fill_op = (struct fill_op){.op = {.run = fill_run, .free = op_free},
                                .to = to,
                                .box = box,
                                .value = params->value,
                                .value_bytes = value_bytes};
    *ret_op = &fill_op->op;
    return CUDA_SUCCESS;
}

/* Fills height rows of `width` values each. */
static CUresult fill(CUstream handle, uint64_t address, size_t pitch_bytes, uint32_t value, unsigned value_bytes,
                     size_t width, size_t height, bool is_sync)
{
    struct box box = {.height = height, .depth = 1};
    struct side to = {.address = address, .pitch_bytes = pitch_bytes, .is_device = true};
    struct CUctx_st *ctx;
    struct CUstream_st *stream;
    struct fill_op *fill_op;
    uint64_t number;
    CUresult r = flyt_soft_enter(&ctx);

    if (r == CUDA_SUCCESS)
        r = flyt_soft_stream_take(ctx, handle, &stream);
    if (r != CUDA_SUCCESS)
        return r;
    if (__builtin_mul_overflow(width, value_bytes, &box.width_bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (is_empty(&box))
        return CUDA_SUCCESS;
    if (address % value_bytes || (height > 1 && (pitch_bytes % value_bytes || pitch_bytes < box.width_bytes)) ||
        !side_is_valid(&to, &box))
        return CUDA_ERROR_INVALID_VALUE;
    fill_op = malloc(sizeof(*fill_op));
    if (!fill_op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *fill_op = (struct fill_op){
        .op = {.run = fill_run, .free = op_free}, .to = to, .box = box, .value = value, .value_bytes = value_bytes};
    number = flyt_soft_stream_push(stream, &fill_op->op);
    return is_sync ? flyt_soft_stream_finish(stream, number) : CUDA_SUCCESS;
}

FLYT_SOFT_API cuMemsetD8(CUdeviceptr dstDevice, unsigned char uc, size_t N)
{
    return fill(NULL, dstDevice, 0, uc, 1, N, 1, true);
}

FLYT_SOFT_API cuMemsetD16(CUdeviceptr dstDevice, unsigned short us, size_t N)
{
    return fill(NULL, dstDevice, 0, us, 2, N, 1, true);
}

FLYT_SOFT_API cuMemsetD32(CUdeviceptr dstDevice, unsigned int ui, size_t N)
{
    return fill(NULL, dstDevice, 0, ui, 4, N, 1, true);
}

FLYT_SOFT_API cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream)
{
    return fill(hStream, dstDevice, 0, uc, 1, N, 1, false);
}

FLYT_SOFT_API cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream)
{
    return fill(hStream, dstDevice, 0, us, 2, N, 1, false);
}

FLYT_SOFT_API cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream)
{
    return fill(hStream, dstDevice, 0, ui, 4, N, 1, false);
}

FLYT_SOFT_API cuMemsetD2D8(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height)
{
    return fill(NULL, dstDevice, dstPitch, uc, 1, Width, Height, true);
}

FLYT_SOFT_API cuMemsetD2D16(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height)
{
    return fill(NULL, dstDevice, dstPitch, us, 2, Width, Height, true);
}

FLYT_SOFT_API cuMemsetD2D32(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height)
{
    return fill(NULL, dstDevice, dstPitch, ui, 4, Width, Height, true);
}

FLYT_SOFT_API cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height,
                                CUstream hStream)
{
    return fill(hStream, dstDevice, dstPitch, uc, 1, Width, Height, false);
}

FLYT_SOFT_API cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height,
                                 CUstream hStream)
{
    return fill(hStream, dstDevice, dstPitch, us, 2, Width, Height, false);
}

FLYT_SOFT_API cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height,
                                 CUstream hStream)
{
    return fill(hStream, dstDevice, dstPitch, ui, 4, Width, Height, false);
}
