/* Tests of resize.c's table: whatever is seen of a resize, in every state. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "control/cluster/model/resize.h"

enum { BITS = 12 };

static struct flyt_resize_seen seen_of(unsigned bits, flyt_switch_state switch_state)
{
    return (struct flyt_resize_seen){.is_written = bits & 1,
                                     .has_failed = bits >> 1 & 1,
                                     .is_answered = bits >> 2 & 1,
                                     .answer_error = bits >> 3 & 1 ? -ETIMEDOUT : 0,
                                     .is_refused = bits >> 4 & 1 && !(bits >> 3 & 1),
                                     .is_applied = bits >> 5 & 1,
                                     .switch_state = switch_state,
                                     .is_still = bits >> 6 & 1,
                                     .is_short = bits >> 7 & 1,
                                     .is_late = bits >> 8 & 1,
                                     .is_waited = bits >> 9 & 1,
                                     .has_moved = bits >> 10 & 1,
                                     .has_stayed = bits >> 11 & 1};
}

/* Calls check for everything that can be seen in every state. */
static void each(void (*check)(enum flyt_resize_state state, const struct flyt_resize_seen *seen,
                               enum flyt_resize_step step, enum flyt_resize_state next))
{
    for (unsigned state = FLYT_RESIZE_QUEUED; state <= FLYT_RESIZE_OVER; state++)
        for (unsigned bits = 0; bits < 1u << BITS; bits++)
            for (unsigned switched = FLYT_SWITCH_TARGET; switched <= FLYT_SWITCH_VACATED; switched++) {
                const struct flyt_resize_seen seen = seen_of(bits, (flyt_switch_state)switched);
                enum flyt_resize_state next;
                enum flyt_resize_step step = flyt_resize_next((enum flyt_resize_state)state, &seen, &next);
                check((enum flyt_resize_state)state, &seen, step, next);
            }
}

static void check_order(enum flyt_resize_state state, const struct flyt_resize_seen *seen, enum flyt_resize_step step,
                        enum flyt_resize_state next)
{
    if (step == FLYT_RESIZE_ORDER)
        assert_true(state == FLYT_RESIZE_WRITING && seen->is_written && !seen->has_failed);
    if (step == FLYT_RESIZE_SAY_DONE)
        assert_true(seen->is_applied && seen->is_still && !seen->is_short &&
                    seen->switch_state >= FLYT_SWITCH_SWITCHED);
    if (step == FLYT_RESIZE_TAKE_BACK)
        assert_true(state == FLYT_RESIZE_ORDERED && seen->is_answered && seen->is_refused);
}

static void test_nothing_before_its_time(void **state)
{
    each(check_order);
}

static void check_forward(enum flyt_resize_state state, const struct flyt_resize_seen *seen, enum flyt_resize_step step,
                          enum flyt_resize_state next)
{
    assert_true(next >= state);
    if (step == FLYT_RESIZE_WAIT)
        assert_int_equal(next, state);
    /* What stays where it is answers somebody: that cannot be done twice. */
    if (step != FLYT_RESIZE_WAIT && next == state)
        assert_true(seen->is_waited && seen->is_late);
    if (state == FLYT_RESIZE_OVER)
        assert_int_equal(step, FLYT_RESIZE_WAIT);
    if (state == FLYT_RESIZE_MOVING)
        assert_int_equal(next == FLYT_RESIZE_OVER, seen->has_moved || seen->has_stayed);
}

static void test_only_forward(void **state)
{
    each(check_forward);
}

/* When its write has ended, its order has an answer and its time is over, nothing holds it. */
static void check_end(enum flyt_resize_state state, const struct flyt_resize_seen *seen, enum flyt_resize_step step,
                      enum flyt_resize_state next)
{
    if ((seen->is_written || seen->has_failed) && seen->is_answered && seen->is_late && state != FLYT_RESIZE_OVER &&
        state != FLYT_RESIZE_EDITING && state != FLYT_RESIZE_MOVING)
        assert_true(next > state);
}

static void test_everything_ends(void **state)
{
    each(check_end);
}

/* One that somebody waits for is answered at its time, in whatever state. */
static void check_answer(enum flyt_resize_state state, const struct flyt_resize_seen *seen, enum flyt_resize_step step,
                         enum flyt_resize_state next)
{
    if (seen->is_waited && seen->is_late && state < FLYT_RESIZE_OVER && state != FLYT_RESIZE_MOVING)
        assert_int_not_equal(step, FLYT_RESIZE_WAIT);
}

static void test_whoever_waits_is_answered(void **state)
{
    each(check_answer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_before_its_time),
        cmocka_unit_test(test_only_forward),
        cmocka_unit_test(test_everything_ends),
        cmocka_unit_test(test_whoever_waits_is_answered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
