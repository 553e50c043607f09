#include "cpu/server/cuda/copy.h"

#include <stdlib.h>

#include "cpu/server/core/call.h"
#include "cpu/server/cuda/array.h"
#include "cpu/server/cuda/constant.h"
#include "cpu/server/core/session.h"
#include "cpu/server/bulk/staging.h"
#include "cpu/server/core/submit.h"
#include "cpu/server/bulk/transfer.h"
#include "flyt_serve.h"
#include "rpc/base/log.h"

static CUresult check(struct flyt_call *call, const flyt_box *box, flyt_box *ret_box, uint64_t *ret_bytes,
                      struct flyt_device **ret_device)
{
    CUresult result = flyt_box_check(call->session, box, ret_bytes, ret_device);
    if (result == CUDA_SUCCESS && *ret_bytes)
        *ret_box = flyt_box_simplify(box);
    return result;
}

/* A small buffer for a call, which is deferred until there is one. */
static CUresult take_small(struct flyt_session *session, struct flyt_buffer **ret_buffer)
{
    CUresult result = flyt_staging_take_small(session->staging, ret_buffer);
    if (result != CUDA_ERROR_NOT_READY)
        return result;
    session->is_retry_due = true;
    return FLYT_CALL_RETRY;
}

/* Gives a buffer back when the GPU is done with what the stream has got so far. Where the driver does not tell when
 * that is, nobody has it again. */
static void release_after_all(struct flyt_stream *stream, struct flyt_buffer *buffer)
{
    struct flyt_fence *fence;
    if (flyt_stream_mark(stream, &fence) == CUDA_SUCCESS)
        flyt_staging_release_after(stream->device->session->staging, buffer, fence);
}

/* ---- what was read into a buffer ---- */

/* Waits until the GPU has filled its buffer. */
struct read_job {
    struct flyt_job job;
    struct flyt_buffer *buffer;
    struct flyt_fence *reached;
    size_t bytes;
    bool is_piece; /* of a transfer; else it goes with the call's reply */
    uint64_t transfer_id, offset_bytes;
};

static const struct flyt_job_ops read_ops;

static bool is_piece(const struct flyt_job *job)
{
    return job->ops == &read_ops && ((const struct read_job *)job)->is_piece;
}

/* What the GPU wrote goes to the program in that order, for two copies may have the same place in its memory: whether
 * an earlier piece is there by now, though it was not when this round of the loop looked at it. */
static bool has_earlier_piece(const struct flyt_job *job)
{
    for (struct flyt_job *one = job->prev; one; one = one->prev)
        if (is_piece(one) && flyt_fence_poll(((struct read_job *)one)->reached) != CUDA_ERROR_NOT_READY)
            return true;
    return false;
}

static CUresult read_advance(struct flyt_job *job)
{
    CUresult result = flyt_fence_poll(((struct read_job *)job)->reached);
    return result == CUDA_SUCCESS && has_earlier_piece(job) ? CUDA_ERROR_NOT_READY : result;
}

static void read_free(struct flyt_job *job)
{
    struct read_job *self = (struct read_job *)job;
    flyt_staging_release(job->session->staging, self->buffer);
    flyt_fence_unref(self->reached);
    free(self);
}

/* All that goes into the buffer is submitted to the stream. NULL: *ret_result says why. */
static struct read_job *new_read(struct flyt_stream *stream, struct flyt_buffer *buffer, size_t bytes,
                                 CUresult *ret_result)
{
    struct read_job *self = calloc(1, sizeof *self);
    *ret_result = self ? flyt_stream_mark(stream, &self->reached) : CUDA_ERROR_OUT_OF_MEMORY;
    if (*ret_result != CUDA_SUCCESS) {
        free(self);
        return NULL;
    }
    self->buffer = buffer;
    self->bytes = bytes;
    return self;
}

static void reply_out(struct flyt_job *job, CUresult result, const void *data, size_t bytes)
{
    flyt_print_flush(job->session);
    flyt_job_reply_payload(job, result, data, result == CUDA_SUCCESS ? bytes : 0);
}

static void send_piece(struct read_job *self, CUresult result)
{
    struct flyt_session *session = self->job.session;
    /* What is small goes with the replies and notices, in their order: handing it to another thread takes longer. */
    if (result == CUDA_SUCCESS && self->bytes <= FLYT_INLINE_BYTES_MAX)
        flyt_connection_send_chunk(session->connection, self->transfer_id, self->offset_bytes, self->buffer->data,
                                   self->bytes);
    else if (result == CUDA_SUCCESS &&
             flyt_transfers_send(session, self->transfer_id, self->offset_bytes, self->buffer, self->bytes))
        self->buffer = NULL;
    else
        flyt_transfers_fail(session, self->transfer_id,
                            (int)(result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result));
}

