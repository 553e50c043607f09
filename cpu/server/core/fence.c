#include "cpu/server/core/fence.h"

#include <stdlib.h>

#include "cpu/server/core/device.h"
#include "cpu/server/core/session.h"
#include "cpu/server/core/stream.h"

CUresult flyt_fence_promise(struct flyt_device *device, bool has_timing, struct flyt_fence **ret_fence)
{
    struct flyt_fence *fence = device->fences.free[has_timing];
    if (fence) {
        device->fences.free[has_timing] = fence->next_free;
    } else {
        fence = calloc(1, sizeof *fence);
        if (!fence)
            return CUDA_ERROR_OUT_OF_MEMORY;
        unsigned flags = has_timing ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING;
        CUresult result = device->session->driver->cuEventCreate(&fence->cu_event, flags);
        if (result != CUDA_SUCCESS) {
            free(fence);
            return result;
        }
        fence->device = device;
        fence->has_timing = has_timing;
    }
    fence->refs = 1;
    fence->is_recorded = false;
    fence->result = CUDA_ERROR_NOT_READY;
    *ret_fence = fence;
    return CUDA_SUCCESS;
}

CUresult flyt_fence_record(struct flyt_stream *stream, bool has_timing, struct flyt_fence **ret_fence)
{
    struct flyt_fence *fence;
    CUresult result = flyt_fence_promise(stream->device, has_timing, &fence);
    if (result != CUDA_SUCCESS)
        return result;
    result = flyt_fence_keep(fence, stream);
    if (result != CUDA_SUCCESS) {
        flyt_fence_unref(fence);
        return result;
    }
    *ret_fence = fence;
    return CUDA_SUCCESS;
}

CUresult flyt_fence_keep(struct flyt_fence *fence, struct flyt_stream *stream)
{
    CUresult result = stream->device->session->driver->cuEventRecord(fence->cu_event, stream->cu_stream);
    fence->is_recorded = result == CUDA_SUCCESS;
    return result;
}

CUresult flyt_fence_keep_of(struct flyt_fence *fence, CUgreenCtx cu_green)
{
    CUresult result = fence->device->session->driver->cuGreenCtxRecordEvent(cu_green, fence->cu_event);
    fence->is_recorded = result == CUDA_SUCCESS;
    return result;
}

void flyt_fence_break(struct flyt_fence *fence)
{
    if (fence && !fence->is_recorded && fence->result == CUDA_ERROR_NOT_READY)
        fence->result = CUDA_SUCCESS;
}

CUresult flyt_fence_poll(struct flyt_fence *fence)
{
    if (!fence)
        return CUDA_SUCCESS;
    if (fence->result == CUDA_ERROR_NOT_READY) {
        struct flyt_session *session = fence->device->session;
        if (session->fatal != CUDA_SUCCESS)
            fence->result = session->fatal;
        else if (fence->is_recorded)
            fence->result = flyt_session_check_work(session, session->driver->cuEventQuery(fence->cu_event));
        /* Of capture: how far the work is was not said. */
        if (fence->result != CUDA_SUCCESS && session->fatal == CUDA_SUCCESS)
            fence->result = CUDA_ERROR_NOT_READY;
    }
    return fence->result;
}

struct flyt_fence *flyt_fence_ref(struct flyt_fence *fence)
{
    if (fence)
        fence->refs++;
    return fence;
}

struct flyt_fence *flyt_fence_unref(struct flyt_fence *fence)
{
    if (fence && !--fence->refs) {
        struct flyt_fence_pool *pool = &fence->device->fences;
        fence->next_free = pool->free[fence->has_timing];
        pool->free[fence->has_timing] = fence;
    }
    return NULL;
}

void flyt_fence_pool_fini(struct flyt_device *device)
{
    for (unsigned kind = 0; kind < 2; kind++) {
        struct flyt_fence *fence;
        while ((fence = device->fences.free[kind])) {
            device->fences.free[kind] = fence->next_free;
            device->session->driver->cuEventDestroy(fence->cu_event);
            free(fence);
        }
    }
}

CUresult flyt_fence_set_add(struct flyt_fence_set *set, struct flyt_fence *fence)
{
    if (!fence)
        return CUDA_SUCCESS;
    struct flyt_fence **fences = reallocarray(set->fences, set->count + 1, sizeof *fences);
    if (!fences) {
        flyt_fence_unref(fence);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    set->fences = fences;
    set->fences[set->count++] = fence;
    return CUDA_SUCCESS;
}

CUresult flyt_fence_set_poll(struct flyt_fence_set *set)
{
    while (set->count) {
        CUresult result = flyt_fence_poll(set->fences[set->count - 1]);
        if (result != CUDA_SUCCESS)
            return result;
        flyt_fence_unref(set->fences[--set->count]);
    }
    return CUDA_SUCCESS;
}

void flyt_fence_set_fini(struct flyt_fence_set *set)
{
    while (set->count)
        flyt_fence_unref(set->fences[--set->count]);
    free(set->fences);
    *set = (struct flyt_fence_set){0};
}
