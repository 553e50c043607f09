/*
 * Floating point instructions, in every rounding: results are checked against the exact value in 113-bit arithmetic,
 * by the definition of each rounding, not against the host's own float operations.
 */
#include "cpu/softgpu/ptx/test.h"
#include "rpc/base/test_random.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { COUNT = 256 };

static uint64_t a[COUNT], b[COUNT], c[COUNT], out[COUNT];

typedef __float128 quad;

static uint64_t next_random(void)
{
    static uint64_t state = 0x9e3779b97f4a7c15ull;

    return test_random_next(&state);
}

/* A number whose exponent is near zero, so that sums and products are exact in 113 bits. */
static double random_number(void)
{
    double fraction = 1.0 + (double)(next_random() >> 12) * 0x1p-52;

    return ldexp(next_random() & 1 ? fraction : -fraction, (int)(next_random() % 12) - 6);
}

static uint64_t pack(double value, bool is_wide)
{
    float narrow = (float)value;
    uint64_t bits = 0;

    if (is_wide)
        memcpy(&bits, &value, 8);
    else
        memcpy(&bits, &narrow, 4);
    return bits;
}

static double unpack(uint64_t bits, bool is_wide)
{
    double value;
    float narrow;

    if (is_wide) {
        memcpy(&value, &bits, 8);
        return value;
    }
    memcpy(&narrow, &bits, 4);
    return narrow;
}

static double neighbour(double x, double toward, bool is_wide)
{
    return is_wide ? nextafter(x, toward) : (double)nextafterf((float)x, (float)toward);
}

static quad distance(quad x, quad y)
{
    return x < y ? y - x : x - y;
}

/* Is `result` the exact value rounded as `mode` ("rn", "rz", "rm", "rp") says? */
static bool is_rounded(quad exact, uint64_t bits, const char *mode, bool is_wide)
{
    double result = unpack(bits, is_wide), above = neighbour(result, INFINITY, is_wide),
           below = neighbour(result, -INFINITY, is_wide);
    char direction = mode[1] == 'z' ? (exact < 0 ? 'p' : 'm') : mode[1];

    if (direction == 'm')
        return (quad)result <= exact && exact < (quad)above;
    if (direction == 'p')
        return (quad)below < exact && exact <= (quad)result;
    if (distance(exact, result) > distance(exact, above) || distance(exact, result) > distance(exact, below))
        return false;
    if (distance(exact, result) == distance(exact, above) || distance(exact, result) == distance(exact, below))
        return !(bits & 1);
    return true;
}

static quad exact_add(quad x, quad y, quad z)
{
    (void)z;
    return x + y;
}
static quad exact_sub(quad x, quad y, quad z)
{
    (void)z;
    return x - y;
}
static quad exact_mul(quad x, quad y, quad z)
{
    (void)z;
    return x * y;
}
static quad exact_fma(quad x, quad y, quad z)
{
    return x * y + z;
}
static quad exact_div(quad x, quad y, quad z)
{
    (void)z;
    return x / y;
}
static quad exact_rcp(quad x, quad y, quad z)
{
    (void)y;
    (void)z;
    return 1 / x;
}

static quad exact_sqrt(quad x, quad y, quad z)
{
    quad root = sqrt((double)x);

    (void)y;
    (void)z;
    for (int i = 0; i < 3; i++)
        root = (root + x / root) / 2;
    return root;
}

static const struct {
    const char *operation;
    unsigned sources;
    quad (*exact)(quad, quad, quad);
} operations[] = {
    {"add", 2, exact_add}, {"sub", 2, exact_sub}, {"mul", 2, exact_mul},   {"fma", 3, exact_fma},
    {"div", 2, exact_div}, {"rcp", 1, exact_rcp}, {"sqrt", 1, exact_sqrt},
};

