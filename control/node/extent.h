/*
 * Extents: pieces of a GPU's memory of which a server has handed a descriptor to the node manager, so that the memory
 * outlives the server. One list for each server.
 */
#ifndef FLYT_NODE_EXTENT_H
#define FLYT_NODE_EXTENT_H

#include <stdint.h>

#include "control/node/node.h"

enum { FLYT_NODE_EXTENTS_MAX = 4096 }; /* of one server */

struct flyt_node_extent {
    struct flyt_node_extent *next;
    uint64_t extent_id, bytes;
    unsigned slot;
    int fd;
};

struct flyt_node_extents {
    struct flyt_node_extent *first;
    unsigned count;
    uint64_t bytes;
};

/* Takes over fd in every case. 0; -EEXIST, -ENOSPC, -ENOMEM. Also goes into the descriptor store. */
int flyt_node_extent_add(struct flyt_node *node, struct flyt_node_extents *extents, uint64_t server_id,
                         uint64_t extent_id, unsigned slot, uint64_t bytes, int fd);
/* Lets go of one. 0 and what it was; -ENOENT. */
int flyt_node_extent_remove(struct flyt_node *node, struct flyt_node_extents *extents, uint64_t server_id,
                            uint64_t extent_id, unsigned *ret_slot, uint64_t *ret_bytes);
/* Lets go of all. */
void flyt_node_extents_drop(struct flyt_node *node, struct flyt_node_extents *extents, uint64_t server_id);
/* Closes descriptors without letting go: the descriptor store keeps them for the next node manager. */
void flyt_node_extents_leave(struct flyt_node_extents *extents);
/* Takes those of a server that has come back out of the descriptor store. How many. */
unsigned flyt_node_extents_restore(struct flyt_node *node, struct flyt_node_extents *extents, uint64_t server_id);
/* Lets go of what is still in the descriptor store: of servers that have not come back. */
void flyt_node_extents_forget_passed(struct flyt_node *node);

#endif
