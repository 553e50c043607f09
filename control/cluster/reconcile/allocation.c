/* Allocations: placed, ordered to their node, blocked, ended. allocation_document.c writes them. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "control/base/peer.h"
#include "control/base/size.h"
#include "control/cluster/io/event.h"
#include "control/cluster/io/executor.h"
#include "control/cluster/io/grant.h"
#include "control/cluster/io/store_writer.h"
#include "control/cluster/io/leader.h"
#include "control/cluster/io/link.h"
#include "control/cluster/io/measure.h"
#include "control/cluster/io/migration_document.h"
#include "control/cluster/io/reply.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/capacity.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/desired.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/lifecycle.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/slot.h"
#include "control/cluster/model/placement.h"
#include "control/cluster/model/quota.h"
#include "control/cluster/model/share.h"
#include "control/cluster/model/table.h"
#include "control/cluster/model/tenant.h"
#include "control/cluster/model/text.h"
#include "control/cluster/model/vm.h"
#include "control/cluster/reconcile/allocation.h"
#include "control/cluster/reconcile/drain.h"
#include "control/cluster/reconcile/migration.h"
#include "control/cluster/reconcile/resize.h"
#include "control/store/store.h"
#include "rpc/base/clock.h"
#include "rpc/base/error.h"
#include "rpc/base/log.h"

/* An operator wants an orphan kept. */
struct flyt_adoption {
    struct flyt_call *call;
    char who[FLYT_NAME_BYTES_MAX + 1];
};

static void end_adoption(struct flyt_cluster_allocation *allocation, flyt_status status, const char *why)
{
    if (!allocation->adoption)
        return;
    flyt_call_outcome(allocation->adoption->call, status, "%s", why);
    free(allocation->adoption);
    allocation->adoption = NULL;
}

void flyt_allocation_free(struct flyt_cluster_allocation *allocation)
{
    flyt_allocation_look_never(allocation);
    end_adoption(allocation, FLYT_STATUS_UNAVAILABLE, "the store did not take it");
    flyt_drain_end(allocation);
    flyt_migration_free(allocation->migration);
    free(allocation->vm_ip);
    free(allocation->tenant);
    free(allocation->use_text);
    free(allocation->failed_text);
    free(allocation->answer_text);
    free(allocation->moved_text);
    free(allocation);
}

static void recount(struct flyt_cluster_allocation *allocation)
{
    for (unsigned i = 0; i < allocation->slot_count; i++)
        if (allocation->slots[i].gpu)
            flyt_gpu_count(allocation->slots[i].gpu);
}

/* Its VM has it no more. Who waits for it is told, and tried again where he asks again. */
static void leave_vm(struct flyt_cluster_allocation *allocation, const char *why)
{
    struct flyt_vm *vm = allocation->vm;

    allocation->vm = NULL;
    if (!vm || vm->allocation != allocation)
        return;
    flyt_resize_cancel(vm, why);
    vm->allocation = NULL;
    if (vm->is_asked)
        flyt_vm_answer(vm, FLYT_STATUS_UNAVAILABLE, "the allocation was taken back while it was being made");
}

/* Forgets it; its GPUs' documents are written without it. */
static void forget(struct flyt_cluster_allocation *allocation, bool is_written)
{
    flyt_migration_drop(allocation, "the allocation has ended", is_written);
    leave_vm(allocation, "the allocation has ended");
    flyt_allocation_charge(allocation, false);
    flyt_table_remove(&allocation->cluster->allocations, allocation);
    for (unsigned i = 0; i < allocation->slot_count; i++) {
        struct flyt_cluster_gpu *gpu = allocation->slots[i].gpu;
        if (!gpu)
            continue;
        flyt_gpu_detach(gpu, allocation);
        if (is_written)
            flyt_record_change(gpu->record, NULL);
    }
    flyt_allocation_free(allocation);
}

void flyt_allocation_drop(struct flyt_cluster_allocation *allocation)
{
    forget(allocation, allocation->state != FLYT_ALLOCATION_ORPHAN);
}

/* ---- placing ---- */

static uint64_t random_id(struct flyt_cluster *cluster)
{
    uint64_t id = 0;

    while (!id || flyt_allocation_find(cluster, id))
        if (getrandom(&id, sizeof id, 0) != sizeof id)
            id = 0;
    return id;
}

