#include "rpc/base/sparse.h"

#include <stdlib.h>

enum {
    CHUNK_ELEMENTS = 1 << FLYT_SPARSE_CHUNK_BITS,
    LEAF_CHUNKS = 1 << FLYT_SPARSE_LEAF_BITS,
    ROOT_LEAVES = 1 << FLYT_SPARSE_ROOT_BITS
};

void *flyt_sparse_make(struct flyt_sparse *array, uint64_t number, size_t element_bytes)
{
    if (number >= FLYT_SPARSE_END)
        return NULL;
    _Atomic(struct flyt_sparse_leaf *) *leaf_place =
        &array->leaves[number >> (FLYT_SPARSE_CHUNK_BITS + FLYT_SPARSE_LEAF_BITS)];
    struct flyt_sparse_leaf *leaf = atomic_load_explicit(leaf_place, memory_order_relaxed);
    if (!leaf) {
        leaf = calloc(1, sizeof *leaf);
        if (!leaf)
            return NULL;
        atomic_store_explicit(leaf_place, leaf, memory_order_release);
    }
    _Atomic(char *) *chunk_place = &leaf->chunks[number >> FLYT_SPARSE_CHUNK_BITS & (LEAF_CHUNKS - 1)];
    char *chunk = atomic_load_explicit(chunk_place, memory_order_relaxed);
    if (!chunk) {
        chunk = calloc(CHUNK_ELEMENTS, element_bytes);
        if (!chunk)
            return NULL;
        atomic_store_explicit(chunk_place, chunk, memory_order_release);
    }
    return chunk + (number & (CHUNK_ELEMENTS - 1)) * element_bytes;
}

bool flyt_sparse_next(const struct flyt_sparse *array, uint64_t *in_out_number)
{
    uint64_t chunk = *in_out_number >> FLYT_SPARSE_CHUNK_BITS, first = chunk;
    while (chunk < (uint64_t)ROOT_LEAVES * LEAF_CHUNKS) {
        struct flyt_sparse_leaf *leaf =
            atomic_load_explicit(&array->leaves[chunk >> FLYT_SPARSE_LEAF_BITS], memory_order_acquire);
        if (leaf && atomic_load_explicit(&leaf->chunks[chunk & (LEAF_CHUNKS - 1)], memory_order_acquire)) {
            if (chunk != first)
                *in_out_number = chunk << FLYT_SPARSE_CHUNK_BITS;
            return true;
        }
        chunk = leaf ? chunk + 1 : (chunk | (LEAF_CHUNKS - 1)) + 1;
    }
    return false;
}

void flyt_sparse_fini(struct flyt_sparse *array)
{
    for (unsigned i = 0; i < ROOT_LEAVES; i++) {
        struct flyt_sparse_leaf *leaf = atomic_load(&array->leaves[i]);
        for (unsigned j = 0; leaf && j < LEAF_CHUNKS; j++)
            free(atomic_load(&leaf->chunks[j]));
        free(leaf);
        atomic_store(&array->leaves[i], NULL);
    }
}
