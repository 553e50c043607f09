#include "cpu/client/bulk/arena.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cpu/client/core/instance.h"
#include "rpc/base/log.h"
#include "rpc/base/region.h"

struct piece {
    uint64_t offset_bytes, bytes;
};

/* What is taken, by offsets. */
static struct {
    pthread_mutex_t mutex;
    struct piece *pieces;
    unsigned count, capacity;
} arena = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static const struct flyt_region *own_region(void)
{
    return flyt_client.channel ? flyt_channel_region(flyt_client.channel) : NULL;
}

bool flyt_arena_is_seen(void)
{
    return flyt_client.channel && flyt_channel_sees_region(flyt_client.channel);
}

bool flyt_arena_is_mapped(void)
{
    return flyt_client.channel && flyt_channel_maps_region(flyt_client.channel);
}

/* The first gap that is large enough: the place of the piece behind it, and where it begins. */
static bool find_gap_locked(uint64_t bytes, uint64_t bytes_max, unsigned *ret_place, uint64_t *ret_offset_bytes)
{
    uint64_t end = 0;
    unsigned place = 0;
    while (place < arena.count && arena.pieces[place].offset_bytes - end < bytes) {
        end = arena.pieces[place].offset_bytes + arena.pieces[place].bytes;
        place++;
    }
    *ret_place = place;
    *ret_offset_bytes = end;
    return bytes <= bytes_max - end;
}

static bool make_room_locked(void)
{
    if (arena.count < arena.capacity)
        return true;
    unsigned capacity = arena.capacity ? 2 * arena.capacity : 64;
    struct piece *pieces = realloc(arena.pieces, capacity * sizeof *pieces);
    if (!pieces)
        return false;
    arena.pieces = pieces;
    arena.capacity = capacity;
    return true;
}

void *flyt_arena_take(uint64_t bytes, uint64_t *ret_bytes)
{
    const struct flyt_region *region = flyt_arena_is_seen() ? own_region() : NULL;
    const uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t offset_bytes;
    unsigned place;
    if (!region || !bytes || bytes > region->bytes)
        return NULL;
    bytes = (bytes + page_bytes - 1) / page_bytes * page_bytes;
    pthread_mutex_lock(&arena.mutex);
    bool is_there = make_room_locked() && find_gap_locked(bytes, region->bytes, &place, &offset_bytes);
    if (is_there) {
        memmove(&arena.pieces[place + 1], &arena.pieces[place], (arena.count - place) * sizeof *arena.pieces);
        arena.pieces[place] = (struct piece){offset_bytes, bytes};
        arena.count++;
    }
    pthread_mutex_unlock(&arena.mutex);
    if (!is_there)
        return NULL;
    *ret_bytes = bytes;
    return region->base + offset_bytes;
}

/* The place of the piece that begins there; arena.count: there is none. */
static unsigned find_piece_locked(uint64_t offset_bytes)
{
    unsigned place = 0;
    while (place < arena.count && arena.pieces[place].offset_bytes != offset_bytes)
        place++;
    return place;
}

void flyt_arena_give(void *address)
{
    const struct flyt_region *region = own_region();
    uint64_t offset_bytes;
    if (!flyt_arena_find((uint64_t)(uintptr_t)address, &offset_bytes))
        return;
    pthread_mutex_lock(&arena.mutex);
    unsigned place = find_piece_locked(offset_bytes);
    if (place < arena.count) {
        int status = flyt_region_discard(region, offset_bytes, arena.pieces[place].bytes);
        if (status) /* what was there must not be read as new memory: it is not used again */
            flyt_warn("pinned memory is not given back bytes=%llu: %s", (unsigned long long)arena.pieces[place].bytes,
                      strerror(-status));
        else
            memmove(&arena.pieces[place], &arena.pieces[place + 1], (--arena.count - place) * sizeof *arena.pieces);
    }
    pthread_mutex_unlock(&arena.mutex);
}

bool flyt_arena_find(uint64_t address, uint64_t *ret_offset_bytes)
{
    const struct flyt_region *region = own_region();
    uint64_t offset_bytes = region ? address - (uint64_t)(uintptr_t)region->base : 0;
    if (!region || offset_bytes >= region->bytes)
        return false;
    *ret_offset_bytes = offset_bytes;
    return true;
}

void flyt_arena_walk(bool (*each)(void *user, uint64_t offset_bytes, uint64_t bytes), void *user)
{
    pthread_mutex_lock(&arena.mutex);
    for (unsigned i = 0; i < arena.count && each(user, arena.pieces[i].offset_bytes, arena.pieces[i].bytes); i++)
        continue;
    pthread_mutex_unlock(&arena.mutex);
}
