#include "rpc/base/idtable.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHUNK_OBJECTS = 1 << FLYT_IDTABLE_CHUNK_BITS,
    LEAF_CHUNKS = 1 << FLYT_IDTABLE_LEAF_BITS,
    ROOT_LEAVES = 1 << FLYT_IDTABLE_ROOT_BITS
};

void flyt_idtable_init(struct flyt_idtable *table)
{
    memset(table, 0, sizeof *table);
    pthread_mutex_init(&table->mutex, NULL);
}

void flyt_idtable_fini(struct flyt_idtable *table)
{
    for (unsigned i = 0; i < ROOT_LEAVES; i++) {
        struct flyt_idtable_leaf *leaf = atomic_load(&table->leaves[i]);
        for (unsigned j = 0; leaf && j < LEAF_CHUNKS; j++)
            free(atomic_load(&leaf->chunks[j]));
        free(leaf);
        atomic_store(&table->leaves[i], NULL);
    }
    free(table->free_numbers);
    pthread_mutex_destroy(&table->mutex);
}

/* The number's place; makes the way to it where there is none. NULL: no memory. The released stores pair with the
 * acquiring loads of flyt_idtable_find, which must see zeroed chunks. */
static _Atomic(void *) *make_place_locked(struct flyt_idtable *table, uint64_t number)
{
    _Atomic(struct flyt_idtable_leaf *) *leaf_place =
        &table->leaves[number >> (FLYT_IDTABLE_CHUNK_BITS + FLYT_IDTABLE_LEAF_BITS)];
    struct flyt_idtable_leaf *leaf = atomic_load_explicit(leaf_place, memory_order_relaxed);

    if (!leaf) {
        leaf = calloc(1, sizeof *leaf);
        if (!leaf)
            return NULL;
        atomic_store_explicit(leaf_place, leaf, memory_order_release);
    }
    _Atomic(struct flyt_idtable_chunk *) *chunk_place =
        &leaf->chunks[number >> FLYT_IDTABLE_CHUNK_BITS & (LEAF_CHUNKS - 1)];
    struct flyt_idtable_chunk *chunk = atomic_load_explicit(chunk_place, memory_order_relaxed);
    if (!chunk) {
        chunk = calloc(1, sizeof *chunk);
        if (!chunk)
            return NULL;
        atomic_store_explicit(chunk_place, chunk, memory_order_release);
    }
    return &chunk->objects[number & (CHUNK_OBJECTS - 1)];
}

static int add_locked(struct flyt_idtable *table, uint64_t number, void *object)
{
    if (number >= FLYT_IDTABLE_NUMBER_END)
        return -ERANGE;
    _Atomic(void *) *place = make_place_locked(table, number);
    if (!place)
        return -ENOMEM;
    if (atomic_load_explicit(place, memory_order_relaxed))
        return -EEXIST;
    atomic_store_explicit(place, object, memory_order_release);
    atomic_fetch_add_explicit(&table->count, 1, memory_order_relaxed);
    return 0;
}

int flyt_idtable_add(struct flyt_idtable *table, uint64_t number, void *object)
{
    pthread_mutex_lock(&table->mutex);
    int status = add_locked(table, number, object);
    pthread_mutex_unlock(&table->mutex);
    return status;
}

int flyt_idtable_mint(struct flyt_idtable *table, uint64_t first_number, void *object, uint64_t *ret_number)
{
    uint64_t number;
    int status;

    pthread_mutex_lock(&table->mutex);
    if (!table->next_number)
        table->next_number = first_number ? first_number : 1;
    number = table->free_count ? table->free_numbers[table->free_count - 1] : table->next_number;
    status = add_locked(table, number, object);
    if (!status && table->free_count)
        table->free_count--;
    else if (!status)
        table->next_number++;
    pthread_mutex_unlock(&table->mutex);
    if (!status)
        *ret_number = number;
    return status;
}

/* Keeps a removed number for minting. Without memory for that the number is lost, which costs 8 bytes. */
static void keep_number_locked(struct flyt_idtable *table, uint64_t number)
{
    if (table->free_count == table->free_capacity) {
        size_t capacity = table->free_capacity ? 2 * table->free_capacity : 64;
        uint64_t *numbers = realloc(table->free_numbers, capacity * sizeof *numbers);
        if (!numbers)
            return;
        table->free_numbers = numbers;
        table->free_capacity = capacity;
    }
    table->free_numbers[table->free_count++] = number;
}

void *flyt_idtable_remove(struct flyt_idtable *table, uint64_t number)
{
    pthread_mutex_lock(&table->mutex);
    void *object = flyt_idtable_find(table, number);
    if (object) {
        atomic_store_explicit(make_place_locked(table, number), NULL, memory_order_release);
        atomic_fetch_sub_explicit(&table->count, 1, memory_order_relaxed);
        if (table->next_number)
            keep_number_locked(table, number);
    }
    pthread_mutex_unlock(&table->mutex);
    return object;
}

static int each_in_chunk(struct flyt_idtable_chunk *chunk, uint64_t first,
                         int (*visit)(void *user, uint64_t number, void *object), void *user)
{
    for (unsigned i = 0; i < CHUNK_OBJECTS; i++) {
        void *object = atomic_load_explicit(&chunk->objects[i], memory_order_acquire);
        int status = object ? visit(user, first + i, object) : 0;
        if (status)
            return status;
    }
    return 0;
}

int flyt_idtable_each(struct flyt_idtable *table, int (*visit)(void *user, uint64_t number, void *object), void *user)
{
    for (uint64_t i = 0; i < ROOT_LEAVES; i++) {
        struct flyt_idtable_leaf *leaf = atomic_load_explicit(&table->leaves[i], memory_order_acquire);
        for (uint64_t j = 0; leaf && j < LEAF_CHUNKS; j++) {
            struct flyt_idtable_chunk *chunk = atomic_load_explicit(&leaf->chunks[j], memory_order_acquire);
            uint64_t first = (i << FLYT_IDTABLE_LEAF_BITS | j) << FLYT_IDTABLE_CHUNK_BITS;
            int status = chunk ? each_in_chunk(chunk, first, visit, user) : 0;
            if (status)
                return status;
        }
    }
    return 0;
}
