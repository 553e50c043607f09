/* Selectors, sizes, options, tables, JSON and safe text: pure functions, compared with what was written by hand. */
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include <cmocka.h>

#include "control/flytctl/commands.h"
#include "control/flytctl/json.h"
#include "control/flytctl/select.h"
#include "control/flytctl/table.h"
#include "control/flytctl/text.h"
#include "rpc/base/test_random.h"

/* What a function prints. */
#define PRINTED(ret_, ...)                                                                                             \
    do {                                                                                                               \
        size_t bytes_;                                                                                                 \
        FILE *out = open_memstream(ret_, &bytes_);                                                                     \
        assert_non_null(out);                                                                                          \
        __VA_ARGS__;                                                                                                   \
        fclose(out);                                                                                                   \
    } while (0)

static void test_sizes(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"8G", 8ull << 30},     {"8", 8ull << 30},       {"0.5", 512ull << 20},
        {"512M", 512ull << 20}, {"1.5T", 1536ull << 30}, {"8GiB", 8ull << 30},
        {"8GB", 8ull << 30},    {"100K", 102400},        {"140.4G", 150753352089ull},
    };
    static const char *const bad[] = {"",    "0",   "-1",   "G",   "8X",   "8Gi",   "8G ",        " 8G",          "8g",
                                      "nan", "inf", "0x10", "1e3", "1e30", "1.2.3", "9000000000", "0.0000000001K"};
    uint64_t bytes;

    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(flyt_option_size(good[i].text, &bytes), 0);
        if (bytes != good[i].bytes)
            fail_msg("%s: %llu", good[i].text, (unsigned long long)bytes);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        bytes = 77;
        if (flyt_option_size(bad[i], &bytes) != -EINVAL || bytes != 77)
            fail_msg("'%s' was taken: %llu", bad[i], (unsigned long long)bytes);
    }
}

static void test_distances(void **state)
{
    assert_int_equal(flyt_word_distance("", ""), 0);
    assert_int_equal(flyt_word_distance("gpus", "gpus"), 0);
    assert_int_equal(flyt_word_distance("gpus", "gus"), 1);
    assert_int_equal(flyt_word_distance("gpus", "gups"), 1);
    assert_int_equal(flyt_word_distance("kitten", "sitting"), 3);
    assert_int_equal(flyt_word_distance("", "abc"), 3);
    assert_string_equal(flyt_command_guess("statsu"), "status");
    assert_string_equal(flyt_command_guess("vm delete") ? flyt_command_guess("vm delete") : "none", "none");
    assert_null(flyt_command_guess("x"));
}

static int read_words(struct flyt_arguments *arguments, struct flyt_error *err, const char *line)
{
    static char copy[400];
    static char *argv[40];
    int argc = 0;

    snprintf(copy, sizeof copy, "flytctl %s", line);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
        argv[argc++] = strcmp(word, "EMPTY") ? word : (char *)"";
    argv[argc] = NULL;
    err->code = 0;
    err->text[0] = 0;
    return flyt_options_read(argc, argv, flyt_common_options, flyt_command_find, flyt_command_options, arguments, err);
}

static void test_options(void **state)
{
    struct flyt_arguments arguments;
    struct flyt_error err;

    assert_int_equal(read_words(&arguments, &err,
                                "-o json vm --manager unix:///a set web -munix:///b --sm 24 "
                                "--memory=8G --include-type H200 --include-type=B200 -- --odd"),
                     0);
    assert_string_equal(arguments.command->name, "vm set");
    assert_int_equal(arguments.word_count, 2);
    assert_string_equal(arguments.words[0], "web");
    assert_string_equal(arguments.words[1], "--odd");
    assert_int_equal(flyt_option_get(&arguments, "output")->number, FLYT_OUTPUT_JSON);
    assert_int_equal(flyt_option_get(&arguments, "manager")->text_count, 2);
    assert_string_equal(flyt_option_get(&arguments, "manager")->texts[1], "unix:///b");
    assert_int_equal(flyt_option_get(&arguments, "sm")->number, 24);
    assert_int_equal(flyt_option_get(&arguments, "memory")->number, 8ull << 30);
    assert_int_equal(flyt_option_get(&arguments, "include-type")->text_count, 2);
    assert_false(flyt_option_is(&arguments, "tenant"));

    assert_int_equal(read_words(&arguments, &err, "vms --watch"), 0);
    assert_int_equal(flyt_option_get(&arguments, "watch")->number, 2000);
    assert_int_equal(read_words(&arguments, &err, "vms --watch=0.25 web"), 0);
    assert_int_equal(flyt_option_get(&arguments, "watch")->number, 250);
    assert_string_equal(arguments.words[0], "web");
    assert_int_equal(read_words(&arguments, &err, "events -fn 5"), 0);
    assert_true(flyt_option_is(&arguments, "follow"));
    assert_int_equal(flyt_option_get(&arguments, "last")->number, 5);
}

