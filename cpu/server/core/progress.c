#include "cpu/server/core/progress.h"

#include "cpu/server/core/session.h"
#include "cpu/server/core/stream.h"

uint64_t flyt_defer_first_sequence(const struct flyt_session *session)
{
    return session->defer.first ? session->defer.first->sequence : UINT64_MAX;
}

uint64_t flyt_jobs_unexecuted(const struct flyt_session *session, bool held_only)
{
    uint64_t lowest = UINT64_MAX;
    for (const struct flyt_job *job = session->jobs.first; job; job = job->next)
        if (job->is_unexecuted && (job->stream || !held_only) && job->sequence < lowest)
            lowest = job->sequence;
    return lowest;
}

/* Of jobs that hold their streams, also where others may pass them. */
static uint64_t first_holding(const struct flyt_session *session)
{
    uint64_t lowest = UINT64_MAX;
    for (const struct flyt_job *job = session->jobs.first; job; job = job->next)
        if (job->stream && job->sequence < lowest)
            lowest = job->sequence;
    return lowest;
}

flyt_progress flyt_session_progress(const struct flyt_session *session)
{
    uint64_t executed = session->received_sequence;
    if (session->defer.first && flyt_defer_first_sequence(session) - 1 < executed)
        executed = flyt_defer_first_sequence(session) - 1;
    if (session->jobs.first) {
        uint64_t job = flyt_jobs_unexecuted(session, false);
        if (job - 1 < executed)
            executed = job - 1;
    }
    /* A stream's work is done up to its last marker that was reached; calls of other streams do not matter to it. */
    uint64_t completed = executed;
    if (session->fatal != CUDA_SUCCESS && session->fatal_completed < completed)
        completed = session->fatal_completed;
    for (const struct flyt_stream *stream = session->busy_first; stream; stream = stream->busy_next)
        if (stream->completed_sequence < completed)
            completed = stream->completed_sequence;
    if (session->jobs.holding_count && first_holding(session) - 1 < completed)
        completed = first_holding(session) - 1;
    return (flyt_progress){.received = session->received_sequence, .executed = executed, .completed = completed};
}

/* ---- errors ---- */

void flyt_page_count_error(struct flyt_progress_writer *page)
{
    page->error_count++;
    /* Seen by whoever sees a number that is published later: raise_to() stores with release. */
    if (page->shared)
        atomic_store_explicit(&page->shared->error_count, page->error_count, memory_order_relaxed);
}

uint64_t flyt_execution_error_count(const struct flyt_session *session)
{
    return session->progress_writer.error_count - session->execution.error_base;
}

void flyt_execution_count_error(struct flyt_session *session)
{
    const struct flyt_execution *self = &session->execution;
    if (self->record)
        flyt_call_record_set(&self->record->error_count, flyt_execution_error_count(session));
}
