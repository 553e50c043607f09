#include "cpu/server/core/execution.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/server/core/call.h"
#include "cpu/server/core/progress.h"
#include "cpu/server/core/session.h"
#include "flyt_serve.h"
#include "flyt_signatures.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/log.h"

void flyt_execution_open(struct flyt_session *session)
{
    struct flyt_execution *self = &session->execution;
    int status = flyt_call_record_new(&self->record, &self->fd);
    self->has_points = getenv(FLYT_FAULT_VARIABLE) != NULL;
    if (status == 0)
        flyt_execution_tell(session);
    else
        flyt_warn("session %s: no call record, calls on their way will not survive this process: %s", session->label,
                  strerror(-status));
}

void flyt_execution_tell(struct flyt_session *session)
{
    const struct flyt_execution *self = &session->execution;
    if (self->record)
        flyt_manager_tell(session->manager, FLYT_MANAGER_LINK_RECORD, NULL, 0, NULL, &self->fd, 1);
}

void flyt_execution_attach(struct flyt_session *session)
{
    struct flyt_execution *self = &session->execution;
    self->error_base = session->progress_writer.error_count;
    if (self->record)
        flyt_call_record_set(&self->record->error_count, 0);
}

/* Where tests end the process: "memory_alloc.begun", say. */
static void pass(const struct flyt_call *call, const char *point)
{
    char name[FLYT_FAULT_NAME_BYTES_MAX + 1];
    if (call->session->resume.state != FLYT_RESUME_NONE)
        return;
    snprintf(name, sizeof name, "%s.%s", flyt_procedure_name(call->procedure), point);
    flyt_fault_point(name);
}

void flyt_execution_begin(const struct flyt_call *call)
{
    const struct flyt_execution *self = &call->session->execution;
    if (!self->record)
        return;
    if (self->has_points)
        pass(call, "received");
    flyt_call_record_begin(self->record, call->sequence);
    if (self->has_points)
        pass(call, "begun");
}

void flyt_execution_end(const struct flyt_call *call)
{
    const struct flyt_session *session = call->session;
    const struct flyt_execution *self = &session->execution;
    if (!self->record)
        return;
    if (self->has_points)
        pass(call, "done");
    /* Where something waits, the loop looks what is left. */
    if (!session->defer.first && !session->jobs.unexecuted_count) {
        flyt_call_record_set(&self->record->executed, session->received_sequence);
        /* What looks like an end after a fatal error is none. */
        if (!session->busy_first && !session->jobs.holding_count && session->fatal == CUDA_SUCCESS)
            flyt_call_record_set(&self->record->completed, session->received_sequence);
    }
    if (self->has_points)
        pass(call, "executed");
}

void flyt_execution_write(struct flyt_session *session)
{
    const struct flyt_execution *self = &session->execution;
    if (!self->record || session->fatal != CUDA_SUCCESS)
        return;
    flyt_progress progress = flyt_session_progress(session);
    flyt_call_record_set(&self->record->executed, progress.executed);
    flyt_call_record_set(&self->record->completed, progress.completed);
}

void flyt_execution_renumber(struct flyt_session *session, uint64_t sequence)
{
    const struct flyt_execution *self = &session->execution;
    if (!self->record)
        return;
    flyt_call_record_set(&self->record->begun, sequence);
    flyt_call_record_set(&self->record->executed, sequence);
    flyt_call_record_set(&self->record->completed, sequence);
}

void flyt_execution_leave(struct flyt_session *session, uint64_t sequence)
{
    struct flyt_execution *self = &session->execution;
    self->has_before = true;
    self->before = (struct flyt_call_state){sequence, sequence, sequence, flyt_execution_error_count(session)};
}

CUresult flyt_serve_session_left_at(struct flyt_call *call, const flyt_session_left_at_args *args,
                                    flyt_session_left_at_res *res)
{
    const struct flyt_execution *self = &call->session->execution;
    res->is_known = self->has_before;
    res->begun = self->before.begun;
    res->executed = self->before.executed;
    res->completed = self->before.completed;
    res->error_count = self->before.error_count;
    return CUDA_SUCCESS;
}
