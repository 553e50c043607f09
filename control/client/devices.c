/*
 * What this VM's monitors (libnvidia-ml) are told of its devices. What is granted is here; what is used of it the
 * cluster manager knows: it is asked at most as often as it says itself, and not at all where nobody wants to know.
 * Asking places nothing: a monitor is no program.
 */
#include <stdlib.h>
#include <string.h>

#include "control/client/client.h"
#include "rpc/base/clock.h"
#include "rpc/base/device_identity.h"
#include "rpc/base/log.h"

enum {
    ASK_MS = 2000,      /* so long a monitor waits for the cluster manager */
    AGAIN_MIN_MS = 100, /* bounds of what it says about asking again */
    AGAIN_MAX_MS = 60000,
    AGAIN_FAILED_MS = 1000, /* after no answer */
    STALE_MS = 10000,       /* older figures say nothing of now */
    WAITING_MAX = 4096,
};

/* An answer goes out whole, however many programs there are: 12 bytes for each, three names and six words a device. */
_Static_assert(FLYT_SESSIONS_MAX * 12 + FLYT_SLOTS_MAX * (3 * (FLYT_NAME_BYTES_MAX + 9) + 40) + 1024 <
                   FLYT_CONTROL_HELLO_BYTES_MAX,
               "a record of the local socket holds it");

struct flyt_waiting_monitor {
    struct flyt_waiting_monitor *next;
    struct flyt_call *call;
};

static char empty[] = "";

static void forget(struct flyt_client_manager *manager)
{
    if (manager->has_usage)
        xdr_free((xdrproc_t)xdr_flyt_vm_usage_res, &manager->usage);
    manager->has_usage = false;
}

/* ---- the answer ---- */

static void put_names(struct flyt_client_manager *manager, unsigned index, struct flyt_device_identity *identity,
                      flyt_local_device *ret_device)
{
    const char *vm_ip = manager->grant_count ? manager->grants[0].allocation.vm_ip : manager->settings->vm_ip;

    flyt_device_identify(vm_ip, index, identity);
    ret_device->uuid = identity->uuid_text;
    ret_device->pci_bus_id = identity->pci_bus_id;
}

/* What is granted counts, for it is told at once; the rest is as old as the last answer. */
static unsigned put_devices(struct flyt_client_manager *manager, struct flyt_device_identity *identities,
                            flyt_local_device *ret_devices)
{
    const flyt_allocation *granted = manager->grant_count ? &manager->grants[0].allocation : NULL;
    const unsigned known = manager->has_usage ? manager->usage.devices.devices_len : 0;
    const unsigned count = granted ? granted->slots.slots_len : known;
    const bool is_fresh = manager->has_usage && flyt_clock_ms() - manager->usage_ms <= STALE_MS;

    for (unsigned i = 0; i < count; i++) {
        flyt_device_use *use = &ret_devices[i].use;
        *use = (flyt_device_use){.type = empty};
        put_names(manager, i, &identities[i], &ret_devices[i]);
        if (i < known)
            *use = manager->usage.devices.devices_val[i];
        if (i >= known || !is_fresh) {
            use->memory_used_bytes = FLYT_UNKNOWN_BYTES;
            use->busy_pct = FLYT_UNKNOWN;
        }
        if (granted) {
            use->sm_count = granted->slots.slots_val[i].sm_count;
            use->memory_bytes = granted->slots.slots_val[i].memory_bytes;
        }
    }
    return count;
}

static uint64_t memory_of(const struct flyt_client_manager *manager, unsigned pid)
{
    uint64_t bytes = FLYT_UNKNOWN_BYTES;

    if (!manager->has_usage || flyt_clock_ms() - manager->usage_ms > STALE_MS)
        return bytes;
    for (u_int i = 0; i < manager->usage.programs.programs_len; i++) {
        const flyt_program_use *use = &manager->usage.programs.programs_val[i];
        if (use->pid == pid)
            bytes = (bytes == FLYT_UNKNOWN_BYTES ? 0 : bytes) + use->memory_bytes;
    }
    return bytes;
}

