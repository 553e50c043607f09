/*
 * How much work of a stream the driver has at one time. What was given to the driver stays on the SMs that the session
 * had then: a session whose SMs a node manager may change (resize.h) keeps about FLYT_PACE_GPU_NS of GPU time per
 * stream in the driver, so that other SMs take hold soon. Without a node manager there is only the bound on the
 * driver's queue, FLYT_STREAM_DEPTH_MAX.
 *
 * GPU time is estimated: time between two looks that saw work completed, divided by the operations completed. That is
 * too long rather than too short, for an end is seen after it happened. A longer time counts at once, of a shorter one
 * half the difference. Operations differ: a program that goes from short to long ones has more in the driver until the
 * first of these are seen to end.
 *
 * Plain structures and pure functions over the times that the caller gives.
 */
#ifndef FLYT_SERVER_PACE_H
#define FLYT_SERVER_PACE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    FLYT_PACE_GPU_NS = 20 * 1000 * 1000, /* of work in the driver */
    FLYT_PACE_DEPTH_FIRST = 16,          /* operations, before the first is seen to end */
    FLYT_PACE_MARK_PART = 8,             /* so many markers (stream.h) in a full stream */
};

/* Of a stream. flyt_pace_init before anything else. */
struct flyt_pace {
    unsigned depth;         /* operations that the driver may have at one time */
    unsigned mark_interval; /* operations between two markers */
    bool is_measured;
    uint64_t operation_ns; /* the estimate; 0: none yet */
    uint64_t since_ns;     /* when the work that comes next began at the earliest */
    uint64_t waited;       /* operations up to the last one that waits for another stream */
};

/* Measured, or with depth_max for ever, which is at least FLYT_PACE_DEPTH_FIRST. */
void flyt_pace_init(struct flyt_pace *pace, bool is_measured, unsigned depth_max);

/* An idle stream gets work, or one that is to be measured anew. */
static inline void flyt_pace_begin(struct flyt_pace *pace, uint64_t now_ns)
{
    pace->since_ns = now_ns;
}

/* The stream's operation `number` (they count from 1) waits for something else than the GPU's work before it: how long
 * it takes says nothing. */
static inline void flyt_pace_wait(struct flyt_pace *pace, uint64_t number)
{
    pace->waited = number;
}

/* Operations from `before` (exclusive) to `completed` are seen to have ended; completed > before. Sets depth and
 * mark_interval. */
void flyt_pace_take(struct flyt_pace *pace, uint64_t before, uint64_t completed, uint64_t now_ns, unsigned depth_max);

#endif
