/*
 * What only a MongoDB store has: documents that people wrote, other managers on the same documents, a server that is
 * down, slow, no primary, or that cuts a connection in the middle of a write. Faults need the stand-in; the rest runs
 * against FLYT_TEST_MONGODB_URI where that names a server.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/store/json.h"
#include "control/store/store_ops.h"
#include "control/store/test_mongod.h"
#include "control/store/test_store.h"

struct fixture {
    char database[64], uri[512];
    struct flyt_store *store;
};

static int set_up(void **state)
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

    flyt_store_close(f->store);
    test_mongod_drop(f->database);
    free(f);
    return 0;
}

static void need_stand_in(void)
{
    if (!test_mongod_is_stand_in())
        skip();
}

/* The result of a put of {"n":…}. */
static enum flyt_store_result put_number(struct flyt_store *store, const char *id, uint64_t revision, double number,
                                         struct flyt_error *err)
{
    cJSON *document = cJSON_CreateObject();

    cJSON_AddNumberToObject(document, "n", number);
    enum flyt_store_result result = flyt_store_put(store, "meta", id, revision, NULL, document, err);
    assert_int_equal(cJSON_HasObjectItem(document, "revision"), result == FLYT_STORE_OK);
    cJSON_Delete(document);
    return result;
}

/* Fails unless meta/ID has this number and revision. */
static void expect_number(struct flyt_store *store, const char *id, uint64_t revision, double number)
{
    cJSON *document = test_get(store, "meta", id);

    assert_true(cJSON_GetObjectItem(document, "n")->valuedouble == number);
    assert_int_equal(flyt_json_number(document, "revision"), revision);
    cJSON_Delete(document);
}

/* ---- documents that people wrote ---- */

static void test_types_of_people(void **state)
{
    struct fixture *f = *state;
    struct flyt_error err = {0};
    bson_t bson;
    bson_iter_t iter;

    test_mongod_hand(f->database,
                     "{\"insert\":\"vms\",\"documents\":[{\"_id\":\"a\",\"int\":{\"$numberInt\":\"16\"},"
                     "\"long\":{\"$numberLong\":\"151397597184\"},\"double\":{\"$numberDouble\":\"1.5\"},"
                     "\"whole\":{\"$numberDouble\":\"4.0\"},\"decimal\":{\"$numberDecimal\":\"2.5\"},"
                     "\"huge\":{\"$numberLong\":\"9007199254740993\"},\"nan\":{\"$numberDouble\":\"NaN\"},"
                     "\"date\":{\"$date\":{\"$numberLong\":\"1700000000123\"}},\"oid\":{\"$oid\":"
                     "\"0123456789abcdef01234567\"},\"nested\":{\"list\":[1,{\"deep\":null}],\"ü\":\"木\"},"
                     "\"bytes\":{\"$binary\":{\"base64\":\"AAEC\",\"subType\":\"00\"}},\"yes\":true}]}");
    cJSON *document = test_get(f->store, "vms", "a");
    test_expect_body(document,
                     "{\"int\":16,\"long\":151397597184,\"double\":1.5,\"whole\":4,\"decimal\":2.5,\"huge\":{"
                     "\"$numberLong\":\"9007199254740993\"},\"nan\":{\"$numberDouble\":\"NaN\"},\"date\":{\"$date\":"
                     "\"2023-11-14T22:13:20.123Z\"},\"oid\":{\"$oid\":\"0123456789abcdef01234567\"},\"nested\":{"
                     "\"list\":[1,{\"deep\":null}],\"ü\":\"木\"},\"bytes\":{\"$binary\":{\"base64\":\"AAEC\","
                     "\"subType\":\"00\"}},\"yes\":true}");
    assert_int_equal(flyt_json_number(document, "revision"), 0);

    /* Written back with one change: what JSON has no word for is what it was. */
    cJSON *changed = cJSON_Duplicate(document, 1);
    cJSON_AddStringToObject(changed, "name", "zoë");
    test_expect(flyt_store_put(f->store, "vms", "a", 0, document, changed, &err), FLYT_STORE_OK, &err);
    assert_int_equal(flyt_json_number(changed, "revision"), 1);
    test_mongod_find(f->database, "vms", "{\"_id\":\"a\"}", &bson);
    assert_true(bson_iter_init_find(&iter, &bson, "huge") && BSON_ITER_HOLDS_INT64(&iter));
    assert_true(bson_iter_int64(&iter) == 9007199254740993);
    assert_true(bson_iter_init_find(&iter, &bson, "nan") && BSON_ITER_HOLDS_DOUBLE(&iter));
    assert_true(bson_iter_init_find(&iter, &bson, "date") && BSON_ITER_HOLDS_DATE_TIME(&iter));
    assert_true(bson_iter_date_time(&iter) == 1700000000123);
    assert_true(bson_iter_init_find(&iter, &bson, "oid") && BSON_ITER_HOLDS_OID(&iter));
    assert_true(bson_iter_init_find(&iter, &bson, "bytes") && BSON_ITER_HOLDS_BINARY(&iter));
    assert_true(bson_iter_init_find(&iter, &bson, "double") && bson_iter_double(&iter) == 1.5);
    assert_true(bson_iter_init_find(&iter, &bson, "revision") && bson_iter_as_int64(&iter) == 1);
    bson_destroy(&bson);
    cJSON_Delete(changed);
    cJSON_Delete(document);
}

