/* What every store does, over a SQLite file and over MongoDB. The second part runs against the server that
 * FLYT_TEST_MONGODB_URI names, else against the stand-in (tests/system/mongod_stand_in.py). */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/store/json.h"
#include "control/store/test_mongod.h"
#include "control/store/test_store.h"

struct fixture {
    char folder[PATH_MAX], uri[PATH_MAX + 64], database[64]; /* one of folder and database */
    struct flyt_store *store;
};

static int set_up_sqlite(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    test_folder_make(f->folder);
    snprintf(f->uri, sizeof f->uri, "sqlite://%s/store.db", f->folder);
    f->store = test_open(f->uri);
    *state = f;
    return 0;
}

static int set_up_mongodb(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    test_mongod_database(f->database, sizeof f->database);
    test_mongod_uri(f->database, f->uri, sizeof f->uri);
    f->store = test_open(f->uri);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    f->store = flyt_store_close(f->store);
    if (*f->folder)
        test_folder_remove(f->folder);
    else
        test_mongod_drop(f->database);
    free(f);
    return 0;
}

static void test_results(void **state)
{
    struct flyt_store *store = ((struct fixture *)*state)->store;
    struct flyt_error err = {0};
    cJSON *document = test_document("{\"a\":1}"), *there = NULL;

    test_expect(flyt_store_get(store, "gpus", "GPU-1", &err, &there), FLYT_STORE_NOT_FOUND, &err);
    assert_null(there);
    test_expect(flyt_store_put(store, "gpus", "GPU-1", 3, NULL, document, &err), FLYT_STORE_NOT_FOUND, &err);
    test_expect(flyt_store_delete(store, "gpus", "GPU-1", 1, &err), FLYT_STORE_NOT_FOUND, &err);
    test_expect(flyt_store_put(store, "gpus", "GPU-1", 0, there, document, &err), FLYT_STORE_OK, &err);
    assert_int_equal(flyt_json_number(document, "revision"), 1);
    assert_string_equal(cJSON_GetObjectItem(document, "_id")->valuestring, "GPU-1");
    test_expect_body(document, "{\"a\":1}");

    cJSON *other = test_document("{\"a\":2}");
    test_expect(flyt_store_put(store, "gpus", "GPU-1", 0, NULL, other, &err), FLYT_STORE_CONFLICT, &err);
    test_expect(flyt_store_put(store, "gpus", "GPU-1", 2, NULL, other, &err), FLYT_STORE_CONFLICT, &err);
    assert_null(cJSON_GetObjectItem(other, "_id"));
    assert_null(cJSON_GetObjectItem(other, "revision"));
    there = test_get(store, "gpus", "GPU-1");
    test_expect_body(there, "{\"a\":1}");
    cJSON_Delete(there);
    test_expect(flyt_store_put(store, "gpus", "GPU-1", 1, NULL, other, &err), FLYT_STORE_OK, &err);
    /* The document carries its new revision: it can be put again as it is. */
    test_expect(flyt_store_put(store, "gpus", "GPU-1", flyt_json_number(other, "revision"), NULL, other, &err),
                FLYT_STORE_OK, &err);
    assert_int_equal(flyt_json_number(other, "revision"), 3);
    /* Same _id, other collection: another document. */
    test_put(store, "nodes", "GPU-1", 0, "{\"b\":[]}");
    test_expect(flyt_store_delete(store, "gpus", "GPU-1", 2, &err), FLYT_STORE_CONFLICT, &err);
    test_expect(flyt_store_delete(store, "gpus", "GPU-1", 0, &err), FLYT_STORE_CONFLICT, &err);
    test_expect(flyt_store_delete(store, "gpus", "GPU-1", 3, &err), FLYT_STORE_OK, &err);
    test_expect(flyt_store_delete(store, "gpus", "GPU-1", 3, &err), FLYT_STORE_NOT_FOUND, &err);
    test_expect(flyt_store_get(store, "gpus", "GPU-1", NULL, &there), FLYT_STORE_NOT_FOUND, &err);
    there = test_get(store, "nodes", "GPU-1");
    test_expect_body(there, "{\"b\":[]}");
    cJSON_Delete(there);
    cJSON_Delete(document);
    cJSON_Delete(other);
}

