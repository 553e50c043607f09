#include "cpu/softgpu/texel/store.h"

#include <math.h>
#include <string.h>

static uint32_t limit_unsigned(uint32_t word, uint32_t most)
{
    return word < most ? word : most;
}

static uint32_t limit_signed(uint32_t word, int32_t most)
{
    const int32_t value = (int32_t)word;

    return (uint32_t)(value > most ? most : value < -most - 1 ? -most - 1 : value);
}

static float as_float(uint32_t word)
{
    float value;

    memcpy(&value, &word, sizeof value);
    return value;
}

/* The nearest number of steps of 1 / most; half ones are dropped. The product is a float's, as on GPUs. */
static float steps_of(float magnitude, float most)
{
    return magnitude >= 1 ? most : ceilf(magnitude * most - 0.5f);
}

static uint32_t to_unorm(uint32_t word, uint32_t most)
{
    const float value = as_float(word);

    return value > 0 ? (uint32_t)steps_of(value, (float)most) : 0; /* NaN: 0 */
}

static uint32_t to_snorm(uint32_t word, int32_t most)
{
    const float value = as_float(word);

    return value > 0   ? (uint32_t)(int32_t)steps_of(value, (float)most)
           : value < 0 ? (uint32_t) - (int32_t)steps_of(-value, (float)most)
                       : 0;
}

/* Toward zero, so that what is finite stays so. */
static uint32_t to_half(uint32_t word)
{
    enum { INFINITE = 0x7f800000, TOO_MUCH = 0x47800000, NORMAL = 0x38800000 }; /* infinity, 2^16, 2^-14 */
    const uint32_t sign = word >> 16 & 0x8000, magnitude = word & 0x7fffffff, payload = magnitude >> 13 & 0x3ff;

    if (magnitude > INFINITE)
        return sign | 0x7c00 | (payload ? payload : 1);
    if (magnitude >= TOO_MUCH)
        return sign | (magnitude == INFINITE ? 0x7c00 : 0x7bff);
    if (magnitude >= NORMAL)
        return sign | (magnitude - (112u << 23)) >> 13;
    return sign | (uint32_t)(as_float(magnitude) * 0x1p24f);
}

static uint32_t convert(CUarray_format format, uint32_t word)
{
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
        return limit_unsigned(word, UINT8_MAX);
    case CU_AD_FORMAT_UNSIGNED_INT16:
        return limit_unsigned(word, UINT16_MAX);
    case CU_AD_FORMAT_SIGNED_INT8:
        return limit_signed(word, INT8_MAX);
    case CU_AD_FORMAT_SIGNED_INT16:
        return limit_signed(word, INT16_MAX);
    case CU_AD_FORMAT_HALF:
        return to_half(word);
    case CU_AD_FORMAT_UNORM_INT8X1 ... CU_AD_FORMAT_UNORM_INT8X4:
        return to_unorm(word, UINT8_MAX);
    case CU_AD_FORMAT_UNORM_INT16X1 ... CU_AD_FORMAT_UNORM_INT16X4:
        return to_unorm(word, UINT16_MAX);
    case CU_AD_FORMAT_SNORM_INT8X1 ... CU_AD_FORMAT_SNORM_INT8X4:
        return to_snorm(word, INT8_MAX);
    case CU_AD_FORMAT_SNORM_INT16X1 ... CU_AD_FORMAT_SNORM_INT16X4:
        return to_snorm(word, INT16_MAX);
    default: /* 32 bits */
        return word;
    }
}

static unsigned channel_bytes(CUarray_format format)
{
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
    case CU_AD_FORMAT_UNORM_INT8X1 ... CU_AD_FORMAT_UNORM_INT8X4:
    case CU_AD_FORMAT_SNORM_INT8X1 ... CU_AD_FORMAT_SNORM_INT8X4:
        return 1;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4;
    default:
        return 2;
    }
}

void flyt_texel_store(CUarray_format format, unsigned channels, const uint32_t *words, unsigned char *element)
{
    const unsigned bytes = channel_bytes(format);

    if (format == CU_AD_FORMAT_UNORM_INT_101010_2) { /* red in the lowest bits */
        uint32_t packed = to_unorm(words[3], 3) << 30;

        for (unsigned c = 0; c < 3; c++)
            packed |= to_unorm(words[c], 1023) << 10 * c;
        memcpy(element, &packed, sizeof packed);
        return;
    }
    for (unsigned c = 0; c < channels; c++) {
        const uint32_t value = convert(format, words[c]);

        memcpy(element + (size_t)c * bytes, &value, bytes); /* its lowest bytes */
    }
}
