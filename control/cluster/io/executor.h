/*
 * Writes allocations, and orders to their nodes what was written: nothing else orders an allocation. What comes of it
 * stands in the allocation, and the loop tells that there is something to be seen (ops->allocation_observed), never
 * from inside a call.
 */
#ifndef FLYT_CLUSTER_IO_EXECUTOR_H
#define FLYT_CLUSTER_IO_EXECUTOR_H

#include "control/cluster/model/allocation.h"
#include "control/store/store.h"

enum { FLYT_MEND_MS = 5000 }; /* what was not written, or not taken, is tried again so much later */

/*
 * Writes it into all its GPUs' documents. Returns the write's number: what is in it is in the store when write_done has
 * come so far, and may not be when write_failed has and write_done has not.
 */
uint64_t flyt_allocation_write(struct flyt_cluster_allocation *allocation);
/* What goes to a node. flyt_allocation_wire_free frees. */
int flyt_allocation_wire(const struct flyt_cluster_allocation *allocation, flyt_allocation *ret_wire);
/* The same with other parts. */
int flyt_allocation_wire_parts(const struct flyt_cluster_allocation *allocation, const struct flyt_cluster_slot *slots,
                               flyt_allocation *ret_wire);
void flyt_allocation_wire_free(flyt_allocation *wire);
/* Orders the node to hold what there is now, as soon as that is written (answer_count, answered_revision). */
void flyt_allocation_order(struct flyt_cluster_allocation *allocation);
/* Writes what it is now, and orders it when that is written. */
void flyt_allocation_write_and_order(struct flyt_cluster_allocation *allocation);
/* Has the loop look at it (ops->allocation_observed). */
void flyt_allocation_look_soon(struct flyt_cluster_allocation *allocation);
/* It goes: nobody looks at it any more. */
void flyt_allocation_look_never(struct flyt_cluster_allocation *allocation);
/* Its node has it at a revision or generation that is not below its own: it goes on above that, and true, where that is
 * one that a manager can have given (an older store was restored); it is to be written then. */
bool flyt_allocation_outgrow(struct flyt_cluster_allocation *allocation, uint64_t revision, unsigned generation);

#endif
