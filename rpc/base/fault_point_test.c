/* Tests of the points at which tests let a process fail. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "rpc/base/fault_point.h"

/* What a new process makes of the variable, read as any process reads it: it passes two points. Returns how it ended
 * (waitpid), with status 0 to 3: bit 0: the first one failed, bit 1: the second one. */
static int pass_in_child(const char *variable)
{
    int status = -1;

    pid_t pid = fork();
    if (pid == 0) {
        if (variable)
            setenv(FLYT_FAULT_VARIABLE, variable, 1);
        else
            unsetenv(FLYT_FAULT_VARIABLE);
        int first = flyt_fault_point("a.first") == FLYT_FAULT_ERROR;
        int second = flyt_fault_point("a.second") == FLYT_FAULT_ERROR;
        _exit(first | second << 1);
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static int exited(int code)
{
    return code << 8;
}

/* Before anything is set in this process: children read the variable. */
static void test_the_variable(void **state)
{
    assert_int_equal(pass_in_child(NULL), exited(0));
    assert_int_equal(pass_in_child(""), exited(0));
    assert_int_equal(pass_in_child("a.first:error"), exited(1));
    assert_int_equal(pass_in_child("a.second:error,a.third:kill"), exited(2));
    assert_int_equal(pass_in_child("a.first:error,a.second:error:1"), exited(3));
    assert_int_equal(pass_in_child("a.first:error:2,a.second:error:2"), exited(0));
    int status = pass_in_child("a.second:kill");
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(pass_in_child("a.second:kill:2"), exited(0));
    assert_int_equal(pass_in_child("a.first:error,nonsense"), exited(0));
}

/* It goes no further: it never says so, though it would at once. */
static void test_hanging(void **state)
{
    int ends[2];
    char byte = 0;

    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        setenv(FLYT_FAULT_VARIABLE, "a.first:hang", 1);
        if (write(ends[1], "1", 1) != 1)
            _exit(1);
        flyt_fault_point("a.first");
        if (write(ends[1], "2", 1) != 1)
            _exit(1);
        _exit(0);
    }
    assert_true(pid > 0);
    close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    usleep(100000); /* the longer, the likelier that one that does not hang is found out */
    assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(read(ends[0], &byte, 1), 0);
    close(ends[0]);
}

static void test_counts(void **state)
{
    assert_int_equal(flyt_fault_set("x:error:3,y:error"), 0);
    assert_int_equal(flyt_fault_point("x"), FLYT_FAULT_NONE);
    assert_int_equal(flyt_fault_point("x"), FLYT_FAULT_NONE);
    assert_int_equal(flyt_fault_point("xy"), FLYT_FAULT_NONE);
    assert_int_equal(flyt_fault_point("x"), FLYT_FAULT_ERROR);
    assert_int_equal(flyt_fault_point("x"), FLYT_FAULT_NONE);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(flyt_fault_point("y"), FLYT_FAULT_ERROR);
    assert_int_equal(flyt_fault_set("x:error:1"), 0);
    assert_int_equal(flyt_fault_point("y"), FLYT_FAULT_NONE);
    assert_int_equal(flyt_fault_point("x"), FLYT_FAULT_ERROR);
    assert_int_equal(flyt_fault_set(NULL), 0);
    assert_int_equal(flyt_fault_point("x"), FLYT_FAULT_NONE);
}

static void test_what_is_no_list(void **state)
{
    static const char *const bad[] = {"x",
                                      "x:",
                                      ":error",
                                      "x:erro",
                                      "x:error:",
                                      "x:error:0",
                                      "x:error:-1",
                                      "x:error:1a",
                                      "x:error:1:1",
                                      "x:error,",
                                      ",x:error",
                                      "x:error,,y:error",
                                      "x:none",
                                      "x:error y:error",
                                      "x:error:99999999999999999999999"};
    char longest[FLYT_FAULT_NAME_BYTES_MAX + 16], many[FLYT_FAULT_POINTS_MAX * 8 + 32] = "";

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(flyt_fault_set("x:error"), 0);
        if (flyt_fault_set(bad[i]) != -EINVAL)
            fail_msg("%s: taken", bad[i]);
        assert_int_equal(flyt_fault_point("x"), FLYT_FAULT_NONE);
    }
    memset(longest, 'n', sizeof longest);
    strcpy(longest + FLYT_FAULT_NAME_BYTES_MAX, ":error");
    assert_int_equal(flyt_fault_set(longest), 0);
    memset(longest, 'n', sizeof longest);
    strcpy(longest + FLYT_FAULT_NAME_BYTES_MAX + 1, ":error");
    assert_int_equal(flyt_fault_set(longest), -EINVAL);
    for (unsigned i = 0; i < FLYT_FAULT_POINTS_MAX; i++)
        strcat(many, i ? ",x:error" : "x:error");
    assert_int_equal(flyt_fault_set(many), 0);
    strcat(many, ",x:error");
    assert_int_equal(flyt_fault_set(many), -EINVAL);
    assert_int_equal(flyt_fault_set(NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_variable),
        cmocka_unit_test(test_hanging),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_what_is_no_list),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
