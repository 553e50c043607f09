/*
 * Memory that a server process has of a session which is not its own: it was given it ahead (replace.h), has made it
 * (session_load.h), or shares it as the other side of a move on one GPU (move.h): the target before it has the session,
 * the source behind that. It is charged to that session's entries in the ledgers. When the session ends such a server
 * is ended, too, which takes its time, and memory is free when nobody has it any more: the entries stay until the last
 * such process has gone, and with them the allocation, even where it was removed. The session's place is free at once.
 *
 * The loop's thread. server->charged.entry_id is 0: the server has nothing of the kind.
 */
#ifndef FLYT_NODE_CHARGE_H
#define FLYT_NODE_CHARGE_H

#include <stdbool.h>
#include <stdint.h>

#include "control/node/model/server.h"

/* From now on the server may have memory of a session of the allocation, which has these entries. */
void flyt_node_charge_lend(struct flyt_node_server *server, const struct flyt_node_allocation *allocation,
                           const struct flyt_node_holding *has);
/* The entries in all ledgers of the allocation, or in none, become another one's; charged is then what the extents
 * have, neither more nor less, and nothing is reserved. 0, or a negative errno: the entries and what is charged to them
 * are as before, but nothing may be reserved, claimed or cached any more in those that had been moved already. */
int flyt_node_charge_move(const struct flyt_node_allocation *allocation, const struct flyt_node_extents *extents,
                          uint64_t from_id, uint64_t to_id);
/* The entries of this id have become the server's own: they have its server_id. */
void flyt_node_charge_take(struct flyt_node_server *server, uint64_t entry_id);
/* The server has nothing of it that is to be charged any more, or goes on without this node manager, and what it has
 * stays charged as it is. */
void flyt_node_charge_leave(struct flyt_node_server *server);
/* A session of the allocation ends, and its own process, if it had one, has gone: takes its entries back, now, or when
 * the last process has gone that may have memory of it. */
void flyt_node_charge_end(struct flyt_node_allocation *allocation, const struct flyt_node_holding *has);
/* The server's process has gone, and it is still in node->servers. Takes back what has stayed for it alone; its
 * allocation may be freed then. */
void flyt_node_charge_exit(struct flyt_node_server *server);

#endif
