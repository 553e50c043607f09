/*
 * Copies and fills: every form of the driver API becomes one struct flyt_copy or flyt_fill.
 */
#include "cpu/cuda/driver.h"
#include "cpu/client/cuda/copy.h"

/* ---- plain copies ---- */

static CUresult copy_plain(enum flyt_place dst_place, uint64_t dst, enum flyt_place src_place, uint64_t src,
                           size_t bytes, CUstream stream, bool is_async)
{
    FLYT_CUDA_ENTER();
    struct flyt_copy copy = flyt_copy_plain(dst_place, dst, src_place, src, bytes);
    return flyt_copy(&copy, stream, is_async);
}

/* A synchronous copy and its per-thread variant. */
#define PLAIN_COPY(name, dst_type, dst_place, src_type, src_place)                                                     \
    CUresult CUDAAPI name(dst_type dst, src_type src, size_t bytes)                                                    \
    {                                                                                                                  \
        return copy_plain(dst_place, (uint64_t)dst, src_place, (uint64_t)src, bytes, NULL, false);                     \
    }                                                                                                                  \
    CUresult CUDAAPI name##_ptds(dst_type dst, src_type src, size_t bytes)                                             \
    {                                                                                                                  \
        return copy_plain(dst_place, (uint64_t)dst, src_place, (uint64_t)src, bytes, CU_STREAM_PER_THREAD, false);     \
    }

/* An asynchronous copy and its per-thread variant. */
#define PLAIN_COPY_ASYNC(name, dst_type, dst_place, src_type, src_place)                                               \
    CUresult CUDAAPI name(dst_type dst, src_type src, size_t bytes, CUstream stream)                                   \
    {                                                                                                                  \
        return copy_plain(dst_place, (uint64_t)dst, src_place, (uint64_t)src, bytes, stream, true);                    \
    }                                                                                                                  \
    FLYT_CUDA_PTSZ(name, (dst_type dst, src_type src, size_t bytes, CUstream stream),                                  \
                   (dst, src, bytes, flyt_stream_per_thread(stream)))

PLAIN_COPY(cuMemcpy, CUdeviceptr, FLYT_PLACE_ANY, CUdeviceptr, FLYT_PLACE_ANY)
PLAIN_COPY(cuMemcpyHtoD_v2, CUdeviceptr, FLYT_PLACE_DEVICE, const void *, FLYT_PLACE_HOST)
PLAIN_COPY(cuMemcpyDtoH_v2, void *, FLYT_PLACE_HOST, CUdeviceptr, FLYT_PLACE_DEVICE)
PLAIN_COPY(cuMemcpyDtoD_v2, CUdeviceptr, FLYT_PLACE_DEVICE, CUdeviceptr, FLYT_PLACE_DEVICE)

PLAIN_COPY_ASYNC(cuMemcpyAsync, CUdeviceptr, FLYT_PLACE_ANY, CUdeviceptr, FLYT_PLACE_ANY)
PLAIN_COPY_ASYNC(cuMemcpyHtoDAsync_v2, CUdeviceptr, FLYT_PLACE_DEVICE, const void *, FLYT_PLACE_HOST)
PLAIN_COPY_ASYNC(cuMemcpyDtoHAsync_v2, void *, FLYT_PLACE_HOST, CUdeviceptr, FLYT_PLACE_DEVICE)
PLAIN_COPY_ASYNC(cuMemcpyDtoDAsync_v2, CUdeviceptr, FLYT_PLACE_DEVICE, CUdeviceptr, FLYT_PLACE_DEVICE)

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
    return copy_plain(FLYT_PLACE_DEVICE, dst, FLYT_PLACE_DEVICE, src, bytes, stream, is_async);
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
        return flyt_not_supported("a copy to or from a CUDA array");
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
    CUresult result = side_lower(src, width_bytes, height, depth, &copy.src);
    if (result == CUDA_SUCCESS)
        result = side_lower(dst, width_bytes, height, depth, &copy.dst);
    return result != CUDA_SUCCESS ? result : flyt_copy(&copy, stream, is_async);
}

/* The fields of CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER have the same names, those of CUDA_MEMCPY2D are fewer. */
#define SIDE_2D(d, which)                                                                                              \
    {                                                                                                                  \
        .type = (d)->which##MemoryType, .host = (d)->which##Host, .device = (d)->which##Device,                        \
        .x_bytes = (d)->which##XInBytes, .y = (d)->which##Y, .pitch_bytes = (d)->which##Pitch                          \
    }
