#include "cpu/server/scrub.h"

#include "cpu/server/session.h"
#include "cpu/server/stream.h"

/* Beyond the range of every GPU: the driver makes the greatest of it. Blocks of a kernel that fills the GPU then give
 * way as they end. */
enum { PRIORITY = -1000 };

bool flyt_scrub_has_room(struct flyt_device *device)
{
    struct flyt_stream *stream = device->scrub;
    if (device->turn.is_closed && !device->turn.is_suspended && !flyt_turn_ask(device))
        return false;
    return !stream || flyt_stream_poll(stream) || stream->submitted - stream->completed < FLYT_STREAM_DEPTH_MAX;
}

CUresult flyt_scrub_begin(struct flyt_device *device, uint64_t address, uint64_t bytes, struct flyt_moment **ret_moment)
{
    struct flyt_session *session = device->session;
    CUresult result = CUDA_SUCCESS;
    *ret_moment = NULL;
    if (!session->is_scrubbing)
        return CUDA_SUCCESS;
    if (!device->scrub)
        result = flyt_stream_new(device, 0, CU_STREAM_NON_BLOCKING, PRIORITY, false, &device->scrub);
    if (result != CUDA_SUCCESS)
        return flyt_session_check(session, result);
    result = session->driver->cuMemsetD8Async(address, 0, bytes, device->scrub->cu_stream);
    /* Counted as work of the call that came last: what that one says to be complete is this, too. */
    result = flyt_stream_leave(device->scrub, session->received_sequence, result);
    if (result == CUDA_SUCCESS)
        result = flyt_stream_mark(device->scrub, ret_moment);
    session->scrub_number++;
    return result;
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
