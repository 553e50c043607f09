/*
 * Where a VM's programs would move: to another GPU of their node, or, where that is named or has none, to another node.
 * The servers there say whether they have code of the programs' modules for their GPU: a GPU of another compute
 * capability is chosen where there is none of the same, be it of the own node, or where it is named.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/cluster/io/measure.h"
#include "control/cluster/io/reply.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/capacity.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/migration_rules.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/slot.h"
#include "control/cluster/model/placement.h"
#include "control/cluster/model/quota.h"
#include "control/cluster/model/checkpoint_op.h"
#include "control/cluster/model/session.h"
#include "control/cluster/model/settings.h"
#include "control/cluster/model/table.h"
#include "control/cluster/model/tenant.h"
#include "control/cluster/model/vm.h"
#include "control/cluster/reconcile/migration.h"
#include "rpc/base/error.h"
#include "rpc/base/url.h"

/* The node or GPU that is meant; both NULL: any. */
static flyt_status find_target(const struct flyt_cluster_allocation *allocation, const char *target,
                               struct flyt_node **ret_node, struct flyt_cluster_gpu **ret_gpu, struct flyt_error *err)
{
    struct flyt_node *node = *target ? flyt_table_find(&allocation->cluster->nodes, target) : NULL;
    struct flyt_cluster_gpu *gpu = *target && !node ? flyt_gpu_find(allocation->cluster, target, err) : NULL;

    if (*target && !node && !gpu)
        return err->code == -EINVAL ? FLYT_STATUS_INVALID : FLYT_STATUS_NOT_FOUND;
    if (gpu && allocation->slot_count > 1)
        return flyt_refuse(
            err, FLYT_STATUS_NOT_SUPPORTED,
            "VM %s has %u GPUs, which move together: name the node, or none, and all of them are chosen anew",
            allocation->vm_ip, allocation->slot_count);
    *ret_gpu = gpu;
    *ret_node = gpu ? gpu->node : node;
    return FLYT_STATUS_OK;
}

/* What placement is asked: as much as there is, or as is wished, with the VM's conditions. is_near: in its node. */
static void make_request(const struct flyt_cluster_allocation *allocation, const struct flyt_migration_desired *desired,
                         bool is_near, struct flyt_place_request *ret_request)
{
    const struct flyt_cluster_slot *slot = &allocation->slots[0];
    const struct flyt_capacity *now = flyt_gpu_capacity(slot->gpu);

    flyt_vm_request(allocation->vm, ret_request);
    ret_request->device_count = allocation->slot_count;
    ret_request->sm_count = desired->sm_count ? desired->sm_count : slot->wanted_sms;
    ret_request->memory_bytes =
        desired->memory_bytes ? desired->memory_bytes : slot->memory_bytes + slot->leaving_bytes;
    ret_request->session_count = allocation->sessions_max;
    ret_request->isolation = allocation->isolation;
    ret_request->is_timed = allocation->share.is_timed;
    ret_request->minimum_share_pct = allocation->share.minimum_pct;
    ret_request->compute_capability = now->compute_capability;
    ret_request->group_sms = now->regular_sms;
    flyt_session_opened(allocation, &ret_request->libraries);
    for (unsigned i = 0; is_near && i < allocation->slot_count; i++)
        ret_request->present_gpus |= 1ull << allocation->slots[i].gpu->place;
}

static void set_other(const struct flyt_cluster_allocation *allocation, const struct flyt_migration_desired *desired,
                      const struct flyt_place_request *request, unsigned slot_index, struct flyt_cluster_gpu *gpu,
                      unsigned sm_count, const struct flyt_groupset *groups, struct flyt_cluster_slot *ret_other)
{
    const struct flyt_cluster_slot *slot = &allocation->slots[slot_index];

    *ret_other =
        (struct flyt_cluster_slot){.gpu = gpu,
                                   .device_index = slot->device_index,
                                   .wanted_sms = request->sm_count,
                                   .sm_count = sm_count,
                                   .groups = *groups,
                                   .memory_bytes = desired->memory_bytes ? desired->memory_bytes : slot->memory_bytes,
                                   .leaving_bytes = desired->memory_bytes ? 0 : slot->leaving_bytes};
}

/* New server processes on the GPU where they are: its SMs and its memory stay, client slots are taken twice. */
static flyt_status choose_same(const struct flyt_cluster_allocation *allocation,
                               const struct flyt_migration_desired *desired, const struct flyt_place_request *request,
                               struct flyt_cluster_slot *ret_other, struct flyt_error *err)
{
    const struct flyt_cluster_slot *slot = &allocation->slots[0];
    const struct flyt_capacity *gpu = flyt_gpu_capacity(slot->gpu);
    char reason[96];

