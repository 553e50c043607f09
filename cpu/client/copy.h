/*
 * Copies and fills, all through one descriptor: a box of width × height × depth on either side.
 *
 * When host memory is read and written (CUDA's "API synchronization behavior"):
 *   pageable source                read before the call returns
 *   pinned source, asynchronous    read when the stream reaches the copy, or already at issue where nothing pending
 *                                  (device-to-host copy into an overlapping range, host function) can still write it
 *   pageable destination           written before the call returns
 *   pinned destination, async      written before the synchronization that covers the copy returns
 *   host to host                   done by the calling thread, after all earlier work of the stream
 * A synchronous copy returns when it is complete on the device; device to device it returns at once, like CUDA's.
 */
#ifndef FLYT_CLIENT_COPY_H
#define FLYT_CLIENT_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cuda.h>
#include "cpu/client/api.h"

enum flyt_place {
    FLYT_PLACE_ANY = 0, /* found out by the address, as cudaMemcpyDefault and CU_MEMORYTYPE_UNIFIED do */
    FLYT_PLACE_HOST,
    FLYT_PLACE_DEVICE
};

/* One side of a copy. The caller has added x, y and z offsets to the address already. */
struct flyt_copy_side {
    enum flyt_place place;
    uint64_t address;
    uint64_t pitch_bytes; /* from row to row; at least width_bytes where height > 1 or depth > 1; else ignored */
    uint64_t slice_bytes; /* from slice to slice; ignored where depth is 1 */
};

struct flyt_copy {
    struct flyt_copy_side dst, src;
    uint64_t width_bytes;
    uint64_t height; /* 1 for a plain copy */
    uint64_t depth;  /* 1 for a 2D copy */
};

/*
 * Copies. A box without bytes succeeds and does nothing. CUDA_ERROR_INVALID_VALUE: an address is NULL, a pitch is too
 * small, sums overflow, a place contradicts its address, or a device range leaves its allocation;
 * CUDA_ERROR_INVALID_HANDLE, _INVALID_CONTEXT: the stream.
 */
FLYT_API CUresult flyt_copy(const struct flyt_copy *copy, CUstream stream, bool is_async);

/* A descriptor of a plain copy. */
static inline struct flyt_copy flyt_copy_plain(enum flyt_place dst_place, uint64_t dst, enum flyt_place src_place,
                                               uint64_t src, uint64_t bytes)
{
    return (struct flyt_copy){.dst = {dst_place, dst, bytes, bytes},
                              .src = {src_place, src, bytes, bytes},
                              .width_bytes = bytes,
                              .height = 1,
                              .depth = 1};
}

/*
 * Fills `height` rows of `width` elements of element_bytes (1, 2 or 4) with the low bytes of value, in `depth` slices.
 * pitch_bytes as in flyt_copy_side. Asynchronous for device memory; pinned host memory is filled by the calling thread
 * after all earlier work of the stream. CUDA_ERROR_INVALID_VALUE as above, also where the address is not aligned to the
 * element.
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

#endif
