/* Tests of migration_rules.c: what a node's word means. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "control/cluster/model/migration_rules.h"

static void test_judge(void **state)
{
    for (int is_there = 0; is_there < 2; is_there++) {
        for (flyt_migration_phase phase = FLYT_MIGRATION_PREPARING; phase <= FLYT_MIGRATION_SWITCHING; phase++)
            assert_int_equal(flyt_migration_judge(FLYT_STATUS_OK, phase, is_there), FLYT_MIGRATION_GOES_ON);
        assert_int_equal(flyt_migration_judge(FLYT_STATUS_OK, FLYT_MIGRATION_DONE, is_there), FLYT_MIGRATION_HAS_MOVED);
        assert_int_equal(flyt_migration_judge(FLYT_STATUS_OK, FLYT_MIGRATION_FAILED, is_there),
                         FLYT_MIGRATION_HAS_STAYED);
        /* It cannot say: neither its phase nor where the allocation was registered decides. */
        for (flyt_status status = FLYT_STATUS_INVALID; status <= FLYT_STATUS_HELD; status++)
            if (status != FLYT_STATUS_NOT_FOUND)
                assert_int_equal(flyt_migration_judge(status, FLYT_MIGRATION_DONE, is_there), FLYT_MIGRATION_UNKNOWN);
    }
    assert_int_equal(flyt_migration_judge(FLYT_STATUS_NOT_FOUND, FLYT_MIGRATION_PREPARING, true),
                     FLYT_MIGRATION_HAS_MOVED);
    assert_int_equal(flyt_migration_judge(FLYT_STATUS_NOT_FOUND, FLYT_MIGRATION_DONE, false),
                     FLYT_MIGRATION_HAS_STAYED);
}

static void test_standing(void **state)
{
    static const enum flyt_migration_standing of_phase[] = {
        [FLYT_MIGRATION_PREPARING] = FLYT_STANDING_COPYING,  [FLYT_MIGRATION_COPYING] = FLYT_STANDING_COPYING,
        [FLYT_MIGRATION_STOPPING] = FLYT_STANDING_COPYING,   [FLYT_MIGRATION_ARRIVED] = FLYT_STANDING_ARRIVED,
        [FLYT_MIGRATION_SWITCHING] = FLYT_STANDING_SWITCHED, [FLYT_MIGRATION_DONE] = FLYT_STANDING_DONE,
        [FLYT_MIGRATION_FAILED] = FLYT_STANDING_FAILED,
    };

    for (flyt_migration_phase phase = FLYT_MIGRATION_PREPARING; phase <= FLYT_MIGRATION_ARRIVED; phase++)
        for (int has_it = 0; has_it < 2; has_it++) {
            assert_int_equal(flyt_migration_standing_of(FLYT_STATUS_OK, phase, has_it), of_phase[phase]);
            assert_int_equal(flyt_migration_standing_of(FLYT_STATUS_UNAVAILABLE, phase, has_it), FLYT_STANDING_UNKNOWN);
            assert_int_equal(flyt_migration_standing_of(FLYT_STATUS_NOT_FOUND, phase, has_it),
                             has_it ? FLYT_STANDING_DONE : FLYT_STANDING_ABSENT);
        }
}

enum { U, A, C, R, S, D, F, STANDINGS }; /* unknown, absent, copying, arrived, switched, done, failed */

static enum flyt_migration_step next(bool is_committed, bool is_cancelled, int source, int target)
{
    return flyt_migration_next(is_committed, is_cancelled, (enum flyt_migration_standing)source,
                               (enum flyt_migration_standing)target, true);
}

