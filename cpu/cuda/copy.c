/*
 * Copies between contexts, and in two and three dimensions: each becomes one struct flyt_copy. Rows make the others.
 */
#include "cpu/cuda/driver.h"
#include "cpu/client/cuda/array.h"
#include "cpu/client/cuda/copy.h"
#include "cpu/cuda/lower.h"

/* ---- between contexts: the addresses say which devices, the contexts need only exist ---- */

static CUresult check_contexts(CUcontext dst_context, CUcontext src_context)
{
    int device;
    CUresult result = flyt_context_device(dst_context, &device);
    return result != CUDA_SUCCESS ? result : flyt_context_device(src_context, &device);
}

static CUresult copy_peer(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context, size_t bytes,
                          CUstream stream, bool is_async)
{
    FLYT_CUDA_ENTER();
    CUresult result = check_contexts(dst_context, src_context);
    if (result != CUDA_SUCCESS)
        return result;
    return flyt_copy_range(FLYT_PLACE_DEVICE, dst, FLYT_PLACE_DEVICE, src, bytes, stream, is_async);
}

CUresult CUDAAPI cuMemcpyPeer(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context,
                              size_t bytes)
{
    return copy_peer(dst, dst_context, src, src_context, bytes, NULL, false);
}

CUresult CUDAAPI cuMemcpyPeer_ptds(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context,
                                   size_t bytes)
{
    return copy_peer(dst, dst_context, src, src_context, bytes, CU_STREAM_PER_THREAD, false);
}

CUresult CUDAAPI cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context,
                                   size_t bytes, CUstream stream)
{
    return copy_peer(dst, dst_context, src, src_context, bytes, stream, true);
}
FLYT_CUDA_PTSZ(cuMemcpyPeerAsync,
               (CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context, size_t bytes,
                CUstream stream),
               (dst, dst_context, src, src_context, bytes, flyt_stream_per_thread(stream)))

/* ---- 2D and 3D ---- */

/* One side as the descriptors of the driver API give it. `height` is the rows of a slice, 0: as many as are copied. */
struct side {
    CUmemorytype type;
    const void *host;
    CUdeviceptr device;
    CUarray array;
    size_t x_bytes, y, z;
    size_t pitch_bytes, height;
};

static bool add_product(uint64_t *sum, uint64_t a, uint64_t b)
{
    uint64_t product;
    return !__builtin_mul_overflow(a, b, &product) && !__builtin_add_overflow(*sum, product, sum);
}

