#include "cpu/server/worker.h"

#include <errno.h>

#include "cpu/server/session.h"

static void *work(void *user)
{
    struct flyt_worker *worker = user;
    pthread_mutex_lock(&worker->mutex);
    for (;;) {
        while (!worker->first && !worker->is_stopping)
            pthread_cond_wait(&worker->wake, &worker->mutex);
        if (worker->is_stopping)
            break;
        struct flyt_task *task = worker->first;
        worker->first = task->next;
        pthread_mutex_unlock(&worker->mutex);
        task->run(task);
        /* Pairs with the acquire of who looks at is_done; the task may be gone right after. */
        atomic_store_explicit(&task->is_done, true, memory_order_release);
        flyt_session_kick(worker->session);
        pthread_mutex_lock(&worker->mutex);
    }
    pthread_mutex_unlock(&worker->mutex);
    return NULL;
}

void flyt_worker_init(struct flyt_worker *worker, struct flyt_session *session)
{
    *worker = (struct flyt_worker){.session = session};
    pthread_mutex_init(&worker->mutex, NULL);
    pthread_cond_init(&worker->wake, NULL);
}

void flyt_worker_fini(struct flyt_worker *worker)
{
    pthread_mutex_lock(&worker->mutex);
    worker->is_stopping = true;
    pthread_cond_signal(&worker->wake);
    pthread_mutex_unlock(&worker->mutex);
    if (worker->is_started)
        pthread_join(worker->thread, NULL);
    pthread_cond_destroy(&worker->wake);
    pthread_mutex_destroy(&worker->mutex);
}

int flyt_worker_submit(struct flyt_worker *worker, struct flyt_task *task)
{
    pthread_mutex_lock(&worker->mutex);
    if (!worker->is_started) {
        if (pthread_create(&worker->thread, NULL, work, worker) != 0) {
            pthread_mutex_unlock(&worker->mutex);
            return -EAGAIN;
        }
        worker->is_started = true;
    }
    task->next = NULL;
    atomic_init(&task->is_done, false);
    if (worker->first)
        worker->last->next = task;
    else
        worker->first = task;
    worker->last = task;
    pthread_cond_signal(&worker->wake);
    pthread_mutex_unlock(&worker->mutex);
    return 0;
}
