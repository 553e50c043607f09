/* Numbers of small types: what is stored is the nearest that the type has, by comparing with all of them. */
#include "cpu/softgpu/library/test.h"

static const cudaDataType types[] = {CUDA_R_8F_E4M3, CUDA_R_8F_E5M2, CUDA_R_16F, CUDA_R_16BF, CUDA_R_8I, CUDA_R_8U};
enum { TYPES = sizeof(types) / sizeof(types[0]) };

static unsigned pattern_count(cudaDataType type)
{
    return flyt_soft_number_bytes(type) == 1 ? 256 : 65536;
}

static double value_of(cudaDataType type, unsigned pattern)
{
    uint8_t narrow = (uint8_t)pattern;
    uint16_t wide = (uint16_t)pattern;

    return creal(flyt_soft_number_get(type, flyt_soft_number_bytes(type) == 1 ? (void *)&narrow : &wide));
}

static unsigned stored(cudaDataType type, double value)
{
    uint8_t narrow = 0;
    uint16_t wide = 0;

    if (flyt_soft_number_bytes(type) == 1)
        flyt_soft_number_put(type, &narrow, value);
    else
        flyt_soft_number_put(type, &wide, value);
    return flyt_soft_number_bytes(type) == 1 ? narrow : wide;
}

static void every_number_is_kept(void **state)
{
    for (int t = 0; t < TYPES; t++) {
        for (unsigned pattern = 0; pattern < pattern_count(types[t]); pattern++) {
            double value = value_of(types[t], pattern);

            if (isnan(value))
                assert_true(isnan(value_of(types[t], stored(types[t], value))));
            else if (types[t] != CUDA_R_8F_E5M2 || isfinite(value)) /* its infinities become the largest number */
                assert_int_equal(stored(types[t], value), pattern);
        }
    }
}

/* The middle between two neighbours goes to the even one, and what is a little beside it to the nearer. */
static void the_nearest_is_stored(void **state)
{
    for (int t = 0; t < TYPES; t++) {
        for (unsigned pattern = 0; pattern + 1 < pattern_count(types[t]); pattern++) {
            double low = value_of(types[t], pattern), high = value_of(types[t], pattern + 1), middle = (low + high) / 2;
            double little = (high - low) / 1024;
            unsigned even = pattern % 2 ? pattern + 1 : pattern;

            if (!isfinite(low) || !isfinite(high) || signbit(low) != signbit(high))
                continue;
            assert_int_equal(stored(types[t], middle), even);
            assert_int_equal(stored(types[t], middle - little), pattern);
            assert_int_equal(stored(types[t], middle + little), pattern + 1);
        }
    }
}

static void large_numbers_saturate(void **state)
{
    assert_true(value_of(CUDA_R_8F_E4M3, stored(CUDA_R_8F_E4M3, 1e30)) == 448);
    assert_true(value_of(CUDA_R_8F_E4M3, stored(CUDA_R_8F_E4M3, -460)) == -448);
    assert_true(value_of(CUDA_R_8F_E5M2, stored(CUDA_R_8F_E5M2, 1e30)) == 57344);
    assert_true(value_of(CUDA_R_8F_E5M2, stored(CUDA_R_8F_E5M2, 60000)) == 57344);
    assert_true(isinf(value_of(CUDA_R_16F, stored(CUDA_R_16F, 1e30))));
    assert_int_equal((int)value_of(CUDA_R_8I, stored(CUDA_R_8I, -1000)), -128);
    assert_int_equal((int)value_of(CUDA_R_8U, stored(CUDA_R_8U, -3)), 0);
    /* Rounded once: a double just above the middle of two halves, which as a float is the middle. */
    assert_true(value_of(CUDA_R_16F, stored(CUDA_R_16F, 1 + 0x1p-11 + 0x1p-40)) == 1 + 0x1p-10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_is_kept),
        cmocka_unit_test(the_nearest_is_stored),
        cmocka_unit_test(large_numbers_saturate),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
