/*
 * Moments: points in the work of a stream that are reached when the GPU has done everything before them. A fence is
 * a driver event that is recorded once; whoever waits for it holds a reference, so that recording the program's event
 * again, or destroying it or its stream, disturbs nobody. Driver events are kept in a pool and used again.
 *
 * A fence may be promised before it is recorded, by a call that has to wait (defer.h): it is not reached until then.
 *
 * Only the submission thread uses fences.
 */
#ifndef FLYT_SERVER_FENCE_H
#define FLYT_SERVER_FENCE_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

struct flyt_device;
struct flyt_stream;

struct flyt_fence {
    unsigned refs;
    bool has_timing;
    bool is_recorded; /* false: promised */
    CUresult result;  /* CUDA_ERROR_NOT_READY until it is known to be reached; then success, or what broke the GPU */
    CUevent cu_event;
    struct flyt_device *device;
    struct flyt_fence *next_free;
};

/* Unused fences of one device: without and with time stamps. All zero is an empty pool. */
struct flyt_fence_pool {
    struct flyt_fence *free[2];
};

/*
 * A fence at the end of the stream's work so far, recorded in the driver; the device's context must be current.
 * CUDA_SUCCESS and *ret_fence with one reference, or the driver's error.
 */
CUresult flyt_fence_record(struct flyt_stream *stream, bool has_timing, struct flyt_fence **ret_fence);

/* A fence that is to be recorded later; the device's context must be current. CUDA_SUCCESS and *ret_fence with one
 * reference, or the driver's error. */
CUresult flyt_fence_promise(struct flyt_device *device, bool has_timing, struct flyt_fence **ret_fence);
/* Records a promised fence at the end of the stream's work so far. The driver's error: it is still promised. */
CUresult flyt_fence_keep(struct flyt_fence *fence, struct flyt_stream *stream);
/* Likewise at the end of all that has been given to a green context of the device's. */
CUresult flyt_fence_keep_of(struct flyt_fence *fence, CUgreenCtx cu_green);
/* A promise that is not kept: what waits for it goes on. Nothing happens where it was kept. NULL is allowed. */
void flyt_fence_break(struct flyt_fence *fence);

/* CUDA_SUCCESS: reached (or `fence` is NULL); CUDA_ERROR_NOT_READY (promised ones, too); another code: the session is
 * fatal, and the fence never known to be reached, though nobody waits for it any more. Asks the driver until the
 * answer is final. */
CUresult flyt_fence_poll(struct flyt_fence *fence);

/* NULL is allowed. */
struct flyt_fence *flyt_fence_ref(struct flyt_fence *fence);
/* NULL is allowed. Returns NULL. */
struct flyt_fence *flyt_fence_unref(struct flyt_fence *fence);

void flyt_fence_pool_fini(struct flyt_device *device);

/* Several fences, all of which are waited for. All zero is an empty set, which counts as reached. */
struct flyt_fence_set {
    struct flyt_fence **fences;
    size_t count;
};

/* Takes over the caller's reference, also on failure. NULL is allowed and adds nothing. CUDA_ERROR_OUT_OF_MEMORY. */
CUresult flyt_fence_set_add(struct flyt_fence_set *set, struct flyt_fence *fence);
/* As flyt_fence_poll, of all; fences that are reached are let go of. */
CUresult flyt_fence_set_poll(struct flyt_fence_set *set);
void flyt_fence_set_fini(struct flyt_fence_set *set);

#endif
