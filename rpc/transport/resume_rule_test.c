/* Tests of the rule that says whether a session can go on, case by case. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "rpc/transport/resume_rule.h"

static void test_the_rule(void **state)
{
    static const struct {
        const char *name, *word; /* word: of the obstacle; NULL: it goes on behind `after` */
        struct flyt_resume_state state;
        uint64_t after;
    } cases[] = {
        {"nothing was ever called", NULL, {.awaited = UINT64_MAX}, 0},
        {"all is complete", NULL, {.complete = 9, .written = 9, .gone = 4, .awaited = UINT64_MAX}, 9},
        {"the last one is not", "not complete", {.complete = 8, .written = 9, .awaited = UINT64_MAX}, 0},
        {"nothing is known", "not complete", {.complete = 0, .written = 1, .awaited = UINT64_MAX}, 0},
        {"told more than was sent", NULL, {.complete = 12, .written = 9, .awaited = UINT64_MAX}, 9},
        {"told more than was sent, and waited for", "answered", {.complete = 12, .written = 9, .awaited = 9}, 0},
        {"complete, not answered", "answered", {.complete = 9, .written = 9, .awaited = 5}, 0},
        {"the last one is not answered", "answered", {.complete = 9, .written = 9, .awaited = 9}, 0},
        {"waited for, not written", NULL, {.complete = 9, .written = 9, .awaited = 10}, 9},
        {"a question", "question", {.complete = 9, .written = 9, .awaited = UINT64_MAX, .plain_awaited = 1}, 0},
        {"a transfer", "transfer", {.complete = 9, .written = 9, .awaited = UINT64_MAX, .transfer_count = 1}, 0},
        {"half a message", "cut off", {.complete = 9, .written = 9, .awaited = UINT64_MAX, .is_torn = true}, 0},
        {"gone is what is complete", NULL, {.complete = 9, .written = 9, .gone = 9, .awaited = UINT64_MAX}, 9},
        {"moved", NULL, {.complete = 5, .written = 9, .awaited = UINT64_MAX, .is_moved = true}, 5},
        {"moved, waited for above", NULL, {.complete = 5, .written = 9, .awaited = 6, .is_moved = true}, 5},
        {"moved, not answered", "answered", {.complete = 5, .written = 9, .awaited = 5, .is_moved = true}, 0},
        {"moved, gone", "kept", {.complete = 5, .written = 9, .gone = 6, .awaited = UINT64_MAX, .is_moved = true}, 0},
        {"moved, just kept", NULL, {.complete = 5, .written = 9, .gone = 5, .awaited = 9, .is_moved = true}, 5},
        {"moved, a transfer",
         "transfer",
         {.complete = 5, .written = 9, .awaited = 7, .transfer_count = 2, .is_moved = true},
         0},
        {"moved, a question",
         "question",
         {.complete = 5, .written = 9, .awaited = 7, .plain_awaited = 1, .is_moved = true},
         0},
        {"moved behind what was sent", NULL, {.complete = 20, .written = 9, .awaited = 10, .is_moved = true}, 9},
        {"moved at the start", NULL, {.complete = 0, .written = 9, .awaited = 1, .is_moved = true}, 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t after = 12345;
        const char *obstacle = flyt_resume_obstacle(&cases[i].state, &after);
        if (!cases[i].word != !obstacle || (obstacle && !strstr(obstacle, cases[i].word)))
            fail_msg("%s: %s", cases[i].name, obstacle ? obstacle : "goes on");
        assert_int_equal(after, obstacle ? 12345 : cases[i].after);
    }
}

static void test_the_rule_with_a_record(void **state)
{
    static const struct {
        const char *name, *word;
        struct flyt_resume_state state;
        struct flyt_call_state record;
        uint64_t last_fixed, after;
    } cases[] = {
        {"nothing was ever begun", NULL, {.written = 3, .awaited = UINT64_MAX}, {0}, 0, 0},
        {"on their way", NULL, {.complete = 2, .written = 9, .awaited = 9}, {5, 5, 5, 0}, 5, 5},
        {"all executed", NULL, {.complete = 2, .written = 9, .awaited = UINT64_MAX}, {9, 9, 9, 0}, 9, 9},
        {"the GPU works", "not complete", {.written = 9, .awaited = UINT64_MAX}, {9, 9, 8, 0}, 9, 0},
        {"the GPU has not done the last but what is behind it",
         "not complete",
         {.written = 9, .awaited = 9},
         {8, 8, 7, 0},
         8,
         0},
        {"one was begun", "being executed", {.written = 9, .awaited = UINT64_MAX}, {6, 5, 5, 0}, 6, 0},
        {"one was begun that may be repeated", NULL, {.written = 9, .awaited = 6}, {6, 5, 5, 0}, 5, 5},
        {"one of two that were begun may not", "being executed", {.written = 9, .awaited = 7}, {7, 5, 5, 0}, 6, 0},
        {"executed, not answered", "not answered", {.written = 9, .awaited = 6}, {6, 6, 6, 0}, 6, 0},
        {"executed, not answered, may be repeated", NULL, {.written = 9, .awaited = 6}, {6, 6, 6, 0}, 5, 5},
        {"and so may all behind it", NULL, {.written = 9, .awaited = 6}, {8, 8, 8, 0}, 5, 5},
        {"not the one behind it", "not answered", {.written = 9, .awaited = 6}, {7, 7, 7, 0}, 7, 0},
        {"its work was not complete, that before it was", NULL, {.written = 9, .awaited = 6}, {6, 6, 5, 0}, 5, 5},
        {"an error on its way", "error", {.written = 9, .awaited = UINT64_MAX, .error_count = 1}, {9, 9, 9, 2}, 9, 0},
        {"an error that has come", NULL, {.written = 9, .awaited = UINT64_MAX, .error_count = 2}, {9, 9, 9, 2}, 9, 9},
        {"a question", "question", {.written = 9, .awaited = 9, .plain_awaited = 1}, {5, 5, 5, 0}, 5, 0},
        {"a transfer", "transfer", {.written = 9, .awaited = 9, .transfer_count = 1}, {5, 5, 5, 0}, 5, 0},
        {"half a message", "cut off", {.written = 9, .awaited = 9, .is_torn = true}, {5, 5, 5, 0}, 5, 0},
        {"no longer kept", "kept", {.written = 9, .awaited = 9, .gone = 6}, {5, 5, 5, 0}, 5, 0},
        {"just kept", NULL, {.written = 9, .awaited = 9, .gone = 5}, {5, 5, 5, 0}, 5, 5},
        {"told more than was sent", NULL, {.written = 4, .awaited = UINT64_MAX}, {5, 5, 5, 0}, 4, 4},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t after = 12345;
        const char *obstacle =
            flyt_resume_obstacle_of_record(&cases[i].state, &cases[i].record, cases[i].last_fixed, &after);
        if (!cases[i].word != !obstacle || (obstacle && !strstr(obstacle, cases[i].word)))
            fail_msg("%s: %s", cases[i].name, obstacle ? obstacle : "goes on");
        assert_int_equal(after, obstacle ? 12345 : cases[i].after);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_the_rule), cmocka_unit_test(test_the_rule_with_a_record)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
