/*
 * Why the last sessions here have ended, for their clients: one that hears of its server's end only by its connection
 * asks for the session, and is told then what sessions and events say. A session that goes on elsewhere has not ended.
 */
#ifndef FLYT_NODE_TOMBSTONES_H
#define FLYT_NODE_TOMBSTONES_H

#include <stddef.h>
#include <stdint.h>

#include "rpc/base/error.h"

struct flyt_node;
struct flyt_node_session;

enum { FLYT_NODE_TOMBSTONES_MAX = 512 }; /* the last ones: a fault under MPS ends all of a GPU at once */

struct flyt_node_tombstones;

/* Of a server or a session without one, with its allocation, id and token. reason: why, "": nobody knows; copied, cut
 * off where it is too long for the answer to a client. Without memory it is not remembered. */
void flyt_node_tombstones_add(struct flyt_node *node, const struct flyt_node_session *session, const char *reason);
/* -ENOENT with a sentence: by its id, or by the token of one of that allocation; also of one that is not remembered. */
int flyt_node_tombstones_tell(const struct flyt_node *node, uint64_t session_id, struct flyt_error *err);
int flyt_node_tombstones_tell_token(const struct flyt_node *node, uint64_t allocation_id, const void *token,
                                    size_t bytes, struct flyt_error *err);
void flyt_node_tombstones_fini(struct flyt_node *node);

#endif
