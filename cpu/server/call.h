/*
 * What the generated server stubs (flyt_serve.c) do around each handler: count the call, park it where it has to wait,
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

#include "cpu/server/event.h"
#include "cpu/server/job.h"
#include "cpu/server/module.h"
#include "cpu/server/park.h"
#include "cpu/server/stream.h"
#include "flyt.h"

/* Outside of CUresult's values. Deferred: a job replies later (or, without a reply, goes on). Parked: nothing was done
 * yet; the call is kept and its handler called again when its stream can take it. */
#define FLYT_CALL_DEFERRED ((CUresult)-1)
#define FLYT_CALL_PARKED   ((CUresult)-2)

struct flyt_session;

struct flyt_call {
    struct flyt_session *session;
    uint64_t sequence;
    uint32_t thread; /* of the client: who hears of an error */
    uint32_t xid;
    uint32_t procedure;
    struct flyt_stream *stream; /* the first stream that the call names; NULL: none, or destroyed by its handler */
    uint64_t ids[FLYT_CALL_IDS_MAX];
    unsigned id_count;
    bool is_after_all;
};

/*
 * Begins the dispatch of a call: gives it its sequence number, or, when a parked call is dispatched again, the one that
 * it had. ids: the handles among its arguments, new ones too. False: the call was parked, and no reply is to be sent.
 */
bool flyt_call_begin(struct flyt_call *call, struct svc_req *req, uint32_t thread, const uint64_t *ids,
                     unsigned id_count, bool is_after_all);

/* CUDA_SUCCESS; the code that every call returns since the context was lost; or CUDA_ERROR_NOT_PERMITTED: the session
 * is one that goes on, and the call is none for that (resume.h). */
CUresult flyt_call_result(const struct flyt_call *call);

/* End a dispatch. TRUE: rpcgen's dispatch sends the reply, whose result and progress are filled in; FALSE: it does not
 * (the call has no reply, or is deferred, or parked). */
bool_t flyt_call_end(struct flyt_call *call, CUresult result, int *ret_result, flyt_progress *ret_progress);
bool_t flyt_call_end_oneway(struct flyt_call *call, CUresult result);

/* Counts a call that a stream has executed and credits the client. */
void flyt_call_count(struct flyt_call *call);

/* The object of an id of the type, or NULL. */
struct flyt_stream *flyt_session_find_stream(struct flyt_session *session, uint64_t id);
struct flyt_event *flyt_session_find_event(struct flyt_session *session, uint64_t id);
struct flyt_library *flyt_session_find_library(struct flyt_session *session, uint64_t id);
struct flyt_kernel *flyt_session_find_kernel(struct flyt_session *session, uint64_t id);

#endif
