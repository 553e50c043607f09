/*
 * Events that processes of one VM share (event_share.h): who makes one has its page, which whoever shows the token gets
 * of the node manager. The driver's own IPC events are not used: they are for processes of one user, and know no VM.
 */
#include <stdlib.h>
#include <string.h>

#include "cpu/server/core/call.h"
#include "cpu/server/core/event.h"
#include "cpu/server/core/event_share.h"
#include "cpu/server/core/manager.h"
#include "cpu/server/core/session.h"
#include "cpu/server/cuda/ipc_question.h"
#include "flyt_serve.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"
#include "rpc/base/shared_event.h"

_Static_assert((int)FLYT_EVENT_TOKEN_BYTES == (int)FLYT_MANAGER_LINK_TOKEN_BYTES, "a token");

void flyt_ipc_tell_event(struct flyt_session *session, const struct flyt_shared_event *page,
                         const struct flyt_manager_link_shared *shared)
{
    int fd, status = flyt_shared_event_descriptor(page, &fd);
    if (status) {
        flyt_warn("session %s: an event cannot be shared: %s", session->label, strerror(-status));
        return;
    }
    flyt_manager_tell(session->manager, FLYT_MANAGER_LINK_EVENT_EXPORT, shared, sizeof *shared, NULL, &fd, 1);
    flyt_close(fd);
}

static struct flyt_manager_link_shared shared_of(const unsigned char *token)
{
    struct flyt_manager_link_shared shared = {0};
    memcpy(shared.token, token, sizeof shared.token);
    return shared;
}

void flyt_ipc_tell_events(struct flyt_session *session)
{
    for (const struct flyt_event_share *share = session->event_shares; share; share = share->next)
        if (share->event) {
            struct flyt_manager_link_shared shared = shared_of(share->token);
            shared.is_restored = !share->is_exported;
            flyt_ipc_tell_event(session, share->page, &shared);
        }
}

static void tell_gone(struct flyt_session *session, const struct flyt_manager_link_shared *shared)
{
    flyt_manager_tell(session->manager, FLYT_MANAGER_LINK_EXPORT_GONE, shared, sizeof *shared, NULL, NULL, 0);
}

static void share_ended(const struct flyt_event_share *share)
{
    const struct flyt_manager_link_shared shared = shared_of(share->token);
    tell_gone(share->session, &shared);
}

/* The page that came is the event's. */
static CUresult begin(const struct flyt_ipc_question *self)
{
    struct flyt_event *event = flyt_session_find_event(self->job.session, self->id);
    struct flyt_shared_event *page;
    if (!event || event->share)
        return CUDA_ERROR_INVALID_HANDLE;
    if (self->fd < 0 || flyt_shared_event_open(self->fd, &page))
        return CUDA_ERROR_OUT_OF_MEMORY;
    bool is_exported = self->kind == FLYT_MANAGER_LINK_EVENT_EXPORT;
    CUresult result = flyt_event_share_begin(event, page, self->shared.token, is_exported);
    if (result != CUDA_SUCCESS)
        flyt_shared_event_close(page);
    else
        event->share->ended = share_ended;
    return result;
}

static CUresult advance(struct flyt_job *job)
{
    const struct flyt_ipc_question *self = (const struct flyt_ipc_question *)job;
    CUresult result = flyt_ipc_answer_of(self);
    if (result == CUDA_ERROR_INVALID_HANDLE && self->shared.is_restored) /* of an older node manager */
        return CUDA_SUCCESS;
    if (result != CUDA_SUCCESS)
        return result;
    result = begin(self);
    if (result != CUDA_SUCCESS)
        tell_gone(job->session, &self->shared);
    return result;
}

static void finish(struct flyt_job *job, CUresult result)
{
    flyt_job_reply(job, result);
}

static const struct flyt_job_ops ops = {advance, finish, flyt_ipc_question_free};

/* NULL, and *ret_result: it cannot be asked. */
static struct flyt_ipc_question *question_of(const struct flyt_call *call, const struct flyt_event *event,
                                             enum flyt_manager_link_kind kind, const unsigned char *token,
                                             CUresult *ret_result)
{
    *ret_result = !call->session->manager ? CUDA_ERROR_NOT_SUPPORTED
                  : event->share          ? CUDA_ERROR_INVALID_HANDLE
                                          : CUDA_SUCCESS;
    struct flyt_ipc_question *self = *ret_result == CUDA_SUCCESS ? calloc(1, sizeof *self) : NULL;
    if (!self) {
        *ret_result = *ret_result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : *ret_result;
        return NULL;
    }
    self->kind = kind;
    self->id = event->object.id;
    self->shared = shared_of(token);
    return self;
}

static CUresult ask(struct flyt_ipc_question *self, struct flyt_call *call)
{
    flyt_ipc_start(self, &ops, call);
    flyt_ipc_ask(self);
    return FLYT_CALL_STARTED;
}

CUresult flyt_serve_ipc_event_export(struct flyt_call *call, const flyt_ipc_event_export_args *args,
                                     struct flyt_event *event, flyt_ipc_event_export_res *res)
{
    CUresult result;
    struct flyt_ipc_question *self =
        question_of(call, event, FLYT_MANAGER_LINK_EVENT_EXPORT, (const unsigned char *)args->token, &result);
    if (!self)
        return result;
    int status = flyt_shared_event_new(&self->page);
    if (status) {
        flyt_warn("session %s: no page for an event: %s", call->session->label, strerror(-status));
        free(self);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return ask(self, call);
}

CUresult flyt_serve_ipc_event_import(struct flyt_call *call, const flyt_ipc_event_import_args *args,
                                     struct flyt_event *event, flyt_ipc_event_import_res *res)
{
    CUresult result;
    struct flyt_ipc_question *self =
        question_of(call, event, FLYT_MANAGER_LINK_EVENT_IMPORT, (const unsigned char *)args->token, &result);
    if (!self)
        return result;
    self->shared.is_restored = args->is_restored != 0;
    return ask(self, call);
}
