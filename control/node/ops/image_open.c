#include "control/node/ops/image_open.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "control/base/worker.h"
#include "control/node/ops/image_parent.h"
#include "rpc/base/close_aside.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/fault_point.h"

struct flyt_node_image_open {
    struct flyt_worker *worker;
    struct flyt_tally *left;
    flyt_node_image_open_fn done;
    void *user;
};

/* The thread's, and after it the loop's: it outlives an opening that is freed meanwhile. */
struct job {
    struct flyt_node_image_open *image_open; /* not the thread's */
    struct flyt_tally *left;
    char *folder;
    bool is_full;
    unsigned count;
    struct flyt_node_opened opened[];
};

/* The loop may be whoever does it. */
static void free_job(struct job *job)
{
    for (unsigned i = 0; i < job->count; i++) {
        struct flyt_node_opened *opened = &job->opened[i];
        flyt_close_aside((int[]){opened->earlier_fd, opened->write_fd, opened->read_fd}, 3, job->left);
        if (opened->has_file)
            flyt_checkpoint_file_abandon_aside(&opened->file, job->left);
    }
    flyt_tally_unref(job->left);
    free(job->folder);
    free(job);
}

/* A new file, and its descriptions for servers: the one that writes it, one that tries it. */
static void open_file(const char *folder, struct flyt_node_opened *opened)
{
    if (flyt_checkpoint_file_open(folder, &opened->file, &opened->err))
        return;
    int write_fd = flyt_checkpoint_file_share(&opened->file);
    int read_fd = write_fd < 0 ? write_fd : flyt_checkpoint_file_show(&opened->file);
    if (read_fd < 0) {
        flyt_error_set(&opened->err, read_fd, "an image in %.200s cannot be opened for its server: %s", folder,
                       strerror(-read_fd));
        if (write_fd >= 0)
            flyt_close(write_fd);
        flyt_checkpoint_file_abandon(&opened->file);
        return;
    }
    opened->write_fd = write_fd;
    opened->read_fd = read_fd;
    opened->has_file = true;
}

/* On the thread. */
static void open_all(void *user)
{
    struct job *job = user;

    for (unsigned i = 0; i < job->count; i++) {
        struct flyt_node_opened *opened = &job->opened[i];
        if (flyt_fault_point("node.checkpoint.open") == FLYT_FAULT_ERROR) {
            flyt_error_set(&opened->err, -EIO, "a test lets it fail at node.checkpoint.open");
            continue;
        }
        if (!job->is_full)
            opened->earlier_fd = flyt_node_image_parent_open(job->folder, opened->session_id);
        open_file(job->folder, opened);
    }
}

static void on_opened(void *user, int is_cancelled)
{
    struct job *job = user;

    if (!is_cancelled)
        job->image_open->done(job->image_open->user, job->opened, job->count);
    free_job(job);
}

int flyt_node_image_open_new(sd_event *event, const char *folder, bool is_full, const uint64_t *session_ids,
                             unsigned count, struct flyt_tally *left, flyt_node_image_open_fn done, void *user,
                             struct flyt_node_image_open **ret_opening)
{
    struct flyt_node_image_open *image_open = calloc(1, sizeof *image_open);
    struct job *job = calloc(1, sizeof *job + count * sizeof job->opened[0]);
    int status = image_open && job && (job->folder = strdup(folder)) ? 0 : -ENOMEM;

    if (!status) {
        *image_open = (struct flyt_node_image_open){.left = flyt_tally_ref(left), .done = done, .user = user};
        job->image_open = image_open;
        job->left = flyt_tally_ref(left);
        job->is_full = is_full;
        job->count = count;
        for (unsigned i = 0; i < count; i++)
            job->opened[i] = (struct flyt_node_opened){
                .session_id = session_ids[i], .earlier_fd = -1, .write_fd = -1, .read_fd = -1};
        status = flyt_worker_new(event, "flyt-opening", 1, &image_open->worker);
    }
    if (!status)
        status = flyt_worker_do(image_open->worker, open_all, on_opened, job);
    if (!status) {
        *ret_opening = image_open;
        return 0;
    }
    if (job)
        free_job(job);
    flyt_node_image_open_free(image_open);
    return status;
}

struct flyt_node_image_open *flyt_node_image_open_free(struct flyt_node_image_open *image_open)
{
    if (image_open) {
        flyt_worker_leave(image_open->worker, image_open->left);
        flyt_tally_unref(image_open->left);
    }
    free(image_open);
    return NULL;
}
