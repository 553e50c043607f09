#include "cpu/server/move/common/page_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { UNSENT, SENDING, SENT };

struct flyt_page_extent {
    uint64_t address, pages_count, number;
    struct flyt_page_hash *hashes; /* of what was sent: where the state is SENT */
    uint8_t *states;
};

void flyt_page_runs_clear(struct flyt_page_runs *runs)
{
    runs->count = runs->pages_count = runs->zero_pages_count = 0;
    runs->compared_count = runs->on_way_count = 0;
}

void flyt_page_runs_fini(struct flyt_page_runs *runs)
{
    free(runs->items);
    *runs = (struct flyt_page_runs){0};
}

void flyt_page_table_init(struct flyt_page_table *table, const struct flyt_page_hash *zero)
{
    *table = (struct flyt_page_table){.zero = *zero};
}

void flyt_page_table_fini(struct flyt_page_table *table)
{
    for (unsigned i = 0; i < table->extent_count; i++) {
        free(table->extents[i].hashes);
        free(table->extents[i].states);
    }
    free(table->extents);
    *table = (struct flyt_page_table){0};
}

static uint64_t extent_end(const struct flyt_page_extent *extent)
{
    return extent->address + extent->pages_count * FLYT_PAGE_BYTES;
}

/* The first extent that ends behind the address, or extent_count. */
static unsigned find_index(const struct flyt_page_table *table, uint64_t address)
{
    unsigned first = 0, last = table->extent_count;
    while (first < last) {
        unsigned middle = first + (last - first) / 2;
        if (extent_end(&table->extents[middle]) > address)
            last = middle;
        else
            first = middle + 1;
    }
    return first;
}

static struct flyt_page_extent *find(const struct flyt_page_table *table, uint64_t address)
{
    unsigned i = find_index(table, address);
    return i < table->extent_count && table->extents[i].address <= address ? &table->extents[i] : NULL;
}

static int reserve_extent(struct flyt_page_table *table)
{
    if (table->extent_count == FLYT_PAGE_EXTENTS_MAX)
        return -ENOSPC;
    if (table->extent_count < table->extent_capacity)
        return 0;
    unsigned capacity = table->extent_capacity ? table->extent_capacity * 2 : 16;
    struct flyt_page_extent *extents = reallocarray(table->extents, capacity, sizeof *extents);
    if (!extents)
        return -ENOMEM;
    table->extents = extents;
    table->extent_capacity = capacity;
    return 0;
}

int flyt_page_table_add(struct flyt_page_table *table, uint64_t address, uint64_t bytes)
{
    if (!bytes || (address | bytes) % FLYT_PAGE_EXTENT_BYTES || bytes > UINT64_MAX - address)
        return -EINVAL;
    unsigned i = find_index(table, address);
    if (i < table->extent_count && table->extents[i].address < address + bytes)
        return -EEXIST;
    int status = reserve_extent(table);
    if (status)
        return status;
    struct flyt_page_extent extent = {address, bytes / FLYT_PAGE_BYTES, table->last_number + 1, NULL, NULL};
    extent.hashes = calloc(extent.pages_count, sizeof *extent.hashes);
    extent.states = calloc(extent.pages_count, sizeof *extent.states);
    if (!extent.hashes || !extent.states) {
        free(extent.hashes);
        free(extent.states);
        return -ENOMEM;
    }
    memmove(table->extents + i + 1, table->extents + i, (table->extent_count - i) * sizeof extent);
    table->extents[i] = extent;
    table->extent_count++;
    table->last_number++;
    table->pages_count += extent.pages_count;
    table->unsent_count += extent.pages_count;
    return 0;
}

/* Puts a page into another state, and keeps the counts. */
static void set_state(struct flyt_page_table *table, struct flyt_page_extent *extent, uint64_t page, uint8_t state)
{
    uint8_t old = extent->states[page];
    table->unsent_count += (state == UNSENT) - (uint64_t)(old == UNSENT);
    table->sending_count += (state == SENDING) - (uint64_t)(old == SENDING);
    extent->states[page] = state;
}