static void test_bad_options(void **state)
{
    static const struct {
        const char *line, *sentence;
        int code;
    } bad[] = {
        {"vms --wacth", "there is no option '--wacth': is --watch meant?", -EINVAL},
        {"vms -z", "there is no option '-z'", -EINVAL},
        {"--sm 4 vms", "there is no option '--sm' before a command", -EINVAL},
        {"vm set x --sm", "--sm needs N", -EINVAL},
        {"vm set x --sm 0", "--sm takes a number from 1 to 100000, not '0'", -EINVAL},
        {"vm set x --sm 1x", "--sm takes a number from 1 to 100000, not '1x'", -EINVAL},
        {"vm set x --sm -3", "--sm takes a number from 1 to 100000, not '-3'", -EINVAL},
        {"vm set x --sm 99999999999999999999", "--sm takes a number from 1 to 100000, not '99999999999999999999'",
         -EINVAL},
        {"vm set x --sm 4 --sm 5", "--sm is given twice", -EINVAL},
        {"vm set x --memory 8X", "--memory takes a size such as 8G (GiB), 512M or 1.5T, not '8X'", -EINVAL},
        {"vm set x --priority -1001", "--priority takes a number from -1000 to 1000, not '-1001'", -EINVAL},
        {"vm set x --priority 1001", "--priority takes a number from -1000 to 1000, not '1001'", -EINVAL},
        {"vm set x --priority -", "--priority takes a number from -1000 to 1000, not '-'", -EINVAL},
        {"vm set x --priority=--1", "--priority takes a number from -1000 to 1000, not '--1'", -EINVAL},
        {"vm set x --policy best", "--policy takes one of binpack, spread, not 'best'", -EINVAL},
        {"vm set x --reserved=1", "--reserved takes no value", -EINVAL},
        {"-o yaml vms", "--output takes one of table, wide, json, not 'yaml'", -EINVAL},
        {"vms --watch=-1", "--watch takes 0.1 to 86400 seconds, not '-1'", -EINVAL},
        {"vms --watch=nan", "--watch takes 0.1 to 86400 seconds, not 'nan'", -EINVAL},
        {"vms a b c d e f g h i j k l m n o p q r", "'r' is one argument too many", -EINVAL},
        {"vmss", "vmss", -ENOENT},
        {"vm", "vm", -ENOENT},
        {"vm frob x", "vm frob", -ENOENT},
    };
    struct flyt_arguments arguments;
    struct flyt_error err;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int status = read_words(&arguments, &err, bad[i].line);
        if (status != bad[i].code || strcmp(err.text, bad[i].sentence))
            fail_msg("%s: %d, %s", bad[i].line, status, err.text);
    }
    /* Help is seen behind a mistake. */
    assert_int_equal(read_words(&arguments, &err, "vm set --nonsense --help"), -EINVAL);
    assert_true(flyt_option_is(&arguments, "help"));
    assert_string_equal(arguments.command->name, "vm set");
}

