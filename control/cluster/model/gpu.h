/* GPUs in the registry, and what is taken of each. What one has to give is in its node's array. */
#ifndef FLYT_CLUSTER_MODEL_GPU_H
#define FLYT_CLUSTER_MODEL_GPU_H

#include <stdbool.h>

#include "control/cluster/model/placement.h"
#include "rpc/base/error.h"

struct flyt_cluster;
struct flyt_held;
struct flyt_kept;
struct flyt_node;

/* A GPU. What it has to give is in its node's array (flyt_gpu_capacity). */
struct flyt_card {
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
    struct flyt_kept *kept;
    struct flyt_held **held; /* allocations with a part here */
    unsigned held_count, held_room;
};

struct flyt_capacity *flyt_gpu_capacity(const struct flyt_card *card);
/* Counts anew what is taken of it. */
void flyt_gpu_count(struct flyt_card *card);
/* node:index, UUID or its unique beginning; NULL and *err: none or several. */
struct flyt_card *flyt_gpu_find(struct flyt_cluster *cluster, const char *name, struct flyt_error *err);
int flyt_gpu_attach(struct flyt_card *card, struct flyt_held *held);
void flyt_gpu_detach(struct flyt_card *card, struct flyt_held *held);
/* Whether another node than its own has reported it. */
bool flyt_gpu_is_claimed_by(const struct flyt_card *card, const struct flyt_node *node);
/* Returns whether its health is another one than before; the sentence counts with it. */
bool flyt_gpu_note_health(struct flyt_card *card, enum flyt_health health, const char *health_text);

#endif
