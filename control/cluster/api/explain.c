/* What there is to say about one VM, in the order in which things happen to it. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "control/base/size.h"
#include "control/cluster/api/view.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/capacity.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/desired.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/migration_rules.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/slot.h"
#include "control/cluster/model/placement.h"
#include "control/cluster/model/checkpoint_op.h"
#include "control/cluster/model/session.h"
#include "control/cluster/model/share.h"
#include "control/cluster/model/table.h"
#include "control/cluster/model/vm.h"
#include "control/cluster/reconcile/allocation.h"
#include "control/cluster/reconcile/checkpoint_op.h"
#include "rpc/base/clock.h"
#include "rpc/base/error.h"

static void say(cJSON *array, const struct flyt_vm *vm, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void say(cJSON *array, const struct flyt_vm *vm, const char *format, ...)
{
    char sentence[1024];
    cJSON *object = cJSON_CreateObject();
    va_list args;

    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    cJSON_AddStringToObject(object, "vm_ip", vm->key);
    cJSON_AddStringToObject(object, "sentence", sentence);
    cJSON_AddItemToArray(array, object);
}

static void explain_document(cJSON *array, const struct flyt_vm *vm)
{
    const struct flyt_desired *desired = &vm->desired;
    char size[32];

    if (vm->has_desired)
        say(array, vm, "Its document asks for %u device%s with %u SMs and %s each%s%s.", desired->device_count,
            desired->device_count == 1 ? "" : "s", desired->sm_count, flyt_size_text(desired->memory_bytes, size),
            desired->host_ip ? ", preferably on " : "", desired->host_ip ? desired->host_ip : "");
    else if (vm->desired_count)
        say(array, vm, "It has %u document%s in vm_required_resources, none of which could be taken over.",
            vm->desired_count, vm->desired_count == 1 ? "" : "s");
    else
        say(array, vm, "It has no document in vm_required_resources: `flytctl vm add %s` makes one.", vm->key);
    if (vm->reason)
        say(array, vm, "Last refusal: %s.", vm->reason);
}

static void explain_placement(cJSON *array, const struct flyt_vm *vm)
{
    struct flyt_cluster *cluster = vm->cluster;
    struct flyt_place_request request;
    struct flyt_placement placement;
    struct flyt_error err = {0};
    char reason[512];

    if (!vm->has_desired)
        return;
    flyt_vm_request(vm, &request);
    if (flyt_allocation_choose(vm, &placement, &err)) {
        say(array, vm, "It cannot be placed now: %s.", err.text);
    } else {
        const struct flyt_node *node = cluster->nodes.items[placement.node];
        say(array, vm, "Its first program would get GPU %s:%u.", node->key,
            node->place.gpus[placement.slots[0].gpu].index);
    }
    for (size_t i = 0; i < cluster->gpus.count && i < 64; i++) {
        const struct flyt_cluster_gpu *gpu = cluster->gpus.items[i];
        if (flyt_place_refuses(&gpu->node->place, flyt_gpu_capacity(gpu), &request, reason, sizeof reason))
            say(array, vm, "GPU %s:%u (%s) does not do: %s%s%s.", gpu->node->key, flyt_gpu_capacity(gpu)->index,
                gpu->key, reason, flyt_gpu_capacity(gpu)->is_unhealthy && gpu->health_text ? ": " : "",
                flyt_gpu_capacity(gpu)->is_unhealthy && gpu->health_text ? gpu->health_text : "");
    }
}

/* Turns with others, a pause, and what of the document waits for the next allocation. */
static void explain_share(cJSON *array, const struct flyt_vm *vm)
{
    const struct flyt_cluster_allocation *allocation = vm->allocation;
    const struct flyt_share *share = &allocation->share;
    struct flyt_place_request request;
    char bound[32] = "what others leave";

    if (share->maximum_pct && share->maximum_pct < 100)
        snprintf(bound, sizeof bound, "%u %%", share->maximum_pct);
    if (share->is_timed)
        say(array, vm, "It shares its SMs with others in turns: %u %% of the time at least, %s at most, in %u ms.",
            share->minimum_pct, bound, share->window_ms);
    if (allocation->is_suspended)
        say(array, vm, "It is suspended%s: `flytctl resume %s` lets its programs go on.",
            flyt_share_is_still(allocation) ? "" : ", but work that its GPU had got before is still there", vm->key);
    if (!vm->has_desired)
        return;
    flyt_vm_request(vm, &request);
    if (request.isolation != allocation->isolation)
        say(array, vm, "Its document's isolation, %s, takes hold with its next allocation.",
            request.isolation == FLYT_ISOLATION_STRICT ? "strict" : "shared");
}

