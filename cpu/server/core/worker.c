#include "cpu/server/core/worker.h"

#include <errno.h>

#include "cpu/server/core/session.h"

static void *work(void *user)
{
    struct flyt_worker *worker = user;
    pthread_mutex_lock(&worker->mutex);
    for (;;) {
        worker->idle_count++;
        while (!worker->first && !worker->is_stopping)
            pthread_cond_wait(&worker->wake, &worker->mutex);
        worker->idle_count--;
        if (worker->is_stopping)
            break;
        struct flyt_task *task = worker->first;
        worker->first = task->next;
        worker->waiting_count--;
        worker->running_count++;
        pthread_mutex_unlock(&worker->mutex);
        task->run(task);
        /* Pairs with the acquire of who looks at is_done; the task may be gone right after. */
        atomic_store_explicit(&task->is_done, true, memory_order_release);
        flyt_session_kick(worker->session);
        pthread_mutex_lock(&worker->mutex);
        worker->running_count--;
    }
    pthread_mutex_unlock(&worker->mutex);
    return NULL;
}

void flyt_worker_init(struct flyt_worker *worker, struct flyt_session *session, unsigned thread_max)
{
    *worker = (struct flyt_worker){.session = session, .thread_max = thread_max};
    pthread_mutex_init(&worker->mutex, NULL);
    pthread_cond_init(&worker->wake, NULL);
}

void flyt_worker_fini(struct flyt_worker *worker)
{
    pthread_mutex_lock(&worker->mutex);
    worker->is_stopping = true;
    pthread_cond_broadcast(&worker->wake);
    pthread_mutex_unlock(&worker->mutex);
    for (unsigned i = 0; i < worker->thread_count; i++)
        pthread_join(worker->threads[i], NULL);
    pthread_cond_destroy(&worker->wake);
    pthread_mutex_destroy(&worker->mutex);
}

bool flyt_worker_has_tasks(struct flyt_worker *worker)
{
    pthread_mutex_lock(&worker->mutex);
    bool has_tasks = worker->waiting_count || worker->running_count;
    pthread_mutex_unlock(&worker->mutex);
    return has_tasks;
}

/* Starts a thread for one more task, unless one is idle or there are as many as there may be. Whether there is one
 * that will take it. */
static bool has_thread_locked(struct flyt_worker *worker)
{
    bool is_short = worker->waiting_count >= worker->idle_count && worker->thread_count < worker->thread_max;
    if (is_short && pthread_create(&worker->threads[worker->thread_count], NULL, work, worker) == 0)
        worker->thread_count++;
    return worker->thread_count;
}

int flyt_worker_submit(struct flyt_worker *worker, struct flyt_task *task)
{
    pthread_mutex_lock(&worker->mutex);
    if (!has_thread_locked(worker)) {
        pthread_mutex_unlock(&worker->mutex);
        return -EAGAIN;
    }
    task->next = NULL;
    atomic_init(&task->is_done, false);
    if (worker->first)
        worker->last->next = task;
    else
        worker->first = task;
    worker->last = task;
    worker->waiting_count++;
    pthread_cond_signal(&worker->wake);
    pthread_mutex_unlock(&worker->mutex);
    return 0;
}
