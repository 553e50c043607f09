/*
 * Sessions that are in a checkpoint image and nowhere else: their programs wait, without a server process and without
 * memory on a GPU, until they are restored (restore.h). They are part of the node's state (state.json), so that they
 * outlive the node manager; the image itself is a file that an administrator may move, so that it is known by its name
 * without its folder.
 *
 * The record of a session is made before its program is told to leave, and goes when the session goes on at a new
 * server, or has ended. As long as it is there, the end of a process that has the session is not the session's end.
 * The loop's thread.
 */
#ifndef FLYT_NODE_CHECKPOINTED_SESSIONS_H
#define FLYT_NODE_CHECKPOINTED_SESSIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "control/node/model/node.h"
#include "control/node/state/checkpointed.h"
#include "rpc/base/error.h"

struct flyt_node_allocation;
struct flyt_node_restoring;
struct flyt_node_server;

/* After a start: those without an allocation are dropped. */
void flyt_node_checkpointed_init(struct flyt_node *node);
/* Makes a record of a server's session, and does not save it. NULL: no memory, or there are too many. */
struct flyt_node_checkpointed *flyt_node_checkpointed_add(struct flyt_node *node, const struct flyt_node_server *server,
                                                          const char *folder, const char *image, uint64_t sequence);
/* It is there no more; that is not saved. */
void flyt_node_checkpointed_remove(struct flyt_node *node, struct flyt_node_checkpointed *checkpointed);
/* Its session has ended, which is told; that is saved. */
void flyt_node_checkpointed_drop(struct flyt_node *node, struct flyt_node_checkpointed *checkpointed,
                                 const char *reason);
/* All of an allocation, which is to end. */
void flyt_node_checkpointed_drop_all(struct flyt_node *node, const struct flyt_node_allocation *allocation,
                                     const char *reason);
/*
 * A program wants its session, by token. 0: a server process is there for it (replace.h has the session); -EBUSY, with
 * one sentence: it is to try again; -ENOENT: no such session is in an image.
 */
int flyt_node_checkpointed_ask(struct flyt_node *node, const struct flyt_node_allocation *allocation, const void *token,
                               size_t bytes, struct flyt_error *err);
/* How many of an allocation are nowhere else at present: no process has them, and none is about to. */
unsigned flyt_node_checkpointed_count(const struct flyt_node_allocation *allocation);
/* Whether its program has not tried for so long that it has ended. */
bool flyt_node_checkpointed_is_gone(const struct flyt_node_checkpointed *checkpointed);

#endif
