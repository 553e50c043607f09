#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "control/base/json_memory.h"
#include "control/base/worker.h"
#include "control/cluster/io/store_writer.h"
#include "control/store/json.h"
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

struct flyt_record {
    struct flyt_store_writer *store_writer;
    const char *collection;
    char *id;
    uint64_t revision;
    cJSON *(*make)(void *object);
    void *object;   /* NULL: it has gone */
    bool is_doomed; /* to be deleted, then freed */
    bool is_dirty, is_queued, is_resting, is_writing;
    bool is_awaited;               /* queued in `awaited` */
    struct job *check;             /* a write whose outcome must be found out first */
    struct flyt_record_waits now;  /* of the write under way */
    struct flyt_record_waits next; /* of the one after it */
    TAILQ_ENTRY(flyt_record) link;
};
TAILQ_HEAD(record_list, flyt_record);

struct flyt_store_writer {
    struct flyt_store_writer_config config;
    struct flyt_worker *worker;
    struct record_list awaited; /* dirty, to be written: somebody waits for them */
    struct record_list queue;   /* dirty, to be written */
    struct record_list resting; /* failed: again when the timer says so */
    sd_event_source *timer;
    sd_event_source *turn;         /* on the loop: writes begin here, whoever asks for them */
    struct flyt_record_waits left; /* their documents are written no more */
    size_t queued_count, writing_count;
    unsigned awaited_in_turn;
    uint64_t epoch;
    bool is_available, is_paused, is_ending;
};

/* One operation on the store's thread. */
struct job {
    struct flyt_store_writer *store_writer;
    const char *operation;
    enum flyt_store_result result;
    uint64_t took_us;
    struct flyt_error err;
    /* a write */
    struct flyt_record *record;
    uint64_t revision;
    cJSON *document; /* NULL: delete */
    cJSON *found;    /* what is there instead */
    bool is_check;   /* the outcome of the last write is not known: read first */
    /* other work */
    enum flyt_store_result (*work)(struct flyt_store *store, void *user, struct flyt_error *err);
    void (*done)(void *user, int is_cancelled);
    void *user;
};

static void pump(struct flyt_store_writer *store_writer);

/* ---- on the store's thread ---- */

/* After an unknown outcome or a conflict: what is there decides. */
static enum flyt_store_result look_again(struct flyt_store *store, struct job *job, enum flyt_store_result outcome)
{
    const char *collection = job->record->collection, *id = job->record->id;
    cJSON *found = NULL;
    enum flyt_store_result result = flyt_store_get(store, collection, id, &job->err, &found);

    if (result != FLYT_STORE_OK && result != FLYT_STORE_NOT_FOUND)
        return outcome; /* still not known, or still in conflict */
    uint64_t revision = found ? flyt_json_number(found, "revision") : 0;
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
    const struct flyt_record *record = job->record;

    if (job->document) {
        /* Both are set by a successful write; here, so that a document read again can be compared. */
        cJSON_DeleteItemFromObjectCaseSensitive(job->document, "_id");
        cJSON_DeleteItemFromObjectCaseSensitive(job->document, "revision");
        job->result =
            flyt_store_put(store, record->collection, record->id, job->revision, NULL, job->document, &job->err);
    } else if (job->revision) {
        job->result = flyt_store_delete(store, record->collection, record->id, job->revision, &job->err);
    }
    if (!job->document && job->result == FLYT_STORE_NOT_FOUND)
        job->result = FLYT_STORE_OK;
    if (job->result == FLYT_STORE_UNKNOWN || job->result == FLYT_STORE_CONFLICT) {
        if (job->document && !cJSON_GetObjectItemCaseSensitive(job->document, "revision")) {
            cJSON_AddStringToObject(job->document, "_id", record->id);
            cJSON_AddNumberToObject(job->document, "revision", (double)(job->revision + 1));
        }
        job->result = look_again(store, job, job->result);
    }
}

