/* The session's part that shares GPUs with others: in SMs and in time. */
#include "cpu/server/share/share.h"

#include <errno.h>
#include <stdlib.h>

#include "cpu/server/core/time_slice_gate.h"
#include "cpu/server/core/part.h"
#include "cpu/server/share/resize.h"
#include "cpu/server/core/session.h"
#include "cpu/server/share/time_slice.h"
#include "rpc/base/clock.h"

static const struct flyt_time_slice_gate_ops time_slice_gate_ops = {.ask = flyt_time_slice_ask,
                                                                    .ask_both = flyt_time_slice_ask_both};

static int init(struct flyt_session *session, struct flyt_error *err)
{
    session->time_slice_gate_ops = &time_slice_gate_ops;
    return 0;
}

static int device_init(struct flyt_device *device, struct flyt_error *err)
{
    device->resize = calloc(1, sizeof *device->resize);
    device->time_slice = calloc(1, sizeof *device->time_slice);
    return device->resize && device->time_slice ? 0 : flyt_error_set(err, -ENOMEM, "out of host memory");
}

static void device_fini(struct flyt_device *device)
{
    if (device->resize)
        flyt_resize_fini(device);
    if (device->time_slice)
        flyt_time_slice_fini(device);
    free(device->resize);
    free(device->time_slice);
}

/* Gates of devices that are shared in time: before calls are taken, so that none passes one whose time is over. */
static bool before_calls(struct flyt_session *session, uint64_t idle_since_ns)
{
    if (!session->has_time_slices)
        return false;
    uint64_t now_ns = flyt_clock_ns();
    return flyt_time_slices_advance(session, now_ns, idle_since_ns ? now_ns - idle_since_ns : 0,
                                    &session->time_slice_again_ns);
}

static bool advance(struct flyt_session *session)
{
    return session->left_count && flyt_resize_advance(session);
}

const struct flyt_part flyt_share_part = {.init = init,
                                          .device_init = device_init,
                                          .device_fini = device_fini,
                                          .before_calls = before_calls,
                                          .advance = advance};
