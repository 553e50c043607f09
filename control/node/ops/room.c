#include "control/node/ops/room.h"

#include <errno.h>
#include <string.h>

#include "control/node/ops/replace.h"
#include "rpc/base/clock.h"

/* Fills up what has come together since, and takes one. */
static bool take_token(const struct flyt_node *node, struct flyt_node_allocation *allocation)
{
    uint64_t now_ms = flyt_clock_ms(), burst_mil = node->settings->vm_attach_burst * 1000;

    allocation->tokens_mil += (now_ms - allocation->tokens_ms) * node->settings->vm_attach_rate;
    if (allocation->tokens_mil > burst_mil)
        allocation->tokens_mil = burst_mil;
    allocation->tokens_ms = now_ms;
    if (allocation->tokens_mil < 1000)
        return false;
    allocation->tokens_mil -= 1000;
    return true;
}

/* Sessions of a VM, in all its allocations here. */
static unsigned sessions_of_vm(const struct flyt_node *node, const char *vm_ip)
{
    unsigned count = 0;

    for (const struct flyt_node_allocation *other = node->allocations; other; other = other->next)
        if (!strcmp(other->now.vm_ip, vm_ip))
            count += other->session_count;
    return count;
}

int flyt_node_room_check(const struct flyt_node *node, const struct flyt_node_allocation *allocation,
                         unsigned waiting_count, unsigned promised_count, struct flyt_error *err)
{
    const flyt_allocation *now = &allocation->now;
    /* Those that may still come back after a restart are not counted: programs wait until that is known. */
    unsigned session_count = waiting_count + allocation->session_count;

    if (allocation->is_removed || now->state == FLYT_ALLOCATION_ENDING)
        return flyt_error_set(err, -EACCES, "the allocation of VM %.255s is being taken back", now->vm_ip);
    if (now->state == FLYT_ALLOCATION_BLOCKED)
        return flyt_error_set(err, -EACCES, "VM %.255s may begin no new programs: its allocation is blocked",
                              now->vm_ip);
    if (now->state == FLYT_ALLOCATION_ORPHAN)
        return flyt_error_set(err, -EACCES,
                              "VM %.255s may begin no new programs: the cluster manager does not know its allocation",
                              now->vm_ip);
    if (now->sessions_max && session_count >= now->sessions_max)
        return flyt_error_set(
            err, -EBUSY, "VM %.255s has %u programs on its GPU, as many as its allocation allows", now->vm_ip,
            allocation->session_count > now->sessions_max ? allocation->session_count : now->sessions_max);
    if (sessions_of_vm(node, now->vm_ip) + waiting_count >= node->settings->vm_sessions_max)
        return flyt_error_set(err, -EBUSY, "VM %.255s has %u programs on this node, as many as one VM may", now->vm_ip,
                              (unsigned)node->settings->vm_sessions_max);
    return flyt_node_room_on_gpus(node, allocation, promised_count, err);
}

int flyt_node_room_on_gpus(const struct flyt_node *node, const struct flyt_node_allocation *allocation,
                           unsigned promised_count, struct flyt_error *err)
{
    const flyt_allocation *now = &allocation->now;

    for (unsigned i = 0; i < now->slots.slots_len; i++) {
        const struct flyt_node_gpu *gpu = allocation->slots[i].gpu;
        if (!gpu)
            return flyt_error_set(err, -ENODEV, "node %s has GPU %s no more", node->name,
                                  now->slots.slots_val[i].gpu_uuid);
        if (gpu->health == FLYT_HEALTH_FAILED)
            return flyt_error_set(err, -ENODEV, "GPU %u of node %.255s has failed: %.200s", gpu->index, node->name,
                                  gpu->health_text);
        unsigned taken_count =
            node->starts[gpu->index].serving + flyt_node_replace_count(node, gpu) + (i == 0 ? promised_count : 0);
        if (taken_count + node->settings->warm >= node->settings->client_slots)
            return flyt_error_set(err, -EBUSY, "all %u client slots of GPU %u of node %.255s are taken",
                                  (unsigned)(node->settings->client_slots - node->settings->warm), gpu->index,
                                  node->name);
    }
    return 0;
}

int flyt_node_room_take(const struct flyt_node *node, struct flyt_node_allocation *allocation, struct flyt_error *err)
{
    if (!take_token(node, allocation))
        return flyt_error_set(err, -EBUSY, "VM %.255s begins more than %u programs in a second", allocation->now.vm_ip,
                              (unsigned)node->settings->vm_attach_rate);
    return 0;
}
