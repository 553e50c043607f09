/* Tests of documents by tables: what is written is read, as it was and no other way; each error names its field. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "control/base/fields.h"
#include "control/base/json_memory.h"

struct piece {
    struct piece *next;
    uint64_t id;
    bool is_hidden;
};

struct thing {
    bool is_red;
    uint16_t small;
    unsigned count;
    int signed_number;
    uint64_t exact, digits, id;
    int level;
    unsigned packing;
    char *text;
    char chars[8];
    unsigned char key[4];
    uint64_t bits[2];
    unsigned numbers[3], number_count;
    char **names;
    unsigned name_count;
    struct piece *pieces;
};

struct beside {
    uint64_t revision;
};

enum { LOW, HIGH };
static const char *const levels[] = {"low", "high", NULL}, *const packings[] = {"none", "lz4", NULL};

static int check_piece(void *item, struct flyt_error *err)
{
    const struct piece *piece = item;

    return piece->id != 13 ? 0 : flyt_error_set(err, -EINVAL, "id is 13");
}

static bool is_hidden(const void *item)
{
    return ((const struct piece *)item)->is_hidden;
}

static const struct flyt_field piece_fields[] = {
    {"id", FLYT_NUMBER(struct piece, id), .rules = FLYT_NEEDED | FLYT_DIGITS},
    {0},
};
static const struct flyt_item piece_item = {piece_fields, sizeof(struct piece), offsetof(struct piece, next),
                                            check_piece, is_hidden};
static const struct flyt_field number_fields[] = {{"", .kind = FLYT_FIELD_NUMBER, .size = sizeof(unsigned), .max = 64},
                                                  {0}};
static const struct flyt_item number_item = {.fields = number_fields, .bytes = sizeof(unsigned)};
static const struct flyt_field name_fields[] = {{"", .kind = FLYT_FIELD_TEXT, .size = sizeof(char *), .max = 5}, {0}};
static const struct flyt_item name_item = {.fields = name_fields, .bytes = sizeof(char *)};

enum { THING, BESIDE };
#define OF(kind, ...) FLYT_##kind(struct thing, __VA_ARGS__)

static const struct flyt_field fields[] = {
    {"red", OF(FLAG, is_red)},
    {"revision", FLYT_NUMBER(struct beside, revision), .part = BESIDE, .rules = FLYT_NEEDED},
    {"small", OF(NUMBER, small), .min = 2, .max = 300},
    {"count", OF(NUMBER, count), .rules = FLYT_SPARSE},
    {"signed", OF(NUMBER, signed_number)},
    {"exact", OF(NUMBER, exact), .rules = FLYT_NULLABLE},
    {"digits", OF(NUMBER, digits), .rules = FLYT_DIGITS},
    {"id", OF(ID, id), .rules = FLYT_NULLABLE},
    {"level", OF(CHOICE, level, levels)},
    {"packing", OF(CHOICE, packing, packings), .rules = FLYT_OPEN},
    {"text", OF(TEXT, text), .max = 6},
    {"chars", OF(CHARS, chars), .rules = FLYT_NULLABLE},
    {"key", OF(BYTES, key)},
    {"bits", OF(BITS, bits)},
    {"numbers", OF(ARRAY, numbers, number_count, &number_item)},
    {"names", OF(VECTOR, names, name_count, 4, &name_item)},
    {"pieces", OF(CHAIN, pieces, 3, &piece_item)},
    {0},
};

#define GOLDEN                                                                                                         \
    "{\"red\":true,\"revision\":9,\"small\":300,\"signed\":-2147483648,\"exact\":9007199254740991,"                    \
    "\"digits\":\"18446744073709551615\",\"id\":\"fedcba9876543210\",\"level\":\"high\",\"packing\":\"lz4\","          \
    "\"text\":\"one\",\"chars\":null,\"key\":\"00ff10a5\",\"bits\":[0,63,64,127],\"numbers\":[64,0],"                  \
    "\"names\":[\"a\",\"b\"],\"pieces\":[{\"id\":\"3\"},{\"id\":\"18446744073709551615\"}]}"

static struct piece last = {NULL, UINT64_MAX, false}, hidden = {&last, 4, true}, first = {&hidden, 3, false};
static char *names[] = {(char *)"a", (char *)"b"};

static struct thing example(void)
{
    return (struct thing){.is_red = true,
                          .small = 300,
                          .signed_number = INT32_MIN,
                          .exact = FLYT_FIELD_NUMBER_MAX,
                          .digits = UINT64_MAX,
                          .id = 0xfedcba9876543210,
                          .level = HIGH,
                          .packing = 1,
                          .text = (char *)"one",
                          .key = {0, 0xff, 0x10, 0xa5},
                          .bits = {1ull << 63 | 1, 1ull << 63 | 1},
                          .numbers = {64, 0},
                          .number_count = 2,
                          .names = names,
                          .name_count = 2,
                          .pieces = &first};
}

/* cJSON prints 15 digits of most numbers, which is less than it keeps. */
static char *print(cJSON *object)
{
    cJSON *exact = cJSON_GetObjectItemCaseSensitive(object, "exact");

    if (cJSON_IsNumber(exact) && exact->valuedouble == (double)FLYT_FIELD_NUMBER_MAX)
        cJSON_ReplaceItemInObjectCaseSensitive(object, "exact", cJSON_CreateRaw("9007199254740991"));
    return cJSON_PrintUnformatted(object);
}

