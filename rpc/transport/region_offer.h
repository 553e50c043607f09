/*
 * How a program's region (rpc/base/region.h) comes to its server, right behind an answer to the handshake that has
 * FLYT_FEATURE_REGION, over the unix socket itself:
 *
 *   the client  one byte, with the region's descriptor, or without one where it has none
 *   the server  one byte: enum flyt_region_use
 *
 * Both functions of a side are for the thread that makes the handshake; nobody else reads or writes meanwhile.
 */
#ifndef FLYT_TRANSPORT_REGION_OFFER_H
#define FLYT_TRANSPORT_REGION_OFFER_H

#include <stdint.h>

#include "rpc/transport/endpoint.h"

/* What the server makes of it; unknown bits are ignored. */
enum flyt_region_use {
    FLYT_REGION_IS_SEEN = 1,   /* copies may name places of it */
    FLYT_REGION_IS_MAPPED = 2, /* and kernels reach what is page-locked of it, by the program's addresses */
};

enum { FLYT_REGION_OFFER_MS = 5000 /* within which a client sends it */ };

/* The client: sends fd (-1: there is none), and waits for what the server makes of it, until deadline_ms
 * (rpc/base/clock.h) or until cancel_fd (-1: none) is readable. 0 and *ret_use, or a negative errno: the connection is
 * of no use any more. */
int flyt_region_offer(struct flyt_endpoint *endpoint, int fd, uint64_t deadline_ms, int cancel_fd, unsigned *ret_use);

/* The server: waits for it, for FLYT_REGION_OFFER_MS. 0, and *ret_fd is the caller's, -1: the client has none; or a
 * negative errno, as above. */
int flyt_region_await(struct flyt_endpoint *endpoint, int *ret_fd);
/* Then says what it makes of it. 0 or a negative errno. */
int flyt_region_answer(struct flyt_endpoint *endpoint, unsigned use);

#endif
