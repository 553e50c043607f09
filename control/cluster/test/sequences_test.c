/*
 * Random sequences of everything that can happen to allocations: requests, resizes, documents edited by hand, writes
 * that fail or of which nobody knows, orders that are refused, lost or late, nodes that go and come back. test_world.c
 * compares after each step. WORLD_SEED=N WORLD_EVENTS=1 shows one sequence.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "control/cluster/model/allocation.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/vm.h"
#include "control/cluster/test/test_world.h"

enum { SEQUENCES = 3000, STEPS = 150 };

static void request(struct world *world)
{
    unsigned vm = world_random(world, WORLD_VMS), sms = 8 + 8 * world_random(world, 7);

    switch (world_random(world, 10)) {
    case 9:
        if (world_random(world, 2))
            world_checkpoint(world, vm, "/images");
        else
            world_cancel(world, vm);
        break;
    case 8:
        world_migrate(world, vm, world_random(world, WORLD_NODES), (int)world_random(world, WORLD_GPUS + 1) - 1,
                      world_random(world, 4) ? 0 : sms);
        break;
    case 0:
        world_attach(world, vm);
        break;
    case 1:
        world_document(world, vm, sms, 1 + world_random(world, 4), world_random(world, 2), 0);
        break;
    case 2:
        world_suspend(world, vm, world_random(world, 2));
        break;
    case 3:
        if (!world_random(world, 4))
            world_document(world, vm, 0, 0, false, 0);
        break;
    case 4:
        if (!world_random(world, 4))
            world_end(world, vm);
        else if (world_random(world, 2))
            world_drain(world, vm);
        else
            world_drain_and_kill(world, vm, world_random(world, 2000));
        break;
    default:
        world_resize(world, vm, world_random(world, 4) ? sms : 0, (1ull + world_random(world, 4)) << 30,
                     world_random(world, 2), 1 + world_random(world, 8000));
        break;
    }
}

static void step(struct world *world)
{
    unsigned node = world_random(world, WORLD_NODES);

    switch (world_random(world, 19)) {
    case 18:
        if (!world_random(world, 4))
            world_takeover(world);
        break;
    case 16:
    case 17:
        world_move(world, node, true);
        break;
    case 0:
    case 1:
    case 2:
    case 3:
        request(world);
        break;
    case 4:
    case 5:
    case 6:
    case 7:
    case 8:
        world_store(world, true);
        break;
    case 9:
    case 10:
    case 11:
        world_answer(world, node, true);
        break;
    case 12:
        world_heartbeat(world, node);
        break;
    case 13:
        world_pass(world, world_random(world, 4000));
        break;
    case 14:
        world_need(world, node, world_random(world, 2) ? 8 * world_random(world, 6) : 0);
        break;
    default:
        if (world_random(world, 3))
            world_register(world, node, !world_random(world, 4));
        else
            world_disconnect(world, node);
        break;
    }
}

static void run(uint64_t seed)
{
    struct world *world = world_new(seed);

    for (unsigned i = 0; i < WORLD_VMS; i++)
        world_document(world, i, 8 + 8 * world_random(world, 4), 1 + world_random(world, 2), world_random(world, 2), 0);
    for (unsigned i = 0; i < STEPS; i++)
        step(world);
    world_settle(world);
    world_free(world);
}

static void test_sequences(void **state)
{
    const char *seed = getenv("WORLD_SEED"), *count = getenv("WORLD_SEQUENCES");
    uint64_t most = count ? strtoull(count, NULL, 10) : SEQUENCES;

    if (seed) {
        run(strtoull(seed, NULL, 10));
        return;
    }
    for (uint64_t i = 1; i <= most; i++) {
        snprintf(*state, 32, "%llu", (unsigned long long)i);
        run(i);
    }
}

/* VM 0 has 32 SMs, and everything is at rest. */
static struct world *world_of_one(void)
{
    struct world *world = world_new(1);

    world_document(world, 0, 32, 1, false, 0);
    world_attach(world, 0);
    world_settle(world);
    return world;
}

/* A node refuses a size, and the write of what was before fails. */
static void test_taken_back_unwritten(void **state)
{
    struct world *world = world_of_one();

    for (unsigned i = 0; i < WORLD_NODES; i++)
        world_need(world, i, 32);
    world_document(world, 0, 8, 1, false, 0);
    while (world_store(world, false))
        ;
    assert_ptr_not_equal(world_vm(world, 0)->allocation->resize, NULL);
    for (unsigned i = 0; i < WORLD_NODES; i++)
        world_answer(world, i, false);
    world_refuse(world);
    assert_ptr_equal(world_vm(world, 0)->allocation->resize, NULL);
    world_settle(world);
    world_free(world);
}

/* A node refuses a resize that takes SMs and adds memory, and takes what the allocation became right after it, with the
 * same size. When the resize is taken back, its programs may have that memory. */
