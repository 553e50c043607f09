/*
 * Documents between BSON and cJSON, as store.h describes them: numbers of every type become numbers, what JSON has no
 * word for becomes MongoDB's extended JSON and back. Pure functions; any thread.
 *
 * On the way to cJSON, a NUL inside text and bytes that are not UTF-8 become U+FFFD. On the way back whole numbers up
 * to 2^53 become int32 or int64, others doubles, whichever type they had.
 */
#ifndef FLYT_CONTROL_STORE_BSON_DOCUMENT_H
#define FLYT_CONTROL_STORE_BSON_DOCUMENT_H

#include <bson/bson.h>
#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

#include "rpc/base/error.h"

/*
 * A document with "_id" (the text of flyt_bson_id_text) and "revision" (flyt_bson_revision) before its other members.
 * -E2BIG: beyond FLYT_STORE_DEPTH_MAX or FLYT_STORE_DOCUMENT_BYTES_MAX; -EINVAL: damaged, or without an _id; -ENOMEM.
 * *ret_document belongs to the caller.
 */
int flyt_bson_to_document(const bson_t *bson, struct flyt_error *err, cJSON **ret_document);
/* Appends the members of a document other than the store's own. 0, or -E2BIG (beyond what BSON can hold). */
int flyt_bson_append_members(bson_t *bson, const cJSON *document, struct flyt_error *err);

/* A string's own text; else canonical extended JSON, which begins with {"$. Malloc'ed; NULL: no memory, or the id is
 * longer than FLYT_STORE_ID_BYTES_MAX in this form. */
char *flyt_bson_id_text(const bson_t *bson);
/* Appends the _id that has this text as a member `name`. false: it begins with {"$ and is no extended JSON. */
bool flyt_bson_append_id(bson_t *bson, const char *name, const char *id);
/* "revision": a positive whole number up to 2^53 of any type, else 0. */
uint64_t flyt_bson_revision(const bson_t *bson);

#endif
