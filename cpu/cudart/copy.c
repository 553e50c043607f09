/*
 * Copies of memory in one, two and three dimensions, and fills in three. Each synchronous call, its asynchronous
 * counterpart and the variants of both for per-thread default streams end in one function: what differs is the stream
 * and whether the call waits. The synchronous calls work in the default stream.
 */
#include "cpu/cudart/copy.h"

#include "cpu/client/cuda/array.h"
#include "cpu/client/cuda/device.h"
#include "cpu/cudart/array.h"
#include "cpu/cudart/cudart.h"
#include "rpc/api/array_format.h"

#define PER_THREAD CU_STREAM_PER_THREAD

cudaError_t flyt_cudart_places(enum cudaMemcpyKind kind, struct flyt_copy *copy)
{
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault)
        return cudaErrorInvalidMemcpyDirection;
    copy->dst.place = copy->src.place = FLYT_PLACE_ANY;
    if (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice)
        copy->dst.place = FLYT_PLACE_DEVICE;
    if (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice)
        copy->src.place = FLYT_PLACE_DEVICE;
    return cudaSuccess;
}

/* A copy of nothing is done, whatever its stream is. */
static cudaError_t run_copy(const struct flyt_copy *copy, cudaStream_t stream, bool is_async)
{
    CUresult result = flyt_cudart_enter();

    if (result == CUDA_SUCCESS && copy->width_bytes > 0 && copy->height > 0 && copy->depth > 0)
        result = flyt_copy(copy, stream, is_async);
    return flyt_cudart_result(result);
}

/* ---- one dimension ---- */

static cudaError_t copy_plain(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind, cudaStream_t stream,
                              bool is_async)
{
    struct flyt_copy copy = flyt_copy_plain(FLYT_PLACE_ANY, (uintptr_t)dst, FLYT_PLACE_ANY, (uintptr_t)src, count);
    cudaError_t error = count > 0 ? flyt_cudart_places(kind, &copy) : cudaSuccess;

    return error != cudaSuccess ? flyt_cudart_fail(error) : run_copy(&copy, stream, is_async);
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind)
{
    return copy_plain(dst, src, count, kind, NULL, false);
}

FLYT_CUDART_PTDS(cudaMemcpy, (void *dst, const void *src, size_t count, enum cudaMemcpyKind kind),
                 copy_plain(dst, src, count, kind, PER_THREAD, false))

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    return copy_plain(dst, src, count, kind, stream, true);
}

FLYT_CUDART_PTSZ(cudaMemcpyAsync,
                 (void *dst, const void *src, size_t count, enum cudaMemcpyKind kind, cudaStream_t stream),
                 (dst, src, count, kind, flyt_stream_per_thread(stream)))

/* ---- between devices: addresses say which, so the ordinals are only checked ---- */

static CUresult check_devices(int dst_device, int src_device)
{
    CUresult result = flyt_device_check(dst_device);

    return result != CUDA_SUCCESS ? result : flyt_device_check(src_device);
}

static cudaError_t copy_peer(void *dst, int dst_device, const void *src, int src_device, size_t count,
                             cudaStream_t stream, bool is_async)
{
    CUresult result = check_devices(dst_device, src_device);

    if (result != CUDA_SUCCESS)
        return flyt_cudart_result(result);
    return copy_plain(dst, src, count, cudaMemcpyDeviceToDevice, stream, is_async);
}

cudaError_t cudaMemcpyPeer(void *dst, int dstDevice, const void *src, int srcDevice, size_t count)
{
    return copy_peer(dst, dstDevice, src, srcDevice, count, NULL, false);
}

cudaError_t cudaMemcpyPeerAsync(void *dst, int dstDevice, const void *src, int srcDevice, size_t count,
                                cudaStream_t stream)
{
    return copy_peer(dst, dstDevice, src, srcDevice, count, stream, true);
}

/* ---- two dimensions ---- */

