/*
 * The order about the memory that a VM of this machine shares with it: its file is made and removed on a thread of its
 * own, for finding its pages takes time. The loop's thread.
 */
#ifndef FLYT_NODE_VM_DEVICE_H
#define FLYT_NODE_VM_DEVICE_H

#include "control.h"
#include "control/base/peer.h"
#include "control/node/model/node.h"

/* Carries out an order and answers it with a flyt_vm_device_res. Who has no folder for them has nothing to remove. */
void flyt_node_vm_device_serve(struct flyt_node *node, struct flyt_call *call, const flyt_order_vm_device_args *order);

/* Waits for what is under way; the calls of others end without an answer. */
void flyt_node_vm_devices_free(struct flyt_node *node);

#endif
