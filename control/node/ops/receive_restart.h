/*
 * Programs that had arrived from another node when the node manager was restarted (receive.h): their servers come back,
 * those that have their client and those that wait for it. The loop's thread.
 */
#ifndef FLYT_NODE_RECEIVE_RESTART_H
#define FLYT_NODE_RECEIVE_RESTART_H

#include "control/node/ops/receive.h"

/* A server has come back (REJOIN) that has received a session of this allocation, which is not among its sessions;
 * where it is taken it has no session yet. NULL, or why it is of no use. */
const char *flyt_node_receive_return_check(const struct flyt_node_allocation *allocation,
                                           const struct flyt_manager_link_rejoin *rejoin);
const char *flyt_node_receive_return(struct flyt_node_allocation *allocation, struct flyt_node_server *server,
                                     const struct flyt_manager_link_rejoin *rejoin);
/* Nobody else can come back who waits, and its ledgers are there: there is nothing to wait for. */
bool flyt_node_receive_is_back(const struct flyt_node_receive *receive);
/* Goes on with those that have come back; or fails, where none goes on here yet and not all have. */
void flyt_node_receive_settle(struct flyt_node_receive *receive);
/* No server of before the restart can come back any more. */
void flyt_node_receives_settle(struct flyt_node *node);

#endif