int flyt_page_table_remove(struct flyt_page_table *table, uint64_t address)
{
    struct flyt_page_extent *extent = find(table, address);
    if (!extent || extent->address != address)
        return -ENOENT;
    for (uint64_t page = 0; page < extent->pages_count; page++)
        set_state(table, extent, page, SENT);
    table->pages_count -= extent->pages_count;
    free(extent->hashes);
    free(extent->states);
    table->extent_count--;
    memmove(extent, extent + 1, (size_t)(table->extents + table->extent_count - extent) * sizeof *extent);
    return 0;
}

const struct flyt_page_hash *flyt_page_table_hashes(const struct flyt_page_table *table, unsigned n,
                                                    uint64_t *ret_address, uint64_t *ret_pages_count)
{
    if (table->unsent_count || table->sending_count)
        return NULL;
    const struct flyt_page_extent *extent = &table->extents[n];
    *ret_address = extent->address;
    *ret_pages_count = extent->pages_count;
    return extent->hashes;
}

int flyt_page_table_inherit(struct flyt_page_table *table, uint64_t address, const struct flyt_page_hash *hash)
{
    struct flyt_page_extent *extent = find(table, address);
    if (!extent || address % FLYT_PAGE_BYTES)
        return -ENOENT;
    uint64_t page = (address - extent->address) / FLYT_PAGE_BYTES;
    if (extent->states[page] != UNSENT)
        return -EBUSY;
    extent->hashes[page] = hash ? *hash : table->zero;
    set_state(table, extent, page, SENT);
    return 0;
}

bool flyt_page_table_has(const struct flyt_page_table *table, uint64_t address)
{
    const struct flyt_page_extent *extent = find(table, address);
    return extent && extent->address == address;
}

uint32_t flyt_page_table_look(const struct flyt_page_table *table, uint64_t *cursor, uint64_t pages_max,
                              uint32_t ranges_max, struct flyt_page_range *ret_ranges)
{
    uint32_t count = 0;
    for (unsigned i = find_index(table, *cursor); i < table->extent_count && count < ranges_max && pages_max; i++) {
        const struct flyt_page_extent *extent = &table->extents[i];
        uint64_t address = *cursor > extent->address ? *cursor : extent->address;
        uint64_t pages = (extent_end(extent) - address) / FLYT_PAGE_BYTES;
        if (pages > pages_max)
            pages = pages_max;
        pages_max -= pages;
        ret_ranges[count++] = (struct flyt_page_range){address, pages};
        *cursor = address + pages * FLYT_PAGE_BYTES;
    }
    return count;
}

static int append(struct flyt_page_runs *runs, const struct flyt_page_extent *extent, uint64_t page, bool is_zero)
{
    uint64_t address = extent->address + page * FLYT_PAGE_BYTES;
    struct flyt_page_run *last = runs->count ? &runs->items[runs->count - 1] : NULL;
    if (last && last->extent_number == extent->number && last->is_zero == is_zero &&
        last->address + last->pages_count * FLYT_PAGE_BYTES == address) {
        last->pages_count++;
    } else {
        if (runs->count == runs->capacity) {
            uint64_t capacity = runs->capacity ? runs->capacity * 2 : 64;
            struct flyt_page_run *items = reallocarray(runs->items, capacity, sizeof *items);
            if (!items)
                return -ENOMEM;
            runs->items = items;
            runs->capacity = capacity;
        }
        runs->items[runs->count++] = (struct flyt_page_run){address, 1, extent->number, is_zero};
    }
    runs->pages_count++;
    runs->zero_pages_count += is_zero;
    return 0;
}

