/* f16, bf16 and pairs of them: computed as float and rounded once. */
#include "cpu/softgpu/ptx/half.h"

#include "cpu/softgpu/ptx/lanes.h"
#include "cpu/softgpu/ptx/ops.h"

#include <math.h>

/* A format: its values as float, and back. Sums and products of its numbers are exact enough in a float. */
static inline float f16_in(uint16_t x)
{
    return flyt_half_to_float(x);
}

static inline uint16_t f16_out(float x)
{
    return flyt_half_from_float(x);
}

static inline float bf16_in(uint16_t x)
{
    return flyt_bfloat_to_float(x);
}

static inline uint16_t bf16_out(float x)
{
    return flyt_bfloat_from_float(x);
}

/* The same with subnormals taken for zeros. */
static inline float f16z_in(uint16_t x)
{
    return flyt_half_to_float(x & 0x7c00 ? x : x & 0x8000);
}

static inline uint16_t f16z_out(float x)
{
    uint16_t half = flyt_half_from_float(x);

    return half & 0x7c00 ? half : half & 0x8000;
}

static inline uint16_t f16_saturated_out(float x)
{
    return flyt_half_from_float(x > 0 ? (x < 1 ? x : 1.0f) : 0.0f);
}

static inline uint16_t f16z_relu_out(float x)
{
    return f16z_out(x <= 0 ? 0.0f : x);
}

static inline uint16_t f16_relu_out(float x)
{
    return flyt_half_from_float(x <= 0 ? 0.0f : x); /* −0 becomes +0 too */
}

static inline uint16_t bf16_relu_out(float x)
{
    return flyt_bfloat_from_float(x <= 0 ? 0.0f : x);
}

static inline float least(float a, float b)
{
    return a != a ? b : b != b ? a : a < b || (a == b && signbit(a)) ? a : b;
}

static inline float most(float a, float b)
{
    return a != a ? b : b != b ? a : a > b || (a == b && !signbit(a)) ? a : b;
}

static inline float least_or_nan(float a, float b)
{
    return a != a || b != b ? NAN : least(a, b);
}

static inline float most_or_nan(float a, float b)
{
    return a != a || b != b ? NAN : most(a, b);
}

/* The magnitudes' extreme, with the product's sign; a NaN has none. */
static inline float with_product_sign(float magnitude, float a, float b)
{
    return magnitude != magnitude || signbit(a) == signbit(b) ? magnitude : -magnitude;
}
#define SIGNED(name)                                                                                                   \
    static inline float name##_xorsign(float a, float b)                                                               \
    {                                                                                                                  \
        return with_product_sign(name(fabsf(a), fabsf(b)), a, b);                                                      \
    }
SIGNED(least)
SIGNED(most)
SIGNED(least_or_nan)
SIGNED(most_or_nan)

#define LOW(x)     ((uint16_t)(x))
#define HIGH(x)    ((uint16_t)((x) >> 16))
#define BOTH(l, h) ((uint32_t)(uint16_t)(l) | (uint32_t)(uint16_t)(h) << 16)