cJSON *flyt_allocation_json(const struct flyt_cluster_allocation *allocation)
{
    cJSON *object = cJSON_CreateObject(), *slots;

    cJSON_AddStringToObject(object, "id", allocation->id_text);
    cJSON_AddStringToObject(object, "vm_ip", allocation->vm_ip);
    cJSON_AddStringToObject(object, "state", flyt_allocation_state_name(allocation->state));
    cJSON_AddNumberToObject(object, "revision", (double)allocation->revision);
    flyt_share_add_json(allocation, object);
    slots = cJSON_AddArrayToObject(object, "slots");
    for (unsigned i = 0; i < allocation->slot_count; i++) {
        cJSON *slot = cJSON_CreateObject();
        cJSON_AddStringToObject(slot, "gpu", allocation->slots[i].gpu ? allocation->slots[i].gpu->key : "");
        cJSON_AddNumberToObject(slot, "sms", allocation->slots[i].sm_count);
        cJSON_AddNumberToObject(slot, "memory_bytes", (double)allocation->slots[i].memory_bytes);
        cJSON_AddItemToArray(slots, slot);
    }
    return object;
}

static const char *tenant_of(const struct flyt_vm *vm)
{
    return vm->desired.tenant ? vm->desired.tenant : vm->cluster->settings->tenant;
}

int flyt_allocation_choose(const struct flyt_vm *vm, struct flyt_placement *ret_placement, struct flyt_error *err)
{
    struct flyt_cluster *cluster = vm->cluster;
    struct flyt_tenant *tenant = flyt_tenant_get(cluster, tenant_of(vm));
    struct flyt_place_request request;
    struct flyt_placement placement;
    struct flyt_quota more = {.vm_count = 1};
    char reason[sizeof err->text];

    if (!tenant)
        return flyt_error_set(err, -ENOMEM, "the cluster manager has no memory");
    flyt_vm_request(vm, &request);
    if (flyt_place(cluster->place_nodes, (unsigned)cluster->nodes.count, &request, &placement, reason, sizeof reason))
        return flyt_error_set(err, -ENOSPC, "%s", reason);
    for (unsigned i = 0; i < placement.slot_count; i++)
        more.sm_count += placement.slots[i].sm_count;
    more.memory_bytes = request.memory_bytes * placement.slot_count;
    more.session_count = (uint64_t)request.session_count * placement.slot_count;
    if (!flyt_quota_allows(tenant_of(vm), &tenant->quota, &tenant->used, &more, reason, sizeof reason))
        return flyt_error_set(err, -EDQUOT, "%s", reason);
    *ret_placement = placement;
    return 0;
}

int flyt_allocation_place(struct flyt_vm *vm, struct flyt_error *err)
{
    struct flyt_cluster *cluster = vm->cluster;
    struct flyt_place_request request;
    struct flyt_placement placement;
    uint64_t start_ns = flyt_clock_ns();
    int status = flyt_allocation_choose(vm, &placement, err);

    flyt_measure_placement(cluster, flyt_clock_ns() - start_ns);
    if (status == -ENOSPC || status == -EDQUOT)
        flyt_measure_limit(cluster, status == -EDQUOT ? "quota" : "capacity");
    if (status)
        return status;
    flyt_vm_request(vm, &request);
    struct flyt_cluster_allocation *allocation =
        flyt_allocation_new(cluster, random_id(cluster), vm->key, tenant_of(vm), placement.slot_count);
    if (!allocation)
        return flyt_error_set(err, -ENOMEM, "the cluster manager has no memory");
    allocation->node = cluster->nodes.items[placement.node];
    allocation->isolation = request.isolation;
    allocation->sessions_max = request.session_count;
    allocation->priority = vm->desired.priority;
    allocation->share = flyt_vm_share(vm);
    allocation->is_suspended = vm->desired.is_suspended;
    allocation->shown_sms = flyt_desired_shown(&vm->desired);
    allocation->is_reserved = vm->desired.is_reserved;
    allocation->is_encrypted = cluster->settings->is_encrypted;
    allocation->created_ms = flyt_wall_ms();
    flyt_allocation_set_idle(allocation, true);
    allocation->vm = vm;
    vm->allocation = allocation;
    for (unsigned i = 0; i < placement.slot_count; i++) {
        struct flyt_cluster_gpu *gpu = allocation->node->gpus[placement.slots[i].gpu];
        allocation->slots[i] = (struct flyt_cluster_slot){.gpu = gpu,
                                                          .device_index = i,
                                                          .wanted_sms = request.sm_count,
                                                          .sm_count = placement.slots[i].sm_count,
                                                          .groups = placement.slots[i].groups,
                                                          .memory_bytes = request.memory_bytes};
    }
    flyt_allocation_charge(allocation, true);
    for (unsigned i = 0; i < allocation->slot_count; i++)
        if (flyt_gpu_attach(allocation->slots[i].gpu, allocation)) {
            forget(allocation, false);
            return flyt_error_set(err, -ENOMEM, "the cluster manager has no memory");
        }
    flyt_allocation_write(allocation);
    return 0;
}

