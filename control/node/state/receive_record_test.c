/* Tests of what the state keeps of programs that arrive (receive_record.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "control/node/state/receive_record.h"
#include "control/node/state/state.h"

static void test_kept(void **unused)
{
    struct flyt_node_state state = {0};

    struct flyt_node_receive_record *record = flyt_node_receive_record_add(&state, UINT64_MAX, 0x11);
    assert_non_null(record);
    record->is_switched = true;
    record->session_count = 3;
    for (unsigned i = 0; i < 2; i++) { /* the second time changes nothing */
        assert_int_equal(flyt_node_receive_record_note(record, 0x101), 0);
        assert_int_equal(flyt_node_receive_record_note(record, UINT64_MAX - 1), 0);
    }
    assert_non_null(flyt_node_receive_record_add(&state, 0x99, UINT64_MAX));
    flyt_node_receive_record_remove(&state, flyt_node_receive_record_add(&state, 0x77, 0x33));
    cJSON *root = cJSON_CreateObject();
    assert_true(flyt_node_receive_records_put(root, state.receiving));
    char *text = cJSON_Print(root);
    cJSON_Delete(root);
    flyt_node_receive_records_free(state.receiving);
    state.receiving = NULL;

    root = cJSON_Parse(text);
    cJSON_free(text);
    assert_true(flyt_node_receive_records_get(root, &state.receiving));
    cJSON_Delete(root);
    record = state.receiving;
    if (record->migration_id == 0x99)
        record = record->next;
    const struct flyt_node_receive_record *other = record == state.receiving ? record->next : state.receiving;
    assert_true(record->migration_id == UINT64_MAX && record->allocation_id == 0x11);
    assert_true(record->is_switched && record->session_count == 3 && record->moved_count == 2);
    assert_true(record->moved[0] == 0x101 && record->moved[1] == UINT64_MAX - 1);
    assert_true(other->migration_id == 0x99 && other->allocation_id == UINT64_MAX);
    assert_true(!other->is_switched && !other->session_count && !other->moved_count);
    assert_null(state.receiving->next->next);
    flyt_node_receive_records_free(state.receiving);
}

#define RECORD                                                                                                         \
    "{\"receiving\": [{\"migration_id\": \"1\", \"allocation_id\": \"2\", \"switched\": \"1\", \"session_count\": "    \
    "\"2\""

static const struct {
    const char *text;
    bool is_good;
} files[] = {
    {"{}", true}, /* an older build's */
    {"{\"receiving\": []}", true},
    {RECORD "}]}", true}, /* likewise */
    {RECORD ", \"moved\": []}]}", true},
    {RECORD ", \"moved\": [{\"session_id\": \"3\"}, {\"session_id\": \"4\"}]}]}", true},
    {"{\"receiving\": 1}", false},
    {"{\"receiving\": [1]}", false},
    {"{\"receiving\": [{\"migration_id\": \"1\", \"allocation_id\": \"2\", \"switched\": \"1\"}]}", false},
    {RECORD ", \"moved\": 3}]}", false},
    {RECORD ", \"moved\": {\"session_id\": \"3\"}}]}", false},
    {RECORD ", \"moved\": [\"3\"]}]}", false},
    {RECORD ", \"moved\": [{\"session_id\": 3}]}]}", false},
    {RECORD ", \"moved\": [{\"session_id\": \"3\"}, {}]}]}", false},
};

static void test_damaged(void **unused)
{
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct flyt_node_receive_record *first = NULL;
        cJSON *root = cJSON_Parse(files[i].text);
        assert_non_null(root);
        if (flyt_node_receive_records_get(root, &first) != files[i].is_good)
            fail_msg("%s", files[i].text);
        cJSON_Delete(root);
        if (!files[i].is_good)
            assert_null(first);
        flyt_node_receive_records_free(first);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kept), cmocka_unit_test(test_damaged)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
