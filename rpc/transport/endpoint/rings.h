/*
 * Two rings of bytes in memory that both ends of a connection map, one for each direction: what carries an endpoint's
 * bytes on one host (shm_endpoint.c). Each ring has one writer and one reader.
 *
 * Either end can write anything into that memory at any moment. An end's own position is in its own memory; the other
 * one's is looked at once, and where it cannot be, the ring is at its end (-EBADMSG). Bytes are copied out before
 * anybody looks at them.
 */
#ifndef FLYT_TRANSPORT_RINGS_H
#define FLYT_TRANSPORT_RINGS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

enum { FLYT_RING_BYTES = 256 * 1024 /* of each; stays in a core's second-level cache */ };

/* What both ends see of a ring. Positions only grow; each has a cache line, for one end alone writes it. */
struct flyt_ring {
    _Alignas(64) _Atomic(uint64_t) written; /* by the writer */
    _Atomic(uint32_t) has_ended;            /* the writer writes nothing more, though it goes on reading */
    _Alignas(64) _Atomic(uint64_t) read;    /* by the reader */
    /* Who sleeps until there is something, or room; the other end resets it, and rings. */
    _Alignas(64) _Atomic(uint32_t) reader_sleeps;
    _Atomic(uint32_t) writer_sleeps;
};

/* One end of a ring, in its own process's memory. */
struct flyt_ring_end {
    struct flyt_ring *ring;
    unsigned char *bytes;
    _Atomic(uint64_t) own; /* position; others ask whether there is something */
    uint64_t other;        /* position of the other end, as last seen */
};

/* One end of both. */
struct flyt_rings {
    struct flyt_shared *memory; /* NULL: there are none */
    int fd;
    bool is_placed; /* in memory that somebody else has mapped, and keeps while they are used */
    struct flyt_ring_end out, in;
};

/* Who makes them; *fd is to be sent to the other end. 0 or a negative errno. */
int flyt_rings_new(struct flyt_rings *ret_rings);
/* The other end: maps what came as fd, which stays the caller's. 0; -EBADMSG or -EPROTO: it is none, or may still be
 * cut short; or another negative errno. */
int flyt_rings_map(int fd, struct flyt_rings *ret_rings);
/* In memory that both ends have mapped, at a page: the bytes that they take, and what makes them, and joins them at the
 * other end. 0; -EBADMSG: there are none. */
uint64_t flyt_rings_bytes(void);
void flyt_rings_place(void *place, struct flyt_rings *ret_rings);
int flyt_rings_join(void *place, struct flyt_rings *ret_rings);
/* Unmaps what was not placed; there may be none. */
void flyt_rings_close(struct flyt_rings *rings);

/* How many bytes went in, or came out: fewer than there are parts for where the ring is full, or empty; or -EBADMSG. */
ssize_t flyt_ring_write(struct flyt_ring_end *end, const struct iovec *parts, size_t count);
ssize_t flyt_ring_read(struct flyt_ring_end *end, const struct iovec *parts, size_t count);
/* Whether there is room for something, or something to be read, or a position that cannot be. Any thread. */
bool flyt_ring_has_room(const struct flyt_ring_end *end);
bool flyt_ring_has_bytes(const struct flyt_ring_end *end);

#endif
