/* Tests of migration_rules.c: what a node's word means. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "control/cluster/migration_rules.h"

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

static void test_names(void **state)
{
    assert_string_equal(flyt_migration_phase_name(FLYT_MIGRATION_PREPARING), "preparing");
    assert_string_equal(flyt_migration_phase_name(FLYT_MIGRATION_SWITCHING), "switching");
    assert_string_equal(flyt_migration_phase_name(FLYT_MIGRATION_FAILED), "failed");
    assert_string_equal(flyt_migration_phase_name((flyt_migration_phase)0), "unknown");
    assert_string_equal(flyt_migration_phase_name((flyt_migration_phase)7), "unknown");
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
        cmocka_unit_test(test_judge),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_figures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
