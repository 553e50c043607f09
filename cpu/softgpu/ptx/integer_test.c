/* Integer and bit instructions, one by one, against plain C. */
#include "cpu/softgpu/ptx/test.h"
#include "rpc/base/test_random.h"

enum { COUNT = 256 };

static uint64_t a[COUNT], b[COUNT], c[COUNT];

/* Edge values in all combinations of the first lanes, then pseudo-random ones. */
static void fill_inputs(void)
{
    static const uint64_t edges[] = {
        0, 1, ~0ull, 0x7fff, 0x8000, 0x7fffffff, 0x80000000, 0x7fffffffffffffff, 0x8000000000000000, 31, 32, 5};
    uint64_t state = TEST_RANDOM_SEED;

    for (unsigned i = 0; i < COUNT; i++) {
        uint64_t *values[3] = {&a[i], &b[i], &c[i]};

        for (unsigned k = 0; k < 3; k++) {
            *values[k] = test_random_next(&state);
        }
        if (i < 144) {
            a[i] = edges[i / 12];
            b[i] = edges[i % 12];
            c[i] = edges[(i + i / 12) % 12];
        } else if (i < 200) {
            b[i] &= 63;
            c[i] &= 31;
        }
    }
}

typedef uint64_t expect_fn(uint64_t x, uint64_t y, uint64_t z);

#define U16(x) ((uint16_t)(x))
#define S16(x) ((int16_t)(x))
#define U32(x) ((uint32_t)(x))
#define S32(x) ((int32_t)(x))
#define S64(x) ((int64_t)(x))

