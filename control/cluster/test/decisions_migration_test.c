/* Decisions about migrations one by one, in the world of test_world.h: nodes that do not take them, short memory, who
 * is told, what a takeover finds, what is cancelled or given up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "control/cluster/model/allocation.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/checkpoint_op.h"
#include "control/cluster/model/table.h"
#include "control/cluster/model/vm.h"
#include "control/cluster/reconcile/migration.h"
#include "control/cluster/reconcile/checkpoint_op.h"
#include "control/cluster/reconcile/vm_device.h"
#include "control/cluster/reconcile/desired_store.h"
#include "control/cluster/test/test_world.h"

static void migrate(struct world *world, unsigned node)
{
    world_migrate(world, 0, node, -1, 0);
    world_run(world);
}

/* VM 0's move goes on until this node has taken its order. */
static void until_under_way(struct world *world, unsigned node)
{
    const struct flyt_cluster_allocation *moved = world_vm(world, 0)->allocation;

    for (unsigned i = 0; i < 100 && !(moved->migration && moved->migration->state == FLYT_MOVE_UNDER_WAY); i++)
        if (!world_store(world, false) && !world_answer(world, node, false))
            world_pass(world, 1);
    assert_true(moved->migration && moved->migration->state == FLYT_MOVE_UNDER_WAY);
}

static void test_moves_that_nodes_do_not_take(void **state)
{
    unsigned node;
    struct world *world = world_with_vm(&node);
    struct flyt_cluster *cluster = world_cluster(world);

    for (unsigned target = 0; target < WORLD_NODES; target++)
        for (unsigned manner = WORLD_REFUSES; manner <= WORLD_IS_OLD; manner++) {
            for (unsigned i = 0; i < WORLD_NODES; i++)
                world_set_manner(world, i, manner);
            uint64_t revision = world_vm(world, 0)->allocation->revision;
            migrate(world, target);
            assert_true(world_vm(world, 0)->allocation->revision == revision); /* nobody was sent another one */
            world_must_have_said(world, manner == WORLD_IS_OLD ? FLYT_STATUS_NOT_SUPPORTED : FLYT_STATUS_CONFLICT, "");
            assert_int_equal(world_vm(world, 0)->allocation->node->key[1] - '0', node);
        }
    for (unsigned i = 0; i < WORLD_NODES; i++)
        world_set_manner(world, i, WORLD_OBEYS);
    migrate(world, !node);
    world_settle(world);
    assert_int_equal(world_vm(world, 0)->allocation->node->key[1] - '0', !node);
    assert_int_equal(world_count(flyt_migration_view(cluster, "")), 5);
    assert_int_equal(world_count(flyt_migration_view(cluster, "10.0.0.1")), 5);
    assert_int_equal(world_count(flyt_migration_view(cluster, "10.0.0.9")), 0);
    flyt_migration_load_event(cluster, "migration.failed", "{\"id\":\"00000000000000aa\"}");
    flyt_migration_load_event(cluster, "vm.added", "{}");
    assert_int_equal(world_count(flyt_migration_view(cluster, "00000000000000aa")), 1);
    /* It has begun; then its node is one that knows nothing of moves. */
    node = !node;
    world_migrate(world, 0, node, -1, 0);
    until_under_way(world, node);
    world_die(world, node);
    world_set_manner(world, node, WORLD_IS_OLD);
    world_register(world, node, false);
    world_run(world);
    assert_null(world_vm(world, 0)->allocation->migration);
    world_set_manner(world, node, WORLD_OBEYS);
    world_settle(world);
    world_free(world);
}

