/* How long batches make each other wait: over times that the test gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cpu/server/move/out/throttle.h"

enum { SECOND = 1000 * 1000 * 1000 };

/* Batches one after the other, each as soon as it may, of `took_ns` each: the share of the time that they take. */
static double share_of(struct flyt_throttle *throttle, uint64_t took_ns)
{
    uint64_t now_ns = SECOND, begin_ns = now_ns, busy_ns = 0;
    for (unsigned i = 0; i < 100; i++) {
        if (!flyt_throttle_is_open(throttle, now_ns))
            now_ns = throttle->open_ns;
        assert_true(flyt_throttle_is_open(throttle, now_ns));
        now_ns += took_ns;
        busy_ns += took_ns;
        flyt_throttle_take(throttle, FLYT_THROTTLE_COPY, 1000, took_ns, now_ns);
    }
    return (double)busy_ns / (double)(throttle->open_ns - begin_ns);
}

static void a_share_is_kept(void **state)
{
    static const unsigned shares[] = {1, 5, 10, 25, 50, 90};
    for (unsigned i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        struct flyt_throttle throttle;
        flyt_throttle_init(&throttle, shares[i]);
        assert_in_range((uint64_t)(share_of(&throttle, 1300000) * 10000 + 0.5), shares[i] * 100 - 1,
                        shares[i] * 100 + 1);
    }
}

static void nothing_asked_for_is_8_percent(void **state)
{
    struct flyt_throttle throttle;
    flyt_throttle_init(&throttle, 0);
    assert_true(flyt_throttle_is_open(&throttle, 0));
    flyt_throttle_take(&throttle, FLYT_THROTTLE_LOOK, 64, 5000, SECOND);
    assert_int_equal(throttle.open_ns, SECOND + 57500);
    assert_false(flyt_throttle_is_open(&throttle, SECOND + 57500 - 1));
    assert_true(flyt_throttle_is_open(&throttle, SECOND + 57500));
}

static void all_is_no_pause(void **state)
{
    static const unsigned shares[] = {100, 101, UINT32_MAX};
    for (unsigned i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        struct flyt_throttle throttle;
        flyt_throttle_init(&throttle, shares[i]);
        flyt_throttle_take(&throttle, FLYT_THROTTLE_COPY, 1, SECOND, 2ull * SECOND);
        assert_true(flyt_throttle_is_open(&throttle, 2ull * SECOND));
    }
}

/* One that had to wait for SMs counts as four fast ones of its size; kinds have nothing to do with each other. */
static void waiting_counts_little(void **state)
{
    struct flyt_throttle throttle;
    flyt_throttle_init(&throttle, 50);
    flyt_throttle_take(&throttle, FLYT_THROTTLE_COPY, 1000, 1000000, SECOND);
    flyt_throttle_take(&throttle, FLYT_THROTTLE_COPY, 500, SECOND, 3ull * SECOND);
    assert_int_equal(throttle.open_ns, 3ull * SECOND + 4 * 500000);
    flyt_throttle_take(&throttle, FLYT_THROTTLE_LOOK, 500, SECOND, 5ull * SECOND);
    assert_int_equal(throttle.open_ns, 6ull * SECOND);
    /* The fastest one is what counts from now on. */
    flyt_throttle_take(&throttle, FLYT_THROTTLE_COPY, 1000, 100000, 7ull * SECOND);
    flyt_throttle_take(&throttle, FLYT_THROTTLE_COPY, 1000, 1000000, 8ull * SECOND);
    assert_int_equal(throttle.open_ns, 8ull * SECOND + 400000);
    /* None is so fast that it is nothing. */
    flyt_throttle_take(&throttle, FLYT_THROTTLE_COPY, 65536, 0, 9ull * SECOND);
    assert_int_equal(throttle.open_ns, 9ull * SECOND);
    flyt_throttle_take(&throttle, FLYT_THROTTLE_COPY, 65536, SECOND, 10ull * SECOND);
    assert_int_equal(throttle.open_ns, 10ull * SECOND + 4 * 65536 / 1000);
}

/* What the GPU does of one batch, and this thread of another, may end while a pause lasts: neither is for nothing. */
static void pauses_come_one_behind_the_other(void **state)
{
    struct flyt_throttle throttle;
    flyt_throttle_init(&throttle, 50);
    flyt_throttle_take(&throttle, FLYT_THROTTLE_COPY, 1000, 1000, SECOND);
    flyt_throttle_take(&throttle, FLYT_THROTTLE_COPY_RESULTS, 1000, 300, SECOND + 100);
    assert_int_equal(throttle.open_ns, SECOND + 1300);
    flyt_throttle_take(&throttle, FLYT_THROTTLE_COPY, 1000, 1000, SECOND + 1300);
    assert_int_equal(throttle.open_ns, SECOND + 2300);
    flyt_throttle_forgive(&throttle);
    assert_true(flyt_throttle_is_open(&throttle, SECOND + 1300));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_share_is_kept),
        cmocka_unit_test(nothing_asked_for_is_8_percent),
        cmocka_unit_test(all_is_no_pause),
        cmocka_unit_test(waiting_counts_little),
        cmocka_unit_test(pauses_come_one_behind_the_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
