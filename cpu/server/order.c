/*
 * Order between streams that the program did not ask for with events.
 *
 * The legacy default stream's order. In CUDA, work in it starts when all earlier work in the device's blocking streams
 * is done, and later work in blocking streams starts when it is done. The driver's streams under ours are non-blocking
 * ones, so the order is made with events: where the other side has got work since it was last waited for, and only
 * there. Streams created with CU_STREAM_NON_BLOCKING take no part.
 */
#include "cpu/server/session.h"
#include "cpu/server/stream.h"

CUresult flyt_order_wait_for(struct flyt_stream *stream, struct flyt_stream *other)
{
    struct flyt_moment *moment;
    CUresult result = flyt_stream_mark(other, &moment);
    if (result != CUDA_SUCCESS || !moment)
        return result;
    if (moment->result == CUDA_ERROR_NOT_READY) {
        const struct flyt_driver *driver = stream->device->session->driver;
        result = driver->cuStreamWaitEvent(stream->cu_stream, moment->cu_event, CU_EVENT_WAIT_DEFAULT);
        flyt_stream_note_wait(stream);
        result = flyt_stream_leave(stream, stream->submitted_sequence, result);
    }
    flyt_moment_unref(moment);
    return result;
}

CUresult flyt_order_enter(struct flyt_stream *stream)
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

CUresult flyt_carrier_begin(struct flyt_stream *stream, struct flyt_device *device, struct flyt_stream **ret_carrier)
{
    if (device == stream->device) {
        *ret_carrier = stream;
        return CUDA_SUCCESS;
    }
    CUresult result = flyt_device_make(device);
    if (result == CUDA_SUCCESS && !device->carrier)
        result = flyt_stream_new(device, 0, CU_STREAM_NON_BLOCKING, 0, false, &device->carrier);
    if (result == CUDA_SUCCESS)
        result = flyt_order_wait_for(device->carrier, stream);
    if (result == CUDA_SUCCESS)
        result = flyt_device_use(device);
    if (result == CUDA_SUCCESS)
        *ret_carrier = device->carrier;
    return result;
}

CUresult flyt_carrier_end(struct flyt_stream *stream, struct flyt_stream *carrier, CUresult result)
{
    if (carrier == stream)
        return result;
    result = flyt_stream_leave(carrier, stream->submitted_sequence, result);
    CUresult join = flyt_order_wait_for(stream, carrier);
    CUresult back = flyt_device_use(stream->device);
    return result != CUDA_SUCCESS ? result : join != CUDA_SUCCESS ? join : back;
}

void flyt_order_leave(struct flyt_stream *stream)
{
    if (stream->is_dirty)
        return;
    stream->is_dirty = true;
    stream->dirty_next = stream->device->dirty_first;
    stream->device->dirty_first = stream;
}

void flyt_order_forget(struct flyt_stream *stream)
{
    if (!stream->is_dirty)
        return;
    struct flyt_stream **link = &stream->device->dirty_first;
    while (*link != stream)
        link = &(*link)->dirty_next;
    *link = stream->dirty_next;
    stream->is_dirty = false;
}