/* One that could not be asked may still have what it was sent: the move goes on when it can. */
static void test_moves_whose_target_is_short_of_memory(void **state)
{
    unsigned node;
    struct world *world = world_with_vm(&node);
    const struct flyt_cluster_allocation *moved = world_vm(world, 0)->allocation;

    world_migrate(world, 0, !node, 0, 0);
    until_under_way(world, !node);
    world_answer(world, node, false);
    world_set_manner(world, !node, WORLD_IS_SHORT);
    world_pass(world, 6000);
    assert_true(world_answer(world, !node, false)); /* it was asked */
    assert_true(moved->migration && moved->migration->state == FLYT_MOVE_UNDER_WAY);
    assert_int_equal(moved->migration->sides[FLYT_MIGRATION_TARGET].standing, FLYT_STANDING_UNKNOWN);
    assert_int_equal(moved->migration->failed_status, FLYT_STATUS_OK);
    world_set_manner(world, !node, WORLD_OBEYS);
    world_settle(world);
    assert_int_equal(moved->node->key[1] - '0', !node);
    world_free(world);
}

/* The first order is given, and not answered. */
static void until_ordered(struct world *world, const struct flyt_cluster_allocation *moved)
{
    for (unsigned i = 0; i < 100 && !(moved->migration && moved->migration->state == FLYT_MOVE_ORDERED); i++)
        if (!world_store(world, false))
            world_pass(world, 1);
    assert_true(moved->migration && moved->migration->state == FLYT_MOVE_ORDERED);
}

/* A cancellation within a node comes before the order's answer, and too late: who asked for the move hears that it has
 * begun. */
static void test_cancelled_before_it_is_answered(void **state)
{
    unsigned node;
    struct world *world = world_with_vm(&node);
    const struct flyt_cluster_allocation *moved = world_vm(world, 0)->allocation;

    world_migrate(world, 0, node, -1, 0);
    until_ordered(world, moved);
    world_cancel(world, 0);
    assert_int_equal(world_waiting(world), 1);
    world_answer(world, node, false);
    assert_int_equal(world_waiting(world), 0);
    world_must_have_said(world, FLYT_STATUS_OK, "");
    world_settle(world);
    world_free(world);
}

/* Its programs end while they move within their node: what the node has counted is shown. */
static void test_figures_of_a_move_that_nobody_ends(void **state)
{
    unsigned node;
    struct world *world = world_with_vm(&node);
    const struct flyt_cluster_allocation *moved = world_vm(world, 0)->allocation;

    world_migrate(world, 0, node, -1, 0);
    until_under_way(world, node);
    world_leave(world, node, moved->id);
    world_run(world);
    assert_null(moved->migration);
    cJSON *shown = flyt_migration_view(world_cluster(world), "");
    const cJSON *last = cJSON_GetArrayItem(shown, cJSON_GetArraySize(shown) - 1);
    assert_int_equal(cJSON_GetNumberValue(cJSON_GetObjectItem(last, "sessions")), 0);
    assert_int_equal(cJSON_GetNumberValue(cJSON_GetObjectItem(last, "elapsed_ms")), WORLD_MOVE_MS);
    cJSON_Delete(shown);
    world_settle(world);
    world_free(world);
}

/* VM 0 begins to move from this node to the other one, which goes away. */
static void lose_target(struct world *world, unsigned node)
{
    const struct flyt_cluster_allocation *moved = world_vm(world, 0)->allocation;

    world_migrate(world, 0, !node, 0, 0);
    until_under_way(world, !node);
    world_answer(world, node, false);
    world_disconnect(world, !node);
    world_cancel(world, 0);
    world_run(world);
    world_pass(world, 2000);
    world_run(world);
    assert_true(flyt_migration_is_withdrawn(moved));
}

/* A move between nodes is given up while its target is away, which may have received memory of its programs: that is
 * charged until it says that it has none of it. */