/* Every command's options fit, have help, and no letter or name twice. */
static void test_command_table(void **state)
{
    struct flyt_arguments arguments;
    struct flyt_error err;

    for (const struct flyt_command *command = flyt_commands; command->name; command++) {
        assert_int_equal(read_words(&arguments, &err, command->name), 0);
        assert_ptr_equal(arguments.command, command);
        assert_non_null(command->run);
        assert_true(command->help[0] >= 'a' && command->help[0] <= 'z');
        assert_true(command->words_max <= FLYT_WORDS_MAX && command->words_min <= command->words_max);
        unsigned count = 0;
        for (const struct flyt_option *o = flyt_common_options; o->name; o++)
            count++;
        for (const struct flyt_option *o = command->options; o && o->name; o++)
            count++;
        assert_int_equal(arguments.value_count, count);
        for (unsigned i = 0; i < count; i++) {
            const struct flyt_option *one = arguments.values[i].option;
            assert_non_null(one->help);
            assert_true((one->kind == FLYT_OPTION_FLAG) == !one->argument);
            for (unsigned j = 0; j < i; j++) {
                assert_string_not_equal(one->name, arguments.values[j].option->name);
                assert_true(!one->letter || one->letter != arguments.values[j].option->letter);
            }
        }
    }
}

static void test_vm_selectors(void **state)
{
    cJSON *vms = cJSON_Parse("[{\"vm_ip\":\"10.0.0.1\",\"name\":\"web\"},{\"vm_ip\":\"10.0.0.2\",\"name\":\"db\"},"
                             "{\"vm_ip\":\"10.0.0.3\",\"name\":\"db\"},{\"vm_ip\":\"10.0.0.4\",\"name\":null},"
                             "{\"vm_ip\":\"10.0.0.5\",\"name\":\"10.0.0.1\"}]");
    const cJSON *row = NULL;

    assert_int_equal(flyt_match_vm(vms, "web", &row), FLYT_MATCH_ONE);
    assert_string_equal(flyt_row_text(row, "vm_ip"), "10.0.0.1");
    assert_int_equal(flyt_match_vm(vms, "db", &row), FLYT_MATCH_SEVERAL);
    assert_int_equal(flyt_match_vm(vms, "10.0.0.3", &row), FLYT_MATCH_ONE);
    assert_string_equal(flyt_row_text(row, "vm_ip"), "10.0.0.3");
    assert_int_equal(flyt_match_vm(vms, "10.0.0.1", &row), FLYT_MATCH_ONE);
    assert_string_equal(flyt_row_text(row, "vm_ip"), "10.0.0.1");
    assert_int_equal(flyt_match_vm(vms, "we", &row), FLYT_MATCH_NONE);
    assert_int_equal(flyt_match_vm(vms, "", &row), FLYT_MATCH_NONE);
    cJSON_Delete(vms);
}

static void test_gpu_selectors(void **state)
{
    cJSON *gpus = cJSON_Parse("[{\"uuid\":\"GPU-1234aaaa\",\"node\":\"n1\",\"index\":0},"
                              "{\"uuid\":\"GPU-1234bbbb\",\"node\":\"n1\",\"index\":1},"
                              "{\"uuid\":\"GPU-9\",\"node\":\"n:2\",\"index\":0},"
                              "{\"uuid\":\"GPU-99\",\"node\":\"n:2\",\"index\":10}]");
    static const struct {
        const char *text;
        enum flyt_match match;
        const char *uuid;
    } cases[] = {
        {"n1:0", FLYT_MATCH_ONE, "GPU-1234aaaa"},
        {"n1:1", FLYT_MATCH_ONE, "GPU-1234bbbb"},
        {"n1:2", FLYT_MATCH_NONE, NULL},
        {"n1", FLYT_MATCH_NONE, NULL},
        {"n:2:10", FLYT_MATCH_ONE, "GPU-99"},
        {"n:2:1", FLYT_MATCH_NONE, NULL},
        {"n1:", FLYT_MATCH_NONE, NULL},
        {"n1:00", FLYT_MATCH_NONE, NULL},
        {"1234", FLYT_MATCH_SEVERAL, NULL},
        {"1234a", FLYT_MATCH_ONE, "GPU-1234aaaa"},
        {"gpu-1234B", FLYT_MATCH_ONE, "GPU-1234bbbb"},
        {"GPU-9", FLYT_MATCH_ONE, "GPU-9"},
        {"GPU-", FLYT_MATCH_SEVERAL, NULL},
        {"", FLYT_MATCH_NONE, NULL},
    };
    const cJSON *row = NULL;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        enum flyt_match match = flyt_match_gpu(gpus, cases[i].text, &row);
        if (match != cases[i].match || (cases[i].uuid && strcmp(flyt_row_text(row, "uuid"), cases[i].uuid)))
            fail_msg("%s: %d", cases[i].text, match);
    }
    cJSON_Delete(gpus);
}

