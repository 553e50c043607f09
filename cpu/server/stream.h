/*
 * Streams of the program. Each, both kinds of default stream included, is a non-blocking driver stream in the
 * session's green context behind an id; the context may change, and the driver stream with it (resize.h). What the
 * program's blocking streams and its legacy default stream owe each other is kept with events (order.c), and only where
 * the other side has got work since the last time.
 *
 * Every submission to a driver stream goes between flyt_stream_enter and flyt_stream_leave. That counts operations and
 * marks the stream with a moment now and then, from which the server knows what the GPU has completed: for the bound
 * on the depth, for progress, and for memory that may be used again.
 */
#ifndef FLYT_SERVER_STREAM_H
#define FLYT_SERVER_STREAM_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpu/server/moment.h"
#include "cpu/server/object.h"
#include "cpu/server/pace.h"

struct flyt_call;
struct flyt_device;
struct flyt_job;
struct flyt_session;

enum {
    /* Operations in the driver that the GPU has not completed: below the driver's own queue, at whose end a launch
     * would block the submission thread and with it all streams. Under a node manager fewer (pace.h). */
    FLYT_STREAM_DEPTH_MAX = 512,
};

struct flyt_stream_marker {
    struct flyt_moment *moment;
    uint64_t number;   /* operations that the moment covers */
    uint64_t sequence; /* the last call among them */
};

struct flyt_stream {
    struct flyt_object object;
    struct flyt_device *device;
    struct flyt_stream *device_prev, *device_next; /* in device->streams_first */
    CUstream cu_stream;                            /* another one after a change of the device's SMs (resize.h) */
    int priority;
    bool is_blocking; /* ordered with the legacy stream */
    bool is_legacy;
    bool is_removed; /* its id is not, or no longer, in the session's table */

    uint64_t submitted, marked,
        completed; /* operations: given to the driver; of those covered by a marker; known done */
    uint64_t submitted_sequence, completed_sequence; /* calls, likewise */
    struct flyt_stream_marker *markers;              /* a ring */
    unsigned marker_first, marker_count, marker_room;
    struct flyt_pace pace;

    bool is_busy; /* in session->busy_first: submitted > completed */
    struct flyt_stream *busy_prev, *busy_next;
    bool is_full; /* in session->full_first */
    struct flyt_stream *full_next;

    bool is_dirty; /* in device->dirty_first */
    struct flyt_stream *dirty_next;
    uint64_t scrub_seen;  /* session->scrub_number up to which it comes after what is being cleared */
    uint64_t legacy_seen; /* the legacy stream's operations that this one already waits for */

    struct flyt_job *job;    /* what holds later calls back, or NULL */
    uint64_t executed_calls; /* for credits */
};

/* A stream of the device, whose context is current. Not entered into the session's table. CUDA_ERROR_OUT_OF_MEMORY or
 * the driver's error. */
CUresult flyt_stream_new(struct flyt_device *device, uint64_t id, unsigned flags, int priority, bool is_legacy,
                         struct flyt_stream **ret_stream);
/* Takes the stream's id out of the session's table: calls that name it from now on find nothing. */
void flyt_stream_remove(struct flyt_stream *stream);
/* Work that the stream has is completed by the driver. NULL is allowed. Returns NULL. */
struct flyt_stream *flyt_stream_free(struct flyt_stream *stream);

/*
 * Before a submission: the context is made current, order with the legacy stream is kept, and the depth is checked.
 * CUDA_SUCCESS; FLYT_CALL_PARKED (call.h): the device's gate is closed (turn.h), the stream is full, or a job holds it;
 * or the driver's error.
 */
CUresult flyt_stream_enter(struct flyt_stream *stream);
/* The same for work that a carrier does on another device, whose gate is to be open, too. */
CUresult flyt_stream_enter_for(struct flyt_stream *stream, struct flyt_device *device);
/* The same for what is no work of the GPU (events, waits for them, host functions): the gate does not matter. */
CUresult flyt_stream_enter_freely(struct flyt_stream *stream);

/* The next submission, of which flyt_stream_leave tells, waits for another stream's work. */
void flyt_stream_note_wait(struct flyt_stream *stream);

/* After a submission: `sequence` is that of the call that made it. Returns `result`, the driver's answer, checked. */
CUresult flyt_stream_leave(struct flyt_stream *stream, uint64_t sequence, CUresult result);

/* Whether the stream takes calls, as far as jobs (by the legacy rules those of other streams too) and its depth go. */
bool flyt_stream_is_ready(const struct flyt_stream *stream);

/*
 * The end of the stream's work so far, as a moment with a reference; NULL where all is known to be done.
 * CUDA_SUCCESS or the driver's error.
 */
CUresult flyt_stream_mark(struct flyt_stream *stream, struct flyt_moment **ret_moment);

/* Adds a moment that was recorded just now at the end of the stream (an event of the program) as a marker. */
CUresult flyt_stream_add_marker(struct flyt_stream *stream, struct flyt_moment *moment);

/* Looks which markers were reached. Returns whether the stream is idle, as far as markers tell. */
bool flyt_stream_poll(struct flyt_stream *stream);

/* Asks the driver whether the stream is idle. CUDA_SUCCESS, CUDA_ERROR_NOT_READY or a fatal code. */
CUresult flyt_stream_query(struct flyt_stream *stream);

/* Marks of all streams of the device (NULL: of all devices) that are busy. The driver's error; *set is valid then too.
 */
CUresult flyt_stream_mark_busy(struct flyt_session *session, const struct flyt_device *device,
                               struct flyt_moment_set *set);

/* The stream's calls so far are those up to `sequence` (resume.h); it has no work. Credits count from 0 again. */
void flyt_stream_renumber(struct flyt_stream *stream, uint64_t sequence);

/* Lets streams that are no longer full go on. Returns whether some are still full. */
bool flyt_stream_poll_full(struct flyt_session *session);

/* ---- order.c: the legacy default stream ---- */

/* Makes the stream wait for what the legacy rules name: for the legacy stream all blocking streams of its device, for
 * a blocking stream the legacy stream. The driver's error. */
CUresult flyt_order_enter(struct flyt_stream *stream);
/* Makes `stream` wait for what `other` has got so far. The wait counts as work of `stream`: who asks for the end of
 * that work means the end of the wait, too. The driver's error. */
CUresult flyt_order_wait_for(struct flyt_stream *stream, struct flyt_stream *other);
/* After work was submitted to the stream. */
void flyt_order_leave(struct flyt_stream *stream);
/* The stream is going away. */
void flyt_order_forget(struct flyt_stream *stream);

/*
 * Work of a stream on memory of another device, which the stream's own context cannot reach: it is given to a stream of
 * that device, the carrier, which comes after the stream's earlier work, and which the stream's later work comes after.
 * _begin returns the carrier, with its context current; for the stream's own device, the stream. _end follows, with the
 * driver's answer, which it returns, or its own error.
 */
CUresult flyt_carrier_begin(struct flyt_stream *stream, struct flyt_device *device, struct flyt_stream **ret_carrier);
CUresult flyt_carrier_end(struct flyt_stream *stream, struct flyt_stream *carrier, CUresult result);

#endif
