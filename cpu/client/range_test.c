#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>
#include <errno.h>
#include "cpu/client/range.h"

static struct flyt_range make(uint64_t base, uint64_t bytes, enum flyt_range_kind kind)
{
    return (struct flyt_range){.base = base, .bytes = bytes, .kind = kind, .context_id = 7};
}

static void test_find_knows_both_ends(void **state)
{
    struct flyt_range range = make(0x1000, 0x100, FLYT_RANGE_ALLOCATION), found;
    assert_int_equal(flyt_range_insert(&range), 0);
    assert_false(flyt_range_find(0xfff, &found));
    assert_true(flyt_range_find(0x1000, &found));
    assert_true(flyt_range_find(0x10ff, &found));
    assert_false(flyt_range_find(0x1100, &found));
    assert_true(found.buffer_id != 0);
    assert_true(flyt_range_remove(0x1000, FLYT_RANGE_ALLOCATION, NULL));
    assert_false(flyt_range_find(0x1000, &found));
}

static void test_overlaps_are_refused(void **state)
{
    struct flyt_range range = make(0x1000, 0x100, FLYT_RANGE_HOST_ALLOC);
    assert_int_equal(flyt_range_insert(&range), 0);
    const struct flyt_range bad[] = {
        make(0xf00, 0x101, FLYT_RANGE_HOST_REGISTERED),
        make(0x10ff, 1, FLYT_RANGE_HOST_REGISTERED),
        make(0x1010, 0x10, FLYT_RANGE_ALLOCATION),
        make(0x800, 0x2000, FLYT_RANGE_VARIABLE),
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(flyt_range_insert(&bad[i]), -EEXIST);
    range = make(0xf00, 0x100, FLYT_RANGE_HOST_ALLOC);
    assert_int_equal(flyt_range_insert(&range), 0);
    assert_true(flyt_range_remove(0xf00, FLYT_RANGE_HOST_ALLOC, NULL));
    assert_false(flyt_range_remove(0x1000, FLYT_RANGE_ALLOCATION, NULL)); /* another kind */
    assert_false(flyt_range_remove(0x1001, FLYT_RANGE_HOST_ALLOC, NULL)); /* not the start */
    assert_true(flyt_range_remove(0x1000, FLYT_RANGE_HOST_ALLOC, NULL));
}

static void test_pinned_means_all_of_it(void **state)
{
    struct flyt_range host = make(0x1000, 0x100, FLYT_RANGE_HOST_REGISTERED);
    struct flyt_range device = make(0x2000, 0x100, FLYT_RANGE_ALLOCATION);
    assert_int_equal(flyt_range_insert(&host), 0);
    assert_int_equal(flyt_range_insert(&device), 0);
    assert_true(flyt_range_is_pinned(0x1000, 0x100));
    assert_true(flyt_range_is_pinned(0x1080, 0x80));
    assert_false(flyt_range_is_pinned(0x1080, 0x81));
    assert_false(flyt_range_is_pinned(0x2000, 1));
    assert_true(flyt_range_remove(0x1000, FLYT_RANGE_HOST_REGISTERED, NULL));
    assert_true(flyt_range_remove(0x2000, FLYT_RANGE_ALLOCATION, NULL));
}

/* Against the plainest model there is: one flag per slot of address space. */
static void test_random_operations_agree_with_a_model(void **state)
{
    enum { SLOTS = 512, STEPS = 20000, SLOT_BYTES = 64 };
    static bool is_used[SLOTS];
    unsigned seed = 1;
    struct flyt_range found;
    for (int step = 0; step < STEPS; step++) {
        seed = seed * 1103515245u + 12345u;
        unsigned slot = (seed >> 8) % SLOTS;
        uint64_t base = 0x100000 + (uint64_t)slot * SLOT_BYTES;
        struct flyt_range range = make(base, SLOT_BYTES, FLYT_RANGE_ALLOCATION);
        if (seed >> 31)
            assert_int_equal(flyt_range_insert(&range), is_used[slot] ? -EEXIST : 0);
        else
            assert_int_equal(flyt_range_remove(base, FLYT_RANGE_ALLOCATION, NULL), is_used[slot]);
        is_used[slot] = seed >> 31;
        unsigned other = (seed >> 4) % SLOTS;
        assert_int_equal(flyt_range_find(0x100000 + (uint64_t)other * SLOT_BYTES + 63, &found), is_used[other]);
    }
    flyt_range_clear(7, false);
    for (unsigned slot = 0; slot < SLOTS; slot++)
        assert_false(flyt_range_find(0x100000 + (uint64_t)slot * SLOT_BYTES, &found));
}

static void test_variables_go_with_their_library(void **state)
{
    struct flyt_range one = {.base = 0x1000, .bytes = 8, .kind = FLYT_RANGE_VARIABLE, .library_id = 1, .device = 0};
    struct flyt_range two = {.base = 0x2000, .bytes = 8, .kind = FLYT_RANGE_VARIABLE, .library_id = 2, .device = 0};
    struct flyt_range found;
    assert_int_equal(flyt_range_insert(&one), 0);
    assert_int_equal(flyt_range_insert(&two), 0);
    flyt_range_forget_variables(1, -1);
    assert_false(flyt_range_find(0x1000, &found));
    assert_true(flyt_range_find(0x2000, &found));
    flyt_range_forget_variables(0, 0);
    assert_false(flyt_range_find(0x2000, &found));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find_knows_both_ends),
        cmocka_unit_test(test_overlaps_are_refused),
        cmocka_unit_test(test_pinned_means_all_of_it),
        cmocka_unit_test(test_random_operations_agree_with_a_model),
        cmocka_unit_test(test_variables_go_with_their_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
