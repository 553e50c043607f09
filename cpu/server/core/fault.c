/* How a session's calls fail, and the session with them. */
#include <stdio.h>
#include <string.h>

#include "cpu/server/core/progress.h"
#include "cpu/server/core/session.h"
#include "rpc/api/fatal.h"
#include "rpc/base/log.h"

/* One is about to be handed to the connection. */
static void count_error(struct flyt_session *session)
{
    flyt_page_count_error(&session->progress_writer);
    flyt_execution_count_error(session);
}

/* From here on no progress is made: what is told to be completed stays what it was (flyt_session_progress). */
static void set_fatal(struct flyt_session *session, CUresult result)
{
    session->fatal_completed = flyt_session_progress(session).completed;
    session->fatal = result;
}

static void end_context(struct flyt_session *session, CUresult result, const char *cause)
{
    set_fatal(session, result);
    session->is_scan_due = true;
    for (unsigned i = 0; (*session->parts)[i]; i++)
        if ((*session->parts)[i]->fatal)
            (*session->parts)[i]->fatal(session);
    /* What there was to say before of the session's end (session_resume_fail) is not the cause of this. */
    char told[sizeof session->end_reason] = "";
    if (session->manager && session->is_mps)
        flyt_manager_ask_cause(session->manager, result, session->busy_first || session->has_coredump, cause, told,
                               sizeof told);
    if (*told) {
        memcpy(session->end_reason, told, sizeof told);
        cause = told;
    }
    flyt_warn("session %s: the context is lost, client_pid=%d program=%s cuda_result=%d: %s", session->label,
              (int)session->client_pid, session->client_name, (int)result, cause);
    if (session->connection) {
        char text[FLYT_STRING_BYTES_MAX + 1];
        flyt_print_flush(session);
        snprintf(text, sizeof text, "%s%s%s", cause, *session->fatal_note ? "; " : "", session->fatal_note);
        flyt_back_fatal back = {.result = (int)result, .cause = text};
        count_error(session);
        flyt_connection_call_back(session->connection, FLYT_BACK_FATAL, (xdrproc_t)xdr_flyt_back_fatal, &back);
    }
}

CUresult flyt_session_check(struct flyt_session *session, CUresult result)
{
    const char *cause = flyt_fatal_cause(result);
    if (session->fatal == CUDA_SUCCESS && cause)
        end_context(session, result, cause);
    return result;
}

/* cuda.h numbers the errors of stream capture from 900 to 908. */
static bool is_of_capture(CUresult result)
{
    return result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

CUresult flyt_session_check_work(struct flyt_session *session, CUresult result)
{
    bool is_answer = result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY || is_of_capture(result);
    if (is_answer || session->fatal != CUDA_SUCCESS)
        return result;
    char unknown[128];
    const char *cause = flyt_fatal_cause(result);
    snprintf(unknown, sizeof unknown, "the driver does not tell any more what the GPU's work has come to: error %d",
             (int)result);
    end_context(session, result, cause ? cause : unknown);
    return result;
}

bool flyt_session_may_work(CUresult result)
{
    /* MPS ends a client's work with the client. */
    return result != CUDA_SUCCESS && result != CUDA_ERROR_MPS_CLIENT_TERMINATED && !flyt_fatal_is(result);
}

void flyt_session_kill(struct flyt_session *session, const char *sentence)
{
    session->is_ended = session->is_killed = true;
    if (!*session->end_reason)
        snprintf(session->end_reason, sizeof session->end_reason, "%s", sentence);
    if (session->fatal != CUDA_SUCCESS || !session->connection)
        return;
    set_fatal(session, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    flyt_print_flush(session);
    flyt_back_fatal back = {.result = (int)session->fatal, .cause = session->end_reason};
    count_error(session);
    flyt_connection_call_back(session->connection, FLYT_BACK_FATAL, (xdrproc_t)xdr_flyt_back_fatal, &back);
}

void flyt_session_call_error(struct flyt_session *session, uint64_t sequence, uint32_t thread, CUresult result)
{
    flyt_session_check(session, result);
    flyt_back_call_error back = {.sequence = sequence, .thread = thread, .result = (int)result};
    count_error(session);
    flyt_connection_call_back(session->connection, FLYT_BACK_CALL_ERROR, (xdrproc_t)xdr_flyt_back_call_error, &back);
}

/* The kernel's keepalive says so; watch.c, where the client owes an answer. */
void flyt_session_end_vanished(struct flyt_session *session)
{
    session->is_ended = true;
    snprintf(session->end_reason, sizeof session->end_reason, "the client did not answer any more");
    flyt_warn("session %s: the client does not answer any more, client_pid=%d program=%s", session->label,
              (int)session->client_pid, session->client_name);
}
