/* Tests of placement.c: who gets which GPU, and the reasons of refusals. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "control/cluster/model/placement.h"

enum { GPUS = 3, GROUPS = 4 };
#define GIB (1ull << 30)

/* Two nodes with three GPUs each: 4 groups of 8 SMs, 16 GiB, 8 client slots. */
struct fixture {
    struct flyt_capacity gpus[2][GPUS];
    struct flyt_place_node nodes[2];
    struct flyt_place_node *list[2];
    char uuids[2][GPUS][16];
    struct flyt_place_request request;
    struct flyt_placement placement;
    char reason[1024];
};

static void begin(struct fixture *f)
{
    static const unsigned sms[GROUPS] = {8, 8, 8, 8};

    memset(f, 0, sizeof *f);
    for (unsigned n = 0; n < 2; n++) {
        for (unsigned g = 0; g < GPUS; g++) {
            struct flyt_capacity *gpu = &f->gpus[n][g];
            snprintf(f->uuids[n][g], sizeof f->uuids[n][g], "GPU-%u%u", n, g);
            gpu->uuid = f->uuids[n][g];
            gpu->type = g == 2 ? "NVIDIA A30" : "NVIDIA H200";
            gpu->index = g;
            gpu->memory_bytes = 16 * GIB;
            gpu->client_slots = 8;
            gpu->server_reserve_bytes = GIB / 2;
            flyt_capacity_set_groups(gpu, sms, GROUPS);
        }
        f->nodes[n] = (struct flyt_place_node){.name = n ? "two" : "one",
                                               .host_ip = n ? "10.0.0.2" : "10.0.0.1",
                                               .is_up = true,
                                               .gpus = f->gpus[n],
                                               .gpu_count = GPUS};
        f->list[n] = &f->nodes[n];
    }
    f->request =
        (struct flyt_place_request){.device_count = 1, .sm_count = 8, .memory_bytes = 4 * GIB, .session_count = 2};
}

static int place(struct fixture *f)
{
    f->reason[0] = '\0';
    return flyt_place(f->list, 2, &f->request, &f->placement, f->reason, sizeof f->reason);
}

static void take(struct fixture *f, unsigned n, unsigned g, unsigned groups, uint64_t memory_bytes, unsigned sessions)
{
    struct flyt_groupset set = {{groups}};

    flyt_capacity_charge(&f->gpus[n][g], &set, memory_bytes, sessions);
}

static void test_policies(void **state)
{
    struct fixture f;

    begin(&f);
    take(&f, 1, 1, 0x1, GIB, 1);
    assert_int_equal(place(&f), 0);
    assert_int_equal(f.placement.node, 1);
    assert_int_equal(f.placement.slots[0].gpu, 1);
    assert_int_equal(f.placement.slots[0].sm_count, 8);
    assert_int_equal(f.placement.slots[0].groups.words[0], 0x2);
    f.request.policy = FLYT_POLICY_SPREAD;
    assert_int_equal(place(&f), 0);
    assert_int_equal(f.placement.node, 0);
    assert_int_equal(f.placement.slots[0].gpu, 0);
    /* A preferred machine goes before the policy, and is no condition. */
    f.request.host_ip = "10.0.0.2";
    assert_int_equal(place(&f), 0);
    assert_int_equal(f.placement.node, 1);
    assert_int_equal(f.placement.slots[0].gpu, 0);
    for (unsigned g = 0; g < GPUS; g++)
        take(&f, 1, g, 0xf, 0, 0);
    assert_int_equal(place(&f), 0);
    assert_int_equal(f.placement.node, 0);
}

static void test_fewest_over(void **state)
{
    static const unsigned odd[GROUPS] = {8, 8, 8, 12};
    struct fixture f;

    begin(&f);
    flyt_capacity_set_groups(&f.gpus[1][0], odd, GROUPS);
    f.request.sm_count = 12;
    assert_int_equal(place(&f), 0);
    assert_int_equal(f.placement.node, 1);
    assert_int_equal(f.placement.slots[0].gpu, 0);
    assert_int_equal(f.placement.slots[0].groups.words[0], 0x8);
    assert_int_equal(f.placement.slots[0].sm_count, 12);
}

