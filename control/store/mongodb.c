/*
 * The store in MongoDB. Commands are written out here rather than made by the driver's helpers, because each outcome
 * must be known for what it is: what failed before anything was sent changed nothing, what failed afterwards is
 * unknown. The driver therefore repeats nothing (retryWrites and retryReads are off), and a connection on which
 * something failed is thrown away with its client, which also ends the driver's back-off for servers that were down.
 *
 * Writes wait for a majority. Reads of one document are linearizable where that exists (replica sets, sharded
 * clusters), so that an old primary's view decides nothing; lists are of majority-committed documents.
 */
#include <errno.h>
#include <fcntl.h>
#include <mongoc/mongoc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/store/bson_document.h"
#include "control/store/json.h"
#include "control/store/store_ops.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"

enum {
    CONNECT_MS_MAX = 1000, /* of the time-out: for TCP, TLS and the greeting, each */
    BATCH_DOCUMENTS = 1000,
    DUPLICATE_KEY = 11000, /* the server's code, src/mongo/base/error_codes.yml; as those below */
};

/* The server's codes for "not primary": it has not begun. */
static const int not_primary_codes[] = {10107, 13435, 13436, 10058};
/* Its codes for an operation that was interrupted: by a step-down, a shutdown, the network inside, a time limit, and
 * for a cursor that it has forgotten. */
static const int interrupted_codes[] = {6, 7, 43, 50, 64, 89, 91, 189, 262, 9001, 11600, 11601, 11602};

struct mongodb_store {
    struct flyt_store store;
    mongoc_uri_t *uri;
    mongoc_client_t *client; /* NULL: the next call makes one */
    const char *database;    /* the URI's */
    const struct flyt_schema *schema;
    bool is_schema_known, is_in_schema;
    uint32_t server_id;    /* of the call under way */
    bool has_linearizable; /* that server */
    uint64_t deadline_ms;  /* of the call under way, flyt_clock_ms */
};

static struct mongodb_store *mongodb_store(struct flyt_store *store)
{
    return (struct mongodb_store *)store;
}

/* ---- one command ---- */

static bool is_among(int code, const int *codes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (codes[i] == code)
            return true;
    return false;
}

#define IS_AMONG(code, codes) is_among(code, codes, sizeof(codes) / sizeof *(codes))

static void drop_client(struct mongodb_store *s)
{
    mongoc_client_destroy(s->client);
    s->client = NULL;
    s->is_schema_known = false;
}

/* What a server's error code says of a write or read. */
static enum flyt_store_result result_of_code(int code, bool is_write)
{
    if (code == DUPLICATE_KEY)
        return FLYT_STORE_CONFLICT;
    if (IS_AMONG(code, not_primary_codes))
        return FLYT_STORE_UNAVAILABLE;
    if (IS_AMONG(code, interrupted_codes))
        return is_write ? FLYT_STORE_UNKNOWN : FLYT_STORE_UNAVAILABLE;
    /* 13 and 18: the user may not do it, or is not known. An operator can change that while this runs. */
    if (code == 13 || code == 18)
        return FLYT_STORE_UNAVAILABLE;
    return FLYT_STORE_BROKEN;
}

/* What the driver's error says. Only an error of the stream can come after something was sent. */
static enum flyt_store_result result_of_error(const bson_error_t *error, bool is_write)
{
    if (error->domain == MONGOC_ERROR_SERVER || error->domain == MONGOC_ERROR_WRITE_CONCERN)
        return result_of_code((int)error->code, is_write);
    if (error->domain == MONGOC_ERROR_BSON || error->domain == MONGOC_ERROR_COMMAND)
        return FLYT_STORE_BROKEN;
    if (is_write && error->domain != MONGOC_ERROR_SERVER_SELECTION && error->domain != MONGOC_ERROR_CLIENT &&
        !(error->domain == MONGOC_ERROR_STREAM &&
          (error->code == MONGOC_ERROR_STREAM_CONNECT || error->code == MONGOC_ERROR_STREAM_NAME_RESOLUTION)))
        return FLYT_STORE_UNKNOWN;
    return FLYT_STORE_UNAVAILABLE;
}

static int64_t left_ms(const struct mongodb_store *s)
{
    int left = flyt_clock_left_ms(s->deadline_ms);

    return left > 10 ? left : 10;
}

