/* GPUs in the registry, and what is taken of each. What one has to give is in its node's array. */
#ifndef FLYT_CLUSTER_MODEL_GPU_H
#define FLYT_CLUSTER_MODEL_GPU_H

#include <stdbool.h>

#include "control/cluster/model/placement.h"
#include "rpc/base/error.h"

struct flyt_cluster;
struct flyt_cluster_allocation;
struct flyt_record;
struct flyt_node;

/* A GPU. What it has to give is in its node's array (flyt_gpu_capacity). */
struct flyt_cluster_gpu {
    const char *key; /* UUID */
    char *type;
    struct flyt_node *node;
    unsigned place; /* in the node's arrays */
    unsigned group_size, compute_major, compute_minor;
    enum flyt_health health;
    char *health_text;
    bool is_reported;        /* by the node's last registration */
    char *claimant;          /* another node that has reported it; NULL: none */
    uint64_t claim_told_ms;  /* monotonic */
    struct flyt_gpu_use use; /* of the last heartbeat; its strings are not kept */
    struct flyt_record *record;
    struct flyt_cluster_allocation **allocations; /* allocations with a part here */
    unsigned allocation_count, allocation_room;
};

struct flyt_capacity *flyt_gpu_capacity(const struct flyt_cluster_gpu *gpu);
/* Counts anew what is taken of it. */
void flyt_gpu_count(struct flyt_cluster_gpu *gpu);
/* node:index, UUID or its unique beginning; NULL and *err: none or several. */
struct flyt_cluster_gpu *flyt_gpu_find(struct flyt_cluster *cluster, const char *name, struct flyt_error *err);
int flyt_gpu_attach(struct flyt_cluster_gpu *gpu, struct flyt_cluster_allocation *allocation);
void flyt_gpu_detach(struct flyt_cluster_gpu *gpu, struct flyt_cluster_allocation *allocation);
/* Whether another node than its own has reported it. */
bool flyt_gpu_is_claimed_by(const struct flyt_cluster_gpu *gpu, const struct flyt_node *node);
/* Returns whether its health is another one than before; the sentence counts with it. */
bool flyt_gpu_note_health(struct flyt_cluster_gpu *gpu, enum flyt_health health, const char *health_text);

#endif
