/*
 * What a round of an image begins with (writing.h): which extents and libraries have come and gone since the one
 * before, and what the program has allocated.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/server/cuda/allocator.h"
#include "cpu/server/move/out/copier.h"
#include "cpu/server/move/out/libraries.h"
#include "cpu/server/cuda/memory.h"
#include "cpu/server/cuda/module.h"
#include "cpu/server/move/out/writing.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/fault_point.h"

enum { RANGES_FIRST = 1024 };

/* ---- extents ---- */

/* All that the copiers have in their tables. *ret_extents is to be freed. 0 or -ENOMEM. */
static int list_extents(const struct flyt_copier *copiers, unsigned count, flyt_checkpoint_extent **ret_extents,
                        uint32_t *ret_count)
{
    uint32_t room = 1, found = 0;
    for (unsigned i = 0; i < count; i++)
        room += copiers[i].table.extent_count;
    flyt_checkpoint_extent *extents = calloc(room, sizeof *extents);
    if (!extents)
        return -ENOMEM;
    for (unsigned i = 0; i < count; i++) { /* the windows are in the devices' order */
        struct flyt_page_range range;
        uint64_t cursor = 0;
        while (flyt_page_table_look(&copiers[i].table, &cursor, UINT64_MAX, 1, &range))
            extents[found++] = (flyt_checkpoint_extent){range.address, range.pages_count * FLYT_PAGE_BYTES};
    }
    *ret_extents = extents;
    *ret_count = found;
    return 0;
}

/* What is only in one of two lists, both by address. 0 and *ret_only, to be freed, or -ENOMEM. */
static int subtract(const flyt_checkpoint_extent *list, uint32_t count, const flyt_checkpoint_extent *other,
                    uint32_t other_count, flyt_checkpoint_extent **ret_only, uint32_t *ret_count)
{
    flyt_checkpoint_extent *only = calloc((size_t)count + 1, sizeof *only);
    uint32_t found = 0, at = 0;
    if (!only)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++) {
        while (at < other_count && other[at].address < list[i].address)
            at++;
        if (at == other_count || other[at].address != list[i].address || other[at].bytes != list[i].bytes)
            only[found++] = list[i];
    }
    *ret_only = only;
    *ret_count = found;
    return 0;
}

static int fill_extents(struct flyt_writing *writing, struct flyt_writing_round *round,
                        const struct flyt_copier *copiers, unsigned count)
{
    flyt_checkpoint_extent *extents;
    uint32_t extent_count;
    int status = list_extents(copiers, count, &extents, &extent_count);
    if (status)
        return status;
    status = subtract(writing->extents, writing->extent_count, extents, extent_count, &round->gone, &round->gone_count);
    if (!status)
        status = subtract(extents, extent_count, writing->extents, writing->extent_count, &round->extents,
                          &round->extent_count);
    free(writing->extents);
    writing->extents = extents;
    writing->extent_count = extent_count;
    return status;
}

/* ---- allocations ---- */

struct listing {
    flyt_checkpoint_range *ranges;
    uint64_t count, room;
    bool has_failed;
};

static void list_range(void *user, uint64_t address, uint64_t bytes)
{
    struct listing *listing = user;
    if (listing->has_failed)
        return;
    if (listing->count == listing->room) {
        uint64_t room = 2 * listing->room;
        flyt_checkpoint_range *ranges = reallocarray(listing->ranges, room, sizeof *ranges);
        listing->has_failed = !ranges;
        if (!ranges)
            return;
        listing->ranges = ranges;
        listing->room = room;
    }
    listing->ranges[listing->count++] = (flyt_checkpoint_range){address, bytes};
}

static int compare_ranges(const void *left, const void *right)
{
    uint64_t a = ((const flyt_checkpoint_range *)left)->address, b = ((const flyt_checkpoint_range *)right)->address;
    return a < b ? -1 : a > b;
}

/* Leaves out what lies in an extent that the image has not yet: of that, a later round tells. Both are by address. */
static void keep_covered(struct listing *listing, const flyt_checkpoint_extent *extents, uint32_t extent_count)
{
    uint64_t kept = 0;
    uint32_t at = 0;
    for (uint64_t i = 0; i < listing->count; i++) {
        const flyt_checkpoint_range range = listing->ranges[i];
        uint64_t covered = range.address, end = range.address + range.bytes;
        while (at < extent_count && extents[at].address + extents[at].bytes <= range.address)
            at++;
        for (uint32_t k = at; k < extent_count && covered < end && extents[k].address <= covered; k++)
            covered = extents[k].address + extents[k].bytes;
        if (covered >= end)
            listing->ranges[kept++] = range;
    }
    listing->count = kept;
}