static void test_seen_is_compared(void **state)
{
    struct flyt_store *store = ((struct fixture *)*state)->store;
    struct flyt_error err = {0};
    cJSON *document = test_document("{\"n\":9}"), *seen;

    test_put(store, "vms", "a", 0, "{\"n\":1.5,\"list\":[1,{\"x\":null}],\"t\":\"é\"}");
    seen = test_get(store, "vms", "a");
    /* The right revision, another body; the right body, another revision. */
    cJSON *wrong = test_document("{\"n\":1.5,\"list\":[1,{\"x\":false}],\"t\":\"é\"}");
    test_expect(flyt_store_put(store, "vms", "a", 1, wrong, document, &err), FLYT_STORE_CONFLICT, &err);
    test_expect(flyt_store_put(store, "vms", "a", 2, seen, document, &err), FLYT_STORE_CONFLICT, &err);
    test_expect(flyt_store_put(store, "vms", "a", 0, seen, document, &err), FLYT_STORE_CONFLICT, &err);
    test_expect(flyt_store_put(store, "vms", "none", 0, seen, document, &err), FLYT_STORE_NOT_FOUND, &err);
    test_expect(flyt_store_put(store, "vms", "a", 1, seen, document, &err), FLYT_STORE_OK, &err);
    assert_int_equal(flyt_json_number(document, "revision"), 2);
    cJSON_Delete(seen);
    cJSON_Delete(wrong);
    cJSON_Delete(document);
    document = test_get(store, "vms", "a");
    test_expect_body(document, "{\"n\":9}");
    cJSON_Delete(document);
}

static void test_values_are_exact(void **state)
{
    struct flyt_store *store = ((struct fixture *)*state)->store;
    static const double numbers[] = {0,
                                     1,
                                     -1,
                                     9007199254740992.0,
                                     9007199254740991.0,
                                     -9007199254740991.0,
                                     2147483648.0,
                                     -2147483649.0,
                                     1795000000123.0,
                                     0.1,
                                     0.1 + 0.2,
                                     1.0 / 3,
                                     4.5,
                                     1e300,
                                     5e-324,
                                     1.7976931348623157e308,
                                     1e17,
                                     123456789.123456789};
    static const char text[] = "{\"plain\":\"Zoë 木 😀\",\"quote\\\"\\\\/\\n\\u0001\":\"\\u0007\\t\\\"\\\\\",\"a.b\":[],"
                               "\"\":{},\"with $\":[[],[{}]],\"yes\":true,\"no\":false,\"nothing\":null,"
                               "\"revisions\":{\"_id\":1,\"revision\":2}}";
    cJSON *document = cJSON_CreateObject(), *list = cJSON_AddArrayToObject(document, "numbers");
    struct flyt_error err = {0};

    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++)
        cJSON_AddItemToArray(list, cJSON_CreateNumber(numbers[i]));
    test_expect(flyt_store_put(store, "meta", "numbers", 0, NULL, document, &err), FLYT_STORE_OK, &err);
    cJSON_Delete(document);
    document = test_get(store, "meta", "numbers");
    list = cJSON_GetObjectItem(document, "numbers");
    assert_int_equal(cJSON_GetArraySize(list), sizeof numbers / sizeof *numbers);
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        double got = cJSON_GetArrayItem(list, (int)i)->valuedouble;
        if (memcmp(&got, &numbers[i], sizeof got) != 0)
            fail_msg("%.17g came back as %.17g", numbers[i], got);
    }
    cJSON_Delete(document);
    test_put(store, "meta", "text", 0, text);
    document = test_get(store, "meta", "text");
    test_expect_body(document, text);
    cJSON_Delete(document);
}

static cJSON *nested(unsigned levels)
{
    cJSON *inner = cJSON_CreateObject();

    for (unsigned i = 1; i < levels; i++) {
        cJSON *outer = cJSON_CreateObject();
        cJSON_AddItemToObject(outer, "in", inner);
        inner = outer;
    }
    return inner;
}

static cJSON *with_text(size_t bytes)
{
    char *text = malloc(bytes + 1);
    cJSON *document = cJSON_CreateObject();

    memset(text, 'm', bytes);
    text[bytes] = 0;
    cJSON_AddStringToObject(document, "text", text);
    free(text);
    return document;
}

