#include "control/base/fields.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* cJSON prints so many digits of a number. */
#define PRINTED_MAX 999999999999999ull

enum { BYTES_MAX = 64 };

/* Of a field, whose name begins the sentence. */
__attribute__((format(printf, 4, 5))) static int wrong(const struct flyt_field *field, int code, struct flyt_error *err,
                                                       const char *format, ...)
{
    char text[200];
    va_list values;

    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    return flyt_error_set(err, code, "%s %s", field->name, text);
}

/* Of the item of a list, whose own sentence *err has. */
static int wrong_item(const struct flyt_field *field, unsigned index, int code, struct flyt_error *err)
{
    char text[sizeof err->text];

    if (!err)
        return code;
    strcpy(text, err->text);
    return flyt_error_set(err, code, "%s[%u]%s%.400s", field->name, index, *text == ' ' ? "" : ".", text);
}

/* ---- numbers in memory ---- */

static uint64_t natural_max(const struct flyt_field *field)
{
    unsigned bits = 8 * (unsigned)field->size - field->is_signed;

    return bits == 64 ? UINT64_MAX : (1ull << bits) - 1;
}

static uint64_t max_of(const struct flyt_field *field)
{
    return field->max ? field->max : natural_max(field);
}

/* Of a signed one its two's complement. */
static uint64_t load(const struct flyt_field *field, const void *at)
{
    switch (field->size) {
    case 1:
        return *(const uint8_t *)at;
    case 2:
        return *(const uint16_t *)at;
    case 4:
        return field->is_signed ? (uint64_t) * (const int32_t *)at : *(const uint32_t *)at;
    default:
        return *(const uint64_t *)at;
    }
}

static void store(const struct flyt_field *field, void *at, uint64_t value)
{
    switch (field->size) {
    case 1:
        *(uint8_t *)at = (uint8_t)value;
        return;
    case 2:
        *(uint16_t *)at = (uint16_t)value;
        return;
    case 4:
        *(uint32_t *)at = (uint32_t)value;
        return;
    default:
        *(uint64_t *)at = value;
    }
}

static int check_bounds(const struct flyt_field *field, uint64_t value, struct flyt_error *err)
{
    const int64_t number = (int64_t)value, most = (int64_t)natural_max(field);

    if (field->is_signed && !field->max)
        return number <= most && number >= -most - 1
                   ? 0
                   : wrong(field, -EINVAL, err, "is %" PRId64 ", not between %" PRId64 " and %" PRId64, number,
                           -most - 1, most);
    return value >= field->min && value <= max_of(field)
               ? 0
               : wrong(field, -EINVAL, err,
                       field->is_signed ? "is %" PRId64 ", not between %" PRIu64 " and %" PRIu64
                                        : "is %" PRIu64 ", not between %" PRIu64 " and %" PRIu64,
                       value, field->min, max_of(field));
}

/* ---- lists in memory ---- */

static unsigned count_of(const struct flyt_field *field, const void *part)
{
    return field->form == FLYT_LIST_CHAIN ? 0 : *(const unsigned *)((const char *)part + field->count_offset);
}

/* The items in turn: `item` NULL: the first one. NULL: no more. */
static void *next_item(const struct flyt_field *field, const void *part, const void *item, unsigned index)
{
    const char *at = (const char *)part + field->offset;

    if (field->form == FLYT_LIST_CHAIN)
        return item ? *(void *const *)((const char *)item + field->item->next_offset) : *(void *const *)at;
    if (index >= count_of(field, part))
        return NULL;
    if (field->form == FLYT_LIST_POINTERS)
        return ((void *const *)*(void *const *)at)[index];
    return (field->form == FLYT_LIST_ARRAY ? (char *)at : *(char *const *)at) + index * field->item->bytes;
}

/* ---- writing ---- */

static cJSON *write_item(const struct flyt_item *item, const void *at, struct flyt_error *err);

