#include "rpc/transport/endpoint_poll.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <time.h>
#include "rpc/transport/endpoint.h"

int flyt_endpoint_poll(int in_fd, int out_fd, short out_event, int wake_fd, int64_t timeout_ns)
{
    enum { WAKE, IN, OUT, COUNT };
    const struct timespec timeout = {.tv_sec = timeout_ns / 1000000000, .tv_nsec = timeout_ns % 1000000000};
    struct pollfd polls[COUNT] = {
        [WAKE] = {.fd = wake_fd, .events = POLLIN},
        [IN] = {.fd = in_fd, .events = POLLIN},
        [OUT] = {.fd = out_fd, .events = out_event},
    };
    int found = 0;

    int count = ppoll(polls, COUNT, timeout_ns < 0 ? NULL : &timeout, NULL);
    if (count < 0)
        return -errno;
    if (polls[WAKE].revents)
        found |= FLYT_ENDPOINT_WOKEN;
    if (polls[IN].revents)
        found |= FLYT_ENDPOINT_IN;
    if (polls[OUT].revents)
        found |= FLYT_ENDPOINT_OUT; /* an end, too: who writes is told */
    return found;
}
