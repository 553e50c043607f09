#include "cpu/server/bulk/coverage.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static int insert(struct flyt_coverage *coverage, unsigned at, struct flyt_coverage_range range)
{
    if (coverage->count == FLYT_COVERAGE_RANGES_MAX)
        return -ENOSPC;
    if (coverage->count == coverage->capacity) {
        const unsigned capacity = coverage->capacity ? 2 * coverage->capacity : 8;
        struct flyt_coverage_range *ranges = realloc(coverage->ranges, capacity * sizeof *ranges);
        if (!ranges)
            return -ENOMEM;
        coverage->ranges = ranges;
        coverage->capacity = capacity;
    }
    memmove(coverage->ranges + at + 1, coverage->ranges + at, (coverage->count - at) * sizeof *coverage->ranges);
    coverage->ranges[at] = range;
    coverage->count++;
    return 0;
}

/* The ranges before and behind what came between them become one. */
static void join(struct flyt_coverage *coverage, unsigned before)
{
    struct flyt_coverage_range *range = &coverage->ranges[before];
    range->end = range[1].end;
    coverage->count--;
    memmove(range + 1, range + 2, (coverage->count - before - 1) * sizeof *range);
}

int flyt_coverage_add(struct flyt_coverage *coverage, uint64_t offset_bytes, uint64_t bytes)
{
    const struct flyt_coverage_range range = {offset_bytes, offset_bytes + bytes};
    struct flyt_coverage_range *ranges = coverage->ranges;
    unsigned at = coverage->count; /* of the first one behind it: most come last */

    if (range.end <= range.begin)
        return -EINVAL;
    while (at && ranges[at - 1].begin >= range.end)
        at--;
    if (at && ranges[at - 1].end > range.begin)
        return -EINVAL;
    const bool touches_before = at && ranges[at - 1].end == range.begin;
    const bool touches_behind = at < coverage->count && ranges[at].begin == range.end;
    if (touches_before)
        ranges[at - 1].end = range.end;
    else if (touches_behind)
        ranges[at].begin = range.begin;
    else
        return insert(coverage, at, range);
    if (touches_before && touches_behind)
        join(coverage, at - 1);
    return 0;
}

uint64_t flyt_coverage_end(const struct flyt_coverage *coverage)
{
    return coverage->count ? coverage->ranges[coverage->count - 1].end : 0;
}

void flyt_coverage_fini(struct flyt_coverage *coverage)
{
    free(coverage->ranges);
    *coverage = (struct flyt_coverage){.ranges = NULL};
}