static void check_operation(size_t which, const char *mode, bool is_wide)
{
    char instruction[32], shape[8] = "f=fff";

    snprintf(instruction, sizeof instruction, "%s.%s.%s", operations[which].operation, mode, is_wide ? "f64" : "f32");
    for (unsigned i = 0; i < 5 && is_wide; i++)
        shape[i] = shape[i] == 'f' ? 'g' : '=';
    shape[2 + operations[which].sources] = 0;
    for (unsigned i = 0; i < COUNT; i++) {
        bool is_root = !strcmp(operations[which].operation, "sqrt");

        a[i] = pack(is_root ? fabs(random_number()) : random_number(), is_wide);
        b[i] = pack(i % 8 ? random_number() : 1.0, is_wide);
        /* fma of doubles: keep c's bits within reach of the product's 106 */
        c[i] = pack(!is_wide ? random_number() : ldexp((double)(int)next_random(), -20), is_wide);
    }
    if (flyt_ptx_harness_apply(&harness, instruction, shape, COUNT, a, b, c, out) != CUDA_SUCCESS)
        fail_msg("%s: %s", instruction, harness.diag.text);
    for (unsigned i = 0; i < COUNT; i++) {
        quad exact = operations[which].exact(unpack(a[i], is_wide), unpack(b[i], is_wide), unpack(c[i], is_wide));

        if (!is_rounded(exact, out[i], mode, is_wide))
            fail_msg("%s of %a, %a, %a gave %a", instruction, unpack(a[i], is_wide), unpack(b[i], is_wide),
                     unpack(c[i], is_wide), unpack(out[i], is_wide));
    }
}

static void arithmetic_rounds_as_told(void **state)
{
    static const char *const modes[] = {"rn", "rz", "rm", "rp"};

    (void)state;
    for (size_t which = 0; which < sizeof operations / sizeof *operations; which++)
        for (unsigned mode = 0; mode < 4; mode++) {
            check_operation(which, modes[mode], false);
            check_operation(which, modes[mode], true);
        }
}

static uint64_t apply_one(const char *instruction, const char *shape, uint64_t x, uint64_t y)
{
    CUresult result = flyt_ptx_harness_apply(&harness, instruction, shape, 1, &x, &y, &y, out);

    if (result != CUDA_SUCCESS)
        fail_msg("%s: %s", instruction, harness.diag.text);
    return out[0];
}

static void special_values_follow_the_manual(void **state)
{
    static const struct {
        const char *instruction, *shape;
        uint64_t x, y, wanted;
    } cases[] = {
        {"add.f32", "f=ff", 0x7f800000, 0xff800000, 0x7fffffff}, /* inf − inf is the canonical NaN */
        {"mul.f32", "f=ff", 0x7fc12345, 0x3f800000, 0x7fffffff},
        {"min.f32", "f=ff", 0x7fc00000, 0x3f800000, 0x3f800000}, /* a NaN loses */
        {"max.f32", "f=ff", 0x3f800000, 0xffc00000, 0x3f800000},
        {"min.NaN.f32", "f=ff", 0x7fc00000, 0x3f800000, 0x7fffffff},
        {"min.f32", "f=ff", 0x00000000, 0x80000000, 0x80000000}, /* −0 < +0 */
        {"max.f32", "f=ff", 0x80000000, 0x00000000, 0x00000000},
        {"min.f64", "g=gg", 0, 0x8000000000000000, 0x8000000000000000},
        {"add.ftz.f32", "f=ff", 0x00400000, 0x00000000, 0x00000000}, /* subnormal in */
        {"mul.ftz.f32", "f=ff", 0x80800000, 0x3f000000, 0x80000000}, /* subnormal out */
        {"mul.f32", "f=ff", 0x00800000, 0x3f000000, 0x00400000},
        {"add.sat.f32", "f=ff", 0x3f800000, 0x3f800000, 0x3f800000},
        {"add.sat.f32", "f=ff", 0xbf800000, 0x3f000000, 0x00000000},
        {"add.sat.f32", "f=ff", 0x7fc00000, 0x3f000000, 0x00000000},
        {"neg.f32", "f=f", 0x00000000, 0, 0x80000000},
        {"abs.f64", "g=g", 0xbff0000000000000, 0, 0x3ff0000000000000},
        {"copysign.f32", "f=ff", 0x80000000, 0x3f800000, 0xbf800000}, /* the sign of the first operand */
        {"setp.lt.f32", "p=ff", 0x7fc00000, 0x3f800000, 0},
        {"setp.ltu.f32", "p=ff", 0x7fc00000, 0x3f800000, 1},
        {"setp.ne.f32", "p=ff", 0x7fc00000, 0x7fc00000, 0},
        {"setp.neu.f64", "p=gg", 0x7ff8000000000000, 0, 1},
        {"setp.nan.f32", "p=ff", 0x7fc00000, 0, 1},
        {"setp.num.f32", "p=ff", 0x3f800000, 0, 1},
        {"testp.infinite.f32", "p=f", 0xff800000, 0, 1},
        {"testp.subnormal.f64", "p=g", 1, 0, 1},
        {"cvt.rni.s32.f32", "w=f", 0x40200000, 0, 2}, /* 2.5 */
        {"cvt.rpi.s32.f32", "w=f", 0x40200000, 0, 3},
        {"cvt.rmi.s32.f32", "w=f", 0xc0200000, 0, 0xfffffffd},
        {"cvt.rzi.u32.f32", "w=f", 0xc0200000, 0, 0}, /* clamped */
        {"cvt.rzi.s32.f32", "w=f", 0x4f800000, 0, 0x7fffffff},
        {"cvt.rzi.s32.f32", "w=f", 0x7fc00000, 0, 0}, /* NaN */
        {"cvt.rzi.s64.f64", "d=g", 0x7ff8000000000000, 0, 0x8000000000000000},
        {"cvt.rzi.u64.f32", "d=f", 0x5f800000, 0, ~0ull},
        {"cvt.rzi.s64.f64", "d=g", 0xc3e0000000000001, 0, 0x8000000000000000},
        {"cvt.rn.f32.s32", "f=w", 16777217, 0, 0x4b800000},
        {"cvt.rp.f32.s32", "f=w", 16777217, 0, 0x4b800001},
        {"cvt.rz.f32.u64", "f=d", ~0ull, 0, 0x5f7fffff},
        {"cvt.rn.f64.u64", "g=d", ~0ull, 0, 0x43f0000000000000},
        {"cvt.rm.f64.s64", "g=d", 0x7fffffffffffffff, 0, 0x43dfffffffffffff},
        {"cvt.rn.f32.f64", "f=g", 0x3ff0000010000000, 0, 0x3f800000}, /* a tie: to even */
        {"cvt.rp.f32.f64", "f=g", 0x3ff0000010000000, 0, 0x3f800001},
        {"cvt.rni.f32.f32", "f=f", 0x40200000, 0, 0x40000000},
        {"cvt.sat.f32.f32", "f=f", 0x40200000, 0, 0x3f800000},
        {"cvt.rn.f16.f32", "h=f", 0x477ff000, 0, 0x7c00}, /* 65520 overflows */
        {"cvt.rz.f16.f32", "h=f", 0x477ff000, 0, 0x7bff},
        {"cvt.rn.bf16.f32", "h=f", 0x3f808000, 0, 0x3f80},
        {"cvt.rn.bf16.f32", "h=f", 0x3f818000, 0, 0x3f82},
        {"div.full.f32", "f=ff", 0x40c00000, 0x40000000, 0x40400000},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t result;

        result = apply_one(cases[i].instruction, cases[i].shape, cases[i].x, cases[i].y);
        if (result != cases[i].wanted)
            fail_msg("%s of %#lx, %#lx gave %#lx, not %#lx", cases[i].instruction, cases[i].x, cases[i].y, result,
                     cases[i].wanted);
    }
}

