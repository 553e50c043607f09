#include "cpu/client/cuda/copy.h"

#include <stdlib.h>
#include <string.h>
#include "cpu/client/bulk/arena.h"
#include "cpu/client/bulk/copy_plan.h"
#include "cpu/client/bulk/range.h"
#include "cpu/client/bulk/staging.h"
#include "cpu/client/bulk/transfer.h"
#include "cpu/client/core/instance.h"
#include "cpu/client/core/thread.h"
#include "cpu/client/cuda/constant.h"
#include "cpu/client/cuda/constant_copy.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/copy_raw.h"
#include "cpu/client/cuda/function_queue.h"
#include "cpu/client/cuda/host.h"
#include "cpu/client/cuda/stream_record.h"
#include "cpu/client/cuda/watch.h"
#include "flyt_client_asks.h"
#include "rpc/api/array_box.h"
#include "rpc/base/region.h"

static flyt_box box_of(const struct flyt_copy *copy, const struct flyt_copy_side *side)
{
    return (flyt_box){.address = side->address,
                      .width_bytes = copy->width_bytes,
                      .height = copy->height,
                      .depth = copy->depth,
                      .pitch_bytes = side->pitch_bytes,
                      .slice_bytes = side->slice_bytes};
}

static struct flyt_host_box host_box_of(const struct flyt_copy *copy, const struct flyt_copy_side *side)
{
    return (struct flyt_host_box){.address = side->address,
                                  .width_bytes = copy->width_bytes,
                                  .height = copy->height,
                                  .depth = copy->depth,
                                  .pitch_bytes = side->pitch_bytes,
                                  .slice_bytes = side->slice_bytes};
}

/* ---- checks ---- */

/*
 * Settles where a side is, and refuses what would touch foreign memory. A device address that is nowhere known may be a
 * variable whose address only device code knows: the server decides. Pinned memory may be named as device memory, as
 * with the driver's unified addressing, and managed memory as either.
 */
