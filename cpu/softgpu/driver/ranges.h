/*
 * Address ranges: an allocator over an interval of addresses, and a map from addresses to what lies there.
 *
 * Placement is deterministic: the same calls give the same addresses. Every operation costs O(log n). Not
 * synchronised: the owner's lock covers it.
 */
#ifndef FLYT_SOFTGPU_DRIVER_RANGES_H
#define FLYT_SOFTGPU_DRIVER_RANGES_H

#include <stdint.h>

/* A range in use. */
struct flyt_soft_range {
    uint64_t start;
    uint64_t bytes;
    uint64_t asked_bytes; /* before rounding up to the unit */
    void *owner;          /* the caller's, never looked at */
};

struct flyt_soft_ranges {
    uint64_t unit_bytes; /* starts and lengths are multiples of it */
    uint64_t used_bytes;
    void *free_by_start; /* trees of tsearch(3) */
    void *free_by_bytes;
    void *used_by_start;
};

/* Makes [base, base + bytes) free. unit_bytes: a power of two that divides both. 0 or -ENOMEM. */
int flyt_soft_ranges_init(struct flyt_soft_ranges *ranges, uint64_t base, uint64_t bytes, uint64_t unit_bytes);
/* Forgets everything; owners are not touched. */
void flyt_soft_ranges_fini(struct flyt_soft_ranges *ranges);

/*
 * Takes the smallest free range that fits, the lowest among equals, from its start. bytes > 0 is rounded up to the
 * unit; align: a power of two. 0 and *ret_range, which stays valid until given back; -ENOMEM: no room.
 */
int flyt_soft_ranges_take(struct flyt_soft_ranges *ranges, uint64_t bytes, uint64_t align,
                          struct flyt_soft_range **ret_range);
/* Takes [start, start + bytes), both multiples of the unit. 0; -EBUSY: not entirely free; -ENOMEM. */
int flyt_soft_ranges_take_at(struct flyt_soft_ranges *ranges, uint64_t start, uint64_t bytes,
                             struct flyt_soft_range **ret_range);

/* The range in use that contains an address, or NULL. */
struct flyt_soft_range *flyt_soft_ranges_find(const struct flyt_soft_ranges *ranges, uint64_t address);

/* Some range in use that overlaps [start, start + bytes), or NULL where that is free. bytes > 0. */
struct flyt_soft_range *flyt_soft_ranges_find_any(const struct flyt_soft_ranges *ranges, uint64_t start,
                                                  uint64_t bytes);

/*
 * Gives a range back; `range` is freed. The free range that it has become part of is stored in *ret_hole_start and
 * *ret_hole_bytes. 0; -ENOMEM: the range is given up, but its addresses will not be handed out again.
 */
int flyt_soft_ranges_give(struct flyt_soft_ranges *ranges, struct flyt_soft_range *range, uint64_t *ret_hole_start,
                          uint64_t *ret_hole_bytes);

#endif
