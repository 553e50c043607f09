#include "cpu/server/core/resume_state.h"

#include "cpu/server/core/session.h"
#include "cpu/server/core/stream.h"

enum {
    MARK_TRIES = 8,
    MARK_CLOSE_NS = 100000, /* one that took no more is not tried again */
};

CUresult flyt_resume_mark(struct flyt_device *device, struct flyt_resume_base *ret_base)
{
    struct flyt_session *session = device->session;
    struct flyt_resume_base base = {0};
    uint64_t best_ns = UINT64_MAX;
    for (unsigned i = 0; i < MARK_TRIES && best_ns > MARK_CLOSE_NS; i++) {
        struct flyt_fence *fence = NULL;
        uint64_t before_ns = session->clock_ns();
        CUresult result = flyt_fence_record(device->legacy, true, &fence);
        if (result == CUDA_SUCCESS)
            result = session->driver->cuStreamSynchronize(device->legacy->cu_stream);
        uint64_t took_ns = session->clock_ns() - before_ns;
        if (result != CUDA_SUCCESS) {
            flyt_fence_unref(fence);
            flyt_fence_unref(base.fence);
            return result;
        }
        if (took_ns < best_ns) {
            best_ns = took_ns;
            flyt_fence_unref(base.fence);
            base = (struct flyt_resume_base){flyt_fence_ref(fence), before_ns + took_ns / 2};
        }
        flyt_fence_unref(fence);
    }
    *ret_base = base;
    return CUDA_SUCCESS;
}
