/* When a move will be through: rounds by hand, and whole moves that are played through. */
#include "control/flytctl/move_estimate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define MIB 1048576.0
#define GIB (1024 * MIB)

static void is_near(double value, double expected, double share)
{
    if (value < expected * (1 - share) || value > expected * (1 + share))
        fail_msg("%f, not %f", value, expected);
}

static void test_nothing_is_known(void **state)
{
    struct flyt_move_pace pace = {0};
    struct flyt_move_figures figures = {.memory_bytes = 4 * GIB, .left_bytes = 4 * GIB, .bytes_per_s = GIB};

    flyt_move_pace_note(&pace, &figures);
    assert_int_equal(flyt_move_estimate(&pace, &figures).end, FLYT_MOVE_UNKNOWN);
    figures.round = 1;
    flyt_move_pace_note(&pace, &figures);
    assert_int_equal(flyt_move_estimate(&pace, &figures).end, FLYT_MOVE_AT_LEAST);
    is_near(flyt_move_estimate(&pace, &figures).ms, 4000, 1e-9);
    figures.bytes_per_s = 0;
    assert_int_equal(flyt_move_estimate(&pace, &figures).end, FLYT_MOVE_UNKNOWN);
}

/* 4 GiB in 4 s, in which 1 GiB has changed: rounds of 1, 1/4, 1/16 GiB, which is no more than 64 MiB, and 1/64. */
static void test_it_gets_less(void **state)
{
    struct flyt_move_pace pace = {0};
    struct flyt_move_figures figures = {
        .round = 1, .memory_bytes = 4 * GIB, .left_bytes = 4 * GIB, .bytes_per_s = GIB, .elapsed_ms = 500};

    flyt_move_pace_note(&pace, &figures);
    figures = (struct flyt_move_figures){.round = 2,
                                         .memory_bytes = 4 * GIB,
                                         .copied_bytes = 4 * GIB,
                                         .dirty_bytes = GIB,
                                         .left_bytes = GIB,
                                         .bytes_per_s = GIB,
                                         .elapsed_ms = 4500};
    flyt_move_pace_note(&pace, &figures);
    struct flyt_move_estimate estimate = flyt_move_estimate(&pace, &figures);
    assert_int_equal(estimate.end, FLYT_MOVE_ABOUT);
    is_near(estimate.ms, 1000 + 250 + 62.5 + 15.625, 1e-9);
    /* In the middle of that round; who comes only now finds the same. */
    figures.left_bytes = GIB / 2;
    figures.copied_bytes += GIB / 2;
    figures.elapsed_ms += 500;
    flyt_move_pace_note(&pace, &figures);
    is_near(flyt_move_estimate(&pace, &figures).ms, 500 + 250 + 62.5 + 15.625, 1e-9);
    is_near(flyt_move_estimate(&(struct flyt_move_pace){0}, &figures).ms, 500 + 250 + 62.5 + 15.625, 1e-9);
    /* The bounds count: one round more, and what has changed in it. */
    figures.rounds_max = 3;
    estimate = flyt_move_estimate(&pace, &figures);
    assert_int_equal(estimate.end, FLYT_MOVE_BY_ROUNDS);
    is_near(estimate.ms, 500 + 250 + 62.5, 1e-9);
    figures.rest_bytes = 2 * GIB;
    estimate = flyt_move_estimate(&pace, &figures);
    assert_int_equal(estimate.end, FLYT_MOVE_ABOUT);
    is_near(estimate.ms, 500 + 250, 1e-9);
}

/* More changes than is copied: never more than there is, ten rounds by default, and once more with the programs
 * stopped. */
static void test_it_gets_no_less(void **state)
{
    struct flyt_move_pace pace = {.round = 2, .count = 1, .dirty_bytes_per_s = {3 * GIB}};
    const struct flyt_move_figures figures = {
        .round = 2, .memory_bytes = 4 * GIB, .dirty_bytes = 4 * GIB, .left_bytes = 2 * GIB, .bytes_per_s = GIB};
    struct flyt_move_estimate estimate = flyt_move_estimate(&pace, &figures);

    assert_int_equal(estimate.end, FLYT_MOVE_BY_ROUNDS);
    is_near(estimate.ms, 2000 + 8 * 4000 + 4000, 1e-9);
}

