/* The session's part that executes CUDA calls. */
#include "cpu/server/cuda/families.h"

#include <errno.h>
#include <stdlib.h>

#include "cpu/server/core/event_share.h"
#include "cpu/server/cuda/constant.h"
#include "cpu/server/cuda/coredump.h"
#include "cpu/server/cuda/image_cache.h"
#include "cpu/server/cuda/ipc.h"
#include "cpu/server/cuda/memory.h"
#include "cpu/server/cuda/physical.h"
#include "cpu/server/core/part.h"
#include "cpu/server/cuda/reserve.h"
#include "cpu/server/core/session.h"
#include "cpu/server/cuda/settings.h"
#include "flyt_objects.h"

static int init(struct flyt_session *session, struct flyt_error *err)
{
    session->images = calloc(1, sizeof *session->images);
    session->constants = calloc(1, sizeof *session->constants);
    session->mappings = calloc(1, sizeof *session->mappings);
    session->ipc = calloc(1, sizeof *session->ipc);
    bool has_all =
        session->images && session->constants && session->mappings && session->ipc && flyt_coredump_init(session) == 0;
    return has_all ? 0 : flyt_error_set(err, -ENOMEM, "out of host memory");
}

static int device_init(struct flyt_device *device, struct flyt_error *err)
{
    device->memory = calloc(1, sizeof *device->memory);
    device->reserve = calloc(1, sizeof *device->reserve);
    device->settings = calloc(1, sizeof *device->settings);
    if (!device->memory || !device->reserve || !device->settings)
        return flyt_error_set(err, -ENOMEM, "out of host memory");
    device->memory->freed = flyt_ipc_revoke;
    return flyt_memory_init(device, err);
}

static void drop(struct flyt_session *session)
{
    flyt_objects_drop(session, NULL);
    flyt_event_shares_fini(session);
}

static void fini(struct flyt_session *session)
{
    if (session->constants)
        flyt_constant_fini(session);
    free(session->constants);
    if (session->mappings)
        free(session->mappings->items);
    free(session->mappings);
    flyt_coredump_fini(session);
    free(session->ipc);
    free(session->images);
}

static void device_fini(struct flyt_device *device)
{
    if (device->memory)
        flyt_memory_fini(device);
    free(device->memory);
    free(device->reserve);
    free(device->settings);
}

static bool advance(struct flyt_session *session)
{
    bool has_shares = flyt_event_shares_advance(session);
    return flyt_coredump_advance(session) || has_shares;
}

const struct flyt_part flyt_families_part = {.init = init,
                                             .device_init = device_init,
                                             .drop = drop,
                                             .fini = fini,
                                             .device_fini = device_fini,
                                             .advance = advance,
                                             .fatal = flyt_coredump_fatal};