static cJSON *number_item(const struct flyt_field *field, const void *at, struct flyt_error *err)
{
    const uint64_t value = load(field, at);
    const bool is_negative = field->is_signed && (int64_t)value < 0;
    char text[24];

    snprintf(text, sizeof text, is_negative ? "%" PRId64 : "%" PRIu64, value);
    if (field->rules & FLYT_DIGITS)
        return cJSON_CreateString(text);
    if (field->rules & FLYT_EXACT && (is_negative ? -value : value) > PRINTED_MAX)
        return cJSON_CreateRaw(text);
    if ((is_negative ? -value : value) <= FLYT_FIELD_NUMBER_MAX)
        return cJSON_CreateNumber(is_negative ? -(double)-value : (double)value);
    wrong(field, -ERANGE, err, "is %s, more than a document holds exactly", text);
    return NULL;
}

static cJSON *id_item(const struct flyt_field *field, const void *at)
{
    char text[17];

    snprintf(text, sizeof text, "%016" PRIx64, load(field, at));
    return cJSON_CreateString(text);
}

static unsigned name_count(const struct flyt_field *field)
{
    unsigned count = 0;

    while (field->names[count] && (!field->max || count <= field->max))
        count++;
    return count;
}

static cJSON *choice_item(const struct flyt_field *field, const void *at, struct flyt_error *err)
{
    const uint64_t value = load(field, at);

    if (value >= field->min && value < name_count(field))
        return cJSON_CreateString(field->names[value]);
    wrong(field, -ERANGE, err, "is %" PRIu64 ", which has no name", value);
    return NULL;
}

static cJSON *bytes_item(const struct flyt_field *field, const unsigned char *bytes)
{
    char text[2 * BYTES_MAX + 1];

    for (size_t i = 0; i < field->size; i++)
        sprintf(text + 2 * i, "%02x", bytes[i]);
    cJSON *item = cJSON_CreateString(text);
    explicit_bzero(text, sizeof text);
    return item;
}

static bool has_bit(const void *at, unsigned bit)
{
    return ((const uint64_t *)at)[bit / 64] >> bit % 64 & 1;
}

static cJSON *bits_item(const struct flyt_field *field, const void *at)
{
    cJSON *array = cJSON_CreateArray();
    bool is_good = array != NULL;

    for (unsigned bit = 0; bit < 8 * field->size && is_good; bit++)
        is_good = !has_bit(at, bit) || cJSON_AddItemToArray(array, cJSON_CreateNumber(bit));
    if (is_good)
        return array;
    cJSON_Delete(array);
    return NULL;
}

static cJSON *list_item(const struct flyt_field *field, const void *part, struct flyt_error *err)
{
    cJSON *array = cJSON_CreateArray();
    const void *at = NULL;

    for (unsigned i = 0; array && (at = next_item(field, part, at, i)); i++) {
        if (field->item->is_left_out && field->item->is_left_out(at))
            continue;
        cJSON *item = write_item(field->item, at, err);
        if (item && cJSON_AddItemToArray(array, item))
            continue;
        cJSON_Delete(array);
        wrong_item(field, i, err ? err->code : -ENOMEM, err);
        return NULL;
    }
    return array;
}

static const char *text_at(const struct flyt_field *field, const void *at)
{
    const char *text = field->kind == FLYT_FIELD_CHARS ? at : *(const char *const *)at;

    return text ? text : "";
}

/* NULL: *err, or no memory. */
static cJSON *make_item(const struct flyt_field *field, const void *part, struct flyt_error *err)
{
    const void *at = (const char *)part + field->offset;

    switch (field->kind) {
    case FLYT_FIELD_FLAG:
        return cJSON_CreateBool(load(field, at) != 0);
    case FLYT_FIELD_NUMBER:
        return number_item(field, at, err);
    case FLYT_FIELD_ID:
        return id_item(field, at);
    case FLYT_FIELD_CHOICE:
        return choice_item(field, at, err);
    case FLYT_FIELD_BYTES:
        return bytes_item(field, at);
    case FLYT_FIELD_BITS:
        return bits_item(field, at);
    case FLYT_FIELD_LIST:
        return list_item(field, part, err);
    case FLYT_FIELD_TEXT:
    case FLYT_FIELD_CHARS:
        break;
    }
    return cJSON_CreateString(text_at(field, at));
}

