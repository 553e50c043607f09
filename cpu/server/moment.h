/*
 * Moments: points in the work of a stream that are reached when the GPU has done everything before them. A moment is
 * a driver event that is recorded once; whoever waits for it holds a reference, so that recording the program's event
 * again, or destroying it or its stream, disturbs nobody. Driver events are kept in a pool and used again.
 *
 * A moment may be promised before it is recorded, by a call that has to wait (park.h): it is not reached until then.
 *
 * Only the submission thread uses moments.
 */
#ifndef FLYT_SERVER_MOMENT_H
#define FLYT_SERVER_MOMENT_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

struct flyt_device;
struct flyt_stream;

struct flyt_moment {
    unsigned refs;
    bool has_timing;
    bool is_recorded; /* false: promised */
    CUresult result;  /* CUDA_ERROR_NOT_READY until it is known to be reached; then success, or what broke the GPU */
    CUevent cu_event;
    struct flyt_device *device;
    struct flyt_moment *next_free;
};

/* Unused moments of one device: without and with time stamps. All zero is an empty pool. */
struct flyt_moment_pool {
    struct flyt_moment *free[2];
};

/*
 * A moment at the end of the stream's work so far, recorded in the driver; the device's context must be current.
 * CUDA_SUCCESS and *ret_moment with one reference, or the driver's error.
 */
CUresult flyt_moment_record(struct flyt_stream *stream, bool has_timing, struct flyt_moment **ret_moment);

/* A moment that is to be recorded later; the device's context must be current. CUDA_SUCCESS and *ret_moment with one
 * reference, or the driver's error. */
CUresult flyt_moment_promise(struct flyt_device *device, bool has_timing, struct flyt_moment **ret_moment);
/* Records a promised moment at the end of the stream's work so far. The driver's error: it is still promised. */
CUresult flyt_moment_keep(struct flyt_moment *moment, struct flyt_stream *stream);
/* A promise that is not kept: what waits for it goes on. Nothing happens where it was kept. NULL is allowed. */
void flyt_moment_break(struct flyt_moment *moment);

/* CUDA_SUCCESS: reached (or `moment` is NULL); CUDA_ERROR_NOT_READY (promised ones, too); another code: the context is
 * lost, and the moment counts as reached. Asks the driver until the answer is final. */
CUresult flyt_moment_poll(struct flyt_moment *moment);

/* NULL is allowed. */
struct flyt_moment *flyt_moment_ref(struct flyt_moment *moment);
/* NULL is allowed. Returns NULL. */
struct flyt_moment *flyt_moment_unref(struct flyt_moment *moment);

void flyt_moment_pool_fini(struct flyt_device *device);

/* Several moments, all of which are waited for. All zero is an empty set, which counts as reached. */
struct flyt_moment_set {
    struct flyt_moment **moments;
    size_t count;
};

/* Takes over the caller's reference, also on failure. NULL is allowed and adds nothing. CUDA_ERROR_OUT_OF_MEMORY. */
CUresult flyt_moment_set_add(struct flyt_moment_set *set, struct flyt_moment *moment);
/* As flyt_moment_poll, of all; moments that are reached are let go of. */
CUresult flyt_moment_set_poll(struct flyt_moment_set *set);
void flyt_moment_set_fini(struct flyt_moment_set *set);

#endif
