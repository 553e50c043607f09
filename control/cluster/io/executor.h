/* Writes allocations, and orders to their nodes what was written: nothing else orders an allocation. */
#ifndef FLYT_CLUSTER_IO_EXECUTOR_H
#define FLYT_CLUSTER_IO_EXECUTOR_H

#include "control/cluster/model/allocation.h"
#include "control/store/store.h"

/* Writes it into all its GPUs' documents; done is told once, the worst result. */
void flyt_held_write(struct flyt_held *held,
                     void (*done)(void *user, struct flyt_held *held, enum flyt_store_result result, const char *err),
                     void *user);
/* What goes to a node. flyt_held_wire_free frees. */
int flyt_held_wire(const struct flyt_held *held, flyt_allocation *ret_wire);
/* The same with other parts. */
int flyt_held_wire_parts(const struct flyt_held *held, const struct flyt_part *parts, flyt_allocation *ret_wire);
void flyt_held_wire_free(flyt_allocation *wire);
/* Orders the node to hold what there is now. done (may be NULL): status 0 and the node's outcome, or a negative errno
 * where the node cannot be asked; called once, also when the allocation goes (-ECANCELED). */
typedef void (*flyt_order_done_fn)(void *user, int status, const flyt_outcome *outcome);
void flyt_held_order(struct flyt_held *held, flyt_order_done_fn done, void *user);
/* Writes what it is now, and orders it when that is written. */
void flyt_held_write_and_order(struct flyt_held *held);
/* Who waits for its orders is told -ECANCELED. */
void flyt_held_cancel_orders(struct flyt_held *held);
/* Its node has it at a revision or generation that is not below its own: it goes on above that, and true, where that is
 * one that a manager can have given (an older store was restored); it is to be written then. */
bool flyt_held_outgrow(struct flyt_held *held, uint64_t revision, unsigned generation);

#endif