struct flyt_cluster_allocation *flyt_allocation_orphan(struct flyt_node *node, const flyt_allocation *wire)
{
    struct flyt_cluster *cluster = node->cluster;
    unsigned count = wire->slots.slots_len;

    if (!count || count > FLYT_SLOTS_MAX || flyt_allocation_find(cluster, wire->id))
        return NULL;
    for (unsigned i = 0; i < count; i++) {
        struct flyt_cluster_gpu *gpu = flyt_table_find(&cluster->gpus, wire->slots.slots_val[i].gpu_uuid);
        if (!gpu || gpu->node != node)
            return NULL;
    }
    struct flyt_cluster_allocation *allocation =
        flyt_allocation_new(cluster, wire->id, wire->vm_ip, wire->tenant, count);
    if (!allocation)
        return NULL;
    allocation->state = FLYT_ALLOCATION_ORPHAN;
    allocation->is_granted = true;
    allocation->node = node;
    allocation->isolation = wire->isolation;
    allocation->revision = wire->revision;
    allocation->generation = wire->generation;
    allocation->sessions_max = wire->sessions_max;
    allocation->is_encrypted = wire->is_encrypted;
    allocation->is_suspended = wire->is_suspended;
    allocation->shown_sms = wire->shown_sms;
    allocation->created_ms = flyt_wall_ms();
    for (unsigned i = 0; i < count; i++) {
        const flyt_slot *wire_slot = &wire->slots.slots_val[i];
        struct flyt_cluster_slot *slot = &allocation->slots[i];
        slot->gpu = flyt_table_find(&cluster->gpus, wire_slot->gpu_uuid);
        slot->device_index = wire_slot->device_index;
        slot->wanted_sms = slot->sm_count = wire_slot->sm_count;
        slot->memory_bytes = wire_slot->memory_bytes;
        allocation->priority = wire_slot->priority;
        allocation->share = flyt_share_of(allocation->isolation, wire_slot, slot);
        for (unsigned j = 0; j < wire_slot->sm_groups.sm_groups_len; j++)
            if (wire_slot->sm_groups.sm_groups_val[j] < FLYT_GROUPS_MAX)
                flyt_groupset_add(&slot->groups, wire_slot->sm_groups.sm_groups_val[j]);
        if (flyt_gpu_attach(slot->gpu, allocation))
            flyt_warn("allocation %s: no memory to charge it", allocation->id_text);
    }
    return allocation;
}

/* ---- states and the end ---- */

void flyt_allocation_set_state(struct flyt_cluster_allocation *allocation, enum flyt_allocation_state state)
{
    if (allocation->state == state)
        return;
    allocation->state = state;
    allocation->revision++;
    if (state == FLYT_ALLOCATION_ACTIVE)
        allocation->open_revision = allocation->revision;
    flyt_allocation_write_and_order(allocation);
}

void flyt_allocation_end(struct flyt_cluster_allocation *allocation, const char *who, const char *why)
{
    if (allocation->is_leaving)
        return;
    allocation->is_leaving = true;
    end_adoption(allocation, FLYT_STATUS_CONFLICT, "the allocation is being ended");
    flyt_migration_cancel(allocation, "the allocation is being ended");
    leave_vm(allocation, "the allocation is being ended"); /* the next program places anew */
    flyt_event_add(allocation->cluster, "allocation.ending", who, allocation->id_text, flyt_allocation_json(allocation),
                   NULL, "%s", why);
    if (allocation->state == FLYT_ALLOCATION_ORPHAN) {
        flyt_allocation_order(allocation);
        return;
    }
    flyt_allocation_set_state(allocation, FLYT_ALLOCATION_ENDING);
}