static int read_text(const char *text, unsigned leave, struct thing *ret_thing, struct flyt_error *err)
{
    static struct beside beside;
    cJSON *object = cJSON_Parse(text);

    if (!object)
        fail_msg("%s is no JSON", text);
    *err = (struct flyt_error){0};
    *ret_thing = (struct thing){0};
    int status = flyt_fields_read(fields, object, (void *const[]){ret_thing, &beside}, leave, err);
    cJSON_Delete(object);
    return status;
}

static void test_what_is_written_is_read(void **state)
{
    const struct thing thing = example();
    const struct beside beside = {9};
    struct flyt_error err = {0};
    struct thing back;

    cJSON *object = flyt_fields_write(fields, (const void *const[]){&thing, &beside}, &err);
    assert_non_null(object);
    char *text = print(object);
    assert_string_equal(text, GOLDEN);
    assert_int_equal(read_text(text, 0, &back, &err), 0);
    assert_true(back.is_red && back.small == 300 && back.signed_number == INT32_MIN && back.level == HIGH);
    assert_true(back.exact == FLYT_FIELD_NUMBER_MAX && back.digits == UINT64_MAX && back.id == thing.id);
    assert_string_equal(back.text, "one");
    assert_string_equal(back.chars, "");
    assert_memory_equal(back.key, thing.key, sizeof thing.key);
    assert_memory_equal(back.bits, thing.bits, sizeof thing.bits);
    assert_true(back.number_count == 2 && back.numbers[0] == 64 && back.numbers[1] == 0 && back.packing == 1);
    assert_true(back.name_count == 2 && !strcmp(back.names[1], "b"));
    assert_true(back.pieces->id == 3 && back.pieces->next->id == UINT64_MAX && !back.pieces->next->next);
    cJSON *again = flyt_fields_write(fields, (const void *const[]){&back, &beside}, &err);
    char *text_again = print(again);
    assert_string_equal(text_again, GOLDEN);
    flyt_fields_free(fields, THING, &back);
    assert_true(!back.text && !back.names && !back.pieces && !back.name_count && !back.key[1]);
    cJSON_Delete(object);
    cJSON_Delete(again);
    free(text);
    free(text_again);
}

/* A part that is not there, and what is empty. */
static void test_absent(void **state)
{
    struct beside beside = {0};
    struct flyt_error err = {0};
    struct thing thing = {.packing = 7};

    cJSON *object = flyt_fields_write(fields, (const void *const[]){NULL, &beside}, &err);
    char *text = cJSON_PrintUnformatted(object);
    assert_string_equal(text, "{\"revision\":0,\"exact\":null,\"id\":null,\"chars\":null}");
    cJSON_Delete(object);
    free(text);
    object = flyt_fields_write(fields, (const void *const[]){&thing, NULL}, &err);
    assert_null(cJSON_GetObjectItem(object, "revision"));
    assert_null(cJSON_GetObjectItem(object, "count"));
    assert_null(cJSON_GetObjectItem(object, "packing"));
    cJSON_Delete(object);
    /* What was read before goes. */
    object = cJSON_Parse(GOLDEN);
    thing = (struct thing){0};
    assert_int_equal(flyt_fields_read(fields, object, (void *const[]){&thing, &beside}, 0, &err), 0);
    assert_int_equal(beside.revision, 9);
    cJSON_Delete(object);
    object = cJSON_Parse("{\"revision\":1}");
    assert_int_equal(flyt_fields_read(fields, object, (void *const[]){&thing, NULL}, 0, &err), 0);
    assert_int_equal(beside.revision, 9);
    assert_true(!thing.is_red && !thing.exact && !thing.name_count && !thing.pieces && !thing.bits[1]);
    assert_int_equal(thing.packing, 2); /* none of them */
    assert_string_equal(thing.text, "");
    cJSON_Delete(object);
    flyt_fields_free(fields, THING, &thing);
}

