/* Allocations: placed, ordered to their node, blocked, ended. allocation_document.c writes them. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "control/cluster/migration.h"
#include "rpc/base/clock.h"
#include "rpc/base/log.h"

enum { MEND_MS = 5000 };

struct flyt_order_waiter {
    uint64_t revision;
    flyt_order_done_fn done;
    void *user;
    STAILQ_ENTRY(flyt_order_waiter) entry;
};

struct flyt_held *flyt_held_find(struct flyt_cluster *cluster, uint64_t id)
{
    char text[17];

    snprintf(text, sizeof text, "%016" PRIx64, id);
    return flyt_table_find(&cluster->held, text);
}

struct flyt_held *flyt_held_new(struct flyt_cluster *cluster, uint64_t id, const char *vm_ip, const char *tenant,
                                unsigned part_count)
{
    struct flyt_held *held = calloc(1, sizeof *held + part_count * sizeof *held->parts);

    if (!held)
        return NULL;
    held->key = held->id_text;
    snprintf(held->id_text, sizeof held->id_text, "%016" PRIx64, id);
    held->id = id;
    held->cluster = cluster;
    held->vm_ip = strdup(vm_ip);
    held->tenant = strdup(tenant);
    held->part_count = part_count;
    held->state = FLYT_ALLOCATION_ACTIVE;
    held->revision = held->generation = 1;
    STAILQ_INIT(&held->order_waiters);
    TAILQ_INIT(&held->drains);
    if (!held->vm_ip || !held->tenant || flyt_table_add(&cluster->held, held)) {
        free(held->vm_ip);
        free(held->tenant);
        free(held);
        return NULL;
    }
    return held;
}

static void tell_orders(struct flyt_held *held, uint64_t revision, int status, const flyt_outcome *outcome)
{
    STAILQ_HEAD(, flyt_order_waiter) told = STAILQ_HEAD_INITIALIZER(told);
    struct flyt_order_waiter *waiter, *next;

    for (waiter = STAILQ_FIRST(&held->order_waiters); waiter; waiter = next) {
        next = STAILQ_NEXT(waiter, entry);
        if (waiter->revision > revision)
            continue;
        STAILQ_REMOVE(&held->order_waiters, waiter, flyt_order_waiter, entry);
        STAILQ_INSERT_TAIL(&told, waiter, entry);
    }
    /* held may go while they are told. */
    while ((waiter = STAILQ_FIRST(&told))) {
        STAILQ_REMOVE_HEAD(&told, entry);
        waiter->done(waiter->user, status, outcome);
        free(waiter);
    }
}

void flyt_held_free(struct flyt_held *held)
{
    tell_orders(held, UINT64_MAX, -ECANCELED, NULL);
    flyt_drain_end(held);
    flyt_migration_free(held->migration);
    free(held->vm_ip);
    free(held->tenant);
    free(held->use_text);
    free(held);
}

void flyt_held_charge(struct flyt_held *held, bool is_taken)
{
    struct flyt_tenant *tenant = flyt_tenant_get(held->cluster, held->tenant);
    struct flyt_quota sum = {.session_count = (uint64_t)held->sessions_max * held->part_count, .vm_count = 1};

    if (!tenant || held->state == FLYT_ALLOCATION_ORPHAN)
        return;
    for (unsigned i = 0; i < held->part_count; i++) {
        /* A VM that moves has its size once: the larger one, where that changes on the way. */
        const struct flyt_part *part = &held->parts[i], *other = held->migration ? &held->migration->others[i] : part;
        sum.sm_count += other->sm_count > part->sm_count ? other->sm_count : part->sm_count;
        sum.memory_bytes += other->memory_bytes > part->memory_bytes ? other->memory_bytes : part->memory_bytes;
    }
    if (is_taken) {
        tenant->used.sm_count += sum.sm_count;
        tenant->used.memory_bytes += sum.memory_bytes;
        tenant->used.session_count += sum.session_count;
        tenant->used.vm_count += sum.vm_count;
    } else {
        tenant->used.sm_count -= sum.sm_count;
        tenant->used.memory_bytes -= sum.memory_bytes;
        tenant->used.session_count -= sum.session_count;
        tenant->used.vm_count -= sum.vm_count;
    }
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
            flyt_kept_change(card->kept, NULL, NULL);
    }
    flyt_held_free(held);
}

void flyt_held_drop(struct flyt_held *held)
{
    forget(held, held->state != FLYT_ALLOCATION_ORPHAN);
}

/* ---- orders ---- */

int flyt_held_wire(const struct flyt_held *held, flyt_allocation *ret_wire)
{
    return flyt_held_wire_parts(held, held->parts, ret_wire);
}