static void test_given_up_without_its_target(void **state)
{
    unsigned node;
    struct world *world = world_with_vm(&node);
    struct flyt_cluster *cluster = world_cluster(world);
    const struct flyt_cluster_allocation *moved, *other;
    uint64_t id = world_vm(world, 0)->allocation->id;

    world_document(world, 0, 16, 3, false, 0);
    world_document(world, 1, 16, 2, false, 0);
    world_attach(world, 1);
    world_run(world);
    moved = world_vm(world, 0)->allocation;
    other = world_vm(world, 1)->allocation;
    world_migrate(world, 1, !node, 0, 0);
    world_settle(world);
    assert_string_not_equal(moved->node->key, other->node->key);
    lose_target(world, node);
    world_resize(world, 1, 0, 4ull << 30, false, 1000);
    world_run(world);
    world_must_have_said(world, FLYT_STATUS_NO_CAPACITY, "has not so much memory");
    /* Meanwhile its node is ordered what becomes of it, up to its end. */
    world_document(world, 0, 0, 0, false, 0);
    world_run(world);
    assert_int_equal(moved->state, FLYT_ALLOCATION_BLOCKED);
    assert_true(moved->applied_revision == moved->revision);
    world_end(world, 0);
    world_run(world);
    assert_true(moved->is_gone);
    world_resize(world, 1, 0, 4ull << 30, false, 1000);
    world_run(world);
    world_must_have_said(world, FLYT_STATUS_NO_CAPACITY, "has not so much memory");
    /* The target is back, and goes away again before it has heard that it is to give it up. */
    world_register(world, !node, false);
    world_pass(world, 1000);
    assert_ptr_equal(flyt_allocation_find(cluster, id), moved);
    world_disconnect(world, !node);
    world_pass(world, 1000);
    assert_ptr_equal(flyt_allocation_find(cluster, id), moved);
    assert_true(flyt_migration_is_withdrawn(moved));
    assert_false(world_answer(world, node, false)); /* the source is not ordered once more to remove it */
    world_resize(world, 1, 0, 4ull << 30, false, 1000);
    world_run(world);
    world_must_have_said(world, FLYT_STATUS_NO_CAPACITY, "has not so much memory");
    /* It is back again, and has given it up: now there is room. */
    world_settle(world);
    assert_null(flyt_allocation_find(cluster, id));
    world_resize(world, 1, 0, 4ull << 30, false, 1000);
    world_settle(world);
    assert_int_equal(other->slots[0].memory_bytes, 4ull << 30);
    world_free(world);
}

/* The target does not come back: at the source the allocation ends all the same, when nobody uses it. */
static void test_ends_without_its_target(void **state)
{
    unsigned node;
    struct world *world = world_with_vm(&node);
    const struct flyt_cluster_allocation *moved = world_vm(world, 0)->allocation;
    const struct flyt_capacity *capacity = flyt_gpu_capacity(moved->slots[0].gpu);
    uint64_t id = moved->id;

    lose_target(world, node);
    world_document(world, 0, 0, 0, false, 0);
    for (unsigned i = 0; i < 1000 && !moved->is_gone; i++) {
        world_heartbeat(world, node);
        world_run(world);
    }
    assert_true(moved->is_gone);
    assert_int_equal(capacity->sms_free, capacity->sms_total);
    assert_int_equal(capacity->memory_free_bytes, capacity->memory_bytes);
    assert_int_equal(capacity->slots_free, capacity->client_slots);
    /* The source is not given it again. */
    world_disconnect(world, node);
    world_register(world, node, false);
    assert_false(world_has(world, node, id));
    world_run(world);
    /* What the target may have is charged until it is fenced, also by whoever leads next. */
    assert_ptr_equal(flyt_allocation_find(world_cluster(world), id), moved);
    world_takeover(world);
    world_register(world, node, false);
    world_run(world);
    assert_false(world_has(world, node, id));
    moved = flyt_allocation_find(world_cluster(world), id);
    assert_non_null(moved);
    assert_int_equal(moved->slots[0].sm_count, 0);
    assert_int_equal(moved->migration->others[0].sm_count, 32);
    world_pass(world, 11000);
    world_fence(world, !node, true);
    world_run(world);
    assert_null(flyt_allocation_find(world_cluster(world), id));
    world_settle(world);
    world_free(world);
}

