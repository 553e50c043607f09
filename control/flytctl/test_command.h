/*
 * For tests of flytctl's commands: one manager with canned answers (test_server.h) for all tests of a program, and the
 * outcome of the command that was run last. Functions fail the running test where something is not as it should be.
 */
#ifndef FLYT_FLYTCTL_TEST_COMMAND_H
#define FLYT_FLYTCTL_TEST_COMMAND_H

#include <cjson/cJSON.h>
#include <string.h>

#include "control/flytctl/test_server.h"

extern struct test_server server;
extern struct test_result result;

/* The group's set-up and tear-down: the server is there meanwhile, and no environment names another one. */
int test_command_begin_all(void **state);
int test_command_end_all(void **state);
/* A test's set-up: nothing has been asked, and nobody interrupts. */
int test_command_begin(void **state);

/* As test_run, with `server` and `result`. */
void test_command_run(unsigned columns, const char *typed, const char *const *words);
/* Of the command that was run last, checked in this line. */
void test_command_expect_status(int expected, int line);
/* What it has printed, which is JSON; the caller's. */
cJSON *test_command_output(void);

#define RUN(...)                 test_command_run(0, NULL, (const char *const[]){__VA_ARGS__, NULL})
#define RUN_ON_TERMINAL(...)     test_command_run(80, NULL, (const char *const[]){__VA_ARGS__, NULL})
#define EXPECT_STATUS(expected_) test_command_expect_status(expected_, __LINE__)
#define EXPECT_IN(text_, part_)                                                                                        \
    do {                                                                                                               \
        if (!strstr(text_, part_))                                                                                     \
            fail_msg("'%s' is not in: %s", part_, text_);                                                              \
    } while (0)

#endif
