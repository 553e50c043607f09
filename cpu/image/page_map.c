#include "cpu/image/page_map.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/proto/checkpoint_limits.h"

#define PAGE_BYTES ((uint64_t)FLYT_CHECKPOINT_PAGE_BYTES)

static uint64_t end_of(const struct flyt_page_extent *extent)
{
    return extent->address + extent->page_count * PAGE_BYTES;
}

/* Words of one of the two halves. */
static uint64_t words_of(const struct flyt_page_extent *extent)
{
    return (extent->page_count + 63) / 64;
}

void flyt_page_map_fini(struct flyt_page_map *map)
{
    for (uint32_t i = 0; i < map->extent_count; i++)
        free(map->extents[i].bits);
    free(map->extents);
    *map = (struct flyt_page_map){0};
}

/* The first extent that ends behind the address. */
static uint32_t place_of(const struct flyt_page_map *map, uint64_t address)
{
    uint32_t low = 0, high = map->extent_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (end_of(&map->extents[middle]) <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int flyt_page_map_add(struct flyt_page_map *map, uint64_t address, uint64_t bytes)
{
    uint32_t place = place_of(map, address);
    struct flyt_page_extent extent = {.address = address, .page_count = bytes / PAGE_BYTES};

    if (place < map->extent_count && map->extents[place].address < address + bytes)
        return -EEXIST;
    if (map->extent_count == FLYT_CHECKPOINT_EXTENTS_MAX)
        return -ENOSPC;
    if (map->extent_count == map->extent_capacity) {
        uint32_t capacity = map->extent_capacity ? 2 * map->extent_capacity : 16;
        struct flyt_page_extent *extents = realloc(map->extents, capacity * sizeof *extents);
        if (!extents)
            return -ENOMEM;
        map->extents = extents;
        map->extent_capacity = capacity;
    }
    extent.bits = calloc(2 * words_of(&extent), sizeof *extent.bits);
    if (!extent.bits)
        return -ENOMEM;
    memmove(map->extents + place + 1, map->extents + place, (map->extent_count - place) * sizeof extent);
    map->extents[place] = extent;
    map->extent_count++;
    return 0;
}

int flyt_page_map_remove(struct flyt_page_map *map, uint64_t address, uint64_t *ret_bytes)
{
    uint32_t place = place_of(map, address);

    if (place == map->extent_count || map->extents[place].address != address)
        return -ENOENT;
    *ret_bytes = map->extents[place].page_count * PAGE_BYTES;
    free(map->extents[place].bits);
    map->extent_count--;
    memmove(map->extents + place, map->extents + place + 1, (map->extent_count - place) * sizeof *map->extents);
    return 0;
}

void flyt_page_map_begin_round(struct flyt_page_map *map)
{
    for (uint32_t i = 0; i < map->extent_count; i++)
        memset(map->extents[i].bits, 0, words_of(&map->extents[i]) * sizeof(uint64_t));
}

int flyt_page_map_mark(struct flyt_page_map *map, uint64_t address, uint64_t page_count, bool is_held)
{
    uint32_t place = place_of(map, address);

    while (page_count) {
        if (place == map->extent_count || map->extents[place].address > address)
            return -ENOENT;
        struct flyt_page_extent *extent = &map->extents[place];
        uint64_t *held = extent->bits + words_of(extent);
        uint64_t page = (address - extent->address) / PAGE_BYTES;
        for (; page_count && page < extent->page_count; page++, page_count--, address += PAGE_BYTES) {
            uint64_t bit = 1ull << page % 64;
            if (extent->bits[page / 64] & bit)
                return -EEXIST;
            extent->bits[page / 64] |= bit;
            held[page / 64] = is_held ? held[page / 64] | bit : held[page / 64] & ~bit;
        }
        place++;
    }
    return 0;
}

bool flyt_page_map_covers(const struct flyt_page_map *map, uint64_t address, uint64_t bytes)
{
    uint64_t end = address + bytes;

    if (end < address)
        return false;
    for (uint32_t place = place_of(map, address); place < map->extent_count; place++) {
        if (map->extents[place].address > address)
            return false;
        address = end_of(&map->extents[place]);
        if (address >= end)
            return true;
    }
    return false;
}

bool flyt_page_map_next_missing(const struct flyt_page_map *map, uint64_t address, uint64_t *ret_address,
                                uint64_t *ret_page_count)
{
    for (uint32_t place = place_of(map, address); place < map->extent_count; place++) {
        const struct flyt_page_extent *extent = &map->extents[place];
        const uint64_t *held = extent->bits + words_of(extent);
        uint64_t page = address > extent->address ? (address - extent->address) / PAGE_BYTES : 0, first;
        while (page < extent->page_count && held[page / 64] >> page % 64 & 1)
            page++;
        if (page == extent->page_count)
            continue;
        for (first = page; page < extent->page_count && !(held[page / 64] >> page % 64 & 1);)
            page++;
        *ret_address = extent->address + first * PAGE_BYTES;
        *ret_page_count = page - first;
        return true;
    }
    return false;
}

uint64_t flyt_page_map_count_missing(const struct flyt_page_map *map)
{
    uint64_t address = 0, page_count = 0, total = 0;

    while (flyt_page_map_next_missing(map, address, &address, &page_count)) {
        total += page_count;
        address += page_count * FLYT_CHECKPOINT_PAGE_BYTES;
    }
    return total;
}