static void test_names(void **state)
{
    struct fixture f;
    char *a30[] = {"a30"}, *h200[] = {"H200"}, *second[] = {"two:1"}, *uuid[] = {"gpu-01", "GPU-12"};

    begin(&f);
    f.request.include_types = (struct flyt_name_list){a30, 1};
    assert_int_equal(place(&f), 0);
    assert_int_equal(f.placement.slots[0].gpu, 2);
    f.request.include_types.count = 0;
    f.request.exclude_types = (struct flyt_name_list){h200, 1};
    assert_int_equal(place(&f), 0);
    assert_int_equal(f.placement.slots[0].gpu, 2);
    f.request.include_gpus = (struct flyt_name_list){second, 1};
    assert_int_equal(place(&f), -ENOSPC);
    assert_string_equal(f.reason, "4 of 6 GPUs: type not wanted; 2 of 6 GPUs: not among the GPUs wanted");
    f.request.exclude_types.count = 0;
    assert_int_equal(place(&f), 0);
    assert_int_equal(f.placement.node, 1);
    assert_int_equal(f.placement.slots[0].gpu, 1);
    f.request.include_gpus = (struct flyt_name_list){uuid, 2};
    f.request.exclude_gpus = (struct flyt_name_list){uuid, 1};
    assert_int_equal(place(&f), 0);
    assert_int_equal(f.placement.node, 1);
    assert_int_equal(f.placement.slots[0].gpu, 2);
}

static void test_reasons(void **state)
{
    struct fixture f;

    begin(&f);
    f.request.memory_bytes = 16 * GIB; /* fits but for the servers' reserve */
    f.nodes[0].schedule = FLYT_SCHEDULE_CORDONED;
    f.gpus[1][2].is_unhealthy = true;
    take(&f, 1, 1, 0, 4 * GIB, 0);
    assert_int_equal(place(&f), -ENOSPC);
    assert_string_equal(
        f.reason, "3 of 6 GPUs: node cordoned; 1 of 6 GPUs: not healthy; 2 of 6 GPUs: not enough memory (needs 16 "
                  "GiB and its servers' reserve, 16 GiB free at most)");
    begin(&f);
    f.nodes[0].is_up = false;
    f.gpus[1][0].schedule = FLYT_SCHEDULE_DRAINING;
    f.gpus[1][1].schedule = FLYT_SCHEDULE_CORDONED;
    f.gpus[1][2].isolation = FLYT_ISOLATION_STRICT;
    assert_int_equal(place(&f), -ENOSPC);
    assert_string_equal(f.reason, "3 of 6 GPUs: node not connected; 1 of 6 GPUs: cordoned; 1 of 6 GPUs: draining; 1 of "
                                  "6 GPUs: not for isolation class shared");
    begin(&f);
    f.request.sm_count = 33;
    take(&f, 0, 0, 0x3, 0, 0);
    assert_int_equal(place(&f), -ENOSPC);
    assert_string_equal(f.reason, "6 of 6 GPUs: not enough SMs (needs 33, 32 free at most)");
    f.request.sm_count = 8;
    f.request.session_count = 9;
    assert_int_equal(place(&f), -ENOSPC);
    assert_string_equal(f.reason, "6 of 6 GPUs: not enough client slots (needs 9, 8 free at most)");
    assert_int_equal(flyt_place(f.list, 0, &f.request, &f.placement, f.reason, sizeof f.reason), -ENOSPC);
    assert_string_equal(f.reason, "there is no GPU in the cluster");
    /* Too little room for the text: it is cut, nothing else is touched. */
    f.reason[8] = '!';
    assert_int_equal(flyt_place(f.list, 2, &f.request, &f.placement, f.reason, 8), -ENOSPC);
    assert_string_equal(f.reason, "6 of 6 ");
    assert_int_equal(f.reason[8], '!');
    assert_true(flyt_place_refuses(f.list[0], &f.gpus[0][0], &f.request, f.reason, sizeof f.reason));
    assert_string_equal(f.reason, "not enough client slots (needs 9, 8 free at most)");
    f.request.session_count = 1;
    assert_false(flyt_place_refuses(f.list[0], &f.gpus[0][0], &f.request, f.reason, sizeof f.reason));
}

