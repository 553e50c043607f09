#include "cpu/client/bulk/copy_plan.h"

#include "rpc/proto/limits.h"

static enum flyt_route route_in(const struct flyt_copy_facts *facts)
{
    if (facts->is_shared)
        return FLYT_ROUTE_IN_REGION;
    if (facts->is_pinned && facts->is_writer_pending)
        return FLYT_ROUTE_IN_PULL;
    if (facts->bytes <= FLYT_INLINE_BYTES_MAX)
        return FLYT_ROUTE_IN_INLINE;
    if (facts->is_async && facts->is_pinned)
        return FLYT_ROUTE_IN_BACKGROUND;
    return facts->is_staged ? FLYT_ROUTE_IN_STAGED : FLYT_ROUTE_IN_NOW;
}

static enum flyt_route route_out(const struct flyt_copy_facts *facts)
{
    if (facts->is_shared)
        return FLYT_ROUTE_OUT_REGION;
    if (facts->is_async && facts->is_pinned)
        return FLYT_ROUTE_OUT_BACKGROUND;
    if (facts->bytes <= FLYT_INLINE_BYTES_MAX)
        return FLYT_ROUTE_OUT_INLINE;
    return facts->is_staged ? FLYT_ROUTE_OUT_STAGED : FLYT_ROUTE_OUT_WAIT;
}

enum flyt_route flyt_copy_route(enum flyt_place dst, enum flyt_place src, const struct flyt_copy_facts *facts)
{
    if (dst == FLYT_PLACE_HOST)
        return src == FLYT_PLACE_HOST ? FLYT_ROUTE_HOST : route_out(facts);
    return src == FLYT_PLACE_HOST ? route_in(facts) : FLYT_ROUTE_WITHIN;
}

bool flyt_copy_next_piece(const struct flyt_copy *copy, uint64_t bytes_max, uint64_t *row,
                          struct flyt_copy_piece *ret_piece)
{
    uint64_t slice = *row / copy->height, rows_max = bytes_max / copy->width_bytes;
    if (slice >= copy->depth)
        return false;
    struct flyt_copy_piece piece = {.first_slice = slice, .first_row = *row % copy->height, .slice_count = 1};
    uint64_t rows_left = copy->height - piece.first_row;
    piece.row_count = rows_max < 1 ? 1 : rows_max < rows_left ? rows_max : rows_left;
    if (!piece.first_row && rows_max >= 2 * copy->height) {
        uint64_t slices_max = rows_max / copy->height, slices_left = copy->depth - slice;
        piece.slice_count = slices_max < slices_left ? slices_max : slices_left;
    }
    *row += piece.slice_count > 1 ? piece.slice_count * copy->height : piece.row_count;
    *ret_piece = piece;
    return true;
}

static bool is_packed(const struct flyt_copy *copy, const struct flyt_copy_side *side)
{
    return side->place != FLYT_PLACE_ARRAY && (copy->height == 1 || side->pitch_bytes == copy->width_bytes) &&
           (copy->depth == 1 || side->slice_bytes == copy->height * copy->width_bytes);
}

static bool has_whole_rows(const struct flyt_copy *copy, const struct flyt_copy_side *side)
{
    static const uint64_t pitch_bytes_max = 0x7fffffff;
    if (side->place == FLYT_PLACE_ARRAY)
        return true;
    if (copy->height == 1 && copy->depth == 1)
        return copy->width_bytes <= pitch_bytes_max;
    return side->pitch_bytes && side->pitch_bytes <= pitch_bytes_max &&
           (copy->depth == 1 ||
            (side->slice_bytes % side->pitch_bytes == 0 && side->slice_bytes / side->pitch_bytes >= copy->height));
}

bool flyt_copy_is_regular(const struct flyt_copy *copy)
{
    return (is_packed(copy, &copy->dst) && is_packed(copy, &copy->src)) ||
           (has_whole_rows(copy, &copy->dst) && has_whole_rows(copy, &copy->src));
}

bool flyt_copy_span(const struct flyt_copy *copy, const struct flyt_copy_side *side, uint64_t *ret_span_bytes)
{
    uint64_t rows = 0, slices = 0, span, end;
    bool is_over = false;
    if (side->place == FLYT_PLACE_ARRAY) { /* the box was checked, and takes no addresses */
        *ret_span_bytes = 0;
        return true;
    }
    if (copy->height > 1) {
        is_over |= side->pitch_bytes < copy->width_bytes;
        is_over |= __builtin_mul_overflow(copy->height - 1, side->pitch_bytes, &rows);
    }
    if (copy->depth > 1)
        is_over |= __builtin_mul_overflow(copy->depth - 1, side->slice_bytes, &slices);
    is_over |= __builtin_add_overflow(rows, copy->width_bytes, &span);
    /* Slices that overlap would make the order of writes matter. */
    is_over |= copy->depth > 1 && side->slice_bytes < span;
    is_over |= __builtin_add_overflow(span, slices, &span);
    is_over |= __builtin_add_overflow(side->address, span, &end);
    if (!is_over)
        *ret_span_bytes = span;
    return !is_over;
}
