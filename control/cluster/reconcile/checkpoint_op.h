/*
 * Checkpoints and restores (CHECKPOINT.md): a node writes images of a VM's programs, or has programs go on from
 * them. The cluster manager looks whether that can be, orders it, asks the node how far it is, and tells how it ended.
 * Nothing of an allocation changes by either: a VM whose programs are in images has what it had, and they count as its
 * sessions. So nothing of them is in GPUs' documents, and a manager that has forgotten one does no harm.
 *
 * That one has begun is an event, with its object; likewise its end. Who begins to lead reads these, and goes on to ask
 * about those that have begun and not ended. A node knows nothing of one any more after a restart of its manager: then
 * it has failed, with a sentence that says what to look at.
 *
 * checkpoint_op.c: the way of one; checkpoint_op_begin.c: whether it can be; checkpoint_op_view.c: what is shown and
 * told.
 */
#ifndef FLYT_CLUSTER_RECONCILE_CHECKPOINT_OP_H
#define FLYT_CLUSTER_RECONCILE_CHECKPOINT_OP_H

#include <cjson/cJSON.h>

#include "control/cluster/model/checkpoint_op.h"

struct flyt_cluster;
struct flyt_cluster_allocation;

void flyt_serve_checkpoint(struct flyt_call *call, void *args);
void flyt_serve_restore(struct flyt_call *call, void *args);
/* A new one with an id, in no list; NULL: no memory. */
struct flyt_checkpoint_op *flyt_checkpoint_op_new(struct flyt_cluster *cluster, uint64_t id);
/* Who waits for it is told. Returns NULL. */
struct flyt_checkpoint_op *flyt_checkpoint_op_free(struct flyt_checkpoint_op *op);
/* Has it begin: it is the cluster's from now on. Its call is answered when the node has taken the order, or has not. */
void flyt_checkpoint_op_start(struct flyt_checkpoint_op *op);
/* Its node is asked how far it is, where that is connected. */
void flyt_checkpoint_op_ask(struct flyt_checkpoint_op *op);
/* Every second. */
void flyt_checkpoint_op_tick(struct flyt_cluster *cluster);
/* Everything in memory is forgotten. */
void flyt_checkpoint_ops_forget(struct flyt_cluster *cluster);
/* "preparing" … "failed"; "unknown" for a number that none has. */
const char *flyt_checkpoint_op_phase_name(flyt_saving_phase phase);
/* Tells that it has begun; how it ended (use.phase, reason). */
void flyt_checkpoint_op_tell_begin(struct flyt_checkpoint_op *op);
void flyt_checkpoint_op_tell_end(struct flyt_checkpoint_op *op);
/* One that has begun, or is over, of an event in the store. */
void flyt_checkpoint_op_load_event(struct flyt_cluster *cluster, const char *kind, const char *after);
/* Whether a node's own event says what is told here, with more. The node is asked then, where that is not over. */
bool flyt_checkpoint_op_is_told(struct flyt_cluster *cluster, const char *kind, const char *text);
cJSON *flyt_checkpoint_op_view(struct flyt_cluster *cluster, const char *selector);

#endif