/* Runs a command on the server that begin() chose. The caller destroys *reply in every case. */
static enum flyt_store_result run(struct mongodb_store *s, const bson_t *command, bool is_write, struct flyt_error *err,
                                  bson_t *reply)
{
    bson_error_t error = {0};
    bson_iter_t iter, inner;
    enum flyt_store_result result;

    if (mongoc_client_command_simple_with_server_id(s->client, s->database, command, NULL, s->server_id, reply,
                                                    &error)) {
        if (!is_write || !bson_iter_init_find(&iter, reply, "writeConcernError") || !bson_iter_recurse(&iter, &inner))
            return FLYT_STORE_OK;
        /* Written here, but not (yet) by a majority: it may be rolled back. */
        const char *why = bson_iter_find(&inner, "errmsg") && BSON_ITER_HOLDS_UTF8(&inner)
                              ? bson_iter_utf8(&inner, NULL)
                              : "no reason";
        return flyt_store_fail(err, FLYT_STORE_UNKNOWN, "%.200s: not confirmed by a majority: %s", s->store.name, why);
    }
    result = result_of_error(&error, is_write);
    flyt_store_fail(err, result, "%.200s: %s", s->store.name, error.message);
    if (result == FLYT_STORE_UNAVAILABLE || result == FLYT_STORE_UNKNOWN)
        drop_client(s);
    return result;
}

/* A write's reply: OK with how many documents it met, or what its write error means, and that it was one. */
static enum flyt_store_result run_write(struct mongodb_store *s, const bson_t *command, struct flyt_error *err,
                                        int64_t *ret_count, bool *ret_is_write_error)
{
    bson_t reply;
    bson_iter_t iter, errors;
    enum flyt_store_result result = run(s, command, true, err, &reply);
    int code = 0;

    if (bson_iter_init(&iter, &reply) && bson_iter_find_descendant(&iter, "writeErrors.0.code", &errors)) {
        const char *why = "no reason";
        code = (int)bson_iter_as_int64(&errors);
        if (bson_iter_init(&iter, &reply) && bson_iter_find_descendant(&iter, "writeErrors.0.errmsg", &errors) &&
            BSON_ITER_HOLDS_UTF8(&errors))
            why = bson_iter_utf8(&errors, NULL);
        result = flyt_store_fail(err, result_of_code(code, true), "%.200s: %s", s->store.name, why);
        *ret_is_write_error = true;
    } else if (result == FLYT_STORE_OK) {
        *ret_count = bson_iter_init_find(&iter, &reply, "n") ? bson_iter_as_int64(&iter) : 0;
    }
    bson_destroy(&reply);
    return result;
}

static void append_write_concern(struct mongodb_store *s, bson_t *command)
{
    /* The server ends before the socket does, so that its answer comes. */
    int64_t server_ms = left_ms(s) - left_ms(s) / 8;

    BCON_APPEND(command, "writeConcern", "{", "w", BCON_UTF8("majority"), "wtimeout", BCON_INT64(server_ms), "}",
                "maxTimeMS", BCON_INT64(server_ms));
}

static void append_read_concern(struct mongodb_store *s, bson_t *command, bool is_one_document)
{
    const char *level = !s->has_linearizable ? "local" : is_one_document ? "linearizable" : "majority";

    BCON_APPEND(command, "readConcern", "{", "level", BCON_UTF8(level), "}", "maxTimeMS",
                BCON_INT64(left_ms(s) - left_ms(s) / 8));
}

/* ---- the beginning of each call ---- */

static enum flyt_store_result check_schema(struct mongodb_store *s, struct flyt_error *err);

/* Chooses the server, which connects where that is necessary. Nothing has been written when this fails. */
static enum flyt_store_result begin(struct mongodb_store *s, struct flyt_error *err)
{
    bson_error_t error = {0};
    mongoc_server_description_t *server = NULL;

    s->deadline_ms = flyt_clock_ms() + s->store.timeout_ms;
    if (s->is_in_schema)
        return s->client
                   ? FLYT_STORE_OK
                   : flyt_store_fail(err, FLYT_STORE_UNAVAILABLE, "%.200s: the connection has ended", s->store.name);
    if (!s->client) {
        s->client = mongoc_client_new_from_uri_with_error(s->uri, &error);
        if (s->client)
            mongoc_client_set_error_api(s->client, MONGOC_ERROR_API_VERSION_2);
    }
    if (s->client)
        server = mongoc_client_select_server(s->client, true, NULL, &error);
    if (!server) {
        if (s->client)
            drop_client(s);
        return flyt_store_fail(err, FLYT_STORE_UNAVAILABLE, "%.200s: %s", s->store.name, error.message);
    }
    const char *type = mongoc_server_description_type(server);
    bool is_standalone = strcmp(type, "Standalone") == 0;
    bool is_writable = is_standalone || strcmp(type, "RSPrimary") == 0 || strcmp(type, "Mongos") == 0 ||
                       strcmp(type, "LoadBalancer") == 0;
    s->server_id = mongoc_server_description_id(server);
    s->has_linearizable = !is_standalone;
    if (!is_writable)
        flyt_store_fail(err, FLYT_STORE_UNAVAILABLE, "%.200s: this server is no primary (%s)", s->store.name, type);
    mongoc_server_description_destroy(server);
    if (!is_writable) {
        drop_client(s);
        return FLYT_STORE_UNAVAILABLE;
    }
    return s->is_schema_known ? FLYT_STORE_OK : check_schema(s, err);
}

