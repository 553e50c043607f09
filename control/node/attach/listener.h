/*
 * Where programs connect: null calls and queries for anybody, and for sessions and data streams a handshake whose
 * credentials are proved (rpc/base/ticket.h) in answer to a challenge of this connection; and nodes that programs of a
 * VM leave for this one (arrival.h). Nothing is said of what the node has to anybody who cannot prove a ticket.
 */
#ifndef FLYT_NODE_LISTENER_H
#define FLYT_NODE_LISTENER_H

#include "control/node/model/node.h"

/* Listens at the settings' URLs, with sockets that systemd passed ("data-0", "data-1" …) where there are some, and on
 * the unix socket for programs of this machine, which go on over the others where that cannot be had: then this is
 * logged. 0, or a negative errno and *err. */
int flyt_node_listener_open(struct flyt_node *node, struct flyt_error *err);
void flyt_node_listener_close(struct flyt_node *node);

#endif
