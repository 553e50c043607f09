/* cvt between the float formats, and rounding of floats to integral values. */
#include "cpu/softgpu/ptx/half.h"
#include "cpu/softgpu/ptx/lanes.h"
#include "cpu/softgpu/ptx/ops.h"

#include <math.h>

static inline float one_nan(float x)
{
    return x == x ? x : flyt_bits_float(0x7fffffffu);
}

static inline float flush(float x)
{
    uint32_t bits = flyt_float_bits(x);

    return flyt_bits_float(bits & 0x7f800000u ? bits : bits & 0x80000000u);
}

static inline double flush_f64(double x)
{
    return x;
}

/* ---- f32 and f64 among themselves: the prefix has set the rounding ---- */

PTX_OP1(f32_f32, float, float, a[i])
PTX_OP1(f64_f64, double, double, a[i])
PTX_OP1(f64_f32, double, float, (double)a[i])
PTX_OP1(f32_f64, float, double, (float)a[i]) /* a NaN keeps its sign and the top of its payload */
PTX_OP1(ftz_f32_f32, float, float, flush(a[i]))
PTX_OP1(ftz_f64_f32, double, float, (double)flush(a[i]))
PTX_OP1(ftz_f32_f64, float, double, flush((float)a[i]))

#define INTEGRAL(mode, function)                                                                                       \
    PTX_OP1(mode##_f32, float, float, one_nan(__builtin_##function##f(a[i])))                                          \
    PTX_OP1(mode##_ftz_f32, float, float, one_nan(__builtin_##function##f(flush(a[i]))))                               \
    PTX_OP1(mode##_f64, double, double, __builtin_##function(flush_f64(a[i])))                                         \
    PTX_OP1(mode##_f16, uint16_t, uint16_t, flyt_half_from_float(__builtin_##function##f(flyt_half_to_float(a[i]))))   \
    PTX_OP1(mode##_bf16, uint16_t, uint16_t,                                                                           \
            flyt_bfloat_from_float(__builtin_##function##f(flyt_bfloat_to_float(a[i]))))
INTEGRAL(rni, rint)
INTEGRAL(rzi, trunc)
INTEGRAL(rmi, floor)
INTEGRAL(rpi, ceil)

/* ---- to f16 and bf16 in every rounding ---- */

/* −0 becomes +0 too. */
static inline float relu(float x)
{
    return x <= 0 ? 0.0f : x;
}

static inline float saturate(float x)
{
    return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f;
}

/* .satfinite: NaN stays, and what is beyond the format's numbers becomes its largest. */
static inline float to_finite(float x, float most)
{
    return x > most ? most : x < -most ? -most : x;
}

#define F16_MOST             65504.0f
#define BF16_MOST            0x1.fep127f
#define PAIR(a, b)           ((uint32_t)(a) << 16 | (b))
#define AS_IS(x, most)       (x)
#define RELU(x, most)        relu(x)
#define FINITE(x, most)      to_finite(x, most)
#define RELU_FINITE(x, most) to_finite(relu(x), most)

/* From f32 after CHANGE, one number and two of them. */
#define CHANGED(mode, side, name, CHANGE)                                                                              \
    PTX_OP1(mode##name##_f16_f32, uint16_t, float, flyt_half_round(CHANGE(a[i], F16_MOST), side))                      \
    PTX_OP1(mode##name##_bf16_f32, uint16_t, float, flyt_bfloat_round(CHANGE(a[i], BF16_MOST), side))                  \
    PTX_OP2(mode##name##_f16x2_f32, uint32_t, float, float,                                                            \
            PAIR(flyt_half_round(CHANGE(a[i], F16_MOST), side), flyt_half_round(CHANGE(b[i], F16_MOST), side)))        \
    PTX_OP2(mode##name##_bf16x2_f32, uint32_t, float, float,                                                           \
            PAIR(flyt_bfloat_round(CHANGE(a[i], BF16_MOST), side), flyt_bfloat_round(CHANGE(b[i], BF16_MOST), side)))

#define NARROW(mode, side)                                                                                             \
    CHANGED(mode, side, , AS_IS)                                                                                       \
    CHANGED(mode, side, _relu, RELU)                                                                                   \
    CHANGED(mode, side, _finite, FINITE)                                                                               \
    CHANGED(mode, side, _relu_finite, RELU_FINITE)                                                                     \
    PTX_OP1(mode##_ftz_sat_f16_f32, uint16_t, float, flyt_half_round(saturate(flush(a[i])), side))                     \
    PTX_OP1(mode##_ftz_f16_f32, uint16_t, float, flyt_half_round(flush(a[i]), side))                                   \
    PTX_OP1(mode##_sat_f16_f32, uint16_t, float, flyt_half_round(saturate(a[i]), side))                                \
    PTX_OP1(mode##_f16_f64, uint16_t, double, flyt_half_round(flyt_odd_float(a[i]), side))                             \
    PTX_OP1(mode##_bf16_f64, uint16_t, double, flyt_bfloat_round(flyt_odd_float(a[i]), side))                          \
    PTX_OP1(mode##_bf16_f16, uint16_t, uint16_t, flyt_bfloat_round(flyt_half_to_float(a[i]), side))                    \
    PTX_OP1(mode##_f16_bf16, uint16_t, uint16_t, flyt_half_round(flyt_bfloat_to_float(a[i]), side))
NARROW(rn, FLYT_NEAREST)
NARROW(rz, FLYT_TOWARD_ZERO)
NARROW(rm, FLYT_DOWN)
NARROW(rp, FLYT_UP)

PTX_OP1(f32_f16, float, uint16_t, one_nan(flyt_half_to_float(a[i])))
PTX_OP1(f64_f16, double, uint16_t, (double)flyt_half_to_float(a[i]))
PTX_OP1(f32_bf16, float, uint16_t, one_nan(flyt_bfloat_to_float(a[i])))
PTX_OP1(f64_bf16, double, uint16_t, (double)flyt_bfloat_to_float(a[i]))

/* tf32: a float with 10 bits of fraction; ties away from zero. */
static inline uint32_t tf32_away(uint32_t bits)
{
    return (bits & 0x7fffffffu) > 0x7f800000u    ? 0x7fffffffu
           : (bits & 0x7f800000u) == 0x7f800000u ? bits
                                                 : (bits + 0x1000u) & ~0x1fffu;
}

static inline uint32_t tf32_even(uint32_t bits)
{
    return (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffffffu : (bits + 0xfffu + (bits >> 13 & 1)) & ~0x1fffu;
}

static inline uint32_t tf32_cut(uint32_t bits)
{
    return (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffffffu : bits & ~0x1fffu;
}

static inline uint32_t tf32_relu(uint32_t bits)
{
    return (bits & 0x7fffffffu) > 0x7f800000u ? bits : bits & 0x80000000u ? 0 : bits;
}

/* An infinite result: rounded up, or of an infinite source. */
static inline uint32_t tf32_finite(uint32_t bits)
{
    return (bits & 0x7fffffffu) == 0x7f800000u ? (bits & 0x80000000u) | 0x7f7fe000u : bits;
}
#define TF32(mode, function)                                                                                           \
    PTX_OP1(mode##_tf32, uint32_t, uint32_t, function(a[i]))                                                           \
    PTX_OP1(mode##_relu_tf32, uint32_t, uint32_t, function(tf32_relu(a[i])))                                           \
    PTX_OP1(mode##_finite_tf32, uint32_t, uint32_t, tf32_finite(function(a[i])))                                       \
    PTX_OP1(mode##_finite_relu_tf32, uint32_t, uint32_t, tf32_finite(function(tf32_relu(a[i]))))
TF32(rna, tf32_away)
TF32(rn, tf32_even)
TF32(rz, tf32_cut)
PTX_OP1(sat_f16_f16, uint16_t, uint16_t, flyt_half_from_float(saturate(flyt_half_to_float(a[i]))))

/* ---- the 8-bit formats, two at a time: rounded to the nearest, beyond the largest number to that one ---- */

/*
 * digits: of the fraction; tiny: the distance of subnormals; most: the pattern of the largest number. A NaN is 0x7f.
 * The float's lowest digit that is kept is that of its exponent, or of the smallest one that normal numbers have.
 */
static inline uint8_t narrow(float x, unsigned digits, int bias, uint8_t most, float most_value)
{
    uint32_t bits = flyt_float_bits(x), magnitude = bits & 0x7fffffffu, cut = 23 - digits;
    uint32_t normal =
        (magnitude - ((uint32_t)(127 - bias) << 23) + (1u << (cut - 1)) - 1 + (magnitude >> cut & 1)) >> cut;
    uint32_t unit = (uint32_t)(127 + 24 - bias - (int)digits) << 23; /* adding it rounds to a multiple of tiny */
    uint32_t tiny = flyt_float_bits(flyt_bits_float(magnitude) + flyt_bits_float(unit)) - unit;
    uint32_t result = magnitude < (uint32_t)(128 - bias) << 23 ? tiny : normal;

    if (magnitude > 0x7f800000u)
        return 0x7f;
    if (flyt_bits_float(magnitude) >= most_value || result > most)
        result = most;
    return (uint8_t)(result | (bits >> 24 & 0x80u));
}

static inline uint8_t e4m3_out(float x)
{
    return narrow(x, 3, 7, 0x7e, 448.0f);
}

static inline uint8_t e5m2_out(float x)
{
    return narrow(x, 2, 15, 0x7b, 57344.0f);
}
#define OUT_PAIR(t, a, b) (uint16_t)((uint32_t)t##_out(a) << 8 | t##_out(b))
#define HIGH_HALF(x)      flyt_half_to_float((uint16_t)((x) >> 16))
#define LOW_HALF(x)       flyt_half_to_float((uint16_t)(x))
#define IN_PAIR(t, x, CHANGE)                                                                                          \
    PAIR(flyt_half_from_float(CHANGE(flyt_##t##_to_float((uint8_t)((x) >> 8)), )),                                     \
         flyt_half_from_float(CHANGE(flyt_##t##_to_float((uint8_t)(x)), )))
#define EIGHT_BITS(t)                                                                                                  \
    PTX_OP2(t##x2_f32, uint16_t, float, float, OUT_PAIR(t, a[i], b[i]))                                                \
    PTX_OP2(relu_##t##x2_f32, uint16_t, float, float, OUT_PAIR(t, relu(a[i]), relu(b[i])))                             \
    PTX_OP1(t##x2_f16x2, uint16_t, uint32_t, OUT_PAIR(t, HIGH_HALF(a[i]), LOW_HALF(a[i])))                             \
    PTX_OP1(relu_##t##x2_f16x2, uint16_t, uint32_t, OUT_PAIR(t, relu(HIGH_HALF(a[i])), relu(LOW_HALF(a[i]))))          \
    PTX_OP1(f16x2_##t##x2, uint32_t, uint16_t, IN_PAIR(t, a[i], AS_IS))                                                \
    PTX_OP1(relu_f16x2_##t##x2, uint32_t, uint16_t, IN_PAIR(t, a[i], RELU))
EIGHT_BITS(e4m3)
EIGHT_BITS(e5m2)

/* ---- the table ---- */

#define INTEGRAL_ROWS(m)                                                                                               \
    {"cvt." #m ".f32.f32", m##_f32, "w=w"}, {"cvt." #m ".ftz.f32.f32", m##_ftz_f32, "w=w"},                            \
        {"cvt." #m ".f64.f64", m##_f64, "d=d"}, {"cvt." #m ".f16.f16", m##_f16, "h=h"},                                \
    {                                                                                                                  \
        "cvt." #m ".bf16.bf16", m##_bf16, "h=h"                                                                        \
    }
#define CHANGED_ROWS(m, key, name)                                                                                     \
    {"cvt." #m key ".f16.f32", m##name##_f16_f32, "h=w"}, {"cvt." #m key ".bf16.f32", m##name##_bf16_f32, "h=w"},      \
        {"cvt." #m key ".f16x2.f32", m##name##_f16x2_f32, "w=ww"},                                                     \
    {                                                                                                                  \
        "cvt." #m key ".bf16x2.f32", m##name##_bf16x2_f32, "w=ww"                                                      \
    }
#define NARROW_ROWS(m)                                                                                                 \
    CHANGED_ROWS(m, "", ), CHANGED_ROWS(m, ".relu", _relu), CHANGED_ROWS(m, ".satfinite", _finite),                    \
        CHANGED_ROWS(m, ".relu.satfinite", _relu_finite), CHANGED_ROWS(m, ".satfinite.relu", _relu_finite),            \
        {"cvt." #m ".ftz.f16.f32", m##_ftz_f16_f32, "h=w"},                                                            \
        {"cvt." #m ".ftz.sat.f16.f32", m##_ftz_sat_f16_f32, "h=w"},                                                    \
        {"cvt." #m ".sat.f16.f32", m##_sat_f16_f32, "h=w"}, {"cvt." #m ".f16.f64", m##_f16_f64, "h=d"},                \
        {"cvt." #m ".bf16.f64", m##_bf16_f64, "h=d"}, {"cvt." #m ".bf16.f16", m##_bf16_f16, "h=h"},                    \
    {                                                                                                                  \
        "cvt." #m ".f16.bf16", m##_f16_bf16, "h=h"                                                                     \
    }
#define TF32_ROWS(m)                                                                                                   \
    {"cvt." #m ".tf32.f32", m##_tf32, "w=w"}, {"cvt." #m ".relu.tf32.f32", m##_relu_tf32, "w=w"},                      \
        {"cvt." #m ".satfinite.tf32.f32", m##_finite_tf32, "w=w"},                                                     \
    {                                                                                                                  \
        "cvt." #m ".satfinite.relu.tf32.f32", m##_finite_relu_tf32, "w=w"                                              \
    }
#define EIGHT_BIT_ROWS(t)                                                                                              \
    {"cvt.rn.satfinite." #t "x2.f32", t##x2_f32, "h=ww"},                                                              \
        {"cvt.rn.satfinite.relu." #t "x2.f32", relu_##t##x2_f32, "h=ww"},                                              \
        {"cvt.rn.satfinite." #t "x2.f16x2", t##x2_f16x2, "h=w"},                                                       \
        {"cvt.rn.satfinite.relu." #t "x2.f16x2", relu_##t##x2_f16x2, "h=w"},                                           \
        {"cvt.rn.f16x2." #t "x2", f16x2_##t##x2, "w=h"},                                                               \
    {                                                                                                                  \
        "cvt.rn.relu.f16x2." #t "x2", relu_f16x2_##t##x2, "w=h"                                                        \
    }

static const struct ptx_op_row rows[] = {
    {"cvt.f32.f32", f32_f32, "w=w"},
    {"cvt.f64.f64", f64_f64, "d=d"},
    {"cvt.f64.f32", f64_f32, "d=w"},
    {"cvt.f32.f64", f32_f64, "w=d"},
    {"cvt.ftz.f32.f32", ftz_f32_f32, "w=w"},
    {"cvt.ftz.f64.f32", ftz_f64_f32, "d=w"},
    {"cvt.ftz.f32.f64", ftz_f32_f64, "w=d"},
    {"cvt.f32.f16", f32_f16, "w=h"},
    {"cvt.ftz.f32.f16", f32_f16, "w=h"},
    {"cvt.f64.f16", f64_f16, "d=h"},
    {"cvt.f32.bf16", f32_bf16, "w=h"},
    {"cvt.ftz.f32.bf16", f32_bf16, "w=h"},
    {"cvt.f64.bf16", f64_bf16, "d=h"},
    {"cvt.sat.f16.f16", sat_f16_f16, "h=h"},
    TF32_ROWS(rna),
    TF32_ROWS(rn),
    TF32_ROWS(rz),
    EIGHT_BIT_ROWS(e4m3),
    EIGHT_BIT_ROWS(e5m2),
    INTEGRAL_ROWS(rni),
    INTEGRAL_ROWS(rzi),
    INTEGRAL_ROWS(rmi),
    INTEGRAL_ROWS(rpi),
    NARROW_ROWS(rn),
    NARROW_ROWS(rz),
    NARROW_ROWS(rm),
    NARROW_ROWS(rp),
};

extern const struct ptx_op_table PTX_OP_TABLE(convert_float);
const struct ptx_op_table PTX_OP_TABLE(convert_float) = {rows, sizeof rows / sizeof *rows};
