#include "cpu/server/job.h"

#include <stdlib.h>

#include "cpu/server/call.h"
#include "cpu/server/session.h"

void flyt_job_keep_unexecuted(struct flyt_job *job)
{
    job->session->jobs.unexecuted_count += !job->is_unexecuted;
    job->is_unexecuted = true;
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
    job->stream = stream;
    job->needs_poll = true;
    if (stream) {
        flyt_job_keep_unexecuted(job);
        stream->job = job;
        stream->device->blocking_job_count += stream->is_blocking;
    }
    job->prev = session->jobs.last;
    *(session->jobs.last ? &session->jobs.last->next : &session->jobs.first) = job;
    session->jobs.last = job;
}

/* Takes the job off its stream and the list. */
static void leave(struct flyt_job *job)
{
    struct flyt_session *session = job->session;
    *(job->prev ? &job->prev->next : &session->jobs.first) = job->next;
    *(job->next ? &job->next->prev : &session->jobs.last) = job->prev;
    if (job->stream) {
        job->stream->job = NULL;
        job->stream->device->blocking_job_count -= job->stream->is_blocking;
    }
    if (job->is_unexecuted) {
        session->jobs.unexecuted_count--;
        session->is_scan_due = true;
        session->is_notice_due = true;
    }
    job->is_unexecuted = false;
}

bool flyt_jobs_advance(struct flyt_session *session, bool *ret_needs_poll)
{
    bool is_changed = false, needs_poll = false;
    struct flyt_job *next;
    for (struct flyt_job *job = session->jobs.first; job; job = next) {
        CUresult result = job->ops->advance(job);
        /* Advancing may start jobs, which go to the end of the list, and ends none. */
        next = job->next;
        if (result == CUDA_ERROR_NOT_READY) {
            needs_poll |= job->needs_poll;
            continue;
        }
        is_changed = true;
        leave(job);
        flyt_session_check(session, result);
        if (job->ops->finish)
            job->ops->finish(job, result);
        else if (result != CUDA_SUCCESS)
            flyt_session_call_error(session, job->sequence, job->thread, result);
        job->ops->free(job);
    }
    *ret_needs_poll = needs_poll;
    return is_changed;
}

uint64_t flyt_jobs_unexecuted(const struct flyt_session *session, bool held_only)
{
    uint64_t lowest = UINT64_MAX;
    for (const struct flyt_job *job = session->jobs.first; job; job = job->next)
        if (job->is_unexecuted && (job->stream || !held_only) && job->sequence < lowest)
            lowest = job->sequence;
    return lowest;
}

void flyt_jobs_fini(struct flyt_session *session)
{
    while (session->jobs.first) {
        struct flyt_job *job = session->jobs.first;
        leave(job);
        job->ops->free(job);
    }
}

void flyt_job_reply(struct flyt_job *job, CUresult result)
{
    struct flyt_session *session = job->session;
    flyt_session_poll_streams(session);
    flyt_page_write(session);
    flyt_execution_write(session);
    /* The results of all calls that answer with nothing else have this layout. */
    flyt_stream_synchronize_res res = {.result = (int)result, .progress = flyt_session_progress(session)};
    flyt_connection_reply(session->connection, job->xid, (xdrproc_t)xdr_flyt_stream_synchronize_res, &res, NULL, 0);
    session->is_notice_due = false;
}

/* ---- a reply when the GPU has come to a point ---- */

struct reply_job {
    struct flyt_job job;
    struct flyt_moment_set set;
};

static CUresult reply_advance(struct flyt_job *job)
{
    return flyt_moment_set_poll(&((struct reply_job *)job)->set);
}

static void reply_finish(struct flyt_job *job, CUresult result)
{
    /* What kernels printed before this point must be there when the program goes on. */
    flyt_print_flush(job->session);
    flyt_job_reply(job, result == CUDA_SUCCESS ? job->session->fatal : result);
}

static void reply_free(struct flyt_job *job)
{
    struct reply_job *self = (struct reply_job *)job;
    flyt_moment_set_fini(&self->set);
    free(self);
}

static const struct flyt_job_ops reply_ops = {reply_advance, reply_finish, reply_free};

CUresult flyt_job_reply_after(struct flyt_call *call, struct flyt_moment_set *set)
{
    if (!set->count) {
        flyt_moment_set_fini(set);
        flyt_print_flush(call->session);
        return call->session->fatal;
    }
    struct reply_job *self = calloc(1, sizeof *self);
    if (!self) {
        flyt_moment_set_fini(set);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    self->set = *set;
    *set = (struct flyt_moment_set){0};
    flyt_job_start(&self->job, &reply_ops, call, NULL);
    return FLYT_CALL_DEFERRED;
}

/* ---- a destroyed stream that still works ---- */

struct retire_job {
    struct flyt_job job;
    struct flyt_stream *stream;
};

static CUresult retire_advance(struct flyt_job *job)
{
    return flyt_stream_query(((struct retire_job *)job)->stream);
}

static void retire_finish(struct flyt_job *job, CUresult result)
{
}

static void retire_free(struct flyt_job *job)
{
    struct retire_job *self = (struct retire_job *)job;
    flyt_stream_free(self->stream);
    free(self);
}

static const struct flyt_job_ops retire_ops = {retire_advance, retire_finish, retire_free};

CUresult flyt_job_retire_stream(struct flyt_call *call, struct flyt_stream *stream)
{
    struct retire_job *self = calloc(1, sizeof *self);
    if (!self)
        return CUDA_ERROR_OUT_OF_MEMORY;
    self->stream = stream;
    flyt_stream_remove(stream);
    flyt_job_start(&self->job, &retire_ops, call, NULL);
    return CUDA_SUCCESS;
}
