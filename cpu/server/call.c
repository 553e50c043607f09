#include "cpu/server/call.h"

#include "cpu/server/session.h"
#include "rpc/base/log.h"

bool flyt_call_begin(struct flyt_call *call, struct svc_req *req, uint32_t thread, const uint64_t *ids,
                     unsigned id_count, bool is_after_all)
{
    struct flyt_connection *connection = flyt_connection_of(req->rq_xprt);
    struct flyt_session *session = flyt_connection_user(req->rq_xprt);
    *call = (struct flyt_call){.session = session,
                               .thread = thread,
                               .xid = flyt_connection_xid(connection),
                               .procedure = req->rq_proc,
                               .id_count = id_count,
                               .is_after_all = is_after_all};
    memcpy(call->ids, ids, id_count * sizeof *ids);
    const struct flyt_parked *dispatched = session->park.dispatched;
    if (dispatched) {
        call->sequence = dispatched->sequence;
    } else {
        call->sequence = ++session->received_sequence;
        flyt_session_count(&session->call_count, session->resume.state == FLYT_RESUME_NONE);
        /* A query does not wait, but finds that calls naming its stream do. */
        if (session->fatal == CUDA_SUCCESS && call->procedure != FLYT_STREAM_QUERY &&
            flyt_park_must_wait(session, call->procedure, ids, id_count, is_after_all)) {
            flyt_park_add(call, ids, id_count, is_after_all);
            return false;
        }
    }
    flyt_execution_begin(call);
    for (unsigned i = 0; i < id_count && !call->stream; i++)
        if (flyt_id_type(ids[i]) == FLYT_ID_STREAM)
            call->stream = flyt_session_find_stream(session, ids[i]);
    return true;
}

CUresult flyt_call_result(const struct flyt_call *call)
{
    struct flyt_session *session = call->session;
    if (session->fatal != CUDA_SUCCESS)
        return session->fatal;
    return session->resume.state == FLYT_RESUME_NONE ? CUDA_SUCCESS : flyt_resume_permits(session, call->procedure);
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
    if (result == FLYT_CALL_PARKED) {
        flyt_park_add(call, call->ids, call->id_count, call->is_after_all);
        return FALSE;
    }
    flyt_call_count(call);
    flyt_execution_end(call);
    if (result == FLYT_CALL_DEFERRED)
        return FALSE;
    flyt_page_write(call->session);
    flyt_execution_write(call->session);
    *ret_result = (int)flyt_session_check(call->session, result);
    *ret_progress = flyt_session_progress(call->session);
    call->session->is_notice_due = false;
    return TRUE;
}

bool_t flyt_call_end_oneway(struct flyt_call *call, CUresult result)
{
    call->session->is_notice_due = true;
    if (result == FLYT_CALL_PARKED) {
        flyt_park_add(call, call->ids, call->id_count, call->is_after_all);
        return FALSE;
    }
    flyt_call_count(call);
    if (result != CUDA_SUCCESS && result != FLYT_CALL_DEFERRED)
        flyt_session_call_error(call->session, call->sequence, call->thread, result);
    flyt_execution_end(call);
    return FALSE;
}

struct flyt_stream *flyt_session_find_stream(struct flyt_session *session, uint64_t id)
{
    if (flyt_id_type(id) != FLYT_ID_STREAM)
        return NULL;
    struct flyt_stream *stream = (struct flyt_stream *)flyt_object_find(&session->objects, id);
    if (stream || flyt_id_number(id) >= FLYT_STREAM_NUMBER_FIRST || !flyt_id_number(id))
        return stream;
    /* A legacy default stream exists from the start, but it is made, with its device's context, at its first use. */
    struct flyt_device *device;
    if (flyt_session_use_device(session, (uint32_t)flyt_id_number(id) - 1, &device) != CUDA_SUCCESS)
        return NULL;
    return device->legacy;
}

struct flyt_event *flyt_session_find_event(struct flyt_session *session, uint64_t id)
{
    return flyt_id_type(id) == FLYT_ID_EVENT ? (struct flyt_event *)flyt_object_find(&session->objects, id) : NULL;
}

struct flyt_library *flyt_session_find_library(struct flyt_session *session, uint64_t id)
{
    return flyt_id_type(id) == FLYT_ID_LIBRARY ? (struct flyt_library *)flyt_object_find(&session->objects, id) : NULL;
}

struct flyt_kernel *flyt_session_find_kernel(struct flyt_session *session, uint64_t id)
{
    if (flyt_id_type(id) != FLYT_ID_KERNEL)
        return NULL;
    struct flyt_library *library = flyt_session_find_library(session, flyt_kernel_library_id(id));
    return library ? flyt_library_kernel(library, flyt_kernel_index(id)) : NULL;
}
