#include "cpu/server/core/job.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/server/core/call.h"
#include "cpu/server/core/pieces.h"
#include "cpu/server/core/progress.h"
#include "cpu/server/core/session.h"
#include "flyt_procedures.h"

void flyt_job_keep_unexecuted(struct flyt_job *job)
{
    job->session->jobs.unexecuted_count += !job->is_unexecuted;
    job->is_unexecuted = true;
}

static void run_task(struct flyt_task *task)
{
    struct flyt_job *job = (struct flyt_job *)((char *)task - offsetof(struct flyt_job, task));
    job->result = job->run(job);
}

void flyt_job_start(struct flyt_job *job, const struct flyt_job_ops *ops, struct flyt_call *call,
                    struct flyt_stream *stream)
{
    struct flyt_session *session = call->session;
    job->ops = ops;
    job->session = session;
    job->sequence = call->sequence;
    job->thread = call->thread;
    job->xid = call->xid;
    job->procedure = call->procedure;
    job->stream = stream;
    job->needs_poll = true;
    if (stream) {
        flyt_job_keep_unexecuted(job);
        stream->job = job;
        session->jobs.holding_count++;
        stream->device->blocking_job_count += stream->is_blocking;
    }
    job->prev = session->jobs.last;
    *(session->jobs.last ? &session->jobs.last->next : &session->jobs.first) = job;
    session->jobs.last = job;
}

/* To the executor that the row of the job's call names. */
static int submit_task(struct flyt_job *job)
{
    struct flyt_session *session = job->session;
    enum flyt_executor executor = flyt_procedure_find(job->procedure)->executor;
    assert(executor != FLYT_EXECUTOR_SUBMISSION);
    if (executor == FLYT_EXECUTOR_CALLER) {
        uint64_t owner = job->thread + (uint64_t)1 + ((uint64_t)job->is_apart << 33);
        return flyt_executors_submit(&session->executors, owner, &job->task);
    }
    return flyt_worker_submit(executor == FLYT_EXECUTOR_THREADS ? &session->blocking : &session->worker, &job->task);
}

