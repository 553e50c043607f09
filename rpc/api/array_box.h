/*
 * Boxes of CUDA arrays in the rows of memory.api: the address is the array's id, which is no address of a device, and
 * the fields that tell of rows and slices of memory say where in the array the box begins.
 */
#ifndef FLYT_API_ARRAY_BOX_H
#define FLYT_API_ARRAY_BOX_H

#include <stdint.h>

enum { FLYT_ARRAY_LEVELS_MAX = 18 };

/* For texture_create: all levels of a mipmapped array. */
#define FLYT_TEXTURE_LEVELS UINT32_MAX

/* What the driver may give a VM of objects, beyond which one is refused at the server. */
enum { FLYT_ARRAYS_MAX = 65536, FLYT_TEXTURES_MAX = 262144 };

/* Where a box begins: x in bytes; y and z in rows and slices or layers; and the level of a mipmapped array. */
struct flyt_array_place {
    uint32_t x_bytes, y, z, level;
};

static inline uint64_t flyt_array_box_pitch(const struct flyt_array_place *place)
{
    return (uint64_t)place->level << 32 | place->x_bytes;
}

static inline uint64_t flyt_array_box_slice(const struct flyt_array_place *place)
{
    return (uint64_t)place->z << 32 | place->y;
}

static inline struct flyt_array_place flyt_array_box_place(uint64_t pitch_bytes, uint64_t slice_bytes)
{
    return (struct flyt_array_place){(uint32_t)pitch_bytes, (uint32_t)slice_bytes, (uint32_t)(slice_bytes >> 32),
                                     (uint32_t)(pitch_bytes >> 32)};
}

/* An extent of a level, which is at least 1. */
static inline uint64_t flyt_array_level_extent(uint64_t extent, unsigned level)
{
    return extent >> level ? extent >> level : 1;
}

#endif
