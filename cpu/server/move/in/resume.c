#include "cpu/server/move/in/resume.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "cpu/server/bulk/region.h"
#include "cpu/server/cuda/account.h"
#include "cpu/server/core/call.h"
#include "cpu/server/move/common/counts.h"
#include "cpu/server/core/job.h"
#include "cpu/server/cuda/memory.h"
#include "cpu/server/move/out/move.h"
#include "cpu/server/move/in/prepare.h"
#include "cpu/server/move/in/prepared.h"
#include "cpu/server/move/out/replaceable.h"
#include "cpu/server/move/out/report.h"
#include "cpu/server/core/session.h"
#include "cpu/server/cuda/settings.h"
#include "flyt_procedures.h"
#include "flyt_serve.h"
#include "rpc/base/clock.h"
#include "rpc/base/log.h"

CUresult flyt_serve_session_resume_begin(struct flyt_call *call, const flyt_session_resume_begin_args *args,
                                         flyt_session_resume_begin_res *res)
{
    struct flyt_session *session = call->session;
    if (session->resume.state != FLYT_RESUME_AWAITED)
        return CUDA_ERROR_NOT_PERMITTED;
    session->resume.steps.begin_ns = flyt_clock_ns();
    for (unsigned i = 0; i < session->device_count; i++) {
        struct flyt_device *device = &session->devices[i];
        CUresult result = flyt_device_make(device);
        if (result == CUDA_SUCCESS)
            result = flyt_resume_mark(device, &device->base);
        if (result != CUDA_SUCCESS)
            return result;
    }
    session->resume.state = FLYT_RESUME_UNDER_WAY;
    session->resume.steps.marked_ns = flyt_clock_ns();
    session->resume.steps.first_call = call->sequence;
    return CUDA_SUCCESS;
}

CUresult flyt_serve_session_resume_fail(struct flyt_call *call, const flyt_session_resume_fail_args *args,
                                        flyt_session_resume_fail_res *res)
{
    struct flyt_session *session = call->session;
    if (session->resume.state != FLYT_RESUME_UNDER_WAY)
        return CUDA_ERROR_NOT_PERMITTED;
    session->resume.state = FLYT_RESUME_FAILED;
    snprintf(session->end_reason, sizeof session->end_reason, "its program cannot go on at the new server: %.400s",
             args->reason);
    for (char *one = session->end_reason; *one; one++)
        if (iscntrl((unsigned char)*one))
            *one = ' ';
    flyt_warn("session %s: %s", session->label, session->end_reason);
    /* Before the client comes back to its node, which asks then why. */
    const struct flyt_manager_link_prepared prepared = {.outcome = -EIO};
    if (session->manager)
        flyt_manager_tell(session->manager, FLYT_MANAGER_LINK_PREPARED, &prepared, sizeof prepared, session->end_reason,
                          NULL, 0);
    return CUDA_SUCCESS;
}

CUresult flyt_serve_memory_restore(struct flyt_call *call, const flyt_memory_restore_args *args,
                                   flyt_memory_restore_res *res)
{
    struct flyt_device *device;
    if (call->session->resume.state != FLYT_RESUME_UNDER_WAY)
        return CUDA_ERROR_NOT_PERMITTED;
    if (args->addresses.addresses_len != args->sizes.sizes_len)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = flyt_session_use_device(call->session, args->device, &device);
    for (u_int i = 0; i < args->sizes.sizes_len && result == CUDA_SUCCESS; i++)
        result = flyt_memory_restore(device, args->addresses.addresses_val[i], args->sizes.sizes_val[i]);
    return result;
}

/* ---- the end ---- */

struct end_job {
    struct flyt_job job;
    uint64_t next_sequence; /* the session goes on behind it */
    struct flyt_fence_set work;
    bool is_marked, is_compared;
};

