/* Tests of checkpoint_op.c's table: whatever is seen of a checkpoint or a restore. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "control/cluster/model/checkpoint_op.h"

enum { BITS = 10 };

/* What must be seen for a step, and what must not. */
static const struct {
    enum flyt_checkpoint_op_step step;
    unsigned all, none;
} needs[] = {
    {FLYT_SAVING_REFUSE_OLD, FLYT_SAVING_IS_ANSWERED | FLYT_SAVING_IS_OLD, FLYT_SAVING_IS_BEGUN},
    {FLYT_SAVING_REFUSE, FLYT_SAVING_IS_ANSWERED | FLYT_SAVING_IS_REFUSED, FLYT_SAVING_IS_BEGUN},
    {FLYT_SAVING_BEGIN, FLYT_SAVING_IS_ANSWERED, FLYT_SAVING_IS_BEGUN | FLYT_SAVING_IS_REFUSED | FLYT_SAVING_IS_OLD},
    {FLYT_SAVING_ASK, FLYT_SAVING_IS_BEGUN | FLYT_SAVING_IS_DUE, FLYT_SAVING_IS_ASKING | FLYT_SAVING_IS_GIVEN_UP},
    {FLYT_SAVING_END, FLYT_SAVING_IS_BEGUN | FLYT_SAVING_IS_DONE, 0},
    {FLYT_SAVING_FAIL, FLYT_SAVING_IS_BEGUN | FLYT_SAVING_HAS_FAILED, FLYT_SAVING_IS_DONE},
    {FLYT_SAVING_FAIL_OLD, FLYT_SAVING_IS_BEGUN | FLYT_SAVING_IS_ANSWERED | FLYT_SAVING_IS_OLD, FLYT_SAVING_IS_DONE},
    {FLYT_SAVING_FAIL_FORGOTTEN, FLYT_SAVING_IS_BEGUN | FLYT_SAVING_IS_ANSWERED | FLYT_SAVING_IS_FORGOTTEN,
     FLYT_SAVING_IS_DONE},
    {FLYT_SAVING_FAIL_GIVEN_UP, FLYT_SAVING_IS_BEGUN | FLYT_SAVING_IS_GIVEN_UP, FLYT_SAVING_IS_DONE},
};

static void test_nothing_without_its_reason(void **state)
{
    unsigned taken = 0;

    for (unsigned seen = 0; seen < 1u << BITS; seen++) {
        enum flyt_checkpoint_op_step step = flyt_checkpoint_op_next(seen);
        taken |= 1u << step;
        for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
            if (needs[i].step == step) {
                assert_int_equal(seen & needs[i].all, needs[i].all);
                assert_int_equal(seen & needs[i].none, 0);
            }
    }
    assert_int_equal(taken, (1u << (FLYT_SAVING_FAIL_GIVEN_UP + 1)) - 1);
}

/* One whose node does not answer is asked again, or given up with it. */
static void test_everything_goes_on(void **state)
{
    for (unsigned seen = 0; seen < 1u << BITS; seen++) {
        bool waits = seen & FLYT_SAVING_IS_ASKING || !(seen & (FLYT_SAVING_IS_BEGUN | FLYT_SAVING_IS_ANSWERED));
        if (seen & FLYT_SAVING_IS_DUE && !waits)
            assert_int_not_equal(flyt_checkpoint_op_next(seen), FLYT_SAVING_WAIT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nothing_without_its_reason),
                                       cmocka_unit_test(test_everything_goes_on)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
