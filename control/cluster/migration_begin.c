/* Whether a VM's programs can move, and where to. Nothing is taken and nothing stops before all of this holds. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/cluster/migration.h"
#include "control/cluster/saving.h"

static flyt_status refuse(struct flyt_error *err, flyt_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static flyt_status refuse(struct flyt_error *err, flyt_status status, const char *format, ...)
{
    char text[sizeof err->text];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    flyt_error_set(err, -EINVAL, "%s", text);
    return status;
}

/* What of the allocation itself forbids it now. */
static flyt_status check_held(const struct flyt_held *held, const struct flyt_migration_wish *wish,
                              struct flyt_error *err)
{
    const struct flyt_node *node = held->node;

    if (!held->is_granted)
        return refuse(err, FLYT_STATUS_CONFLICT, "VM %s is just being granted its GPU: try again in a moment",
                      held->vm_ip);
    if (held->is_leaving || held->state == FLYT_ALLOCATION_ENDING)
        return refuse(err, FLYT_STATUS_CONFLICT, "what VM %s was granted is being taken away", held->vm_ip);
    if (held->migration)
        return refuse(err, FLYT_STATUS_CONFLICT, "VM %s moves already: migration %s from %s to %s, %s", held->vm_ip,
                      held->migration->id_text, held->migration->source, held->migration->target,
                      flyt_migration_phase_name(held->migration->use.phase));
    if (flyt_saving_of(held))
        return refuse(err, FLYT_STATUS_CONFLICT, "VM %s is being checkpointed (%s): try again when that is over",
                      held->vm_ip, flyt_saving_of(held)->id_text);
    if (!node->is_registered)
        return refuse(err, FLYT_STATUS_UNAVAILABLE, "node %s, where VM %s is, is not connected", node->key,
                      held->vm_ip);
    for (unsigned i = 0; wish->memory_bytes && i < held->use_count; i++)
        if (held->uses[i].memory_used_bytes > wish->memory_bytes)
            return refuse(err, FLYT_STATUS_IN_USE, "VM %s has more memory in use than it would have", held->vm_ip);
    return FLYT_STATUS_OK;
}

/* The node or GPU that is meant; *ret_card NULL: any of the node. */
static flyt_status find_target(const struct flyt_held *held, const char *target, struct flyt_card **ret_card,
                               struct flyt_error *err)
{
    struct flyt_node *node = *target ? flyt_table_find(&held->cluster->nodes, target) : held->node;
    struct flyt_card *card = node ? NULL : flyt_gpu_find(held->cluster, target, err);

    if (!node && !card)
        return err->code == -EINVAL ? FLYT_STATUS_INVALID : FLYT_STATUS_NOT_FOUND;
    if ((card ? card->node : node) != held->node)
        return refuse(err, FLYT_STATUS_NOT_SUPPORTED,
                      "moving between nodes is not possible yet: VM %s is on node %s, %s is %s%s", held->vm_ip,
                      held->node->key, target, card ? "in node " : "another one", card ? card->node->key : "");
    if (card && held->part_count > 1)
        return refuse(err, FLYT_STATUS_NOT_SUPPORTED,
                      "VM %s has %u GPUs, which move together: name the node, or none, and all of them are chosen anew",
                      held->vm_ip, held->part_count);
    *ret_card = card;
    return FLYT_STATUS_OK;
}

/* What placement is asked: as much as there is, or as is wished, with the VM's conditions. */
static void make_request(const struct flyt_held *held, const struct flyt_migration_wish *wish,
                         struct flyt_place_request *ret_request)
{
    const struct flyt_part *part = &held->parts[0];
    const struct flyt_capacity *now = flyt_gpu_capacity(part->card);

    flyt_vm_request(held->vm, ret_request);
    ret_request->device_count = held->part_count;
    ret_request->sm_count = wish->sm_count ? wish->sm_count : part->wanted_sms;
    ret_request->memory_bytes = wish->memory_bytes ? wish->memory_bytes : part->memory_bytes + part->leaving_bytes;
    ret_request->session_count = held->sessions_max;
    ret_request->isolation = held->isolation;
    ret_request->is_timed = held->share.is_timed;
    ret_request->minimum_share_pct = held->share.minimum_pct;
    ret_request->compute_capability = now->compute_capability;
    ret_request->group_sms = now->regular_sms;
    for (unsigned i = 0; i < held->part_count; i++)
        ret_request->present_gpus |= 1ull << held->parts[i].card->place;
}

static void set_other(const struct flyt_held *held, const struct flyt_migration_wish *wish,
                      const struct flyt_place_request *request, unsigned slot, struct flyt_card *card,
                      unsigned sm_count, const struct flyt_groupset *groups, struct flyt_part *ret_other)
{
    const struct flyt_part *part = &held->parts[slot];

    *ret_other = (struct flyt_part){.card = card,
                                    .device_index = part->device_index,
                                    .wanted_sms = request->sm_count,
                                    .sm_count = sm_count,
                                    .groups = *groups,
                                    .memory_bytes = wish->memory_bytes ? wish->memory_bytes : part->memory_bytes,
                                    .leaving_bytes = wish->memory_bytes ? 0 : part->leaving_bytes};
}

