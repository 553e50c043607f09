/*
 * Memory out of the region that the program shares with its server (rpc/base/region.h): whole pages, which the
 * program has as pinned memory. There is none where the server is on another host; what was taken stays the program's
 * where the session goes to one. Any thread.
 */
#ifndef FLYT_CLIENT_ARENA_H
#define FLYT_CLIENT_ARENA_H

#include <stdbool.h>
#include <stdint.h>
#include "rpc/base/id.h"

/* Whether the session's server has the region, too. That changes only while the session goes on at another one: who
 * names a place in a call asks in the call's group (flyt_channel_group_begin). */
bool flyt_arena_is_seen(void);
/* Whether kernels reach what is locked of it, by the program's addresses. */
bool flyt_arena_is_mapped(void);
/* Takes pages for so many bytes, which read as zeros, and *ret_bytes of them; NULL: the server has no region, or there
 * is no room. */
void *flyt_arena_take(uint64_t bytes, uint64_t *ret_bytes);
/* Gives back what was taken at `address`; its memory goes to the system. Nobody uses it, and nothing is locked there.
 */
void flyt_arena_give(void *address);
/* Whether the address lies in the region, and where; also while no server has it. */
bool flyt_arena_find(uint64_t address, uint64_t *ret_offset_bytes);
/* Calls `each` for whatever is taken, until it returns false. Nothing is taken or given back meanwhile. */
void flyt_arena_walk(bool (*each)(void *user, uint64_t offset_bytes, uint64_t bytes), void *user);
/* Whether 8 bytes are an address where the region is at its own place, of one that kernels reach. */
static inline bool flyt_arena_may_be(uint64_t word)
{
    return __builtin_expect(word - FLYT_REGION_BASE < FLYT_WINDOW_BYTES, 0);
}

#endif
