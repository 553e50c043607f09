#include "cpu/softgpu/library/number.h"

#include <complex.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>

#include "cpu/softgpu/ptx/half.h"

/* An 8-bit float with `fraction` bits of fraction and a bias, from a float; `top` is the largest finite pattern. */
static uint8_t eight_bits(float x, int fraction, int bias, uint8_t top)
{
    uint8_t sign = signbit(x) ? 0x80 : 0;
    float magnitude = fabsf(x), scaled;
    int exponent;
    uint32_t pattern;

    if (isnan(x))
        return 0x7f;
    if (isinf(x))
        return (uint8_t)(sign | top);
    frexpf(magnitude, &exponent);
    exponent = magnitude == 0 || exponent - 1 < 1 - bias ? 1 - bias : exponent - 1;
    scaled = rintf(ldexpf(magnitude, fraction - exponent)); /* in units of the last place */
    /* A carry out of the fraction, also from the tiny numbers, goes into the exponent by itself. */
    pattern = (uint32_t)scaled + ((uint32_t)(exponent + bias - 1) << fraction);
    return (uint8_t)(sign | (exponent + bias > 31 || pattern > top ? top : pattern));
}

static float saturate(float x, float low, float high)
{
    return isnan(x) ? 0 : x < low ? low : x > high ? high : rintf(x);
}

static int32_t int32_from(double x)
{
    return isnan(x) ? 0 : x <= INT32_MIN ? INT32_MIN : x >= INT32_MAX ? INT32_MAX : (int32_t)rint(x);
}

/* X(type, C type, numbers in one, load from `v`, store of `f`) of the types that floats hold; then those of doubles. */
#define FLOAT_TYPES(X)                                                                                                 \
    X(CUDA_R_16F, uint16_t, flyt_half_to_float(v), flyt_half_from_float(f))                                            \
    X(CUDA_R_16BF, uint16_t, flyt_bfloat_to_float(v), flyt_bfloat_from_float(f))                                       \
    X(CUDA_R_32F, float, v, f)                                                                                         \
    X(CUDA_R_8I, int8_t, (float)v, (int8_t)saturate(f, -128, 127))                                                     \
    X(CUDA_R_8U, uint8_t, (float)v, (uint8_t)saturate(f, 0, 255))                                                      \
    X(CUDA_R_8F_E4M3, uint8_t, flyt_e4m3_to_float(v), eight_bits(f, 3, 7, 0x7e))                                       \
    X(CUDA_R_8F_E5M2, uint8_t, flyt_e5m2_to_float(v), eight_bits(f, 2, 15, 0x7b))

/* A double that becomes a half is rounded once: through a float rounded to odd. */
#define REAL_TYPES(X)                                                                                                  \
    X(CUDA_R_16F, uint16_t, flyt_half_to_float(v), flyt_half_from_float(flyt_odd_float(f)))                            \
    X(CUDA_R_16BF, uint16_t, flyt_bfloat_to_float(v), flyt_bfloat_from_float(flyt_odd_float(f)))                       \
    X(CUDA_R_32F, float, v, (float)f)                                                                                  \
    X(CUDA_R_64F, double, v, f)                                                                                        \
    X(CUDA_R_32I, int32_t, v, int32_from(f))                                                                           \
    X(CUDA_R_8I, int8_t, v, (int8_t)saturate((float)(f), -128, 127))                                                   \
    X(CUDA_R_8U, uint8_t, v, (uint8_t)saturate((float)(f), 0, 255))                                                    \
    X(CUDA_R_8F_E4M3, uint8_t, flyt_e4m3_to_float(v), eight_bits(flyt_odd_float(f), 3, 7, 0x7e))                       \
    X(CUDA_R_8F_E5M2, uint8_t, flyt_e5m2_to_float(v), eight_bits(flyt_odd_float(f), 2, 15, 0x7b))

#define COMPLEX_TYPES(X)                                                                                               \
    X(CUDA_C_16F, uint16_t, flyt_half_to_float(v), flyt_half_from_float(flyt_odd_float(f)))                            \
    X(CUDA_C_16BF, uint16_t, flyt_bfloat_to_float(v), flyt_bfloat_from_float(flyt_odd_float(f)))                       \
    X(CUDA_C_32F, float, v, (float)f)                                                                                  \
    X(CUDA_C_64F, double, v, f)                                                                                        \
    X(CUDA_C_8I, int8_t, v, (int8_t)saturate((float)(f), -128, 127))

unsigned flyt_soft_number_bytes(cudaDataType type)
{
    switch (type) {
#define BYTES(type_, c_, load_, store_)                                                                                \
    case type_:                                                                                                        \
        return sizeof(c_);
        REAL_TYPES(BYTES)
#undef BYTES
#define BYTES(type_, c_, load_, store_)                                                                                \
    case type_:                                                                                                        \
        return 2 * sizeof(c_);
        COMPLEX_TYPES(BYTES)
#undef BYTES
    default:
        return 0;
    }
}

