/* Which families of communicators are whole in one session: orders as they come from a client, in any order, and what
 * spoils a family. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "rpc/library/nccl_family.h"

/* An order with one unique id, of 128 bytes of this value. */
struct sent {
    struct flyt_nccl_order order;
    unsigned char id[FLYT_NCCL_UNIQUE_ID_BYTES];
};

static struct sent rank_of(unsigned char id, int32_t rank_count, int32_t rank)
{
    struct sent sent = {.order = {.control = FLYT_NCCL_INIT, .id_count = 1, .rank_count = rank_count, .rank = rank}};
    memset(sent.id, id, sizeof sent.id);
    return sent;
}

static struct flyt_nccl_family begun(unsigned char id, int32_t rank_count)
{
    struct flyt_nccl_family family;
    const struct sent sent = rank_of(id, rank_count, 0);
    flyt_nccl_family_begin(&family, &sent.order);
    return family;
}

static void come(struct flyt_nccl_family *family, int32_t rank_count, int32_t rank)
{
    const struct sent sent = rank_of(family->id[0], rank_count, rank);
    flyt_nccl_family_come(family, &sent.order);
}

static void test_is_whole_when_all_ranks_have_come(void **state)
{
    static const int counts[] = {1, 2, 3, 8, 63, 64};
    for (unsigned i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct flyt_nccl_family family = begun(1, counts[i]);
        for (int rank = counts[i] - 1; rank >= 0; rank--) {
            assert_false(flyt_nccl_family_is_whole(&family));
            come(&family, counts[i], rank);
        }
        assert_true(flyt_nccl_family_is_whole(&family));
    }
}

static void test_ranks_elsewhere_are_missing(void **state)
{
    struct flyt_nccl_family family = begun(1, 4);
    come(&family, 4, 0);
    come(&family, 4, 1);
    come(&family, 4, 3);
    assert_false(flyt_nccl_family_is_whole(&family));
}

static void test_is_told_apart_by_its_id(void **state)
{
    struct sent first = rank_of(1, 2, 0), other = rank_of(1, 2, 1);
    struct flyt_nccl_family family = begun(1, 2);
    assert_true(flyt_nccl_family_has(&family, &first.order));
    assert_true(flyt_nccl_family_has(&family, &other.order));
    other.id[sizeof other.id - 1] = 2;
    assert_false(flyt_nccl_family_has(&family, &other.order));
    first.order.id_count = 2;
    assert_false(flyt_nccl_family_has(&family, &first.order));
    first.order.id_count = 1;
    first.order.control = FLYT_NCCL_SPLIT;
    assert_false(flyt_nccl_family_has(&family, &first.order));
}

/* What no library has made, but a client may tell. */
static void test_ranks_that_cannot_be_spoil_it(void **state)
{
    static const struct {
        int32_t rank_count, rank;
    } wrong[] = {{2, 0}, {2, 2}, {2, -1}, {2, 64}, {3, 1}, {1, 0}, {0, 0}, {INT32_MAX, 1}, {2, INT32_MIN}};
    for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct flyt_nccl_family family = begun(1, 2);
        come(&family, 2, 0);
        come(&family, wrong[i].rank_count, wrong[i].rank);
        come(&family, 2, 1);
        assert_false(flyt_nccl_family_is_whole(&family));
    }
}

static void test_too_many_or_no_ranks_are_never_whole(void **state)
{
    static const int counts[] = {0, -1, INT32_MIN, 65, INT32_MAX};
    for (unsigned i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct flyt_nccl_family family = begun(1, counts[i]);
        for (int rank = 0; rank < 65; rank++)
            come(&family, counts[i], rank);
        assert_false(flyt_nccl_family_is_whole(&family));
    }
}

static void test_what_is_split_comes_too_and_what_is_shrunk_spoils(void **state)
{
    struct flyt_nccl_family family = begun(1, 1);
    struct flyt_nccl_order split = {.control = FLYT_NCCL_SPLIT}, shrunk = {.control = FLYT_NCCL_SHRINK};
    come(&family, 1, 0);
    flyt_nccl_family_come(&family, &split);
    assert_true(flyt_nccl_family_is_whole(&family));
    flyt_nccl_family_come(&family, &shrunk);
    assert_false(flyt_nccl_family_is_whole(&family));
}

static void test_calls_that_do_not_block_spoil_it(void **state)
{
    static const struct {
        struct flyt_nccl_config config;
        bool is_whole;
    } cases[] = {{{.is_given = 1, .blocking = 0}, false},
                 {{.is_given = 1, .blocking = 1}, true},
                 {{.is_given = 1, .blocking = INT32_MIN}, true},
                 {{.is_given = 0, .blocking = 0}, true}};
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct flyt_nccl_family family = begun(1, 1);
        struct sent sent = rank_of(1, 1, 0);
        sent.order.config = cases[i].config;
        flyt_nccl_family_come(&family, &sent.order);
        assert_int_equal(flyt_nccl_family_is_whole(&family), cases[i].is_whole);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_is_whole_when_all_ranks_have_come),
        cmocka_unit_test(test_ranks_elsewhere_are_missing),
        cmocka_unit_test(test_is_told_apart_by_its_id),
        cmocka_unit_test(test_ranks_that_cannot_be_spoil_it),
        cmocka_unit_test(test_too_many_or_no_ranks_are_never_whole),
        cmocka_unit_test(test_what_is_split_comes_too_and_what_is_shrunk_spoils),
        cmocka_unit_test(test_calls_that_do_not_block_spoil_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