/* A command that was not sent because most of the time has gone already. */
static bool is_late(struct mongodb_store *s, struct flyt_error *err)
{
    if (flyt_clock_left_ms(s->deadline_ms) >= (int)(s->store.timeout_ms / 3))
        return false;
    flyt_store_fail(err, FLYT_STORE_UNAVAILABLE, "%.200s: it answers too slowly", s->store.name);
    return true;
}

/* ---- reading ---- */

static void log_of_driver(mongoc_log_level_t level, const char *domain, const char *message, void *user)
{
    flyt_debug("mongodb driver: %s: %s", domain, message);
}

/* Reads one document as it is. OK, NOT_FOUND …; the caller destroys *ret_bson where it is OK. */
static enum flyt_store_result read_one(struct mongodb_store *s, const char *collection, const char *id,
                                       struct flyt_error *err, bson_t *ret_bson)
{
    bson_t command = BSON_INITIALIZER, filter, reply, found;
    bson_iter_t iter, first;
    const uint8_t *data;
    uint32_t bytes;
    enum flyt_store_result result;

    BSON_APPEND_UTF8(&command, "find", collection);
    BSON_APPEND_DOCUMENT_BEGIN(&command, "filter", &filter);
    bool is_id = flyt_bson_append_id(&filter, "_id", id);
    bson_append_document_end(&command, &filter);
    if (!is_id) {
        bson_destroy(&command);
        return flyt_store_fail(err, FLYT_STORE_NOT_FOUND, "%.200s: %s/%s: no such _id can be", s->store.name,
                               collection, id);
    }
    BCON_APPEND(&command, "limit", BCON_INT32(1), "singleBatch", BCON_BOOL(true));
    append_read_concern(s, &command, true);
    result = run(s, &command, false, err, &reply);
    bson_destroy(&command);
    if (result == FLYT_STORE_OK) {
        if (bson_iter_init(&iter, &reply) && bson_iter_find_descendant(&iter, "cursor.firstBatch.0", &first) &&
            BSON_ITER_HOLDS_DOCUMENT(&first)) {
            bson_iter_document(&first, &bytes, &data);
            bson_init_static(&found, data, bytes);
            bson_copy_to(&found, ret_bson);
        } else {
            result = flyt_store_fail(err, FLYT_STORE_NOT_FOUND, "%.200s: %s/%s: there is none", s->store.name,
                                     collection, id);
        }
    }
    bson_destroy(&reply);
    return result;
}

static enum flyt_store_result mongodb_get(struct flyt_store *store, const char *collection, const char *id,
                                          struct flyt_error *err, cJSON **ret_document)
{
    struct mongodb_store *s = mongodb_store(store);
    struct flyt_error cause;
    enum flyt_store_result result = begin(s, err);
    bson_t bson;

    if (result == FLYT_STORE_OK)
        result = read_one(s, collection, id, err, &bson);
    if (result != FLYT_STORE_OK)
        return result;
    int rc = flyt_bson_to_document(&bson, &cause, ret_document);
    bson_destroy(&bson);
    if (rc < 0)
        return flyt_store_fail(err, rc == -ENOMEM ? FLYT_STORE_UNAVAILABLE : FLYT_STORE_BROKEN, "%.200s: %s/%s: %.200s",
                               store->name, collection, id, cause.text);
    return FLYT_STORE_OK;
}

/* One document of a list; one that cannot be understood is said in its place. 0 or -ENOMEM. */
static int add_listed(cJSON *documents, const bson_t *bson)
{
    struct flyt_error cause;
    cJSON *document = NULL;
    int rc = flyt_bson_to_document(bson, &cause, &document);

    if (rc == -ENOMEM)
        return rc;
    if (rc < 0) {
        char *id = flyt_bson_id_text(bson);
        document = flyt_store_broken_document(id ? id : "{\"$value\":\"?\"}", flyt_bson_revision(bson), cause.text);
        free(id);
    }
    if (!document || !cJSON_AddItemToArray(documents, document)) {
        cJSON_Delete(document);
        return -ENOMEM;
    }
    return 0;
}

typedef int (*visit_fn)(const bson_t *bson, void *user);

/*
 * Visits a batch of a cursor's reply. *ret_cursor: its id, 0 at the end. 0, -EBADMSG where there is no batch, or what
 * visit returned (not 0).
 */
