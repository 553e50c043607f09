/*
 * Tables of calls and of what NVIDIA's libraries answer: the base of the behaviour_* programs.
 *
 * A row is a call and the value that it returned natively: libcudart 13.0 and the driver 580 on an H200. The rows of a
 * group run in order in a process of their own, so that a group may end with a broken context and none disturbs
 * another. All rows are run even where one differs; every difference is printed, and the program then exits 1. So a row
 * whose native answer is not known can be written with a guess and corrected from one native run.
 *
 * Not among the rows: what only the machine decides, what CUDA leaves undefined (most calls with a destroyed
 * handle), arguments that NVIDIA's libraries crash on, and what Flyt refuses by name.
 */
#ifndef TESTS_APPS_BEHAVIOUR_H
#define TESTS_APPS_BEHAVIOUR_H

#include "check.h"
#include <setjmp.h>
#include <signal.h>

static int behaviour_differences;
static sigjmp_buf behaviour_crash;

static void behaviour_on_crash(int signal_number)
{
    siglongjmp(behaviour_crash, signal_number);
}

/* What a row "got" whose call crashed: the rows after it still run. */
static const int behaviour_crashed = -1000;

/* Prints the row of `line` where `got` is not `want`. */
__attribute__((unused)) static void behaviour_row(int line, const char *what, long long got, long long want)
{
    if (got == want)
        return;
    behaviour_differences++;
    fprintf(stderr, "line %d: %s: got %lld, NVIDIA's answer is %lld\n", line, what, got, want);
}

/* A driver API call. */
#define DR(want, ...)                                                                                                  \
    do {                                                                                                               \
        if (sigsetjmp(behaviour_crash, 1))                                                                             \
            behaviour_row(__LINE__, #__VA_ARGS__, behaviour_crashed, (want));                                          \
        else                                                                                                           \
            behaviour_row(__LINE__, #__VA_ARGS__, (int)(__VA_ARGS__), (want));                                         \
    } while (0)

/* A runtime API call, and the last error that it leaves: its own result, except that "not ready" leaves none. */
#define RT(want, ...)                                                                                                  \
    do {                                                                                                               \
        DR(want, __VA_ARGS__);                                                                                         \
        behaviour_row(__LINE__, "the last error after " #__VA_ARGS__, cudaGetLastError(), (want) == 600 ? 0 : (want)); \
    } while (0)

/* The value of an expression. */
#define IS(want, ...) behaviour_row(__LINE__, #__VA_ARGS__, (long long)(__VA_ARGS__), (long long)(want))

struct behaviour_group {
    const char *name;
    void (*run)(void);
};

/* Runs each group in a child process; a child that is ended by a signal counts as one difference. */
static int behaviour_main(const struct behaviour_group *groups, size_t group_count)
{
    int bad_groups = 0;

    for (size_t i = 0; i < group_count; i++) {
        int status = 0;
        pid_t pid;

        fflush(stdout);
        fflush(stderr);
        pid = fork();
        if (pid == 0) {
            signal(SIGSEGV, behaviour_on_crash);
            groups[i].run();
            fflush(stderr);
            exit(behaviour_differences != 0);
        }
        EXPECT(pid > 0, "fork: %m");
        EXPECT(waitpid(pid, &status, 0) == pid, "waitpid: %m");
        if (status) {
            bad_groups++;
            fprintf(stderr, "%s: differs%s\n", groups[i].name, WIFSIGNALED(status) ? " (ended by a signal)" : "");
        }
    }
    return bad_groups != 0;
}

/* BEHAVIOUR_MAIN({"name", function}, ...) at the end of the program. */
#define BEHAVIOUR_MAIN(...)                                                                                            \
    int main(void)                                                                                                     \
    {                                                                                                                  \
        static const struct behaviour_group groups[] = {__VA_ARGS__};                                                  \
        return behaviour_main(groups, sizeof(groups) / sizeof(groups[0]));                                             \
    }

#endif
