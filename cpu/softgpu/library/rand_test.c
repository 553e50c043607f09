/* cuRAND on the software GPU: known numbers, positions, and the moments of distributions. */
#include <curand.h>

#include "cpu/softgpu/library/test.h"

enum { COUNT = 20000 };

static CUdeviceptr memory;

static int start(void **state)
{
    test_start();
    assert_ok(cuMemAlloc(&memory, 8 * COUNT));
    return 0;
}

static curandGenerator_t generator_new(curandRngType_t type)
{
    curandGenerator_t generator;

    assert_ok(curandCreateGenerator(&generator, type));
    assert_ok(curandSetStream(generator, test_stream));
    return generator;
}

static void download(void *to, size_t bytes)
{
    assert_ok(cuStreamSynchronize(test_stream));
    assert_ok(cuMemcpyDtoH(to, memory, bytes));
}

/* The first known answer of Philox 4x32-10: counter 0, key 0. */
static void philox_has_its_numbers(void **state)
{
    curandGenerator_t generator = generator_new(CURAND_RNG_PSEUDO_PHILOX4_32_10);
    uint32_t got[4];

    assert_ok(curandGenerate(generator, (unsigned *)memory, 4));
    download(got, sizeof(got));
    assert_int_equal(got[0], 0x6627e8d5);
    assert_int_equal(got[1], 0xe169c58d);
    assert_int_equal(got[2], 0xbc57ac4c);
    assert_int_equal(got[3], 0x9b00dbd8);
    assert_ok(curandDestroyGenerator(generator));
}

static const curandRngType_t pseudo[] = {CURAND_RNG_PSEUDO_XORWOW, CURAND_RNG_PSEUDO_MRG32K3A,
                                         CURAND_RNG_PSEUDO_PHILOX4_32_10, CURAND_RNG_PSEUDO_MT19937};

static void seeds_and_offsets(void **state)
{
    for (unsigned t = 0; t < 4; t++) {
        curandGenerator_t generator = generator_new(pseudo[t]);
        uint32_t first[20], second[20], host[20];

        assert_ok(curandSetPseudoRandomGeneratorSeed(generator, 1234));
        assert_ok(curandGenerate(generator, (unsigned *)memory, 7));
        assert_ok(curandGenerate(generator, (unsigned *)memory + 7, 13));
        download(first, sizeof(first));
        assert_ok(curandSetPseudoRandomGeneratorSeed(generator, 1234)); /* does not go back, where there is an offset */
        if (pseudo[t] != CURAND_RNG_PSEUDO_MT19937) {
            assert_ok(curandGenerate(generator, (unsigned *)memory, 20));
            download(second, sizeof(second));
            assert_memory_not_equal(first, second, sizeof(first));
            assert_ok(curandSetGeneratorOffset(generator, 0));
        }
        assert_ok(curandGenerate(generator, (unsigned *)memory, 20));
        download(second, sizeof(second));
        assert_memory_equal(first, second, sizeof(first));
        if (pseudo[t] == CURAND_RNG_PSEUDO_MT19937) {
            assert_int_equal(curandSetGeneratorOffset(generator, 5), CURAND_STATUS_TYPE_ERROR);
        } else {
            assert_ok(curandSetGeneratorOffset(generator, 5));
            assert_ok(curandGenerate(generator, (unsigned *)memory, 15));
            download(second, 15 * 4);
            assert_memory_equal(first + 5, second, 15 * 4);
        }
        assert_ok(curandSetPseudoRandomGeneratorSeed(generator, 1235));
        assert_ok(curandGenerate(generator, (unsigned *)memory, 20));
        download(second, sizeof(second));
        assert_memory_not_equal(first, second, sizeof(first));
        assert_ok(curandDestroyGenerator(generator));

        assert_ok(curandCreateGeneratorHost(&generator, pseudo[t]));
        assert_ok(curandSetPseudoRandomGeneratorSeed(generator, 1234));
        assert_ok(curandGenerate(generator, host, 20));
        assert_memory_equal(first, host, sizeof(first));
        assert_ok(curandDestroyGenerator(generator));
    }
}

/* Mean and deviation of what was made; doubles or floats. */
static void check_moments(bool is_double, double mean, double deviation)
{
    static union {
        double wide[COUNT];
        float narrow[COUNT];
    } x;
    double sum = 0, squares = 0;

    download(&x, (is_double ? 8 : 4) * COUNT);
    for (int i = 0; i < COUNT; i++) {
        double value = is_double ? x.wide[i] : (double)x.narrow[i];

        sum += value;
        squares += (value - mean) * (value - mean);
    }
    assert_true(fabs(sum / COUNT - mean) < 5 * deviation / sqrt(COUNT));
    assert_true(fabs(sqrt(squares / COUNT) - deviation) < 0.1 * deviation);
}

