/* What a stream may have in the driver, over times that the test makes up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cpu/server/core/pace.h"
#include "cpu/server/core/stream.h"

enum { US = 1000, MS = 1000 * 1000 };

struct clock {
    struct flyt_pace pace;
    uint64_t now_ns, completed;
};

static struct clock measured(void)
{
    struct clock clock = {.now_ns = 1};
    flyt_pace_init(&clock.pace, true, FLYT_STREAM_DEPTH_MAX);
    flyt_pace_begin(&clock.pace, clock.now_ns);
    return clock;
}

/* So many operations of so long each end, one look for each marker. */
static void run(struct clock *clock, unsigned operations, uint64_t each_ns)
{
    while (operations) {
        unsigned step = clock->pace.mark_interval < operations ? clock->pace.mark_interval : operations;
        clock->now_ns += step * each_ns;
        flyt_pace_take(&clock->pace, clock->completed, clock->completed + step, clock->now_ns, FLYT_STREAM_DEPTH_MAX);
        clock->completed += step;
        operations -= step;
    }
}

static void without_a_manager_nothing_is_measured(void **state)
{
    struct flyt_pace pace;
    flyt_pace_init(&pace, false, FLYT_STREAM_DEPTH_MAX);
    assert_int_equal(pace.depth, FLYT_STREAM_DEPTH_MAX);
    assert_int_equal(pace.mark_interval, 64);
}

static void depth_is_20_ms_of_work(void **state)
{
    static const struct {
        uint64_t each_ns;
        unsigned least, most;
    } cases[] = {
        {1 * US, 512, 512}, {39 * US, 512, 512}, {100 * US, 199, 200}, {1 * MS, 19, 20},
        {3 * MS, 6, 6},     {9 * MS, 2, 2},      {11 * MS, 1, 1},      {500 * MS, 1, 1},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct clock clock = measured();
        assert_int_equal(clock.pace.depth, FLYT_PACE_DEPTH_FIRST);
        run(&clock, 2000, cases[i].each_ns);
        assert_in_range(clock.pace.depth, cases[i].least, cases[i].most);
        assert_in_range(clock.pace.mark_interval, 1, 64);
        assert_true(clock.pace.mark_interval * FLYT_PACE_MARK_PART <= clock.pace.depth ||
                    clock.pace.mark_interval == 1);
    }
}

static void long_ones_count_at_once_and_short_ones_soon(void **state)
{
    struct clock clock = measured();
    run(&clock, 1000, 5 * US);
    assert_int_equal(clock.pace.depth, FLYT_STREAM_DEPTH_MAX);
    run(&clock, 64, 4 * MS);
    assert_int_equal(clock.pace.depth, 4);
    run(&clock, 1, 15 * MS);
    assert_int_equal(clock.pace.depth, 1);
    run(&clock, 64, 5 * US);
    assert_int_equal(clock.pace.depth, FLYT_STREAM_DEPTH_MAX);
}

/* Long ones among short ones: what may be in the driver is never more than the bound and one look's worth. */
static void mixed_ones_stay_bounded(void **state)
{
    struct clock clock = measured();
    for (unsigned i = 0; i < 100; i++) {
        run(&clock, 1, 10 * MS);
        assert_in_range(clock.pace.depth, 1, 2);
        run(&clock, 1, 5 * US);
        assert_in_range(clock.pace.depth, 1, 4);
    }
}

static void time_without_work_does_not_count(void **state)
{
    struct clock clock = measured();
    run(&clock, 1000, 5 * US);
    clock.now_ns += 3000ull * MS;
    flyt_pace_begin(&clock.pace, clock.now_ns);
    run(&clock, 1, 5 * US);
    assert_int_equal(clock.pace.depth, FLYT_STREAM_DEPTH_MAX);
}

static void waiting_for_others_does_not_count(void **state)
{
    struct clock clock = measured();
    flyt_pace_wait(&clock.pace, 1);
    run(&clock, 2, 300 * MS);
    assert_int_equal(clock.pace.depth, FLYT_PACE_DEPTH_FIRST);
    run(&clock, 1000, 5 * US);
    flyt_pace_wait(&clock.pace, clock.completed + 1);
    run(&clock, 64, 30 * MS);
    assert_int_equal(clock.pace.depth, FLYT_STREAM_DEPTH_MAX);
    /* The next look sees none. */
    run(&clock, 64, 30 * MS);
    assert_int_equal(clock.pace.depth, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_manager_nothing_is_measured),
        cmocka_unit_test(depth_is_20_ms_of_work),
        cmocka_unit_test(long_ones_count_at_once_and_short_ones_soon),
        cmocka_unit_test(mixed_ones_stay_bounded),
        cmocka_unit_test(time_without_work_does_not_count),
        cmocka_unit_test(waiting_for_others_does_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
