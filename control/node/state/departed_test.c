/* Tests of what the state keeps of allocations whose programs have left (departed.h). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "control/node/state/departed.h"
#include "control/node/state/state.h"

static const struct flyt_field fields[] = {
    {"left", FLYT_CHAIN(struct flyt_node_state, left, 10, &flyt_node_departed_item)},
    {0},
};

static void test_kept(void **state)
{
    struct flyt_node_state node = {0};
    struct flyt_error err;

    assert_int_equal(flyt_node_departed_add(&node, 0x11, UINT64_MAX), 0);
    assert_int_equal(flyt_node_departed_add(&node, UINT64_MAX - 1, 0x99), 0);
    assert_int_equal(flyt_node_departed_add(&node, 0x33, 0x77), 0);
    flyt_node_departed_remove(&node, 0x33);
    flyt_node_departed_remove(&node, 0x44); /* there is none */
    cJSON *root = flyt_fields_write(fields, (const void *const[]){&node}, &err);
    char *text = cJSON_Print(root);
    cJSON_Delete(root);
    flyt_fields_free(fields, 0, &node);
    assert_null(node.left);

    root = cJSON_Parse(text);
    cJSON_free(text);
    assert_int_equal(flyt_fields_read(fields, root, (void *const[]){&node}, 0, &err), 0);
    cJSON_Delete(root);
    assert_true(flyt_node_departed_find(&node, 0x11) == UINT64_MAX);
    assert_true(flyt_node_departed_find(&node, UINT64_MAX - 1) == 0x99);
    assert_true(flyt_node_departed_find(&node, 0x33) == 0);
    flyt_node_departed_remove(&node, 0x11);
    assert_true(flyt_node_departed_find(&node, 0x11) == 0);
    assert_true(flyt_node_departed_find(&node, UINT64_MAX - 1) == 0x99);
    flyt_fields_free(fields, 0, &node);
}

static const struct {
    const char *text;
    const char *why; /* NULL: it is good */
} files[] = {
    {"{}", NULL}, /* an older build's */
    {"{\"left\": []}", NULL},
    {"{\"left\": [{\"allocation_id\": \"1\", \"migration_id\": \"2\"}]}", NULL},
    {"{\"left\": {}}", "left is not an array"},
    {"{\"left\": 1}", "left is not an array"},
    {"{\"left\": [1]}", "left[0] is not an object"},
    {"{\"left\": [{\"allocation_id\": \"1\"}]}", "left[0].migration_id is missing"},
    {"{\"left\": [{\"migration_id\": \"2\"}]}", "left[0].allocation_id is missing"},
    {"{\"left\": [{\"allocation_id\": \"1\", \"migration_id\": \"0\"}]}", "left[0].migration_id is 0"},
    {"{\"left\": [{\"allocation_id\": 1, \"migration_id\": \"2\"}]}", "left[0].allocation_id is not a number as text"},
    {"{\"left\": [{\"allocation_id\": \"1\", \"migration_id\": \"2\"}, {\"allocation_id\": \"3\"}]}",
     "left[1].migration_id is missing"},
    {"{\"left\": [{\"allocation_id\": \"3\"}, {\"allocation_id\": \"1\", \"migration_id\": \"2\"}]}",
     "left[0].migration_id is missing"},
};

static void test_damaged(void **state)
{
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct flyt_node_state node = {0};
        struct flyt_error err = {0};
        cJSON *root = cJSON_Parse(files[i].text);
        assert_non_null(root);
        assert_int_equal(flyt_fields_read(fields, root, (void *const[]){&node}, 0, &err), files[i].why ? -EINVAL : 0);
        if (files[i].why)
            assert_string_equal(err.text, files[i].why);
        flyt_fields_free(fields, 0, &node);
        cJSON_Delete(root);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept),
        cmocka_unit_test(test_damaged),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
