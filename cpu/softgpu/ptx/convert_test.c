/* cvt between integers and floats in every rounding, against arithmetic on whole numbers. */
#include "cpu/softgpu/ptx/test.h"
#include "rpc/base/test_random.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { COUNT = 256 };

enum side { NEAREST, ZERO, DOWN, UP };
static const char *const modes[] = {"rn", "rz", "rm", "rp"};

/* A float format: bits of the fraction with the hidden one, largest exponent. */
struct format {
    const char *name, *shape;
    unsigned digits, bias, exponent_bits;
};
static const struct format formats[] = {
    {"f16", "h", 11, 15, 5}, {"bf16", "h", 8, 127, 8}, {"f32", "f", 24, 127, 8}, {"f64", "g", 53, 1023, 11}};

/* Rounds the whole number by its bits: what is cut off, and whether that is more than, less than or just a half. */
static uint64_t reference(bool is_negative, uint64_t magnitude, const struct format *format, enum side side)
{
    uint64_t sign = (uint64_t)is_negative << (format->digits - 1 + format->exponent_bits), kept, rest, half;
    uint64_t infinity = ((1ull << format->exponent_bits) - 1) << (format->digits - 1);
    unsigned exponent, cut;
    bool is_up;

    if (!magnitude)
        return 0; /* an integer has no negative zero */
    exponent = 63 - (unsigned)__builtin_clzll(magnitude);
    cut = exponent >= format->digits ? exponent - format->digits + 1 : 0;
    kept = magnitude >> cut;
    rest = cut ? magnitude & ((1ull << cut) - 1) : 0;
    half = cut ? 1ull << (cut - 1) : 1;
    is_up = side == NEAREST ? rest > half || (rest == half && kept & 1) : rest && side == (is_negative ? DOWN : UP);
    kept += is_up;
    if (!cut)
        kept <<= format->digits - 1 - exponent;
    else if (kept >> format->digits)
        kept >>= 1, exponent++;
    if (exponent > format->bias) /* too large: infinite, or the largest there is where that lies on the wrong side */
        return sign | (side == NEAREST || side == (is_negative ? DOWN : UP) ? infinity : infinity - 1);
    return sign |
           (((uint64_t)(exponent + format->bias) << (format->digits - 1)) + kept - (1ull << (format->digits - 1)));
}

static void fill(uint64_t values[COUNT], unsigned bits)
{
    uint64_t state = 0x2545f4914f6cdd1d;

    for (unsigned i = 0; i < COUNT; i++) {
        test_random_next(&state);
        values[i] = i < 4 ? i - 1ull : state >> i % 64;
        if (i % 5 == 4) /* near a power of two: ties, and carries into the exponent */
            values[i] = (1ull << (i / 4 % 64)) + (state & 3) - 1;
        if (i % 5 == 3)
            values[i] = ~values[i];
        if (bits < 64)
            values[i] &= (1ull << bits) - 1;
    }
}

static void integers_become_floats(void **state)
{
    static const struct {
        const char *name;
        char shape;
        unsigned bits;
        bool is_signed;
    } types[] = {{"u16", 'h', 16, false}, {"s16", 'h', 16, true},  {"u32", 'w', 32, false},
                 {"s32", 'w', 32, true},  {"u64", 'd', 64, false}, {"s64", 'd', 64, true}};
    uint64_t values[COUNT], results[COUNT];

    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
            for (enum side side = NEAREST; side <= UP; side++) {
                char instruction[64], shape[8];

                fill(values, types[t].bits);
                snprintf(instruction, sizeof instruction, "cvt.%s.%s.%s", modes[side], formats[f].name, types[t].name);
                snprintf(shape, sizeof shape, "%s=%c", formats[f].shape, types[t].shape);
                if (flyt_ptx_harness_apply(&harness, instruction, shape, COUNT, values, NULL, NULL, results))
                    fail_msg("%s: %s", instruction, harness.diag.text);
                for (unsigned i = 0; i < COUNT; i++) {
                    bool is_negative = types[t].is_signed && values[i] >> (types[t].bits - 1);
                    uint64_t mask = types[t].bits < 64 ? (1ull << types[t].bits) - 1 : UINT64_MAX;
                    uint64_t magnitude = is_negative ? (0 - values[i]) & mask : values[i];
                    uint64_t wanted = reference(is_negative, magnitude, &formats[f], side);

                    if (results[i] != wanted)
                        fail_msg("%s of %llx: %llx, wanted %llx", instruction, (unsigned long long)values[i],
                                 (unsigned long long)results[i], (unsigned long long)wanted);
                }
            }
}

