/* Tests of lifecycle.c's tables: whatever is seen of an allocation, and of one that programs wait for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "control/cluster/model/lifecycle.h"

enum { ALLOCATION_BITS = 17, ATTACH_BITS = 15 };

/* ---- allocations ---- */

static bool is_end(enum flyt_allocation_step step)
{
    return step >= FLYT_HELD_END_REFUSED && step <= FLYT_HELD_END_UNUSED;
}

/* What holds of each step, whatever is seen besides. */
static const struct {
    enum flyt_allocation_step step;
    unsigned all, none;
} needs[] = {
    {FLYT_HELD_FORGET, FLYT_HELD_IS_GONE, 0},
    {FLYT_HELD_GRANT, FLYT_HELD_IS_WRITTEN, FLYT_HELD_IS_MADE},
    {FLYT_HELD_TAKE_BACK, FLYT_HELD_HAS_FAILED, FLYT_HELD_IS_MADE | FLYT_HELD_IS_WRITTEN},
    {FLYT_HELD_ADOPT, FLYT_HELD_IS_ADOPTED | FLYT_HELD_IS_WRITTEN, 0},
    {FLYT_HELD_ORPHAN, FLYT_HELD_IS_ADOPTED | FLYT_HELD_HAS_FAILED, FLYT_HELD_IS_WRITTEN},
    {FLYT_HELD_RELEASE, FLYT_HELD_HAS_EMPTIED, 0},
    {FLYT_HELD_OPEN, FLYT_HELD_IS_CLOSING | FLYT_HELD_IS_USED, FLYT_HELD_IS_LEAVING},
    {FLYT_HELD_CLOSE, FLYT_HELD_IS_QUIET | FLYT_HELD_HAS_LINGERED | FLYT_HELD_IS_KNOWN,
     FLYT_HELD_IS_CLOSING | FLYT_HELD_IS_LEAVING},
    {FLYT_HELD_END_REFUSED, FLYT_HELD_IS_REFUSED, FLYT_HELD_IS_LEAVING},
    /* Its node lets nobody in, and has said so. */
    {FLYT_HELD_END_IDLE, FLYT_HELD_IS_CLOSING | FLYT_HELD_IS_APPLIED, FLYT_HELD_IS_USED | FLYT_HELD_IS_LEAVING},
    {FLYT_HELD_END_REMOVED, FLYT_HELD_IS_QUIET | FLYT_HELD_IS_REMOVED, FLYT_HELD_IS_LEAVING},
    {FLYT_HELD_END_UNUSED, FLYT_HELD_IS_QUIET | FLYT_HELD_HAS_LINGERED, FLYT_HELD_IS_KNOWN | FLYT_HELD_IS_LEAVING},
    {FLYT_HELD_WRITE, FLYT_HELD_IS_DUE | FLYT_HELD_HAS_FAILED, FLYT_HELD_IS_WRITTEN},
    /* What was not written is never ordered. */
    {FLYT_HELD_ORDER, FLYT_HELD_IS_DUE | FLYT_HELD_IS_WRITTEN | FLYT_HELD_IS_REACHED, 0},
};

static void test_nothing_without_its_reason(void **state)
{
    for (unsigned seen = 0; seen < 1u << ALLOCATION_BITS; seen++)
        for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
            if (flyt_allocation_next(seen) == needs[i].step) {
                assert_int_equal(seen & needs[i].all, needs[i].all);
                assert_int_equal(seen & needs[i].none, 0);
            }
}

static void test_each_step_is_taken(void **state)
{
    unsigned taken = 0;

    for (unsigned seen = 0; seen < 1u << ALLOCATION_BITS; seen++)
        taken |= 1u << flyt_allocation_next(seen);
    assert_int_equal(taken, (1u << (FLYT_HELD_ORDER + 1)) - 1);
}

/* Of what is being made, or adopted, nothing else begins. */
static void test_first_it_is_made(void **state)
{
    for (unsigned seen = 0; seen < 1u << ALLOCATION_BITS; seen++) {
        enum flyt_allocation_step step = flyt_allocation_next(seen);
        bool is_unsure = !(seen & FLYT_HELD_IS_MADE) || seen & FLYT_HELD_IS_ADOPTED;
        if (is_unsure)
            assert_true(step <= FLYT_HELD_ADOPT);
        if (is_unsure && seen & (FLYT_HELD_IS_WRITTEN | FLYT_HELD_HAS_FAILED | FLYT_HELD_IS_GONE))
            assert_int_not_equal(step, FLYT_HELD_WAIT);
    }
}

