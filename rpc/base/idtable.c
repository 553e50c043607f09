#include "rpc/base/idtable.h"

#include <errno.h>
#include <string.h>

void flyt_idtable_init(struct flyt_idtable *table)
{
    memset(table, 0, sizeof *table);
    pthread_mutex_init(&table->mutex, NULL);
}

void flyt_idtable_fini(struct flyt_idtable *table)
{
    flyt_sparse_fini(&table->places);
    pthread_mutex_destroy(&table->mutex);
}

static int add_locked(struct flyt_idtable *table, uint64_t number, void *object)
{
    if (number >= FLYT_IDTABLE_NUMBER_END)
        return -ERANGE;
    _Atomic(void *) *place = flyt_sparse_make(&table->places, number, sizeof *place);
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

void *flyt_idtable_remove(struct flyt_idtable *table, uint64_t number)
{
    pthread_mutex_lock(&table->mutex);
    _Atomic(void *) *place = flyt_sparse_find(&table->places, number, sizeof *place);
    void *object = place ? atomic_load_explicit(place, memory_order_relaxed) : NULL;
    if (object) {
        atomic_store_explicit(place, NULL, memory_order_release);
        atomic_fetch_sub_explicit(&table->count, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&table->mutex);
    return object;
}

int flyt_idtable_each(struct flyt_idtable *table, int (*visit)(void *user, uint64_t number, void *object), void *user)
{
    for (uint64_t number = 0; flyt_sparse_next(&table->places, &number); number++) {
        void *object = flyt_idtable_find(table, number);
        int status = object ? visit(user, number, object) : 0;
        if (status)
            return status;
    }
    return 0;
}
