#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "control/base/json_memory.h"
#include "control/base/worker.h"
#include "control/cluster/io/keep.h"
#include "control/store/lease.h"
#include "control/store/store.h"
#include "control/store/store_ops.h"
#include "rpc/base/clock.h"
#include "rpc/base/error.h"
#include "rpc/base/log.h"

enum {
    JOBS_MAX = 4096,
    WRITES_AT_ONCE = 8,  /* handed to the thread; the rest waits here */
    AWAITED_IN_TURN = 7, /* before one that nobody waits for */
    RETRY_MS = 1000,
    EDIT_ATTEMPTS = 8,
};

struct flyt_kept {
    struct flyt_keeper *keeper;
    const char *collection;
    char *id;
    uint64_t revision;
    cJSON *(*make)(void *object);
    void *object;   /* NULL: it has gone */
    bool is_doomed; /* to be deleted, then freed */
    bool is_dirty, is_queued, is_resting, is_writing;
    bool is_awaited;             /* queued in `awaited` */
    struct job *check;           /* a write whose outcome must be found out first */
    struct flyt_kept_waits now;  /* of the write under way */
    struct flyt_kept_waits next; /* of the one after it */
    TAILQ_ENTRY(flyt_kept) link;
};
TAILQ_HEAD(kept_list, flyt_kept);

struct flyt_keeper {
    struct flyt_keeper_config config;
    struct flyt_worker *worker;
    struct kept_list awaited; /* dirty, to be written: somebody waits for them */
    struct kept_list queue;   /* dirty, to be written */
    struct kept_list resting; /* failed: again when the timer says so */
    sd_event_source *timer;
    sd_event_source *turn;       /* on the loop: writes begin here, whoever asks for them */
    struct flyt_kept_waits left; /* their documents are written no more */
    size_t queued_count, writing_count;
    unsigned awaited_in_turn;
    uint64_t epoch;
    bool is_available, is_held, is_ending;
};

/* One operation on the store's thread. */
struct job {
    struct flyt_keeper *keeper;
    const char *operation;
    enum flyt_store_result result;
    uint64_t took_us;
    struct flyt_error err;
    /* a write */
    struct flyt_kept *kept;
    uint64_t revision;
    cJSON *document; /* NULL: delete */
    cJSON *found;    /* what is there instead */
    bool is_check;   /* the outcome of the last write is not known: read first */
    /* other work */
    enum flyt_store_result (*work)(struct flyt_store *store, void *user, struct flyt_error *err);
    void (*done)(void *user, int is_cancelled);
    void *user;
};

static void pump(struct flyt_keeper *keeper);

/* ---- on the store's thread ---- */

static uint64_t number_of(const cJSON *document, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(document, name);

    return cJSON_IsNumber(item) && item->valuedouble > 0 && item->valuedouble < 0x1p63 ? (uint64_t)item->valuedouble
                                                                                       : 0;
}

/* After an unknown outcome or a conflict: what is there decides. */
static enum flyt_store_result look_again(struct flyt_store *store, struct job *job, enum flyt_store_result outcome)
{
    const char *collection = job->kept->collection, *id = job->kept->id;
    cJSON *found = NULL;
    enum flyt_store_result result = flyt_store_get(store, collection, id, &job->err, &found);

    if (result != FLYT_STORE_OK && result != FLYT_STORE_NOT_FOUND)
        return outcome; /* still not known, or still in conflict */
    uint64_t revision = found ? number_of(found, "revision") : 0;
    if (!found && !job->document)
        return FLYT_STORE_OK;
    if (found && job->document && revision == job->revision + 1 &&
        cJSON_GetArraySize(found) == cJSON_GetArraySize(job->document) && cJSON_Compare(found, job->document, true)) {
        cJSON_Delete(found);
        return FLYT_STORE_OK;
    }
    if (revision == job->revision) {
        cJSON_Delete(found);
        return FLYT_STORE_UNAVAILABLE; /* it was not written */
    }
    job->found = found;
    return FLYT_STORE_CONFLICT;
}

