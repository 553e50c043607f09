#include "rpc/transport/endpoint/endpoint_poll.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <time.h>
#include "rpc/transport/endpoint/endpoint.h"

int flyt_endpoint_poll(const struct flyt_endpoint_signs *signs, int wake_fd, int64_t timeout_ns)
{
    enum { WAKE, IN, OUT, ENDED, COUNT };
    static const struct flyt_endpoint_signs none = {.in = -1, .out = -1, .ended = -1};
    const struct flyt_endpoint_signs *of = signs ? signs : &none;
    const struct timespec timeout = {.tv_sec = timeout_ns / 1000000000, .tv_nsec = timeout_ns % 1000000000};
    struct pollfd polls[COUNT] = {
        [WAKE] = {.fd = wake_fd, .events = POLLIN},
        [IN] = {.fd = of->in, .events = POLLIN},
        [OUT] = {.fd = of->out, .events = of->out_event},
        [ENDED] = {.fd = of->ended, .events = of->ended_event},
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
    if (polls[ENDED].revents)
        found |= FLYT_ENDPOINT_ENDED;
    return found;
}
