#include "control/node/looking.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "control/base/worker.h"
#include "rpc/base/fault_point.h"

struct flyt_node_looking {
    struct flyt_worker *worker;
    struct flyt_tally *left;
    flyt_node_looking_fn done;
    void *user;
};

/* The thread's, and after it the loop's: it outlives a looking that is freed meanwhile. */
struct job {
    struct flyt_node_looking *looking; /* not the thread's */
    char folder[FLYT_NAME_BYTES_MAX + 1];
    unsigned count;
    struct flyt_node_looked looked[];
};

/* On the thread. */
static void look(void *user)
{
    char path[FLYT_NAME_BYTES_MAX + FLYT_NODE_SUSPENDED_NAME_BYTES + 2];
    struct job *job = user;
    struct stat about;

    flyt_fault_point("node.restore.look");
    for (unsigned i = 0; i < job->count; i++) {
        snprintf(path, sizeof path, "%s/%s", job->folder, job->looked[i].image);
        job->looked[i].is_here = !fstatat(AT_FDCWD, path, &about, AT_SYMLINK_NOFOLLOW);
    }
}

static void on_looked(void *user, int is_cancelled)
{
    struct job *job = user;

    if (!is_cancelled)
        job->looking->done(job->looking->user, job->looked, job->count); /* which may free the looking */
    free(job);
}

int flyt_node_looking_new(sd_event *event, const char *folder, const struct flyt_node_looked *looked, unsigned count,
                          struct flyt_tally *left, flyt_node_looking_fn done, void *user,
                          struct flyt_node_looking **ret_looking)
{
    struct flyt_node_looking *looking = calloc(1, sizeof *looking);
    struct job *job = calloc(1, sizeof *job + count * sizeof job->looked[0]);
    int status = !looking || !job ? -ENOMEM : strlen(folder) > FLYT_NAME_BYTES_MAX ? -ENAMETOOLONG : 0;

    if (!status) {
        *looking = (struct flyt_node_looking){.left = flyt_tally_ref(left), .done = done, .user = user};
        job->looking = looking;
        strcpy(job->folder, folder);
        job->count = count;
        memcpy(job->looked, looked, count * sizeof *looked);
        status = flyt_worker_new(event, "flyt-looking", 1, &looking->worker);
    }
    if (!status)
        status = flyt_worker_do(looking->worker, look, on_looked, job);
    if (!status) {
        *ret_looking = looking;
        return 0;
    }
    free(job);
    flyt_node_looking_free(looking);
    return status;
}

struct flyt_node_looking *flyt_node_looking_free(struct flyt_node_looking *looking)
{
    if (looking) {
        flyt_worker_leave(looking->worker, looking->left);
        flyt_tally_unref(looking->left);
    }
    free(looking);
    return NULL;
}
