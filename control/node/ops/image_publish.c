#include "control/node/ops/image_publish.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/base/worker.h"
#include "control/node/model/node.h"
#include "control/node/model/writer.h"
#include "control/node/ops/checkpointed_sessions.h"
#include "control/node/ops/disk.h"
#include "control/node/ops/ops.h"
#include "control/node/state/image_uncommitted.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/log.h"

/* One image more than what the saving has. */
struct item {
    struct flyt_node_named named;
    struct flyt_node_image_uncommitted *record; /* the loop's; NULL: there is none */
    bool has_file;                              /* it is not named yet */
    bool is_kept;
};

/* The thread's while is_busy, else the loop's. */
struct job {
    struct flyt_node_image_publish *publish; /* not the thread's */
    struct flyt_tally *left;
    char *folder;
    _Atomic(bool) is_given_up; /* the loop says so at any time; the thread names nothing more then */
    unsigned count;
    struct item items[];
};

struct flyt_node_image_publish {
    struct flyt_node_image_publish *next; /* in node->ops->publishes */
    struct flyt_node *node;
    struct flyt_worker *worker;
    struct flyt_tally *left;
    struct job *job;
    bool is_busy;                   /* the worker has the job */
    struct flyt_node_commit commit; /* that its images are not to stay, before they have names */
    bool is_through;                /* they have names, or have not */
    bool is_ended;                  /* nobody asks any more */
    void (*done)(void *user);
    void *user;
};

/* ---- on the thread ---- */

static void remove_unkept(struct job *job)
{
    char path[FLYT_NAME_BYTES_MAX + FLYT_CHECKPOINT_NAME_BYTES + 2];

    for (unsigned i = 0; i < job->count; i++) {
        struct item *item = &job->items[i];
        if (!*item->named.image || item->is_kept)
            continue;
        flyt_fault_point("node.checkpoint.unlink");
        snprintf(path, sizeof path, "%s/%s", job->folder, item->named.image);
        if (unlink(path) && errno != ENOENT) /* of an earlier node manager it may have had no name yet */
            flyt_warn("%s is not removed, and is of no use: %m", path);
        *item->named.image = 0;
    }
}

/* 0 or a negative errno and why. The file is at its end in any case. */
static int name_one(struct item *item)
{
    struct flyt_node_named *named = &item->named;

    item->has_file = false;
    if (flyt_fault_point("node.checkpoint.name") != FLYT_FAULT_ERROR)
        return flyt_checkpoint_file_adopt(&named->file, named->image, &named->err);
    flyt_checkpoint_file_abandon(&named->file);
    return flyt_error_set(&named->err, -EIO, "a test lets it fail at node.checkpoint.name");
}

/* Which names they will have: such that nothing has, whatever their heads say, for what has one may be removed. */
static void learn_all(void *user)
{
    struct job *job = user;

    for (unsigned i = 0; i < job->count && !atomic_load(&job->is_given_up); i++)
        if (flyt_checkpoint_file_learn_name(&job->items[i].named.file, &job->items[i].named.err))
            return;
}

static void name_all(void *user)
{
    struct job *job = user;
    bool is_good = true;

    for (unsigned i = 0; i < job->count && is_good; i++)
        is_good = !atomic_load(&job->is_given_up) && !name_one(&job->items[i]);
    for (unsigned i = 0; i < job->count; i++)
        job->items[i].is_kept = is_good;
    remove_unkept(job);
}

static void remove_all(void *user)
{
    remove_unkept(user);
}

/* ---- on the loop ---- */

static void free_job(struct job *job)
{
    for (unsigned i = 0; i < job->count; i++)
        if (job->items[i].has_file)
            flyt_checkpoint_file_abandon_aside(&job->items[i].named.file, job->left);
    flyt_tally_unref(job->left);
    free(job->folder);
    free(job);
}