    if (!desired->force)
        return flyt_refuse(err, FLYT_STATUS_CONFLICT,
                           "VM %s is on %s:%u already; --force gives its programs new server processes there",
                           allocation->vm_ip, allocation->node->key, gpu->index);
    if (desired->sm_count || desired->memory_bytes)
        return flyt_refuse(err, FLYT_STATUS_INVALID, "VM %s is on %s:%u already: a resize changes its size there",
                           allocation->vm_ip, allocation->node->key, gpu->index);
    if (gpu->is_unhealthy)
        return flyt_refuse(err, FLYT_STATUS_NO_CAPACITY, "%s:%u: not healthy", allocation->node->key, gpu->index);
    if (allocation->sessions_max > gpu->slots_free)
        return flyt_refuse(err, FLYT_STATUS_NO_CAPACITY, "%s:%u: not enough client slots (needs %u more, %u free)",
                           allocation->node->key, gpu->index, allocation->sessions_max, gpu->slots_free);
    if (flyt_capacity_memory(gpu, 0, allocation->sessions_max) > gpu->memory_free_bytes)
        return flyt_refuse(err, FLYT_STATUS_NO_CAPACITY, "%s:%u: not enough memory for its programs' new servers",
                           allocation->node->key, gpu->index);
    if (flyt_place_lacks_library(&allocation->node->place, &request->libraries, reason, sizeof reason))
        return flyt_refuse(err, FLYT_STATUS_NO_CAPACITY, "%s:%u: %s", allocation->node->key, gpu->index, reason);
    set_other(allocation, desired, request, 0, slot->gpu, slot->sm_count, &slot->groups, ret_other);
    ret_other->wanted_sms = slot->wanted_sms;
    ret_other->leaving = slot->leaving;
    return FLYT_STATUS_OK;
}

static flyt_status choose_gpu(const struct flyt_cluster_allocation *allocation,
                              const struct flyt_migration_desired *desired, const struct flyt_place_request *request,
                              struct flyt_cluster_gpu *gpu, struct flyt_cluster_slot *ret_other, struct flyt_error *err)
{
    const struct flyt_capacity *capacity = flyt_gpu_capacity(gpu);
    struct flyt_groupset groups = {{0}};
    char reason[256];

    if (flyt_place_refuses(&gpu->node->place, capacity, request, reason, sizeof reason))
        return flyt_refuse(err, FLYT_STATUS_NO_CAPACITY, "%s:%u: %s", gpu->node->key, capacity->index, reason);
    unsigned sms =
        flyt_capacity_choose(capacity, request->is_timed ? &capacity->timed : NULL, request->sm_count, &groups);
    if (!sms)
        return flyt_refuse(err, FLYT_STATUS_NO_CAPACITY, "%s:%u: not enough SMs", gpu->node->key, capacity->index);
    set_other(allocation, desired, request, 0, gpu, sms, &groups, ret_other);
    return FLYT_STATUS_OK;
}

/* Of these nodes; 0 or -ENOSPC and the reason. */
static int choose_of(const struct flyt_cluster_allocation *allocation, const struct flyt_migration_desired *desired,
                     const struct flyt_place_request *request, struct flyt_place_node *const *places,
                     struct flyt_node *const *nodes, unsigned count, struct flyt_cluster_slot *ret_others, char *reason,
                     size_t reason_bytes)
{
    struct flyt_placement placement;
    int status = flyt_place(places, count, request, &placement, reason, reason_bytes);

    for (unsigned i = 0; !status && i < placement.slot_count; i++)
        set_other(allocation, desired, request, i, nodes[placement.node]->gpus[placement.slots[i].gpu],
                  placement.slots[i].sm_count, &placement.slots[i].groups, &ret_others[i]);
    return status;
}

/* is_same: of the compute capability that they have; else of any. */
static int choose_near(const struct flyt_cluster_allocation *allocation, const struct flyt_migration_desired *desired,
                       bool is_same, struct flyt_cluster_slot *ret_others, char *reason, size_t reason_bytes)
{
    struct flyt_place_node *const places[] = {&allocation->node->place};
    struct flyt_place_request request;

    make_request(allocation, desired, true, &request);
    if (!is_same)
        request.compute_capability = 0;
    return choose_of(allocation, desired, &request, places, (struct flyt_node *const[]){allocation->node}, 1,
                     ret_others, reason, reason_bytes);
}

