/*
 * Server processes are started by a thread: until the new process has executed its program, which takes processor time
 * and the disk, who has started it stands still (vfork(2)). The node manager's memory is not copied: with fork(2) each
 * of its pages would be, when it is written to next. The loop's thread.
 */
#ifndef FLYT_NODE_SPAWN_H
#define FLYT_NODE_SPAWN_H

#include <sys/types.h>

struct flyt_node;
struct flyt_node_server;

/* How a process ends that has not become a server. */
enum { FLYT_NODE_CANNOT_BECOME = 126, FLYT_NODE_CANNOT_RUN = 127 };

/* Its process is there; or, with a negative errno, there will be none. pid_fd is taken over. */
typedef void flyt_node_spawned_fn(struct flyt_node_server *server, pid_t pid, int pid_fd, int status);

/*
 * Begins, for a server without a process: it has a link and a user from now on. `spawned` is told what has come of it,
 * later. 0; -EUSERS: processes have all users of server_uids; -EINPROGRESS: a thread looks whether they
 * have; or another negative errno.
 */
int flyt_node_spawn(struct flyt_node_server *server, flyt_node_spawned_fn *spawned);
/* Nobody is told any more, and the process ends as soon as there is one. */
void flyt_node_spawn_forget(struct flyt_node_server *server);
/* A child that has ended: the thread lets the kernel forget it, which takes as long as others read its folder in /proc.
 * *pid_fd is taken over, and -1 afterwards. */
void flyt_node_spawn_reap(struct flyt_node *node, int *pid_fd);
/* At the node manager's end, before its servers are ended: those that are being started have processes then. One that
 * hangs is waited for until FLYT_NODE_STOP_MS, and left. */
void flyt_node_spawns_fini(struct flyt_node *node);

#endif
