/*
 * Captures of streams that are under way, for the sources of this library that give streams work or wait for them.
 * What a capture makes of the work stands above them (cpu/client/graph), in a table that is installed with the first
 * capture. While no stream of the process captures, each of these questions costs one load.
 *
 * One mutex covers captures, graphs and what streams and events know of them.
 */
#ifndef FLYT_CLIENT_CAPTURE_H
#define FLYT_CLIENT_CAPTURE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <cuda.h>
#include "rpc/proto/limits.h"

struct flyt_copy;
struct flyt_event;
struct flyt_fill;
struct flyt_launch;
struct flyt_stream;

/* A capture. The members are under flyt_captures.mutex. */
struct flyt_capture {
    struct flyt_capture *next;
    uint64_t number; /* of all that ever began, from 1 */
    CUstreamCaptureMode mode;
    uint32_t thread; /* that began it */
    bool is_invalid;
    struct flyt_stream *origin;  /* where it began */
    struct flyt_stream *streams; /* all that take part, by capture_next */
};

/* The last nodes of a stream that captures, and what an event that was recorded there stands for: nodes by their ids.
 * An edge's data is what the next node gets with it. */
struct flyt_capture_ends {
    struct flyt_capture_end {
        uint64_t node_id;
        CUgraphEdgeData data;
        bool is_previous; /* of a stream: what it was given last, and not what it waits for */
    } * list;
    unsigned count, room;
};

/* Of a stream or an event: the capture that it belongs to. */
struct flyt_captured {
    uint64_t number; /* 0: none */
    struct flyt_capture_ends ends;
};

/* A captured call as the server is told of it (libcall.api). */
struct flyt_captured_told {
    uint64_t objects[FLYT_LIBCALL_OBJECTS_MAX];
    unsigned object_count;
    uint32_t row;
    const void *arguments; /* the call's */
    size_t bytes;
};

/* A call of one of NVIDIA's libraries as it was captured; whoever makes it is below graphs, and makes it each time that
 * a graph is launched, or tells what a body of a conditional node has. */
struct flyt_captured_call {
    unsigned devices; /* that it works on, a bit each; never none */
    /* streams: one of each of these devices, by their numbers. */
    CUresult (*submit)(const struct flyt_captured_call *call, struct flyt_stream *const *streams);
    /* CUDA_ERROR_INVALID_HANDLE: one of its objects has gone. */
    CUresult (*tell)(const struct flyt_captured_call *call, struct flyt_captured_told *ret_told);
    bool waits; /* for the GPU, in the library: what it launches cannot be captured at the server */
    /* Its first object works in memory that the program has not given it, so large, whose address is there in its
     * arguments; 0: none. Calls of one object and captured stream have it together. */
    uint64_t workspace_bytes, stream_number;
    size_t workspace_at;
    size_t bytes; /* all of it, this included */
};

struct flyt_capture_ops {
    /* Each adds to the capture of the stream, which it has. The mutex is not held. */
    CUresult (*kernel)(struct flyt_stream *stream, const struct flyt_launch *launch);
    CUresult (*copy)(struct flyt_stream *stream, const struct flyt_copy *copy);
    CUresult (*fill)(struct flyt_stream *stream, const struct flyt_fill *fill);
    CUresult (*function)(struct flyt_stream *stream, CUhostFn function, void *user);
    CUresult (*memory_ops)(struct flyt_stream *stream, unsigned count, const CUstreamBatchMemOpParams *ops);
    /* Memory that the graph allocates at each launch, and frees. */
    CUresult (*alloc)(struct flyt_stream *stream, const CUmemLocation *location, size_t bytes,
                      CUdeviceptr *ret_address);
    CUresult (*free)(struct flyt_stream *stream, CUdeviceptr address);
    /* A node that comes after what each of the streams ends in, and is what each ends in then. They are of one capture,
     * else CUDA_ERROR_STREAM_CAPTURE_MERGE; its device is the first one's. */
    CUresult (*call)(struct flyt_stream *const *streams, unsigned count, const struct flyt_captured_call *call);
    /* The stream where it began has ended, and nobody can end it: its streams are ordinary ones again, and it is freed.
     * The mutex is held. */
    void (*abandon_locked)(struct flyt_capture *capture);
    /* An event that is recorded, or waited for, in a graph whenever that is launched (…_EXTERNAL). */
    CUresult (*external)(struct flyt_stream *stream, struct flyt_event *event, bool is_wait);
};

