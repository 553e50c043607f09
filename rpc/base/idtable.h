/*
 * From an object's number to its pointer: one table per type of id (rpc/base/id.h). Finding is lock-free and may run
 * at the same time as adding and removing from other threads; adding and removing take the table's mutex. The table
 * holds pointers only: that an object stays alive while a finder uses it is the caller's affair.
 *
 * Numbers are small and dense as they are minted (1, 2, 3 …), so the table is an array in chunks that are made when
 * the first number in them is added, and freed with the table. Numbers of 2^32 and more are refused. A number once used
 * costs 8 bytes for the table's life: who mints numbers reuses those of removed objects (flyt_idtable_mint does). A
 * peer that names far-off numbers pays one call for each 16 KiB.
 */
#ifndef FLYT_BASE_IDTABLE_H
#define FLYT_BASE_IDTABLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FLYT_IDTABLE_CHUNK_BITS = 10,
    FLYT_IDTABLE_LEAF_BITS = 10, /* chunks in one directory */
    FLYT_IDTABLE_ROOT_BITS = 12, /* directories */
    FLYT_IDTABLE_BITS = FLYT_IDTABLE_CHUNK_BITS + FLYT_IDTABLE_LEAF_BITS + FLYT_IDTABLE_ROOT_BITS
};

/* The first number that no table holds. */
#define FLYT_IDTABLE_NUMBER_END (1ull << FLYT_IDTABLE_BITS)

struct flyt_idtable_chunk {
    _Atomic(void *) objects[1 << FLYT_IDTABLE_CHUNK_BITS];
};

struct flyt_idtable_leaf {
    _Atomic(struct flyt_idtable_chunk *) chunks[1 << FLYT_IDTABLE_LEAF_BITS];
};

/* Embedded in its owner; members are the implementation's. */
struct flyt_idtable {
    pthread_mutex_t mutex;
    _Atomic(uint64_t) count;
    uint64_t next_number;   /* minting only: never given out before */
    uint64_t *free_numbers; /* minting only: given out and removed, the last one first */
    size_t free_count, free_capacity;
    _Atomic(struct flyt_idtable_leaf *) leaves[1 << FLYT_IDTABLE_ROOT_BITS];
};

void flyt_idtable_init(struct flyt_idtable *table);
/* Frees the table, not the objects. Nobody may use it any more. */
void flyt_idtable_fini(struct flyt_idtable *table);

/* Enters object (not NULL) under number. 0; -EEXIST: the number is taken; -ERANGE: too large; -ENOMEM. */
int flyt_idtable_add(struct flyt_idtable *table, uint64_t number, void *object);

/* Enters object under a number of the table's choice, first_number or above: one that was removed, else a new one. The
 * same first_number goes to every call, and the table's numbers come from here alone. 0 and *ret_number; -ERANGE,
 * -ENOMEM. */
int flyt_idtable_mint(struct flyt_idtable *table, uint64_t first_number, void *object, uint64_t *ret_number);

/* Takes the object out and returns it, NULL where there is none: of several threads that remove one number, one gets
 * the object. */
void *flyt_idtable_remove(struct flyt_idtable *table, uint64_t number);

/* The object, or NULL. What the adder wrote to the object before adding it is visible. */
static inline void *flyt_idtable_find(const struct flyt_idtable *table, uint64_t number)
{
    if (number >= FLYT_IDTABLE_NUMBER_END)
        return NULL;
    struct flyt_idtable_leaf *leaf = atomic_load_explicit(
        &table->leaves[number >> (FLYT_IDTABLE_CHUNK_BITS + FLYT_IDTABLE_LEAF_BITS)], memory_order_acquire);
    if (!leaf)
        return NULL;
    struct flyt_idtable_chunk *chunk = atomic_load_explicit(
        &leaf->chunks[number >> FLYT_IDTABLE_CHUNK_BITS & ((1u << FLYT_IDTABLE_LEAF_BITS) - 1)], memory_order_acquire);
    if (!chunk)
        return NULL;
    return atomic_load_explicit(&chunk->objects[number & ((1u << FLYT_IDTABLE_CHUNK_BITS) - 1)], memory_order_acquire);
}

/* How many objects there are at this moment. */
static inline uint64_t flyt_idtable_count(const struct flyt_idtable *table)
{
    return atomic_load_explicit(&table->count, memory_order_relaxed);
}

/*
 * Calls visit for every object, by rising number, until it returns a value other than 0, which is then returned (else
 * 0). visit may remove the object that it is given. Objects added or removed meanwhile may or may not be visited.
 */
int flyt_idtable_each(struct flyt_idtable *table, int (*visit)(void *user, uint64_t number, void *object), void *user);

#endif
