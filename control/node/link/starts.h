/*
 * What comes of starting servers on a GPU: its health, and when the next one may be started. Warm servers.
 */
#ifndef FLYT_NODE_STARTS_H
#define FLYT_NODE_STARTS_H

#include "control/node/link/server_control.h"

enum { FLYT_NODE_STARTS_PAUSE_MS = 1000 }; /* after a failure; twice as long after each further one */
/* A warm server of the GPU; NULL: there is none now. Its state is the caller's to change. */
struct flyt_node_server *flyt_node_starts_take(const struct flyt_node *node, const struct flyt_node_gpu *gpu);
/* Ends the warm servers of a GPU, which are started anew: its group size has changed. */
void flyt_node_starts_renew(struct flyt_node *node, struct flyt_node_gpu *gpu);
/* A server became ready on the GPU; one failed, and why. */
void flyt_node_starts_ready(struct flyt_node *node, struct flyt_node_gpu *gpu);
void flyt_node_starts_failed(struct flyt_node *node, struct flyt_node_gpu *gpu, const char *why);
/* None could be started for want of a user (FLYT_NODE_NO_USER). */
void flyt_node_starts_lack_user(struct flyt_node *node, struct flyt_node_gpu *gpu);

#endif
