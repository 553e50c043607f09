/* f16, bf16, tf32 and the 8-bit floats: conversions against a search for the nearest number, arithmetic by cases. */
#include "cpu/softgpu/ptx/test.h"
#include "rpc/base/test_random.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { COUNT = 256 };

static uint64_t a[COUNT], b[COUNT], c[COUNT], out[COUNT];

static uint64_t next_random(void)
{
    static uint64_t state = 0x9e3779b97f4a7c15ull;

    return test_random_next(&state);
}

/* A format with fewer digits than f32; `last` is the pattern of its largest number, behind which infinity or NaN are.
 */
struct format {
    const char *name;
    unsigned digits;
    int bias;
    uint32_t last, nan, sign;
};

static const struct format f16 = {"f16", 10, 15, 0x7bff, 0x7fff, 0x8000},
                           bf16 = {"bf16", 7, 127, 0x7f7f, 0x7fff, 0x8000},
                           tf32 = {"tf32", 10, 127, 0x3fbff, 0x3ffff, 0x40000}, /* without its low 13 bits */
    e4m3 = {"e4m3", 3, 7, 0x7e, 0x7f, 0x80}, e5m2 = {"e5m2", 2, 15, 0x7b, 0x7f, 0x80};

/* The number that a pattern without sign stands for. */
static double value_of(const struct format *format, uint32_t pattern)
{
    uint32_t fraction = pattern & ((1u << format->digits) - 1), exponent = pattern >> format->digits;

    return exponent ? ldexp(fraction + (1u << format->digits), (int)exponent - format->bias - (int)format->digits)
                    : ldexp(fraction, 1 - format->bias - (int)format->digits);
}