/* The source is fenced while the target is away: what that may have received stays charged until it has given it up,
 * also by whoever leads next; the VM is placed anew meanwhile. */
static void test_source_fenced_without_its_target(void **state)
{
    for (unsigned has_takeover = 0; has_takeover < 2; has_takeover++) {
        unsigned node;
        struct world *world = world_with_vm(&node);
        const struct flyt_cluster_allocation *moved = world_vm(world, 0)->allocation;
        const struct flyt_capacity *capacity;
        uint64_t id = moved->id;

        lose_target(world, node);
        capacity = flyt_gpu_capacity(moved->migration->others[0].gpu);
        world_die(world, node);
        world_pass(world, 11000);
        world_fence(world, node, true);
        world_run(world);
        assert_null(world_vm(world, 0)->allocation);
        if (has_takeover) {
            world_takeover(world);
            world_run(world);
        }
        moved = flyt_allocation_find(world_cluster(world), id);
        assert_non_null(moved);
        assert_int_equal(moved->slots[0].sm_count, 0);
        assert_int_equal(moved->migration->others[0].sm_count, 32);
        capacity = flyt_gpu_capacity(moved->migration->others[0].gpu);
        assert_int_equal(capacity->sms_free, capacity->sms_total - 32);
        world_register(world, !node, false);
        world_settle(world);
        assert_null(flyt_allocation_find(world_cluster(world), id));
        assert_int_equal(capacity->sms_free, capacity->sms_total);
        world_free(world);
    }
}

/* The source is fenced before the target has answered the order to receive, which it may take: as above. */
static void test_source_fenced_before_its_target_answers(void **state)
{
    enum { ANSWERS, GOES_AWAY, IS_LED_ANEW, MANNERS };

    for (unsigned manner = 0; manner < MANNERS; manner++) {
        unsigned node;
        struct world *world = world_with_vm(&node);
        const struct flyt_cluster_allocation *moved = world_vm(world, 0)->allocation;
        uint64_t id = moved->id;

        world_migrate(world, 0, !node, 0, 0);
        until_ordered(world, moved);
        const struct flyt_capacity *capacity = flyt_gpu_capacity(moved->migration->others[0].gpu);
        world_die(world, node);
        world_pass(world, 11000);
        assert_int_equal(moved->migration->state, FLYT_MOVE_ORDERED);
        world_fence(world, node, true);
        assert_null(world_vm(world, 0)->allocation);
        assert_ptr_equal(flyt_allocation_find(world_cluster(world), id), moved);
        assert_int_equal(moved->slots[0].sm_count, 0);
        assert_int_equal(capacity->sms_free, capacity->sms_total - 32);
        if (manner != GOES_AWAY)
            assert_true(world_answer(world, !node, false));
        if (manner != ANSWERS)
            world_disconnect(world, !node);
        if (manner == IS_LED_ANEW) {
            world_run(world);
            world_takeover(world);
            world_run(world);
            moved = flyt_allocation_find(world_cluster(world), id);
            assert_non_null(moved);
            capacity = flyt_gpu_capacity(moved->migration->others[0].gpu);
        }
        assert_int_equal(capacity->sms_free, capacity->sms_total - 32);
        world_register(world, !node, false);
        world_settle(world);
        assert_null(flyt_allocation_find(world_cluster(world), id));
        assert_int_equal(capacity->sms_free, capacity->sms_total);
        assert_false(world_has(world, !node, id));
        world_free(world);
    }
}

/* Whose programs have moved hears it, with where they are by then. */
static void test_who_has_moved_is_told(void **state)
{
    for (unsigned is_between = 0; is_between < 2; is_between++) {
        unsigned node;
        struct world *world = world_with_vm(&node);
        const struct flyt_cluster_allocation *allocation = world_vm(world, 0)->allocation;

        world_connect(world, 0);
        migrate(world, is_between ? !node : node);
        world_pass(world, 1500);
        world_run(world);
        assert_null(allocation->migration);
        assert_string_equal(world_told(world), is_between ? "its programs have moved to another node"
                                                          : "its programs have moved to another GPU");
        world_settle(world);
        world_free(world);
    }
}

