/* What the measuring programs share: clocks, medians, one output line per figure ("NAME VALUE UNIT"). */
#pragma once
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        cudaError_t error_ = (call);                                                                                   \
        if (error_ != cudaSuccess) {                                                                                   \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error_));                 \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static inline double clock_us(clockid_t clock)
{
    timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1e6 + now.tv_nsec * 1e-3;
}

static inline double wall_us()
{
    return clock_us(CLOCK_MONOTONIC);
}

/* CPU time of the calling thread. */
static inline double thread_us()
{
    return clock_us(CLOCK_THREAD_CPUTIME_ID);
}

/* CPU time of the whole process: threads of the library included. */
static inline double process_us()
{
    return clock_us(CLOCK_PROCESS_CPUTIME_ID);
}

static inline double median(std::vector<double> values)
{
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

static inline void report(const char *name, double value, const char *unit)
{
    printf("%s %.4f %s\n", name, value, unit);
    fflush(stdout);
}