CUresult flyt_job_run(struct flyt_job *job, flyt_job_run_fn run)
{
    job->run = run;
    job->task = (struct flyt_task){.run = run_task};
    if (submit_task(job) == 0)
        return CUDA_ERROR_NOT_READY;
    job->run = NULL;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult flyt_job_on_worker(struct flyt_job *job, const struct flyt_job_ops *ops, struct flyt_call *call,
                            flyt_job_run_fn run)
{
    flyt_job_start(job, ops, call, NULL);
    flyt_job_keep_unexecuted(job);
    if (flyt_job_run(job, run) != CUDA_ERROR_NOT_READY)
        job->result = CUDA_ERROR_OUT_OF_MEMORY;
    return FLYT_CALL_STARTED;
}

CUresult flyt_job_after(struct flyt_job *job, const struct flyt_job_ops *ops, struct flyt_call *call,
                        struct flyt_fence_set *set)
{
    job->after = *set;
    *set = (struct flyt_fence_set){0};
    return flyt_job_begin(job, ops, call);
}

CUresult flyt_job_begin(struct flyt_job *job, const struct flyt_job_ops *ops, struct flyt_call *call)
{
    flyt_job_start(job, ops, call, NULL);
    return FLYT_CALL_STARTED;
}

struct flyt_call flyt_job_call(const struct flyt_job *job)
{
    return (struct flyt_call){.session = job->session,
                              .sequence = job->sequence,
                              .thread = job->thread,
                              .xid = job->xid,
                              .procedure = job->procedure};
}

void flyt_job_let_pass(struct flyt_job *job)
{
    struct flyt_session *session = job->session;
    session->jobs.unexecuted_count--;
    session->is_scan_due = true;
    session->is_notice_due = true;
    job->is_unexecuted = false;
}

/* Takes the job off its stream and the list. */
static void leave(struct flyt_job *job)
{
    struct flyt_session *session = job->session;
    *(job->prev ? &job->prev->next : &session->jobs.first) = job->next;
    *(job->next ? &job->next->prev : &session->jobs.last) = job->prev;
    if (job->stream) {
        job->stream->job = NULL;
        session->jobs.holding_count--;
        job->stream->device->blocking_job_count -= job->stream->is_blocking;
    }
    if (job->is_unexecuted)
        flyt_job_let_pass(job);
    session->is_scan_due = true; /* calls may wait for its stream, or for what it has done */
}

/* The next round begins with the others. */
static void move_to_end(struct flyt_job *job)
{
    struct flyt_jobs *jobs = &job->session->jobs;
    if (!job->next)
        return;
    *(job->prev ? &job->prev->next : &jobs->first) = job->next;
    job->next->prev = job->prev;
    job->prev = jobs->last;
    job->next = NULL;
    jobs->last->next = job;
    jobs->last = job;
}

static void free_job(struct flyt_job *job)
{
    flyt_fence_set_fini(&job->after);
    if (job->ops->free)
        job->ops->free(job);
    else
        free(job);
}

/* Whether what the job awaits has come. CUDA_SUCCESS, CUDA_ERROR_NOT_READY or why it ends. */
static CUresult look(struct flyt_job *job)
{
    if (job->run) {
        job->needs_poll = false;
        if (!atomic_load_explicit(&job->task.is_done, memory_order_acquire))
            return CUDA_ERROR_NOT_READY;
        job->run = NULL;
    }
    return job->result == CUDA_SUCCESS ? flyt_fence_set_poll(&job->after) : job->result;
}

static CUresult advance(struct flyt_job *job)
{
    CUresult result = look(job);
    return result == CUDA_SUCCESS && job->ops->advance ? job->ops->advance(job) : result;
}

bool flyt_jobs_advance(struct flyt_session *session, bool *ret_needs_poll)
{
    bool is_changed = false, needs_poll = false;
    struct flyt_job *next, *last_served = NULL;
    session->pieces_left = FLYT_PIECES_PER_ROUND_MAX;
    for (struct flyt_job *job = session->jobs.first; job; job = next) {
        bool had_pieces = session->pieces_left;
        CUresult result = advance(job);
        /* Advancing may start jobs, which go to the end of the list, and ends none. */
        next = job->next;
        if (result == CUDA_ERROR_NOT_READY) {
            needs_poll |= job->needs_poll;
            if (had_pieces && !session->pieces_left)
                last_served = job;
            continue;
        }
        is_changed = true;
        leave(job);
        flyt_session_check(session, result);
        if (job->ops->finish)
            job->ops->finish(job, result);
        else if (result != CUDA_SUCCESS)
            flyt_session_call_error(session, job->sequence, job->thread, result);
        free_job(job);
    }
    if (last_served)
        move_to_end(last_served);
    *ret_needs_poll = needs_poll;
    return is_changed;
}

void flyt_jobs_fini(struct flyt_session *session)
{
    while (session->jobs.first) {
        struct flyt_job *job = session->jobs.first;
        leave(job);
        free_job(job);
    }
}

/* *res is what the job's procedure answers with: its head is filled in here. */
static void reply(struct flyt_job *job, CUresult result, void *res, const void *data, size_t bytes)
{
    struct flyt_session *session = job->session;
    flyt_session_poll_streams(session);
    flyt_progress_writer_write(session);
    flyt_execution_write(session);
    const struct flyt_result_head head = {(int)result, flyt_session_progress(session)};
    memcpy(res, &head, sizeof head);
    flyt_connection_reply(session->connection, job->xid, flyt_procedure_find(job->procedure)->xdr_res, res, data,
                          bytes);
    session->is_notice_due = false;
}

void flyt_job_reply_with(struct flyt_job *job, CUresult result, void *res, size_t res_bytes)
{
    assert(flyt_procedure_find(job->procedure)->res_bytes == res_bytes);
    reply(job, result, res, NULL, 0);
}

void flyt_job_reply(struct flyt_job *job, CUresult result)
{
    struct flyt_result_head res;
    flyt_job_reply_with(job, result, &res, sizeof res);
}

void flyt_job_reply_payload(struct flyt_job *job, CUresult result, const void *data, size_t bytes)
{
    struct {
        struct flyt_result_head head;
        struct {
            u_int bytes;
            char *value;
        } payload;
    } res = {0};
    assert(flyt_procedure_find(job->procedure)->has_payload);
    assert(flyt_procedure_find(job->procedure)->payload_offset_bytes == sizeof res.head);
    assert(flyt_procedure_find(job->procedure)->res_bytes == sizeof res);
    reply(job, result, &res, data, bytes);
}

/* ---- a reply when the GPU has come to a point ---- */

static void reply_finish(struct flyt_job *job, CUresult result)
{
    /* What kernels printed before this point must be there when the program goes on. */
    flyt_print_flush(job->session);
    flyt_job_reply(job, result == CUDA_SUCCESS ? job->session->fatal : result);
}

static const struct flyt_job_ops reply_ops = {.finish = reply_finish};

CUresult flyt_job_reply_after(struct flyt_call *call, struct flyt_fence_set *set)
{
    if (!set->count) {
        flyt_fence_set_fini(set);
        flyt_print_flush(call->session);
        return call->session->fatal;
    }
    struct flyt_job *job = calloc(1, sizeof *job);
    if (!job) {
        flyt_fence_set_fini(set);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return flyt_job_after(job, &reply_ops, call, set);
}
