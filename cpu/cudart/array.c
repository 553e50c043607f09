/*
 * CUDA arrays: made of a channel's description and an extent, and copied. Each synchronous copy, its asynchronous
 * counterpart and the variants of both for per-thread default streams end in one function.
 */
#include "cpu/cudart/array.h"

#include "cpu/client/cuda/array.h"
#include "cpu/cudart/copy.h"
#include "rpc/api/array_format.h"

#define PER_THREAD CU_STREAM_PER_THREAD

/* Programs are told to use others; they are there all the same. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

/* ---- descriptions ---- */

struct cudaChannelFormatDesc flyt_cudart_channels(CUarray_format number, unsigned channels)
{
    const struct flyt_array_format *format = flyt_array_format_find(number);
    struct cudaChannelFormatDesc desc = {.f = cudaChannelFormatKindNone};

    if (!format || format->kind == FLYT_ARRAY_NO_KIND)
        return desc;
    desc.f = (enum cudaChannelFormatKind)format->kind;
    desc.x = format->channel_bits;
    desc.y = channels > 1 ? desc.x : 0;
    desc.z = channels > 2 ? desc.x : 0;
    desc.w = channels < 4 ? 0 : number == CU_AD_FORMAT_UNORM_INT_101010_2 ? 2 : desc.x;
    return desc;
}

cudaError_t flyt_cudart_format(const struct cudaChannelFormatDesc *desc, CUarray_format *ret_format,
                               unsigned *ret_channels)
{
    const unsigned given = !desc->y ? 1 : !desc->z ? 2 : !desc->w ? 3 : 4;
    const struct flyt_array_format *format;

    for (unsigned i = 0; (format = flyt_array_format_at(i)); i++) {
        const struct cudaChannelFormatDesc told =
            flyt_cudart_channels((CUarray_format)format->number, format->channels ? format->channels : given);
        if (format->kind != FLYT_ARRAY_NO_KIND && flyt_array_format_has(format, given) && told.f == desc->f &&
            told.x == desc->x && told.y == desc->y && told.z == desc->z && told.w == desc->w)
            break;
    }
    if (!format)
        return cudaErrorInvalidChannelDescriptor;
    *ret_format = (CUarray_format)format->number;
    *ret_channels = given;
    return cudaSuccess;
}

/* ---- making ---- */

static cudaError_t lower(const struct cudaChannelFormatDesc *desc, struct cudaExtent extent, unsigned flags,
                         CUDA_ARRAY3D_DESCRIPTOR *ret_desc)
{
    CUDA_ARRAY3D_DESCRIPTOR out = {
        .Width = extent.width, .Height = extent.height, .Depth = extent.depth, .Flags = flags};
    cudaError_t error =
        desc && extent.width ? flyt_cudart_format(desc, &out.Format, &out.NumChannels) : cudaErrorInvalidValue;

    if (error == cudaSuccess)
        *ret_desc = out;
    return error;
}

static cudaError_t create(cudaArray_t *ret_array, const struct cudaChannelFormatDesc *desc, struct cudaExtent extent,
                          unsigned flags)
{
    CUDA_ARRAY3D_DESCRIPTOR lowered;
    cudaError_t error = ret_array ? lower(desc, extent, flags, &lowered) : cudaErrorInvalidValue;
    CUarray array;
    CUresult result;

    if (error != cudaSuccess)
        return flyt_cudart_fail(error);
    result = flyt_cudart_enter();
    if (result == CUDA_SUCCESS)
        result = flyt_array_create(&lowered, &array);
    if (result == CUDA_SUCCESS)
        *ret_array = (cudaArray_t)array;
    return flyt_cudart_result(result);
}

cudaError_t cudaMallocArray(cudaArray_t *array, const struct cudaChannelFormatDesc *desc, size_t width, size_t height,
                            unsigned int flags)
{
    /* Layers and faces are of three dimensions. */
    if (flags & (cudaArrayLayered | cudaArrayCubemap))
        return flyt_cudart_fail(cudaErrorInvalidValue);
    return create(array, desc, (struct cudaExtent){.width = width, .height = height}, flags);
}