static void test_bounds(void **state)
{
    struct flyt_store *store = ((struct fixture *)*state)->store;
    struct flyt_error err = {0};
    cJSON *bad[8] = {nested(FLYT_STORE_DEPTH_MAX + 1), with_text(FLYT_STORE_DOCUMENT_BYTES_MAX)}, *there = NULL;
    cJSON *good[2] = {nested(FLYT_STORE_DEPTH_MAX), with_text(FLYT_STORE_DOCUMENT_BYTES_MAX - 100)};

    for (unsigned i = 2; i < 6; i++)
        bad[i] = cJSON_CreateObject();
    cJSON_AddNumberToObject(bad[2], "n", NAN);
    cJSON_AddNumberToObject(bad[3], "n", -INFINITY);
    cJSON_AddStringToObject(bad[4], "t", "cut \xc3");
    cJSON_AddStringToObject(bad[5], "surrogate \xed\xa0\x80", "x");
    bad[6] = cJSON_CreateArray();
    bad[7] = cJSON_CreateObject();
    cJSON_AddRawToObject(bad[7], "raw", "1");
    for (unsigned i = 0; i < 8; i++) {
        test_expect(flyt_store_put(store, "meta", "bad", 0, NULL, bad[i], &err), FLYT_STORE_BROKEN, &err);
        test_expect(flyt_store_get(store, "meta", "bad", &err, &there), FLYT_STORE_NOT_FOUND, &err);
        cJSON_Delete(bad[i]);
    }
    for (unsigned i = 0; i < 2; i++) {
        char id[16];
        snprintf(id, sizeof id, "good %u", i);
        test_expect(flyt_store_put(store, "meta", id, 0, NULL, good[i], &err), FLYT_STORE_OK, &err);
        there = test_get(store, "meta", id);
        assert_true(flyt_json_equal(there, good[i], true));
        cJSON_Delete(there);
        cJSON_Delete(good[i]);
    }
}

static void test_odd_names(void **state)
{
    struct flyt_store *store = ((struct fixture *)*state)->store;
    static const char *const good[] = {"10.0.0.7", "vm:10.0.0.7", "a b", "it's \"quoted\" \\ / %s ; DROP",
                                       "木",       "😀",           "{}",  "{\"a\":1}",
                                       "$where",   "a.b",         " ",   "5",
                                       "null",     "{$"};
    static const char *const collections[] = {"", "a-b", "a.b", "ä", "$cmd", "sys tem"};
    char longest[FLYT_STORE_ID_BYTES_MAX + 2];
    struct flyt_error err = {0};
    cJSON *there = NULL, *document = test_document("{}");

    for (unsigned i = 0; i < sizeof good / sizeof *good; i++) {
        char text[32];
        snprintf(text, sizeof text, "{\"number\":%u}", i);
        test_put(store, "odd", good[i], 0, text);
        there = test_get(store, "odd", good[i]);
        test_expect_body(there, text);
        cJSON_Delete(there);
    }
    there = test_list_all(store, "odd", 3);
    assert_int_equal(cJSON_GetArraySize(there), sizeof good / sizeof *good);
    cJSON_Delete(there);
    for (unsigned i = 0; i < sizeof good / sizeof *good; i++)
        test_expect(flyt_store_delete(store, "odd", good[i], 1, &err), FLYT_STORE_OK, &err);
    memset(longest, 'i', sizeof longest);
    longest[FLYT_STORE_ID_BYTES_MAX] = 0;
    test_put(store, "odd", longest, 0, "{}");
    longest[FLYT_STORE_ID_BYTES_MAX] = 'i';
    longest[FLYT_STORE_ID_BYTES_MAX + 1] = 0;
    const char *const bad[] = {"", longest, "\xff", "over\xc0\x80long"};
    for (unsigned i = 0; i < 4; i++) {
        test_expect(flyt_store_get(store, "odd", bad[i], &err, &there), FLYT_STORE_BROKEN, &err);
        test_expect(flyt_store_put(store, "odd", bad[i], 0, NULL, document, &err), FLYT_STORE_BROKEN, &err);
        test_expect(flyt_store_delete(store, "odd", bad[i], 1, &err), FLYT_STORE_BROKEN, &err);
    }
    for (unsigned i = 0; i < sizeof collections / sizeof *collections; i++)
        test_expect(flyt_store_list(store, collections[i], NULL, 0, &err, &there), FLYT_STORE_BROKEN, &err);
    cJSON_Delete(document);
}

