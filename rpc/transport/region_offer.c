#include "rpc/transport/region_offer.h"

#include <errno.h>

#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"

/* One byte, and a descriptor where one came (-1: none). 0 or a negative errno. */
static int receive(struct flyt_endpoint *endpoint, uint64_t deadline_ms, int cancel_fd, unsigned char *ret_byte,
                   int *ret_fd)
{
    unsigned count = 0;

    *ret_fd = -1;
    for (;;) {
        int status = flyt_endpoint_await(endpoint, FLYT_ENDPOINT_IN, cancel_fd, deadline_ms);
        if (status)
            return status;
        status = endpoint->ops->receive_descriptors(endpoint, ret_byte, 1, ret_fd, 1, &count);
        if (status == 1)
            return 0;
        if (status != -EAGAIN && status != -EINTR)
            return status ? status : -EPIPE;
    }
}

int flyt_region_offer(struct flyt_endpoint *endpoint, int fd, uint64_t deadline_ms, int cancel_fd, unsigned *ret_use)
{
    unsigned char use, offer = fd >= 0;
    int none;
    int status = endpoint->ops->send_descriptors(endpoint, &offer, sizeof offer, &fd, fd >= 0);

    if (!status)
        status = receive(endpoint, deadline_ms, cancel_fd, &use, &none);
    if (status)
        return status;
    flyt_close(none);
    *ret_use = use;
    return 0;
}

int flyt_region_await(struct flyt_endpoint *endpoint, int *ret_fd)
{
    unsigned char offer;

    return receive(endpoint, flyt_clock_ms() + FLYT_REGION_OFFER_MS, -1, &offer, ret_fd);
}

int flyt_region_answer(struct flyt_endpoint *endpoint, unsigned use)
{
    const unsigned char byte = (unsigned char)use;

    return endpoint->ops->send_descriptors(endpoint, &byte, sizeof byte, NULL, 0);
}
