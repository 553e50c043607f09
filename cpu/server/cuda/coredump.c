#include "cpu/server/cuda/coredump.h"

#include <cuda.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "cpu/server/bulk/region.h"
#include "cpu/server/bulk/staging.h"
#include "cpu/server/core/call.h"
#include "cpu/server/core/device.h"
#include "cpu/server/core/driver.h"
#include "cpu/server/core/manager.h"
#include "cpu/server/core/session.h"
#include "cpu/server/cuda/coredump_folder.h"
#include "cpu/server/cuda/reserve.h"
#include "cpu/server/cuda/settings.h"
#include "cpu/server/cuda/memory.h"
#include "flyt_serve.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"

enum {
    /* From a fault to its dump's file, while the driver says that all is well: 50 to 120 ms on an H200 (driver 580). */
    SHOWS_MS = 300,
    /* From a dump's end to its fault, which is told at once there: none comes any more. */
    TELLS_MS = 5000,
    /* Until the program is told of its fault: when the driver tells of it, it has written what it writes. All together
     * are less than the node manager lets a process be that leaves a core dump (control/node/link/fault.h). */
    SETTLE_FATAL_MS = 2000,
    SETTLE_MS = 3700,
    LOOK_MS = 5,
    BYTES_MAX_DEFAULT = 1 << 30,
    DUMP = 0, /* the driver writes one, of all devices of the process */
};

/* Of a device: what its program wants. */
struct wanted {
    bool is_enabled;
    unsigned flags;
};

struct flyt_coredumps {
    int folder_fd; /* until `folder` has it; -1: none */
    uint64_t bytes_max;
    struct flyt_coredump_folder *folder; /* NULL: no dump was asked for yet */
    struct wanted wanted[FLYT_DEVICES_MAX];
    atomic_bool is_dumping;  /* the driver writes one, or has: it tells of the fault when it is there */
    _Atomic uint64_t end_ns; /* when it was there, or removed, of the session's clock; 0: it is not */
};

/* ---- the folder ---- */

int flyt_coredump_init(struct flyt_session *session)
{
    session->coredumps = calloc(1, sizeof *session->coredumps);
    if (!session->coredumps)
        return -1;
    session->coredumps->folder_fd = -1;
    return 0;
}

void flyt_coredump_fini(struct flyt_session *session)
{
    if (!session->coredumps)
        return;
    flyt_coredump_folder_free(session->coredumps->folder);
    flyt_close(session->coredumps->folder_fd);
    free(session->coredumps);
    session->coredumps = NULL;
}

void flyt_coredump_grant(struct flyt_session *session, int folder_fd, uint64_t bytes_max)
{
    struct flyt_coredumps *coredumps = session->coredumps;
    if (coredumps->folder) {
        flyt_close(folder_fd);
        return;
    }
    flyt_close(coredumps->folder_fd);
    coredumps->folder_fd = folder_fd;
    coredumps->bytes_max = bytes_max;
}

int flyt_coredump_grant_listener(struct flyt_session *session)
{
    const char *folder = getenv(FLYT_COREDUMPS), *bytes = getenv(FLYT_COREDUMPS_BYTES);
    if (!folder)
        return 0;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    flyt_coredump_grant(session, fd, bytes ? strtoull(bytes, NULL, 10) : BYTES_MAX_DEFAULT);
    return 0;
}

/* The folder's thread. */
static void tell(void *user, const char *name, enum flyt_coredump_state state, uint64_t bytes)
{
    struct flyt_session *session = user;
    const struct flyt_manager_link_coredump coredump = {.bytes = bytes, .state = state};
    if (!atomic_exchange(&session->coredumps->is_dumping, true))
        flyt_session_kick(session);
    if (state != FLYT_COREDUMP_BEGUN)
        atomic_store(&session->coredumps->end_ns, session->clock_ns());
    if (!name)
        return;
    if (state == FLYT_COREDUMP_DONE)
        flyt_info("session %s: core dump %s, bytes=%" PRIu64, session->label, name, bytes);
    else if (state == FLYT_COREDUMP_CUT)
        flyt_warn("session %s: core dump %s was removed: the VM's would have more than %" PRIu64 " bytes",
                  session->label, name, session->coredumps->bytes_max);
    if (session->manager)
        flyt_manager_tell(session->manager, FLYT_MANAGER_LINK_COREDUMP, &coredump, sizeof coredump, name, NULL, 0);
}

