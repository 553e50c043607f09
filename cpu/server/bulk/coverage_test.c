/* Which bytes have come: compared with a map of bytes, for ranges in any order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/server/bulk/coverage.h"

enum { BYTES = 300, ROUNDS = 400, TRIES = 400 };

static unsigned next(unsigned *state)
{
    *state = *state * 1103515245u + 12345u;
    return *state >> 8;
}

static unsigned count_ranges(const unsigned char *map)
{
    unsigned count = 0;
    for (unsigned i = 0; i < BYTES; i++)
        count += map[i] && (!i || !map[i - 1]);
    return count;
}

static void is_as_a_map_says(void **state)
{
    unsigned seed = 5;
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct flyt_coverage coverage = {0};
        unsigned char map[BYTES] = {0};
        for (unsigned i = 0; i < TRIES; i++) {
            unsigned begin = next(&seed) % BYTES, bytes = next(&seed) % 9;
            if (bytes > BYTES - begin)
                continue;
            const int status = bytes && !memchr(map + begin, 1, bytes) ? 0 : -EINVAL;
            assert_int_equal(flyt_coverage_add(&coverage, begin, bytes), status);
            if (!status)
                memset(map + begin, 1, bytes);
            assert_int_equal(coverage.count, count_ranges(map));
            unsigned end = BYTES;
            while (end && !map[end - 1])
                end--;
            assert_int_equal(flyt_coverage_end(&coverage), end);
        }
        flyt_coverage_fini(&coverage);
    }
}

static void what_is_out_of_all_bounds_is_refused(void **state)
{
    struct flyt_coverage coverage = {0};
    assert_int_equal(flyt_coverage_add(&coverage, UINT64_MAX - 1, 2), -EINVAL);
    assert_int_equal(flyt_coverage_add(&coverage, UINT64_MAX - 1, 1), 0);
    for (uint64_t i = 1; i < FLYT_COVERAGE_RANGES_MAX; i++)
        assert_int_equal(flyt_coverage_add(&coverage, 2 * i, 1), 0);
    assert_int_equal(flyt_coverage_add(&coverage, 2 * FLYT_COVERAGE_RANGES_MAX, 1), -ENOSPC);
    assert_int_equal(flyt_coverage_add(&coverage, 3, 1), 0);
    assert_int_equal(flyt_coverage_add(&coverage, 2 * FLYT_COVERAGE_RANGES_MAX, 1), 0);
    flyt_coverage_fini(&coverage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(is_as_a_map_says),
                                       cmocka_unit_test(what_is_out_of_all_bounds_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
