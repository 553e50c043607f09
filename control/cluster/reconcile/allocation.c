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

void flyt_held_free(struct flyt_held *held)
{
    flyt_held_cancel_orders(held);
    flyt_drain_end(held);
    flyt_migration_free(held->migration);
    free(held->vm_ip);
    free(held->tenant);
    free(held->use_text);
    free(held->failed_text);
    free(held->answer_text);
    free(held);
}

static void recount(struct flyt_held *held)
{
    for (unsigned i = 0; i < held->part_count; i++)
        if (held->parts[i].card)
            flyt_gpu_count(held->parts[i].card);
}

/* Forgets it; its GPUs' documents are written without it. */
static void forget(struct flyt_held *held, bool is_written)
{
    struct flyt_vm *vm = held->vm;

    flyt_migration_drop(held, "the allocation has ended", is_written);
    if (vm)
        flyt_resize_cancel(vm, "the allocation has ended");
    flyt_held_charge(held, false);
    flyt_table_remove(&held->cluster->held, held);
    if (vm && vm->held == held)
        vm->held = NULL;
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

/* ---- orders ---- */

void flyt_held_removed(struct flyt_held *held)
{
    flyt_event_add(held->cluster, "allocation.removed", "manager", held->id_text, flyt_held_json(held), NULL,
                   "allocation %s of VM %s has ended", held->id_text, held->vm_ip);
    flyt_held_drop(held);
}

/* What was taken away is free once the node says that nothing runs there any more. */
static bool release_left(struct flyt_held *held)
{
    bool has_released = false;

    if (held->applied_revision < held->revision)
        return false;
    for (unsigned i = 0; i < held->part_count; i++) {
        struct flyt_part *part = &held->parts[i];
        const struct flyt_slot_use *use = i < held->use_count ? &held->uses[i] : NULL;
        if (flyt_groupset_count(&part->leaving) &&
            (!held->session_count || (use && use->switch_state == FLYT_SWITCH_VACATED))) {
            memset(&part->leaving, 0, sizeof part->leaving);
            has_released = true;
        }
        if (part->leaving_bytes && use && use->memory_bytes <= part->memory_bytes) {
            part->leaving_bytes = 0;
            has_released = true;
        }
    }
    return has_released;
}

static void set_idle(struct flyt_held *held, unsigned session_count)
{
    bool was_idle = held->idle_since_ms != 0;

    held->session_count = session_count;
    if (session_count || !was_idle)
        flyt_held_set_idle(held, !session_count);
}

void flyt_held_used(struct flyt_held *held, const flyt_allocation_use *use)
{
    for (unsigned i = 0; i < held->part_count && i < FLYT_SLOTS_MAX; i++)
        held->uses[i] = i < use->slots.slots_len ? use->slots.slots_val[i] : (struct flyt_slot_use){0};
    held->use_count = use->slots.slots_len < held->part_count ? use->slots.slots_len : held->part_count;
    held->use_status = use->outcome.status;
    if (strcmp(held->use_text ? held->use_text : "", use->outcome.text))
        flyt_text_set(&held->use_text, use->outcome.text);
    held->applied_revision = use->revision < held->revision ? use->revision : held->revision;
    set_idle(held, use->session_count);
    if (release_left(held)) {
        recount(held);
        if (held->state != FLYT_ALLOCATION_ORPHAN)
            flyt_held_write(held, NULL, NULL);
    }
    flyt_resize_look(held);
    flyt_drain_look(held);
    flyt_migration_go_on(held);
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

static void node_answered(void *user, int status, const flyt_outcome *outcome)
{
    struct flyt_vm *vm = user;
    struct flyt_held *held = vm->held;
    char sentence[512];

    vm->is_placing = false;
    if (status == -ECANCELED || !held) {
        flyt_vm_answer(vm, FLYT_STATUS_UNAVAILABLE, "the allocation was taken back while it was being made");
    } else if (status && flyt_node_is_awaited(held->node)) {
        /* It gets the order when it registers, and the VM its answer then. */
    } else if (status) {
        /* It is recorded and charged. The next attach, or the node when it registers, gets the order again. */
        snprintf(sentence, sizeof sentence, "allocation %s is recorded, but node %s did not answer: %s", held->id_text,
                 held->node->key, strerror(-status));
        flyt_vm_answer(vm, status == -ETIMEDOUT ? FLYT_STATUS_TIMEOUT : FLYT_STATUS_UNAVAILABLE, sentence);
    } else if (outcome->status != FLYT_STATUS_OK) {
        snprintf(sentence, sizeof sentence, "node %s refused: %.300s", held->node->key, outcome->text);
        flyt_vm_answer(vm, FLYT_STATUS_UNAVAILABLE, sentence);
        flyt_vm_set_reason(vm, sentence);
        if (held->applied_revision == 0)
            flyt_held_end(held, "manager", "its node refused it");
    } else {
        flyt_vm_answer(vm, FLYT_STATUS_OK, "");
    }
}

static void grant_written(void *user, struct flyt_held *held, enum flyt_store_result result, const char *err)
{
    struct flyt_vm *vm = user;
    char sentence[512], size[FLYT_SIZE_TEXT_BYTES];

    if (!held) {
        vm->is_placing = false;
        flyt_vm_answer(vm, FLYT_STATUS_UNAVAILABLE, "the allocation was taken back while it was being made");
        return;
    }
    if (result != FLYT_STORE_OK) {
        vm->is_placing = false;
        vm->held = NULL;
        held->vm = NULL;
        forget(held, true);
        snprintf(sentence, sizeof sentence, "the store did not take the allocation: %.300s", err);
        flyt_vm_answer(vm, FLYT_STATUS_UNAVAILABLE, sentence);
        return;
    }
    held->is_granted = true;
    flyt_vm_set_reason(vm, NULL);
    flyt_event_add(held->cluster, "allocation.granted", "manager", held->id_text, NULL, flyt_held_json(held),
                   "VM %s: %u SMs and %s on %s:%u%s", held->vm_ip, held->parts[0].sm_count,
                   flyt_size_text(held->parts[0].memory_bytes, size), held->node->key,
                   flyt_gpu_capacity(held->parts[0].card)->index, held->part_count > 1 ? " and further GPUs" : "");
    flyt_held_order(held, node_answered, vm);
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
    vm->is_placing = true;
    flyt_held_write(held, grant_written, vm);
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
    flyt_migration_cancel(held, "the allocation is being ended");
    if (held->vm) {
        flyt_resize_cancel(held->vm, "the allocation is being ended");
        if (held->vm->held == held)
            held->vm->held = NULL; /* the next program places anew */
        held->vm = NULL;
        /* Who waits for an order waits as the VM, which may go before the order is answered. */
        flyt_held_cancel_orders(held);
    }
    flyt_event_add(held->cluster, "allocation.ending", who, held->id_text, flyt_held_json(held), NULL, "%s", why);
    if (held->state == FLYT_ALLOCATION_ORPHAN) {
        flyt_held_order(held, NULL, NULL);
        return;
    }
    flyt_held_set_state(held, FLYT_ALLOCATION_ENDING);
}

/* Once the node says that it lets no new program in, whether there is one by then decides. The order is repeated until
 * it says so (mend), so an answer that was lost leaves nothing blocked. */
static void settle_blocked_idle(struct flyt_held *held)
{
    struct flyt_vm *vm = held->vm;

    if (!vm || !held->is_blocked_idle || held->applied_revision < held->revision)
        return;
    held->is_blocked_idle = false;
    if (held->session_count) {
        flyt_held_set_state(held, FLYT_ALLOCATION_ACTIVE);
        return;
    }
    flyt_held_end(held, "manager", "no session for as long as allocation_linger_s says");
    flyt_vm_tell(vm, "the allocation was idle");
}

static void blocked_idle(void *user, int status, const flyt_outcome *outcome)
{
    struct flyt_vm *vm = user;

    if (!status && outcome->status == FLYT_STATUS_OK && vm->held)
        settle_blocked_idle(vm->held);
}

static void block_written(void *user, struct flyt_held *held, enum flyt_store_result result, const char *err)
{
    if (!held || !held->vm || held->vm->held != held || !held->is_blocked_idle)
        return;
    if (result == FLYT_STORE_OK)
        flyt_held_order(held, blocked_idle, held->vm);
    else
        held->is_blocked_idle = false; /* the state is put right by the next look at it */
}

/* Store and node are to have what there is here: what failed on the way is tried again. */
static void mend(struct flyt_held *held, uint64_t now_ms)
{
    bool is_wrong = held->is_leaving || held->applied_revision < held->revision;
    bool is_written = flyt_held_is_written(held);

    if (!is_wrong || held->is_ordering || flyt_migration_holds_orders(held) || !held->is_granted ||
        now_ms < held->mend_ms)
        return;
    if (held->state == FLYT_ALLOCATION_ORPHAN && !held->is_leaving)
        return;
    if (!is_written && held->failed_revision < held->revision)
        return; /* it is being written */
    held->mend_ms = now_ms + MEND_MS;
    if (!is_written)
        flyt_held_write_and_order(held);
    else if (held->node->is_registered)
        flyt_held_order(held, NULL, NULL);
}

void flyt_held_tick(struct flyt_cluster *cluster)
{
    uint64_t now_ms = flyt_clock_ms();

    if (!cluster->is_store_available)
        return;
    for (size_t i = cluster->held.count; i-- > 0;) {
        struct flyt_held *held = cluster->held.items[i];
        struct flyt_vm *vm = held->vm;
        mend(held, now_ms);
        settle_blocked_idle(held);
        bool is_quiet = held->is_granted && held->idle_since_ms && !held->session_count && held->applied_revision &&
                        held->node->is_registered && !held->is_leaving && !held->migration;
        if (!is_quiet || held->state == FLYT_ALLOCATION_ORPHAN || held->state == FLYT_ALLOCATION_ENDING)
            continue;
        if (held->state == FLYT_ALLOCATION_BLOCKED && !held->is_blocked_idle && vm && vm->is_deleted) {
            flyt_held_end(held, "manager", "its VM was removed and no program is left");
            continue;
        }
        if (held->is_reserved || held->resize || held->is_blocked_idle || (vm && vm->is_placing) ||
            now_ms - held->idle_clock_ms + held->lingered_ms < cluster->settings->allocation_linger_ms)
            continue;
        if (!vm) {
            flyt_held_end(held, "manager", "nobody uses it");
            continue;
        }
        held->is_blocked_idle = true;
        held->state = FLYT_ALLOCATION_BLOCKED;
        held->revision++;
        flyt_held_write(held, block_written, NULL);
    }
}

/* ---- adopt, kill ---- */

struct adoption {
    struct flyt_call *call;
    struct flyt_cluster *cluster;
    char who[FLYT_NAME_BYTES_MAX + 1];
};

static void adopted(void *user, struct flyt_held *held, enum flyt_store_result result, const char *err)
{
    struct adoption *adoption = user;

    if (held && result == FLYT_STORE_OK) {
        flyt_event_add(adoption->cluster, "allocation.adopted", adoption->who, held->id_text, NULL,
                       flyt_held_json(held), "VM %s has it now", held->vm_ip);
        flyt_held_order(held, NULL, NULL);
        if (held->vm)
            flyt_vm_tell(held->vm, "the allocation was adopted");
        flyt_call_outcome(adoption->call, FLYT_STATUS_OK, "%s", "");
    } else {
        if (held) {
            flyt_held_charge(held, false);
            held->state = FLYT_ALLOCATION_ORPHAN;
            if (held->vm && held->vm->held == held) {
                flyt_resize_cancel(held->vm, "the allocation was not adopted");
                held->vm->held = NULL;
            }
            held->vm = NULL;
        }
        flyt_call_outcome(adoption->call, FLYT_STATUS_UNAVAILABLE, "the store did not take it: %s", err);
    }
    free(adoption);
}

static void adopt(struct flyt_call *call, struct flyt_held *held)
{
    struct flyt_vm *vm = flyt_vm_get(held->cluster, held->vm_ip);
    struct adoption *adoption = calloc(1, sizeof *adoption);

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
    adoption->cluster = held->cluster;
    flyt_call_who(call, adoption->who);
    held->state = vm->has_desired ? FLYT_ALLOCATION_ACTIVE : FLYT_ALLOCATION_BLOCKED;
    held->vm = vm;
    vm->held = held;
    held->revision++;
    flyt_held_charge(held, true);
    flyt_held_write(held, adopted, adoption);
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