/* It has moved within its node, and the document of the GPU where it was is still to be written without it: whoever
 * leads next finds it in both, of a migration in one of them. */
static void test_takeover_after_a_move(void **state)
{
    unsigned node;
    struct world *world = world_with_vm(&node);
    unsigned gpu = (unsigned)(world_vm(world, 0)->allocation->slots[0].gpu->key[6] - '0');

    world_migrate(world, 0, node, !gpu, 0);
    while (!world_vm(world, 0)->allocation->migration)
        assert_true(world_store(world, false));
    while (world_vm(world, 0)->allocation->migration) {
        bool has_gone_on = world_store(world, false) | world_answer(world, node, false);
        if (!has_gone_on)
            assert_true(world_move(world, node, false));
    }
    world_store(world, false); /* the document of the GPU where it is; */
    world_store(world, false); /* that it is written */
    world_takeover(world);
    for (unsigned i = 0; i < WORLD_NODES; i++)
        world_register(world, i, false);
    world_run(world);
    assert_int_equal(world_vm(world, 0)->allocation->slots[0].gpu->key[6] - '0', !gpu);
    world_settle(world);
    world_free(world);
}

static void test_moves_that_cannot_be(void **state)
{
    unsigned node;
    struct world *world = world_with_vm(&node);

    world_cancel(world, 0);
    world_must_have_said(world, FLYT_STATUS_NOT_FOUND, "does not move");
    world_cancel(world, 7);
    world_must_have_said(world, FLYT_STATUS_NOT_FOUND, "");
    assert_null(world_vm(world, 1)->allocation);
    world_migrate(world, 1, node, -1, 0);
    world_must_have_said(world, FLYT_STATUS_NOT_FOUND, "nothing to move");
    world_migrate(world, 0, node, 7, 0);
    world_must_have_said(world, FLYT_STATUS_NOT_FOUND, "");
    world_migrate(world, 0, 7, -1, 0);
    world_must_have_said(world, FLYT_STATUS_NOT_FOUND, "");
    world_migrate(world, 0, node, -1, 0);
    world_migrate(world, 0, !node, -1, 0);
    world_must_have_said(world, FLYT_STATUS_CONFLICT, "moves already");
    world_resize(world, 0, 16, 0, false, 1000);
    world_must_have_said(world, FLYT_STATUS_CONFLICT, "moves to another GPU");
    world_checkpoint(world, 0, "/images");
    world_must_have_said(world, FLYT_STATUS_CONFLICT, "moves to another GPU");
    world_cancel(world, 0);
    world_run(world);
    assert_null(world_vm(world, 0)->allocation->migration);
    world_settle(world);
    world_disconnect(world, node);
    world_migrate(world, 0, !node, -1, 0);
    world_must_have_said(world, FLYT_STATUS_UNAVAILABLE, "not connected");
    world_settle(world);
    world_free(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moves_that_nodes_do_not_take),
        cmocka_unit_test(test_moves_whose_target_is_short_of_memory),
        cmocka_unit_test(test_cancelled_before_it_is_answered),
        cmocka_unit_test(test_figures_of_a_move_that_nobody_ends),
        cmocka_unit_test(test_given_up_without_its_target),
        cmocka_unit_test(test_ends_without_its_target),
        cmocka_unit_test(test_source_fenced_without_its_target),
        cmocka_unit_test(test_source_fenced_before_its_target_answers),
        cmocka_unit_test(test_who_has_moved_is_told),
        cmocka_unit_test(test_takeover_after_a_move),
        cmocka_unit_test(test_moves_that_cannot_be),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
