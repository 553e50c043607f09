/* GPUs, as their nodes report them. */
#ifndef FLYT_CLUSTER_RECONCILE_GPU_H
#define FLYT_CLUSTER_RECONCILE_GPU_H

#include "control/base/peer.h"

struct flyt_cluster_gpu;
struct flyt_node;

/* From a node's report; writes the document where something in it has changed. -EEXIST: it is another node's, and stays
 * that one's until an operator says otherwise (adopt.c); an event has told so. */
int flyt_gpu_report(struct flyt_node *node, const struct flyt_gpu *report);
void flyt_gpu_set_health(struct flyt_cluster_gpu *gpu, enum flyt_health health, const char *text);

#endif
