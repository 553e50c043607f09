/* The allocator of addresses, against a map that is too simple to be wrong. */
#include "cpu/softgpu/driver/ranges.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { UNITS = 256, UNIT_BYTES = 256, STEPS = 20000 };

static const uint64_t base = 0x1f0000000000;

/* 0 where a unit is free, else the number of the range that has it. */
static unsigned model[UNITS];

static void check_taken(const struct flyt_soft_range *range, unsigned number)
{
    for (uint64_t at = range->start; at < range->start + range->bytes; at += UNIT_BYTES) {
        uint64_t i = (at - base) / UNIT_BYTES;

        assert_true(i < UNITS);
        assert_int_equal(model[i], 0);
        model[i] = number;
    }
}

static void check_given(uint64_t start, uint64_t bytes, uint64_t hole_start, uint64_t hole_bytes)
{
    uint64_t first = (hole_start - base) / UNIT_BYTES, end = first + hole_bytes / UNIT_BYTES;

    memset(&model[(start - base) / UNIT_BYTES], 0, bytes / UNIT_BYTES * sizeof(model[0]));
    for (uint64_t i = first; i < end; i++)
        assert_int_equal(model[i], 0);
    assert_true(first == 0 || model[first - 1]);
    assert_true(end == UNITS || model[end]);
}

static void random_use_agrees_with_a_map(void **state)
{
    struct flyt_soft_ranges ranges;
    struct flyt_soft_range *range;
    uint64_t used_bytes = 0;

    srand(1);
    assert_int_equal(flyt_soft_ranges_init(&ranges, base, UNITS * UNIT_BYTES, UNIT_BYTES), 0);
    for (unsigned step = 1; step < STEPS; step++) {
        uint64_t at = base + (uint64_t)(rand() % UNITS) * UNIT_BYTES;
        uint64_t bytes = 1 + (uint64_t)(rand() % (12 * UNIT_BYTES));

        range = flyt_soft_ranges_find(&ranges, at + 3);
        assert_int_equal(range != NULL, model[(at - base) / UNIT_BYTES] != 0);
        if (range && rand() % 2) {
            uint64_t start = range->start, length = range->bytes, hole_start, hole_bytes;

            used_bytes -= length;
            assert_int_equal(flyt_soft_ranges_give(&ranges, range, &hole_start, &hole_bytes), 0);
            check_given(start, length, hole_start, hole_bytes);
        } else if (rand() % 2) {
            uint64_t align = (uint64_t)UNIT_BYTES << rand() % 4;

            if (flyt_soft_ranges_take(&ranges, bytes, align, &range) == 0) {
                assert_int_equal(range->start % align, 0);
                assert_true(range->bytes >= bytes && range->bytes < bytes + UNIT_BYTES);
                assert_int_equal(range->asked_bytes, bytes);
                check_taken(range, step);
                used_bytes += range->bytes;
            }
        } else if (flyt_soft_ranges_take_at(&ranges, at, UNIT_BYTES, &range) == 0) {
            assert_int_equal(range->start, at);
            check_taken(range, step);
            used_bytes += range->bytes;
        }
        assert_int_equal(ranges.used_bytes, used_bytes);
    }
    flyt_soft_ranges_fini(&ranges);
    memset(model, 0, sizeof(model));
}

static void the_smallest_hole_that_fits_is_taken(void **state)
{
    struct flyt_soft_ranges ranges;
    struct flyt_soft_range *a, *b, *c, *d;
    uint64_t start, bytes;

    assert_int_equal(flyt_soft_ranges_init(&ranges, base, UNITS * UNIT_BYTES, UNIT_BYTES), 0);
    assert_int_equal(flyt_soft_ranges_take(&ranges, 4 * UNIT_BYTES, 1, &a), 0);
    assert_int_equal(flyt_soft_ranges_take(&ranges, UNIT_BYTES, 1, &b), 0);
    assert_int_equal(flyt_soft_ranges_take(&ranges, 2 * UNIT_BYTES, 1, &c), 0);
    assert_int_equal(flyt_soft_ranges_take(&ranges, UNIT_BYTES, 1, &d), 0);
    assert_int_equal(flyt_soft_ranges_give(&ranges, a, &start, &bytes), 0);
    assert_int_equal(flyt_soft_ranges_give(&ranges, c, &start, &bytes), 0);
    assert_int_equal(bytes, 2 * UNIT_BYTES);
    assert_int_equal(flyt_soft_ranges_take(&ranges, 2 * UNIT_BYTES, 1, &c), 0);
    assert_int_equal(c->start, base + 5 * UNIT_BYTES);
    assert_int_equal(flyt_soft_ranges_take_at(&ranges, base + 5 * UNIT_BYTES, UNIT_BYTES, &a), -EBUSY);
    assert_int_equal(flyt_soft_ranges_take(&ranges, UNITS * UNIT_BYTES, 1, &a), -ENOMEM);
    assert_int_equal(flyt_soft_ranges_take(&ranges, 0, 1, &a), -ENOMEM);
    assert_ptr_equal(flyt_soft_ranges_find_any(&ranges, base, 5 * UNIT_BYTES), b);
    assert_null(flyt_soft_ranges_find_any(&ranges, base, 4 * UNIT_BYTES));
    flyt_soft_ranges_fini(&ranges);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_use_agrees_with_a_map),
        cmocka_unit_test(the_smallest_hole_that_fits_is_taken),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
