/*
 * An image as a sink (sink.h): a batch's pages are copied one behind the other in device memory, hashed in the same go,
 * and fetched into a piece, which is queued to be written when the hashes are there. What is kept of a page is the hash
 * of the copy that was written, when it was (flyt_writing_advance).
 */
#include <assert.h>
#include <string.h>

#include "cpu/server/move/out/copier.h"
#include "cpu/server/move/out/writing.h"

_Static_assert((int)FLYT_WRITING_ZEROS_MAX >= (int)FLYT_COPIER_ZEROS_MAX, "a batch fits into a piece");

static bool has_place(const struct flyt_copier *copier, const struct flyt_extent *extent)
{
    return true;
}

static uint32_t room_pages(const struct flyt_copier *copier)
{
    return flyt_writing_has_piece(copier->writing, copier->is_last) ? FLYT_WRITING_PIECE_PAGES : 0;
}

static void prepare(const struct flyt_copier *copier)
{
    flyt_writing_make_ahead(copier->writing, copier->table.pages_count);
}

static struct flyt_writing_piece *take_piece(struct flyt_copier *copier)
{
    struct flyt_writing *writing = copier->writing;
    struct flyt_writing_piece *piece = (struct flyt_writing_piece *)writing->free;
    assert(piece); /* room_pages was asked */
    writing->free = piece->item.next;
    piece->copier = copier;
    piece->part_count = piece->pages_count = piece->zero_count = 0;
    piece->is_hurried = copier->is_last && flyt_flusher_has_file(copier->writing->flusher);
    piece->is_written = false;
    return piece;
}

static CUresult copy(struct flyt_copier *copier, struct flyt_copier_batch *batch)
{
    batch->piece = take_piece(copier);
    return flyt_page_batch_copy(&batch->batch, batch->ranges, batch->range_count, batch->copies,
                                copier->partition->sm_count, copier->cu_stream);
}

static CUresult fetch(struct flyt_copier *copier, struct flyt_copier_batch *batch)
{
    return copier->device->session->driver->cuMemcpyDtoHAsync(batch->piece->pages, batch->copies,
                                                              batch->pages_count * FLYT_PAGE_BYTES, copier->cu_stream);
}

static void take(struct flyt_copier *copier, struct flyt_copier_batch *batch)
{
    struct flyt_writing_piece *piece = batch->piece ? batch->piece : take_piece(copier);
    batch->piece = NULL;
    memcpy(piece->parts, batch->parts, batch->range_count * sizeof *piece->parts);
    piece->part_count = batch->range_count;
    piece->pages_count = batch->pages_count;
    for (uint32_t n = 0; n < batch->pages_count; n++)
        piece->sent[n] = flyt_page_batch_sent(&batch->batch, n);
    memcpy(piece->zeros, batch->zeros, batch->zero_count * sizeof *piece->zeros);
    piece->zero_count = batch->zero_count;
    flyt_writing_queue(copier->writing, &piece->item);
}

const struct flyt_sink_ops flyt_writing_sink = {
    .copies_pages = FLYT_WRITING_PIECE_PAGES,
    .tells_zeros = true,
    .has_place = has_place,
    .room_pages = room_pages,
    .prepare = prepare,
    .copy = copy,
    .fetch = fetch,
    .take = take,
};
