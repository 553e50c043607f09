/*
 * The store in a SQLite file. Write-ahead log with synchronous=FULL: a write that was acknowledged is on the disk,
 * costs one fsync, and a person who reads the file with sqlite3 holds nobody up. Every write is one statement whose
 * WHERE is the compare of compare-and-set, so that a person's change in between is seen too.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "control/store/json.h"
#include "control/store/store_ops.h"
#include "rpc/base/descriptors.h"

enum {
    APPLICATION_ID = 0x466c7974, /* "Flyt", in the file's header */
    LOCK_TEXT_BYTES = 128,
};

enum statement { GET, LIST, LIST_LIMITED, INSERT, UPDATE, UPDATE_SEEN, DELETE, STATEMENT_COUNT };

static const char *const statement_texts[STATEMENT_COUNT] = {
    [GET] = "SELECT id, revision, body FROM documents WHERE collection = ?1 AND id = ?2",
    [LIST] = "SELECT id, revision, body FROM documents WHERE collection = ?1 AND id > ?2 ORDER BY id",
    [LIST_LIMITED] = "SELECT id, revision, body FROM documents WHERE collection = ?1 AND id > ?2 ORDER BY id LIMIT ?3",
    [INSERT] = "INSERT INTO documents (collection, id, revision, body) VALUES (?1, ?2, 1, ?3) ON CONFLICT DO NOTHING",
    [UPDATE] = "UPDATE documents SET revision = revision + 1, body = ?3"
               " WHERE collection = ?1 AND id = ?2 AND revision = ?4",
    [UPDATE_SEEN] = "UPDATE documents SET revision = ?4 + 1, body = ?3"
                    " WHERE collection = ?1 AND id = ?2 AND revision IS ?6 AND body IS ?5",
    [DELETE] = "DELETE FROM documents WHERE collection = ?1 AND id = ?2 AND revision = ?3",
};

struct sqlite_store {
    struct flyt_store store;
    sqlite3 *db;
    sqlite3_stmt *statements[STATEMENT_COUNT];
    int lock_fd;
    char path[PATH_MAX];
};

static struct sqlite_store *sqlite_store(struct flyt_store *store)
{
    return (struct sqlite_store *)store;
}

/* ---- results ---- */

/* What an error of a statement means. For writes, an I/O error may have come after the log was written. */
static enum flyt_store_result fail(struct sqlite_store *s, bool is_write, const char *collection, const char *id,
                                   struct flyt_error *err)
{
    int code = sqlite3_errcode(s->db) & 0xff;
    const char *why = sqlite3_errmsg(s->db);
    enum flyt_store_result result = FLYT_STORE_BROKEN;

    if (code == SQLITE_BUSY || code == SQLITE_LOCKED) {
        result = FLYT_STORE_UNAVAILABLE;
        why = "another program holds the file's lock (a sqlite3 with a transaction open?)";
    } else if (code == SQLITE_NOMEM || code == SQLITE_INTERRUPT) {
        result = FLYT_STORE_UNAVAILABLE;
    } else if (code == SQLITE_IOERR) {
        result = is_write ? FLYT_STORE_UNKNOWN : FLYT_STORE_UNAVAILABLE;
    } else if (code == SQLITE_FULL) {
        why = "the disk is full: make room";
    } else if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB) {
        why = "the file is damaged: stop the manager and restore a backup";
    }
    return flyt_store_fail(err, result, "store %s: %s%s%s: %s", s->path, collection, id ? "/" : "", id ? id : "", why);
}

/* The row that a statement stands on, as a document. NULL: no memory, or (with is_strict) it cannot be understood;
 * *ret_is_broken says which. */
