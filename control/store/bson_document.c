#include "control/store/bson_document.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/store/json.h"
#include "control/store/store.h"

static const char id_wrapper[] = "$value";

/* ---- BSON to cJSON ---- */

/* Text of BSON, which may hold NUL and, from careless writers, bytes that are not UTF-8. malloc'ed. */
static char *clean_text(const char *text, size_t bytes)
{
    static const char replacement[] = "\xef\xbf\xbd";
    char *clean = malloc(3 * bytes + 1), *to = clean;

    if (!clean)
        return NULL;
    if (!memchr(text, 0, bytes) && flyt_utf8_is_valid(text, bytes)) {
        memcpy(clean, text, bytes);
        clean[bytes] = 0;
        return clean;
    }
    for (size_t at = 0; at < bytes;) {
        size_t count = 1;

        while (count <= 4 && at + count <= bytes && !flyt_utf8_is_valid(text + at, count))
            count++;
        if (text[at] == 0 || count > 4 || at + count > bytes) {
            memcpy(to, replacement, 3);
            to += 3;
            at++;
        } else {
            memcpy(to, text + at, count);
            to += count;
            at += count;
        }
    }
    *to = 0;
    return clean;
}

static cJSON *text_item(const char *text, size_t bytes)
{
    char *clean = clean_text(text, bytes);
    cJSON *item = clean ? cJSON_CreateString(clean) : NULL;

    free(clean);
    return item;
}

/* A value as extended JSON: {"$oid": …} and the like. NULL: no memory. */
static cJSON *extended_item(const bson_iter_t *iter, bool is_canonical)
{
    bson_t holder = BSON_INITIALIZER;
    cJSON *parsed = NULL, *item = NULL;
    char *text = NULL;

    if (bson_append_iter(&holder, "v", 1, iter))
        text = is_canonical ? bson_as_canonical_extended_json(&holder, NULL)
                            : bson_as_relaxed_extended_json(&holder, NULL);
    if (text)
        parsed = cJSON_Parse(text);
    if (parsed)
        item = cJSON_DetachItemFromObjectCaseSensitive(parsed, "v");
    cJSON_Delete(parsed);
    bson_free(text);
    bson_destroy(&holder);
    return item;
}

static cJSON *integer_item(const bson_iter_t *iter)
{
    int64_t value = bson_iter_as_int64(iter), most = (int64_t)FLYT_JSON_INTEGER_MAX;

    if (value >= -most && value <= most)
        return cJSON_CreateNumber((double)value);
    return extended_item(iter, true);
}

static cJSON *decimal_item(const bson_iter_t *iter)
{
    char text[BSON_DECIMAL128_STRING];
    bson_decimal128_t decimal;

    bson_iter_decimal128(iter, &decimal);
    bson_decimal128_to_string(&decimal, text);
    double value = strtod(text, NULL);
    return isfinite(value) ? cJSON_CreateNumber(value) : extended_item(iter, true);
}

static int append_members(cJSON *parent, bson_iter_t *iter, bool is_array, bool is_outermost, unsigned depth,
                          struct flyt_error *err);

static int nested_item(const bson_iter_t *iter, unsigned depth, struct flyt_error *err, cJSON **ret_item)
{
    bool is_array = BSON_ITER_HOLDS_ARRAY(iter);
    bson_iter_t inner;
    int rc = -ENOMEM;

    if (depth >= FLYT_STORE_DEPTH_MAX)
        return flyt_error_set(err, -E2BIG, "it is nested deeper than %d levels", FLYT_STORE_DEPTH_MAX);
    if (!bson_iter_recurse(iter, &inner))
        return flyt_error_set(err, -EINVAL, "it is damaged");
    cJSON *item = is_array ? cJSON_CreateArray() : cJSON_CreateObject();
    if (item)
        rc = append_members(item, &inner, is_array, false, depth + 1, err);
    if (rc < 0) {
        cJSON_Delete(item);
        return item ? rc : flyt_error_set(err, rc, "no memory");
    }
    *ret_item = item;
    return 0;
}

