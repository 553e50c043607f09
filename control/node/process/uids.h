/*
 * Users for servers (setting server_uids): every server process is a user of its own, with a group of the same number,
 * for as long as it lives. None can then signal, trace or open what belongs to another one, whatever its program makes
 * of it.
 *
 * A server that is such a user can reach nothing of STATE_DIR, which is its owner's alone, by a path from the root. Its
 * working directory is STATE_DIR/servers, where nothing is but a second name of link.sock, at which it comes back after
 * a restart; the folder of its VM's module images comes as a descriptor. What proves who it is
 * (flyt_node_server_secret) is made for its user, so that no other one can use it.
 */
#ifndef FLYT_NODE_UIDS_H
#define FLYT_NODE_UIDS_H

#include <stdbool.h>
#include <sys/types.h>

#include "control/base/config.h"
#include "control/node/host/uid_pool.h"
#include "control/node/state/uid_range.h"

struct flyt_node;
struct flyt_node_gpu;
struct flyt_node_settings;

/* Where servers with users of their own listen, from their working directory. */
#define FLYT_NODE_UIDS_LINK "link.sock"

/* ---- the pool ---- */

/* 0 or -ENOMEM. A range of which last is 0 is allowed. */
int flyt_node_uids_init(struct flyt_node_uids *uids, const struct flyt_range *range);
void flyt_node_uids_fini(struct flyt_node_uids *uids);
/* Forgets who was given, and marks what processes have, of any of their four user numbers; `proc` is a folder like
 * /proc. 0 or a negative errno: nothing has changed. */
int flyt_node_uids_look(struct flyt_node_uids *uids, const char *proc);
/* Somebody has it; one outside the range is nothing. */
void flyt_node_uids_mark(struct flyt_node_uids *uids, uid_t uid);
/* One that is not marked, which is marked then. 0: there is none. */
uid_t flyt_node_uids_next(struct flyt_node_uids *uids);

/* ---- the node's ---- */

/* After the GPUs are known: looks who has which of them, makes STATE_DIR/servers. 0 or a negative errno and *err. */
int flyt_node_uids_open(struct flyt_node *node, struct flyt_error *err);
/* Gives link.sock its second name, where servers of this start or an earlier one may need it. 0 or a negative errno. */
int flyt_node_uids_show_link(const struct flyt_node *node);
/* STATE_DIR/servers; `path` has FLYT_MANAGER_LINK_FOLDER_BYTES of room. */
void flyt_node_uids_folder(const struct flyt_node *node, char *path);
/* Whether a server of the GPU becomes a user of its own: not where an MPS daemon serves one user at a time. */
bool flyt_node_uids_are_for(const struct flyt_node *node, const struct flyt_node_gpu *gpu);
/* A user that no process has. 0; -EINPROGRESS: a thread (node->spawner) looks which there are, after which servers are
 * started (pool.h); -EUSERS: there is none; another negative errno: that cannot be found out. */
int flyt_node_uids_take(struct flyt_node *node, uid_t *ret_uid);
/* In a new process between fork and exec, of root: makes it this user for ever, with the group of its number, no
 * further groups, no capabilities, and nothing to gain by what it executes; its working directory is then `folder`.
 * Calls nothing that another thread's lock could hold up. NULL, or what did not work, for errno. */
const char *flyt_node_uids_become(uid_t uid, const char *folder);

#endif