static void free_publish(struct flyt_node_image_publish *publish)
{
    struct flyt_node_image_publish **link = &publish->node->ops->publishes;

    while (*link != publish)
        link = &(*link)->next;
    *link = publish->next;
    flyt_node_commit_forget(publish->node, &publish->commit);
    flyt_worker_leave(publish->worker, publish->left);
    flyt_tally_unref(publish->left);
    if (!publish->is_busy) /* else who is cancelled frees it */
        free_job(publish->job);
    free(publish);
}

/* 0 or a negative errno. */
static int give_to_thread(struct flyt_node_image_publish *publish, void (*work)(void *), void (*done)(void *, int))
{
    int status = flyt_worker_do(publish->worker, work, done, publish->job);

    publish->is_busy = !status;
    return status;
}

/* Its images stay, or are gone: so are their records. */
static void finish(struct flyt_node_image_publish *publish)
{
    struct flyt_node *node = publish->node;
    bool is_changed = false;

    for (unsigned i = 0; i < publish->job->count; i++) {
        struct flyt_node_image_uncommitted *record = publish->job->items[i].record;
        if (!record)
            continue;
        is_changed |= !record->is_kept; /* else it is in the state no more */
        flyt_node_image_uncommitted_remove(&node->state, record);
    }
    free_publish(publish);
    if (is_changed)
        flyt_node_save_soon(node); /* until it is written the next node manager finds them gone */
}

static void on_removed(void *user, int is_cancelled)
{
    struct job *job = user;

    if (is_cancelled) {
        free_job(job);
        return;
    }
    job->publish->is_busy = false;
    finish(job->publish);
}

/* Nobody asks any more: what is not to stay goes, and then the publishing. */
static void clear(struct flyt_node_image_publish *publish)
{
    const struct job *job = publish->job;
    bool is_clear = true;

    for (unsigned i = 0; i < job->count; i++)
        is_clear &= job->items[i].is_kept || !*job->items[i].named.image;
    if (!is_clear && !give_to_thread(publish, remove_all, on_removed))
        return;
    if (!is_clear)
        flyt_warn("images in %s are not removed before the next start: the node has no memory", job->folder);
    if (is_clear)
        finish(publish);
    else
        free_publish(publish);
}

static void keep_none(struct flyt_node_image_publish *publish)
{
    for (unsigned i = 0; i < publish->job->count; i++)
        publish->job->items[i].is_kept = false;
}

static void on_named(void *user, int is_cancelled)
{
    struct job *job = user;
    struct flyt_node_image_publish *publish = job->publish;

    if (is_cancelled) {
        free_job(job);
        return;
    }
    publish->is_busy = false;
    publish->is_through = true;
    if (!publish->is_ended) {
        publish->done(publish->user);
        return;
    }
    keep_none(publish); /* it was given up when the last name was given already */
    clear(publish);
}

/* They have no names, and nobody gives them any. */
static void fail(struct flyt_node_image_publish *publish, int status)
{
    flyt_error_set(&publish->job->items[0].named.err, status, "the node cannot keep which images it begins with: %s",
                   strerror(-status));
    publish->is_through = true;
    publish->done(publish->user);
}

static void on_recorded(void *user, int status)
{
    struct flyt_node_image_publish *publish = user;

    if (publish->is_ended) {
        clear(publish);
        return;
    }
    if (!status)
        status = give_to_thread(publish, name_all, on_named);
    if (status)
        fail(publish, status);
}

/* None has a name before the state says that it is not to stay. 0 or a negative errno. */
static int record_all(struct flyt_node_image_publish *publish)
{
    struct flyt_node_state *state = &publish->node->state;
    struct job *job = publish->job;

    for (unsigned i = 0; i < job->count; i++) {
        struct item *item = &job->items[i];
        item->record =
            flyt_node_image_uncommitted_add(state, item->named.session_id, job->folder, item->named.file.name);
        if (!item->record)
            return -ENOMEM;
    }
    flyt_node_commit(publish->node, &publish->commit, on_recorded, publish);
    return 0;
}