static int visit_batch(const bson_t *reply, const char *batch, visit_fn visit, void *user, int64_t *ret_cursor)
{
    bson_iter_t iter, found, row;
    int rc = 0;

    if (!bson_iter_init(&iter, reply) || !bson_iter_find_descendant(&iter, "cursor.id", &found))
        return -EBADMSG;
    *ret_cursor = bson_iter_as_int64(&found);
    if (!bson_iter_init(&iter, reply) || !bson_iter_find_descendant(&iter, batch, &found) ||
        !BSON_ITER_HOLDS_ARRAY(&found) || !bson_iter_recurse(&found, &row))
        return -EBADMSG;
    while (rc == 0 && bson_iter_next(&row)) {
        const uint8_t *data;
        uint32_t bytes;
        bson_t bson;

        if (!BSON_ITER_HOLDS_DOCUMENT(&row))
            return -EBADMSG;
        bson_iter_document(&row, &bytes, &data);
        rc = bson_init_static(&bson, data, bytes) ? visit(&bson, user) : -EBADMSG;
    }
    return rc;
}

/* Runs a find command to the end of its cursor. */
static enum flyt_store_result visit_all(struct mongodb_store *s, const char *collection, const bson_t *find,
                                        visit_fn visit, void *user, struct flyt_error *err)
{
    bson_t reply, more;
    int64_t cursor = 0;
    enum flyt_store_result result = run(s, find, false, err, &reply);
    int rc = result ? 0 : visit_batch(&reply, "cursor.firstBatch", visit, user, &cursor);

    bson_destroy(&reply);
    while (result == FLYT_STORE_OK && rc == 0 && cursor != 0) {
        if (flyt_clock_left_ms(s->deadline_ms) == 0) {
            /* The server forgets the cursor with the connection's session, or after ten minutes. */
            drop_client(s);
            return flyt_store_fail(err, FLYT_STORE_UNAVAILABLE, "%.200s: %s: it answers too slowly", s->store.name,
                                   collection);
        }
        bson_init(&more);
        BCON_APPEND(&more, "getMore", BCON_INT64(cursor), "collection", BCON_UTF8(collection), "batchSize",
                    BCON_INT32(BATCH_DOCUMENTS));
        result = run(s, &more, false, err, &reply);
        bson_destroy(&more);
        if (result == FLYT_STORE_OK)
            rc = visit_batch(&reply, "cursor.nextBatch", visit, user, &cursor);
        bson_destroy(&reply);
    }
    if (result == FLYT_STORE_OK && rc != 0) {
        drop_client(s);
        return flyt_store_fail(err, FLYT_STORE_UNAVAILABLE, "%.200s: %s: %s", s->store.name, collection, strerror(-rc));
    }
    return result;
}

struct listing {
    cJSON *documents;
    const char *after; /* left out where it comes first; then NULL */
    unsigned limit;
};

static int list_visit(const bson_t *bson, void *user)
{
    struct listing *listing = user;

    if (listing->after) {
        char *id = flyt_bson_id_text(bson);
        bool is_after = id && strcmp(id, listing->after) == 0;

        listing->after = NULL;
        free(id);
        if (is_after)
            return 0;
    }
    if (listing->limit && cJSON_GetArraySize(listing->documents) >= (int)listing->limit)
        return 0;
    return add_listed(listing->documents, bson);
}

static enum flyt_store_result mongodb_list(struct flyt_store *store, const char *collection, const char *after,
                                           unsigned limit, struct flyt_error *err, cJSON **ret_documents)
{
    struct mongodb_store *s = mongodb_store(store);
    struct listing listing = {cJSON_CreateArray(), after, limit};
    bson_t command = BSON_INITIALIZER, least;
    enum flyt_store_result result = listing.documents ? begin(s, err) : FLYT_STORE_UNAVAILABLE;
    bool is_id = true;

    if (!listing.documents)
        flyt_store_fail(err, result, "no memory");
    BCON_APPEND(&command, "find", BCON_UTF8(collection), "sort", "{", "_id", BCON_INT32(1), "}", "batchSize",
                BCON_INT32(BATCH_DOCUMENTS));
    if (after) {
        /* Bounds of the index go across types, which comparisons in filters do not. They include the first. */
        BSON_APPEND_DOCUMENT_BEGIN(&command, "min", &least);
        is_id = flyt_bson_append_id(&least, "_id", after);
        bson_append_document_end(&command, &least);
        BCON_APPEND(&command, "hint", "{", "_id", BCON_INT32(1), "}");
    }
    if (limit)
        BSON_APPEND_INT64(&command, "limit", (int64_t)limit + (after != NULL));
    append_read_concern(s, &command, false);
    if (result == FLYT_STORE_OK && !is_id)
        result = flyt_store_fail(err, FLYT_STORE_BROKEN, "%.200s: %s: %s: no such _id can be", store->name, collection,
                                 after);
    if (result == FLYT_STORE_OK)
        result = visit_all(s, collection, &command, list_visit, &listing, err);
    bson_destroy(&command);
    if (result != FLYT_STORE_OK) {
        cJSON_Delete(listing.documents);
        return result;
    }
    *ret_documents = listing.documents;
    return FLYT_STORE_OK;
}

