/* Looks at allocations: what is next of each of the things that can be under way. */
#ifndef FLYT_CLUSTER_RECONCILE_LOOK_H
#define FLYT_CLUSTER_RECONCILE_LOOK_H

struct flyt_cluster;
struct flyt_held;

/* Something is known of it that was not; it may go. */
void flyt_held_look_all(struct flyt_held *held);
/* At each of them; every second. */
void flyt_looks_tick(struct flyt_cluster *cluster);

#endif