static void on_learned(void *user, int is_cancelled)
{
    struct job *job = user;
    struct flyt_node_image_publish *publish = job->publish;
    bool is_good = true;

    if (is_cancelled) {
        free_job(job);
        return;
    }
    publish->is_busy = false;
    if (publish->is_ended) {
        clear(publish);
        return;
    }
    for (unsigned i = 0; i < job->count; i++)
        is_good &= !job->items[i].named.err.code;
    int status = is_good ? record_all(publish) : 0;
    if (status)
        fail(publish, status);
    else if (!is_good) {
        publish->is_through = true;
        publish->done(publish->user);
    }
}

int flyt_node_image_publish_new(struct flyt_node *node, const char *folder, struct flyt_tally *left,
                                struct flyt_node_named *named, unsigned count, void (*done)(void *user), void *user,
                                struct flyt_node_image_publish **ret_publish)
{
    struct flyt_node_image_publish *publish = calloc(1, sizeof *publish);
    struct job *job = calloc(1, sizeof *job + count * sizeof job->items[0]);

    if (!publish || !job || !(job->folder = strdup(folder))) {
        free(publish);
        free(job);
        return -ENOMEM;
    }
    *publish = (struct flyt_node_image_publish){
        .next = node->ops->publishes, .node = node, .job = job, .done = done, .user = user};
    node->ops->publishes = publish;
    publish->left = flyt_tally_ref(left);
    job->left = flyt_tally_ref(left);
    job->publish = publish;
    int status = flyt_worker_new(node->event, "flyt-naming", 1, &publish->worker);
    for (unsigned i = 0; i < count && !status; i++)
        job->items[i] = (struct item){.named = named[i], .has_file = true};
    job->count = status ? 0 : count;
    if (!status && (status = give_to_thread(publish, learn_all, on_learned)))
        job->count = 0; /* the files stay the caller's */
    if (status) {
        free_publish(publish);
        return status;
    }
    for (unsigned i = 0; i < count; i++)
        named[i].file = (struct flyt_checkpoint_file){.folder_fd = -1, .fd = -1};
    *ret_publish = publish;
    return 0;
}

void flyt_node_image_publish_keep(struct flyt_node_image_publish *publish, bool are_kept)
{
    for (unsigned i = 0; i < publish->job->count; i++)
        if (publish->job->items[i].record)
            publish->job->items[i].record->is_kept = are_kept && publish->job->items[i].is_kept;
}

bool flyt_node_image_publish_is_through(const struct flyt_node_image_publish *publish)
{
    return publish->is_through;
}

static struct item *find_item(const struct flyt_node_image_publish *publish, uint64_t session_id)
{
    for (unsigned i = 0; i < publish->job->count; i++)
        if (publish->job->items[i].named.session_id == session_id)
            return &publish->job->items[i];
    return NULL;
}

const struct flyt_node_named *flyt_node_image_publish_find(const struct flyt_node_image_publish *publish,
                                                           uint64_t session_id)
{
    const struct item *item = find_item(publish, session_id);

    return item ? &item->named : NULL;
}

void flyt_node_image_publish_refuse(struct flyt_node_image_publish *publish, uint64_t session_id)
{
    struct item *item = find_item(publish, session_id);

    if (item)
        item->is_kept = false;
}

struct flyt_node_image_publish *flyt_node_image_publish_end(struct flyt_node_image_publish *publish, bool are_kept)
{
    if (!publish)
        return NULL;
    publish->is_ended = true;
    if (!publish->is_through) {
        atomic_store(&publish->job->is_given_up, true);
        return NULL;
    }
    if (!are_kept)
        keep_none(publish);
    clear(publish);
    return NULL;
}

