#include "cpu/cudart/address_map.h"

#include <stdint.h>
#include <stdlib.h>

enum { FIRST_SLOTS = 64 };

struct flyt_address_table {
    struct flyt_address_table *older; /* kept for readers that may still be in it */
    size_t mask;                      /* number of slots - 1; the number is a power of two */
    _Atomic(struct flyt_address_node *) slots[];
};

/* Addresses of functions share their low bits and most of their high ones: the product spreads what differs over the
 * upper half, of which the table takes the low bits. */
static size_t slot_of(const struct flyt_address_table *table, const void *key)
{
    return (size_t)(((uint64_t)(uintptr_t)key * 0x9e3779b97f4a7c15ull) >> 32) & table->mask;
}

static struct flyt_address_node *find_in(const struct flyt_address_table *table, const void *key)
{
    for (size_t i = slot_of(table, key);; i = (i + 1) & table->mask) {
        /* Pairs with the release in place(): the node's key is visible. */
        struct flyt_address_node *node = atomic_load_explicit(&table->slots[i], memory_order_acquire);

        if (!node || node->key == key)
            return node;
    }
}

struct flyt_address_node *flyt_address_map_find(struct flyt_address_map *map, const void *key)
{
    /* Pairs with the release in grow(): the table's slots are filled. */
    struct flyt_address_table *table = atomic_load_explicit(&map->table, memory_order_acquire);

    return table ? find_in(table, key) : NULL;
}

/* There is always a free slot: the table is at most half full. */
static void place(struct flyt_address_table *table, struct flyt_address_node *node)
{
    size_t i = slot_of(table, node->key);

    while (atomic_load_explicit(&table->slots[i], memory_order_relaxed))
        i = (i + 1) & table->mask;
    atomic_store_explicit(&table->slots[i], node, memory_order_release);
}

/* A table of twice the size with the same nodes becomes the current one. NULL: out of memory, nothing has changed. */
static struct flyt_address_table *grow(struct flyt_address_map *map, struct flyt_address_table *older)
{
    size_t slot_count = older ? (older->mask + 1) * 2 : FIRST_SLOTS;
    struct flyt_address_table *table = calloc(1, sizeof(*table) + slot_count * sizeof(table->slots[0]));

    if (!table)
        return NULL;
    table->older = older;
    table->mask = slot_count - 1;
    for (size_t i = 0; older && i <= older->mask; i++) {
        struct flyt_address_node *node = atomic_load_explicit(&older->slots[i], memory_order_relaxed);

        if (node)
            place(table, node);
    }
    atomic_store_explicit(&map->table, table, memory_order_release);
    return table;
}

struct flyt_address_node *flyt_address_map_add(struct flyt_address_map *map, const void *key)
{
    struct flyt_address_table *table = atomic_load_explicit(&map->table, memory_order_relaxed);
    struct flyt_address_node *node = table ? find_in(table, key) : NULL;

    if (node)
        return node;
    if (!table || map->node_count * 2 > table->mask) {
        table = grow(map, table);
        if (!table)
            return NULL;
    }
    node = calloc(1, sizeof(*node));
    if (!node)
        return NULL;
    node->key = key;
    place(table, node);
    map->node_count++;
    return node;
}

void flyt_address_map_fini(struct flyt_address_map *map)
{
    struct flyt_address_table *table = atomic_load_explicit(&map->table, memory_order_relaxed);

    for (size_t i = 0; table && i <= table->mask; i++)
        free(atomic_load_explicit(&table->slots[i], memory_order_relaxed));
    while (table) {
        struct flyt_address_table *older = table->older;

        free(table);
        table = older;
    }
    atomic_store_explicit(&map->table, NULL, memory_order_relaxed);
    map->node_count = 0;
}