int flyt_page_table_compare(const struct flyt_page_table *table, uint64_t address, struct flyt_page_seen seen,
                            struct flyt_page_runs *runs)
{
    const struct flyt_page_extent *extent =
        runs->last_extent < table->extent_count ? &table->extents[runs->last_extent] : NULL;
    if (!extent || address < extent->address || address >= extent_end(extent)) {
        extent = find(table, address);
        if (!extent)
            return 0;
        runs->last_extent = (unsigned)(extent - table->extents);
    }
    uint64_t page = (address - extent->address) / FLYT_PAGE_BYTES;
    int status = 0;
    if (extent->states[page] == SENDING)
        runs->on_way_count++;
    else if (extent->states[page] == UNSENT || !flyt_page_hash_is_equal(&extent->hashes[page], &seen.hash))
        status = append(runs, extent, page, seen.is_zero);
    runs->compared_count += !status;
    return status;
}

bool flyt_page_table_is_exact(const struct flyt_page_table *table, const struct flyt_page_runs *runs)
{
    return runs->compared_count == table->pages_count && !runs->pages_count && !runs->on_way_count &&
           !table->unsent_count && !table->sending_count;
}

int flyt_page_table_collect(const struct flyt_page_table *table, struct flyt_page_runs *runs)
{
    int status = 0;
    for (unsigned i = 0; i < table->extent_count; i++) {
        const struct flyt_page_extent *extent = &table->extents[i];
        for (uint64_t page = 0; page < extent->pages_count && !status; page++)
            if (extent->states[page] == UNSENT)
                status = append(runs, extent, page, false);
    }
    return status;
}

/* The run's extent and its first page there. 0, -ESTALE or -EINVAL. */
static int locate(const struct flyt_page_table *table, const struct flyt_page_run *run,
                  struct flyt_page_extent **ret_extent, uint64_t *ret_page)
{
    struct flyt_page_extent *extent = find(table, run->address);
    if (!extent || extent->number != run->extent_number)
        return -ESTALE;
    uint64_t page = (run->address - extent->address) / FLYT_PAGE_BYTES;
    if (run->address % FLYT_PAGE_BYTES || !run->pages_count || run->pages_count > extent->pages_count - page)
        return -EINVAL;
    *ret_extent = extent;
    *ret_page = page;
    return 0;
}

int flyt_page_table_begin(struct flyt_page_table *table, const struct flyt_page_run *run)
{
    struct flyt_page_extent *extent;
    uint64_t first;
    int status = locate(table, run, &extent, &first);
    if (status)
        return status;
    if (memchr(extent->states + first, SENDING, run->pages_count))
        return -EBUSY;
    for (uint64_t i = 0; i < run->pages_count; i++)
        set_state(table, extent, first + i, SENDING);
    return 0;
}

/* Takes over this hash for `count` pages of the run, from its page `from` on. */
static int take_sent(struct flyt_page_table *table, const struct flyt_page_run *run, uint64_t from, uint64_t count,
                     struct flyt_page_hash hash)
{
    struct flyt_page_extent *extent;
    uint64_t first;
    int status = locate(table, run, &extent, &first);
    if (status)
        return status;
    if (from > run->pages_count || count > run->pages_count - from)
        return -EINVAL;
    first += from;
    for (uint64_t i = first; i < first + count; i++)
        if (extent->states[i] != SENDING)
            return -EINVAL;
    for (uint64_t i = first; i < first + count; i++) {
        extent->hashes[i] = hash;
        set_state(table, extent, i, SENT);
    }
    return 0;
}

int flyt_page_table_sent(struct flyt_page_table *table, const struct flyt_page_run *run, uint64_t n,
                         struct flyt_page_sent sent)
{
    return take_sent(table, run, n, 1, sent.hash);
}

int flyt_page_table_sent_zeros(struct flyt_page_table *table, const struct flyt_page_run *run)
{
    return take_sent(table, run, 0, run->pages_count, table->zero);
}

int flyt_page_table_lost(struct flyt_page_table *table, const struct flyt_page_run *run)
{
    struct flyt_page_extent *extent;
    uint64_t first;
    int status = locate(table, run, &extent, &first);
    if (status)
        return status;
    for (uint64_t i = 0; i < run->pages_count; i++)
        if (extent->states[first + i] == SENDING)
            set_state(table, extent, first + i, UNSENT);
    return 0;
}