static bool is_empty(const struct flyt_field *field, const void *part)
{
    const char *at = (const char *)part + field->offset;

    if (field->kind == FLYT_FIELD_TEXT || field->kind == FLYT_FIELD_CHARS)
        return !*text_at(field, at);
    if (field->kind == FLYT_FIELD_LIST)
        return !next_item(field, part, NULL, 0);
    for (size_t i = 0; i < field->size; i++)
        if (at[i])
            return false;
    return true;
}

/* Whether the document says nothing, or null, in its place. */
static bool is_absent(const struct flyt_field *field, const void *part)
{
    if (!part)
        return true;
    if (field->kind == FLYT_FIELD_CHOICE && field->rules & FLYT_OPEN &&
        load(field, (const char *)part + field->offset) >= name_count(field))
        return true;
    if (field->is_signed && field->rules & FLYT_OPEN && (int64_t)load(field, (const char *)part + field->offset) < 0)
        return true;
    /* The first of its names is as good as another. */
    const unsigned rules = field->kind == FLYT_FIELD_CHOICE ? field->rules & ~(unsigned)FLYT_NULLABLE : field->rules;
    return rules & (FLYT_SPARSE | FLYT_NULLABLE) && is_empty(field, part);
}

static int add_all(const struct flyt_field *fields, const void *const *parts, cJSON *object, struct flyt_error *err)
{
    if (err)
        err->code = 0;
    for (const struct flyt_field *field = fields; field->name; field++) {
        const void *part = parts[field->part];
        const bool is_null = is_absent(field, part);
        if (is_null && !(field->rules & FLYT_NULLABLE))
            continue;
        cJSON *item = is_null ? cJSON_CreateNull() : make_item(field, part, err);
        if (item && cJSON_AddItemToObject(object, field->name, item))
            continue;
        cJSON_Delete(item);
        return err && err->code ? err->code : wrong(field, -ENOMEM, err, "cannot be written: no memory");
    }
    return 0;
}

cJSON *flyt_fields_write(const struct flyt_field *fields, const void *const *parts, struct flyt_error *err)
{
    cJSON *object = cJSON_CreateObject();

    if (!object)
        flyt_error_set(err, -ENOMEM, "no memory");
    else if (!add_all(fields, parts, object, err))
        return object;
    cJSON_Delete(object);
    return NULL;
}

static cJSON *write_item(const struct flyt_item *item, const void *at, struct flyt_error *err)
{
    return *item->fields->name ? flyt_fields_write(item->fields, &at, err) : make_item(item->fields, at, err);
}

/* ---- reading ---- */

static int read_number(const struct flyt_field *field, const cJSON *item, struct flyt_error *err, uint64_t *ret_value)
{
    if (!cJSON_IsNumber(item))
        return wrong(field, -EINVAL, err, "is not a number");
    const double number = item->valuedouble;
    if (number != trunc(number))
        return wrong(field, -EINVAL, err, "is %g, not a whole number", number);
    if (fabs(number) > (double)FLYT_FIELD_NUMBER_MAX)
        return wrong(field, -EINVAL, err, "is %.17g, more than a document holds exactly", number);
    if (number < 0 && !field->is_signed)
        return wrong(field, -EINVAL, err, "is %.17g, less than 0", number);
    *ret_value = (uint64_t)(int64_t)number;
    return 0;
}