static void reply(struct flyt_client_manager *manager, struct flyt_call *call)
{
    struct flyt_device_identity identities[FLYT_SLOTS_MAX];
    flyt_local_device devices[FLYT_SLOTS_MAX];
    flyt_program_use *programs = calloc(FLYT_SESSIONS_MAX, sizeof *programs);
    flyt_local_devices_res res = {
        .outcome.text = empty, .driver.driver_version = empty, .devices.devices_val = devices};

    if (manager->has_usage)
        res.driver = manager->usage.driver;
    if (!manager->has_usage && !manager->grant_count) {
        res.outcome = (flyt_outcome){FLYT_STATUS_UNAVAILABLE,
                                     (char *)"the cluster manager has not said yet which devices this VM has"};
    } else if (programs) {
        res.devices.devices_len = put_devices(manager, identities, devices);
        res.programs.programs_len = flyt_programs_list(manager, programs, FLYT_SESSIONS_MAX);
        res.programs.programs_val = programs;
        for (u_int i = 0; i < res.programs.programs_len; i++)
            programs[i].memory_bytes = memory_of(manager, programs[i].pid);
    } else {
        res.outcome = (flyt_outcome){FLYT_STATUS_UNAVAILABLE, (char *)"no memory"};
    }
    flyt_call_reply(call, &res);
    free(programs);
}

static void reply_all(struct flyt_client_manager *manager)
{
    struct flyt_waiting_monitor *waiting = manager->monitors;

    manager->monitors = NULL;
    manager->monitor_count = 0;
    while (waiting) {
        struct flyt_waiting_monitor *next = waiting->next;
        reply(manager, waiting->call);
        free(waiting);
        waiting = next;
    }
}

/* ---- asking ---- */

/* Between two nodes, and before a node's first report, nobody knows what the VM uses: what was said before counts,
 * while it is fresh. */
static bool is_worth_less(const struct flyt_client_manager *manager, const flyt_vm_usage_res *res)
{
    const u_int count = res->devices.devices_len;

    if (!manager->has_usage || flyt_clock_ms() - manager->usage_ms > STALE_MS ||
        manager->usage.devices.devices_len != count)
        return false;
    for (u_int i = 0; i < count; i++)
        if (res->devices.devices_val[i].memory_used_bytes == FLYT_UNKNOWN_BYTES &&
            manager->usage.devices.devices_val[i].memory_used_bytes != FLYT_UNKNOWN_BYTES)
            return true;
    return false;
}

static void take(struct flyt_client_manager *manager, flyt_vm_usage_res *res)
{
    uint64_t again_ms = res->again_ms < AGAIN_MIN_MS   ? AGAIN_MIN_MS
                        : res->again_ms > AGAIN_MAX_MS ? AGAIN_MAX_MS
                                                       : res->again_ms;

    manager->ask_usage_ms = flyt_clock_ms() + again_ms;
    if (is_worth_less(manager, res))
        return;
    forget(manager);
    manager->usage = *res;
    *res = (flyt_vm_usage_res){0};
    manager->has_usage = true;
    manager->usage_ms = flyt_clock_ms();
}

static void answered(void *user, int status, void *result)
{
    struct flyt_client_manager *manager = user;
    flyt_vm_usage_res *res = result;

    manager->is_asking_usage = false;
    manager->ask_usage_ms = flyt_clock_ms() + AGAIN_FAILED_MS;
    if (status)
        flyt_debug("what this VM uses is not known: %s", strerror(-status)); /* an older manager, or none */
    else if (res->outcome.status == FLYT_STATUS_OK)
        take(manager, res);
    else if (res->outcome.status == FLYT_STATUS_NOT_LEADER)
        flyt_uplink_follow(manager->uplink, NULL, 0);
    else
        flyt_debug("what this VM uses is not known: %s", res->outcome.text);
    reply_all(manager);
}

static void wait_for_answer(struct flyt_client_manager *manager, struct flyt_call *call)
{
    struct flyt_waiting_monitor *waiting = manager->monitor_count < WAITING_MAX ? calloc(1, sizeof *waiting) : NULL;

    if (!waiting) {
        reply(manager, call);
        return;
    }
    waiting->call = call;
    waiting->next = manager->monitors;
    manager->monitors = waiting;
    manager->monitor_count++;
    if (!manager->is_asking_usage)
        manager->is_asking_usage =
            flyt_uplink_call(manager->uplink, FLYT_VM_USAGE, NULL, NULL, (xdrproc_t)xdr_flyt_vm_usage_res,
                             sizeof(flyt_vm_usage_res), ASK_MS, answered, manager) == 0;
    if (!manager->is_asking_usage)
        reply_all(manager);
}

void flyt_devices_serve(struct flyt_client_manager *manager, struct flyt_call *call)
{
    if (flyt_clock_ms() < manager->ask_usage_ms || !flyt_uplink_is_up(manager->uplink))
        reply(manager, call);
    else
        wait_for_answer(manager, call);
}

void flyt_devices_changed(struct flyt_client_manager *manager)
{
    manager->ask_usage_ms = 0;
}

void flyt_devices_fini(struct flyt_client_manager *manager)
{
    reply_all(manager);
    forget(manager);
}
