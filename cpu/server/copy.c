#include "cpu/server/copy.h"

#include <stdlib.h>

#include "cpu/server/call.h"
#include "cpu/server/session.h"
#include "flyt_serve.h"
#include "rpc/base/log.h"

static bool is_line(const flyt_box *box)
{
    return (box->height == 1 || box->pitch_bytes == box->width_bytes) &&
           (box->depth == 1 || box->slice_bytes == box->height * box->width_bytes);
}

static CUresult check(struct flyt_call *call, const flyt_box *box, flyt_box *ret_box, uint64_t *ret_bytes,
                      struct flyt_device **ret_device)
{
    CUresult result = flyt_box_check(call->session, box, ret_bytes, ret_device);
    if (result == CUDA_SUCCESS)
        *ret_box = is_line(box) ? flyt_box_line(box->address, *ret_bytes) : *box;
    return result;
}

/* A small buffer for a call, which is parked until there is one. */
static CUresult take_small(struct flyt_session *session, struct flyt_buffer **ret_buffer)
{
    CUresult result = flyt_staging_take_small(&session->staging, ret_buffer);
    if (result != CUDA_ERROR_NOT_READY)
        return result;
    session->is_retry_due = true;
    return FLYT_CALL_PARKED;
}

/* Whether a piece of a copy may be given to the GPU now: its first one may have come through a gate that has closed. */
static bool may_submit(struct flyt_stream *stream, struct flyt_device *device)
{
    return (!stream->device->turn.is_closed && !device->turn.is_closed) || flyt_turn_ask_both(stream->device, device);
}

/* ---- host to device, in the call ---- */

