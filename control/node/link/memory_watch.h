/*
 * What a VM's servers have of a GPU's memory, against what its ledger says and its limit allows. The ledger is a page
 * that each of these servers can write; the node manager knows from itself which servers there are, what memory it
 * holds descriptors of (extent.h), and, where the GPU counts it, what their processes have (gpu_account.h).
 *
 * - Entries of servers that are not there go; of one that is there and has none, one is made.
 * - An entry that is less than the memory which is held, or more than can be (than the limit; than the process has), at
 *   two looks in a row, becomes what is held. What was no extent is not known then: that is the VM's to gain, as much
 *   as the GPU's account does not show.
 * - A VM that has more than its limit, at FLYT_NODE_MEMORY_LOOKS in a row, by the memory that is held, or by
 *   FLYT_NODE_OVERSHOOT_BYTES (reserve.h) more by what the GPU counts: the server of it that has most is ended (event
 *   session.over_memory).
 *
 * Nothing is concluded while sessions are copied or restarts settled: two processes then have what is one's. The loop's
 * thread.
 */
#ifndef FLYT_NODE_MEMORY_WATCH_H
#define FLYT_NODE_MEMORY_WATCH_H

#include <stdint.h>

#include "control/node/model/server.h"

struct flyt_node;

enum {
    FLYT_NODE_MEMORY_MS = 2000, /* from one look to the next */
    FLYT_NODE_MEMORY_LOOKS = 5,
};

void flyt_node_memory_watch_look(struct flyt_node *node);

#endif
