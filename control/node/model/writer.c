#include "control/node/model/writer.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "control/base/worker.h"
#include "control/node/model/allocation.h"
#include "control/node/model/node.h"
#include "rpc/base/log.h"

struct list {
    struct flyt_node_commit *first, **last;
};

/* The thread's while the writer is busy, else the loop's. */
struct job {
    struct flyt_node_writer *writer;
    const char *folder;
    char *text;
    uint64_t number, epoch;
    bool is_at_once; /* nobody waits for the disk */
    int status;
    struct flyt_error err;
};

/* A state that is to be, written ahead. */
struct ahead {
    struct ahead *next;
    struct flyt_node_writer *writer;
    struct flyt_node_commit *commit; /* NULL: nobody waits (any more) */
    char *text;                      /* the thread's */
};

struct flyt_node_writer {
    struct flyt_node *node;
    struct flyt_worker *worker;
    sd_event_source *begin, *again;
    struct list coming, under_way; /* who waits for the next write, and for the one under way */
    bool is_due;                   /* the state has changed since it was last looked at for writing */
    bool is_busy;                  /* the thread has the job */
    struct job job;
    struct ahead *aheads;    /* the thread has them */
    uint64_t number;         /* states that were looked at */
    pthread_mutex_t mutex;   /* also of what the state knows of its file: node->state.ahead, is_sync_due */
    uint64_t written_number; /* under the mutex: of the latest that is in the file */
};

enum { JOBS_MAX = 64 };

/* ---- who waits ---- */

static void list_init(struct list *list)
{
    *list = (struct list){.last = &list->first};
}

static struct flyt_node_commit *list_take(struct list *list)
{
    struct flyt_node_commit *commit = list->first;

    if (!commit)
        return NULL;
    list->first = commit->next;
    if (!list->first)
        list->last = &list->first;
    commit->next = NULL;
    commit->is_waiting = false;
    return commit;
}

static void list_remove(struct list *list, struct flyt_node_commit *commit)
{
    struct flyt_node_commit **link = &list->first;

    while (*link && *link != commit)
        link = &(*link)->next;
    if (!*link)
        return;
    *link = commit->next;
    if (list->last == &commit->next)
        list->last = link;
}

static void list_tell(struct list *list, int status)
{
    struct flyt_node_commit *commit;

    while ((commit = list_take(list)))
        commit->done(commit->user, status);
}

static void want(struct flyt_node_writer *writer)
{
    writer->is_due = true;
    sd_event_source_set_enabled(writer->begin, SD_EVENT_ONESHOT);
}

void flyt_node_save_soon(struct flyt_node *node)
{
    if (node->writer)
        want(node->writer);
}

static void await(struct flyt_node_writer *writer, struct flyt_node_commit *commit)
{
    *writer->coming.last = commit;
    writer->coming.last = &commit->next;
    want(writer);
}

void flyt_node_commit(struct flyt_node *node, struct flyt_node_commit *commit, void (*done)(void *user, int status),
                      void *user)
{
    *commit = (struct flyt_node_commit){.done = done, .user = user, .is_waiting = true};
    await(node->writer, commit);
}

void flyt_node_commit_at_once(struct flyt_node *node, struct flyt_node_commit *commit,
                              void (*done)(void *user, int status), void *user)
{
    *commit = (struct flyt_node_commit){.done = done, .user = user, .is_waiting = true, .is_at_once = true};
    await(node->writer, commit);
}

void flyt_node_commit_forget(struct flyt_node *node, struct flyt_node_commit *commit)
{
    if (!commit->is_waiting)
        return;
    list_remove(&node->writer->coming, commit);
    list_remove(&node->writer->under_way, commit);
    for (struct ahead *ahead = node->writer->aheads; ahead; ahead = ahead->next)
        if (ahead->commit == commit)
            ahead->commit = NULL;
    commit->is_waiting = false;
}

/* ---- writing ---- */

/* The text of the state as it is to be; owned by the caller. NULL: no memory. */
static char *print_state(const struct flyt_node *node)
{
    const flyt_allocation **all = calloc(node->allocation_count + 1, sizeof *all);
    unsigned count = 0;

    for (const struct flyt_node_allocation *allocation = node->allocations; all && allocation;
         allocation = allocation->next)
        all[count++] = flyt_node_allocation_to_write(allocation);
    char *text = all ? flyt_node_state_print(&node->state, all, count) : NULL;
    free(all);
    return text;
}

