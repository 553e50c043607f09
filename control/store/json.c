#include "control/store/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/store/store.h"

bool flyt_utf8_is_valid(const char *text, size_t bytes)
{
    const unsigned char *p = (const unsigned char *)text, *end = p + bytes;

    while (p < end) {
        unsigned first = *p++, more, least;
        uint32_t code;

        if (first < 0x80)
            continue;
        if (first >= 0xc2 && first <= 0xdf)
            more = 1, least = 0x80, code = first & 0x1f;
        else if ((first & 0xf0) == 0xe0)
            more = 2, least = 0x800, code = first & 0x0f;
        else if (first >= 0xf0 && first <= 0xf4)
            more = 3, least = 0x10000, code = first & 0x07;
        else
            return false;
        if ((size_t)(end - p) < more)
            return false;
        for (; more; more--, p++) {
            if ((*p & 0xc0) != 0x80)
                return false;
            code = code << 6 | (*p & 0x3f);
        }
        if (code < least || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
            return false;
    }
    return true;
}

bool flyt_json_is_store_member(const char *name)
{
    return name && (strcmp(name, "_id") == 0 || strcmp(name, "revision") == 0);
}

static int print_string(FILE *file, const char *text, struct flyt_error *err)
{
    if (!flyt_utf8_is_valid(text, strlen(text)))
        return flyt_error_set(err, -EINVAL, "it holds text that is not UTF-8");
    putc('"', file);
    for (const char *c = text; *c; c++) {
        if (*c == '"' || *c == '\\')
            putc('\\', file);
        if ((unsigned char)*c < 0x20)
            fprintf(file, "\\u%04x", *c);
        else
            putc(*c, file);
    }
    putc('"', file);
    return 0;
}

static int print_number(FILE *file, double number, struct flyt_error *err)
{
    if (!isfinite(number))
        return flyt_error_set(err, -EINVAL, "it holds a number that is not finite");
    if (fabs(number) <= FLYT_JSON_INTEGER_MAX && number == trunc(number))
        fprintf(file, "%.0f", number);
    else
        fprintf(file, "%.17g", number);
    return 0;
}

static int print_value(FILE *file, const cJSON *value, unsigned depth, bool skip_store_members, struct flyt_error *err)
{
    bool is_object = cJSON_IsObject(value), is_first = true;
    int rc;

    if (cJSON_IsNull(value) || cJSON_IsBool(value)) {
        fputs(cJSON_IsNull(value) ? "null" : cJSON_IsTrue(value) ? "true" : "false", file);
        return 0;
    }
    if (cJSON_IsNumber(value))
        return print_number(file, value->valuedouble, err);
    if (cJSON_IsString(value) && value->valuestring)
        return print_string(file, value->valuestring, err);
    if (!is_object && !cJSON_IsArray(value))
        return flyt_error_set(err, -EINVAL, "it holds something that is no JSON value");
    if (depth >= FLYT_STORE_DEPTH_MAX)
        return flyt_error_set(err, -E2BIG, "it is nested deeper than %d levels", FLYT_STORE_DEPTH_MAX);
    putc(is_object ? '{' : '[', file);
    for (const cJSON *member = value->child; member; member = member->next) {
        if (skip_store_members && flyt_json_is_store_member(member->string))
            continue;
        if (!is_first)
            putc(',', file);
        is_first = false;
        if (is_object) {
            if (!member->string)
                return flyt_error_set(err, -EINVAL, "it holds a member without a name");
            rc = print_string(file, member->string, err);
            if (rc < 0)
                return rc;
            putc(':', file);
        }
        rc = print_value(file, member, depth + 1, false, err);
        if (rc < 0)
            return rc;
        if (ftell(file) > FLYT_STORE_DOCUMENT_BYTES_MAX)
            return flyt_error_set(err, -E2BIG, "it is longer than %d bytes", FLYT_STORE_DOCUMENT_BYTES_MAX);
    }
    putc(is_object ? '}' : ']', file);
    return 0;
}

int flyt_json_print(const cJSON *value, bool skip_store_members, struct flyt_error *err, char **ret_text,
                    size_t *ret_bytes)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    int rc = file ? 0 : flyt_error_set(err, -ENOMEM, "no memory");

    if (!file)
        return rc;
    rc = print_value(file, value, 0, skip_store_members, err);
    bool is_short = ferror(file);
    if ((fclose(file) != 0 || is_short || !text) && rc == 0)
        rc = flyt_error_set(err, -ENOMEM, "no memory");
    if (rc == 0 && bytes > FLYT_STORE_DOCUMENT_BYTES_MAX)
        rc = flyt_error_set(err, -E2BIG, "it is longer than %d bytes", FLYT_STORE_DOCUMENT_BYTES_MAX);
    if (rc < 0) {
        free(text);
        return rc;
    }
    *ret_text = text;
    *ret_bytes = bytes;
    return 0;
}

