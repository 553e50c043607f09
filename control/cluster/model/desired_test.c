/* Tests of desired.c and watch.c: documents as people write them, and what has changed between two readings. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "control/cluster/model/desired.h"

static int read_text(const char *text, struct flyt_desired *desired, struct flyt_error *err)
{
    cJSON *document = cJSON_Parse(text);

    assert_non_null(document);
    int status = flyt_desired_read(document, err, desired);
    cJSON_Delete(document);
    return status;
}

static void test_read(void **state)
{
    struct flyt_desired desired;
    struct flyt_error err;

    assert_int_equal(read_text("{\"vm_ip\":\"10.0.0.7\",\"host_ip\":\"10.0.0.1\",\"compute_units\":20,\"memory\":1.5,"
                               "\"colour\":{\"any\":[1]}}",
                               &desired, &err),
                     0);
    assert_string_equal(desired.vm_ip, "10.0.0.7");
    assert_string_equal(desired.host_ip, "10.0.0.1");
    assert_int_equal(desired.sm_count, 20);
    assert_int_equal(desired.memory_bytes, 3ull << 29);
    assert_int_equal(desired.device_count, 1);
    assert_int_equal(desired.session_count, 0);
    assert_int_equal(desired.policy, -1);
    assert_int_equal(desired.sharing, -1);
    assert_int_equal(desired.minimum_share_pct, -1);
    assert_int_equal(desired.maximum_share_pct, -1);
    assert_false(desired.is_suspended);
    assert_null(desired.tenant);
    flyt_desired_free(&desired);

    assert_int_equal(
        read_text(
            "{\"vm_ip\":\"fd00::7\",\"compute_units\":{\"$numberLong\":\"8\"},\"memory\":{\"$numberDecimal\":"
            "\"2.5\"},\"name\":\"alice\",\"tenant\":\"red\",\"devices\":2.0,\"sessions\":4,\"policy\":\"spread\","
            "\"isolation\":\"strict\",\"priority\":-3,\"include_types\":[\"H200\",\"A30\"],\"exclude_gpus\":\"n:0\""
            ",\"reserved\":true,\"host_ip\":null,\"minimum_share\":20,\"maximum_share\":80.0,\"window_ms\":50,"
            "\"sharing\":\"time\",\"suspended\":true,\"libraries\":[\"cublas\",\"cudnn 9.10\"]}",
            &desired, &err),
        0);
    assert_int_equal(desired.sm_count, 8);
    assert_int_equal(desired.memory_bytes, 5ull << 29);
    assert_int_equal(desired.device_count, 2);
    assert_int_equal(desired.session_count, 4);
    assert_int_equal(desired.policy, FLYT_POLICY_SPREAD);
    assert_int_equal(desired.isolation, FLYT_ISOLATION_STRICT);
    assert_int_equal(desired.priority, -3);
    assert_true(desired.is_reserved);
    assert_int_equal(desired.minimum_share_pct, 20);
    assert_int_equal(desired.maximum_share_pct, 80);
    assert_int_equal(desired.window_ms, 50);
    assert_int_equal(desired.sharing, FLYT_SHARING_TIME);
    assert_true(desired.is_suspended);
    assert_null(desired.host_ip);
    assert_int_equal(desired.include_types.count, 2);
    assert_string_equal(desired.include_types.names[1], "A30");
    assert_int_equal(desired.exclude_gpus.count, 1);
    assert_string_equal(desired.exclude_gpus.names[0], "n:0");
    assert_int_equal(desired.libraries.count, 2);
    assert_string_equal(desired.libraries.names[1], "cudnn 9.10");
    flyt_desired_free(&desired);
}

static void test_minimum(void **state)
{
    struct flyt_desired desired;
    struct flyt_error err;

    cJSON *document =
        cJSON_Parse("{\"vm_ip\":\"10.0.0.7\",\"compute_units\":8,\"memory\":1,\"minimum_sms\":{\"$numberInt\":\"8\"}}");
    assert_int_equal(flyt_desired_read(document, &err, &desired), 0);
    assert_int_equal(desired.minimum_sms, 8);
    assert_int_equal(flyt_desired_shown(&desired), 0); /* what there is */
    flyt_desired_free(&desired);
    cJSON_AddStringToObject(document, "shown_sms", "minimum");
    assert_int_equal(flyt_desired_read(document, &err, &desired), 0);
    assert_int_equal(flyt_desired_shown(&desired), 8);
    flyt_desired_free(&desired);
    cJSON_Delete(document);
}

