/* cvt between integers, and between integers and floats. */
#include "cpu/softgpu/ptx/half.h"
#include "cpu/softgpu/ptx/lanes.h"
#include "cpu/softgpu/ptx/ops.h"

#include <math.h>

/* Integer types: name, type of the value, type of the register. Bytes live in 16-bit registers. */
// clang-format off
#define EACH_INTEGER(X, ...) \
    X(u8, uint8_t, uint16_t, __VA_ARGS__) \
    X(s8, int8_t, int16_t, __VA_ARGS__) \
    X(u16, uint16_t, uint16_t, __VA_ARGS__) \
    X(s16, int16_t, int16_t, __VA_ARGS__) \
    X(u32, uint32_t, uint32_t, __VA_ARGS__) \
    X(s32, int32_t, int32_t, __VA_ARGS__) \
    X(u64, uint64_t, uint64_t, __VA_ARGS__) \
    X(s64, int64_t, int64_t, __VA_ARGS__)
// clang-format on
#define SHAPE_u8  "h"
#define SHAPE_s8  "h"
#define SHAPE_u16 "h"
#define SHAPE_s16 "h"
#define SHAPE_u32 "w"
#define SHAPE_s32 "w"
#define SHAPE_u64 "d"
#define SHAPE_s64 "d"

#define IS_SIGNED(T) ((T) ~(T)0 < (T)1)
#define MIN_OF(T)    ((T)(IS_SIGNED(T) ? 1ull << (8 * sizeof(T) - 1) : 0))
#define MAX_OF(T)    ((T)~MIN_OF(T))

/* ---- integer to integer ---- */

