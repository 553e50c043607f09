/*
 * The formats of CUDA arrays: what an element is, how textures read it, and by which kind the runtime names it. One
 * table for all that makes, charges, copies, moves and samples arrays.
 *
 * Formats of video are of arrays of two dimensions, or layers of them, with CUDA_ARRAY3D_VIDEO_ENCODE_DECODE. Textures
 * do not read them. A planar one has no elements: its planes are arrays by themselves.
 *
 * An element is a texel, or, of a compressed format, a block of 4 by 4 texels. Extents of arrays count texels; places
 * and sizes of copies count elements, in bytes across and in rows down. A block that sticks out of its array is whole.
 */
#ifndef FLYT_API_ARRAY_FORMAT_H
#define FLYT_API_ARRAY_FORMAT_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

enum flyt_array_reading {
    FLYT_ARRAY_INTEGER,    /* as it is, or, of 8 and 16 bits, as a float from 0 or -1 to 1, as the texture says */
    FLYT_ARRAY_FLOAT,      /* as a float, and the runtime knows of no other way */
    FLYT_ARRAY_NORMALIZED, /* as a float from 0 or -1 to 1 */
    FLYT_ARRAY_VIDEO,      /* not at all */
};

enum { FLYT_ARRAY_PLANES_MAX = 3, FLYT_ARRAY_NO_KIND = 255 };

struct flyt_array_format {
    uint8_t number;       /* CUarray_format */
    uint8_t kind;         /* cudaChannelFormatKind; FLYT_ARRAY_NO_KIND: the runtime has no description of it */
    uint8_t channel_bits; /* as the runtime describes a channel, all but the fourth of UNORM_INT_101010_2 */
    uint8_t channels;     /* 0: 1, 2 or 4, as the array says */
    uint8_t bytes;        /* of an element; where channels is 0, of a channel; 0: it is planar */
    uint8_t side;         /* texels of an element, across as well as down */
    uint8_t reading;      /* enum flyt_array_reading */
    bool is_srgb;         /* a texture must say so, too */
};