static void test_ids(void **state)
{
    cJSON *rows = cJSON_Parse("[{\"id\":\"00000000000000ab\",\"slot\":0},{\"id\":\"00000000000000ab\",\"slot\":1},"
                              "{\"id\":\"a100000000000000\"},{\"id\":\"a200000000000000\"}]");
    const cJSON *row = NULL;

    assert_int_equal(flyt_match_id(rows, "00", &row), FLYT_MATCH_ONE);
    assert_int_equal(flyt_match_id(rows, "A1", &row), FLYT_MATCH_ONE);
    assert_string_equal(flyt_row_text(row, "id"), "a100000000000000");
    assert_int_equal(flyt_match_id(rows, "a", &row), FLYT_MATCH_SEVERAL);
    assert_int_equal(flyt_match_id(rows, "b", &row), FLYT_MATCH_NONE);
    assert_true(flyt_is_id_prefix("aF0"));
    assert_false(flyt_is_id_prefix(""));
    assert_false(flyt_is_id_prefix("12345678901234567"));
    assert_false(flyt_is_id_prefix("xy"));
    assert_true(flyt_id_of("ffffffffffffffff") == UINT64_MAX);
    cJSON_Delete(rows);
}

/* ---- tables ---- */

static const struct flyt_column columns[] = {
    {.title = "NAME", .field = "name", .may_shrink = true},
    {.title = "GPU", .field = "node", .of = "index"},
    {.title = "MEMORY", .field = "used", .format = FLYT_SHOW_SIZE, .of = "total"},
    {.title = "BUSY", .field = "busy", .format = FLYT_SHOW_PCT},
    {.title = "AGE", .field = "since", .format = FLYT_SHOW_AGE},
    {.title = "UUID", .field = "uuid", .is_wide = true},
    {.title = "EXTRA", .field = "extra", .may_be_missing = true},
    {.title = "REMARK", .field = "remark", .may_shrink = true},
    {0},
};

static const char table_rows[] =
    "[{\"name\":\"web\",\"node\":\"n1\",\"index\":0,\"used\":8589934592,\"total\":150754820096,\"busy\":7,"
    "\"since\":999999955000,\"uuid\":\"GPU-1\",\"remark\":null},"
    "{\"name\":\"a rather long name indeed\",\"node\":\"node-2\",\"index\":11,\"used\":null,\"total\":536870912,"
    "\"busy\":100,\"since\":999999000000,\"uuid\":\"GPU-2\",\"remark\":\"gr\xc3\xbc\xc3\x9f "
    "\xe6\xbc\xa2\xe5\xad\x97\"},"
    "{\"name\":\"\",\"node\":\"n3\",\"index\":2}]";

static char *table_text(bool is_wide, unsigned width)
{
    const struct flyt_layout layout = {.is_wide = is_wide, .width = width, .now_ms = 1000000000000ull};
    cJSON *rows = cJSON_Parse(table_rows);
    char *text = NULL;

    assert_non_null(rows);
    PRINTED(&text, flyt_table_put(out, columns, rows, &layout));
    cJSON_Delete(rows);
    return text;
}

static void test_table(void **state)
{
    char *text = table_text(false, 0);

    assert_string_equal(text, "NAME                       GPU              MEMORY  BUSY     AGE  REMARK\n"
                              "web                        n1:0       8.0/140.4GiB    7%     45s  -\n"
                              "a rather long name indeed  node-2:11      -/512MiB  100%  16m40s  gr\xc3\xbc\xc3\x9f "
                              "\xe6\xbc\xa2\xe5\xad\x97\n"
                              "-                          n3:2                -/-     -       -  -\n");
    free(text);
    text = table_text(true, 0);
    assert_string_equal(text,
                        "NAME                       GPU              MEMORY  BUSY     AGE  UUID   REMARK\n"
                        "web                        n1:0       8.0/140.4GiB    7%     45s  GPU-1  -\n"
                        "a rather long name indeed  node-2:11      -/512MiB  100%  16m40s  GPU-2  gr\xc3\xbc\xc3\x9f "
                        "\xe6\xbc\xa2\xe5\xad\x97\n"
                        "-                          n3:2                -/-     -       -  -      -\n");
    free(text);
}

