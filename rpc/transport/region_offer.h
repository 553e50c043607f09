/*
 * How a program's region (rpc/base/region.h) comes to its server, right behind an answer to the handshake that has
 * FLYT_FEATURE_REGION, over the unix socket itself:
 *
 *   the client  one byte, with the region's descriptor, or without one where it has none
 *   the server  one byte: enum flyt_region_use
 *
 * Over another one, behind an answer that has FLYT_FEATURE_VM_MEMORY, no descriptor comes through: the region is the
 * memory that the program's VM shares with the server's host, if they are one host and its guest. So
 *
 *   the client  names a place that it has claimed there for rings (rings.h) and has marked with random bytes: 24 bytes;
 *               zeros: it has none
 *   the server  looks for the mark at that place of what it has, makes the rings there, and says: one byte as above, or
 *               FLYT_REGION_ASKS_AGAIN: another session has some of that place, and the client is to name another one
 *   the client  finds the rings where its mark was
 *
 * All functions of a side are for the thread that makes the handshake; nobody else reads or writes meanwhile.
 */
#ifndef FLYT_TRANSPORT_REGION_OFFER_H
#define FLYT_TRANSPORT_REGION_OFFER_H

#include <stdint.h>

#include "rpc/transport/endpoint/endpoint.h"

/* What the server makes of it; unknown bits are ignored. */
enum flyt_region_use {
    FLYT_REGION_IS_SEEN = 1,   /* copies may name places of it */
    FLYT_REGION_IS_MAPPED = 2, /* and kernels reach what is page-locked of it, by the program's addresses */
    FLYT_REGION_ASKS_AGAIN = 4,
    FLYT_REGION_IS_FILLED = 8, /* and memory_set takes these addresses, which it did not always */
};

enum {
    FLYT_REGION_OFFER_MS = 5000, /* within which a client sends it */
    FLYT_REGION_OFFERS_MAX = 16, /* places that a client names */
    FLYT_REGION_MARK_BYTES = 16,
};

struct flyt_region;

/* Where a client wants rings to be. */
struct flyt_region_place {
    uint64_t offset_bytes; /* 0: nowhere */
    unsigned char mark[FLYT_REGION_MARK_BYTES];
};

/* The client: sends fd (-1: there is none), and waits for what the server makes of it, until deadline_ms
 * (rpc/base/clock.h) or until cancel_fd (-1: none) is readable. 0 and *ret_use, or a negative errno: the connection is
 * of no use any more. */
int flyt_region_offer(struct flyt_endpoint *endpoint, int fd, uint64_t deadline_ms, int cancel_fd, unsigned *ret_use);

/* The server: waits for it, for FLYT_REGION_OFFER_MS. 0, and *ret_fd is the caller's, -1: the client has none; or a
 * negative errno, as above. */
int flyt_region_await(struct flyt_endpoint *endpoint, int *ret_fd);
/* Then says what it makes of it. 0 or a negative errno. */
int flyt_region_answer(struct flyt_endpoint *endpoint, unsigned use);

/*
 * The client: names places for rings in a VM's region (NULL: it has none) until the server takes one, as
 * flyt_region_offer. 0, *ret_use, and, where that has FLYT_REGION_IS_SEEN, *ret_place, which is claimed; or a negative
 * errno: the connection is of no use any more.
 */
int flyt_region_offer_rings(struct flyt_endpoint *endpoint, const struct flyt_region *region, uint64_t deadline_ms,
                            int cancel_fd, unsigned *ret_use, uint64_t *ret_place);
/* The bytes that are claimed for them: whole pages. */
uint64_t flyt_region_rings_bytes(void);

/* The server: waits for a place, for FLYT_REGION_OFFER_MS, and answers with flyt_region_answer. 0 or a negative errno.
 */
int flyt_region_await_rings(struct flyt_endpoint *endpoint, struct flyt_region_place *ret_place);
/* Whether rings can be at a place that a client names: it lies in the server's region (a VM's), which has the mark
 * there. 0; -EINVAL: it cannot be; -ENXIO: it is not the same memory. */
int flyt_region_check_rings(const struct flyt_region *region, const struct flyt_region_place *place);

#endif
