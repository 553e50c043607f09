/*
 * What a copy copies: a box of width × height × depth on either side.
 */
#ifndef FLYT_CLIENT_COPY_BOX_H
#define FLYT_CLIENT_COPY_BOX_H

#include <stdint.h>

enum flyt_place {
    FLYT_PLACE_ANY = 0, /* found out by the address, as cudaMemcpyDefault and CU_MEMORYTYPE_UNIFIED do */
    FLYT_PLACE_HOST,
    FLYT_PLACE_DEVICE,
    FLYT_PLACE_ARRAY /* of a CUDA array: flyt_array_copy_side makes such sides (array.h) */
};

/* One side of a copy. The caller has added x, y and z offsets to the address already. Of an array the address is its
 * id, and the last two members say where the box begins (rpc/api/array_box.h). */
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

#endif
