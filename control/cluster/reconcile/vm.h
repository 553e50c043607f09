/* VMs: grants to who asks, and those that are reserved. */
#ifndef FLYT_CLUSTER_RECONCILE_VM_H
#define FLYT_CLUSTER_RECONCILE_VM_H

#include "control/base/peer.h"

struct flyt_cluster;
struct flyt_vm;

/* What is next for who waits for a grant, or for one that was asked for (model/lifecycle.h). */
void flyt_vm_look(struct flyt_vm *vm);
/* Soon tries again to give what VMs wait for: a node has registered. */
void flyt_vm_try_soon(struct flyt_cluster *cluster);
/* Tries it now, and frees those that nothing holds any more; every second. */
void flyt_vm_tick(struct flyt_cluster *cluster);
void flyt_serve_vm_attach(struct flyt_call *call, void *args);
void flyt_serve_vm_report(struct flyt_call *call, void *args);
void flyt_serve_vm_memory(struct flyt_call *call, void *args);

#endif
