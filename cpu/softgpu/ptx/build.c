#include "cpu/softgpu/ptx/build.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 64 * 1024 };

struct ptx_arena_chunk {
    struct ptx_arena_chunk *next;
    size_t used_bytes, room_bytes;
    _Alignas(16) char data[];
};

void flyt_ptx_arena_fini(struct ptx_arena *arena)
{
    while (arena->chunks) {
        struct ptx_arena_chunk *chunk = arena->chunks;

        arena->chunks = chunk->next;
        free(chunk);
    }
}

void *flyt_ptx_build_alloc(struct ptx_build *build, struct ptx_arena *arena, size_t bytes)
{
    struct ptx_arena_chunk *chunk = arena->chunks;

    if (bytes > SIZE_MAX / 4)
        flyt_ptx_build_fail(build, CUDA_ERROR_OUT_OF_MEMORY, 0, "the module is too large");
    bytes = (bytes + 15) & ~(size_t)15;
    if (!chunk || chunk->room_bytes - chunk->used_bytes < bytes) {
        size_t room_bytes = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;

        chunk = calloc(1, sizeof *chunk + room_bytes);
        if (!chunk)
            flyt_ptx_build_fail(build, CUDA_ERROR_OUT_OF_MEMORY, 0, "out of memory while compiling PTX");
        chunk->room_bytes = room_bytes;
        chunk->next = arena->chunks;
        arena->chunks = chunk;
    }
    chunk->used_bytes += bytes;
    return chunk->data + chunk->used_bytes - bytes;
}

char *flyt_ptx_build_copy(struct ptx_build *build, struct ptx_arena *arena, const char *text, size_t bytes)
{
    char *copy = flyt_ptx_build_alloc(build, arena, bytes + 1);

    if (bytes)
        memcpy(copy, text, bytes);
    return copy;
}

void flyt_ptx_build_fail(struct ptx_build *build, CUresult result, unsigned line, const char *format, ...)
{
    char reason[sizeof build->diag->text - 96];
    va_list args;

    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    if (line && build->unit_name)
        snprintf(build->diag->text, sizeof build->diag->text, "%.60s, line %u: %s", build->unit_name, line, reason);
    else if (line)
        snprintf(build->diag->text, sizeof build->diag->text, "line %u: %s", line, reason);
    else
        snprintf(build->diag->text, sizeof build->diag->text, "%s", reason);
    build->result = result;
    longjmp(build->way_out, 1);
}

struct ptx_map_slot {
    const char *name;
    uint32_t hash;
    void *value;
};

static uint32_t hash_name(const char *name)
{
    uint32_t hash = 2166136261u; /* FNV-1a */

    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 16777619u;
    return hash;
}

/* The slot of `name`, or the empty one where it belongs. */
static struct ptx_map_slot *find_slot(const struct ptx_map *map, const char *name, uint32_t hash)
{
    uint32_t at = hash & (map->capacity - 1);

    while (map->slots[at].name && (map->slots[at].hash != hash || strcmp(map->slots[at].name, name)))
        at = (at + 1) & (map->capacity - 1);
    return &map->slots[at];
}

void *flyt_ptx_map_find(const struct ptx_map *map, const char *name)
{
    return map->count ? find_slot(map, name, hash_name(name))->value : NULL;
}

void flyt_ptx_map_put(struct ptx_build *build, struct ptx_map *map, const char *name, void *value)
{
    uint32_t hash = hash_name(name);
    struct ptx_map_slot *slot;

    if (map->count * 2 >= map->capacity) {
        struct ptx_map old = *map;

        map->capacity = old.capacity ? old.capacity * 2 : 16;
        map->slots = flyt_ptx_build_alloc(build, &build->scratch, map->capacity * sizeof *map->slots);
        for (uint32_t at = 0; at < old.capacity; at++)
            if (old.slots[at].name)
                *find_slot(map, old.slots[at].name, old.slots[at].hash) = old.slots[at];
    }
    slot = find_slot(map, name, hash);
    if (!slot->name)
        map->count++;
    *slot = (struct ptx_map_slot){name, hash, value};
}

void *flyt_ptx_build_grow(struct ptx_build *build, void *array, size_t element_bytes, size_t count, size_t *capacity)
{
    void *grown;

    if (count < *capacity)
        return array;
    *capacity = *capacity ? *capacity * 2 : 16;
    grown = flyt_ptx_build_alloc(build, &build->scratch, *capacity * element_bytes);
    if (count)
        memcpy(grown, array, count * element_bytes);
    return grown;
}
