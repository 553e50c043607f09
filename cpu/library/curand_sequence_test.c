/* What calls of cuRAND do to where a generator is: which take of its sequence, bring it to a place, or lose it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/client/library/library_call.h"
#include "cpu/library/curand_rules.h"
#include "flyt_lib_curand.h"

extern flyt_lib_step_fn flyt_lib_step_of_curand;

enum { BEST = 100, DEFAULT, LEGACY = 103, SEEDED = 102, DYNAMIC = 104 };

/* ---- a generator ---- */

static struct flyt_args_curandCreateGenerator made;
static uint32_t notes[FLYT_LIB_NOTES];

static void begin(int type)
{
    made.rng_type = type;
    memset(notes, 0, sizeof notes);
}

static struct flyt_lib_step step(const char *name, const void *arguments)
{
    return flyt_lib_step_of_curand(&made, notes, name, arguments);
}

#define STEP(symbol, ...) step(#symbol, &(const struct flyt_args_##symbol){__VA_ARGS__})

static void expect(struct flyt_lib_step seen, enum flyt_lib_way way, uint64_t by)
{
    assert_int_equal(seen.way, way);
    assert_int_equal(seen.by, by);
}

#define EXPECT_TAKES(count, symbol, ...) expect(STEP(symbol, __VA_ARGS__), FLYT_LIB_TAKES, count)
#define EXPECT_PLACES(at, symbol, ...)   expect(STEP(symbol, __VA_ARGS__), FLYT_LIB_PLACES, at)
#define EXPECT_LOSES(symbol, ...)        expect(STEP(symbol, __VA_ARGS__), FLYT_LIB_LOSES, 0)

static void draw_one(void)
{
    STEP(curandGenerate, .num = 1);
}

/* ---- tests ---- */

static void philox_takes_a_place_for_each_number(void **state)
{
    begin(FLYT_RAND_PHILOX);
    EXPECT_TAKES(1000, curandGenerate, .num = 1000);
    EXPECT_TAKES(7, curandGenerateUniform, .num = 7);
    EXPECT_TAKES(1ull << 33, curandGenerateNormal, .n = 1ull << 33, .mean = 1, .stddev = 2);
    EXPECT_TAKES(8, curandGenerateLogNormal, .n = 8, .mean = 1, .stddev = 2);
    EXPECT_TAKES(0, curandGenerate, .num = 0);
    EXPECT_LOSES(curandGenerateUniformDouble, .num = 8);
    EXPECT_LOSES(curandGenerateNormalDouble, .n = 8, .mean = 1, .stddev = 2);
    EXPECT_LOSES(curandGenerateLogNormalDouble, .n = 8, .mean = 1, .stddev = 2);
    EXPECT_LOSES(curandGenerateLongLong, .num = 8);
    EXPECT_LOSES(curandGeneratePoisson, .n = 8, .lambda = 3);
    EXPECT_LOSES(curandGeneratePoissonMethod, .n = 8, .lambda = 3);
}

static void an_ordering_says_what_a_draw_takes(void **state)
{
    static const struct {
        int type, order;
        bool is_known;
    } cases[] = {
        {FLYT_RAND_PHILOX, BEST, true},      {FLYT_RAND_PHILOX, DEFAULT, true},  {FLYT_RAND_PHILOX, LEGACY, true},
        {FLYT_RAND_PHILOX, SEEDED, false},   {FLYT_RAND_PHILOX, DYNAMIC, false}, {FLYT_RAND_XORWOW, SEEDED, true},
        {FLYT_RAND_XORWOW, DYNAMIC, false},  {FLYT_RAND_MRG32K3A, LEGACY, true}, {FLYT_RAND_MRG32K3A, SEEDED, false},
        {FLYT_RAND_MT19937, DEFAULT, false}, {FLYT_RAND_MTGP32, DEFAULT, false}, {FLYT_RAND_PHILOX, 99, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        begin(cases[i].type);
        EXPECT_TAKES(0, curandSetGeneratorOrdering, .order = cases[i].order);
        if (cases[i].is_known)
            EXPECT_TAKES(12, curandGenerateUniform, .num = 12);
        else
            EXPECT_LOSES(curandGenerateUniform, .num = 12);
    }
}

static void a_default_type_is_the_type_that_it_stands_for(void **state)
{
    begin(100); /* XORWOW */
    EXPECT_TAKES(9, curandGenerate, .num = 9);
    EXPECT_LOSES(curandGenerateNormal, .n = 8, .stddev = 1);
    begin(200); /* Sobol's, of 32 bits */
    EXPECT_TAKES(9, curandGenerateNormal, .n = 9, .stddev = 1);
}

static void a_quasi_random_generator_takes_of_each_dimension(void **state)
{
    begin(FLYT_RAND_SOBOL32);
    EXPECT_TAKES(0, curandSetQuasiRandomGeneratorDimensions, .num_dimensions = 3);
    EXPECT_TAKES(10, curandGenerateUniformDouble, .num = 30);
    EXPECT_LOSES(curandGenerateUniformDouble, .num = 31);
    begin(FLYT_RAND_SCRAMBLED_SOBOL64);
    EXPECT_LOSES(curandGenerateUniformDouble, .num = 30);
}

static void an_offset_is_a_place(void **state)
{
    static const int types[] = {FLYT_RAND_PHILOX, FLYT_RAND_XORWOW, FLYT_RAND_SOBOL64};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        begin(types[i]);
        draw_one();
        EXPECT_PLACES(1ull << 40, curandSetGeneratorOffset, .offset = 1ull << 40);
        EXPECT_TAKES(0, curandSetGeneratorOrdering, .order = DEFAULT); /* nothing is drawn from there yet */
        EXPECT_TAKES(5, curandGenerate, .num = 5);
    }
}

