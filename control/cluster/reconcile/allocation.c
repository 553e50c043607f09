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
#include "control/cluster/io/keep.h"
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
#include "control/cluster/model/part.h"
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

enum { MEND_MS = 5000 };

/* An operator wants an orphan kept. */
struct flyt_adoption {
    struct flyt_call *call;
    char who[FLYT_NAME_BYTES_MAX + 1];
};

static void end_adoption(struct flyt_held *held, flyt_status status, const char *why)
{
    if (!held->adoption)
        return;
    flyt_call_outcome(held->adoption->call, status, "%s", why);
    free(held->adoption);
    held->adoption = NULL;
}

void flyt_held_free(struct flyt_held *held)
{
    flyt_held_look_never(held);
    end_adoption(held, FLYT_STATUS_UNAVAILABLE, "the store did not take it");
    flyt_drain_end(held);
    flyt_migration_free(held->migration);
    free(held->vm_ip);
    free(held->tenant);
    free(held->use_text);
    free(held->failed_text);
    free(held->answer_text);
    free(held->moved_text);
    free(held);
}

static void recount(struct flyt_held *held)
{
    for (unsigned i = 0; i < held->part_count; i++)
        if (held->parts[i].card)
            flyt_gpu_count(held->parts[i].card);
}

/* Its VM has it no more. Who waits for it is told, and tried again where he asks again. */
static void leave_vm(struct flyt_held *held, const char *why)
{
    struct flyt_vm *vm = held->vm;

    held->vm = NULL;
    if (!vm || vm->held != held)
        return;
    flyt_resize_cancel(vm, why);
    vm->held = NULL;
    if (vm->is_asked)
        flyt_vm_answer(vm, FLYT_STATUS_UNAVAILABLE, "the allocation was taken back while it was being made");
}

/* Forgets it; its GPUs' documents are written without it. */
static void forget(struct flyt_held *held, bool is_written)
{
    flyt_migration_drop(held, "the allocation has ended", is_written);
    leave_vm(held, "the allocation has ended");
    flyt_held_charge(held, false);
    flyt_table_remove(&held->cluster->held, held);
    for (unsigned i = 0; i < held->part_count; i++) {
        struct flyt_card *card = held->parts[i].card;
        if (!card)
            continue;
        flyt_gpu_detach(card, held);
        if (is_written)
            flyt_kept_change(card->kept, NULL);
    }
    flyt_held_free(held);
}

void flyt_held_drop(struct flyt_held *held)
{
    forget(held, held->state != FLYT_ALLOCATION_ORPHAN);
}

/* ---- placing ---- */

static uint64_t random_id(struct flyt_cluster *cluster)
{
    uint64_t id = 0;

    while (!id || flyt_held_find(cluster, id))
        if (getrandom(&id, sizeof id, 0) != sizeof id)
            id = 0;
    return id;
}

cJSON *flyt_held_json(const struct flyt_held *held)
{
    cJSON *object = cJSON_CreateObject(), *slots;

    cJSON_AddStringToObject(object, "id", held->id_text);
    cJSON_AddStringToObject(object, "vm_ip", held->vm_ip);
    cJSON_AddStringToObject(object, "state", flyt_held_state_name(held->state));
    cJSON_AddNumberToObject(object, "revision", (double)held->revision);
    flyt_share_add_json(held, object);
    slots = cJSON_AddArrayToObject(object, "slots");
    for (unsigned i = 0; i < held->part_count; i++) {
        cJSON *slot = cJSON_CreateObject();
        cJSON_AddStringToObject(slot, "gpu", held->parts[i].card ? held->parts[i].card->key : "");
        cJSON_AddNumberToObject(slot, "sms", held->parts[i].sm_count);
        cJSON_AddNumberToObject(slot, "memory_bytes", (double)held->parts[i].memory_bytes);
        cJSON_AddItemToArray(slots, slot);
    }
    return object;
}

static const char *tenant_of(const struct flyt_vm *vm)
{
    return vm->desired.tenant ? vm->desired.tenant : vm->cluster->settings->tenant;
}

