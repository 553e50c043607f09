#include "rpc/base/close_aside.h"

#include <assert.h>
#include <stdlib.h>

#include "rpc/base/descriptors.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/thread.h"

/* The thread's. */
struct job {
    struct flyt_tally *left;
    unsigned count;
    int fds[FLYT_CLOSE_ASIDE_MAX];
};

static void close_all(const struct job *job)
{
    for (unsigned i = 0; i < job->count; i++)
        flyt_close(job->fds[i]);
}

static void *run(void *user)
{
    struct job *job = user;

    flyt_fault_point("close.aside");
    close_all(job);
    flyt_tally_remove(job->left);
    free(job);
    return NULL;
}

void flyt_close_aside(int *fds, unsigned count, struct flyt_tally *left)
{
    struct job job = {.left = left}, *its;

    assert(count <= FLYT_CLOSE_ASIDE_MAX);
    for (unsigned i = 0; i < count; i++) {
        if (fds[i] >= 0)
            job.fds[job.count++] = fds[i];
        fds[i] = -1;
    }
    if (!job.count)
        return;
    its = malloc(sizeof *its);
    flyt_tally_add(left);
    if (its)
        *its = job;
    if (its && !flyt_thread_start("flyt-close", run, its))
        return;
    free(its);
    close_all(&job);
    flyt_tally_remove(left);
}