static int fill_allocations(struct flyt_writing *writing, struct flyt_writing_round *round)
{
    struct listing listing = {.ranges = calloc(RANGES_FIRST, sizeof *listing.ranges), .room = RANGES_FIRST};
    listing.has_failed = !listing.ranges;
    for (unsigned i = 0; i < writing->session->device_count; i++) {
        flyt_allocator_each(&writing->session->devices[i].memory->small, list_range, &listing);
        flyt_allocator_each(&writing->session->devices[i].memory->large, list_range, &listing);
    }
    round->allocations = listing.ranges;
    if (listing.has_failed)
        return -ENOMEM;
    if (listing.count)
        qsort(listing.ranges, listing.count, sizeof *listing.ranges, compare_ranges);
    keep_covered(&listing, writing->extents, writing->extent_count);
    round->allocation_count = listing.count;
    round->has_allocations = true;
    return 0;
}

/* ---- libraries ---- */

static void describe(const struct flyt_library *library, uint64_t number, struct flyt_writing_library *ret)
{
    memcpy(ret->image_hash, library->image_hash, sizeof ret->image_hash);
    ret->number = number;
    ret->args_bytes = flyt_save_encode_library(library, ret->args);
}

/* Those that have come and gone. */
static int compare_libraries(struct flyt_writing *writing, struct flyt_writing_round *round,
                             struct flyt_library *const *libraries, size_t count, struct flyt_writing_told *told)
{
    uint32_t at = 0;
    round->libraries = calloc(count + 1, sizeof *round->libraries);
    round->libraries_gone = calloc((size_t)writing->library_count + 1, sizeof *round->libraries_gone);
    if (!round->libraries || !round->libraries_gone)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        const uint64_t load_number = libraries[i]->load_number;
        while (at < writing->library_count && writing->libraries[at].load_number < load_number)
            round->libraries_gone[round->library_gone_count++] = writing->libraries[at++].number;
        if (at < writing->library_count && writing->libraries[at].load_number == load_number) {
            told[i] = writing->libraries[at++];
            continue;
        }
        told[i] = (struct flyt_writing_told){load_number, ++writing->last_number};
        describe(libraries[i], told[i].number, &round->libraries[round->library_count++]);
    }
    while (at < writing->library_count)
        round->libraries_gone[round->library_gone_count++] = writing->libraries[at++].number;
    return 0;
}

static int fill_libraries(struct flyt_writing *writing, struct flyt_writing_round *round)
{
    struct flyt_library **libraries;
    size_t count;
    if (flyt_save_list_libraries(writing->session, &libraries, &count) != 0)
        return -ENOMEM;
    struct flyt_writing_told *told = calloc(count + 1, sizeof *told);
    int status = told ? compare_libraries(writing, round, libraries, count, told) : -ENOMEM;
    free(libraries);
    free(writing->libraries);
    writing->libraries = told;
    writing->library_count = told ? (uint32_t)count : 0;
    return status;
}

/* ---- rounds ---- */

/* Takes state_fd over; -1: it is not the last round. */
static int queue_round(struct flyt_writing *writing, const struct flyt_copier *copiers, unsigned count, int state_fd,
                       struct flyt_error *err)
{
    struct flyt_writing_round *round = calloc(1, sizeof *round);
    if (!round) {
        flyt_close(state_fd);
        return flyt_error_set(err, -ENOMEM, "out of host memory");
    }
    round->item.kind = FLYT_WRITING_ROUND;
    round->state_fd = state_fd;
    round->inherits = writing->round_count == 1 && state_fd < 0;
    int status = fill_extents(writing, round, copiers, count);
    if (!status && (round->gone_count || round->extent_count || state_fd >= 0))
        status = fill_allocations(writing, round);
    if (!status)
        status = fill_libraries(writing, round);
    if (status) {
        flyt_writing_round_free(round);
        return flyt_error_set(err, status, "out of host memory");
    }
    round->event_number = writing->last_number + 1;
    flyt_writing_queue(writing, &round->item);
    return 0;
}

int flyt_writing_begin_round(struct flyt_writing *writing, const struct flyt_copier *copiers, unsigned count,
                             struct flyt_error *err)
{
    writing->round_count++;
    return queue_round(writing, copiers, count, -1, err);
}

int flyt_writing_end_image(struct flyt_writing *writing, const struct flyt_copier *copiers, unsigned count,
                           int state_fd, struct flyt_error *err)
{
    return queue_round(writing, copiers, count, state_fd, err);
}
