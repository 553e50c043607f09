/* How many communicators and unique ids stand against moving, through the lives of families as clients make them: whole
 * and not, by threads in any order, spoilt, with splits, and with more ids than are kept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/server/library/nccl.h"
#include "rpc/library/nccl_family.h"

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

static struct flyt_nccl_kin *come(unsigned char id, int32_t rank_count, int32_t rank)
{
    const struct sent sent = rank_of(id, rank_count, rank);
    return flyt_nccl_kin_come(&sent.order, NULL);
}

static struct flyt_nccl_kin *split(struct flyt_nccl_kin *parent)
{
    const struct flyt_nccl_order order = {.control = FLYT_NCCL_SPLIT};
    return flyt_nccl_kin_come(&order, parent);
}

static void leave(struct flyt_nccl_kin *kin, unsigned count)
{
    while (count--)
        flyt_nccl_kin_leave(kin, false, false);
}

static void test_stands_until_all_ranks_are_here(void **state)
{
    struct flyt_nccl_kin *kin = come(1, 2, 1), *other = come(2, 2, 0);
    assert_ptr_not_equal(kin, other);
    assert_int_equal(flyt_nccl_staying_change(), 2);
    assert_ptr_equal(come(1, 2, 0), kin);
    assert_int_equal(flyt_nccl_staying_change(), -1);
    assert_ptr_equal(split(kin), kin);
    assert_int_equal(flyt_nccl_staying_change(), 0);
    assert_ptr_equal(split(other), other); /* the other rank is elsewhere, hence that of the split, too */
    assert_int_equal(flyt_nccl_staying_change(), 1);
    leave(kin, 2); /* its ranks; the split one stays whole */
    assert_int_equal(flyt_nccl_staying_change(), 0);
    leave(kin, 1);
    leave(other, 2);
    assert_int_equal(flyt_nccl_staying_change(), -2);
}

static void test_stands_as_long_as_a_spoilt_family_is_there(void **state)
{
    struct flyt_nccl_kin *kin = come(1, 3, 0);
    come(1, 3, 1);
    come(1, 3, 2);
    assert_int_equal(flyt_nccl_staying_change(), 0);
    flyt_nccl_kin_leave(kin, false, true); /* one was aborted */
    assert_int_equal(flyt_nccl_staying_change(), 2);
    leave(kin, 1);
    assert_int_equal(flyt_nccl_staying_change(), -1);
    leave(kin, 1);
    assert_int_equal(flyt_nccl_staying_change(), -1);
    kin = come(1, 1, 0); /* another family, though of that id */
    assert_int_equal(flyt_nccl_staying_change(), 0);
    flyt_nccl_kin_spoil(kin);
    assert_int_equal(flyt_nccl_staying_change(), 1);
    leave(kin, 1);
    assert_int_equal(flyt_nccl_staying_change(), -1);
}

static void test_finalized_ones_stand_alone(void **state)
{
    struct flyt_nccl_kin *kin = come(1, 2, 0);
    come(1, 2, 1);
    flyt_nccl_kin_finalize(kin);
    assert_int_equal(flyt_nccl_staying_change(), 1);
    flyt_nccl_kin_leave(kin, true, false);
    assert_int_equal(flyt_nccl_staying_change(), -1);
    leave(kin, 1);
    assert_int_equal(flyt_nccl_staying_change(), 0);
}

static void test_what_comes_of_none_stands(void **state)
{
    struct flyt_nccl_kin *kin = split(NULL);
    assert_non_null(kin);
    assert_int_equal(flyt_nccl_staying_change(), 1);
    assert_ptr_not_equal(come(0, 0, 0), kin); /* no id, as far as the spoilt one has one: it is not taken for that */
    assert_int_equal(flyt_nccl_staying_change(), 1);
    leave(kin, 1);
    assert_int_equal(flyt_nccl_staying_change(), -1);
}

static void test_ids_stand_until_they_are_used(void **state)
{
    const struct sent used = rank_of(7, 2, 0), other = rank_of(8, 2, 0);
    int before = flyt_nccl_staying_change();
    assert_int_equal(before, 0);
    flyt_nccl_id_given(used.id);
    assert_int_equal(flyt_nccl_staying_change(), 1);
    flyt_nccl_ids_used(&other.order);
    assert_int_equal(flyt_nccl_staying_change(), 0);
    flyt_nccl_ids_used(&used.order);
    flyt_nccl_ids_used(&used.order);
    assert_int_equal(flyt_nccl_staying_change(), -1);
}

/* What is too much for the list stands for good. */
static void test_ids_without_end(void **state)
{
    enum { GIVEN = 1030, KEPT = 1024 };
    struct sent sent = rank_of(0, 1, 0);
    for (unsigned i = 0; i < GIVEN; i++) {
        memcpy(sent.id, &i, sizeof i);
        flyt_nccl_id_given(sent.id);
    }
    assert_int_equal(flyt_nccl_staying_change(), GIVEN);
    for (unsigned i = 0; i < GIVEN; i++) {
        memcpy(sent.id, &i, sizeof i);
        flyt_nccl_ids_used(&sent.order);
    }
    assert_int_equal(flyt_nccl_staying_change(), -KEPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stands_until_all_ranks_are_here),
        cmocka_unit_test(test_stands_as_long_as_a_spoilt_family_is_there),
        cmocka_unit_test(test_finalized_ones_stand_alone),
        cmocka_unit_test(test_what_comes_of_none_stands),
        cmocka_unit_test(test_ids_stand_until_they_are_used),
        cmocka_unit_test(test_ids_without_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