static void test_malformed(void **state)
{
    static const struct {
        const char *text, *error;
    } rows[] = {
        {"[]", "it is not an object"},
        {"{\"compute_units\":1,\"memory\":1}", "vm_ip is missing"},
        {"{\"vm_ip\":5,\"compute_units\":1,\"memory\":1}", "vm_ip is not a string"},
        {"{\"vm_ip\":\"alice\",\"compute_units\":1,\"memory\":1}", "vm_ip is \"alice\", not an IP address"},
        {"{\"vm_ip\":\"10.0.0.7\",\"memory\":1}", "compute_units (SMs) is missing"},
        {"{\"vm_ip\":\"10.0.0.7\",\"compute_units\":\"8\",\"memory\":1}", "compute_units is not a number"},
        {"{\"vm_ip\":\"10.0.0.7\",\"compute_units\":1.5,\"memory\":1}", "compute_units is 1.5, not a whole number"},
        {"{\"vm_ip\":\"10.0.0.7\",\"compute_units\":0,\"memory\":1}",
         "compute_units is 0, not between 1 and 1.04858e+06"},
        {"{\"vm_ip\":\"10.0.0.7\",\"compute_units\":1}", "memory (GiB) is missing"},
        {"{\"vm_ip\":\"10.0.0.7\",\"compute_units\":1,\"memory\":-1}", "memory is -1 GiB, which no GPU can have"},
        {"{\"vm_ip\":\"10.0.0.7\",\"compute_units\":1,\"memory\":{\"$numberDouble\":\"NaN\"}}",
         "memory is not a number of GiB"},
        {"{\"vm_ip\":\"10.0.0.7\",\"compute_units\":1,\"memory\":1,\"devices\":16}",
         "devices is 16, not between 1 and 15"},
        {"{\"vm_ip\":\"10.0.0.7\",\"compute_units\":1,\"memory\":1,\"minimum_share\":101}",
         "minimum_share is 101, not between 0 and 100"},
        {"{\"vm_ip\":\"10.0.0.7\",\"compute_units\":1,\"memory\":1,\"minimum_share\":50,\"maximum_share\":40}",
         "minimum_share is 50, more than maximum_share, 40"},
        {"{\"vm_ip\":\"10.0.0.7\",\"compute_units\":1,\"memory\":1,\"window_ms\":5}",
         "window_ms is 5, not between 10 and 10000"},
        {"{\"vm_ip\":\"10.0.0.7\",\"compute_units\":1,\"memory\":1,\"sharing\":\"space\"}",
         "sharing is \"space\", neither \"exclusive\" nor \"time\""},
        {"{\"vm_ip\":\"10.0.0.7\",\"compute_units\":8,\"memory\":1,\"minimum_sms\":9}",
         "minimum_sms is 9, more than compute_units, 8"},
        {"{\"vm_ip\":\"10.0.0.7\",\"compute_units\":8,\"memory\":1,\"shown_sms\":\"minimum\"}",
         "shown_sms is \"minimum\", and there is no minimum_sms"},
        {"{\"vm_ip\":\"10.0.0.7\",\"compute_units\":8,\"memory\":1,\"minimum_sms\":8,\"shown_sms\":\"all\"}",
         "shown_sms is \"all\", neither \"present\" nor \"minimum\""},
        {"{\"vm_ip\":\"10.0.0.7\",\"compute_units\":1,\"memory\":1,\"policy\":\"best\"}",
         "policy is \"best\", neither \"binpack\" nor \"spread\""},
        {"{\"vm_ip\":\"10.0.0.7\",\"compute_units\":1,\"memory\":1,\"include_gpus\":[\"a\",7]}",
         "include_gpus is not a list of names"},
        {"{\"vm_ip\":\"10.0.0.7\",\"compute_units\":1,\"memory\":1,\"libraries\":[\"cublas\",\"cuDNN 9\"]}",
         "libraries has \"cuDNN 9\", not a library as \"cudnn\" or \"cudnn 9.10\""},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct flyt_desired desired = {.sm_count = 77};
        struct flyt_error err = {0};
        assert_int_equal(read_text(rows[i].text, &desired, &err), -EINVAL);
        assert_string_equal(err.text, rows[i].error);
        assert_int_equal(desired.sm_count, 77);
    }
}