static void explain_images(cJSON *array, const struct flyt_vm *vm)
{
    const struct flyt_cluster_allocation *allocation = vm->allocation;
    const struct flyt_node *node = allocation->node;
    const struct flyt_checkpoint_op *op = flyt_checkpoint_op_of(allocation);
    unsigned checkpointed = 0;

    if (op)
        say(array, vm, "Its programs are written to %s: checkpoint %s, %s.", op->folder, op->id_text,
            flyt_checkpoint_op_phase_name(op->use.phase));
    for (unsigned i = 0; i < node->session_count; i++)
        checkpointed +=
            node->sessions[i].allocation_id == allocation->id && flyt_session_is_checkpointed(&node->sessions[i]);
    if (checkpointed)
        say(array, vm,
            "%u of its programs wait in checkpoint images, which `flytctl sessions -o wide` names, for "
            "`flytctl restore`.",
            checkpointed);
}

static void explain_allocation(cJSON *array, const struct flyt_vm *vm)
{
    const struct flyt_cluster_allocation *allocation = vm->allocation;
    const struct flyt_node *node = allocation->node;

    say(array, vm, "It has allocation %s on node %s, revision %" PRIu64 "%s.", allocation->id_text, node->key,
        allocation->revision,
        allocation->applied_revision >= allocation->revision ? "" : ", which the node has not acknowledged yet");
    for (unsigned i = 0; i < allocation->slot_count; i++) {
        const struct flyt_cluster_slot *slot = &allocation->slots[i];
        char limit[32], used[32];
        say(array, vm, "Device %u: GPU %s, %u SMs (%u wanted), %s of %s in use.", slot->device_index, slot->gpu->key,
            slot->sm_count, slot->wanted_sms,
            flyt_size_text(i < allocation->use_count ? allocation->uses[i].memory_used_bytes : 0, used),
            flyt_size_text(slot->memory_bytes, limit));
        unsigned draining = flyt_capacity_sms(flyt_gpu_capacity(slot->gpu), &slot->leaving);
        if (draining)
            say(array, vm,
                "%u SMs that it has no more are draining: work that was given to the GPU before is still there.",
                draining);
        if (slot->gpu->health != FLYT_HEALTH_OK)
            say(array, vm, "GPU %s is not healthy: %s.", slot->gpu->key,
                slot->gpu->health_text ? slot->gpu->health_text : "");
    }
    explain_share(array, vm);
    if (allocation->migration)
        say(array, vm, "Its programs move from %s to %s: migration %s, %s.", allocation->migration->source,
            allocation->migration->target, allocation->migration->id_text,
            flyt_migration_phase_name(allocation->migration->use.phase));
    if (allocation->state == FLYT_ALLOCATION_BLOCKED)
        say(array, vm, "New programs are not let in; running ones go on.");
    if (!node->place.is_up)
        say(array, vm,
            "Its node is lost, %.0f s without a word: the allocation stays bound until the node is back or "
            "`flytctl node fence %s --confirmed-dead`.",
            (double)(flyt_clock_ms() - node->last_heard_ms) / 1000, node->key);
    if (allocation->use_text && *allocation->use_text)
        say(array, vm, "The node says: %s.", allocation->use_text);
    explain_images(array, vm);
    say(array, vm, "%u of %u sessions are in use.", allocation->session_count, allocation->sessions_max);
}

cJSON *flyt_explain(struct flyt_vm *vm)
{
    cJSON *array = cJSON_CreateArray();
    char name[FLYT_NAME_BYTES_MAX + 16];

    explain_document(array, vm);
    if (vm->allocation)
        explain_allocation(array, vm);
    else
        explain_placement(array, vm);
    if (vm->link)
        say(array, vm, "Its client manager is connected from %s and has %u program%s.", vm->link->address,
            vm->program_count, vm->program_count == 1 ? "" : "s");
    else
        say(array, vm, "Its client manager is not connected.");
    snprintf(name, sizeof name, "vm:%s", vm->key);
    if (vm->cluster->tls && !flyt_table_find(&vm->cluster->members, name))
        say(array, vm, "It is not enrolled: `flytctl vm join-token %s` makes a token for it.", vm->key);
    return array;
}