static void test_lists_page_by_id(void **state)
{
    struct flyt_store *store = ((struct fixture *)*state)->store;
    struct flyt_error err = {0};
    char id[32];
    cJSON *all = test_list_all(store, "events", 10), *one;
    int count = 0;

    assert_int_equal(cJSON_GetArraySize(all), 0);
    cJSON_Delete(all);
    /* Written in another order than they are read. */
    for (unsigned i = 0; i < 250; i++) {
        snprintf(id, sizeof id, "%016u", i * 97 % 250);
        test_put(store, "events", id, 0, "{\"text\":\"x\"}");
    }
    test_put(store, "events_of_others", "a", 0, "{}");
    for (unsigned page = 0; page <= 300; page += 60) {
        all = test_list_all(store, "events", page);
        count = 0;
        cJSON_ArrayForEach(one, all)
        {
            snprintf(id, sizeof id, "%016d", count++);
            assert_string_equal(cJSON_GetObjectItem(one, "_id")->valuestring, id);
            assert_int_equal(flyt_json_number(one, "revision"), 1);
        }
        assert_int_equal(count, 250);
        cJSON_Delete(all);
    }
    /* After an _id that is not there; after the last. */
    test_expect(flyt_store_list(store, "events", "0000000000000099x", 1, &err, &all), FLYT_STORE_OK, &err);
    assert_string_equal(cJSON_GetObjectItem(all->child, "_id")->valuestring, "0000000000000100");
    cJSON_Delete(all);
    test_expect(flyt_store_list(store, "events", "z", 0, &err, &all), FLYT_STORE_OK, &err);
    assert_int_equal(cJSON_GetArraySize(all), 0);
    cJSON_Delete(all);
    /* By bytes, not by a language's rules. */
    static const char *const names[] = {"é", "B", "a", "Z", "10", "9", "b"}, *const ordered[] = {"10", "9", "B", "Z",
                                                                                                 "a",  "b", "é"};
    for (unsigned i = 0; i < 7; i++)
        test_put(store, "names", names[i], 0, "{}");
    all = test_list_all(store, "names", 2);
    for (int i = 0; i < 7; i++)
        assert_string_equal(cJSON_GetObjectItem(cJSON_GetArrayItem(all, i), "_id")->valuestring, ordered[i]);
    cJSON_Delete(all);
}

/* Fails unless there is a document with this revision and body. */
static void expect_there(struct flyt_store *store, const char *id, uint64_t revision, const char *body)
{
    cJSON *document = test_get(store, "gpus", id);

    test_expect_body(document, body);
    assert_int_equal(flyt_json_number(document, "revision"), revision);
    cJSON_Delete(document);
}

/* What a manager that led before does with the revision that it has read. */
static void expect_stale(struct flyt_store *store, const char *id, uint64_t revision)
{
    struct flyt_error err = {0};
    cJSON *document = test_document("{\"epoch\":4,\"stale\":true}");

    test_expect(flyt_store_put(store, "gpus", id, revision, NULL, document, &err), FLYT_STORE_CONFLICT, &err);
    test_expect(flyt_store_delete(store, "gpus", id, revision, &err), FLYT_STORE_CONFLICT, &err);
    cJSON_Delete(document);
}