static void write_document(struct flyt_store *store, struct job *job)
{
    const struct flyt_kept *kept = job->kept;

    if (job->document) {
        /* Both are set by a successful write; here, so that a document read again can be compared. */
        cJSON_DeleteItemFromObjectCaseSensitive(job->document, "_id");
        cJSON_DeleteItemFromObjectCaseSensitive(job->document, "revision");
        job->result = flyt_store_put(store, kept->collection, kept->id, job->revision, NULL, job->document, &job->err);
    } else if (job->revision) {
        job->result = flyt_store_delete(store, kept->collection, kept->id, job->revision, &job->err);
    }
    if (!job->document && job->result == FLYT_STORE_NOT_FOUND)
        job->result = FLYT_STORE_OK;
    if (job->result == FLYT_STORE_UNKNOWN || job->result == FLYT_STORE_CONFLICT) {
        if (job->document && !cJSON_GetObjectItemCaseSensitive(job->document, "revision")) {
            cJSON_AddStringToObject(job->document, "_id", kept->id);
            cJSON_AddNumberToObject(job->document, "revision", (double)(job->revision + 1));
        }
        job->result = look_again(store, job, job->result);
    }
}

static void work(void *data)
{
    struct job *job = data;
    struct flyt_store *store = job->keeper->config.store;
    uint64_t start_ns = flyt_clock_ns();

    if (job->work)
        job->result = job->work(store, job->user, &job->err);
    else if (job->is_check)
        job->result = look_again(store, job, FLYT_STORE_UNKNOWN);
    else
        write_document(store, job);
    job->took_us = (flyt_clock_ns() - start_ns) / 1000;
}

enum flyt_store_result flyt_store_edit(struct flyt_store *store, const char *collection, const char *id,
                                       int (*edit)(cJSON **document, void *user, struct flyt_error *err), void *user,
                                       struct flyt_error *err, int *ret_status)
{
    enum flyt_store_result result = FLYT_STORE_CONFLICT;

    *ret_status = 0;
    for (unsigned attempt = 0; attempt < EDIT_ATTEMPTS; attempt++) {
        cJSON *seen = NULL, *document = NULL;
        result = flyt_store_get(store, collection, id, err, &seen);
        if (result != FLYT_STORE_OK && result != FLYT_STORE_NOT_FOUND)
            return result;
        uint64_t revision = seen ? number_of(seen, "revision") : 0, failures = flyt_json_failures();
        document = seen ? cJSON_Duplicate(seen, true) : NULL;
        bool is_read = !seen || document;
        *ret_status = is_read ? edit(&document, user, err) : 0;
        if (!is_read || flyt_json_failures() != failures) { /* a member may be missing */
            *ret_status = 0;
            flyt_error_set(err, -ENOMEM, "no memory");
            cJSON_Delete(seen);
            cJSON_Delete(document);
            return FLYT_STORE_UNAVAILABLE;
        }
        if (*ret_status || (!seen && !document)) {
            cJSON_Delete(seen);
            cJSON_Delete(document);
            return FLYT_STORE_OK;
        }
        if (document)
            result = flyt_store_put(store, collection, id, revision, revision ? NULL : seen, document, err);
        else
            result = flyt_store_delete(store, collection, id, revision, err);
        cJSON_Delete(seen);
        cJSON_Delete(document);
        /* After an unknown outcome the next round reads what came of it; an edit that is there changes nothing. */
        if (result != FLYT_STORE_CONFLICT && result != FLYT_STORE_UNKNOWN)
            return result;
    }
    return result;
}

/* ---- on the loop ---- */

static void tell(struct flyt_kept_waits *waits, enum flyt_store_result result, const char *err)
{
    struct flyt_kept_waits told = STAILQ_HEAD_INITIALIZER(told);
    struct flyt_kept_wait *wait;

    STAILQ_CONCAT(&told, waits);
    while ((wait = STAILQ_FIRST(&told))) {
        STAILQ_REMOVE_HEAD(&told, link);
        wait->done(wait->user, result, result == FLYT_STORE_OK ? "" : err);
    }
}

static void tell_left(struct flyt_keeper *keeper)
{
    tell(&keeper->left, FLYT_STORE_UNAVAILABLE, "this manager does not lead any more");
}

/* Nothing begins, and nobody is told, from inside a call. */
static void take_turn(struct flyt_keeper *keeper)
{
    sd_event_source_set_enabled(keeper->turn, SD_EVENT_ONESHOT);
}

static void set_available(struct flyt_keeper *keeper, bool is_available, const char *cause)
{
    if (keeper->is_available == is_available || keeper->is_ending)
        return;
    keeper->is_available = is_available;
    keeper->config.turned(is_available, cause, keeper->config.user);
}

void flyt_keeper_note(struct flyt_keeper *keeper, const char *operation, enum flyt_store_result result,
                      uint64_t took_us, const struct flyt_error *err)
{
    bool has_failed = result != FLYT_STORE_OK && result != FLYT_STORE_NOT_FOUND;

    if (result == FLYT_STORE_UNAVAILABLE || result == FLYT_STORE_UNKNOWN)
        set_available(keeper, false, err->text);
    else if (result != FLYT_STORE_BROKEN)
        set_available(keeper, true, "");
    if (keeper->config.measured)
        keeper->config.measured(operation, has_failed, took_us, keeper->config.user);
}