/* Who shares SMs in time may have those that are shared, as long as the minima are not more than all of the time. */
static void test_shared_in_time(void **state)
{
    struct fixture f;
    struct flyt_groupset timed = {{0x6}};

    begin(&f);
    f.request.include_gpus = (struct flyt_name_list){(char *[]){(char *)"one:0"}, 1};
    take(&f, 0, 0, 0x7, 0, 0); /* group 0 is another's own */
    flyt_capacity_charge_share(&f.gpus[0][0], &timed, 60);
    f.request.sm_count = 24;
    assert_int_equal(place(&f), -ENOSPC);
    assert_string_equal(f.reason, "5 of 6 GPUs: not among the GPUs wanted; 1 of 6 GPUs: not enough SMs (needs 24, 8 "
                                  "free at most)");
    f.request.is_timed = true;
    f.request.minimum_share_pct = 40;
    assert_int_equal(place(&f), 0);
    assert_int_equal(f.placement.slots[0].groups.words[0], 0xe);
    f.request.sm_count = 16; /* those that are shared already first */
    assert_int_equal(place(&f), 0);
    assert_int_equal(f.placement.slots[0].groups.words[0], 0x6);
    f.request.minimum_share_pct = 41;
    assert_int_equal(place(&f), -ENOSPC);
    assert_string_equal(f.reason, "5 of 6 GPUs: not among the GPUs wanted; 1 of 6 GPUs: not enough time (needs a "
                                  "minimum of 41 %, 40 % not promised at most)");
    f.request.minimum_share_pct = 0;
    f.request.sm_count = 32;
    assert_int_equal(place(&f), -ENOSPC);
    /* Without MPS, SMs that are a VM's own are a part of the time, too. */
    f.gpus[0][0].isolation = f.request.isolation = FLYT_ISOLATION_STRICT;
    f.request.is_timed = false;
    f.request.sm_count = 8;
    assert_int_equal(place(&f), 0);
    flyt_capacity_charge_share(&f.gpus[0][0], &timed, 20);
    assert_int_equal(place(&f), -ENOSPC);
    assert_string_equal(f.reason, "5 of 6 GPUs: not among the GPUs wanted; 1 of 6 GPUs: not enough time (20 % not "
                                  "promised at most)");
    flyt_capacity_reset(&f.gpus[0][0]);
    assert_int_equal(f.gpus[0][0].share_taken_pct, 0);
    assert_int_equal(flyt_capacity_share(&f.gpus[0][0], 8), 25);
    assert_int_equal(flyt_capacity_share(&f.gpus[0][0], 32), 100);
}

static void test_several(void **state)
{
    struct fixture f;

    begin(&f);
    f.request.device_count = 3;
    take(&f, 0, 1, 0xf, 0, 0);
    assert_int_equal(place(&f), 0);
    assert_int_equal(f.placement.node, 1);
    assert_int_equal(f.placement.slot_count, 3);
    unsigned seen = 0;
    for (unsigned i = 0; i < 3; i++)
        seen |= 1u << f.placement.slots[i].gpu;
    assert_int_equal(seen, 7);
    f.request.device_count = 4;
    assert_int_equal(place(&f), -ENOSPC);
    assert_string_equal(f.reason,
                        "1 of 6 GPUs: not enough SMs (needs 8, 0 free at most); 5 of 6 GPUs: would do, but no "
                        "node has 4 of them");
    /* The best two of a node: those that are fullest. */
    begin(&f);
    f.request.device_count = 2;
    take(&f, 1, 0, 0x7, 0, 0);
    take(&f, 1, 2, 0x1, 0, 0);
    assert_int_equal(place(&f), 0);
    assert_int_equal(f.placement.node, 1);
    assert_int_equal(f.placement.slots[0].gpu, 0);
    assert_int_equal(f.placement.slots[1].gpu, 2);
}

