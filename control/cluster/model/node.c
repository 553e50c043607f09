/* Nodes: their state and their GPUs. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "control/cluster/model/capacity.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/node.h"
#include "rpc/base/clock.h"

bool flyt_node_is_up(const struct flyt_node *node)
{
    return node->place.is_up;
}

/* A program waits for its client manager's answer 10 s at most; nodes look for a manager every second or two. */
enum { AWAITED_MS = 6000 };

bool flyt_node_is_awaited(const struct flyt_node *node)
{
    uint64_t node_lost_ms = node->cluster->settings->node_lost_ms;

    return !node->is_registered && !node->is_fenced &&
           flyt_clock_ms() - node->last_heard_ms < (node_lost_ms < AWAITED_MS ? node_lost_ms : AWAITED_MS);
}

int flyt_node_add_gpu(struct flyt_node *node, struct flyt_cluster_gpu *gpu)
{
    unsigned count = node->place.gpu_count;

    if (count >= FLYT_GPUS_MAX)
        return -E2BIG;
    struct flyt_capacity *capacities = realloc(node->place.gpus, (count + 1) * sizeof *capacities);
    if (capacities)
        node->place.gpus = capacities;
    struct flyt_cluster_gpu **gpus = realloc(node->gpus, (count + 1) * sizeof(struct flyt_cluster_gpu *));
    if (gpus)
        node->gpus = gpus;
    if (!capacities || !gpus)
        return -ENOMEM;
    memset(&capacities[count], 0, sizeof *capacities);
    capacities[count].uuid = gpu->key;
    capacities[count].type = gpu->type;
    gpus[count] = gpu;
    gpu->place = count;
    node->place.gpu_count++;
    return 0;
}

void flyt_node_remove_gpu(struct flyt_node *node, struct flyt_cluster_gpu *gpu)
{
    unsigned last = --node->place.gpu_count;

    node->place.gpus[gpu->place] = node->place.gpus[last];
    node->gpus[gpu->place] = node->gpus[last];
    node->gpus[gpu->place]->place = gpu->place;
}
