#include "cpu/server/move.h"

#include "cpu/server/call.h"
#include "cpu/server/session.h"
#include "flyt_serve.h"

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