/* The good way, and what is next where either side says otherwise. */
static void test_next(void **state)
{
    assert_int_equal(next(false, false, C, C), FLYT_STEP_WAIT);
    assert_int_equal(next(false, false, R, C), FLYT_STEP_SWITCH_TARGET); /* it answers when it has them all */
    assert_int_equal(next(false, false, R, R), FLYT_STEP_SWITCH_TARGET);
    assert_int_equal(next(false, false, R, S), FLYT_STEP_COMMIT);
    assert_int_equal(next(true, false, R, S), FLYT_STEP_SWITCH_SOURCE);
    assert_int_equal(next(true, false, S, S), FLYT_STEP_WAIT);
    assert_int_equal(next(true, false, S, D), FLYT_STEP_FINISH);
    /* It fails before it is recorded. */
    assert_int_equal(next(false, true, C, C), FLYT_STEP_CANCEL_SOURCE);
    assert_int_equal(next(false, true, R, S), FLYT_STEP_CANCEL_SOURCE);
    assert_int_equal(next(false, false, C, F), FLYT_STEP_CANCEL_SOURCE);
    assert_int_equal(next(false, false, R, A), FLYT_STEP_CANCEL_SOURCE);
    assert_int_equal(next(false, false, F, C), FLYT_STEP_CANCEL_TARGET);
    assert_int_equal(next(false, false, A, S), FLYT_STEP_CANCEL_TARGET);
    assert_int_equal(next(false, true, F, F), FLYT_STEP_END);
    assert_int_equal(next(false, false, A, A), FLYT_STEP_END);
    /* Afterwards. */
    assert_int_equal(next(true, true, F, S), FLYT_STEP_CANCEL_TARGET);
    assert_int_equal(next(true, false, S, F), FLYT_STEP_UNDO);
    assert_int_equal(next(true, false, R, A), FLYT_STEP_UNDO);
    assert_int_equal(next(false, true, S, F), FLYT_STEP_SEND_BACK);
    assert_int_equal(next(false, true, S, S), FLYT_STEP_CANCEL_TARGET);
    assert_int_equal(next(false, true, S, D), FLYT_STEP_COMMIT); /* it has the programs all the same */
    /* A target that is away is not asked: it is told when it is back, and what it may have stays charged until then. */
    assert_int_equal(flyt_migration_next(false, true, FLYT_STANDING_FAILED, FLYT_STANDING_COPYING, false),
                     FLYT_STEP_WITHDRAW);
    assert_int_equal(flyt_migration_next(false, true, FLYT_STANDING_FAILED, FLYT_STANDING_FAILED, false),
                     FLYT_STEP_END);
    assert_int_equal(flyt_migration_next(false, true, FLYT_STANDING_SWITCHED, FLYT_STANDING_SWITCHED, false),
                     FLYT_STEP_WAIT);
}

/* What must hold whatever both say. */
static void test_next_never(void **state)
{
    for (int flags = 0; flags < 8; flags++)
        for (int source = U; source < STANDINGS; source++)
            for (int target = U; target < STANDINGS; target++) {
                bool is_committed = flags & 1, is_cancelled = flags & 2;
                enum flyt_migration_step step =
                    flyt_migration_next(is_committed, is_cancelled, (enum flyt_migration_standing)source,
                                        (enum flyt_migration_standing)target, flags & 4);
                /* Programs leave only when it is recorded where they go, and the target lets them in. */
                if (step == FLYT_STEP_SWITCH_SOURCE)
                    assert_true(is_committed && source == R && target == S);
                /* Nothing is freed at the source before they go on at the target. */
                if (step == FLYT_STEP_FINISH)
                    assert_true(is_committed && target == D);
                /* A target that has them keeps them. */
                if (target == D)
                    assert_true(step == FLYT_STEP_FINISH || step == FLYT_STEP_COMMIT);
                /* They are let in at the source again only when the target has given up. */
                if (step == FLYT_STEP_SEND_BACK || step == FLYT_STEP_UNDO)
                    assert_true(target == F || target == A);
                /* It is not over while either may have something of it that it is to give up. */
                if (step == FLYT_STEP_END)
                    assert_true(!is_committed && (source == F || source == A) && (target == F || target == A));
                /* The source has its programs when the target is not waited for. */
                if (step == FLYT_STEP_WITHDRAW)
                    assert_true(!is_committed && (source == F || source == A) && !(flags & 4));
                if (source == U && !is_committed && target != D)
                    assert_int_equal(step, FLYT_STEP_WAIT);
            }
}

static void test_names(void **state)
{
    assert_string_equal(flyt_migration_phase_name(FLYT_MIGRATION_PREPARING), "preparing");
    assert_string_equal(flyt_migration_phase_name(FLYT_MIGRATION_SWITCHING), "switching");
    assert_string_equal(flyt_migration_phase_name(FLYT_MIGRATION_FAILED), "failed");
    assert_string_equal(flyt_migration_phase_name(FLYT_MIGRATION_ARRIVED), "arrived");
    assert_string_equal(flyt_migration_phase_name((flyt_migration_phase)0), "unknown");
    assert_string_equal(flyt_migration_phase_name((flyt_migration_phase)8), "unknown");
}

static void test_figures(void **state)
{
    const flyt_migration_use use = {.session_count = 2,
                                    .round = 3,
                                    .memory_bytes = 4ull << 30,
                                    .copied_bytes = 6ull << 30,
                                    .elapsed_ms = 2500,
                                    .standstill_us = 41500,
                                    .last_bytes = 3 << 20};
    char text[256], cut[16];

    flyt_migration_figures(&use, text, sizeof text);
    assert_string_equal(text,
                        "2 programs with 4 GiB, 6 GiB copied in 3 rounds and 2.5 s; they stood still for 41.5 ms, "
                        "while 3 MiB were copied");
    flyt_migration_figures(&use, cut, sizeof cut);
    assert_string_equal(cut, "2 programs with");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_judge),      cmocka_unit_test(test_standing), cmocka_unit_test(test_next),
        cmocka_unit_test(test_next_never), cmocka_unit_test(test_names),    cmocka_unit_test(test_figures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
