/*
 * Calls whose answer changes the books, for the sources of this library: what the server has done is in the books only
 * when the thread that asked has been told and has written it down. In between the books lack it. So such a thread says
 * that it asks, whoever reads the answer notes at once that it is there, and the thread says when the books have it: a
 * restore waits for those in the middle (flyt_thread_has_answer).
 *
 *     FLYT_ANSWER_CALL(memory_alloc)
 *     status = call_memory_alloc(&args, &res);     instead of flyt_call_memory_alloc(flyt_client.channel, …)
 *     …                                            the books; better without a further call to the server
 *     flyt_answer_end();                           on every path
 */
#ifndef FLYT_CLIENT_ANSWER_H
#define FLYT_CLIENT_ANSWER_H

#include "cpu/client/core/instance.h"
#include "cpu/client/core/thread.h"
#include "flyt_client_calls.h"

/* The calling thread asks; `thread` (NULL: nobody) has got its answer; the calling thread's books have it. */
static inline void flyt_answer_begin(void)
{
    if (flyt_thread_self)
        atomic_store(&flyt_thread_self->answer, FLYT_ANSWER_AWAITED);
}

static inline void flyt_answer_come(struct flyt_thread *thread)
{
    if (thread)
        atomic_store(&thread->answer, FLYT_ANSWER_COME);
}

static inline void flyt_answer_end(void)
{
    if (flyt_thread_self)
        atomic_store(&flyt_thread_self->answer, FLYT_ANSWER_NONE);
}

/* static int call_NAME(flyt_NAME_args *args, flyt_NAME_res *res), of a row without a payload. The routine that decodes
 * the answer is where it is seen first. */
#define FLYT_ANSWER_CALL(name)                                                                                         \
    struct name##_answer {                                                                                             \
        flyt_##name##_res res;                                                                                         \
        struct flyt_thread *thread;                                                                                    \
    };                                                                                                                 \
    static bool_t xdr_##name##_answer(XDR *xdrs, struct name##_answer *answer)                                         \
    {                                                                                                                  \
        if (!xdr_flyt_##name##_res(xdrs, &answer->res))                                                                \
            return FALSE;                                                                                              \
        flyt_answer_come(answer->thread);                                                                              \
        return TRUE;                                                                                                   \
    }                                                                                                                  \
    static int call_##name(flyt_##name##_args *args, flyt_##name##_res *res)                                           \
    {                                                                                                                  \
        struct name##_answer answer = {.thread = flyt_thread_self};                                                    \
        flyt_answer_begin();                                                                                           \
        int status = flyt_call_##name##_into(flyt_client.channel, args, (xdrproc_t)xdr_##name##_answer, &answer);      \
        *res = answer.res;                                                                                             \
        return status;                                                                                                 \
    }

#endif
