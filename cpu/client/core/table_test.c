#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>
#include "cpu/client/core/table.h"

struct thing {
    struct flyt_record record;
    int value;
};

static struct thing *make(struct flyt_table *table, int value)
{
    struct thing *thing = flyt_table_new(table);
    assert_non_null(thing);
    thing->value = value;
    flyt_table_publish(&thing->record);
    return thing;
}

static void test_only_published_records_are_found(void **state)
{
    static struct flyt_table table = FLYT_TABLE_INIT(FLYT_ID_EVENT, struct thing, 16);
    struct thing *thing = flyt_table_new(&table);
    uint64_t id = thing->record.minted_id;
    assert_int_equal(flyt_id_number(id), 16);
    assert_null(flyt_table_find(&table, id));
    flyt_table_publish(&thing->record);
    assert_ptr_equal(flyt_table_find(&table, id), thing);
    assert_null(flyt_table_find(&table, flyt_id(FLYT_ID_STREAM, 16))); /* another type */
    assert_null(flyt_table_find(&table, id + 1));
    assert_null(flyt_table_find(&table, flyt_id(FLYT_ID_EVENT, FLYT_ID_NUMBER_MASK)));
    assert_ptr_equal(flyt_table_take(&table, id), thing);
    assert_null(flyt_table_take(&table, id)); /* one taker only */
    assert_null(flyt_table_find(&table, id));
    flyt_table_free(&table, &thing->record);
}

static void test_slots_rest_before_they_are_used_again(void **state)
{
    static struct flyt_table table = FLYT_TABLE_INIT(FLYT_ID_EVENT, struct thing, 1);
    uint64_t highest = 0;
    for (int i = 0; i < 10000; i++) {
        struct thing *thing = make(&table, i);
        uint64_t id = thing->record.minted_id;
        highest = id > highest ? id : highest;
        flyt_table_take(&table, id);
        flyt_table_free(&table, &thing->record);
        struct thing *next = make(&table, i);
        assert_int_not_equal(next->record.minted_id, id);
        flyt_table_take(&table, next->record.minted_id);
        flyt_table_free(&table, &next->record);
    }
    assert_true(flyt_id_number(highest) <= FLYT_TABLE_REST + 2); /* numbers stay dense */
}

static void test_every_record_is_visited(void **state)
{
    static struct flyt_table table = FLYT_TABLE_INIT(FLYT_ID_EVENT, struct thing, 1);
    enum { COUNT = 3 << FLYT_SPARSE_CHUNK_BITS };
    long sum = 0, expected = 0;
    uint32_t slot = 0;
    for (int i = 0; i < COUNT; i++) {
        struct thing *thing = make(&table, i);
        if (i % 3)
            expected += i;
        else
            flyt_table_take(&table, thing->record.minted_id);
    }
    for (struct thing *thing; (thing = flyt_table_next(&table, &slot));)
        sum += thing->value;
    assert_int_equal(sum, expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_published_records_are_found),
        cmocka_unit_test(test_slots_rest_before_they_are_used_again),
        cmocka_unit_test(test_every_record_is_visited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