static void test_revisions_of_people(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *written;
        uint64_t revision;
    } cases[] = {{"{\"$numberDouble\":\"3.0\"}", 3},
                 {"{\"$numberLong\":\"4\"}", 4},
                 {"\"7\"", 0},
                 {"-1", 0},
                 {"1.5", 0},
                 {"null", 0},
                 {"{\"a\":1}", 0},
                 {"0", 0}};

    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct flyt_error err = {0};
        char id[16];

        snprintf(id, sizeof id, "case-%u", i);
        test_mongod_hand(f->database, "{\"insert\":\"meta\",\"documents\":[{\"_id\":\"%s\",\"n\":1,\"revision\":%s}]}",
                         id, cases[i].written);
        cJSON *document = test_get(f->store, "meta", id), *seen = cJSON_Duplicate(document, 1);
        assert_int_equal(flyt_json_number(document, "revision"), cases[i].revision);
        test_expect(
            flyt_store_put(f->store, "meta", id, cases[i].revision, cases[i].revision ? NULL : seen, document, &err),
            FLYT_STORE_OK, &err);
        expect_number(f->store, id, cases[i].revision + 1, 1);
        test_expect(flyt_store_delete(f->store, "meta", id, cases[i].revision + 1, &err), FLYT_STORE_OK, &err);
        cJSON_Delete(document);
        cJSON_Delete(seen);
    }
}

static void test_ids_of_people(void **state)
{
    struct fixture *f = *state;
    struct flyt_error err = {0};
    /* As MongoDB orders them; the text of each. */
    static const char *const ids[][2] = {
        {"null", "{\"$value\":null}"},
        {"5", "{\"$numberInt\":\"5\"}"},
        {"{\"$numberDouble\":\"7.5\"}", "{\"$numberDouble\":\"7.5\"}"},
        {"\"10.0.0.1\"", "10.0.0.1"},
        {"\"{\\\"$odd\"", "{\"$value\":\"{\\\"$odd\"}"},
        {"{\"b\":\"x\",\"a\":1}", "{\"$value\":{\"b\":\"x\",\"a\":{\"$numberInt\":\"1\"}}}"},
        {"{\"$oid\":\"0123456789abcdef01234567\"}", "{\"$oid\":\"0123456789abcdef01234567\"}"},
        {"{\"$oid\":\"1123456789abcdef01234567\"}", "{\"$oid\":\"1123456789abcdef01234567\"}"},
        {"true", "{\"$value\":true}"},
        {"{\"$date\":{\"$numberLong\":\"5\"}}", "{\"$date\":{\"$numberLong\":\"5\"}}"},
    };
    int count = sizeof ids / sizeof *ids;
    char text[32];

    for (int i = count - 1; i >= 0; i--)
        test_mongod_hand(f->database,
                         "{\"insert\":\"vms\",\"documents\":[{\"_id\":%s,\"vm_ip\":\"10.0.0.1\",\"i\":%d}]}", ids[i][0],
                         i);
    for (unsigned page = 0; page <= 4; page++) {
        cJSON *all = test_list_all(f->store, "vms", page);
        assert_int_equal(cJSON_GetArraySize(all), count);
        for (int i = 0; i < count; i++) {
            const cJSON *one = cJSON_GetArrayItem(all, i);
            assert_string_equal(cJSON_GetObjectItem(one, "_id")->valuestring, ids[i][1]);
            assert_int_equal(cJSON_GetObjectItem(one, "i")->valuedouble, i);
        }
        cJSON_Delete(all);
    }
    for (int i = 0; i < count; i++) {
        cJSON *seen = test_get(f->store, "vms", ids[i][1]), *document = test_document("{\"changed\":true}");
        test_expect(flyt_store_put(f->store, "vms", ids[i][1], 0, seen, document, &err), FLYT_STORE_OK, &err);
        cJSON_Delete(seen);
        cJSON_Delete(document);
        document = test_get(f->store, "vms", ids[i][1]);
        test_expect_body(document, "{\"changed\":true}");
        cJSON_Delete(document);
        snprintf(text, sizeof text, "{\"n\":%d}", i);
        assert_int_equal(test_put(f->store, "vms", ids[i][1], 1, text), 2);
        test_expect(flyt_store_delete(f->store, "vms", ids[i][1], 2, &err), FLYT_STORE_OK, &err);
    }
    cJSON *none = NULL;
    test_expect(flyt_store_get(f->store, "vms", "{\"$oid\":\"short\"}", &err, &none), FLYT_STORE_NOT_FOUND, &err);
}