static int read_digits(const struct flyt_field *field, const cJSON *item, struct flyt_error *err, uint64_t *ret_value)
{
    const char *text = cJSON_GetStringValue(item), *digits = text && field->is_signed && *text == '-' ? text + 1 : text;
    char *end = NULL;

    if (!digits || *digits < '0' || *digits > '9')
        return wrong(field, -EINVAL, err, "is not a number as text");
    errno = 0;
    const uint64_t value = field->is_signed ? (uint64_t)strtoll(text, &end, 10) : strtoull(text, &end, 10);
    if (*end)
        return wrong(field, -EINVAL, err, "is \"%.40s\", not a number", text);
    if (errno)
        return wrong(field, -EINVAL, err, "is %.40s, more than 64 bits hold", text);
    *ret_value = value;
    return 0;
}

static int get_number(const struct flyt_field *field, const cJSON *item, void *at, struct flyt_error *err)
{
    uint64_t value = 0;
    int status = (field->rules & FLYT_DIGITS ? read_digits : read_number)(field, item, err, &value);

    if (!status)
        status = check_bounds(field, value, err);
    if (!status)
        store(field, at, value);
    return status;
}

static int get_flag(const struct flyt_field *field, const cJSON *item, void *at, struct flyt_error *err)
{
    if (!cJSON_IsBool(item))
        return wrong(field, -EINVAL, err, "is neither true nor false");
    store(field, at, cJSON_IsTrue(item));
    return 0;
}

static int get_id(const struct flyt_field *field, const cJSON *item, void *at, struct flyt_error *err)
{
    const char *text = cJSON_GetStringValue(item);
    const uint64_t id =
        text && strlen(text) == 16 && strspn(text, "0123456789abcdef") == 16 ? strtoull(text, NULL, 16) : 0;

    if (!id)
        return wrong(field, -EINVAL, err, "is not an id of 16 hexadecimal digits");
    store(field, at, id);
    return 0;
}

static int get_choice(const struct flyt_field *field, const cJSON *item, void *at, struct flyt_error *err)
{
    const char *text = cJSON_GetStringValue(item);
    const unsigned count = name_count(field);

    for (unsigned i = (unsigned)field->min; i < count && text; i++)
        if (!strcmp(text, field->names[i])) {
            store(field, at, i);
            return 0;
        }
    if (field->rules & FLYT_OPEN) {
        store(field, at, count);
        return 0;
    }
    return text ? wrong(field, -EINVAL, err, "is \"%.64s\", which is none of its values", text)
                : wrong(field, -EINVAL, err, "is not text");
}

static int get_text(const struct flyt_field *field, const cJSON *item, void *at, struct flyt_error *err)
{
    const char *text = cJSON_GetStringValue(item);
    const size_t most = field->kind == FLYT_FIELD_CHARS ? field->size - 1 : field->max;

    if (!text)
        return wrong(field, -EINVAL, err, "is not text");
    if (most && strlen(text) > most)
        return wrong(field, -EINVAL, err, "is longer than %zu bytes", most);
    if (field->kind == FLYT_FIELD_CHARS) {
        strcpy(at, text);
        return 0;
    }
    const char *value = field->rules & FLYT_BORROWED ? text : strdup(text);
    if (!value)
        return wrong(field, -ENOMEM, err, "cannot be read: no memory");
    *(const char **)at = value;
    return 0;
}

static int get_bytes(const struct flyt_field *field, const cJSON *item, unsigned char *bytes, struct flyt_error *err)
{
    const char *text = cJSON_GetStringValue(item);

    if (!text || strlen(text) != 2 * field->size || strspn(text, "0123456789abcdef") != 2 * field->size)
        return wrong(field, -EINVAL, err, "is not %zu hexadecimal digits", 2 * field->size);
    for (size_t i = 0; i < field->size; i++) {
        unsigned value;
        sscanf(text + 2 * i, "%2x", &value);
        bytes[i] = (unsigned char)value;
    }
    return 0;
}

static int get_bits(const struct flyt_field *field, const cJSON *array, uint64_t *words, unsigned leave,
                    struct flyt_error *err)
{
    const struct flyt_field bit = {"", .kind = FLYT_FIELD_NUMBER, .size = 8, .max = 8 * field->size - 1};
    const cJSON *item;
    unsigned index = 0;

