/* Kept documents on a SQLite file: in which order they are written, and that all of them are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/base/json_memory.h"
#include "control/cluster/io/store_writer.h"

enum { DOCUMENTS = 400, AWAITED = 40 };

struct fixture {
    sd_event *event;
    struct flyt_store_writer *store_writer;
    struct flyt_record *record[DOCUMENTS];
    unsigned told_count;
    size_t waiting_when_told; /* the last one */
    struct awaited {
        struct fixture *fixture;
        unsigned document;
        struct flyt_record_wait wait;
    } awaited[DOCUMENTS];
    char folder[32], path[64];
};

static cJSON *make(void *object)
{
    cJSON *document = cJSON_CreateObject();

    cJSON_AddNumberToObject(document, "number", (double)(intptr_t)object);
    return document;
}

static void overruled(uint64_t epoch, void *user)
{
    fail();
}

static void turned(bool is_available, const char *cause, void *user)
{
    fail_msg("the store has failed: %s", cause);
}

static void open_store_writer(struct fixture *f)
{
    struct flyt_store *store;
    struct flyt_error err = {0};
    char uri[96];

    snprintf(uri, sizeof uri, "sqlite://%s", f->path);
    assert_int_equal(flyt_store_open(uri, 2500, &err, &store), 0);
    struct flyt_store_writer_config config = {
        .event = f->event, .store = store, .user = f, .overruled = overruled, .turned = turned};
    assert_int_equal(flyt_store_writer_new(&config, &f->store_writer), 0);
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    assert_non_null(f);
    snprintf(f->folder, sizeof f->folder, "/tmp/flyt-keep-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    snprintf(f->path, sizeof f->path, "%s/store.db", f->folder);
    assert_true(sd_event_new(&f->event) >= 0);
    open_store_writer(f);
    for (intptr_t i = 0; i < DOCUMENTS; i++) {
        char id[16];
        snprintf(id, sizeof id, "%04d", (int)i);
        f->record[i] = flyt_record_new(f->store_writer, "things", id, 0, make, (void *)(i + 1));
        assert_non_null(f->record[i]);
    }
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    static const char *const suffixes[] = {"", "-wal", "-shm", ".lock", "-lock"};
    char path[96];

    for (unsigned i = 0; i < DOCUMENTS; i++)
        flyt_record_free(f->record[i]);
    flyt_store_writer_free(f->store_writer);
    sd_event_unref(f->event);
    for (unsigned i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        snprintf(path, sizeof path, "%s%s", f->path, suffixes[i]);
        unlink(path);
    }
    assert_int_equal(rmdir(f->folder), 0);
    free(f);
    return 0;
}

static void await(struct fixture *f, unsigned i, flyt_record_done_fn done)
{
    struct awaited *awaited = &f->awaited[i];

    *awaited = (struct awaited){.fixture = f, .document = i, .wait = {.done = done, .user = awaited}};
    flyt_record_change(f->record[i], &awaited->wait);
}

static void told(void *user, enum flyt_store_result result, const char *err)
{
    struct fixture *f = ((struct awaited *)user)->fixture;

    assert_int_equal(result, FLYT_STORE_OK);
    f->told_count++;
    f->waiting_when_told = flyt_store_writer_waiting(f->store_writer);
}

static void run_until_written(struct fixture *f)
{
    while (flyt_store_writer_waiting(f->store_writer))
        assert_true(sd_event_run(f->event, 10000000) > 0);
}

/* Everything is there, once. */
static void look_into_the_store(struct fixture *f)
{
    struct flyt_store *store = flyt_store_writer_store(f->store_writer);
    cJSON *documents = NULL, *document;
    int expected = 1;

    assert_int_equal(flyt_store_list(store, "things", NULL, 0, NULL, &documents), FLYT_STORE_OK);
    cJSON_ArrayForEach(document, documents)
        assert_int_equal(cJSON_GetObjectItem(document, "number")->valueint, expected++);
    assert_int_equal(expected, DOCUMENTS + 1);
    cJSON_Delete(documents);
}

/* No memory for one of a document's members: it is not written without it, and whoever waits is told. */
static _Thread_local unsigned left_count;

static void *allocate_few(size_t bytes)
{
    return left_count && !--left_count ? NULL : malloc(bytes);
}

static void told_how(void *user, enum flyt_store_result result, const char *err)
{
    *(enum flyt_store_result *)user = result;
}

static void test_what_lacks_a_member_is_not_written(void **state)
{
    struct fixture *f = *state;
    enum flyt_store_result result;
    unsigned refused_count = 0;

    flyt_json_watch_memory(allocate_few);
    for (unsigned n = 1; n < 8; n++) { /* the n-th allocation fails; making the document needs fewer */
        result = FLYT_STORE_UNKNOWN;
        left_count = n;
        struct flyt_record_wait wait = {.done = told_how, .user = &result};
        flyt_record_change(f->record[n], &wait);
        assert_int_equal(result, FLYT_STORE_UNKNOWN);
        while (result == FLYT_STORE_UNKNOWN)
            assert_true(sd_event_run(f->event, 10000000) > 0);
        left_count = 0;
        refused_count += result == FLYT_STORE_UNAVAILABLE;
    }
    assert_in_range(refused_count, 2, 6);
    flyt_json_watch_memory(NULL);
    /* What was refused is tried again. */
    for (unsigned i = 0; i < DOCUMENTS; i++)
        flyt_record_change(f->record[i], NULL);
    run_until_written(f);
    look_into_the_store(f);
}

/* Who is told that it was not written changes it again at once, and waits again. */
static void once_more(void *user, enum flyt_store_result result, const char *err)
{
    struct awaited *awaited = user;

    assert_int_equal(result, FLYT_STORE_UNAVAILABLE);
    await(awaited->fixture, awaited->document, told);
}

static void test_what_was_not_written_is_changed_again(void **state)
{
    struct fixture *f = *state;

    flyt_json_watch_memory(allocate_few);
    left_count = 1;
    await(f, 0, once_more);
    for (unsigned i = 1; i < DOCUMENTS; i++)
        flyt_record_change(f->record[i], NULL);
    while (!f->told_count)
        assert_true(sd_event_run(f->event, 10000000) > 0);
    assert_int_equal(f->told_count, 1);
    flyt_json_watch_memory(NULL);
    run_until_written(f);
    look_into_the_store(f);
}

static void test_what_is_awaited_comes_first(void **state)
{
    struct fixture *f = *state;

    for (unsigned i = 0; i < DOCUMENTS; i++)
        flyt_record_change(f->record[i], NULL);
    /* New ones and one that is queued already: all from the queue's end. */
    for (unsigned i = DOCUMENTS - AWAITED; i < DOCUMENTS; i++)
        await(f, i, told);
    while (f->told_count < AWAITED)
        assert_true(sd_event_run(f->event, 10000000) > 0);
    assert_true(f->waiting_when_told > DOCUMENTS / 2);
    run_until_written(f);
    look_into_the_store(f);
}

/* Who is awaited again and again does not keep the others from being written. */
static void again(void *user, enum flyt_store_result result, const char *err)
{
    const struct awaited *awaited = user;
    struct fixture *f = awaited->fixture;

    assert_int_equal(result, FLYT_STORE_OK);
    assert_true(++f->told_count < 100 * DOCUMENTS);
    if (flyt_store_writer_waiting(f->store_writer) > AWAITED)
        await(f, awaited->document, again);
}

static void test_others_are_written_too(void **state)
{
    struct fixture *f = *state;

    for (unsigned i = 0; i < DOCUMENTS; i++)
        if (i < AWAITED)
            await(f, i, again);
        else
            flyt_record_change(f->record[i], NULL);
    run_until_written(f);
    assert_true(f->told_count >= AWAITED);
    look_into_the_store(f);
}

static void told_lost(void *user, enum flyt_store_result result, const char *err)
{
    assert_int_equal(result, FLYT_STORE_UNAVAILABLE);
    ((struct awaited *)user)->fixture->told_count++;
}

/* Who waits is told, and from the loop. */
static void test_let_go_while_they_wait(void **state)
{
    struct fixture *f = *state;

    for (unsigned i = 0; i < DOCUMENTS; i++)
        if (i < 100 || i >= 200)
            flyt_record_change(f->record[i], NULL);
        else
            await(f, i, told_lost);
    for (unsigned i = 100; i < 200; i++)
        f->record[i] = flyt_record_free(f->record[i]);
    assert_int_equal(f->told_count, 0);
    run_until_written(f);
    assert_int_equal(f->told_count, 100);
}

/* The store writer ends with a document to be deleted, and one that is let go. */
static void test_ends_while_they_wait(void **state)
{
    struct fixture *f = *state;

    for (unsigned i = 0; i < 2; i++)
        f->awaited[i] = (struct awaited){.fixture = f, .wait = {.done = told_lost, .user = &f->awaited[i]}};
    flyt_record_change(f->record[0], &f->awaited[0].wait);
    flyt_record_delete(f->record[1], &f->awaited[1].wait);
    f->record[1] = NULL;
    for (unsigned i = 0; i < DOCUMENTS; i++)
        f->record[i] = flyt_record_free(f->record[i]);
    f->store_writer = flyt_store_writer_free(f->store_writer);
    assert_int_equal(f->told_count, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_lacks_a_member_is_not_written, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_was_not_written_is_changed_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_awaited_comes_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_others_are_written_too, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_let_go_while_they_wait, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_ends_while_they_wait, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
