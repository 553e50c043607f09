/*
 * What servers say, between server.c, link_dispatch.c and replace.c only.
 */
#ifndef FLYT_NODE_LINK_DISPATCH_H
#define FLYT_NODE_LINK_DISPATCH_H

#include "control/node/link/server.h"

/* Its process is there; or, with a negative errno, there will be none, and the server goes. pid_fd is taken over. */
void flyt_node_server_started(struct flyt_node_server *server, pid_t pid, int pid_fd, int status);
/* Watches the process and, unless it has hung up, its socket. Negative errno: no memory. */
int flyt_node_server_watch(struct flyt_node_server *server);
/* Handles all messages that are there. */
void flyt_node_server_read_all(struct flyt_node_server *server);
/* It goes on with this socket, which is taken over, instead of its own; what was queued for that is lost. Negative
 * errno: no memory to watch it. */
int flyt_node_server_change_link(struct flyt_node_server *server, int fd);
/* Its session's memory and charge are let go of, and it is told that it has ended, and why: as end_reason says, or else
 * `how`. `server` had it, or NULL: it was without one. The session is freed, and the allocation may be. */
void flyt_node_server_end_session(struct flyt_node_session *session, struct flyt_node_server *server, const char *how);
/*
 * Fills SESSION for the server, but for its data: a new session of an allocation that is as `as` says (from: NULL), or
 * one that goes on. Its server's id is a new one, but that of a server which has been told it already. 0 or a negative
 * errno. Holds the channel's key.
 */
int flyt_node_server_describe_session(const struct flyt_node_server *server, const flyt_allocation *as,
                                      const struct flyt_node_ticket *ticket, const struct flyt_node_session *from,
                                      struct flyt_manager_link_message *message);
/* Its descriptors (FLYT_MANAGER_LINK_DESCRIPTORS_MAX in fds), of which none is the caller's to close; marks the slots
 * that have one. 0 or a negative errno. */
int flyt_node_server_session_fds(struct flyt_node *node, const struct flyt_node_allocation *allocation, int client_fd,
                                 struct flyt_manager_link_session *session, int *fds, unsigned *ret_fd_count);
/* Right before SESSION, to one that cannot open the folder of the VM's module images. 0 or a negative errno. */
int flyt_node_server_send_folder(struct flyt_node_server *server, const struct flyt_node_allocation *allocation);
/* The same, and sends the memory that the VM shares with this machine, where there is such; with the claims of the
 * session as `from` has it (NULL: it begins). */
int flyt_node_server_equip(struct flyt_node_server *server, struct flyt_node_allocation *allocation,
                           const struct flyt_node_session *from);
/* That memory, with the session's claims; fd is taken over. */
void flyt_node_server_take_vm_memory(struct flyt_node_server *server, int fd);
/* It serves that from now on. Its ticket and times are the caller's to set. */
void flyt_node_server_note_session(struct flyt_node_server *server, struct flyt_node_allocation *allocation,
                                   const struct flyt_manager_link_session *session);
/* The process has ended. */
int flyt_node_server_on_exit(sd_event_source *source, int fd, uint32_t events, void *user);

#endif
