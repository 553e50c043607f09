/*
 * A server process: prepares a session, waits for the listener to hand over a client, serves it, and ends.
 */
#ifndef FLYT_SERVER_CHILD_H
#define FLYT_SERVER_CHILD_H

#include <stdbool.h>

/* Where a server process finds its end of the control socket. */
enum { FLYT_CHILD_CONTROL_FD = 3 };

/* Runs on the process's main thread and returns its exit status. Takes over control_fd. */
int flyt_child_run(int control_fd, bool is_soft, const char *image_folder);

#endif
