#include "cpu/server/move/out/send_all.h"

#include "cpu/server/core/call.h"
#include "cpu/server/move/out/move.h"
#include "cpu/server/core/session.h"
#include "flyt_serve.h"
#include "rpc/transport/handshake.h"

void flyt_send_all_init(struct flyt_send_all *self, const flyt_handshake_res *res)
{
    self->is_known = flyt_handshake_accepts(res, FLYT_SESSION_ALL_SENT);
}

uint64_t flyt_send_all_ask(struct flyt_session *session)
{
    struct flyt_send_all *self = session->send_all;
    /* The answer is a call: it has no place among those that make a session's objects again. */
    if (!self->is_known || flyt_move_has_stopped(session->move) || session->resume.state != FLYT_RESUME_NONE ||
        !flyt_session_can_tell(session))
        return 0;
    flyt_back_send_all back = {.number = ++self->asked};
    flyt_connection_call_back(session->connection, FLYT_BACK_SEND_ALL, (xdrproc_t)xdr_flyt_back_send_all, &back);
    return self->asked;
}

bool flyt_send_all_is_answered(const struct flyt_session *session, uint64_t number, uint64_t *ret_sequence)
{
    const struct flyt_send_all *self = session->send_all;
    if (self->answered < number)
        return false;
    *ret_sequence = self->sequence;
    return true;
}

CUresult flyt_serve_session_all_sent(struct flyt_call *call, const flyt_session_all_sent_args *args)
{
    struct flyt_send_all *self = call->session->send_all;
    /* Each notice is answered once, in their order: anything else answers none. */
    if (args->number > self->answered && args->number <= self->asked) {
        self->answered = args->number;
        self->sequence = call->sequence;
    }
    return CUDA_SUCCESS;
}
