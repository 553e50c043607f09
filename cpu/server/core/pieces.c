#include "cpu/server/core/pieces.h"

#include "cpu/server/core/call.h"
#include "cpu/server/core/session.h"
#include "cpu/server/core/stream.h"
#include "cpu/server/core/submit.h"

bool flyt_pieces_were_submitted(const struct flyt_session *session)
{
    return session->pieces_left < FLYT_PIECES_PER_ROUND_MAX;
}

/* One driver call. */
static CUresult submit_one(void *user, struct flyt_stream *target)
{
    struct flyt_pieces *self = user;
    target->device->session->pieces_left--;
    return self->submit(self, target);
}

CUresult flyt_pieces_submit_all(void *user, struct flyt_stream *target)
{
    struct flyt_pieces *self = user;
    CUresult result = CUDA_SUCCESS;
    while (result == CUDA_SUCCESS && self->left)
        result = self->submit(self, target);
    return result;
}

/* As many as this round of the loop takes, each an operation of its own. */
static CUresult submit_round(struct flyt_pieces *self, struct flyt_stream *target, uint64_t sequence)
{
    CUresult result = CUDA_SUCCESS;
    while (result == CUDA_SUCCESS && self->left && target->device->session->pieces_left)
        result = flyt_stream_submit(target, sequence, FLYT_SUBMIT_PIECE, self->device, submit_one, self);
    return result == FLYT_CALL_RETRY ? CUDA_SUCCESS : result;
}

/* On a copy stream: the round is one operation of the stream's. */
static CUresult submit_carried(void *user, struct flyt_stream *copy_stream)
{
    return submit_round(user, copy_stream, copy_stream->submitted_sequence);
}

static CUresult submit(struct flyt_pieces *self, struct flyt_stream *stream, uint64_t sequence)
{
    if (self->is_few)
        return flyt_stream_submit(stream, sequence, FLYT_SUBMIT_PIECE, self->device, flyt_pieces_submit_all, self);
    if (self->device == stream->device)
        return submit_round(self, stream, sequence);
    return flyt_stream_submit(stream, sequence, FLYT_SUBMIT_PIECE, self->device, submit_carried, self);
}

CUresult flyt_pieces_submit(struct flyt_pieces *self, struct flyt_stream *stream, uint64_t sequence,
                            bool *ret_needs_poll)
{
    *ret_needs_poll = flyt_time_slice_gate_may_submit(stream->device, self->device);
    if (!*ret_needs_poll || (!self->is_few && !stream->device->session->pieces_left))
        return CUDA_ERROR_NOT_READY;
    CUresult result = submit(self, stream, sequence);
    return result == FLYT_CALL_RETRY || (result == CUDA_SUCCESS && self->left) ? CUDA_ERROR_NOT_READY : result;
}