static cudaError_t copy_2d(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
                           enum cudaMemcpyKind kind, cudaStream_t stream, bool is_async)
{
    struct flyt_copy copy = {.dst = {FLYT_PLACE_ANY, (uintptr_t)dst, dpitch, 0},
                             .src = {FLYT_PLACE_ANY, (uintptr_t)src, spitch, 0},
                             .width_bytes = width,
                             .height = height,
                             .depth = 1};
    cudaError_t error = cudaSuccess;

    if (width > 0 && height > 0) {
        /* One row has no use for a pitch, and still must fit it. */
        if (width > dpitch || width > spitch)
            error = height > 1 ? cudaErrorInvalidPitchValue : cudaErrorInvalidValue;
        else
            error = flyt_cudart_places(kind, &copy);
    }
    return error != cudaSuccess ? flyt_cudart_fail(error) : run_copy(&copy, stream, is_async);
}

cudaError_t cudaMemcpy2D(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
                         enum cudaMemcpyKind kind)
{
    return copy_2d(dst, dpitch, src, spitch, width, height, kind, NULL, false);
}

FLYT_CUDART_PTDS(cudaMemcpy2D,
                 (void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
                  enum cudaMemcpyKind kind),
                 copy_2d(dst, dpitch, src, spitch, width, height, kind, PER_THREAD, false))

cudaError_t cudaMemcpy2DAsync(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
                              enum cudaMemcpyKind kind, cudaStream_t stream)
{
    return copy_2d(dst, dpitch, src, spitch, width, height, kind, stream, true);
}

FLYT_CUDART_PTSZ(cudaMemcpy2DAsync,
                 (void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
                  enum cudaMemcpyKind kind, cudaStream_t stream),
                 (dst, dpitch, src, spitch, width, height, kind, flyt_stream_per_thread(stream)))

/* ---- three dimensions ---- */

/* What the runtime says of memory's rows and slices, where there are several, before it looks at anything else. */
static cudaError_t check_pitch(cudaArray_t array, const struct cudaPitchedPtr *memory, const struct cudaExtent *extent)
{
    bool has_rows = extent->height > 1 || extent->depth > 1, has_slices = extent->depth > 1;

    if (array || !memory->ptr)
        return cudaSuccess;
    return (has_rows && extent->width > memory->pitch) || (has_slices && extent->height > memory->ysize)
               ? cudaErrorInvalidPitchValue
               : cudaSuccess;
}

/* One side of a 3D copy, whose pitch was checked. Widths count bytes by now, heights rows; positions elements, in an
 * array texels. A single row needs no pitch, a single slice no height: 0 says so, and what is too little is wrong. */
static cudaError_t side_3d(cudaArray_t array, const struct cudaPitchedPtr *memory, const struct cudaPos *pos,
                           const struct cudaExtent *extent, size_t element_bytes, struct flyt_copy_side *ret_side)
{
    size_t x_bytes;

    if (array)
        return flyt_cudart_array_side(array, pos, extent, ret_side);

    uint64_t slice_bytes = (uint64_t)memory->pitch * memory->ysize;

    if (!memory->ptr || __builtin_mul_overflow(pos->x, element_bytes, &x_bytes))
        return cudaErrorInvalidValue;
    /* A row may not run into the next, nor a slice into the next slice. */
    if (memory->pitch && (extent->width > memory->pitch || x_bytes > memory->pitch - extent->width))
        return cudaErrorInvalidValue;
    if (memory->ysize &&
        (extent->height > memory->ysize || (extent->depth > 1 && pos->y > memory->ysize - extent->height)))
        return cudaErrorInvalidValue;
    *ret_side = (struct flyt_copy_side){
        FLYT_PLACE_ANY, (uintptr_t)memory->ptr + pos->z * slice_bytes + pos->y * memory->pitch + x_bytes,
        memory->pitch ? memory->pitch : extent->width, slice_bytes};
    return cudaSuccess;
}

