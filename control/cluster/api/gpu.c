/* Cordon and drain, and the size of groups. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/base/peer.h"
#include "control/cluster/api/gpu.h"
#include "control/cluster/api/view.h"
#include "control/cluster/io/event.h"
#include "control/cluster/io/gpu_document.h"
#include "control/cluster/io/store_writer.h"
#include "control/cluster/io/leader.h"
#include "control/cluster/io/link.h"
#include "control/cluster/io/reply.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/capacity.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/table.h"
#include "control/cluster/reconcile/gpu.h"
#include "control/store/store.h"
#include "rpc/base/error.h"

/* Everything that has to end or to move before a GPU is free: its allocations with their sessions. */
static void list_allocation(cJSON *array, const struct flyt_cluster_gpu *gpu)
{
    for (unsigned i = 0; i < gpu->allocation_count; i++) {
        const struct flyt_cluster_allocation *allocation = gpu->allocations[i];
        for (unsigned j = 0; j < allocation->slot_count; j++)
            if (allocation->slots[j].gpu == gpu)
                cJSON_AddItemToArray(array, flyt_view_allocation(allocation, &allocation->slots[j]));
    }
}

struct schedule_change {
    struct flyt_record_wait wait;
    struct flyt_call *call;
    struct flyt_cluster *cluster;
    char uuid[FLYT_NAME_BYTES_MAX + 1]; /* or node */
    char who[FLYT_NAME_BYTES_MAX + 1];
    enum flyt_schedule before, after;
    bool is_node;
};

static void schedule_written(void *user, enum flyt_store_result result, const char *err)
{
    struct schedule_change *change = user;
    struct flyt_table *table = change->is_node ? &change->cluster->nodes : &change->cluster->gpus;
    void *object = flyt_table_find(table, change->uuid);
    struct flyt_cluster_gpu *gpu = change->is_node ? NULL : object;
    struct flyt_node *node = change->is_node ? object : NULL;
    cJSON *array = cJSON_CreateArray();

    if (result != FLYT_STORE_OK) {
        if (gpu)
            flyt_gpu_capacity(gpu)->schedule = change->before;
        if (node)
            node->place.schedule = change->before;
        flyt_view_reply(change->call, FLYT_STATUS_UNAVAILABLE, err, array, 0);
        free(change);
        return;
    }
    for (unsigned i = 0; node && i < node->place.gpu_count; i++)
        list_allocation(array, node->gpus[i]);
    if (gpu)
        list_allocation(array, gpu);
    flyt_event_add(change->cluster, change->is_node ? "node.schedule" : "gpu.schedule", change->who, change->uuid, NULL,
                   NULL, "%s is %s now, was %s", change->uuid, flyt_schedule_name(change->after),
                   flyt_schedule_name(change->before));
    flyt_view_reply(change->call, FLYT_STATUS_OK, "", array, 0);
    free(change);
}

void flyt_serve_schedule(struct flyt_call *call, void *data)
{
    const struct flyt_schedule_args *args = data;
    struct flyt_cluster *cluster = flyt_call_cluster(call);
    struct schedule_change *change;
    struct flyt_error err = {0};
    struct flyt_cluster_gpu *gpu = NULL;
    struct flyt_node *node = NULL;

    if (!flyt_lead_may(cluster, call))
        return;
    if (args->schedule > FLYT_SCHEDULE_DRAINING) {
        flyt_call_outcome(call, FLYT_STATUS_INVALID, "there is no schedule %d", (int)args->schedule);
        return;
    }
    if (args->kind == FLYT_TARGET_NODE && !(node = flyt_table_find(&cluster->nodes, args->target)))
        flyt_error_set(&err, -ENOENT, "there is no node %s", args->target);
    if (args->kind != FLYT_TARGET_NODE)
        gpu = flyt_gpu_find(cluster, args->target, &err);
    if (!gpu && !node) {
        flyt_call_outcome(call, err.code == -EINVAL ? FLYT_STATUS_INVALID : FLYT_STATUS_NOT_FOUND, "%s", err.text);
        return;
    }
    change = calloc(1, sizeof *change);
    if (!change) {
        flyt_call_fail(call);
        return;
    }
    enum flyt_schedule *schedule = gpu ? &flyt_gpu_capacity(gpu)->schedule : &node->place.schedule;
    change->call = call;
    change->cluster = cluster;
    snprintf(change->uuid, sizeof change->uuid, "%s", gpu ? gpu->key : node->key);
    flyt_call_who(call, change->who);
    change->is_node = node != NULL;
    change->before = *schedule;
    change->after = *schedule = args->schedule;
    change->wait = (struct flyt_record_wait){.done = schedule_written, .user = change};
    flyt_record_change(gpu ? gpu->record : node->record, &change->wait);
}

