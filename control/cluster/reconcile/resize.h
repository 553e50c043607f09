/* Resizing what a VM has. */
#ifndef FLYT_CLUSTER_RECONCILE_RESIZE_H
#define FLYT_CLUSTER_RECONCILE_RESIZE_H

#include "control/base/peer.h"

struct flyt_cluster;
struct flyt_cluster_allocation;
struct flyt_vm;

/* A VM's document wants other SMs or memory than are granted. */
void flyt_resize_wanted(struct flyt_vm *vm);
/* What is next of the one that is under way (flyt_resize_next); where there is none, of what the VM's document wants.
 */
void flyt_resize_look(struct flyt_cluster_allocation *allocation);
/* The VM gets another size on another GPU: its document first, then it moves. The call is answered then. */
flyt_status flyt_resize_migrate(struct flyt_vm *vm, const flyt_migrate_args *args, struct flyt_call *call,
                                struct flyt_error *err);
/* The allocation goes: what is under way fails. */
void flyt_resize_cancel(struct flyt_vm *vm, const char *why);
void flyt_serve_resize(struct flyt_call *call, void *args);

#endif
