/* Integer arithmetic: add to mad, division, carries, minimum and maximum, absolute values, dot products. */
#include "cpu/softgpu/ptx/lanes.h"
#include "cpu/softgpu/ptx/ops.h"

/* ---- scalar helpers, total for all operands ---- */

/* Division by zero has no defined result; GPUs give all ones, and the dividend as remainder. */
#define DIVISION(T, S)                                                                                                 \
    static inline T divide_##T(T a, T b)                                                                               \
    {                                                                                                                  \
        return b ? (T)(a / b) : (T) ~(T)0;                                                                             \
    }                                                                                                                  \
    static inline T remainder_##T(T a, T b)                                                                            \
    {                                                                                                                  \
        return b ? (T)(a % b) : a;                                                                                     \
    }                                                                                                                  \
    static inline S divide_##S(S a, S b)                                                                               \
    {                                                                                                                  \
        return b == 0 ? (S)-1 : b == -1 ? (S)(0 - (T)a) : (S)(a / b);                                                  \
    }                                                                                                                  \
    static inline S remainder_##S(S a, S b)                                                                            \
    {                                                                                                                  \
        return b == 0 ? a : b == -1 ? (S)0 : (S)(a % b);                                                               \
    }
DIVISION(uint16_t, int16_t)
DIVISION(uint32_t, int32_t)
DIVISION(uint64_t, int64_t)

static inline uint64_t high_u64(uint64_t a, uint64_t b)
{
    return (uint64_t)((unsigned __int128)a * b >> 64);
}

static inline int64_t high_s64(int64_t a, int64_t b)
{
    return (int64_t)((__int128)a * b >> 64);
}

static inline int32_t clamp_s32(int64_t value)
{
    return value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : (int32_t)value;
}

static inline int32_t sign_24(int32_t a)
{
    return (int32_t)((uint32_t)a << 8) >> 8;
}

/* ---- two sources of one type, same for signed and unsigned: T is the unsigned type ---- */

PTX_OP2(add_16, uint16_t, uint16_t, uint16_t, (uint16_t)(a[i] + b[i]))
PTX_OP2(add_32, uint32_t, uint32_t, uint32_t, a[i] + b[i])
PTX_OP2(add_64, uint64_t, uint64_t, uint64_t, a[i] + b[i])
PTX_OP2(sub_16, uint16_t, uint16_t, uint16_t, (uint16_t)(a[i] - b[i]))
PTX_OP2(sub_32, uint32_t, uint32_t, uint32_t, a[i] - b[i])
PTX_OP2(sub_64, uint64_t, uint64_t, uint64_t, a[i] - b[i])
PTX_OP2(mul_lo_16, uint16_t, uint16_t, uint16_t, (uint16_t)((uint32_t)a[i] * b[i]))
PTX_OP2(mul_lo_32, uint32_t, uint32_t, uint32_t, a[i] * b[i])
PTX_OP2(mul_lo_64, uint64_t, uint64_t, uint64_t, a[i] * b[i])
PTX_OP3(mad_lo_16, uint16_t, uint16_t, uint16_t, uint16_t, (uint16_t)((uint32_t)a[i] * b[i] + c[i]))
PTX_OP3(mad_lo_32, uint32_t, uint32_t, uint32_t, uint32_t, a[i] * b[i] + c[i])
PTX_OP3(mad_lo_64, uint64_t, uint64_t, uint64_t, uint64_t, a[i] * b[i] + c[i])
PTX_OP1(neg_16, uint16_t, uint16_t, (uint16_t)(0 - a[i]))
PTX_OP1(neg_32, uint32_t, uint32_t, 0 - a[i])
PTX_OP1(neg_64, uint64_t, uint64_t, 0 - a[i])

PTX_OP2(add_16x2, uint32_t, uint32_t, uint32_t,
        ((a[i] + b[i]) & 0xffff) | ((a[i] & 0xffff0000u) + (b[i] & 0xffff0000u)))
PTX_OP2(add_sat_s32, int32_t, int32_t, int32_t, clamp_s32((int64_t)a[i] + b[i]))
PTX_OP2(sub_sat_s32, int32_t, int32_t, int32_t, clamp_s32((int64_t)a[i] - b[i]))

/* ---- products ---- */