/* An operation on one number and on a pair. E(in, a, b[, c]) computes, IN and OUT convert. */
#define HALF1(name, IN, OUT, E)                                                                                        \
    PTX_OP1(name, uint16_t, uint16_t, OUT(E(IN(a[i]))))                                                                \
    PTX_OP1(name##x2, uint32_t, uint32_t, BOTH(OUT(E(IN(LOW(a[i])))), OUT(E(IN(HIGH(a[i]))))))
#define HALF2(name, IN, OUT, E)                                                                                        \
    PTX_OP2(name, uint16_t, uint16_t, uint16_t, OUT(E(IN(a[i]), IN(b[i]))))                                            \
    PTX_OP2(name##x2, uint32_t, uint32_t, uint32_t,                                                                    \
            BOTH(OUT(E(IN(LOW(a[i])), IN(LOW(b[i])))), OUT(E(IN(HIGH(a[i])), IN(HIGH(b[i]))))))
#define HALF3(name, IN, OUT, E)                                                                                        \
    PTX_OP3(name, uint16_t, uint16_t, uint16_t, uint16_t, OUT(E(IN(a[i]), IN(b[i]), IN(c[i]))))                        \
    PTX_OP3(name##x2, uint32_t, uint32_t, uint32_t, uint32_t,                                                          \
            BOTH(OUT(E(IN(LOW(a[i])), IN(LOW(b[i])), IN(LOW(c[i])))),                                                  \
                 OUT(E(IN(HIGH(a[i])), IN(HIGH(b[i])), IN(HIGH(c[i]))))))

#define SUM(a, b)        ((a) + (b))
#define DIFFERENCE(a, b) ((a) - (b))
#define PRODUCT(a, b)    ((a) * (b))
#define ARITHMETIC(t, IN, OUT)                                                                                         \
    HALF2(add_##t, IN, OUT, SUM)                                                                                       \
    HALF2(sub_##t, IN, OUT, DIFFERENCE)                                                                                \
    HALF2(mul_##t, IN, OUT, PRODUCT)                                                                                   \
    HALF3(fma_##t, IN, OUT, flyt_odd_fma)
ARITHMETIC(f16, f16_in, f16_out)
ARITHMETIC(ftz_f16, f16z_in, f16z_out)
ARITHMETIC(sat_f16, f16_in, f16_saturated_out)
ARITHMETIC(ftz_sat_f16, f16z_in, f16_saturated_out)
HALF3(fma_ftz_relu_f16, f16z_in, f16z_relu_out, flyt_odd_fma)
HALF3(fma_relu_f16, f16_in, f16_relu_out, flyt_odd_fma)
HALF3(fma_relu_bf16, bf16_in, bf16_relu_out, flyt_odd_fma)

/* bf16 has float's range: sums and products need rounding to odd too. */
#define SUM_ODD(a, b)        flyt_odd_fma(a, 1.0f, b)
#define DIFFERENCE_ODD(a, b) flyt_odd_fma(b, -1.0f, a)
#define PRODUCT_ODD(a, b)    flyt_odd_float((double)(a) * (double)(b))
HALF2(add_bf16, bf16_in, bf16_out, SUM_ODD)
HALF2(sub_bf16, bf16_in, bf16_out, DIFFERENCE_ODD)
HALF2(mul_bf16, bf16_in, bf16_out, PRODUCT_ODD)
HALF3(fma_bf16, bf16_in, bf16_out, flyt_odd_fma)

#define EXTREMES(t, IN, OUT)                                                                                           \
    HALF2(min_##t, IN, OUT, least)                                                                                     \
    HALF2(max_##t, IN, OUT, most)                                                                                      \
    HALF2(min_nan_##t, IN, OUT, least_or_nan)                                                                          \
    HALF2(max_nan_##t, IN, OUT, most_or_nan)                                                                           \
    HALF2(min_xorsign_##t, IN, OUT, least_xorsign)                                                                     \
    HALF2(max_xorsign_##t, IN, OUT, most_xorsign)                                                                      \
    HALF2(min_nan_xorsign_##t, IN, OUT, least_or_nan_xorsign)                                                          \
    HALF2(max_nan_xorsign_##t, IN, OUT, most_or_nan_xorsign)
EXTREMES(f16, f16_in, f16_out)
EXTREMES(ftz_f16, f16z_in, f16z_out)
EXTREMES(bf16, bf16_in, bf16_out)
HALF1(ex2_f16, f16_in, f16_out, exp2f)
HALF1(ex2_bf16, bf16_in, bf16_out, exp2f)
HALF1(tanh_f16, f16_in, f16_out, tanhf)
HALF1(tanh_bf16, bf16_in, bf16_out, tanhf)
PTX_OP1(neg_16, uint16_t, uint16_t, a[i] ^ 0x8000)
PTX_OP1(abs_16, uint16_t, uint16_t, a[i] & 0x7fff)
PTX_OP1(neg_ftz_f16, uint16_t, uint16_t, f16z_out(-f16z_in(a[i])))
PTX_OP1(abs_ftz_f16, uint16_t, uint16_t, f16z_out(f16z_in(a[i] & 0x7fff)))
PTX_OP1(neg_ftz_f16x2, uint32_t, uint32_t, BOTH(f16z_out(-f16z_in(LOW(a[i]))), f16z_out(-f16z_in(HIGH(a[i])))))
PTX_OP1(abs_ftz_f16x2, uint32_t, uint32_t,
        BOTH(f16z_out(f16z_in(LOW(a[i]) & 0x7fff)), f16z_out(f16z_in(HIGH(a[i]) & 0x7fff))))
PTX_OP1(neg_16x2, uint32_t, uint32_t, a[i] ^ 0x80008000u)
PTX_OP1(abs_16x2, uint32_t, uint32_t, a[i] & 0x7fff7fffu)

/* ---- set on pairs: one, or all bits, in each half where the comparison holds ---- */

// clang-format off
#define COMPARISONS(X, t) \
    X(eq, t, x == y) \
    X(ne, t, x != y && x == x && y == y) \
    X(lt, t, x < y) \
    X(le, t, x <= y) \
    X(gt, t, x > y) \
    X(ge, t, x >= y) \
    X(equ, t, x == y || x != x || y != y) \
    X(neu, t, x != y) \
    X(ltu, t, !(x >= y)) \
    X(leu, t, !(x > y)) \
    X(gtu, t, !(x <= y)) \
    X(geu, t, !(x < y)) \
    X(num, t, x == x && y == y) \
    X(nan, t, x != x || y != y)
// clang-format on
#define COMPARE(c, t, truth)                                                                                           \
    static inline bool c##_##t(uint16_t left, uint16_t right)                                                          \
    {                                                                                                                  \
        float x = t##_in(left), y = t##_in(right);                                                                     \
        return truth;                                                                                                  \
    }
#define SET(c, t, truth)                                                                                               \
    PTX_OP2(set_##c##_##t##x2, uint32_t, uint32_t, uint32_t,                                                           \
            BOTH(c##_##t(LOW(a[i]), LOW(b[i])) ? t##_one : 0, c##_##t(HIGH(a[i]), HIGH(b[i])) ? t##_one : 0))          \
    PTX_OP2(set_mask_##c##_##t##x2, uint32_t, uint32_t, uint32_t,                                                      \
            BOTH(c##_##t(LOW(a[i]), LOW(b[i])) ? 0xffff : 0, c##_##t(HIGH(a[i]), HIGH(b[i])) ? 0xffff : 0))
enum { f16_one = 0x3c00, f16z_one = f16_one, bf16_one = 0x3f80 };
COMPARISONS(COMPARE, f16)
COMPARISONS(COMPARE, f16z)
COMPARISONS(COMPARE, bf16)
COMPARISONS(SET, f16)
COMPARISONS(SET, f16z)
COMPARISONS(SET, bf16)

/* ---- the table ---- */

#define ONE_AND_PAIR(op, type, name, h, w)                                                                             \
    {op "." type, name, h},                                                                                            \
    {                                                                                                                  \
        op "." type "x2", name##x2, w                                                                                  \
    }
#define ARITHMETIC_ROWS(op, type, name)                                                                                \
    ONE_AND_PAIR("add" op, type, add_##name, "h=hh", "w=ww"),                                                          \
        ONE_AND_PAIR("sub" op, type, sub_##name, "h=hh", "w=ww"),                                                      \
        ONE_AND_PAIR("mul" op, type, mul_##name, "h=hh", "w=ww"),                                                      \
        ONE_AND_PAIR("fma" op, type, fma_##name, "h=hhh", "w=www")
#define EXTREME_ROWS(op, type, name)                                                                                   \
    ONE_AND_PAIR("min" op, type, min_##name, "h=hh", "w=ww"),                                                          \
        ONE_AND_PAIR("max" op, type, max_##name, "h=hh", "w=ww"),                                                      \
        ONE_AND_PAIR("min" op ".NaN", type, min_nan_##name, "h=hh", "w=ww"),                                           \
        ONE_AND_PAIR("max" op ".NaN", type, max_nan_##name, "h=hh", "w=ww"),                                           \
        ONE_AND_PAIR("min" op ".xorsign.abs", type, min_xorsign_##name, "h=hh", "w=ww"),                               \
        ONE_AND_PAIR("max" op ".xorsign.abs", type, max_xorsign_##name, "h=hh", "w=ww"),                               \
        ONE_AND_PAIR("min" op ".NaN.xorsign.abs", type, min_nan_xorsign_##name, "h=hh", "w=ww"),                       \
        ONE_AND_PAIR("max" op ".NaN.xorsign.abs", type, max_nan_xorsign_##name, "h=hh", "w=ww")
#define SET_ROWS(c, t, truth)                                                                                          \
    {"set." #c "." #t "x2." #t "x2", set_##c##_##t##x2, "w=ww"},                                                       \
        {"set." #c ".u32." #t "x2", set_mask_##c##_##t##x2, "w=ww"},
#define SET_FTZ_ROWS(c, t, truth)                                                                                      \
    {"set." #c ".ftz.f16x2.f16x2", set_##c##_##t##x2, "w=ww"},                                                         \
        {"set." #c ".ftz.u32.f16x2", set_mask_##c##_##t##x2, "w=ww"},

static const struct ptx_op_row rows[] = {ARITHMETIC_ROWS("", "f16", f16),
                                         ARITHMETIC_ROWS(".ftz", "f16", ftz_f16),
                                         ARITHMETIC_ROWS(".sat", "f16", sat_f16),
                                         ARITHMETIC_ROWS(".ftz.sat", "f16", ftz_sat_f16),
                                         ARITHMETIC_ROWS("", "bf16", bf16),
                                         ONE_AND_PAIR("fma.relu", "f16", fma_relu_f16, "h=hhh", "w=www"),
                                         ONE_AND_PAIR("fma.ftz.relu", "f16", fma_ftz_relu_f16, "h=hhh", "w=www"),
                                         ONE_AND_PAIR("neg.ftz", "f16", neg_ftz_f16, "h=h", "w=w"),
                                         ONE_AND_PAIR("abs.ftz", "f16", abs_ftz_f16, "h=h", "w=w"),
                                         ONE_AND_PAIR("fma.relu", "bf16", fma_relu_bf16, "h=hhh", "w=www"),
                                         EXTREME_ROWS("", "f16", f16),
                                         EXTREME_ROWS(".ftz", "f16", ftz_f16),
                                         EXTREME_ROWS("", "bf16", bf16),
                                         ONE_AND_PAIR("neg", "f16", neg_16, "h=h", "w=w"),
                                         ONE_AND_PAIR("abs", "f16", abs_16, "h=h", "w=w"),
                                         ONE_AND_PAIR("neg", "bf16", neg_16, "h=h", "w=w"),
                                         ONE_AND_PAIR("abs", "bf16", abs_16, "h=h", "w=w"),
                                         ONE_AND_PAIR("ex2.approx", "f16", ex2_f16, "h=h", "w=w"),
                                         ONE_AND_PAIR("ex2.approx.ftz", "bf16", ex2_bf16, "h=h", "w=w"),
                                         ONE_AND_PAIR("tanh.approx", "f16", tanh_f16, "h=h", "w=w"),
                                         ONE_AND_PAIR("tanh.approx", "bf16", tanh_bf16, "h=h", "w=w"),
                                         COMPARISONS(SET_ROWS, f16) COMPARISONS(SET_FTZ_ROWS, f16z)
                                             COMPARISONS(SET_ROWS, bf16)};

extern const struct ptx_op_table PTX_OP_TABLE(half);
const struct ptx_op_table PTX_OP_TABLE(half) = {rows, sizeof rows / sizeof *rows};
