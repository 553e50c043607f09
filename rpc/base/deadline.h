/*
 * Until when a condition variable or a mutex is waited for: what pthread_cond_clockwait and its kin take, by
 * CLOCK_MONOTONIC. Any thread.
 */
#ifndef FLYT_BASE_DEADLINE_H
#define FLYT_BASE_DEADLINE_H

#include <stdint.h>
#include <time.h>

#include "rpc/base/clock.h"

/* The time in so many milliseconds. */
static inline struct timespec flyt_deadline_ms(uint64_t ms)
{
    uint64_t until_ns = flyt_clock_ns() + ms * 1000000u;

    return (struct timespec){.tv_sec = (time_t)(until_ns / 1000000000u), .tv_nsec = (long)(until_ns % 1000000000u)};
}

#endif
