/*
 * Records of live objects, found by the id that the program holds, without a lock: the id's number is the slot of its
 * record, so that numbers stay small and dense, as the server's tables want them. A destroyed or invented handle is
 * recognised; a slot is used again only when FLYT_TABLE_REST others have become free after it, so that a handle that a
 * program uses too late is recognised too; and only when the call that ended it is executed, so that until then it
 * tells what the server still has. Memory of records is never given back: a lookup that races with a destroy reads a
 * stale record but never foreign memory.
 *
 * A record type begins with struct flyt_record. Life: flyt_table_new (private to the caller), flyt_table_publish (found
 * from now on), flyt_table_take (exactly one caller gets it; no longer found), flyt_table_free.
 */
#ifndef FLYT_CLIENT_TABLE_H
#define FLYT_CLIENT_TABLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include "rpc/base/id.h"
#include "rpc/base/sparse.h"

enum { FLYT_TABLE_SLOTS_MAX = 1 << 20, FLYT_TABLE_REST = 256 };

struct flyt_record {
    _Atomic uint64_t id; /* 0 while not published */
    uint64_t minted_id;  /* what publish will store */
    struct flyt_record *next_free;
    /* The calls that make and end it on the server, by their sequence numbers: the channel writes them as the calls get
     * their numbers. 0: not yet, or no call does. They and the rest stay as they are until the slot is used again. */
    uint64_t created, destroyed;
};

struct flyt_table {
    enum flyt_id_type type;
    uint32_t first_slot; /* lower ones stay unused; at least 1 */
    size_t record_bytes;
    _Atomic uint32_t slot_count;                /* slots below this have memory; 0: none yet */
    struct flyt_record *free_first, *free_last; /* a queue */
    uint32_t free_count;
    pthread_mutex_t mutex;
    struct flyt_sparse slots;
};

/* For a static initialiser. */
#define FLYT_TABLE_INIT(id_type, record_type, first)                                                                   \
    {                                                                                                                  \
        .type = (id_type), .first_slot = (first), .record_bytes = sizeof(record_type),                                 \
        .mutex = PTHREAD_MUTEX_INITIALIZER                                                                             \
    }

/* What is in a slot, published or not; NULL: nothing ever was. */
static inline struct flyt_record *flyt_table_slot(struct flyt_table *table, uint32_t slot)
{
    return flyt_sparse_find(&table->slots, slot, table->record_bytes);
}

/* The record that `id` names, or NULL. Takes no lock. */
static inline void *flyt_table_find(struct flyt_table *table, uint64_t id)
{
    uint64_t number = flyt_id_number(id);
    if (flyt_id_type(id) != (unsigned)table->type || number >= FLYT_TABLE_SLOTS_MAX)
        return NULL;
    struct flyt_record *record = flyt_table_slot(table, (uint32_t)number);
    return record && atomic_load_explicit(&record->id, memory_order_acquire) == id ? record : NULL;
}

/* A record whose bytes after struct flyt_record are as the slot's last user left them (zero at first use), with
 * minted_id set; NULL: no memory, or too many. */
void *flyt_table_new(struct flyt_table *table);
void flyt_table_publish(struct flyt_record *record);
/* The record, which nobody finds any more; NULL: unknown, or another thread was first. */
void *flyt_table_take(struct flyt_table *table, uint64_t id);
/* Gives back a record that is not published. NULL is allowed. */
void flyt_table_free(struct flyt_table *table, struct flyt_record *record);
/* The published record with the lowest slot at or above *slot, which is moved behind it; NULL at the end. Start with 0.
 * Records that come or go meanwhile may be missed. */
void *flyt_table_next(struct flyt_table *table, uint32_t *slot);
/* The same of all records, published or not, whose objects the server has when it has executed its calls up to number
 * `sequence` and no later ones. Calls up to there were executed; nobody sends any meanwhile. */
void *flyt_table_next_at(struct flyt_table *table, uint64_t sequence, uint32_t *slot);

#endif