int flyt_held_choose(const struct flyt_vm *vm, struct flyt_placement *ret_placement, struct flyt_error *err)
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

int flyt_held_place(struct flyt_vm *vm, struct flyt_error *err)
{
    struct flyt_cluster *cluster = vm->cluster;
    struct flyt_place_request request;
    struct flyt_placement placement;
    uint64_t start_ns = flyt_clock_ns();
    int status = flyt_held_choose(vm, &placement, err);

    flyt_measure_placement(cluster, flyt_clock_ns() - start_ns);
    if (status == -ENOSPC || status == -EDQUOT)
        flyt_measure_limit(cluster, status == -EDQUOT ? "quota" : "capacity");
    if (status)
        return status;
    flyt_vm_request(vm, &request);
    struct flyt_held *held = flyt_held_new(cluster, random_id(cluster), vm->key, tenant_of(vm), placement.slot_count);
    if (!held)
        return flyt_error_set(err, -ENOMEM, "the cluster manager has no memory");
    held->node = cluster->nodes.items[placement.node];
    held->isolation = request.isolation;
    held->sessions_max = request.session_count;
    held->priority = vm->desired.priority;
    held->share = flyt_vm_share(vm);
    held->is_suspended = vm->desired.is_suspended;
    held->shown_sms = flyt_desired_shown(&vm->desired);
    held->is_reserved = vm->desired.is_reserved;
    held->is_encrypted = cluster->settings->is_encrypted;
    held->created_ms = flyt_wall_ms();
    flyt_held_set_idle(held, true);
    held->vm = vm;
    vm->held = held;
    for (unsigned i = 0; i < placement.slot_count; i++) {
        struct flyt_card *card = held->node->cards[placement.slots[i].gpu];
        held->parts[i] = (struct flyt_part){.card = card,
                                            .device_index = i,
                                            .wanted_sms = request.sm_count,
                                            .sm_count = placement.slots[i].sm_count,
                                            .groups = placement.slots[i].groups,
                                            .memory_bytes = request.memory_bytes};
    }
    flyt_held_charge(held, true);
    for (unsigned i = 0; i < held->part_count; i++)
        if (flyt_gpu_attach(held->parts[i].card, held)) {
            forget(held, false);
            return flyt_error_set(err, -ENOMEM, "the cluster manager has no memory");
        }
    flyt_held_write(held);
    return 0;
}

struct flyt_held *flyt_held_orphan(struct flyt_node *node, const flyt_allocation *wire)
{
    struct flyt_cluster *cluster = node->cluster;
    unsigned count = wire->slots.slots_len;

    if (!count || count > FLYT_SLOTS_MAX || flyt_held_find(cluster, wire->id))
        return NULL;
    for (unsigned i = 0; i < count; i++) {
        struct flyt_card *card = flyt_table_find(&cluster->cards, wire->slots.slots_val[i].gpu_uuid);
        if (!card || card->node != node)
            return NULL;
    }
    struct flyt_held *held = flyt_held_new(cluster, wire->id, wire->vm_ip, wire->tenant, count);
    if (!held)
        return NULL;
    held->state = FLYT_ALLOCATION_ORPHAN;
    held->is_granted = true;
    held->node = node;
    held->isolation = wire->isolation;
    held->revision = wire->revision;
    held->generation = wire->generation;
    held->sessions_max = wire->sessions_max;
    held->is_encrypted = wire->is_encrypted;
    held->is_suspended = wire->is_suspended;
    held->shown_sms = wire->shown_sms;
    held->created_ms = flyt_wall_ms();
    for (unsigned i = 0; i < count; i++) {
        const flyt_slot *slot = &wire->slots.slots_val[i];
        struct flyt_part *part = &held->parts[i];
        part->card = flyt_table_find(&cluster->cards, slot->gpu_uuid);
        part->device_index = slot->device_index;
        part->wanted_sms = part->sm_count = slot->sm_count;
        part->memory_bytes = slot->memory_bytes;
        held->priority = slot->priority;
        held->share = flyt_share_of(held->isolation, slot, part);
        for (unsigned j = 0; j < slot->sm_groups.sm_groups_len; j++)
            if (slot->sm_groups.sm_groups_val[j] < FLYT_GROUPS_MAX)
                flyt_groupset_add(&part->groups, slot->sm_groups.sm_groups_val[j]);
        if (flyt_gpu_attach(part->card, held))
            flyt_warn("allocation %s: no memory to charge it", held->id_text);
    }
    return held;
}

