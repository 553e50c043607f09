/*
 * Bytes of managed memory between program and GPU. They go over a stream of this library's own on the device, so that
 * no work of the program's holds them up, and are there when each of these functions returns.
 */
#include <stdlib.h>
#include "cpu/client/core/instance.h"
#include "cpu/client/cuda/copy_raw.h"
#include "cpu/client/managed/hash.h"
#include "cpu/client/managed/piece.h"
#include "cpu/client/managed/track.h"
#include "cpu/client/cuda/stream_record.h"
#include "cpu/client/cuda/watch.h"
#include "flyt_client_asks.h"
#include "rpc/proto/limits.h"

/* How often bytes have come, or who may use what has changed: a stream that got work since then needs no look. */
static _Atomic uint64_t epoch = 1;
/* Whether some piece may be changed there. */
static atomic_bool is_any_changed;

void flyt_managed_outdate(void)
{
    atomic_fetch_add(&epoch, 1);
}

/* ---- to the GPU ---- */

CUresult flyt_managed_clear_memory(struct flyt_managed *piece)
{
    struct flyt_stream *inner;
    CUresult result = flyt_stream_inner(piece->device, &inner);
    if (!result)
        result = flyt_fill_raw(inner, piece->block.base, 0, piece->block.bytes);
    return result ? result : flyt_stream_wait(inner);
}

/* First the books: what is written meanwhile, against CUDA's rules, is found to differ the next time. */
static CUresult send_run(struct flyt_managed *piece, struct flyt_stream *inner, uint64_t at, uint64_t bytes)
{
    const char *data = (const char *)(uintptr_t)(piece->base + at);
    for (uint64_t done = 0; done < bytes; done += flyt_managed_unit_bytes(&piece->block))
        flyt_managed_agree(&piece->block, at + done, data + done);
    return flyt_copy_raw_in(inner, piece->base + at, data, bytes);
}

/* What the host has changed of a part of a piece, from where a unit begins to where one ends; *in_out_devices gets a
 * bit for its device where something was sent. */
static CUresult send_part(struct flyt_managed *piece, uint64_t begin, uint64_t end, uint32_t *in_out_devices)
{
    struct flyt_stream *inner;
    uint64_t next = begin, at, bytes;
    CUresult result = CUDA_SUCCESS;
    while (!result && (bytes = flyt_managed_next_change(&piece->block, end, FLYT_CHUNK_BYTES_MAX, &next, &at))) {
        result = flyt_stream_inner(piece->device, &inner);
        if (!result)
            result = send_run(piece, inner, at, bytes);
        *in_out_devices |= 1u << piece->device;
    }
    return result;
}

/* All of a piece. */
static CUresult send_all(struct flyt_managed *piece, uint32_t *in_out_devices)
{
    struct flyt_stream *inner;
    CUresult result = flyt_stream_inner(piece->device, &inner);
    for (uint64_t at = 0, part; at < piece->block.bytes && !result; at += part) {
        part = piece->block.bytes - at < FLYT_CHUNK_BYTES_MAX ? piece->block.bytes - at : FLYT_CHUNK_BYTES_MAX;
        result = send_run(piece, inner, at, part);
    }
    *in_out_devices |= 1u << piece->device;
    return result;
}

/* Only what the kernel says was written is looked at, in whole units. */
static CUresult send_written(struct flyt_managed *piece, uint32_t *in_out_devices)
{
    const uint64_t unit_bytes = flyt_managed_unit_bytes(&piece->block), end = piece->base + piece->block.bytes;
    uint64_t at = piece->base, first, last;
    CUresult result = CUDA_SUCCESS;
    int told = 0;
    while (!result && (told = flyt_managed_track_next(&at, end, &first, &last)) > 0)
        result = send_part(piece, (first - piece->base) / unit_bytes * unit_bytes,
                           (last - piece->base + unit_bytes - 1) / unit_bytes * unit_bytes, in_out_devices);
    piece->is_untold |= result || told < 0;
    return result;
}

/* What the host has changed of a piece. */
static CUresult send_changes(struct flyt_managed *piece, uint32_t *in_out_devices)
{
    CUresult result = piece->is_tracked ? send_written(piece, in_out_devices) : CUDA_SUCCESS;
    if (!result && (!piece->is_tracked || piece->is_untold)) {
        result = send_part(piece, 0, piece->block.bytes, in_out_devices);
        piece->is_untold = result != CUDA_SUCCESS;
    }
    if (!result && piece->is_doubted)
        result = send_all(piece, in_out_devices);
    piece->is_doubted = result != CUDA_SUCCESS;
    return result;
}

