/* The store, and its thread: what control/cluster/io/keep.c is to the program. */
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

struct flyt_kept {
    char collection[32], id[64];
    cJSON *(*make)(void *object);
    void *object;
    struct flyt_kept_waits waiting, writing; /* for the next write, for the one under way */
    struct flyt_kept *next;                  /* in the queue */
    bool is_queued;
};

/* Other work on the store's thread. */
struct job {
    enum flyt_store_result (*work)(struct flyt_store *store, void *job, struct flyt_error *err);
    void (*done)(void *job, int is_cancelled);
    void *user;
    struct job *next;
};

struct flyt_kept *flyt_kept_new(struct flyt_keeper *keeper, const char *collection, const char *id, uint64_t revision,
                                cJSON *(*make)(void *object), void *object)
{
    struct flyt_kept *kept = calloc(1, sizeof *kept);

    assert_non_null(kept);
    snprintf(kept->collection, sizeof kept->collection, "%s", collection);
    snprintf(kept->id, sizeof kept->id, "%s", id);
    kept->make = make;
    kept->object = object;
    STAILQ_INIT(&kept->waiting);
    STAILQ_INIT(&kept->writing);
    return kept;
}

static void tell(struct flyt_kept_waits *waits, enum flyt_store_result result)
{
    struct flyt_kept_waits told = STAILQ_HEAD_INITIALIZER(told);
    struct flyt_kept_wait *wait;

    STAILQ_CONCAT(&told, waits);
    while ((wait = STAILQ_FIRST(&told))) {
        STAILQ_REMOVE_HEAD(&told, link);
        wait->done(wait->user, result, result == FLYT_STORE_OK ? "" : "the disk is full");
    }
}

struct flyt_kept *flyt_kept_free(struct flyt_kept *kept)
{
    if (!kept)
        return NULL;
    struct flyt_kept **at = &the_world->queue;
    while (*at && *at != kept)
        at = &(*at)->next;
    if (*at)
        *at = kept->next;
    if (the_world->busy == kept) {
        the_world->busy = NULL;
        cJSON_Delete(the_world->snapshot);
        the_world->snapshot = NULL;
    }
    STAILQ_CONCAT(&the_world->left, &kept->writing);
    STAILQ_CONCAT(&the_world->left, &kept->waiting);
    free(kept);
    return NULL;
}

void world_tell_left(struct world *world)
{
    tell(&world->left, FLYT_STORE_UNAVAILABLE);
}

void flyt_kept_change(struct flyt_kept *kept, struct flyt_kept_wait *wait)
{
    struct flyt_kept **last = &the_world->queue;

    if (wait)
        STAILQ_INSERT_TAIL(&kept->waiting, wait, link);
    if (kept->is_queued)
        return;
    kept->is_queued = true;
    kept->next = NULL;
    while (*last)
        last = &(*last)->next;
    *last = kept;
}

int flyt_keeper_do(struct flyt_keeper *keeper, const char *operation,
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
    struct flyt_kept *kept = world->busy;
    unsigned chance = may_fail ? world_random(world, 10) : 9;
    const cJSON *entry;

    /* 0: it was not written; 1: it was, and nobody knows */
    if (chance && !strcmp(kept->collection, "gpus")) {
        cJSON_DeleteItemFromObjectCaseSensitive(world->gpus, kept->id);
        cJSON_ArrayForEach(entry, cJSON_GetObjectItemCaseSensitive(world->snapshot, "allocations"))
            world_entry_written(world, entry);
        cJSON_ArrayForEach(entry, cJSON_GetObjectItemCaseSensitive(world->snapshot, "arriving"))
            world_arriving_written(world, kept->id, entry);
        cJSON_AddItemToObject(world->gpus, kept->id, world->snapshot);
    } else {
        cJSON_Delete(world->snapshot);
    }
    world->snapshot = NULL;
    world->busy = NULL;
    tell(&kept->writing, chance > 1 ? FLYT_STORE_OK : chance ? FLYT_STORE_UNKNOWN : FLYT_STORE_UNAVAILABLE);
}

bool world_store(struct world *world, bool may_fail)
{
    if (world->busy) {
        world_end_write(world, may_fail);
    } else if (world->queue && (!world->jobs || world_random(world, 2))) {
        struct flyt_kept *kept = world->queue;
        world->queue = kept->next;
        kept->is_queued = false;
        STAILQ_CONCAT(&kept->writing, &kept->waiting);
        world->busy = kept;
        world->snapshot = kept->make(kept->object);
        assert_non_null(world->snapshot);
    } else if (!world_run_job(world)) {
        return false;
    }
    world_turn(world);
    return true;
}

void world_refuse(struct world *world)
{
    for (struct flyt_kept *kept = world->queue; kept; kept = kept->next)
        tell(&kept->waiting, FLYT_STORE_UNAVAILABLE);
    world_turn(world);
}

/* Documents come by world_document. */
enum flyt_store_result flyt_store_list(struct flyt_store *store, const char *collection, const char *after,
                                       unsigned limit, struct flyt_error *err, cJSON **ret_documents)
{
    return FLYT_STORE_UNAVAILABLE;
}
