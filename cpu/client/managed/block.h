/*
 * What program and GPU agree on about one piece of managed memory: for each unit of it, what both had when bytes last
 * went from one to the other. A side whose unit differs from that has changed it since. Units of small pieces are pages
 * of the host's, of which a copy is kept; those of large ones are FLYT_PAGE_BYTES, of which a hash is kept
 * (rpc/base/page_hash.h: two pages that differ have equal hashes with less than 2^-119). One thread at a time.
 */
#ifndef FLYT_CLIENT_MANAGED_BLOCK_H
#define FLYT_CLIENT_MANAGED_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "rpc/base/page_hash.h"

enum { FLYT_MANAGED_SMALL_MAX = 1 << 20, FLYT_MANAGED_UNIT_BYTES = 4096 };

struct flyt_managed_block {
    uint64_t base, bytes;          /* of a large one whole units */
    char *copy;                    /* of a small one */
    struct flyt_page_hash *hashes; /* of a large one */
};

/* A piece that is zero on both sides. bytes: of a large one a multiple of FLYT_PAGE_BYTES. False: no memory. */
bool flyt_managed_block_init(struct flyt_managed_block *block, uint64_t base, uint64_t bytes, bool is_large);
void flyt_managed_block_fini(struct flyt_managed_block *block);

static inline bool flyt_managed_block_is_large(const struct flyt_managed_block *block)
{
    return block->hashes != NULL;
}

static inline uint64_t flyt_managed_unit_bytes(const struct flyt_managed_block *block)
{
    return flyt_managed_block_is_large(block) ? FLYT_PAGE_BYTES : FLYT_MANAGED_UNIT_BYTES;
}

/* Of the unit that begins `offset_bytes` behind the base: whether `data` is other than what was agreed on; the second
 * agrees on it. The last unit of a small piece may be shorter. */
bool flyt_managed_differs(const struct flyt_managed_block *block, uint64_t offset_bytes, const void *data);
bool flyt_managed_agree(struct flyt_managed_block *block, uint64_t offset_bytes, const void *data);

/* The next run of units in [*offset_bytes, end_bytes), of at most bytes_max, in which the host's memory differs from
 * what was agreed on; *offset_bytes, where a unit begins, is moved behind it. 0 bytes: there is none. */
uint64_t flyt_managed_next_change(const struct flyt_managed_block *block, uint64_t end_bytes, uint64_t bytes_max,
                                  uint64_t *offset_bytes, uint64_t *ret_offset_bytes);
/* Takes over what the GPU has from offset_bytes on, where it differs from what was agreed on, and nowhere else: what
 * only the host has changed stays. */
void flyt_managed_take(struct flyt_managed_block *block, uint64_t offset_bytes, const void *data, uint64_t bytes);

/* The key words of all hashes of this process, which the first large piece has made. */
const struct flyt_page_hash_keys *flyt_managed_keys(void);

#endif