static void read_finish(struct flyt_job *job, CUresult result)
{
    struct read_job *self = (struct read_job *)job;
    if (self->is_piece)
        send_piece(self, result);
    else
        reply_out(job, result, self->buffer->data, self->bytes);
}

static const struct flyt_job_ops read_ops = {read_advance, read_finish, read_free};

/* All of it is submitted. Takes the buffer over. CUDA_SUCCESS, or why there will be no reply. */
static CUresult start_out_reply(struct flyt_call *call, struct flyt_stream *stream, struct flyt_buffer *buffer,
                                size_t bytes)
{
    CUresult result;
    struct read_job *self = new_read(stream, buffer, bytes, &result);
    if (!self) {
        release_after_all(stream, buffer);
        return result;
    }
    flyt_session_count(&call->session->out_bytes, bytes);
    flyt_job_start(&self->job, &read_ops, call, NULL);
    return CUDA_SUCCESS;
}

/* ---- a small box of many pieces, either way ---- */

struct box_job {
    struct flyt_job job;
    struct flyt_box_copy copy;
    struct flyt_buffer *buffer; /* NULL: given back, or on */
    size_t bytes;
};

static CUresult box_advance(struct flyt_job *job)
{
    struct box_job *self = (struct box_job *)job;
    if (job->session->fatal != CUDA_SUCCESS)
        return job->session->fatal;
    return flyt_pieces_submit(&self->copy.pieces, job->stream, job->sequence, &job->needs_poll);
}

static void box_finish(struct flyt_job *job, CUresult result)
{
    struct box_job *self = (struct box_job *)job;
    struct flyt_call call = flyt_job_call(job);
    if (!self->copy.to_device && result == CUDA_SUCCESS)
        result = start_out_reply(&call, job->stream, self->buffer, self->bytes);
    else
        release_after_all(job->stream, self->buffer);
    self->buffer = NULL;
    if (result == CUDA_SUCCESS)
        return;
    if (self->copy.to_device)
        flyt_session_call_error(job->session, job->sequence, job->thread, result);
    else
        reply_out(job, result, NULL, 0);
}

static void box_free(struct flyt_job *job)
{
    struct box_job *self = (struct box_job *)job;
    flyt_staging_release(job->session->staging, self->buffer);
    free(self);
}

static const struct flyt_job_ops box_ops = {box_advance, box_finish, box_free};

/* A copy of a small box through a buffer: as one operation, or by a job. */
struct small {
    struct flyt_call *call;
    struct flyt_box_copy copy;
    struct flyt_buffer *buffer;
    const void *data; /* NULL: it is read */
    size_t bytes;
};

/* FLYT_CALL_STARTED: the job has the buffer. */
static CUresult start_box(const struct small *small, struct flyt_stream *stream)
{
    struct box_job *self = calloc(1, sizeof *self);
    if (!self)
        return CUDA_ERROR_OUT_OF_MEMORY;
    self->copy = small->copy;
    self->buffer = small->buffer;
    self->bytes = small->bytes;
    flyt_job_start(&self->job, &box_ops, small->call, stream);
    return FLYT_CALL_STARTED;
}

static CUresult begin_small(void *user, struct flyt_stream *target)
{
    struct small *self = user;
    if (self->data)
        memcpy(self->buffer->data, self->data, self->bytes);
    return self->copy.pieces.is_few ? flyt_pieces_submit_all(&self->copy.pieces, target) : start_box(self, target);
}

/* FLYT_CALL_STARTED; FLYT_CALL_RETRY: there is no buffer, or it was given back; else the caller has the buffer. */
static CUresult submit_small(struct small *self, struct flyt_stream *stream)
{
    CUresult result = take_small(self->call->session, &self->buffer);
    if (result != CUDA_SUCCESS)
        return result;
    self->copy.host = self->buffer->data;
    result =
        flyt_stream_submit(stream, self->call->sequence, self->copy.pieces.is_few ? FLYT_SUBMIT_WORK : FLYT_SUBMIT_JOB,
                           self->copy.pieces.device, begin_small, self);
    if (result == FLYT_CALL_RETRY)
        flyt_staging_release(self->call->session->staging, self->buffer);
    return result;
}

/* ---- host to device, in the call ---- */

