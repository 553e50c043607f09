#include "control/node/process/vm_device.h"

#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/base/worker.h"
#include "control/node/host/vm_memory.h"
#include "control/node/state/settings.h"
#include "rpc/base/log.h"

enum { ORDERS_MAX = 64, ENTRY_BYTES = 4096 };

struct flyt_node_vm_devices {
    struct flyt_worker *worker;
};

/* One order; the thread's alone while it is under way. The settings stay for as long as the node does. */
struct job {
    struct flyt_call *call;
    const struct flyt_node_settings *settings;
    bool is_removal;
    char vm_ip[FLYT_NAME_BYTES_MAX + 1];
    char path[FLYT_NODE_VM_MEMORY_PATH_BYTES];
    int status;
    struct flyt_error err;
};

static int find_user(struct job *job, struct flyt_node_vm_memory *memory)
{
    const char *name = job->settings->vm_device_user;
    char entry[ENTRY_BYTES];
    struct passwd user, *found = NULL;

    int status = getpwnam_r(name, &user, entry, sizeof entry, &found);
    if (!found)
        return flyt_error_set(&job->err, status ? -status : -ENOENT, "vm_device.user: there is no user %.64s here",
                              name);
    memory->uid = user.pw_uid;
    memory->gid = user.pw_gid;
    return 0;
}

static void work(void *user)
{
    struct job *job = user;
    struct flyt_node_vm_memory memory = {.folder = job->settings->vm_device_folder,
                                         .bytes = job->settings->vm_device_bytes};

    job->status = find_user(job, &memory);
    if (!job->status)
        job->status = job->is_removal ? flyt_node_vm_memory_remove(&memory, job->vm_ip, &job->err)
                                      : flyt_node_vm_memory_make(&memory, job->vm_ip, &job->err, job->path);
}

static flyt_status status_of(int status)
{
    switch (status) {
    case 0:
        return FLYT_STATUS_OK;
    case -EINVAL:
        return FLYT_STATUS_INVALID;
    case -EEXIST:
        return FLYT_STATUS_EXISTS;
    case -ENOSPC:
    case -ENOMEM:
        return FLYT_STATUS_NO_CAPACITY;
    default:
        return FLYT_STATUS_CONFLICT; /* of the machine's state with what is asked */
    }
}

static void reply(struct flyt_call *call, flyt_status status, const char *text)
{
    const flyt_vm_device_res res = {.outcome = {status, (char *)text}};

    flyt_call_reply(call, &res);
}

static void reply_path(const struct job *job)
{
    flyt_name path = (char *)job->path;
    const flyt_vm_device_res res = {
        .outcome = {.text = (char *)""}, .path = {1, &path}, .bytes = job->settings->vm_device_bytes};

    flyt_call_reply(job->call, &res);
}

static void done(void *user, int is_cancelled)
{
    struct job *job = user;

    if (is_cancelled)
        flyt_call_fail(job->call);
    else if (job->status || job->is_removal)
        reply(job->call, status_of(job->status), job->err.text);
    else
        reply_path(job);
    if (!is_cancelled && job->status)
        flyt_warn("vm %s: the memory that it shares with this machine is not %s: %s", job->vm_ip,
                  job->is_removal ? "removed" : "made", job->err.text);
    else if (!is_cancelled && !job->is_removal)
        flyt_info("vm %s: shares memory with this machine, path=%s bytes=%" PRIu64, job->vm_ip, job->path,
                  job->settings->vm_device_bytes);
    free(job);
}

/* The thread is there from the first order on: few nodes get one. */
static int make_worker(struct flyt_node *node)
{
    if (node->vm_devices)
        return 0;
    struct flyt_node_vm_devices *devices = calloc(1, sizeof *devices);
    int status = devices ? flyt_worker_new(node->event, "flyt-vm-memory", ORDERS_MAX, &devices->worker) : -ENOMEM;
    if (status)
        free(devices);
    else
        node->vm_devices = devices;
    return status;
}

static int begin(struct flyt_node *node, struct flyt_call *call, const flyt_order_vm_device_args *order)
{
    struct job *job = calloc(1, sizeof *job);
    int status = job ? make_worker(node) : -ENOMEM;

    if (!status) {
        job->call = call;
        job->settings = node->settings;
        job->is_removal = order->remove;
        snprintf(job->vm_ip, sizeof job->vm_ip, "%s", order->vm_ip);
        status = flyt_worker_do(node->vm_devices->worker, work, done, job);
    }
    if (status)
        free(job);
    return status;
}

void flyt_node_vm_device_serve(struct flyt_node *node, struct flyt_call *call, const flyt_order_vm_device_args *order)
{
    flyt_outcome outcome;

    if (!flyt_node_is_led(node, order->epoch, &outcome))
        reply(call, outcome.status, outcome.text);
    else if (!node->settings->vm_device_folder)
        reply(call, order->remove ? FLYT_STATUS_OK : FLYT_STATUS_NOT_SUPPORTED,
              order->remove ? "" : "vm_device.folder of its node.conf names no folder for the memory of VMs");
    else if (begin(node, call, order))
        reply(call, FLYT_STATUS_UNAVAILABLE, "too many orders about the memory of VMs are under way");
}

void flyt_node_vm_devices_free(struct flyt_node *node)
{
    if (!node->vm_devices)
        return;
    flyt_worker_free(node->vm_devices->worker);
    free(node->vm_devices);
    node->vm_devices = NULL;
}