static void test_quota(void **state)
{
    cJSON *document = cJSON_Parse("{\"_id\":\"red\",\"compute_units\":100,\"memory\":0.5}");
    struct flyt_quota quota;
    struct flyt_error err;

    assert_int_equal(flyt_quota_read(document, &err, &quota), 0);
    assert_int_equal(quota.sm_count, 100);
    assert_int_equal(quota.memory_bytes, 1 << 29);
    assert_int_equal(quota.vm_count, 0);
    cJSON_AddStringToObject(document, "vms", "many");
    assert_int_equal(flyt_quota_read(document, &err, &quota), -EINVAL);
    assert_string_equal(err.text, "vms is not a number");
    cJSON_Delete(document);
}

/* Compares a reading; the ids that changed, in their order, gone ones with a '-'. */
static const char *changed(struct flyt_watch *watch, const char *text)
{
    static char ids[4096];
    cJSON *documents = cJSON_Parse(text);
    struct flyt_changes changes;
    size_t used = 0;

    assert_non_null(documents);
    assert_int_equal(flyt_watch_compare(watch, documents, &changes), 0);
    ids[0] = '\0';
    for (size_t i = 0; i < changes.count; i++)
        used += (size_t)snprintf(ids + used, sizeof ids - used, "%s%s ", changes.items[i].document ? "" : "-",
                                 changes.items[i].id);
    flyt_changes_free(&changes);
    cJSON_Delete(documents);
    return ids;
}

static void test_watch(void **state)
{
    struct flyt_watch *watch = flyt_watch_new();

    assert_non_null(watch);
    assert_string_equal(changed(watch, "[]"), "");
    assert_string_equal(changed(watch, "[{\"_id\":\"a\",\"x\":1},{\"_id\":{\"$oid\":\"55\"},\"x\":2}]"),
                        "a {\"$oid\":\"55\"} ");
    assert_string_equal(changed(watch, "[{\"_id\":\"a\",\"x\":1},{\"_id\":{\"$oid\":\"55\"},\"x\":2}]"), "");
    assert_string_equal(changed(watch, "[{\"_id\":{\"$oid\":\"55\"},\"x\":2},{\"_id\":\"a\",\"x\":1}]"), "");
    assert_string_equal(changed(watch, "[{\"_id\":\"a\",\"x\":1,\"revision\":4},{\"_id\":{\"$oid\":\"55\"},\"x\":3}]"),
                        "{\"$oid\":\"55\"} ");
    assert_string_equal(changed(watch, "[{\"_id\":\"b\"},{\"_id\":{\"$oid\":\"55\"},\"x\":3}]"), "b -a ");
    assert_string_equal(changed(watch, "[{\"_id\":\"a\",\"x\":1},{\"_id\":\"b\"},{\"_id\":{\"$oid\":\"55\"},\"x\":3}]"),
                        "a ");
    assert_string_equal(changed(watch, "[{\"_id\":\"b\"}]"), "-a -{\"$oid\":\"55\"} ");
    flyt_watch_free(watch);
}

static void test_watch_many(void **state)
{
    enum { COUNT = 3000 };
    struct flyt_watch *watch = flyt_watch_new();

    for (int round = 0; round < 4; round++) {
        cJSON *documents = cJSON_CreateArray();
        struct flyt_changes changes;
        /* Rounds: all; the same; every third changed; the first half gone. */
        for (int i = round == 3 ? COUNT / 2 : 0; i < COUNT; i++) {
            cJSON *document = cJSON_CreateObject();
            char id[16];
            snprintf(id, sizeof id, "%d", i);
            cJSON_AddStringToObject(document, "_id", id);
            cJSON_AddNumberToObject(document, "x", round >= 2 && i % 3 == 0 ? 2 : 1);
            cJSON_AddItemToArray(documents, document);
        }
        assert_int_equal(flyt_watch_compare(watch, documents, &changes), 0);
        assert_int_equal(changes.count, ((size_t[]){COUNT, 0, COUNT / 3, COUNT / 2})[round]);
        flyt_changes_free(&changes);
        cJSON_Delete(documents);
    }
    flyt_watch_free(watch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),  cmocka_unit_test(test_minimum), cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_quota), cmocka_unit_test(test_watch),   cmocka_unit_test(test_watch_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