static void judge(struct flyt_keeper *keeper, const struct job *job)
{
    flyt_keeper_note(keeper, job->operation, job->result, job->took_us, &job->err);
}

static void free_job(struct job *job)
{
    if (!job)
        return;
    cJSON_Delete(job->document);
    cJSON_Delete(job->found);
    free(job);
}

/* Where it is queued. */
static struct kept_list *list_of(struct flyt_kept *kept)
{
    struct flyt_keeper *keeper = kept->keeper;

    return kept->is_resting ? &keeper->resting : kept->is_awaited ? &keeper->awaited : &keeper->queue;
}

static void destroy(struct flyt_kept *kept)
{
    if (kept->is_queued) {
        TAILQ_REMOVE(list_of(kept), kept, link);
        kept->keeper->queued_count--;
    }
    free_job(kept->check);
    STAILQ_CONCAT(&kept->keeper->left, &kept->now);
    STAILQ_CONCAT(&kept->keeper->left, &kept->next);
    free(kept->id);
    free(kept);
}

static int on_turn(sd_event_source *source, void *user)
{
    struct flyt_keeper *keeper = user;

    tell_left(keeper);
    pump(keeper);
    return 0;
}

static int on_timer(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_keeper *keeper = user;
    struct flyt_kept *kept;

    TAILQ_FOREACH(kept, &keeper->resting, link)
    kept->is_resting = false;
    TAILQ_CONCAT(&keeper->queue, &keeper->resting, link);
    pump(keeper);
    return 0;
}

/* What somebody waits for is not behind the thousands that a new cluster's nodes have to record. */
static void enqueue(struct flyt_kept *kept)
{
    bool is_awaited = !STAILQ_EMPTY(&kept->next);

    if (kept->is_queued && (kept->is_resting || kept->is_awaited || !is_awaited))
        return;
    if (kept->is_queued)
        TAILQ_REMOVE(&kept->keeper->queue, kept, link);
    else
        kept->keeper->queued_count++;
    kept->is_queued = true;
    kept->is_awaited = is_awaited;
    TAILQ_INSERT_TAIL(list_of(kept), kept, link);
}

/* The next to be written, taken out of its list; NULL: none. */
static struct flyt_kept *dequeue(struct flyt_keeper *keeper)
{
    struct flyt_kept *kept = TAILQ_FIRST(&keeper->awaited), *other = TAILQ_FIRST(&keeper->queue);

    if (!kept || (other && keeper->awaited_in_turn == AWAITED_IN_TURN))
        kept = other;
    if (!kept)
        return NULL;
    keeper->awaited_in_turn = kept->is_awaited ? keeper->awaited_in_turn % AWAITED_IN_TURN + 1 : 0;
    TAILQ_REMOVE(list_of(kept), kept, link);
    kept->is_queued = kept->is_awaited = false;
    keeper->queued_count--;
    return kept;
}

/* To the ones that are tried again in a second. It is in no list. */
static void rest(struct flyt_kept *kept)
{
    struct flyt_keeper *keeper = kept->keeper;

    keeper->queued_count++;
    kept->is_queued = kept->is_resting = true;
    kept->is_awaited = false;
    TAILQ_INSERT_TAIL(&keeper->resting, kept, link);
    if (TAILQ_FIRST(&keeper->resting) != kept)
        return; /* the timer runs */
    sd_event_source_set_time(keeper->timer, flyt_clock_ns() / 1000 + RETRY_MS * 1000);
    sd_event_source_set_enabled(keeper->timer, SD_EVENT_ONESHOT);
}

static void written(void *data, int is_cancelled);
static void end_write(struct job *job);

static void submit(struct flyt_kept *kept, struct job *job)
{
    struct flyt_keeper *keeper = kept->keeper;

    kept->is_writing = true;
    keeper->writing_count++;
    int status = flyt_worker_do(keeper->worker, work, written, job);
    if (!status)
        return;
    job->result = FLYT_STORE_UNAVAILABLE;
    flyt_error_set(&job->err, status, "too much work waits for the store");
    end_write(job);
}