bool flyt_soft_number_is_complex(cudaDataType type)
{
    switch (type) {
#define NAMED(type_, c_, load_, store_) case type_:
        COMPLEX_TYPES(NAMED)
#undef NAMED
        return true;
    default:
        return false;
    }
}

bool flyt_soft_number_is_double(cudaDataType type)
{
    return type == CUDA_R_64F || type == CUDA_C_64F || type == CUDA_R_32I;
}

void *flyt_soft_number_at(cudaDataType type, const void *base, int64_t inc, int64_t count, int64_t index)
{
    int64_t first = inc < 0 ? (1 - count) * inc : 0;

    return (char *)base + (first + index * inc) * (int64_t)flyt_soft_number_bytes(type);
}

void flyt_soft_block_load(struct flyt_soft_block *block, cudaDataType type, const void *at, int64_t inc, int count)
{
    switch (type) {
#define LOAD(type_, c_, load_, store_)                                                                                 \
    case type_:                                                                                                        \
        for (int i = 0; i < count; i++) {                                                                              \
            c_ v = ((const c_ *)at)[i * inc];                                                                          \
            block->re[i] = load_;                                                                                      \
            block->im[i] = 0;                                                                                          \
        }                                                                                                              \
        return;
        REAL_TYPES(LOAD)
#undef LOAD
#define LOAD(type_, c_, load_, store_)                                                                                 \
    case type_:                                                                                                        \
        for (int i = 0; i < count; i++) {                                                                              \
            c_ v = ((const c_ *)at)[2 * i * inc];                                                                      \
            block->re[i] = load_;                                                                                      \
            v = ((const c_ *)at)[2 * i * inc + 1];                                                                     \
            block->im[i] = load_;                                                                                      \
        }                                                                                                              \
        return;
        COMPLEX_TYPES(LOAD)
#undef LOAD
    default:
        return;
    }
}

void flyt_soft_block_store(const struct flyt_soft_block *block, cudaDataType type, void *at, int64_t inc, int count)
{
    switch (type) {
#define STORE(type_, c_, load_, store_)                                                                                \
    case type_:                                                                                                        \
        for (int i = 0; i < count; i++) {                                                                              \
            double f = block->re[i];                                                                                   \
            ((c_ *)at)[i * inc] = store_;                                                                              \
        }                                                                                                              \
        return;
        REAL_TYPES(STORE)
#undef STORE
#define STORE(type_, c_, load_, store_)                                                                                \
    case type_:                                                                                                        \
        for (int i = 0; i < count; i++) {                                                                              \
            double f = block->re[i];                                                                                   \
            ((c_ *)at)[2 * i * inc] = store_;                                                                          \
            f = block->im[i];                                                                                          \
            ((c_ *)at)[2 * i * inc + 1] = store_;                                                                      \
        }                                                                                                              \
        return;
        COMPLEX_TYPES(STORE)
#undef STORE
    default:
        return;
    }
}

void flyt_soft_floats_load(float *to, cudaDataType type, const void *at, int64_t inc, int64_t count)
{
    switch (type) {
#define LOAD(type_, c_, load_, store_)                                                                                 \
    case type_:                                                                                                        \
        for (int64_t i = 0; i < count; i++) {                                                                          \
            c_ v = ((const c_ *)at)[i * inc];                                                                          \
            to[i] = load_;                                                                                             \
        }                                                                                                              \
        return;
        FLOAT_TYPES(LOAD)
#undef LOAD
    default:
        return;
    }
}

void flyt_soft_floats_store(const float *from, cudaDataType type, void *at, int64_t inc, int64_t count)
{
    switch (type) {
#define STORE(type_, c_, load_, store_)                                                                                \
    case type_:                                                                                                        \
        for (int64_t i = 0; i < count; i++) {                                                                          \
            float f = from[i];                                                                                         \
            ((c_ *)at)[i * inc] = store_;                                                                              \
        }                                                                                                              \
        return;
        FLOAT_TYPES(STORE)
#undef STORE
    default:
        return;
    }
}

double _Complex flyt_soft_number_get(cudaDataType type, const void *at)
{
    struct flyt_soft_block block;

    flyt_soft_block_load(&block, type, at, 1, 1);
    return CMPLX(block.re[0], block.im[0]);
}

void flyt_soft_number_put(cudaDataType type, void *at, double _Complex value)
{
    struct flyt_soft_block block;

    block.re[0] = creal(value);
    block.im[0] = cimag(value);
    flyt_soft_block_store(&block, type, at, 1, 1);
}

double flyt_soft_gelu(double x)
{
    return 0.5 * x * (1 + tanh(FLYT_SOFT_GELU_SLOPE * (x + FLYT_SOFT_GELU_CUBE * x * x * x)));
}
