/*
 * What is done with a server process (model/server.h).
 */
#ifndef FLYT_NODE_SERVER_H
#define FLYT_NODE_SERVER_H

#include "control/node/link/server_control.h"
#include "control/node/link/server_orders.h"
#include "control/node/link/unanswered.h"
#include "control/node/model/server.h"

/* Starts one on a GPU, whose process is there a little later. 0; -EUSERS: processes have all users of server_uids;
 * -EINPROGRESS: that is looked at, and it is tried again then; or
 * another negative errno, which is logged. */
int flyt_node_server_start(struct flyt_node *node, struct flyt_node_gpu *gpu);
/* At the node manager's end: kills a server that has no session, and waits for nothing. A session's server is left
 * alone. */
void flyt_node_server_kill_warm(struct flyt_node_server *server);
/* The same, waits for its end until node->stop_ms, and forgets it. */
void flyt_node_server_free(struct flyt_node_server *server);

/* Hands a program's connection to a warm server. 0: fd and record belong to the server (fd is closed here); or a
 * negative errno: nothing has changed but that the server is of no use and is ended. */
int flyt_node_server_serve(struct flyt_node_server *server, struct flyt_node_allocation *allocation,
                           const struct flyt_node_ticket *ticket, int fd, const void *record, size_t bytes);
/* A further data stream of its session. 0 (fd is closed here) or a negative errno. */
int flyt_node_server_add_stream(struct flyt_node_server *server, int fd, const unsigned char *channel_key,
                                const void *record, size_t bytes);
/* As an operator orders it, of a session's server: it is on the disk first, and so holds over a restart of the node
 * manager. `reason` outlives the server. 0: done is told, once, 0 or a negative errno: it could not be written, and the
 * session goes on. Else -ENOMEM. */
int flyt_node_server_end_for_good(struct flyt_node_server *server, const char *reason,
                                  void (*done)(void *user, int status), void *user);

/* Whether its link or its process has ended. */
bool flyt_node_server_is_dying(const struct flyt_node_server *server);
/* How many sessions of the allocation are known to end, or to have ended, and will leave their places soon. */
unsigned flyt_node_servers_ending(const struct flyt_node *node, const struct flyt_node_allocation *allocation);
/* How many processes have: each is one of MPS's clients until it has ended. */
unsigned flyt_node_servers_on(const struct flyt_node *node, const struct flyt_node_gpu *gpu);
/* By a session's id or token; NULL: none. By its id, of two the one that the session goes on at. */
struct flyt_node_server *flyt_node_server_find(const struct flyt_node *node, uint64_t session_id);
struct flyt_node_server *flyt_node_server_find_token(const struct flyt_node *node, const void *token, size_t bytes);

/* What a server that comes back has to know: HMAC of the node's key, of what it says it is, and of its user where that
 * is one of its own. */
void flyt_node_server_secret(const struct flyt_node *node, uid_t uid, uint64_t server_id, uint64_t session_id,
                             uint64_t allocation_id, unsigned char *ret_secret);
/* Opens node->link_path, where servers come back. One node manager alone can have it: nothing of STATE_DIR is read or
 * written before. 0; -EADDRINUSE: another one runs; or another negative errno. */
int flyt_node_reattach_open(struct flyt_node *node);
/* Takes servers that come back, those that have knocked since it was opened first. 0 or a negative errno. */
int flyt_node_reattach_listen(struct flyt_node *node);
/* Who has come and has not said who it is goes. */
void flyt_node_reattach_fini(struct flyt_node *node);
/* Makes a server of one that came back, whose identity was checked; takes over pid_fd and link_fd in every case. NULL:
 * no memory. */
struct flyt_node_server *flyt_node_server_adopt(struct flyt_node *node, struct flyt_node_gpu *gpu, pid_t pid, uid_t uid,
                                                int pid_fd, int link_fd);

#endif
