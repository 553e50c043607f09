/*
 * SMs that are shared in time. A GPU has one token for all slots on it that are so (rpc/base/turns.h): slots with a
 * window. Who sets what each may have of it is the node manager alone; who has the token, the servers settle among
 * themselves, so that nothing stops while the node manager is restarted. The token then comes from systemd's descriptor
 * store, or from the first server that comes back; one that comes with another gets this one.
 *
 * Here too: a VM's priority, and suspended VMs, which need no token.
 */
#ifndef FLYT_NODE_SHARE_H
#define FLYT_NODE_SHARE_H

#include <stdbool.h>

#include "control/node/node.h"

struct flyt_node_allocation;
struct flyt_node_server;

/* Whether such a share can be. 0, or -EINVAL and *err. */
int flyt_node_share_check(const flyt_slot *slot, struct flyt_error *err);
/* An allocation's shares are to be as allocation->now says; the GPUs' tokens are made where they are not there and
 * nobody may bring them back. 0 or a negative errno, which is logged. */
int flyt_node_share_set(struct flyt_node *node, const struct flyt_node_allocation *allocation);
/* It goes, or its slots are about to be others. */
void flyt_node_share_drop(const struct flyt_node_allocation *allocation);

/* For a session: marks its slots, and adds the tokens, which stay the GPUs', behind *fd_count descriptors. 0 or a
 * negative errno. */
int flyt_node_share_fill(struct flyt_node *node, const struct flyt_node_allocation *allocation,
                         struct flyt_server_link_session *session, int *fds, unsigned *fd_count);
/* Its servers are told what has changed since `before` (of the same devices). */
void flyt_node_share_change(struct flyt_node *node, struct flyt_node_allocation *allocation,
                            const flyt_allocation *before);
/* A server has come back with these tokens, of its slots that say so: learns them, or gives it its own; and tells it
 * what it may have missed. */
void flyt_node_share_rejoin(struct flyt_node_server *server, const struct flyt_server_link_session *session,
                            const int *fds, unsigned fd_count);
/* What slot i might have of a GPU that it has left, or has not come to. */
void flyt_node_share_forget(const struct flyt_node_allocation *allocation, unsigned i, const struct flyt_node_gpu *gpu);
/* It has gone. */
void flyt_node_share_leave(struct flyt_node_server *server);
/* It has answered SHARE. */
void flyt_node_share_done(struct flyt_node_server *server, const struct flyt_server_link_share_done *done);
/* Nobody comes back any more: forgets who is not there. */
void flyt_node_share_tidy(struct flyt_node *node);

/* Fills what is told of slot i: suspended, GPU time, waiting. */
void flyt_node_share_use(const struct flyt_node_allocation *allocation, unsigned i, flyt_slot_use *use);

#endif
