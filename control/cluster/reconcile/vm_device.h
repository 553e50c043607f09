/* Memory that a VM shares with the node it runs on. */
#ifndef FLYT_CLUSTER_RECONCILE_VM_DEVICE_H
#define FLYT_CLUSTER_RECONCILE_VM_DEVICE_H

#include "control/base/peer.h"

struct flyt_cluster;

void flyt_serve_vm_device(struct flyt_call *call, void *args);
/* A VM was removed: the nodes that are connected are told to keep no memory of it. What they answer is only logged. */
void flyt_vm_device_forget(struct flyt_cluster *cluster, const char *vm_ip);

#endif
