#include "cpu/server/core/submit.h"

#include "cpu/server/core/call.h"
#include "cpu/server/core/progress.h"
#include "cpu/server/core/scrub.h"
#include "cpu/server/core/session.h"
#include "cpu/server/core/stream.h"

/* ---- the books ---- */

/* A call before which all are executed: that, or an earlier one than that, which is being executed. */
static uint64_t executed_before(const struct flyt_session *session)
{
    uint64_t executed = flyt_session_progress(session).executed;
    return executed < session->received_sequence ? executed : session->received_sequence - 1;
}

static void begin_to_work(struct flyt_stream *stream, uint64_t sequence)
{
    flyt_stream_enter_busy(stream);
    /* Nothing before this call is missing in this stream. A wait, made for a call that is still to be submitted, has
     * the number of the last one that was. */
    uint64_t before = sequence > stream->submitted_sequence ? sequence - 1 : executed_before(stream->device->session);
    if (stream->completed_sequence < before)
        stream->completed_sequence = before;
}

static void make_dirty(struct flyt_stream *stream)
{
    stream->is_dirty = true;
    stream->dirty_next = stream->device->dirty_first;
    stream->device->dirty_first = stream;
}

/* After a submission, with the driver's answer to it, which it returns, checked. */
static CUresult leave(struct flyt_stream *stream, uint64_t sequence, CUresult result)
{
    if (result != CUDA_SUCCESS)
        return flyt_session_check(stream->device->session, result);
    if (!stream->is_busy)
        begin_to_work(stream, sequence);
    stream->submitted++;
    stream->submitted_sequence = sequence;
    if (stream->is_blocking && !stream->is_dirty)
        make_dirty(stream);
    if (stream->submitted - stream->marked < stream->pace.mark_interval)
        return CUDA_SUCCESS;
    struct flyt_fence *fence;
    result = flyt_stream_mark(stream, &fence);
    if (result == CUDA_SUCCESS)
        flyt_fence_unref(fence);
    return result;
}

/*
 * ---- order that the program did not ask for with events ----
 *
 * The legacy default stream's order. In CUDA, work in it starts when all earlier work in the device's blocking streams
 * is done, and later work in blocking streams starts when it is done. The driver's streams under ours are non-blocking
 * ones, so the order is made with events: where the other side has got work since it was last waited for, and only
 * there. Streams created with CU_STREAM_NON_BLOCKING take no part.
 */

static CUresult wait_for_fence(void *user, struct flyt_stream *target)
{
    const struct flyt_fence *fence = user;
    flyt_pace_wait(&target->pace, target->submitted + 1);
    return target->device->session->driver->cuStreamWaitEvent(target->cu_stream, fence->cu_event,
                                                              CU_EVENT_WAIT_DEFAULT);
}

CUresult flyt_submit_wait(struct flyt_stream *stream, uint64_t sequence, enum flyt_submit_kind kind,
                          struct flyt_fence *fence)
{
    return flyt_stream_submit(stream, sequence, kind, stream->device, wait_for_fence, fence);
}

CUresult flyt_submit_follow(void *user, struct flyt_stream *target)
{
    const struct flyt_driver *driver = target->device->session->driver;
    struct flyt_fence *fence;
    CUresult result = flyt_fence_promise(target->device, false, &fence);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver->cuEventRecord(fence->cu_event, user);
    if (result == CUDA_SUCCESS)
        result = driver->cuStreamWaitEvent(target->cu_stream, fence->cu_event, CU_EVENT_WAIT_DEFAULT);
    flyt_fence_unref(fence);
    return result;
}

CUresult flyt_order_wait_for(struct flyt_stream *stream, struct flyt_stream *other)
{
    struct flyt_fence *fence;
    CUresult result = flyt_stream_mark(other, &fence);
    if (result != CUDA_SUCCESS || !fence)
        return result;
    if (fence->result == CUDA_ERROR_NOT_READY)
        result = flyt_submit_wait(stream, stream->submitted_sequence, FLYT_SUBMIT_ADDED, fence);
    flyt_fence_unref(fence);
    return result;
}