/* ---- states and the end ---- */

void flyt_held_set_state(struct flyt_held *held, enum flyt_allocation_state state)
{
    if (held->state == state)
        return;
    held->state = state;
    held->revision++;
    if (state == FLYT_ALLOCATION_ACTIVE)
        held->open_revision = held->revision;
    flyt_held_write_and_order(held);
}

void flyt_held_end(struct flyt_held *held, const char *who, const char *why)
{
    if (held->is_leaving)
        return;
    held->is_leaving = true;
    end_adoption(held, FLYT_STATUS_CONFLICT, "the allocation is being ended");
    flyt_migration_cancel(held, "the allocation is being ended");
    leave_vm(held, "the allocation is being ended"); /* the next program places anew */
    flyt_event_add(held->cluster, "allocation.ending", who, held->id_text, flyt_held_json(held), NULL, "%s", why);
    if (held->state == FLYT_ALLOCATION_ORPHAN) {
        flyt_held_order(held);
        return;
    }
    flyt_held_set_state(held, FLYT_ALLOCATION_ENDING);
}

static void end_idle(struct flyt_held *held)
{
    struct flyt_vm *vm = held->vm;

    held->is_closing = false;
    flyt_held_end(held, "manager", "no session for as long as allocation_linger_s says");
    flyt_vm_tell(vm, "the allocation was idle");
}

/* ---- what is next ---- */

static void take_back(struct flyt_held *held)
{
    struct flyt_vm *vm = held->vm;
    char sentence[512];

    snprintf(sentence, sizeof sentence, "the store did not take the allocation: %.300s",
             held->failed_text ? held->failed_text : "no memory");
    if (vm) {
        vm->held = NULL;
        held->vm = NULL;
    }
    forget(held, true);
    if (vm)
        flyt_vm_answer(vm, FLYT_STATUS_UNAVAILABLE, sentence);
}

static void grant(struct flyt_held *held)
{
    char size[FLYT_SIZE_TEXT_BYTES];

    held->is_granted = held->is_new = true;
    if (held->vm)
        flyt_vm_set_reason(held->vm, NULL);
    flyt_event_add(held->cluster, "allocation.granted", "manager", held->id_text, NULL, flyt_held_json(held),
                   "VM %s: %u SMs and %s on %s:%u%s", held->vm_ip, held->parts[0].sm_count,
                   flyt_size_text(held->parts[0].memory_bytes, size), held->node->key,
                   flyt_gpu_capacity(held->parts[0].card)->index, held->part_count > 1 ? " and further GPUs" : "");
    flyt_held_order(held);
}

static void adopted(struct flyt_held *held)
{
    flyt_event_add(held->cluster, "allocation.adopted", held->adoption->who, held->id_text, NULL, flyt_held_json(held),
                   "VM %s has it now", held->vm_ip);
    flyt_held_order(held);
    if (held->vm)
        flyt_vm_tell(held->vm, "the allocation was adopted");
    end_adoption(held, FLYT_STATUS_OK, "");
}

static void orphan_again(struct flyt_held *held)
{
    char sentence[512];

    flyt_held_charge(held, false);
    held->state = FLYT_ALLOCATION_ORPHAN;
    leave_vm(held, "the allocation was not adopted");
    snprintf(sentence, sizeof sentence, "the store did not take it: %.400s",
             held->failed_text ? held->failed_text : "no memory");
    end_adoption(held, FLYT_STATUS_UNAVAILABLE, sentence);
}

static void release(struct flyt_held *held)
{
    flyt_held_has_emptied(held, true);
    recount(held);
    if (held->state != FLYT_ALLOCATION_ORPHAN)
        flyt_held_write(held);
}

