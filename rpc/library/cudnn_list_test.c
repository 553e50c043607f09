/* Lists of attributes as they come from a client: what is none is found out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "rpc/library/cudnn_list.h"

struct one {
    struct flyt_cudnn_attribute head;
    uint64_t elements[2];
};

static const struct one ids = {{900, FLYT_CUDNN_TYPE_INT64, 2, 16, {0}}, {7, 8}};

/* How many attributes are read, and whether the list is whole. */
static unsigned read_all(void *list, size_t bytes, bool *ret_is_whole)
{
    size_t at = 0;
    void *elements;
    unsigned count = 0;
    while (flyt_cudnn_list_next(list, bytes, &at, &elements))
        count++;
    *ret_is_whole = at == bytes;
    return count;
}

static void test_reads(void **state)
{
    struct one list[2] = {ids, ids};
    list[1].head =
        (struct flyt_cudnn_attribute){901, 1, 3, 12, {0}}; /* three enums, and 4 bytes up to a multiple of 16 */
    bool is_whole;
    assert_int_equal(read_all(list, sizeof list, &is_whole), 2);
    assert_true(is_whole);
    assert_int_equal(read_all(list, 0, &is_whole), 0);
    assert_true(is_whole);
}

static void test_finds_out(void **state)
{
    const struct flyt_cudnn_attribute wrong[] = {
        {900, FLYT_CUDNN_TYPE_INT64, 3, 16, {0}},            /* more elements than bytes */
        {900, FLYT_CUDNN_TYPE_INT64, -1, 16, {0}},           /* */
        {900, FLYT_CUDNN_TYPE_INT64, 2, 32, {0}},            /* beyond the list */
        {900, FLYT_CUDNN_TYPE_INT64, 2, UINT32_MAX, {0}},    /* */
        {900, FLYT_CUDNN_TYPES, 2, 16, {0}},                 /* an unknown type */
        {900, -1, 2, 16, {0}},                               /* */
        {FLYT_CUDNN_PACK_VALUE, 0, -1, 16, {0}},             /* a value of no pointer */
        {FLYT_CUDNN_PACK_VALUE, 0, 0, UINT32_MAX - 15, {0}}, /* a value beyond the list */
    };
    for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct one list = ids;
        list.head = wrong[i];
        bool is_whole;
        assert_int_equal(read_all(&list, sizeof list, &is_whole), 0);
        assert_false(is_whole);
    }
    struct one list = ids;
    bool is_whole;
    assert_int_equal(read_all(&list, sizeof list - FLYT_LIB_ALIGN, &is_whole), 0);
    assert_false(is_whole);
    assert_int_equal(read_all(&list, sizeof list.head - 1, &is_whole), 0);
    assert_false(is_whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reads), cmocka_unit_test(test_finds_out)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
