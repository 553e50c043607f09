/*
 * The one way in which anything reaches a driver stream of the program's, of a copy stream or of scrubbing: launches,
 * copies, memory_set, each piece of what is submitted in pieces, events, waits, and what the server adds by itself.
 * Here are the gate (time_slice.h), the depth (pace.h), the order that the program did not ask for (the legacy default
 * stream's, and what is being cleared), the copy streams of other devices, and the books of what was submitted
 * (stream.h). Where the stream is being captured there would be one more branch, in flyt_stream_submit.
 *
 * Only the markers (fence.h) are recorded beside it, and a resize (resize.h) gives streams that nobody else knows yet
 * their first wait.
 */
#ifndef FLYT_SERVER_SUBMIT_H
#define FLYT_SERVER_SUBMIT_H

#include <cuda.h>
#include <stdint.h>

struct flyt_device;
struct flyt_fence;
struct flyt_stream;

/* What is asked before a submission. The kinds below are made of these. */
enum {
    FLYT_SUBMIT_GATED = 1 << 0,   /* the gates of the stream's device, and of the one that does it, are open */
    FLYT_SUBMIT_TAKEN = 1 << 1,   /* no job holds the stream, by the legacy rules those that it waits for too */
    FLYT_SUBMIT_BOUND = 1 << 2,   /* the stream has room */
    FLYT_SUBMIT_ORDERED = 1 << 3, /* the order is kept that the program did not ask for */
    FLYT_SUBMIT_CARRIED = 1 << 4, /* work of another device is given to its copy stream */
};

enum flyt_submit_kind {
    /* Work of a GPU. */
    FLYT_SUBMIT_WORK =
        FLYT_SUBMIT_GATED | FLYT_SUBMIT_TAKEN | FLYT_SUBMIT_BOUND | FLYT_SUBMIT_ORDERED | FLYT_SUBMIT_CARRIED,
    /* A job that will hold the stream and submit such work in pieces: fn starts it, FLYT_CALL_STARTED. */
    FLYT_SUBMIT_JOB = FLYT_SUBMIT_GATED | FLYT_SUBMIT_TAKEN | FLYT_SUBMIT_BOUND | FLYT_SUBMIT_ORDERED,
    /* One of its pieces. The order was kept when the job was let in. */
    FLYT_SUBMIT_PIECE = FLYT_SUBMIT_GATED | FLYT_SUBMIT_BOUND | FLYT_SUBMIT_CARRIED,
    /* No work of the GPU: events, waits for them, host functions. The gate does not matter. */
    FLYT_SUBMIT_FREE = FLYT_SUBMIT_TAKEN | FLYT_SUBMIT_BOUND | FLYT_SUBMIT_ORDERED,
    /* What the server adds: waits, the clearing of memory, what a session that goes on is given back. Never refused. */
    FLYT_SUBMIT_ADDED = 0,
};

/* Makes the driver calls, in target->cu_stream, whose device's context is current: one operation. The driver's answer;
 * or FLYT_CALL_STARTED, FLYT_CALL_RETRY or an error of its own: nothing was submitted. */
typedef CUresult (*flyt_submit_fn)(void *user, struct flyt_stream *target);

/*
 * Has fn submit an operation to the stream, for the call `sequence`. `device` does the work: the stream's own, or
 * another one, whose memory the stream's context cannot reach; that one's copy stream is fn's target then, which comes
 * after the stream's earlier work, and which the stream's later work comes after. CUDA_SUCCESS; FLYT_CALL_RETRY: not
 * now (a gate is closed, a job holds the stream, or the stream is full), and fn was not called, or says so; what fn
 * returned, checked; the driver's error.
 */
CUresult flyt_stream_submit(struct flyt_stream *stream, uint64_t sequence, enum flyt_submit_kind kind,
                            struct flyt_device *device, flyt_submit_fn fn, void *user);

/* The same for a wait in the stream for a fence that is recorded. */
CUresult flyt_submit_wait(struct flyt_stream *stream, uint64_t sequence, enum flyt_submit_kind kind,
                          struct flyt_fence *fence);

/* An operation of flyt_stream_submit's: what the driver stream `user` has got, which was the stream's before its SMs
 * changed, comes before the stream's later work. */
CUresult flyt_submit_follow(void *user, struct flyt_stream *target);

/* Makes `stream` wait for what `other` has got so far. The wait counts as work of `stream`: who asks for the end of
 * that work means the end of the wait, too. The driver's error. */
CUresult flyt_order_wait_for(struct flyt_stream *stream, struct flyt_stream *other);

#endif
