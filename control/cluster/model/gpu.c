/* GPUs: what is taken of each, and which one is meant. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/cluster/model/allocation.h"
#include "control/cluster/model/capacity.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/slot.h"
#include "control/cluster/model/share.h"
#include "control/cluster/model/table.h"
#include "control/cluster/model/text.h"
#include "rpc/base/error.h"
#include "rpc/base/log.h"

struct flyt_capacity *flyt_gpu_capacity(const struct flyt_cluster_gpu *gpu)
{
    return &gpu->node->place.gpus[gpu->place];
}

/* What an allocation that moves has on a GPU besides its parts. */
static void count_others(const struct flyt_cluster_gpu *gpu, const struct flyt_cluster_allocation *allocation)
{
    struct flyt_capacity *capacity = flyt_gpu_capacity(gpu);

    for (unsigned i = 0; allocation->migration && i < allocation->slot_count; i++) {
        const struct flyt_cluster_slot *slot = &allocation->migration->others[i];
        struct flyt_groupset groups = slot->groups;
        if (slot->gpu != gpu)
            continue;
        if (allocation->slots[i].gpu == gpu) { /* new servers beside the present ones, with the same memory and time */
            flyt_capacity_charge(capacity, &groups, 0, allocation->sessions_max);
            continue;
        }
        for (unsigned k = 0; k < FLYT_GROUP_WORDS; k++)
            groups.words[k] |= slot->leaving.words[k];
        flyt_capacity_charge(capacity, &groups, slot->memory_bytes + slot->leaving_bytes, allocation->sessions_max);
        flyt_capacity_charge_share(capacity, allocation->share.is_timed ? &slot->groups : NULL,
                                   flyt_share_minimum(allocation->isolation, &allocation->share, slot));
    }
}

void flyt_gpu_count(struct flyt_cluster_gpu *gpu)
{
    struct flyt_capacity *capacity = flyt_gpu_capacity(gpu);

    flyt_capacity_reset(capacity);
    for (unsigned i = 0; i < gpu->allocation_count; i++) {
        const struct flyt_cluster_allocation *allocation = gpu->allocations[i];
        for (unsigned j = 0; j < allocation->slot_count; j++) {
            const struct flyt_cluster_slot *slot = &allocation->slots[j];
            if (slot->gpu != gpu)
                continue;
            struct flyt_groupset groups = slot->groups;
            for (unsigned k = 0; k < FLYT_GROUP_WORDS; k++)
                groups.words[k] |= slot->leaving.words[k];
            flyt_capacity_charge(capacity, &groups, slot->memory_bytes + slot->leaving_bytes,
                                 slot->sm_count ? allocation->sessions_max : 0);
            flyt_capacity_charge_share(capacity, allocation->share.is_timed ? &slot->groups : NULL,
                                       flyt_share_minimum(allocation->isolation, &allocation->share, slot));
        }
        count_others(gpu, allocation);
    }
}

int flyt_gpu_attach(struct flyt_cluster_gpu *gpu, struct flyt_cluster_allocation *allocation)
{
    if (gpu->allocation_count == gpu->allocation_room) {
        unsigned room = gpu->allocation_room ? 2 * gpu->allocation_room : 8;
        struct flyt_cluster_allocation **list = realloc(gpu->allocations, room * sizeof *list);
        if (!list)
            return -ENOMEM;
        gpu->allocations = list;
        gpu->allocation_room = room;
    }
    gpu->allocations[gpu->allocation_count++] = allocation;
    flyt_gpu_count(gpu);
    return 0;
}

void flyt_gpu_detach(struct flyt_cluster_gpu *gpu, struct flyt_cluster_allocation *allocation)
{
    for (unsigned i = 0; i < gpu->allocation_count; i++) {
        if (gpu->allocations[i] != allocation)
            continue;
        gpu->allocations[i] = gpu->allocations[--gpu->allocation_count];
        flyt_gpu_count(gpu);
        return;
    }
}

bool flyt_gpu_is_claimed_by(const struct flyt_cluster_gpu *gpu, const struct flyt_node *node)
{
    return gpu->node != node && gpu->claimant && !strcmp(gpu->claimant, node->key);
}

struct flyt_cluster_gpu *flyt_gpu_find(struct flyt_cluster *cluster, const char *name, struct flyt_error *err)
{
    const char *colon = strrchr(name, ':');
    struct flyt_cluster_gpu *found = NULL;
    char node_name[FLYT_NAME_BYTES_MAX + 1];

    if (colon && colon != name) {
        snprintf(node_name, sizeof node_name, "%.*s", (int)(colon - name), name);
        struct flyt_node *node = flyt_table_find(&cluster->nodes, node_name);
        char *end;
        unsigned long index = strtoul(colon + 1, &end, 10);
        for (unsigned i = 0; node && colon[1] && !*end && i < node->place.gpu_count; i++)
            if (node->place.gpus[i].index == index)
                return node->gpus[i];
    }
    size_t bytes = strlen(name), place = flyt_table_place(&cluster->gpus, name);
    for (; bytes && place < cluster->gpus.count; place++) {
        struct flyt_cluster_gpu *gpu = cluster->gpus.items[place];
        if (strncmp(gpu->key, name, bytes))
            break;
        if (found) {
            flyt_error_set(err, -EINVAL, "%s is the beginning of several GPUs' UUIDs, %s and %s among them", name,
                           found->key, gpu->key);
            return NULL;
        }
        found = gpu;
    }
    if (!found)
        flyt_error_set(err, -ENOENT, "there is no GPU %s; write NODE:INDEX or the beginning of its UUID", name);
    return found;
}

bool flyt_gpu_note_health(struct flyt_cluster_gpu *gpu, enum flyt_health health, const char *health_text)
{
    enum flyt_health before = gpu->health;

    gpu->health = health > FLYT_HEALTH_FAILED ? FLYT_HEALTH_FAILED : health;
    flyt_gpu_capacity(gpu)->is_unhealthy = gpu->health == FLYT_HEALTH_FAILED;
    if (flyt_text_set(&gpu->health_text, health_text))
        flyt_warn("gpu: %s: no memory for its health", gpu->key);
    return gpu->health != before;
}