static int value_item(const bson_iter_t *iter, unsigned depth, struct flyt_error *err, cJSON **ret_item)
{
    const char *text;
    uint32_t bytes;
    cJSON *item;

    switch (bson_iter_type(iter)) {
    case BSON_TYPE_DOCUMENT:
    case BSON_TYPE_ARRAY:
        return nested_item(iter, depth, err, ret_item);
    case BSON_TYPE_UTF8:
        text = bson_iter_utf8(iter, &bytes);
        item = text_item(text, bytes);
        break;
    case BSON_TYPE_DOUBLE:
        item =
            isfinite(bson_iter_double(iter)) ? cJSON_CreateNumber(bson_iter_double(iter)) : extended_item(iter, true);
        break;
    case BSON_TYPE_INT32:
    case BSON_TYPE_INT64:
        item = integer_item(iter);
        break;
    case BSON_TYPE_DECIMAL128:
        item = decimal_item(iter);
        break;
    case BSON_TYPE_BOOL:
        item = cJSON_CreateBool(bson_iter_bool(iter));
        break;
    case BSON_TYPE_NULL:
        item = cJSON_CreateNull();
        break;
    default:
        item = extended_item(iter, false);
    }
    if (!item)
        return flyt_error_set(err, -ENOMEM, "no memory");
    *ret_item = item;
    return 0;
}

static int append_members(cJSON *parent, bson_iter_t *iter, bool is_array, bool is_outermost, unsigned depth,
                          struct flyt_error *err)
{
    while (bson_iter_next(iter)) {
        const char *name = bson_iter_key(iter);
        cJSON *item = NULL;
        bool is_added;
        int rc;

        if (is_outermost && flyt_json_is_store_member(name))
            continue;
        rc = value_item(iter, depth, err, &item);
        if (rc < 0)
            return rc;
        if (is_array) {
            is_added = cJSON_AddItemToArray(parent, item);
        } else {
            char *clean = clean_text(name, strlen(name));
            is_added = clean && cJSON_AddItemToObject(parent, clean, item);
            free(clean);
        }
        if (!is_added) {
            cJSON_Delete(item);
            return flyt_error_set(err, -ENOMEM, "no memory");
        }
    }
    return iter->err_off ? flyt_error_set(err, -EINVAL, "it is damaged") : 0;
}

uint64_t flyt_bson_revision(const bson_t *bson)
{
    bson_iter_t iter;
    double value = 0;

    if (!bson_iter_init_find(&iter, bson, "revision"))
        return 0;
    if (BSON_ITER_HOLDS_INT32(&iter) || BSON_ITER_HOLDS_INT64(&iter)) {
        int64_t whole = bson_iter_as_int64(&iter);
        return whole > 0 && whole <= (int64_t)FLYT_JSON_INTEGER_MAX ? (uint64_t)whole : 0;
    }
    if (BSON_ITER_HOLDS_DOUBLE(&iter))
        value = bson_iter_double(&iter);
    return value >= 1 && value <= FLYT_JSON_INTEGER_MAX && value == trunc(value) ? (uint64_t)value : 0;
}

char *flyt_bson_id_text(const bson_t *bson)
{
    bson_iter_t iter;
    uint32_t bytes;
    char *text = NULL, *printed = NULL;
    size_t printed_bytes;

    if (!bson_iter_init_find(&iter, bson, "_id"))
        return NULL;
    if (BSON_ITER_HOLDS_UTF8(&iter)) {
        const char *own = bson_iter_utf8(&iter, &bytes);
        if (bytes > 0 && bytes <= FLYT_STORE_ID_BYTES_MAX && !memchr(own, 0, bytes) && flyt_utf8_is_valid(own, bytes) &&
            strncmp(own, "{\"$", 3) != 0)
            return strndup(own, bytes);
    }
    cJSON *value = extended_item(&iter, true);
    if (value && flyt_json_print(value, false, NULL, &printed, &printed_bytes) == 0) {
        if (strncmp(printed, "{\"$", 3) == 0)
            text = strdup(printed);
        else if (asprintf(&text, "{\"%s\":%s}", id_wrapper, printed) < 0)
            text = NULL;
    }
    free(printed);
    cJSON_Delete(value);
    if (text && strlen(text) > FLYT_STORE_ID_BYTES_MAX) {
        free(text);
        text = NULL;
    }
    return text;
}

int flyt_bson_to_document(const bson_t *bson, struct flyt_error *err, cJSON **ret_document)
{
    cJSON *document = NULL;
    char *id = flyt_bson_id_text(bson), *text;
    size_t text_bytes;
    bson_iter_t iter;
    int rc = -EINVAL;

    if (!id)
        return flyt_error_set(err, -EINVAL, "its _id is missing or longer than %d bytes", FLYT_STORE_ID_BYTES_MAX);
    document = cJSON_CreateObject();
    if (!document || !bson_iter_init(&iter, bson))
        flyt_error_set(err, rc, "it is damaged");
    else
        rc = append_members(document, &iter, false, true, 1, err);
    /* Printing is needed only where the text could be longer than its bound: it is at most six times the BSON's. */
    if (rc == 0 && bson->len > FLYT_STORE_DOCUMENT_BYTES_MAX / 6) {
        rc = flyt_json_print(document, true, err, &text, &text_bytes);
        if (rc == 0)
            free(text);
    }
    if (rc == 0 && !flyt_json_set_store_members(document, id, flyt_bson_revision(bson)))
        rc = flyt_error_set(err, -ENOMEM, "no memory");
    free(id);
    if (rc < 0) {
        cJSON_Delete(document);
        return rc;
    }
    *ret_document = document;
    return 0;
}

