/*
 * Memory out of the region that the program shares with its server (rpc/base/region.h): whole pages, which the
 * program has as pinned memory. There is none where the server is on another host. Any thread.
 */
#ifndef FLYT_CLIENT_ARENA_H
#define FLYT_CLIENT_ARENA_H

#include <stdbool.h>
#include <stdint.h>

/* Takes pages for so many bytes, which read as zeros, and *ret_bytes of them; NULL: there is no region, or no room. */
void *flyt_arena_take(uint64_t bytes, uint64_t *ret_bytes);
/* Gives back what was taken at `address`; its memory goes to the system. Nobody uses it, and nothing is locked there.
 */
void flyt_arena_give(void *address);
/* Whether kernels reach what is locked of it, by the program's addresses. */
bool flyt_arena_is_mapped(void);
/* Whether the address lies in the region, and where. */
bool flyt_arena_find(uint64_t address, uint64_t *ret_offset_bytes);

#endif