static cJSON *row_document(sqlite3_stmt *statement, bool is_strict, bool *ret_is_broken)
{
    const char *id = (const char *)sqlite3_column_text(statement, 0);
    const char *body = (const char *)sqlite3_column_text(statement, 2);
    int body_bytes = sqlite3_column_bytes(statement, 2);
    sqlite3_int64 stored = sqlite3_column_int64(statement, 1);
    uint64_t revision = stored > 0 && stored <= (sqlite3_int64)FLYT_JSON_INTEGER_MAX ? (uint64_t)stored : 0;
    cJSON *document = NULL;

    *ret_is_broken = false;
    if (!id || !body)
        return NULL;
    if (body_bytes <= FLYT_STORE_DOCUMENT_BYTES_MAX && flyt_utf8_is_valid(body, (size_t)body_bytes))
        document = flyt_json_parse_object(body);
    if (!document) {
        *ret_is_broken = true;
        return is_strict ? NULL : flyt_store_broken_document(id, revision, "its body is not a JSON object in bounds");
    }
    if (!flyt_json_set_store_members(document, id, revision)) {
        cJSON_Delete(document);
        return NULL;
    }
    return document;
}

/* ---- the calls ---- */

static sqlite3_stmt *bound(struct sqlite_store *s, enum statement which, const char *collection, const char *id)
{
    sqlite3_stmt *statement = s->statements[which];

    sqlite3_bind_text(statement, 1, collection, -1, SQLITE_STATIC);
    sqlite3_bind_text(statement, 2, id, -1, SQLITE_STATIC);
    return statement;
}

static void unbind(sqlite3_stmt **statement)
{
    sqlite3_reset(*statement);
    sqlite3_clear_bindings(*statement);
}

#define auto_unbind __attribute__((cleanup(unbind)))

static enum flyt_store_result sqlite_get(struct flyt_store *store, const char *collection, const char *id,
                                         struct flyt_error *err, cJSON **ret_document)
{
    struct sqlite_store *s = sqlite_store(store);
    auto_unbind sqlite3_stmt *statement = bound(s, GET, collection, id);
    int rc = sqlite3_step(statement);
    bool is_broken;

    if (rc == SQLITE_DONE)
        return flyt_store_fail(err, FLYT_STORE_NOT_FOUND, "store %s: %s/%s: there is none", s->path, collection, id);
    if (rc != SQLITE_ROW)
        return fail(s, false, collection, id, err);
    cJSON *document = row_document(statement, true, &is_broken);
    if (!document)
        return flyt_store_fail(err, is_broken ? FLYT_STORE_BROKEN : FLYT_STORE_UNAVAILABLE, "store %s: %s/%s: %s",
                               s->path, collection, id,
                               is_broken ? "its body is not a JSON object in bounds" : "no memory");
    *ret_document = document;
    return FLYT_STORE_OK;
}

static enum flyt_store_result sqlite_list(struct flyt_store *store, const char *collection, const char *after,
                                          unsigned limit, struct flyt_error *err, cJSON **ret_documents)
{
    struct sqlite_store *s = sqlite_store(store);
    auto_unbind sqlite3_stmt *statement = bound(s, limit ? LIST_LIMITED : LIST, collection, after ? after : "");
    cJSON *documents = cJSON_CreateArray();
    int rc = SQLITE_NOMEM;

    if (limit)
        sqlite3_bind_int64(statement, 3, limit);
    while (documents && (rc = sqlite3_step(statement)) == SQLITE_ROW) {
        bool is_broken;
        cJSON *document = row_document(statement, false, &is_broken);

        if (!document || !cJSON_AddItemToArray(documents, document)) {
            cJSON_Delete(document);
            break;
        }
    }
    if (rc == SQLITE_DONE) {
        *ret_documents = documents;
        return FLYT_STORE_OK;
    }
    cJSON_Delete(documents);
    if (rc == SQLITE_ROW || rc == SQLITE_NOMEM)
        return flyt_store_fail(err, FLYT_STORE_UNAVAILABLE, "store %s: %s: no memory", s->path, collection);
    return fail(s, false, collection, NULL, err);
}

