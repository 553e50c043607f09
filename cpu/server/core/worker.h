/*
 * Threads for what takes long and needs no order with the session's other work. A worker of one thread
 * (session->worker: loading of modules, hashing of images) runs its tasks one after the other; one of several
 * (session->blocking: linking, whatever blocks for long) has a task wait only where all its threads are taken. A thread
 * is started when a task finds no idle one.
 */
#ifndef FLYT_SERVER_WORKER_H
#define FLYT_SERVER_WORKER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct flyt_session;

/* Owned by who submits it, at least until is_done. */
struct flyt_task {
    void (*run)(struct flyt_task *task); /* on a thread of the worker's */
    atomic_bool is_done;                 /* set (release) after run; the session is kicked then */
    struct flyt_task *next;
};

enum { FLYT_WORKER_THREADS_MAX = 8 };

struct flyt_worker {
    struct flyt_session *session;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    pthread_t threads[FLYT_WORKER_THREADS_MAX];
    unsigned thread_max, thread_count, idle_count;
    bool is_stopping;
    struct flyt_task *first, *last;
    unsigned waiting_count; /* tasks that no thread has taken, */
    unsigned running_count; /* and those that one has */
};

/* thread_max: from 1 to FLYT_WORKER_THREADS_MAX. */
void flyt_worker_init(struct flyt_worker *worker, struct flyt_session *session, unsigned thread_max);
/* Waits for the tasks that run; later ones are dropped. */
void flyt_worker_fini(struct flyt_worker *worker);
/* Whether a task waits or runs. */
bool flyt_worker_has_tasks(struct flyt_worker *worker);
/* 0 or -EAGAIN (there is no thread, and none could be made). */
int flyt_worker_submit(struct flyt_worker *worker, struct flyt_task *task);

#endif