static void a_setting_behind_a_draw_loses(void **state)
{
    begin(FLYT_RAND_PHILOX);
    draw_one();
    EXPECT_LOSES(curandSetGeneratorOrdering, .order = DEFAULT);
    EXPECT_PLACES(3, curandSetGeneratorOffset, .offset = 3);
    EXPECT_TAKES(0, curandSetGeneratorOrdering, .order = LEGACY);
    begin(FLYT_RAND_SOBOL32);
    draw_one();
    EXPECT_LOSES(curandSetQuasiRandomGeneratorDimensions, .num_dimensions = 2);
    EXPECT_PLACES(0, curandSetGeneratorOffset, .offset = 0);
    EXPECT_TAKES(4, curandGenerate, .num = 8); /* it has them all the same */
}

static void a_seed_is_a_beginning_of_one_type(void **state)
{
    static const int others[] = {FLYT_RAND_XORWOW, FLYT_RAND_MRG32K3A, FLYT_RAND_MTGP32, FLYT_RAND_PHILOX};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        begin(others[i]);
        EXPECT_TAKES(0, curandSetPseudoRandomGeneratorSeed, .seed = 7);
        draw_one();
        EXPECT_LOSES(curandSetPseudoRandomGeneratorSeed, .seed = 7);
        EXPECT_PLACES(0, curandSetGeneratorOffset, .offset = 0);
        EXPECT_TAKES(0, curandSetPseudoRandomGeneratorSeed, .seed = 8);
    }
    begin(FLYT_RAND_MT19937);
    EXPECT_PLACES(0, curandSetPseudoRandomGeneratorSeed, .seed = 7);
    EXPECT_LOSES(curandGenerate, .num = 1);
    EXPECT_PLACES(0, curandSetPseudoRandomGeneratorSeed, .seed = 7);
}

static void seeds_are_made_at_a_beginning_alone(void **state)
{
    begin(FLYT_RAND_XORWOW);
    EXPECT_TAKES(0, curandGenerateSeeds);
    draw_one();
    EXPECT_LOSES(curandGenerateSeeds);
    EXPECT_PLACES(5, curandSetGeneratorOffset, .offset = 5);
    EXPECT_LOSES(curandGenerateSeeds);
    EXPECT_PLACES(0, curandSetGeneratorOffset, .offset = 0);
    EXPECT_TAKES(0, curandGenerateSeeds);
}

static void a_call_that_is_not_known_loses(void **state)
{
    const unsigned char arguments[64] = {0};
    begin(FLYT_RAND_PHILOX);
    expect(step("curandGenerateBinomial", arguments), FLYT_LIB_LOSES, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_takes_a_place_for_each_number),
        cmocka_unit_test(an_ordering_says_what_a_draw_takes),
        cmocka_unit_test(a_default_type_is_the_type_that_it_stands_for),
        cmocka_unit_test(a_quasi_random_generator_takes_of_each_dimension),
        cmocka_unit_test(an_offset_is_a_place),
        cmocka_unit_test(a_setting_behind_a_draw_loses),
        cmocka_unit_test(a_seed_is_a_beginning_of_one_type),
        cmocka_unit_test(seeds_are_made_at_a_beginning_alone),
        cmocka_unit_test(a_call_that_is_not_known_loses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
