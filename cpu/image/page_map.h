/*
 * Which pages there are, and which of them an image holds: extents with two bits for each page. Reader and writer of an
 * image keep one; so does who checks that a parent has what its child leaves to it. One thread at a time.
 *
 * Memory: 2 bits for each page of FLYT_CHECKPOINT_PAGE_BYTES, 63 MB for 15 full windows, and 24 bytes for each extent.
 */
#ifndef FLYT_IMAGE_PAGE_MAP_H
#define FLYT_IMAGE_PAGE_MAP_H

#include <stdbool.h>
#include <stdint.h>

struct flyt_page_extent {
    uint64_t address, page_count;
    uint64_t *bits; /* of each page: was in this round; then of each page: the image holds its contents */
};

/* All zero is an empty one. */
struct flyt_page_map {
    struct flyt_page_extent *extents; /* by address */
    uint32_t extent_count, extent_capacity;
};

void flyt_page_map_fini(struct flyt_page_map *map);

/* Both are multiples of FLYT_CHECKPOINT_EXTENT_ALIGN, bytes is at least one. 0; -EEXIST: overlaps one that is there;
 * -ENOSPC: FLYT_CHECKPOINT_EXTENTS_MAX are there; -ENOMEM. */
int flyt_page_map_add(struct flyt_page_map *map, uint64_t address, uint64_t bytes);
/* 0 and its size, or -ENOENT: no extent begins there. */
int flyt_page_map_remove(struct flyt_page_map *map, uint64_t address, uint64_t *ret_bytes);

/* A round begins: no page was in it yet. */
void flyt_page_map_begin_round(struct flyt_page_map *map);
/* The pages came in this round, with their contents (is_held) or as the parent's. 0; -ENOENT: no such pages; -EEXIST:
 * one came in this round before. On failure some may be marked: the map is good for nothing else then. */
int flyt_page_map_mark(struct flyt_page_map *map, uint64_t address, uint64_t page_count, bool is_held);

/* Whether all of the bytes (1 or more) are in extents, which may be several. */
bool flyt_page_map_covers(const struct flyt_page_map *map, uint64_t address, uint64_t bytes);
/* The first run of pages at or behind the address whose contents the image does not hold; false: none. */
bool flyt_page_map_next_missing(const struct flyt_page_map *map, uint64_t address, uint64_t *ret_address,
                                uint64_t *ret_page_count);
/* How many pages in all. */
uint64_t flyt_page_map_count_missing(const struct flyt_page_map *map);

#endif