/* The rate is that of the last two rounds; rounds that were too short to be seen share the time. */
static void test_rates(void **state)
{
    struct flyt_move_pace pace = {0};
    struct flyt_move_figures figures = {.round = 1, .elapsed_ms = 0};

    flyt_move_pace_note(&pace, &figures);
    assert_int_equal(pace.count, 0);
    figures = (struct flyt_move_figures){.round = 2, .dirty_bytes = 100, .elapsed_ms = 1000};
    flyt_move_pace_note(&pace, &figures);
    flyt_move_pace_note(&pace, &figures);
    assert_int_equal(pace.count, 1);
    is_near(pace.dirty_bytes_per_s[0], 100, 1e-9);
    figures = (struct flyt_move_figures){.round = 4, .dirty_bytes = 100, .elapsed_ms = 2000};
    flyt_move_pace_note(&pace, &figures);
    is_near(pace.dirty_bytes_per_s[0], 200, 1e-9);
    is_near(pace.dirty_bytes_per_s[1], 100, 1e-9);
    figures = (struct flyt_move_figures){.round = 5, .dirty_bytes = 100, .elapsed_ms = 2250};
    flyt_move_pace_note(&pace, &figures);
    assert_int_equal(pace.count, 2);
    is_near(pace.dirty_bytes_per_s[0], 400, 1e-9);
    is_near(pace.dirty_bytes_per_s[1], 200, 1e-9);
    /* It has been begun anew. */
    figures = (struct flyt_move_figures){.round = 1, .elapsed_ms = 5000};
    flyt_move_pace_note(&pace, &figures);
    assert_int_equal(pace.round, 1);
    is_near(pace.round_ms, 5000, 1e-9);
}

/* Moves of all kinds, in steps of 10 ms, as the copying goes: what is said in the second round comes true. */
static void play(double memory_bytes, double per_s, double dirty_per_s, unsigned rounds_max)
{
    const double step_ms = 10, rest_bytes = 48 * MIB;
    struct flyt_move_figures figures = {.round = 1,
                                        .rounds_max = rounds_max,
                                        .memory_bytes = memory_bytes,
                                        .dirty_bytes = memory_bytes,
                                        .left_bytes = memory_bytes,
                                        .rest_bytes = rest_bytes,
                                        .bytes_per_s = per_s};
    struct flyt_move_pace pace = {0};
    struct flyt_move_estimate said = {0};
    double changed = 0, said_at_ms = 0;
    bool is_last = false;

    for (;;) {
        flyt_move_pace_note(&pace, &figures);
        if (figures.round == 2 && !said.end) {
            said = flyt_move_estimate(&pace, &figures);
            said_at_ms = figures.elapsed_ms;
        }
        double copied = per_s * step_ms / 1000;
        figures.elapsed_ms += step_ms;
        figures.copied_bytes += copied;
        figures.left_bytes -= copied;
        if (!is_last && (changed += dirty_per_s * step_ms / 1000) > memory_bytes)
            changed = memory_bytes;
        if (figures.left_bytes > 0)
            continue;
        if (is_last)
            break;
        is_last = figures.dirty_bytes <= rest_bytes || figures.round >= rounds_max;
        assert_true(!is_last || figures.round < 2 ||
                    said.end == (figures.dirty_bytes <= rest_bytes ? FLYT_MOVE_ABOUT : FLYT_MOVE_BY_ROUNDS));
        figures.round += !is_last;
        figures.dirty_bytes = figures.left_bytes = changed;
        changed = 0;
    }
    is_near(said.ms, figures.elapsed_ms - said_at_ms, 0.1);
}

static void test_it_comes_true(void **state)
{
    for (unsigned rounds_max = 3; rounds_max < 30; rounds_max += 5) {
        play(16 * GIB, GIB, 0.2 * GIB, rounds_max);
        play(16 * GIB, GIB, 0.5 * GIB, rounds_max);
        play(16 * GIB, 2 * GIB, 0.8 * GIB, rounds_max);
        play(8 * GIB, GIB, 3 * GIB, rounds_max);
        play(8 * GIB, GIB, GIB, rounds_max);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_known), cmocka_unit_test(test_it_gets_less),
        cmocka_unit_test(test_it_gets_no_less),  cmocka_unit_test(test_rates),
        cmocka_unit_test(test_it_comes_true),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
