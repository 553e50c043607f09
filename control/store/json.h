/*
 * Documents as JSON text. cJSON reads exactly, but prints at most 15 digits of most numbers and compares doubles by a
 * tolerance; a store must do neither. Pure functions; any thread.
 */
#ifndef FLYT_CONTROL_STORE_JSON_H
#define FLYT_CONTROL_STORE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cjson/cJSON.h>

#include "rpc/base/error.h"

/* 2^53: integers up to here are exact in a double. */
#define FLYT_JSON_INTEGER_MAX 9007199254740992.0

/*
 * The text of a value on one line: integers up to 2^53 as integers, other numbers with 17 digits. skip_store_members:
 * without the "_id" and "revision" of the outermost object. Malloc'ed. -EINVAL and a sentence: a number that is not
 * finite, text that is not UTF-8, an item that is no JSON; -E2BIG: nested deeper than FLYT_STORE_DEPTH_MAX, longer than
 * FLYT_STORE_DOCUMENT_BYTES_MAX; -ENOMEM.
 */
int flyt_json_print(const cJSON *value, bool skip_store_members, struct flyt_error *err, char **ret_text,
                    size_t *ret_bytes);
/* Reads a JSON object, which must be the whole of `text`. NULL: it is none, or nested too deep. */
cJSON *flyt_json_parse_object(const char *text);
/* Same members in the same order, same values (numbers bit for bit, except that 0 is -0). skip_store_members as above.
 */
bool flyt_json_equal(const cJSON *a, const cJSON *b, bool skip_store_members);
/* UTF-8 as RFC 3629 has it: no surrogates, nothing overlong, nothing beyond U+10FFFF. */
bool flyt_utf8_is_valid(const char *text, size_t bytes);
/* Whether a member of a document belongs to the store. name NULL: no. */
bool flyt_json_is_store_member(const char *name);
/* What a document counts with, its revision or an epoch: a positive integer up to 2^53, else 0. */
uint64_t flyt_json_number(const cJSON *document, const char *name);
/* Sets or replaces "_id" and "revision" as the first members. false: no memory, then `document` is as it was. */
bool flyt_json_set_store_members(cJSON *document, const char *id, uint64_t revision);
/* The same without needing memory: `members` is an object of exactly these two, which it loses. */
void flyt_json_move_store_members(cJSON *document, cJSON *members);

#endif