cudaError_t cudaMalloc3DArray(cudaArray_t *array, const struct cudaChannelFormatDesc *desc, struct cudaExtent extent,
                              unsigned int flags)
{
    return create(array, desc, extent, flags);
}

cudaError_t cudaMallocMipmappedArray(cudaMipmappedArray_t *mipmappedArray, const struct cudaChannelFormatDesc *desc,
                                     struct cudaExtent extent, unsigned int numLevels, unsigned int flags)
{
    CUDA_ARRAY3D_DESCRIPTOR lowered;
    cudaError_t error = mipmappedArray ? lower(desc, extent, flags, &lowered) : cudaErrorInvalidValue;
    CUmipmappedArray mipmap;
    CUresult result;

    if (error != cudaSuccess)
        return flyt_cudart_fail(error);
    result = flyt_cudart_enter();
    if (result == CUDA_SUCCESS)
        result = flyt_mipmap_create(&lowered, numLevels, &mipmap);
    if (result == CUDA_SUCCESS)
        *mipmappedArray = (cudaMipmappedArray_t)mipmap;
    return flyt_cudart_result(result);
}

/* ---- questions ---- */

/* Most formats of video have no description. */
static cudaError_t describe_channels(const CUDA_ARRAY3D_DESCRIPTOR *desc, struct cudaChannelFormatDesc *ret_desc)
{
    const struct flyt_array_format *format = flyt_array_format_find((uint32_t)desc->Format);

    if (format && format->kind == FLYT_ARRAY_NO_KIND)
        return cudaErrorInvalidChannelDescriptor;
    *ret_desc = flyt_cudart_channels(desc->Format, desc->NumChannels);
    return cudaSuccess;
}

static CUresult describe(cudaArray_const_t array, CUDA_ARRAY3D_DESCRIPTOR *ret_desc)
{
    CUresult result = flyt_cudart_enter();

    return result == CUDA_SUCCESS ? flyt_array_describe((CUarray)(uintptr_t)array, ret_desc) : result;
}

cudaError_t cudaArrayGetInfo(struct cudaChannelFormatDesc *desc, struct cudaExtent *extent, unsigned int *flags,
                             cudaArray_t array)
{
    CUDA_ARRAY3D_DESCRIPTOR found;
    CUresult result = describe(array, &found);
    cudaError_t error;

    if (result != CUDA_SUCCESS)
        return flyt_cudart_result(result);
    error = desc ? describe_channels(&found, desc) : cudaSuccess;
    if (error != cudaSuccess)
        return flyt_cudart_fail(error);
    if (extent)
        *extent = (struct cudaExtent){.width = found.Width, .height = found.Height, .depth = found.Depth};
    if (flags)
        *flags = found.Flags;
    return cudaSuccess;
}

cudaError_t cudaGetChannelDesc(struct cudaChannelFormatDesc *desc, cudaArray_const_t array)
{
    CUDA_ARRAY3D_DESCRIPTOR found;
    CUresult result = desc ? describe(array, &found) : CUDA_ERROR_INVALID_VALUE;

    cudaError_t error = result == CUDA_SUCCESS ? describe_channels(&found, desc) : cudaSuccess;

    return error != cudaSuccess ? flyt_cudart_fail(error) : flyt_cudart_result(result);
}

/* ---- copies ---- */

cudaError_t flyt_cudart_array_side(cudaArray_t array, const struct cudaPos *pos, const struct cudaExtent *extent,
                                   struct flyt_copy_side *ret_side)
{
    struct flyt_array_at at = {.array = (CUarray)array, .z = pos->z};
    struct flyt_array_element element = {1, 1};
    CUresult result = flyt_array_element(at.array, &element);