int flyt_held_wire_parts(const struct flyt_held *held, const struct flyt_part *parts, flyt_allocation *ret_wire)
{
    flyt_allocation wire = {.id = held->id,
                            .vm_ip = held->vm_ip,
                            .tenant = held->tenant,
                            .state = held->state,
                            .isolation = held->isolation,
                            .revision = held->revision,
                            .generation = held->generation,
                            .sessions_max = held->sessions_max,
                            .when_free = held->when_free,
                            .is_encrypted = held->is_encrypted,
                            .is_suspended = held->is_suspended,
                            .shown_sms = held->shown_sms};

    wire.slots.slots_val = calloc(held->part_count, sizeof *wire.slots.slots_val);
    if (!wire.slots.slots_val)
        return -ENOMEM;
    for (unsigned i = 0; i < held->part_count; i++) {
        const struct flyt_part *part = &parts[i];
        flyt_slot *slot = &wire.slots.slots_val[i];
        unsigned group_count = flyt_groupset_count(&part->groups);
        slot->gpu_uuid = (char *)part->card->key;
        slot->device_index = part->device_index;
        slot->sm_count = part->sm_count;
        slot->memory_bytes = part->memory_bytes;
        flyt_share_fill(held, part, slot);
        slot->sm_groups.sm_groups_val = calloc(group_count + 1, sizeof *slot->sm_groups.sm_groups_val);
        wire.slots.slots_len = i + 1;
        if (!slot->sm_groups.sm_groups_val) {
            flyt_held_wire_free(&wire);
            return -ENOMEM;
        }
        for (unsigned group = 0; group < FLYT_GROUPS_MAX; group++)
            if (flyt_groupset_has(&part->groups, group))
                slot->sm_groups.sm_groups_val[slot->sm_groups.sm_groups_len++] = group;
    }
    *ret_wire = wire;
    return 0;
}

void flyt_held_wire_free(flyt_allocation *wire)
{
    for (unsigned i = 0; i < wire->slots.slots_len; i++)
        free(wire->slots.slots_val[i].sm_groups.sm_groups_val);
    free(wire->slots.slots_val);
    memset(wire, 0, sizeof *wire);
}

struct ordering {
    struct flyt_cluster *cluster;
    uint64_t id, revision;
    bool is_removal;
};

static void send_order(struct flyt_held *held);
static void state_written(void *user, struct flyt_held *held, enum flyt_store_result result, const char *err);

/* The node is gone, or the order went wrong on the way: it is given again when the node registers or asks. */
static void order_failed(struct flyt_held *held, uint64_t revision, int status)
{
    flyt_debug("allocation %s: order to node %s failed: %s", held->id_text, held->node->key, strerror(-status));
    tell_orders(held, revision, status, NULL);
}

bool flyt_held_outgrow(struct flyt_held *held, uint64_t revision, unsigned generation)
{
    if (revision < held->revision && generation <= held->generation)
        return false;
    if ((revision > held->revision && revision > FLYT_REVISION_MAX) ||
        (generation > held->generation && generation > FLYT_GENERATION_MAX)) {
        if (held->doubted_revision != revision)
            flyt_event_add(held->cluster, "allocation.impossible", "manager", held->id_text, NULL, NULL,
                           "node %s has allocation %s at revision %" PRIu64
                           ", generation %u, which no manager can have "
                           "given: its state is damaged, or it lies; `flytctl allocation kill %s` takes it away",
                           held->node->key, held->id_text, revision, generation, held->id_text);
        held->doubted_revision = revision;
        return false;
    }
    held->revision = (revision > held->revision ? revision : held->revision) + 1;
    if (generation > held->generation)
        held->generation = generation;
    return true;
}

static void removed(struct flyt_held *held)
{
    flyt_event_add(held->cluster, "allocation.removed", "manager", held->id_text, flyt_held_json(held), NULL,
                   "allocation %s of VM %s has ended", held->id_text, held->vm_ip);
    flyt_held_drop(held);
}

static void order_answered(void *user, int status, void *result)
{
    struct ordering *ordering = user;
    struct flyt_cluster *cluster = ordering->cluster;
    struct flyt_held *held = flyt_held_find(cluster, ordering->id);
    uint64_t revision = ordering->revision;
    bool is_removal = ordering->is_removal;
    flyt_apply_res *res = result;

    free(ordering);
    if (!held)
        return;
    held->is_ordering = false;
    if (status) {
        order_failed(held, revision, status);
        return;
    }
    if (res->outcome.status == FLYT_STATUS_STALE && res->epoch > cluster->epoch) {
        flyt_lead_claimed(cluster, held->node, res->epoch);
        tell_orders(held, revision, -ESTALE, &res->outcome);
        return;
    }
    if (res->outcome.status != FLYT_STATUS_OK) {
        tell_orders(held, revision, 0, &res->outcome);
        return;
    }
    if (is_removal) {
        removed(held);
        return;
    }
    const flyt_allocation_use *use = NULL;
    for (unsigned i = 0; i < res->uses.uses_len && !use; i++)
        if (res->uses.uses_val[i].id == held->id)
            use = &res->uses.uses_val[i];
    if (use && use->outcome.status == FLYT_STATUS_STALE && flyt_held_outgrow(held, use->revision, held->generation)) {
        flyt_held_write(held, state_written, NULL);
        return;
    }
    flyt_outcome outcome = use ? use->outcome : res->outcome;
    if (use)
        flyt_held_used(held, use);
    tell_orders(held, revision, 0, &outcome);
    held = flyt_held_find(cluster, use ? use->id : 0);
    if (held && !held->is_ordering && held->revision > revision)
        send_order(held);
    else if (held)
        flyt_migration_go_on(held);
}

