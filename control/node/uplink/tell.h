/*
 * What the cluster manager is told besides heartbeats, where it has changed: what programs' launches have needed, and
 * which of NVIDIA's libraries there are and are open. A cluster manager of an older build does not know these
 * procedures, and does without.
 *
 * The loop's thread.
 */
#ifndef FLYT_NODE_TELL_H
#define FLYT_NODE_TELL_H

#include <stdint.h>

struct flyt_node;
struct flyt_uplink;

/* What a cluster manager was told last; all zero: nothing. */
struct flyt_node_told {
    uint64_t needs, libraries; /* sums of it */
};

void flyt_node_tell_what_changed(const struct flyt_node *node, struct flyt_uplink *uplink, struct flyt_node_told *told);

#endif