static bool has_lingered(const struct flyt_held *held)
{
    return !held->is_reserved && !held->resize && !(held->vm && held->vm->is_asked) &&
           flyt_clock_ms() - held->idle_clock_ms + held->lingered_ms >= held->cluster->settings->allocation_linger_ms;
}

static bool is_quiet(const struct flyt_held *held)
{
    return held->cluster->is_store_available && held->idle_since_ms && !held->session_count && held->applied_revision &&
           held->node->is_registered && !held->migration && held->state != FLYT_ALLOCATION_ORPHAN &&
           held->state != FLYT_ALLOCATION_ENDING;
}

/* Store and node are to have what there is here: what failed on the way is tried again. */
static bool is_due(const struct flyt_held *held)
{
    return held->cluster->is_store_available && flyt_clock_ms() >= held->mend_ms && !held->is_ordering &&
           !flyt_migration_holds_orders(held) && (held->is_leaving || held->applied_revision < held->revision) &&
           (held->state != FLYT_ALLOCATION_ORPHAN || held->is_leaving);
}

static unsigned see(struct flyt_held *held)
{
    const struct flyt_vm *vm = held->vm;
    bool is_refused =
        held->is_new && held->answer_count && !held->answer_error && held->answer_status && !held->applied_revision;

    return (held->is_gone ? FLYT_HELD_IS_GONE : 0) | (held->is_granted ? FLYT_HELD_IS_MADE : 0) |
           (flyt_held_is_written(held) ? FLYT_HELD_IS_WRITTEN : 0) |
           (held->failed_revision >= held->revision ? FLYT_HELD_HAS_FAILED : 0) |
           (held->adoption ? FLYT_HELD_IS_ADOPTED : 0) | (held->is_leaving ? FLYT_HELD_IS_LEAVING : 0) |
           (is_refused ? FLYT_HELD_IS_REFUSED : 0) | (flyt_held_has_emptied(held, false) ? FLYT_HELD_HAS_EMPTIED : 0) |
           (held->is_closing ? FLYT_HELD_IS_CLOSING : 0) |
           (held->applied_revision >= held->revision ? FLYT_HELD_IS_APPLIED : 0) |
           (held->session_count ? FLYT_HELD_IS_USED : 0) | (is_quiet(held) ? FLYT_HELD_IS_QUIET : 0) |
           (has_lingered(held) ? FLYT_HELD_HAS_LINGERED : 0) |
           (held->state == FLYT_ALLOCATION_BLOCKED && vm && vm->is_deleted ? FLYT_HELD_IS_REMOVED : 0) |
           (vm ? FLYT_HELD_IS_KNOWN : 0) | (is_due(held) ? FLYT_HELD_IS_DUE : 0) |
           (held->node->is_registered ? FLYT_HELD_IS_REACHED : 0);
}

/* Returns whether it is still there. */
static bool do_step(struct flyt_held *held, enum flyt_held_step step)
{
    switch (step) {
    case FLYT_HELD_WAIT:
        break;
    case FLYT_HELD_FORGET:
        flyt_event_add(held->cluster, "allocation.removed", "manager", held->id_text, flyt_held_json(held), NULL,
                       "allocation %s of VM %s has ended", held->id_text, held->vm_ip);
        flyt_held_drop(held);
        return false;
    case FLYT_HELD_TAKE_BACK:
        take_back(held);
        return false;
    case FLYT_HELD_GRANT:
        grant(held);
        break;
    case FLYT_HELD_ORPHAN:
        orphan_again(held);
        break;
    case FLYT_HELD_ADOPT:
        adopted(held);
        break;
    case FLYT_HELD_RELEASE:
        release(held);
        break;
    case FLYT_HELD_OPEN:
        held->is_closing = false;
        flyt_held_set_state(held, FLYT_ALLOCATION_ACTIVE);
        break;
    case FLYT_HELD_CLOSE:
        held->is_closing = true;
        flyt_held_set_state(held, FLYT_ALLOCATION_BLOCKED);
        break;
    case FLYT_HELD_END_REFUSED:
        flyt_held_end(held, "manager", "its node refused it");
        break;
    case FLYT_HELD_END_IDLE:
        end_idle(held);
        break;
    case FLYT_HELD_END_REMOVED:
        flyt_held_end(held, "manager", "its VM was removed and no program is left");
        break;
    case FLYT_HELD_END_UNUSED:
        flyt_held_end(held, "manager", "nobody uses it");
        break;
    case FLYT_HELD_WRITE:
        held->mend_ms = flyt_clock_ms() + MEND_MS;
        flyt_held_write_and_order(held);
        break;
    case FLYT_HELD_ORDER:
        held->mend_ms = flyt_clock_ms() + MEND_MS;
        flyt_held_order(held);
        break;
    }
    return true;
}

