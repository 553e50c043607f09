/*
 * The software GPUs' accounts (cpu/softgpu/driver/account.h) as what a GPU counts. Each server's process writes its
 * own, so they are evidence in tests alone, where what a server says on its pages is played with and its driver is not.
 * They are there where FLYT_SOFT_ACCOUNT names their folder, which is small files on a local disk: read by the loop.
 */
#ifndef FLYT_NODE_SOFT_ACCOUNT_H
#define FLYT_NODE_SOFT_ACCOUNT_H

#include "control/node/gpu/gpu_account.h"

/* None where the variable is not set. */
struct flyt_node_gpu_account flyt_node_soft_account(void);

#endif
