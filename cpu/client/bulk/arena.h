/*
 * Memory out of the region that the program shares with its server (rpc/base/region.h): whole pages, which the
 * program has as pinned or managed memory. There is none where the server is on another host; what was taken stays the
 * program's where the session goes to one. Any thread.
 */
#ifndef FLYT_CLIENT_ARENA_H
#define FLYT_CLIENT_ARENA_H

#include <stdbool.h>
#include <stdint.h>
#include "rpc/base/id.h"

/* The session's server, where that has the region, too: flyt_channel_region_at; else 0. It changes only while the
 * session goes on at another one: who names a place in a call asks in the call's group (flyt_channel_group_begin). */
uint64_t flyt_arena_server(void);
/* Whether kernels reach what is locked of it, by the program's addresses. */
bool flyt_arena_is_mapped(void);
/* Whether it is as large as the memory that the program's VM shares with its host: what it has no room for is ordinary
 * memory, whose copies are staged and which kernels do not reach. */
bool flyt_arena_is_bounded(void);
/* Takes pages for so many bytes, which read as zeros, and *ret_bytes of them; NULL: the server has no region, or there
 * is no room. */
void *flyt_arena_take(uint64_t bytes, uint64_t *ret_bytes);
/* Gives back what was taken at `address`; its memory goes to the system. Nobody uses it, and nothing is locked there.
 */
void flyt_arena_give(void *address);
/* Whether the address lies in the region, and where; also while no server has it. */
bool flyt_arena_find(uint64_t address, uint64_t *ret_offset_bytes);
/* What was taken, as this server knows it. */
struct flyt_arena_piece {
    uint64_t number; /* of how often pages were taken: none that is taken later has it */
    uint64_t offset_bytes, bytes;
    uint64_t server; /* that has been asked to lock it; 0: none */
    bool is_locked;  /* it has */
};
/* The piece in which the address lies; false: there is none. */
bool flyt_arena_piece(uint64_t address, struct flyt_arena_piece *ret_piece);
/* The first piece that ends behind the offset; false: there is none. */
bool flyt_arena_next(uint64_t offset_bytes, struct flyt_arena_piece *ret_piece);
/* What the server has answered of the piece. False: it has been given back meanwhile. */
bool flyt_arena_note(const struct flyt_arena_piece *piece, uint64_t server, bool is_locked);
/* Whether 8 bytes are an address where the region is at its own place, of one that kernels reach. */
static inline bool flyt_arena_may_be(uint64_t word)
{
    return __builtin_expect(word - FLYT_REGION_BASE < FLYT_WINDOW_BYTES, 0);
}

#endif