static void test_memory_of_one_taken_back(void **state)
{
    struct world *world = world_of_one();
    const struct flyt_cluster_allocation *allocation = world_vm(world, 0)->allocation;
    unsigned node = (unsigned)(allocation->node->key[1] - '0');

    world_need(world, node, 32);
    world_resize(world, 0, 8, 3ull << 30, false, 8000);
    while (world_store(world, false))
        ;
    world_document(world, 0, 0, 0, false, 0);
    while (world_store(world, false))
        ;
    world_answer(world, node, false);
    assert_int_equal(allocation->slots[0].memory_bytes, 1ull << 30);
    assert_true(allocation->slots[0].memory_bytes + allocation->slots[0].leaving_bytes >= 3ull << 30);
    world_settle(world);
    world_free(world);
}

static uint64_t free_bytes(const struct flyt_cluster_slot *slot)
{
    return flyt_gpu_capacity(slot->gpu)->memory_free_bytes;
}

/* Memory that was taken away and is in use still moves along, and is charged wherever the programs are. */
static void test_memory_that_moves_along(void **state)
{
    const uint64_t gib = 1ull << 30, left = ((uint64_t)WORLD_MEMORY_GIB << 30) - 3 * gib;

    for (unsigned is_between = 0; is_between < 2; is_between++) {
        struct world *world = world_new(1);
        world_document(world, 0, 32, 3, false, 0);
        world_attach(world, 0);
        world_settle(world);
        const struct flyt_cluster_allocation *allocation = world_vm(world, 0)->allocation;
        unsigned node = (unsigned)(allocation->node->key[1] - '0');
        const struct flyt_cluster_gpu *source = allocation->slots[0].gpu;
        while (!allocation->uses[0].memory_used_bytes)
            world_heartbeat(world, node);
        world_resize(world, 0, 0, gib, false, 8000);
        world_run(world);
        assert_int_equal(allocation->slots[0].leaving_bytes, 2 * gib);
        world_migrate(world, 0, is_between ? !node : node, -1, 0);
        assert_non_null(allocation->migration);
        assert_int_equal(free_bytes(&allocation->slots[0]), left);
        assert_int_equal(free_bytes(&allocation->migration->others[0]), left);
        world_run(world);
        world_pass(world, 1500);
        world_run(world);
        assert_null(allocation->migration);
        assert_ptr_not_equal(allocation->slots[0].gpu, source);
        assert_int_equal(free_bytes(&allocation->slots[0]), left);
        world_settle(world);
        world_free(world);
    }
}

/* Its allocation is an orphan: who leads now has a store without it. */
static struct world *world_of_an_orphan(void)
{
    struct world *world = world_of_one();

    world_restore(world);
    for (unsigned i = 0; i < WORLD_NODES; i++)
        world_register(world, i, false);
    while (world_store(world, false))
        ;
    return world;
}

/* Neither is written: an adoption, and a resize that came right after it. */
static void test_resized_while_adopted(void **state)
{
    struct world *world = world_of_an_orphan();

    world_adopt(world, 0);
    world_document(world, 0, 8, 1, false, 0);
    assert_ptr_not_equal(world_vm(world, 0)->allocation->resize, NULL);
    world_refuse(world);
    assert_ptr_equal(world_vm(world, 0)->allocation, NULL);
    world_adopt(world, 0);
    world_settle(world);
    assert_int_equal(world_vm(world, 0)->allocation->slots[0].sm_count, 8);
    world_free(world);
}

/* An allocation that is being adopted does not move: when it is not written, nothing of it is in the store. */
static void test_moved_while_adopted(void **state)
{
    struct world *world = world_of_an_orphan();

    world_adopt(world, 0);
    const struct flyt_cluster_allocation *allocation = world_vm(world, 0)->allocation;
    for (unsigned i = 0; i < WORLD_NODES; i++)
        world_migrate(world, 0, i, -1, 0);
    assert_null(allocation->migration);
    world_refuse(world);
    assert_null(world_vm(world, 0)->allocation);
    world_adopt(world, 0);
    while (world_store(world, false))
        ;
    world_migrate(world, 0, allocation->node->key[1] - '0', -1, 0);
    assert_non_null(allocation->migration);
    world_settle(world);
    world_free(world);
}

static char last[32];

static int setup(void **state)
{
    *state = last;
    return 0;
}

/* After a failure too: which sequence it was. */
static int teardown(void **state)
{
    if (*last)
        print_message("the last sequence was WORLD_SEED=%s\n", last);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_taken_back_unwritten),
                                       cmocka_unit_test(test_memory_of_one_taken_back),
                                       cmocka_unit_test(test_memory_that_moves_along),
                                       cmocka_unit_test(test_resized_while_adopted),
                                       cmocka_unit_test(test_moved_while_adopted),
                                       cmocka_unit_test_setup_teardown(test_sequences, setup, teardown)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
