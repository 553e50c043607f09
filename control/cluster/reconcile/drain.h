/* Waiting until nothing runs on what was taken away. */
#ifndef FLYT_CLUSTER_RECONCILE_DRAIN_H
#define FLYT_CLUSTER_RECONCILE_DRAIN_H

#include "control/base/peer.h"

struct flyt_cluster_allocation;

/* What is next for who waits (flyt_drain_next). */
void flyt_drain_look(struct flyt_cluster_allocation *allocation);
/* It goes: so does everything that runs on it. */
void flyt_drain_end(struct flyt_cluster_allocation *allocation);
void flyt_serve_drain(struct flyt_call *call, void *args);

#endif
