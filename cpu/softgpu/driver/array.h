/*
 * CUDA arrays: images of a device, which only copies, textures and surfaces reach. An array is the one level of an
 * image, or one of a mipmapped array's; an object keeps what it shows. A planar array is only its planes.
 */
#ifndef FLYT_SOFTGPU_DRIVER_ARRAY_H
#define FLYT_SOFTGPU_DRIVER_ARRAY_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpu/softgpu/driver/handle.h"
#include "cpu/softgpu/ptx/texture.h"
#include "rpc/api/array_format.h"

struct flyt_soft_device;

/* The memory of all levels, and what it is. Lives as long as somebody needs it. */
struct flyt_soft_pixels {
    atomic_uint refs;
    struct flyt_soft_device *device;
    char *memory;
    uint64_t bytes; /* of the device's memory */
    CUDA_ARRAY3D_DESCRIPTOR desc;
    struct flyt_ptx_image image;
};

struct CUarray_st {
    enum flyt_soft_kind kind;
    struct flyt_soft_pixels *pixels; /* one reference, but of a mipmapped array's levels */
    unsigned level;
    bool is_of_mipmap, is_plane;
    struct flyt_soft_planes *planes; /* NULL: it has none; else pixels are the first one's */
};

/* Each an image by itself. */
struct flyt_soft_planes {
    CUDA_ARRAY3D_DESCRIPTOR desc; /* of the whole */
    unsigned count;
    struct CUarray_st arrays[FLYT_ARRAY_PLANES_MAX];
};

struct CUmipmappedArray_st {
    enum flyt_soft_kind kind;
    struct flyt_soft_pixels *pixels; /* one reference */
    struct CUarray_st levels[FLYT_PTX_LEVELS_MAX];
};

struct flyt_soft_pixels *flyt_soft_pixels_ref(struct flyt_soft_pixels *pixels);
/* Gives the memory back with the last reference. */
void flyt_soft_pixels_unref(struct flyt_soft_pixels *pixels);

/* The level of an array. CUDA_ERROR_INVALID_HANDLE; CUDA_ERROR_INVALID_VALUE: it is planar. */
CUresult flyt_soft_array_level(CUarray array, const struct flyt_ptx_level **ret_level);

#endif
