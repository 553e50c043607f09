/*
 * A thread for what takes long and needs no order with the session's other work: loading of modules, hashing of
 * images. Tasks run one after the other. The thread is started at the first task.
 */
#ifndef FLYT_SERVER_WORKER_H
#define FLYT_SERVER_WORKER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct flyt_session;

/* Owned by who submits it, at least until is_done. */
struct flyt_task {
    void (*run)(struct flyt_task *task); /* on the worker's thread */
    atomic_bool is_done;                 /* set (release) after run; the session is kicked then */
    struct flyt_task *next;
};

struct flyt_worker {
    struct flyt_session *session;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    pthread_t thread;
    bool is_started;
    bool is_stopping;
    struct flyt_task *first, *last;
};

void flyt_worker_init(struct flyt_worker *worker, struct flyt_session *session);
/* Waits for the task that runs; later ones are dropped. */
void flyt_worker_fini(struct flyt_worker *worker);
/* 0 or -EAGAIN (no thread could be made). */
int flyt_worker_submit(struct flyt_worker *worker, struct flyt_task *task);

#endif
