#include "cpu/server/core/scrub.h"

#include "cpu/server/core/session.h"
#include "cpu/server/core/stream.h"
#include "cpu/server/core/submit.h"

/* Beyond the range of every GPU: the driver makes the greatest of it. Blocks of a kernel that fills the GPU then give
 * way as they end. */
enum { PRIORITY = -1000 };

bool flyt_scrub_has_room(struct flyt_device *device)
{
    struct flyt_stream *stream = device->scrub;
    if (device->time_slice_gate.is_closed && !device->time_slice_gate.is_suspended &&
        !device->session->time_slice_gate_ops->ask(device))
        return false;
    return !stream || flyt_stream_poll(stream) || stream->submitted - stream->completed < FLYT_STREAM_DEPTH_MAX;
}

struct range {
    uint64_t address, bytes;
};

static CUresult clear(void *user, struct flyt_stream *target)
{
    const struct range *range = user;
    return target->device->session->driver->cuMemsetD8Async(range->address, 0, range->bytes, target->cu_stream);
}

CUresult flyt_scrub_with(struct flyt_device *device, flyt_submit_fn clear_with, void *user,
                         struct flyt_fence **ret_fence)
{
    struct flyt_session *session = device->session;
    CUresult result = CUDA_SUCCESS;
    *ret_fence = NULL;
    if (!session->is_scrubbing)
        return CUDA_SUCCESS;
    if (!device->scrub)
        result = flyt_stream_new(device, 0, CU_STREAM_NON_BLOCKING, PRIORITY, false, &device->scrub);
    if (result != CUDA_SUCCESS)
        return flyt_session_check(session, result);
    /* Counted as work of the call that came last: what that one says to be complete is this, too. */
    result = flyt_stream_submit(device->scrub, session->received_sequence, FLYT_SUBMIT_ADDED, device, clear_with, user);
    if (result == CUDA_SUCCESS)
        result = flyt_stream_mark(device->scrub, ret_fence);
    session->scrub_number++;
    return result;
}

CUresult flyt_scrub_begin(struct flyt_device *device, uint64_t address, uint64_t bytes, struct flyt_fence **ret_fence)
{
    struct range range = {address, bytes};
    return flyt_scrub_with(device, clear, &range, ret_fence);
}

CUresult flyt_scrub_join(struct flyt_stream *stream)
{
    struct flyt_session *session = stream->device->session;
    uint64_t number = session->scrub_number;
    for (unsigned i = 0; i < session->device_count; i++) {
        struct flyt_stream *scrub = session->devices[i].scrub;
        if (!scrub || flyt_stream_poll(scrub))
            continue;
        CUresult result = flyt_order_wait_for(stream, scrub);
        if (result == CUDA_SUCCESS)
            result = flyt_device_use(stream->device);
        if (result != CUDA_SUCCESS)
            return result;
    }
    stream->scrub_seen = number;
    return CUDA_SUCCESS;
}