/* Random requests until nothing fits: groups stay disjoint and nothing is given out twice. */
static void test_never_more(void **state)
{
    struct fixture f;
    struct flyt_groupset given[2][GPUS];
    uint64_t memory[2][GPUS] = {{0}};
    unsigned slots[2][GPUS] = {{0}}, placed = 0;

    srand(11);
    begin(&f);
    memset(given, 0, sizeof given);
    for (unsigned round = 0; round < 300; round++) {
        f.request.device_count = 1 + (unsigned)rand() % 3;
        f.request.sm_count = 1 + (unsigned)rand() % 20;
        f.request.memory_bytes = (uint64_t)(1 + rand() % 6) * GIB;
        f.request.session_count = 1 + (unsigned)rand() % 3;
        f.request.policy = rand() % 2;
        if (place(&f))
            continue;
        placed++;
        for (unsigned i = 0; i < f.placement.slot_count; i++) {
            unsigned n = f.placement.node, g = f.placement.slots[i].gpu;
            assert_true(f.placement.slots[i].sm_count >= f.request.sm_count);
            assert_int_equal(given[n][g].words[0] & f.placement.slots[i].groups.words[0], 0);
            given[n][g].words[0] |= f.placement.slots[i].groups.words[0];
            memory[n][g] += f.request.memory_bytes + f.request.session_count * (GIB / 2);
            slots[n][g] += f.request.session_count;
            assert_true(memory[n][g] <= 16 * GIB);
            assert_true(slots[n][g] <= 8);
            flyt_capacity_charge(&f.gpus[n][g], &f.placement.slots[i].groups, f.request.memory_bytes,
                                 f.request.session_count);
        }
    }
    assert_true(placed >= 6);
}

/* A VM whose programs move: not where they are, not to another kind of GPU, not to smaller groups. */
static void test_moving(void **state)
{
    static const unsigned small[] = {2, 2, 2, 2, 2, 2, 2, 2};
    struct fixture f;

    begin(&f);
    for (unsigned g = 0; g < GPUS; g++)
        f.gpus[0][g].compute_capability = 900;
    f.request.present_gpus = 1 << 0;
    f.request.compute_capability = 900;
    f.request.group_sms = 8;
    take(&f, 0, 1, 0x1, GIB, 1); /* binpack would take the fuller one */
    assert_int_equal(flyt_place(f.list, 1, &f.request, &f.placement, f.reason, sizeof f.reason), 0);
    assert_int_equal(f.placement.slots[0].gpu, 1);
    f.request.present_gpus = 1 << 1;
    assert_int_equal(flyt_place(f.list, 1, &f.request, &f.placement, f.reason, sizeof f.reason), 0);
    assert_int_not_equal(f.placement.slots[0].gpu, 1);
    f.request.present_gpus = 1 << 0;
    f.gpus[0][1].compute_capability = 800;
    flyt_capacity_set_groups(&f.gpus[0][2], small, 8);
    assert_int_equal(flyt_place(f.list, 1, &f.request, &f.placement, f.reason, sizeof f.reason), -ENOSPC);
    assert_non_null(strstr(f.reason, "1 of 3 GPUs: where it is now"));
    assert_non_null(strstr(f.reason, "1 of 3 GPUs: not of compute capability 9.0"));
    assert_non_null(strstr(f.reason, "1 of 3 GPUs: groups of fewer SMs than 8"));
    assert_true(flyt_place_refuses(&f.nodes[0], &f.gpus[0][2], &f.request, f.reason, sizeof f.reason));
    /* Two GPUs of four: both others, or none. */
    begin(&f);
    f.request.device_count = 2;
    f.request.present_gpus = 1 << 2;
    assert_int_equal(flyt_place(f.list, 1, &f.request, &f.placement, f.reason, sizeof f.reason), 0);
    assert_int_equal(f.placement.slots[0].gpu + f.placement.slots[1].gpu, 1);
    f.request.present_gpus = 1 << 1 | 1 << 2;
    assert_int_equal(flyt_place(f.list, 1, &f.request, &f.placement, f.reason, sizeof f.reason), -ENOSPC);
}