/* New server processes on the GPU where they are: its SMs and its memory stay, client slots are taken twice. */
static flyt_status choose_same(const struct flyt_held *held, const struct flyt_migration_wish *wish,
                               const struct flyt_place_request *request, struct flyt_part *ret_other,
                               struct flyt_error *err)
{
    const struct flyt_part *part = &held->parts[0];
    const struct flyt_capacity *gpu = flyt_gpu_capacity(part->card);

    if (!wish->force)
        return refuse(err, FLYT_STATUS_CONFLICT,
                      "VM %s is on %s:%u already; --force gives its programs new server processes there", held->vm_ip,
                      held->node->key, gpu->index);
    if (wish->sm_count || wish->memory_bytes)
        return refuse(err, FLYT_STATUS_INVALID, "VM %s is on %s:%u already: a resize changes its size there",
                      held->vm_ip, held->node->key, gpu->index);
    if (gpu->is_unhealthy)
        return refuse(err, FLYT_STATUS_NO_CAPACITY, "%s:%u: not healthy", held->node->key, gpu->index);
    if (held->sessions_max > gpu->slots_free)
        return refuse(err, FLYT_STATUS_NO_CAPACITY, "%s:%u: not enough client slots (needs %u more, %u free)",
                      held->node->key, gpu->index, held->sessions_max, gpu->slots_free);
    if (flyt_capacity_memory(gpu, 0, held->sessions_max) > gpu->memory_free_bytes)
        return refuse(err, FLYT_STATUS_NO_CAPACITY, "%s:%u: not enough memory for its programs' new servers",
                      held->node->key, gpu->index);
    set_other(held, wish, request, 0, part->card, part->sm_count, &part->groups, ret_other);
    ret_other->wanted_sms = part->wanted_sms;
    ret_other->leaving = part->leaving;
    return FLYT_STATUS_OK;
}

static flyt_status choose_gpu(const struct flyt_held *held, const struct flyt_migration_wish *wish,
                              const struct flyt_place_request *request, struct flyt_card *card,
                              struct flyt_part *ret_other, struct flyt_error *err)
{
    const struct flyt_capacity *gpu = flyt_gpu_capacity(card);
    struct flyt_groupset groups = {{0}};
    char reason[256];

    if (flyt_place_refuses(&held->node->place, gpu, request, reason, sizeof reason))
        return refuse(err, FLYT_STATUS_NO_CAPACITY, "%s:%u: %s", held->node->key, gpu->index, reason);
    unsigned sms = flyt_capacity_choose(gpu, request->is_timed ? &gpu->timed : NULL, request->sm_count, &groups);
    if (!sms)
        return refuse(err, FLYT_STATUS_NO_CAPACITY, "%s:%u: not enough SMs", held->node->key, gpu->index);
    set_other(held, wish, request, 0, card, sms, &groups, ret_other);
    return FLYT_STATUS_OK;
}

static flyt_status choose_any(const struct flyt_held *held, const struct flyt_migration_wish *wish,
                              const struct flyt_place_request *request, struct flyt_part *ret_others,
                              struct flyt_error *err)
{
    struct flyt_place_node *const nodes[] = {&held->node->place};
    struct flyt_placement placement;
    char reason[384];

    if (held->node->place.schedule != FLYT_SCHEDULE_ACTIVE)
        return refuse(err, FLYT_STATUS_NOT_SUPPORTED,
                      "moving between nodes is not possible yet: VM %s is on node %s, which takes nothing new",
                      held->vm_ip, held->node->key);

    if (flyt_place(nodes, 1, request, &placement, reason, sizeof reason))
        return refuse(err, FLYT_STATUS_NO_CAPACITY,
                      "VM %s cannot move to another GPU of node %s (and not to another node yet): %s", held->vm_ip,
                      held->node->key, reason);
    for (unsigned i = 0; i < placement.slot_count; i++)
        set_other(held, wish, request, i, held->node->cards[placement.slots[i].gpu], placement.slots[i].sm_count,
                  &placement.slots[i].groups, &ret_others[i]);
    return FLYT_STATUS_OK;
}

/* What it grows by counts for its tenant. */
static bool within_quota(const struct flyt_held *held, const struct flyt_part *others, struct flyt_error *err)
{
    const struct flyt_tenant *tenant = flyt_tenant_get(held->cluster, held->tenant);
    struct flyt_quota more = {0};
    char reason[sizeof err->text];

    for (unsigned i = 0; i < held->part_count; i++) {
        const struct flyt_part *now = &held->parts[i], *new = &others[i];
        more.sm_count += new->sm_count > now->sm_count ? new->sm_count - now->sm_count : 0;
        more.memory_bytes += new->memory_bytes > now->memory_bytes ? new->memory_bytes - now->memory_bytes : 0;
    }
    if (!tenant || flyt_quota_allows(held->tenant, &tenant->quota, &tenant->used, &more, reason, sizeof reason))
        return true;
    flyt_measure_limit(held->cluster, "quota");
    flyt_error_set(err, -EDQUOT, "%s", reason);
    return false;
}

