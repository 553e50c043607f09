/*
 * What every message to a server goes through, and how a server is ended.
 */
#ifndef FLYT_NODE_SERVER_CONTROL_H
#define FLYT_NODE_SERVER_CONTROL_H

#include "control/node/model/server.h"
/* Keeps the counts of servers in each state. */
void flyt_node_server_set_state(struct flyt_node_server *server, enum flyt_node_server_state state);
/* Closes the socket: a server without a session ends then. */
void flyt_node_server_hang_up(struct flyt_node_server *server);
/* Its process is ended without a word to its program, by MPS first where that shares the GPU. */
void flyt_node_server_kill(struct flyt_node_server *server);
/* Nothing of it is awaited any more. */
void flyt_node_retransmit_fini(struct flyt_node_server *server);
/*
 * Ends it: is told so (with a sentence for its program, may be NULL), has kill_grace, then is taken from MPS and
 * killed. Comes back at once; the server goes when its process has.
 */
void flyt_node_server_end(struct flyt_node_server *server, const char *reason);
/* The same at once, of a session's server, for what the GPU's account shows of it: is counted, and told as `event`. */
void flyt_node_server_end_watched(struct flyt_node_server *server, enum flyt_node_watched watched, const char *event,
                                  const char *reason);
/* Ends a server that does not listen, with an event that says why. */
void flyt_node_retransmit_give_up(struct flyt_node_server *server, const char *reason);
/*
 * The way of every message to it: behind all that it was sent before. The descriptors stay the caller's. 0; or a
 * negative errno, which is logged unless its link has ended (-EPIPE). One that leaves too much unread is ended.
 */
int flyt_node_server_send(struct flyt_node_server *server, const struct flyt_manager_link_message *message,
                          const int *fds, unsigned fd_count);
/* Whether it has, or may have, a context on the GPU: it was started there, or its VM has a device there. */
bool flyt_node_server_uses(const struct flyt_node_server *server, const struct flyt_node_gpu *gpu);
/* Whether its session may wait for its client, and go on at another server, where its process ends. */
bool flyt_node_server_may_wait(const struct flyt_node_server *server);
/* It has ended its session by itself and is given a moment to end; with has_work it is ended at once, by MPS first. */
void flyt_node_server_returned(struct flyt_node_server *server, bool has_work);
/* Ends it, and what else has its session: for who ends the session, and not this server alone. */
void flyt_node_server_end_anywhere(struct flyt_node_server *server, const char *reason);

#endif
