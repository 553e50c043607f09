/*
 * How the programs of this folder state what they expect, and how they end.
 *
 * A program exits 0 when everything held, 1 with one line on stderr that says what differed, or 77 with
 * a line "skip: REASON" where it cannot run. A failed expectation ends the process at once (_exit), from
 * whatever thread it happens in, so that no destructor or running kernel can hide it.
 *
 * The CHECK and EXPECT_ERR macros need <cuda_runtime.h> (nvcc includes it by itself in .cu files), the _CU
 * ones need <cuda.h>; each is only expanded where it is used, so one header serves both kinds of program.
 */
#ifndef TESTS_APPS_CHECK_H
#define TESTS_APPS_CHECK_H

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Prints "FILE:LINE: WHAT: MESSAGE" and ends the process with status 1. */
__attribute__((format(printf, 4, 5), noreturn, unused)) static void fail_at(const char *file, int line,
                                                                            const char *what, const char *format, ...)
{
    va_list args;
    const char *base = strrchr(file, '/');

    fflush(stdout);
    fprintf(stderr, "%s:%d: %s:", base ? base + 1 : file, line, what);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    fflush(stderr);
    _exit(1);
}

/* EXPECT(condition) or EXPECT(condition, "format", values...). */
#define EXPECT(cond, ...)                                                                                              \
    do {                                                                                                               \
        if (!(cond))                                                                                                   \
            fail_at(__FILE__, __LINE__, #cond, " " __VA_ARGS__);                                                       \
    } while (0)

/* Two integers that must be equal; both are printed where they differ. */
#define EXPECT_EQ(got, want)                                                                                           \
    do {                                                                                                               \
        long long got_ = (long long)(got), want_ = (long long)(want);                                                  \
        if (got_ != want_)                                                                                             \
            fail_at(__FILE__, __LINE__, #got, " got %lld (0x%llx), expected %lld (0x%llx)", got_, got_, want_, want_); \
    } while (0)

/* A runtime API call that must return CODE. Clears the last error, where CUDA lets it be cleared. */
#define EXPECT_ERR(call, code)                                                                                         \
    do {                                                                                                               \
        cudaError_t got_ = (call);                                                                                     \
        if (got_ != (code))                                                                                            \
            fail_at(__FILE__, __LINE__, #call, " got %d (%s), expected %d (%s)", (int)got_, cudaGetErrorName(got_),    \
                    (int)(code), cudaGetErrorName((cudaError_t)(code)));                                               \
        cudaGetLastError();                                                                                            \
    } while (0)

/* A runtime API call that must succeed. The last error is left alone. */
#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        cudaError_t got_ = (call);                                                                                     \
        if (got_ != cudaSuccess)                                                                                       \
            fail_at(__FILE__, __LINE__, #call, " got %d (%s)", (int)got_, cudaGetErrorName(got_));                     \
    } while (0)

/* A kernel launch that has just been written with <<<>>> must have been accepted. */
#define CHECK_LAUNCH() CHECK(cudaGetLastError())

/* A driver API call that must return CODE, and one that must succeed. */
#define EXPECT_CU(call, code)                                                                                          \
    do {                                                                                                               \
        CUresult got_ = (call);                                                                                        \
        if (got_ != (code))                                                                                            \
            fail_at(__FILE__, __LINE__, #call, " got %d, expected %d", (int)got_, (int)(code));                        \
    } while (0)
#define CHECK_CU(call) EXPECT_CU(call, CUDA_SUCCESS)

#define SKIP(...)                                                                                                      \
    do {                                                                                                               \
        printf("skip: " __VA_ARGS__);                                                                                  \
        printf("\n");                                                                                                  \
        fflush(stdout);                                                                                                \
        _exit(77);                                                                                                     \
    } while (0)

/*
 * Whether the program runs through Flyt: the runner says so. It matters only where CUDA leaves the behaviour
 * undefined and Flyt defines it, and for what Flyt refuses by name.
 */
__attribute__((unused)) static int is_forwarded(void)
{
    const char *value = getenv("FLYT_TEST_FORWARDED");

    return value && strcmp(value, "1") == 0;
}

/* Whether a device's name is that of the software GPU, which executes PTX and no machine code. */
#define IS_SOFT_NAME(name) (strncmp((name), "Flyt software GPU", 17) == 0)

/* A small fixed pseudo-random sequence (xorshift32): the same inputs in every run. The seed must not be 0. */
#ifdef __CUDACC__
__host__ __device__
#endif
    __attribute__((unused)) static inline uint32_t
    next_random(uint32_t *state)
{
    uint32_t x = *state;

    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return *state = x;
}

/* Monotonic time in milliseconds. */
__attribute__((unused)) static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/*
 * Runs fn in a child process and returns its exit status, or 1000 + the signal that ended it. To be called
 * before the parent's first CUDA call where the child is to use CUDA: CUDA does not survive fork.
 */
__attribute__((unused)) static int run_in_child(int (*fn)(void))
{
    int status = 0;
    pid_t pid;

    fflush(stdout);
    fflush(stderr);
    pid = fork();
    if (pid == 0)
        exit(fn());
    EXPECT(pid > 0, "fork: %m");
    EXPECT(waitpid(pid, &status, 0) == pid, "waitpid: %m");
    return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

/*
 * Reads the file NAME that lies beside the program (argv0: main's argv[0]) into memory that the caller owns,
 * followed by a zero byte; *ret_bytes (may be NULL) is its length without that byte.
 */
__attribute__((unused)) static char *read_beside(const char *argv0, const char *name, size_t *ret_bytes)
{
    char path[4096];
    const char *slash = strrchr(argv0, '/');
    FILE *file;
    char *data;
    long bytes;

    snprintf(path, sizeof(path), "%.*s%s", slash ? (int)(slash - argv0 + 1) : 0, argv0, name);
    file = fopen(path, "rb");
    EXPECT(file, "%s: %m", path);
    EXPECT(fseek(file, 0, SEEK_END) == 0 && (bytes = ftell(file)) >= 0 && fseek(file, 0, SEEK_SET) == 0, "%s: %m",
           path);
    data = (char *)malloc((size_t)bytes + 1);
    EXPECT(data && fread(data, 1, (size_t)bytes, file) == (size_t)bytes, "%s: short read", path);
    fclose(file);
    data[bytes] = 0;
    if (ret_bytes)
        *ret_bytes = (size_t)bytes;
    return data;
}

#endif