/* NULL: no memory, be it for one member only. */
static cJSON *make_whole(struct flyt_kept *kept)
{
    uint64_t failures = flyt_json_failures();
    cJSON *document = kept->make(kept->object);

    if (flyt_json_failures() == failures)
        return document;
    flyt_fail("store: %s %s was not written: there is no memory for all of it", kept->collection, kept->id);
    cJSON_Delete(document);
    return NULL;
}

static void write_kept(struct flyt_kept *kept)
{
    struct job *job = kept->check;

    if (job) {
        kept->check = NULL;
        submit(kept, job);
        return;
    }
    job = calloc(1, sizeof *job);
    kept->is_dirty = false;
    STAILQ_CONCAT(&kept->now, &kept->next);
    if (!job || (!kept->is_doomed && kept->object && !(job->document = make_whole(kept)))) {
        free(job);
        kept->is_dirty = true;
        tell(&kept->now, FLYT_STORE_UNAVAILABLE, "no memory");
        rest(kept);
        return;
    }
    job->keeper = kept->keeper;
    job->operation = kept->is_doomed ? "delete" : "put";
    job->kept = kept;
    job->revision = kept->revision;
    submit(kept, job);
}

static void pump(struct flyt_keeper *keeper)
{
    struct flyt_kept *kept;

    if (keeper->is_held || keeper->is_ending)
        return;
    while (keeper->writing_count < WRITES_AT_ONCE && (kept = dequeue(keeper))) {
        if (kept->is_writing)
            continue; /* it comes back when that has ended */
        if (!kept->object && !kept->is_doomed) {
            destroy(kept);
            continue;
        }
        write_kept(kept);
    }
}

static void settle_conflict(struct flyt_kept *kept, struct job *job)
{
    struct flyt_keeper *keeper = kept->keeper;
    uint64_t epoch = job->found ? number_of(job->found, "epoch") : 0; /* one that no leader can have written is none */

    kept->revision = job->found ? number_of(job->found, "revision") : 0;
    kept->is_dirty = true;
    if (epoch > keeper->epoch && epoch <= FLYT_EPOCH_MAX) {
        keeper->is_held = true;
        keeper->config.overruled(epoch, keeper->config.user);
        return;
    }
    flyt_warn("store: %s %s was changed by somebody else and is written again", kept->collection, kept->id);
}

static void end_write(struct job *job)
{
    struct flyt_kept *kept = job->kept;
    struct flyt_keeper *keeper = job->keeper;

    keeper->writing_count--;
    kept->is_writing = false;
    judge(keeper, job);
    if (job->result == FLYT_STORE_UNKNOWN) {
        /* Nobody is told before it is known. */
        job->is_check = true;
        kept->check = job;
        rest(kept);
        return;
    }
    if (job->result == FLYT_STORE_BROKEN)
        flyt_fail("store: %s %s could not be written: %s", kept->collection, kept->id, job->err.text);
    if (job->result == FLYT_STORE_OK)
        kept->revision = job->document ? job->revision + 1 : 0;
    else if (job->result == FLYT_STORE_CONFLICT)
        settle_conflict(kept, job);
    else
        kept->is_dirty = true;
    bool is_done = job->result == FLYT_STORE_OK, is_gone = is_done && !job->document;
    tell(&kept->now, job->result, job->err.text[0] ? job->err.text : "the store has changed meanwhile");
    free_job(job);
    if (is_gone || (!kept->object && !kept->is_doomed)) {
        destroy(kept);
    } else if (kept->is_dirty && !kept->is_queued) {
        if (is_done)
            enqueue(kept);
        else
            rest(kept);
    }
}

static void written(void *data, int is_cancelled)
{
    struct job *job = data;
    struct flyt_kept *kept = job->kept;
    struct flyt_keeper *keeper = job->keeper;

    if (!is_cancelled) {
        end_write(job);
        pump(keeper);
        return;
    }
    keeper->writing_count--;
    kept->is_writing = false;
    free_job(job);
    if (!kept->is_queued && !kept->object)
        destroy(kept);
}

int flyt_keeper_new(const struct flyt_keeper_config *config, struct flyt_keeper **ret_keeper)
{
    struct flyt_keeper *keeper = calloc(1, sizeof *keeper);

    if (!keeper)
        return -ENOMEM;
    keeper->config = *config;
    keeper->is_available = true;
    TAILQ_INIT(&keeper->awaited);
    TAILQ_INIT(&keeper->queue);
    TAILQ_INIT(&keeper->resting);
    STAILQ_INIT(&keeper->left);
    int status = flyt_worker_new(config->event, "flyt-store", JOBS_MAX, &keeper->worker);
    if (!status)
        status = sd_event_add_time(config->event, &keeper->timer, CLOCK_MONOTONIC, UINT64_MAX, 0, on_timer, keeper);
    if (status >= 0)
        status = sd_event_add_defer(config->event, &keeper->turn, on_turn, keeper);
    if (status < 0) {
        flyt_worker_free(keeper->worker);
        sd_event_source_unref(keeper->timer);
        free(keeper);
        return status;
    }
    sd_event_source_set_enabled(keeper->timer, SD_EVENT_OFF);
    sd_event_source_set_enabled(keeper->turn, SD_EVENT_OFF);
    *ret_keeper = keeper;
    return 0;
}