/* A write that changed no row: says what is there. */
static enum flyt_store_result why_unchanged(struct sqlite_store *s, const char *collection, const char *id,
                                            uint64_t revision, struct flyt_error *err)
{
    auto_unbind sqlite3_stmt *statement = bound(s, GET, collection, id);
    int rc = sqlite3_step(statement);

    if (rc == SQLITE_DONE)
        return flyt_store_fail(err, FLYT_STORE_NOT_FOUND, "store %s: %s/%s: there is none any more", s->path,
                               collection, id);
    if (rc != SQLITE_ROW)
        return fail(s, false, collection, id, err);
    return flyt_store_fail(err, FLYT_STORE_CONFLICT, "store %s: %s/%s: revision %lld is there, not %llu as it was seen",
                           s->path, collection, id, sqlite3_column_int64(statement, 1), (unsigned long long)revision);
}

/* Compares what is there with `seen`, and replaces exactly the row that was compared. */
static enum flyt_store_result update_seen(struct sqlite_store *s, const char *collection, const char *id,
                                          uint64_t revision, const cJSON *seen, const char *body, size_t body_bytes,
                                          struct flyt_error *err)
{
    auto_unbind sqlite3_stmt *get = bound(s, GET, collection, id);
    auto_unbind sqlite3_stmt *update = bound(s, UPDATE_SEEN, collection, id);
    int rc = sqlite3_step(get);
    bool is_broken;

    if (rc != SQLITE_ROW)
        return rc == SQLITE_DONE ? why_unchanged(s, collection, id, revision, err)
                                 : fail(s, false, collection, id, err);
    cJSON *there = row_document(get, true, &is_broken);
    bool is_same = there && flyt_json_number(there, "revision") == revision && flyt_json_equal(there, seen, true);
    cJSON_Delete(there);
    if (!is_same)
        return flyt_store_fail(err, FLYT_STORE_CONFLICT, "store %s: %s/%s: it is not what was seen any more", s->path,
                               collection, id);
    sqlite3_bind_text(update, 3, body, (int)body_bytes, SQLITE_STATIC);
    sqlite3_bind_int64(update, 4, (sqlite3_int64)revision);
    sqlite3_bind_value(update, 5, sqlite3_column_value(get, 2));
    sqlite3_bind_value(update, 6, sqlite3_column_value(get, 1));
    sqlite3_reset(get);
    if (sqlite3_step(update) != SQLITE_DONE)
        return fail(s, true, collection, id, err);
    return sqlite3_changes(s->db) ? FLYT_STORE_OK : why_unchanged(s, collection, id, revision, err);
}

static enum flyt_store_result sqlite_put(struct flyt_store *store, const char *collection, const char *id,
                                         uint64_t revision, const cJSON *seen, const cJSON *document,
                                         struct flyt_error *err)
{
    struct sqlite_store *s = sqlite_store(store);
    struct flyt_error cause;
    enum flyt_store_result result;
    size_t body_bytes;
    char *body;

    if (flyt_json_print(document, true, &cause, &body, &body_bytes) < 0)
        return flyt_store_fail(err, cause.code == -ENOMEM ? FLYT_STORE_UNAVAILABLE : FLYT_STORE_BROKEN, "%s/%s: %.400s",
                               collection, id, cause.text);
    if (seen) {
        result = update_seen(s, collection, id, revision, seen, body, body_bytes, err);
    } else {
        auto_unbind sqlite3_stmt *statement = bound(s, revision ? UPDATE : INSERT, collection, id);

        sqlite3_bind_text(statement, 3, body, (int)body_bytes, SQLITE_STATIC);
        if (revision)
            sqlite3_bind_int64(statement, 4, (sqlite3_int64)revision);
        if (sqlite3_step(statement) != SQLITE_DONE)
            result = fail(s, true, collection, id, err);
        else
            result = sqlite3_changes(s->db) ? FLYT_STORE_OK : why_unchanged(s, collection, id, revision, err);
    }
    free(body);
    return result;
}