/* The same major version, and no older minor one; one of another name is nothing. */
static void test_libraries(void **state)
{
    static const struct {
        unsigned version;
        const char *reason; /* empty: it will do */
    } cases[] = {
        {9019, ""},
        {9020, ""},
        {9010, "needs cudnn 9.19, node has 9.10"},
        {10019, "needs cudnn 9.19, node has 10.19"},
        {8999, "needs cudnn 9.19, node has 8.999"},
    };
    struct fixture f;

    begin(&f);
    flyt_place_libraries_add(&f.request.libraries, "cudnn", 9010);
    flyt_place_libraries_add(&f.request.libraries, "cudnn", 9019);
    flyt_place_libraries_add(&f.request.libraries, "cudnn", 9018);
    assert_int_equal(f.request.libraries.count, 1);
    f.nodes[1].is_up = false;
    assert_int_equal(place(&f), -ENOSPC);
    assert_string_equal(f.reason, "3 of 6 GPUs: node not connected; 3 of 6 GPUs: needs cudnn 9.19, node has not said "
                                  "which libraries it has");
    f.nodes[0].has_told_libraries = true;
    flyt_place_libraries_add(&f.nodes[0].libraries, "cudnnx", 9019);
    assert_true(flyt_place_refuses(&f.nodes[0], &f.gpus[0][0], &f.request, f.reason, sizeof f.reason));
    assert_string_equal(f.reason, "needs cudnn 9.19, node has none");
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        f.nodes[0].libraries.count = 1;
        flyt_place_libraries_add(&f.nodes[0].libraries, "cudnn", cases[i].version);
        assert_int_equal(flyt_place_refuses(&f.nodes[0], &f.gpus[0][0], &f.request, f.reason, sizeof f.reason),
                         *cases[i].reason != '\0');
        assert_string_equal(f.reason, cases[i].reason);
    }
    /* The node that has what is open is taken though the other one is the first. */
    f.nodes[0].libraries.items[1].version = 9010;
    f.nodes[1].is_up = true;
    flyt_place_libraries_add(&f.nodes[1].libraries, "cudnn", 9019);
    assert_int_equal(place(&f), 0);
    assert_int_equal(f.placement.node, 1);
    /* Programs of two major versions, each at its own. */
    flyt_place_libraries_add(&f.request.libraries, "cudnn", 8004);
    assert_int_equal(place(&f), -ENOSPC);
    flyt_place_libraries_add(&f.nodes[1].libraries, "cudnn", 8005);
    assert_int_equal(place(&f), 0);
}

static void test_libraries_that_a_vm_wants(void **state)
{
    static const char *const wrong[] = {"",
                                        "cuDNN",
                                        "cudnn 9",
                                        "cudnn 9.",
                                        "cudnn 9.1x",
                                        "cudnn 9.10 ",
                                        "cudnn 1000.1",
                                        "cudnn-9.10",
                                        "anameofsixteenbyt"};
    struct flyt_place_libraries libraries = {.count = 0};
    struct fixture f;

    for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(flyt_place_libraries_read(&libraries, wrong[i]));
    assert_int_equal(libraries.count, 0);
    assert_true(flyt_place_libraries_read(&libraries, "cudnn 9.10"));
    assert_string_equal(libraries.items[0].name, "cudnn");
    assert_int_equal(libraries.items[0].version, 9010);
    /* Without a version any will do. */
    begin(&f);
    assert_true(flyt_place_libraries_read(&f.request.libraries, "cublas"));
    f.nodes[0].has_told_libraries = true;
    assert_true(flyt_place_refuses(&f.nodes[0], &f.gpus[0][0], &f.request, f.reason, sizeof f.reason));
    assert_string_equal(f.reason, "needs cublas, node has none");
    flyt_place_libraries_add(&f.nodes[1].libraries, "cublas", 12003);
    assert_int_equal(place(&f), 0);
    assert_int_equal(f.placement.node, 1);
}

/* However many a node names, and however long the names are. */
static void test_libraries_without_bounds(void **state)
{
    struct flyt_place_libraries libraries = {.count = 0};
    char name[32];

    flyt_place_libraries_add(&libraries, "a_name_of_16_byt", 1000);
    assert_int_equal(libraries.count, 0);
    for (unsigned i = 0; i < 2 * FLYT_PLACE_LIBRARIES_MAX; i++) {
        snprintf(name, sizeof name, "library%u", i);
        flyt_place_libraries_add(&libraries, name, 1000);
    }
    assert_int_equal(libraries.count, FLYT_PLACE_LIBRARIES_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_policies),
        cmocka_unit_test(test_fewest_over),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_reasons),
        cmocka_unit_test(test_several),
        cmocka_unit_test(test_shared_in_time),
        cmocka_unit_test(test_never_more),
        cmocka_unit_test(test_moving),
        cmocka_unit_test(test_libraries),
        cmocka_unit_test(test_libraries_that_a_vm_wants),
        cmocka_unit_test(test_libraries_without_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
