/*
 * Sessions that go on at another server. When the process that served one has ended unexpectedly, and the session was
 * replaceable (its server said so last), it waits without one for its client (model/session.h). It keeps its extents,
 * its entries in the ledgers with what was charged, its place among the allocation's sessions and the GPU's client
 * slots.
 *
 * With it waits what its process wrote of the calls that it executed (call_record.h), for its client, who sends the
 * others again.
 *
 * As soon as its link ends, or its process does, a warm server of the same GPU is given the extents (state TAKING:
 * RESUME, GIVE for each, as fast as it takes them), where one is warm; else when there is one for its client. One that
 * was prepared for the session has them, and is in state PREPARING until the session is its own. SESSION
 * waits for both: the process's end, and its client, who comes with a connection of kind FLYT_CONNECTION_RESUME. One
 * that comes before we have seen that end is held until then, for FLYT_NODE_REPLACE_ENDING_MS at most where nothing but
 * its coming says that there is one. SESSION is as the allocation is by then. Where the client has hung up by then the
 * server waits for its next try, with what it was given. In one step the ledgers' entries become the new server's.
 * Until SESSION is sent, any failure leaves the session waiting and the client is told to try again; after that it has
 * one server again, and is not replaceable before this one says so: where it ends earlier the session ends, because
 * what its client has made again is not known.
 *
 * Ending one that waits takes a turn of the loop, so that whoever asks for it may be in the midst of its allocation.
 * The loop's thread.
 */
#ifndef FLYT_NODE_REPLACE_H
#define FLYT_NODE_REPLACE_H

#include "control/node/ops/target.h"
#include "rpc/base/error.h"

enum {
    FLYT_NODE_REPLACE_S = 10,           /* a session waits so long for its client (node->ops->replace_ms) */
    FLYT_NODE_REPLACE_ENDING_MS = 2000, /* a client may know so much earlier than we that its server's process ends */
};

/* Whether its session may wait for its client when the server's process ends now. One that ends for another program's
 * fault may where it was spared (fault.h). */
bool flyt_node_replace_may_wait(const struct flyt_node_server *server);
/* Its link has ended, by which its process may have begun to: that is where what a replacement takes begins. Where its
 * session may go on a warm server is given its memory. */
void flyt_node_replace_foresee(struct flyt_node_server *server);
/* Its session waits from now on, and is not the server's any more, whose process has ended, and `how`. */
void flyt_node_replace_wait(struct flyt_node_server *server, const char *how);

/* One that was loaded into its target waits for its client, to be given to that. */
void flyt_node_replace_expect(struct flyt_node_session *session);

/* Where one goes on that waits is decided only now: its client has as long as if it had begun to wait now. */
void flyt_node_replace_renew(struct flyt_node_session *session);

/* One that waits and is not about to end; NULL: none. */
struct flyt_node_session *flyt_node_replace_find(const struct flyt_node *node, uint64_t session_id);
/* By its token. 0, with the session, which waits, or whose server's process may be about to end: then its client is
 * held (pool.h) until that has; -ENOENT: there is none of this allocation; -EBUSY: the client is to try again; with one
 * sentence in *err. */
int flyt_node_replace_find_token(struct flyt_node *node, const struct flyt_node_allocation *allocation,
                                 const void *token, size_t bytes, struct flyt_node_session **ret_session,
                                 struct flyt_error *err);
/* Whether a client that is held may still get this session. 0: it waits, or its server's process may be about to end;
 * -EBUSY: it is not decided where it goes on, the client is to try again; -ENOENT; with one sentence in *err. */
int flyt_node_replace_ask(struct flyt_node *node, uint64_t session_id, struct flyt_error *err);
/* How many wait that have a device on this GPU, and will need a client slot there: but for those whose server was
 * prepared there, and has one. */
unsigned flyt_node_replace_count(const struct flyt_node *node, const struct flyt_node_gpu *gpu);

/* The server for its client, which has come: the one that was prepared for it, that has been given its memory ahead, or
 * a warm one. NULL: there is none, it has a client already, or it is not decided where the session goes on. */
struct flyt_node_server *flyt_node_replace_server(const struct flyt_node_session *session);
/* Gives the session to that server, with its client's connection. 0: fd is taken over, and is answered or refused in
 * every case; -ENOMEM: nothing has changed. */
int flyt_node_replace_give(struct flyt_node_server *server, struct flyt_node_session *session,
                           const struct flyt_node_ticket *ticket, int fd, const void *record, size_t bytes);
/* The server is to be forgotten: what it was given is not its own any more. */
void flyt_node_replace_forget(struct flyt_node_server *server);

/* Its server has sent USE: where it says so for the first time, the session goes on, and the log has what that took. */
void flyt_node_replace_use_came(struct flyt_node_server *server);

/* Ends one that waits, or all of an allocation, soon. */
void flyt_node_replace_end(struct flyt_node_session *session, const char *reason);
void flyt_node_replace_end_all(struct flyt_node *node, const struct flyt_node_allocation *allocation,
                               const char *reason);
/* At the node manager's end: all of them end now. */
void flyt_node_replace_fini(struct flyt_node *node);

#endif