    at.y = pos->y / element.side;
    if (result == CUDA_SUCCESS && __builtin_mul_overflow(pos->x / element.side, element.bytes, &at.x_bytes))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = flyt_array_copy_side(&at, extent->width, extent->height, extent->depth, ret_side);
    return result == CUDA_SUCCESS ? cudaSuccess : flyt_cudart_error(result);
}

/* Where the side is that is no array. The direction must not say that the array is the host's. */
static cudaError_t take_kind(enum cudaMemcpyKind kind, bool to_array, struct flyt_copy_side *side)
{
    struct flyt_copy places;
    cudaError_t error = flyt_cudart_places(kind, &places);

    if (error != cudaSuccess)
        return error;
    if (kind == cudaMemcpyHostToHost || kind == (to_array ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice))
        return cudaErrorInvalidMemcpyDirection;
    side->place = to_array ? places.src.place : places.dst.place;
    return cudaSuccess;
}

static cudaError_t copy_run(cudaArray_const_t array, size_t x_bytes, size_t y, const void *memory, size_t count,
                            enum cudaMemcpyKind kind, bool to_array, cudaStream_t stream, bool is_async)
{
    const struct flyt_array_at at = {.array = (CUarray)(uintptr_t)array, .x_bytes = x_bytes, .y = y};
    struct flyt_copy_side side = {.address = (uintptr_t)memory};
    cudaError_t error = count > 0 ? take_kind(kind, to_array, &side) : cudaSuccess;
    CUresult result;

    if (error != cudaSuccess)
        return flyt_cudart_fail(error);
    result = flyt_cudart_enter();
    if (result == CUDA_SUCCESS)
        result = flyt_array_copy_run(&at, &side, count, to_array, stream, is_async);
    return flyt_cudart_result(result);
}

static cudaError_t copy_rows(cudaArray_const_t array, size_t x_bytes, size_t y, const void *memory, size_t pitch,
                             size_t width, size_t height, enum cudaMemcpyKind kind, bool to_array, cudaStream_t stream,
                             bool is_async)
{
    const struct flyt_array_at at = {.array = (CUarray)(uintptr_t)array, .x_bytes = x_bytes, .y = y};
    const struct flyt_copy_side linear = {.address = (uintptr_t)memory, .pitch_bytes = pitch};
    struct flyt_copy copy = {.width_bytes = width, .height = height, .depth = 1};
    cudaError_t error;
    CUresult result;

    if (width == 0 || height == 0)
        return flyt_cudart_result(flyt_cudart_enter());
    *(to_array ? &copy.src : &copy.dst) = linear;
    if (width > pitch)
        error = height > 1 ? cudaErrorInvalidPitchValue : cudaErrorInvalidValue;
    else
        error = take_kind(kind, to_array, to_array ? &copy.src : &copy.dst);
    if (error != cudaSuccess)
        return flyt_cudart_fail(error);
    result = flyt_cudart_enter();
    if (result == CUDA_SUCCESS)
        result = flyt_array_copy_side(&at, width, height, 1, to_array ? &copy.dst : &copy.src);
    if (result == CUDA_SUCCESS)
        result = flyt_copy(&copy, stream, is_async);
    return flyt_cudart_result(result);
}

static cudaError_t copy_arrays(cudaArray_t dst, size_t dst_x_bytes, size_t dst_y, cudaArray_const_t src,
                               size_t src_x_bytes, size_t src_y, size_t width, size_t height, enum cudaMemcpyKind kind,
                               cudaStream_t stream)
{
    const struct flyt_array_at to = {.array = (CUarray)dst, .x_bytes = dst_x_bytes, .y = dst_y};
    const struct flyt_array_at from = {.array = (CUarray)(uintptr_t)src, .x_bytes = src_x_bytes, .y = src_y};
    struct flyt_copy copy = {.width_bytes = width, .height = height, .depth = 1};
    CUresult result;

    if (width == 0 || height == 0)
        return flyt_cudart_result(flyt_cudart_enter());
    if (kind != cudaMemcpyDeviceToDevice && kind != cudaMemcpyDefault)
        return flyt_cudart_fail(cudaErrorInvalidMemcpyDirection);
    result = flyt_cudart_enter();
    if (result == CUDA_SUCCESS)
        result = flyt_array_copy_side(&to, width, height, 1, &copy.dst);
    if (result == CUDA_SUCCESS)
        result = flyt_array_copy_side(&from, width, height, 1, &copy.src);
    if (result == CUDA_SUCCESS)
        result = flyt_copy(&copy, stream, false);
    return flyt_cudart_result(result);
}

