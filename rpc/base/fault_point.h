/*
 * Points at which a test lets a process fail. FLYT_FAULT=NAME:ACTION[:N][,NAME:ACTION[:N]]… in its environment says
 * where: ACTION is "error" (the step fails as if it had failed by itself), "kill" (the process ends by SIGKILL there)
 * or "hang" (the thread goes no further, for ever); with N, from 1, only the N-th time that the point is passed, else
 * each time. It is for tests: nobody else sets it. Processes hand it on to those that they start as they do with the
 * rest of their environment. A process that has gained privileges by its start (secure_getenv(3)) does not look at it.
 *
 * The variable is read once, when the first point is passed. Where it is not set a point costs one load. Any thread.
 */
#ifndef FLYT_BASE_FAULT_POINT_H
#define FLYT_BASE_FAULT_POINT_H

#define FLYT_FAULT_VARIABLE "FLYT_FAULT"

enum {
    FLYT_FAULT_POINTS_MAX = 16,     /* in one variable */
    FLYT_FAULT_NAME_BYTES_MAX = 47, /* of a point */
};

enum flyt_fault_action {
    FLYT_FAULT_NONE,
    FLYT_FAULT_ERROR,
    FLYT_FAULT_KILL, /* never returned: as HANG */
    FLYT_FAULT_HANG,
};

/* The point with this name is passed: FLYT_FAULT_ERROR where its step is to fail, else FLYT_FAULT_NONE. */
enum flyt_fault_action flyt_fault_point(const char *name);

/* For tests within one process: from now on as if the variable had been `text` (NULL: not set), with all counts at
 * nothing; no other thread is at a point meanwhile. 0; -EINVAL: that is no such text, and nothing is to fail. */
int flyt_fault_set(const char *text);

#endif
