/*
 * A sparse array that grows without moving: elements by number, zeroed when they are made, at their places until the
 * array is freed. Finding takes no lock and may run while others are made; who makes elements takes turns, by a lock of
 * the caller's. What an element holds and when it counts is the caller's affair.
 *
 * Elements are made in chunks of 1,024. The array is all zeroes while it is empty.
 */
#ifndef FLYT_BASE_SPARSE_H
#define FLYT_BASE_SPARSE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FLYT_SPARSE_CHUNK_BITS = 10,
    FLYT_SPARSE_LEAF_BITS = 10, /* chunks in one directory */
    FLYT_SPARSE_ROOT_BITS = 12, /* directories */
    FLYT_SPARSE_BITS = FLYT_SPARSE_CHUNK_BITS + FLYT_SPARSE_LEAF_BITS + FLYT_SPARSE_ROOT_BITS
};

/* The first number that no array holds. */
#define FLYT_SPARSE_END (1ull << FLYT_SPARSE_BITS)

struct flyt_sparse_leaf {
    _Atomic(char *) chunks[1 << FLYT_SPARSE_LEAF_BITS];
};

/* Embedded in its owner; members are the implementation's. */
struct flyt_sparse {
    _Atomic(struct flyt_sparse_leaf *) leaves[1 << FLYT_SPARSE_ROOT_BITS];
};

/* The element's place, or NULL where it is not made. element_bytes: the same at every call for one array. */
static inline void *flyt_sparse_find(const struct flyt_sparse *array, uint64_t number, size_t element_bytes)
{
    if (number >= FLYT_SPARSE_END)
        return NULL;
    /* Both pair with the releases in flyt_sparse_make: who sees a chunk sees its zeroes. */
    struct flyt_sparse_leaf *leaf = atomic_load_explicit(
        &array->leaves[number >> (FLYT_SPARSE_CHUNK_BITS + FLYT_SPARSE_LEAF_BITS)], memory_order_acquire);
    if (!leaf)
        return NULL;
    char *chunk = atomic_load_explicit(
        &leaf->chunks[number >> FLYT_SPARSE_CHUNK_BITS & ((1u << FLYT_SPARSE_LEAF_BITS) - 1)], memory_order_acquire);
    return chunk ? chunk + (number & ((1u << FLYT_SPARSE_CHUNK_BITS) - 1)) * element_bytes : NULL;
}

/* The element's place, made with its chunk where it is not. NULL: no memory, or the number is too large. The caller
 * holds the lock under which elements are made. */
void *flyt_sparse_make(struct flyt_sparse *array, uint64_t number, size_t element_bytes);

/* Moves *in_out_number up to the lowest element that is made, if it is none itself; false: there is none from there
 * on. */
bool flyt_sparse_next(const struct flyt_sparse *array, uint64_t *in_out_number);

/* Frees all elements. Nobody may use the array any more. */
void flyt_sparse_fini(struct flyt_sparse *array);

#endif
