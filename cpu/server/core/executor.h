/*
 * Threads for calls that block on what other calls do: two ranks of one program that wait for each other, from two of
 * its threads. What one client thread has given is done one after the other, in its order; what different ones have
 * given, at the same time. A thread that has nothing to do takes whatever comes next, so there are as many as client
 * threads that block at the same time.
 */
#ifndef FLYT_SERVER_EXECUTOR_H
#define FLYT_SERVER_EXECUTOR_H

#include <stdint.h>

#include "cpu/server/core/worker.h"

/* Client threads that may block at the same time. */
enum { FLYT_EXECUTORS_MAX = 256 };

struct flyt_executor_thread {
    struct flyt_worker worker; /* of one thread */
    uint64_t owner;            /* the client thread whose tasks it has had last */
    bool is_made;
};

struct flyt_executors {
    struct flyt_session *session;
    struct flyt_executor_thread *threads; /* made when first needed */
};

void flyt_executors_init(struct flyt_executors *executors, struct flyt_session *session);
/* Waits for the tasks that run; later ones are dropped. */
void flyt_executors_fini(struct flyt_executors *executors);
/* For the submission thread. 0; -EAGAIN: no thread could be made, or there are too many; -ENOMEM. */
int flyt_executors_submit(struct flyt_executors *executors, uint64_t owner, struct flyt_task *task);

#endif
