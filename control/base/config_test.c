/* Configuration: every kind of setting, every kind of error with its line, reloading. */
#include "control/base/config.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

struct rule {
    char *name;
    uint64_t weight;
};

struct sample {
    char *name, *path;
    struct flyt_strings managers;
    bool is_on;
    uint64_t count, timeout_ms, memory_bytes;
    int policy;
    struct flyt_range range;
    struct flyt_groups rules;
};

static const char *const policies[] = {"binpack", "spread", NULL};

static const struct flyt_setting rule_settings[] = {
    {.path = "name", .kind = FLYT_SETTING_STRING, .offset = offsetof(struct rule, name)},
    {.path = "weight",
     .kind = FLYT_SETTING_NUMBER,
     .offset = offsetof(struct rule, weight),
     .fallback = "1",
     .maximum = 9},
    {0},
};

static const struct flyt_setting settings[] = {
    {.path = "name", .kind = FLYT_SETTING_STRING, .offset = offsetof(struct sample, name)},
    {.path = "tls.path",
     .kind = FLYT_SETTING_STRING,
     .offset = offsetof(struct sample, path),
     .fallback = "",
     .is_live = true},
    {.path = "managers",
     .kind = FLYT_SETTING_STRINGS,
     .offset = offsetof(struct sample, managers),
     .fallback = "a",
     .is_live = true},
    {.path = "on", .kind = FLYT_SETTING_BOOL, .offset = offsetof(struct sample, is_on), .fallback = "true"},
    {.path = "count",
     .kind = FLYT_SETTING_NUMBER,
     .offset = offsetof(struct sample, count),
     .fallback = "7",
     .minimum = 2,
     .maximum = 10},
    {.path = "tls.timeout",
     .kind = FLYT_SETTING_SECONDS,
     .offset = offsetof(struct sample, timeout_ms),
     .fallback = "2.5",
     .minimum = 100,
     .maximum = 60000},
    {.path = "memory",
     .kind = FLYT_SETTING_SIZE,
     .offset = offsetof(struct sample, memory_bytes),
     .fallback = "1G",
     .maximum = 1ull << 50},
    {.path = "policy",
     .kind = FLYT_SETTING_CHOICE,
     .offset = offsetof(struct sample, policy),
     .fallback = "spread",
     .choices = policies,
     .is_live = true},
    {.path = "range",
     .kind = FLYT_SETTING_RANGE,
     .offset = offsetof(struct sample, range),
     .fallback = "",
     .minimum = 10,
     .maximum = 99},
    {.path = "rules",
     .kind = FLYT_SETTING_GROUPS,
     .offset = offsetof(struct sample, rules),
     .members = rule_settings,
     .group_bytes = sizeof(struct rule)},
    {0},
};

static char path[] = "/tmp/flyt-config-test.XXXXXX";

