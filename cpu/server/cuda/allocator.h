/*
 * Divides ranges of addresses: finds room for a request among the free ranges, and joins freed neighbours. It knows
 * nothing of what the addresses are; memory.c uses it for the device's window and for the memory mapped into it.
 *
 * Requests are rounded up to the quantum. A free range is found by size class (powers of two, each in eight parts; the
 * first in the smallest class that surely fits), a used one by any address in it. Every operation costs O(log n), but
 * for a look through the request's own class where no larger one has anything. One thread at a time.
 */
#ifndef FLYT_SERVER_ALLOCATOR_H
#define FLYT_SERVER_ALLOCATOR_H

#include <stdbool.h>
#include <stdint.h>

enum { FLYT_ALLOCATOR_LEVELS = 42, FLYT_ALLOCATOR_PARTS = 8 };

struct flyt_block;

struct flyt_allocator {
    uint64_t quantum_bytes; /* a power of two */
    uint64_t total_bytes;   /* of all ranges added */
    uint64_t free_bytes;
    uint64_t used_count, used_bytes; /* blocks that are used and were not retired, and what is in them */
    void *tree;                      /* of all blocks, by address (tsearch(3)) */
    uint64_t levels;                 /* bit: some class of the level has free blocks */
    uint8_t parts[FLYT_ALLOCATOR_LEVELS];
    struct flyt_block *classes[FLYT_ALLOCATOR_LEVELS][FLYT_ALLOCATOR_PARTS];
};

void flyt_allocator_init(struct flyt_allocator *allocator, uint64_t quantum_bytes);
/* Forgets all ranges. */
void flyt_allocator_fini(struct flyt_allocator *allocator);

/* Adds a free range, multiples of the quantum, not overlapping what is there; joins it with free neighbours.
 * 0 or -ENOMEM. */
int flyt_allocator_add(struct flyt_allocator *allocator, uint64_t address, uint64_t bytes);
/* Takes a range away again, which must be free as a whole. 0; -EBUSY: it is not; -ENOMEM. */
int flyt_allocator_remove(struct flyt_allocator *allocator, uint64_t address, uint64_t bytes);
bool flyt_allocator_is_free(const struct flyt_allocator *allocator, uint64_t address, uint64_t bytes);

/* Room for bytes (1 or more), used from now on. 0 and *ret_address; -ENOSPC: no free range is large enough; -ENOMEM. */
int flyt_allocator_take(struct flyt_allocator *allocator, uint64_t bytes, uint64_t *ret_address);

/* The same at this address, a multiple of the quantum. 0; -EBUSY: not all of it is free; -ENOMEM. */
int flyt_allocator_take_at(struct flyt_allocator *allocator, uint64_t address, uint64_t bytes);

/* The used block that contains the address. False: there is none, or it was retired. */
bool flyt_allocator_find(const struct flyt_allocator *allocator, uint64_t address, uint64_t *ret_address,
                         uint64_t *ret_bytes);
/* Calls fn for every used block that was not retired, by address; fn must leave the allocator alone. */
void flyt_allocator_each(const struct flyt_allocator *allocator,
                         void (*fn)(void *user, uint64_t address, uint64_t bytes), void *user);
/* The used block that begins at the address is not found any more, but not yet free. 0 and its size; -ENOENT. */
int flyt_allocator_retire(struct flyt_allocator *allocator, uint64_t address, uint64_t *ret_bytes);
/* Frees a used or retired block, which begins at the address. */
void flyt_allocator_free(struct flyt_allocator *allocator, uint64_t address);

#endif
