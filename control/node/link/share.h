/*
 * SMs that are shared in time. A GPU has one token for all slots on it that are so (rpc/base/time_slices.h): slots with
 * a window. A thread gives it out, by what servers say in pages of their own; who may have what of it is set here.
 * While the node manager is away servers go on by the clock, and get new places when they have come back.
 *
 * Here too: a VM's priority, and suspended VMs, which need no token.
 */
#ifndef FLYT_NODE_SHARE_H
#define FLYT_NODE_SHARE_H

#include <stdbool.h>

#include "control/node/model/node.h"

struct flyt_node_allocation;
struct flyt_node_server;

/* Whether such a share can be. 0, or -EINVAL and *err. */
int flyt_node_share_check(const flyt_slot *slot, struct flyt_error *err);
/* An allocation's shares are to be as allocation->now says; the GPUs' tokens are made where they are not there. 0 or a
 * negative errno, which is logged. */
int flyt_node_share_set(const struct flyt_node_allocation *allocation);
/* It goes, or its slots are about to be others. */
void flyt_node_share_drop(const struct flyt_node_allocation *allocation);

/* For a session: marks its slots, and adds its server's places, which stay the GPUs', behind *fd_count descriptors. 0
 * or a negative errno. */
int flyt_node_share_fill(const struct flyt_node_allocation *allocation, struct flyt_manager_link_session *session,
                         int *fds, unsigned *fd_count);
/* Its servers are told what has changed since `before` (of the same devices). */
void flyt_node_share_change(struct flyt_node *node, struct flyt_node_allocation *allocation,
                            const flyt_allocation *before);
/* A server has come back: it gets new places, and is told what it may have missed. */
void flyt_node_share_reattach(struct flyt_node_server *server, const struct flyt_manager_link_session *session);
/* All servers of the allocation get places where its devices are shared in time: they were elsewhere before. */
void flyt_node_share_give(const struct flyt_node_allocation *allocation);
/* What slot i might have of a GPU that it has left, or has not come to. */
void flyt_node_share_forget(const struct flyt_node_allocation *allocation, unsigned i, const struct flyt_node_gpu *gpu);
/* It has gone. */
void flyt_node_share_leave(struct flyt_node_server *server);
/* It has not answered SHARE, which is sent again. */
void flyt_node_share_repeat(struct flyt_node_server *server, unsigned i);
/* It has answered SHARE. */
void flyt_node_share_done(struct flyt_node_server *server, const struct flyt_manager_link_share_done *done);
/* Nobody comes back any more: forgets who is not there. */
void flyt_node_share_tidy(struct flyt_node *node);

/* Fills what is told of slot i: suspended, GPU time, waiting. */
void flyt_node_share_use(const struct flyt_node_allocation *allocation, unsigned i, flyt_slot_use *use);
/* Of its GPU time in time slices, what was beyond their ends, in ns. */
uint64_t flyt_node_share_overrun_ns(const struct flyt_node_allocation *allocation, unsigned i);

#endif