void flyt_allocation_end_gone(struct flyt_cluster_allocation *allocation, const char *who, const char *why)
{
    allocation->is_gone = true;
    flyt_allocation_end(allocation, who, why);
    flyt_allocation_look_soon(allocation);
}

static void end_idle(struct flyt_cluster_allocation *allocation)
{
    struct flyt_vm *vm = allocation->vm;

    allocation->is_closing = false;
    flyt_allocation_end(allocation, "manager", "no session for as long as allocation_linger_s says");
    flyt_vm_tell(vm, "the allocation was idle");
}

/* ---- what is next ---- */

static void take_back(struct flyt_cluster_allocation *allocation)
{
    struct flyt_vm *vm = allocation->vm;
    char sentence[512];

    snprintf(sentence, sizeof sentence, "the store did not take the allocation: %.300s",
             allocation->failed_text ? allocation->failed_text : "no memory");
    if (vm) {
        vm->allocation = NULL;
        allocation->vm = NULL;
    }
    forget(allocation, true);
    if (vm)
        flyt_vm_answer(vm, FLYT_STATUS_UNAVAILABLE, sentence);
}

static void grant(struct flyt_cluster_allocation *allocation)
{
    char size[FLYT_SIZE_TEXT_BYTES];

    allocation->is_granted = allocation->is_new = true;
    if (allocation->vm)
        flyt_vm_set_reason(allocation->vm, NULL);
    flyt_event_add(allocation->cluster, "allocation.granted", "manager", allocation->id_text, NULL,
                   flyt_allocation_json(allocation), "VM %s: %u SMs and %s on %s:%u%s", allocation->vm_ip,
                   allocation->slots[0].sm_count, flyt_size_text(allocation->slots[0].memory_bytes, size),
                   allocation->node->key, flyt_gpu_capacity(allocation->slots[0].gpu)->index,
                   allocation->slot_count > 1 ? " and further GPUs" : "");
    flyt_allocation_order(allocation);
}

static void adopted(struct flyt_cluster_allocation *allocation)
{
    flyt_event_add(allocation->cluster, "allocation.adopted", allocation->adoption->who, allocation->id_text, NULL,
                   flyt_allocation_json(allocation), "VM %s has it now", allocation->vm_ip);
    flyt_allocation_order(allocation);
    if (allocation->vm)
        flyt_vm_tell(allocation->vm, "the allocation was adopted");
    end_adoption(allocation, FLYT_STATUS_OK, "");
}

static void orphan_again(struct flyt_cluster_allocation *allocation)
{
    char sentence[512];

    flyt_allocation_charge(allocation, false);
    allocation->state = FLYT_ALLOCATION_ORPHAN;
    leave_vm(allocation, "the allocation was not adopted");
    snprintf(sentence, sizeof sentence, "the store did not take it: %.400s",
             allocation->failed_text ? allocation->failed_text : "no memory");
    end_adoption(allocation, FLYT_STATUS_UNAVAILABLE, sentence);
}

static void release(struct flyt_cluster_allocation *allocation)
{
    flyt_allocation_charge(allocation, false);
    flyt_allocation_has_emptied(allocation, true);
    flyt_allocation_charge(allocation, true);
    if (allocation->is_gone)
        allocation->revision++;
    recount(allocation);
    if (allocation->state != FLYT_ALLOCATION_ORPHAN)
        flyt_allocation_write(allocation);
}

static bool has_lingered(const struct flyt_cluster_allocation *allocation)
{
    return !allocation->is_reserved && !allocation->resize && !(allocation->vm && allocation->vm->is_asked) &&
           flyt_clock_ms() - allocation->idle_clock_ms + allocation->lingered_ms >=
               allocation->cluster->settings->allocation_linger_ms;
}

