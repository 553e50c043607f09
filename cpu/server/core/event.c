#include "cpu/server/core/event.h"

#include <errno.h>
#include <stdlib.h>

#include "cpu/server/core/call.h"
#include "cpu/server/core/event_share.h"
#include "cpu/server/core/session.h"
#include "flyt_serve.h"

void flyt_event_destroy(struct flyt_event *event)
{
    flyt_object_remove(&event->device->session->objects, &event->object);
    flyt_event_share_end(event->share);
    flyt_fence_unref(event->fence);
    free(event);
}

void flyt_event_drop(struct flyt_event *event, const struct flyt_device *device)
{
    if (device && event->device != device)
        return;
    if (!device && event->share)
        event->share->ended = NULL;
    flyt_event_destroy(event);
}

void flyt_event_see(struct flyt_event *event, struct flyt_fence *fence)
{
    flyt_fence_unref(event->fence);
    event->fence = fence;
    event->origin = FLYT_EVENT_HERE;
}

CUresult flyt_event_set(struct flyt_event *event, struct flyt_fence *fence)
{
    flyt_event_see(event, fence);
    return event->share && fence ? flyt_event_share_record(event->share, fence) : CUDA_SUCCESS;
}

CUresult flyt_event_defer(const struct flyt_call *call, struct flyt_fence **ret_fence)
{
    unsigned place = call->row->recorded_id ? call->row->recorded_id : call->row->awaited_id;
    struct flyt_event *event = place ? (struct flyt_event *)call->handles[place - 1].object : NULL;
    *ret_fence = NULL;
    if (!event)
        return CUDA_SUCCESS;
    CUresult result;
    if (call->row->recorded_id) {
        struct flyt_fence *fence;
        result = flyt_device_use(event->device);
        if (result == CUDA_SUCCESS)
            result = flyt_fence_promise(event->device, event->has_timing, &fence);
        if (result == CUDA_SUCCESS)
            result = flyt_event_set(event, fence);
    } else {
        result = flyt_event_share_look(event->share);
    }
    *ret_fence = flyt_fence_ref(event->fence);
    return result;
}