extern struct flyt_captures {
    pthread_mutex_t mutex;
    _Atomic unsigned count; /* under way */
    struct flyt_capture *first;
    uint64_t last_number;
    const struct flyt_capture_ops *ops;
} flyt_captures __attribute__((visibility("hidden")));

static inline bool flyt_capture_is_any(void)
{
    return __builtin_expect(atomic_load_explicit(&flyt_captures.count, memory_order_relaxed) != 0, 0);
}

/* ---- what is asked before a call; each may end captures with "invalidated", and says why by its result ---- */

/*
 * The stream is about to get work. CUDA_SUCCESS and *ret_is_captured: a capture is to have it, or the stream is.
 * CUDA_ERROR_STREAM_CAPTURE_INVALIDATED: its capture is no longer valid; CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: it is a
 * legacy stream, and a blocking stream of its device captures.
 */
CUresult flyt_capture_ask_work(struct flyt_stream *stream, bool *ret_is_captured);
/* The same of work that cannot be captured: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED where it would have to be. */
CUresult flyt_capture_refuse(struct flyt_stream *stream);
/* The stream is to be waited for, or asked: likewise. */
CUresult flyt_capture_ask_wait(struct flyt_stream *stream);
/* The device is to be waited for. */
CUresult flyt_capture_ask_wait_device(int device);
/* The event is to be waited for, or asked. CUDA_ERROR_CAPTURED_EVENT; or as flyt_capture_ask_unsafe. */
CUresult flyt_capture_ask_event(struct flyt_event *event);
/* A call that might wait for, or change, what a capture is about (cudaThreadExchangeStreamCaptureMode).
 * CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED. */
CUresult flyt_capture_ask_unsafe(void);

/* ---- events that order streams ---- */

/* Whether the record was captured: then the event stands for the last nodes of the stream. The second under the mutex,
 * and without flags. */
CUresult flyt_capture_record(struct flyt_stream *stream, struct flyt_event *event, unsigned flags,
                             bool *ret_is_captured);
CUresult flyt_capture_record_locked(struct flyt_stream *stream, struct flyt_event *event, bool *ret_is_captured);
/* Whether the wait was: then the stream takes part in the event's capture. CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
 * _MERGE, CUDA_ERROR_CAPTURED_EVENT (the capture has ended). */
CUresult flyt_capture_wait_event(struct flyt_stream *stream, struct flyt_event *event, unsigned flags,
                                 bool *ret_is_captured);

/* ---- the end of objects ---- */

void flyt_capture_stream_ends(struct flyt_stream *stream);
void flyt_capture_event_ends(struct flyt_event *event);

/* ---- for cpu/client/graph, which holds the mutex ---- */

/* The stream's capture, or NULL. */
struct flyt_capture *flyt_capture_of_locked(const struct flyt_stream *stream);
void flyt_capture_join_locked(struct flyt_capture *capture, struct flyt_stream *stream);
/* Its streams are ordinary streams again; the record is the caller's. */
void flyt_capture_leave_locked(struct flyt_capture *capture);
/* Adds an end, where it is not among them. False: no memory. */
bool flyt_capture_ends_add(struct flyt_capture_ends *ends, uint64_t node_id, const CUgraphEdgeData *data);
/* Whether the stream is the legacy one while a blocking stream of its device captures. */
bool flyt_capture_is_implicit_locked(const struct flyt_stream *stream);

#endif