/* Until the GPU has all of it. */
static CUresult wait_sent(uint32_t devices)
{
    struct flyt_stream *inner;
    CUresult result = CUDA_SUCCESS;
    for (int device = 0; device < FLYT_DEVICES_MAX && !result; device++) {
        if (!(devices & 1u << device))
            continue;
        result = flyt_stream_inner(device, &inner);
        if (!result)
            result = flyt_stream_wait(inner);
    }
    return result;
}

/* Whether kernels in the stream may use the piece. */
static bool is_usable(struct flyt_managed *piece, const struct flyt_stream *stream)
{
    const struct flyt_stream *attached = flyt_managed_stream(piece);
    return attached ? attached == stream : piece->attach == CU_MEM_ATTACH_GLOBAL;
}

static CUresult give(struct flyt_managed *piece, uint32_t *in_out_devices)
{
    CUresult result = piece->may_be_changed_here ? send_changes(piece, in_out_devices) : CUDA_SUCCESS;
    if (!result)
        piece->may_be_changed_there = true;
    return result;
}

CUresult flyt_managed_before(struct flyt_stream *stream)
{
    uint32_t devices = 0;
    CUresult result = CUDA_SUCCESS;
    if (stream->is_inner ||
        (atomic_load(&stream->is_watched) && atomic_load(&stream->watch_epoch) == atomic_load(&epoch)))
        return CUDA_SUCCESS;
    flyt_managed_lock();
    for (struct flyt_managed *piece = flyt_managed_from(0); piece && !result;
         piece = flyt_managed_from(piece->base + 1)) {
        if (!is_usable(piece, stream))
            continue;
        result = give(piece, &devices);
        if (!result)
            piece->may_be_changed_here = false; /* until a synchronization: CUDA does not let the host touch it */
    }
    if (!result)
        result = wait_sent(devices);
    atomic_store(&is_any_changed, true);
    if (!result)
        atomic_store(&stream->watch_epoch, atomic_load(&epoch));
    atomic_store(&stream->is_watched, true);
    flyt_managed_unlock();
    return result;
}

CUresult flyt_managed_before_use(struct flyt_stream *stream, uint64_t address)
{
    uint32_t devices = 0;
    CUresult result = CUDA_SUCCESS;
    flyt_managed_lock();
    struct flyt_managed *piece = flyt_managed_find(address);
    if (piece) {
        result = give(piece, &devices); /* the host may go on writing what other work does not use: it stays so */
        if (!result)
            result = wait_sent(devices);
        atomic_store(&is_any_changed, true);
        atomic_store(&stream->is_watched, true);
    }
    flyt_managed_unlock();
    return result;
}

/* ---- from the GPU ---- */

enum { FETCH_PIECES_MAX = 64 };

/* Pieces that are fetched together. */
struct fetch {
    struct flyt_managed *pieces[FETCH_PIECES_MAX];
    unsigned count;
    uint64_t bytes;
    int device;
};

static CUresult fetch_small(struct fetch *fetch)
{
    struct flyt_stream *inner;
    CUresult result = fetch->count ? flyt_stream_inner(fetch->device, &inner) : CUDA_SUCCESS;
    char *data = fetch->count ? malloc(fetch->bytes) : NULL;
    uint64_t at = 0;
    if (fetch->count && !data)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned i = 0; i < fetch->count && !result; i++) {
        const struct flyt_managed_block *block = &fetch->pieces[i]->block;
        result = flyt_copy_raw_out(inner, data + at, block->base, block->bytes, fetch->count > 1);
        at += block->bytes;
    }
    if (fetch->count > 1) { /* also after an error: what is on its way must not come to freed memory */
        CUresult waited = flyt_stream_wait(inner);
        result = result ? result : waited;
    }
    at = 0;
    for (unsigned i = 0; i < fetch->count && !result; i++) {
        struct flyt_managed_block *block = &fetch->pieces[i]->block;
        flyt_managed_take(block, 0, data + at, block->bytes);
        at += block->bytes;
    }
    free(data);
    *fetch = (struct fetch){0};
    return result;
}

/* Pages of a large piece, in chunks. */
static CUresult fetch_pages(struct flyt_managed *piece, struct flyt_stream *inner, uint64_t offset_bytes,
                            uint64_t bytes)
{
    char *room = malloc(bytes < FLYT_CHUNK_BYTES_MAX ? bytes : FLYT_CHUNK_BYTES_MAX);
    CUresult result = room ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    for (uint64_t done = 0, part; done < bytes && !result; done += part) {
        part = bytes - done < FLYT_CHUNK_BYTES_MAX ? bytes - done : FLYT_CHUNK_BYTES_MAX;
        result = flyt_copy_raw_out(inner, room, piece->base + offset_bytes + done, part, false);
        if (!result)
            flyt_managed_take(&piece->block, offset_bytes + done, room, part);
    }
    free(room);
    return result;
}