cudaError_t cudaMemcpyToArray(cudaArray_t dst, size_t wOffset, size_t hOffset, const void *src, size_t count,
                              enum cudaMemcpyKind kind)
{
    return copy_run(dst, wOffset, hOffset, src, count, kind, true, NULL, false);
}

FLYT_CUDART_PTDS(cudaMemcpyToArray,
                 (cudaArray_t dst, size_t wOffset, size_t hOffset, const void *src, size_t count,
                  enum cudaMemcpyKind kind),
                 copy_run(dst, wOffset, hOffset, src, count, kind, true, PER_THREAD, false))

cudaError_t cudaMemcpyToArrayAsync(cudaArray_t dst, size_t wOffset, size_t hOffset, const void *src, size_t count,
                                   enum cudaMemcpyKind kind, cudaStream_t stream)
{
    return copy_run(dst, wOffset, hOffset, src, count, kind, true, stream, true);
}

FLYT_CUDART_PTSZ(cudaMemcpyToArrayAsync,
                 (cudaArray_t dst, size_t wOffset, size_t hOffset, const void *src, size_t count,
                  enum cudaMemcpyKind kind, cudaStream_t stream),
                 (dst, wOffset, hOffset, src, count, kind, flyt_stream_per_thread(stream)))

cudaError_t cudaMemcpyFromArray(void *dst, cudaArray_const_t src, size_t wOffset, size_t hOffset, size_t count,
                                enum cudaMemcpyKind kind)
{
    return copy_run(src, wOffset, hOffset, dst, count, kind, false, NULL, false);
}

FLYT_CUDART_PTDS(cudaMemcpyFromArray,
                 (void *dst, cudaArray_const_t src, size_t wOffset, size_t hOffset, size_t count,
                  enum cudaMemcpyKind kind),
                 copy_run(src, wOffset, hOffset, dst, count, kind, false, PER_THREAD, false))

cudaError_t cudaMemcpyFromArrayAsync(void *dst, cudaArray_const_t src, size_t wOffset, size_t hOffset, size_t count,
                                     enum cudaMemcpyKind kind, cudaStream_t stream)
{
    return copy_run(src, wOffset, hOffset, dst, count, kind, false, stream, true);
}

FLYT_CUDART_PTSZ(cudaMemcpyFromArrayAsync,
                 (void *dst, cudaArray_const_t src, size_t wOffset, size_t hOffset, size_t count,
                  enum cudaMemcpyKind kind, cudaStream_t stream),
                 (dst, src, wOffset, hOffset, count, kind, flyt_stream_per_thread(stream)))

cudaError_t cudaMemcpy2DToArray(cudaArray_t dst, size_t wOffset, size_t hOffset, const void *src, size_t spitch,
                                size_t width, size_t height, enum cudaMemcpyKind kind)
{
    return copy_rows(dst, wOffset, hOffset, src, spitch, width, height, kind, true, NULL, false);
}

FLYT_CUDART_PTDS(cudaMemcpy2DToArray,
                 (cudaArray_t dst, size_t wOffset, size_t hOffset, const void *src, size_t spitch, size_t width,
                  size_t height, enum cudaMemcpyKind kind),
                 copy_rows(dst, wOffset, hOffset, src, spitch, width, height, kind, true, PER_THREAD, false))

cudaError_t cudaMemcpy2DToArrayAsync(cudaArray_t dst, size_t wOffset, size_t hOffset, const void *src, size_t spitch,
                                     size_t width, size_t height, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    return copy_rows(dst, wOffset, hOffset, src, spitch, width, height, kind, true, stream, true);
}