/* Whether there is an image of it whose removal could not begin: the next start will see to that. */
static bool is_to_be_removed(const struct flyt_node *node, uint64_t session_id)
{
    const struct flyt_node_image_uncommitted *record = node->state.uncommitted;

    while (record && (record->session_id != session_id || record->is_kept))
        record = record->next;
    return record != NULL;
}

bool flyt_node_image_publish_is_undone(const struct flyt_node *node, uint64_t session_id)
{
    const struct flyt_node_image_publish *publish = node->ops->publishes;

    /* The thread writes neither what says that one has ended, nor whose its images are. */
    while (publish && !(publish->is_ended && find_item(publish, session_id)))
        publish = publish->next;
    return publish || is_to_be_removed(node, session_id);
}

/* ---- those of an earlier node manager ---- */

/* Whether it is somebody's all the same: it stays. */
static bool is_suspended(const struct flyt_node *node, const struct flyt_node_image_uncommitted *record)
{
    const struct flyt_node_checkpointed *checkpointed = node->state.checkpointed;

    while (checkpointed && strcmp(checkpointed->image, record->image) != 0)
        checkpointed = checkpointed->next;
    return checkpointed != NULL;
}

/* All records of the first one's folder; 0 or a negative errno. */
static int remove_earlier(struct flyt_node *node, const char *folder, unsigned count)
{
    struct flyt_node_image_publish *publish = calloc(1, sizeof *publish);
    struct job *job = calloc(1, sizeof *job + count * sizeof job->items[0]);
    struct flyt_error err;

    if (!publish || !job || !(job->folder = strdup(folder))) {
        free(publish);
        free(job);
        return -ENOMEM;
    }
    *publish = (struct flyt_node_image_publish){
        .next = node->ops->publishes, .node = node, .job = job, .is_through = true, .is_ended = true};
    node->ops->publishes = publish;
    job->publish = publish;
    int status = flyt_node_disk_take(node, folder, &publish->left, &err);
    if (!status)
        status = flyt_worker_new(node->event, "flyt-naming", 1, &publish->worker);
    for (struct flyt_node_image_uncommitted *record = node->state.uncommitted; record && !status;
         record = record->next) {
        struct item *item = &job->items[job->count];
        if (strcmp(record->folder, job->folder) != 0)
            continue;
        *item = (struct item){.named = {.session_id = record->session_id}, .record = record};
        if (!is_suspended(node, record))
            memcpy(item->named.image, record->image, sizeof item->named.image);
        job->count++;
    }
    job->left = flyt_tally_ref(publish->left);
    if (status)
        free_publish(publish);
    else
        clear(publish);
    return status;
}

static bool is_in_hand(const struct flyt_node *node, const char *folder)
{
    const struct flyt_node_image_publish *publish = node->ops->publishes;

    while (publish && strcmp(publish->job->folder, folder) != 0)
        publish = publish->next;
    return publish != NULL;
}

/* NULL: there is none any more. */
static const struct flyt_node_image_uncommitted *find_next(const struct flyt_node *node)
{
    const struct flyt_node_image_uncommitted *record = node->state.uncommitted;

    while (record && is_in_hand(node, record->folder))
        record = record->next;
    return record;
}

void flyt_node_image_publish_init(struct flyt_node *node)
{
    const struct flyt_node_image_uncommitted *record;
    unsigned count = 0;
    int status = 0;

    for (record = node->state.uncommitted; record; record = record->next)
        count++;
    /* Each folder once: where a removal cannot begin the records stay. */
    for (unsigned i = 0; i < count && !status && (record = find_next(node)); i++)
        status = remove_earlier(node, record->folder, count);
    if (status)
        flyt_warn("images that are of no use are not removed before the next start: %s", strerror(-status));
}

void flyt_node_image_publish_fini(struct flyt_node *node)
{
    while (node->ops->publishes) {
        atomic_store(&node->ops->publishes->job->is_given_up, true);
        free_publish(node->ops->publishes);
    }
}