/* One that is being taken away ends once only, and is ordered away again until its node has nothing of it. */
static void test_what_leaves_goes(void **state)
{
    for (unsigned seen = 0; seen < 1u << ALLOCATION_BITS; seen++) {
        if (!(seen & FLYT_HELD_IS_LEAVING))
            continue;
        assert_false(is_end(flyt_allocation_next(seen)));
        assert_int_not_equal(flyt_allocation_next(seen), FLYT_HELD_OPEN);
        assert_int_equal(flyt_allocation_next(seen | FLYT_HELD_IS_GONE), FLYT_HELD_FORGET);
    }
    assert_int_equal(flyt_allocation_next(FLYT_HELD_IS_MADE | FLYT_HELD_IS_LEAVING | FLYT_HELD_IS_WRITTEN |
                                          FLYT_HELD_IS_DUE | FLYT_HELD_IS_REACHED),
                     FLYT_HELD_ORDER);
}

/* ---- who waits for a grant ---- */

static void test_granted_when_it_is_open(void **state)
{
    for (unsigned seen = 0; seen < 1u << ATTACH_BITS; seen++) {
        enum flyt_attach_step step = flyt_attach_next(seen);
        bool is_asked = seen & FLYT_ATTACH_IS_ASKED, is_answered = is_asked && seen & FLYT_ATTACH_IS_ANSWERED;
        if (step == FLYT_ATTACH_SAY_GRANTED)
            assert_true(is_answered ? !(seen & (FLYT_ATTACH_IS_REFUSED | FLYT_ATTACH_IS_UNREACHED))
                                    : (seen & FLYT_ATTACH_IS_OPEN) != 0);
        /* Who has asked waits for the answer: he does not ask again. */
        if (is_asked && seen & FLYT_ATTACH_IS_HELD)
            assert_true(step != FLYT_ATTACH_WRITE && step != FLYT_ATTACH_ORDER && step != FLYT_ATTACH_OPEN &&
                        step != FLYT_ATTACH_PLACE);
        assert_int_equal(step == FLYT_ATTACH_PLACE, !(seen & FLYT_ATTACH_IS_HELD));
        if (step == FLYT_ATTACH_ORDER)
            assert_true(seen & FLYT_ATTACH_IS_WRITTEN);
    }
}

static void test_whoever_asked_is_answered(void **state)
{
    const unsigned asked = FLYT_ATTACH_IS_HELD | FLYT_ATTACH_IS_MADE | FLYT_ATTACH_IS_ASKED;

    for (unsigned seen = 0; seen < 1u << ATTACH_BITS; seen++)
        if ((seen & asked) == asked && !(seen & FLYT_ATTACH_IS_LEAVING) &&
            seen & (FLYT_ATTACH_IS_ANSWERED | FLYT_ATTACH_HAS_FAILED))
            assert_int_not_equal(flyt_attach_next(seen), FLYT_ATTACH_WAIT);
    assert_int_equal(flyt_attach_next(asked | FLYT_ATTACH_HAS_FAILED), FLYT_ATTACH_SAY_UNWRITTEN);
    assert_int_equal(flyt_attach_next(asked | FLYT_ATTACH_IS_ANSWERED | FLYT_ATTACH_IS_REFUSED),
                     FLYT_ATTACH_SAY_REFUSED);
    assert_int_equal(flyt_attach_next(asked | FLYT_ATTACH_IS_ANSWERED | FLYT_ATTACH_IS_UNREACHED),
                     FLYT_ATTACH_SAY_UNREACHED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_without_its_reason), cmocka_unit_test(test_each_step_is_taken),
        cmocka_unit_test(test_first_it_is_made),           cmocka_unit_test(test_what_leaves_goes),
        cmocka_unit_test(test_granted_when_it_is_open),    cmocka_unit_test(test_whoever_asked_is_answered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