/* A document with levels of objects inside each other. */
static void append_nested(bson_t *bson, unsigned levels)
{
    bson_t inner;

    if (levels == 0)
        return;
    bson_append_document_begin(bson, "in", -1, &inner);
    append_nested(&inner, levels - 1);
    bson_append_document_end(bson, &inner);
}

static void test_strange_documents_do_not_hide_others(void **state)
{
    struct fixture *f = *state;
    struct flyt_error err = {0};
    char *text = malloc(5 << 20);
    cJSON *there = NULL;
    bson_t bson = BSON_INITIALIZER;

    test_mongod_hand(f->database,
                     "{\"insert\":\"vms\",\"documents\":[{\"_id\":\"a\",\"n\":1},{\"_id\":\"z\",\"n\":2}]}");
    memset(text, 't', 5 << 20);
    BSON_APPEND_UTF8(&bson, "_id", "huge");
    bson_append_utf8(&bson, "text", -1, text, 5 << 20);
    test_mongod_insert(f->database, "vms", &bson);
    bson_reinit(&bson);
    BSON_APPEND_UTF8(&bson, "_id", "nested");
    append_nested(&bson, FLYT_STORE_DEPTH_MAX);
    test_mongod_insert(f->database, "vms", &bson);
    bson_reinit(&bson);
    BSON_APPEND_UTF8(&bson, "_id", "nul");
    bson_append_utf8(&bson, "text", -1, "a\0b", 3);
    test_mongod_insert(f->database, "vms", &bson);
    bson_destroy(&bson);
    free(text);

    cJSON *all = test_list_all(f->store, "vms", 2);
    static const char *const ids[] = {"a", "huge", "nested", "nul", "z"};
    assert_int_equal(cJSON_GetArraySize(all), 5);
    for (int i = 0; i < 5; i++) {
        const cJSON *one = cJSON_GetArrayItem(all, i);
        assert_string_equal(cJSON_GetObjectItem(one, "_id")->valuestring, ids[i]);
        assert_int_equal(cJSON_HasObjectItem(one, "_broken"), i == 1 || i == 2);
    }
    test_expect_body(cJSON_GetArrayItem(all, 3), "{\"text\":\"a\xef\xbf\xbd"
                                                 "b\"}");
    /* What stands in the place of one is not written over it. */
    cJSON *broken = cJSON_DetachItemFromArray(all, 1);
    test_expect(flyt_store_put(f->store, "vms", "huge", 0, broken, broken, &err), FLYT_STORE_BROKEN, &err);
    cJSON_Delete(broken);
    cJSON_Delete(all);
    test_expect(flyt_store_get(f->store, "vms", "huge", &err, &there), FLYT_STORE_BROKEN, &err);
    test_expect(flyt_store_get(f->store, "vms", "nested", &err, &there), FLYT_STORE_BROKEN, &err);
    test_expect(flyt_store_delete(f->store, "vms", "nested", 0, &err), FLYT_STORE_OK, &err);
    test_expect(flyt_store_get(f->store, "vms", "nested", &err, &there), FLYT_STORE_NOT_FOUND, &err);
}

static void test_changes_by_hand_are_not_lost(void **state)
{
    struct fixture *f = *state;
    struct flyt_error err = {0};
    cJSON *document = test_document("{\"n\":9}");

    test_mongod_hand(f->database, "{\"insert\":\"vms\",\"documents\":[{\"_id\":\"a\",\"list\":[1,2],\"n\":1}]}");
    cJSON *seen = test_get(f->store, "vms", "a");
    test_expect(flyt_store_put(f->store, "vms", "a", 0, NULL, document, &err), FLYT_STORE_CONFLICT, &err);
    test_mongod_hand(f->database,
                     "{\"update\":\"vms\",\"updates\":[{\"q\":{\"_id\":\"a\"},\"u\":{\"$set\":{\"m\":1}}}]}");
    test_expect(flyt_store_put(f->store, "vms", "a", 0, seen, document, &err), FLYT_STORE_CONFLICT, &err);
    cJSON_Delete(seen);
    if (test_mongod_is_stand_in()) {
        /* Between our reading and our writing. */
        seen = test_get(f->store, "vms", "a");
        test_mongod_say("before 1 %s {\"update\":\"vms\",\"updates\":[{\"q\":{\"_id\":\"a\"},"
                        "\"u\":{\"$set\":{\"list\":[2,1]}}}]}",
                        f->database);
        test_expect(flyt_store_put(f->store, "vms", "a", 0, seen, document, &err), FLYT_STORE_CONFLICT, &err);
        cJSON_Delete(seen);
        test_mongod_say("before 1 %s {\"delete\":\"vms\",\"deletes\":[{\"q\":{\"_id\":\"a\"},\"limit\":1}]}",
                        f->database);
        seen = test_get(f->store, "vms", "a");
        test_expect_body(seen, "{\"list\":[2,1],\"n\":1,\"m\":1}");
        test_expect(flyt_store_put(f->store, "vms", "a", 0, seen, document, &err), FLYT_STORE_NOT_FOUND, &err);
        cJSON_Delete(seen);
        test_mongod_hand(f->database, "{\"insert\":\"vms\",\"documents\":[{\"_id\":\"a\",\"n\":3}]}");
    }
    /* A change that kept the revision. */
    seen = test_get(f->store, "vms", "a");
    test_expect(flyt_store_put(f->store, "vms", "a", 0, seen, document, &err), FLYT_STORE_OK, &err);
    test_mongod_hand(f->database,
                     "{\"update\":\"vms\",\"updates\":[{\"q\":{\"_id\":\"a\"},\"u\":{\"$set\":{\"n\":10}}}]}");
    cJSON *old = cJSON_Duplicate(document, 1);
    test_expect(flyt_store_put(f->store, "vms", "a", 1, old, document, &err), FLYT_STORE_CONFLICT, &err);
    cJSON_Delete(old);
    cJSON_Delete(seen);
    cJSON_Delete(document);
}