static uint64_t float_bits(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* The order of modifiers is that of the PTX ISA: rounding, ftz, sat. */
static void floats_become_integers(void **state)
{
    static const struct {
        const char *instruction, *shape;
        float from;
        uint64_t wanted;
    } cases[] = {
        {"cvt.rni.s32.f32", "w=f", 2.5f, 2},
        {"cvt.rni.s32.f32", "w=f", -3.5f, (uint32_t)-4},
        {"cvt.rzi.s32.f32", "w=f", 3e9f, 0x7fffffff},
        {"cvt.rzi.s32.f32", "w=f", -3e9f, 0x80000000},
        {"cvt.rzi.s32.f32", "w=f", NAN, 0},
        {"cvt.rzi.u32.f32", "w=f", -1.0f, 0},
        {"cvt.rzi.u32.f32", "w=f", 5e9f, 0xffffffff},
        {"cvt.rmi.s32.f32", "w=f", -0x1p-149f, (uint32_t)-1},
        {"cvt.rmi.ftz.s32.f32", "w=f", -0x1p-149f, 0},
        {"cvt.rpi.s32.f32", "w=f", 0x1p-149f, 1},
        {"cvt.rpi.ftz.s32.f32", "w=f", 0x1p-149f, 0},
        {"cvt.rzi.s64.f32", "d=f", NAN, 0x8000000000000000},
        {"cvt.rzi.u64.f32", "d=f", NAN, 0x8000000000000000},
        {"cvt.rzi.u64.f32", "d=f", INFINITY, UINT64_MAX},
        {"cvt.rzi.s64.f32", "d=f", -INFINITY, 0x8000000000000000},
        {"cvt.rni.sat.u8.f32", "w=f", 300.0f, 255},
        {"cvt.rni.sat.s8.f32", "w=f", -300.0f, (uint32_t)-128},
        {"cvt.rni.ftz.sat.u8.f32", "w=f", 300.0f, 255},
        {"cvt.rni.ftz.sat.u8.f32", "w=f", -5.0f, 0},
        {"cvt.rzi.ftz.sat.s32.f32", "w=f", 7.9f, 7},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t value = float_bits(cases[i].from), result = 0;

        if (flyt_ptx_harness_apply(&harness, cases[i].instruction, cases[i].shape, 1, &value, NULL, NULL, &result))
            fail_msg("%s: %s", cases[i].instruction, harness.diag.text);
        if (result != cases[i].wanted)
            fail_msg("%s of %g: %llx, wanted %llx", cases[i].instruction, (double)cases[i].from,
                     (unsigned long long)result, (unsigned long long)cases[i].wanted);
    }
}

/* Zeros and NaNs by their bits, as an H200 has them. */
static void zeros_and_nans_are_a_gpus(void **state)
{
    static const struct {
        const char *instruction, *shape;
        uint64_t x, y, z, wanted;
    } cases[] = {
        {"cvt.rzi.u8.f64", "w=g", 0x7ff8000000000123, 0, 0, 0x80},
        {"cvt.rzi.s8.f64", "w=g", 0x7ff8000000000123, 0, 0, 0xffffff80},
        {"cvt.rzi.u16.f64", "h=g", 0x7ff8000000000123, 0, 0, 0x8000},
        {"cvt.rzi.s16.f64", "h=g", 0x7ff8000000000123, 0, 0, 0x8000},
        {"cvt.rzi.s32.f64", "w=g", 0x7ff8000000000123, 0, 0, 0x80000000},
        {"cvt.rzi.s16.f32", "h=f", 0x7fc00123, 0, 0, 0},
        {"cvt.rn.f32.f64", "f=g", 0x7ff8002460000000, 0, 0, 0x7fc00123},
        {"cvt.rn.f32.f64", "f=g", 0xfff8002460000000, 0, 0, 0xffc00123},
        {"cvt.rn.f32.f64", "f=g", 0x7ff0000000000001, 0, 0, 0x7fc00000},
        {"cvt.rn.ftz.f32.f64", "f=g", 0x7ff8002460000000, 0, 0, 0x7fc00123},
        {"cvt.rni.f32.f32", "f=f", 0x7fc00123, 0, 0, 0x7fffffff},
        {"cvt.rn.f16.f32", "h=f", 0x7fc00123, 0, 0, 0x7fff},
        {"cvt.rn.relu.f16x2.f32", "w=ff", 0x80000000, 0x80000000, 0, 0},
        {"cvt.rn.relu.bf16x2.f32", "w=ff", 0x80000000, 0x80000000, 0, 0},
        {"fma.rn.relu.f16x2", "w=www", 0x80008000, 0x3c003c00, 0x80008000, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t result = 0;

        if (flyt_ptx_harness_apply(&harness, cases[i].instruction, cases[i].shape, 1, &cases[i].x, &cases[i].y,
                                   &cases[i].z, &result))
            fail_msg("%s: %s", cases[i].instruction, harness.diag.text);
        if (result != cases[i].wanted)
            fail_msg("%s: %llx, wanted %llx", cases[i].instruction, (unsigned long long)result,
                     (unsigned long long)cases[i].wanted);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_become_floats),
        cmocka_unit_test(floats_become_integers),
        cmocka_unit_test(zeros_and_nans_are_a_gpus),
    };

    return RUN_WITH_EACH_ISA(tests, set_up);
}
