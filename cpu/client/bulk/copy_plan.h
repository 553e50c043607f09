/*
 * Decisions about copies, apart from carrying them out: which route a copy takes, and how a box is cut into pieces.
 * Pure functions.
 */
#ifndef FLYT_CLIENT_COPY_PLAN_H
#define FLYT_CLIENT_COPY_PLAN_H

#include <stdbool.h>
#include <stdint.h>
#include "cpu/client/bulk/copy_box.h"

enum flyt_route {
    FLYT_ROUTE_HOST,           /* memcpy by the calling thread, after the stream's earlier work */
    FLYT_ROUTE_WITHIN,         /* device to device */
    FLYT_ROUTE_IN_INLINE,      /* host to device, the data in the call */
    FLYT_ROUTE_IN_NOW,         /* as a transfer, read before the call returns */
    FLYT_ROUTE_IN_STAGED,      /* through a place of the region, by the calling thread */
    FLYT_ROUTE_IN_BACKGROUND,  /* as a transfer, read by a thread of the channel from now on */
    FLYT_ROUTE_IN_PULL,        /* as a transfer, read when the stream reaches the copy */
    FLYT_ROUTE_IN_REGION,      /* by the GPU itself, out of memory that program and server share */
    FLYT_ROUTE_OUT_INLINE,     /* device to host, the data in the reply */
    FLYT_ROUTE_OUT_STAGED,     /* through a place of the region, by the calling thread */
    FLYT_ROUTE_OUT_WAIT,       /* as a transfer, waited for */
    FLYT_ROUTE_OUT_BACKGROUND, /* as a transfer that later synchronizations wait for */
    FLYT_ROUTE_OUT_REGION      /* by the GPU itself, into shared memory */
};

struct flyt_copy_facts {
    bool is_async;
    bool is_pinned;         /* all of the host side is */
    bool is_plain;          /* the host side has no gaps */
    bool is_shared;         /* the GPU reaches all of it, and copies the box with one call */
    bool is_staged;         /* what the calling thread reads or writes itself goes through a place of the region */
    bool is_writer_pending; /* something unfinished may write the host side */
    uint64_t bytes;
};

/* Neither place is FLYT_PLACE_ANY. */
enum flyt_route flyt_copy_route(enum flyt_place dst, enum flyt_place src, const struct flyt_copy_facts *facts);

/* The piece of the box that begins at row *row (of height × depth rows), of at most bytes_max bytes but at least one
 * row: whole slices where they fit, else rows of one slice. Sets how many slices and rows of each it has, and moves
 * *row behind it. False at the end. */
struct flyt_copy_piece {
    uint64_t first_slice, first_row;
    uint64_t slice_count, row_count;
};
bool flyt_copy_next_piece(const struct flyt_copy *copy, uint64_t bytes_max, uint64_t *row,
                          struct flyt_copy_piece *ret_piece);

/* Whether one driver call copies both boxes: neither has gaps, or each has slices that are whole rows apart, and no
 * pitch is above what the driver takes. */
bool flyt_copy_is_regular(const struct flyt_copy *copy);

/* Bytes from the first to the last of a side; false: the sum overflows, or a pitch is smaller than what it spans. */
bool flyt_copy_span(const struct flyt_copy *copy, const struct flyt_copy_side *side, uint64_t *ret_span_bytes);

#endif
