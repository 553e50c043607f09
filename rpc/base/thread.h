/*
 * Threads that nobody joins.
 */
#ifndef FLYT_BASE_THREAD_H
#define FLYT_BASE_THREAD_H

/* Starts a detached thread that blocks every signal that others send, so that handlers are for the program's own
 * threads; what it does itself may need one (SIGBUS). 0 or a negative errno. `name` has at most 15 characters. */
int flyt_thread_start(const char *name, void *(*run)(void *), void *user);

#endif
