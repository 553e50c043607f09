/* What only a SQLite store has: its file, its lock, its schema's way forward, damage, a full disk, a killed writer. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sqlite3.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/store/json.h"
#include "control/store/store_ops.h"
#include "control/store/test_store.h"

struct fixture {
    char folder[PATH_MAX], path[PATH_MAX + 16], uri[PATH_MAX + 32];
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    test_folder_make(f->folder);
    snprintf(f->path, sizeof f->path, "%s/store.db", f->folder);
    snprintf(f->uri, sizeof f->uri, "sqlite://%s", f->path);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    test_folder_remove(f->folder);
    free(f);
    return 0;
}

/* Fails unless opening ends with this code and a sentence that holds `word`. */
static void expect_refused(const char *uri, int code, const char *word)
{
    struct flyt_error err = {0};
    struct flyt_store *store = NULL;
    int rc = flyt_store_open(uri, 100, &err, &store);

    if (rc != code || err.code != code || !strstr(err.text, word))
        fail_msg("%d \"%s\", expected %d and \"%s\"", rc, err.text, code, word);
    assert_null(store);
}

/* Runs SQL on a file as a person with sqlite3 would. */
static void by_hand(const char *path, const char *sql)
{
    sqlite3 *db;
    char *why = NULL;

    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, &why) != SQLITE_OK)
        fail_msg("%s: %s", sql, why);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* ---- the file and its lock ---- */

static void test_file_is_private(void **state)
{
    struct fixture *f = *state;
    mode_t before = umask(0);
    struct flyt_store *store = test_open(f->uri);
    static const char *const suffixes[] = {"", "-wal", ".lock"};

    test_put(store, "meta", "a", 0, "{}");
    umask(before);
    for (unsigned i = 0; i < 3; i++) {
        char path[PATH_MAX + 32];
        struct stat stat_of;
        snprintf(path, sizeof path, "%s%s", f->path, suffixes[i]);
        assert_int_equal(stat(path, &stat_of), 0);
        assert_int_equal(stat_of.st_mode & 0777, 0600);
    }
    assert_false(flyt_store_is_shared(store));
    assert_non_null(strstr(flyt_store_name(store), f->path));
    flyt_store_close(store);
}

static void test_bad_uris_are_refused(void **state)
{
    struct fixture *f = *state;
    char uri[PATH_MAX + 64];

    expect_refused("sqlite://relative.db", -EINVAL, "absolute");
    expect_refused("sqlite://", -EINVAL, "absolute");
    expect_refused("/var/lib/store.db", -EINVAL, "sqlite:///");
    snprintf(uri, sizeof uri, "sqlite://%s/none/store.db", f->folder);
    expect_refused(uri, -ENOENT, "folder");
    snprintf(uri, sizeof uri, "sqlite://%s/", f->folder);
    expect_refused(uri, -EINVAL, "no regular file");
    /* Nothing was made beside what is no file. */
    snprintf(uri, sizeof uri, "%s.lock", f->folder);
    assert_int_equal(access(uri, F_OK), -1);
    assert_null(flyt_store_close(NULL));
}

static void test_documents_outlive_the_store(void **state)
{
    struct fixture *f = *state;
    struct flyt_store *store = test_open(f->uri);

    test_put(store, "gpus", "GPU-1", test_put(store, "gpus", "GPU-1", 0, "{\"a\":1}"), "{\"a\":2}");
    flyt_store_close(store);
    store = test_open(f->uri);
    cJSON *document = test_get(store, "gpus", "GPU-1");
    test_expect_body(document, "{\"a\":2}");
    assert_int_equal(flyt_json_number(document, "revision"), 2);
    cJSON_Delete(document);
    flyt_store_close(store);
}

