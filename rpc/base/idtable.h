/*
 * From an object's number to its pointer: one table per type of id (rpc/base/id.h). Finding is lock-free and may run
 * at the same time as adding and removing from other threads; adding and removing take the table's mutex. The table
 * holds pointers only: that an object stays alive while a finder uses it is the caller's affair.
 *
 * Numbers are small and dense as they are minted (1, 2, 3 …), so the table is a sparse array (sparse.h). Numbers of
 * 2^32 and more are refused. A number once used costs 8 bytes for the table's life: who mints numbers reuses those of
 * removed objects. A peer that names far-off numbers pays one call for each 16 KiB.
 */
#ifndef FLYT_BASE_IDTABLE_H
#define FLYT_BASE_IDTABLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include "rpc/base/sparse.h"

/* The first number that no table holds. */
#define FLYT_IDTABLE_NUMBER_END FLYT_SPARSE_END

/* Embedded in its owner; members are the implementation's. */
struct flyt_idtable {
    pthread_mutex_t mutex;
    _Atomic(uint64_t) count;
    struct flyt_sparse places; /* of _Atomic(void *) */
};

void flyt_idtable_init(struct flyt_idtable *table);
/* Frees the table, not the objects. Nobody may use it any more. */
void flyt_idtable_fini(struct flyt_idtable *table);

/* Enters object (not NULL) under number. 0; -EEXIST: the number is taken; -ERANGE: too large; -ENOMEM. */
int flyt_idtable_add(struct flyt_idtable *table, uint64_t number, void *object);

/* Takes the object out and returns it, NULL where there is none: of several threads that remove one number, one gets
 * the object. */
void *flyt_idtable_remove(struct flyt_idtable *table, uint64_t number);

/* The object, or NULL. What the adder wrote to the object before adding it is visible. */
static inline void *flyt_idtable_find(const struct flyt_idtable *table, uint64_t number)
{
    _Atomic(void *) *place = flyt_sparse_find(&table->places, number, sizeof *place);
    return place ? atomic_load_explicit(place, memory_order_acquire) : NULL;
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