static float float_of(uint64_t bits)
{
    uint32_t low = (uint32_t)bits;
    float value;

    memcpy(&value, &low, sizeof value);
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

enum { RN, RZ, RNA }; /* to nearest even, toward zero, to nearest away */

/* The pattern of x by search; what is too large becomes the last number. */
static uint32_t nearest(const struct format *format, float x, unsigned rounding)
{
    double magnitude = fabs((double)x);
    uint32_t sign = bits_of(x) >> 31 ? format->sign : 0, low = 0, high = format->last;
    double below, above;

    if (x != x)
        return format->nan;
    while (low < high) { /* the largest number that is not above x */
        uint32_t middle = low + (high - low + 1) / 2;

        if (value_of(format, middle) <= magnitude)
            low = middle;
        else
            high = middle - 1;
    }
    if (low == format->last || rounding == RZ)
        return low | sign;
    below = magnitude - value_of(format, low);
    above = value_of(format, low + 1) - magnitude;
    return (below < above || (below == above && rounding == RN && !(low & 1)) ? low : low + 1) | sign;
}

static void apply(const char *instruction, const char *shape)
{
    if (flyt_ptx_harness_apply(&harness, instruction, shape, COUNT, a, b, c, out) != CUDA_SUCCESS)
        fail_msg("%s: %s", instruction, harness.diag.text);
}

/* Floats of all sizes that the format has and some that it has not; ties; NaN and infinities. */
static void fill_floats(uint64_t *values, const struct format *format)
{
    static const uint32_t edges[] = {0, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00001, 0xffc12345, 0x7f7fffff, 1};

    for (unsigned i = 0; i < COUNT; i++) {
        uint32_t pattern = (uint32_t)(next_random() >> 20) % format->last;
        double value = value_of(format, pattern), next = value_of(format, pattern + 1);

        values[i] = bits_of((float)(i % 3 == 0 ? value : (value + next) / 2)); /* the middle is a tie */
        if (i % 3 == 2)
            values[i] += next_random() % 3 - 1;
        if (i % 2)
            values[i] ^= 0x80000000u;
        if (i % 16 == 15)
            values[i] = bits_of((float)value_of(format, format->last) * (1 + (float)(next_random() % 64) / 512));
        if (i < sizeof edges / sizeof *edges)
            values[i] = edges[i];
    }
}

static float relu(float x)
{
    return x <= 0 ? 0.0f : x;
}

static void conversions_saturate_and_rectify(void **state)
{
    static const struct {
        const char *instruction;
        const struct format *format;
        unsigned rounding, shift;
        bool is_rectified, is_pair;
    } cases[] = {
        {"cvt.rn.satfinite.f16.f32", &f16, RN, 0, false, false},
        {"cvt.rz.relu.satfinite.f16.f32", &f16, RZ, 0, true, false},
        {"cvt.rn.satfinite.relu.f16.f32", &f16, RN, 0, true, false},
        {"cvt.rn.satfinite.bf16.f32", &bf16, RN, 0, false, false},
        {"cvt.rn.relu.satfinite.bf16.f32", &bf16, RN, 0, true, false},
        {"cvt.rn.satfinite.f16x2.f32", &f16, RN, 16, false, true},
        {"cvt.rn.relu.satfinite.f16x2.f32", &f16, RN, 16, true, true},
        {"cvt.rz.satfinite.bf16x2.f32", &bf16, RZ, 16, false, true},
        {"cvt.rn.relu.satfinite.bf16x2.f32", &bf16, RN, 16, true, true},
        {"cvt.rn.satfinite.e4m3x2.f32", &e4m3, RN, 8, false, true},
        {"cvt.rn.satfinite.relu.e4m3x2.f32", &e4m3, RN, 8, true, true},
        {"cvt.rn.satfinite.e5m2x2.f32", &e5m2, RN, 8, false, true},
        {"cvt.rn.satfinite.relu.e5m2x2.f32", &e5m2, RN, 8, true, true},
        {"cvt.rn.satfinite.tf32.f32", &tf32, RN, 0, false, false},
        {"cvt.rz.satfinite.tf32.f32", &tf32, RZ, 0, false, false},
        {"cvt.rna.satfinite.tf32.f32", &tf32, RNA, 0, false, false},
        {"cvt.rn.satfinite.relu.tf32.f32", &tf32, RN, 0, true, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct format *format = cases[i].format;
        bool is_wide = cases[i].shift == 16 || format == &tf32;

        fill_floats(a, format);
        fill_floats(b, format);
        apply(cases[i].instruction, cases[i].is_pair ? (is_wide ? "w=ff" : "h=ff") : is_wide ? "w=f" : "h=f");
        for (unsigned lane = 0; lane < COUNT; lane++) {
            float x = float_of(a[lane]), y = float_of(b[lane]);
            uint64_t wanted = nearest(format, cases[i].is_rectified ? relu(x) : x, cases[i].rounding);

            if (cases[i].is_pair)
                wanted =
                    wanted << cases[i].shift | nearest(format, cases[i].is_rectified ? relu(y) : y, cases[i].rounding);
            if (format == &tf32)
                wanted = x != x ? 0x7fffffff : wanted << 13;
            if (out[lane] != wanted)
                fail_msg("%s of %a (%08x), %a gave %llx, expected %llx", cases[i].instruction, (double)x, bits_of(x),
                         (double)y, (unsigned long long)out[lane], (unsigned long long)wanted);
        }
    }
}

/* What has no .satfinite: an infinity stays one. */
static void conversions_rectify(void **state)
{
    static const char *const instructions[] = {"cvt.rn.relu.f16.f32", "cvt.rz.relu.bf16.f32", "cvt.rz.relu.tf32.f32"};
    static const struct format *const formats[] = {&f16, &bf16, &tf32};

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        unsigned rounding = instructions[i][5] == 'z' ? RZ : RN;

        fill_floats(a, formats[i]);
        apply(instructions[i], i == 2 ? "w=f" : "h=f");
        for (unsigned lane = 0; lane < COUNT; lane++) {
            float x = float_of(a[lane]);
            uint64_t wanted = nearest(formats[i], relu(x), rounding);

            if (rounding == RN && x >= 65520.0f) /* the tie behind the last number goes up */
                wanted = 0x7c00;
            if (rounding == RZ && isinf(x) && x > 0)
                wanted = formats[i]->last + 1;
            if (i == 2)
                wanted = x != x ? 0x7fffffff : wanted << 13;
            if (out[lane] != wanted)
                fail_msg("%s of %a gave %llx, expected %llx", instructions[i], (double)x, (unsigned long long)out[lane],
                         (unsigned long long)wanted);
        }
    }
}

/* All patterns of 8 bits as halves, and halves as patterns. */
static void eight_bits_become_halves(void **state)
{
    static const struct format *const formats[] = {&e4m3, &e5m2};
    char instruction[64];

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        const struct format *format = formats[i];

        for (unsigned lane = 0; lane < COUNT; lane++)
            a[lane] = lane << 8 | (255 - lane);
        snprintf(instruction, sizeof instruction, "cvt.rn.f16x2.%sx2", format->name);
        apply(instruction, "w=h");
        for (unsigned lane = 0; lane < COUNT; lane++)
            for (unsigned half = 0; half < 2; half++) {
                uint32_t pattern = half ? lane : 255 - lane, magnitude = pattern & 0x7f;
                uint32_t wanted = magnitude <= format->last ? nearest(&f16, (float)value_of(format, magnitude), RN)
                                  : format == &e5m2 && magnitude == 0x7c ? 0x7c00
                                                                         : 0x7fff;

                if (wanted != 0x7fff)
                    wanted |= (pattern & 0x80) << 8;
                assert_int_equal(out[lane] >> 16 * half & 0xffff, wanted);
            }
        memcpy(a, out, sizeof a);
        snprintf(instruction, sizeof instruction, "cvt.rn.satfinite.%sx2.f16x2", format->name);
        apply(instruction, "h=w");
        for (unsigned lane = 0; lane < COUNT; lane++) {
            uint32_t pattern = out[lane] >> 8 & 0xff;
            bool is_number = (lane & 0x7f) <= format->last;

            assert_int_equal(pattern, is_number ? lane : (lane & 0x7f) == 0x7c ? (lane & 0x80) | 0x7b : 0x7f);
        }
    }
}

