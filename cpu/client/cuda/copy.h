/*
 * Copies and fills, all through one descriptor: a box of width × height × depth on either side.
 *
 * When host memory is read and written (CUDA's "API synchronization behavior"):
 *   pageable source                read before the call returns; where it is staged (staging.h), after all earlier work
 *                                  of the stream
 *   pinned source, asynchronous    read when the stream reaches the copy, or already at issue where nothing pending
 *                                  (device-to-host copy into an overlapping range, host function) can still write it
 *   pageable destination           written before the call returns
 *   pinned destination, async      written before the synchronization that covers the copy returns
 *   host to host                   done by the calling thread, after all earlier work of the stream; asynchronous ones
 *                                  of managed memory that lies on the host go to the stream, where the other side lies
 *                                  in the region, too, or is at most FLYT_INLINE_BYTES_MAX that are read at once
 * A synchronous copy returns when it is complete on the device; device to device it returns at once, like CUDA's; and
 * at most FLYT_INLINE_BYTES_MAX of pageable memory to an allocation return when they are sent, where the legacy stream
 * has nothing before it but such copies (flyt_stream_may_return_early). An error of theirs is the thread's next call's.
 */
#ifndef FLYT_CLIENT_COPY_H
#define FLYT_CLIENT_COPY_H

#include <stdbool.h>
#include <stdint.h>
#include <cuda.h>
#include "cpu/client/bulk/copy_box.h"
#include "cpu/client/core/api.h"

/*
 * Copies. A box without bytes succeeds and does nothing. CUDA_ERROR_INVALID_VALUE: an address is NULL, a pitch is too
 * small, sums overflow, a place contradicts its address, or a device range leaves its allocation;
 * CUDA_ERROR_INVALID_HANDLE, _INVALID_CONTEXT: the stream.
 */
FLYT_API CUresult flyt_copy(const struct flyt_copy *copy, CUstream stream, bool is_async);

/* The same of a plain range. */
static inline CUresult flyt_copy_range(enum flyt_place dst_place, uint64_t dst, enum flyt_place src_place, uint64_t src,
                                       uint64_t bytes, CUstream stream, bool is_async)
{
    struct flyt_copy copy = flyt_copy_plain(dst_place, dst, src_place, src, bytes);
    return flyt_copy(&copy, stream, is_async);
}

/*
 * Fills `height` rows of `width` elements of element_bytes (1, 2 or 4) with the low bytes of value, in `depth` slices.
 * pitch_bytes as in flyt_copy_side. Asynchronous for device memory; pinned host memory is filled by the calling thread
 * after all earlier work of the stream or, is_async, where kernels have addresses of it, by the GPU.
 * CUDA_ERROR_INVALID_VALUE as above, also where the address is not aligned to the element.
 */
struct flyt_fill {
    uint64_t address;
    uint64_t width; /* elements */
    uint64_t height, depth;
    uint64_t pitch_bytes, slice_bytes;
    unsigned element_bytes;
    uint32_t value;
};
FLYT_API CUresult flyt_fill(const struct flyt_fill *fill, CUstream stream, bool is_async);

/* The same of one slice. */
static inline CUresult flyt_fill_rows(uint64_t address, uint64_t pitch_bytes, unsigned element_bytes, uint32_t value,
                                      uint64_t width, uint64_t height, CUstream stream, bool is_async)
{
    const struct flyt_fill fill = {.address = address,
                                   .width = width,
                                   .height = height,
                                   .depth = 1,
                                   .pitch_bytes = pitch_bytes,
                                   .element_bytes = element_bytes,
                                   .value = value};
    return flyt_fill(&fill, stream, is_async);
}

#endif