bool flyt_held_is_written(const struct flyt_held *held)
{
    return held->state == FLYT_ALLOCATION_ORPHAN || held->written_revision >= held->revision;
}

void flyt_held_written(struct flyt_held *held)
{
    if (held->is_order_due && flyt_held_is_written(held))
        send_order(held);
}

/* Sends what holds now. One order of an allocation is under way at a time: a later change is sent after it. */
static void send_order(struct flyt_held *held)
{
    struct flyt_node *node = held->node;
    struct ordering *ordering;
    flyt_allocation wire;
    u_quad_t id = held->id;
    flyt_apply_args args = {.epoch = held->cluster->epoch};
    int status = -ENOTCONN;

    if (held->is_ordering || flyt_migration_holds_orders(held))
        return; /* the end of that order, or of the migration, sends what holds then */
    held->is_order_due = !flyt_held_is_written(held);
    if (held->is_order_due)
        return; /* what was not written is never ordered: the end of the write sends it */
    bool is_removal = held->state == FLYT_ALLOCATION_ENDING || held->is_leaving;
    if (!node->is_registered || !node->link) {
        order_failed(held, held->revision, status);
        return;
    }
    ordering = calloc(1, sizeof *ordering);
    if (!ordering || (!is_removal && flyt_held_wire(held, &wire))) {
        free(ordering);
        order_failed(held, held->revision, -ENOMEM);
        return;
    }
    *ordering = (struct ordering){held->cluster, held->id, held->revision, is_removal};
    if (is_removal) {
        args.removed.removed_val = &id;
        args.removed.removed_len = 1;
    } else {
        args.allocations.allocations_val = &wire;
        args.allocations.allocations_len = 1;
    }
    held->is_ordering = true;
    status = flyt_peer_call(node->link->peer, FLYT_ORDER_PROGRAM, FLYT_ORDER_VERSION, FLYT_ORDER_APPLY,
                            (xdrproc_t)xdr_flyt_apply_args, &args, (xdrproc_t)xdr_flyt_apply_res,
                            sizeof(flyt_apply_res), held->cluster->settings->order_ms, order_answered, ordering);
    if (!is_removal)
        flyt_held_wire_free(&wire);
    if (!status)
        return;
    held->is_ordering = false;
    free(ordering);
    order_failed(held, held->revision, status);
}

void flyt_held_order(struct flyt_held *held, flyt_order_done_fn done, void *user)
{
    struct flyt_order_waiter *waiter = done ? calloc(1, sizeof *waiter) : NULL;

    if (done && !waiter) {
        done(user, -ENOMEM, NULL);
        return;
    }
    if (waiter) {
        *waiter = (struct flyt_order_waiter){.revision = held->revision, .done = done, .user = user};
        STAILQ_INSERT_TAIL(&held->order_waiters, waiter, entry);
    }
    send_order(held);
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

void flyt_held_set_idle(struct flyt_held *held, bool is_idle)
{
    held->idle_since_ms = is_idle ? flyt_wall_ms() : 0;
    held->idle_clock_ms = flyt_clock_ms();
    held->lingered_ms = 0;
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
    flyt_resize_used(held);
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

static void state_written(void *user, struct flyt_held *held, enum flyt_store_result result, const char *err)
{
    /* What was not written is written again and ordered then, by the look that is taken every second. */
    if (held && result == FLYT_STORE_OK)
        flyt_held_order(held, NULL, NULL);
}

void flyt_held_set_state(struct flyt_held *held, enum flyt_allocation_state state)
{
    if (held->state == state)
        return;
    held->state = state;
    held->revision++;
    if (state == FLYT_ALLOCATION_ACTIVE)
        held->open_revision = held->revision;
    flyt_held_write(held, state_written, NULL);
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
        tell_orders(held, UINT64_MAX, -ECANCELED, NULL);
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

    if (!is_wrong || held->is_ordering || held->resize || flyt_migration_holds_orders(held) || !held->is_granted ||
        now_ms < held->mend_ms)
        return;
    if (held->state == FLYT_ALLOCATION_ORPHAN && !held->is_leaving)
        return;
    held->mend_ms = now_ms + MEND_MS;
    if (held->state != FLYT_ALLOCATION_ORPHAN && held->written_revision < held->revision)
        flyt_held_write(held, state_written, NULL);
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
            if (held->vm && held->vm->held == held)
                held->vm->held = NULL;
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