CUresult flyt_copy_in(struct flyt_call *call, struct flyt_stream *stream, const flyt_box *dst, void *data,
                      uint64_t data_bytes)
{
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
    struct small self = {.call = call, .data = data, .bytes = bytes};
    self.copy = flyt_box_copy_begin(device, &box, data, 0, bytes, true);
    /* Up to 64 KiB of ordinary memory have been read when the driver returns. For other shapes that is not promised. */
    if (box.height == 1 && box.depth == 1 && !flyt_box_is_array(&box)) {
        result = flyt_stream_submit(stream, call->sequence, FLYT_SUBMIT_WORK, device, flyt_pieces_submit_all,
                                    &self.copy.pieces);
    } else {
        result = submit_small(&self, stream);
        if (result != FLYT_CALL_RETRY && result != FLYT_CALL_STARTED)
            release_after_all(stream, self.buffer);
    }
    if (result != FLYT_CALL_RETRY)
        flyt_session_count(&call->session->in_bytes, bytes);
    return result;
}

CUresult flyt_serve_copy_in(struct flyt_call *call, const flyt_copy_in_args *args, struct flyt_stream *stream)
{
    flyt_constant_note_written(call->session, args->dst.address);
    return flyt_copy_in(call, stream, &args->dst, args->data.data_val, args->data.data_len);
}

/* ---- transfers ---- */

/* What becomes the job of a transfer when its stream takes it. */
struct start {
    struct flyt_call *call;
    uint64_t transfer_id, bytes;
    bool is_pull; /* of one to the device */
    struct flyt_device *device;
    flyt_box box;
};

static CUresult check_transfer(struct start *start, const flyt_box *asked)
{
    uint64_t bytes;
    CUresult result = check(start->call, asked, &start->box, &bytes, &start->device);
    return result == CUDA_SUCCESS && (!bytes || bytes != start->bytes) ? CUDA_ERROR_INVALID_VALUE : result;
}

/* ---- host to device, as a transfer ---- */

struct in_job {
    struct flyt_job job;
    struct flyt_transfer *transfer; /* NULL: closed */
    struct flyt_fence *reached;     /* the end of the stream's earlier work */
    bool is_time_slice;             /* that has been reached */
    bool is_pull;
    struct flyt_device *device; /* of the box */
    flyt_box box;
    uint64_t transfer_id, bytes, submitted_bytes; /* submitted_bytes: of chunks that are submitted as a whole */
    struct flyt_piece *piece;                     /* the chunk that is being submitted; NULL: none */
    struct flyt_box_copy copy;                    /* what is left of that */
};

static void in_close(struct in_job *self, bool has_all)
{
    if (self->transfer)
        flyt_transfer_close(self->job.session, self->transfer, has_all);
    self->transfer = NULL;
}

/* The next chunk has come. */
static CUresult in_begin_piece(struct in_job *self, struct flyt_piece *piece)
{
    struct flyt_session *session = self->job.session;
    if (piece->offset_bytes > self->bytes || piece->bytes > self->bytes - piece->offset_bytes ||
        piece->bytes > self->bytes - self->submitted_bytes) {
        flyt_warn("session %s: a chunk lies outside of its transfer", session->label);
        session->is_ended = true;
        flyt_piece_free(session, piece);
        return CUDA_ERROR_INVALID_VALUE;
    }
    self->piece = piece;
    self->copy =
        flyt_box_copy_begin(self->device, &self->box, piece->buffer->data, piece->offset_bytes, piece->bytes, true);
    return CUDA_SUCCESS;
}

/* It is submitted, or never will be. */
static void in_end_piece(struct in_job *self)
{
    if (!self->piece)
        return;
    release_after_all(self->job.stream, self->piece->buffer);
    self->piece->buffer = NULL;
    self->submitted_bytes += self->piece->bytes;
    flyt_piece_free(self->job.session, self->piece);
    self->piece = NULL;
}

/* Looks whether the GPU has reached the copy. CUDA_SUCCESS, CUDA_ERROR_NOT_READY or a fatal code. */
static CUresult in_reach(struct in_job *self)
{
    struct flyt_session *session = self->job.session;
    CUresult result = flyt_fence_poll(self->reached);
    if (result != CUDA_SUCCESS)
        return result;
    self->is_time_slice = true;
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
    return self->is_time_slice ? flyt_transfer_take(session, self->transfer)
                               : flyt_transfer_take_locked_pages(session, self->transfer);
}

