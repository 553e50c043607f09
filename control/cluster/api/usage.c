/* What a VM has and uses, for its monitors: from what is recorded and what nodes have reported last. */
#include <stdlib.h>

#include "control/base/peer.h"
#include "control/cluster/api/usage.h"
#include "control/cluster/io/leader.h"
#include "control/cluster/io/link.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/desired.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/link.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/slot.h"
#include "control/cluster/model/vm.h"

/* However many VMs are watched, this manager is asked about so often together. */
enum { AGAIN_MS = 1000, VMS_PER_MS = 2 };

static char empty[] = "";

static flyt_device_use use_of_slot(const struct flyt_cluster_allocation *allocation,
                                   const struct flyt_cluster_slot *slot, unsigned slot_index, bool is_reported)
{
    return (flyt_device_use){
        .type = slot->gpu->type ? slot->gpu->type : empty,
        .compute_major = slot->gpu->compute_major,
        .compute_minor = slot->gpu->compute_minor,
        .sm_count = slot->sm_count,
        .memory_bytes = slot->memory_bytes,
        .memory_used_bytes = is_reported && slot_index < allocation->use_count
                                 ? allocation->uses[slot_index].memory_used_bytes
                                 : FLYT_UNKNOWN_BYTES,
        .busy_pct = FLYT_UNKNOWN,
    };
}

/*
 * The GPU time that it has had since the earlier report. 0 where it was not in that one, or counts anew since: what it
 * had is then of a time that nobody knows. The same program is mostly in the same place of both.
 */
static uint64_t time_since(const struct flyt_times *earlier, unsigned place, const flyt_session_use *session)
{
    unsigned i = place < earlier->count && earlier->items[place].id == session->id ? place : 0;

    while (i < earlier->count && earlier->items[i].id != session->id)
        i++;
    bool is_known = i < earlier->count && earlier->items[i].gpu_time_us < session->gpu_time_us;
    return is_known ? session->gpu_time_us - earlier->items[i].gpu_time_us : 0;
}

/* Its programs, and the GPU time that they had together since the earlier report. 0 or -1: no memory. */
static int list_programs(const struct flyt_node *node, const struct flyt_cluster_allocation *allocation,
                         flyt_vm_usage_res *res, uint64_t *ret_busy_us)
{
    u_int room = node->session_count, count = 0;
    flyt_program_use *programs = calloc(room + 1, sizeof *programs);

    if (!programs)
        return -1;
    for (unsigned i = 0; i < node->session_count; i++) {
        const flyt_session_use *session = &node->sessions[i];
        if (session->allocation_id != allocation->id)
            continue;
        programs[count++] = (flyt_program_use){session->client_pid, session->memory_bytes};
        *ret_busy_us += time_since(&node->earlier[0], i, session);
    }
    res->programs.programs_val = programs;
    res->programs.programs_len = count;
    return 0;
}

/*
 * Nodes count a program's time on all its devices together: of one device it is known where there is no other. Before a
 * second report it is 0, as before a program comes: monitors take a number that comes and goes for a failure.
 */
static void tell_busy(const struct flyt_node *node, flyt_vm_usage_res *res, uint64_t busy_us)
{
    const uint64_t before_ms = node->earlier[0].ms, span_us = before_ms ? (node->sessions_ms - before_ms) * 1000 : 0;

    if (res->devices.devices_len != 1)
        return;
    uint64_t pct = span_us ? busy_us * 100 / span_us : 0; /* several programs at one time are still one busy GPU */
    res->devices.devices_val[0].busy_pct = pct > 100 ? 100 : (unsigned)pct;
}

static int tell_allocation(const struct flyt_cluster_allocation *allocation, flyt_vm_usage_res *res)
{
    struct flyt_node *node;
    const struct flyt_cluster_slot *slots = flyt_migration_parts_now(allocation, &node);
    bool is_reported = flyt_node_is_up(node) && node->is_registered && node == allocation->node;
    uint64_t busy_us = 0;

    for (unsigned i = 0; i < allocation->slot_count; i++)
        res->devices.devices_val[i] = use_of_slot(allocation, &slots[i], i, is_reported);
    res->devices.devices_len = allocation->slot_count;
    res->driver.driver_version = node->driver_version ? node->driver_version : empty;
    res->driver.cuda_version = node->cuda_version;
    if (!is_reported)
        return 0;
    int status = list_programs(node, allocation, res, &busy_us);
    if (!status)
        tell_busy(node, res, busy_us);
    return status;
}

/* No program has come yet: what it is to have, of which nothing is used. */
static void tell_desired(const struct flyt_vm *vm, flyt_vm_usage_res *res)
{
    const struct flyt_desired *desired = &vm->desired;

    for (unsigned i = 0; vm->has_desired && i < desired->device_count && i < FLYT_SLOTS_MAX; i++)
        res->devices.devices_val[res->devices.devices_len++] =
            (flyt_device_use){.type = empty, .sm_count = desired->sm_count, .memory_bytes = desired->memory_bytes};
}

void flyt_serve_vm_usage(struct flyt_call *call, void *args)
{
    struct flyt_link *link = flyt_call_link(call);
    struct flyt_cluster *cluster = link->cluster;
    flyt_device_use devices[FLYT_SLOTS_MAX];
    flyt_vm_usage_res res = {.outcome.text = empty, .driver.driver_version = empty, .devices.devices_val = devices};

    if (!flyt_lead_may(cluster, call))
        return;
    const struct flyt_vm *vm = link->vm;
    const size_t spread_ms = cluster->vms.count / VMS_PER_MS;
    res.again_ms = spread_ms > AGAIN_MS ? (unsigned)spread_ms : AGAIN_MS;
    if (!vm) {
        res.outcome = (flyt_outcome){FLYT_STATUS_INVALID, (char *)"HELLO comes first"};
    } else if (vm->allocation && vm->allocation->is_granted) {
        if (tell_allocation(vm->allocation, &res))
            res.outcome = (flyt_outcome){FLYT_STATUS_UNAVAILABLE, (char *)"no memory"};
    } else if (flyt_lead_knows_desired(cluster)) {
        tell_desired(vm, &res);
    } else {
        res.outcome = (flyt_outcome){FLYT_STATUS_UNAVAILABLE, (char *)"this manager has not read yet what is wanted"};
    }
    flyt_call_reply(call, &res);
    free(res.programs.programs_val);
}
