/*
 * Streams as queues of work, and the threads that execute them.
 *
 * A stream is a first-in-first-out list of operations. An operation may wait for a record (a point in another stream)
 * before it runs, and may complete one after. Worker threads take streams that have something to do; a stream whose
 * first operation has to wait is hung on that record and holds no thread. A thread is added whenever a stream is
 * ready and none is idle, so that operations that block (a kernel that spins, a host function that waits for another
 * call) stop nobody else.
 *
 * One mutex, the queue's, covers all of this; it is never held while an operation runs.
 */
#ifndef FLYT_SOFTGPU_DRIVER_QUEUE_H
#define FLYT_SOFTGPU_DRIVER_QUEUE_H

#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpu/softgpu/driver/handle.h"

struct CUctx_st;
struct flyt_soft_device;

/* A point in a stream that others can wait for: what one cuEventRecord stands for. */
struct flyt_soft_record {
    unsigned refs;
    bool is_complete;
    uint64_t time_ns;            /* CLOCK_MONOTONIC, when it was completed */
    struct CUstream_st *waiting; /* streams hung on it, linked by next_waiting */
};

struct flyt_soft_op {
    struct flyt_soft_op *next;
    struct flyt_soft_record *wait;   /* to be complete before the operation runs; may be NULL */
    struct flyt_soft_record *signal; /* completed by it; may be NULL */
    /* Does the work. NULL: nothing to do but wait or signal. An error breaks the device. */
    CUresult (*run)(struct flyt_soft_op *op);
    /* What it is, in lines, for a core dump; NULL: nothing is known. */
    void (*describe)(const struct flyt_soft_op *op, char *text, size_t text_bytes);
    /* Frees the operation and what it owns, run or not; never the records. */
    void (*free)(struct flyt_soft_op *op);
    bool runs_broken; /* run even after the device broke (stream callbacks are told the error) */
};

/* More than the highest number of an attribute that streams have. */
enum { FLYT_SOFT_STREAM_ATTRIBUTES = CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING + 1 };

struct CUstream_st {
    enum flyt_soft_kind kind;
    struct CUctx_st *ctx;
    struct CUstream_st *next_in_ctx;
    uint64_t id;
    unsigned flags; /* CU_STREAM_NON_BLOCKING, or 0: ordered with the context's legacy stream */
    int priority;
    CUlaunchAttributeValue attributes[FLYT_SOFT_STREAM_ATTRIBUTES]; /* by their numbers (stream_attribute.c) */
    bool is_legacy;
    bool is_destroyed; /* freed when it runs empty */
    CUgraph captured;  /* what it captures into (graph.c), its own; NULL: it does not capture */
    bool is_capture_failed;
    /* Below: under the queue's mutex. */
    enum { FLYT_SOFT_STREAM_IDLE, FLYT_SOFT_STREAM_READY, FLYT_SOFT_STREAM_RUNNING, FLYT_SOFT_STREAM_WAITING } state;
    struct flyt_soft_op *first, *last;
    uint64_t pushed_count, done_count; /* operations so far */
    struct CUstream_st *next_ready, *next_waiting;
    unsigned waiter_count; /* threads in flyt_soft_stream_finish */
    pthread_cond_t progress;
};

struct flyt_soft_queue;

/* NULL: out of memory. There is no destructor: the queue lives as long as the process. */
struct flyt_soft_queue *flyt_soft_queue_new(void);
/* Whether every operation of every stream is done. */
bool flyt_soft_queue_is_idle(void);

/* A record with one reference, not complete; NULL: out of memory. */
struct flyt_soft_record *flyt_soft_record_new(void);
struct flyt_soft_record *flyt_soft_record_ref(struct flyt_soft_record *record);
/* NULL is allowed. */
void flyt_soft_record_unref(struct flyt_soft_record *record);
bool flyt_soft_record_is_complete(const struct flyt_soft_record *record, uint64_t *ret_time_ns);
/* Blocks until the record is complete. */
void flyt_soft_record_wait(struct flyt_soft_record *record);

/* A stream of the context, which it keeps a reference to. NULL: out of memory. */
struct CUstream_st *flyt_soft_stream_new(struct CUctx_st *ctx, unsigned flags, int priority, bool is_legacy);
/* Lets the stream finish what it has and frees it then. */
void flyt_soft_stream_retire(struct CUstream_st *stream);

/*
 * The stream of a handle in the current context: 0 and CU_STREAM_LEGACY are the context's legacy stream,
 * CU_STREAM_PER_THREAD its stream for all threads, both made at first use. CUDA_ERROR_INVALID_HANDLE,
 * CUDA_ERROR_CONTEXT_IS_DESTROYED (the stream's own, unless that was a green one's), CUDA_ERROR_OUT_OF_MEMORY.
 * *ret_stream is borrowed.
 */
CUresult flyt_soft_stream_find(struct CUctx_st *ctx, CUstream handle, struct CUstream_st **ret_stream);
/*
 * The same of a stream that is to get work, or to be waited for, which no capture takes:
 * CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: it captures, and that has failed now.
 */
CUresult flyt_soft_stream_take(struct CUctx_st *ctx, CUstream handle, struct CUstream_st **ret_stream);

/*
 * Appends an operation, which the queue owns from now on, with its reference to `wait` and to `signal`. Joins with the
 * legacy stream are put before it as the stream's kind asks. Never blocks. Returns the operation's number in the
 * stream, for flyt_soft_stream_finish.
 */
uint64_t flyt_soft_stream_push(struct CUstream_st *stream, struct flyt_soft_op *op);

/* Appends a wait for `wait`, or the completion of `signal`, or both; one reference of each is taken over, also on
 * failure. CUDA_ERROR_OUT_OF_MEMORY. */
CUresult flyt_soft_stream_mark(struct CUstream_st *stream, struct flyt_soft_record *wait,
                               struct flyt_soft_record *signal);

/*
 * Blocks until operation `number` of the stream is done, then writes out what kernels printed. CUDA_SUCCESS or the
 * device's sticky error.
 */
CUresult flyt_soft_stream_finish(struct CUstream_st *stream, uint64_t number);
/* The number of the last operation appended. */
uint64_t flyt_soft_stream_last(struct CUstream_st *stream);
bool flyt_soft_stream_is_idle(struct CUstream_st *stream);
/* Takes the context's own two streams away from it and retires them. */
void flyt_soft_context_drop_streams(struct CUctx_st *ctx);
/* Blocks until every stream of the context has done what it had when called. */
void flyt_soft_context_drain(struct CUctx_st *ctx);
/* Completes *ret_record when all streams of the context have done what they have now. */
CUresult flyt_soft_context_record(struct CUctx_st *ctx, struct flyt_soft_record *record);
/* Makes all streams of the context wait for the record, of which no reference is taken over. */
CUresult flyt_soft_context_wait(struct CUctx_st *ctx, struct flyt_soft_record *record);

#endif
