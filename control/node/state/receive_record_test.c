/* Tests of what the state keeps of programs that arrive (receive_record.h). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "control/node/state/receive_record.h"
#include "control/node/state/state.h"

static const struct flyt_field fields[] = {
    {"receiving", FLYT_CHAIN(struct flyt_node_state, receiving, 10, &flyt_node_receive_record_item)},
    {0},
};

static void test_kept(void **unused)
{
    struct flyt_node_state state = {0};
    struct flyt_error err;

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
    cJSON *root = flyt_fields_write(fields, (const void *const[]){&state}, &err);
    char *text = cJSON_Print(root);
    cJSON_Delete(root);
    flyt_fields_free(fields, 0, &state);
    assert_null(state.receiving);

    root = cJSON_Parse(text);
    cJSON_free(text);
    assert_int_equal(flyt_fields_read(fields, root, (void *const[]){&state}, 0, &err), 0);
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
    flyt_fields_free(fields, 0, &state);
}

#define RECORD                                                                                                         \
    "{\"receiving\": [{\"migration_id\": \"1\", \"allocation_id\": \"2\", \"switched\": \"1\", \"session_count\": "    \
    "\"2\""

static const struct {
    const char *text;
    const char *why; /* NULL: it is good */
} files[] = {
    {"{}", NULL}, /* an older build's */
    {"{\"receiving\": []}", NULL},
    {RECORD "}]}", NULL}, /* likewise */
    {RECORD ", \"moved\": []}]}", NULL},
    {RECORD ", \"moved\": [{\"session_id\": \"3\"}, {\"session_id\": \"4\"}]}]}", NULL},
    {"{\"receiving\": 1}", "receiving is not an array"},
    {"{\"receiving\": [1]}", "receiving[0] is not an object"},
    {"{\"receiving\": [{\"migration_id\": \"1\", \"allocation_id\": \"2\", \"switched\": \"1\"}]}",
     "receiving[0].session_count is missing"},
    {RECORD ", \"moved\": 3}]}", "receiving[0].moved is not an array"},
    {RECORD ", \"moved\": {\"session_id\": \"3\"}}]}", "receiving[0].moved is not an array"},
    {RECORD ", \"moved\": [\"3\"]}]}", "receiving[0].moved[0] is not an object"},
    {RECORD ", \"moved\": [{\"session_id\": 3}]}]}", "receiving[0].moved[0].session_id is not a number as text"},
    {RECORD ", \"moved\": [{\"session_id\": \"3\"}, {}]}]}", "receiving[0].moved[1].session_id is missing"},
};

static void test_damaged(void **unused)
{
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct flyt_node_state state = {0};
        struct flyt_error err = {0};
        cJSON *root = cJSON_Parse(files[i].text);
        assert_non_null(root);
        assert_int_equal(flyt_fields_read(fields, root, (void *const[]){&state}, 0, &err), files[i].why ? -EINVAL : 0);
        if (files[i].why)
            assert_string_equal(err.text, files[i].why);
        cJSON_Delete(root);
        flyt_fields_free(fields, 0, &state);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kept), cmocka_unit_test(test_damaged)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
