/*
 * GPU core dumps of the session, which the driver makes in a file of the VM's (coredump_folder.h). Whatever the program
 * has asked for: the server's process is never aborted or dumped itself, no pipe triggers anything, and the file is
 * none that the program names. The submission thread, but for what says otherwise.
 *
 * NVIDIA's driver (580) writes a dump for a context that began when dumps were enabled for all of the process; what it
 * writes and where is what holds for the process when the fault comes. A warm server's contexts began before there was
 * a program. So the first time that a program asks, all contexts of the process are made again; it can ask as long as
 * nothing of its own lies in them. Once they leave dumps they always do: one that no device wants any more is removed.
 *
 * The driver tells of a fault when its dump is there. Until then it says that all work is done, to who waits and to who
 * asks. So the session looks for the fault when a dump has begun, and what ends with the session first sees that none
 * comes.
 */
#ifndef FLYT_SERVER_COREDUMP_H
#define FLYT_SERVER_COREDUMP_H

#include <stdbool.h>
#include <stdint.h>

struct flyt_session;

/* What flyt-server's listener leaves its server processes in the environment, for direct mode. */
#define FLYT_COREDUMPS       "FLYT_COREDUMPS"       /* the folder */
#define FLYT_COREDUMPS_BYTES "FLYT_COREDUMPS_BYTES" /* that all in it may have together */

/* Before the session is served: its folder, and how many bytes all in it may have. The descriptor is taken over. */
void flyt_coredump_grant(struct flyt_session *session, int folder_fd, uint64_t bytes_max);
/* The same in direct mode, of what the environment says; nothing where it names no folder. 0 or a negative errno. */
int flyt_coredump_grant_listener(struct flyt_session *session);

/* The session goes on here, and its contexts elsewhere leave dumps: those that it gets do, too. Before anything is made
 * in them. Nothing happens where they do already; without a folder, where something lies in them, or where the driver
 * refuses, they do not. */
void flyt_coredump_go_on(struct flyt_session *session);

/* struct flyt_part. */
int flyt_coredump_init(struct flyt_session *session);
void flyt_coredump_fini(struct flyt_session *session);
void flyt_coredump_fatal(struct flyt_session *session);
/* Looks for the fault whose dump has begun. Whether it has still to be told. */
bool flyt_coredump_advance(struct flyt_session *session);

/* Whether work that has been said to be done for so long may have faulted. */
bool flyt_coredump_may_come(const struct flyt_session *session, uint64_t quiet_ns);
/* The process is about to end: a dump that may come, or is being written, is waited for, some seconds at most. */
void flyt_coredump_settle(struct flyt_session *session);

#endif