static CUresult resolve_side(struct flyt_copy_side *side, uint64_t span_bytes, bool *ret_is_managed)
{
    struct flyt_range range;
    *ret_is_managed = false;
    if (!side->address)
        return CUDA_ERROR_INVALID_VALUE;
    if (side->place == FLYT_PLACE_ARRAY)
        return CUDA_SUCCESS;
    bool is_known = flyt_range_find(side->address, &range);
    bool is_window = flyt_is_device_address(side->address);
    bool is_device = is_window || (is_known ? !flyt_range_is_host(&range) : flyt_range_is_reserved(side->address));
    *ret_is_managed = is_known && range.is_managed;
    if (side->place == FLYT_PLACE_ANY || *ret_is_managed)
        side->place = is_device ? FLYT_PLACE_DEVICE : FLYT_PLACE_HOST;
    else if (side->place == FLYT_PLACE_DEVICE && is_known && flyt_range_is_host(&range))
        side->place = FLYT_PLACE_HOST;
    else if (side->place == FLYT_PLACE_HOST && is_known && range.is_of_host) /* the server has it at this address */
        side->place = FLYT_PLACE_DEVICE;
    if (side->place == FLYT_PLACE_HOST && !*ret_is_managed)
        return is_device ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    if (!is_known)
        return is_window || flyt_range_is_foreign(side->address) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    return flyt_range_holds(&range, side->address, span_bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* A side of the copy, and whether it is managed memory. */
struct sides {
    bool is_dst_managed, is_src_managed;
};

static CUresult check(struct flyt_copy *copy, uint64_t *ret_bytes, struct sides *ret_sides)
{
    uint64_t dst_span, src_span, slice_bytes;
    if (!flyt_copy_span(copy, &copy->dst, &dst_span) || !flyt_copy_span(copy, &copy->src, &src_span) ||
        __builtin_mul_overflow(copy->width_bytes, copy->height, &slice_bytes) ||
        __builtin_mul_overflow(slice_bytes, copy->depth, ret_bytes))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = resolve_side(&copy->dst, dst_span, &ret_sides->is_dst_managed);
    return result ? result : resolve_side(&copy->src, src_span, &ret_sides->is_src_managed);
}

/* ---- host to device ---- */

static CUresult send_inline(struct flyt_stream *stream, const struct flyt_copy *copy)
{
    struct flyt_host_box host = host_box_of(copy, &copy->src);
    uint64_t bytes = flyt_host_box_bytes(&host), sequence = 0;
    char *packed = NULL;
    if (!flyt_host_box_is_plain(&host)) {
        packed = malloc(bytes);
        if (!packed)
            return CUDA_ERROR_OUT_OF_MEMORY;
        flyt_host_box_pack(&host, 0, packed, bytes);
    }
    CUresult result = flyt_stream_begin(stream);
    if (!result) {
        flyt_copy_in_args args = {
            .thread = flyt_thread_number(), .stream_id = stream->stream_id, .dst = box_of(copy, &copy->dst)};
        args.data.data_len = (u_int)bytes;
        args.data.data_val = packed ? packed : (char *)(uintptr_t)host.address;
        result = flyt_client_status(flyt_send_copy_in(flyt_client.channel, &args, &sequence), "copy_in");
        flyt_stream_sent_staged(stream, sequence);
    }
    free(packed);
    return result;
}

/* The call. After a success `group` is begun, which the caller ends when the data is on its way; NULL: the server asks
 * for the data. */
static CUresult send_transfer_call(struct flyt_stream *stream, const struct flyt_copy *copy, uint64_t transfer_id,
                                   uint64_t bytes, struct flyt_channel_group *group)
{
    uint64_t sequence = 0;
    CUresult result = flyt_stream_begin(stream); /* waits, which nobody may in a group */
    if (!result && group)
        result = flyt_client_status(flyt_channel_group_begin(flyt_client.channel, group), "chunk");
    if (result)
        return result;
    flyt_copy_in_transfer_args args = {.thread = flyt_thread_number(),
                                       .stream_id = stream->stream_id,
                                       .dst = box_of(copy, &copy->dst),
                                       .transfer_id = transfer_id,
                                       .bytes = bytes,
                                       .is_pull = !group};
    result = flyt_client_status(flyt_send_copy_in_transfer(flyt_client.channel, &args, &sequence), "copy_in_transfer");
    flyt_stream_sent(stream, sequence);
    if (result && group)
        flyt_channel_group_end(flyt_client.channel, group);
    return result;
}

/* One piece that is read before this returns. */
static CUresult send_now(struct flyt_stream *stream, const struct flyt_copy *copy)
{
    struct flyt_host_box host = host_box_of(copy, &copy->src);
    uint64_t bytes = flyt_host_box_bytes(&host);
    if (bytes <= FLYT_INLINE_BYTES_MAX)
        return send_inline(stream, copy);
    struct flyt_transfer *transfer = flyt_transfer_new(&host, false, stream->device);
    if (!transfer)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = CUDA_SUCCESS;
    flyt_transfer_begin_send(transfer);
    const void *data = (const void *)(uintptr_t)host.address;
    if (!flyt_host_box_is_plain(&host)) {
        data = transfer->packed = malloc(bytes);
        if (data)
            flyt_host_box_pack(&host, 0, transfer->packed, bytes);
        else
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct flyt_channel_group group;
    if (!result)
        result = send_transfer_call(stream, copy, flyt_transfer_id(transfer), bytes, &group);
    if (!result) {
        result = flyt_client_status(
            flyt_channel_send_data(flyt_client.channel, flyt_transfer_id(transfer), data, bytes), "chunk");
        flyt_channel_group_end(flyt_client.channel, &group);
    }
    flyt_transfer_finish(transfer, result);
    flyt_transfer_unref(transfer);
    return result;
}

/* One piece that is read later: from now on in the background, or when the server asks. */
static CUresult send_later(struct flyt_stream *stream, const struct flyt_copy *copy, bool is_pull)
{
    struct flyt_host_box host = host_box_of(copy, &copy->src);
    struct flyt_transfer *transfer = flyt_transfer_new(&host, false, stream->device);
    if (!transfer)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (is_pull) {
        flyt_stream_join_pending_d2h(stream);
        flyt_transfer_await_pull(transfer, &stream->pending_d2h);
    }
    struct flyt_channel_group group;
    CUresult result = send_transfer_call(stream, copy, flyt_transfer_id(transfer), flyt_host_box_bytes(&host),
                                         is_pull ? NULL : &group);
    if (result) {
        flyt_transfer_finish(transfer, result);
    } else if (!is_pull) {
        flyt_transfer_send(flyt_client.channel, transfer);
        flyt_channel_group_end(flyt_client.channel, &group);
    }
    flyt_transfer_unref(transfer);
    return result;
}

/* Where a piece of the box begins. */
static void move_to_piece(struct flyt_copy_side *side, const struct flyt_copy_piece *piece)
{
    if (side->place == FLYT_PLACE_ARRAY) {
        struct flyt_array_place at = flyt_array_box_place(side->pitch_bytes, side->slice_bytes);
        at.y += (uint32_t)piece->first_row;
        at.z += (uint32_t)piece->first_slice;
        side->slice_bytes = flyt_array_box_slice(&at);
        return;
    }
    side->address += piece->first_slice * side->slice_bytes + piece->first_row * side->pitch_bytes;
}

/* Boxes with gaps that the caller packs go in pieces, so that packing needs bounded memory. */
static CUresult copy_in(struct flyt_stream *stream, const struct flyt_copy *copy, enum flyt_route route)
{
    struct flyt_host_box host = host_box_of(copy, &copy->src);
    const bool is_now = route == FLYT_ROUTE_IN_INLINE || route == FLYT_ROUTE_IN_NOW;
    uint64_t bytes_max = !is_now || flyt_host_box_is_plain(&host) ? UINT64_MAX : FLYT_CHUNK_BYTES_MAX;
    struct flyt_copy_piece piece;
    CUresult result = CUDA_SUCCESS;
    for (uint64_t row = 0; !result && flyt_copy_next_piece(copy, bytes_max, &row, &piece);) {
        struct flyt_copy part = *copy;
        part.height = piece.row_count;
        part.depth = piece.slice_count;
        move_to_piece(&part.dst, &piece);
        move_to_piece(&part.src, &piece);
        if (is_now)
            result = send_now(stream, &part);
        else
            result = send_later(stream, &part, route == FLYT_ROUTE_IN_PULL);
    }
    return result;
}

/* ---- device to host ---- */

static CUresult copy_out_inline(struct flyt_stream *stream, const struct flyt_copy *copy)
{
    struct flyt_host_box host = host_box_of(copy, &copy->dst);
    uint64_t bytes = flyt_host_box_bytes(&host);
    /* The reply may overtake what an earlier copy still brings there. */
    bool is_direct = flyt_host_box_is_plain(&host) && !flyt_transfer_writes(host.address, flyt_host_box_span(&host));
    char *packed = is_direct ? (char *)(uintptr_t)host.address : malloc(bytes);
    if (!packed)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct flyt_pending_d2h pending_d2h = {0};
    CUresult result = flyt_stream_begin(stream);
    if (!result) {
        flyt_pending_d2h_set(&pending_d2h, &stream->pending_d2h);
        flyt_copy_out_args args = {
            .thread = flyt_thread_number(), .stream_id = stream->stream_id, .src = box_of(copy, &copy->src)};
        flyt_copy_out_res res = {0};
        int status = flyt_call_copy_out(flyt_client.channel, &args, &res, packed, bytes);
        result = flyt_client_reply(status, res.result, "copy_out");
        if (!result && res.data.data_len != bytes)
            result = CUDA_ERROR_UNKNOWN;
    }
    if (!result)
        result = flyt_pending_d2h_wait(&pending_d2h);
    flyt_pending_d2h_clear(&pending_d2h);
    if (is_direct)
        return result;
    if (!result)
        flyt_host_box_unpack(&host, 0, packed, bytes);
    free(packed);
    return result;
}

static CUresult copy_out_transfer(struct flyt_stream *stream, const struct flyt_copy *copy, bool is_async)
{
    struct flyt_host_box host = host_box_of(copy, &copy->dst);
    CUresult result = flyt_stream_begin(stream);
    if (result)
        return result;
    struct flyt_transfer *transfer = flyt_transfer_new(&host, true, stream->device);
    if (!transfer)
        return CUDA_ERROR_OUT_OF_MEMORY;
    flyt_pending_d2h_add(&stream->pending_d2h, transfer);
    flyt_copy_out_transfer_args args = {.thread = flyt_thread_number(),
                                        .stream_id = stream->stream_id,
                                        .src = box_of(copy, &copy->src),
                                        .transfer_id = flyt_transfer_id(transfer),
                                        .bytes = flyt_host_box_bytes(&host)};
    result = flyt_client_status(flyt_send_copy_out_transfer(flyt_client.channel, &args, &transfer->sequence),
                                "copy_out_transfer");
    flyt_stream_sent(stream, transfer->sequence);
    if (!result && !is_async)
        result = flyt_stream_wait(stream);
    if (!result && !is_async)
        result = flyt_transfer_wait(transfer);
    if (result) /* the caller may give the memory away now: nothing may write it any more */
        flyt_transfer_abort(transfer, result);
    flyt_transfer_unref(transfer);
    return result;
}

/* ---- in memory that program and server share ---- */

static flyt_region_box region_box_of(const struct flyt_copy_side *side)
{
    flyt_region_box box = {
        .region_id = FLYT_REGION_ID, .pitch_bytes = side->pitch_bytes, .slice_bytes = side->slice_bytes};
    flyt_arena_find(side->address, &box.offset_bytes);
    return box;
}

static CUresult send_region(struct flyt_stream *stream, const void *what, uint64_t *ret_sequence)
{
    const struct flyt_copy *copy = what;
    if (copy->src.place == FLYT_PLACE_HOST) {
        flyt_copy_in_region_args args = {.thread = flyt_thread_number(),
                                         .stream_id = stream->stream_id,
                                         .dst = box_of(copy, &copy->dst),
                                         .src = region_box_of(&copy->src)};
        return flyt_client_status(flyt_send_copy_in_region(flyt_client.channel, &args, ret_sequence), "copy_in_region");
    }
    flyt_copy_out_region_args args = {.thread = flyt_thread_number(),
                                      .stream_id = stream->stream_id,
                                      .src = box_of(copy, &copy->src),
                                      .dst = region_box_of(&copy->dst)};
    return flyt_client_status(flyt_send_copy_out_region(flyt_client.channel, &args, ret_sequence), "copy_out_region");
}

CUresult flyt_copy_send_shared(struct flyt_stream *stream, uint64_t server,
                               CUresult (*send)(struct flyt_stream *, const void *, uint64_t *), const void *what)
{
    struct flyt_channel_group group;
    uint64_t sequence = 0;
    CUresult result = flyt_stream_begin(stream); /* waits, which nobody may in a group */
    if (!result)
        result = flyt_client_status(flyt_channel_group_begin(flyt_client.channel, &group), "copy_region");
    if (result)
        return result;
    result = flyt_arena_server() == server ? send(stream, what, &sequence) : CUDA_ERROR_NOT_READY;
    flyt_channel_group_end(flyt_client.channel, &group);
    if (result == CUDA_ERROR_NOT_READY) /* no call was made of what was begun */
        atomic_fetch_sub_explicit(&stream->issued_calls, 1, memory_order_relaxed);
    else
        flyt_stream_sent(stream, sequence);
    return result;
}

/* ---- through a place of that memory ---- */

/*
 * The first piece goes in the program's stream. When it is there, so is all that the copy is ordered behind, and the
 * others go in a stream of their own: what other threads give to the program's stream meanwhile, or with the legacy
 * stream to any blocking one, is not waited for with each of them. A kernel that another thread gives to the stream
 * while the copy has not returned may run between pieces, and see the first bytes as they are after the copy and the
 * others as they were. No program can order it behind the copy otherwise: CUDA's driver, too, brings pageable memory
 * through a buffer of its own, and has put the whole copy in the stream only when the call returns.
 */
struct staged {
    struct flyt_stream *stream, *inner;
};

static CUresult send_piece(void *user, uint64_t server, const struct flyt_copy *piece, uint64_t *ret_sequence)
{
    const struct staged *self = user;
    CUresult result = flyt_copy_send_shared(self->stream, server, send_region, piece);
    *ret_sequence = atomic_load(&self->stream->work_sequence); /* its own, or a later one of another thread's */
    return result;
}

static CUresult wait_for_pieces(void *user)
{
    struct staged *self = user;
    struct flyt_stream *stream = self->stream;
    if (flyt_channel_stream_known(flyt_client.channel, flyt_id_number(stream->stream_id),
                                  atomic_load(&stream->work_sequence)) == FLYT_CHANNEL_DONE) {
        self->stream = self->inner;
        return flyt_client_broken();
    }
    CUresult result = flyt_stream_begin(stream);
    if (result)
        return result;
    flyt_context_wait_begin();
    result = flyt_ask_stream_synchronize(stream->stream_id);
    flyt_context_wait_end();
    if (!result)
        self->stream = self->inner;
    return result;
}

static const struct flyt_staging_ops staging_ops = {flyt_host_take_shared, flyt_host_is_shared, send_piece,
                                                    wait_for_pieces, flyt_client_enter};

/* Returns when all is there. What does not go through the place travels. The stream comes first: nobody is to have a
 * part of the place who only waits. */
static CUresult copy_staged(struct flyt_stream *stream, const struct flyt_copy *copy)
{
    struct staged self = {.stream = stream};
    struct flyt_copy rest = *copy;
    uint64_t bytes = 0;
    CUresult result = flyt_stream_wait(stream);
    if (!result)
        result = flyt_stream_inner(stream->device, &self.inner);
    if (!result)
        result = flyt_staging_copy(&staging_ops, &self, copy, &bytes);
    if (result || bytes == copy->width_bytes)
        return result;
    rest.width_bytes -= bytes;
    rest.dst.address += bytes;
    rest.src.address += bytes;
    if (copy->dst.place == FLYT_PLACE_HOST)
        return copy_out_transfer(stream, &rest, false);
    result = copy_in(stream, &rest, FLYT_ROUTE_IN_NOW);
    return result ? result : flyt_stream_wait(stream);
}

/* ---- within device memory ---- */

static CUresult copy_within(struct flyt_stream *stream, const struct flyt_copy *copy)
{
    uint64_t sequence = 0;
    CUresult result = flyt_stream_begin(stream);
    if (result)
        return result;
    flyt_copy_within_args args = {.thread = flyt_thread_number(),
                                  .stream_id = stream->stream_id,
                                  .dst = box_of(copy, &copy->dst),
                                  .src = box_of(copy, &copy->src)};
    result = flyt_client_status(flyt_send_copy_within(flyt_client.channel, &args, &sequence), "copy_within");
    flyt_stream_sent(stream, sequence);
    return result;
}

/* ---- between memory of the host ---- */

static void copy_now(const struct flyt_copy *copy)
{
    for (uint64_t row = 0; row < copy->height * copy->depth; row++) {
        uint64_t slice = row / copy->height, line = row % copy->height;
        uint64_t dst = copy->dst.address + slice * copy->dst.slice_bytes + line * copy->dst.pitch_bytes;
        uint64_t src = copy->src.address + slice * copy->src.slice_bytes + line * copy->src.pitch_bytes;
        memmove((void *)(uintptr_t)dst, (const void *)(uintptr_t)src, copy->width_bytes); /* NOLINT: the program's */
    }
}

/* What a thread of this library's does when the stream reaches it. */
struct later {
    struct flyt_copy copy;
    char data[]; /* the source, where that may change before */
};

static void copy_later(void *user)
{
    struct later *later = user;
    copy_now(&later->copy);
    free(later);
}

static CUresult launch_later(struct flyt_stream *stream, struct later *later)
{
    CUresult result = flyt_function_launch_own(stream, copy_later, later);
    if (result)
        free(later);
    return result;
}

CUresult flyt_copy_host_later(struct flyt_stream *stream, const struct flyt_copy *copy)
{
    struct later *later = malloc(sizeof *later);
    if (!later)
        return CUDA_ERROR_OUT_OF_MEMORY;
    later->copy = *copy;
    return launch_later(stream, later);
}

/* The source is read before this returns. */
static CUresult copy_read_now(struct flyt_stream *stream, const struct flyt_copy *copy)
{
    struct flyt_host_box host = host_box_of(copy, &copy->src);
    const uint64_t bytes = flyt_host_box_bytes(&host);
    struct later *later = malloc(sizeof *later + bytes);
    if (!later)
        return CUDA_ERROR_OUT_OF_MEMORY;
    flyt_host_box_pack(&host, 0, later->data, bytes);
    later->copy = *copy;
    later->copy.src = (struct flyt_copy_side){.place = FLYT_PLACE_HOST,
                                              .address = (uint64_t)(uintptr_t)later->data,
                                              .pitch_bytes = copy->width_bytes,
                                              .slice_bytes = copy->width_bytes * copy->height};
    return launch_later(stream, later);
}

/* Memory of the region stays as long as anything of the session's uses it. */
static bool is_kept(const struct flyt_host_box *box)
{
    uint64_t server;
    return flyt_range_is_pinned(box->address, flyt_host_box_span(box)) && flyt_host_is_shared(box->address, &server);
}

/*
 * CUDA makes copies between host memory wait for the stream, asynchronous ones too. Managed memory is none: copies from
 * and to it go to the stream, whose kernels may wait for what the host does next. A little of pageable memory is read
 * at once; what else may be gone when the stream gets there is waited for.
 */
static CUresult copy_host(struct flyt_stream *stream, const struct flyt_copy *copy, const struct sides *sides,
                          bool is_async)
{
    struct flyt_host_box src = host_box_of(copy, &copy->src), dst = host_box_of(copy, &copy->dst);
    if (is_async && (sides->is_src_managed || sides->is_dst_managed) && is_kept(&dst)) {
        if (is_kept(&src))
            return flyt_copy_host_later(stream, copy);
        if (flyt_host_box_bytes(&src) <= FLYT_INLINE_BYTES_MAX)
            return copy_read_now(stream, copy);
    }
    CUresult result = flyt_stream_wait(stream);
    if (!result)
        copy_now(copy);
    return result;
}

/* ---- the whole ---- */

/* Whether the caller waits for the copy, and when it reads and writes memory of the host that is not pinned. */
enum way { WAITED, ASYNC, OF_GRAPH };

/* Whether only the server can say that the device's memory is there. */
static bool is_unknown(const struct flyt_copy_side *side)
{
    struct flyt_range range;
    return side->place == FLYT_PLACE_DEVICE && !flyt_range_find(side->address, &range);
}

/* A range of memory that was checked as a whole: of a copy in pieces none may fail for its place. */
static bool is_checked_line(const struct flyt_copy *copy, const struct flyt_copy_side *device)
{
    return copy->height == 1 && copy->depth == 1 && device->place == FLYT_PLACE_DEVICE && !is_unknown(device);
}

/* *ret_server: of what is shared, with whom. */
static struct flyt_copy_facts facts_of(const struct flyt_copy *copy, uint64_t bytes, enum way way, uint64_t *ret_server)
{
    struct flyt_copy_facts facts = {.is_async = way != WAITED, .bytes = bytes};
    bool is_in = copy->src.place == FLYT_PLACE_HOST;
    if (!is_in && copy->dst.place != FLYT_PLACE_HOST)
        return facts;
    struct flyt_host_box host = host_box_of(copy, is_in ? &copy->src : &copy->dst);
    uint64_t span = flyt_host_box_span(&host);
    facts.is_plain = flyt_host_box_is_plain(&host);
    facts.is_pinned = flyt_range_is_pinned(host.address, span);
    uint64_t offset_bytes;
    const bool is_in_region = facts.is_pinned && flyt_arena_find(host.address, &offset_bytes);
    const bool is_written = flyt_transfer_writes(host.address, span);
    facts.is_shared =
        is_in_region && !is_written && flyt_copy_is_regular(copy) && flyt_host_is_shared(host.address, ret_server);
    facts.is_staged = way != OF_GRAPH && bytes >= FLYT_STAGING_BYTES_MIN && flyt_staging_is_used() && !is_written &&
                      is_checked_line(copy, is_in ? &copy->dst : &copy->src);
    /* A graph's copies read and write pageable memory, too, when they are reached. */
    facts.is_pinned |= way == OF_GRAPH;
    /* A copy that is on its way in a stream may write what lies in the region. */
    facts.is_writer_pending = is_in && (is_in_region || is_written || flyt_function_is_pending());
    return facts;
}

/* ---- constants that are copied to and from by their names ---- */

/* By its name, where that can be. CUDA_ERROR_NOT_READY: it cannot. */
static CUresult copy_by_name(struct flyt_stream *stream, const struct flyt_copy *copy, uint64_t bytes,
                             const struct flyt_copy_facts *facts, bool is_async)
{
    bool is_in = copy->src.place == FLYT_PLACE_HOST, is_out = copy->dst.place == FLYT_PLACE_HOST;
    bool waits = !is_async || (is_out && !facts->is_pinned); /* as any copy to pageable memory */
    if (!waits || !facts->is_plain || is_in == is_out)
        return CUDA_ERROR_NOT_READY;
    if (is_out)
        return flyt_constant_read(stream, copy->src.address, (void *)(uintptr_t)copy->dst.address, bytes); /* NOLINT */
    /* What a host function may still write is read when that has ended. */
    CUresult result = facts->is_writer_pending ? flyt_stream_wait(stream) : CUDA_SUCCESS;
    return result ? result
                  : flyt_constant_write(stream, copy->dst.address, (const void *)(uintptr_t)copy->src.address, bytes);
}

/* Minted addresses become true ones. */
static CUresult lose_constants(struct flyt_copy *copy)
{
    CUresult result = CUDA_SUCCESS;
    if (copy->dst.place == FLYT_PLACE_DEVICE && flyt_range_is_minted(copy->dst.address))
        result = flyt_constant_lose(&copy->dst.address);
    if (!result && copy->src.place == FLYT_PLACE_DEVICE && flyt_range_is_minted(copy->src.address))
        result = flyt_constant_lose(&copy->src.address);
    return result;
}

/* ---- copies that nobody waits for ---- */

/*
 * Whether a synchronous copy out of pageable memory, whose bytes go in the call, returns when it is sent: what CUDA
 * documents for it. Where an error may be the copy's own, which is told at the call, it is waited for: the destination
 * must be an allocation of the stream's device, as far as which the address was checked already.
 */
static bool may_return_early(const struct flyt_stream *stream, const struct flyt_copy *copy, enum flyt_route route,
                             const struct flyt_copy_facts *facts)
{
    struct flyt_range range;
    return !facts->is_async && route == FLYT_ROUTE_IN_INLINE && !facts->is_pinned && !facts->is_writer_pending &&
           flyt_range_find(copy->dst.address, &range) && range.kind == FLYT_RANGE_ALLOCATION && !range.is_managed &&
           range.device == stream->device && flyt_stream_may_return_early(stream);
}

/* ---- one after the other ---- */

static CUresult carry_out(struct flyt_stream *stream, struct flyt_copy *copy, const struct sides *sides, uint64_t bytes,
                          enum way way)
{
    uint64_t server;
    const bool is_async = way != WAITED;
    struct flyt_copy_facts facts = facts_of(copy, bytes, way, &server);
    enum flyt_route route = flyt_copy_route(copy->dst.place, copy->src.place, &facts);
    CUresult result = CUDA_SUCCESS;
    if (flyt_range_is_minted(copy->dst.address) || flyt_range_is_minted(copy->src.address)) {
        result = copy_by_name(stream, copy, bytes, &facts, is_async);
        if (result != CUDA_ERROR_NOT_READY)
            return result;
        result = lose_constants(copy);
        if (result)
            return result;
    }
    switch (route) {
    case FLYT_ROUTE_HOST:
        return copy_host(stream, copy, sides, is_async);
    case FLYT_ROUTE_WITHIN:
        return copy_within(stream, copy);
    case FLYT_ROUTE_OUT_INLINE:
        return copy_out_inline(stream, copy);
    case FLYT_ROUTE_OUT_WAIT:
    case FLYT_ROUTE_OUT_BACKGROUND:
        return copy_out_transfer(stream, copy, route == FLYT_ROUTE_OUT_BACKGROUND);
    case FLYT_ROUTE_OUT_REGION:
    case FLYT_ROUTE_IN_REGION:
        /* The GPU reads or writes the program's memory when the stream reaches the copy. */
        result = flyt_copy_send_shared(stream, server, send_region, copy);
        if (!result && !is_async)
            result = flyt_stream_wait(stream);
        return result == CUDA_ERROR_NOT_READY ? carry_out(stream, copy, sides, bytes, way) : result;
    case FLYT_ROUTE_OUT_STAGED:
    case FLYT_ROUTE_IN_STAGED:
        return copy_staged(stream, copy);
    case FLYT_ROUTE_IN_INLINE:
    case FLYT_ROUTE_IN_NOW:
        /* A synchronous copy out of pageable memory first waits for the stream, whose host functions may write it. */
        if (!is_async && facts.is_writer_pending)
            result = flyt_stream_wait(stream);
        break;
    case FLYT_ROUTE_IN_BACKGROUND:
    case FLYT_ROUTE_IN_PULL:
        break;
    }
    bool is_early = may_return_early(stream, copy, route, &facts); /* before the copy itself is pending */
    if (!result)
        result = copy_in(stream, copy, route);
    if (is_early)
        flyt_stream_returned_early(stream);
    return result || is_async || is_early ? result : flyt_stream_wait(stream);
}

/* Whether the copy has to be complete, as CUDA says, or its outcome is not known before. */
static bool must_wait(const struct flyt_copy *copy, const struct sides *sides)
{
    const bool is_within = copy->dst.place == FLYT_PLACE_DEVICE && copy->src.place == FLYT_PLACE_DEVICE;
    return sides->is_dst_managed || sides->is_src_managed || flyt_range_is_synchronous(copy->dst.address) ||
           flyt_range_is_synchronous(copy->src.address) ||
           (is_within && (is_unknown(&copy->dst) || is_unknown(&copy->src)));
}

CUresult flyt_copy(const struct flyt_copy *given, CUstream stream_handle, bool is_async)
{
    struct flyt_stream *stream;
    struct flyt_copy copy = *given;
    uint64_t bytes;
    struct sides sides = {0};
    CUresult result = flyt_client_enter();
    if (!result)
        result = flyt_stream_get(stream_handle, &stream);
    bool is_captured = false;
    if (!result && flyt_capture_is_any())
        result = is_async ? flyt_capture_ask_work(stream, &is_captured) : flyt_capture_ask_wait(stream);
    if (result || !copy.width_bytes || !copy.height || !copy.depth)
        return result;
    result = check(&copy, &bytes, &sides);
    if (is_captured)
        return result ? result : flyt_captures.ops->copy(stream, &copy);
    if (!result && sides.is_src_managed)
        result = flyt_watch_before_use(stream, copy.src.address);
    if (!result && sides.is_dst_managed)
        result = flyt_watch_before_use(stream, copy.dst.address);
    if (!result)
        result = carry_out(stream, &copy, &sides, bytes, is_async ? ASYNC : WAITED);
    if (!result && !is_async && must_wait(&copy, &sides))
        result = flyt_stream_wait(stream);
    else if (!result && !is_async && (copy.dst.place == FLYT_PLACE_HOST || copy.src.place == FLYT_PLACE_HOST))
        result = flyt_watch_after(stream, false); /* it was behind all that the stream had */
    /* What a synchronous copy brought to light of this thread's earlier calls, its own included, belongs to it. */
    return result || is_async ? result : flyt_client_enter();
}

/* ---- of graphs ---- */

CUresult flyt_copy_check(struct flyt_copy *copy)
{
    uint64_t bytes;
    struct sides sides = {0};
    if (!copy->width_bytes || !copy->height || !copy->depth)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check(copy, &bytes, &sides);
    return result ? result : lose_constants(copy);
}

CUresult flyt_copy_of_graph(struct flyt_stream *stream, const struct flyt_copy *given)
{
    struct flyt_copy copy = *given;
    CUresult result = flyt_watch_before_use(stream, copy.src.address);
    if (!result)
        result = flyt_watch_before_use(stream, copy.dst.address);
    return result ? result : carry_out(stream, &copy, NULL, copy.width_bytes * copy.height * copy.depth, OF_GRAPH);
}

/* ---- without checks and waits ---- */

CUresult flyt_copy_raw_in(struct flyt_stream *stream, uint64_t address, const void *data, uint64_t bytes)
{
    const struct flyt_copy copy =
        flyt_copy_plain(FLYT_PLACE_DEVICE, address, FLYT_PLACE_HOST, (uint64_t)(uintptr_t)data, bytes);
    return send_now(stream, &copy);
}

CUresult flyt_copy_raw_out(struct flyt_stream *stream, void *ret_data, uint64_t address, uint64_t bytes, bool is_async)
{
    const struct flyt_copy copy =
        flyt_copy_plain(FLYT_PLACE_HOST, (uint64_t)(uintptr_t)ret_data, FLYT_PLACE_DEVICE, address, bytes);
    const bool is_inline = !is_async && bytes <= FLYT_INLINE_BYTES_MAX;
    return is_inline ? copy_out_inline(stream, &copy) : copy_out_transfer(stream, &copy, is_async);
}