/* ---- f16 and bf16 by their definition ---- */

/* The value of a finite pattern. */
static double small_value(unsigned bits, bool is_bfloat)
{
    unsigned width = is_bfloat ? 7 : 10, bias = is_bfloat ? 127 : 15;
    unsigned exponent = bits >> width & (is_bfloat ? 255u : 31u), fraction = bits & ((1u << width) - 1);
    double value = exponent ? ldexp(1.0 + ldexp(fraction, -(int)width), (int)exponent - (int)bias)
                            : ldexp(fraction, 1 - (int)bias - (int)width);

    return bits & 0x8000 ? -value : value;
}

/* The pattern nearest to x: by bisection over the non-negative ones, which are ordered. */
static unsigned small_nearest(quad x, bool is_bfloat)
{
    unsigned infinite = is_bfloat ? 0x7f80 : 0x7c00, low = 0, high = infinite - 1;
    quad magnitude = x < 0 ? -x : x, top = small_value(high, is_bfloat),
         last = top - (quad)small_value(high - 1, is_bfloat);
    unsigned sign = x < 0 ? 0x8000 : 0;

    if (magnitude >= top + last / 2)
        return sign | infinite;
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;

        if ((quad)small_value(middle, is_bfloat) <= magnitude)
            low = middle;
        else
            high = middle;
    }
    quad below = magnitude - (quad)small_value(low, is_bfloat), above = (quad)small_value(high, is_bfloat) - magnitude;

    return sign | (below < above || (below == above && !(low & 1)) ? low : high);
}