static enum flyt_store_result sqlite_delete(struct flyt_store *store, const char *collection, const char *id,
                                            uint64_t revision, struct flyt_error *err)
{
    struct sqlite_store *s = sqlite_store(store);
    auto_unbind sqlite3_stmt *statement = bound(s, DELETE, collection, id);

    sqlite3_bind_int64(statement, 3, (sqlite3_int64)revision);
    if (sqlite3_step(statement) != SQLITE_DONE)
        return fail(s, true, collection, id, err);
    return sqlite3_changes(s->db) ? FLYT_STORE_OK : why_unchanged(s, collection, id, revision, err);
}

/* One document of sqlite_raise; *count counts those that are changed. */
static enum flyt_store_result raise_one(struct flyt_store *store, const char *collection, cJSON *document,
                                        const char *name, uint64_t value, struct flyt_error *err, uint64_t *count)
{
    const cJSON *number = cJSON_GetObjectItemCaseSensitive(document, name);
    const cJSON *id = cJSON_GetObjectItemCaseSensitive(document, "_id");
    uint64_t revision = flyt_json_number(document, "revision");
    cJSON *raised;

    if (!revision || cJSON_GetObjectItemCaseSensitive(document, "_broken") ||
        (cJSON_IsNumber(number) && number->valuedouble >= (double)value))
        return FLYT_STORE_OK;
    raised = cJSON_CreateNumber((double)value);
    if (!raised || !(number ? cJSON_ReplaceItemInObjectCaseSensitive(document, name, raised)
                            : cJSON_AddItemToObject(document, name, raised))) {
        cJSON_Delete(raised);
        return flyt_store_fail(err, FLYT_STORE_UNAVAILABLE, "%s: no memory", collection);
    }
    ++*count;
    return sqlite_put(store, collection, id->valuestring, revision, NULL, document, err);
}