static bool is_quiet(const struct flyt_cluster_allocation *allocation)
{
    return allocation->cluster->is_store_available && allocation->idle_since_ms && !allocation->session_count &&
           allocation->applied_revision && allocation->node->is_registered &&
           (!allocation->migration || flyt_migration_is_withdrawn(allocation)) &&
           allocation->state != FLYT_ALLOCATION_ORPHAN && allocation->state != FLYT_ALLOCATION_ENDING;
}

/* Store and node are to have what there is here: what failed on the way is tried again. */
static bool is_due(const struct flyt_cluster_allocation *allocation)
{
    return allocation->cluster->is_store_available && flyt_clock_ms() >= allocation->mend_ms &&
           !allocation->is_ordering && !allocation->is_gone && !flyt_migration_holds_orders(allocation) &&
           (allocation->is_leaving || allocation->applied_revision < allocation->revision) &&
           (allocation->state != FLYT_ALLOCATION_ORPHAN || allocation->is_leaving);
}

static unsigned see(struct flyt_cluster_allocation *allocation)
{
    const struct flyt_vm *vm = allocation->vm;
    bool is_gone = allocation->is_gone && !flyt_migration_may_be_at_target(allocation);
    bool is_refused = allocation->is_new && allocation->answer_count && !allocation->answer_error &&
                      allocation->answer_status && !allocation->applied_revision;

    return (is_gone ? FLYT_HELD_IS_GONE : 0) | (allocation->is_granted ? FLYT_HELD_IS_MADE : 0) |
           (flyt_allocation_is_written(allocation) ? FLYT_HELD_IS_WRITTEN : 0) |
           (allocation->failed_revision >= allocation->revision ? FLYT_HELD_HAS_FAILED : 0) |
           (allocation->adoption ? FLYT_HELD_IS_ADOPTED : 0) | (allocation->is_leaving ? FLYT_HELD_IS_LEAVING : 0) |
           (is_refused ? FLYT_HELD_IS_REFUSED : 0) |
           (flyt_allocation_has_emptied(allocation, false) ? FLYT_HELD_HAS_EMPTIED : 0) |
           (allocation->is_closing ? FLYT_HELD_IS_CLOSING : 0) |
           (allocation->applied_revision >= allocation->revision ? FLYT_HELD_IS_APPLIED : 0) |
           (allocation->session_count ? FLYT_HELD_IS_USED : 0) | (is_quiet(allocation) ? FLYT_HELD_IS_QUIET : 0) |
           (has_lingered(allocation) ? FLYT_HELD_HAS_LINGERED : 0) |
           (allocation->state == FLYT_ALLOCATION_BLOCKED && vm && vm->is_deleted ? FLYT_HELD_IS_REMOVED : 0) |
           (vm ? FLYT_HELD_IS_KNOWN : 0) | (is_due(allocation) ? FLYT_HELD_IS_DUE : 0) |
           (allocation->node->is_registered ? FLYT_HELD_IS_REACHED : 0);
}

/* Returns whether it is still there. */
static bool do_step(struct flyt_cluster_allocation *allocation, enum flyt_allocation_step step)
{
    switch (step) {
    case FLYT_HELD_WAIT:
        break;
    case FLYT_HELD_FORGET:
        flyt_event_add(allocation->cluster, "allocation.removed", "manager", allocation->id_text,
                       flyt_allocation_json(allocation), NULL, "allocation %s of VM %s has ended", allocation->id_text,
                       allocation->vm_ip);
        flyt_allocation_drop(allocation);
        return false;
    case FLYT_HELD_TAKE_BACK:
        take_back(allocation);
        return false;
    case FLYT_HELD_GRANT:
        grant(allocation);
        break;
    case FLYT_HELD_ORPHAN:
        orphan_again(allocation);
        break;
    case FLYT_HELD_ADOPT:
        adopted(allocation);
        break;
    case FLYT_HELD_RELEASE:
        release(allocation);
        break;
    case FLYT_HELD_OPEN:
        allocation->is_closing = false;
        flyt_allocation_set_state(allocation, FLYT_ALLOCATION_ACTIVE);
        break;
    case FLYT_HELD_CLOSE:
        allocation->is_closing = true;
        flyt_allocation_set_state(allocation, FLYT_ALLOCATION_BLOCKED);
        break;
    case FLYT_HELD_END_REFUSED:
        flyt_allocation_end(allocation, "manager", "its node refused it");
        break;
    case FLYT_HELD_END_IDLE:
        end_idle(allocation);
        break;
    case FLYT_HELD_END_REMOVED:
        flyt_allocation_end(allocation, "manager", "its VM was removed and no program is left");
        break;
    case FLYT_HELD_END_UNUSED:
        flyt_allocation_end(allocation, "manager", "nobody uses it");
        break;
    case FLYT_HELD_WRITE:
        allocation->mend_ms = flyt_clock_ms() + FLYT_MEND_MS;
        flyt_allocation_write_and_order(allocation);
        break;
    case FLYT_HELD_ORDER:
        flyt_allocation_order(allocation);
        break;
    }
    return true;
}