/* Row `index` of the table; NULL: there are fewer. */
static inline const struct flyt_array_format *flyt_array_format_at(unsigned index)
{
    static const struct flyt_array_format rows[] = {
        {CU_AD_FORMAT_UNSIGNED_INT8, 1, 8, 0, 1, 1, FLYT_ARRAY_INTEGER, false},
        {CU_AD_FORMAT_UNSIGNED_INT16, 1, 16, 0, 2, 1, FLYT_ARRAY_INTEGER, false},
        {CU_AD_FORMAT_UNSIGNED_INT32, 1, 32, 0, 4, 1, FLYT_ARRAY_INTEGER, false},
        {CU_AD_FORMAT_SIGNED_INT8, 0, 8, 0, 1, 1, FLYT_ARRAY_INTEGER, false},
        {CU_AD_FORMAT_SIGNED_INT16, 0, 16, 0, 2, 1, FLYT_ARRAY_INTEGER, false},
        {CU_AD_FORMAT_SIGNED_INT32, 0, 32, 0, 4, 1, FLYT_ARRAY_INTEGER, false},
        {CU_AD_FORMAT_HALF, 2, 16, 0, 2, 1, FLYT_ARRAY_FLOAT, false},
        {CU_AD_FORMAT_FLOAT, 2, 32, 0, 4, 1, FLYT_ARRAY_FLOAT, false},
        {CU_AD_FORMAT_UNORM_INT8X1, 5, 8, 1, 1, 1, FLYT_ARRAY_NORMALIZED, false},
        {CU_AD_FORMAT_UNORM_INT8X2, 6, 8, 2, 2, 1, FLYT_ARRAY_NORMALIZED, false},
        {CU_AD_FORMAT_UNORM_INT8X4, 7, 8, 4, 4, 1, FLYT_ARRAY_NORMALIZED, false},
        {CU_AD_FORMAT_UNORM_INT16X1, 8, 16, 1, 2, 1, FLYT_ARRAY_NORMALIZED, false},
        {CU_AD_FORMAT_UNORM_INT16X2, 9, 16, 2, 4, 1, FLYT_ARRAY_NORMALIZED, false},
        {CU_AD_FORMAT_UNORM_INT16X4, 10, 16, 4, 8, 1, FLYT_ARRAY_NORMALIZED, false},
        {CU_AD_FORMAT_SNORM_INT8X1, 11, 8, 1, 1, 1, FLYT_ARRAY_NORMALIZED, false},
        {CU_AD_FORMAT_SNORM_INT8X2, 12, 8, 2, 2, 1, FLYT_ARRAY_NORMALIZED, false},
        {CU_AD_FORMAT_SNORM_INT8X4, 13, 8, 4, 4, 1, FLYT_ARRAY_NORMALIZED, false},
        {CU_AD_FORMAT_SNORM_INT16X1, 14, 16, 1, 2, 1, FLYT_ARRAY_NORMALIZED, false},
        {CU_AD_FORMAT_SNORM_INT16X2, 15, 16, 2, 4, 1, FLYT_ARRAY_NORMALIZED, false},
        {CU_AD_FORMAT_SNORM_INT16X4, 16, 16, 4, 8, 1, FLYT_ARRAY_NORMALIZED, false},
        {CU_AD_FORMAT_BC1_UNORM, 17, 8, 4, 8, 4, FLYT_ARRAY_NORMALIZED, false},
        {CU_AD_FORMAT_BC1_UNORM_SRGB, 18, 8, 4, 8, 4, FLYT_ARRAY_NORMALIZED, true},
        {CU_AD_FORMAT_BC2_UNORM, 19, 8, 4, 16, 4, FLYT_ARRAY_NORMALIZED, false},
        {CU_AD_FORMAT_BC2_UNORM_SRGB, 20, 8, 4, 16, 4, FLYT_ARRAY_NORMALIZED, true},
        {CU_AD_FORMAT_BC3_UNORM, 21, 8, 4, 16, 4, FLYT_ARRAY_NORMALIZED, false},
        {CU_AD_FORMAT_BC3_UNORM_SRGB, 22, 8, 4, 16, 4, FLYT_ARRAY_NORMALIZED, true},
        {CU_AD_FORMAT_BC4_UNORM, 23, 8, 1, 8, 4, FLYT_ARRAY_NORMALIZED, false},
        {CU_AD_FORMAT_BC4_SNORM, 24, 8, 1, 8, 4, FLYT_ARRAY_NORMALIZED, false},
        {CU_AD_FORMAT_BC5_UNORM, 25, 8, 2, 16, 4, FLYT_ARRAY_NORMALIZED, false},
        {CU_AD_FORMAT_BC5_SNORM, 26, 8, 2, 16, 4, FLYT_ARRAY_NORMALIZED, false},
        {CU_AD_FORMAT_BC6H_UF16, 27, 16, 3, 16, 4, FLYT_ARRAY_FLOAT, false},
        {CU_AD_FORMAT_BC6H_SF16, 28, 16, 3, 16, 4, FLYT_ARRAY_FLOAT, false},
        {CU_AD_FORMAT_BC7_UNORM, 29, 8, 4, 16, 4, FLYT_ARRAY_NORMALIZED, false},
        {CU_AD_FORMAT_BC7_UNORM_SRGB, 30, 8, 4, 16, 4, FLYT_ARRAY_NORMALIZED, true},
        {CU_AD_FORMAT_UNORM_INT_101010_2, 31, 10, 4, 4, 1, FLYT_ARRAY_FLOAT, false},
        {CU_AD_FORMAT_YUY2, FLYT_ARRAY_NO_KIND, 8, 4, 4, 1, FLYT_ARRAY_VIDEO, false},
        {CU_AD_FORMAT_Y210, FLYT_ARRAY_NO_KIND, 16, 2, 4, 1, FLYT_ARRAY_VIDEO, false},
        {CU_AD_FORMAT_Y216, FLYT_ARRAY_NO_KIND, 16, 2, 4, 1, FLYT_ARRAY_VIDEO, false},
        {CU_AD_FORMAT_AYUV, FLYT_ARRAY_NO_KIND, 8, 4, 4, 1, FLYT_ARRAY_VIDEO, false},
        {CU_AD_FORMAT_Y410, FLYT_ARRAY_NO_KIND, 32, 1, 4, 1, FLYT_ARRAY_VIDEO, false},
        {CU_AD_FORMAT_Y416, FLYT_ARRAY_NO_KIND, 16, 4, 8, 1, FLYT_ARRAY_VIDEO, false},
        {CU_AD_FORMAT_NV12, 4, 8, 3, 0, 1, FLYT_ARRAY_VIDEO, false},
        {CU_AD_FORMAT_P010, FLYT_ARRAY_NO_KIND, 16, 3, 0, 1, FLYT_ARRAY_VIDEO, false},
        {CU_AD_FORMAT_P016, FLYT_ARRAY_NO_KIND, 16, 3, 0, 1, FLYT_ARRAY_VIDEO, false},
        {CU_AD_FORMAT_NV16, FLYT_ARRAY_NO_KIND, 8, 3, 0, 1, FLYT_ARRAY_VIDEO, false},
        {CU_AD_FORMAT_P210, FLYT_ARRAY_NO_KIND, 16, 3, 0, 1, FLYT_ARRAY_VIDEO, false},
        {CU_AD_FORMAT_P216, FLYT_ARRAY_NO_KIND, 16, 3, 0, 1, FLYT_ARRAY_VIDEO, false},
        {CU_AD_FORMAT_Y444_PLANAR8, FLYT_ARRAY_NO_KIND, 8, 3, 0, 1, FLYT_ARRAY_VIDEO, false},
        {CU_AD_FORMAT_Y444_PLANAR10, FLYT_ARRAY_NO_KIND, 16, 3, 0, 1, FLYT_ARRAY_VIDEO, false},
        {CU_AD_FORMAT_YUV444_8bit_SemiPlanar, FLYT_ARRAY_NO_KIND, 8, 3, 0, 1, FLYT_ARRAY_VIDEO, false},
        {CU_AD_FORMAT_YUV444_16bit_SemiPlanar, FLYT_ARRAY_NO_KIND, 16, 3, 0, 1, FLYT_ARRAY_VIDEO, false},
    };
    return index < sizeof rows / sizeof rows[0] ? &rows[index] : NULL;
}

