#include "control/store/test_store.h"

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/store/json.h"

void test_folder_make(char *ret_path)
{
    const char *parent = getenv("TMPDIR");

    snprintf(ret_path, PATH_MAX, "%s/flyt-store-XXXXXX", parent && *parent ? parent : "/tmp");
    assert_non_null(mkdtemp(ret_path));
}

static int remove_entry(const char *path, const struct stat *stat, int kind, struct FTW *place)
{
    return remove(path);
}

void test_folder_remove(const char *path)
{
    assert_int_equal(nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS), 0);
}

struct flyt_store *test_open(const char *uri)
{
    struct flyt_store *store = NULL;
    struct flyt_error err = {0};

    if (flyt_store_open(uri, TEST_TIMEOUT_MS, &err, &store) != 0)
        fail_msg("%s: %s", uri, err.text);
    return store;
}

cJSON *test_document(const char *text)
{
    cJSON *document = cJSON_Parse(text);

    if (!document)
        fail_msg("no JSON: %s", text);
    return document;
}

void test_expect(enum flyt_store_result result, enum flyt_store_result expected, const struct flyt_error *err)
{
    if (result != expected)
        fail_msg("\"%s\" came, \"%s\" was expected: %s", flyt_store_result_name(result),
                 flyt_store_result_name(expected), result == FLYT_STORE_OK ? "" : err->text);
    if (result != FLYT_STORE_OK) {
        assert_true(err->code < 0);
        assert_true(strlen(err->text) > 0);
    }
}

uint64_t test_put(struct flyt_store *store, const char *collection, const char *id, uint64_t revision, const char *text)
{
    cJSON *document = test_document(text);
    struct flyt_error err = {0};

    test_expect(flyt_store_put(store, collection, id, revision, NULL, document, &err), FLYT_STORE_OK, &err);
    uint64_t now = flyt_json_number(document, "revision");
    assert_int_equal(now, revision + 1);
    assert_string_equal(cJSON_GetObjectItemCaseSensitive(document, "_id")->valuestring, id);
    cJSON_Delete(document);
    return now;
}

cJSON *test_get(struct flyt_store *store, const char *collection, const char *id)
{
    struct flyt_error err = {0};
    cJSON *document = NULL;

    test_expect(flyt_store_get(store, collection, id, &err, &document), FLYT_STORE_OK, &err);
    assert_string_equal(cJSON_GetObjectItemCaseSensitive(document, "_id")->valuestring, id);
    return document;
}

void test_expect_body(const cJSON *document, const char *text)
{
    cJSON *expected = test_document(text);

    if (!flyt_json_equal(document, expected, true)) {
        char *got = cJSON_PrintUnformatted(document);
        fail_msg("the document is %s, expected was %s", got, text);
    }
    cJSON_Delete(expected);
}

cJSON *test_list_all(struct flyt_store *store, const char *collection, unsigned page)
{
    cJSON *all = cJSON_CreateArray(), *documents;
    char after[FLYT_STORE_ID_BYTES_MAX + 1] = "";
    struct flyt_error err = {0};
    int count;

    do {
        test_expect(flyt_store_list(store, collection, *after ? after : NULL, page, &err, &documents), FLYT_STORE_OK,
                    &err);
        count = cJSON_GetArraySize(documents);
        assert_true(page == 0 || count <= (int)page);
        while (documents->child) {
            cJSON *document = cJSON_DetachItemViaPointer(documents, documents->child);
            snprintf(after, sizeof after, "%s", cJSON_GetObjectItemCaseSensitive(document, "_id")->valuestring);
            cJSON_AddItemToArray(all, document);
        }
        cJSON_Delete(documents);
    } while (page && count == (int)page);
    return all;
}