/* Logged each time, told once until it is written again. */
static int note(struct flyt_node_writer *writer, int status, const struct flyt_error *err)
{
    struct flyt_node *node = writer->node;

    if (status) {
        flyt_fail("the state cannot be kept: %s", err->text);
        sd_event_source_set_time_relative(writer->again, FLYT_NODE_WRITE_AGAIN_MS * 1000);
        sd_event_source_set_enabled(writer->again, SD_EVENT_ONESHOT);
    }
    if (status && !node->is_unsaved)
        flyt_node_tell(node, "node.state_unsaved", node->name,
                       "what this node has cannot be written, and a restart would not know of it: %s", err->text);
    node->is_unsaved = status != 0;
    return status;
}

/* The file has it on the disk. */
static void note_epoch(struct flyt_node *node, uint64_t epoch)
{
    if (epoch > node->epoch_written)
        node->epoch_written = epoch;
}

/* Under the mutex. What was written ahead is of no use behind a state that had to be on the disk. */
static int write_locked(struct flyt_node *node, const char *folder, const char *text, struct flyt_error *err)
{
    struct flyt_error unimportant = {0};

    int status = flyt_node_state_write_text(folder, text, err);
    if (status)
        return status;
    node->state.is_sync_due = false;
    flyt_node_state_settle(folder, &node->state, &unimportant);
    return 0;
}

/* What was looked at earlier than what the file has by now need not be written: that has it. */
static void write_job(void *user)
{
    struct job *job = user;
    struct flyt_node_writer *writer = job->writer;
    struct flyt_node *node = writer->node;

    pthread_mutex_lock(&writer->mutex);
    job->status = 0;
    if (job->number > writer->written_number && job->is_at_once)
        job->status = flyt_node_state_become(job->folder, &node->state, job->text, &job->err);
    else if (job->number > writer->written_number)
        job->status = write_locked(node, job->folder, job->text, &job->err);
    else if (!job->is_at_once)
        job->status = flyt_node_state_settle(job->folder, &node->state, &job->err);
    if (!job->status && job->number > writer->written_number)
        writer->written_number = job->number;
    pthread_mutex_unlock(&writer->mutex);
}

static void end(struct flyt_node_writer *writer, int status)
{
    free(writer->job.text);
    writer->job.text = NULL;
    writer->is_busy = false;
    note(writer, status, &writer->job.err);
    if (!status && !writer->job.is_at_once)
        note_epoch(writer->node, writer->job.epoch);
    list_tell(&writer->under_way, status);
    if (writer->is_due)
        want(writer);
}

static void on_written(void *user, int is_cancelled)
{
    struct job *job = user;

    /* At the end: flyt_node_writer_free writes itself. */
    if (!is_cancelled)
        end(job->writer, job->status);
}

static void write_ahead_job(void *user)
{
    struct ahead *ahead = user;
    struct flyt_node_writer *writer = ahead->writer;
    struct flyt_error err = {0};

    pthread_mutex_lock(&writer->mutex);
    if (flyt_node_state_write_ahead(writer->node->settings->state_dir, &writer->node->state, ahead->text, &err))
        flyt_debug("the state is not written ahead: %s", err.text);
    ahead->text = NULL;
    pthread_mutex_unlock(&writer->mutex);
}

static void tell_ahead(struct flyt_node_commit *commit, int status)
{
    if (!commit)
        return;
    commit->is_waiting = false;
    commit->done(commit->user, status);
}

static void on_written_ahead(void *user, int is_cancelled)
{
    struct ahead *ahead = user, **link = &ahead->writer->aheads;

    while (*link != ahead)
        link = &(*link)->next;
    *link = ahead->next;
    struct flyt_node_commit *commit = is_cancelled ? NULL : ahead->commit;
    free(ahead->text);
    free(ahead);
    tell_ahead(commit, 0);
}

void flyt_node_commit_ahead(struct flyt_node *node, struct flyt_node_commit *commit,
                            void (*done)(void *user, int status), void *user)
{
    struct flyt_node_writer *writer = node->writer;
    struct ahead *ahead = calloc(1, sizeof *ahead);

    if (commit)
        *commit = (struct flyt_node_commit){.done = done, .user = user, .is_waiting = true};
    if (ahead) {
        *ahead = (struct ahead){.next = writer->aheads, .writer = writer, .commit = commit};
        ahead->text = print_state(node);
    }
    if (ahead && ahead->text && !flyt_worker_do(writer->worker, write_ahead_job, on_written_ahead, ahead)) {
        writer->aheads = ahead;
        return;
    }
    free(ahead ? ahead->text : NULL);
    free(ahead);
    if (commit) /* there is nothing to wait for: it is told as the next write is */
        await(writer, commit);
}

