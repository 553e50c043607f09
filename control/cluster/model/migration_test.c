/* Tests of migration.c's tables: whatever is seen of a migration, in every state. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "control/cluster/model/migration.h"

enum { BITS = 8 };

/* In which states a step may be, and what must be seen then. */
static const struct {
    enum flyt_move_step step;
    unsigned states, all;
} needs[] = {
    {FLYT_MOVE_BEGIN, 1 << FLYT_MOVE_RECORDING, FLYT_MOVE_IS_WRITTEN},
    {FLYT_MOVE_FAIL_UNRECORDED, 1 << FLYT_MOVE_RECORDING, FLYT_MOVE_HAS_FAILED},
    {FLYT_MOVE_FAIL_CANCELLED, 1 << FLYT_MOVE_RECORDED, FLYT_MOVE_IS_CANCELLED},
    {FLYT_MOVE_FAIL_LATE, 1 << FLYT_MOVE_RECORDED, FLYT_MOVE_IS_SILENT},
    {FLYT_MOVE_ORDER, 1 << FLYT_MOVE_RECORDED, FLYT_MOVE_IS_READY},
    {FLYT_MOVE_ASK, 1 << FLYT_MOVE_ORDERED, FLYT_MOVE_IS_SILENT},
    {FLYT_MOVE_WRITE, 1 << FLYT_MOVE_TO_TARGET | 1 << FLYT_MOVE_TO_SOURCE, FLYT_MOVE_HAS_FAILED | FLYT_MOVE_IS_DUE},
    /* The source is given up, and programs are told to leave it, by what the documents say only. */
    {FLYT_MOVE_END, 1 << FLYT_MOVE_TO_TARGET, FLYT_MOVE_IS_WRITTEN},
    {FLYT_MOVE_COMMIT, 1 << FLYT_MOVE_TO_TARGET, FLYT_MOVE_IS_WRITTEN | FLYT_MOVE_IS_BETWEEN},
    {FLYT_MOVE_RETURN, 1 << FLYT_MOVE_TO_SOURCE, FLYT_MOVE_IS_WRITTEN},
    {FLYT_MOVE_RESUME, 1 << FLYT_MOVE_WITHDRAWN, FLYT_MOVE_IS_BACK},
    {FLYT_MOVE_COMPARE, 1 << FLYT_MOVE_SENT | 1 << FLYT_MOVE_COMMITTED | 1 << FLYT_MOVE_LEFT, 0},
    {FLYT_MOVE_RELEASE, 1 << FLYT_MOVE_RELEASING, 0},
};

static void test_nothing_without_its_reason(void **state)
{
    unsigned taken = 0;

    for (unsigned at = FLYT_MOVE_RECORDING; at <= FLYT_MOVE_RELEASING; at++)
        for (unsigned seen = 0; seen < 1u << BITS; seen++) {
            enum flyt_move_step step = flyt_move_next((enum flyt_move_state)at, seen);
            taken |= 1u << step;
            for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
                if (needs[i].step == step) {
                    assert_true(needs[i].states >> at & 1);
                    assert_int_equal(seen & needs[i].all, needs[i].all);
                }
            if (step == FLYT_MOVE_END)
                assert_false(seen & FLYT_MOVE_IS_BETWEEN);
            /* One that is to fail is not ordered any more. */
            if (step == FLYT_MOVE_ORDER)
                assert_false(seen & FLYT_MOVE_IS_CANCELLED);
        }
    assert_int_equal(taken, (1u << (FLYT_MOVE_RELEASE + 1)) - 1);
}

/* No state is left for ever: not by a write that has ended, nor by a node that is silent. */
static void test_everything_goes_on(void **state)
{
    for (unsigned at = FLYT_MOVE_RECORDING; at <= FLYT_MOVE_RELEASING; at++)
        for (unsigned seen = 0; seen < 1u << BITS; seen++) {
            bool has_ended = seen & (FLYT_MOVE_IS_WRITTEN | FLYT_MOVE_HAS_FAILED) && seen & FLYT_MOVE_IS_DUE;
            bool waits_for_answer = at == FLYT_MOVE_ORDERED && seen & FLYT_MOVE_IS_BETWEEN;
            bool waits_for_node = at == FLYT_MOVE_WITHDRAWN && !(seen & FLYT_MOVE_IS_BACK);
            if (has_ended && seen & FLYT_MOVE_IS_SILENT && !waits_for_answer && !waits_for_node)
                assert_int_not_equal(flyt_move_next((enum flyt_move_state)at, seen), FLYT_MOVE_WAIT);
        }
}

/* The programs' way: where they are known to be may be told of once they are on the target, and not before. */
static void test_states(void **state)
{
    static const enum flyt_move_state way[] = {
        FLYT_MOVE_RECORDED,  FLYT_MOVE_ORDERED,   FLYT_MOVE_SENT,      FLYT_MOVE_WITHDRAWN, FLYT_MOVE_SENT,
        FLYT_MOVE_TO_TARGET, FLYT_MOVE_COMMITTED, FLYT_MOVE_TO_SOURCE, FLYT_MOVE_SENT,      FLYT_MOVE_TO_TARGET,
        FLYT_MOVE_COMMITTED, FLYT_MOVE_LEFT,      FLYT_MOVE_RELEASING,
    };
    struct flyt_migration migration = {.state = FLYT_MOVE_RECORDING, .is_between = true};

    for (size_t i = 0; i < sizeof way / sizeof *way; i++) {
        flyt_migration_set_state(&migration, way[i]);
        assert_int_equal(flyt_migration_is_moved(&migration), way[i] >= FLYT_MOVE_TO_TARGET);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_without_its_reason),
        cmocka_unit_test(test_everything_goes_on),
        cmocka_unit_test(test_states),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
