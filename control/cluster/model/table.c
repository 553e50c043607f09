#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "control/cluster/model/table.h"

static const char *key_of(const void *item)
{
    return *(const char *const *)item;
}

size_t flyt_table_place(const struct flyt_table *table, const char *key)
{
    size_t low = 0, high = table->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(key_of(table->items[middle]), key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void *flyt_table_find(const struct flyt_table *table, const char *key)
{
    size_t place = flyt_table_place(table, key);

    return place < table->count && !strcmp(key_of(table->items[place]), key) ? table->items[place] : NULL;
}

int flyt_table_add(struct flyt_table *table, void *item)
{
    size_t place = flyt_table_place(table, key_of(item));

    if (place < table->count && !strcmp(key_of(table->items[place]), key_of(item)))
        return -EEXIST;
    if (table->count == table->room) {
        size_t room = table->room ? 2 * table->room : 32;
        void **items = realloc(table->items, room * sizeof *items);
        if (!items)
            return -ENOMEM;
        table->items = items;
        table->room = room;
    }
    memmove(table->items + place + 1, table->items + place, (table->count - place) * sizeof *table->items);
    table->items[place] = item;
    table->count++;
    return 0;
}

void flyt_table_remove(struct flyt_table *table, const void *item)
{
    size_t place = flyt_table_place(table, key_of(item));

    if (place >= table->count || table->items[place] != item)
        return;
    table->count--;
    memmove(table->items + place, table->items + place + 1, (table->count - place) * sizeof *table->items);
}

void flyt_table_fini(struct flyt_table *table)
{
    free(table->items);
    *table = (struct flyt_table){0};
}