void flyt_held_look(struct flyt_held *held)
{
    enum flyt_held_step step;

    do {
        step = flyt_held_next(see(held));
    } while (do_step(held, step) && step != FLYT_HELD_WAIT);
}

/* ---- adopt, kill ---- */

static void adopt(struct flyt_call *call, struct flyt_held *held)
{
    struct flyt_vm *vm = flyt_vm_get(held->cluster, held->vm_ip);
    struct flyt_adoption *adoption = calloc(1, sizeof *adoption);

    if (!vm || !adoption) {
        free(adoption);
        flyt_call_fail(call);
        return;
    }
    if (vm->held) {
        free(adoption);
        flyt_call_outcome(call, FLYT_STATUS_CONFLICT, "VM %s has allocation %s already", vm->key, vm->held->id_text);
        return;
    }
    adoption->call = call;
    flyt_call_who(call, adoption->who);
    held->state = vm->has_desired ? FLYT_ALLOCATION_ACTIVE : FLYT_ALLOCATION_BLOCKED;
    held->vm = vm;
    vm->held = held;
    held->revision++;
    flyt_held_charge(held, true);
    held->adoption = adoption;
    flyt_held_write(held);
}

void flyt_serve_allocation(struct flyt_call *call, void *data)
{
    const flyt_allocation_args *args = data;
    struct flyt_cluster *cluster = flyt_call_cluster(call);
    char who[FLYT_NAME_BYTES_MAX + 1];

    if (!flyt_lead_may(cluster, call))
        return;
    struct flyt_held *held = flyt_held_find(cluster, args->id);
    if (!held) {
        flyt_call_outcome(call, FLYT_STATUS_NOT_FOUND, "there is no allocation %016" PRIx64, (uint64_t)args->id);
    } else if (args->action == FLYT_ALLOCATION_ADOPT && held->state != FLYT_ALLOCATION_ORPHAN) {
        flyt_call_outcome(call, FLYT_STATUS_CONFLICT, "allocation %s is no orphan", held->id_text);
    } else if (args->action == FLYT_ALLOCATION_ADOPT && held->is_leaving) {
        flyt_call_outcome(call, FLYT_STATUS_CONFLICT, "allocation %s is being ended", held->id_text);
    } else if (args->action == FLYT_ALLOCATION_ADOPT &&
               (held->revision > FLYT_REVISION_MAX || held->generation > FLYT_GENERATION_MAX)) {
        flyt_call_outcome(
            call, FLYT_STATUS_CONFLICT,
            "node %s has allocation %s at a revision or generation that no manager can have given: it can "
            "only be killed",
            held->node->key, held->id_text);
    } else if (args->action == FLYT_ALLOCATION_ADOPT) {
        adopt(call, held);
    } else if (args->action == FLYT_ALLOCATION_KILL) {
        struct flyt_vm *vm = held->vm;
        flyt_held_end(held, flyt_call_who(call, who), "an operator ended it");
        if (vm)
            flyt_vm_tell(vm, "an operator ended the allocation");
        flyt_call_outcome(call, FLYT_STATUS_OK, "%s", "");
    } else {
        flyt_call_outcome(call, FLYT_STATUS_INVALID, "there is no action %d", (int)args->action);
    }
}
