/* A GPU that another node reports than the store says: the operator says that it is there now (a node that was renamed
 * or set up anew, a GPU that was put into another machine). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "control/base/peer.h"
#include "control/cluster/io/event.h"
#include "control/cluster/io/grant.h"
#include "control/cluster/io/store_writer.h"
#include "control/cluster/io/leader.h"
#include "control/cluster/io/link.h"
#include "control/cluster/io/reply.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/capacity.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/table.h"
#include "control/cluster/reconcile/adopt.h"
#include "control/store/store.h"
#include "rpc/base/error.h"

struct adoption {
    struct flyt_call *call;
    unsigned left;
    enum flyt_store_result result;
    char err[256];
    struct flyt_record_wait waits[FLYT_GPUS_MAX]; /* of as many GPUs */
};

static void written(void *user, enum flyt_store_result result, const char *err)
{
    struct adoption *adoption = user;

    if (result != FLYT_STORE_OK && adoption->result == FLYT_STORE_OK) {
        adoption->result = result;
        snprintf(adoption->err, sizeof adoption->err, "%s", err);
    }
    if (--adoption->left)
        return;
    if (adoption->result == FLYT_STORE_OK)
        flyt_call_outcome(adoption->call, FLYT_STATUS_OK, "%s", "");
    else
        flyt_call_outcome(adoption->call, FLYT_STATUS_UNAVAILABLE,
                          "done, but the store has not recorded it yet and is tried again: %s", adoption->err);
    free(adoption);
}

static bool is_in(const struct flyt_cluster_gpu *gpu, struct flyt_cluster_gpu *const *gpus, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (gpus[i] == gpu)
            return true;
    return false;
}

/* Whether an allocation of the GPU can go with it: all that it has goes to the node, or is there. */
static flyt_status check_allocation(const struct flyt_cluster_allocation *allocation, const struct flyt_node *node,
                                    struct flyt_cluster_gpu *const *gpus, unsigned count, struct flyt_error *err)
{
    if (allocation->migration)
        return flyt_refuse(err, FLYT_STATUS_CONFLICT, "VM %s moves (migration %s): try again when that is over",
                           allocation->vm_ip, allocation->migration->id_text);
    for (unsigned i = 0; i < allocation->slot_count; i++) {
        const struct flyt_cluster_gpu *gpu = allocation->slots[i].gpu;
        if (gpu && gpu->node != node && !is_in(gpu, gpus, count))
            return flyt_refuse(err, FLYT_STATUS_CONFLICT,
                               "allocation %s of VM %s has GPU %s of node %s, too: name that as well, or end the "
                               "allocation (`flytctl allocation kill %s`)",
                               allocation->id_text, allocation->vm_ip, gpu->key, gpu->node->key, allocation->id_text);
    }
    return FLYT_STATUS_OK;
}

static flyt_status check_gpu(const struct flyt_cluster_gpu *gpu, const struct flyt_node *node,
                             struct flyt_cluster_gpu *const *gpus, unsigned count, struct flyt_error *err)
{
    flyt_status status = FLYT_STATUS_OK;

    if (!flyt_gpu_is_claimed_by(gpu, node))
        return flyt_refuse(err, FLYT_STATUS_CONFLICT, "node %s has not reported GPU %s, which is node %s's", node->key,
                           gpu->key, gpu->node->key);
    if (gpu->node->is_registered && gpu->is_reported)
        return flyt_refuse(err, FLYT_STATUS_CONFLICT,
                           "GPU %s is in node %s, which is up and reports it: one of the two does not say the truth",
                           gpu->key, gpu->node->key);
    for (unsigned i = 0; i < gpu->allocation_count && status == FLYT_STATUS_OK; i++)
        status = check_allocation(gpu->allocations[i], node, gpus, count, err);
    return status;
}