CUresult flyt_copy_in(struct flyt_call *call, struct flyt_stream *stream, const flyt_box *dst, void *data,
                      uint64_t data_bytes)
{
    struct flyt_session *session = call->session;
    struct flyt_device *device;
    flyt_box box;
    uint64_t bytes;
    CUresult result = check(call, dst, &box, &bytes, &device);
    if (result != CUDA_SUCCESS)
        return result;
    if (data_bytes != bytes || bytes > FLYT_INLINE_BYTES_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (!bytes)
        return CUDA_SUCCESS;
    result = flyt_stream_enter_for(stream, device);
    if (result != CUDA_SUCCESS)
        return result;
    flyt_session_count(&session->in_bytes, bytes);
    /* Up to 64 KiB of ordinary memory have been read when the driver returns. For other shapes that is not promised. */
    if (box.height == 1 && box.depth == 1)
        return flyt_stream_leave(stream, call->sequence, flyt_copy_packed(stream, device, &box, data, 0, bytes, true));
    struct flyt_buffer *buffer;
    result = take_small(session, &buffer);
    if (result != CUDA_SUCCESS)
        return result;
    memcpy(buffer->data, data, bytes);
    result =
        flyt_stream_leave(stream, call->sequence, flyt_copy_packed(stream, device, &box, buffer->data, 0, bytes, true));
    struct flyt_moment *moment = NULL;
    if (result == CUDA_SUCCESS)
        result = flyt_stream_mark(stream, &moment);
    flyt_staging_release_after(&session->staging, buffer, moment);
    return result;
}

CUresult flyt_serve_copy_in(struct flyt_call *call, const flyt_copy_in_args *args, struct flyt_stream *stream)
{
    flyt_constant_note_written(call->session, args->dst.address);
    return flyt_copy_in(call, stream, &args->dst, args->data.data_val, args->data.data_len);
}

/* ---- host to device, as a transfer ---- */

struct in_job {
    struct flyt_job job;
    struct flyt_transfer *transfer; /* NULL: closed */
    struct flyt_moment *reached;    /* the end of the stream's earlier work */
    bool is_turn;                   /* that has been reached */
    bool is_pull;
    struct flyt_device *device; /* of the box */
    flyt_box box;
    uint64_t transfer_id, bytes, submitted_bytes;
};

static void in_close(struct in_job *self, bool has_all)
{
    if (self->transfer)
        flyt_transfer_close(self->job.session, self->transfer, has_all);
    self->transfer = NULL;
}

static CUresult in_submit(struct in_job *self, struct flyt_piece *piece)
{
    struct flyt_session *session = self->job.session;
    struct flyt_stream *stream = self->job.stream;
    if (piece->offset_bytes > self->bytes || piece->bytes > self->bytes - piece->offset_bytes ||
        piece->bytes > self->bytes - self->submitted_bytes) {
        flyt_warn("session %s: a chunk lies outside of its transfer", session->label);
        session->is_ended = true;
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = flyt_device_use(stream->device);
    if (result == CUDA_SUCCESS)
        result = flyt_stream_leave(stream, self->job.sequence,
                                   flyt_copy_packed(stream, self->device, &self->box, piece->buffer->data,
                                                    piece->offset_bytes, piece->bytes, true));
    struct flyt_moment *moment = NULL;
    if (result == CUDA_SUCCESS)
        result = flyt_stream_mark(stream, &moment);
    if (result == CUDA_SUCCESS)
        flyt_staging_release_after(&session->staging, piece->buffer, moment);
    else
        flyt_staging_release(&session->staging, piece->buffer);
    piece->buffer = NULL;
    self->submitted_bytes += piece->bytes;
    return result;
}

/* Looks whether the GPU has reached the copy. CUDA_SUCCESS, CUDA_ERROR_NOT_READY or a fatal code. */
static CUresult in_reach(struct in_job *self)
{
    struct flyt_session *session = self->job.session;
    CUresult result = flyt_moment_poll(self->reached);
    if (result != CUDA_SUCCESS)
        return result;
    self->is_turn = true;
    flyt_transfer_begin(session, self->transfer);
    if (self->is_pull) {
        flyt_back_pull back = {.transfer_id = self->transfer_id};
        flyt_connection_call_back(session->connection, FLYT_BACK_PULL, (xdrproc_t)xdr_flyt_back_pull, &back);
        self->is_pull = false;
    }
    return CUDA_SUCCESS;
}

/* The next chunk to submit. Given ordinary memory, the driver waits for the stream: so not before its turn. */
static struct flyt_piece *in_take(struct in_job *self)
{
    struct flyt_session *session = self->job.session;
    return self->is_turn ? flyt_transfer_take(session, self->transfer)
                         : flyt_transfer_take_locked_pages(session, self->transfer);
}

static CUresult in_advance(struct flyt_job *job)
{
    struct in_job *self = (struct in_job *)job;
    struct flyt_session *session = job->session;
    if (session->fatal != CUDA_SUCCESS)
        return session->fatal;
    CUresult result = self->is_turn ? CUDA_SUCCESS : in_reach(self);
    if (result != CUDA_SUCCESS && (result != CUDA_ERROR_NOT_READY || self->is_pull))
        return result;
    job->needs_poll = !self->is_turn; /* chunks come with a kick */
    struct flyt_piece *piece;
    while (self->submitted_bytes < self->bytes && may_submit(job->stream, self->device) && (piece = in_take(self))) {
        result = in_submit(self, piece);
        flyt_piece_free(session, piece);
        if (result != CUDA_SUCCESS)
            return result;
    }
    if (self->submitted_bytes < self->bytes)
        return CUDA_ERROR_NOT_READY;
    in_close(self, true);
    return CUDA_SUCCESS;
}

static void in_finish(struct flyt_job *job, CUresult result)
{
    struct in_job *self = (struct in_job *)job;
    if (result == CUDA_SUCCESS)
        return;
    in_close(self, self->is_pull);
    flyt_transfers_fail(job->session, self->transfer_id, (int)result);
    flyt_session_call_error(job->session, job->sequence, job->thread, result);
}

static void in_free(struct flyt_job *job)
{
    struct in_job *self = (struct in_job *)job;
    flyt_moment_unref(self->reached);
    free(self);
}

static const struct flyt_job_ops in_ops = {in_advance, in_finish, in_free};

static CUresult refuse_in(struct flyt_call *call, const flyt_copy_in_transfer_args *args, CUresult result)
{
    if (!args->is_pull)
        flyt_transfer_drop(call->session, args->transfer_id, args->bytes);
    flyt_transfers_fail(call->session, args->transfer_id, (int)result);
    return result;
}

CUresult flyt_serve_copy_in_transfer(struct flyt_call *call, const flyt_copy_in_transfer_args *args,
                                     struct flyt_stream *stream)
{
    struct flyt_session *session = call->session;
    struct flyt_device *device;
    flyt_box box;
    uint64_t bytes;
    CUresult result = check(call, &args->dst, &box, &bytes, &device);
    if (result == CUDA_SUCCESS && (!bytes || bytes != args->bytes))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return refuse_in(call, args, result);
    flyt_constant_note_written(session, box.address);
    result = flyt_stream_enter_for(stream, device);
    if (result == FLYT_CALL_PARKED)
        return result;
    struct in_job *self = calloc(1, sizeof *self);
    if (result == CUDA_SUCCESS && !self)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        result = flyt_stream_mark(stream, &self->reached);
    if (result == CUDA_SUCCESS) {
        self->transfer = flyt_transfer_open_early(session, args->transfer_id, bytes);
        result = self->transfer ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    if (result != CUDA_SUCCESS) {
        if (self)
            flyt_moment_unref(self->reached);
        free(self);
        return refuse_in(call, args, result);
    }
    self->device = device;
    self->box = box;
    self->bytes = bytes;
    self->transfer_id = args->transfer_id;
    self->is_pull = args->is_pull;
    flyt_session_count(&session->in_bytes, bytes);
    flyt_job_start(&self->job, &in_ops, call, stream);
    in_reach(self); /* for the data that comes right behind; in_advance asks again and looks at the answer */
    return FLYT_CALL_DEFERRED;
}

/* ---- device to host, in the reply ---- */

struct out_reply_job {
    struct flyt_job job;
    struct flyt_buffer *buffer;
    struct flyt_moment *reached;
    size_t bytes;
};

static CUresult out_reply_advance(struct flyt_job *job)
{
    return flyt_moment_poll(((struct out_reply_job *)job)->reached);
}

static void out_reply_finish(struct flyt_job *job, CUresult result)
{
    struct out_reply_job *self = (struct out_reply_job *)job;
    struct flyt_session *session = job->session;
    size_t bytes = result == CUDA_SUCCESS ? self->bytes : 0;
    flyt_print_flush(session);
    flyt_session_poll_streams(session);
    flyt_page_write(session);
    flyt_copy_out_res res = {.result = (int)result, .progress = flyt_session_progress(session)};
    flyt_connection_reply(session->connection, job->xid, (xdrproc_t)xdr_flyt_copy_out_res, &res, self->buffer->data,
                          bytes);
}

static void out_reply_free(struct flyt_job *job)
{
    struct out_reply_job *self = (struct out_reply_job *)job;
    flyt_staging_release(&job->session->staging, self->buffer);
    flyt_moment_unref(self->reached);
    free(self);
}

static const struct flyt_job_ops out_reply_ops = {out_reply_advance, out_reply_finish, out_reply_free};

CUresult flyt_copy_out(struct flyt_call *call, struct flyt_stream *stream, const flyt_box *src)
{
    struct flyt_session *session = call->session;
    struct flyt_device *device;
    flyt_box box;
    uint64_t bytes;
    CUresult result = check(call, src, &box, &bytes, &device);
    if (result != CUDA_SUCCESS)
        return result;
    if (bytes > FLYT_INLINE_BYTES_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (!bytes)
        return CUDA_SUCCESS;
    result = flyt_stream_enter_for(stream, device);
    if (result != CUDA_SUCCESS)
        return result;
    struct flyt_buffer *buffer;
    result = take_small(session, &buffer);
    if (result != CUDA_SUCCESS)
        return result;
    struct out_reply_job *self = calloc(1, sizeof *self);
    result = self ? flyt_copy_packed(stream, device, &box, buffer->data, 0, bytes, false) : CUDA_ERROR_OUT_OF_MEMORY;
    result = flyt_stream_leave(stream, call->sequence, result);
    if (result == CUDA_SUCCESS)
        result = flyt_stream_mark(stream, &self->reached);
    if (result != CUDA_SUCCESS) {
        flyt_staging_release(&session->staging, buffer);
        free(self);
        return result;
    }
    self->buffer = buffer;
    self->bytes = bytes;
    flyt_session_count(&session->out_bytes, bytes);
    flyt_job_start(&self->job, &out_reply_ops, call, NULL);
    return FLYT_CALL_DEFERRED;
}

CUresult flyt_serve_copy_out(struct flyt_call *call, const flyt_copy_out_args *args, struct flyt_stream *stream,
                             flyt_copy_out_res *res)
{
    flyt_constant_note_used(call->session, args->src.address);
    return flyt_copy_out(call, stream, &args->src);
}

/* ---- device to host, as a transfer ---- */

/*
 * Two jobs: one holds the stream until all pieces are submitted; each piece is then followed by a job of its own, which
 * hands it to a sender when the GPU has written it.
 */
struct out_job {
    struct flyt_job job;
    struct flyt_moment *reached; /* the end of the stream's earlier work */
    struct flyt_device *device;  /* of the box */
    flyt_box box;
    uint64_t transfer_id, bytes, submitted_bytes;
};

struct out_piece_job {
    struct flyt_job job;
    struct flyt_buffer *buffer;
    struct flyt_moment *reached;
    uint64_t transfer_id, offset_bytes;
    size_t bytes;
};

static CUresult out_piece_advance(struct flyt_job *job)
{
    return flyt_moment_poll(((struct out_piece_job *)job)->reached);
}

static void out_piece_finish(struct flyt_job *job, CUresult result)
{
    struct out_piece_job *self = (struct out_piece_job *)job;
    /* What is small goes with the replies and notices, in their order: handing it to another thread takes longer. */
    if (result == CUDA_SUCCESS && self->bytes <= FLYT_INLINE_BYTES_MAX)
        flyt_connection_send_chunk(job->session->connection, self->transfer_id, self->offset_bytes, self->buffer->data,
                                   self->bytes);
    else if (result == CUDA_SUCCESS &&
             flyt_transfers_send(job->session, self->transfer_id, self->offset_bytes, self->buffer, self->bytes))
        self->buffer = NULL;
    else
        flyt_transfers_fail(job->session, self->transfer_id,
                            (int)(result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result));
}

static void out_piece_free(struct flyt_job *job)
{
    struct out_piece_job *self = (struct out_piece_job *)job;
    flyt_staging_release(&job->session->staging, self->buffer);
    flyt_moment_unref(self->reached);
    free(self);
}

static const struct flyt_job_ops out_piece_ops = {out_piece_advance, out_piece_finish, out_piece_free};

static CUresult out_submit(struct out_job *self, struct flyt_buffer *buffer, size_t bytes)
{
    struct flyt_stream *stream = self->job.stream;
    struct out_piece_job *piece = calloc(1, sizeof *piece);
    CUresult result = piece ? flyt_device_use(stream->device) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        result = flyt_stream_leave(
            stream, self->job.sequence,
            flyt_copy_packed(stream, self->device, &self->box, buffer->data, self->submitted_bytes, bytes, false));
    if (result == CUDA_SUCCESS)
        result = flyt_stream_mark(stream, &piece->reached);
    if (result != CUDA_SUCCESS) {
        flyt_staging_release(&self->job.session->staging, buffer);
        free(piece);
        return result;
    }
    piece->buffer = buffer;
    piece->transfer_id = self->transfer_id;
    piece->offset_bytes = self->submitted_bytes;
    piece->bytes = bytes;
    self->submitted_bytes += bytes;
    struct flyt_call call = {.session = self->job.session, .sequence = self->job.sequence, .thread = self->job.thread};
    flyt_job_start(&piece->job, &out_piece_ops, &call, NULL);
    return CUDA_SUCCESS;
}

static CUresult out_advance(struct flyt_job *job)
{
    struct out_job *self = (struct out_job *)job;
    if (job->session->fatal != CUDA_SUCCESS)
        return job->session->fatal;
    while (self->submitted_bytes < self->bytes) {
        struct flyt_buffer *buffer;
        if (!may_submit(job->stream, self->device))
            return CUDA_ERROR_NOT_READY;
        bool is_turn = flyt_moment_poll(self->reached) != CUDA_ERROR_NOT_READY;
        CUresult result = flyt_staging_take_large(&job->session->staging, is_turn, &buffer);
        if (result != CUDA_SUCCESS)
            return result; /* buffers come back from the GPU, too, without a kick: the job is polled */
        uint64_t left = self->bytes - self->submitted_bytes;
        result = out_submit(self, buffer, left < buffer->room_bytes ? left : buffer->room_bytes);
        if (result != CUDA_SUCCESS)
            return result;
    }
    return CUDA_SUCCESS;
}

static void out_finish(struct flyt_job *job, CUresult result)
{
    if (result == CUDA_SUCCESS)
        return;
    flyt_transfers_fail(job->session, ((struct out_job *)job)->transfer_id, (int)result);
    flyt_session_call_error(job->session, job->sequence, job->thread, result);
}

static void out_free(struct flyt_job *job)
{
    flyt_moment_unref(((struct out_job *)job)->reached);
    free(job);
}

static const struct flyt_job_ops out_ops = {out_advance, out_finish, out_free};

CUresult flyt_serve_copy_out_transfer(struct flyt_call *call, const flyt_copy_out_transfer_args *args,
                                      struct flyt_stream *stream)
{
    struct flyt_device *device;
    flyt_box box;
    uint64_t bytes;
    flyt_constant_note_used(call->session, args->src.address);
    CUresult result = check(call, &args->src, &box, &bytes, &device);
    if (result == CUDA_SUCCESS && (!bytes || bytes != args->bytes))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = flyt_stream_enter_for(stream, device);
    if (result == FLYT_CALL_PARKED)
        return result;
    struct out_job *self = result == CUDA_SUCCESS ? calloc(1, sizeof *self) : NULL;
    if (result == CUDA_SUCCESS)
        result = self ? flyt_stream_mark(stream, &self->reached) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        free(self);
        flyt_transfers_fail(call->session, args->transfer_id, (int)result);
        return result;
    }
    self->device = device;
    self->box = box;
    self->bytes = bytes;
    self->transfer_id = args->transfer_id;
    flyt_session_count(&call->session->out_bytes, bytes);
    flyt_job_start(&self->job, &out_ops, call, stream);
    return FLYT_CALL_DEFERRED;
}
