/*
 * A VM's programs move to other GPUs, of their node or of another one, while they run (MIGRATION.md).
 * The cluster manager chooses the GPUs, charges them beside the present ones, records that in the documents of all of
 * them, orders the node (or both) to move, and follows what is said. When it is done, the parts on the target are the
 * allocation's; else all is as it was.
 *
 * What is recorded: the documents of the target's GPUs list the parts under `arriving`. When the programs have moved,
 * they list them under `allocations`, at a higher revision than the source's documents have them still, and these are
 * written without them afterwards. So of two entries of a part the one with the higher revision counts, and whoever
 * leads next finds what is under way whichever of the documents were written: it asks the node.
 *
 * While the node may move them, it gets no other order about that allocation; what has changed meanwhile follows.
 *
 * Between nodes the documents change sides before the programs do (FLYT_ORDER_RECEIVE in control.x has the order of
 * things): from then on the allocation is the target's, unless that says that it has failed; then they change back, at
 * a higher revision again. Nothing of what has been ordered is recorded: what is next follows from the documents and
 * from where both nodes say that they stand (flyt_migration_next).
 *
 * migration.c: the way of one in a node; migration_nodes.c: between nodes; migration_begin.c: what operators call;
 * migration_choose.c: whether and where to; migration_view.c: what is shown and told; model/migration_rules.h: what
 * nodes' words mean; io/migration_document.h: in the store.
 */
#ifndef FLYT_CLUSTER_RECONCILE_MIGRATION_H
#define FLYT_CLUSTER_RECONCILE_MIGRATION_H

#include "control/cluster/model/migration.h"

struct flyt_cluster;
struct flyt_node;

void flyt_serve_migrate(struct flyt_call *call, void *args);
void flyt_serve_migrate_cancel(struct flyt_call *call, void *args);
void flyt_serve_node_migration(struct flyt_call *call, void *args);
/* Records it and has it begin; `others`: where to (flyt_migration_choose). `call` (NULL: none) is answered when the
 * node has taken the order, or where that cannot be. 0; -ENOMEM: nothing has happened, and the call is the caller's. */
int flyt_migration_start(struct flyt_cluster_allocation *allocation, const struct flyt_migration_desired *desired,
                         const struct flyt_cluster_slot *others, struct flyt_call *call);
/* One whose node (NULL: any of them) has registered: that is asked how far it is.
 */
void flyt_migration_ask(struct flyt_cluster_allocation *allocation, const struct flyt_node *node);
/* What is next of one that is under way (flyt_move_next); it may end. */
void flyt_migration_look(struct flyt_cluster_allocation *allocation);
/* Writes what its state waits for. */
void flyt_migration_write(struct flyt_cluster_allocation *allocation);
/* One of its nodes has registered; wire NULL: it does not have the allocation. */
void flyt_migration_registered(struct flyt_cluster_allocation *allocation, const struct flyt_node *node,
                               const flyt_allocation *wire);
/* It is to fail, if it still can. */
void flyt_migration_cancel(struct flyt_cluster_allocation *allocation, const char *why);
/* The allocation is forgotten, and what it has on other GPUs with it. */
void flyt_migration_drop(struct flyt_cluster_allocation *allocation, const char *why, bool is_written);
/* Who asked for it is told that it has begun. */
void flyt_migration_reply(struct flyt_cluster_allocation *allocation);
/* It is over, and gone: the source is free (migration->use says how it went), or all is as it was. */
void flyt_migration_end(struct flyt_cluster_allocation *allocation);
void flyt_migration_fail(struct flyt_cluster_allocation *allocation, flyt_status status, const char *text);
/* Counts anew what the GPUs of both sides have left. */
void flyt_migration_count(const struct flyt_cluster_allocation *allocation);
/* It is recorded, and the source has what was ordered before. */
void flyt_migration_nodes_order(struct flyt_cluster_allocation *allocation);
/* The next step, as both nodes stand; once it is over, the source is to let go. */
void flyt_migration_nodes_compare(struct flyt_cluster_allocation *allocation);
void flyt_migration_nodes_release(struct flyt_cluster_allocation *allocation);
/* How far it is, as one of the nodes says. */
void flyt_migration_nodes_heard(struct flyt_cluster_allocation *allocation, const struct flyt_node *node,
                                const flyt_migration_use *use);
void flyt_migration_nodes_ask(struct flyt_cluster_allocation *allocation, const struct flyt_node *node);
void flyt_migration_nodes_registered(struct flyt_cluster_allocation *allocation, const struct flyt_node *node,
                                     const flyt_allocation *wire);
/* It is to fail, if it still can (is_cancelled). */
void flyt_migration_nodes_cancel(struct flyt_migration *migration);
/* The node is dead, or has ended all that it had. True: the allocation stays, at the other one or until that is known.
 */
bool flyt_migration_nodes_fenced(struct flyt_cluster_allocation *allocation, const struct flyt_node *node);
/* The allocation is forgotten at once: the nodes are told. */
void flyt_migration_nodes_drop(const struct flyt_cluster_allocation *allocation);
/* The node is not to have these allocations: what it still has of them goes. */
void flyt_migration_remove_strays(struct flyt_node *node, u_quad_t *ids, u_int count);
/*
 * Where a VM's programs would move, in ret_others (as many as it has parts). FLYT_STATUS_OK; or why it cannot be, with
 * a sentence in *err.
 */
flyt_status flyt_migration_choose(struct flyt_cluster_allocation *allocation,
                                  const struct flyt_migration_desired *desired, struct flyt_cluster_slot *ret_others,
                                  struct flyt_error *err);
/* Whether what programs have goes encrypted to this node, which is not theirs. */
bool flyt_migration_is_encrypted(const struct flyt_cluster_allocation *allocation, const struct flyt_node *node);
/* As in the view "migrations". */
cJSON *flyt_migration_json(const struct flyt_migration *migration);
/* Tells how it ended (use.phase, reason): event, measurements, list. */
void flyt_migration_tell_end(struct flyt_migration *migration);
/* One that is over, of an event in the store. */
void flyt_migration_load_event(struct flyt_cluster *cluster, const char *kind, const char *after);
cJSON *flyt_migration_view(struct flyt_cluster *cluster, const char *selector);

#endif