/* One transaction: a person's program that changes documents waits for it, or it for that. */
static enum flyt_store_result sqlite_raise(struct flyt_store *store, const char *collection, const char *name,
                                           uint64_t value, struct flyt_error *err, uint64_t *ret_count)
{
    struct sqlite_store *s = sqlite_store(store);
    cJSON *documents = NULL, *document;
    enum flyt_store_result result;
    uint64_t count = 0;

    if (sqlite3_exec(s->db, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK)
        return fail(s, false, collection, NULL, err);
    result = sqlite_list(store, collection, NULL, 0, err, &documents);
    cJSON_ArrayForEach(document, documents)
    {
        if (result == FLYT_STORE_OK)
            result = raise_one(store, collection, document, name, value, err, &count);
    }
    cJSON_Delete(documents);
    if (result == FLYT_STORE_OK && sqlite3_exec(s->db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK)
        result = fail(s, true, collection, NULL, err);
    else if (result == FLYT_STORE_UNKNOWN)
        result = FLYT_STORE_UNAVAILABLE; /* nothing was committed */
    /* After an error SQLite may have rolled back by itself. */
    if (result != FLYT_STORE_OK && !sqlite3_get_autocommit(s->db))
        sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    if (result == FLYT_STORE_OK)
        *ret_count = count;
    return result;
}

/* ---- backup ---- */

/* Makes the name of a new file survive a power failure. */
static int sync_folder_of(const char *path)
{
    char folder[PATH_MAX];

    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = 0;
    flyt_auto_close int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

static int sqlite_backup(struct flyt_store *store, const char *path, struct flyt_error *err)
{
    struct sqlite_store *s = sqlite_store(store);
    int fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600), rc;
    sqlite3 *copy = NULL;

    if (fd < 0)
        return flyt_error_set(err, -errno, "backup %s: %s", path, strerror(errno));
    close(fd);
    rc = sqlite3_open_v2(path, &copy, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc == SQLITE_OK) {
        sqlite3_backup *backup = sqlite3_backup_init(copy, "main", s->db, "main");

        if (backup) {
            sqlite3_backup_step(backup, -1);
            rc = sqlite3_backup_finish(backup);
        } else {
            rc = sqlite3_errcode(copy);
        }
    }
    int code = rc == SQLITE_OK ? 0 : (rc & 0xff) == SQLITE_FULL ? -ENOSPC : -EIO;
    if (code < 0)
        flyt_error_set(err, code, "backup %s: %s", path, copy ? sqlite3_errmsg(copy) : sqlite3_errstr(rc));
    rc = sqlite3_close(copy);
    if (code == 0 && rc != SQLITE_OK)
        code = flyt_error_set(err, -EIO, "backup %s: %s", path, sqlite3_errstr(rc));
    if (code == 0 && (code = sync_folder_of(path)) < 0)
        flyt_error_set(err, code, "backup %s: its folder: %s", path, strerror(-code));
    if (code < 0)
        unlink(path);
    return code;
}

/* ---- opening ---- */

/* The file's own path, so that two names of one file have one lock. */
static int resolve(const char *path, char *ret_path, struct flyt_error *err)
{
    char folder[PATH_MAX], resolved[PATH_MAX];
    const char *slash = strrchr(path, '/');
    struct stat status;

    if (realpath(path, ret_path)) {
        /* Before a lock is made beside it. */
        if (stat(ret_path, &status) == 0 && !S_ISREG(status.st_mode))
            return flyt_error_set(err, -EINVAL, "store %s: this is no regular file", path);
        return 0;
    }
    if (errno != ENOENT)
        return flyt_error_set(err, -errno, "store %s: %s", path, strerror(errno));
    if (!slash[1] || snprintf(folder, sizeof folder, "%.*s", (int)(slash - path) + 1, path) >= (int)sizeof folder)
        return flyt_error_set(err, -EINVAL, "store %s: this is no path of a file", path);
    if (!realpath(folder, resolved))
        return flyt_error_set(err, -errno, "store %s: its folder: %s", path, strerror(errno));
    if (snprintf(ret_path, PATH_MAX, "%s%s%s", resolved, resolved[1] ? "/" : "", slash + 1) >= PATH_MAX - 16)
        return flyt_error_set(err, -ENAMETOOLONG, "store %s: the path is too long", path);
    return 0;
}

/*
 * The lifetime lock: flock on FILE.lock, which the kernel drops with its holder however that ends, and which backups,
 * sqlite3 and copies of the file do not meet. The file stays: removing it would let two holders lock two files of the
 * same name.
 */
static int lock_file(struct sqlite_store *s, struct flyt_error *err)
{
    char path[PATH_MAX + 8], text[LOCK_TEXT_BYTES] = "", started[40];
    time_t now = time(NULL);
    struct tm broken_down;

    snprintf(path, sizeof path, "%s.lock", s->path);
    s->lock_fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (s->lock_fd < 0)
        return flyt_error_set(err, -errno, "store %s: %s: %s", s->path, path, strerror(errno));
    if (flock(s->lock_fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK)
            return flyt_error_set(err, -errno, "store %s: %s: %s", s->path, path, strerror(errno));
        ssize_t bytes = pread(s->lock_fd, text, sizeof text - 1, 0);
        text[bytes > 0 ? bytes : 0] = 0;
        text[strcspn(text, "\n")] = 0;
        return flyt_error_set(err, -EBUSY, "store %s: another manager has it: %s", s->path,
                              *text ? text : "it is just starting");
    }
    strftime(started, sizeof started, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &broken_down));
    int bytes = snprintf(text, sizeof text, "pid %ld since %s\n", (long)getpid(), started);
    if (ftruncate(s->lock_fd, 0) < 0 || pwrite(s->lock_fd, text, (size_t)bytes, 0) != bytes)
        return flyt_error_set(err, errno ? -errno : -EIO, "store %s: cannot write %s: %s", s->path, path,
                              strerror(errno));
    return 0;
}

/* The first column of a statement's first row as a number, and as text where there is room for it. */
static int ask(struct sqlite_store *s, const char *sql, sqlite3_int64 *ret_number, char *ret_text, size_t text_bytes)
{
    sqlite3_stmt *statement;
    int rc = sqlite3_prepare_v2(s->db, sql, -1, &statement, NULL);

    if (rc != SQLITE_OK)
        return rc;
    rc = sqlite3_step(statement);
    if (rc == SQLITE_ROW) {
        *ret_number = sqlite3_column_int64(statement, 0);
        if (ret_text)
            snprintf(ret_text, text_bytes, "%s", (const char *)sqlite3_column_text(statement, 0));
        rc = SQLITE_OK;
    }
    sqlite3_finalize(statement);
    return rc;
}

/* An error while opening. */
static int open_error(struct sqlite_store *s, const char *doing, struct flyt_error *err)
{
    int code = sqlite3_errcode(s->db) & 0xff, number = -EIO;

    switch (code) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        number = -EUCLEAN;
        break;
    case SQLITE_FULL:
        number = -ENOSPC;
        break;
    case SQLITE_BUSY:
        number = -EBUSY;
        break;
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
        number = -EACCES;
        break;
    }
    return flyt_error_set(err, number, "store %s: %s: %s", s->path, doing, sqlite3_errmsg(s->db));
}