/* ---- writing ---- */

/* A write that met no document: says what is there. */
static enum flyt_store_result why_unchanged(struct mongodb_store *s, const char *collection, const char *id,
                                            uint64_t revision, struct flyt_error *err)
{
    bson_t bson;
    enum flyt_store_result result = read_one(s, collection, id, err, &bson);

    if (result != FLYT_STORE_OK)
        return result;
    result = flyt_store_fail(err, FLYT_STORE_CONFLICT, "%.200s: %s/%s: revision %llu is there, not %llu as it was seen",
                             s->store.name, collection, id, (unsigned long long)flyt_bson_revision(&bson),
                             (unsigned long long)revision);
    bson_destroy(&bson);
    return result;
}

/* Appends a filter for exactly this document, all of its members in their order. */
static void append_exact_filter(bson_t *parent, const char *name, const bson_t *exact)
{
    bson_t filter;
    bson_iter_t iter;

    BSON_APPEND_DOCUMENT_BEGIN(parent, name, &filter);
    if (bson_iter_init_find(&iter, exact, "_id"))
        bson_append_iter(&filter, "_id", -1, &iter);
    BCON_APPEND(&filter, "$expr", "{", "$eq", "[", BCON_UTF8("$$ROOT"), "{", "$literal", BCON_DOCUMENT(exact), "}", "]",
                "}");
    bson_append_document_end(parent, &filter);
}

/* false: no such _id can be. */
static bool append_revision_filter(bson_t *parent, const char *name, const char *id, uint64_t revision)
{
    bson_t filter;

    BSON_APPEND_DOCUMENT_BEGIN(parent, name, &filter);
    bool is_id = flyt_bson_append_id(&filter, "_id", id);
    BSON_APPEND_INT64(&filter, "revision", (int64_t)revision);
    bson_append_document_end(parent, &filter);
    return is_id;
}

/* The new document: _id, revision, members. Destroyed by the caller in every case. */
static int new_document(bson_t *bson, const char *id, uint64_t revision, const cJSON *document, struct flyt_error *err)
{
    struct flyt_error cause;
    size_t bytes;
    char *text;
    /* The same rules as for a text in SQLite. */
    int rc = flyt_json_print(document, true, &cause, &text, &bytes);

    if (rc == 0) {
        free(text);
        if (!flyt_bson_append_id(bson, "_id", id))
            rc = flyt_error_set(&cause, -EINVAL, "no such _id can be");
    }
    if (rc == 0) {
        BSON_APPEND_INT64(bson, "revision", (int64_t)revision);
        rc = flyt_bson_append_members(bson, document, &cause);
    }
    if (rc < 0)
        flyt_store_fail(err, rc == -ENOMEM ? FLYT_STORE_UNAVAILABLE : FLYT_STORE_BROKEN, "%s: %.400s", id, cause.text);
    return rc;
}

/* Replaces (replacement NULL: removes) the document that a filter names; the filter is appended to `one`, the update's
 * or deletion's only entry, by the caller. */
static enum flyt_store_result change_one(struct mongodb_store *s, const char *collection, const bson_t *one,
                                         bool is_update, struct flyt_error *err, int64_t *ret_count)
{
    bson_t command = BSON_INITIALIZER;
    enum flyt_store_result result;
    bool is_write_error;

    BCON_APPEND(&command, is_update ? "update" : "delete", BCON_UTF8(collection), is_update ? "updates" : "deletes",
                "[", BCON_DOCUMENT(one), "]");
    append_write_concern(s, &command);
    result = run_write(s, &command, err, ret_count, &is_write_error);
    bson_destroy(&command);
    return result;
}

static enum flyt_store_result insert(struct mongodb_store *s, const char *collection, const bson_t *document,
                                     struct flyt_error *err)
{
    bson_t command = BSON_INITIALIZER;
    int64_t count = 0;
    bool is_write_error;

    BCON_APPEND(&command, "insert", BCON_UTF8(collection), "documents", "[", BCON_DOCUMENT(document), "]");
    append_write_concern(s, &command);
    enum flyt_store_result result = run_write(s, &command, err, &count, &is_write_error);
    bson_destroy(&command);
    if (result == FLYT_STORE_OK && count != 1)
        return flyt_store_fail(err, FLYT_STORE_UNKNOWN, "%.200s: %s: the server says neither written nor refused",
                               s->store.name, collection);
    return result;
}

/* Appends the filter for a document that is still what was seen: it is read, compared here, and must then still be
 * exactly what was read. seen NULL: only its revision is compared. */