static void write_file(const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

static void defaults_hold(void **state)
{
    struct sample sample = {0};
    struct flyt_error err = {0};
    write_file("name = \"x\";\n");
    assert_int_equal(flyt_config_read(path, settings, &sample, &err), 0);
    assert_string_equal(sample.name, "x");
    assert_null(sample.path);
    assert_int_equal(sample.managers.count, 1);
    assert_string_equal(sample.managers.items[0], "a");
    assert_true(sample.is_on);
    assert_int_equal(sample.count, 7);
    assert_int_equal(sample.timeout_ms, 2500);
    assert_int_equal(sample.memory_bytes, 1ull << 30);
    assert_int_equal(sample.policy, 1);
    assert_int_equal(sample.range.last, 0);
    assert_null(sample.range.where);
    assert_int_equal(sample.rules.count, 0);
    flyt_config_free(settings, &sample);
    assert_null(sample.name);
}

static void everything_is_read(void **state)
{
    struct sample sample = {0};
    struct flyt_error err = {0};
    write_file("name = \"x\";\ntls: { path = \"/p\"; timeout = 3; };\nmanagers = [ \"m1\", \"m2\" ];\non = false;\n"
               "count = 10;\nrange = \"10-99\";\nmemory = 12345678901L;\npolicy = \"binpack\";\n"
               "rules = ( { name = \"r\"; weight = 3; }, { name = \"s\"; } );\n");
    assert_int_equal(flyt_config_read(path, settings, &sample, &err), 0);
    assert_string_equal(sample.path, "/p");
    assert_int_equal(sample.timeout_ms, 3000);
    assert_int_equal(sample.managers.count, 2);
    assert_string_equal(sample.managers.items[1], "m2");
    assert_false(sample.is_on);
    assert_int_equal(sample.memory_bytes, 12345678901ull);
    assert_int_equal(sample.policy, 0);
    assert_int_equal(sample.range.first, 10);
    assert_int_equal(sample.range.last, 99);
    char where[64];
    snprintf(where, sizeof where, "%s:6: ", path);
    assert_string_equal(sample.range.where, where);
    assert_int_equal(sample.rules.count, 2);
    const struct rule *rules = sample.rules.items;
    assert_string_equal(rules[1].name, "s");
    assert_int_equal(rules[0].weight, 3);
    assert_int_equal(rules[1].weight, 1);
    flyt_config_free(settings, &sample);
}

static void errors_name_file_and_line(void **state)
{
    static const struct {
        const char *text;
        int line;
        const char *word;
    } cases[] = {
        {"name = \"x\";\nnonsense = 1;\n", 2, "no setting nonsense"},
        {"name = \"x\";\n\ntls: { timeot = 1; };\n", 3, "no setting tls.timeot"},
        {"name = 3;\n", 1, "string"},
        {"name = \"x\"\ncount = \n", 0, "syntax error"},
        {"name = \"x\";\ncount = 11;\n", 2, "from 2 to 10"},
        {"name = \"x\";\ncount = -1;\n", 2, "negative"},
        {"name = \"x\";\ncount = \"7\";\n", 2, "whole number"},
        {"name = \"x\";\non = 1;\n", 2, "true or false"},
        {"name = \"x\";\nmemory = \"8Q\";\n", 2, "8Q"},
        {"name = \"x\";\npolicy = \"best\";\n", 2, "\"binpack\", \"spread\""},
        {"name = \"x\";\nmanagers = [ 1, 2 ];\n", 2, "list of strings"},
        {"name = \"x\";\nrules = ( { weight = 2; } );\n", 2, "name is missing"},
        {"name = \"x\";\nrules = ( 1 );\n", 2, "groups"},
        {"name = \"x\";\nrange = 12;\n", 2, "\"FIRST-LAST\""},
        {"name = \"x\";\nrange = \"12\";\n", 2, "\"FIRST-LAST\""},
        {"name = \"x\";\nrange = \"12-\";\n", 2, "\"FIRST-LAST\""},
        {"name = \"x\";\nrange = \"-12-13\";\n", 2, "\"FIRST-LAST\""},
        {"name = \"x\";\nrange = \"12-13x\";\n", 2, "\"FIRST-LAST\""},
        {"name = \"x\";\nrange = \"12-99999999999999999999\";\n", 2, "\"FIRST-LAST\""},
        {"name = \"x\";\n\nrange = \"12-100\";\n", 3, "from 10 to 99"},
        {"name = \"x\";\n\nrange = \"9-99\";\n", 3, "from 10 to 99"},
        {"name = \"x\";\n\nrange = \"13-12\";\n", 3, "ends before it begins"},
        {"name = \"x\";\ntls = 3;\n", 2, "without braces"},
        {"count = 3;\n", 0, "name is missing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sample sample = {0};
        struct flyt_error err = {0};
        write_file(cases[i].text);
        assert_true(flyt_config_read(path, settings, &sample, &err) < 0);
        char place[64];
        snprintf(place, sizeof place, cases[i].line ? "%s:%d: " : "%s:", path, cases[i].line);
        if (strncmp(err.text, place, strlen(place)) != 0 || !strstr(err.text, cases[i].word))
            fail_msg("case %zu says: %s", i, err.text);
        assert_null(sample.name);
    }
    struct sample sample = {0};
    struct flyt_error err = {0};
    assert_int_equal(flyt_config_read("/nonexistent/file", settings, &sample, &err), -ENOENT);
    assert_non_null(strstr(err.text, "/nonexistent/file"));
}

static void reload_takes_live_settings_only(void **state)
{
    struct sample sample = {0}, fresh = {0};
    struct flyt_error err = {0};
    write_file("name = \"x\";\n");
    assert_int_equal(flyt_config_read(path, settings, &sample, &err), 0);
    write_file(
        "name = \"y\";\npolicy = \"binpack\";\nmanagers = [ \"b\", \"c\" ];\ncount = 3;\ntls: { path = \"/q\"; };\n");
    assert_int_equal(flyt_config_read(path, settings, &fresh, &err), 0);
    flyt_config_apply(settings, &sample, &fresh);
    assert_string_equal(sample.name, "x");
    assert_int_equal(sample.count, 7);
    assert_int_equal(sample.policy, 0);
    assert_string_equal(sample.path, "/q");
    assert_int_equal(sample.managers.count, 2);
    assert_null(fresh.name);
    flyt_config_free(settings, &sample);
}

static void sizes_are_parsed(void **state)
{
    uint64_t bytes;
    assert_int_equal(flyt_size_parse("8G", &bytes), 0);
    assert_int_equal(bytes, 8ull << 30);
    assert_int_equal(flyt_size_parse("1.5T", &bytes), 0);
    assert_int_equal(bytes, 3ull << 39);
    assert_int_equal(flyt_size_parse("123", &bytes), 0);
    assert_int_equal(bytes, 123);
    const char *bad[] = {"", "G", "-1G", "8GB", "8 G", "nan", "1e30T", "0x"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(flyt_size_parse(bad[i], &bytes), -EINVAL);
}

static int make_file(void **state)
{
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_hold),
        cmocka_unit_test(everything_is_read),
        cmocka_unit_test(errors_name_file_and_line),
        cmocka_unit_test(reload_takes_live_settings_only),
        cmocka_unit_test(sizes_are_parsed),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
