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

#define NARROW(mode, side)                                                                                             \
    PTX_OP1(mode##_f16_f32, uint16_t, float, flyt_half_round(a[i], side))                                              \
    PTX_OP1(mode##_ftz_f16_f32, uint16_t, float, flyt_half_round(flush(a[i]), side))                                   \
    PTX_OP1(mode##_sat_f16_f32, uint16_t, float, flyt_half_round(saturate(a[i]), side))                                \
    PTX_OP1(mode##_f16_f64, uint16_t, double, flyt_half_round(flyt_odd_float(a[i]), side))                             \
    PTX_OP1(mode##_bf16_f32, uint16_t, float, flyt_bfloat_round(a[i], side))                                           \
    PTX_OP1(mode##_bf16_f64, uint16_t, double, flyt_bfloat_round(flyt_odd_float(a[i]), side))                          \
    PTX_OP1(mode##_bf16_f16, uint16_t, uint16_t, flyt_bfloat_round(flyt_half_to_float(a[i]), side))                    \
    PTX_OP1(mode##_f16_bf16, uint16_t, uint16_t, flyt_half_round(flyt_bfloat_to_float(a[i]), side))                    \
    PTX_OP2(mode##_f16x2_f32, uint32_t, float, float,                                                                  \
            (uint32_t)flyt_half_round(a[i], side) << 16 | flyt_half_round(b[i], side))                                 \
    PTX_OP2(mode##_bf16x2_f32, uint32_t, float, float,                                                                 \
            (uint32_t)flyt_bfloat_round(a[i], side) << 16 | flyt_bfloat_round(b[i], side))                             \
    PTX_OP2(mode##_relu_f16x2_f32, uint32_t, float, float,                                                             \
            (uint32_t)flyt_half_round(relu(a[i]), side) << 16 | flyt_half_round(relu(b[i]), side))                     \
    PTX_OP2(mode##_relu_bf16x2_f32, uint32_t, float, float,                                                            \
            (uint32_t)flyt_bfloat_round(relu(a[i]), side) << 16 | flyt_bfloat_round(relu(b[i]), side))
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
PTX_OP1(rna_tf32, uint32_t, uint32_t, tf32_away(a[i]))
PTX_OP1(rn_tf32, uint32_t, uint32_t, tf32_even(a[i]))

/* ---- the table ---- */

#define INTEGRAL_ROWS(m)                                                                                               \
    {"cvt." #m ".f32.f32", m##_f32, "w=w"}, {"cvt." #m ".ftz.f32.f32", m##_ftz_f32, "w=w"},                            \
        {"cvt." #m ".f64.f64", m##_f64, "d=d"}, {"cvt." #m ".f16.f16", m##_f16, "h=h"},                                \
    {                                                                                                                  \
        "cvt." #m ".bf16.bf16", m##_bf16, "h=h"                                                                        \
    }
#define NARROW_ROWS(m)                                                                                                 \
    {"cvt." #m ".f16.f32", m##_f16_f32, "h=w"}, {"cvt." #m ".ftz.f16.f32", m##_ftz_f16_f32, "h=w"},                    \
        {"cvt." #m ".sat.f16.f32", m##_sat_f16_f32, "h=w"}, {"cvt." #m ".f16.f64", m##_f16_f64, "h=d"},                \
        {"cvt." #m ".bf16.f32", m##_bf16_f32, "h=w"}, {"cvt." #m ".bf16.f64", m##_bf16_f64, "h=d"},                    \
        {"cvt." #m ".bf16.f16", m##_bf16_f16, "h=h"}, {"cvt." #m ".f16.bf16", m##_f16_bf16, "h=h"},                    \
        {"cvt." #m ".f16x2.f32", m##_f16x2_f32, "w=ww"}, {"cvt." #m ".bf16x2.f32", m##_bf16x2_f32, "w=ww"},            \
        {"cvt." #m ".relu.f16x2.f32", m##_relu_f16x2_f32, "w=ww"},                                                     \
    {                                                                                                                  \
        "cvt." #m ".relu.bf16x2.f32", m##_relu_bf16x2_f32, "w=ww"                                                      \
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
    {"cvt.rna.tf32.f32", rna_tf32, "w=w"},
    {"cvt.rn.tf32.f32", rn_tf32, "w=w"},
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
