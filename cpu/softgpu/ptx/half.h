/*
 * The 16-bit floating point formats, as bit patterns: f16 (IEEE binary16) and bf16 (the upper half of a float).
 * Everything here is branch-free where it matters, so that loops over lanes become vector code. Rounding is to nearest
 * even unless said otherwise, and expects the processor in that mode.
 */
#ifndef FLYT_SOFTGPU_PTX_HALF_H
#define FLYT_SOFTGPU_PTX_HALF_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t flyt_float_bits(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float flyt_bits_float(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline float flyt_half_to_float(uint16_t half)
{
    uint32_t magnitude = half & 0x7fffu, sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t normal = (magnitude << 13) + (112u << 23);
    uint32_t special = 0x7f800000u | magnitude << 13;
    uint32_t tiny = flyt_float_bits((float)(int32_t)magnitude * 0x1p-24f);
    uint32_t bits = magnitude >= 0x7c00u ? special : magnitude < 0x0400u ? tiny : normal;

    return flyt_bits_float(bits | sign);
}

/* NaN becomes 0x7fff. */
static inline uint16_t flyt_half_from_float(float x)
{
    uint32_t bits = flyt_float_bits(x), magnitude = bits & 0x7fffffffu, sign = bits >> 16 & 0x8000u;
    uint32_t normal = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1)) >> 13;
    uint32_t tiny = flyt_float_bits(flyt_bits_float(magnitude) + 0.5f) - 0x3f000000u; /* rounded by the addition */
    uint32_t result = magnitude >= 0x47800000u ? 0x7c00u : magnitude < 0x38800000u ? tiny : normal;

    return (uint16_t)(magnitude > 0x7f800000u ? 0x7fffu : result | sign);
}

static inline float flyt_bfloat_to_float(uint16_t x)
{
    return flyt_bits_float((uint32_t)x << 16);
}

static inline uint16_t flyt_bfloat_from_float(float x)
{
    uint32_t bits = flyt_float_bits(x);

    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : (bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

/* The 8-bit formats. e4m3 has no infinities; e5m2 is the upper half of an f16. */
static inline float flyt_e4m3_to_float(uint8_t x)
{
    uint32_t magnitude = x & 0x7fu, sign = (uint32_t)(x & 0x80u) << 24;
    uint32_t tiny = flyt_float_bits((float)(int32_t)magnitude * 0x1p-9f);
    uint32_t bits = magnitude == 0x7f ? 0x7fffffffu : magnitude < 8 ? tiny : (magnitude << 20) + (120u << 23);

    return flyt_bits_float(bits | sign);
}

static inline float flyt_e5m2_to_float(uint8_t x)
{
    return flyt_half_to_float((uint16_t)(x << 8));
}

/*
 * A double as a float that rounds further to f16 or bf16 as the double itself would: where it is inexact, the
 * neighbour with an odd last bit ("round to odd"), which no later tie can fall on.
 */
static inline float flyt_odd_float(double x)
{
    float near = (float)x;
    uint32_t bits = flyt_float_bits(near);
    double back = near, above = back < 0 ? -back : back, magnitude = x < 0 ? -x : x;

    if (back == x || x != x || (bits & 1))
        return near;
    if (above == 0) /* underflow: the smallest float of x's sign */
        return flyt_bits_float((bits & 0x80000000u) | 1u);
    return flyt_bits_float(above < magnitude ? bits + 1 : bits - 1);
}

/* a × b + c rounded to odd as a float. The product of two 16-bit floats is exact in a double. */
static inline float flyt_odd_fma(float a, float b, float c)
{
    double product = (double)a * (double)b, addend = c, sum = product + addend;
    double part = sum - product, error = (product - (sum - part)) + (addend - part);
    uint64_t bits;

    memcpy(&bits, &sum, sizeof bits);
    if (error == error && error != 0 && !(bits & 1)) {
        bits = (error > 0) == (sum > 0) ? bits + 1 : bits - 1;
        memcpy(&sum, &bits, sizeof sum);
    }
    return flyt_odd_float(sum);
}

/* Other roundings step from the nearest value to the neighbour on the wanted side of x. */
enum flyt_side { FLYT_NEAREST, FLYT_TOWARD_ZERO, FLYT_DOWN, FLYT_UP };

/* `near` is the nearest to x, and `value` what it stands for. Patterns of one sign are ordered like numbers. */
static inline uint16_t flyt_half_step(uint16_t near, float value, float x, enum flyt_side side)
{
    float magnitude = fabsf(value), wanted = fabsf(x);
    bool is_inward =
        magnitude > wanted && (side == FLYT_TOWARD_ZERO || (side == FLYT_DOWN && x > 0) || (side == FLYT_UP && x < 0));
    bool is_outward = magnitude < wanted && ((side == FLYT_DOWN && x < 0) || (side == FLYT_UP && x > 0));

    return (uint16_t)(x != x ? near : isinf(x) ? near : is_inward ? near - 1 : is_outward ? near + 1 : near);
}

static inline uint16_t flyt_half_round(float x, enum flyt_side side)
{
    uint16_t near = flyt_half_from_float(x);

    return side == FLYT_NEAREST ? near : flyt_half_step(near, flyt_half_to_float(near), x, side);
}

static inline uint16_t flyt_bfloat_round(float x, enum flyt_side side)
{
    uint16_t near = flyt_bfloat_from_float(x);

    return side == FLYT_NEAREST ? near : flyt_half_step(near, flyt_bfloat_to_float(near), x, side);
}

#endif
