/*
 * Extents: pieces of a GPU's memory of which a server has handed a descriptor to the node manager, so that the memory
 * outlives the server. One list for each server.
 */
#ifndef FLYT_NODE_EXTENT_H
#define FLYT_NODE_EXTENT_H

#include <stdbool.h>
#include <stdint.h>

#include "control/node/model/node.h"
#include "control/node/model/server.h"
#include "rpc/transport/manager_link.h"

enum { FLYT_NODE_EXTENTS_MAX = 4096 }; /* of one server */

/* Takes over fd in every case. 0; -EEXIST (then its address is known from now on), -ENOSPC, -ENOMEM. Also goes into the
 * descriptor store. */
int flyt_node_extent_add(struct flyt_node *node, struct flyt_node_extents *extents, uint64_t server_id,
                         const struct flyt_manager_link_extent *extent, int fd);
/* Lets go of one. 0 and what it was; -ENOENT. */
int flyt_node_extent_remove(struct flyt_node *node, struct flyt_node_extents *extents, uint64_t server_id,
                            uint64_t extent_id, unsigned *ret_slot, uint64_t *ret_bytes);
/* Lets go of all. */
void flyt_node_extents_drop(struct flyt_node *node, struct flyt_node_extents *extents, uint64_t server_id);
/* All of them, of server_id, are other_id's from now on, in `to`, which is empty; `from` is then. */
void flyt_node_extents_move(struct flyt_node *node, struct flyt_node_extents *from, uint64_t server_id,
                            struct flyt_node_extents *to, uint64_t other_id);
/* Descriptors of their own for the same memory, in `to`, which is empty; the descriptor store does not know of them. 0,
 * or a negative errno and `to` is empty. */
int flyt_node_extents_copy(const struct flyt_node_extents *from, struct flyt_node_extents *to);
/* The descriptor store keeps all of them from now on. */
void flyt_node_extents_keep(struct flyt_node *node, const struct flyt_node_extents *extents, uint64_t server_id);
/* Bytes of a slot. */
uint64_t flyt_node_extents_of_slot(const struct flyt_node_extents *extents, unsigned slot);
/* Whether all that its server told of is here, with its address. */
bool flyt_node_extents_are_whole(const struct flyt_node_extents *extents);
/* Closes descriptors without letting go: the descriptor store keeps them for the next node manager. */
void flyt_node_extents_leave(struct flyt_node_extents *extents);
/* Takes those of a server that has come back out of the descriptor store. How many of which everything is known. */
unsigned flyt_node_extents_restore(struct flyt_node *node, struct flyt_node_extents *extents, uint64_t server_id);
/* Lets go of what is still in the descriptor store: of servers that have not come back. */
void flyt_node_extents_forget_passed(struct flyt_node *node);

#endif
