/*
 * Time for measuring and for deadlines: monotonic, in nanoseconds or milliseconds since an arbitrary start. Any thread.
 */
#ifndef FLYT_BASE_CLOCK_H
#define FLYT_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t flyt_clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline uint64_t flyt_clock_ms(void)
{
    return flyt_clock_ns() / 1000000u;
}

/* Milliseconds from now to deadline_ms, 0 where it has passed: a time-out for poll(2). */
static inline int flyt_clock_left_ms(uint64_t deadline_ms)
{
    uint64_t now_ms = flyt_clock_ms();
    uint64_t left_ms = deadline_ms > now_ms ? deadline_ms - now_ms : 0;

    return left_ms > INT32_MAX ? INT32_MAX : (int)left_ms;
}

#endif
