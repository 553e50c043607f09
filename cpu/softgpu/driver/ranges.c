#include "cpu/softgpu/driver/ranges.h"

#include <errno.h>
#include <search.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

/* A free range; in both trees of free ranges. */
struct hole {
    uint64_t start;
    uint64_t bytes;
};

/* The key of a search for the smallest hole that fits: the comparison notes the best one that it passes. */
struct hole_search {
    struct hole key; /* first: the comparison gets a struct hole */
    const struct hole *best;
};

/* Ranges never overlap, so that overlapping counts as equal: a search for one address finds what contains it. */
static int compare_places(const void *a, const void *b)
{
    const struct hole *x = a, *y = b;

    if (x->start + x->bytes <= y->start)
        return -1;
    return x->start >= y->start + y->bytes;
}

static int compare_used(const void *a, const void *b)
{
    const struct flyt_soft_range *x = a, *y = b;

    if (x->start + x->bytes <= y->start)
        return -1;
    return x->start >= y->start + y->bytes;
}

static int compare_sizes(const void *a, const void *b)
{
    const struct hole *x = a, *y = b;

    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return x->start < y->start ? -1 : x->start > y->start;
}

/* tfind passes its key as the first argument. */
static int compare_fit(const void *a, const void *b)
{
    struct hole_search *search = (struct hole_search *)a;
    const struct hole *hole = b;

    if (compare_sizes(&search->key, hole) > 0)
        return 1;
    search->best = hole;
    return -1;
}

static struct hole *find_hole(const struct flyt_soft_ranges *ranges, uint64_t address)
{
    struct hole key = {.start = address, .bytes = 1};
    void **node = tfind(&key, &ranges->free_by_start, compare_places);

    return node ? *node : NULL;
}

static void drop_hole(struct flyt_soft_ranges *ranges, struct hole *hole)
{
    if (!hole)
        return;
    tdelete(hole, &ranges->free_by_start, compare_places);
    tdelete(hole, &ranges->free_by_bytes, compare_sizes);
    free(hole);
}

static int add_hole(struct flyt_soft_ranges *ranges, uint64_t start, uint64_t bytes)
{
    struct hole *hole;

    if (!bytes)
        return 0;
    hole = malloc(sizeof(*hole));
    if (!hole)
        return -ENOMEM;
    *hole = (struct hole){.start = start, .bytes = bytes};
    if (!tsearch(hole, &ranges->free_by_start, compare_places)) {
        free(hole);
        return -ENOMEM;
    }
    if (!tsearch(hole, &ranges->free_by_bytes, compare_sizes)) {
        tdelete(hole, &ranges->free_by_start, compare_places);
        free(hole);
        return -ENOMEM;
    }
    return 0;
}

int flyt_soft_ranges_init(struct flyt_soft_ranges *ranges, uint64_t base, uint64_t bytes, uint64_t unit_bytes)
{
    *ranges = (struct flyt_soft_ranges){.unit_bytes = unit_bytes};
    return add_hole(ranges, base, bytes);
}

static void forget_node(void *node)
{
}

void flyt_soft_ranges_fini(struct flyt_soft_ranges *ranges)
{
    /* Each hole is in two trees and freed with the second. */
    tdestroy(ranges->free_by_bytes, forget_node);
    tdestroy(ranges->free_by_start, free);
    tdestroy(ranges->used_by_start, free);
    *ranges = (struct flyt_soft_ranges){0};
}

/* Turns [start, start + bytes), which lies in `hole`, into a range in use. */
static int carve(struct flyt_soft_ranges *ranges, struct hole *hole, uint64_t start, uint64_t bytes,
                 uint64_t asked_bytes, struct flyt_soft_range **ret_range)
{
    struct hole whole = *hole;
    struct flyt_soft_range *range = malloc(sizeof(*range));
    uint64_t end = start + bytes;

    if (!range)
        return -ENOMEM;
    *range = (struct flyt_soft_range){.start = start, .bytes = bytes, .asked_bytes = asked_bytes};
    drop_hole(ranges, hole);
    if (!tsearch(range, &ranges->used_by_start, compare_used))
        goto restore_hole;
    if (add_hole(ranges, whole.start, start - whole.start) < 0)
        goto drop_range;
    if (add_hole(ranges, end, whole.start + whole.bytes - end) < 0)
        goto drop_left;
    ranges->used_bytes += bytes;
    *ret_range = range;
    return 0;

drop_left:
    if (start > whole.start)
        drop_hole(ranges, find_hole(ranges, whole.start));
drop_range:
    tdelete(range, &ranges->used_by_start, compare_used);
restore_hole:
    /* Should this fail as well, these addresses are never handed out again, and nothing else happens. */
    (void)add_hole(ranges, whole.start, whole.bytes);
    free(range);
    return -ENOMEM;
}

int flyt_soft_ranges_take(struct flyt_soft_ranges *ranges, uint64_t bytes, uint64_t align,
                          struct flyt_soft_range **ret_range)
{
    uint64_t unit = ranges->unit_bytes;
    uint64_t need, spare, start;
    struct hole_search search;

    if (!bytes || bytes > UINT64_MAX / 2 || align > UINT64_MAX / 4)
        return -ENOMEM;
    need = (bytes + unit - 1) & ~(unit - 1);
    spare = align > unit ? align - unit : 0;
    search = (struct hole_search){.key = {.start = 0, .bytes = need + spare}};
    tfind(&search, &ranges->free_by_bytes, compare_fit);
    if (!search.best)
        return -ENOMEM;
    start = align > unit ? (search.best->start + align - 1) & ~(align - 1) : search.best->start;
    return carve(ranges, (struct hole *)search.best, start, need, bytes, ret_range);
}

int flyt_soft_ranges_take_at(struct flyt_soft_ranges *ranges, uint64_t start, uint64_t bytes,
                             struct flyt_soft_range **ret_range)
{
    struct hole *hole = find_hole(ranges, start);

    if (!bytes || start + bytes < start || !hole || start + bytes > hole->start + hole->bytes)
        return -EBUSY;
    return carve(ranges, hole, start, bytes, bytes, ret_range);
}

struct flyt_soft_range *flyt_soft_ranges_find_any(const struct flyt_soft_ranges *ranges, uint64_t start, uint64_t bytes)
{
    struct flyt_soft_range key = {.start = start, .bytes = bytes};
    void **node = tfind(&key, &ranges->used_by_start, compare_used);

    return node ? *node : NULL;
}

struct flyt_soft_range *flyt_soft_ranges_find(const struct flyt_soft_ranges *ranges, uint64_t address)
{
    return flyt_soft_ranges_find_any(ranges, address, 1);
}

int flyt_soft_ranges_give(struct flyt_soft_ranges *ranges, struct flyt_soft_range *range, uint64_t *ret_hole_start,
                          uint64_t *ret_hole_bytes)
{
    struct hole *left = find_hole(ranges, range->start - 1);
    struct hole *right = find_hole(ranges, range->start + range->bytes);
    uint64_t start = left ? left->start : range->start;
    uint64_t end = right ? right->start + right->bytes : range->start + range->bytes;

    /* The neighbours go first: the merged hole would overlap them. */
    tdelete(range, &ranges->used_by_start, compare_used);
    drop_hole(ranges, left);
    drop_hole(ranges, right);
    ranges->used_bytes -= range->bytes;
    free(range);
    *ret_hole_start = start;
    *ret_hole_bytes = end - start;
    return add_hole(ranges, start, end - start);
}