/* X(instruction, shape, name, expression over x, y, z): the result is cut to the destination's size. */
#define CASES                                                                                                          \
    X("add.s16", "h=hh", add16, x + y)                                                                                 \
    X("add.u32", "w=ww", add32, x + y)                                                                                 \
    X("add.s64", "d=dd", add64, x + y)                                                                                 \
    X("add.sat.s32", "w=ww", add_sat, (uint64_t)clamp(S64(S32(x)) + S32(y)))                                           \
    X("sub.s32", "w=ww", sub32, x - y)                                                                                 \
    X("sub.sat.s32", "w=ww", sub_sat, (uint64_t)clamp(S64(S32(x)) - S32(y)))                                           \
    X("mul.lo.s32", "w=ww", mul32, U32(x) * (uint64_t)U32(y))                                                          \
    X("mul.lo.u64", "d=dd", mul64, x *y)                                                                               \
    X("mul.hi.s16", "h=hh", mulhi_s16, (uint64_t)((S16(x) * S16(y)) >> 16))                                            \
    X("mul.hi.u32", "w=ww", mulhi_u32, (uint64_t)U32(x) * U32(y) >> 32)                                                \
    X("mul.hi.s32", "w=ww", mulhi_s32, (uint64_t)(S64(S32(x)) * S32(y) >> 32))                                         \
    X("mul.hi.u64", "d=dd", mulhi_u64, (uint64_t)((unsigned __int128)x * y >> 64))                                     \
    X("mul.hi.s64", "d=dd", mulhi_s64, (uint64_t)((__int128)S64(x) * S64(y) >> 64))                                    \
    X("mul.wide.s32", "d=ww", wide_s32, (uint64_t)(S64(S32(x)) * S32(y)))                                              \
    X("mul.wide.u16", "w=hh", wide_u16, (uint64_t)U16(x) * U16(y))                                                     \
    X("mad.lo.s32", "w=www", mad32, x *y + z)                                                                          \
    X("mad.wide.u32", "d=wwd", madwide, (uint64_t)U32(x) * U32(y) + z)                                                 \
    X("mad.hi.u32", "w=www", madhi, ((uint64_t)U32(x) * U32(y) >> 32) + z)                                             \
    X("mul24.lo.s32", "w=ww", mul24, (uint64_t)((S64(x << 40) >> 40) * (S64(y << 40) >> 40)))                          \
    X("sad.u32", "w=www", sad, (U32(x) > U32(y) ? x - y : y - x) + z)                                                  \
    X("div.u32", "w=ww", div_u32, U32(y) ? U32(x) / U32(y) : ~0ull)                                                    \
    X("div.s32", "w=ww", div_s32, S32(y) ? (uint64_t)(S64(S32(x)) / S32(y)) : ~0ull)                                   \
    X("div.s16", "h=hh", div_s16, S16(y) ? (uint64_t)(S16(x) / S16(y)) : ~0ull)                                        \
    X("div.u64", "d=dd", div_u64, y ? x / y : ~0ull)                                                                   \
    X("div.s64", "d=dd", div_s64, y ? (uint64_t)((__int128)S64(x) / S64(y)) : ~0ull)                                   \
    X("rem.u32", "w=ww", rem_u32, U32(y) ? U32(x) % U32(y) : x)                                                        \
    X("rem.s32", "w=ww", rem_s32, S32(y) ? (uint64_t)(S64(S32(x)) % S32(y)) : x)                                       \
    X("rem.s64", "d=dd", rem_s64, y ? (uint64_t)((__int128)S64(x) % S64(y)) : x)                                       \
    X("min.s32", "w=ww", min_s32, S32(x) < S32(y) ? x : y)                                                             \
    X("max.u16", "h=hh", max_u16, U16(x) > U16(y) ? x : y)                                                             \
    X("max.s64", "d=dd", max_s64, S64(x) > S64(y) ? x : y)                                                             \
    X("min.u64", "d=dd", min_u64, x < y ? x : y)                                                                       \
    X("abs.s32", "w=w", abs32, S32(x) < 0 ? 0 - x : x)                                                                 \
    X("neg.s64", "d=d", neg64, 0 - x)                                                                                  \
    X("and.b32", "w=ww", and32, x &y)                                                                                  \
    X("or.b64", "d=dd", or64, x | y)                                                                                   \
    X("xor.b16", "h=hh", xor16, x ^ y)                                                                                 \
    X("not.b32", "w=w", not32, ~x)                                                                                     \
    X("cnot.b32", "w=w", cnot32, U32(x) == 0)                                                                          \
    X("shl.b32", "w=ww", shl32, U32(y) > 31 ? 0 : x << U32(y))                                                         \
    X("shl.b64", "d=dw", shl64, U32(y) > 63 ? 0 : x << U32(y))                                                         \
    X("shl.b16", "h=hw", shl16, U32(y) > 15 ? 0 : x << U32(y))                                                         \
    X("shr.u32", "w=ww", shr_u32, U32(y) > 31 ? 0 : U32(x) >> U32(y))                                                  \
    X("shr.s32", "w=ww", shr_s32, (uint64_t)(S64(S32(x)) >> (U32(y) > 31 ? 31 : U32(y))))                              \
    X("shr.s16", "h=hw", shr_s16, (uint64_t)(S64(S16(x)) >> (U32(y) > 15 ? 15 : U32(y))))                              \
    X("shr.s64", "d=dw", shr_s64, (uint64_t)(S64(x) >> (U32(y) > 63 ? 63 : U32(y))))                                   \
    X("shf.l.wrap.b32", "w=www", shf_l, (U32(z) & 31) ? y << (z & 31) | U32(x) >> (32 - (z & 31)) : y)                 \
    X("shf.r.wrap.b32", "w=www", shf_r, (U32(z) & 31) ? U32(x) >> (z & 31) | y << (32 - (z & 31)) : x)                 \
    X("shf.r.clamp.b32", "w=www", shf_rc, U32(z) >= 32 ? y : U32(z) ? U32(x) >> z | y << (32 - z) : x)                 \
    X("shf.l.clamp.b32", "w=www", shf_lc, U32(z) >= 32 ? x : U32(z) ? y << z | U32(x) >> (32 - z) : y)                 \
    X("popc.b32", "w=w", popc32, count_ones(U32(x)))                                                                   \
    X("popc.b64", "w=d", popc64, count_ones(x))                                                                        \
    X("clz.b32", "w=w", clz32, 31 - top_bit(U32(x)))                                                                   \
    X("clz.b64", "w=d", clz64, 63 - top_bit(x))                                                                        \
    X("brev.b32", "w=w", brev32, reverse(x, 32))                                                                       \
    X("brev.b64", "d=d", brev64, reverse(x, 64))                                                                       \
    X("bfind.u32", "w=w", bfind_u32, top_bit(U32(x)))                                                                  \
    X("bfind.s32", "w=w", bfind_s32, top_bit(U32(S32(x) < 0 ? ~x : x)))                                                \
    X("bfind.shiftamt.u32", "w=w", bfind_shift, U32(x) ? 31 - top_bit(U32(x)) : ~0ull)                                 \
    X("bfind.s64", "w=d", bfind_s64, top_bit(S64(x) < 0 ? ~x : x))                                                     \
    X("bfe.u32", "w=www", bfe_u32, field(U32(x), y & 255, z & 255, 32, 0))                                             \
    X("bfe.s32", "w=www", bfe_s32, field(U32(x), y & 255, z & 255, 32, 1))                                             \
    X("bfe.u64", "d=dww", bfe_u64, field(x, y & 255, z & 255, 64, 0))                                                  \
    X("bfe.s64", "d=dww", bfe_s64, field(x, y & 255, z & 255, 64, 1))                                                  \
    X("bmsk.clamp.b32", "w=ww", bmsk, field_mask(U32(x), U32(y)))                                                      \
    X("prmt.b32", "w=www", prmt, permuted(U32(x), U32(y), z))                                                          \
    X("dp4a.s32.s32", "w=www", dp4a_s, z + dot(x, y, 1))                                                               \
    X("dp4a.u32.u32", "w=www", dp4a_u, z + dot(x, y, 0))                                                               \
    X("cvt.u16.u32", "h=w", cvt_cut, x)                                                                                \
    X("cvt.s64.s32", "d=w", cvt_s64, (uint64_t)S64(S32(x)))                                                            \
    X("cvt.u64.u32", "d=w", cvt_u64, U32(x))                                                                           \
    X("cvt.s32.s8", "w=w", cvt_s8, (uint64_t)S64((int8_t)x))                                                           \
    X("cvt.u32.u8", "w=w", cvt_u8, x & 0xff)                                                                           \
    X("cvt.sat.u8.s32", "w=w", cvt_sat_u8, (uint64_t)(S32(x) < 0 ? 0 : S32(x) > 255 ? 255 : S32(x)))                   \
    X("cvt.sat.s32.s64", "w=d", cvt_sat_s32, (uint64_t)clamp(S64(x)))                                                  \
    X("setp.lt.s32", "p=ww", lt_s32, S32(x) < S32(y))                                                                  \
    X("setp.lo.u32", "p=ww", lo_u32, U32(x) < U32(y))                                                                  \
    X("setp.ge.s64", "p=dd", ge_s64, S64(x) >= S64(y))                                                                 \
    X("setp.hs.u16", "p=hh", hs_u16, U16(x) >= U16(y))                                                                 \
    X("setp.ne.b64", "p=dd", ne_b64, x != y)                                                                           \
    X("set.gt.u32.s32", "w=ww", set_gt, S32(x) > S32(y) ? ~0ull : 0)

