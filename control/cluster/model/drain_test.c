/* Tests of drain.c's table: whatever is seen, in every state. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "control/cluster/model/drain.h"

enum { BITS = 5 };

static void test_each_answer_has_its_reason(void **state)
{
    enum flyt_drain_state next;
    unsigned taken = 0;

    for (unsigned at = FLYT_DRAIN_WAITING; at <= FLYT_DRAIN_OVER; at++)
        for (unsigned seen = 0; seen < 1u << BITS; seen++) {
            enum flyt_drain_step step = flyt_drain_next((enum flyt_drain_state)at, seen, &next);
            taken |= 1u << step;
            assert_true(next >= at);
            assert_int_equal(next == FLYT_DRAIN_OVER, at == FLYT_DRAIN_OVER || step >= FLYT_DRAIN_SAY_DONE);
            if (step == FLYT_DRAIN_SAY_DONE)
                assert_true(seen & FLYT_DRAIN_IS_EMPTY);
            if (step == FLYT_DRAIN_SAY_PROGRAMS)
                assert_false(seen & FLYT_DRAIN_IS_EMPTY);
            if (step == FLYT_DRAIN_TELL_KILLED)
                assert_true(at == FLYT_DRAIN_ASKING && seen & FLYT_DRAIN_KILLS && !(seen & FLYT_DRAIN_IS_REFUSED));
            if (step == FLYT_DRAIN_SAY_UNKNOWN)
                assert_true(at == FLYT_DRAIN_ASKING && seen & FLYT_DRAIN_IS_REFUSED);
        }
    assert_int_equal(taken, (1u << (FLYT_DRAIN_SAY_UNKNOWN + 1)) - 1);
}

/* Its time being over and the node having answered, nobody waits on. */
static void test_everything_ends(void **state)
{
    const unsigned over = FLYT_DRAIN_IS_LATE | FLYT_DRAIN_IS_ANSWERED;

    for (unsigned seen = over; seen < 1u << BITS; seen++) {
        enum flyt_drain_state at = FLYT_DRAIN_WAITING;
        for (unsigned i = 0; (seen & over) == over && i < FLYT_DRAIN_OVER; i++)
            flyt_drain_next(at, seen, &at);
        assert_true((seen & over) != over || at == FLYT_DRAIN_OVER);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_answer_has_its_reason),
                                       cmocka_unit_test(test_everything_ends)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
