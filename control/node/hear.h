/*
 * What servers say, between server.c and hear.c only.
 */
#ifndef FLYT_NODE_HEAR_H
#define FLYT_NODE_HEAR_H

#include "control/node/server.h"

/* Watches the process and its socket. Negative errno: no memory. */
int flyt_node_server_watch(struct flyt_node_server *server);
/* Closes the socket: a server without a session ends then. */
void flyt_node_server_hang_up(struct flyt_node_server *server);
/* Handles all messages that are there. */
void flyt_node_server_hear_all(struct flyt_node_server *server);
/* Keeps the counts of servers in each state. */
void flyt_node_server_set_state(struct flyt_node_server *server, enum flyt_node_server_state state);
/* It has ended its session by itself and is given a moment to end; with has_work it is ended at once, by MPS first. */
void flyt_node_server_returned(struct flyt_node_server *server, bool has_work);
/* The process has ended. */
int flyt_node_server_on_exit(sd_event_source *source, int fd, uint32_t events, void *user);

#endif