/* Cut where the terminal ends, between characters, counted in columns (漢字 takes four). */
static void test_narrow_table(void **state)
{
    char *text = table_text(false, 60);

    assert_string_equal(text, "NAME        GPU              MEMORY  BUSY     AGE  REMARK\n"
                              "web         n1:0       8.0/140.4GiB    7%     45s  -\n"
                              "a rather \xe2\x80\xa6  node-2:11      -/512MiB  100%  16m40s  gr\xc3\xbc\xc3\x9f "
                              "\xe6\xbc\xa2\xe5\xad\x97\n"
                              "-           n3:2                -/-     -       -  -\n");
    free(text);
    /* It never gets narrower than its smallest columns. */
    text = table_text(false, 10);
    assert_non_null(strstr(text, "a rathe\xe2\x80\xa6  node-2:11"));
    assert_non_null(strstr(text, "gr\xc3\xbc\xc3\x9f \xe6\xbc\xa2\xe2\x80\xa6\n"));
    free(text);
}

static void test_no_rows(void **state)
{
    const struct flyt_layout layout = {.now_ms = 1};
    cJSON *rows = cJSON_CreateArray();
    char *text = NULL;

    PRINTED(&text, flyt_table_put(out, columns, rows, &layout));
    assert_string_equal(text, "NAME  GPU  MEMORY  BUSY  AGE  REMARK\n");
    free(text);
    cJSON_Delete(rows);
}

static void test_spans(void **state)
{
    static const struct {
        double ms;
        const char *text;
    } cases[] = {{-5, "0s"},         {999, "0s"},          {59999, "59s"},     {60000, "1m00s"},    {3599999, "59m59s"},
                 {3600000, "1h00m"}, {86399000, "23h59m"}, {86400000, "1d0h"}, {8.64e10, "1000d0h"}};
    char text[FLYT_NUMBER_BYTES];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        flyt_text_span(text, cases[i].ms);
        assert_string_equal(text, cases[i].text);
    }
    static const struct {
        double bytes;
        const char *text;
    } sizes[] = {{0, "0"},
                 {1, "1KiB"},
                 {1023 << 10, "1023KiB"},
                 {1 << 20, "1MiB"},
                 {256 << 20, "256MiB"},
                 {(1 << 20) * 1.5, "2MiB"},
                 {1023 << 20, "1023MiB"},
                 {(1 << 20) * 1023.5, "1.0GiB"},
                 {1 << 30, "1.0GiB"},
                 {(1 << 30) * 1.25, "1.3GiB"},
                 {(1 << 30) * 2.75, "2.8GiB"},
                 {150754820096.0, "140.4GiB"}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        flyt_text_size(text, sizes[i].bytes);
        assert_string_equal(text, sizes[i].text);
    }
}

/* ---- what a terminal must not get ---- */

