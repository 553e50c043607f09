#include "control/node/ops/image_scan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "control/base/worker.h"
#include "rpc/base/fault_point.h"

struct flyt_node_image_scan {
    struct flyt_worker *worker;
    struct flyt_tally *left;
    flyt_node_image_scan_fn done;
    void *user;
};

/* The thread's, and after it the loop's: it outlives a looking that is freed meanwhile. */
struct job {
    struct flyt_node_image_scan *scan; /* not the thread's */
    char folder[FLYT_NAME_BYTES_MAX + 1];
    unsigned count;
    struct flyt_node_looked looked[];
};

/* On the thread. */
static void look(void *user)
{
    char path[FLYT_NAME_BYTES_MAX + FLYT_NODE_CHECKPOINTED_NAME_BYTES + 2];
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
        job->scan->done(job->scan->user, job->looked, job->count); /* which may free the looking */
    free(job);
}

int flyt_node_image_scan_new(sd_event *event, const char *folder, const struct flyt_node_looked *looked, unsigned count,
                             struct flyt_tally *left, flyt_node_image_scan_fn done, void *user,
                             struct flyt_node_image_scan **ret_looking)
{
    struct flyt_node_image_scan *scan = calloc(1, sizeof *scan);
    struct job *job = calloc(1, sizeof *job + count * sizeof job->looked[0]);
    int status = !scan || !job ? -ENOMEM : strlen(folder) > FLYT_NAME_BYTES_MAX ? -ENAMETOOLONG : 0;

    if (!status) {
        *scan = (struct flyt_node_image_scan){.left = flyt_tally_ref(left), .done = done, .user = user};
        job->scan = scan;
        strcpy(job->folder, folder);
        job->count = count;
        memcpy(job->looked, looked, count * sizeof *looked);
        status = flyt_worker_new(event, "flyt-looking", 1, &scan->worker);
    }
    if (!status)
        status = flyt_worker_do(scan->worker, look, on_looked, job);
    if (!status) {
        *ret_looking = scan;
        return 0;
    }
    free(job);
    flyt_node_image_scan_free(scan);
    return status;
}

struct flyt_node_image_scan *flyt_node_image_scan_free(struct flyt_node_image_scan *scan)
{
    if (scan) {
        flyt_worker_leave(scan->worker, scan->left);
        flyt_tally_unref(scan->left);
    }
    free(scan);
    return NULL;
}