/* All calls of the resumption, and all that they gave to the GPU, memory's clearing included. */
static CUresult wait_for_all(struct end_job *self)
{
    struct flyt_session *session = self->job.session;
    if (session->defer.first || session->jobs.first != &self->job || self->job.next)
        return CUDA_ERROR_NOT_READY;
    if (!self->is_marked) {
        CUresult result = flyt_stream_mark_busy(session, NULL, &self->work);
        if (result != CUDA_SUCCESS)
            return result;
        self->is_marked = true;
    }
    CUresult result = flyt_fence_set_poll(&self->work);
    if (result != CUDA_SUCCESS)
        return result;
    flyt_session_poll_streams(session);
    return session->busy_first ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static void renumber(struct flyt_session *session, uint64_t sequence)
{
    session->received_sequence = session->told_sequence = sequence;
    for (unsigned i = 0; i < session->device_count; i++) {
        struct flyt_device *device = &session->devices[i];
        device->memory->need.state = FLYT_NEED_NONE;
        device->memory->need.sequence = device->memory->attempt = 0;
        for (struct flyt_stream *stream = device->streams_first; stream; stream = stream->device_next)
            flyt_stream_renumber(stream, sequence);
    }
    flyt_progress_writer_renumber(session, sequence);
    flyt_execution_renumber(session, sequence);
}

/* Whether the client has made again what the program had, as the state says that was brought here. */
static bool has_all(struct flyt_session *session)
{
    const struct flyt_prepare *prepare = session->prepare;
    struct flyt_error err;
    int status = 0;
    if (session->move->is_whole || !prepare->has_state)
        return true;
    if (prepare->has_counts)
        status = flyt_counts_compare(session, &prepare->counts, &prepare->tallies, &err);
    if (!status && prepare->has_settings)
        status = flyt_settings_compare(session, &prepare->settings, &err);
    if (!status)
        return true;
    flyt_warn("session %s: does not go on here: %s", session->label, err.text);
    return false;
}

/* Whether it is to wait until its VM's other sessions are as far. */
static bool is_to_wait(struct flyt_session *session)
{
    if (!session->resume.is_held)
        return false;
    if (!atomic_exchange(&session->resume.is_whole, true)) {
        session->resume.steps.whole_ns = flyt_clock_ns();
        flyt_report_send(session);
    }
    return true;
}

bool flyt_resume_let_go(struct flyt_session *session)
{
    bool was_held = session->resume.is_held;
    session->resume.is_held = false;
    return was_held;
}

static CUresult end_advance(struct flyt_job *job)
{
    struct end_job *self = (struct end_job *)job;
    struct flyt_session *session = job->session;
    if (session->fatal != CUDA_SUCCESS)
        return session->fatal;
    CUresult result = wait_for_all(self);
    if (result == CUDA_SUCCESS && !self->is_compared && !has_all(session))
        result = CUDA_ERROR_INVALID_VALUE;
    self->is_compared |= result == CUDA_SUCCESS;
    bool is_waiting = result == CUDA_SUCCESS && is_to_wait(session);
    job->needs_poll = !is_waiting; /* a kick comes with the order */
    if (is_waiting)
        return CUDA_ERROR_NOT_READY;
    for (unsigned i = 0; i < session->device_count && result == CUDA_SUCCESS && !session->move->is_whole; i++)
        result = flyt_memory_settle_adopted(&session->devices[i]);
    if (result == CUDA_SUCCESS)
        renumber(session, self->next_sequence);
    return result;
}

static unsigned long long us_between(uint64_t begin_ns, uint64_t end_ns)
{
    return begin_ns && end_ns > begin_ns ? (end_ns - begin_ns) / 1000 : 0;
}

/* One line, with all steps from SESSION on, one behind the other; of one that has come back there are the last ones. */
static void log_steps(const struct flyt_session *session, uint64_t sequence)
{
    const struct flyt_resume_steps *steps = &session->resume.steps;
    flyt_info("session %s: goes on, client_pid=%d program=%s sequence=%llu ledgers_us=%llu contexts_us=%llu "
              "extents_us=%llu extents=%u client_us=%llu begin_us=%llu objects_us=%llu calls=%llu adopted=%u loaded=%u "
              "locked_ahead=%u locked=%u whole_us=%llu end_us=%llu",
              session->label, (int)session->client_pid, session->client_name, (unsigned long long)sequence,
              us_between(steps->session_ns, steps->ledgers_ns), us_between(steps->ledgers_ns, steps->contexts_ns),
              us_between(steps->contexts_ns, steps->extents_ns),
              session->manager ? (unsigned)atomic_load(&session->manager->extent_count) : 0,
              us_between(steps->extents_ns, steps->begin_ns), us_between(steps->begin_ns, steps->marked_ns),
              us_between(steps->marked_ns, steps->end_ns), (unsigned long long)(steps->last_call - steps->first_call),
              steps->adopted_count, steps->loaded_count, steps->locked_ahead_count, steps->locked_count,
              us_between(steps->end_ns, steps->whole_ns),
              us_between(steps->whole_ns ? steps->whole_ns : steps->end_ns, flyt_clock_ns()));
}

static void end_finish(struct flyt_job *job, CUresult result)
{
    struct flyt_session *session = job->session;
    session->resume.state = result == CUDA_SUCCESS    ? FLYT_RESUME_NONE
                            : session->move->is_whole ? FLYT_RESUME_LEFT
                                                      : FLYT_RESUME_UNDER_WAY;
    atomic_store(&session->resume.is_whole, false);
    if (result == CUDA_SUCCESS) {
        flyt_prepare_end(session);
        flyt_session_region_resumed(session);
        flyt_replaceable_go_on(session);
    }
    if (result == CUDA_SUCCESS && session->move->is_whole)
        flyt_move_returned(session);
    if (result == CUDA_SUCCESS)
        log_steps(session, ((struct end_job *)job)->next_sequence);
    flyt_job_reply(job, result);
}

static void end_free(struct flyt_job *job)
{
    struct end_job *self = (struct end_job *)job;
    flyt_fence_set_fini(&self->work);
    free(self);
}

static const struct flyt_job_ops end_ops = {end_advance, end_finish, end_free};

/* Whether what is here is what there was behind this call. A session may have gone on where it left, and have ended
 * there: then its program knows more than the state that was brought here. */
static bool is_behind(const struct flyt_session *session, uint64_t sequence)
{
    const struct flyt_prepare *prepare = session->prepare;
    if (sequence > FLYT_RESUME_SEQUENCE_MAX)
        return false;
    if (session->resume.state == FLYT_RESUME_LEFT)
        return sequence == session->move->sequence;
    if (!prepare->has_state || sequence == prepare->sequence)
        return true;
    flyt_warn("session %s: its program is to go on behind call %llu, and what was brought here is what there was "
              "behind call %llu",
              session->label, (unsigned long long)sequence, (unsigned long long)prepare->sequence);
    return false;
}

CUresult flyt_serve_session_resume_end(struct flyt_call *call, const flyt_session_resume_end_args *args,
                                       flyt_session_resume_end_res *res)
{
    struct flyt_session *session = call->session;
    if (session->resume.state != FLYT_RESUME_UNDER_WAY && session->resume.state != FLYT_RESUME_LEFT)
        return CUDA_ERROR_NOT_PERMITTED;
    if (!is_behind(session, args->sequence))
        return CUDA_ERROR_INVALID_VALUE;
    struct end_job *self = calloc(1, sizeof *self);
    if (!self)
        return CUDA_ERROR_OUT_OF_MEMORY;
    self->next_sequence = args->sequence;
    session->resume.state = FLYT_RESUME_ENDING;
    session->resume.steps.end_ns = flyt_clock_ns();
    session->resume.steps.last_call = call->sequence - 1;
    flyt_job_start(&self->job, &end_ops, call, NULL);
    return FLYT_CALL_STARTED;
}
