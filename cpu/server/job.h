/*
 * Jobs: what a call started and the submission thread does not wait for. A job is looked at in every round of the loop
 * and does what has become possible: send a reply when the GPU is done, submit the next piece of a copy, go on after a
 * host function.
 *
 * A job may hold its stream: calls that name the stream (and, by the legacy rules, calls of other streams) are parked
 * until it is over. It has its call's sequence number; while it `is_unexecuted` the client is told that execution has
 * not come past it.
 */
#ifndef FLYT_SERVER_JOB_H
#define FLYT_SERVER_JOB_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpu/server/moment.h"
#include "flyt.h"

struct flyt_call;
struct flyt_job;
struct flyt_session;
struct flyt_stream;

struct flyt_job_ops {
    /*
     * Does what can be done now. CUDA_ERROR_NOT_READY: the job goes on; job->needs_poll then says whether time alone
     * can change something (the GPU), or only the socket or a kick. Any other code: the job is over.
     */
    CUresult (*advance)(struct flyt_job *job);
    /* The job is over with this result: replies, if its call has a reply. NULL: an error is told as a one-way call's.
     * Not called where the session ended before the job did. */
    void (*finish)(struct flyt_job *job, CUresult result);
    /* Frees the job and all that it owns. */
    void (*free)(struct flyt_job *job);
};

/* First member of every kind of job. */
struct flyt_job {
    const struct flyt_job_ops *ops;
    struct flyt_session *session;
    uint64_t sequence;
    uint32_t thread, xid;
    struct flyt_stream *stream; /* held by the job, or NULL */
    bool is_unexecuted;
    bool needs_poll;
    struct flyt_job *prev, *next;
};

/* All zero: none. */
struct flyt_jobs {
    struct flyt_job *first, *last;
    unsigned unexecuted_count;
};

/* Starts a job for a call: fills the members above from it (the caller allocated *job, zeroed), holds the stream
 * (NULL: none), and puts it on the list. It advances in the loop's next round. */
void flyt_job_start(struct flyt_job *job, const struct flyt_job_ops *ops, struct flyt_call *call,
                    struct flyt_stream *stream);
/* Its call counts as executed only when it has ended; one with a stream does anyway. */
void flyt_job_keep_unexecuted(struct flyt_job *job);

/* One round over all jobs. Returns whether something happened. *ret_needs_poll: whether time alone can bring more. */
bool flyt_jobs_advance(struct flyt_session *session, bool *ret_needs_poll);

/* The lowest sequence number of an unexecuted job, or UINT64_MAX; held_only: of those that hold a stream. */
uint64_t flyt_jobs_unexecuted(const struct flyt_session *session, bool held_only);

/* Frees what is left, at the session's end. */
void flyt_jobs_fini(struct flyt_session *session);

/*
 * For handlers whose reply has a result and the progress only: replies when the moments are reached, after what
 * kernels printed. Takes over *set. FLYT_CALL_DEFERRED; or the result, where there is nothing to wait for.
 */
CUresult flyt_job_reply_after(struct flyt_call *call, struct flyt_moment_set *set);

/* For stream_destroy: takes the stream's id away at once, and frees the stream when it is idle. */
CUresult flyt_job_retire_stream(struct flyt_call *call, struct flyt_stream *stream);

/* Sends a reply that has only the result and the progress. */
void flyt_job_reply(struct flyt_job *job, CUresult result);

#endif