/* All who come from now on wait for the next write. */
static void take_all(struct flyt_node_writer *writer)
{
    writer->is_due = false;
    *writer->under_way.last = writer->coming.first;
    if (writer->coming.first)
        writer->under_way.last = writer->coming.last;
    list_init(&writer->coming);
}

/* Whether somebody waits, and nobody for the disk: all orders of a new epoch do. */
static bool is_at_once(const struct flyt_node *node, const struct list *list)
{
    for (const struct flyt_node_commit *commit = list->first; commit; commit = commit->next)
        if (!commit->is_at_once)
            return false;
    return list->first && node->epoch_written == node->state.epoch;
}

static int on_begin(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_node_writer *writer = user;

    if (writer->is_busy || !writer->is_due)
        return 0;
    take_all(writer);
    writer->job = (struct job){.writer = writer,
                               .folder = writer->node->settings->state_dir,
                               .text = print_state(writer->node),
                               .number = ++writer->number,
                               .epoch = writer->node->state.epoch,
                               .err = {.code = -ENOMEM, .text = "no memory"}};
    writer->job.is_at_once = is_at_once(writer->node, &writer->under_way);
    writer->is_busy = writer->job.text && !flyt_worker_do(writer->worker, write_job, on_written, &writer->job);
    if (!writer->is_busy)
        end(writer, -ENOMEM);
    return 0;
}

static int on_again(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_node_writer *writer = user;

    if (writer->node->is_unsaved)
        want(writer);
    return 0;
}

int flyt_node_writer_write(struct flyt_node_writer *writer)
{
    struct flyt_error err = {.code = -ENOMEM, .text = "no memory"};
    uint64_t number = ++writer->number;
    char *text = print_state(writer->node);

    pthread_mutex_lock(&writer->mutex);
    int status = text ? write_locked(writer->node, writer->node->settings->state_dir, text, &err) : -ENOMEM;
    if (!status)
        writer->written_number = number;
    pthread_mutex_unlock(&writer->mutex);
    free(text);
    if (!status)
        note_epoch(writer->node, writer->node->state.epoch);
    return note(writer, status, &err);
}

void flyt_node_writer_flush(struct flyt_node_writer *writer)
{
    struct flyt_error err = {0};

    if (!writer)
        return;
    if (!writer->is_busy && !writer->is_due && !writer->node->is_unsaved) {
        pthread_mutex_lock(&writer->mutex);
        flyt_node_state_settle(writer->node->settings->state_dir, &writer->node->state, &err);
        pthread_mutex_unlock(&writer->mutex);
        return;
    }
    take_all(writer);
    list_tell(&writer->under_way, flyt_node_writer_write(writer));
}

int flyt_node_writer_do(struct flyt_node_writer *writer, void (*work)(void *job),
                        void (*done)(void *job, int is_cancelled), void *job)
{
    return flyt_worker_do(writer->worker, work, done, job);
}

/* ---- beginning and end ---- */

int flyt_node_writer_new(struct flyt_node *node, sd_event *event, struct flyt_node_writer **ret_writer)
{
    struct flyt_node_writer *writer = calloc(1, sizeof *writer);

    if (!writer)
        return -ENOMEM;
    writer->node = node;
    list_init(&writer->coming);
    list_init(&writer->under_way);
    pthread_mutex_init(&writer->mutex, NULL);
    int status = flyt_worker_new(event, "flyt-state", JOBS_MAX, &writer->worker);
    if (!status && (sd_event_add_time_relative(event, &writer->begin, CLOCK_MONOTONIC, 0, 1, on_begin, writer) < 0 ||
                    sd_event_add_time_relative(event, &writer->again, CLOCK_MONOTONIC, 0, 1, on_again, writer) < 0))
        status = -ENOMEM;
    if (status)
        flyt_node_writer_free(writer);
    else
        *ret_writer = writer;
    return status;
}

struct flyt_node_writer *flyt_node_writer_free(struct flyt_node_writer *writer)
{
    if (!writer)
        return NULL;
    bool has_begun = writer->begin && writer->again;
    if (has_begun)
        flyt_node_writer_flush(writer);
    flyt_worker_free(writer->worker);
    free(writer->job.text);
    sd_event_source_disable_unref(writer->begin);
    sd_event_source_disable_unref(writer->again);
    pthread_mutex_destroy(&writer->mutex);
    free(writer);
    return NULL;
}
