/*
 * Whether there is room for one more program: in its allocation, in its VM's limits, on the GPUs.
 */
#ifndef FLYT_NODE_ROOM_H
#define FLYT_NODE_ROOM_H

#include "control/node/model/allocation.h"
#include "rpc/base/error.h"
/* Whether one more program may begin besides waiting_count of the VM's that wait (state, sessions), and of any VM
 * promised_count that wait for a server of its first GPU (GPUs, client slots). Servers that may still come back are not
 * counted: who would be one too many with them waits until that is known. 0; -EBUSY, -ENODEV or -EACCES and one
 * sentence in *err. */
int flyt_node_room_check(const struct flyt_node *node, const struct flyt_node_allocation *allocation,
                         unsigned waiting_count, unsigned promised_count, struct flyt_error *err);
/* Of that the GPUs and their client slots alone: for a program that runs. 0; -EBUSY or -ENODEV. */
int flyt_node_room_on_gpus(const struct flyt_node *node, const struct flyt_node_allocation *allocation,
                           unsigned promised_count, struct flyt_error *err);
/* One that passed that begins: takes one from the VM's attach rate. 0; -EBUSY, and one sentence in *err. */
int flyt_node_room_take(const struct flyt_node *node, struct flyt_node_allocation *allocation, struct flyt_error *err);

#endif
