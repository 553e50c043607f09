/* GPUs that are in another node now. */
#ifndef FLYT_CLUSTER_RECONCILE_ADOPT_H
#define FLYT_CLUSTER_RECONCILE_ADOPT_H

#include "control/base/peer.h"

void flyt_serve_node_adopt(struct flyt_call *call, void *args);

#endif
