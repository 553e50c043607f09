/*
 * Host addresses of a program's kernels and variables → what is known of them: a hash table that is read without a
 * lock, on every launch, while libraries with kernels of their own are opened and closed.
 *
 * A key is never removed: the node of an address stays where it is as long as the map lives, so its address may be
 * kept (nvcc's launch stubs keep it for ever). What comes and goes is the node's value. When the table grows, the old
 * one is kept for readers that are still in it; all old tables together are smaller than the current one.
 */
#ifndef FLYT_CUDART_ADDRESS_MAP_H
#define FLYT_CUDART_ADDRESS_MAP_H

#include <stdatomic.h>
#include <stddef.h>

/* What is known of one address. `value` is NULL while nothing is registered there. */
struct flyt_address_node {
    const void *key;
    _Atomic(void *) value;
};

struct flyt_address_table;

/* All zero is an empty map. */
struct flyt_address_map {
    _Atomic(struct flyt_address_table *) table;
    size_t node_count;
};

/* Frees everything, nodes included. No other thread may use the map meanwhile or afterwards. */
void flyt_address_map_fini(struct flyt_address_map *map);

/* The node of an address, or NULL where there never was anything. Any thread, no lock. */
struct flyt_address_node *flyt_address_map_find(struct flyt_address_map *map, const void *key);

/* The node of an address (not NULL), made where there is none (its value is NULL then). NULL: out of memory. Writers
 * must exclude each other; readers need not be excluded. */
struct flyt_address_node *flyt_address_map_add(struct flyt_address_map *map, const void *key);

#endif
