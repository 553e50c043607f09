/* Allocations when all documents were read. */
#ifndef FLYT_CLUSTER_RECONCILE_LOADED_H
#define FLYT_CLUSTER_RECONCILE_LOADED_H

#include "control/base/peer.h"

struct flyt_cluster;

/* After all GPUs were loaded: takes back what is not complete. */
void flyt_allocation_loaded(struct flyt_cluster *cluster);

#endif
