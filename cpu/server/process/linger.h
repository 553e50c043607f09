/*
 * The end of a server process that shares its GPU by MPS: a client of MPS that leaves while its kernels run takes its
 * memory from under them, and MPS then tears down everybody on that GPU (seen on an H200 with driver 580, 0.15 s after
 * an _exit as after a SIGKILL). So the process stays until the GPU has nothing of it any more, or until the node
 * manager, who is told (RETURN), has had MPS stop its work (terminate_client) and kills it.
 */
#ifndef FLYT_SERVER_LINGER_H
#define FLYT_SERVER_LINGER_H

#include <stdbool.h>

struct flyt_session;

enum {
    FLYT_LINGER_FIRST_MS = 50,   /* what ends so soon is nobody's business */
    FLYT_LINGER_MS = 30000,      /* where there is a node manager, which may be being restarted */
    FLYT_LINGER_ALONE_MS = 2000, /* where nobody will come */
};

/* Waits for the end of the work, limit_ms at most. Returns whether there is some still: then the process must not
 * leave. The submission thread, at the session's end. */
bool flyt_linger_wait(struct flyt_session *session, unsigned limit_ms);

#endif
