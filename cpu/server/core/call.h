/*
 * What the generated server stubs (flyt_serve.c) do around each handler: count the call, defer it where it has to wait,
 * answer it or tell its error.
 *
 * A handler returns the call's CUresult, or one of the two codes below.
 */
#ifndef FLYT_SERVER_CALL_H
#define FLYT_SERVER_CALL_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "cpu/server/core/event.h"
#include "cpu/server/core/job.h"
#include "cpu/server/core/defer.h"
#include "cpu/server/core/stream.h"
#include "flyt.h"
#include "flyt_objects.h"
#include "flyt_procedures.h"

/*
 * What a handler says beside a result; outside of CUresult's values.
 *   FLYT_CALL_STARTED  a job was started for the call (job.h): it replies later, or, without a reply, goes on by itself
 *   FLYT_CALL_RETRY    nothing was done: the call is deferred (defer.h), and its handler called again
 */
#define FLYT_CALL_STARTED ((CUresult)-1)
#define FLYT_CALL_RETRY   ((CUresult)-2)

struct flyt_session;

struct flyt_call {
    struct flyt_session *session;
    uint64_t sequence;
    uint32_t thread; /* of the client: who hears of an error */
    uint32_t xid;
    uint32_t procedure;
    const struct flyt_procedure *row; /* what is known of it */
    struct flyt_stream *stream; /* in which the call is counted: the first that it names; NULL: none, or it ends it */
    const struct flyt_handle *handles; /* those of its arguments by which it may have to wait, new ones too (defer.h) */
    unsigned handle_count;
};

/*
 * Begins the dispatch of a call, of which the stub has filled in session, thread, procedure and what it names:
 * gives it its xid and its sequence number, or, when a deferred call is dispatched again, the one that it had.
 * False: the call was deferred, and no reply is to be sent.
 */
bool flyt_call_begin(struct flyt_call *call);

/* CUDA_SUCCESS; the code that every call returns since the context was lost; or CUDA_ERROR_NOT_PERMITTED: the session
 * is one that goes on, and the call is none for that (resume.h). */
CUresult flyt_call_result(const struct flyt_call *call);

/* End a dispatch. TRUE: rpcgen's dispatch sends the reply, whose result and progress are filled in; FALSE: it does not
 * (the call has no reply, or is deferred, or deferred). */
bool_t flyt_call_end(struct flyt_call *call, CUresult result, int *ret_result, flyt_progress *ret_progress);
bool_t flyt_call_end_oneway(struct flyt_call *call, CUresult result);

/*
 * What a handler says whose table returns another type than CUDA's: its status goes into the reply beside the result,
 * which is then CUDA_SUCCESS, and a success of nothing but the session. Without a reply (ret_status NULL) a status that
 * is no success is CUDA_ERROR_UNKNOWN. STARTED and RETRY stay what they are.
 */
static inline CUresult flyt_call_status(int status, int success, int *ret_status)
{
    if (status == (int)FLYT_CALL_STARTED || status == (int)FLYT_CALL_RETRY)
        return (CUresult)status;
    if (!ret_status)
        return status == success ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
    *ret_status = status;
    return CUDA_SUCCESS;
}

/* Counts a call that a stream has executed and credits the client. */
void flyt_call_count(struct flyt_call *call);

#endif
