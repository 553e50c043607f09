/*
 * How many elements lie behind a pointer, computed from what a program said of them: sums and products that stay at
 * FLYT_EXTENT_NONE where there is no such number. What uses them refuses more than its bound, and with it that.
 */
#ifndef FLYT_BASE_EXTENT_H
#define FLYT_BASE_EXTENT_H

#include <stdint.h>

/* Too large, negative, or divided by 0. */
#define FLYT_EXTENT_NONE UINT64_MAX

/* Of a number of any type. */
#define flyt_extent_of(value) ((value) < 0 ? FLYT_EXTENT_NONE : (uint64_t)(value))

static inline uint64_t flyt_extent_add(uint64_t a, uint64_t b)
{
    return a > FLYT_EXTENT_NONE - b ? FLYT_EXTENT_NONE : a + b;
}

static inline uint64_t flyt_extent_sub(uint64_t a, uint64_t b)
{
    return a == FLYT_EXTENT_NONE || a < b ? FLYT_EXTENT_NONE : a - b;
}

static inline uint64_t flyt_extent_mul(uint64_t a, uint64_t b)
{
    uint64_t product;
    if (a == FLYT_EXTENT_NONE || b == FLYT_EXTENT_NONE || __builtin_mul_overflow(a, b, &product))
        return FLYT_EXTENT_NONE;
    return product;
}

static inline uint64_t flyt_extent_div(uint64_t a, uint64_t b)
{
    return !b || a == FLYT_EXTENT_NONE || b == FLYT_EXTENT_NONE ? FLYT_EXTENT_NONE : a / b;
}

static inline uint64_t flyt_extent_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Of what is no number there is no smaller one. */
static inline uint64_t flyt_extent_min(uint64_t a, uint64_t b)
{
    return a == FLYT_EXTENT_NONE || b == FLYT_EXTENT_NONE ? FLYT_EXTENT_NONE : a < b ? a : b;
}

#endif
