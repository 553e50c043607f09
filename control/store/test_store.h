/*
 * What the store's tests share: a folder of their own, stores in it, documents from text, and calls that must succeed.
 * Every function fails the test where it cannot do its work.
 */
#ifndef FLYT_CONTROL_TEST_STORE_H
#define FLYT_CONTROL_TEST_STORE_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "control/store/store.h"

enum { TEST_TIMEOUT_MS = 2500 };

/* Makes a folder under TMPDIR; test_folder_remove removes it with everything in it. */
void test_folder_make(char *ret_path /* PATH_MAX */);
void test_folder_remove(const char *path);

struct flyt_store *test_open(const char *uri);
/* A document from JSON text. */
cJSON *test_document(const char *text);
/* Puts a document given as text; returns its new revision. */
uint64_t test_put(struct flyt_store *store, const char *collection, const char *id, uint64_t revision,
                  const char *text);
cJSON *test_get(struct flyt_store *store, const char *collection, const char *id);
/* Fails unless the document's body (without _id and revision) is exactly what the text says. */
void test_expect_body(const cJSON *document, const char *text);
/* Fails unless the result is the expected one; says err's sentence. */
void test_expect(enum flyt_store_result result, enum flyt_store_result expected, const struct flyt_error *err);
/* All documents of a collection, read page by page. */
cJSON *test_list_all(struct flyt_store *store, const char *collection, unsigned page);

#endif