static const struct {
    const char *text, *sentence;
    int code;
} wrong_ones[] = {
    {"[]", "it is not an object", -EINVAL},
    {"{}", "revision is missing", -EINVAL},
    {"{\"revision\":null}", "revision is not a number", -EINVAL},
    {"{\"revision\":\"1\"}", "revision is not a number", -EINVAL},
    {"{\"revision\":1.5}", "revision is 1.5, not a whole number", -EINVAL},
    {"{\"revision\":-1}", "revision is -1, less than 0", -EINVAL},
    {"{\"revision\":9007199254740992}", "revision is 9007199254740992, more than a document holds exactly", -EINVAL},
    {"{\"revision\":1e300}", "revision is 1.0000000000000001e+300, more than a document holds exactly", -EINVAL},
    {"{\"revision\":1,\"colour\":2}", "colour is a field that nobody knows", -ENOENT},
    {"{\"revision\":1,\"red\":1}", "red is neither true nor false", -EINVAL},
    {"{\"revision\":1,\"small\":301}", "small is 301, not between 2 and 300", -EINVAL},
    {"{\"revision\":1,\"small\":1}", "small is 1, not between 2 and 300", -EINVAL},
    {"{\"revision\":1,\"count\":4294967296}", "count is 4294967296, not between 0 and 4294967295", -EINVAL},
    {"{\"revision\":1,\"signed\":-2147483649}", "signed is -2147483649, not between -2147483648 and 2147483647",
     -EINVAL},
    {"{\"revision\":1,\"digits\":1}", "digits is not a number as text", -EINVAL},
    {"{\"revision\":1,\"digits\":\"-1\"}", "digits is not a number as text", -EINVAL},
    {"{\"revision\":1,\"digits\":\"1x\"}", "digits is \"1x\", not a number", -EINVAL},
    {"{\"revision\":1,\"digits\":\"18446744073709551616\"}", "digits is 18446744073709551616, more than 64 bits hold",
     -EINVAL},
    {"{\"revision\":1,\"id\":\"1\"}", "id is not an id of 16 hexadecimal digits", -EINVAL},
    {"{\"revision\":1,\"level\":\"middle\"}", "level is \"middle\", which is none of its values", -EINVAL},
    {"{\"revision\":1,\"level\":1}", "level is not text", -EINVAL},
    {"{\"revision\":1,\"text\":\"sevenes\"}", "text is longer than 6 bytes", -EINVAL},
    {"{\"revision\":1,\"text\":7}", "text is not text", -EINVAL},
    {"{\"revision\":1,\"chars\":\"12345678\"}", "chars is longer than 7 bytes", -EINVAL},
    {"{\"revision\":1,\"key\":\"00ff\"}", "key is not 8 hexadecimal digits", -EINVAL},
    {"{\"revision\":1,\"bits\":[1,128]}", "bits[1] is 128, not between 0 and 127", -EINVAL},
    {"{\"revision\":1,\"bits\":1}", "bits is not an array", -EINVAL},
    {"{\"revision\":1,\"numbers\":[1,2,3,4]}", "numbers has 4 items, more than 3", -E2BIG},
    {"{\"revision\":1,\"numbers\":[1,65]}", "numbers[1] is 65, not between 0 and 64", -EINVAL},
    {"{\"revision\":1,\"names\":[\"a\",\"sixsix\"]}", "names[1] is longer than 5 bytes", -EINVAL},
    {"{\"revision\":1,\"pieces\":[{\"id\":\"1\"},{}]}", "pieces[1].id is missing", -EINVAL},
    {"{\"revision\":1,\"pieces\":[{\"id\":\"1\"},{\"id\":\"13\"}]}", "pieces[1].id is 13", -EINVAL},
    {"{\"revision\":1,\"pieces\":[{\"id\":\"1\",\"weight\":2}]}", "pieces[0].weight is a field that nobody knows",
     -ENOENT},
    {"{\"revision\":1,\"pieces\":[3]}", "pieces[0] is not an object", -EINVAL},
};

static void test_each_error_is_named(void **state)
{
    for (size_t i = 0; i < sizeof wrong_ones / sizeof *wrong_ones; i++) {
        struct flyt_error err;
        struct thing thing;
        assert_int_equal(read_text(wrong_ones[i].text, 0, &thing, &err), wrong_ones[i].code);
        assert_string_equal(err.text, wrong_ones[i].sentence);
        flyt_fields_free(fields, THING, &thing);
    }
}

