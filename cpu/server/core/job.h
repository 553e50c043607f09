/*
 * Jobs: what a call started and the submission thread does not wait for. A job is looked at in every round of the loop
 * and does what has become possible: send a reply when the GPU is done, submit the next piece of a copy, go on after a
 * host function.
 *
 * A job may hold its stream: calls that name the stream (and, by the legacy rules, calls of other streams) are deferred
 * until it is over. It has its call's sequence number; while it `is_unexecuted` the client is told that execution has
 * not come past it.
 */
#ifndef FLYT_SERVER_JOB_H
#define FLYT_SERVER_JOB_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpu/server/core/fence.h"
#include "cpu/server/core/worker.h"
#include "flyt.h"

struct flyt_call;
struct flyt_job;
struct flyt_session;
struct flyt_stream;

struct flyt_job_ops {
    /*
     * Does what can be done now that nothing is awaited (below). CUDA_ERROR_NOT_READY: the job goes on; job->needs_poll
     * then says whether time alone can change something (the GPU), or only the socket or a kick. Any other code: the
     * job is over. NULL: it is, when what was awaited has come.
     */
    CUresult (*advance)(struct flyt_job *job);
    /* The job is over with this result: replies, if its call has a reply. NULL: an error is told as a one-way call's.
     * Not called where the session ended before the job did. */
    void (*finish)(struct flyt_job *job, CUresult result);
    /* Frees the job and all that it owns. NULL: it owns nothing but itself. */
    void (*free)(struct flyt_job *job);
};

/* On a thread of a worker's. An error ends the job. */
typedef CUresult (*flyt_job_run_fn)(struct flyt_job *job);

/* First member of every kind of job. */
struct flyt_job {
    const struct flyt_job_ops *ops;
    struct flyt_session *session;
    uint64_t sequence;
    uint32_t thread, xid, procedure;
    struct flyt_stream *stream; /* held by the job, or NULL */
    /* What is awaited before the job is looked at: */
    struct flyt_fence_set after;
    flyt_job_run_fn run; /* NULL: none */
    struct flyt_task task;
    CUresult result; /* of run */
    bool is_unexecuted;
    bool is_apart; /* its step does not come after those that its client thread has given before (executor.h) */
    bool needs_poll;
    struct flyt_job *prev, *next;
};

/* All zero: none. */
struct flyt_jobs {
    struct flyt_job *first, *last;
    unsigned unexecuted_count, holding_count; /* holding: a stream */
};

/* Starts a job for a call: fills the members above from it (the caller allocated *job, zeroed), holds the stream
 * (NULL: none), and puts it on the list. It advances in the loop's next round. */
void flyt_job_start(struct flyt_job *job, const struct flyt_job_ops *ops, struct flyt_call *call,
                    struct flyt_stream *stream);
/* Its call counts as executed only when it has ended; one with a stream does anyway. */
void flyt_job_keep_unexecuted(struct flyt_job *job);
/* Its call counts as executed from now on, though the job holds its stream: for one that may wait for what other
 * threads of the client have yet to do, whose own thread waits for its answer. */
void flyt_job_let_pass(struct flyt_job *job);

/*
 * Most jobs wait for a worker or for the GPU, with these two. Neither are copies and memory_set (they submit pieces as
 * gate, depth and buffers allow), what was read (it is sent in the order of its reading), host functions (the client
 * ends them), allocations (they wait for memory), a destroyed stream (the driver is asked whether it is idle: a fence
 * would be one more thing that its stream gets), and the end of a resumption (for all others).
 */

/* For a call whose row names an executor: starts a job (see flyt_job_start) that keeps the call unexecuted, whose first
 * step runs there. FLYT_CALL_STARTED, also where no thread could be made, which ends the job. */
CUresult flyt_job_on_worker(struct flyt_job *job, const struct flyt_job_ops *ops, struct flyt_call *call,
                            flyt_job_run_fn run);
/* One more such step of a job that advances. CUDA_ERROR_NOT_READY, or CUDA_ERROR_OUT_OF_MEMORY: no thread. */
CUresult flyt_job_run(struct flyt_job *job, flyt_job_run_fn run);

/* Starts a job that flyt_stream_job_after_all has made. FLYT_CALL_STARTED. */
CUresult flyt_job_begin(struct flyt_job *job, const struct flyt_job_ops *ops, struct flyt_call *call);
/* For a call whose work comes after work of the GPU: starts a job that waits for the fences first. Takes over *set,
 * which may be empty. FLYT_CALL_STARTED. */
CUresult flyt_job_after(struct flyt_job *job, const struct flyt_job_ops *ops, struct flyt_call *call,
                        struct flyt_fence_set *set);

/* The job's call, for another job that it starts. */
struct flyt_call flyt_job_call(const struct flyt_job *job);

/* One round over all jobs. Returns whether something happened. *ret_needs_poll: whether time alone can bring more. */
bool flyt_jobs_advance(struct flyt_session *session, bool *ret_needs_poll);

/* Frees what is left, at the session's end. */
void flyt_jobs_fini(struct flyt_session *session);

/*
 * For handlers whose reply has a result and the progress only: replies when the fences are reached, after what
 * kernels printed. Takes over *set. FLYT_CALL_STARTED; or the result, where there is nothing to wait for.
 */
CUresult flyt_job_reply_after(struct flyt_call *call, struct flyt_fence_set *set);

/* Sends the reply to the job's call, whose procedure's results are nothing but result and progress. */
void flyt_job_reply(struct flyt_job *job, CUresult result);
/* The same where a payload follows them. */
void flyt_job_reply_payload(struct flyt_job *job, CUresult result, const void *data, size_t bytes);
/* The same for any procedure: *res is its structure of results, of res_bytes; result and progress are filled in. */
void flyt_job_reply_with(struct flyt_job *job, CUresult result, void *res, size_t res_bytes);

#endif