static void test_safe_text(void **state)
{
    static const struct {
        const char *raw, *safe;
        size_t bytes;
    } cases[] = {
        {"plain", "plain", 5},
        {"\x1b[31mred", "\\x1b[31mred", 8},
        {"a\nb\tc\rd", "a\\nb\\tc\\x0dd", 7},
        {"\x7f", "\\x7f", 1},
        {"\xc2\x9b"
         "31m",
         "\\u{009b}31m", 5}, /* C1's CSI */
        {"\xe2\x80\xae"
         "evil",
         "\\u{202e}evil", 7}, /* right to left */
        {"\xff\xfe", "\\xff\\xfe", 2},
        {"\xc3", "\\xc3", 1}, /* cut off */
        {"\xe2\x82", "\\xe2\\x82", 2},
        {"\xc0\x80", "\\xc0\\x80", 2},                   /* over-long */
        {"\xed\xa0\x80", "\\xed\\xa0\\x80", 3},          /* half of a pair */
        {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80", 4}, /* beyond the last character */
        {"gr\xc3\xbc\xc3\x9f \xf0\x9f\x9a\x80", "gr\xc3\xbc\xc3\x9f \xf0\x9f\x9a\x80", 11},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *safe = flyt_text_safe(cases[i].raw, cases[i].bytes);
        assert_string_equal(safe, cases[i].safe);
        free(safe);
    }
}

static void test_json(void **state)
{
    static const char raw[] = " [ {\"a\" :1.50,\"b\":[ ],\"c\":{ },\"d\":[1,\n2]} , \"x\\\"y\\\\\", true ] ";
    char *text = NULL;

    PRINTED(&text, flyt_json_put(out, raw, sizeof raw - 1, false));
    assert_string_equal(text, "[{\"a\":1.50,\"b\":[],\"c\":{},\"d\":[1,2]},\"x\\\"y\\\\\",true]\n");
    free(text);
    PRINTED(&text, flyt_json_put(out, raw, sizeof raw - 1, true));
    assert_string_equal(text,
                        "[\n  {\n    \"a\": 1.50,\n    \"b\": [],\n    \"c\": {},\n    \"d\": [\n      1,\n      2\n"
                        "    ]\n  },\n  \"x\\\"y\\\\\",\n  true\n]\n");
    free(text);
    static const char odd[] = "[\"\x1b[2J\xc2\x9b\xff\xf3\xa0\x80\x81\\u001b\"]";
    PRINTED(&text, flyt_json_put(out, odd, sizeof odd - 1, false));
    assert_string_equal(text, "[\"\\u001b[2J\\u009b\\ufffd\\udb40\\udc01\\u001b\"]\n");
    cJSON *parsed = cJSON_Parse(text);
    assert_non_null(parsed);
    assert_string_equal(parsed->child->valuestring, "\x1b[2J\xc2\x9b\xef\xbf\xbd\xf3\xa0\x80\x81\x1b");
    cJSON_Delete(parsed);
    free(text);
    PRINTED(&text, flyt_json_put_string(out, "a\"b\\c\n\x1b"));
    assert_string_equal(text, "\"a\\\"b\\\\c\\u000a\\u001b\"");
    free(text);
}

/* Random bytes: what comes out is UTF-8 without anything unsafe, and a JSON string of them can be parsed. */
static void test_random_text(void **state)
{
    uint64_t seed = TEST_RANDOM_SEED;

    for (unsigned round = 0; round < 20000; round++) {
        char raw[33];
        size_t bytes = round % 32;
        for (size_t i = 0; i < bytes; i++) {
            raw[i] = (char)(test_random_next(&seed) | (round & 1 ? 0x80 : 0));
            raw[i] = raw[i] ? raw[i] : 'x';
        }
        raw[bytes] = 0;
        char *safe = flyt_text_safe(raw, bytes), *json = NULL;
        for (size_t at = 0, all = strlen(safe); at < all;) {
            uint32_t character;
            int count = flyt_utf8_get(safe + at, all - at, &character);
            assert_true(count > 0 && !flyt_character_is_unsafe(character));
            at += (size_t)count;
        }
        PRINTED(&json, flyt_json_put_string(out, raw));
        cJSON *parsed = cJSON_Parse(json);
        assert_true(cJSON_IsString(parsed));
        cJSON_Delete(parsed);
        free(json);
        free(safe);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),         cmocka_unit_test(test_distances),     cmocka_unit_test(test_options),
        cmocka_unit_test(test_bad_options),   cmocka_unit_test(test_command_table), cmocka_unit_test(test_vm_selectors),
        cmocka_unit_test(test_gpu_selectors), cmocka_unit_test(test_ids),           cmocka_unit_test(test_table),
        cmocka_unit_test(test_narrow_table),  cmocka_unit_test(test_no_rows),       cmocka_unit_test(test_spans),
        cmocka_unit_test(test_safe_text),     cmocka_unit_test(test_json),          cmocka_unit_test(test_random_text),
    };

    setlocale(LC_CTYPE, "C.UTF-8");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