static int check_integrity(struct sqlite_store *s, struct flyt_error *err)
{
    char verdict[256] = "";
    sqlite3_int64 unused;

    if (ask(s, "PRAGMA quick_check(1)", &unused, verdict, sizeof verdict) != SQLITE_OK)
        return open_error(s, "checking it", err);
    if (strcmp(verdict, "ok") != 0)
        return flyt_error_set(err, -EUCLEAN, "store %s: the file is damaged (%s): restore a backup", s->path, verdict);
    return 0;
}

static int configure(struct sqlite_store *s, struct flyt_error *err)
{
    char mode[16] = "";
    sqlite3_int64 unused, application_id = 0, tables = 0;

    sqlite3_extended_result_codes(s->db, 1);
    sqlite3_busy_timeout(s->db, (int)s->store.timeout_ms);
    if (ask(s, "PRAGMA application_id", &application_id, NULL, 0) != SQLITE_OK ||
        ask(s, "SELECT count(*) FROM sqlite_schema", &tables, NULL, 0) != SQLITE_OK)
        return open_error(s, "reading it", err);
    if (tables > 0 && application_id != APPLICATION_ID)
        return flyt_error_set(err, -EPROTO, "store %s: this is a SQLite file of another program", s->path);
    if (ask(s, "PRAGMA journal_mode = WAL", &unused, mode, sizeof mode) != SQLITE_OK)
        return open_error(s, "setting it up", err);
    if (strcmp(mode, "wal") != 0)
        return flyt_error_set(err, -ENOTSUP, "store %s: no write-ahead log is possible here (a network file system?)",
                              s->path);
    if (sqlite3_exec(s->db, "PRAGMA synchronous = FULL; PRAGMA trusted_schema = OFF", NULL, NULL, NULL) != SQLITE_OK ||
        (tables == 0 && sqlite3_exec(s->db, "PRAGMA application_id = 1181514100", NULL, NULL, NULL) != SQLITE_OK))
        return open_error(s, "setting it up", err);
    return check_integrity(s, err);
}

_Static_assert(APPLICATION_ID == 1181514100, "the pragma above says the same");

static int prepare(struct sqlite_store *s, struct flyt_error *err)
{
    for (unsigned i = 0; i < STATEMENT_COUNT; i++) {
        if (s->statements[i])
            continue;
        if (sqlite3_prepare_v3(s->db, statement_texts[i], -1, SQLITE_PREPARE_PERSISTENT, &s->statements[i], NULL) !=
            SQLITE_OK)
            return open_error(s, "its tables", err);
    }
    return 0;
}

