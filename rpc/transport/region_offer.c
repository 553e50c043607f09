#include "rpc/transport/region_offer.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/region.h"
#include "rpc/transport/endpoint/rings.h"

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

    return flyt_endpoint_write_all(endpoint, &byte, sizeof byte);
}

/* ---- rings in a VM's memory ---- */

enum { PLACE_BYTES = 8 + FLYT_REGION_MARK_BYTES };

static int read_all(struct flyt_endpoint *endpoint, void *data, size_t bytes, uint64_t deadline_ms, int cancel_fd)
{
    for (size_t done = 0; done < bytes;) {
        const struct iovec part = {.iov_base = (char *)data + done, .iov_len = bytes - done};
        int status = flyt_endpoint_await(endpoint, FLYT_ENDPOINT_IN, cancel_fd, deadline_ms);
        if (status)
            return status;
        ssize_t got = flyt_endpoint_read(endpoint, &part, 1, false);
        if (got < 0 && got != -EAGAIN && got != -EINTR)
            return (int)got;
        done += got > 0 ? (size_t)got : 0;
    }
    return 0;
}

uint64_t flyt_region_rings_bytes(void)
{
    const uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);

    return (flyt_rings_bytes() + page_bytes - 1) / page_bytes * page_bytes;
}

/* Claims a place and marks it. False: there is none. */
static bool take_place(const struct flyt_region *region, struct flyt_region_place *ret_place)
{
    struct flyt_region_place place = {0};

    if (!region || flyt_region_take(region, flyt_region_rings_bytes(), &place.offset_bytes))
        return false;
    if (getrandom(place.mark, sizeof place.mark, 0) != (ssize_t)sizeof place.mark) {
        flyt_region_give(region, place.offset_bytes, flyt_region_rings_bytes());
        return false;
    }
    memcpy(region->base + place.offset_bytes, place.mark, sizeof place.mark);
    *ret_place = place;
    return true;
}

static int name_place(struct flyt_endpoint *endpoint, const struct flyt_region_place *place, uint64_t deadline_ms,
                      int cancel_fd, unsigned *ret_use)
{
    unsigned char record[PLACE_BYTES], use = 0;

    for (unsigned i = 0; i < 8; i++)
        record[i] = (unsigned char)(place->offset_bytes >> (56 - 8 * i));
    memcpy(record + 8, place->mark, sizeof place->mark);
    int status = flyt_endpoint_write_all(endpoint, record, sizeof record);
    if (!status)
        status = read_all(endpoint, &use, sizeof use, deadline_ms, cancel_fd);
    if (!status)
        *ret_use = use;
    return status;
}

/* What was refused stays claimed until another place is taken: it would be found again. */
int flyt_region_offer_rings(struct flyt_endpoint *endpoint, const struct flyt_region *region, uint64_t deadline_ms,
                            int cancel_fd, unsigned *ret_use, uint64_t *ret_place)
{
    struct flyt_region_place places[FLYT_REGION_OFFERS_MAX] = {0};
    unsigned count = 0, use = FLYT_REGION_ASKS_AGAIN;
    int status = 0;

    while (!status && use & FLYT_REGION_ASKS_AGAIN) {
        const struct flyt_region_place none = {0};
        const bool is_there = count < FLYT_REGION_OFFERS_MAX && take_place(region, &places[count]);
        status = name_place(endpoint, is_there ? &places[count] : &none, deadline_ms, cancel_fd, &use);
        count += is_there;
        if (!is_there)
            use = 0;
    }
    const bool is_taken = !status && use & FLYT_REGION_IS_SEEN;
    for (unsigned i = 0; i < count - is_taken; i++)
        flyt_region_give(region, places[i].offset_bytes, flyt_region_rings_bytes());
    if (status)
        return status;
    *ret_use = use;
    *ret_place = is_taken ? places[count - 1].offset_bytes : 0;
    return 0;
}

int flyt_region_await_rings(struct flyt_endpoint *endpoint, struct flyt_region_place *ret_place)
{
    unsigned char record[PLACE_BYTES];

    int status = read_all(endpoint, record, sizeof record, flyt_clock_ms() + FLYT_REGION_OFFER_MS, -1);
    if (status)
        return status;
    ret_place->offset_bytes = 0;
    for (unsigned i = 0; i < 8; i++)
        ret_place->offset_bytes = ret_place->offset_bytes << 8 | record[i];
    memcpy(ret_place->mark, record + 8, sizeof ret_place->mark);
    return 0;
}

int flyt_region_check_rings(const struct flyt_region *region, const struct flyt_region_place *place)
{
    const uint64_t bytes = flyt_region_rings_bytes(), at = place->offset_bytes;

    if (at < FLYT_REGION_HEAD_BYTES || at % (uint64_t)sysconf(_SC_PAGESIZE) || at > region->bytes ||
        bytes > region->bytes - at)
        return -EINVAL;
    return memcmp(region->base + at, place->mark, sizeof place->mark) ? -ENXIO : 0;
}
