#include "cpu/server/core/call.h"

#include <stdio.h>

#include "cpu/server/core/progress.h"
#include "cpu/server/core/session.h"
#include "cpu/server/core/stream.h"
#include "rpc/base/log.h"

bool flyt_call_begin(struct flyt_call *call)
{
    struct flyt_session *session = call->session;
    call->row = flyt_procedure_find(call->procedure);
    call->xid = flyt_connection_xid(session->connection);
    const struct flyt_deferred *dispatched = session->defer.dispatched;
    if (dispatched) {
        call->sequence = dispatched->sequence;
    } else {
        call->sequence = ++session->received_sequence;
        flyt_session_count(&session->call_count, session->resume.state == FLYT_RESUME_NONE);
        /* A query does not wait, but finds that calls naming its stream do. */
        if (session->fatal == CUDA_SUCCESS && !call->row->is_at_once && flyt_defer_must_wait(call)) {
            flyt_defer_add(call);
            return false;
        }
    }
    flyt_execution_begin(call);
    return true;
}

/* Whether the call may be made now, in a session that is to go on here. A call that came between session_resume_end and
 * its answer ends the session. */
static CUresult permits(struct flyt_session *session, const struct flyt_procedure *row)
{
    switch (session->resume.state) {
    case FLYT_RESUME_AWAITED:
        return row->resume_states & FLYT_WHILE_AWAITED ? CUDA_SUCCESS : CUDA_ERROR_NOT_PERMITTED;
    case FLYT_RESUME_LEFT:
        return row->resume_states & FLYT_WHILE_LEFT ? CUDA_SUCCESS : CUDA_ERROR_NOT_PERMITTED;
    case FLYT_RESUME_FAILED:
        return CUDA_ERROR_NOT_PERMITTED;
    case FLYT_RESUME_ENDING:
        if (session->defer.dispatched) /* it came before */
            return CUDA_SUCCESS;
        if (!session->is_ended)
            snprintf(session->end_reason, sizeof session->end_reason,
                     "bad message: a call before the session has gone on");
        session->is_ended = true;
        return CUDA_ERROR_NOT_PERMITTED;
    default:
        return CUDA_SUCCESS;
    }
}

CUresult flyt_call_result(const struct flyt_call *call)
{
    struct flyt_session *session = call->session;
    if (session->fatal != CUDA_SUCCESS)
        return session->fatal;
    return session->resume.state == FLYT_RESUME_NONE ? CUDA_SUCCESS : permits(session, call->row);
}

void flyt_call_count(struct flyt_call *call)
{
    struct flyt_stream *stream = call->stream;
    if (!stream || ++stream->executed_calls % (FLYT_STREAM_CREDIT_CALLS / 4))
        return;
    flyt_back_credit credit = {.stream_id = stream->object.id, .executed_calls = stream->executed_calls};
    flyt_connection_call_back(call->session->connection, FLYT_BACK_CREDIT, (xdrproc_t)xdr_flyt_back_credit, &credit);
    flyt_progress progress = flyt_session_progress(call->session);
    flyt_connection_call_back(call->session->connection, FLYT_BACK_PROGRESS, (xdrproc_t)xdr_flyt_progress, &progress);
    call->session->told_sequence = call->session->received_sequence;
}

bool_t flyt_call_end(struct flyt_call *call, CUresult result, int *ret_result, flyt_progress *ret_progress)
{
    if (result == FLYT_CALL_RETRY) {
        flyt_defer_add(call);
        return FALSE;
    }
    flyt_call_count(call);
    flyt_execution_end(call);
    if (result == FLYT_CALL_STARTED)
        return FALSE;
    flyt_progress_writer_write(call->session);
    flyt_execution_write(call->session);
    *ret_result = (int)flyt_session_check(call->session, result);
    *ret_progress = flyt_session_progress(call->session);
    call->session->is_notice_due = false;
    return TRUE;
}

bool_t flyt_call_end_oneway(struct flyt_call *call, CUresult result)
{
    call->session->is_notice_due = true;
    if (result == FLYT_CALL_RETRY) {
        flyt_defer_add(call);
        return FALSE;
    }
    flyt_call_count(call);
    if (result != CUDA_SUCCESS && result != FLYT_CALL_STARTED)
        flyt_session_call_error(call->session, call->sequence, call->thread, result);
    flyt_execution_end(call);
    return FALSE;
}

struct flyt_stream *flyt_session_find_stream(struct flyt_session *session, uint64_t id)
{
    if (flyt_id_type(id) != FLYT_ID_STREAM)
        return NULL;
    struct flyt_stream *stream = flyt_idtable_find(&session->objects.tables[FLYT_OBJECTS_STREAM], flyt_id_number(id));
    if (stream || flyt_id_number(id) >= FLYT_ID_STREAM_FIRST || !flyt_id_number(id))
        return stream;
    /* A legacy default stream exists from the start, but it is made, with its device's context, at its first use. */
    struct flyt_device *device;
    if (flyt_session_use_device(session, (uint32_t)flyt_id_number(id) - 1, &device) != CUDA_SUCCESS)
        return NULL;
    return device->legacy;
}
