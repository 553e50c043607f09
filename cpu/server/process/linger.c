#include "cpu/server/process/linger.h"

#include <time.h>

#include "cpu/server/move/out/copying.h"
#include "cpu/server/share/resize.h"
#include "cpu/server/core/session.h"
#include "cpu/server/core/stream.h"
#include "rpc/base/clock.h"

enum { LOOK_MS = 2 };

static bool has_work(struct flyt_session *session)
{
    if (!session->is_mps)
        return false;
    /* The driver is asked itself: a session that was ended by order counts as faulted in the books, and its kernels run
     * on. After a real fault it says so, whatever it is asked; any other error does not mean that nothing runs. */
    for (unsigned i = 0; i < session->device_count; i++) {
        const struct flyt_device *device = &session->devices[i];
        if (flyt_resize_is_draining(device) || flyt_copying_is_on_gpu(device))
            return true;
        for (const struct flyt_stream *stream = device->streams_first; stream; stream = stream->device_next)
            if (flyt_session_may_work(session->driver->cuStreamQuery(stream->cu_stream)))
                return true;
    }
    return false;
}

bool flyt_linger_wait(struct flyt_session *session, unsigned limit_ms)
{
    const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000l};
    uint64_t until_ms = flyt_clock_ms() + limit_ms;
    while (has_work(session)) {
        if (flyt_clock_ms() >= until_ms)
            return true;
        nanosleep(&pause, NULL);
    }
    return false;
}