/* A blocking stream waits for the legacy stream, that one for all blocking streams of its device. */
static CUresult keep_legacy_order(struct flyt_stream *stream)
{
    if (stream->is_blocking) {
        struct flyt_stream *legacy = stream->device->legacy;
        if (stream->legacy_seen == legacy->submitted)
            return CUDA_SUCCESS;
        CUresult result = flyt_order_wait_for(stream, legacy);
        if (result == CUDA_SUCCESS)
            stream->legacy_seen = legacy->submitted;
        return result;
    }
    struct flyt_stream *other;
    while ((other = stream->device->dirty_first)) {
        CUresult result = flyt_order_wait_for(stream, other);
        if (result != CUDA_SUCCESS)
            return result;
        stream->device->dirty_first = other->dirty_next;
        other->is_dirty = false;
    }
    return CUDA_SUCCESS;
}

/* ---- work on another device ---- */

static CUresult begin_copy_stream(struct flyt_stream *stream, struct flyt_device *device)
{
    CUresult result = flyt_device_make(device);
    if (result == CUDA_SUCCESS && !device->copy_stream)
        result = flyt_stream_new(device, 0, CU_STREAM_NON_BLOCKING, 0, false, &device->copy_stream);
    if (result == CUDA_SUCCESS)
        result = flyt_order_wait_for(device->copy_stream, stream);
    return result;
}

/* fn's operation goes to the device's copy stream, between two waits. */
static CUresult carry(struct flyt_stream *stream, struct flyt_device *device, flyt_submit_fn fn, void *user)
{
    CUresult result = begin_copy_stream(stream, device);
    if (result != CUDA_SUCCESS)
        return result;
    struct flyt_stream *copy_stream = device->copy_stream;
    result = flyt_stream_submit(copy_stream, stream->submitted_sequence, FLYT_SUBMIT_ADDED, device, fn, user);
    CUresult join = flyt_order_wait_for(stream, copy_stream);
    CUresult back = flyt_device_use(stream->device);
    return result != CUDA_SUCCESS ? result : join != CUDA_SUCCESS ? join : back;
}

/* ---- submitting ---- */

static CUresult enter(struct flyt_stream *stream, enum flyt_submit_kind kind, struct flyt_device *device)
{
    const struct flyt_session *session = stream->device->session;
    if (kind & FLYT_SUBMIT_GATED && !flyt_time_slice_gate_may_submit(stream->device, device))
        return FLYT_CALL_RETRY;
    if (kind & FLYT_SUBMIT_TAKEN && !flyt_stream_is_ready(stream))
        return FLYT_CALL_RETRY;
    if (kind & FLYT_SUBMIT_BOUND && !flyt_stream_has_room(stream))
        return FLYT_CALL_RETRY;
    if (session->fatal != CUDA_SUCCESS) /* as the look for room may have found */
        return session->fatal;
    CUresult result = flyt_device_use(stream->device);
    if (!(kind & FLYT_SUBMIT_ORDERED))
        return result;
    if (result == CUDA_SUCCESS && (stream->is_blocking || stream->is_legacy))
        result = keep_legacy_order(stream);
    if (result == CUDA_SUCCESS && stream->scrub_seen != session->scrub_number)
        result = flyt_scrub_join(stream);
    return result;
}

CUresult flyt_stream_submit(struct flyt_stream *stream, uint64_t sequence, enum flyt_submit_kind kind,
                            struct flyt_device *device, flyt_submit_fn fn, void *user)
{
    CUresult result = enter(stream, kind, device);
    if (result != CUDA_SUCCESS)
        return result;
    if (kind & FLYT_SUBMIT_CARRIED && device != stream->device)
        result = carry(stream, device, fn, user);
    else
        result = fn(user, stream);
    return leave(stream, sequence, result);
}