struct group_change {
    struct flyt_call *call;
    struct flyt_cluster *cluster;
    char uuid[FLYT_NAME_BYTES_MAX + 1];
    char who[FLYT_NAME_BYTES_MAX + 1];
    unsigned before;
};

static void groups_set(void *user, int status, void *result)
{
    struct group_change *change = user;
    struct flyt_order_gpu_res *answer = result;
    struct flyt_cluster_gpu *gpu = flyt_table_find(&change->cluster->gpus, change->uuid);

    if (status || !gpu) {
        flyt_call_outcome(change->call, status == -ETIMEDOUT ? FLYT_STATUS_TIMEOUT : FLYT_STATUS_UNAVAILABLE,
                          "the node of GPU %s did not answer (%s): whether it took the order is not known",
                          change->uuid, strerror(-status));
    } else if (answer->outcome.status != FLYT_STATUS_OK) {
        flyt_call_outcome(change->call, answer->outcome.status, "%s", answer->outcome.text);
    } else if (strcmp(answer->gpu.uuid, gpu->key) || flyt_gpu_report(gpu->node, &answer->gpu)) {
        flyt_call_outcome(change->call, FLYT_STATUS_INVALID, "the node answered with a GPU that cannot be");
    } else {
        flyt_event_add(change->cluster, "gpu.group_size", change->who, change->uuid, NULL, NULL,
                       "groups of %u SMs now, of %u before: thread-block clusters of up to %u blocks run in them",
                       gpu->group_size, change->before, gpu->group_size);
        flyt_call_outcome(change->call, FLYT_STATUS_OK, "%s", "");
    }
    if (gpu)
        flyt_gpu_count(gpu);
    free(change);
}

void flyt_serve_gpu_set(struct flyt_call *call, void *data)
{
    const struct flyt_gpu_set_args *args = data;
    struct flyt_cluster *cluster = flyt_call_cluster(call);
    struct flyt_error err = {0};

    if (!flyt_lead_may(cluster, call))
        return;
    struct flyt_cluster_gpu *gpu = flyt_gpu_find(cluster, args->gpu, &err);
    if (!gpu) {
        flyt_call_outcome(call, err.code == -EINVAL ? FLYT_STATUS_INVALID : FLYT_STATUS_NOT_FOUND, "%s", err.text);
    } else if (args->group_size != 2 && args->group_size != 8) {
        flyt_call_outcome(
            call, FLYT_STATUS_INVALID,
            "a group has 8 SMs, which run thread-block clusters of up to 8 blocks, or 2, which run clusters of up to "
            "2, not %u",
            args->group_size);
    } else if (gpu->allocation_count) {
        flyt_call_outcome(call, FLYT_STATUS_IN_USE,
                          "%u allocation%s on GPU %s: its group size can change only while it is empty, for programs "
                          "would %s",
                          gpu->allocation_count, gpu->allocation_count == 1 ? "" : "s", gpu->key,
                          args->group_size == 2 ? "lose thread-block clusters of more than 2 blocks"
                                                : "have other SMs under the same group numbers");
    } else if (!flyt_node_is_up(gpu->node) || !gpu->node->is_registered) {
        flyt_call_outcome(call, FLYT_STATUS_UNAVAILABLE, "node %s is not connected", gpu->node->key);
    } else {
        struct group_change *change = calloc(1, sizeof *change);
        struct flyt_order_gpu_args order = {
            .epoch = cluster->epoch, .uuid = (char *)gpu->key, .group_size = args->group_size};
        if (!change) {
            flyt_call_fail(call);
            return;
        }
        change->call = call;
        change->cluster = cluster;
        change->before = gpu->group_size;
        snprintf(change->uuid, sizeof change->uuid, "%s", gpu->key);
        flyt_call_who(call, change->who);
        int status = flyt_peer_call(gpu->node->link->peer, FLYT_ORDER_PROGRAM, FLYT_ORDER_VERSION, FLYT_ORDER_GPU_SET,
                                    (xdrproc_t)xdr_flyt_order_gpu_args, &order, (xdrproc_t)xdr_flyt_order_gpu_res,
                                    sizeof(struct flyt_order_gpu_res), cluster->settings->order_ms, groups_set, change);
        if (status) {
            flyt_call_outcome(call, FLYT_STATUS_UNAVAILABLE, "node %s cannot be asked: %s", gpu->node->key,
                              strerror(-status));
            free(change);
            return;
        }
        /* Nobody is placed there until the node has answered. */
        struct flyt_groupset all;
        memset(&all, 0xff, sizeof all);
        flyt_capacity_charge(flyt_gpu_capacity(gpu), &all, 0, 0);
    }
}
