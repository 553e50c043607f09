/*
 * What is to be given back to ledgers (rpc/base/ledger.h) whose mutex cannot be had, because a server that holds it was
 * stopped: looked at every FLYT_NODE_OWED_MS until it has been given back, and by each other operation on that ledger.
 * What is owed ends with the ledger's allocation. Both block for at most FLYT_LEDGER_WAIT_MS. The loop's thread.
 */
#ifndef FLYT_NODE_OWED_H
#define FLYT_NODE_OWED_H

#include "control/node/node.h"
#include "rpc/base/ledger.h"

enum { FLYT_NODE_OWED_MS = 1000 };

/* Takes back the whole entry of a server that is gone, now or later. One without an entry is none. */
void flyt_node_owed_reclaim(struct flyt_node *node, struct flyt_ledger *ledger, uint64_t server_id);
/* Gives back so much of what the server has charged, now or later. */
void flyt_node_owed_release(struct flyt_node *node, struct flyt_ledger *ledger, uint64_t server_id, uint64_t bytes);

#endif
