#include "cpu/server/cuda/coredump.h"

#include <cuda.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "cpu/server/core/call.h"
#include "cpu/server/core/device.h"
#include "cpu/server/core/driver.h"
#include "cpu/server/core/manager.h"
#include "cpu/server/core/session.h"
#include "cpu/server/cuda/coredump_folder.h"
#include "flyt_serve.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"

enum {
    /* Until the program is told of its fault: when the driver tells of it, it has written what it writes. Both together
     * are less than the node manager lets a process be that leaves a core dump (control/node/link/fault.h). */
    SETTLE_FATAL_MS = 2000,
    SETTLE_MS = 4000,
    BYTES_MAX_DEFAULT = 1 << 30,
    /* Of contexts that a device gets later, until the part has seen them: those begin with what holds for all. */
    DUMP_OF_OTHERS = FLYT_DEVICES_MAX,
};
_Static_assert((int)DUMP_OF_OTHERS < (int)FLYT_COREDUMPS_MAX, "a dump for each device, and one besides");

/* Of a device: what its contexts are told. */
struct wanted {
    bool is_enabled;
    unsigned flags;
    uint64_t told;   /* the newest context of the device that was told, all before it with it; 0: none */
    uint64_t warned; /* the newest when one could not be told */
};

struct flyt_coredumps {
    int folder_fd; /* until `folder` has it; -1: none */
    uint64_t bytes_max;
    struct flyt_coredump_folder *folder; /* NULL: no dump was asked for yet */
    struct wanted wanted[FLYT_DEVICES_MAX];
    unsigned enabled_count;
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

typedef CUresult CUDAAPI set_fn(CUcoredumpSettings, void *, size_t *);

static CUresult set_one(set_fn *set, CUcoredumpSettings attribute, const void *value, size_t bytes)
{
    return set(attribute, (void *)(uintptr_t)value, &bytes);
}

/* Of the current context, or of all that are made later. What would harm the server's process is off before anything
 * else is on. */
static CUresult set_all(const struct flyt_coredumps *coredumps, set_fn *set, unsigned number,
                        const struct wanted *wanted)
{
    char path[FLYT_COREDUMP_PATH_BYTES];
    bool is_off = false;
    int flags = (int)(wanted->flags | CU_COREDUMP_SKIP_ABORT);
    if (!wanted->is_enabled)
        return set_one(set, CU_COREDUMP_ENABLE_ON_EXCEPTION, &is_off, sizeof is_off);
    flyt_coredump_folder_path(coredumps->folder, number, path);
    CUresult result = set_one(set, CU_COREDUMP_TRIGGER_HOST, &is_off, sizeof is_off);
    if (result == CUDA_SUCCESS)
        result = set_one(set, CU_COREDUMP_GENERATION_FLAGS, &flags, sizeof flags);
    if (result == CUDA_SUCCESS)
        result = set_one(set, CU_COREDUMP_FILE, path, strlen(path) + 1);
    if (result == CUDA_SUCCESS)
        result = set_one(set, CU_COREDUMP_ENABLE_ON_EXCEPTION, &wanted->is_enabled, sizeof wanted->is_enabled);
    return result;
}

static uint64_t newest(const struct flyt_device *device)
{
    return device->partitions ? device->partitions->number : 0;
}

/* All contexts of the device that there are: the program's work runs in green ones. */
static CUresult set_device(struct flyt_device *device, struct wanted *wanted)
{
    struct flyt_session *session = device->session;
    const struct flyt_driver *driver = session->driver;
    CUresult result = driver->cuCtxSetCurrent(device->cu_primary);
    if (result == CUDA_SUCCESS)
        result = set_all(session->coredumps, driver->cuCoredumpSetAttribute, device->ordinal, wanted);
    for (const struct flyt_partition_context *context = device->partitions; context && result == CUDA_SUCCESS;
         context = context->next) {
        result = driver->cuCtxSetCurrent(context->cu_context);
        if (result == CUDA_SUCCESS)
            result = set_all(session->coredumps, driver->cuCoredumpSetAttribute, device->ordinal, wanted);
    }
    CUresult back = driver->cuCtxSetCurrent(device->partition->cu_context);
    if (result == CUDA_SUCCESS)
        wanted->told = newest(device);
    return result == CUDA_SUCCESS ? back : result;
}

CUresult flyt_serve_coredump_set(struct flyt_call *call, const flyt_coredump_set_args *args, flyt_coredump_set_res *res)
{
    struct flyt_session *session = call->session;
    struct flyt_coredumps *coredumps = session->coredumps;
    const unsigned known = CU_COREDUMP_LIGHTWEIGHT_FLAGS | CU_COREDUMP_SKIP_ABORT;
    struct flyt_device *device;
    if (args->is_enabled > 1 || args->flags & ~known)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = args->is_enabled ? open_folder(session) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        result = flyt_session_use_device(session, args->device, &device);
    if (result != CUDA_SUCCESS)
        return result;
    struct wanted *wanted = &coredumps->wanted[device->ordinal];
    struct wanted before = *wanted;
    if (!before.is_enabled && !args->is_enabled)
        return CUDA_SUCCESS;
    *wanted = (struct wanted){.is_enabled = args->is_enabled, .flags = args->flags};
    result = set_device(device, wanted);
    unsigned enabled_count = coredumps->enabled_count - before.is_enabled + wanted->is_enabled;
    struct wanted others = {.is_enabled = enabled_count > 0, .flags = args->flags};
    if (result == CUDA_SUCCESS)
        result = set_all(coredumps, session->driver->cuCoredumpSetAttributeGlobal, DUMP_OF_OTHERS, &others);
    if (result == CUDA_SUCCESS) {
        coredumps->enabled_count = enabled_count;
        return CUDA_SUCCESS;
    }
    /* Nothing is left on that the program was told is not. */
    *wanted = before;
    set_device(device, wanted);
    return result;
}

bool flyt_coredump_advance(struct flyt_session *session)
{
    struct flyt_coredumps *coredumps = session->coredumps;
    for (unsigned i = 0; coredumps->enabled_count && i < session->device_count; i++) {
        struct flyt_device *device = &session->devices[i];
        struct wanted *wanted = &coredumps->wanted[i];
        if (!wanted->is_enabled || wanted->told == newest(device) || session->fatal != CUDA_SUCCESS)
            continue;
        CUresult result = set_device(device, wanted);
        session->current_device = NULL;
        if (flyt_session_check(session, result) == CUDA_SUCCESS || wanted->warned == newest(device))
            continue;
        wanted->warned = newest(device);
        flyt_warn("session %s: device %u: other SMs leave no core dump, cuda_result=%d", session->label, i,
                  (int)result);
    }
    return false;
}

/* ---- the end ---- */

void flyt_coredump_fatal(struct flyt_session *session)
{
    struct flyt_coredumps *coredumps = session->coredumps;
    if (!coredumps->enabled_count)
        return;
    flyt_coredump_folder_settle(coredumps->folder, SETTLE_FATAL_MS);
    enum flyt_coredump_state state;
    const char *name = flyt_coredump_folder_made(coredumps->folder, &state);
    snprintf(session->fatal_note, sizeof session->fatal_note, "%s%s",
             name ? "core dump " : "the driver has left no core dump", name ? name : "");
    if (state == FLYT_COREDUMP_CUT)
        snprintf(session->fatal_note, sizeof session->fatal_note,
                 "its core dump was removed, being larger than the VM may have");
}

void flyt_coredump_settle(struct flyt_session *session)
{
    struct flyt_coredumps *coredumps = session->coredumps;
    if (coredumps->enabled_count && !flyt_coredump_folder_settle(coredumps->folder, SETTLE_MS))
        flyt_warn("session %s: a core dump may not be whole", session->label);
}