static void test_raise(void **state)
{
    struct flyt_store *store = ((struct fixture *)*state)->store;
    struct flyt_error err = {0};
    uint64_t count = 77;

    test_expect(flyt_store_raise(store, "gpus", "epoch", 5, &err, &count), FLYT_STORE_OK, &err);
    assert_int_equal(count, 0);
    test_put(store, "gpus", "absent", 0, "{\"a\":0.1,\"list\":[1,{\"x\":null}]}");
    test_put(store, "gpus", "lower", 0, "{\"epoch\":1,\"z\":1e300}");
    assert_int_equal(test_put(store, "gpus", "lower", 1, "{\"epoch\":4.5,\"z\":1e300}"), 2);
    test_put(store, "gpus", "equal", 0, "{\"epoch\":5}");
    test_put(store, "gpus", "higher", 0, "{\"epoch\":6}");
    test_put(store, "gpus", "text", 0, "{\"a\":1,\"epoch\":\"9\",\"b\":2}");
    test_put(store, "gpus", "nothing", 0, "{\"epoch\":null}");
    test_put(store, "gpus", "inside", 0, "{\"of\":{\"epoch\":9}}");
    test_put(store, "nodes", "other", 0, "{\"epoch\":1}");

    test_expect(flyt_store_raise(store, "gpus", "epoch", 5, &err, &count), FLYT_STORE_OK, &err);
    assert_int_equal(count, 5);
    expect_there(store, "absent", 2, "{\"a\":0.1,\"list\":[1,{\"x\":null}],\"epoch\":5}");
    expect_there(store, "lower", 3, "{\"epoch\":5,\"z\":1e300}");
    expect_there(store, "equal", 1, "{\"epoch\":5}");
    expect_there(store, "higher", 1, "{\"epoch\":6}");
    expect_there(store, "text", 2, "{\"a\":1,\"epoch\":5,\"b\":2}");
    expect_there(store, "nothing", 2, "{\"epoch\":5}");
    expect_there(store, "inside", 2, "{\"of\":{\"epoch\":9},\"epoch\":5}");
    cJSON *other = test_get(store, "nodes", "other");
    assert_int_equal(flyt_json_number(other, "revision"), 1);
    cJSON_Delete(other);

    /* Who read them before changes none of them any more, who reads them now does. */
    expect_stale(store, "absent", 1);
    expect_stale(store, "lower", 2);
    expect_stale(store, "text", 1);
    assert_int_equal(test_put(store, "gpus", "lower", 3, "{\"epoch\":5,\"n\":1}"), 4);
    /* Again, and by who is late: nothing changes. */
    for (uint64_t value = 5; value > 2; value--) {
        test_expect(flyt_store_raise(store, "gpus", "epoch", value, &err, &count), FLYT_STORE_OK, &err);
        assert_int_equal(count, 0);
    }
    expect_there(store, "absent", 2, "{\"a\":0.1,\"list\":[1,{\"x\":null}],\"epoch\":5}");
    test_expect(flyt_store_raise(store, "gpus", "epoch", 7, &err, NULL), FLYT_STORE_OK, &err);
    expect_there(store, "higher", 2, "{\"epoch\":7}");
}

static void test_raise_bounds(void **state)
{
    struct flyt_store *store = ((struct fixture *)*state)->store;
    static const char *const names[] = {"", "_id", "revision", "_broken", "$set", "a.b", "a b", "ä"};
    struct flyt_error err = {0};
    uint64_t count = 77;
    char id[16];

    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        test_expect(flyt_store_raise(store, "gpus", names[i], 1, &err, &count), FLYT_STORE_BROKEN, &err);
    test_expect(flyt_store_raise(store, "g.p", "epoch", 1, &err, &count), FLYT_STORE_BROKEN, &err);
    test_expect(flyt_store_raise(store, "gpus", "epoch", 0, &err, &count), FLYT_STORE_BROKEN, &err);
    test_expect(flyt_store_raise(store, "gpus", "epoch", 1ull << 53, &err, &count), FLYT_STORE_BROKEN, &err);
    assert_int_equal(count, 77);
    for (unsigned i = 0; i < 1500; i++) {
        snprintf(id, sizeof id, "GPU-%u", i);
        test_put(store, "gpus", id, 0, i % 3 ? "{\"epoch\":1}" : "{\"epoch\":9007199254740991}");
    }
    test_expect(flyt_store_raise(store, "gpus", "epoch", (1ull << 53) - 1, &err, &count), FLYT_STORE_OK, &err);
    assert_int_equal(count, 1000);
    expect_there(store, "GPU-1499", 2, "{\"epoch\":9007199254740991}");
    expect_there(store, "GPU-1497", 1, "{\"epoch\":9007199254740991}");
}

int main(void)
{
#define SQLITE(function)  cmocka_unit_test_setup_teardown(function, set_up_sqlite, tear_down)
#define MONGODB(function) cmocka_unit_test_setup_teardown(function, set_up_mongodb, tear_down)
    const struct CMUnitTest on_sqlite[] = {
        SQLITE(test_results), SQLITE(test_seen_is_compared), SQLITE(test_values_are_exact),
        SQLITE(test_bounds),  SQLITE(test_odd_names),        SQLITE(test_lists_page_by_id),
        SQLITE(test_raise),   SQLITE(test_raise_bounds),
    };
    const struct CMUnitTest on_mongodb[] = {
        MONGODB(test_results), MONGODB(test_seen_is_compared), MONGODB(test_values_are_exact),
        MONGODB(test_bounds),  MONGODB(test_odd_names),        MONGODB(test_lists_page_by_id),
        MONGODB(test_raise),   MONGODB(test_raise_bounds),
    };

    int failed = cmocka_run_group_tests_name("sqlite", on_sqlite, NULL, NULL);
    test_mongod_start();
    failed += cmocka_run_group_tests_name("mongodb", on_mongodb, NULL, NULL);
    test_mongod_stop();
    return failed;
}