FLYT_CUDART_PTSZ(cudaMemcpy2DToArrayAsync,
                 (cudaArray_t dst, size_t wOffset, size_t hOffset, const void *src, size_t spitch, size_t width,
                  size_t height, enum cudaMemcpyKind kind, cudaStream_t stream),
                 (dst, wOffset, hOffset, src, spitch, width, height, kind, flyt_stream_per_thread(stream)))

cudaError_t cudaMemcpy2DFromArray(void *dst, size_t dpitch, cudaArray_const_t src, size_t wOffset, size_t hOffset,
                                  size_t width, size_t height, enum cudaMemcpyKind kind)
{
    return copy_rows(src, wOffset, hOffset, dst, dpitch, width, height, kind, false, NULL, false);
}

FLYT_CUDART_PTDS(cudaMemcpy2DFromArray,
                 (void *dst, size_t dpitch, cudaArray_const_t src, size_t wOffset, size_t hOffset, size_t width,
                  size_t height, enum cudaMemcpyKind kind),
                 copy_rows(src, wOffset, hOffset, dst, dpitch, width, height, kind, false, PER_THREAD, false))

cudaError_t cudaMemcpy2DFromArrayAsync(void *dst, size_t dpitch, cudaArray_const_t src, size_t wOffset, size_t hOffset,
                                       size_t width, size_t height, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    return copy_rows(src, wOffset, hOffset, dst, dpitch, width, height, kind, false, stream, true);
}

FLYT_CUDART_PTSZ(cudaMemcpy2DFromArrayAsync,
                 (void *dst, size_t dpitch, cudaArray_const_t src, size_t wOffset, size_t hOffset, size_t width,
                  size_t height, enum cudaMemcpyKind kind, cudaStream_t stream),
                 (dst, dpitch, src, wOffset, hOffset, width, height, kind, flyt_stream_per_thread(stream)))

cudaError_t cudaMemcpy2DArrayToArray(cudaArray_t dst, size_t wOffsetDst, size_t hOffsetDst, cudaArray_const_t src,
                                     size_t wOffsetSrc, size_t hOffsetSrc, size_t width, size_t height,
                                     enum cudaMemcpyKind kind)
{
    return copy_arrays(dst, wOffsetDst, hOffsetDst, src, wOffsetSrc, hOffsetSrc, width, height, kind, NULL);
}

FLYT_CUDART_PTDS(cudaMemcpy2DArrayToArray,
                 (cudaArray_t dst, size_t wOffsetDst, size_t hOffsetDst, cudaArray_const_t src, size_t wOffsetSrc,
                  size_t hOffsetSrc, size_t width, size_t height, enum cudaMemcpyKind kind),
                 copy_arrays(dst, wOffsetDst, hOffsetDst, src, wOffsetSrc, hOffsetSrc, width, height, kind, PER_THREAD))

/* Within a row of each: runs over several rows would be boxes of two shapes. */
cudaError_t cudaMemcpyArrayToArray(cudaArray_t dst, size_t wOffsetDst, size_t hOffsetDst, cudaArray_const_t src,
                                   size_t wOffsetSrc, size_t hOffsetSrc, size_t count, enum cudaMemcpyKind kind)
{
    return copy_arrays(dst, wOffsetDst, hOffsetDst, src, wOffsetSrc, hOffsetSrc, count, 1, kind, NULL);
}

FLYT_CUDART_PTDS(cudaMemcpyArrayToArray,
                 (cudaArray_t dst, size_t wOffsetDst, size_t hOffsetDst, cudaArray_const_t src, size_t wOffsetSrc,
                  size_t hOffsetSrc, size_t count, enum cudaMemcpyKind kind),
                 copy_arrays(dst, wOffsetDst, hOffsetDst, src, wOffsetSrc, hOffsetSrc, count, 1, kind, PER_THREAD))
