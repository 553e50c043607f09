/*
 * What drivers take of a GPU for servers, besides the memory that these make: servers charge it to their VM's ledger as
 * they expect it (a reserve), and where NVML tells how much a process has, the reserve becomes what it has beyond its
 * extents and beyond what its context took when it was made, which counts against the GPU and not against the VM.
 * Likewise what a server takes while its session is copied, moved or written to an image (READY says how much at most):
 * that is the operator's. Both are in the reserve of each client slot that is reported to the cluster manager.
 *
 * Nobody is ended for an estimate: where a VM so comes to have more than its limit it gets nothing more, and beyond
 * FLYT_NODE_OVERSHOOT_BYTES an event says so; memory_watch.h says when what is really there is too much. Under MPS NVML
 * may tell nothing of single processes: then the estimates stay. The loop's thread.
 */
#ifndef FLYT_NODE_RESERVE_H
#define FLYT_NODE_RESERVE_H

#include "control/node/model/node.h"

/* What estimates and NVML's figures may differ by without a word: as much as a driver's pools. */
#define FLYT_NODE_OVERSHOOT_BYTES (64ull << 20)

/* What a process has of a GPU, in bytes. False: it is not told. */
typedef bool (*flyt_node_process_fn)(const void *user, unsigned gpu, pid_t pid, uint64_t *ret_bytes);

/* A measurement begins: what servers charge from now on may or may not be in it. */
void flyt_node_reserve_begin(struct flyt_node *node);
/* It has ended: corrects the reserves of servers that have charged nothing meanwhile. */
void flyt_node_reserve_correct(struct flyt_node *node, flyt_node_process_fn process, const void *user);

#endif