/* CUDA_ERROR_INVALID_VALUE: an unknown type, rows wider than their pitch, slices taller than their height. */
static CUresult side_lower(const struct side *side, size_t width_bytes, size_t height, size_t depth,
                           struct flyt_copy_side *ret_side)
{
    const struct flyt_array_at at = {side->array, side->x_bytes, side->y, side->z};
    struct flyt_copy_side out = {.address = side->device};
    switch (side->type) {
    case CU_MEMORYTYPE_HOST:
        out.place = FLYT_PLACE_HOST;
        out.address = (uint64_t)side->host;
        break;
    case CU_MEMORYTYPE_DEVICE:
        out.place = FLYT_PLACE_DEVICE;
        break;
    case CU_MEMORYTYPE_UNIFIED:
        out.place = FLYT_PLACE_ANY;
        break;
    case CU_MEMORYTYPE_ARRAY:
        return flyt_array_copy_side(&at, width_bytes, height, depth, ret_side);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t row_bytes, rows;
    if (__builtin_add_overflow(side->x_bytes, width_bytes, &row_bytes) ||
        __builtin_add_overflow(side->y, height, &rows))
        return CUDA_ERROR_INVALID_VALUE;
    out.pitch_bytes = side->pitch_bytes ? side->pitch_bytes : row_bytes;
    uint64_t slice_rows = side->height ? side->height : rows;
    bool has_slices = depth > 1 || side->z > 0;
    if (row_bytes > out.pitch_bytes || (has_slices && rows > slice_rows))
        return CUDA_ERROR_INVALID_VALUE;
    if (has_slices && __builtin_mul_overflow(out.pitch_bytes, slice_rows, &out.slice_bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (!add_product(&out.address, side->y, out.pitch_bytes) || !add_product(&out.address, side->z, out.slice_bytes) ||
        !add_product(&out.address, side->x_bytes, 1))
        return CUDA_ERROR_INVALID_VALUE;
    *ret_side = out;
    return CUDA_SUCCESS;
}

static CUresult copy_box(const struct side *dst, const struct side *src, size_t width_bytes, size_t height,
                         size_t depth, CUstream stream, bool is_async)
{
    struct flyt_copy copy = {.width_bytes = width_bytes, .height = height, .depth = depth};
    const bool is_empty = !width_bytes || !height || !depth;
    CUresult result = is_empty ? CUDA_SUCCESS : side_lower(src, width_bytes, height, depth, &copy.src);
    if (result == CUDA_SUCCESS && !is_empty)
        result = side_lower(dst, width_bytes, height, depth, &copy.dst);
    return result != CUDA_SUCCESS ? result : flyt_copy(&copy, stream, is_async);
}

/* The fields of CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER have the same names, those of CUDA_MEMCPY2D are fewer. */
#define SIDE_2D(d, which)                                                                                              \
    {                                                                                                                  \
        .type = (d)->which##MemoryType, .host = (d)->which##Host, .device = (d)->which##Device,                        \
        .array = (d)->which##Array, .x_bytes = (d)->which##XInBytes, .y = (d)->which##Y,                               \
        .pitch_bytes = (d)->which##Pitch                                                                               \
    }
#define SIDE_3D(d, which)                                                                                              \
    {                                                                                                                  \
        .type = (d)->which##MemoryType, .host = (d)->which##Host, .device = (d)->which##Device,                        \
        .array = (d)->which##Array, .x_bytes = (d)->which##XInBytes, .y = (d)->which##Y, .z = (d)->which##Z,           \
        .pitch_bytes = (d)->which##Pitch, .height = (d)->which##Height                                                 \
    }

CUresult flyt_cuda_lower_copy(const CUDA_MEMCPY3D *copy, struct flyt_copy *ret_copy)
{
    const struct side dst = SIDE_3D(copy, dst), src = SIDE_3D(copy, src);
    *ret_copy = (struct flyt_copy){.width_bytes = copy->WidthInBytes, .height = copy->Height, .depth = copy->Depth};
    CUresult result = side_lower(&src, ret_copy->width_bytes, ret_copy->height, ret_copy->depth, &ret_copy->src);
    return result != CUDA_SUCCESS
               ? result
               : side_lower(&dst, ret_copy->width_bytes, ret_copy->height, ret_copy->depth, &ret_copy->dst);
}

static CUresult copy_2d(const CUDA_MEMCPY2D *copy, CUstream stream, bool is_async)
{
    FLYT_CUDA_ENTER();
    if (!copy)
        return flyt_cuda_invalid_value();
    struct side dst = SIDE_2D(copy, dst), src = SIDE_2D(copy, src);
    return copy_box(&dst, &src, copy->WidthInBytes, copy->Height, 1, stream, is_async);
}

static CUresult copy_3d(const CUDA_MEMCPY3D *copy, CUstream stream, bool is_async)
{
    FLYT_CUDA_ENTER();
    if (!copy)
        return flyt_cuda_invalid_value();
    struct side dst = SIDE_3D(copy, dst), src = SIDE_3D(copy, src);
    return copy_box(&dst, &src, copy->WidthInBytes, copy->Height, copy->Depth, stream, is_async);
}

static CUresult copy_3d_peer(const CUDA_MEMCPY3D_PEER *copy, CUstream stream, bool is_async)
{
    FLYT_CUDA_ENTER();
    if (!copy)
        return flyt_cuda_invalid_value();
    CUresult result = check_contexts(copy->dstContext, copy->srcContext);
    if (result != CUDA_SUCCESS)
        return result;
    struct side dst = SIDE_3D(copy, dst), src = SIDE_3D(copy, src);
    return copy_box(&dst, &src, copy->WidthInBytes, copy->Height, copy->Depth, stream, is_async);
}

/* A copy by descriptor and its per-thread variant. */
#define BOX_COPY(name, type, function)                                                                                 \
    CUresult CUDAAPI name(const type *copy)                                                                            \
    {                                                                                                                  \
        return function(copy, NULL, false);                                                                            \
    }                                                                                                                  \
    CUresult CUDAAPI name##_ptds(const type *copy)                                                                     \
    {                                                                                                                  \
        return function(copy, CU_STREAM_PER_THREAD, false);                                                            \
    }

#define BOX_COPY_ASYNC(name, type, function)                                                                           \
    CUresult CUDAAPI name(const type *copy, CUstream stream)                                                           \
    {                                                                                                                  \
        return function(copy, stream, true);                                                                           \
    }                                                                                                                  \
    FLYT_CUDA_PTSZ(name, (const type *copy, CUstream stream), (copy, flyt_stream_per_thread(stream)))

BOX_COPY(cuMemcpy2D_v2, CUDA_MEMCPY2D, copy_2d)
BOX_COPY(cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D, copy_2d)
BOX_COPY(cuMemcpy3D_v2, CUDA_MEMCPY3D, copy_3d)
BOX_COPY(cuMemcpy3DPeer, CUDA_MEMCPY3D_PEER, copy_3d_peer)
BOX_COPY_ASYNC(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D, copy_2d)
BOX_COPY_ASYNC(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D, copy_3d)
BOX_COPY_ASYNC(cuMemcpy3DPeerAsync, CUDA_MEMCPY3D_PEER, copy_3d_peer)
