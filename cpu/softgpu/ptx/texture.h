/*
 * Images as textures and surfaces: what device code reads and writes by the handles of objects. The driver makes the
 * images and the objects, and enters objects into a table that launches name; the engine reads them.
 *
 * A fetch computes as the CUDA C++ Programming Guide says under "Texture Fetching": the fraction of a coordinate has 8
 * bits for linear filtering, and the products and sums are of floats.
 */
#ifndef FLYT_SOFTGPU_PTX_TEXTURE_H
#define FLYT_SOFTGPU_PTX_TEXTURE_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { FLYT_PTX_LEVELS_MAX = 18, FLYT_PTX_OBJECTS_MAX = 1 << 20 };

/* One level of an image. No dimension is 0; one that the image lacks is 1. */
struct flyt_ptx_level {
    uint64_t address; /* of this process */
    uint32_t width, height;
    uint32_t depth; /* slices, or layers: six, one for each face, of each layer of a cubemap */
    uint64_t row_bytes, slice_bytes;
};

struct flyt_ptx_image {
    CUarray_format format;
    unsigned channels;    /* 1, 2 or 4; 3 of BC6H */
    unsigned texel_bytes; /* of a block, where texels come in blocks */
    unsigned block_shift; /* 2: in blocks of 4 by 4; 0: each by itself */
    bool is_opaque;       /* the fourth channel, which it lacks, is read as 1 */
    bool is_memory;       /* device memory, which may go while the image is used: each texel is checked */
    bool is_layered;      /* the depth counts layers */
    bool is_cubemap;
    unsigned level_count; /* 1 … FLYT_PTX_LEVELS_MAX */
    struct flyt_ptx_level levels[FLYT_PTX_LEVELS_MAX];
};

/* A texture or a surface: constant from the moment at which it is in a table. */
struct flyt_ptx_object {
    bool is_surface;
    struct flyt_ptx_image image;
    /* Of textures only: */
    CUaddress_mode address_modes[3]; /* without normalised coordinates CLAMP or BORDER */
    CUfilter_mode filter, level_filter;
    bool is_normalized; /* coordinates */
    bool is_integer;    /* elements are read as they are; else whole numbers as floats from 0 or -1 to 1 */
    bool is_srgb;       /* colours of 8 bits become linear */
    float level_bias, level_min, level_max;
    float border[4];
};

/* By handle. All zero: there are none. */
struct flyt_ptx_objects {
    _Atomic(const struct flyt_ptx_object *) *slots; /* FLYT_PTX_OBJECTS_MAX; NULL: no object was ever made */
};

#endif
