/* Bits and moves: logic, shifts, fields, permutations, counts, selection, predicates, and changes of register size. */
#include "cpu/softgpu/ptx/lanes.h"
#include "cpu/softgpu/ptx/ops.h"

/* ---- logic and moves ---- */

#define LOGIC(bits, T)                                                                                                 \
    PTX_OP2(and_##bits, T, T, T, a[i] & b[i])                                                                          \
    PTX_OP2(or_##bits, T, T, T, a[i] | b[i])                                                                           \
    PTX_OP2(xor_##bits, T, T, T, a[i] ^ b[i])                                                                          \
    PTX_OP1(not_##bits, T, T, (T)~a[i])                                                                                \
    PTX_OP1(cnot_##bits, T, T, (T)(a[i] == 0))                                                                         \
    PTX_OP1(mov_##bits, T, T, a[i])
LOGIC(b16, uint16_t)
LOGIC(b32, uint32_t)
LOGIC(b64, uint64_t)

/* Predicates are masks of lanes: one operation does for all. */
#define PRED_OP(name, value)                                                                                           \
    static const struct ptx_insn *name(struct ptx_warp *w, const struct ptx_insn *in)                                  \
    {                                                                                                                  \
        uint32_t a = ptx_pred(w, in->op[1]);                                                                           \
        uint32_t b = in->op[2] == PTX_NO_OP ? 0 : ptx_pred(w, in->op[2]);                                              \
        (void)b;                                                                                                       \
        ptx_set_pred(w, in->op[0], value);                                                                             \
        return in + 1;                                                                                                 \
    }
PRED_OP(and_pred, a &b)
PRED_OP(or_pred, a | b)
PRED_OP(xor_pred, a ^ b)
PRED_OP(not_pred, ~a)
PRED_OP(mov_pred, a)

#define SELECT(bits, T)                                                                                                \
    static const struct ptx_insn *selp_##bits(struct ptx_warp *w, const struct ptx_insn *in)                           \
    {                                                                                                                  \
        T *d = ptx_lanes(w, in->op[0]);                                                                                \
        const T *a = ptx_lanes(w, in->op[1]);                                                                          \
        const T *b = ptx_lanes(w, in->op[2]);                                                                          \
        const uint32_t pred = ptx_pred(w, in->op[3]);                                                                  \
        PTX_WRITE(d, PTX_BIT(pred) ? a[i] : b[i]);                                                                     \
        return in + 1;                                                                                                 \
    }
SELECT(b16, uint16_t)
SELECT(b32, uint32_t)
SELECT(b64, uint64_t)

PTX_OP3(slct_s32_b32, uint32_t, uint32_t, uint32_t, int32_t, c[i] >= 0 ? a[i] : b[i])
PTX_OP3(slct_s32_b64, uint64_t, uint64_t, uint64_t, int32_t, c[i] >= 0 ? a[i] : b[i])
PTX_OP3(slct_f32_b32, uint32_t, uint32_t, uint32_t, float, c[i] >= 0 ? a[i] : b[i])
PTX_OP3(slct_f32_b64, uint64_t, uint64_t, uint64_t, float, c[i] >= 0 ? a[i] : b[i])

/* ---- shifts: amounts beyond the width give zeros or copies of the sign ---- */

PTX_OP2(shl_b16, uint16_t, uint16_t, uint32_t, (uint16_t)(b[i] > 15 ? 0 : (uint32_t)a[i] << (b[i] & 15)))
PTX_OP2(shl_b32, uint32_t, uint32_t, uint32_t, b[i] > 31 ? 0 : a[i] << (b[i] & 31))
PTX_OP2(shl_b64, uint64_t, uint64_t, uint32_t, b[i] > 63 ? 0 : a[i] << (b[i] & 63))
PTX_OP2(shr_u16, uint16_t, uint16_t, uint32_t, (uint16_t)(b[i] > 15 ? 0 : a[i] >> (b[i] & 15)))
PTX_OP2(shr_u32, uint32_t, uint32_t, uint32_t, b[i] > 31 ? 0 : a[i] >> (b[i] & 31))
PTX_OP2(shr_u64, uint64_t, uint64_t, uint32_t, b[i] > 63 ? 0 : a[i] >> (b[i] & 63))
PTX_OP2(shr_s16, int16_t, int16_t, uint32_t, (int16_t)(a[i] >> (b[i] > 15 ? 15 : b[i])))
PTX_OP2(shr_s32, int32_t, int32_t, uint32_t, a[i] >> (b[i] > 31 ? 31 : b[i]))
PTX_OP2(shr_s64, int64_t, int64_t, uint32_t, a[i] >> (b[i] > 63 ? 63 : b[i]))

/* Funnel shifts of b:a by c. */
static inline uint32_t funnel_left(uint32_t low, uint32_t high, uint32_t by)
{
    return (uint32_t)(((uint64_t)high << 32 | low) << by >> 32);
}

static inline uint32_t funnel_right(uint32_t low, uint32_t high, uint32_t by)
{
    return (uint32_t)(((uint64_t)high << 32 | low) >> by);
}
PTX_OP3(shf_l_wrap, uint32_t, uint32_t, uint32_t, uint32_t, funnel_left(a[i], b[i], c[i] & 31))
PTX_OP3(shf_r_wrap, uint32_t, uint32_t, uint32_t, uint32_t, funnel_right(a[i], b[i], c[i] & 31))
PTX_OP3(shf_l_clamp, uint32_t, uint32_t, uint32_t, uint32_t, funnel_left(a[i], b[i], c[i] > 32 ? 32 : c[i]))
PTX_OP3(shf_r_clamp, uint32_t, uint32_t, uint32_t, uint32_t, funnel_right(a[i], b[i], c[i] > 32 ? 32 : c[i]))

/* ---- counts and fields ---- */

static inline uint32_t reverse_32(uint32_t x)
{
    x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
    x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
    x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(x);
}

static inline uint64_t reverse_64(uint64_t x)
{
    return (uint64_t)reverse_32((uint32_t)x) << 32 | reverse_32((uint32_t)(x >> 32));
}

/* Position of the highest bit that is not a copy of the sign (signed) or is one (unsigned); all ones: none. */
static inline uint32_t find_64(uint64_t x)
{
    return x ? 63 - (uint32_t)__builtin_clzll(x) : UINT32_MAX;
}

static inline uint32_t from_top(uint32_t position, uint32_t width)
{
    return position == UINT32_MAX ? position : width - 1 - position;
}

static inline uint64_t flip_s32(int32_t x)
{
    return (uint32_t)(x < 0 ? ~x : x);
}

static inline uint64_t flip_s64(int64_t x)
{
    return (uint64_t)(x < 0 ? ~x : x);
}
PTX_OP1(popc_b32, uint32_t, uint32_t, (uint32_t)__builtin_popcount(a[i]))
PTX_OP1(popc_b64, uint32_t, uint64_t, (uint32_t)__builtin_popcountll(a[i]))
PTX_OP1(clz_b32, uint32_t, uint32_t, a[i] ? (uint32_t)__builtin_clz(a[i] | !a[i]) : 32)
PTX_OP1(clz_b64, uint32_t, uint64_t, a[i] ? (uint32_t)__builtin_clzll(a[i] | !a[i]) : 64)
PTX_OP1(brev_b32, uint32_t, uint32_t, reverse_32(a[i]))
PTX_OP1(brev_b64, uint64_t, uint64_t, reverse_64(a[i]))
PTX_OP1(bfind_u32, uint32_t, uint32_t, find_64(a[i]))
PTX_OP1(bfind_s32, uint32_t, int32_t, find_64(flip_s32(a[i])))
PTX_OP1(bfind_u64, uint32_t, uint64_t, find_64(a[i]))
PTX_OP1(bfind_s64, uint32_t, int64_t, find_64(flip_s64(a[i])))
PTX_OP1(bfind_shift_u32, uint32_t, uint32_t, from_top(find_64(a[i]), 32))
PTX_OP1(bfind_shift_s32, uint32_t, int32_t, from_top(find_64(flip_s32(a[i])), 32))
PTX_OP1(bfind_shift_u64, uint32_t, uint64_t, from_top(find_64(a[i]), 64))
PTX_OP1(bfind_shift_s64, uint32_t, int64_t, from_top(find_64(flip_s64(a[i])), 64))

/* A field of `count` bits at `from`, both taken modulo 256; bits beyond the top are copies of `fill`. */
static inline uint64_t extract(uint64_t a, uint32_t from, uint32_t count, unsigned width, bool is_signed)
{
    uint32_t position = from & 255, length = count & 255;
    uint32_t top = position + length > width ? width - 1 : position + length - 1;
    bool sign = length && is_signed && (a >> (top > 63 ? 63 : top) & 1);
    uint64_t mask = length > 63 ? UINT64_MAX : (1ull << length) - 1;
    uint64_t field = position < width ? a >> position : 0;

    if (sign && width - position < 64 && position < width)
        field |= UINT64_MAX << (width - position);
    else if (sign && position >= width)
        field = UINT64_MAX;
    field &= mask;
    return sign && length < 64 ? field | ~mask : field;
}

/* b with its `count` bits at `from` replaced by the low bits of a. */
static inline uint64_t insert(uint64_t a, uint64_t b, uint32_t from, uint32_t count, unsigned width)
{
    uint32_t position = from & 255, length = count & 255;
    uint64_t mask = length > 63 ? UINT64_MAX : (1ull << length) - 1;

    if (position >= width || !length)
        return b;
    return (b & ~(mask << position)) | (a & mask) << position;
}
PTX_OP3(bfe_u32, uint32_t, uint32_t, uint32_t, uint32_t, (uint32_t)extract(a[i], b[i], c[i], 32, false))
PTX_OP3(bfe_s32, uint32_t, uint32_t, uint32_t, uint32_t, (uint32_t)extract(a[i], b[i], c[i], 32, true))
PTX_OP3(bfe_u64, uint64_t, uint64_t, uint32_t, uint32_t, extract(a[i], b[i], c[i], 64, false))
PTX_OP3(bfe_s64, uint64_t, uint64_t, uint32_t, uint32_t, extract(a[i], b[i], c[i], 64, true))

#define FOUR_SOURCES(name, T, D, expression)                                                                           \
    static const struct ptx_insn *name(struct ptx_warp *w, const struct ptx_insn *in)                                  \
    {                                                                                                                  \
        T *d = ptx_lanes(w, in->op[0]);                                                                                \
        const T *a = ptx_lanes(w, in->op[1]);                                                                          \
        const T *b = ptx_lanes(w, in->op[2]);                                                                          \
        const uint32_t *c = ptx_lanes(w, in->op[3]);                                                                   \
        const D *e = ptx_lanes(w, in->op[4]);                                                                          \
        PTX_WRITE(d, expression);                                                                                      \
        return in + 1;                                                                                                 \
    }
FOUR_SOURCES(bfi_b32, uint32_t, uint32_t, (uint32_t)insert(a[i], b[i], c[i], e[i], 32))
FOUR_SOURCES(bfi_b64, uint64_t, uint32_t, insert(a[i], b[i], c[i], e[i], 64))

/* Any function of three bits, given by its truth table. The table is a constant: that of lane 0. */
static inline uint32_t lookup(uint32_t a, uint32_t b, uint32_t c, uint32_t table)
{
    uint32_t result = 0;

    for (unsigned row = 0; row < 8; row++)
        if (table >> row & 1)
            result |= (row & 4 ? a : ~a) & (row & 2 ? b : ~b) & (row & 1 ? c : ~c);
    return result;
}
FOUR_SOURCES(lop3_b32, uint32_t, uint32_t, lookup(a[i], b[i], c[i], e[0]))

/* bmsk: `length` ones from bit `from`. */
static inline uint32_t mask_clamp(uint32_t from, uint32_t length)
{
    return from > 31 ? 0 : (length > 31 ? UINT32_MAX : (1u << length) - 1) << from;
}

static inline uint32_t mask_wrap(uint32_t from, uint32_t length)
{
    return ((1u << (length & 31)) - 1) << (from & 31);
}
PTX_OP2(bmsk_clamp, uint32_t, uint32_t, uint32_t, mask_clamp(a[i], b[i]))
PTX_OP2(bmsk_wrap, uint32_t, uint32_t, uint32_t, mask_wrap(a[i], b[i]))

static inline uint32_t extend_clamp(uint32_t a, uint32_t bits, bool is_signed)
{
    if (bits > 31)
        return a;
    if (!bits)
        return 0;
    return is_signed ? (uint32_t)((int32_t)(a << (32 - bits)) >> (32 - bits)) : a & ((1u << bits) - 1);
}
PTX_OP2(szext_clamp_s32, uint32_t, uint32_t, uint32_t, extend_clamp(a[i], b[i], true))
PTX_OP2(szext_clamp_u32, uint32_t, uint32_t, uint32_t, extend_clamp(a[i], b[i], false))
PTX_OP2(szext_wrap_s32, uint32_t, uint32_t, uint32_t, extend_clamp(a[i], b[i] & 31, true))
PTX_OP2(szext_wrap_u32, uint32_t, uint32_t, uint32_t, extend_clamp(a[i], b[i] & 31, false))

/* ---- permutation of bytes: four selectors into b:a, or one of six fixed modes ---- */

static inline uint32_t pick_byte(uint64_t bytes, uint32_t selector)
{
    uint32_t byte = (uint32_t)(bytes >> 8 * (selector & 7)) & 0xff;

    return selector & 8 ? (byte & 0x80 ? 0xff : 0) : byte;
}

static inline uint32_t permute(uint32_t a, uint32_t b, uint32_t selectors)
{
    uint64_t bytes = (uint64_t)b << 32 | a;

    return pick_byte(bytes, selectors & 15) | pick_byte(bytes, selectors >> 4 & 15) << 8 |
           pick_byte(bytes, selectors >> 8 & 15) << 16 | pick_byte(bytes, selectors >> 12 & 15) << 24;
}

/* The selectors of a mode (PTX ISA, prmt), four hexadecimal digits for each value of c's low two bits. */
static inline uint32_t mode_selectors(const uint16_t table[4], uint32_t c)
{
    return table[c & 3];
}
static const uint16_t mode_f4e[] = {0x3210, 0x4321, 0x5432, 0x6543}, mode_b4e[] = {0x5670, 0x6701, 0x7012, 0x0123},
                      mode_rc8[] = {0x0000, 0x1111, 0x2222, 0x3333}, mode_ecl[] = {0x3210, 0x3211, 0x3222, 0x3333},
                      mode_ecr[] = {0x0000, 0x1110, 0x2210, 0x3210}, mode_rc16[] = {0x1010, 0x3232, 0x1010, 0x3232};
PTX_OP3(prmt_b32, uint32_t, uint32_t, uint32_t, uint32_t, permute(a[i], b[i], c[i]))
PTX_OP3(prmt_f4e, uint32_t, uint32_t, uint32_t, uint32_t, permute(a[i], b[i], mode_selectors(mode_f4e, c[i])))
PTX_OP3(prmt_b4e, uint32_t, uint32_t, uint32_t, uint32_t, permute(a[i], b[i], mode_selectors(mode_b4e, c[i])))
PTX_OP3(prmt_rc8, uint32_t, uint32_t, uint32_t, uint32_t, permute(a[i], b[i], mode_selectors(mode_rc8, c[i])))
PTX_OP3(prmt_ecl, uint32_t, uint32_t, uint32_t, uint32_t, permute(a[i], b[i], mode_selectors(mode_ecl, c[i])))
PTX_OP3(prmt_ecr, uint32_t, uint32_t, uint32_t, uint32_t, permute(a[i], b[i], mode_selectors(mode_ecr, c[i])))
PTX_OP3(prmt_rc16, uint32_t, uint32_t, uint32_t, uint32_t, permute(a[i], b[i], mode_selectors(mode_rc16, c[i])))

/* ---- cvt.pack: integers cut to a narrower type side by side, b the lowest, and c above them ---- */

static inline uint32_t cut_to(int32_t x, int32_t least, int32_t most)
{
    return (uint32_t)(x < least ? least : x > most ? most : x);
}
#define PACK(t, bits, least, most)                                                                                     \
    PTX_OP2(pack_##t, uint32_t, int32_t, int32_t,                                                                      \
            (cut_to(a[i], least, most) & ((1u << bits) - 1)) << bits |                                                 \
                (cut_to(b[i], least, most) & ((1u << bits) - 1)))
PACK(s16, 16, INT16_MIN, INT16_MAX)
PACK(u16, 16, 0, UINT16_MAX)
#define PACK_ABOVE(t, least, most)                                                                                     \
    PTX_OP3(pack_##t, uint32_t, int32_t, int32_t, uint32_t,                                                            \
            (cut_to(b[i], least, most) & 0xff) | (cut_to(a[i], least, most) & 0xff) << 8 | c[i] << 16)
PACK_ABOVE(s8, INT8_MIN, INT8_MAX)
PACK_ABOVE(u8, 0, UINT8_MAX)

/* ---- changes of register size, which PTX leaves implicit ---- */

PTX_OP1(zero_24, uint32_t, uint16_t, a[i])
PTX_OP1(zero_28, uint64_t, uint16_t, a[i])
PTX_OP1(zero_48, uint64_t, uint32_t, a[i])
PTX_OP1(sign_24, uint32_t, int16_t, (uint32_t)a[i])
PTX_OP1(sign_28, uint64_t, int16_t, (uint64_t)a[i])
PTX_OP1(sign_48, uint64_t, int32_t, (uint64_t)a[i])
PTX_OP1(cut_42, uint16_t, uint32_t, (uint16_t)a[i])
PTX_OP1(cut_82, uint16_t, uint64_t, (uint16_t)a[i])
PTX_OP1(cut_84, uint32_t, uint64_t, (uint32_t)a[i])

/* ---- the table ---- */

#define EACH_SIZE(op, name, h, w, d)                                                                                   \
    {op ".b16", name##_b16, h}, {op ".b32", name##_b32, w},                                                            \
    {                                                                                                                  \
        op ".b64", name##_b64, d                                                                                       \
    }
#define SAME_FOR(op, bits, name, shape)                                                                                \
    {op ".u" #bits, name, shape}, {op ".s" #bits, name, shape},                                                        \
    {                                                                                                                  \
        op ".f" #bits, name, shape                                                                                     \
    }
#define SIZES_AND_TYPES(op, name, h, w, d)                                                                             \
    EACH_SIZE(op, name, h, w, d), SAME_FOR(op, 16, name##_b16, h), SAME_FOR(op, 32, name##_b32, w),                    \
        SAME_FOR(op, 64, name##_b64, d)

static const struct ptx_op_row rows[] = {
    EACH_SIZE("and", and, "h=hh", "w=ww", "d=dd"),
    EACH_SIZE("or", or, "h=hh", "w=ww", "d=dd"),
    EACH_SIZE("xor", xor, "h=hh", "w=ww", "d=dd"),
    EACH_SIZE("not", not, "h=h", "w=w", "d=d"),
    EACH_SIZE("cnot", cnot, "h=h", "w=w", "d=d"),
    EACH_SIZE("mov", mov, "h=h", "w=w", "d=d"),
    {"and.pred", and_pred, "p=pp"},
    {"or.pred", or_pred, "p=pp"},
    {"xor.pred", xor_pred, "p=pp"},
    {"not.pred", not_pred, "p=p"},
    {"mov.pred", mov_pred, "p=p"},
    SIZES_AND_TYPES("selp", selp, "h=hhp", "w=wwp", "d=ddp"),
    {"slct.b32.s32", slct_s32_b32, "w=www"},
    {"slct.u32.s32", slct_s32_b32, "w=www"},
    {"slct.s32.s32", slct_s32_b32, "w=www"},
    {"slct.f32.s32", slct_s32_b32, "w=www"},
    {"slct.b64.s32", slct_s32_b64, "d=ddw"},
    {"slct.u64.s32", slct_s32_b64, "d=ddw"},
    {"slct.s64.s32", slct_s32_b64, "d=ddw"},
    {"slct.f64.s32", slct_s32_b64, "d=ddw"},
    {"slct.b32.f32", slct_f32_b32, "w=www"},
    {"slct.f32.f32", slct_f32_b32, "w=www"},
    {"slct.b64.f32", slct_f32_b64, "d=ddw"},
    {"slct.f64.f32", slct_f32_b64, "d=ddw"},
    EACH_SIZE("shl", shl, "h=hw", "w=ww", "d=dw"),
    {"shr.b16", shr_u16, "h=hw"},
    {"shr.u16", shr_u16, "h=hw"},
    {"shr.s16", shr_s16, "h=hw"},
    {"shr.b32", shr_u32, "w=ww"},
    {"shr.u32", shr_u32, "w=ww"},
    {"shr.s32", shr_s32, "w=ww"},
    {"shr.b64", shr_u64, "d=dw"},
    {"shr.u64", shr_u64, "d=dw"},
    {"shr.s64", shr_s64, "d=dw"},
    {"shf.l.wrap.b32", shf_l_wrap, "w=www"},
    {"shf.r.wrap.b32", shf_r_wrap, "w=www"},
    {"shf.l.clamp.b32", shf_l_clamp, "w=www"},
    {"shf.r.clamp.b32", shf_r_clamp, "w=www"},
    {"popc.b32", popc_b32, "w=w"},
    {"popc.b64", popc_b64, "w=d"},
    {"clz.b32", clz_b32, "w=w"},
    {"clz.b64", clz_b64, "w=d"},
    {"brev.b32", brev_b32, "w=w"},
    {"brev.b64", brev_b64, "d=d"},
    {"bfind.u32", bfind_u32, "w=w"},
    {"bfind.s32", bfind_s32, "w=w"},
    {"bfind.u64", bfind_u64, "w=d"},
    {"bfind.s64", bfind_s64, "w=d"},
    {"bfind.shiftamt.u32", bfind_shift_u32, "w=w"},
    {"bfind.shiftamt.s32", bfind_shift_s32, "w=w"},
    {"bfind.shiftamt.u64", bfind_shift_u64, "w=d"},
    {"bfind.shiftamt.s64", bfind_shift_s64, "w=d"},
    {"bfe.u32", bfe_u32, "w=www"},
    {"bfe.s32", bfe_s32, "w=www"},
    {"bfe.u64", bfe_u64, "d=dww"},
    {"bfe.s64", bfe_s64, "d=dww"},
    {"bfi.b32", bfi_b32, "w=wwww"},
    {"bfi.b64", bfi_b64, "d=ddww"},
    {"lop3.b32", lop3_b32, "w=wwww"},
    {"bmsk.clamp.b32", bmsk_clamp, "w=ww"},
    {"bmsk.wrap.b32", bmsk_wrap, "w=ww"},
    {"szext.clamp.s32", szext_clamp_s32, "w=ww"},
    {"szext.clamp.u32", szext_clamp_u32, "w=ww"},
    {"szext.wrap.s32", szext_wrap_s32, "w=ww"},
    {"szext.wrap.u32", szext_wrap_u32, "w=ww"},
    {"prmt.b32", prmt_b32, "w=www"},
    {"prmt.b32.f4e", prmt_f4e, "w=www"},
    {"prmt.b32.b4e", prmt_b4e, "w=www"},
    {"prmt.b32.rc8", prmt_rc8, "w=www"},
    {"prmt.b32.ecl", prmt_ecl, "w=www"},
    {"prmt.b32.ecr", prmt_ecr, "w=www"},
    {"prmt.b32.rc16", prmt_rc16, "w=www"},
    {"cvt.pack.sat.s16.s32", pack_s16, "w=ww"},
    {"cvt.pack.sat.u16.s32", pack_u16, "w=ww"},
    {"cvt.pack.sat.s8.s32.b32", pack_s8, "w=www"},
    {"cvt.pack.sat.u8.s32.b32", pack_u8, "w=www"},
    {"$z24", zero_24, "w=h"},
    {"$z28", zero_28, "d=h"},
    {"$z48", zero_48, "d=w"},
    {"$s24", sign_24, "w=h"},
    {"$s28", sign_28, "d=h"},
    {"$s48", sign_48, "d=w"},
    {"$t42", cut_42, "h=w"},
    {"$t82", cut_82, "h=d"},
    {"$t84", cut_84, "w=d"},
};

extern const struct ptx_op_table PTX_OP_TABLE(bits);
const struct ptx_op_table PTX_OP_TABLE(bits) = {rows, sizeof rows / sizeof *rows};
