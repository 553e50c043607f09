#include "cpu/server/move.h"

#include <errno.h>

#include "cpu/server/call.h"
#include "cpu/server/session.h"
#include "flyt_procedures.h"
#include "flyt_serve.h"
#include "rpc/base/descriptors.h"

void flyt_move_attach(struct flyt_session *session, const flyt_handshake_res *res)
{
    bool is_known = false;
    for (unsigned i = 0; i < res->accepted.accepted_len; i++)
        is_known |= res->accepted.accepted_val[i] == FLYT_SESSION_STOPPED;
    atomic_store(&session->move.is_known, is_known);
}

void flyt_move_order(struct flyt_session *session, const struct flyt_move_order *order, int fd)
{
    const struct flyt_server_link_move_state state = {
        .move_id = order->move.move_id, .phase = FLYT_SERVER_LINK_MOVE_REFUSED, .outcome = -ENOSYS};
    flyt_close(fd);
    if (order->kind == FLYT_SERVER_LINK_MOVE)
        flyt_manager_tell(session->manager, FLYT_SERVER_LINK_MOVE_STATE, &state, sizeof state,
                          "this server cannot move a running session", NULL, 0);
}

void flyt_move_link_ended(struct flyt_session *session)
{
}

bool flyt_move_advance(struct flyt_session *session)
{
    return false;
}

CUresult flyt_serve_session_stopped(struct flyt_call *call, const flyt_session_stopped_args *args)
{
    struct flyt_move *self = &call->session->move;
    /* Each notice is answered once, in their order: anything else answers none. */
    if (args->number > self->answered && args->number <= self->asked) {
        self->answered = args->number;
        self->sequence = call->sequence;
    }
    return CUDA_SUCCESS;
}

CUresult flyt_serve_session_is_whole(struct flyt_call *call, const flyt_session_is_whole_args *args,
                                     flyt_session_is_whole_res *res)
{
    res->is_whole = call->session->move.is_whole;
    return CUDA_SUCCESS;
}