/* Where the GPU cannot hash, all of it is fetched. */
static CUresult fetch_large(struct flyt_managed *piece)
{
    struct flyt_managed_block *block = &piece->block;
    uint64_t count = block->bytes / FLYT_PAGE_BYTES;
    struct flyt_page_hash *hashes = malloc(count * sizeof *hashes);
    struct flyt_stream *inner;
    CUresult result = flyt_stream_inner(piece->device, &inner);
    bool has_hashes =
        !result && hashes && flyt_managed_hash(piece->device, inner, block->base, count, hashes) == CUDA_SUCCESS;
    for (uint64_t page = 0, end; page < count && !result; page = end) {
        end = page + 1;
        if (has_hashes && flyt_page_hash_is_equal(&hashes[page], &block->hashes[page]))
            continue;
        while (end < count && !(has_hashes && flyt_page_hash_is_equal(&hashes[end], &block->hashes[end])))
            end++;
        result = fetch_pages(piece, inner, page * FLYT_PAGE_BYTES, (end - page) * FLYT_PAGE_BYTES);
    }
    free(hashes);
    return result;
}

/* Small pieces are fetched together. */
static CUresult fetch(struct fetch *together, struct flyt_managed *piece)
{
    CUresult result = CUDA_SUCCESS;
    if (flyt_managed_block_is_large(&piece->block))
        return fetch_large(piece);
    if (together->count == FETCH_PIECES_MAX || (together->count && together->device != piece->device))
        result = fetch_small(together);
    together->device = piece->device;
    together->pieces[together->count++] = piece;
    together->bytes += piece->block.bytes;
    return result;
}

CUresult flyt_managed_fetch(struct flyt_managed *piece)
{
    struct fetch together = {0};
    CUresult result = fetch(&together, piece);
    atomic_store(&is_any_changed, true);
    return result ? result : fetch_small(&together);
}

/* Whether the stream that a piece is attached to has nothing more to do, after the host has waited for `stream`. */
static bool is_attached_done(const struct flyt_stream *attached, const struct flyt_stream *stream)
{
    return attached == stream || !atomic_load(&attached->is_watched) ||
           flyt_ask_stream_query(attached->stream_id) == CUDA_SUCCESS;
}

/* Whether the host may use the piece now, and has to see what the GPU has changed. */
static bool is_due(struct flyt_managed *piece, const struct flyt_stream *stream, bool had_work)
{
    const struct flyt_stream *attached = flyt_managed_stream(piece);
    if (piece->is_doubted) /* the host's bytes are the true ones */
        return false;
    const bool is_covered = !stream || stream->is_legacy || attached == stream;
    if (attached)
        return (piece->may_be_changed_there || (had_work && is_covered)) && is_attached_done(attached, stream);
    return piece->may_be_changed_there || (had_work && piece->attach == CU_MEM_ATTACH_GLOBAL);
}

/* After it was fetched. Work that goes on may change it once more. */
static void settle(struct flyt_managed *piece, bool is_any_watched)
{
    const struct flyt_stream *attached = flyt_managed_stream(piece);
    piece->may_be_changed_here = true;
    piece->may_be_changed_there = attached ? atomic_load(&attached->is_watched) : is_any_watched;
}

CUresult flyt_managed_after(struct flyt_stream *stream, bool had_work)
{
    struct fetch together = {0};
    bool is_any_left = false;
    CUresult result = CUDA_SUCCESS;
    if ((stream && stream->is_inner) || (!had_work && !atomic_load(&is_any_changed)))
        return CUDA_SUCCESS;
    flyt_managed_lock();
    bool is_any_watched = flyt_stream_is_any_watched();
    for (struct flyt_managed *piece = flyt_managed_from(0); piece && !result;
         piece = flyt_managed_from(piece->base + 1)) {
        if (is_due(piece, stream, had_work)) {
            result = fetch(&together, piece);
            settle(piece, is_any_watched);
        }
        is_any_left |= piece->may_be_changed_there;
    }
    if (!result)
        result = fetch_small(&together);
    for (struct flyt_managed *piece = result ? flyt_managed_from(0) : NULL; piece;
         piece = flyt_managed_from(piece->base + 1))
        piece->may_be_changed_there = true; /* some were not fetched: which, nobody needs to know */
    atomic_store(&is_any_changed, is_any_left || result);
    flyt_managed_outdate();
    flyt_managed_unlock();
    return result;
}
