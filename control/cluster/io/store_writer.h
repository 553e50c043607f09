/*
 * The store's thread, and documents that are kept in the store as the model changes.
 *
 * A record belongs to an object of the model, which can make it at any time. A change of the object is followed
 * by flyt_record_change: the document is written (compare and set), and each who asked is told. Changes that come while
 * a write is under way share the next one. Who is told of a failure takes his change back before the next write begins;
 * what was not written and not taken back is tried again every second, so that store and model meet in the end.
 *
 * After an unknown outcome the document is read again, and only then is anybody told. Everything here belongs to the
 * loop's thread. Callbacks come from the loop, never from inside a call: whoever asks for a write goes on as it was.
 */
#ifndef FLYT_CLUSTER_STORE_WRITER_H
#define FLYT_CLUSTER_STORE_WRITER_H

#include <cjson/cJSON.h>
#include <sys/queue.h>
#include <systemd/sd-event.h>

#include "control/store/store.h"

struct flyt_store_writer;
struct flyt_record;

struct flyt_store_writer_config {
    sd_event *event;
    struct flyt_store *store; /* taken over: closed at the end, used on the store's thread only */
    void *user;
    /* Somebody else has written a record with a higher epoch: this manager leads no longer. */
    void (*overruled)(uint64_t epoch, void *user);
    /* The store answers, or not any more (`cause`). */
    void (*turned)(bool is_available, const char *cause, void *user);
    /* For metrics: one operation and how long it took. */
    void (*measured)(const char *operation, bool has_failed, uint64_t took_us, void *user);
};

int flyt_store_writer_new(const struct flyt_store_writer_config *config, struct flyt_store_writer **ret_store_writer);
/* Waits, at an end, until what was given to the store's thread is done, or so long. */
bool flyt_store_writer_finish(struct flyt_store_writer *store_writer, uint64_t timeout_ms);
/* Waits for what is under way; who still waits for a write is told UNAVAILABLE. Kept documents were freed or deleted
 * before (flyt_record_free, flyt_record_delete). */
struct flyt_store_writer *flyt_store_writer_free(struct flyt_store_writer *store_writer);
/* What an operation on the same store, made over another connection, has shown of it (FLYT_STORE_OK …; `err`: why). For
 * the store writer's view of its health, and for metrics. */
void flyt_store_writer_note(struct flyt_store_writer *store_writer, const char *operation,
                            enum flyt_store_result result, uint64_t took_us, const struct flyt_error *err);
/* For its thread (flyt_store_writer_do). */
struct flyt_store *flyt_store_writer_store(struct flyt_store_writer *store_writer);
/* The epoch of this manager, written into documents that have one, and compared. */
void flyt_store_writer_set_epoch(struct flyt_store_writer *store_writer, uint64_t epoch);
/* Nothing is written any more (another leads), or again. */
void flyt_store_writer_hold(struct flyt_store_writer *store_writer, bool is_paused);
/* Writes that wait. */
size_t flyt_store_writer_waiting(const struct flyt_store_writer *store_writer);

/* `err`: why, "" where result is OK. */
typedef void (*flyt_record_done_fn)(void *user, enum flyt_store_result result, const char *err);

/* Who waits for a write. It is the store writer's until `done` is called, once; that may free it. */
struct flyt_record_wait {
    flyt_record_done_fn done;
    void *user;
    STAILQ_ENTRY(flyt_record_wait) link;
};
STAILQ_HEAD(flyt_record_waits, flyt_record_wait);

/* make: the document of `object`, NULL where there is no memory. revision: what the store has, 0: nothing. The
 * collection's name is borrowed, id copied. NULL: no memory. */
struct flyt_record *flyt_record_new(struct flyt_store_writer *store_writer, const char *collection, const char *id,
                                    uint64_t revision, cJSON *(*make)(void *object), void *object);
/* The object goes: nothing is made of it any more, and who waits is told UNAVAILABLE. The document stays.
 * NULL is allowed. */
struct flyt_record *flyt_record_free(struct flyt_record *record);
/* Writes the document. wait (may be NULL) is told. */
void flyt_record_change(struct flyt_record *record, struct flyt_record_wait *wait);
/* Deletes it, then frees the record; wait (may be NULL) is told, also where there was none (OK). The object may go at
 * once.
 */
void flyt_record_delete(struct flyt_record *record, struct flyt_record_wait *wait);

/*
 * Any other work on the store's thread: work, then done on the loop (with is_cancelled at the end of the store writer:
 * then it only frees). work returns what the store said last, for the store writer's view of its health, and in err
 * why, where that is not OK. 0 or a negative errno.
 */
int flyt_store_writer_do(struct flyt_store_writer *store_writer, const char *operation,
                         enum flyt_store_result (*work)(struct flyt_store *store, void *job, struct flyt_error *err),
                         void (*done)(void *job, int is_cancelled), void *job);

/*
 * On the store's thread: reads a document, lets `edit` change it (*document NULL: there is none; NULL afterwards: to
 * be deleted), and writes it if nobody else did meanwhile, else again. edit returns 0, or negative and *err. Returns
 * the store's result; *ret_status is what edit returned.
 */
enum flyt_store_result flyt_store_edit(struct flyt_store *store, const char *collection, const char *id,
                                       int (*edit)(cJSON **document, void *user, struct flyt_error *err), void *user,
                                       struct flyt_error *err, int *ret_status);

#endif
