/*
 * The formats of CUDA arrays: what an element is, how textures read it, and by which kind the runtime names it. One
 * table for all that makes, charges, copies, moves and samples arrays. Formats of video, planar and packed ones, are
 * not among them: they are there for decoders and for graphics.
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
};

struct flyt_array_format {
    uint8_t number;       /* CUarray_format */
    uint8_t kind;         /* cudaChannelFormatKind */
    uint8_t channel_bits; /* as the runtime describes a channel, all but the fourth of UNORM_INT_101010_2 */
    uint8_t channels;     /* 0: 1, 2 or 4, as the array says */
    uint8_t bytes;        /* of an element; where channels is 0, of a channel */
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
    return format->side == 1 && format->reading != FLYT_ARRAY_NORMALIZED;
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