#define BETWEEN(s, ST, SR, d, DT, DR)                                                                                  \
    PTX_OP1(cvt_##d##_##s, DR, SR, (DR)(DT)(ST)a[i])                                                                   \
    PTX_OP1(cvt_sat_##d##_##s, DR, SR,                                                                                 \
            (__int128)(ST)a[i]<(__int128)MIN_OF(DT) ? (DR)MIN_OF(DT) : (__int128)(ST)a[i]>(__int128) MAX_OF(DT)        \
                ? (DR)MAX_OF(DT)                                                                                       \
                : (DR)(DT)(ST)a[i])
EACH_INTEGER(BETWEEN, u8, uint8_t, uint16_t)
EACH_INTEGER(BETWEEN, s8, int8_t, int16_t)
EACH_INTEGER(BETWEEN, u16, uint16_t, uint16_t)
EACH_INTEGER(BETWEEN, s16, int16_t, int16_t)
EACH_INTEGER(BETWEEN, u32, uint32_t, uint32_t)
EACH_INTEGER(BETWEEN, s32, int32_t, int32_t)
EACH_INTEGER(BETWEEN, u64, uint64_t, uint64_t)
EACH_INTEGER(BETWEEN, s64, int64_t, int64_t)

/* ---- integer to float: f32 and f64 round as the processor is set ---- */

/* A 64-bit integer as a double that rounds further like the integer itself: low bits that do not fit become sticky. */
static inline double sticky_u64(uint64_t x)
{
    return x >> 53 ? (double)((x >> 11 | ((x & 0x7ff) != 0)) << 11) : (double)x;
}

static inline double sticky_s64(int64_t x)
{
    return x < 0 ? -sticky_u64(0 - (uint64_t)x) : sticky_u64((uint64_t)x);
}

/* Beyond 2^20 every integer is an infinite f16: cutting it off there keeps the float exact. */
static inline float cut_s64(int64_t x)
{
    return (float)(x > 1 << 20 ? 1 << 20 : x < -(1 << 20) ? -(1 << 20) : x);
}

static inline float cut_u64(uint64_t x)
{
    return (float)(int64_t)(x > 1 << 20 ? 1 << 20 : x);
}
#define CUT(T, x)    (IS_SIGNED(T) ? cut_s64((int64_t)(x)) : cut_u64((uint64_t)(x)))
#define STICKY(T, x) (IS_SIGNED(T) ? sticky_s64((int64_t)(x)) : sticky_u64((uint64_t)(x)))

#define TO_HALF(mode, side, s, ST, SR)                                                                                 \
    PTX_OP1(cvt_##mode##_f16_##s, uint16_t, SR, flyt_half_round(CUT(ST, (ST)a[i]), side))                              \
    PTX_OP1(cvt_##mode##_bf16_##s, uint16_t, SR, flyt_bfloat_round(flyt_odd_float(STICKY(ST, (ST)a[i])), side))
#define TO_FLOAT(s, ST, SR, ...)                                                                                       \
    PTX_OP1(cvt_f32_##s, float, SR, (float)(ST)a[i])                                                                   \
    PTX_OP1(cvt_f64_##s, double, SR, (double)(ST)a[i])                                                                 \
    TO_HALF(rn, FLYT_NEAREST, s, ST, SR)                                                                               \
    TO_HALF(rz, FLYT_TOWARD_ZERO, s, ST, SR) TO_HALF(rm, FLYT_DOWN, s, ST, SR) TO_HALF(rp, FLYT_UP, s, ST, SR)
EACH_INTEGER(TO_FLOAT)

/* ---- float to integer: rounded as told, then clamped to the integer's range ---- */

static inline float flush(float x)
{
    return fabsf(x) < 0x1p-126f ? 0.0f : x;
}
#define AS_F32(x)  (x)
#define AS_FTZ(x)  flush(x)
#define AS_F64(x)  (x)
#define AS_F16(x)  flyt_half_to_float(x)
#define AS_BF16(x) flyt_bfloat_to_float(x)

/*
 * NaN gives 0, but where source or destination has 64 bits the integer with only its top bit set (PTX ISA, cvt). The
 * bounds are powers of two, exact in every format: below `limit` the conversion is defined.
 */
#define CLAMP(F, DT, x, nan)                                                                                           \
    ((x) != (x)                                                              ? (DT)(nan)                               \
     : (x) >= (F)(IS_SIGNED(DT) ? 1 : 2) * (F)(1ull << (8 * sizeof(DT) - 1)) ? MAX_OF(DT)                              \
     : (x) < (IS_SIGNED(DT) ? -(F)(1ull << (8 * sizeof(DT) - 1)) : (F)0)     ? MIN_OF(DT)                              \
                                                                             : (DT)(x))
#define TOP(DT)             ((uint64_t)1 << (8 * sizeof(DT) - 1))
#define NAN_FROM_NARROW(DT) (sizeof(DT) == 8 ? TOP(DT) : 0)
#define NAN_FROM_WIDE(DT)   TOP(DT)

#define ROUNDED(d, DT, DR, s, F, SR, IN, nan, mode, function)                                                          \
    static inline DT mode##_##d##_##s(SR source)                                                                       \
    {                                                                                                                  \
        F x = function((F)IN(source));                                                                                 \
        return CLAMP(F, DT, x, nan(DT));                                                                               \
    }                                                                                                                  \
    PTX_OP1(cvt_##mode##_##d##_##s, DR, SR, (DR)mode##_##d##_##s(a[i]))
#define FROM_FLOAT(d, DT, DR, s, F, SR, IN, nan, suffix)                                                               \
    ROUNDED(d, DT, DR, s, F, SR, IN, nan, rni, __builtin_rint##suffix)                                                 \
    ROUNDED(d, DT, DR, s, F, SR, IN, nan, rzi, __builtin_trunc##suffix)                                                \
    ROUNDED(d, DT, DR, s, F, SR, IN, nan, rmi, __builtin_floor##suffix)                                                \
    ROUNDED(d, DT, DR, s, F, SR, IN, nan, rpi, __builtin_ceil##suffix)
EACH_INTEGER(FROM_FLOAT, f32, float, float, AS_F32, NAN_FROM_NARROW, f)
EACH_INTEGER(FROM_FLOAT, ftz, float, float, AS_FTZ, NAN_FROM_NARROW, f)
EACH_INTEGER(FROM_FLOAT, f64, double, double, AS_F64, NAN_FROM_WIDE, )
EACH_INTEGER(FROM_FLOAT, f16, float, uint16_t, AS_F16, NAN_FROM_NARROW, f)
EACH_INTEGER(FROM_FLOAT, bf16, float, uint16_t, AS_BF16, NAN_FROM_NARROW, f)

/* ---- the table ---- */

#define BETWEEN_ROWS(s, ST, SR, d, ...)                                                                                \
    {"cvt." #d "." #s, cvt_##d##_##s, SHAPE_##d "=" SHAPE_##s},                                                        \
        {"cvt.sat." #d "." #s, cvt_sat_##d##_##s, SHAPE_##d "=" SHAPE_##s},
#define HALF_ROWS(mode, s)                                                                                             \
    {"cvt." #mode ".f16." #s, cvt_##mode##_f16_##s, "h=" SHAPE_##s},                                                   \
        {"cvt." #mode ".bf16." #s, cvt_##mode##_bf16_##s, "h=" SHAPE_##s},
#define TO_FLOAT_ROWS(s, ST, SR, ...)                                                                                  \
    {"cvt.f32." #s, cvt_f32_##s, "w=" SHAPE_##s}, {"cvt.f64." #s, cvt_f64_##s, "d=" SHAPE_##s},                        \
        HALF_ROWS(rn, s) HALF_ROWS(rz, s) HALF_ROWS(rm, s) HALF_ROWS(rp, s)
/* before: what stands between rounding and saturation */
#define MODE_ROWS(mode, d, s, before, key, shape)                                                                      \
    {"cvt." #mode before "." key, cvt_##mode##_##d##_##s, SHAPE_##d "=" shape},                                        \
        {"cvt." #mode before ".sat." key, cvt_##mode##_##d##_##s, SHAPE_##d "=" shape},
#define ALL_MODES(d, s, before, key, shape)                                                                            \
    MODE_ROWS(rni, d, s, before, key, shape)                                                                           \
    MODE_ROWS(rzi, d, s, before, key, shape)                                                                           \
    MODE_ROWS(rmi, d, s, before, key, shape) MODE_ROWS(rpi, d, s, before, key, shape)
#define FROM_FLOAT_ROWS(d, ...)                                                                                        \
    ALL_MODES(d, f32, "", #d ".f32", "w")                                                                              \
    ALL_MODES(d, ftz, ".ftz", #d ".f32", "w")                                                                          \
    ALL_MODES(d, f64, "", #d ".f64", "d")                                                                              \
    ALL_MODES(d, f16, "", #d ".f16", "h") ALL_MODES(d, bf16, "", #d ".bf16", "h")

static const struct ptx_op_row rows[] = {EACH_INTEGER(BETWEEN_ROWS, u8) EACH_INTEGER(BETWEEN_ROWS, s8)
                                             EACH_INTEGER(BETWEEN_ROWS, u16) EACH_INTEGER(BETWEEN_ROWS, s16)
                                                 EACH_INTEGER(BETWEEN_ROWS, u32) EACH_INTEGER(BETWEEN_ROWS, s32)
                                                     EACH_INTEGER(BETWEEN_ROWS, u64) EACH_INTEGER(BETWEEN_ROWS, s64)
                                                         EACH_INTEGER(TO_FLOAT_ROWS) EACH_INTEGER(FROM_FLOAT_ROWS)};

extern const struct ptx_op_table PTX_OP_TABLE(convert);
const struct ptx_op_table PTX_OP_TABLE(convert) = {rows, sizeof rows / sizeof *rows};
