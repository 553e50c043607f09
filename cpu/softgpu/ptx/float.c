/*
 * f32 and f64 arithmetic. Results round as the processor is set: a prefix instruction sets another mode than nearest.
 *
 * f32 results that are NaN are the one NaN of GPUs, 0x7fffffff; f64 keeps payloads as IEEE 754 and x86 do. ftz takes
 * subnormal operands and results for zeros of their sign. The approximations are at least as exact as a GPU's.
 */
#include "cpu/softgpu/ptx/lanes.h"
#include "cpu/softgpu/ptx/ops.h"

#include <float.h>
#include <math.h>

static inline uint32_t bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float from_bits(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint64_t bits_of_f64(double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline double from_bits_f64(uint64_t bits)
{
    double x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The result of f32 arithmetic: NaN becomes the canonical one. */
static inline float one_nan(float x)
{
    return x == x ? x : from_bits(0x7fffffffu);
}

static inline float flush(float x)
{
    uint32_t bits = bits_of(x);

    return from_bits(bits & 0x7f800000u ? bits : bits & 0x80000000u);
}

static inline float keep(float x)
{
    return x;
}

/* ---- helpers ---- */

/* −0 is less than +0; a NaN loses against a number. */
static inline float least_f32(float a, float b)
{
    float result = a < b ? a : b < a ? b : from_bits(bits_of(a) | bits_of(b));

    return a != a ? one_nan(b) : b != b ? a : result;
}

static inline float most_f32(float a, float b)
{
    float result = a > b ? a : b > a ? b : from_bits(bits_of(a) & bits_of(b));

    return a != a ? one_nan(b) : b != b ? a : result;
}

static inline float least_or_nan(float a, float b)
{
    return a != a || b != b ? from_bits(0x7fffffffu) : least_f32(a, b);
}

static inline float most_or_nan(float a, float b)
{
    return a != a || b != b ? from_bits(0x7fffffffu) : most_f32(a, b);
}

/* The magnitudes' extreme, with the product's sign; a NaN has none. */
static inline float with_product_sign(float magnitude, float a, float b)
{
    return magnitude == magnitude ? from_bits(bits_of(magnitude) | ((bits_of(a) ^ bits_of(b)) & 0x80000000u))
                                  : magnitude;
}

static inline double min_f64(double a, double b)
{
    double result = a < b ? a : b < a ? b : from_bits_f64(bits_of_f64(a) | bits_of_f64(b));

    return a != a ? b : b != b ? a : result;
}

static inline double max_f64(double a, double b)
{
    double result = a > b ? a : b > a ? b : from_bits_f64(bits_of_f64(a) & bits_of_f64(b));

    return a != a ? b : b != b ? a : result;
}

static inline float saturate_f32(float x)
{
    return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; /* NaN too becomes +0 */
}

static inline double saturate_f64(double x)
{
    return x > 0 ? (x < 1 ? x : 1.0) : 0.0;
}

/* The gross approximations of f64: only the upper half of the result is significant. Subnormals count as zeros. */
static inline double flush_f64(double x)
{
    uint64_t bits = bits_of_f64(x);

    return from_bits_f64(bits & 0x7ff0000000000000ull ? bits : bits & 0x8000000000000000ull);
}

static inline double upper_half(double x)
{
    return x == x ? from_bits_f64(bits_of_f64(x) & 0xffffffff00000000ull) : x;
}

/* ---- f32 ---- */

/* An operation twice: with subnormals kept, and flushed on the way in and out. */
#define FLOAT1(name, function)                                                                                         \
    PTX_OP1(name##_f32, float, float, one_nan(function(a[i])))                                                         \
    PTX_OP1(name##_ftz_f32, float, float, flush(one_nan(function(flush(a[i])))))
#define FLOAT2(name, EXPRESSION)                                                                                       \
    PTX_OP2(name##_f32, float, float, float, one_nan(EXPRESSION(keep, a[i], b[i])))                                    \
    PTX_OP2(name##_ftz_f32, float, float, float, flush(one_nan(EXPRESSION(flush, a[i], b[i]))))

#define ADD(F, a, b)              (F(a) + F(b))
#define SUB(F, a, b)              (F(a) - F(b))
#define MUL(F, a, b)              (F(a) * F(b))
#define DIV(F, a, b)              (F(a) / F(b))
#define MIN(F, a, b)              least_f32(F(a), F(b))
#define MAX(F, a, b)              most_f32(F(a), F(b))
#define MIN_NAN(F, a, b)          least_or_nan(F(a), F(b))
#define MAX_NAN(F, a, b)          most_or_nan(F(a), F(b))
#define XORSIGN(F, extreme, a, b) with_product_sign(extreme(__builtin_fabsf(F(a)), __builtin_fabsf(F(b))), a, b)
#define MIN_XORSIGN(F, a, b)      XORSIGN(F, least_f32, a, b)
#define MAX_XORSIGN(F, a, b)      XORSIGN(F, most_f32, a, b)
#define MIN_NAN_XORSIGN(F, a, b)  XORSIGN(F, least_or_nan, a, b)
#define MAX_NAN_XORSIGN(F, a, b)  XORSIGN(F, most_or_nan, a, b)
FLOAT2(add, ADD)
FLOAT2(sub, SUB)
FLOAT2(mul, MUL)
FLOAT2(div, DIV)
FLOAT2(min, MIN)
FLOAT2(max, MAX)
FLOAT2(min_nan, MIN_NAN)
FLOAT2(max_nan, MAX_NAN)
FLOAT2(min_xorsign, MIN_XORSIGN)
FLOAT2(max_xorsign, MAX_XORSIGN)
FLOAT2(min_nan_xorsign, MIN_NAN_XORSIGN)
FLOAT2(max_nan_xorsign, MAX_NAN_XORSIGN)
PTX_OP3(fma_f32, float, float, float, float, one_nan(__builtin_fmaf(a[i], b[i], c[i])))
PTX_OP3(fma_ftz_f32, float, float, float, float, flush(one_nan(__builtin_fmaf(flush(a[i]), flush(b[i]), flush(c[i])))))

static inline float reciprocal(float x)
{
    return 1.0f / x;
}

static inline float reciprocal_root(float x)
{
    return (float)(1.0 / __builtin_sqrt((double)x));
}
FLOAT1(rcp, reciprocal)
FLOAT1(sqrt, __builtin_sqrtf)
FLOAT1(rsqrt, reciprocal_root)
FLOAT1(ex2, exp2f)
FLOAT1(lg2, log2f)
FLOAT1(sin, sinf)
FLOAT1(cos, cosf)
FLOAT1(tanh, tanhf)
PTX_OP1(neg_f32, uint32_t, uint32_t, a[i] ^ 0x80000000u)
PTX_OP1(abs_f32, uint32_t, uint32_t, a[i] & 0x7fffffffu)
PTX_OP1(neg_ftz_f32, float, float, -flush(a[i]))
PTX_OP1(abs_ftz_f32, float, float, __builtin_fabsf(flush(a[i])))
PTX_OP2(copysign_f32, uint32_t, uint32_t, uint32_t, (b[i] & 0x7fffffffu) | (a[i] & 0x80000000u))
PTX_OP1(saturate_lane_f32, float, float, saturate_f32(a[i]))

/* ---- f64 ---- */

PTX_OP2(add_f64, double, double, double, a[i] + b[i])
PTX_OP2(sub_f64, double, double, double, a[i] - b[i])
PTX_OP2(mul_f64, double, double, double, a[i] * b[i])
PTX_OP2(div_f64, double, double, double, a[i] / b[i])
PTX_OP3(fma_f64, double, double, double, double, __builtin_fma(a[i], b[i], c[i]))
PTX_OP2(min_lane_f64, double, double, double, min_f64(a[i], b[i]))
PTX_OP2(max_lane_f64, double, double, double, max_f64(a[i], b[i]))
PTX_OP1(rcp_f64, double, double, 1.0 / a[i])
PTX_OP1(sqrt_f64, double, double, __builtin_sqrt(a[i]))
PTX_OP1(rcp_approx_f64, double, double, upper_half(flush_f64(1.0 / flush_f64(a[i]))))
PTX_OP1(rsqrt_approx_f64, double, double, 1.0 / __builtin_sqrt(a[i]))
PTX_OP1(rsqrt_gross_f64, double, double, upper_half(1.0 / __builtin_sqrt(flush_f64(a[i]))))
PTX_OP1(neg_f64, uint64_t, uint64_t, a[i] ^ 0x8000000000000000ull)
PTX_OP1(abs_f64, uint64_t, uint64_t, a[i] & 0x7fffffffffffffffull)
PTX_OP2(copysign_f64, uint64_t, uint64_t, uint64_t, (b[i] & 0x7fffffffffffffffull) | (a[i] & 0x8000000000000000ull))
PTX_OP1(saturate_lane_f64, double, double, saturate_f64(a[i]))

/* ---- the table ---- */

#define PLAIN_AND_FTZ(op, name, shape)                                                                                 \
    {op ".f32", name##_f32, shape},                                                                                    \
    {                                                                                                                  \
        op ".ftz.f32", name##_ftz_f32, shape                                                                           \
    }

#define XORSIGN_ROWS(op, name)                                                                                         \
    {op ".xorsign.abs.f32", name##_xorsign_f32, "w=ww"}, {op ".ftz.xorsign.abs.f32", name##_xorsign_ftz_f32, "w=ww"},  \
        {op ".NaN.xorsign.abs.f32", name##_nan_xorsign_f32, "w=ww"},                                                   \
    {                                                                                                                  \
        op ".ftz.NaN.xorsign.abs.f32", name##_nan_xorsign_ftz_f32, "w=ww"                                              \
    }

static const struct ptx_op_row rows[] = {
    PLAIN_AND_FTZ("add", add, "w=ww"),
    PLAIN_AND_FTZ("sub", sub, "w=ww"),
    PLAIN_AND_FTZ("mul", mul, "w=ww"),
    PLAIN_AND_FTZ("fma", fma, "w=www"),
    PLAIN_AND_FTZ("mad", fma, "w=www"),
    PLAIN_AND_FTZ("div", div, "w=ww"),
    PLAIN_AND_FTZ("div.approx", div, "w=ww"),
    PLAIN_AND_FTZ("div.full", div, "w=ww"),
    PLAIN_AND_FTZ("min", min, "w=ww"),
    PLAIN_AND_FTZ("max", max, "w=ww"),
    {"min.NaN.f32", min_nan_f32, "w=ww"},
    {"max.NaN.f32", max_nan_f32, "w=ww"},
    {"min.ftz.NaN.f32", min_nan_ftz_f32, "w=ww"},
    {"max.ftz.NaN.f32", max_nan_ftz_f32, "w=ww"},
    XORSIGN_ROWS("min", min),
    XORSIGN_ROWS("max", max),
    PLAIN_AND_FTZ("rcp", rcp, "w=w"),
    PLAIN_AND_FTZ("rcp.approx", rcp, "w=w"),
    PLAIN_AND_FTZ("sqrt", sqrt, "w=w"),
    PLAIN_AND_FTZ("sqrt.approx", sqrt, "w=w"),
    PLAIN_AND_FTZ("rsqrt.approx", rsqrt, "w=w"),
    PLAIN_AND_FTZ("ex2.approx", ex2, "w=w"),
    PLAIN_AND_FTZ("lg2.approx", lg2, "w=w"),
    PLAIN_AND_FTZ("sin.approx", sin, "w=w"),
    PLAIN_AND_FTZ("cos.approx", cos, "w=w"),
    PLAIN_AND_FTZ("tanh.approx", tanh, "w=w"),
    PLAIN_AND_FTZ("neg", neg, "w=w"),
    PLAIN_AND_FTZ("abs", abs, "w=w"),
    {"copysign.f32", copysign_f32, "w=ww"},
    {"$saturate.f32", saturate_lane_f32, "w=w"},
    {"add.f64", add_f64, "d=dd"},
    {"sub.f64", sub_f64, "d=dd"},
    {"mul.f64", mul_f64, "d=dd"},
    {"fma.f64", fma_f64, "d=ddd"},
    {"mad.f64", fma_f64, "d=ddd"},
    {"div.f64", div_f64, "d=dd"},
    {"min.f64", min_lane_f64, "d=dd"},
    {"max.f64", max_lane_f64, "d=dd"},
    {"rcp.f64", rcp_f64, "d=d"},
    {"sqrt.f64", sqrt_f64, "d=d"},
    {"rcp.approx.ftz.f64", rcp_approx_f64, "d=d"},
    {"rsqrt.approx.f64", rsqrt_approx_f64, "d=d"},
    {"rsqrt.approx.ftz.f64", rsqrt_gross_f64, "d=d"},
    {"neg.f64", neg_f64, "d=d"},
    {"abs.f64", abs_f64, "d=d"},
    {"copysign.f64", copysign_f64, "d=dd"},
    {"$saturate.f64", saturate_lane_f64, "d=d"},
};

extern const struct ptx_op_table PTX_OP_TABLE(float);
const struct ptx_op_table PTX_OP_TABLE(float) = {rows, sizeof rows / sizeof *rows};
