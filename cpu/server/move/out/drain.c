#include "cpu/server/move/out/drain.h"

#include <errno.h>

#include "cpu/server/move/out/send_all.h"
#include "cpu/server/core/session.h"
#include "cpu/server/core/stream.h"
#include "cpu/server/bulk/transfer.h"
#include "cpu/server/cuda/coredump.h"
#include "cpu/server/share/time_slice.h"

/* Something waits at the gate of a device whose VM gives nothing to the GPU. */
static bool is_held_back(const struct flyt_session *session)
{
    for (unsigned i = 0; i < session->device_count; i++)
        if (session->devices[i].time_slice_gate.is_suspended && session->devices[i].time_slice->is_wanted)
            return true;
    return false;
}

/* Work of streams: that of stopped calls, of memory's clearing, and of what other devices do for a stream. */
static CUresult poll_work(struct flyt_session *session, struct flyt_drain *drain)
{
    CUresult result = CUDA_SUCCESS;
    if (!drain->is_marked)
        result = flyt_stream_mark_busy(session, NULL, &drain->work);
    drain->is_marked = result == CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        result = flyt_fence_set_poll(&drain->work);
    if (result != CUDA_SUCCESS)
        return result;
    flyt_fence_set_fini(&drain->work); /* what may have come since then is marked in its turn */
    drain->is_marked = false;
    flyt_session_poll_streams(session);
    return session->busy_first ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

int flyt_drain_advance(struct flyt_session *session, struct flyt_drain *drain, struct flyt_error *err)
{
    if (session->fatal == CUDA_SUCCESS && (session->defer.first || session->jobs.first)) {
        drain->ended_ns = 0;
        return is_held_back(session)
                   ? flyt_error_set(err, -EBUSY, "its VM is suspended, and calls of the program wait for that")
                   : -EAGAIN;
    }
    CUresult result = session->fatal == CUDA_SUCCESS ? poll_work(session, drain) : session->fatal;
    flyt_session_check(session, result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY)
        return flyt_error_set(err, -EIO, "the GPU's work for the program has failed, cuda_result=%d", (int)result);
    if (result == CUDA_ERROR_NOT_READY || !flyt_transfers_are_over(session)) {
        drain->ended_ns = 0;
        return -EAGAIN;
    }
    drain->ended_ns = drain->ended_ns ? drain->ended_ns : session->clock_ns();
    if (flyt_coredump_may_come(session, session->clock_ns() - drain->ended_ns))
        return -EAGAIN;
    /* A notice that was on its way when the program stopped is answered, too. */
    if (session->send_all->is_known && session->send_all->answered != session->send_all->asked)
        return -EAGAIN;
    flyt_print_flush(session);
    if (session->fatal != CUDA_SUCCESS)
        return flyt_error_set(err, -EIO, "what kernels printed cannot be had, cuda_result=%d", (int)session->fatal);
    flyt_progress_writer_write(session);
    session->is_notice_due = true;
    return 0;
}

void flyt_drain_end(struct flyt_drain *drain)
{
    flyt_fence_set_fini(&drain->work);
    *drain = (struct flyt_drain){0};
}
