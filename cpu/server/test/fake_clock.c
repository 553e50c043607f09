/*
 * LD_PRELOAD=fake_clock.so FAKE_CLOCK_S=SECONDS: CLOCK_MONOTONIC as the process sees it is ahead by so many seconds: it
 * is on a machine that was started earlier. CLOCK_REALTIME is the machine's.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long ahead_s(clockid_t clock)
{
    const char *text = getenv("FAKE_CLOCK_S");
    return text && clock == CLOCK_MONOTONIC ? atol(text) : 0;
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *ret_time)
{
    int status = (int)syscall(SYS_clock_gettime, clock, ret_time);
    if (!status)
        ret_time->tv_sec += ahead_s(clock);
    return status;
}

__attribute__((visibility("default"))) int pthread_cond_clockwait(pthread_cond_t *restrict condition,
                                                                  pthread_mutex_t *restrict mutex, clockid_t clock,
                                                                  const struct timespec *restrict until)
{
    union {
        void *symbol;
        int (*wait)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
    } real = {.symbol = dlsym(RTLD_NEXT, "pthread_cond_clockwait")};
    const struct timespec here = {until->tv_sec - ahead_s(clock), until->tv_nsec};
    return real.wait(condition, mutex, clock, &here);
}
