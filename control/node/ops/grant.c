#include "control/node/ops/grant.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "control/node/link/groups.h"
#include "control/node/link/share.h"
#include "control/node/model/writer.h"
#include "control/node/ops/operation.h"
#include "rpc/base/log.h"

static flyt_status check_slot(const struct flyt_node *node, const flyt_allocation *wanted, const flyt_slot *slot,
                              struct flyt_error *err)
{
    const struct flyt_node_gpu *gpu = flyt_node_gpus_find(&node->gpus, slot->gpu_uuid);
    unsigned group = 0;

    if (!gpu) {
        flyt_error_set(err, -ENODEV, "node %s has no GPU %s", node->name, slot->gpu_uuid);
        return FLYT_STATUS_NOT_FOUND;
    }
    if (slot->device_index >= FLYT_DEVICES_MAX || gpu->isolation != wanted->isolation) {
        flyt_error_set(err, -EINVAL, "GPU %s serves %s VMs only", gpu->uuid,
                       gpu->isolation == FLYT_ISOLATION_STRICT ? "strict" : "shared");
        return FLYT_STATUS_INVALID;
    }
    for (u_int i = 0; i < slot->sm_groups.sm_groups_len; i++) {
        if (slot->sm_groups.sm_groups_val[i] < (gpu->is_known ? gpu->group_count : FLYT_GROUPS_MAX))
            continue;
        flyt_error_set(err, -EINVAL, "GPU %s has %u SM groups, no group %u", gpu->uuid, gpu->group_count,
                       slot->sm_groups.sm_groups_val[i]);
        return FLYT_STATUS_INVALID;
    }
    if (flyt_node_share_check(slot, err))
        return FLYT_STATUS_INVALID;
    const struct flyt_node_allocation *other = flyt_node_groups_conflict(node, wanted->id, slot, &group);
    if (other) {
        flyt_error_set(err, -EBUSY, "SM group %u of GPU %s is still used by VM %.255s", group, gpu->uuid,
                       other->now.vm_ip);
        return FLYT_STATUS_CONFLICT;
    }
    return FLYT_STATUS_OK;
}

flyt_status flyt_node_grant_check(const struct flyt_node *node, const flyt_allocation *wanted, struct flyt_error *err)
{
    flyt_status status = FLYT_STATUS_OK;

    if (!wanted->id || !wanted->slots.slots_len || !*wanted->vm_ip || wanted->state < FLYT_ALLOCATION_ACTIVE ||
        wanted->state > FLYT_ALLOCATION_ORPHAN) {
        flyt_error_set(err, -EINVAL, "an allocation needs an id, a VM, a state and a device");
        return FLYT_STATUS_INVALID;
    }
    for (u_int i = 0; i < wanted->slots.slots_len && status == FLYT_STATUS_OK; i++)
        status = check_slot(node, wanted, &wanted->slots.slots_val[i], err);
    return status;
}

int flyt_node_grant_create(struct flyt_node *node, flyt_allocation *wanted,
                           struct flyt_node_allocation **ret_allocation)
{
    struct flyt_node_allocation *allocation = NULL;

    int status = flyt_node_allocation_add(node, wanted, &allocation);
    if (!status)
        status = flyt_node_allocation_make_ledgers(node, allocation);
    if (!status)
        status = flyt_node_share_set(allocation);
    if (!status)
        *ret_allocation = allocation;
    else if (allocation)
        flyt_node_allocation_free(node, allocation, true);
    return status;
}

void flyt_node_grant_end(struct flyt_node *node, struct flyt_node_allocation *allocation)
{
    if (!allocation->is_removed || allocation->session_count || allocation->stayed_count ||
        flyt_node_allocation_absent(allocation) || flyt_node_operation_of(allocation, FLYT_NODE_OPERATION_RECEIVE))
        return;
    flyt_info("allocation %016" PRIx64 ": gone, vm=%s", (uint64_t)allocation->now.id, allocation->now.vm_ip);
    bool is_awaited = allocation->removal != NULL;
    flyt_node_allocation_free(node, allocation, true);
    if (!is_awaited) /* else it is written before the answer */
        flyt_node_save_soon(node);
}