static enum flyt_store_result filter_seen(struct mongodb_store *s, const char *collection, const char *id,
                                          uint64_t revision, const cJSON *seen, bson_t *one, struct flyt_error *err)
{
    bson_t there;
    cJSON *document = NULL;
    enum flyt_store_result result = read_one(s, collection, id, err, &there);

    if (result != FLYT_STORE_OK)
        return result;
    bool is_same = flyt_bson_revision(&there) == revision;
    if (is_same && seen)
        is_same = flyt_bson_to_document(&there, NULL, &document) == 0 && flyt_json_equal(document, seen, true);
    cJSON_Delete(document);
    append_exact_filter(one, "q", &there);
    bson_destroy(&there);
    if (!is_same)
        return flyt_store_fail(err, FLYT_STORE_CONFLICT, "%.200s: %s/%s: it is not what was seen any more",
                               s->store.name, collection, id);
    return is_late(s, err) ? FLYT_STORE_UNAVAILABLE : FLYT_STORE_OK;
}

static enum flyt_store_result mongodb_put(struct flyt_store *store, const char *collection, const char *id,
                                          uint64_t revision, const cJSON *seen, const cJSON *document,
                                          struct flyt_error *err)
{
    struct mongodb_store *s = mongodb_store(store);
    bson_t bson = BSON_INITIALIZER, one = BSON_INITIALIZER;
    enum flyt_store_result result = begin(s, err);
    int64_t count = 0;

    if (result != FLYT_STORE_OK)
        goto destroy;
    if (new_document(&bson, id, revision + 1, document, err) < 0) {
        result = err->code == -EIO ? FLYT_STORE_BROKEN : FLYT_STORE_UNAVAILABLE;
        goto destroy;
    }
    if (!seen && revision == 0) {
        result = insert(s, collection, &bson, err);
        goto destroy;
    }
    if (seen)
        result = filter_seen(s, collection, id, revision, seen, &one, err);
    else
        append_revision_filter(&one, "q", id, revision);
    if (result == FLYT_STORE_OK) {
        BSON_APPEND_DOCUMENT(&one, "u", &bson);
        result = change_one(s, collection, &one, true, err, &count);
    }
    if (result == FLYT_STORE_OK && count == 0)
        result = why_unchanged(s, collection, id, revision, err);

destroy:
    bson_destroy(&bson);
    bson_destroy(&one);
    return result;
}

static enum flyt_store_result mongodb_delete(struct flyt_store *store, const char *collection, const char *id,
                                             uint64_t revision, struct flyt_error *err)
{
    struct mongodb_store *s = mongodb_store(store);
    bson_t one = BSON_INITIALIZER;
    enum flyt_store_result result = begin(s, err);
    int64_t count = 0;

    if (result == FLYT_STORE_OK && revision == 0)
        result = filter_seen(s, collection, id, 0, NULL, &one, err);
    else if (result == FLYT_STORE_OK && !append_revision_filter(&one, "q", id, revision))
        result = flyt_store_fail(err, FLYT_STORE_NOT_FOUND, "%.200s: %s/%s: no such _id can be", store->name,
                                 collection, id);
    if (result == FLYT_STORE_OK) {
        BSON_APPEND_INT32(&one, "limit", 1);
        result = change_one(s, collection, &one, false, err, &count);
    }
    if (result == FLYT_STORE_OK && count == 0)
        result = why_unchanged(s, collection, id, revision, err);
    bson_destroy(&one);
    return result;
}

/*
 * One update of many documents. The filter is looked at again for each document at the moment of its change, so that a
 * write of others to one of them comes either before its raising or fails by its revision. A write error can come after
 * some were changed. "Not greater or equal" holds of what is lower, of another type, and absent.
 */
static enum flyt_store_result mongodb_raise(struct flyt_store *store, const char *collection, const char *name,
                                            uint64_t value, struct flyt_error *err, uint64_t *ret_count)
{
    struct mongodb_store *s = mongodb_store(store);
    bson_t command = BSON_INITIALIZER;
    enum flyt_store_result result = begin(s, err);
    int64_t count = 0;
    bool has_write_error = false;

    if (result == FLYT_STORE_OK) {
        BCON_APPEND(&command, "update", BCON_UTF8(collection), "updates", "[", "{", "q", "{", name, "{", "$not", "{",
                    "$gte", BCON_INT64((int64_t)value), "}", "}", "revision", "{", "$gte", BCON_INT64(1), "}", "}", "u",
                    "{", "$set", "{", name, BCON_INT64((int64_t)value), "}", "$inc", "{", "revision", BCON_INT64(1),
                    "}", "}", "multi", BCON_BOOL(true), "}", "]");
        append_write_concern(s, &command);
        result = run_write(s, &command, err, &count, &has_write_error);
    }
    bson_destroy(&command);
    if (result == FLYT_STORE_OK)
        *ret_count = (uint64_t)count;
    return has_write_error ? FLYT_STORE_UNKNOWN : result;
}

/* ---- schema ---- */

/* One round: reads the version and does the next step. OK with *ret_is_done, or CONFLICT where another manager was
 * faster. */