/* On `only`, or, NULL, on any other node that is connected. is_same: as above. */
static int choose_far(const struct flyt_cluster_allocation *allocation, const struct flyt_migration_desired *desired,
                      bool is_same, struct flyt_node *only, struct flyt_cluster_slot *ret_others, char *reason,
                      size_t reason_bytes)
{
    const struct flyt_table *all = &allocation->cluster->nodes;
    struct flyt_node **nodes = calloc(all->count + 1, sizeof(struct flyt_node *));
    struct flyt_place_node **places = calloc(all->count + 1, sizeof(struct flyt_place_node *));
    struct flyt_place_request request;
    unsigned count = 0;
    int status = -ENOMEM;

    for (size_t i = 0; nodes && places && i < all->count; i++) {
        struct flyt_node *node = all->items[i];
        if (node == allocation->node || (only && node != only) || !node->is_registered)
            continue;
        nodes[count] = node;
        places[count++] = &node->place;
    }
    make_request(allocation, desired, false, &request);
    if (!is_same)
        request.compute_capability = 0;
    if (nodes && places && count) {
        status = choose_of(allocation, desired, &request, places, nodes, count, ret_others, reason, reason_bytes);
    } else if (nodes && places) {
        snprintf(reason, reason_bytes, "%s", only ? "it is not connected" : "no other one is connected");
        status = -ENOSPC;
    } else {
        snprintf(reason, reason_bytes, "the cluster manager has no memory");
    }
    free(nodes);
    free(places);
    return status;
}

/* None that was named: one of the same compute capability first, wherever that is. */
static flyt_status choose_any(const struct flyt_cluster_allocation *allocation,
                              const struct flyt_migration_desired *desired, struct flyt_cluster_slot *ret_others,
                              struct flyt_error *err)
{
    bool takes_new = allocation->node->place.schedule == FLYT_SCHEDULE_ACTIVE;
    char near[224] = "it takes nothing new", far[224];

    for (int is_same = 1; is_same >= 0; is_same--) {
        if (takes_new && !choose_near(allocation, desired, is_same, ret_others, near, sizeof near))
            return FLYT_STATUS_OK;
        if (!choose_far(allocation, desired, is_same, NULL, ret_others, far, sizeof far))
            return FLYT_STATUS_OK;
    }
    return flyt_refuse(err, FLYT_STATUS_NO_CAPACITY,
                       "VM %s cannot move to another GPU of node %.64s: %s; nor to another node: %s", allocation->vm_ip,
                       allocation->node->key, near, far);
}

static flyt_status choose_on(const struct flyt_cluster_allocation *allocation,
                             const struct flyt_migration_desired *desired, struct flyt_node *node,
                             struct flyt_cluster_slot *ret_others, struct flyt_error *err)
{
    char reason[384];

    for (int is_same = 1; is_same >= 0; is_same--)
        if (!(node == allocation->node
                  ? choose_near(allocation, desired, is_same, ret_others, reason, sizeof reason)
                  : choose_far(allocation, desired, is_same, node, ret_others, reason, sizeof reason)))
            return FLYT_STATUS_OK;
    return flyt_refuse(err, FLYT_STATUS_NO_CAPACITY, "VM %s cannot move to %snode %.64s: %s", allocation->vm_ip,
                       node == allocation->node ? "another GPU of " : "", node->key, reason);
}

static flyt_status choose_gpus(const struct flyt_cluster_allocation *allocation,
                               const struct flyt_migration_desired *desired, struct flyt_cluster_slot *ret_others,
                               struct flyt_error *err)
{
    struct flyt_place_request request;
    struct flyt_node *node = NULL;
    struct flyt_cluster_gpu *gpu = NULL;
    flyt_status status = find_target(allocation, desired->target, &node, &gpu, err);

    if (status != FLYT_STATUS_OK)
        return status;
    if (!node)
        return choose_any(allocation, desired, ret_others, err);
    if (!gpu)
        return choose_on(allocation, desired, node, ret_others, err);
    make_request(allocation, desired, node == allocation->node, &request);
    if (gpu == allocation->slots[0].gpu)
        return choose_same(allocation, desired, &request, ret_others, err);
    if (node != allocation->node && !node->is_registered)
        return flyt_refuse(err, FLYT_STATUS_NO_CAPACITY, "%s:%u: node not connected", node->key,
                           flyt_gpu_capacity(gpu)->index);
    request.compute_capability = 0; /* the servers there judge */
    return choose_gpu(allocation, desired, &request, gpu, ret_others, err);
}

/* ---- what goes over the wire in clear ---- */

static bool is_loopback(const char *text)
{
    struct in_addr four;
    struct flyt_url url;

    if (flyt_url_parse(text, NULL, &url))
        return false;
    return url.scheme != FLYT_URL_TCP || !strcmp(url.host, "::1") || !strcmp(url.host, "localhost") ||
           (inet_pton(AF_INET, url.host, &four) == 1 && ntohl(four.s_addr) >> 24 == 127);
}