/* What is wrong and not needed is as if it were not there, and the rest is read. */
static void test_leaving(void **state)
{
    struct flyt_error err;
    struct thing thing;

    assert_int_equal(read_text("{\"revision\":1,\"colour\":2,\"red\":1,\"small\":7,\"level\":\"middle\",\"text\":3,"
                               "\"numbers\":[5,\"x\",6],\"bits\":[3,900],\"names\":{},\"digits\":\"4\","
                               "\"pieces\":[{\"id\":\"1\"},{\"id\":\"13\"},{\"id\":\"2\"}]}",
                               FLYT_LEAVE_UNKNOWN | FLYT_LEAVE_WRONG, &thing, &err),
                     0);
    assert_string_equal(err.text, "pieces[1].id is 13");
    assert_true(!thing.is_red && thing.small == 7 && thing.level == LOW && thing.digits == 4 && !thing.name_count);
    assert_string_equal(thing.text, "");
    assert_true(thing.number_count == 2 && thing.numbers[1] == 6 && thing.bits[0] == 8);
    assert_true(thing.pieces->id == 1 && thing.pieces->next->id == 2 && !thing.pieces->next->next);
    flyt_fields_free(fields, THING, &thing);
    assert_int_equal(read_text("{\"revision\":true}", FLYT_LEAVE_UNKNOWN | FLYT_LEAVE_WRONG, &thing, &err), -EINVAL);
    assert_string_equal(err.text, "revision is not a number");
    flyt_fields_free(fields, THING, &thing);
}

static void test_what_no_document_holds(void **state)
{
    struct thing thing = example();
    struct beside beside = {9};
    struct flyt_error err = {0};

    beside.revision = FLYT_FIELD_NUMBER_MAX + 1;
    assert_null(flyt_fields_write(fields, (const void *const[]){&thing, &beside}, &err));
    assert_int_equal(err.code, -ERANGE);
    assert_string_equal(err.text, "revision is 9007199254740992, more than a document holds exactly");
    beside.revision = 1;
    thing.level = 2;
    assert_null(flyt_fields_write(fields, (const void *const[]){&thing, &beside}, &err));
    assert_string_equal(err.text, "level is 2, which has no name");
    thing.level = 0;
    thing.numbers[1] = 5;
    cJSON *object = flyt_fields_write(fields, (const void *const[]){&thing, &beside}, &err);
    assert_non_null(object);
    cJSON_Delete(object);
}

/* Numbers that are shown: all their digits, and none where there is none. */
static void test_what_is_shown(void **state)
{
    static const struct flyt_field shown[] = {
        {"exact", OF(NUMBER, exact), .rules = FLYT_EXACT},
        {"digits", OF(NUMBER, digits), .rules = FLYT_EXACT},
        {"signed", OF(NUMBER, signed_number), .rules = FLYT_OPEN},
        {"level", OF(CHOICE, level, levels), .rules = FLYT_OPEN},
        {"packing", OF(CHOICE, packing, packings), .rules = FLYT_OPEN | FLYT_NULLABLE},
        {"beside", FLYT_CHOICE(struct thing, packing, packings), .part = BESIDE, .rules = FLYT_NULLABLE},
        {0},
    };
    struct thing thing = {.exact = FLYT_FIELD_NUMBER_MAX, .digits = UINT64_MAX, .signed_number = -1, .level = -1};
    struct flyt_error err;

    cJSON *object = flyt_fields_write(shown, (const void *const[]){&thing, NULL}, &err);
    char *text = cJSON_PrintUnformatted(object);
    assert_string_equal(text, "{\"exact\":9007199254740991,\"digits\":18446744073709551615,"
                              "\"packing\":\"none\",\"beside\":null}");
    cJSON_Delete(object);
    free(text);
}

static int allocations_left;

static void *allocate(size_t bytes)
{
    return allocations_left-- > 0 ? malloc(bytes) : NULL;
}

/* Wherever memory ends, nothing is made that lacks a member. */
static void test_no_memory(void **state)
{
    const struct thing thing = example();
    const struct beside beside = {9};
    struct flyt_error err = {0};
    cJSON *object = NULL;
    int needed = 0;

    flyt_json_watch_memory(allocate);
    for (; !object; needed++) {
        allocations_left = needed;
        err.code = 0;
        object = flyt_fields_write(fields, (const void *const[]){&thing, &beside}, &err);
        if (!object)
            assert_int_equal(err.code, -ENOMEM);
    }
    flyt_json_watch_memory(NULL);
    assert_true(needed > 40);
    char *text = print(object);
    assert_string_equal(text, GOLDEN);
    cJSON_Delete(object);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_written_is_read),
        cmocka_unit_test(test_absent),
        cmocka_unit_test(test_each_error_is_named),
        cmocka_unit_test(test_leaving),
        cmocka_unit_test(test_what_no_document_holds),
        cmocka_unit_test(test_what_is_shown),
        cmocka_unit_test(test_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
