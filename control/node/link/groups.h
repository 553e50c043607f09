/*
 * SM groups of allocations: who has which, and how far servers have come with others. Groups of different VMs are
 * disjoint; those that were taken away stay an allocation's own until nothing runs on them any more.
 */
#ifndef FLYT_NODE_GROUPS_H
#define FLYT_NODE_GROUPS_H

#include "control/node/model/node.h"

struct flyt_node_server;
struct flyt_node_slot;

/* The servers' progress with new groups, or a server's end: computes the slots' states anew. */
void flyt_node_groups_look(struct flyt_node *node, struct flyt_node_allocation *allocation);

/* Whether the server has not said that nothing of it runs on SMs that were taken from its VM. */
bool flyt_node_groups_drains(const struct flyt_node_server *server);

/* Slot i is to have the groups that allocation->now says: tells its servers. flyt_node_groups_look follows. */
void flyt_node_groups_change(struct flyt_node *node, struct flyt_node_allocation *allocation, unsigned i);

/* Whether another VM has one of the slot's groups, or has not vacated it: that, and the group; NULL: none. Who shares
 * by time may share SMs. */
const struct flyt_node_allocation *flyt_node_groups_conflict(const struct flyt_node *node, uint64_t own_id,
                                                             const flyt_slot *slot, unsigned *ret_group);

#endif
