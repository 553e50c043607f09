#include "cpu/client/bulk/arena.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cpu/client/core/instance.h"
#include "rpc/base/log.h"
#include "rpc/base/region.h"

/* What is taken, by offsets. */
static struct {
    pthread_mutex_t mutex;
    struct flyt_arena_piece *pieces;
    unsigned count, capacity;
    uint64_t last_number; /* of a piece */
} arena = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static const struct flyt_region *own_region(void)
{
    return flyt_client.channel ? flyt_channel_region(flyt_client.channel) : NULL;
}

uint64_t flyt_arena_server(void)
{
    return flyt_client.channel ? flyt_channel_region_at(flyt_client.channel) : 0;
}

bool flyt_arena_is_mapped(void)
{
    return flyt_client.channel && flyt_channel_maps_region(flyt_client.channel);
}

bool flyt_arena_is_bounded(void)
{
    const struct flyt_region *region = own_region();
    return region && region->is_vm;
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
    struct flyt_arena_piece *pieces = realloc(arena.pieces, capacity * sizeof *pieces);
    if (!pieces)
        return false;
    arena.pieces = pieces;
    arena.capacity = capacity;
    return true;
}

/* The place of the first piece that ends behind the offset; arena.count: there is none. */
static unsigned find_place_locked(uint64_t offset_bytes)
{
    unsigned low = 0, high = arena.count;
    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        if (arena.pieces[middle].offset_bytes + arena.pieces[middle].bytes <= offset_bytes)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Whole pages, which are nobody else's: of the program's own region a gap, of its VM's what it can claim, which others
 * have had before. */
static bool find_pages_locked(const struct flyt_region *region, uint64_t bytes, unsigned *ret_place,
                              uint64_t *ret_offset_bytes)
{
    if (!region->is_vm)
        return find_gap_locked(bytes, region->bytes, ret_place, ret_offset_bytes);
    if (flyt_region_take(region, bytes, ret_offset_bytes))
        return false;
    *ret_place = find_place_locked(*ret_offset_bytes);
    return true;
}

void *flyt_arena_take(uint64_t bytes, uint64_t *ret_bytes)
{
    const struct flyt_region *region = flyt_arena_server() ? own_region() : NULL;
    const uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t offset_bytes;
    unsigned place;
    if (!region || !bytes || bytes > region->bytes)
        return NULL;
    bytes = (bytes + page_bytes - 1) / page_bytes * page_bytes;
    pthread_mutex_lock(&arena.mutex);
    bool is_there = make_room_locked() && find_pages_locked(region, bytes, &place, &offset_bytes);
    if (is_there) {
        memmove(&arena.pieces[place + 1], &arena.pieces[place], (arena.count - place) * sizeof *arena.pieces);
        arena.pieces[place] =
            (struct flyt_arena_piece){.number = ++arena.last_number, .offset_bytes = offset_bytes, .bytes = bytes};
        arena.count++;
    }
    pthread_mutex_unlock(&arena.mutex);
    if (!is_there)
        return NULL;
    if (region->is_vm)
        memset(region->base + offset_bytes, 0, bytes);
    *ret_bytes = bytes;
    return region->base + offset_bytes;
}

/* The piece that begins there; NULL: none does. */
static struct flyt_arena_piece *find_piece_locked(uint64_t offset_bytes)
{
    unsigned place = find_place_locked(offset_bytes);
    return place < arena.count && arena.pieces[place].offset_bytes == offset_bytes ? &arena.pieces[place] : NULL;
}

void flyt_arena_give(void *address)
{
    const struct flyt_region *region = own_region();
    uint64_t offset_bytes;
    if (!flyt_arena_find((uint64_t)(uintptr_t)address, &offset_bytes))
        return;
    pthread_mutex_lock(&arena.mutex);
    struct flyt_arena_piece *piece = find_piece_locked(offset_bytes);
    if (piece) {
        int status = 0;
        if (region->is_vm)
            flyt_region_give(region, offset_bytes, piece->bytes);
        else
            status = flyt_region_discard(region, offset_bytes, piece->bytes);
        if (status) /* what was there must not be read as new memory: it is not used again */
            flyt_warn("pinned memory is not given back bytes=%llu: %s", (unsigned long long)piece->bytes,
                      strerror(-status));
        else
            memmove(piece, piece + 1, (size_t)(&arena.pieces[--arena.count] - piece) * sizeof *piece);
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

bool flyt_arena_next(uint64_t offset_bytes, struct flyt_arena_piece *ret_piece)
{
    pthread_mutex_lock(&arena.mutex);
    unsigned place = find_place_locked(offset_bytes);
    bool is_there = place < arena.count;
    if (is_there)
        *ret_piece = arena.pieces[place];
    pthread_mutex_unlock(&arena.mutex);
    return is_there;
}

bool flyt_arena_piece(uint64_t address, struct flyt_arena_piece *ret_piece)
{
    uint64_t offset_bytes;
    return flyt_arena_find(address, &offset_bytes) && flyt_arena_next(offset_bytes, ret_piece) &&
           ret_piece->offset_bytes <= offset_bytes;
}

bool flyt_arena_note(const struct flyt_arena_piece *piece, uint64_t server, bool is_locked)
{
    pthread_mutex_lock(&arena.mutex);
    struct flyt_arena_piece *taken = find_piece_locked(piece->offset_bytes);
    bool is_taken = taken && taken->number == piece->number;
    if (is_taken) {
        taken->server = server;
        taken->is_locked = is_locked;
    }
    pthread_mutex_unlock(&arena.mutex);
    return is_taken;
}