static void distributions(void **state)
{
    double log_mean = exp(0.125), log_deviation = sqrt((exp(0.25) - 1) * exp(0.25));

    for (unsigned t = 0; t < 4; t++) {
        curandGenerator_t generator = generator_new(pseudo[t]);
        static uint32_t counts[COUNT];

        assert_ok(curandSetPseudoRandomGeneratorSeed(generator, 99));
        assert_ok(curandGenerateUniform(generator, (float *)memory, COUNT));
        check_moments(false, 0.5, sqrt(1. / 12));
        assert_ok(curandGenerateUniformDouble(generator, (double *)memory, COUNT));
        check_moments(true, 0.5, sqrt(1. / 12));
        assert_ok(curandGenerateNormal(generator, (float *)memory, COUNT, 3, 2));
        check_moments(false, 3, 2);
        assert_ok(curandGenerateNormalDouble(generator, (double *)memory, COUNT, -3, 0.5));
        check_moments(true, -3, 0.5);
        assert_ok(curandGenerateLogNormal(generator, (float *)memory, COUNT, 0, 0.5f));
        check_moments(false, log_mean, log_deviation);
        assert_ok(curandGenerateLogNormalDouble(generator, (double *)memory, COUNT, 0, 0.5));
        check_moments(true, log_mean, log_deviation);
        for (int i = 0; i < 3; i++) {
            double lambda = (double[]){0.7, 40, 5000}[i], sum = 0;

            assert_ok(curandGeneratePoisson(generator, (unsigned *)memory, COUNT, lambda));
            download(counts, sizeof(counts));
            for (int j = 0; j < COUNT; j++)
                sum += counts[j];
            assert_true(fabs(sum / COUNT - lambda) < 5 * sqrt(lambda / COUNT));
        }
        assert_ok(curandDestroyGenerator(generator));
    }
}

/* Of the first 2^10 points each dimension has one in every interval of 2^-10; the first dimension's are reversed bits.
 */
static void sobol_fills_evenly(void **state)
{
    enum { POINTS = 1024, DIMENSIONS = 16 };
    curandGenerator_t generator = generator_new(CURAND_RNG_QUASI_SOBOL32),
                      wide = generator_new(CURAND_RNG_QUASI_SOBOL64);
    static uint32_t got[POINTS * DIMENSIONS];
    static uint64_t wide_got[4];
    float normal[3];

    assert_ok(curandSetQuasiRandomGeneratorDimensions(generator, DIMENSIONS));
    assert_int_equal(curandGenerate(generator, (unsigned *)memory, 17), CURAND_STATUS_LENGTH_NOT_MULTIPLE);
    assert_ok(curandGenerate(generator, (unsigned *)memory, POINTS * DIMENSIONS));
    download(got, sizeof(got));
    assert_int_equal(got[1], 0x80000000u);
    assert_int_equal(got[2], 0xc0000000u);
    for (int d = 0; d < DIMENSIONS; d++) {
        bool is_taken[POINTS] = {false};

        for (int i = 0; i < POINTS; i++) {
            uint32_t interval = got[d * POINTS + i] >> 22;

            assert_false(is_taken[interval]);
            is_taken[interval] = true;
        }
    }
    assert_ok(curandGenerateLongLong(wide, (unsigned long long *)memory, 4));
    download(wide_got, sizeof(wide_got));
    assert_true(wide_got[1] == 1ull << 63 && wide_got[3] == 1ull << 62);
    assert_int_equal(curandGenerate(wide, (unsigned *)memory, 4), CURAND_STATUS_TYPE_ERROR);
    /* A quasi-random normal is the inverse of its distribution: symmetric, and the second one the middle. */
    assert_ok(curandSetQuasiRandomGeneratorDimensions(generator, 1));
    assert_ok(curandSetGeneratorOffset(generator, 1));
    assert_ok(curandGenerateNormal(generator, (float *)memory, 3, 0, 1));
    download(normal, sizeof(normal));
    assert_true(fabsf(normal[0]) < 1e-6f && fabsf(normal[1] - 0.6744898f) < 1e-5f &&
                fabsf(normal[2] + 0.6744898f) < 1e-5f);
    assert_ok(curandDestroyGenerator(generator));
    assert_ok(curandDestroyGenerator(wide));
}

static void what_is_wrong_is_refused(void **state)
{
    curandGenerator_t generator;

    assert_int_equal(curandCreateGenerator(&generator, (curandRngType_t)7), CURAND_STATUS_TYPE_ERROR);
    assert_int_equal(curandGenerate(NULL, (unsigned *)memory, 1), CURAND_STATUS_NOT_INITIALIZED);
    generator = generator_new(CURAND_RNG_PSEUDO_DEFAULT);
    assert_int_equal(curandGenerateNormal(generator, (float *)memory, 3, 0, 1), CURAND_STATUS_LENGTH_NOT_MULTIPLE);
    assert_int_equal(curandGeneratePoisson(generator, (unsigned *)memory, 3, -1), CURAND_STATUS_OUT_OF_RANGE);
    assert_int_equal(curandSetQuasiRandomGeneratorDimensions(generator, 2), CURAND_STATUS_TYPE_ERROR);
    assert_ok(curandDestroyGenerator(generator));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_has_its_numbers),
        cmocka_unit_test(seeds_and_offsets),
        cmocka_unit_test(distributions),
        cmocka_unit_test(sobol_fills_evenly),
        cmocka_unit_test(what_is_wrong_is_refused),
    };

    return cmocka_run_group_tests(tests, start, NULL);
}