static flyt_status find_gpus(struct flyt_cluster *cluster, const struct flyt_node *node,
                             const struct flyt_adopt_args *args, struct flyt_cluster_gpu **ret_gpus,
                             unsigned *ret_count, struct flyt_error *err)
{
    flyt_status status = FLYT_STATUS_OK;

    *ret_count = 0;
    for (unsigned i = 0; i < args->gpus.gpus_len; i++) {
        struct flyt_cluster_gpu *gpu = flyt_gpu_find(cluster, args->gpus.gpus_val[i], err);
        if (!gpu)
            return err->code == -EINVAL ? FLYT_STATUS_INVALID : FLYT_STATUS_NOT_FOUND;
        if (gpu->node != node && !is_in(gpu, ret_gpus, *ret_count))
            ret_gpus[(*ret_count)++] = gpu;
    }
    if (node->place.gpu_count + *ret_count > FLYT_GPUS_MAX)
        return flyt_refuse(err, FLYT_STATUS_INVALID, "a node has at most %d GPUs", FLYT_GPUS_MAX);
    for (unsigned i = 0; i < *ret_count && status == FLYT_STATUS_OK; i++)
        status = check_gpu(ret_gpus[i], node, ret_gpus, *ret_count, err);
    return status;
}

/* The GPU is the node's, with its allocations. */
static int move_gpu(struct flyt_cluster_gpu *gpu, struct flyt_node *node)
{
    struct flyt_capacity capacity = *flyt_gpu_capacity(gpu);
    struct flyt_node *old = gpu->node;

    flyt_node_remove_gpu(old, gpu);
    int status = flyt_node_add_gpu(node, gpu);
    if (status && flyt_node_add_gpu(old, gpu))
        abort(); /* its place was given up a moment ago: there is room */
    gpu->node = status ? old : node;
    *flyt_gpu_capacity(gpu) = capacity;
    if (status)
        return status;
    for (unsigned i = 0; i < gpu->allocation_count; i++) {
        gpu->allocations[i]->node = node;
        gpu->allocations[i]->applied_revision = 0;
        if (gpu->allocations[i]->vm)
            flyt_vm_tell(gpu->allocations[i]->vm, "its GPU is another node's now");
    }
    free(gpu->claimant);
    gpu->claimant = NULL;
    return 0;
}

void flyt_serve_node_adopt(struct flyt_call *call, void *data)
{
    const struct flyt_adopt_args *args = data;
    struct flyt_cluster *cluster = flyt_call_cluster(call);
    struct flyt_cluster_gpu *gpus[FLYT_GPUS_MAX];
    char who[FLYT_NAME_BYTES_MAX + 1];
    struct flyt_error err = {0};
    unsigned count;

    if (!flyt_lead_may(cluster, call))
        return;
    struct flyt_node *node = flyt_table_find(&cluster->nodes, args->node);
    if (!node) {
        flyt_call_outcome(call, FLYT_STATUS_NOT_FOUND, "there is no node %s", args->node);
        return;
    }
    flyt_status status = find_gpus(cluster, node, args, gpus, &count, &err);
    if (status != FLYT_STATUS_OK) {
        flyt_call_outcome(call, status, "%s", err.text);
        return;
    }
    struct adoption *adoption = calloc(1, sizeof *adoption);
    if (!adoption) {
        flyt_call_fail(call);
        return;
    }
    *adoption = (struct adoption){.call = call, .left = count + 1, .result = FLYT_STORE_OK};
    flyt_call_who(call, who);
    for (unsigned i = 0; i < count; i++) {
        const char *old = gpus[i]->node->key;
        if (move_gpu(gpus[i], node)) {
            written(adoption, FLYT_STORE_UNAVAILABLE, "no memory");
            continue;
        }
        flyt_event_add(cluster, "gpu.adopted", who, gpus[i]->key, NULL, NULL,
                       "GPU %s is node %s's now, with %u allocations; it was node %s's", gpus[i]->key, node->key,
                       gpus[i]->allocation_count, old);
        adoption->waits[i] = (struct flyt_record_wait){.done = written, .user = adoption};
        flyt_record_change(gpus[i]->record, &adoption->waits[i]);
    }
    /* It is to say what it has of them, and to be told what it is to have. */
    if (count && node->link)
        flyt_link_close(node->link, "GPUs were given to it");
    written(adoption, FLYT_STORE_OK, "");
}