static CUresult in_advance(struct flyt_job *job)
{
    struct in_job *self = (struct in_job *)job;
    struct flyt_session *session = job->session;
    if (session->fatal != CUDA_SUCCESS)
        return session->fatal;
    CUresult result = self->is_time_slice ? CUDA_SUCCESS : in_reach(self);
    if (result != CUDA_SUCCESS && (result != CUDA_ERROR_NOT_READY || self->is_pull))
        return result;
    job->needs_poll = !self->is_time_slice; /* chunks come with a kick */
    while (self->submitted_bytes < self->bytes) {
        struct flyt_piece *piece = NULL;
        if (!self->piece &&
            (!flyt_time_slice_gate_may_submit(job->stream->device, self->device) || !(piece = in_take(self))))
            return CUDA_ERROR_NOT_READY;
        result = piece ? in_begin_piece(self, piece) : CUDA_SUCCESS;
        if (result == CUDA_SUCCESS)
            result = flyt_pieces_submit(&self->copy.pieces, job->stream, job->sequence, &job->needs_poll);
        if (result != CUDA_SUCCESS)
            return result;
        job->needs_poll = !self->is_time_slice;
        in_end_piece(self);
    }
    in_close(self, true);
    return CUDA_SUCCESS;
}

static void in_finish(struct flyt_job *job, CUresult result)
{
    struct in_job *self = (struct in_job *)job;
    if (result == CUDA_SUCCESS)
        return;
    in_end_piece(self);
    in_close(self, self->is_pull);
    flyt_transfers_fail(job->session, self->transfer_id, (int)result);
    flyt_session_call_error(job->session, job->sequence, job->thread, result);
}

