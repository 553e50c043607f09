/* The memory that this VM shares with its host, for programs of the groups that may have it. */
#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "control/client/client.h"
#include "control/client/user.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"

enum { TELL_MS = 10000 };

static const char no_memory[] = "this VM shares no memory with its host";

/* Slow, or somebody else's: programs stay with TCP, and whoever runs the VM is told why. */
static void leave(struct flyt_client_manager *manager, const char *why)
{
    manager->memory.fd = flyt_close(manager->memory.fd);
    snprintf(manager->memory_why, sizeof manager->memory_why, "the memory that it shares with its host is not used: %s",
             why);
    flyt_warn("vm %s: %s", manager->settings->vm_ip, manager->memory_why);
}

static void measure(struct flyt_client_manager *manager)
{
    char why[160];
    double ratio = 0;

    int status = flyt_client_vm_memory_measure(&manager->memory, &ratio);
    if (status) {
        leave(manager, strerror(-status));
    } else if (ratio >= (double)manager->settings->memory_slow) {
        snprintf(why, sizeof why,
                 "a copy out of it takes %.0f times what one of ordinary memory takes, as where the guest maps it "
                 "uncached",
                 ratio);
        leave(manager, why);
    } else {
        flyt_info("vm %s: shares memory with its host, device=%s bytes=%" PRIu64, manager->settings->vm_ip,
                  manager->memory.device, manager->memory.bytes);
    }
}

void flyt_memory_init(struct flyt_client_manager *manager)
{
    struct flyt_error err = {0};

    manager->memory.fd = -1;
    int status =
        flyt_client_vm_memory_find(manager->settings->memory_devices, manager->settings->vm_ip, &err, &manager->memory);
    if (!status)
        measure(manager);
    else if (status != -ENODEV && status != -ENOENT) /* memory of somebody else's */
        leave(manager, err.text);
}

void flyt_memory_fini(struct flyt_client_manager *manager)
{
    manager->memory.fd = flyt_close(manager->memory.fd);
}

/* One that is lost is told again when the connection is there again. */
static void told(void *user, int status, void *result)
{
}

void flyt_memory_up(struct flyt_client_manager *manager)
{
    const flyt_vm_memory_args args = {.why = manager->memory_why};

    if (*manager->memory_why)
        flyt_uplink_call(manager->uplink, FLYT_VM_MEMORY, (xdrproc_t)xdr_flyt_vm_memory_args, &args,
                         (xdrproc_t)xdr_flyt_outcome, sizeof(flyt_outcome), TELL_MS, told, manager);
}

void flyt_memory_serve(struct flyt_client_manager *manager, struct flyt_call *call)
{
    const char *why = *manager->memory_why ? manager->memory_why : no_memory;
    int fd = manager->memory.fd < 0 ? -ENODEV : flyt_client_vm_memory_open(&manager->memory);

    if (fd >= 0)
        flyt_call_reply_with(call, &(flyt_outcome){FLYT_STATUS_OK, (char *)""}, fd);
    else
        flyt_call_reply(call,
                        &(flyt_outcome){FLYT_STATUS_NOT_FOUND, manager->memory.fd < 0 ? (char *)why : strerror(-fd)});
}

int flyt_memory_admit(const struct flyt_client_manager *manager, const char *group, struct flyt_error *err)
{
    const struct group *found = getgrnam(group);

    if (!found)
        return flyt_error_set(err, -ENOENT, "there is no group %.64s", group);
    return flyt_client_vm_memory_admit(manager->settings->memory_devices, found->gr_gid, err);
}