    if (!cJSON_IsArray(array))
        return wrong(field, -EINVAL, err, "is not an array");
    cJSON_ArrayForEach(item, array)
    {
        uint64_t number = 0;
        const int status = get_number(&bit, item, &number, err);
        if (!status)
            words[number / 64] |= 1ull << number % 64;
        else if (wrong_item(field, index, status, err) && !(leave & FLYT_LEAVE_WRONG))
            return status;
        index++;
    }
    return 0;
}

static int read_item(const struct flyt_item *item, const cJSON *from, void *to, unsigned leave, struct flyt_error *err);

/* Room for an item at the end of the list; it counts from _add_place on. */
static void *make_place(const struct flyt_field *field, void *part, unsigned count)
{
    char *at = (char *)part + field->offset;

    if (field->form == FLYT_LIST_CHAIN)
        return calloc(1, field->item->bytes);
    char *place = (field->form == FLYT_LIST_ARRAY ? at : *(char **)at) + count * field->item->bytes;
    memset(place, 0, field->item->bytes);
    return place;
}

static void free_item(const struct flyt_field *field, void *item)
{
    flyt_fields_free(field->item->fields, 0, item);
    if (field->form == FLYT_LIST_CHAIN)
        free(item);
}

static int get_list(const struct flyt_field *field, const cJSON *array, void *part, unsigned leave,
                    struct flyt_error *err)
{
    void **link = (void **)((char *)part + field->offset); /* of a chain: where the next one is hung in */
    const cJSON *from;
    unsigned index = 0, count = 0;

    if (!cJSON_IsArray(array))
        return wrong(field, -EINVAL, err, "is not an array");
    if ((unsigned)cJSON_GetArraySize(array) > field->count_max)
        return wrong(field, -E2BIG, err, "has %d items, more than %u", cJSON_GetArraySize(array), field->count_max);
    if (field->form == FLYT_LIST_VECTOR && !(*link = calloc((size_t)cJSON_GetArraySize(array) + 1, field->item->bytes)))
        return wrong(field, -ENOMEM, err, "cannot be read: no memory");
    cJSON_ArrayForEach(from, array)
    {
        void *item = make_place(field, part, count);
        int status =
            item ? read_item(field->item, from, item, leave, err) : wrong(field, -ENOMEM, err, "has no memory");
        if (status) {
            if (item)
                free_item(field, item);
            wrong_item(field, index, status, err);
            if (!(leave & FLYT_LEAVE_WRONG) || status == -ENOMEM)
                return status;
        } else if (field->form == FLYT_LIST_CHAIN) {
            *link = item;
            link = (void **)((char *)item + field->item->next_offset);
        } else {
            *(unsigned *)((char *)part + field->count_offset) = ++count;
        }
        index++;
    }
    return 0;
}

static int get_field(const struct flyt_field *field, const cJSON *item, void *part, unsigned leave,
                     struct flyt_error *err)
{
    void *at = (char *)part + field->offset;

    switch (field->kind) {
    case FLYT_FIELD_FLAG:
        return get_flag(field, item, at, err);
    case FLYT_FIELD_NUMBER:
        return get_number(field, item, at, err);
    case FLYT_FIELD_ID:
        return get_id(field, item, at, err);
    case FLYT_FIELD_CHOICE:
        return get_choice(field, item, at, err);
    case FLYT_FIELD_BYTES:
        return get_bytes(field, item, at, err);
    case FLYT_FIELD_BITS:
        return get_bits(field, item, at, leave, err);
    case FLYT_FIELD_LIST:
        return get_list(field, item, part, leave, err);
    case FLYT_FIELD_TEXT:
    case FLYT_FIELD_CHARS:
        break;
    }
    return get_text(field, item, at, err);
}