static void in_free(struct flyt_job *job)
{
    struct in_job *self = (struct in_job *)job;
    if (self->piece)
        flyt_piece_free(job->session, self->piece);
    flyt_fence_unref(self->reached);
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

static CUresult start_in(void *user, struct flyt_stream *stream)
{
    const struct start *start = user;
    struct flyt_session *session = start->call->session;
    struct in_job *self = calloc(1, sizeof *self);
    CUresult result = self ? flyt_stream_mark(stream, &self->reached) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        self->transfer = flyt_transfer_open_early(session, start->transfer_id, start->bytes);
        result = self->transfer ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    if (result != CUDA_SUCCESS) {
        if (self)
            flyt_fence_unref(self->reached);
        free(self);
        return result;
    }
    self->device = start->device;
    self->box = start->box;
    self->bytes = start->bytes;
    self->transfer_id = start->transfer_id;
    self->is_pull = start->is_pull;
    flyt_session_count(&session->in_bytes, self->bytes);
    flyt_job_start(&self->job, &in_ops, start->call, stream);
    in_reach(self); /* for the data that comes right behind; in_advance asks again and looks at the answer */
    return FLYT_CALL_STARTED;
}

CUresult flyt_serve_copy_in_transfer(struct flyt_call *call, const flyt_copy_in_transfer_args *args,
                                     struct flyt_stream *stream)
{
    struct start start = {
        .call = call, .transfer_id = args->transfer_id, .bytes = args->bytes, .is_pull = args->is_pull};
    CUresult result = check_transfer(&start, &args->dst);
    if (result != CUDA_SUCCESS)
        return refuse_in(call, args, result);
    flyt_constant_note_written(call->session, start.box.address);
    result = flyt_stream_submit(stream, call->sequence, FLYT_SUBMIT_JOB, start.device, start_in, &start);
    return result == FLYT_CALL_RETRY || result == FLYT_CALL_STARTED ? result : refuse_in(call, args, result);
}

/* ---- device to host, in the reply ---- */

CUresult flyt_copy_out(struct flyt_call *call, struct flyt_stream *stream, const flyt_box *src)
{
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
    struct small self = {.call = call, .bytes = bytes};
    self.copy = flyt_box_copy_begin(device, &box, NULL, 0, bytes, false);
    result = submit_small(&self, stream);
    if (result == FLYT_CALL_RETRY || result == FLYT_CALL_STARTED)
        return result;
    if (result == CUDA_SUCCESS)
        result = start_out_reply(call, stream, self.buffer, bytes);
    else
        release_after_all(stream, self.buffer);
    return result == CUDA_SUCCESS ? FLYT_CALL_STARTED : result;
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
    struct flyt_fence *reached; /* the end of the stream's earlier work */
    struct flyt_device *device; /* of the box */
    flyt_box box;
    uint64_t transfer_id, bytes, submitted_bytes; /* submitted_bytes: of pieces that are submitted as a whole */
    struct flyt_buffer *buffer;                   /* of the piece that is being submitted; NULL: none */
    size_t buffer_bytes;                          /* that go into it */
    struct flyt_box_copy copy;                    /* what is left of that */
};

/* A piece has its buffer. */
static void out_begin_piece(struct out_job *self, struct flyt_buffer *buffer)
{
    uint64_t left = self->bytes - self->submitted_bytes;
    self->buffer = buffer;
    self->buffer_bytes = left < buffer->room_bytes ? left : buffer->room_bytes;
    self->copy =
        flyt_box_copy_begin(self->device, &self->box, buffer->data, self->submitted_bytes, self->buffer_bytes, false);
}

/* It is submitted: a job of its own waits for the GPU. */
static CUresult out_end_piece(struct out_job *self)
{
    CUresult result;
    struct read_job *piece = new_read(self->job.stream, self->buffer, self->buffer_bytes, &result);
    if (!piece)
        return result;
    piece->is_piece = true;
    piece->transfer_id = self->transfer_id;
    piece->offset_bytes = self->submitted_bytes;
    self->submitted_bytes += self->buffer_bytes;
    self->buffer = NULL;
    struct flyt_call call = flyt_job_call(&self->job);
    flyt_job_start(&piece->job, &read_ops, &call, NULL);
    return CUDA_SUCCESS;
}

static CUresult out_advance(struct flyt_job *job)
{
    struct out_job *self = (struct out_job *)job;
    if (job->session->fatal != CUDA_SUCCESS)
        return job->session->fatal;
    while (self->submitted_bytes < self->bytes) {
        CUresult result = CUDA_SUCCESS;
        if (!self->buffer) {
            struct flyt_buffer *buffer;
            if (!flyt_time_slice_gate_may_submit(job->stream->device, self->device))
                return CUDA_ERROR_NOT_READY;
            bool is_time_slice = flyt_fence_poll(self->reached) == CUDA_SUCCESS;
            job->needs_poll = true; /* buffers come back from the GPU, too, without a kick */
            result = flyt_staging_take_large(job->session->staging, is_time_slice, &buffer);
            if (result == CUDA_SUCCESS)
                out_begin_piece(self, buffer);
        }
        if (result == CUDA_SUCCESS)
            result = flyt_pieces_submit(&self->copy.pieces, job->stream, job->sequence, &job->needs_poll);
        if (result == CUDA_SUCCESS)
            result = out_end_piece(self);
        if (result != CUDA_SUCCESS)
            return result;
    }
    return CUDA_SUCCESS;
}

static void out_finish(struct flyt_job *job, CUresult result)
{
    struct out_job *self = (struct out_job *)job;
    if (result == CUDA_SUCCESS)
        return;
    if (self->buffer)
        release_after_all(job->stream, self->buffer);
    self->buffer = NULL;
    flyt_transfers_fail(job->session, self->transfer_id, (int)result);
    flyt_session_call_error(job->session, job->sequence, job->thread, result);
}

static void out_free(struct flyt_job *job)
{
    struct out_job *self = (struct out_job *)job;
    flyt_staging_release(job->session->staging, self->buffer);
    flyt_fence_unref(self->reached);
    free(self);
}

static const struct flyt_job_ops out_ops = {out_advance, out_finish, out_free};

static CUresult start_out(void *user, struct flyt_stream *stream)
{
    const struct start *start = user;
    struct out_job *self = calloc(1, sizeof *self);
    CUresult result = self ? flyt_stream_mark(stream, &self->reached) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        free(self);
        return result;
    }
    self->device = start->device;
    self->box = start->box;
    self->bytes = start->bytes;
    self->transfer_id = start->transfer_id;
    flyt_session_count(&start->call->session->out_bytes, self->bytes);
    flyt_job_start(&self->job, &out_ops, start->call, stream);
    return FLYT_CALL_STARTED;
}

CUresult flyt_serve_copy_out_transfer(struct flyt_call *call, const flyt_copy_out_transfer_args *args,
                                      struct flyt_stream *stream)
{
    struct start start = {.call = call, .transfer_id = args->transfer_id, .bytes = args->bytes};
    flyt_constant_note_used(call->session, args->src.address);
    CUresult result = check_transfer(&start, &args->src);
    if (result == CUDA_SUCCESS)
        result = flyt_stream_submit(stream, call->sequence, FLYT_SUBMIT_JOB, start.device, start_out, &start);
    if (result != FLYT_CALL_RETRY && result != FLYT_CALL_STARTED)
        flyt_transfers_fail(call->session, args->transfer_id, (int)result);
    return result;
}