static int64_t clamp(int64_t value)
{
    return value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : value;
}

static uint64_t count_ones(uint64_t x)
{
    uint64_t ones = 0;

    for (; x; x >>= 1)
        ones += x & 1;
    return ones;
}

/* −1 for none, as unsigned. */
static uint64_t top_bit(uint64_t x)
{
    uint64_t bit = ~0ull;

    for (; x; x >>= 1)
        bit++;
    return bit;
}

static uint64_t reverse(uint64_t x, unsigned width)
{
    uint64_t reversed = 0;

    for (unsigned i = 0; i < width; i++)
        reversed |= (x >> i & 1) << (width - 1 - i);
    return reversed;
}

/* The pseudo-code of bfe in the PTX ISA. */
static uint64_t field(uint64_t x, uint64_t from, uint64_t length, unsigned width, int is_signed)
{
    unsigned msb = width - 1, top = from + length - 1 < msb ? (unsigned)(from + length - 1) : msb;
    uint64_t sign = !is_signed || !length ? 0 : x >> top & 1, result = 0;

    for (unsigned i = 0; i <= msb; i++)
        result |= (i < length && from + i <= msb ? x >> (from + i) & 1 : sign) << i;
    return result;
}

static uint64_t field_mask(uint32_t from, uint32_t length)
{
    uint64_t mask = 0;

    for (uint64_t i = from; i < (uint64_t)from + length && i < 32; i++)
        mask |= 1ull << i;
    return mask;
}

static uint64_t permuted(uint32_t x, uint32_t y, uint64_t selectors)
{
    uint64_t result = 0;

    for (unsigned i = 0; i < 4; i++) {
        unsigned selector = selectors >> 4 * i & 15, byte = (selector & 4 ? y : x) >> 8 * (selector & 3) & 0xff;

        if (selector & 8)
            byte = byte > 127 ? 0xff : 0;
        result |= (uint64_t)byte << 8 * i;
    }
    return result;
}

static uint64_t dot(uint64_t x, uint64_t y, int is_signed)
{
    int64_t sum = 0;

    for (unsigned i = 0; i < 4; i++)
        sum += is_signed ? (int8_t)(x >> 8 * i) * (int8_t)(y >> 8 * i) : (uint8_t)(x >> 8 * i) * (uint8_t)(y >> 8 * i);
    return (uint64_t)sum;
}