static CUresult open_folder(struct flyt_session *session)
{
    struct flyt_coredumps *coredumps = session->coredumps;
    char prefix[64];
    struct timespec now;
    if (coredumps->folder)
        return CUDA_SUCCESS;
    if (coredumps->folder_fd < 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    /* In microseconds: a session that moves within the node has two servers, one of which begins after the other. */
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(prefix, sizeof prefix, "core.%s.%lld%06ld", session->label, (long long)now.tv_sec, now.tv_nsec / 1000);
    int status =
        flyt_coredump_folder_new(coredumps->folder_fd, coredumps->bytes_max, prefix, tell, session, &coredumps->folder);
    if (status) {
        flyt_warn("session %s: the folder of core dumps cannot be used: %s", session->label, strerror(-status));
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    coredumps->folder_fd = -1;
    umask(077); /* the driver's files are nobody else's; whatever else is made here has its mode set */
    return CUDA_SUCCESS;
}

/* ---- the driver ---- */

static CUresult set_one(const struct flyt_session *session, CUcoredumpSettings attribute, const void *value,
                        size_t bytes)
{
    return session->driver->cuCoredumpSetAttributeGlobal(attribute, (void *)(uintptr_t)value, &bytes);
}

/* Whether a device wants a dump, and what all of those that do leave out. */
static bool is_wanted(const struct flyt_coredumps *coredumps, unsigned *ret_flags)
{
    bool is_enabled = false;
    *ret_flags = CU_COREDUMP_LIGHTWEIGHT_FLAGS;
    for (unsigned i = 0; i < FLYT_DEVICES_MAX; i++)
        if (coredumps->wanted[i].is_enabled) {
            *ret_flags &= coredumps->wanted[i].flags;
            is_enabled = true;
        }
    return is_enabled;
}

/* Where a dump goes and what it has, of all contexts. One that nobody wants is as small as can be, and is removed: a
 * context that began with dumps and has them disabled loads no modules any more. */
static CUresult set_all(const struct flyt_session *session)
{
    const struct flyt_coredumps *coredumps = session->coredumps;
    char path[FLYT_COREDUMP_PATH_BYTES];
    unsigned flags;
    const bool is_off = false, is_kept = is_wanted(coredumps, &flags);
    flags |= CU_COREDUMP_SKIP_ABORT;
    flyt_coredump_folder_path(coredumps->folder, is_kept ? DUMP : FLYT_COREDUMP_UNWANTED, path);
    CUresult result = set_one(session, CU_COREDUMP_TRIGGER_HOST, &is_off, sizeof is_off);
    if (result == CUDA_SUCCESS)
        result = set_one(session, CU_COREDUMP_GENERATION_FLAGS, &flags, sizeof flags);
    if (result == CUDA_SUCCESS)
        result = set_one(session, CU_COREDUMP_FILE, path, strlen(path) + 1);
    return result;
}

/* ---- contexts that leave dumps ---- */

static unsigned count_objects(const struct flyt_session *session)
{
    unsigned count = 0;
    for (unsigned kind = 0; kind < FLYT_OBJECTS_KINDS; kind++)
        count += flyt_objects_count(&session->objects, (enum flyt_objects_of)kind);
    return count;
}

/* Nothing lies in the contexts but what the server makes for every session. */
static bool is_unused(const struct flyt_session *session)
{
    unsigned legacy_count = 0;
    for (unsigned i = 0; i < session->device_count; i++) {
        const struct flyt_device *device = &session->devices[i];
        if (device->memory->extents || device->memory->imports || device->memory->is_pad_tried || device->peer_mask ||
            device->base.fence || device->holds_first || device->reserve->zeros || device->settings->mask)
            return false;
        legacy_count += device->legacy != NULL;
    }
    const struct flyt_staging *staging = session->staging;
    bool has_host_memory =
        (staging && (staging->count[0] || staging->count[1])) || (session->region && session->region->lock_count);
    bool is_working = session->busy_first || session->left_count || session->jobs.unexecuted_count ||
                      session->jobs.holding_count || session->copying || session->resume.state != FLYT_RESUME_NONE;
    return !has_host_memory && !is_working && count_objects(session) == legacy_count &&
           !atomic_load(&session->opened_count);
}

/* What a device's parts do when they see its primary context. */
static CUresult make_again(struct flyt_device *device, bool was_made)
{
    const struct flyt_session *session = device->session;
    if (was_made)
        return flyt_device_make(device);
    CUresult result = flyt_device_warm(device);
    for (unsigned i = 0; result == CUDA_SUCCESS && (*session->parts)[i]; i++)
        if ((*session->parts)[i]->device_made)
            (*session->parts)[i]->device_made(device);
    return result;
}

static CUresult make_all_again(struct flyt_session *session)
{
    bool was_there[FLYT_DEVICES_MAX] = {false}, was_made[FLYT_DEVICES_MAX] = {false};
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < session->device_count && result == CUDA_SUCCESS; i++) {
        was_there[i] = session->devices[i].cu_primary != NULL;
        was_made[i] = session->devices[i].is_made;
        if (was_there[i])
            result = flyt_device_end(&session->devices[i]);
    }
    for (unsigned i = session->device_count; i-- > 0 && result == CUDA_SUCCESS;)
        if (was_there[i])
            result = make_again(&session->devices[i], was_made[i]);
    return result;
}

/*
 * From now on contexts leave dumps that are made, or (is_again) all that there are, which are made again. NVIDIA's
 * driver heeds only what it was told before a context began. That is never taken back.
 */
static CUresult begin(struct flyt_session *session, bool is_again)
{
    const bool is_on = true;
    CUresult result = set_all(session);
    if (result == CUDA_SUCCESS)
        result = set_one(session, CU_COREDUMP_ENABLE_ON_EXCEPTION, &is_on, sizeof is_on);
    session->leaves_coredumps |= result == CUDA_SUCCESS;
    if (result == CUDA_SUCCESS && is_again)
        result = make_all_again(session);
    if (result != CUDA_SUCCESS)
        flyt_fail("session %s: its contexts cannot be made again so that they leave core dumps, cuda_result=%d",
                  session->label, (int)result);
    return result;
}

void flyt_coredump_go_on(struct flyt_session *session)
{
    if (session->leaves_coredumps || open_folder(session) != CUDA_SUCCESS)
        return;
    if (is_unused(session))
        begin(session, true);
    else
        flyt_warn("session %s: its contexts leave no core dumps here: they have been prepared without", session->label);
}

/* Where the session goes on, at another server or behind this one's node manager, they are to leave dumps, too. */
static void tell_enabled(struct flyt_session *session)
{
    struct flyt_manager *manager = session->manager;
    const struct flyt_manager_link_coredump coredump = {.state = FLYT_MANAGER_LINK_COREDUMP_ENABLED};
    if (!manager)
        return;
    pthread_mutex_lock(&manager->mutex);
    for (unsigned i = 0; i < manager->granted.slot_count; i++)
        manager->granted.slots[i].flags |= FLYT_MANAGER_LINK_LEAVES_COREDUMPS;
    pthread_mutex_unlock(&manager->mutex);
    flyt_manager_tell(manager, FLYT_MANAGER_LINK_COREDUMP, &coredump, sizeof coredump, NULL, NULL, 0);
}

static CUresult begin_device(struct flyt_session *session, struct flyt_device *device)
{
    if (device->leaves_coredumps || (session->leaves_coredumps && !device->cu_primary))
        return CUDA_SUCCESS;
    const bool is_again = is_unused(session);
    if (!session->leaves_coredumps && (is_again || !device->cu_primary)) {
        CUresult result = begin(session, is_again);
        if (result == CUDA_SUCCESS)
            tell_enabled(session);
        return result;
    }
    flyt_info(
        "session %s: device %u leaves no core dumps: the program has asked for them when it had used GPUs already",
        session->label, device->ordinal);
    /* A client of before these contexts knows no other answer when it comes to another server. */
    return session->resume.state == FLYT_RESUME_NONE ? CUDA_ERROR_ILLEGAL_STATE : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult flyt_serve_coredump_set(struct flyt_call *call, const flyt_coredump_set_args *args, flyt_coredump_set_res *res)
{
    struct flyt_session *session = call->session;
    struct flyt_coredumps *coredumps = session->coredumps;
    const unsigned known = CU_COREDUMP_LIGHTWEIGHT_FLAGS | CU_COREDUMP_SKIP_ABORT;
    if (args->is_enabled > 1 || args->flags & ~known)
        return CUDA_ERROR_INVALID_VALUE;
    if (args->device >= session->device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    CUresult result = args->is_enabled ? open_folder(session) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS && args->is_enabled)
        result = begin_device(session, &session->devices[args->device]);
    if (result != CUDA_SUCCESS || !session->leaves_coredumps)
        return result;
    struct wanted before = coredumps->wanted[args->device];
    coredumps->wanted[args->device] = (struct wanted){.is_enabled = args->is_enabled, .flags = args->flags};
    result = set_all(session);
    if (result != CUDA_SUCCESS)
        coredumps->wanted[args->device] = before;
    return result;
}

/* ---- the end ---- */

/* A dump has begun, and its fault may still be told. */
static bool is_due(const struct flyt_session *session)
{
    uint64_t end_ns = atomic_load(&session->coredumps->end_ns);
    return atomic_load(&session->coredumps->is_dumping) &&
           (!end_ns || session->clock_ns() < end_ns + TELLS_MS * UINT64_C(1000000));
}

bool flyt_coredump_may_come(const struct flyt_session *session, uint64_t quiet_ns)
{
    return session->leaves_coredumps && session->fatal == CUDA_SUCCESS &&
           (is_due(session) || quiet_ns < SHOWS_MS * UINT64_C(1000000));
}

bool flyt_coredump_advance(struct flyt_session *session)
{
    if (!session->leaves_coredumps || !is_due(session))
        return false;
    for (unsigned i = 0; i < session->device_count && session->fatal == CUDA_SUCCESS; i++)
        if (session->devices[i].is_made)
            flyt_session_check_work(session, session->driver->cuStreamQuery(session->devices[i].legacy->cu_stream));
    return session->fatal == CUDA_SUCCESS;
}

void flyt_coredump_fatal(struct flyt_session *session)
{
    struct flyt_coredumps *coredumps = session->coredumps;
    unsigned flags;
    if (!is_wanted(coredumps, &flags))
        return;
    flyt_coredump_folder_settle(coredumps->folder, SETTLE_FATAL_MS);
    enum flyt_coredump_state state;
    const char *name = flyt_coredump_folder_made(coredumps->folder, &state);
    session->has_coredump = name != NULL;
    snprintf(session->fatal_note, sizeof session->fatal_note, "%s%s",
             name ? "core dump " : "the driver has left no core dump", name ? name : "");
    if (state == FLYT_COREDUMP_CUT)
        snprintf(session->fatal_note, sizeof session->fatal_note,
                 "its core dump was removed, being larger than the VM may have");
}

void flyt_coredump_settle(struct flyt_session *session)
{
    struct flyt_coredumps *coredumps = session->coredumps;
    const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000l};
    unsigned flags;
    if (!session->leaves_coredumps || !is_wanted(coredumps, &flags))
        return;
    for (unsigned ms = 0; ms < SHOWS_MS && session->fatal == CUDA_SUCCESS && !atomic_load(&coredumps->is_dumping);
         ms += LOOK_MS)
        nanosleep(&pause, NULL);
    if (!flyt_coredump_folder_settle(coredumps->folder, SETTLE_MS))
        flyt_warn("session %s: a core dump may not be whole", session->label);
}
