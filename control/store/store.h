/*
 * Where the cluster manager keeps what must outlive it: documents in collections, each with a revision. Two
 * implementations: a SQLite file (sqlite.c) and MongoDB (mongodb.c); one test suite runs over both.
 *
 * The unit is one document. put and delete succeed only at the revision that the caller has read (compare and set);
 * there are no transactions, so every invariant must hold within one document. raise changes many documents, each for
 * itself.
 *
 * All calls block (the store has a thread of its own, control/base/worker.h) up to the time-out that the store was
 * opened with (2,000–3,000 ms), and are made from one thread. After FLYT_STORE_UNKNOWN the document may or may not have
 * been written: read it again before replying to anybody.
 *
 * A document is a cJSON object. Its members "_id" (a string) and "revision" (integer, absent or no positive integer in
 * documents that people wrote by hand: 0) belong to the store. Integers are exact up to 2^53, doubles are kept bit for
 * bit; what JSON has no word for (dates, ObjectIds, integers beyond 2^53, NaN) stands there as MongoDB's relaxed
 * extended JSON ({"$date": …}) and is written back as what it was. People who change documents in MongoDB do not raise
 * the revision: who looks for changes compares documents, not revisions.
 *
 * The outermost members of a document that is put are not called "_broken" and do not begin with '$'.
 *
 * An _id that is no string (ObjectId, number: documents that people insert) appears as its canonical extended JSON
 * ({"$oid":"…"}, {"$value":true}), which every call takes as `id` too. Text that begins with {"$ is therefore no id of
 * a string.
 *
 * A document that cannot be understood (longer than FLYT_STORE_DOCUMENT_BYTES_MAX, nested deeper than
 * FLYT_STORE_DEPTH_MAX, damaged text) does not hide the others: flyt_store_list gives {"_id", "revision", "_broken":
 * sentence} in its place. Who decides from a collection must look for "_broken". flyt_store_get says BROKEN.
 */
#ifndef FLYT_CONTROL_STORE_H
#define FLYT_CONTROL_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cjson/cJSON.h>

#include "rpc/base/error.h"

struct flyt_store;

enum flyt_store_result {
    FLYT_STORE_OK = 0,
    FLYT_STORE_NOT_FOUND = 1,
    FLYT_STORE_CONFLICT = 2,    /* another revision is there */
    FLYT_STORE_UNAVAILABLE = 3, /* down, slow, no primary: nothing was changed */
    FLYT_STORE_UNKNOWN = 4,     /* a write whose outcome is not known */
    FLYT_STORE_BROKEN = 5, /* a document cannot be understood or is not allowed, disk full, damaged file, wrong schema:
                              nothing was changed, *err says which */
};

enum {
    FLYT_STORE_SCHEMA = 1,
    FLYT_STORE_DOCUMENT_BYTES_MAX = 4 << 20, /* as JSON text */
    FLYT_STORE_DEPTH_MAX = 64,               /* objects and arrays inside each other, the document included */
    FLYT_STORE_ID_BYTES_MAX = 512,
    FLYT_STORE_COLLECTION_BYTES_MAX = 64, /* letters, digits, '_' */
};

/*
 * Opens "sqlite:///PATH" or a "mongodb://…/DATABASE" URI. SQLite: makes the file (mode 0600), holds a lock on it for
 * its lifetime: -EBUSY names the manager that has it (pid, since when); a damaged file is -EUCLEAN. Both: checks the
 * schema's version and migrates forward; a newer one is -EPROTO. MongoDB that cannot be reached now is no error: the
 * calls say UNAVAILABLE until it is there (and BROKEN if its schema is then a newer one). timeout_ms: of every later
 * call. -EINVAL: the URI is bad. 0 and *ret_store, or a negative errno and *err.
 */
int flyt_store_open(const char *uri, unsigned timeout_ms, struct flyt_error *err, struct flyt_store **ret_store);
/* NULL is allowed. Returns NULL. */
struct flyt_store *flyt_store_close(struct flyt_store *store);
/* Whether several managers may share it: leadership by lease, documents changed by others' hands. */
bool flyt_store_is_shared(const struct flyt_store *store);
/* For people: "sqlite /var/lib/flyt/store.db", "mongodb host1,host2/flyt". Never a password. The store's. */
const char *flyt_store_name(const struct flyt_store *store);
/* "not found", "conflict", … : the word for a result. */
const char *flyt_store_result_name(enum flyt_store_result result);

/* What every call may say besides what stands at it: OK, UNAVAILABLE, BROKEN. *err is filled whenever the result is not
 * OK; outputs are untouched then. err NULL is allowed. */

/* NOT_FOUND. *ret_document belongs to the caller (cJSON_Delete). */
enum flyt_store_result flyt_store_get(struct flyt_store *store, const char *collection, const char *id,
                                      struct flyt_error *err, cJSON **ret_document);
/* An array of all documents of a collection with an _id greater than `after` (NULL: from the first), by _id, at most
 * `limit` (0: all). *ret_documents belongs to the caller. */
enum flyt_store_result flyt_store_list(struct flyt_store *store, const char *collection, const char *after,
                                       unsigned limit, struct flyt_error *err, cJSON **ret_documents);
/*
 * Writes a document if the one that is there has this revision; 0: if there is none (or one without a revision, that
 * somebody wrote by hand: then its body must still be `seen`, NULL where none was seen). `seen` given with a revision:
 * its body must still be that too, so that changes by hand, which keep the revision, are not lost. Its revision becomes
 * revision + 1, which is also set in `document`, in which "_id" is set to id; on failure `document` is untouched.
 * CONFLICT: another revision or body is there, or one where none was seen. NOT_FOUND: there is none any more. UNKNOWN.
 */
enum flyt_store_result flyt_store_put(struct flyt_store *store, const char *collection, const char *id,
                                      uint64_t revision, const cJSON *seen, cJSON *document, struct flyt_error *err);
/* Removes a document that has this revision (0: none). CONFLICT, NOT_FOUND, UNKNOWN. */
enum flyt_store_result flyt_store_delete(struct flyt_store *store, const char *collection, const char *id,
                                         uint64_t revision, struct flyt_error *err);

/*
 * Raises the number `name` to `value` (1 to 2^53 - 1) in every document of a collection that has a revision and in
 * which it is lower, no number, or absent; everything else in them stays, their revision becomes one more. So whoever
 * has read one of them before can put or delete it no more (CONFLICT), and repeating it changes nothing. Documents
 * without a revision (0, written by people) and those that cannot be understood may stay as they are: who needs all of
 * them reads them afterwards. name: as a collection's, neither "revision" nor with '_' in front.
 *
 * OK: all of them, of those that were there when it began. *ret_count (NULL is allowed): how many were changed.
 * UNKNOWN: none, some or all were; no outcome else has changed any. SQLite changes all of them or none.
 */
enum flyt_store_result flyt_store_raise(struct flyt_store *store, const char *collection, const char *name,
                                        uint64_t value, struct flyt_error *err, uint64_t *ret_count);

/*
 * A consistent copy of everything into a new file at path (SQLite: its online backup; MongoDB: extended JSON, one
 * document per line with its collection, each document as it was at some time during the call). -EEXIST: the file is
 * there. 0 or a negative errno and *err; then there is no file. Its mode is 0600.
 */
int flyt_store_backup(struct flyt_store *store, const char *path, struct flyt_error *err);

#endif