static enum flyt_store_result schema_round(struct mongodb_store *s, bool *ret_is_done, struct flyt_error *err)
{
    cJSON *document = NULL;
    unsigned version = 0, newest = flyt_schema_version(s->schema);
    uint64_t revision = 0;
    enum flyt_store_result result = mongodb_get(&s->store, "meta", "schema", err, &document);

    if (result == FLYT_STORE_OK) {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(document, "version");
        revision = flyt_json_number(document, "revision");
        version = cJSON_IsNumber(item) && item->valuedouble > 0 ? (unsigned)item->valuedouble : 0;
        if (version == 0 || revision == 0)
            result = flyt_store_fail(err, FLYT_STORE_BROKEN, "%.200s: meta/schema has no version", s->store.name);
        else if (version > newest)
            result = flyt_store_fail(err, FLYT_STORE_BROKEN,
                                     "%.200s: a newer Flyt wrote it (schema %u, this one knows %u): use that one",
                                     s->store.name, version, newest);
    } else if (result == FLYT_STORE_NOT_FOUND) {
        result = FLYT_STORE_OK;
    }
    cJSON_Delete(document);
    *ret_is_done = version >= newest;
    if (result != FLYT_STORE_OK || *ret_is_done)
        return result;
    const struct flyt_schema_step *step = s->schema->steps;
    while (step->to <= version)
        step++;
    if (step->documents && step->documents(&s->store, err) < 0)
        return FLYT_STORE_BROKEN;
    document = cJSON_CreateObject();
    if (!document || !cJSON_AddNumberToObject(document, "version", step->to))
        result = flyt_store_fail(err, FLYT_STORE_UNAVAILABLE, "no memory");
    else
        result = mongodb_put(&s->store, "meta", "schema", revision, NULL, document, err);
    cJSON_Delete(document);
    return result;
}

/* Brings the documents to this program's schema, step by step; repeated after every new connection. */
static enum flyt_store_result check_schema(struct mongodb_store *s, struct flyt_error *err)
{
    enum flyt_store_result result = FLYT_STORE_OK;
    bool is_done = false;

    s->is_in_schema = true;
    while (!is_done && (result == FLYT_STORE_OK || result == FLYT_STORE_CONFLICT))
        result = schema_round(s, &is_done, err);
    s->is_in_schema = false;
    s->is_schema_known = result == FLYT_STORE_OK;
    /* Nothing of the call that this precedes was written. */
    return result == FLYT_STORE_UNKNOWN ? FLYT_STORE_UNAVAILABLE : result;
}

/* ---- backup ---- */

struct backup {
    struct mongodb_store *s;
    FILE *file;
    const char *collection;
};

static int backup_document(const bson_t *bson, void *user)
{
    struct backup *backup = user;
    char *text = bson_as_canonical_extended_json(bson, NULL);
    int rc = text ? 0 : -ENOMEM;

    /* A collection's name may be anything that people have made. */
    if (text) {
        cJSON *name = cJSON_CreateString(backup->collection);
        char *name_text = name ? cJSON_PrintUnformatted(name) : NULL;
        if (!name_text || fprintf(backup->file, "{\"collection\":%s,\"document\":%s}\n", name_text, text) < 0)
            rc = -EIO;
        cJSON_free(name_text);
        cJSON_Delete(name);
    }
    bson_free(text);
    /* Each document renews the time: only standing still ends a backup. */
    backup->s->deadline_ms = flyt_clock_ms() + backup->s->store.timeout_ms;
    return rc;
}

static int backup_collections(struct backup *backup, struct flyt_error *err)
{
    struct mongodb_store *s = backup->s;
    mongoc_database_t *database = mongoc_client_get_database(s->client, s->database);
    bson_error_t error;
    char **names = mongoc_database_get_collection_names_with_opts(database, NULL, &error);
    enum flyt_store_result result = FLYT_STORE_OK;

    mongoc_database_destroy(database);
    if (!names)
        return flyt_error_set(err, -EAGAIN, "%.200s: %s", s->store.name, error.message);
    for (char **name = names; *name && result == FLYT_STORE_OK; name++) {
        bson_t command = BSON_INITIALIZER;

        if (strncmp(*name, "system.", 7) == 0)
            continue;
        backup->collection = *name;
        BCON_APPEND(&command, "find", BCON_UTF8(*name), "sort", "{", "_id", BCON_INT32(1), "}", "batchSize",
                    BCON_INT32(BATCH_DOCUMENTS), "readConcern", "{", "level",
                    BCON_UTF8(s->has_linearizable ? "majority" : "local"), "}");
        result = visit_all(s, *name, &command, backup_document, backup, err);
        bson_destroy(&command);
    }
    bson_strfreev(names);
    return result == FLYT_STORE_OK ? 0 : err->code;
}

