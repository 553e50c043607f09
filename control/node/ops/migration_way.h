/*
 * How a VM's sessions get to where they go on. A migration within a node is one between two nodes which are the same:
 * what differs is here, in one table.
 */
#ifndef FLYT_NODE_MIGRATION_WAY_H
#define FLYT_NODE_MIGRATION_WAY_H

#include <stdbool.h>
#include <stdint.h>

struct flyt_node_way {
    uint32_t link_kind; /* what MOVE says: enum flyt_manager_link_move_kind */
    bool is_far;        /* the target is another node's, which alone knows it, and whose cluster manager says SWITCH */
    bool is_by_host;    /* a target of this node, which makes what comes through connections, as another node's does */
    bool is_given;      /* the target is given the memory itself */
    bool is_mirrored;   /* the source copies into memory that the target has made; where it cannot reach it: by host */
    const char *text;   /* within a node: where the programs move */
    const char *stop_point, *leave_point; /* where tests let them fail (POINTS.md) */
};

/* The two ends, of all of the VM's devices. */
struct flyt_node_way_ends {
    bool is_same_node, is_same_gpu;
    bool is_same_capability; /* of those that are not the same; false: or it is not known yet */
    bool is_reachable;       /* as far as is known: one GPU reaches the other one's memory */
};

/* A pure function. */
const struct flyt_node_way *flyt_node_way_between(const struct flyt_node_way_ends *ends);

#endif
