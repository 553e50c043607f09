/* Looks at allocations: what is next of each of the things that can be under way. */
#ifndef FLYT_CLUSTER_RECONCILE_LOOK_H
#define FLYT_CLUSTER_RECONCILE_LOOK_H

struct flyt_cluster;
struct flyt_cluster_allocation;

/* Something is known of it that was not; it may go. */
void flyt_allocation_look_all(struct flyt_cluster_allocation *allocation);
/* At each of them; every second. */
void flyt_looks_tick(struct flyt_cluster *cluster);

#endif