bool flyt_migration_is_encrypted(const struct flyt_cluster_allocation *allocation, const struct flyt_node *node)
{
    bool is_here = true;

    if (allocation->is_encrypted || allocation->cluster->settings->migration_encryption == FLYT_ENCRYPTION_ALWAYS)
        return true;
    for (unsigned i = 0; i < node->data_url_count; i++)
        is_here &= is_loopback(node->data_urls[i]);
    return !is_here && allocation->cluster->settings->migration_encryption == FLYT_ENCRYPTION_AUTO;
}

/* ---- whether they can move: nothing is taken and nothing stops before all of this holds ---- */

/* What of the allocation itself forbids it now. */
static flyt_status check_allocation(const struct flyt_cluster_allocation *allocation,
                                    const struct flyt_migration_desired *desired, struct flyt_error *err)
{
    const struct flyt_node *node = allocation->node;

    if (!allocation->is_granted)
        return flyt_refuse(err, FLYT_STATUS_CONFLICT, "VM %s is just being granted its GPU: try again in a moment",
                           allocation->vm_ip);
    if (allocation->adoption)
        return flyt_refuse(err, FLYT_STATUS_CONFLICT,
                           "allocation %s of VM %s is just being adopted: try again in a moment", allocation->id_text,
                           allocation->vm_ip);
    if (allocation->is_leaving || allocation->state == FLYT_ALLOCATION_ENDING)
        return flyt_refuse(err, FLYT_STATUS_CONFLICT, "what VM %s was granted is being taken away", allocation->vm_ip);
    if (allocation->migration)
        return flyt_refuse(err, FLYT_STATUS_CONFLICT, "VM %s moves already: migration %s from %s to %s, %s",
                           allocation->vm_ip, allocation->migration->id_text, allocation->migration->source,
                           allocation->migration->target, flyt_migration_phase_name(allocation->migration->use.phase));
    if (flyt_checkpoint_op_of(allocation))
        return flyt_refuse(err, FLYT_STATUS_CONFLICT, "VM %s is being checkpointed (%s): try again when that is over",
                           allocation->vm_ip, flyt_checkpoint_op_of(allocation)->id_text);
    if (!node->is_registered)
        return flyt_refuse(err, FLYT_STATUS_UNAVAILABLE, "node %s, where VM %s is, is not connected", node->key,
                           allocation->vm_ip);
    for (unsigned i = 0; desired->memory_bytes && i < allocation->use_count; i++)
        if (allocation->uses[i].memory_used_bytes > desired->memory_bytes)
            return flyt_refuse(err, FLYT_STATUS_IN_USE, "VM %s has more memory in use than it would have",
                               allocation->vm_ip);
    return FLYT_STATUS_OK;
}

/* What it grows by counts for its tenant. */
static bool within_quota(const struct flyt_cluster_allocation *allocation, const struct flyt_cluster_slot *others,
                         struct flyt_error *err)
{
    const struct flyt_tenant *tenant = flyt_tenant_get(allocation->cluster, allocation->tenant);
    struct flyt_quota more = {0};
    char reason[sizeof err->text];

    for (unsigned i = 0; i < allocation->slot_count; i++) {
        const struct flyt_cluster_slot *now = &allocation->slots[i], *new = &others[i];
        more.sm_count += new->sm_count > now->sm_count ? new->sm_count - now->sm_count : 0;
        more.memory_bytes += new->memory_bytes > now->memory_bytes ? new->memory_bytes - now->memory_bytes : 0;
    }
    if (!tenant || flyt_quota_allows(allocation->tenant, &tenant->quota, &tenant->used, &more, reason, sizeof reason))
        return true;
    flyt_measure_limit(allocation->cluster, "quota");
    flyt_error_set(err, -EDQUOT, "%s", reason);
    return false;
}

flyt_status flyt_migration_choose(struct flyt_cluster_allocation *allocation,
                                  const struct flyt_migration_desired *desired, struct flyt_cluster_slot *ret_others,
                                  struct flyt_error *err)
{
    struct flyt_cluster_slot others[FLYT_SLOTS_MAX] = {0};
    flyt_status status = check_allocation(allocation, desired, err);

    if (status == FLYT_STATUS_OK)
        status = choose_gpus(allocation, desired, others, err);
    if (status != FLYT_STATUS_OK) {
        if (status == FLYT_STATUS_NO_CAPACITY)
            flyt_measure_limit(allocation->cluster, "capacity");
        return status;
    }
    if (!desired->force && !within_quota(allocation, others, err))
        return FLYT_STATUS_QUOTA;
    if (!desired->force && !flyt_session_needs_fit(allocation, allocation->slots, others, err))
        return FLYT_STATUS_IN_USE;
    memcpy(ret_others, others, sizeof others);
    return FLYT_STATUS_OK;
}