PTX_OP2(mul_hi_u16, uint16_t, uint16_t, uint16_t, (uint16_t)((uint32_t)a[i] * b[i] >> 16))
PTX_OP2(mul_hi_s16, int16_t, int16_t, int16_t, (int16_t)(a[i] * b[i] >> 16))
PTX_OP2(mul_hi_u32, uint32_t, uint32_t, uint32_t, (uint32_t)((uint64_t)a[i] * b[i] >> 32))
PTX_OP2(mul_hi_s32, int32_t, int32_t, int32_t, (int32_t)((int64_t)a[i] * b[i] >> 32))
PTX_OP2(mul_hi_u64, uint64_t, uint64_t, uint64_t, high_u64(a[i], b[i]))
PTX_OP2(mul_hi_s64, int64_t, int64_t, int64_t, high_s64(a[i], b[i]))
PTX_OP2(mul_wide_u16, uint32_t, uint16_t, uint16_t, (uint32_t)a[i] * b[i])
PTX_OP2(mul_wide_s16, int32_t, int16_t, int16_t, a[i] * b[i])
PTX_OP2(mul_wide_u32, uint64_t, uint32_t, uint32_t, (uint64_t)a[i] * b[i])
PTX_OP2(mul_wide_s32, int64_t, int32_t, int32_t, (int64_t)a[i] * b[i])
PTX_OP3(mad_hi_u32, uint32_t, uint32_t, uint32_t, uint32_t, (uint32_t)((uint64_t)a[i] * b[i] >> 32) + c[i])
PTX_OP3(mad_hi_s32, uint32_t, int32_t, int32_t, uint32_t, (uint32_t)((int64_t)a[i] * b[i] >> 32) + c[i])
PTX_OP3(mad_hi_sat_s32, int32_t, int32_t, int32_t, int32_t, clamp_s32(((int64_t)a[i] * b[i] >> 32) + c[i]))
PTX_OP3(mad_hi_u64, uint64_t, uint64_t, uint64_t, uint64_t, high_u64(a[i], b[i]) + c[i])
PTX_OP3(mad_hi_s64, uint64_t, int64_t, int64_t, uint64_t, (uint64_t)high_s64(a[i], b[i]) + c[i])
PTX_OP3(mad_wide_u16, uint32_t, uint16_t, uint16_t, uint32_t, (uint32_t)a[i] * b[i] + c[i])
PTX_OP3(mad_wide_s16, uint32_t, int16_t, int16_t, uint32_t, (uint32_t)(a[i] * b[i]) + c[i])
PTX_OP3(mad_wide_u32, uint64_t, uint32_t, uint32_t, uint64_t, (uint64_t)a[i] * b[i] + c[i])
PTX_OP3(mad_wide_s32, uint64_t, int32_t, int32_t, uint64_t, (uint64_t)((int64_t)a[i] * b[i]) + c[i])
PTX_OP2(mul24_lo_u32, uint32_t, uint32_t, uint32_t, (a[i] & 0xffffff) * (b[i] & 0xffffff))
PTX_OP2(mul24_lo_s32, int32_t, int32_t, int32_t, (int32_t)((int64_t)sign_24(a[i]) * sign_24(b[i])))
PTX_OP2(mul24_hi_u32, uint32_t, uint32_t, uint32_t, (uint32_t)((uint64_t)(a[i] & 0xffffff) * (b[i] & 0xffffff) >> 16))
PTX_OP2(mul24_hi_s32, int32_t, int32_t, int32_t, (int32_t)((int64_t)sign_24(a[i]) * sign_24(b[i]) >> 16))
PTX_OP3(mad24_lo_u32, uint32_t, uint32_t, uint32_t, uint32_t, (a[i] & 0xffffff) * (b[i] & 0xffffff) + c[i])
PTX_OP3(mad24_lo_s32, uint32_t, int32_t, int32_t, uint32_t, (uint32_t)((int64_t)sign_24(a[i]) * sign_24(b[i])) + c[i])

/* ---- by type ---- */