/* ---- cJSON to BSON ---- */

/* Parses {"v": <text>} as extended JSON. false: it is none. The caller destroys *ret_holder on success. */
static bool parse_extended(const char *text, bson_t *ret_holder)
{
    bson_error_t unread;
    char *whole;
    bool is_parsed;

    if (asprintf(&whole, "{\"v\":%s}", text) < 0)
        return false;
    is_parsed = bson_init_from_json(ret_holder, whole, -1, &unread);
    free(whole);
    return is_parsed;
}

/* An object that stands for a value JSON has no word for, e.g. {"$date": …}. false: it is an ordinary one. */
static bool append_extended(bson_t *bson, const char *name, const cJSON *value)
{
    bson_t holder;
    bson_iter_t iter;
    char *text;
    size_t bytes;
    bool is_appended = false;

    if (!value->child || !value->child->string || value->child->string[0] != '$' ||
        flyt_json_print(value, false, NULL, &text, &bytes) < 0)
        return false;
    if (parse_extended(text, &holder)) {
        if (bson_iter_init_find(&iter, &holder, "v") && !BSON_ITER_HOLDS_DOCUMENT(&iter))
            is_appended = bson_append_iter(bson, name, -1, &iter);
        bson_destroy(&holder);
    }
    free(text);
    return is_appended;
}

static bool append_number(bson_t *bson, const char *name, double number)
{
    if (fabs(number) > FLYT_JSON_INTEGER_MAX || number != trunc(number) || (number == 0 && signbit(number)))
        return bson_append_double(bson, name, -1, number);
    if (number >= INT32_MIN && number <= INT32_MAX)
        return bson_append_int32(bson, name, -1, (int32_t)number);
    return bson_append_int64(bson, name, -1, (int64_t)number);
}

static bool append_children(bson_t *bson, const cJSON *parent, bool is_outermost);

static bool append_value(bson_t *bson, const char *name, const cJSON *value)
{
    bson_t inner;

    if (cJSON_IsNull(value))
        return bson_append_null(bson, name, -1);
    if (cJSON_IsBool(value))
        return bson_append_bool(bson, name, -1, cJSON_IsTrue(value));
    if (cJSON_IsNumber(value))
        return append_number(bson, name, value->valuedouble);
    if (cJSON_IsString(value))
        return bson_append_utf8(bson, name, -1, value->valuestring, -1);
    if (cJSON_IsArray(value))
        return bson_append_array_begin(bson, name, -1, &inner) && append_children(&inner, value, false) &&
               bson_append_array_end(bson, &inner);
    if (append_extended(bson, name, value))
        return true;
    return bson_append_document_begin(bson, name, -1, &inner) && append_children(&inner, value, false) &&
           bson_append_document_end(bson, &inner);
}

static bool append_children(bson_t *bson, const cJSON *parent, bool is_outermost)
{
    char number[16];
    unsigned index = 0;

    for (const cJSON *member = parent->child; member; member = member->next) {
        const char *name = member->string;

        if (is_outermost && flyt_json_is_store_member(name))
            continue;
        if (cJSON_IsArray(parent)) {
            snprintf(number, sizeof number, "%u", index++);
            name = number;
        }
        if (!append_value(bson, name, member))
            return false;
    }
    return true;
}

int flyt_bson_append_members(bson_t *bson, const cJSON *document, struct flyt_error *err)
{
    return append_children(bson, document, true) ? 0 : flyt_error_set(err, -E2BIG, "it is too long for BSON");
}

bool flyt_bson_append_id(bson_t *bson, const char *name, const char *id)
{
    bson_t holder;
    bson_iter_t iter, inner;
    bool is_appended = false;

    if (strncmp(id, "{\"$", 3) != 0)
        return bson_append_utf8(bson, name, -1, id, -1);
    if (!parse_extended(id, &holder))
        return false;
    if (bson_iter_init_find(&iter, &holder, "v")) {
        if (BSON_ITER_HOLDS_DOCUMENT(&iter) && bson_iter_recurse(&iter, &inner) && bson_iter_next(&inner) &&
            strcmp(bson_iter_key(&inner), id_wrapper) == 0)
            is_appended = bson_append_iter(bson, name, -1, &inner);
        else
            is_appended = bson_append_iter(bson, name, -1, &iter);
    }
    bson_destroy(&holder);
    return is_appended;
}