bool flyt_keeper_finish(struct flyt_keeper *keeper, uint64_t timeout_ms)
{
    return flyt_worker_finish(keeper->worker, timeout_ms);
}

struct flyt_keeper *flyt_keeper_free(struct flyt_keeper *keeper)
{
    if (!keeper)
        return NULL;
    struct flyt_kept *kept;

    keeper->is_ending = true;
    flyt_worker_free(keeper->worker);
    while ((kept = TAILQ_FIRST(&keeper->awaited)) || (kept = TAILQ_FIRST(&keeper->queue)) ||
           (kept = TAILQ_FIRST(&keeper->resting)))
        destroy(kept);
    tell_left(keeper);
    sd_event_source_disable_unref(keeper->timer);
    sd_event_source_disable_unref(keeper->turn);
    flyt_store_close(keeper->config.store);
    free(keeper);
    return NULL;
}

struct flyt_store *flyt_keeper_store(struct flyt_keeper *keeper)
{
    return keeper->config.store;
}

bool flyt_keeper_is_available(const struct flyt_keeper *keeper)
{
    return keeper->is_available;
}

void flyt_keeper_set_epoch(struct flyt_keeper *keeper, uint64_t epoch)
{
    keeper->epoch = epoch;
}

void flyt_keeper_hold(struct flyt_keeper *keeper, bool is_held)
{
    keeper->is_held = is_held;
    take_turn(keeper);
}

size_t flyt_keeper_waiting(const struct flyt_keeper *keeper)
{
    return keeper->queued_count + keeper->writing_count;
}

struct flyt_kept *flyt_kept_new(struct flyt_keeper *keeper, const char *collection, const char *id, uint64_t revision,
                                cJSON *(*make)(void *object), void *object)
{
    struct flyt_kept *kept = calloc(1, sizeof *kept);

    if (!kept)
        return NULL;
    kept->keeper = keeper;
    kept->collection = collection;
    kept->id = strdup(id);
    kept->revision = revision;
    kept->make = make;
    kept->object = object;
    STAILQ_INIT(&kept->now);
    STAILQ_INIT(&kept->next);
    if (!kept->id) {
        free(kept);
        return NULL;
    }
    return kept;
}

struct flyt_kept *flyt_kept_free(struct flyt_kept *kept)
{
    if (!kept)
        return NULL;
    kept->object = NULL;
    STAILQ_CONCAT(&kept->keeper->left, &kept->now);
    STAILQ_CONCAT(&kept->keeper->left, &kept->next);
    take_turn(kept->keeper);
    if (!kept->is_writing && !kept->is_queued)
        destroy(kept);
    return NULL;
}

void flyt_kept_change(struct flyt_kept *kept, struct flyt_kept_wait *wait)
{
    kept->is_dirty = true;
    if (wait)
        STAILQ_INSERT_TAIL(&kept->next, wait, link);
    if (!kept->is_writing)
        enqueue(kept);
    take_turn(kept->keeper);
}

void flyt_kept_delete(struct flyt_kept *kept, struct flyt_kept_wait *wait)
{
    kept->is_doomed = true;
    kept->object = NULL;
    flyt_kept_change(kept, wait);
}

static void work_done(void *data, int is_cancelled)
{
    struct job *job = data;

    if (!is_cancelled)
        judge(job->keeper, job);
    job->done(job->user, is_cancelled);
    free(job);
}

int flyt_keeper_do(struct flyt_keeper *keeper, const char *operation,
                   enum flyt_store_result (*work_fn)(struct flyt_store *store, void *job, struct flyt_error *err),
                   void (*done)(void *job, int is_cancelled), void *user)
{
    struct job *job = calloc(1, sizeof *job);

    if (!job)
        return -ENOMEM;
    *job = (struct job){.keeper = keeper, .operation = operation, .work = work_fn, .done = done, .user = user};
    int status = flyt_worker_do(keeper->worker, work, work_done, job);
    if (status)
        free(job);
    return status;
}