static void halves_are_rounded_once(void **state)
{
    static const struct {
        const char *instruction;
        unsigned sources;
        bool is_bfloat;
    } cases[] = {{"add.f16", 2, 0},  {"mul.f16", 2, 0},  {"fma.rn.f16", 3, 0},
                 {"add.bf16", 2, 1}, {"mul.bf16", 2, 1}, {"fma.rn.bf16", 3, 1}};

    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        for (unsigned round = 0; round < 8; round++) {
            for (unsigned i = 0; i < COUNT; i++) {
                uint64_t *values[3] = {&a[i], &b[i], &c[i]};

                for (unsigned v = 0; v < 3; v++) /* finite; exponents near enough for 113 bits */
                    *values[v] = cases[k].is_bfloat ? (next_random() & 0x81ff) + 0x3e80
                                                    : (next_random() & 0xbfff) % 0x7c00 | (next_random() & 0x8000);
            }
            if (flyt_ptx_harness_apply(&harness, cases[k].instruction, cases[k].sources == 3 ? "h=hhh" : "h=hh", COUNT,
                                       a, b, c, out))
                fail_msg("%s: %s", cases[k].instruction, harness.diag.text);
            for (unsigned i = 0; i < COUNT; i++) {
                quad x = small_value((unsigned)a[i], cases[k].is_bfloat),
                     y = small_value((unsigned)b[i], cases[k].is_bfloat);
                quad z = small_value((unsigned)c[i], cases[k].is_bfloat);
                quad exact = cases[k].instruction[0] == 'a' ? x + y : cases[k].sources == 3 ? x * y + z : x * y;
                unsigned wanted = small_nearest(exact, cases[k].is_bfloat);

                if (exact != 0 && out[i] != wanted)
                    fail_msg("%s of %#lx, %#lx, %#lx gave %#lx, not %#x", cases[k].instruction, a[i], b[i], c[i],
                             out[i], wanted);
            }
        }
}

/* Every f16 survives the way to f32 and back, and every float near one is rounded to the nearest. */
static void half_conversions_are_exact(void **state)
{
    (void)state;
    for (unsigned base = 0; base < 0x7c00; base += COUNT) {
        for (unsigned i = 0; i < COUNT; i++)
            a[i] = base + i;
        assert_int_equal(flyt_ptx_harness_apply(&harness, "cvt.f32.f16", "f=h", COUNT, a, NULL, NULL, b), CUDA_SUCCESS);
        for (unsigned i = 0; i < COUNT; i++) {
            assert_true(unpack(b[i], false) == small_value((unsigned)a[i], false));
            b[i] = pack(unpack(b[i], false) * (1 + (double)(int32_t)next_random() * 0x1p-42), false);
        }
        assert_int_equal(flyt_ptx_harness_apply(&harness, "cvt.rn.f16.f32", "h=f", COUNT, b, NULL, NULL, out),
                         CUDA_SUCCESS);
        for (unsigned i = 0; i < COUNT; i++)
            assert_int_equal(out[i], small_nearest(unpack(b[i], false), false));
    }
}

/* The approximations stay within what the CUDA manual grants. */
static void approximations_are_close(void **state)
{
    static const struct {
        const char *instruction;
        double (*function)(double);
        double bound; /* relative; is_absolute: absolute where the result is below 1 */
        bool is_absolute, is_positive;
    } cases[] = {{"ex2.approx.f32", exp2, 0x1p-22, false, false},
                 {"lg2.approx.f32", log2, 0x1p-22, true, true},
                 {"sin.approx.f32", sin, 0x1p-20, true, false},
                 {"cos.approx.f32", cos, 0x1p-20, true, false},
                 {"tanh.approx.f32", tanh, 0x1p-11, false, false}};

    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        for (unsigned i = 0; i < COUNT; i++)
            a[i] = pack(cases[k].is_positive ? fabs(random_number()) : fmod(random_number(), 3), false);
        if (flyt_ptx_harness_apply(&harness, cases[k].instruction, "f=f", COUNT, a, NULL, NULL, out))
            fail_msg("%s: %s", cases[k].instruction, harness.diag.text);
        for (unsigned i = 0; i < COUNT; i++) {
            double wanted = cases[k].function(unpack(a[i], false)), error = fabs(unpack(out[i], false) - wanted);

            if (error > cases[k].bound * (cases[k].is_absolute ? fmax(fabs(wanted), 1) : fabs(wanted)))
                fail_msg("%s of %a gave %a, not %a", cases[k].instruction, unpack(a[i], false), unpack(out[i], false),
                         wanted);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arithmetic_rounds_as_told), cmocka_unit_test(special_values_follow_the_manual),
        cmocka_unit_test(halves_are_rounded_once),   cmocka_unit_test(half_conversions_are_exact),
        cmocka_unit_test(approximations_are_close),
    };

    return RUN_WITH_EACH_ISA(tests, set_up);
}
