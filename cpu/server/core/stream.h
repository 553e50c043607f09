/*
 * Streams of the program. Each, both kinds of default stream included, is a non-blocking driver stream in the
 * session's green context behind an id; the context may change, and the driver stream with it (resize.h).
 *
 * Whatever reaches a driver stream goes through flyt_stream_submit (submit.h). That counts operations and marks the
 * stream with a fence now and then, from which the server knows what the GPU has completed: for the bound on the
 * depth, for progress, and for memory that may be used again.
 */
#ifndef FLYT_SERVER_STREAM_H
#define FLYT_SERVER_STREAM_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpu/server/core/fence.h"
#include "cpu/server/core/object.h"
#include "cpu/server/core/pace.h"
#include "flyt_objects.h"
#include "rpc/api/stream_attributes.h"

struct flyt_call;
struct flyt_device;
struct flyt_green;
struct flyt_job;
struct flyt_session;

enum {
    /* Operations in the driver that the GPU has not completed: below the driver's own queue, at whose end a launch
     * would block the submission thread and with it all streams. Under a node manager fewer (pace.h). */
    FLYT_STREAM_DEPTH_MAX = 512,
};

struct flyt_stream_marker {
    struct flyt_fence *fence;
    uint64_t number;   /* operations that the fence covers */
    uint64_t sequence; /* the last call among them */
};

struct flyt_stream {
    struct flyt_object object;
    struct flyt_device *device;
    struct flyt_stream *device_prev, *device_next; /* in device->streams_first */
    CUstream cu_stream;                            /* another one after a change of the device's SMs (resize.h) */
    struct flyt_green *green;                      /* of the program's, that it is in; NULL: in none */
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

    /* What the program has set of its attributes, by their places; a bit for each. */
    unsigned set_attributes;
    uint32_t attributes[FLYT_STREAM_ATTRIBUTE_COUNT][FLYT_STREAM_ATTRIBUTE_WORDS];
};

/* A stream of the device, whose context is current. Not entered into the session's table. CUDA_ERROR_OUT_OF_MEMORY or
 * the driver's error. */
CUresult flyt_stream_new(struct flyt_device *device, uint64_t id, unsigned flags, int priority, bool is_legacy,
                         struct flyt_stream **ret_stream);
/* Sets an attribute of the stream, whose device's context is current, and notes it for driver streams to come. The
 * driver's error; CUDA_ERROR_INVALID_VALUE: streams have none such. */
CUresult flyt_stream_attribute_set(struct flyt_stream *stream, unsigned attribute,
                                   const uint32_t value[FLYT_STREAM_ATTRIBUTE_WORDS]);
/* Sets what was set on a driver stream that is to be the stream's. The driver's error. */
CUresult flyt_stream_attributes_apply(const struct flyt_stream *stream, CUstream cu_stream);
/* All attributes are as if none had been set: of a stream without work, which gets another driver stream where one was.
 * The driver's error; then its stream stays, with what it has. */
CUresult flyt_stream_attributes_forget(struct flyt_stream *stream);
/* Another driver stream, without attributes, for a stream without work, or one for a stream that has none. The driver's
 * error; then its stream stays. */
CUresult flyt_stream_replace(struct flyt_stream *stream);
/* Ends the driver stream of a stream without work, which has none then. */
void flyt_stream_end(struct flyt_stream *stream);
/* The stream, which has no work and whose device's context is current, is in that green context from now on. The
 * driver's error. */
CUresult flyt_stream_enter_green(struct flyt_stream *stream, struct flyt_green *green);
/* Takes the stream's id out of the session's table: calls that name it from now on find nothing. */
void flyt_stream_remove(struct flyt_stream *stream);
/* Work that the stream has is completed by the driver. NULL is allowed. Returns NULL. */
struct flyt_stream *flyt_stream_free(struct flyt_stream *stream);

/* Whether the stream's depth allows another operation; where not, it is put on the list of full ones. */
bool flyt_stream_has_room(struct flyt_stream *stream);

/* For submit.c: an idle stream gets work. */
void flyt_stream_enter_busy(struct flyt_stream *stream);

/* Whether the stream takes calls, as far as jobs (by the legacy rules those of other streams too) and its depth go. */
bool flyt_stream_is_ready(const struct flyt_stream *stream);

/*
 * The end of the stream's work so far, as a fence with a reference; NULL where all is known to be done.
 * CUDA_SUCCESS or the driver's error.
 */
CUresult flyt_stream_mark(struct flyt_stream *stream, struct flyt_fence **ret_fence);

/* Adds a fence that was recorded just now at the end of the stream (an event of the program) as a marker. */
CUresult flyt_stream_add_marker(struct flyt_stream *stream, struct flyt_fence *fence);

/* Looks which markers were reached. Returns whether the stream is idle, as far as markers tell; so is every one of a
 * session that is fatal, whose work counts as completed for nobody else. */
bool flyt_stream_poll(struct flyt_stream *stream);

/* Asks the driver whether the stream is idle. CUDA_SUCCESS, CUDA_ERROR_NOT_READY or a fatal code. */
CUresult flyt_stream_query(struct flyt_stream *stream);

/* Marks of all streams of the device (NULL: of all devices) that are busy. The driver's error; *set is valid then too.
 */
CUresult flyt_stream_mark_busy(struct flyt_session *session, const struct flyt_device *device,
                               struct flyt_fence_set *set);

/*
 * A job, in a structure of so many bytes that begins with it, which comes after all work that the session has by now;
 * the rest is 0. The caller fills it and begins it with flyt_job_begin. NULL, and *ret_result is
 * CUDA_ERROR_OUT_OF_MEMORY or the driver's error.
 */
void *flyt_stream_job_after_all(struct flyt_call *call, size_t bytes, CUresult *ret_result);

/* The stream's calls so far are those up to `sequence` (resume.h); it has no work. Credits count from 0 again. */
void flyt_stream_renumber(struct flyt_stream *stream, uint64_t sequence);

/* Lets streams that are no longer full go on. Returns whether some are still full. */
bool flyt_stream_poll_full(struct flyt_session *session);

#endif