static void free_list(const struct flyt_field *field, void *part)
{
    void **at = (void **)((char *)part + field->offset), *item;

    if (field->form == FLYT_LIST_CHAIN) {
        while ((item = *at)) {
            *at = *(void **)((char *)item + field->item->next_offset);
            free_item(field, item);
        }
        return;
    }
    for (unsigned i = 0; i < count_of(field, part); i++)
        free_item(field, next_item(field, part, NULL, i));
    *(unsigned *)((char *)part + field->count_offset) = 0;
    if (field->form == FLYT_LIST_VECTOR) {
        free(*at);
        *at = NULL;
    }
}

/* As if it had not been read. */
static void clear(const struct flyt_field *field, void *part)
{
    char *at = (char *)part + field->offset;

    if (field->kind == FLYT_FIELD_LIST) {
        free_list(field, part);
        return;
    }
    if (field->kind == FLYT_FIELD_TEXT && !(field->rules & FLYT_BORROWED))
        free(*(char **)at);
    explicit_bzero(at, field->size);
}

/* Absent, or passed over. */
static int set_empty(const struct flyt_field *field, void *part, struct flyt_error *err)
{
    char **at = (char **)((char *)part + field->offset);

    clear(field, part);
    if (field->kind == FLYT_FIELD_CHOICE && field->rules & FLYT_OPEN)
        store(field, at, name_count(field));
    if (field->kind != FLYT_FIELD_TEXT)
        return 0;
    *at = field->rules & FLYT_BORROWED ? (char *)"" : strdup("");
    return *at ? 0 : wrong(field, -ENOMEM, err, "cannot be read: no memory");
}

static int read_field(const struct flyt_field *field, const cJSON *object, void *part, unsigned leave,
                      struct flyt_error *err)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, field->name);
    const bool is_absent_item = !item || (cJSON_IsNull(item) && field->rules & FLYT_NULLABLE);
    int status = 0;

    clear(field, part);
    if (!is_absent_item)
        status = get_field(field, item, part, leave, err);
    else if (field->rules & FLYT_NEEDED)
        status = wrong(field, -EINVAL, err, "is missing");
    else
        return set_empty(field, part, err);
    if (status && status != -ENOMEM && leave & FLYT_LEAVE_WRONG && !(field->rules & FLYT_NEEDED))
        return set_empty(field, part, NULL);
    return status;
}

static int find_unknown(const struct flyt_field *fields, const cJSON *object, struct flyt_error *err)
{
    const cJSON *member;

    cJSON_ArrayForEach(member, object)
    {
        const struct flyt_field *field = fields;
        while (field->name && strcmp(field->name, member->string) != 0)
            field++;
        if (!field->name)
            return flyt_error_set(err, -ENOENT, "%.64s is a field that nobody knows", member->string);
    }
    return 0;
}

int flyt_fields_read(const struct flyt_field *fields, const cJSON *object, void *const *parts, unsigned leave,
                     struct flyt_error *err)
{
    int status = 0;

    if (!cJSON_IsObject(object))
        return flyt_error_set(err, -EINVAL, "it is not an object");
    if (!(leave & FLYT_LEAVE_UNKNOWN))
        status = find_unknown(fields, object, err);
    for (const struct flyt_field *field = fields; field->name && !status; field++)
        if (parts[field->part])
            status = read_field(field, object, parts[field->part], leave, err);
    return status;
}

static int read_item(const struct flyt_item *item, const cJSON *from, void *to, unsigned leave, struct flyt_error *err)
{
    if (*item->fields->name && !cJSON_IsObject(from))
        return flyt_error_set(err, -EINVAL, " is not an object");
    int status = *item->fields->name ? flyt_fields_read(item->fields, from, &to, leave, err)
                                     : get_field(item->fields, from, to, leave, err);

    return status || !item->check ? status : item->check(to, err);
}

void flyt_fields_free(const struct flyt_field *fields, unsigned part, void *object)
{
    for (const struct flyt_field *field = fields; field->name; field++)
        if (field->part == part &&
            (field->kind == FLYT_FIELD_TEXT || field->kind == FLYT_FIELD_LIST || field->kind == FLYT_FIELD_BYTES))
            clear(field, object);
}
