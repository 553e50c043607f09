/* Edits of VMs' documents. */
#ifndef FLYT_CLUSTER_API_VM_H
#define FLYT_CLUSTER_API_VM_H

#include "control/base/peer.h"

void flyt_serve_vm_set(struct flyt_call *call, void *args);
void flyt_serve_vm_remove(struct flyt_call *call, void *args);

#endif
