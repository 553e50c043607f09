/* What nodes tell as events. */
#ifndef FLYT_CLUSTER_API_NODE_EVENT_H
#define FLYT_CLUSTER_API_NODE_EVENT_H

#include "control/base/peer.h"

void flyt_serve_node_event(struct flyt_call *call, void *args);

#endif