#define X(instruction, shape, name, expression)                                                                        \
    static uint64_t expect_##name(uint64_t x, uint64_t y, uint64_t z)                                                  \
    {                                                                                                                  \
        (void)y;                                                                                                       \
        (void)z;                                                                                                       \
        return (uint64_t)(expression);                                                                                 \
    }
CASES
#undef X

static const struct {
    const char *instruction, *shape;
    expect_fn *expect;
} cases[] = {
#define X(instruction, shape, name, expression) {instruction, shape, expect_##name},
    CASES
#undef X
};

static uint64_t cut(uint64_t value, char letter)
{
    return letter == 'h' ? U16(value) : letter == 'w' ? U32(value) : letter == 'p' ? value & 1 : value;
}

static void every_instruction_agrees_with_c(void **state)
{
    (void)state;
    fill_inputs();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t out[COUNT];
        CUresult result = flyt_ptx_harness_apply(&harness, cases[i].instruction, cases[i].shape, COUNT, a, b, c, out);

        if (result != CUDA_SUCCESS)
            fail_msg("%s: %s", cases[i].instruction, harness.diag.text);
        for (unsigned lane = 0; lane < COUNT; lane++) {
            uint64_t wanted = cut(cases[i].expect(a[lane], b[lane], c[lane]), cases[i].shape[0]);

            if (out[lane] != wanted)
                fail_msg("%s of %#lx, %#lx, %#lx gave %#lx, not %#lx", cases[i].instruction, a[lane], b[lane], c[lane],
                         out[lane], wanted);
        }
    }
}

/* 192-bit sums, differences and a 64×64-bit product through the carry flag. */
static void carries_go_through_chains(void **state)
{
    static const char text[] =
        ".version 8.0\n.target sm_75\n.address_size 64\n"
        ".visible .entry chain(.param .u64 a, .param .u64 o) {\n"
        ".reg .b32 %r<20>; .reg .b64 %rd<4>;\n"
        "ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [o]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 16;\n"
        "add.s64 %rd1, %rd1, %rd3; mul.wide.u32 %rd3, %r1, 32; add.s64 %rd2, %rd2, %rd3;\n"
        "ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd1];\n"
        "add.cc.u32 %r6, %r2, %r4; addc.u32 %r7, %r3, %r5;\n"
        "sub.cc.u32 %r8, %r2, %r4; subc.u32 %r9, %r3, %r5;\n"
        "mul.lo.u32 %r10, %r2, %r4; mul.hi.u32 %r11, %r2, %r4;\n"
        "mad.lo.cc.u32 %r11, %r3, %r4, %r11; madc.hi.u32 %r12, %r3, %r4, 0;\n"
        "mad.lo.cc.u32 %r11, %r2, %r5, %r11; madc.hi.cc.u32 %r12, %r2, %r5, %r12; addc.u32 %r13, 0, 0;\n"
        "mad.lo.cc.u32 %r12, %r3, %r5, %r12; madc.hi.u32 %r13, %r3, %r5, %r13;\n"
        "st.global.v4.u32 [%rd2], {%r6, %r7, %r8, %r9}; st.global.v4.u32 [%rd2+16], {%r10, %r11, %r12, %r13}; ret; }\n";
    uint64_t *in, *out;

    (void)state;
    fill_inputs();
    assert_int_equal(flyt_ptx_harness_load(&harness, text), CUDA_SUCCESS);
    in = flyt_ptx_harness_alloc(&harness, COUNT * 16);
    out = flyt_ptx_harness_alloc(&harness, COUNT * 32);
    for (unsigned i = 0; i < COUNT; i++) {
        in[2 * i] = a[i];
        in[2 * i + 1] = b[i];
    }
    assert_int_equal(FLYT_PTX_RUN(&harness, "chain", 1, COUNT, (uint64_t)(uintptr_t)in, (uint64_t)(uintptr_t)out),
                     CUDA_SUCCESS);
    for (unsigned i = 0; i < COUNT; i++) {
        unsigned __int128 product = (unsigned __int128)a[i] * b[i];

        assert_int_equal(out[4 * i], a[i] + b[i]);
        assert_int_equal(out[4 * i + 1], a[i] - b[i]);
        assert_int_equal(out[4 * i + 2], (uint64_t)product);
        assert_int_equal(out[4 * i + 3], (uint64_t)(product >> 64));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_instruction_agrees_with_c),
        cmocka_unit_test(carries_go_through_chains),
    };

    return RUN_WITH_EACH_ISA(tests, set_up);
}
