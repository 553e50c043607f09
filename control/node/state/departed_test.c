/* Tests of what the state keeps of allocations whose programs have left (departed.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "control/node/state/departed.h"
#include "control/node/state/state.h"

static void test_kept(void **state)
{
    struct flyt_node_state node = {0};

    assert_int_equal(flyt_node_departed_add(&node, 0x11, UINT64_MAX), 0);
    assert_int_equal(flyt_node_departed_add(&node, UINT64_MAX - 1, 0x99), 0);
    assert_int_equal(flyt_node_departed_add(&node, 0x33, 0x77), 0);
    flyt_node_departed_remove(&node, 0x33);
    flyt_node_departed_remove(&node, 0x44); /* there is none */
    cJSON *root = cJSON_CreateObject();
    assert_true(flyt_node_departed_put(root, node.left));
    char *text = cJSON_Print(root);
    cJSON_Delete(root);
    flyt_node_departed_free(node.left);
    node.left = NULL;

    root = cJSON_Parse(text);
    cJSON_free(text);
    assert_true(flyt_node_departed_get(root, &node.left));
    cJSON_Delete(root);
    assert_true(flyt_node_departed_find(&node, 0x11) == UINT64_MAX);
    assert_true(flyt_node_departed_find(&node, UINT64_MAX - 1) == 0x99);
    assert_true(flyt_node_departed_find(&node, 0x33) == 0);
    flyt_node_departed_remove(&node, 0x11);
    assert_true(flyt_node_departed_find(&node, 0x11) == 0);
    assert_true(flyt_node_departed_find(&node, UINT64_MAX - 1) == 0x99);
    flyt_node_departed_free(node.left);
}

static const struct {
    const char *text;
    bool is_good;
} files[] = {
    {"{}", true}, /* an older build's */
    {"{\"left\": []}", true},
    {"{\"left\": [{\"allocation_id\": \"1\", \"migration_id\": \"2\"}]}", true},
    {"{\"left\": {}}", false},
    {"{\"left\": 1}", false},
    {"{\"left\": [1]}", false},
    {"{\"left\": [{\"allocation_id\": \"1\"}]}", false},
    {"{\"left\": [{\"migration_id\": \"2\"}]}", false},
    {"{\"left\": [{\"allocation_id\": \"1\", \"migration_id\": \"0\"}]}", false},
    {"{\"left\": [{\"allocation_id\": 1, \"migration_id\": \"2\"}]}", false},
    {"{\"left\": [{\"allocation_id\": \"1\", \"migration_id\": \"2\"}, {\"allocation_id\": \"3\"}]}", false},
    {"{\"left\": [{\"allocation_id\": \"3\"}, {\"allocation_id\": \"1\", \"migration_id\": \"2\"}]}", false},
};

static void test_damaged(void **state)
{
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct flyt_node_departed *first = NULL;
        cJSON *root = cJSON_Parse(files[i].text);
        assert_non_null(root);
        if (flyt_node_departed_get(root, &first) != files[i].is_good)
            fail_msg("%s", files[i].text);
        assert_true(files[i].is_good || !first);
        flyt_node_departed_free(first);
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
