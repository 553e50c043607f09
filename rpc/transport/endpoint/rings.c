#include "rpc/transport/endpoint/rings.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "rpc/base/shared.h"

#define MAGIC UINT64_C(0x73676e6974796c66) /* "flytings" */
enum { VERSION = 1, LINE_BYTES = 64, LINES_AHEAD = 3 /* of a launch with a few parameters */ };

/* The maker's end writes the first ring. */
struct memory {
    struct flyt_shared shared;
    struct flyt_ring rings[2];
    _Alignas(4096) unsigned char bytes[2][FLYT_RING_BYTES];
};

static void take_ends(struct flyt_rings *rings, bool is_maker)
{
    struct memory *memory = (struct memory *)rings->memory;
    struct flyt_ring_end ends[2];

    for (unsigned i = 0; i < 2; i++)
        ends[i] = (struct flyt_ring_end){.ring = &memory->rings[i], .bytes = memory->bytes[i]};
    rings->out = ends[!is_maker];
    rings->in = ends[is_maker];
}

int flyt_rings_new(struct flyt_rings *ret_rings)
{
    struct flyt_rings rings = {.fd = -1};

    int status = flyt_shared_new("flyt-rings", sizeof(struct memory), &rings.fd, &rings.memory);
    if (status)
        return status;
    rings.memory->version = VERSION;
    rings.memory->magic = MAGIC;
    take_ends(&rings, true);
    *ret_rings = rings;
    return 0;
}

int flyt_rings_map(int fd, struct flyt_rings *ret_rings)
{
    struct flyt_rings rings = {.fd = -1};

    int status = flyt_shared_open(fd, sizeof(struct memory), MAGIC, VERSION, &rings.fd, &rings.memory);
    if (status)
        return status;
    take_ends(&rings, false);
    *ret_rings = rings;
    return 0;
}

uint64_t flyt_rings_bytes(void)
{
    return sizeof(struct memory);
}

void flyt_rings_place(void *place, struct flyt_rings *ret_rings)
{
    struct flyt_rings rings = {.fd = -1, .memory = place, .is_placed = true};

    memset(place, 0, offsetof(struct memory, bytes));
    rings.memory->version = VERSION;
    rings.memory->magic = MAGIC;
    take_ends(&rings, true);
    *ret_rings = rings;
}

int flyt_rings_join(void *place, struct flyt_rings *ret_rings)
{
    struct flyt_rings rings = {.fd = -1, .memory = place, .is_placed = true};
    const struct flyt_shared head = *(volatile struct flyt_shared *)place;

    if (head.magic != MAGIC || head.version != VERSION)
        return -EBADMSG;
    take_ends(&rings, false);
    *ret_rings = rings;
    return 0;
}

void flyt_rings_close(struct flyt_rings *rings)
{
    if (rings->memory && !rings->is_placed)
        flyt_shared_close(rings->fd, rings->memory, sizeof(struct memory));
    *rings = (struct flyt_rings){.fd = -1};
}

/* ---- one ring ---- */

static uint64_t own(const struct flyt_ring_end *end)
{
    return atomic_load_explicit(&end->own, memory_order_relaxed);
}

/* Bytes between both positions, at most the whole ring; more than that: the other end has written what cannot be. */
static uint64_t used_by_writer(const struct flyt_ring_end *end)
{
    return own(end) - atomic_load_explicit(&end->ring->read, memory_order_acquire);
}

static uint64_t held_for_reader(const struct flyt_ring_end *end)
{
    return atomic_load_explicit(&end->ring->written, memory_order_acquire) - own(end);
}

bool flyt_ring_has_room(const struct flyt_ring_end *end)
{
    return used_by_writer(end) != FLYT_RING_BYTES;
}

bool flyt_ring_has_bytes(const struct flyt_ring_end *end)
{
    return held_for_reader(end);
}

/* Copies at most `room` bytes between the parts and the ring, from `position` on. How many. */
static size_t copy(unsigned char *bytes, uint64_t position, const struct iovec *parts, size_t count, size_t room,
                   bool is_write)
{
    size_t total = 0;

    for (size_t i = 0; i < count && total < room; i++) {
        for (size_t done = 0; done < parts[i].iov_len && total < room;) {
            const size_t at = (position + total) % FLYT_RING_BYTES, straight = FLYT_RING_BYTES - at;
            size_t step = parts[i].iov_len - done < room - total ? parts[i].iov_len - done : room - total;
            step = step < straight ? step : straight;
            char *place = (char *)parts[i].iov_base + done;
            memcpy(is_write ? (void *)(bytes + at) : place, is_write ? place : (void *)(bytes + at), step);
            done += step;
            total += step;
        }
    }
    return total;
}

static size_t sum(const struct iovec *parts, size_t count)
{
    size_t bytes = 0;

    for (size_t i = 0; i < count; i++)
        bytes += parts[i].iov_len;
    return bytes;
}

/* The other end's position is in another core's cache: it is looked at where the one last seen does not do. */
ssize_t flyt_ring_write(struct flyt_ring_end *end, const struct iovec *parts, size_t count)
{
    const uint64_t begin = own(end);

    if (FLYT_RING_BYTES - (begin - end->other) < sum(parts, count)) {
        const uint64_t used = used_by_writer(end);
        if (used > begin - end->other)
            return -EBADMSG;
        end->other = begin - used;
    }
    const size_t total = copy(end->bytes, begin, parts, count, FLYT_RING_BYTES - (begin - end->other), true);
    atomic_store_explicit(&end->own, begin + total, memory_order_relaxed);
    atomic_store_explicit(&end->ring->written, begin + total, memory_order_release);
    /* The reader's core has the lines that come next, from a round before: the next write finds them here. */
    for (unsigned i = 0; i < LINES_AHEAD; i++)
        __builtin_prefetch(end->bytes + (begin + total + i * LINE_BYTES) % FLYT_RING_BYTES, 1);
    return (ssize_t)total;
}

ssize_t flyt_ring_read(struct flyt_ring_end *end, const struct iovec *parts, size_t count)
{
    const uint64_t begin = own(end);

    if (end->other - begin < sum(parts, count)) {
        const uint64_t held = held_for_reader(end);
        if (held > FLYT_RING_BYTES || held < end->other - begin)
            return -EBADMSG;
        end->other = begin + held;
    }
    const size_t total = copy(end->bytes, begin, parts, count, end->other - begin, false);
    atomic_store_explicit(&end->own, begin + total, memory_order_relaxed);
    atomic_store_explicit(&end->ring->read, begin + total, memory_order_release);
    return (ssize_t)total;
}