static int mongodb_backup(struct flyt_store *store, const char *path, struct flyt_error *err)
{
    struct backup backup = {.s = mongodb_store(store)};
    int fd, rc;

    if (begin(backup.s, err) != FLYT_STORE_OK)
        return err->code;
    fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0)
        return flyt_error_set(err, -errno, "backup %s: %s", path, strerror(errno));
    backup.file = fdopen(fd, "w");
    if (!backup.file) {
        flyt_close(fd);
        unlink(path);
        return flyt_error_set(err, -ENOMEM, "no memory");
    }
    rc = backup_collections(&backup, err);
    if (rc == 0 && (fflush(backup.file) != 0 || fsync(fd) < 0))
        rc = flyt_error_set(err, -errno, "backup %s: %s", path, strerror(errno));
    if (fclose(backup.file) != 0 && rc == 0)
        rc = flyt_error_set(err, -errno, "backup %s: %s", path, strerror(errno));
    if (rc < 0)
        unlink(path);
    return rc;
}

/* ---- opening ---- */

static void mongodb_close(struct flyt_store *store)
{
    struct mongodb_store *s = mongodb_store(store);

    mongoc_client_destroy(s->client);
    mongoc_uri_destroy(s->uri);
    free(s);
}

static const struct flyt_store_ops mongodb_ops = {
    .close = mongodb_close,
    .get = mongodb_get,
    .list = mongodb_list,
    .put = mongodb_put,
    .delete = mongodb_delete,
    .raise = mongodb_raise,
    .backup = mongodb_backup,
};

static void set_name(struct mongodb_store *s)
{
    size_t at = 0, bytes = sizeof s->store.name;
    const char *service = mongoc_uri_get_srv_hostname(s->uri);

    at += (size_t)snprintf(s->store.name, bytes, "mongodb %.256s", service ? service : "");
    for (const mongoc_host_list_t *host = service ? NULL : mongoc_uri_get_hosts(s->uri); host && at < bytes / 2;
         host = host->next)
        at += (size_t)snprintf(s->store.name + at, bytes - at, "%s%s", host->host_and_port, host->next ? "," : "");
    snprintf(s->store.name + at, bytes - at, "/%.128s", s->database);
}

static int set_options(struct mongodb_store *s, struct flyt_error *err)
{
    int32_t timeout_ms = (int32_t)s->store.timeout_ms;
    int32_t connect_ms = timeout_ms < CONNECT_MS_MAX ? timeout_ms : CONNECT_MS_MAX;

    if (!mongoc_uri_set_option_as_int32(s->uri, MONGOC_URI_SERVERSELECTIONTIMEOUTMS, timeout_ms) ||
        !mongoc_uri_set_option_as_int32(s->uri, MONGOC_URI_SOCKETTIMEOUTMS, timeout_ms) ||
        !mongoc_uri_set_option_as_int32(s->uri, MONGOC_URI_CONNECTTIMEOUTMS, connect_ms) ||
        !mongoc_uri_set_option_as_bool(s->uri, MONGOC_URI_SERVERSELECTIONTRYONCE, true) ||
        !mongoc_uri_set_option_as_bool(s->uri, MONGOC_URI_RETRYREADS, false) ||
        !mongoc_uri_set_option_as_bool(s->uri, MONGOC_URI_RETRYWRITES, false))
        return flyt_error_set(err, -EINVAL, "the store's URI has options that do not suit it");
    return 0;
}

int flyt_mongodb_open(const char *uri, unsigned timeout_ms, const struct flyt_schema *schema, struct flyt_error *err,
                      struct flyt_store **ret_store)
{
    struct mongodb_store *s = calloc(1, sizeof *s);
    bson_error_t error = {0};
    int rc = 0;

    if (!s)
        return flyt_error_set(err, -ENOMEM, "no memory");
    mongoc_init();
    mongoc_log_set_handler(log_of_driver, NULL);
    s->store.ops = &mongodb_ops;
    s->store.timeout_ms = timeout_ms;
    s->store.is_shared = true;
    s->schema = schema;
    s->uri = mongoc_uri_new_with_error(uri, &error);
    if (!s->uri) {
        rc = flyt_error_set(err, -EINVAL, "the store's URI: %s", error.message);
        goto close_store;
    }
    s->database = mongoc_uri_get_database(s->uri);
    if (!s->database || !*s->database) {
        rc = flyt_error_set(err, -EINVAL, "the store's URI names no database: end it with /DATABASE");
        goto close_store;
    }
    set_name(s);
    rc = set_options(s, err);
    /* Says now what is wrong with the documents; a server that is not there is found again by each call. */
    if (rc == 0 && begin(s, err) == FLYT_STORE_BROKEN)
        rc = -EPROTO;
    if (rc < 0)
        goto close_store;
    *ret_store = &s->store;
    return 0;

close_store:
    err->code = rc;
    mongodb_close(&s->store);
    return rc;
}