static void special_cases_follow_the_manual(void **state)
{
    static const struct {
        const char *instruction, *shape;
        uint64_t x, y, z, wanted;
    } cases[] = {
        {"add.ftz.sat.f16", "h=hh", 0x3c00, 0x3c00, 0, 0x3c00},
        {"add.ftz.sat.f16", "h=hh", 0x0200, 0x0000, 0, 0x0000},
        {"add.rn.ftz.sat.f16x2", "w=ww", 0x02003c00, 0x00003c00, 0, 0x3c00},
        {"fma.rn.ftz.sat.f16", "h=hhh", 0x4000, 0x4000, 0xbc00, 0x3c00},
        {"fma.rn.ftz.relu.f16x2", "w=www", 0xc0004000, 0x3c003c00, 0x3c003c00, 0x00004200},
        {"fma.rn.ftz.relu.f16", "h=hhh", 0x0400, 0x3800, 0, 0}, /* a subnormal result */
        {"neg.ftz.f16", "h=h", 0x0001, 0, 0, 0x8000},
        {"neg.ftz.f16x2", "w=w", 0x80013c00, 0, 0, 0x0000bc00},
        {"abs.ftz.f16", "h=h", 0x83ff, 0, 0, 0x0000},
        {"abs.ftz.f16x2", "w=w", 0xbc008001, 0, 0, 0x3c000000},
        {"max.xorsign.abs.f16", "h=hh", 0xc000, 0x3c00, 0, 0xc000},
        {"max.xorsign.abs.f16x2", "w=ww", 0xc000c000, 0xbc003c00, 0, 0x4000c000},
        {"min.xorsign.abs.bf16", "h=hh", 0xc000, 0xbf80, 0, 0x3f80},
        {"min.NaN.xorsign.abs.bf16x2", "w=ww", 0xffff3f80, 0x3f80c000, 0, 0x7fffbf80},
        {"min.xorsign.abs.f32", "f=ff", 0xc0000000, 0x3f800000, 0, 0xbf800000},
        {"max.xorsign.abs.f32", "f=ff", 0xc0000000, 0xbf800000, 0, 0x40000000},
        {"max.xorsign.abs.f32", "f=ff", 0x7fc00000, 0xbf800000, 0, 0xbf800000},
        {"min.NaN.xorsign.abs.f32", "f=ff", 0x7fc00000, 0xbf800000, 0, 0x7fffffff},
        {"min.ftz.NaN.xorsign.abs.f32", "f=ff", 0x00000001, 0xbf800000, 0, 0x80000000},
        {"set.eq.ftz.f16x2.f16x2", "w=ww", 0x00013c00, 0x00003c00, 0, 0x3c003c00},
        {"set.lt.ftz.u32.f16x2", "w=ww", 0x80013c00, 0x00014000, 0, 0x0000ffff},
        {"cvt.sat.f16.f16", "h=h", 0xbc00, 0, 0, 0x0000},
        {"cvt.sat.f16.f16", "h=h", 0x4000, 0, 0, 0x3c00},
        {"cvt.rn.ftz.sat.f16.f32", "h=f", 0x40000000, 0, 0, 0x3c00},
        {"cvt.pack.sat.s16.s32", "w=ww", 70000, 0xffffffff, 0, 0x7fffffff},
        {"cvt.pack.sat.u16.s32", "w=ww", 0xfffffff0, 65537, 0, 0x0000ffff},
        {"cvt.pack.sat.s8.s32.b32", "w=www", 0xffffff00, 200, 0xabcd1234, 0x1234807f},
        {"cvt.pack.sat.u8.s32.b32", "w=www", 300, 0xffffffff, 0x00005678, 0x5678ff00},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (unsigned lane = 0; lane < COUNT; lane++) {
            a[lane] = cases[i].x;
            b[lane] = cases[i].y;
            c[lane] = cases[i].z;
        }
        apply(cases[i].instruction, cases[i].shape);
        if (out[0] != cases[i].wanted || out[COUNT - 1] != cases[i].wanted)
            fail_msg("%s of %llx, %llx gave %llx, expected %llx", cases[i].instruction, (unsigned long long)cases[i].x,
                     (unsigned long long)cases[i].y, (unsigned long long)out[0], (unsigned long long)cases[i].wanted);
    }
}