#define BY_TYPE(suffix, T, U)                                                                                          \
    PTX_OP2(div_##suffix, T, T, T, divide_##T(a[i], b[i]))                                                             \
    PTX_OP2(rem_##suffix, T, T, T, remainder_##T(a[i], b[i]))                                                          \
    PTX_OP2(min_##suffix, T, T, T, a[i] < b[i] ? a[i] : b[i])                                                          \
    PTX_OP2(max_##suffix, T, T, T, a[i] > b[i] ? a[i] : b[i])                                                          \
    PTX_OP3(sad_##suffix, U, T, T, U, (U)(c[i] + (a[i] < b[i] ? (U)((U)b[i] - (U)a[i]) : (U)((U)a[i] - (U)b[i]))))
BY_TYPE(u16, uint16_t, uint16_t)
BY_TYPE(s16, int16_t, uint16_t)
BY_TYPE(u32, uint32_t, uint32_t)
BY_TYPE(s32, int32_t, uint32_t)
BY_TYPE(u64, uint64_t, uint64_t)
BY_TYPE(s64, int64_t, uint64_t)
PTX_OP1(abs_s16, uint16_t, int16_t, a[i] < 0 ? (uint16_t)(0 - (uint16_t)a[i]) : (uint16_t)a[i])
PTX_OP1(abs_s32, uint32_t, int32_t, a[i] < 0 ? 0 - (uint32_t)a[i] : (uint32_t)a[i])
PTX_OP1(abs_s64, uint64_t, int64_t, a[i] < 0 ? 0 - (uint64_t)a[i] : (uint64_t)a[i])

#define PAIR(T, function, a, b)                                                                                        \
    ((uint32_t)(uint16_t)function((T)(a), (T)(b)) | (uint32_t)(uint16_t)function((T)((a) >> 16), (T)((b) >> 16)) << 16)
static inline int16_t min_pair_s(int16_t a, int16_t b)
{
    return a < b ? a : b;
}
static inline int16_t max_pair_s(int16_t a, int16_t b)
{
    return a > b ? a : b;
}
static inline uint16_t min_pair_u(uint16_t a, uint16_t b)
{
    return a < b ? a : b;
}
static inline uint16_t max_pair_u(uint16_t a, uint16_t b)
{
    return a > b ? a : b;
}
PTX_OP2(min_s16x2, uint32_t, uint32_t, uint32_t, PAIR(int16_t, min_pair_s, a[i], b[i]))
PTX_OP2(max_s16x2, uint32_t, uint32_t, uint32_t, PAIR(int16_t, max_pair_s, a[i], b[i]))
PTX_OP2(min_u16x2, uint32_t, uint32_t, uint32_t, PAIR(uint16_t, min_pair_u, a[i], b[i]))
PTX_OP2(max_u16x2, uint32_t, uint32_t, uint32_t, PAIR(uint16_t, max_pair_u, a[i], b[i]))
PTX_OP2(min_relu_s32, int32_t, int32_t, int32_t, (a[i] < b[i] ? a[i] : b[i]) < 0 ? 0 : (a[i] < b[i] ? a[i] : b[i]))
PTX_OP2(max_relu_s32, int32_t, int32_t, int32_t, (a[i] > b[i] ? a[i] : b[i]) < 0 ? 0 : (a[i] > b[i] ? a[i] : b[i]))

/* ---- dot products of bytes ---- */

#define BYTE(T, x, k) ((int32_t)(T)((x) >> 8 * (k)))
#define DOT4(TA, TB)                                                                                                   \
    (c[i] + (uint32_t)(BYTE(TA, a[i], 0) * BYTE(TB, b[i], 0) + BYTE(TA, a[i], 1) * BYTE(TB, b[i], 1) +                 \
                       BYTE(TA, a[i], 2) * BYTE(TB, b[i], 2) + BYTE(TA, a[i], 3) * BYTE(TB, b[i], 3)))
PTX_OP3(dp4a_ss, uint32_t, uint32_t, uint32_t, uint32_t, DOT4(int8_t, int8_t))
PTX_OP3(dp4a_su, uint32_t, uint32_t, uint32_t, uint32_t, DOT4(int8_t, uint8_t))
PTX_OP3(dp4a_us, uint32_t, uint32_t, uint32_t, uint32_t, DOT4(uint8_t, int8_t))
PTX_OP3(dp4a_uu, uint32_t, uint32_t, uint32_t, uint32_t, DOT4(uint8_t, uint8_t))

/* ---- carries: one flag per lane, in the warp ---- */

/*
 * d = sum of the sources with the lane's carry where it is read; the carry out is written where asked. For sub the
 * flag is the borrow, as on the GPU: set when one was needed.
 */
#define CARRY_OP(name, T, W, reads, writes, compute)                                                                   \
    static const struct ptx_insn *name(struct ptx_warp *w, const struct ptx_insn *in)                                  \
    {                                                                                                                  \
        T *d = ptx_lanes(w, in->op[0]);                                                                                \
        const T *a = ptx_lanes(w, in->op[1]);                                                                          \
        const T *b = ptx_lanes(w, in->op[2]);                                                                          \
        const T *c = in->op[3] == PTX_NO_OP ? NULL : ptx_lanes(w, in->op[3]);                                          \
        PTX_EACH_LANE(i, w->mask)                                                                                      \
        {                                                                                                              \
            W carry = (reads) && (w->carry >> i & 1);                                                                  \
            W wide = compute;                                                                                          \
            d[i] = (T)wide;                                                                                            \
            if (writes)                                                                                                \
                w->carry = (w->carry & ~(1u << i)) | (uint32_t)(wide >> (8 * sizeof(T)) & 1) << i;                     \
        }                                                                                                              \
        (void)c;                                                                                                       \
        return in + 1;                                                                                                 \
    }
#define CARRY_FAMILY(bits, T, W)                                                                                       \
    CARRY_OP(add_cc_##bits, T, W, 0, 1, (W)a[i] + b[i] + carry)                                                        \
    CARRY_OP(addc_##bits, T, W, 1, 0, (W)a[i] + b[i] + carry)                                                          \
    CARRY_OP(addc_cc_##bits, T, W, 1, 1, (W)a[i] + b[i] + carry)                                                       \
    CARRY_OP(sub_cc_##bits, T, W, 0, 1, (W)a[i] - b[i] - carry)                                                        \
    CARRY_OP(subc_##bits, T, W, 1, 0, (W)a[i] - b[i] - carry)                                                          \
    CARRY_OP(subc_cc_##bits, T, W, 1, 1, (W)a[i] - b[i] - carry)                                                       \
    CARRY_OP(mad_lo_cc_##bits, T, W, 0, 1, (W)(T)((W)a[i] * b[i]) + c[i] + carry)                                      \
    CARRY_OP(madc_lo_##bits, T, W, 1, 0, (W)(T)((W)a[i] * b[i]) + c[i] + carry)                                        \
    CARRY_OP(madc_lo_cc_##bits, T, W, 1, 1, (W)(T)((W)a[i] * b[i]) + c[i] + carry)                                     \
    CARRY_OP(mad_hi_cc_##bits, T, W, 0, 1, ((W)a[i] * b[i] >> (8 * sizeof(T))) + c[i] + carry)                         \
    CARRY_OP(madc_hi_##bits, T, W, 1, 0, ((W)a[i] * b[i] >> (8 * sizeof(T))) + c[i] + carry)                           \
    CARRY_OP(madc_hi_cc_##bits, T, W, 1, 1, ((W)a[i] * b[i] >> (8 * sizeof(T))) + c[i] + carry)
CARRY_FAMILY(32, uint32_t, uint64_t)
CARRY_FAMILY(64, uint64_t, unsigned __int128)
#define SIGNED_HIGH(name, reads, writes)                                                                               \
    CARRY_OP(name, uint32_t, uint64_t, reads, writes,                                                                  \
             (uint64_t)(uint32_t)((int64_t)(int32_t)a[i] * (int32_t)b[i] >> 32) + c[i] + carry)
SIGNED_HIGH(mad_hi_cc_s32, 0, 1)
SIGNED_HIGH(madc_hi_s32, 1, 0)
SIGNED_HIGH(madc_hi_cc_s32, 1, 1)

/* ---- the table ---- */

#define ANY_SIGN(op, name, bits, shape)                                                                                \
    {op ".u" #bits, name##_##bits, shape},                                                                             \
    {                                                                                                                  \
        op ".s" #bits, name##_##bits, shape                                                                            \
    }
#define EACH_SIZE(op, name, h, w, d) ANY_SIGN(op, name, 16, h), ANY_SIGN(op, name, 32, w), ANY_SIGN(op, name, 64, d)
#define EACH_TYPE(op, name, h, w, d)                                                                                   \
    {op ".u16", name##_u16, h}, {op ".s16", name##_s16, h}, {op ".u32", name##_u32, w}, {op ".s32", name##_s32, w},    \
        {op ".u64", name##_u64, d},                                                                                    \
    {                                                                                                                  \
        op ".s64", name##_s64, d                                                                                       \
    }
#define CARRIES(op, name, w, d) ANY_SIGN(op, name, 32, w), ANY_SIGN(op, name, 64, d)

static const struct ptx_op_row rows[] = {
    EACH_SIZE("add", add, "h=hh", "w=ww", "d=dd"),
    EACH_SIZE("sub", sub, "h=hh", "w=ww", "d=dd"),
    EACH_SIZE("mul.lo", mul_lo, "h=hh", "w=ww", "d=dd"),
    EACH_SIZE("mad.lo", mad_lo, "h=hhh", "w=www", "d=ddd"),
    EACH_SIZE("neg", neg, "h=h", "w=w", "d=d"),
    EACH_TYPE("div", div, "h=hh", "w=ww", "d=dd"),
    EACH_TYPE("rem", rem, "h=hh", "w=ww", "d=dd"),
    EACH_TYPE("min", min, "h=hh", "w=ww", "d=dd"),
    EACH_TYPE("max", max, "h=hh", "w=ww", "d=dd"),
    EACH_TYPE("sad", sad, "h=hhh", "w=www", "d=ddd"),
    EACH_TYPE("mul.hi", mul_hi, "h=hh", "w=ww", "d=dd"),
    {"add.u16x2", add_16x2, "w=ww"},
    {"add.s16x2", add_16x2, "w=ww"},
    {"min.s16x2", min_s16x2, "w=ww"},
    {"max.s16x2", max_s16x2, "w=ww"},
    {"min.u16x2", min_u16x2, "w=ww"},
    {"max.u16x2", max_u16x2, "w=ww"},
    {"min.relu.s32", min_relu_s32, "w=ww"},
    {"max.relu.s32", max_relu_s32, "w=ww"},
    {"add.sat.s32", add_sat_s32, "w=ww"},
    {"sub.sat.s32", sub_sat_s32, "w=ww"},
    {"mul.wide.u16", mul_wide_u16, "w=hh"},
    {"mul.wide.s16", mul_wide_s16, "w=hh"},
    {"mul.wide.u32", mul_wide_u32, "d=ww"},
    {"mul.wide.s32", mul_wide_s32, "d=ww"},
    {"mad.wide.u16", mad_wide_u16, "w=hhw"},
    {"mad.wide.s16", mad_wide_s16, "w=hhw"},
    {"mad.wide.u32", mad_wide_u32, "d=wwd"},
    {"mad.wide.s32", mad_wide_s32, "d=wwd"},
    {"mad.hi.u32", mad_hi_u32, "w=www"},
    {"mad.hi.s32", mad_hi_s32, "w=www"},
    {"mad.hi.sat.s32", mad_hi_sat_s32, "w=www"},
    {"mad.hi.u64", mad_hi_u64, "d=ddd"},
    {"mad.hi.s64", mad_hi_s64, "d=ddd"},
    {"mul24.lo.u32", mul24_lo_u32, "w=ww"},
    {"mul24.lo.s32", mul24_lo_s32, "w=ww"},
    {"mul24.hi.u32", mul24_hi_u32, "w=ww"},
    {"mul24.hi.s32", mul24_hi_s32, "w=ww"},
    {"mad24.lo.u32", mad24_lo_u32, "w=www"},
    {"mad24.lo.s32", mad24_lo_s32, "w=www"},
    {"abs.s16", abs_s16, "h=h"},
    {"abs.s32", abs_s32, "w=w"},
    {"abs.s64", abs_s64, "d=d"},
    {"dp4a.s32.s32", dp4a_ss, "w=www"},
    {"dp4a.s32.u32", dp4a_su, "w=www"},
    {"dp4a.u32.s32", dp4a_us, "w=www"},
    {"dp4a.u32.u32", dp4a_uu, "w=www"},
    CARRIES("add.cc", add_cc, "w=ww", "d=dd"),
    CARRIES("addc", addc, "w=ww", "d=dd"),
    CARRIES("addc.cc", addc_cc, "w=ww", "d=dd"),
    CARRIES("sub.cc", sub_cc, "w=ww", "d=dd"),
    CARRIES("subc", subc, "w=ww", "d=dd"),
    CARRIES("subc.cc", subc_cc, "w=ww", "d=dd"),
    CARRIES("mad.lo.cc", mad_lo_cc, "w=www", "d=ddd"),
    CARRIES("madc.lo", madc_lo, "w=www", "d=ddd"),
    CARRIES("madc.lo.cc", madc_lo_cc, "w=www", "d=ddd"),
    {"mad.hi.cc.u32", mad_hi_cc_32, "w=www"},
    {"madc.hi.u32", madc_hi_32, "w=www"},
    {"madc.hi.cc.u32", madc_hi_cc_32, "w=www"},
    {"mad.hi.cc.s32", mad_hi_cc_s32, "w=www"},
    {"madc.hi.s32", madc_hi_s32, "w=www"},
    {"madc.hi.cc.s32", madc_hi_cc_s32, "w=www"},
    {"mad.hi.cc.u64", mad_hi_cc_64, "d=ddd"},
    {"madc.hi.u64", madc_hi_64, "d=ddd"},
    {"madc.hi.cc.u64", madc_hi_cc_64, "d=ddd"},
};

extern const struct ptx_op_table PTX_OP_TABLE(integer);
const struct ptx_op_table PTX_OP_TABLE(integer) = {rows, sizeof rows / sizeof *rows};