/* NULL: arrays do not have it here. */
static inline const struct flyt_array_format *flyt_array_format_find(uint32_t number)
{
    const struct flyt_array_format *format;
    for (unsigned i = 0; (format = flyt_array_format_at(i)) && format->number != number; i++)
        continue;
    return format;
}

/* Whether an array has so many channels. */
static inline bool flyt_array_format_has(const struct flyt_array_format *format, unsigned channels)
{
    return format->channels ? channels == format->channels : channels == 1 || channels == 2 || channels == 4;
}

/* Whether textures of memory have it, too: so NVIDIA's driver, of 13.0. */
static inline bool flyt_array_format_is_of_memory(const struct flyt_array_format *format)
{
    return format->side == 1 && format->reading != FLYT_ARRAY_NORMALIZED && format->reading != FLYT_ARRAY_VIDEO;
}

/* One plane of a planar format: an array of whole numbers, of so many channels, whose extents are halved. */
struct flyt_array_plane_format {
    uint8_t format; /* CUarray_format */
    uint8_t channels, halves_width, halves_height;
};

/* 0: it is not planar. */
static inline unsigned flyt_array_plane_count(const struct flyt_array_format *format)
{
    if (format->bytes)
        return 0;
    return format->number == CU_AD_FORMAT_Y444_PLANAR8 || format->number == CU_AD_FORMAT_Y444_PLANAR10 ? 3 : 2;
}

/* plane: less than there are. The first one is the brightness; two others, or one of two channels, are the colour. */
static inline struct flyt_array_plane_format flyt_array_plane_of(const struct flyt_array_format *format, unsigned plane)
{
    const uint8_t number = format->channel_bits == 8 ? CU_AD_FORMAT_UNSIGNED_INT8 : CU_AD_FORMAT_UNSIGNED_INT16;

    if (!plane)
        return (struct flyt_array_plane_format){number, 1, 0, 0};
    switch (format->number) {
    case CU_AD_FORMAT_NV12:
    case CU_AD_FORMAT_P010:
    case CU_AD_FORMAT_P016:
        return (struct flyt_array_plane_format){number, 2, 1, 1};
    case CU_AD_FORMAT_NV16:
    case CU_AD_FORMAT_P210:
    case CU_AD_FORMAT_P216:
        return (struct flyt_array_plane_format){number, 2, 1, 0};
    default:
        return (struct flyt_array_plane_format){number, flyt_array_plane_count(format) == 3 ? 1 : 2, 0, 0};
    }
}

/* Bytes of an element of an array of so many channels. */
static inline unsigned flyt_array_format_bytes(const struct flyt_array_format *format, unsigned channels)
{
    return format->channels ? format->bytes : format->bytes * channels;
}

/* Elements that hold so many texels of a row or column. */
static inline uint64_t flyt_array_elements(uint64_t texels, unsigned side)
{
    return texels / side + (texels % side != 0);
}

#endif