/* ---- several managers ---- */

/* Raises one number by compare and set, until it has done so `times` times; every failure must be a conflict. */
static void count_up(const char *uri, unsigned times)
{
    struct flyt_store *store = NULL;
    struct flyt_error err = {0};

    if (flyt_store_open(uri, TEST_TIMEOUT_MS, &err, &store) != 0)
        _exit(1);
    for (unsigned done = 0; done < times;) {
        cJSON *document = NULL;
        if (flyt_store_get(store, "meta", "counter", &err, &document) != FLYT_STORE_OK)
            _exit(2);
        cJSON *number = cJSON_GetObjectItem(document, "n");
        cJSON_SetNumberValue(number, number->valuedouble + 1);
        enum flyt_store_result result =
            flyt_store_put(store, "meta", "counter", flyt_json_number(document, "revision"), NULL, document, &err);
        if (result != FLYT_STORE_OK && result != FLYT_STORE_CONFLICT)
            _exit(3);
        done += result == FLYT_STORE_OK;
        cJSON_Delete(document);
    }
    flyt_store_close(store);
    _exit(0);
}

static void test_managers_lose_no_update(void **state)
{
    struct fixture *f = *state;
    struct flyt_error err = {0};
    pid_t children[3];

    test_expect(put_number(f->store, "counter", 0, 0, &err), FLYT_STORE_OK, &err);
    for (unsigned i = 0; i < 3; i++) {
        children[i] = fork();
        if (children[i] == 0)
            count_up(f->uri, 100);
    }
    for (unsigned i = 0; i < 3; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    expect_number(f->store, "counter", 301, 300);
}

static void test_two_stores_conflict(void **state)
{
    struct fixture *f = *state;
    struct flyt_store *other = test_open(f->uri);
    struct flyt_error err = {0};

    assert_true(flyt_store_is_shared(other));
    test_expect(put_number(f->store, "a", 0, 1, &err), FLYT_STORE_OK, &err);
    test_expect(put_number(other, "a", 0, 2, &err), FLYT_STORE_CONFLICT, &err);
    test_expect(put_number(other, "a", 1, 2, &err), FLYT_STORE_OK, &err);
    test_expect(put_number(f->store, "a", 1, 3, &err), FLYT_STORE_CONFLICT, &err);
    test_expect(flyt_store_delete(f->store, "meta", "a", 1, &err), FLYT_STORE_CONFLICT, &err);
    expect_number(f->store, "a", 2, 2);
    test_expect(flyt_store_delete(other, "meta", "a", 2, &err), FLYT_STORE_OK, &err);
    test_expect(put_number(f->store, "a", 2, 3, &err), FLYT_STORE_NOT_FOUND, &err);
    flyt_store_close(other);
}

/* ---- faults ---- */

static void test_cut_writes_are_unknown(void **state)
{
    struct fixture *f = *state;
    struct flyt_error err = {0};
    cJSON *there = NULL;

    need_stand_in();
    /* Each kind of write, cut before it was done and after it. */
    for (unsigned is_after = 0; is_after < 2; is_after++) {
        const char *line = is_after ? "cut_after 1" : "cut_before 1";
        char id[16];

        snprintf(id, sizeof id, "a%u", is_after);
        test_mongod_say("%s", line);
        test_expect(put_number(f->store, id, 0, 1, &err), FLYT_STORE_UNKNOWN, &err);
        if (is_after) {
            expect_number(f->store, id, 1, 1);
        } else {
            test_expect(flyt_store_get(f->store, "meta", id, &err, &there), FLYT_STORE_NOT_FOUND, &err);
            test_expect(put_number(f->store, id, 0, 1, &err), FLYT_STORE_OK, &err);
        }
        test_mongod_say("%s", line);
        test_expect(put_number(f->store, id, 1, 2, &err), FLYT_STORE_UNKNOWN, &err);
        expect_number(f->store, id, 1 + is_after, 1 + is_after);
        test_mongod_say("%s", line);
        test_expect(flyt_store_delete(f->store, "meta", id, 1 + is_after, &err), FLYT_STORE_UNKNOWN, &err);
        if (is_after)
            test_expect(flyt_store_get(f->store, "meta", id, &err, &there), FLYT_STORE_NOT_FOUND, &err);
        else
            expect_number(f->store, id, 1, 1);
    }
}

static void test_paused_server(void **state)
{
    struct fixture *f = *state;
    struct flyt_store *store = NULL;
    struct flyt_error err = {0};
    cJSON *there = NULL;

    need_stand_in();
    assert_int_equal(flyt_store_open(f->uri, 300, &err, &store), 0);
    test_expect(put_number(store, "a", 0, 1, &err), FLYT_STORE_OK, &err);
    test_mongod_pause();
    /* On its connection a write may still arrive; afterwards not even a connection answers. */
    enum flyt_store_result first = put_number(store, "a", 1, 2, &err);
    enum flyt_store_result second = put_number(store, "a", 1, 3, &err);
    enum flyt_store_result third = flyt_store_get(store, "meta", "a", &err, &there);
    enum flyt_store_result fourth = flyt_store_list(store, "meta", NULL, 0, &err, &there);
    struct flyt_store *late = NULL;
    int opened = flyt_store_open(f->uri, 300, &err, &late);
    test_mongod_resume();
    assert_int_equal(first, FLYT_STORE_UNKNOWN);
    assert_int_equal(second, FLYT_STORE_UNAVAILABLE);
    assert_int_equal(third, FLYT_STORE_UNAVAILABLE);
    assert_int_equal(fourth, FLYT_STORE_UNAVAILABLE);
    assert_int_equal(opened, 0);
    /* The first one arrived after all, or did not; its number is the only one that may be there. */
    there = test_get(store, "meta", "a");
    double number = cJSON_GetObjectItem(there, "n")->valuedouble;
    assert_true(number == 1 || number == 2);
    cJSON_Delete(there);
    cJSON_Delete(test_get(late, "meta", "a"));
    flyt_store_close(late);
    flyt_store_close(store);
}

static void test_down_and_back(void **state)
{
    struct fixture *f = *state;
    struct flyt_error err = {0};
    struct flyt_store *late = NULL;
    cJSON *there = NULL;

    need_stand_in();
    test_expect(put_number(f->store, "a", 0, 1, &err), FLYT_STORE_OK, &err);
    test_mongod_say("down");
    /* The connection ended while nothing was under way; the first write may have gone into it. */
    enum flyt_store_result first = put_number(f->store, "a", 1, 2, &err);
    assert_true(first == FLYT_STORE_UNKNOWN || first == FLYT_STORE_UNAVAILABLE);
    test_expect(put_number(f->store, "a", 1, 2, &err), FLYT_STORE_UNAVAILABLE, &err);
    test_expect(flyt_store_delete(f->store, "meta", "a", 1, &err), FLYT_STORE_UNAVAILABLE, &err);
    test_expect(flyt_store_get(f->store, "meta", "a", &err, &there), FLYT_STORE_UNAVAILABLE, &err);
    test_expect(flyt_store_list(f->store, "meta", NULL, 0, &err, &there), FLYT_STORE_UNAVAILABLE, &err);
    assert_true(flyt_store_backup(f->store, "/dev/null/none", &err) < 0);
    /* Opening it is no error. */
    assert_int_equal(flyt_store_open(f->uri, TEST_TIMEOUT_MS, &err, &late), 0);
    test_expect(flyt_store_get(late, "meta", "a", &err, &there), FLYT_STORE_UNAVAILABLE, &err);
    test_mongod_say("up");
    expect_number(f->store, "a", 1, 1);
    expect_number(late, "a", 1, 1);
    test_expect(put_number(late, "a", 1, 2, &err), FLYT_STORE_OK, &err);
    test_expect(put_number(f->store, "a", 1, 2, &err), FLYT_STORE_CONFLICT, &err);
    flyt_store_close(late);
}

static void test_no_primary(void **state)
{
    struct fixture *f = *state;
    struct flyt_error err = {0};
    cJSON *there = NULL;

    need_stand_in();
    test_expect(put_number(f->store, "a", 0, 1, &err), FLYT_STORE_OK, &err);
    test_mongod_say("step_down");
    test_expect(put_number(f->store, "a", 1, 2, &err), FLYT_STORE_UNAVAILABLE, &err);
    test_expect(put_number(f->store, "a", 1, 2, &err), FLYT_STORE_UNAVAILABLE, &err);
    test_expect(flyt_store_get(f->store, "meta", "a", &err, &there), FLYT_STORE_UNAVAILABLE, &err);
    test_expect(flyt_store_list(f->store, "meta", NULL, 0, &err, &there), FLYT_STORE_UNAVAILABLE, &err);
    test_mongod_say("step_up");
    expect_number(f->store, "a", 1, 1);
    test_expect(put_number(f->store, "a", 1, 2, &err), FLYT_STORE_OK, &err);
}

static void test_no_majority(void **state)
{
    struct fixture *f = *state;
    struct flyt_error err = {0};
    cJSON *there = NULL;

    need_stand_in();
    test_mongod_say("no_majority");
    test_expect(put_number(f->store, "a", 0, 1, &err), FLYT_STORE_UNKNOWN, &err);
    test_expect(flyt_store_get(f->store, "meta", "a", &err, &there), FLYT_STORE_UNAVAILABLE, &err);
    test_mongod_say("majority");
    expect_number(f->store, "a", 1, 1);
}

/* Puts gpus a, b and c with epoch 1, for what raises it to 2. */
static void put_epochs(struct flyt_store *store)
{
    for (char id[] = "a"; *id <= 'c'; ++*id)
        test_put(store, "gpus", id, 0, "{\"epoch\":1}");
}

/* Fails unless a document of gpus has this revision and epoch. */
static void expect_epoch(struct flyt_store *store, const char *id, uint64_t revision, double epoch)
{
    cJSON *document = test_get(store, "gpus", id);

    assert_int_equal(flyt_json_number(document, "revision"), revision);
    assert_true(cJSON_GetObjectItem(document, "epoch")->valuedouble == epoch);
    cJSON_Delete(document);
}

static void test_raising_what_people_wrote(void **state)
{
    struct fixture *f = *state;
    struct flyt_error err = {0};
    uint64_t count = 0;

    test_mongod_hand(f->database,
                     "{\"insert\":\"gpus\",\"documents\":["
                     "{\"_id\":\"double\",\"revision\":{\"$numberDouble\":\"3.0\"},\"epoch\":1},"
                     "{\"_id\":\"nan\",\"revision\":{\"$numberLong\":\"4\"},\"epoch\":{\"$numberDouble\":\"NaN\"}},"
                     "{\"_id\":{\"$oid\":\"0123456789abcdef01234567\"},\"revision\":7},"
                     "{\"_id\":\"none\",\"epoch\":1},{\"_id\":\"text\",\"revision\":\"9\",\"epoch\":1}]}");
    test_expect(flyt_store_raise(f->store, "gpus", "epoch", 2, &err, &count), FLYT_STORE_OK, &err);
    assert_int_equal(count, 3);
    expect_epoch(f->store, "double", 4, 2);
    expect_epoch(f->store, "nan", 5, 2);
    expect_epoch(f->store, "{\"$oid\":\"0123456789abcdef01234567\"}", 8, 2);
    expect_epoch(f->store, "none", 0, 1);
    expect_epoch(f->store, "text", 0, 1);
}

static void test_cut_raise_is_repeated(void **state)
{
    struct fixture *f = *state;
    struct flyt_error err = {0};
    uint64_t count = 77;

    need_stand_in();
    put_epochs(f->store);
    test_mongod_say("cut_before 1");
    test_expect(flyt_store_raise(f->store, "gpus", "epoch", 2, &err, &count), FLYT_STORE_UNKNOWN, &err);
    assert_int_equal(count, 77);
    expect_epoch(f->store, "b", 1, 1);
    test_mongod_say("cut_after 1");
    test_expect(flyt_store_raise(f->store, "gpus", "epoch", 2, &err, &count), FLYT_STORE_UNKNOWN, &err);
    expect_epoch(f->store, "b", 2, 2);
    test_expect(flyt_store_raise(f->store, "gpus", "epoch", 2, &err, &count), FLYT_STORE_OK, &err);
    assert_int_equal(count, 0);
    test_mongod_say("no_majority");
    test_expect(flyt_store_raise(f->store, "gpus", "epoch", 3, &err, &count), FLYT_STORE_UNKNOWN, &err);
    test_mongod_say("majority");
    test_mongod_say("step_down");
    test_expect(flyt_store_raise(f->store, "gpus", "epoch", 4, &err, &count), FLYT_STORE_UNAVAILABLE, &err);
    test_mongod_say("step_up");
    expect_epoch(f->store, "b", 3, 3);
}

/* A document that is as large as one may be has no room for another member; those before it are raised by then. */
static void test_raise_that_stops_in_the_middle(void **state)
{
    struct fixture *f = *state;
    struct flyt_error err = {0};
    size_t bytes = (16u << 20) - 48;
    char *text = malloc(bytes + 1);
    bson_t large = BSON_INITIALIZER;

    put_epochs(f->store);
    memset(text, 'x', bytes);
    text[bytes] = 0;
    BSON_APPEND_UTF8(&large, "_id", "aa");
    BSON_APPEND_INT64(&large, "revision", 1);
    BSON_APPEND_UTF8(&large, "t", text);
    assert_true(large.len <= 16u << 20 && large.len + 6 + 1 + 8 > 16u << 20);
    test_mongod_insert(f->database, "gpus", &large);
    bson_destroy(&large);
    free(text);
    test_expect(flyt_store_raise(f->store, "gpus", "epoch", 2, &err, NULL), FLYT_STORE_UNKNOWN, &err);
    /* Each is either as it was or raised. */
    for (char id[] = "a"; *id <= 'c'; ++*id) {
        cJSON *document = test_get(f->store, "gpus", id);
        assert_true(flyt_json_number(document, "revision") == cJSON_GetObjectItem(document, "epoch")->valuedouble);
        cJSON_Delete(document);
    }
    if (test_mongod_is_stand_in())
        expect_epoch(f->store, "a", 2, 2);
}

/* A manager that led before, slept, and wakes between any two steps of its successor. */
static void test_old_leader_changes_nothing(void **state)
{
    struct fixture *f = *state;
    struct flyt_store *old = test_open(f->uri);
    struct flyt_error err = {0};
    cJSON *document;
    uint64_t count = 0;

    need_stand_in();
    put_epochs(f->store);
    document = test_get(old, "gpus", "b");
    /* Its write arrives just before the raising: it is raised with the others, and not lost. */
    test_mongod_say("before 1 %s {\"update\":\"gpus\",\"updates\":[{\"q\":{\"_id\":\"a\",\"revision\":1},\"u\":"
                    "{\"$set\":{\"epoch\":1,\"vm\":\"x\"},\"$inc\":{\"revision\":1}}}]}",
                    f->database);
    test_expect(flyt_store_raise(f->store, "gpus", "epoch", 2, &err, &count), FLYT_STORE_OK, &err);
    assert_int_equal(count, 3);
    expect_epoch(f->store, "a", 3, 2);
    cJSON *there = test_get(f->store, "gpus", "a");
    assert_string_equal(cJSON_GetObjectItem(there, "vm")->valuestring, "x");
    cJSON_Delete(there);
    /* Afterwards what it read is stale, by its revision and by what was seen; and its own raising comes too late. */
    test_expect(flyt_store_put(old, "gpus", "b", 1, NULL, document, &err), FLYT_STORE_CONFLICT, &err);
    test_expect(flyt_store_put(old, "gpus", "b", 1, document, document, &err), FLYT_STORE_CONFLICT, &err);
    test_expect(flyt_store_delete(old, "gpus", "b", 1, &err), FLYT_STORE_CONFLICT, &err);
    test_expect(flyt_store_raise(old, "gpus", "epoch", 1, &err, &count), FLYT_STORE_OK, &err);
    assert_int_equal(count, 0);
    expect_epoch(f->store, "b", 2, 2);
    cJSON_Delete(document);
    flyt_store_close(old);
}

/* ---- schema, backup, URIs ---- */

static unsigned step_runs;

static int add_member(struct flyt_store *store, struct flyt_error *err)
{
    cJSON *documents = NULL, *document;
    enum flyt_store_result result = flyt_store_list(store, "gpus", NULL, 0, err, &documents);

    step_runs++;
    cJSON_ArrayForEach(document, documents)
    {
        cJSON *copy = cJSON_Duplicate(document, 1);
        cJSON_AddNumberToObject(copy, "added", 1);
        if (result == FLYT_STORE_OK && !cJSON_HasObjectItem(document, "added"))
            result = flyt_store_put(store, "gpus", cJSON_GetObjectItem(copy, "_id")->valuestring,
                                    flyt_json_number(document, "revision"), NULL, copy, err);
        cJSON_Delete(copy);
    }
    cJSON_Delete(documents);
    return result == FLYT_STORE_OK ? 0 : -EIO;
}

static void test_schema_goes_forward(void **state)
{
    struct fixture *f = *state;
    const struct flyt_schema_step steps[] = {{.to = 1}, {.to = 2, .documents = add_member}};
    const struct flyt_schema newer = {steps, 2};
    struct flyt_store *store = NULL;
    struct flyt_error err = {0};

    test_put(f->store, "gpus", "GPU-1", 0, "{\"a\":1}");
    cJSON *document = test_get(f->store, "meta", "schema");
    test_expect_body(document, "{\"version\":1}");
    cJSON_Delete(document);
    for (unsigned round = 0; round < 2; round++) {
        assert_int_equal(flyt_store_open_schema(f->uri, TEST_TIMEOUT_MS, &newer, &err, &store), 0);
        document = test_get(store, "gpus", "GPU-1");
        test_expect_body(document, "{\"a\":1,\"added\":1}");
        cJSON_Delete(document);
        store = flyt_store_close(store);
    }
    assert_int_equal(step_runs, 1);
    /* This program knows only the first version. */
    assert_int_equal(flyt_store_open(f->uri, TEST_TIMEOUT_MS, &err, &store), -EPROTO);
    assert_non_null(strstr(err.text, "schema 2"));
    assert_null(store);
    if (test_mongod_is_stand_in()) {
        /* Found out later, where the server was down at first; and by who was connected before, when it connects anew.
         */
        test_mongod_say("down");
        assert_int_equal(flyt_store_open(f->uri, TEST_TIMEOUT_MS, &err, &store), 0);
        put_number(f->store, "a", 0, 1, &err);
        test_mongod_say("up");
        test_expect(put_number(store, "a", 0, 1, &err), FLYT_STORE_BROKEN, &err);
        test_expect(put_number(f->store, "a", 0, 1, &err), FLYT_STORE_BROKEN, &err);
        flyt_store_close(store);
    }
}

static void test_backup_is_equal(void **state)
{
    struct fixture *f = *state;
    char folder[PATH_MAX], path[PATH_MAX + 32], copy_name[80], copy_uri[512], *line = NULL;
    struct flyt_error err = {0};
    struct stat stat_of;
    size_t bytes = 0;
    unsigned lines = 0;

    char *rows = NULL;
    size_t rows_bytes = 0;
    FILE *list = open_memstream(&rows, &rows_bytes);
    for (unsigned i = 0; i < 1500; i++)
        fprintf(list, "%s{\"_id\":\"%06u\",\"n\":%u}", i ? "," : "", i, i);
    fclose(list);
    test_mongod_hand(f->database, "{\"insert\":\"events\",\"documents\":[%s]}", rows);
    free(rows);
    test_mongod_hand(f->database, "{\"insert\":\"vms\",\"documents\":[{\"_id\":{\"$oid\":\"0123456789abcdef01234567\"},"
                                  "\"when\":{\"$date\":{\"$numberLong\":\"5\"}},\"memory\":{\"$numberDouble\":\"4.0\"},"
                                  "\"text\":\"line\\nbreak \\\"木\\\"\"}]}");
    test_folder_make(folder);
    snprintf(path, sizeof path, "%s/copy.jsonl", folder);
    assert_int_equal(flyt_store_backup(f->store, path, &err), 0);
    assert_int_equal(flyt_store_backup(f->store, path, &err), -EEXIST);
    assert_int_equal(stat(path, &stat_of), 0);
    assert_int_equal(stat_of.st_mode & 0777, 0600);

    /* Restored line by line into another database: both have the same documents, types included. */
    snprintf(copy_name, sizeof copy_name, "%s_copy", f->database);
    test_mongod_uri(copy_name, copy_uri, sizeof copy_uri);
    FILE *file = fopen(path, "r");
    while (getline(&line, &bytes, file) > 0) {
        bson_t row, document;
        bson_iter_t iter;
        const uint8_t *data;
        uint32_t data_bytes;
        bson_error_t error;

        assert_true(bson_init_from_json(&row, line, -1, &error));
        assert_true(bson_iter_init_find(&iter, &row, "document"));
        bson_iter_document(&iter, &data_bytes, &data);
        bson_init_static(&document, data, data_bytes);
        assert_true(bson_iter_init_find(&iter, &row, "collection"));
        test_mongod_insert(copy_name, bson_iter_utf8(&iter, NULL), &document);
        bson_destroy(&row);
        lines++;
    }
    free(line);
    fclose(file);
    assert_int_equal(lines, 1500 + 1 + 1); /* and the schema */
    struct flyt_store *copy = test_open(copy_uri);
    static const char *const collections[] = {"events", "vms", "meta"};
    for (unsigned i = 0; i < 3; i++) {
        cJSON *before = test_list_all(f->store, collections[i], 400), *after = test_list_all(copy, collections[i], 0);
        assert_true(cJSON_GetArraySize(before) > 0);
        assert_true(flyt_json_equal(before, after, false));
        cJSON_Delete(before);
        cJSON_Delete(after);
    }
    flyt_store_close(copy);
    test_mongod_drop(copy_name);
    test_folder_remove(folder);
}

static void test_uris(void **state)
{
    struct flyt_store *store = NULL;
    struct flyt_error err = {0};

    assert_int_equal(flyt_store_open("mongodb://127.0.0.1:1", 100, &err, &store), -EINVAL);
    assert_non_null(strstr(err.text, "/DATABASE"));
    assert_int_equal(flyt_store_open("mongodb://user:se cret%zz@127.0.0.1/flyt", 100, &err, &store), -EINVAL);
    assert_null(strstr(err.text, "cret"));
    /* Nobody is there: no error, and no password in any sentence. */
    assert_int_equal(flyt_store_open("mongodb://user:secret@127.0.0.1:1/flyt", 100, &err, &store), 0);
    assert_string_equal(flyt_store_name(store), "mongodb 127.0.0.1:1/flyt");
    cJSON *there = NULL;
    test_expect(flyt_store_get(store, "meta", "a", &err, &there), FLYT_STORE_UNAVAILABLE, &err);
    assert_null(strstr(err.text, "secret"));
    flyt_store_close(store);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_types_of_people),
        TEST(test_revisions_of_people),
        TEST(test_ids_of_people),
        TEST(test_strange_documents_do_not_hide_others),
        TEST(test_changes_by_hand_are_not_lost),
        TEST(test_managers_lose_no_update),
        TEST(test_two_stores_conflict),
        TEST(test_cut_writes_are_unknown),
        TEST(test_paused_server),
        TEST(test_down_and_back),
        TEST(test_no_primary),
        TEST(test_no_majority),
        TEST(test_raising_what_people_wrote),
        TEST(test_cut_raise_is_repeated),
        TEST(test_raise_that_stops_in_the_middle),
        TEST(test_old_leader_changes_nothing),
        TEST(test_schema_goes_forward),
        TEST(test_backup_is_equal),
        cmocka_unit_test(test_uris),
    };

    test_mongod_start();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_mongod_stop();
    return failed;
}