void flyt_allocation_look(struct flyt_cluster_allocation *allocation)
{
    enum flyt_allocation_step step;

    do {
        step = flyt_allocation_next(see(allocation));
    } while (do_step(allocation, step) && step != FLYT_HELD_WAIT);
}

/* ---- adopt, kill ---- */

static void adopt(struct flyt_call *call, struct flyt_cluster_allocation *allocation)
{
    struct flyt_vm *vm = flyt_vm_get(allocation->cluster, allocation->vm_ip);
    struct flyt_adoption *adoption = calloc(1, sizeof *adoption);

    if (!vm || !adoption) {
        free(adoption);
        flyt_call_fail(call);
        return;
    }
    if (vm->allocation) {
        free(adoption);
        flyt_call_outcome(call, FLYT_STATUS_CONFLICT, "VM %s has allocation %s already", vm->key,
                          vm->allocation->id_text);
        return;
    }
    adoption->call = call;
    flyt_call_who(call, adoption->who);
    allocation->state = vm->has_desired ? FLYT_ALLOCATION_ACTIVE : FLYT_ALLOCATION_BLOCKED;
    allocation->vm = vm;
    vm->allocation = allocation;
    allocation->revision++;
    flyt_allocation_charge(allocation, true);
    allocation->adoption = adoption;
    flyt_allocation_write(allocation);
}

void flyt_serve_allocation(struct flyt_call *call, void *data)
{
    const flyt_allocation_args *args = data;
    struct flyt_cluster *cluster = flyt_call_cluster(call);
    char who[FLYT_NAME_BYTES_MAX + 1];

    if (!flyt_lead_may(cluster, call))
        return;
    struct flyt_cluster_allocation *allocation = flyt_allocation_find(cluster, args->id);
    if (!allocation) {
        flyt_call_outcome(call, FLYT_STATUS_NOT_FOUND, "there is no allocation %016" PRIx64, (uint64_t)args->id);
    } else if (args->action == FLYT_ALLOCATION_ADOPT && allocation->state != FLYT_ALLOCATION_ORPHAN) {
        flyt_call_outcome(call, FLYT_STATUS_CONFLICT, "allocation %s is no orphan", allocation->id_text);
    } else if (args->action == FLYT_ALLOCATION_ADOPT && allocation->is_leaving) {
        flyt_call_outcome(call, FLYT_STATUS_CONFLICT, "allocation %s is being ended", allocation->id_text);
    } else if (args->action == FLYT_ALLOCATION_ADOPT &&
               (allocation->revision > FLYT_REVISION_MAX || allocation->generation > FLYT_GENERATION_MAX)) {
        flyt_call_outcome(
            call, FLYT_STATUS_CONFLICT,
            "node %s has allocation %s at a revision or generation that no manager can have given: it can "
            "only be killed",
            allocation->node->key, allocation->id_text);
    } else if (args->action == FLYT_ALLOCATION_ADOPT) {
        adopt(call, allocation);
    } else if (args->action == FLYT_ALLOCATION_KILL) {
        struct flyt_vm *vm = allocation->vm;
        flyt_allocation_end(allocation, flyt_call_who(call, who), "an operator ended it");
        if (vm)
            flyt_vm_tell(vm, "an operator ended the allocation");
        flyt_call_outcome(call, FLYT_STATUS_OK, "%s", "");
    } else {
        flyt_call_outcome(call, FLYT_STATUS_INVALID, "there is no action %d", (int)args->action);
    }
}
