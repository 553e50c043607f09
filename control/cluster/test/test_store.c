/* The store, and its thread: what control/cluster/io/store_writer.c is to the program. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include <cmocka.h>

#include "control/cluster/test/test_state.h"
#include "control/store/store.h"
#include "control/store/store_ops.h"
#include "rpc/base/error.h"

struct flyt_record {
    char collection[32], id[64];
    cJSON *(*make)(void *object);
    void *object;
    struct flyt_record_waits waiting, writing; /* for the next write, for the one under way */
    struct flyt_record *next;                  /* in the queue */
    bool is_queued;
};

/* Other work on the store's thread. */
struct job {
    enum flyt_store_result (*work)(struct flyt_store *store, void *job, struct flyt_error *err);
    void (*done)(void *job, int is_cancelled);
    void *user;
    struct job *next;
};

struct flyt_record *flyt_record_new(struct flyt_store_writer *store_writer, const char *collection, const char *id,
                                    uint64_t revision, cJSON *(*make)(void *object), void *object)
{
    struct flyt_record *record = calloc(1, sizeof *record);

    assert_non_null(record);
    snprintf(record->collection, sizeof record->collection, "%s", collection);
    snprintf(record->id, sizeof record->id, "%s", id);
    record->make = make;
    record->object = object;
    STAILQ_INIT(&record->waiting);
    STAILQ_INIT(&record->writing);
    return record;
}

static void tell(struct flyt_record_waits *waits, enum flyt_store_result result)
{
    struct flyt_record_waits told = STAILQ_HEAD_INITIALIZER(told);
    struct flyt_record_wait *wait;

    STAILQ_CONCAT(&told, waits);
    while ((wait = STAILQ_FIRST(&told))) {
        STAILQ_REMOVE_HEAD(&told, link);
        wait->done(wait->user, result, result == FLYT_STORE_OK ? "" : "the disk is full");
    }
}

struct flyt_record *flyt_record_free(struct flyt_record *record)
{
    if (!record)
        return NULL;
    struct flyt_record **at = &the_world->queue;
    while (*at && *at != record)
        at = &(*at)->next;
    if (*at)
        *at = record->next;
    if (the_world->busy == record) {
        the_world->busy = NULL;
        cJSON_Delete(the_world->snapshot);
        the_world->snapshot = NULL;
    }
    STAILQ_CONCAT(&the_world->left, &record->writing);
    STAILQ_CONCAT(&the_world->left, &record->waiting);
    free(record);
    return NULL;
}

void world_tell_left(struct world *world)
{
    tell(&world->left, FLYT_STORE_UNAVAILABLE);
}

void flyt_record_change(struct flyt_record *record, struct flyt_record_wait *wait)
{
    struct flyt_record **last = &the_world->queue;

    if (wait)
        STAILQ_INSERT_TAIL(&record->waiting, wait, link);
    if (record->is_queued)
        return;
    record->is_queued = true;
    record->next = NULL;
    while (*last)
        last = &(*last)->next;
    *last = record;
}

int flyt_store_writer_do(struct flyt_store_writer *store_writer, const char *operation,
                         enum flyt_store_result (*work)(struct flyt_store *store, void *job, struct flyt_error *err),
                         void (*done)(void *job, int is_cancelled), void *user)
{
    struct job **end = &the_world->jobs, *job = calloc(1, sizeof *job);

    assert_non_null(job);
    *job = (struct job){work, done, user, NULL};
    while (*end)
        end = &(*end)->next;
    *end = job;
    return 0;
}

enum flyt_store_result flyt_store_edit(struct flyt_store *store, const char *collection, const char *id,
                                       int (*edit)(cJSON **document, void *user, struct flyt_error *err), void *user,
                                       struct flyt_error *err, int *ret_status)
{
    cJSON *document = cJSON_DetachItemFromObjectCaseSensitive(the_world->documents, id);
    cJSON *before = document ? cJSON_Duplicate(document, true) : NULL;

    *ret_status = edit(&document, user, err);
    if (*ret_status) {
        cJSON_Delete(document);
        document = before;
    } else {
        cJSON_Delete(before);
    }
    if (document)
        cJSON_AddItemToObject(the_world->documents, id, document);
    return FLYT_STORE_OK;
}

bool world_run_job(struct world *world)
{
    struct job *job = world->jobs;
    struct flyt_error err = {0};

    if (!job)
        return false;
    world->jobs = job->next;
    job->work(NULL, job->user, &err);
    job->done(job->user, 0);
    free(job);
    return true;
}

void world_end_write(struct world *world, bool may_fail)
{
    struct flyt_record *record = world->busy;
    unsigned chance = may_fail ? world_random(world, 10) : 9;
    const cJSON *entry;

    /* 0: it was not written; 1: it was, and nobody knows */
    if (chance && !strcmp(record->collection, "gpus")) {
        cJSON_DeleteItemFromObjectCaseSensitive(world->gpus, record->id);
        cJSON_ArrayForEach(entry, cJSON_GetObjectItemCaseSensitive(world->snapshot, "allocations"))
            world_entry_written(world, entry);
        cJSON_ArrayForEach(entry, cJSON_GetObjectItemCaseSensitive(world->snapshot, "arriving"))
            world_arriving_written(world, record->id, entry);
        cJSON_AddItemToObject(world->gpus, record->id, world->snapshot);
    } else {
        cJSON_Delete(world->snapshot);
    }
    world->snapshot = NULL;
    world->busy = NULL;
    tell(&record->writing, chance > 1 ? FLYT_STORE_OK : chance ? FLYT_STORE_UNKNOWN : FLYT_STORE_UNAVAILABLE);
}

/* The next to be written: what somebody waits for goes first. */
static struct flyt_record *dequeue(struct world *world)
{
    struct flyt_record **at = &world->queue;

    while (*at && STAILQ_EMPTY(&(*at)->waiting))
        at = &(*at)->next;
    if (!*at)
        at = &world->queue;
    struct flyt_record *record = *at;
    *at = record->next;
    record->is_queued = false;
    return record;
}

bool world_store(struct world *world, bool may_fail)
{
    if (world->busy) {
        world_end_write(world, may_fail);
    } else if (world->queue && (!world->jobs || world_random(world, 2))) {
        struct flyt_record *record = dequeue(world);
        STAILQ_CONCAT(&record->writing, &record->waiting);
        world->busy = record;
        world->snapshot = record->make(record->object);
        assert_non_null(world->snapshot);
    } else if (!world_run_job(world)) {
        return false;
    }
    world_turn(world);
    return true;
}

void world_refuse(struct world *world)
{
    for (struct flyt_record *record = world->queue; record; record = record->next)
        tell(&record->waiting, FLYT_STORE_UNAVAILABLE);
    world_turn(world);
}

enum flyt_store_result flyt_store_list(struct flyt_store *store, const char *collection, const char *after,
                                       unsigned limit, struct flyt_error *err, cJSON **ret_documents)
{
    const cJSON *document;

    *ret_documents = cJSON_CreateArray();
    if (strcmp(collection, "vm_required_resources") != 0)
        return FLYT_STORE_OK;
    cJSON_ArrayForEach(document, the_world->documents)
    {
        cJSON *read = cJSON_Duplicate(document, true);
        cJSON_AddStringToObject(read, "_id", document->string);
        cJSON_AddItemToArray(*ret_documents, read);
    }
    return FLYT_STORE_OK;
}