static bool is_deeper_than(const cJSON *value, unsigned levels)
{
    if (!cJSON_IsObject(value) && !cJSON_IsArray(value))
        return false;
    if (levels == 0)
        return true;
    for (const cJSON *member = value->child; member; member = member->next)
        if (is_deeper_than(member, levels - 1))
            return true;
    return false;
}

cJSON *flyt_json_parse_object(const char *text)
{
    cJSON *value = cJSON_ParseWithOpts(text, NULL, 1);

    if (!cJSON_IsObject(value) || is_deeper_than(value, FLYT_STORE_DEPTH_MAX)) {
        cJSON_Delete(value);
        return NULL;
    }
    return value;
}

static const cJSON *next_member(const cJSON *member, bool skip_store_members)
{
    while (member && skip_store_members && flyt_json_is_store_member(member->string))
        member = member->next;
    return member;
}

bool flyt_json_equal(const cJSON *a, const cJSON *b, bool skip_store_members)
{
    if (!a || !b || (a->type & 0xff) != (b->type & 0xff))
        return false;
    if (cJSON_IsNumber(a))
        return a->valuedouble == b->valuedouble;
    if (cJSON_IsString(a))
        return strcmp(a->valuestring, b->valuestring) == 0;
    const cJSON *m = next_member(a->child, skip_store_members), *n = next_member(b->child, skip_store_members);
    while (m && n) {
        if (cJSON_IsObject(a) && strcmp(m->string, n->string) != 0)
            return false;
        if (!flyt_json_equal(m, n, false))
            return false;
        m = next_member(m->next, skip_store_members);
        n = next_member(n->next, skip_store_members);
    }
    return !m && !n;
}

uint64_t flyt_json_number(const cJSON *document, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(document, name);
    double value = cJSON_IsNumber(item) ? item->valuedouble : 0;

    return value >= 1 && value <= FLYT_JSON_INTEGER_MAX && value == trunc(value) ? (uint64_t)value : 0;
}

static void remove_store_members(cJSON *document)
{
    while (cJSON_GetObjectItemCaseSensitive(document, "_id"))
        cJSON_DeleteItemFromObjectCaseSensitive(document, "_id");
    while (cJSON_GetObjectItemCaseSensitive(document, "revision"))
        cJSON_DeleteItemFromObjectCaseSensitive(document, "revision");
}

void flyt_json_move_store_members(cJSON *document, cJSON *members)
{
    cJSON *first = members->child, *second = first->next;

    remove_store_members(document);
    members->child = NULL;
    second->next = document->child;
    /* A list's first item points back at its last one. */
    first->prev = document->child ? document->child->prev : second;
    if (document->child)
        document->child->prev = second;
    document->child = first;
}

bool flyt_json_set_store_members(cJSON *document, const char *id, uint64_t revision)
{
    cJSON *members = cJSON_CreateObject();

    if (!members || !cJSON_AddStringToObject(members, "_id", id) ||
        !cJSON_AddNumberToObject(members, "revision", (double)revision)) {
        cJSON_Delete(members);
        return false;
    }
    flyt_json_move_store_members(document, members);
    cJSON_Delete(members);
    return true;
}
