#include "cpu/server/core/executor.h"

#include <errno.h>
#include <stdlib.h>

void flyt_executors_init(struct flyt_executors *executors, struct flyt_session *session)
{
    *executors = (struct flyt_executors){.session = session};
}

void flyt_executors_fini(struct flyt_executors *executors)
{
    for (unsigned i = 0; executors->threads && i < FLYT_EXECUTORS_MAX; i++)
        if (executors->threads[i].is_made)
            flyt_worker_fini(&executors->threads[i].worker);
    free(executors->threads);
    executors->threads = NULL;
}

/* The thread that has tasks of the owner's, else one that has none, else a new one; NULL: there is none. */
static struct flyt_executor_thread *choose(struct flyt_executors *executors, uint64_t owner)
{
    struct flyt_executor_thread *idle = NULL;
    for (unsigned i = 0; i < FLYT_EXECUTORS_MAX; i++) {
        struct flyt_executor_thread *one = &executors->threads[i];
        bool is_busy = one->is_made && flyt_worker_has_tasks(&one->worker);
        if (is_busy && one->owner == owner)
            return one;
        if (!is_busy && !idle)
            idle = one;
        if (!one->is_made)
            break;
    }
    return idle;
}

int flyt_executors_submit(struct flyt_executors *executors, uint64_t owner, struct flyt_task *task)
{
    if (!executors->threads)
        executors->threads = calloc(FLYT_EXECUTORS_MAX, sizeof *executors->threads);
    if (!executors->threads)
        return -ENOMEM;
    struct flyt_executor_thread *one = choose(executors, owner);
    if (!one)
        return -EAGAIN;
    if (!one->is_made)
        flyt_worker_init(&one->worker, executors->session, 1);
    one->is_made = true;
    one->owner = owner;
    return flyt_worker_submit(&one->worker, task);
}