flyt_status flyt_migration_choose(struct flyt_held *held, const struct flyt_migration_wish *wish,
                                  struct flyt_part *ret_others, struct flyt_error *err)
{
    struct flyt_part others[FLYT_SLOTS_MAX] = {0};
    struct flyt_place_request request = {0};
    struct flyt_card *card = NULL;
    flyt_status status = check_held(held, wish, err);

    if (status == FLYT_STATUS_OK)
        status = find_target(held, wish->target, &card, err);
    if (status != FLYT_STATUS_OK)
        return status;
    make_request(held, wish, &request);
    if (card && card == held->parts[0].card)
        status = choose_same(held, wish, &request, others, err);
    else if (card)
        status = choose_gpu(held, wish, &request, card, others, err);
    else
        status = choose_any(held, wish, &request, others, err);
    if (status != FLYT_STATUS_OK) {
        if (status == FLYT_STATUS_NO_CAPACITY)
            flyt_measure_limit(held->cluster, "capacity");
        return status;
    }
    if (!wish->force && !within_quota(held, others, err))
        return FLYT_STATUS_QUOTA;
    if (!wish->force && !flyt_session_needs_fit(held, held->parts, others, err))
        return FLYT_STATUS_IN_USE;
    memcpy(ret_others, others, sizeof others);
    return FLYT_STATUS_OK;
}

/* ---- what operators call ---- */

void flyt_serve_migrate(struct flyt_call *call, void *data)
{
    const flyt_migrate_args *args = data;
    struct flyt_cluster *cluster = flyt_call_cluster(call);
    struct flyt_error err = {0};
    struct flyt_part others[FLYT_SLOTS_MAX];
    char who[FLYT_NAME_BYTES_MAX + 1];

    if (!flyt_lead_may(cluster, call))
        return;
    struct flyt_vm *vm = flyt_vm_find(cluster, args->vm, &err);
    if (!vm) {
        flyt_call_outcome(call, err.code == -EINVAL ? FLYT_STATUS_INVALID : FLYT_STATUS_NOT_FOUND, "%s", err.text);
        return;
    }
    const struct flyt_migration_wish wish = {
        .target = args->target, .bounds = args->bounds, .force = args->force, .who = flyt_call_who(call, who)};
    flyt_status status = FLYT_STATUS_OK;
    if (!vm->held || vm->held->state == FLYT_ALLOCATION_ORPHAN)
        status = refuse(&err, FLYT_STATUS_NOT_FOUND, "VM %s has no GPU now: there is nothing to move", vm->key);
    else if (!TAILQ_EMPTY(&vm->resizes))
        status = refuse(&err, FLYT_STATUS_CONFLICT, "VM %s is being resized: try again when that is over", vm->key);
    else if (args->compute_units.is_set || args->memory_bytes.is_set)
        status = flyt_resize_migrate(vm, args, call, &err);
    else if ((status = flyt_migration_choose(vm->held, &wish, others, &err)) == FLYT_STATUS_OK &&
             flyt_migration_start(vm->held, &wish, others, call))
        status = refuse(&err, FLYT_STATUS_UNAVAILABLE, "the cluster manager has no memory");
    if (status != FLYT_STATUS_OK)
        flyt_call_outcome(call, status, "%s", err.text);
}

void flyt_serve_migrate_cancel(struct flyt_call *call, void *data)
{
    const flyt_migrate_cancel_args *args = data;
    struct flyt_cluster *cluster = flyt_call_cluster(call);
    struct flyt_error err = {0};
    char who[FLYT_NAME_BYTES_MAX + 1], why[FLYT_NAME_BYTES_MAX + 32];

    if (!flyt_lead_may(cluster, call))
        return;
    struct flyt_vm *vm = flyt_vm_find(cluster, args->vm, &err);
    struct flyt_migration *migration = vm && vm->held ? vm->held->migration : NULL;
    if (!vm) {
        flyt_call_outcome(call, err.code == -EINVAL ? FLYT_STATUS_INVALID : FLYT_STATUS_NOT_FOUND, "%s", err.text);
    } else if (!migration) {
        flyt_call_outcome(call, FLYT_STATUS_NOT_FOUND, "VM %s does not move", vm->key);
    } else if (migration->is_moved || migration->use.phase >= FLYT_MIGRATION_SWITCHING) {
        flyt_call_outcome(call, FLYT_STATUS_CONFLICT,
                          "it is too late: the programs of VM %s connect to their new servers already", vm->key);
    } else {
        snprintf(why, sizeof why, "%s cancelled it", flyt_call_who(call, who));
        flyt_migration_cancel(vm->held, why);
        flyt_call_outcome(call, FLYT_STATUS_OK, "%s", "");
    }
}