/* setp on pairs: p of the lower halves, q of the upper ones, each combined with what p was. */
static void pairs_are_compared(void **state)
{
    static const char kernel[] =
        HEAD ".visible .entry k(.param .u64 out, .param .u32 x, .param .u32 y) {\n"
             ".reg .b32 %r<9>; .reg .b64 %rd<3>; .reg .pred %p<9>;\n"
             "ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [x]; ld.param.u32 %r2, [y];\n"
             "setp.lt.f16x2 %p1|%p2, %r1, %r2; selp.u32 %r3, 1, 0, %p1; selp.u32 %r4, 2, 0, %p2;\n"
             "setp.ge.ftz.f16x2 %p3|_, %r1, %r2; selp.u32 %r5, 4, 0, %p3; or.b32 %r3, %r3, %r4; or.b32 %r3, %r3, %r5;\n"
             "setp.ltu.and.bf16x2 %p1|%p4, %r1, %r2, %p1; selp.u32 %r4, 8, 0, %p1; selp.u32 %r5, 16, 0, %p4;\n"
             "or.b32 %r3, %r3, %r4; or.b32 %r3, %r3, %r5; st.global.u32 [%rd1], %r3; ret; }\n";
    static const struct {
        uint32_t x, y, wanted;
    } cases[] = {
        {0x40003c00, 0x3c004000, 1 | 8},          /* lower less, upper greater */
        {0x3c004000, 0x40003c00, 2 | 4},          /* the and is with false */
        {0x3c003c00, 0x40004000, 1 | 2 | 8 | 16}, /* both */
        {0x7fff0001, 0x3c008001, 4},              /* a subnormal and its like count as equal with ftz */
        {0x7fffbc00, 0x7fff3c00, 1 | 8 | 16},     /* NaN: unordered is true of bf16 only */
    };
    uint32_t *result = flyt_ptx_harness_alloc(&harness, 8);

    (void)state;
    if (flyt_ptx_harness_load(&harness, kernel) != CUDA_SUCCESS)
        fail_msg("%s", harness.diag.text);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(FLYT_PTX_RUN(&harness, "k", 1, 1, (uint64_t)(uintptr_t)result, cases[i].x, cases[i].y),
                         CUDA_SUCCESS);
        if (*result != cases[i].wanted)
            fail_msg("%08x, %08x: %u, expected %u", cases[i].x, cases[i].y, *result, cases[i].wanted);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conversions_saturate_and_rectify),
        cmocka_unit_test(conversions_rectify),
        cmocka_unit_test(eight_bits_become_halves),
        cmocka_unit_test(special_cases_follow_the_manual),
        cmocka_unit_test(pairs_are_compared),
    };

    return RUN_WITH_EACH_ISA(tests, set_up);
}
