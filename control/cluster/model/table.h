/*
 * Objects by name: an array of pointers sorted by key, so that a page of a list goes on where the last one ended.
 * Every object's first member is `const char *key`, which does not change while it is in a table.
 */
#ifndef FLYT_CLUSTER_TABLE_H
#define FLYT_CLUSTER_TABLE_H

#include <stddef.h>

struct flyt_table {
    void **items;
    size_t count, room;
};

/* NULL: there is none. */
void *flyt_table_find(const struct flyt_table *table, const char *key);
/* The first place whose key is not below this one; count where there is none. */
size_t flyt_table_place(const struct flyt_table *table, const char *key);
/* 0, -EEXIST or -ENOMEM. */
int flyt_table_add(struct flyt_table *table, void *item);
/* Nothing happens where it is not there. */
void flyt_table_remove(struct flyt_table *table, const void *item);
/* Frees the table, not the objects. */
void flyt_table_fini(struct flyt_table *table);

#endif
