/* Allocations: placed, blocked, ended; what their nodes say. */
#ifndef FLYT_CLUSTER_RECONCILE_ALLOCATION_H
#define FLYT_CLUSTER_RECONCILE_ALLOCATION_H

#include <cjson/cJSON.h>

#include "control/cluster/model/allocation.h"
#include "control/cluster/model/placement.h"

struct flyt_cluster;
struct flyt_node;
struct flyt_vm;

/* Which GPUs a VM would get now; nothing is taken. 0; -ENOSPC, -EDQUOT (its tenant's quota) or -ENOMEM, *err says why.
 */
int flyt_allocation_choose(const struct flyt_vm *vm, struct flyt_placement *ret_placement, struct flyt_error *err);
/* Places a VM and writes the allocation; then done. *err says why not at once. */
int flyt_allocation_place(struct flyt_vm *vm, struct flyt_error *err);
/* Takes it away: its sessions end on the node, then the store forgets it. */
void flyt_allocation_end(struct flyt_cluster_allocation *allocation, const char *who, const char *why);
/* The same; its node has nothing of it any more. What the target of its migration may have is charged until it has not.
 */
void flyt_allocation_end_gone(struct flyt_cluster_allocation *allocation, const char *who, const char *why);
/* An allocation that the store does not know; charged. NULL: no memory, or nothing of it is on this node. */
struct flyt_cluster_allocation *flyt_allocation_orphan(struct flyt_node *node, const flyt_allocation *wire);
void flyt_allocation_set_state(struct flyt_cluster_allocation *allocation, enum flyt_allocation_state state);
/* What is next of it (model/lifecycle.h); it may go. */
void flyt_allocation_look(struct flyt_cluster_allocation *allocation);
/* Forgets it at once, here and in the store. */
void flyt_allocation_drop(struct flyt_cluster_allocation *allocation);
void flyt_allocation_free(struct flyt_cluster_allocation *allocation);
cJSON *flyt_allocation_json(const struct flyt_cluster_allocation *allocation);
void flyt_serve_allocation(struct flyt_call *call, void *args);

#endif