/* Where an array takes part, extents count texels of it, of the source's where both sides are arrays, and a copy takes
 * the elements that hold them; positions in memory count elements (so the runtime, of 13.0, where the manual says
 * bytes). The elements of two arrays are equally large. */
static cudaError_t find_element(const struct cudaMemcpy3DParms *p, struct flyt_array_element *ret_element)
{
    struct flyt_array_element dst = {1, 1}, src = {1, 1};
    CUresult result = CUDA_SUCCESS;

    if (p->dstArray)
        result = flyt_array_element((CUarray)p->dstArray, &dst);
    if (p->srcArray && result == CUDA_SUCCESS)
        result = flyt_array_element((CUarray)p->srcArray, &src);
    if (result != CUDA_SUCCESS)
        return flyt_cudart_error(result);
    if (p->dstArray && p->srcArray && dst.bytes != src.bytes)
        return cudaErrorInvalidValue;
    *ret_element = p->srcArray ? src : dst;
    return cudaSuccess;
}

/* The direction is about sides that are no arrays. */
static cudaError_t take_places(const struct cudaMemcpy3DParms *p, struct flyt_copy *copy)
{
    struct flyt_copy places = {0};
    cudaError_t error = flyt_cudart_places(p->kind, &places);

    if (!p->dstArray)
        copy->dst.place = places.dst.place;
    if (!p->srcArray)
        copy->src.place = places.src.place;
    return error;
}

cudaError_t flyt_cudart_lower_copy(const struct cudaMemcpy3DParms *p, struct flyt_copy *ret_copy)
{
    struct cudaExtent extent = p->extent;
    struct flyt_array_element element = {1, 1};
    cudaError_t error = find_element(p, &element);

    extent.height = flyt_array_elements(extent.height, element.side);
    if (error == cudaSuccess &&
        __builtin_mul_overflow(flyt_array_elements(extent.width, element.side), element.bytes, &extent.width))
        error = cudaErrorInvalidValue;
    *ret_copy = (struct flyt_copy){.width_bytes = extent.width, .height = extent.height, .depth = extent.depth};
    if (error == cudaSuccess && extent.width > 0 && extent.height > 0 && extent.depth > 0) {
        error = check_pitch(p->dstArray, &p->dstPtr, &extent);
        if (error == cudaSuccess)
            error = check_pitch(p->srcArray, &p->srcPtr, &extent);
        if (error == cudaSuccess)
            error = side_3d(p->dstArray, &p->dstPtr, &p->dstPos, &extent, element.bytes, &ret_copy->dst);
        if (error == cudaSuccess)
            error = side_3d(p->srcArray, &p->srcPtr, &p->srcPos, &extent, element.bytes, &ret_copy->src);
        if (error == cudaSuccess)
            error = take_places(p, ret_copy);
    }
    return error;
}

static cudaError_t copy_3d(const struct cudaMemcpy3DParms *p, cudaStream_t stream, bool is_async)
{
    struct flyt_copy copy;
    cudaError_t error;

    if (!p || (p->srcArray && p->srcPtr.ptr) || (p->dstArray && p->dstPtr.ptr))
        return flyt_cudart_fail(cudaErrorInvalidValue);
    error = flyt_cudart_lower_copy(p, &copy);
    return error != cudaSuccess ? flyt_cudart_fail(error) : run_copy(&copy, stream, is_async);
}

cudaError_t cudaMemcpy3D(const struct cudaMemcpy3DParms *p)
{
    return copy_3d(p, NULL, false);
}

FLYT_CUDART_PTDS(cudaMemcpy3D, (const struct cudaMemcpy3DParms *p), copy_3d(p, PER_THREAD, false))

cudaError_t cudaMemcpy3DAsync(const struct cudaMemcpy3DParms *p, cudaStream_t stream)
{
    return copy_3d(p, stream, true);
}

FLYT_CUDART_PTSZ(cudaMemcpy3DAsync, (const struct cudaMemcpy3DParms *p, cudaStream_t stream),
                 (p, flyt_stream_per_thread(stream)))