static void test_second_manager_is_refused(void **state)
{
    struct fixture *f = *state;
    struct flyt_store *store = test_open(f->uri);
    char word[64], link_path[PATH_MAX + 32], uri[PATH_MAX + 64];

    snprintf(word, sizeof word, "pid %ld since 20", (long)getpid());
    expect_refused(f->uri, -EBUSY, word);
    /* The same file by another name has the same lock. */
    snprintf(link_path, sizeof link_path, "%s/other.db", f->folder);
    assert_int_equal(symlink(f->path, link_path), 0);
    snprintf(uri, sizeof uri, "sqlite://%s", link_path);
    expect_refused(uri, -EBUSY, word);
    /* The refused one has broken nothing: the first still writes, and a process of its own is refused too. */
    test_put(store, "meta", "a", 0, "{}");
    pid_t child = fork();
    if (child == 0) {
        struct flyt_store *second = NULL;
        _exit(flyt_store_open(f->uri, 100, NULL, &second) == -EBUSY ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    flyt_store_close(store);
    flyt_store_close(test_open(f->uri));
}

static void test_killed_manager_leaves_no_lock(void **state)
{
    struct fixture *f = *state;
    int ready[2], status;
    char byte;

    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        struct flyt_store *store = NULL;
        if (flyt_store_open(f->uri, 100, NULL, &store) == 0 && write(ready[1], "x", 1) == 1)
            pause();
        _exit(1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    char word[64];
    snprintf(word, sizeof word, "pid %ld", (long)child);
    expect_refused(f->uri, -EBUSY, word);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    close(ready[0]);
    close(ready[1]);
    flyt_store_close(test_open(f->uri));
}

/* ---- a writer that is killed ---- */

/* Puts documents and one counter for ever; says each acknowledged number. */
static void write_until_killed(const char *uri, int acknowledged_fd)
{
    struct flyt_store *store = NULL;
    uint64_t revision = 0;

    if (flyt_store_open(uri, TEST_TIMEOUT_MS, NULL, &store) != 0)
        _exit(1);
    for (uint32_t number = 1;; number++) {
        cJSON *document = cJSON_CreateObject(), *counter = cJSON_CreateObject();
        char id[32];
        snprintf(id, sizeof id, "%08u", number);
        cJSON_AddNumberToObject(document, "number", number);
        cJSON_AddNumberToObject(counter, "number", number);
        if (flyt_store_put(store, "events", id, 0, NULL, document, NULL) != FLYT_STORE_OK ||
            flyt_store_put(store, "meta", "counters", revision++, NULL, counter, NULL) != FLYT_STORE_OK ||
            write(acknowledged_fd, &number, sizeof number) != sizeof number)
            _exit(2);
        cJSON_Delete(document);
        cJSON_Delete(counter);
    }
}

static void test_acknowledged_writes_survive_a_kill(void **state)
{
    for (unsigned round = 0; round < 8; round++) {
        struct fixture *f = *state;
        char uri[PATH_MAX + 64];
        int acknowledged[2], status;
        uint32_t last = 0, number;

        snprintf(uri, sizeof uri, "sqlite://%s/kill-%u.db", f->folder, round);
        assert_int_equal(pipe(acknowledged), 0);
        pid_t child = fork();
        if (child == 0)
            write_until_killed(uri, acknowledged[1]);
        close(acknowledged[1]);
        /* Killed after another number of writes in each round, somewhere inside the next one. */
        while (last < 5 + 7 * round && read(acknowledged[0], &number, sizeof number) == sizeof number)
            last = number;
        usleep(137 * round);
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        while (read(acknowledged[0], &number, sizeof number) == sizeof number)
            last = number;
        close(acknowledged[0]);

        struct flyt_store *store = test_open(uri);
        cJSON *events = test_list_all(store, "events", 0), *counter = test_get(store, "meta", "counters");
        double counted = cJSON_GetObjectItem(counter, "number")->valuedouble;
        int count = cJSON_GetArraySize(events), expected = 0;
        /* What was acknowledged, and at most the two writes after it. */
        assert_true(counted == last || counted == last + 1);
        assert_true(count == (int)last || count == (int)last + 1);
        assert_int_equal(flyt_json_number(counter, "revision"), (uint64_t)counted);
        const cJSON *event;
        cJSON_ArrayForEach(event, events)
            assert_int_equal(cJSON_GetObjectItem(event, "number")->valuedouble, ++expected);
        cJSON_Delete(events);
        cJSON_Delete(counter);
        flyt_store_close(store);
    }
}

/* ---- backup ---- */

/* A store with enough documents for some hundred pages, closed again. */
static void fill(const char *uri)
{
    struct flyt_store *store = test_open(uri);
    char body[2100] = "{\"text\":\"", id[16];

    memset(body + strlen(body), 'x', 2000);
    strcat(body, "\"}");
    for (unsigned i = 0; i < 200; i++) {
        snprintf(id, sizeof id, "%04u", i);
        test_put(store, "events", id, 0, body);
    }
    flyt_store_close(store);
}

static void test_backup_is_equal(void **state)
{
    struct fixture *f = *state;
    char path[PATH_MAX + 32], uri[PATH_MAX + 64];
    struct flyt_error err = {0};
    struct stat stat_of;

    fill(f->uri);
    struct flyt_store *store = test_open(f->uri), *copy;
    test_put(store, "events", "0007", 1, "{\"changed\":true}");
    snprintf(path, sizeof path, "%s/copy.db", f->folder);
    snprintf(uri, sizeof uri, "sqlite://%s", path);
    assert_int_equal(flyt_store_backup(store, path, &err), 0);
    assert_int_equal(stat(path, &stat_of), 0);
    assert_int_equal(stat_of.st_mode & 0777, 0600);
    /* What is written afterwards is not in it, and an existing file is left alone. */
    test_put(store, "events", "later", 0, "{}");
    assert_int_equal(flyt_store_backup(store, path, &err), -EEXIST);
    copy = test_open(uri);
    cJSON *before = test_list_all(store, "events", 0), *after = test_list_all(copy, "events", 0);
    assert_int_equal(cJSON_GetArraySize(before), 201);
    cJSON_DeleteItemFromArray(before, 200);
    assert_true(flyt_json_equal(before, after, false));
    cJSON_Delete(before);
    cJSON_Delete(after);
    flyt_store_close(copy);
    snprintf(path, sizeof path, "%s/none/copy.db", f->folder);
    assert_int_equal(flyt_store_backup(store, path, &err), -ENOENT);
    flyt_store_close(store);
}

/* ---- trouble ---- */

static void test_other_files_are_refused(void **state)
{
    struct fixture *f = *state;
    FILE *file = fopen(f->path, "w");

    for (unsigned i = 0; i < 2000; i++)
        fputs("no database ", file);
    fclose(file);
    expect_refused(f->uri, -EUCLEAN, "not a database");
    unlink(f->path);
    by_hand(f->path, "CREATE TABLE recipes (name TEXT)");
    expect_refused(f->uri, -EPROTO, "another program");
    unlink(f->path);
    assert_int_equal(mkdir(f->path, 0700), 0);
    expect_refused(f->uri, -EINVAL, "no regular file");
}

static void test_damage_is_found(void **state)
{
    struct fixture *f = *state;
    struct stat before;
    char noise[4096];

    fill(f->uri);
    assert_int_equal(stat(f->path, &before), 0);
    assert_true(before.st_size > 100 * 4096);
    int fd = open(f->path, O_RDWR);
    memset(noise, 0xa5, sizeof noise);
    assert_int_equal(pwrite(fd, noise, sizeof noise, 20 * 4096), sizeof noise);
    close(fd);
    expect_refused(f->uri, -EUCLEAN, "damaged");
}

static void test_damage_while_open_is_broken(void **state)
{
    struct fixture *f = *state;
    struct flyt_error err = {0};
    cJSON *documents = NULL;
    char noise[4096];
    struct stat size;

    fill(f->uri);
    struct flyt_store *store = test_open(f->uri);
    assert_int_equal(stat(f->path, &size), 0);
    /* Through a second connection, which makes the first forget its cached pages; then every page behind the schema. */
    by_hand(f->path, "PRAGMA wal_checkpoint(TRUNCATE); CREATE TABLE other (x); DROP TABLE other;"
                     "PRAGMA wal_checkpoint(TRUNCATE)");
    int fd = open(f->path, O_RDWR);
    memset(noise, 0xa5, sizeof noise);
    for (off_t at = 4096; at < size.st_size; at += 4096)
        assert_int_equal(pwrite(fd, noise, sizeof noise, at), sizeof noise);
    close(fd);
    test_expect(flyt_store_list(store, "events", NULL, 0, &err, &documents), FLYT_STORE_BROKEN, &err);
    assert_non_null(strstr(err.text, "damaged"));
    assert_null(documents);
    flyt_store_close(store);
}

static void test_unreadable_row_does_not_hide_others(void **state)
{
    struct fixture *f = *state;
    struct flyt_store *store = test_open(f->uri);
    struct flyt_error err = {0};
    cJSON *document = NULL, *documents;

    test_put(store, "gpus", "a", 0, "{\"n\":1}");
    by_hand(f->path, "INSERT INTO documents VALUES ('gpus', 'b', 7, '{\"cut\":');"
                     "INSERT INTO documents VALUES ('gpus', 'c', 1, '[1]')");
    test_put(store, "gpus", "d", 0, "{\"n\":4}");
    test_expect(flyt_store_get(store, "gpus", "b", &err, &document), FLYT_STORE_BROKEN, &err);
    test_expect(flyt_store_get(store, "gpus", "c", &err, &document), FLYT_STORE_BROKEN, &err);
    documents = test_list_all(store, "gpus", 0);
    assert_int_equal(cJSON_GetArraySize(documents), 4);
    for (int i = 0; i < 4; i++) {
        const cJSON *one = cJSON_GetArrayItem(documents, i);
        assert_int_equal(cJSON_HasObjectItem(one, "_broken"), i == 1 || i == 2);
        assert_int_equal(flyt_json_number(one, "revision"), i == 1 ? 7 : 1);
    }
    cJSON_Delete(documents);
    /* It can be written over by who says its revision. */
    test_put(store, "gpus", "b", 7, "{\"n\":2}");
    flyt_store_close(store);
}

static void test_rows_by_hand_have_no_revision(void **state)
{
    struct fixture *f = *state;
    struct flyt_store *store = test_open(f->uri);
    struct flyt_error err = {0};
    cJSON *document = test_document("{\"vm_ip\":\"10.0.0.1\",\"compute_units\":16}");

    by_hand(f->path, "INSERT INTO documents (collection, id, body) VALUES ('vm', 'x', '{\"vm_ip\":\"10.0.0.1\"}')");
    cJSON *seen = test_get(store, "vm", "x");
    assert_int_equal(flyt_json_number(seen, "revision"), 0);
    test_expect(flyt_store_put(store, "vm", "x", 0, NULL, document, &err), FLYT_STORE_CONFLICT, &err);
    by_hand(f->path, "UPDATE documents SET body = '{\"vm_ip\":\"10.0.0.2\"}' WHERE id = 'x'");
    test_expect(flyt_store_put(store, "vm", "x", 0, seen, document, &err), FLYT_STORE_CONFLICT, &err);
    cJSON_Delete(seen);
    seen = test_get(store, "vm", "x");
    test_expect(flyt_store_put(store, "vm", "x", 0, seen, document, &err), FLYT_STORE_OK, &err);
    assert_int_equal(flyt_json_number(document, "revision"), 1);
    cJSON_Delete(seen);
    cJSON_Delete(document);
    flyt_store_close(store);
}

static void test_lock_of_another_program_is_unavailable(void **state)
{
    struct fixture *f = *state;
    struct flyt_store *store = NULL;
    struct flyt_error err = {0};
    cJSON *document = test_document("{}"), *there;
    sqlite3 *db;

    assert_int_equal(flyt_store_open(f->uri, 50, &err, &store), 0);
    assert_int_equal(sqlite3_open(f->path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    test_expect(flyt_store_put(store, "meta", "a", 0, NULL, document, &err), FLYT_STORE_UNAVAILABLE, &err);
    assert_null(cJSON_GetObjectItem(document, "revision"));
    test_expect(flyt_store_raise(store, "meta", "epoch", 1, &err, NULL), FLYT_STORE_UNAVAILABLE, &err);
    test_expect(flyt_store_get(store, "meta", "a", &err, &there), FLYT_STORE_NOT_FOUND, &err);
    assert_int_equal(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    test_expect(flyt_store_put(store, "meta", "a", 0, NULL, document, &err), FLYT_STORE_OK, &err);
    cJSON_Delete(document);
    flyt_store_close(store);
}

/* In a child with a small file system of its own. Exit status 77: no such thing is allowed here. */
static int run_disk_full(const char *folder)
{
    char uri[PATH_MAX + 64], *body = malloc(100001);
    struct flyt_store *store = NULL;
    struct flyt_error err = {0};
    enum flyt_store_result result = FLYT_STORE_OK;
    cJSON *document = NULL;
    unsigned count = 0;

    if (unshare(CLONE_NEWNS) < 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
        return 77;
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || mount("none", folder, "tmpfs", 0, "size=2m") < 0)
        return 77;
    snprintf(uri, sizeof uri, "sqlite://%s/full.db", folder);
    if (flyt_store_open(uri, 100, &err, &store) != 0)
        return 10;
    memset(body, 'x', 100000);
    body[100000] = 0;
    for (; result == FLYT_STORE_OK && count < 100; count++) {
        char id[16];
        snprintf(id, sizeof id, "%03u", count);
        document = cJSON_CreateObject();
        cJSON_AddStringToObject(document, "text", body);
        result = flyt_store_put(store, "events", id, 0, NULL, document, &err);
        if (result == FLYT_STORE_OK)
            cJSON_Delete(document);
    }
    if (result != FLYT_STORE_BROKEN || !strstr(err.text, "full") || cJSON_HasObjectItem(document, "revision"))
        return 11;
    cJSON_Delete(document);
    /* Nothing of the refused one is there, all others are, also after opening it again. */
    for (unsigned round = 0; round < 2; round++) {
        cJSON *documents = NULL;
        if (flyt_store_list(store, "events", NULL, 0, &err, &documents) != FLYT_STORE_OK ||
            cJSON_GetArraySize(documents) != (int)count - 1)
            return 12;
        cJSON_Delete(documents);
        flyt_store_close(store);
        if (flyt_store_open(uri, 100, &err, &store) != 0)
            return 13;
    }
    /* Raising writes each anew, which has no room: not one of them is raised. */
    cJSON *documents = NULL, *one;
    if (flyt_store_raise(store, "events", "epoch", 2, &err, NULL) != FLYT_STORE_BROKEN || !strstr(err.text, "full") ||
        flyt_store_list(store, "events", NULL, 0, &err, &documents) != FLYT_STORE_OK)
        return 15;
    cJSON_ArrayForEach(one, documents)
    {
        if (flyt_json_number(one, "revision") != 1 || cJSON_HasObjectItem(one, "epoch"))
            return 16;
    }
    cJSON_Delete(documents);
    /* A backup has no room, says so and leaves nothing. */
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/copy.db", folder);
    if (flyt_store_backup(store, path, &err) != -ENOSPC || access(path, F_OK) == 0)
        return 14;
    flyt_store_close(store);
    free(body);
    return 0;
}

static void test_full_disk_is_broken(void **state)
{
    struct fixture *f = *state;
    pid_t child = fork();
    int status;

    if (child == 0)
        _exit(run_disk_full(f->folder));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        print_message("a full disk was not tested: no mount namespace is allowed here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- schema ---- */

static int rename_members(struct flyt_store *store, struct flyt_error *err)
{
    cJSON *documents = NULL, *document;
    enum flyt_store_result result = flyt_store_list(store, "gpus", NULL, 0, err, &documents);

    cJSON_ArrayForEach(document, documents)
    {
        cJSON *copy = cJSON_Duplicate(document, 1), *old = cJSON_DetachItemFromObject(copy, "sms");
        uint64_t revision = flyt_json_number(document, "revision");
        if (old)
            cJSON_AddItemToObject(copy, "sm_count", old);
        if (result == FLYT_STORE_OK)
            result =
                flyt_store_put(store, "gpus", cJSON_GetObjectItem(copy, "_id")->valuestring, revision, NULL, copy, err);
        cJSON_Delete(copy);
    }
    cJSON_Delete(documents);
    return result == FLYT_STORE_OK ? 0 : -EIO;
}

static int fail_always(struct flyt_store *store, struct flyt_error *err)
{
    return flyt_error_set(err, -EDOM, "this step always fails");
}

/* The first schema there ever was, as its file looked, and two versions after it. */
static const char *const oldest =
    "PRAGMA application_id = 1181514100; PRAGMA user_version = 1;"
    "CREATE TABLE documents (collection TEXT NOT NULL, id TEXT NOT NULL, revision INTEGER NOT NULL DEFAULT 0,"
    " body TEXT NOT NULL, PRIMARY KEY (collection, id));"
    "INSERT INTO documents VALUES ('gpus', 'GPU-1', 3, '{\"sms\":132}'), ('gpus', 'GPU-2', 9, '{\"sms\":114,\"x\":1}')";

static void test_older_schema_is_taken_forward(void **state)
{
    struct fixture *f = *state;
    const struct flyt_schema_step steps[] = {
        {.to = 1, .sql = "CREATE TABLE never_made_again (x)"},
        {.to = 2, .sql = "ALTER TABLE documents ADD COLUMN changed_ms INTEGER"},
        {.to = 3, .sql = "CREATE INDEX by_change ON documents (changed_ms)", .documents = rename_members},
    };
    const struct flyt_schema newer = {steps, 3},
                             failing = {(struct flyt_schema_step[]){
                                            steps[0], steps[1], steps[2], {.to = 4, .documents = fail_always}},
                                        4};
    struct flyt_store *store = NULL;
    struct flyt_error err = {0};

    by_hand(f->path, oldest);
    /* A step that fails undoes those before it: the file is as it was. */
    assert_int_equal(flyt_store_open_schema(f->uri, 100, &failing, &err, &store), -EDOM);
    store = test_open(f->uri);
    cJSON *document = test_get(store, "gpus", "GPU-1");
    test_expect_body(document, "{\"sms\":132}");
    assert_int_equal(flyt_json_number(document, "revision"), 3);
    cJSON_Delete(document);
    flyt_store_close(store);

    assert_int_equal(flyt_store_open_schema(f->uri, 100, &newer, &err, &store), 0);
    document = test_get(store, "gpus", "GPU-1");
    test_expect_body(document, "{\"sm_count\":132}");
    assert_int_equal(flyt_json_number(document, "revision"), 4);
    cJSON_Delete(document);
    document = test_get(store, "gpus", "GPU-2");
    test_expect_body(document, "{\"x\":1,\"sm_count\":114}");
    cJSON_Delete(document);
    flyt_store_close(store);

    /* Again: nothing is done twice. Then with a program that knows only the first schema. */
    assert_int_equal(flyt_store_open_schema(f->uri, 100, &newer, &err, &store), 0);
    document = test_get(store, "gpus", "GPU-1");
    assert_int_equal(flyt_json_number(document, "revision"), 4);
    cJSON_Delete(document);
    flyt_store_close(store);
    expect_refused(f->uri, -EPROTO, "schema 3");
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_file_is_private),
        TEST(test_bad_uris_are_refused),
        TEST(test_documents_outlive_the_store),
        TEST(test_second_manager_is_refused),
        TEST(test_killed_manager_leaves_no_lock),
        TEST(test_acknowledged_writes_survive_a_kill),
        TEST(test_backup_is_equal),
        TEST(test_other_files_are_refused),
        TEST(test_damage_is_found),
        TEST(test_damage_while_open_is_broken),
        TEST(test_unreadable_row_does_not_hide_others),
        TEST(test_rows_by_hand_have_no_revision),
        TEST(test_lock_of_another_program_is_unavailable),
        TEST(test_full_disk_is_broken),
        TEST(test_older_schema_is_taken_forward),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
