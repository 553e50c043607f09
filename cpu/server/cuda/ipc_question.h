/*
 * What the server asks its node manager of sharing, for a call that is answered then (ipc.h). The submission thread.
 */
#ifndef FLYT_SERVER_IPC_QUESTION_H
#define FLYT_SERVER_IPC_QUESTION_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpu/server/core/job.h"
#include "rpc/transport/manager_link.h"

struct flyt_call;
struct flyt_device;
struct flyt_session;
struct flyt_shared_event;

enum flyt_ipc_state {
    FLYT_IPC_WAITING, /* what is exported is still being cleared: nobody may have it yet */
    FLYT_IPC_ASKED,
    FLYT_IPC_ANSWERED,
};

struct flyt_ipc_question {
    struct flyt_job job;
    struct flyt_ipc_question *next;
    enum flyt_manager_link_kind kind;
    struct flyt_manager_link_shared shared;
    enum flyt_ipc_state state;
    struct flyt_manager_link_shared answer;
    int fd;                         /* that came with the answer */
    struct flyt_shared_event *page; /* of EVENT_EXPORT; else NULL */
    uint64_t id;                    /* of what is made, or shared */
    uint64_t address;               /* that it is asked for, or of */
    struct flyt_device *device;
    uint64_t offset, bytes; /* of the answer to the client */
};

/* Begins a call that asks by flyt_ipc_ask, at once or when it may. The session keeps *self, which was allocated zeroed.
 */
void flyt_ipc_start(struct flyt_ipc_question *self, const struct flyt_job_ops *ops, struct flyt_call *call);
/* Asks; where the node manager is away, when it is back. */
void flyt_ipc_ask(struct flyt_ipc_question *self);
/* The answer as a result; CUDA_ERROR_NOT_READY: it has not come. CUDA_ERROR_INVALID_HANDLE: the token names nothing. */
CUresult flyt_ipc_answer_of(const struct flyt_ipc_question *self);
void flyt_ipc_question_free(struct flyt_job *job);

/* EVENT_EXPORT of the page (ipc_event.c). */
void flyt_ipc_tell_event(struct flyt_session *session, const struct flyt_shared_event *page,
                         const struct flyt_manager_link_shared *shared);
/* The same of all that the session has exported: the node manager is another one. */
void flyt_ipc_tell_events(struct flyt_session *session);

#endif