static cudaError_t copy_3d_peer(const struct cudaMemcpy3DPeerParms *p, cudaStream_t stream, bool is_async)
{
    struct cudaMemcpy3DParms plain;
    CUresult result;

    if (!p)
        return flyt_cudart_fail(cudaErrorInvalidValue);
    result = check_devices(p->dstDevice, p->srcDevice);
    if (result != CUDA_SUCCESS)
        return flyt_cudart_result(result);
    plain = (struct cudaMemcpy3DParms){.srcArray = p->srcArray,
                                       .srcPos = p->srcPos,
                                       .srcPtr = p->srcPtr,
                                       .dstArray = p->dstArray,
                                       .dstPos = p->dstPos,
                                       .dstPtr = p->dstPtr,
                                       .extent = p->extent,
                                       .kind = cudaMemcpyDeviceToDevice};
    return copy_3d(&plain, stream, is_async);
}

cudaError_t cudaMemcpy3DPeer(const struct cudaMemcpy3DPeerParms *p)
{
    return copy_3d_peer(p, NULL, false);
}

FLYT_CUDART_PTDS(cudaMemcpy3DPeer, (const struct cudaMemcpy3DPeerParms *p), copy_3d_peer(p, PER_THREAD, false))

cudaError_t cudaMemcpy3DPeerAsync(const struct cudaMemcpy3DPeerParms *p, cudaStream_t stream)
{
    return copy_3d_peer(p, stream, true);
}

FLYT_CUDART_PTSZ(cudaMemcpy3DPeerAsync, (const struct cudaMemcpy3DPeerParms *p, cudaStream_t stream),
                 (p, flyt_stream_per_thread(stream)))

/* ---- fills of three dimensions: bytes, as the runtime API has no other element; rows make the others ---- */

static cudaError_t fill_3d(void *memory, size_t pitch, size_t rows_per_slice, int value, struct cudaExtent extent,
                           cudaStream_t stream, bool is_async)
{
    struct flyt_fill fill = {.address = (uintptr_t)memory,
                             .width = extent.width,
                             .height = extent.height,
                             .depth = extent.depth,
                             .pitch_bytes = pitch,
                             .slice_bytes = (uint64_t)pitch * rows_per_slice,
                             .element_bytes = 1,
                             .value = (unsigned char)value};
    CUresult result;

    if (extent.depth > 1 && extent.height > rows_per_slice)
        return flyt_cudart_fail(cudaErrorInvalidValue);
    result = flyt_cudart_enter();
    return flyt_cudart_result(result != CUDA_SUCCESS ? result : flyt_fill(&fill, stream, is_async));
}

cudaError_t cudaMemset3D(struct cudaPitchedPtr pitchedDevPtr, int value, struct cudaExtent extent)
{
    return fill_3d(pitchedDevPtr.ptr, pitchedDevPtr.pitch, pitchedDevPtr.ysize, value, extent, NULL, false);
}

FLYT_CUDART_PTDS(cudaMemset3D, (struct cudaPitchedPtr pitchedDevPtr, int value, struct cudaExtent extent),
                 fill_3d(pitchedDevPtr.ptr, pitchedDevPtr.pitch, pitchedDevPtr.ysize, value, extent, PER_THREAD, false))

cudaError_t cudaMemset3DAsync(struct cudaPitchedPtr pitchedDevPtr, int value, struct cudaExtent extent,
                              cudaStream_t stream)
{
    return fill_3d(pitchedDevPtr.ptr, pitchedDevPtr.pitch, pitchedDevPtr.ysize, value, extent, stream, true);
}

FLYT_CUDART_PTSZ(cudaMemset3DAsync,
                 (struct cudaPitchedPtr pitchedDevPtr, int value, struct cudaExtent extent, cudaStream_t stream),
                 (pitchedDevPtr, value, extent, flyt_stream_per_thread(stream)))
