/* Cordon, drain, the size of groups. */
#ifndef FLYT_CLUSTER_API_GPU_H
#define FLYT_CLUSTER_API_GPU_H

#include "control/base/peer.h"

void flyt_serve_gpu_set(struct flyt_call *call, void *args);
void flyt_serve_schedule(struct flyt_call *call, void *args);

#endif
