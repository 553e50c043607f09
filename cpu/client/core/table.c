#include "cpu/client/core/table.h"

#include <stdbool.h>
#include "cpu/client/core/instance.h"

/* Whether nothing that may have to be made again needs what the record says. */
static bool has_ended(const struct flyt_record *record)
{
    return !record->destroyed || flyt_channel_progress(flyt_client.channel).executed >= record->destroyed;
}

static struct flyt_record *new_locked(struct flyt_table *table)
{
    struct flyt_record *record = table->free_first;
    uint32_t slot = atomic_load_explicit(&table->slot_count, memory_order_relaxed);
    if (slot < table->first_slot)
        slot = table->first_slot;
    if ((table->free_count > FLYT_TABLE_REST && has_ended(record)) || (record && slot >= FLYT_TABLE_SLOTS_MAX)) {
        record->created = record->destroyed = 0;
        table->free_first = record->next_free;
        table->free_count--;
        return record;
    }
    record = slot < FLYT_TABLE_SLOTS_MAX ? flyt_sparse_make(&table->slots, slot, table->record_bytes) : NULL;
    if (!record)
        return NULL;
    atomic_store_explicit(&table->slot_count, slot + 1, memory_order_release);
    record->minted_id = flyt_id(table->type, slot);
    return record;
}

void *flyt_table_new(struct flyt_table *table)
{
    pthread_mutex_lock(&table->mutex);
    struct flyt_record *record = new_locked(table);
    pthread_mutex_unlock(&table->mutex);
    return record;
}

void flyt_table_publish(struct flyt_record *record)
{
    /* Pairs with the acquire in flyt_table_find. */
    atomic_store_explicit(&record->id, record->minted_id, memory_order_release);
}

void *flyt_table_take(struct flyt_table *table, uint64_t id)
{
    struct flyt_record *record = flyt_table_find(table, id);
    uint64_t expected = id;
    return record && atomic_compare_exchange_strong(&record->id, &expected, 0) ? record : NULL;
}

void flyt_table_free(struct flyt_table *table, struct flyt_record *record)
{
    if (!record)
        return;
    pthread_mutex_lock(&table->mutex);
    record->next_free = NULL;
    *(table->free_first ? &table->free_last->next_free : &table->free_first) = record;
    table->free_last = record;
    table->free_count++;
    pthread_mutex_unlock(&table->mutex);
}

/* The record in the next slot, whatever it holds. */
static struct flyt_record *next(struct flyt_table *table, uint32_t *slot)
{
    uint32_t end = atomic_load_explicit(&table->slot_count, memory_order_acquire);
    if (*slot < table->first_slot)
        *slot = table->first_slot;
    struct flyt_record *record = NULL;
    while (!record && *slot < end)
        record = flyt_table_slot(table, (*slot)++);
    return record;
}

void *flyt_table_next(struct flyt_table *table, uint32_t *slot)
{
    struct flyt_record *record;
    while ((record = next(table, slot)) && !atomic_load_explicit(&record->id, memory_order_acquire))
        ;
    return record;
}

void *flyt_table_next_at(struct flyt_table *table, uint64_t sequence, uint32_t *slot)
{
    struct flyt_record *record;
    while ((record = next(table, slot))) {
        bool is_made = record->created && record->created <= sequence;
        if (is_made && (!record->destroyed || record->destroyed > sequence))
            break;
    }
    return record;
}