#define SIDE_3D(d, which)                                                                                              \
    {                                                                                                                  \
        .type = (d)->which##MemoryType, .host = (d)->which##Host, .device = (d)->which##Device,                        \
        .x_bytes = (d)->which##XInBytes, .y = (d)->which##Y, .z = (d)->which##Z, .pitch_bytes = (d)->which##Pitch,     \
        .height = (d)->which##Height                                                                                   \
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

/* ---- fills ---- */

static CUresult fill_box(CUdeviceptr address, size_t pitch_bytes, unsigned element_bytes, uint32_t value, size_t width,
                         size_t height, CUstream stream, bool is_async)
{
    FLYT_CUDA_ENTER();
    struct flyt_fill fill = {.address = address,
                             .width = width,
                             .height = height,
                             .depth = 1,
                             .pitch_bytes = pitch_bytes,
                             .element_bytes = element_bytes,
                             .value = value};
    return flyt_fill(&fill, stream, is_async);
}

/* A fill of a row of elements of value_type: synchronous, asynchronous, and their per-thread variants. */
#define FILL(name, async_name, value_type)                                                                             \
    CUresult CUDAAPI name(CUdeviceptr dst, value_type value, size_t count)                                             \
    {                                                                                                                  \
        return fill_box(dst, 0, sizeof(value_type), value, count, 1, NULL, false);                                     \
    }                                                                                                                  \
    CUresult CUDAAPI name##_ptds(CUdeviceptr dst, value_type value, size_t count)                                      \
    {                                                                                                                  \
        return fill_box(dst, 0, sizeof(value_type), value, count, 1, CU_STREAM_PER_THREAD, false);                     \
    }                                                                                                                  \
    CUresult CUDAAPI async_name(CUdeviceptr dst, value_type value, size_t count, CUstream stream)                      \
    {                                                                                                                  \
        return fill_box(dst, 0, sizeof(value_type), value, count, 1, stream, true);                                    \
    }                                                                                                                  \
    FLYT_CUDA_PTSZ(async_name, (CUdeviceptr dst, value_type value, size_t count, CUstream stream),                     \
                   (dst, value, count, flyt_stream_per_thread(stream)))

/* The same for `height` rows, pitch_bytes apart. */
#define FILL_2D(name, async_name, value_type)                                                                          \
    CUresult CUDAAPI name(CUdeviceptr dst, size_t pitch_bytes, value_type value, size_t width, size_t height)          \
    {                                                                                                                  \
        return fill_box(dst, pitch_bytes, sizeof(value_type), value, width, height, NULL, false);                      \
    }                                                                                                                  \
    CUresult CUDAAPI name##_ptds(CUdeviceptr dst, size_t pitch_bytes, value_type value, size_t width, size_t height)   \
    {                                                                                                                  \
        return fill_box(dst, pitch_bytes, sizeof(value_type), value, width, height, CU_STREAM_PER_THREAD, false);      \
    }                                                                                                                  \
    CUresult CUDAAPI async_name(CUdeviceptr dst, size_t pitch_bytes, value_type value, size_t width, size_t height,    \
                                CUstream stream)                                                                       \
    {                                                                                                                  \
        return fill_box(dst, pitch_bytes, sizeof(value_type), value, width, height, stream, true);                     \
    }                                                                                                                  \
    FLYT_CUDA_PTSZ(                                                                                                    \
        async_name,                                                                                                    \
        (CUdeviceptr dst, size_t pitch_bytes, value_type value, size_t width, size_t height, CUstream stream),         \
        (dst, pitch_bytes, value, width, height, flyt_stream_per_thread(stream)))

FILL(cuMemsetD8_v2, cuMemsetD8Async, unsigned char)
FILL(cuMemsetD16_v2, cuMemsetD16Async, unsigned short)
FILL(cuMemsetD32_v2, cuMemsetD32Async, unsigned int)
FILL_2D(cuMemsetD2D8_v2, cuMemsetD2D8Async, unsigned char)
FILL_2D(cuMemsetD2D16_v2, cuMemsetD2D16Async, unsigned short)
FILL_2D(cuMemsetD2D32_v2, cuMemsetD2D32Async, unsigned int)
