/* Tests of capacity.c: what is free, what a request gets, checked against an exhaustive search. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "control/cluster/model/capacity.h"

static void make(struct flyt_capacity *gpu, const unsigned *sms, unsigned count)
{
    *gpu = (struct flyt_capacity){.uuid = "GPU-1", .type = "test", .memory_bytes = 1000, .client_slots = 10};
    flyt_capacity_set_groups(gpu, sms, count);
}

static struct flyt_groupset set_of(unsigned bits)
{
    return (struct flyt_groupset){{bits}};
}

/* An H200 in groups of 8: 15 and one of 12. */
static void make_h200(struct flyt_capacity *gpu)
{
    unsigned sms[16];

    for (unsigned i = 0; i < 16; i++)
        sms[i] = i < 15 ? 8 : 12;
    make(gpu, sms, 16);
}

static void test_h200(void **state)
{
    struct flyt_capacity gpu;
    struct flyt_groupset groups;

    make_h200(&gpu);
    assert_int_equal(gpu.sms_total, 132);
    assert_int_equal(flyt_capacity_fit(&gpu, NULL, 1), 8);
    assert_int_equal(flyt_capacity_fit(&gpu, NULL, 8), 8);
    assert_int_equal(flyt_capacity_fit(&gpu, NULL, 9), 12);
    assert_int_equal(flyt_capacity_fit(&gpu, NULL, 20), 20);
    assert_int_equal(flyt_capacity_fit(&gpu, NULL, 121), 124);
    assert_int_equal(flyt_capacity_fit(&gpu, NULL, 132), 132);
    assert_int_equal(flyt_capacity_fit(&gpu, NULL, 133), 0);
    assert_int_equal(flyt_capacity_fit(&gpu, NULL, 0), 0);
    assert_int_equal(flyt_capacity_choose(&gpu, NULL, 132, &groups), 132);
    assert_int_equal(groups.words[0], 0xffff);
    assert_int_equal(flyt_capacity_choose(&gpu, NULL, 12, &groups), 12);
    assert_int_equal(groups.words[0], 0x8000);
    /* 16 is two of 8, not 12 and 8. */
    assert_int_equal(flyt_capacity_choose(&gpu, NULL, 16, &groups), 16);
    assert_int_equal(groups.words[0], 0x3);
}

static void test_adjacent(void **state)
{
    static const unsigned sms[8] = {2, 2, 2, 2, 2, 2, 2, 2};
    struct flyt_capacity gpu;
    struct flyt_groupset groups, own;

    make(&gpu, sms, 8);
    groups = set_of(0x12); /* free: 0, 2-3, 5-7 */
    flyt_capacity_charge(&gpu, &groups, 0, 0);
    assert_int_equal(flyt_capacity_choose(&gpu, NULL, 4, &groups), 4);
    assert_int_equal(groups.words[0], 0xc); /* the smallest run that holds two */
    assert_int_equal(flyt_capacity_choose(&gpu, NULL, 6, &groups), 6);
    assert_int_equal(groups.words[0], 0xe0);
    assert_int_equal(flyt_capacity_choose(&gpu, NULL, 8, &groups), 8); /* no run: the largest, then the next */
    assert_int_equal(groups.words[0] & 0xe0, 0xe0);
    /* Growing keeps what one has, shrinking gives some of it away. */
    own = set_of(0x12);
    assert_int_equal(flyt_capacity_choose(&gpu, &own, 6, &groups), 6);
    assert_int_equal(groups.words[0] & 0x12, 0x12);
    assert_int_equal(flyt_capacity_choose(&gpu, &own, 2, &groups), 2);
    assert_true(groups.words[0] == 0x2 || groups.words[0] == 0x10);
    assert_int_equal(flyt_capacity_choose(&gpu, &own, 17, &groups), 0);
}

static void test_charge(void **state)
{
    static const unsigned sms[4] = {8, 8, 8, 8};
    struct flyt_capacity gpu;
    struct flyt_groupset groups = set_of(0x3), more = set_of(0x6);

    make(&gpu, sms, 4);
    gpu.server_reserve_bytes = 10;
    flyt_capacity_charge(&gpu, &groups, 100, 3);
    assert_int_equal(gpu.sms_free, 16);
    assert_int_equal(gpu.memory_free_bytes, 870);
    assert_int_equal(gpu.slots_free, 7);
    flyt_capacity_charge(&gpu, &more, 2000, 100); /* one group is taken already, the rest is more than there is */
    assert_int_equal(gpu.sms_free, 8);
    assert_int_equal(gpu.memory_free_bytes, 0);
    assert_int_equal(gpu.slots_free, 0);
    assert_int_equal(flyt_groupset_count(&gpu.taken), 3);
    flyt_capacity_reset(&gpu);
    assert_int_equal(gpu.sms_free, 32);
    assert_int_equal(gpu.memory_free_bytes, 1000);
    assert_int_equal(gpu.slots_free, 10);
    gpu.server_reserve_bytes = UINT64_MAX / 2;
    assert_true(flyt_capacity_memory(&gpu, 1, 3) == UINT64_MAX);
}

/* The fewest SMs of any set of free groups that has sm_count, tried one by one. */
static unsigned search(const struct flyt_capacity *gpu, unsigned sm_count)
{
    unsigned best = 0;

    for (unsigned set = 1; set < 1u << gpu->group_count; set++) {
        struct flyt_groupset groups = set_of(set);
        if (gpu->taken.words[0] & set)
            continue;
        unsigned sms = flyt_capacity_sms(gpu, &groups);
        if (sms >= sm_count && (!best || sms < best))
            best = sms;
    }
    return best;
}

static void test_against_search(void **state)
{
    srand(7);
    for (unsigned round = 0; round < 200; round++) {
        struct flyt_capacity gpu;
        unsigned sms[9], count = 5 + (unsigned)rand() % 5, odd = (unsigned)rand() % 3;
        for (unsigned i = 0; i < count; i++)
            sms[i] = i < odd ? 1 + (unsigned)rand() % 13 : 4;
        make(&gpu, sms, count);
        struct flyt_groupset taken = set_of((unsigned)rand() & ((1u << count) - 1));
        flyt_capacity_charge(&gpu, &taken, 0, 0);
        for (unsigned wanted = 1; wanted <= gpu.sms_total + 1; wanted++) {
            struct flyt_groupset groups = {{0}}, nothing = {{0}};
            unsigned expected = search(&gpu, wanted);
            assert_int_equal(flyt_capacity_fit(&gpu, NULL, wanted), expected);
            assert_int_equal(flyt_capacity_fit(&gpu, &nothing, wanted), expected);
            assert_int_equal(flyt_capacity_choose(&gpu, NULL, wanted, &groups), expected);
            assert_int_equal(flyt_capacity_sms(&gpu, &groups), expected);
            assert_int_equal(groups.words[0] & gpu.taken.words[0], 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_h200),
        cmocka_unit_test(test_adjacent),
        cmocka_unit_test(test_charge),
        cmocka_unit_test(test_against_search),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
