/* Nodes: registration, heartbeats, loss, fencing. */
#ifndef FLYT_CLUSTER_RECONCILE_NODE_H
#define FLYT_CLUSTER_RECONCILE_NODE_H

#include "control/base/peer.h"

struct flyt_cluster;
struct flyt_node;

/* Its connection has ended. */
void flyt_node_unlinked(struct flyt_node *node, const char *cause);
/* Looks which are lost; every second. */
void flyt_node_tick(struct flyt_cluster *cluster);
void flyt_serve_node_register(struct flyt_call *call, void *args);
void flyt_serve_node_heartbeat(struct flyt_call *call, void *args);
void flyt_serve_node_needs(struct flyt_call *call, void *args);
void flyt_serve_node_driver(struct flyt_call *call, void *args);
void flyt_serve_node_libraries(struct flyt_call *call, void *args);
void flyt_serve_node_fence(struct flyt_call *call, void *args);

#endif