static int migrate_steps(struct sqlite_store *s, unsigned version, const struct flyt_schema *schema,
                         struct flyt_error *err)
{
    for (unsigned i = 0; i < schema->step_count; i++) {
        const struct flyt_schema_step *step = &schema->steps[i];
        char text[64];
        int rc;

        if (step->to <= version)
            continue;
        if (step->sql && sqlite3_exec(s->db, step->sql, NULL, NULL, NULL) != SQLITE_OK)
            return open_error(s, "changing its schema", err);
        /* Only the tables of the newest version suit the statements: steps over documents see those. */
        rc = step->documents ? prepare(s, err) : 0;
        if (rc == 0 && step->documents)
            rc = step->documents(&s->store, err);
        if (rc < 0)
            return rc;
        snprintf(text, sizeof text, "PRAGMA user_version = %u", step->to);
        if (sqlite3_exec(s->db, text, NULL, NULL, NULL) != SQLITE_OK)
            return open_error(s, "changing its schema", err);
    }
    return 0;
}

/* All steps or none: one transaction. */
static int migrate(struct sqlite_store *s, const struct flyt_schema *schema, struct flyt_error *err)
{
    sqlite3_int64 version = 0;
    int rc;

    if (ask(s, "PRAGMA user_version", &version, NULL, 0) != SQLITE_OK)
        return open_error(s, "reading its schema", err);
    if (version > flyt_schema_version(schema))
        return flyt_error_set(err, -EPROTO,
                              "store %s: a newer Flyt wrote it (schema %lld, this one knows %u): use that one", s->path,
                              version, flyt_schema_version(schema));
    if (version == flyt_schema_version(schema))
        return 0;
    if (sqlite3_exec(s->db, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK)
        return open_error(s, "changing its schema", err);
    rc = migrate_steps(s, (unsigned)version, schema, err);
    if (rc == 0 && sqlite3_exec(s->db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK)
        rc = open_error(s, "changing its schema", err);
    if (rc < 0)
        sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

static void sqlite_close(struct flyt_store *store)
{
    struct sqlite_store *s = sqlite_store(store);

    for (unsigned i = 0; i < STATEMENT_COUNT; i++)
        sqlite3_finalize(s->statements[i]);
    sqlite3_close(s->db);
    /* Emptied, so that whoever reads it knows that nobody is there. Only who holds the lock comes here with a db. */
    if (s->db && ftruncate(s->lock_fd, 0) < 0)
        errno = 0;
    flyt_close(s->lock_fd);
    free(s);
}

static const struct flyt_store_ops sqlite_ops = {
    .close = sqlite_close,
    .get = sqlite_get,
    .list = sqlite_list,
    .put = sqlite_put,
    .delete = sqlite_delete,
    .raise = sqlite_raise,
    .backup = sqlite_backup,
};

int flyt_sqlite_open(const char *path, unsigned timeout_ms, const struct flyt_schema *schema, struct flyt_error *err,
                     struct flyt_store **ret_store)
{
    struct sqlite_store *s = calloc(1, sizeof *s);
    int rc, fd;

    if (!s)
        return flyt_error_set(err, -ENOMEM, "no memory");
    s->store.ops = &sqlite_ops;
    s->store.timeout_ms = timeout_ms;
    s->lock_fd = -1;
    rc = resolve(path, s->path, err);
    if (rc == 0)
        rc = lock_file(s, err);
    if (rc < 0)
        goto close_store;
    snprintf(s->store.name, sizeof s->store.name, "sqlite %s", s->path);
    /* Made here, so that nobody else may read it from the first moment; its log gets the same mode from SQLite. */
    fd = open(s->path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) {
        rc = flyt_error_set(err, -errno, "store %s: %s", s->path, strerror(errno));
        goto close_store;
    }
    close(fd);
    if (sqlite3_open_v2(s->path, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK) {
        rc = s->db ? open_error(s, "opening it", err) : flyt_error_set(err, -ENOMEM, "no memory");
        goto close_store;
    }
    rc = configure(s, err);
    if (rc == 0)
        rc = migrate(s, schema, err);
    if (rc == 0)
        rc = prepare(s, err);
    if (rc == 0 && (rc = sync_folder_of(s->path)) < 0)
        flyt_error_set(err, rc, "store %s: its folder: %s", s->path, strerror(-rc));
    if (rc < 0)
        goto close_store;
    *ret_store = &s->store;
    return 0;

close_store:
    sqlite_close(&s->store);
    return rc;
}
