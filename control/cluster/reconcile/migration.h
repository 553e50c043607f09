/*
 * A VM's programs move to other GPUs, of their node or of another one, while they run (MIGRATION.md).
 * The cluster manager chooses the GPUs, charges them beside the present ones, records that in the documents of all of
 * them, orders the nodes to move, and follows what they say. When it is done, the parts on the target are the
 * allocation's; else all is as it was.
 *
 * What is recorded: the documents of the target's GPUs list the parts under `arriving`. When the programs have moved,
 * or are about to leave for another node, they list them under `allocations`, at a higher revision than the source's
 * documents have them still, and these are written without them afterwards. So of two entries of a part the one with
 * the higher revision counts, and whoever leads next finds what is under way whichever of the documents were written.
 * Nothing of what has been ordered is recorded: what is next follows from the documents and from where both sides say
 * that they stand (flyt_migration_next).
 *
 * While the nodes may move them, they get no other order about that allocation; what has changed meanwhile follows.
 *
 * model/migration_rules.h: the states, what nodes' words mean, what is next, and what differs within a node and between
 * nodes; migration.c: what is done then; migration_orders.c: what nodes are told, and say; migration_begin.c: what
 * operators call; migration_choose.c: whether and where to; migration_view.c: what is shown and told;
 * io/migration_document.h: in the store.
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
/* What is next of one that is under way (flyt_migration_next); it may end. */
void flyt_migration_look(struct flyt_cluster_allocation *allocation);
/* One of its nodes has registered; wire NULL: it does not have the allocation. */
void flyt_migration_registered(struct flyt_cluster_allocation *allocation, const struct flyt_node *node,
                               const flyt_allocation *wire);
/* The node, which has registered, is asked how far it is. */
void flyt_migration_ask(struct flyt_cluster_allocation *allocation, const struct flyt_node *node);
/* It is to fail, if it still can. */
void flyt_migration_cancel(struct flyt_cluster_allocation *allocation, const char *why);
/* It fails with this, unless it fails already; what was moved is told all the same. */
void flyt_migration_note_failure(struct flyt_migration *migration, flyt_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The allocation is forgotten, and what it has on other GPUs with it. */
void flyt_migration_drop(struct flyt_cluster_allocation *allocation, const char *why, bool is_written);
/* One of its nodes is dead, or has ended all that it had. True: the allocation stays, at the other one or until that is
 * known. */
bool flyt_migration_fenced(struct flyt_cluster_allocation *allocation, const struct flyt_node *node);
/* Who asked for it is told that it has begun. */
void flyt_migration_reply(struct flyt_cluster_allocation *allocation);

/* A side is ordered this, or asked (is_cancel: to fail) with FLYT_ORDER_MIGRATION, unless the same was ordered just now
 * or another order's answer is awaited. Whether it was; what it answers is looked at (flyt_migration_look). */
bool flyt_migration_order(struct flyt_cluster_allocation *allocation, unsigned side, unsigned procedure,
                          bool is_cancel);
/* One of those with which it begins. False: it fails, for the side could not be ordered that. */
bool flyt_migration_order_begin(struct flyt_cluster_allocation *allocation, unsigned side, unsigned procedure);
/* Both nodes of one that is forgotten at once are told. */
void flyt_migration_order_drop(struct flyt_cluster_allocation *allocation);
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