static void work(void *data)
{
    struct job *job = data;
    struct flyt_store *store = job->store_writer->config.store;
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
        uint64_t revision = seen ? flyt_json_number(seen, "revision") : 0, failures = flyt_json_failures();
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

static void tell(struct flyt_record_waits *waits, enum flyt_store_result result, const char *err)
{
    struct flyt_record_waits told = STAILQ_HEAD_INITIALIZER(told);
    struct flyt_record_wait *wait;

    STAILQ_CONCAT(&told, waits);
    while ((wait = STAILQ_FIRST(&told))) {
        STAILQ_REMOVE_HEAD(&told, link);
        wait->done(wait->user, result, result == FLYT_STORE_OK ? "" : err);
    }
}

static void tell_left(struct flyt_store_writer *store_writer)
{
    tell(&store_writer->left, FLYT_STORE_UNAVAILABLE, "this manager does not lead any more");
}

/* Nothing begins, and nobody is told, from inside a call. */
static void take_turn(struct flyt_store_writer *store_writer)
{
    sd_event_source_set_enabled(store_writer->turn, SD_EVENT_ONESHOT);
}

static void set_available(struct flyt_store_writer *store_writer, bool is_available, const char *cause)
{
    if (store_writer->is_available == is_available || store_writer->is_ending)
        return;
    store_writer->is_available = is_available;
    store_writer->config.turned(is_available, cause, store_writer->config.user);
}

void flyt_store_writer_note(struct flyt_store_writer *store_writer, const char *operation,
                            enum flyt_store_result result, uint64_t took_us, const struct flyt_error *err)
{
    bool has_failed = result != FLYT_STORE_OK && result != FLYT_STORE_NOT_FOUND;

    if (result == FLYT_STORE_UNAVAILABLE || result == FLYT_STORE_UNKNOWN)
        set_available(store_writer, false, err->text);
    else if (result != FLYT_STORE_BROKEN)
        set_available(store_writer, true, "");
    if (store_writer->config.measured)
        store_writer->config.measured(operation, has_failed, took_us, store_writer->config.user);
}

static void judge(struct flyt_store_writer *store_writer, const struct job *job)
{
    flyt_store_writer_note(store_writer, job->operation, job->result, job->took_us, &job->err);
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
static struct record_list *list_of(struct flyt_record *record)
{
    struct flyt_store_writer *store_writer = record->store_writer;

    return record->is_resting   ? &store_writer->resting
           : record->is_awaited ? &store_writer->awaited
                                : &store_writer->queue;
}

static void destroy(struct flyt_record *record)
{
    if (record->is_queued) {
        TAILQ_REMOVE(list_of(record), record, link);
        record->store_writer->queued_count--;
    }
    free_job(record->check);
    STAILQ_CONCAT(&record->store_writer->left, &record->now);
    STAILQ_CONCAT(&record->store_writer->left, &record->next);
    free(record->id);
    free(record);
}

static int on_turn(sd_event_source *source, void *user)
{
    struct flyt_store_writer *store_writer = user;

    tell_left(store_writer);
    pump(store_writer);
    return 0;
}

static int on_timer(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_store_writer *store_writer = user;
    struct flyt_record *record;

    TAILQ_FOREACH(record, &store_writer->resting, link)
    record->is_resting = false;
    TAILQ_CONCAT(&store_writer->queue, &store_writer->resting, link);
    pump(store_writer);
    return 0;
}

/* What somebody waits for is not behind the thousands that a new cluster's nodes have to record. */
static void enqueue(struct flyt_record *record)
{
    bool is_awaited = !STAILQ_EMPTY(&record->next);

    if (record->is_queued && (record->is_resting || record->is_awaited || !is_awaited))
        return;
    if (record->is_queued)
        TAILQ_REMOVE(&record->store_writer->queue, record, link);
    else
        record->store_writer->queued_count++;
    record->is_queued = true;
    record->is_awaited = is_awaited;
    TAILQ_INSERT_TAIL(list_of(record), record, link);
}

/* The next to be written, taken out of its list; NULL: none. */
static struct flyt_record *dequeue(struct flyt_store_writer *store_writer)
{
    struct flyt_record *record = TAILQ_FIRST(&store_writer->awaited), *other = TAILQ_FIRST(&store_writer->queue);

    if (!record || (other && store_writer->awaited_in_turn == AWAITED_IN_TURN))
        record = other;
    if (!record)
        return NULL;
    store_writer->awaited_in_turn = record->is_awaited ? store_writer->awaited_in_turn % AWAITED_IN_TURN + 1 : 0;
    TAILQ_REMOVE(list_of(record), record, link);
    record->is_queued = record->is_awaited = false;
    store_writer->queued_count--;
    return record;
}

/* To the ones that are tried again in a second. It is in no list. */
static void rest(struct flyt_record *record)
{
    struct flyt_store_writer *store_writer = record->store_writer;

    store_writer->queued_count++;
    record->is_queued = record->is_resting = true;
    record->is_awaited = false;
    TAILQ_INSERT_TAIL(&store_writer->resting, record, link);
    if (TAILQ_FIRST(&store_writer->resting) != record)
        return; /* the timer runs */
    sd_event_source_set_time(store_writer->timer, flyt_clock_ns() / 1000 + RETRY_MS * 1000);
    sd_event_source_set_enabled(store_writer->timer, SD_EVENT_ONESHOT);
}

static void written(void *data, int is_cancelled);
static void end_write(struct job *job);

static void submit(struct flyt_record *record, struct job *job)
{
    struct flyt_store_writer *store_writer = record->store_writer;

    record->is_writing = true;
    store_writer->writing_count++;
    int status = flyt_worker_do(store_writer->worker, work, written, job);
    if (!status)
        return;
    job->result = FLYT_STORE_UNAVAILABLE;
    flyt_error_set(&job->err, status, "too much work waits for the store");
    end_write(job);
}

/* NULL: no memory, be it for one member only. */
static cJSON *make_whole(struct flyt_record *record)
{
    uint64_t failures = flyt_json_failures();
    cJSON *document = record->make(record->object);

    if (flyt_json_failures() == failures)
        return document;
    flyt_fail("store: %s %s was not written: there is no memory for all of it", record->collection, record->id);
    cJSON_Delete(document);
    return NULL;
}

static void write_record(struct flyt_record *record)
{
    struct job *job = record->check;

    if (job) {
        record->check = NULL;
        submit(record, job);
        return;
    }
    job = calloc(1, sizeof *job);
    record->is_dirty = false;
    STAILQ_CONCAT(&record->now, &record->next);
    if (!job || (!record->is_doomed && record->object && !(job->document = make_whole(record)))) {
        free(job);
        record->is_dirty = true;
        tell(&record->now, FLYT_STORE_UNAVAILABLE, "no memory");
        if (!record->is_queued) /* who was told may have changed it */
            rest(record);
        return;
    }
    job->store_writer = record->store_writer;
    job->operation = record->is_doomed ? "delete" : "put";
    job->record = record;
    job->revision = record->revision;
    submit(record, job);
}

static void pump(struct flyt_store_writer *store_writer)
{
    struct flyt_record *record;

    if (store_writer->is_paused || store_writer->is_ending)
        return;
    while (store_writer->writing_count < WRITES_AT_ONCE && (record = dequeue(store_writer))) {
        if (record->is_writing)
            continue; /* it comes back when that has ended */
        if (!record->object && !record->is_doomed) {
            destroy(record);
            continue;
        }
        write_record(record);
    }
}

static void settle_conflict(struct flyt_record *record, struct job *job)
{
    struct flyt_store_writer *store_writer = record->store_writer;
    uint64_t epoch =
        job->found ? flyt_json_number(job->found, "epoch") : 0; /* one that no leader can have written is none */

    record->revision = job->found ? flyt_json_number(job->found, "revision") : 0;
    record->is_dirty = true;
    if (epoch > store_writer->epoch && epoch <= FLYT_EPOCH_MAX) {
        store_writer->is_paused = true;
        store_writer->config.overruled(epoch, store_writer->config.user);
        return;
    }
    flyt_warn("store: %s %s was changed by somebody else and is written again", record->collection, record->id);
}

static void end_write(struct job *job)
{
    struct flyt_record *record = job->record;
    struct flyt_store_writer *store_writer = job->store_writer;

    store_writer->writing_count--;
    record->is_writing = false;
    judge(store_writer, job);
    if (job->result == FLYT_STORE_UNKNOWN) {
        /* Nobody is told before it is known. */
        job->is_check = true;
        record->check = job;
        rest(record);
        return;
    }
    if (job->result == FLYT_STORE_BROKEN)
        flyt_fail("store: %s %s could not be written: %s", record->collection, record->id, job->err.text);
    if (job->result == FLYT_STORE_OK)
        record->revision = job->document ? job->revision + 1 : 0;
    else if (job->result == FLYT_STORE_CONFLICT)
        settle_conflict(record, job);
    else
        record->is_dirty = true;
    bool is_done = job->result == FLYT_STORE_OK, is_gone = is_done && !job->document;
    tell(&record->now, job->result, job->err.text[0] ? job->err.text : "the store has changed meanwhile");
    free_job(job);
    if (is_gone || (!record->object && !record->is_doomed)) {
        destroy(record);
    } else if (record->is_dirty && !record->is_queued) {
        if (is_done)
            enqueue(record);
        else
            rest(record);
    }
}

static void written(void *data, int is_cancelled)
{
    struct job *job = data;
    struct flyt_record *record = job->record;
    struct flyt_store_writer *store_writer = job->store_writer;

    if (!is_cancelled) {
        end_write(job);
        pump(store_writer);
        return;
    }
    store_writer->writing_count--;
    record->is_writing = false;
    free_job(job);
    if (!record->is_queued && !record->object)
        destroy(record);
}

int flyt_store_writer_new(const struct flyt_store_writer_config *config, struct flyt_store_writer **ret_store_writer)
{
    struct flyt_store_writer *store_writer = calloc(1, sizeof *store_writer);

    if (!store_writer)
        return -ENOMEM;
    store_writer->config = *config;
    store_writer->is_available = true;
    TAILQ_INIT(&store_writer->awaited);
    TAILQ_INIT(&store_writer->queue);
    TAILQ_INIT(&store_writer->resting);
    STAILQ_INIT(&store_writer->left);
    int status = flyt_worker_new(config->event, "flyt-store", JOBS_MAX, &store_writer->worker);
    if (!status)
        status = sd_event_add_time(config->event, &store_writer->timer, CLOCK_MONOTONIC, UINT64_MAX, 0, on_timer,
                                   store_writer);
    if (status >= 0)
        status = sd_event_add_defer(config->event, &store_writer->turn, on_turn, store_writer);
    if (status < 0) {
        flyt_worker_free(store_writer->worker);
        sd_event_source_unref(store_writer->timer);
        free(store_writer);
        return status;
    }
    sd_event_source_set_enabled(store_writer->timer, SD_EVENT_OFF);
    sd_event_source_set_enabled(store_writer->turn, SD_EVENT_OFF);
    *ret_store_writer = store_writer;
    return 0;
}

bool flyt_store_writer_finish(struct flyt_store_writer *store_writer, uint64_t timeout_ms)
{
    return flyt_worker_finish(store_writer->worker, timeout_ms);
}

struct flyt_store_writer *flyt_store_writer_free(struct flyt_store_writer *store_writer)
{
    if (!store_writer)
        return NULL;
    struct flyt_record *record;

    store_writer->is_ending = true;
    flyt_worker_free(store_writer->worker);
    while ((record = TAILQ_FIRST(&store_writer->awaited)) || (record = TAILQ_FIRST(&store_writer->queue)) ||
           (record = TAILQ_FIRST(&store_writer->resting)))
        destroy(record);
    tell_left(store_writer);
    sd_event_source_disable_unref(store_writer->timer);
    sd_event_source_disable_unref(store_writer->turn);
    flyt_store_close(store_writer->config.store);
    free(store_writer);
    return NULL;
}

struct flyt_store *flyt_store_writer_store(struct flyt_store_writer *store_writer)
{
    return store_writer->config.store;
}

void flyt_store_writer_set_epoch(struct flyt_store_writer *store_writer, uint64_t epoch)
{
    store_writer->epoch = epoch;
}

void flyt_store_writer_hold(struct flyt_store_writer *store_writer, bool is_paused)
{
    store_writer->is_paused = is_paused;
    take_turn(store_writer);
}

size_t flyt_store_writer_waiting(const struct flyt_store_writer *store_writer)
{
    return store_writer->queued_count + store_writer->writing_count;
}

struct flyt_record *flyt_record_new(struct flyt_store_writer *store_writer, const char *collection, const char *id,
                                    uint64_t revision, cJSON *(*make)(void *object), void *object)
{
    struct flyt_record *record = calloc(1, sizeof *record);

    if (!record)
        return NULL;
    record->store_writer = store_writer;
    record->collection = collection;
    record->id = strdup(id);
    record->revision = revision;
    record->make = make;
    record->object = object;
    STAILQ_INIT(&record->now);
    STAILQ_INIT(&record->next);
    if (!record->id) {
        free(record);
        return NULL;
    }
    return record;
}

struct flyt_record *flyt_record_free(struct flyt_record *record)
{
    if (!record)
        return NULL;
    record->object = NULL;
    STAILQ_CONCAT(&record->store_writer->left, &record->now);
    STAILQ_CONCAT(&record->store_writer->left, &record->next);
    take_turn(record->store_writer);
    if (!record->is_writing && !record->is_queued)
        destroy(record);
    return NULL;
}

void flyt_record_change(struct flyt_record *record, struct flyt_record_wait *wait)
{
    record->is_dirty = true;
    if (wait)
        STAILQ_INSERT_TAIL(&record->next, wait, link);
    if (!record->is_writing)
        enqueue(record);
    take_turn(record->store_writer);
}

void flyt_record_delete(struct flyt_record *record, struct flyt_record_wait *wait)
{
    record->is_doomed = true;
    record->object = NULL;
    flyt_record_change(record, wait);
}

static void work_done(void *data, int is_cancelled)
{
    struct job *job = data;

    if (!is_cancelled)
        judge(job->store_writer, job);
    job->done(job->user, is_cancelled);
    free(job);
}

int flyt_store_writer_do(struct flyt_store_writer *store_writer, const char *operation,
                         enum flyt_store_result (*work_fn)(struct flyt_store *store, void *job, struct flyt_error *err),
                         void (*done)(void *job, int is_cancelled), void *user)
{
    struct job *job = calloc(1, sizeof *job);

    if (!job)
        return -ENOMEM;
    *job =
        (struct job){.store_writer = store_writer, .operation = operation, .work = work_fn, .done = done, .user = user};
    int status = flyt_worker_do(store_writer->worker, work, work_done, job);
    if (status)
        free(job);
    return status;
}
