/*
 * What the parser and the compiler share while one module is being made: an arena that owns every intermediate
 * object, maps from names, and one way out of any depth when the text is refused.
 *
 * A build belongs to one thread. flyt_ptx_build_fail leaves through the jump buffer that flyt_ptx_module_new has set;
 * nothing between the two may hold a resource that is not in an arena.
 */
#ifndef FLYT_SOFTGPU_PTX_BUILD_H
#define FLYT_SOFTGPU_PTX_BUILD_H

#include "cpu/softgpu/ptx/ptx.h"

#include <setjmp.h>

/* Memory that is freed all at once. Zero-initialise before use. */
struct ptx_arena {
    struct ptx_arena_chunk *chunks;
};

/* Frees everything that came from the arena; it is empty and usable afterwards. */
void flyt_ptx_arena_fini(struct ptx_arena *arena);

/* A map from strings to pointers; grows in the build's scratch arena. Zero-initialise before use. */
struct ptx_map {
    struct ptx_map_slot *slots;
    uint32_t capacity, count;
};

struct ptx_build {
    struct ptx_arena scratch;  /* dies with the build */
    struct ptx_arena *lasting; /* dies with the module */
    struct flyt_ptx_diag *diag;
    const char *unit_name; /* of the text that is worked on, for the diagnosis; NULL: there is only one */
    CUresult result;       /* why the build failed */
    jmp_buf way_out;
};

/* Zeroed memory, aligned to 16 bytes, from `arena`. Leaves through the way out when there is none; never NULL. */
void *flyt_ptx_build_alloc(struct ptx_build *build, struct ptx_arena *arena, size_t bytes);
/* A NUL-terminated copy of text[0 … bytes-1]. */
char *flyt_ptx_build_copy(struct ptx_build *build, struct ptx_arena *arena, const char *text, size_t bytes);

/* Ends the build with `result` and a diagnosis "line N: …" or "UNIT, line N: …" (line 0: neither). Does not return. */
void flyt_ptx_build_fail(struct ptx_build *build, CUresult result, unsigned line, const char *format, ...)
    __attribute__((noreturn, format(printf, 4, 5)));

/* The value of `name`, or NULL. */
void *flyt_ptx_map_find(const struct ptx_map *map, const char *name);
/* Sets the value of `name`; the string must live as long as the map. */
void flyt_ptx_map_put(struct ptx_build *build, struct ptx_map *map, const char *name, void *value);

/*
 * Makes room for one more element in a growing array held in the build's scratch arena: returns the array, moved if
 * it had to grow. `count` is the number of elements in use, *capacity the number there is room for.
 */
void *flyt_ptx_build_grow(struct ptx_build *build, void *array, size_t element_bytes, size_t count, size_t *capacity);

#endif
