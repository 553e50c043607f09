/*
 * LD_PRELOAD=stepped_clock.so FLYT_TEST_CLOCK=FILE: CLOCK_REALTIME as a process sees it is off by the seconds that FILE
 * says, at every look, so that it can be stepped while the process runs. Other clocks are the machine's.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long offset_s(void)
{
    const char *path = getenv("FLYT_TEST_CLOCK");
    char text[32] = "";
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

    if (fd < 0)
        return 0;
    ssize_t bytes = read(fd, text, sizeof text - 1);
    close(fd);
    return bytes > 0 ? atol(text) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *ret_time)
{
    int status = (int)syscall(SYS_clock_gettime, clock, ret_time);

    if (!status && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        ret_time->tv_sec += offset_s();
    return status;
}

int gettimeofday(struct timeval *restrict ret_time, void *restrict zone)
{
    struct timespec now;

    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now))
        return -1;
    *ret_time = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *ret_time)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    if (ret_time)
        *ret_time = now.tv_sec;
    return now.tv_sec;
}
