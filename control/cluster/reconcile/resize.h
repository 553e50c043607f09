/* Resizing what a VM has. */
#ifndef FLYT_CLUSTER_RECONCILE_RESIZE_H
#define FLYT_CLUSTER_RECONCILE_RESIZE_H

#include "control/base/peer.h"

struct flyt_cluster;
struct flyt_held;
struct flyt_vm;

/* A VM's document wants other SMs or memory than are granted. */
void flyt_resize_wanted(struct flyt_vm *vm);
/* Something is known of the allocation that was not: a write has ended, an order has its answer, its node has said how
 * far it is. The resize that waits for it goes on. */
void flyt_resize_look(struct flyt_held *held);
/* Gives VMs that have fewer SMs than they want what has become free; every second. */
void flyt_resize_tick(struct flyt_cluster *cluster);
/* The VM gets another size on another GPU: its document first, then it moves. The call is answered then. */
flyt_status flyt_resize_migrate(struct flyt_vm *vm, const flyt_migrate_args *args, struct flyt_call *call,
                                struct flyt_error *err);
/* That has ended: OK, or the document is put back. */
void flyt_resize_migrated(struct flyt_held *held, flyt_status status, const char *text);
/* The allocation goes: what is under way fails. */
void flyt_resize_cancel(struct flyt_vm *vm, const char *why);
void flyt_serve_resize(struct flyt_call *call, void *args);

#endif
