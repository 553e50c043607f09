/* Tests of what a node says to the cluster manager of programs that move, and does at its word. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/node/ops/migration.h"
#include "control/node/ops/ops.h"
#include "control/node/ops/receive.h"
#include "control/node/test/test_boss.h"
#include "control/node/test/test_far.h"
#include "control/node/test/test_node.h"
#include "control/node/uplink/manager.h"
#include "control/node/uplink/report.h"

static flyt_status migrate(struct test_boss *boss, uint64_t epoch, uint64_t id, uint64_t revision, unsigned gpu)
{
    const flyt_order_migrate_args args = {.epoch = epoch,
                                          .migration_id = id,
                                          .allocation = *test_boss_wish(boss, revision),
                                          .bounds = {.stop_ms = 60000}};

    args.allocation.slots.slots_val[0].gpu_uuid = boss->test->node.gpus.items[gpu].uuid;
    test_boss_order(boss, FLYT_ORDER_MIGRATE, (xdrproc_t)xdr_flyt_order_migrate_args, &args,
                    (xdrproc_t)xdr_flyt_outcome, sizeof(flyt_outcome), test_boss_on_outcome);
    return boss->status;
}

static flyt_status ask_migration(struct test_boss *boss, uint64_t id, bool cancel)
{
    const flyt_order_migration_args args = {boss->epoch, id, cancel};

    test_boss_order(boss, FLYT_ORDER_MIGRATION, (xdrproc_t)xdr_flyt_order_migration_args, &args,
                    (xdrproc_t)xdr_flyt_order_migration_res, sizeof(flyt_order_migration_res), test_boss_on_migration);
    return boss->status;
}

static bool is_told_copying(struct test_node *test, void *user)
{
    return ((struct test_boss *)user)->migration.phase == FLYT_MIGRATION_COPYING;
}

static bool is_told_more(struct test_node *test, void *user)
{
    const struct test_boss *boss = user;

    return boss->migration_count >= 3;
}

static bool is_told_end(struct test_node *test, void *user)
{
    const struct test_boss *boss = user;

    return boss->migration.phase >= FLYT_MIGRATION_DONE && !boss->deaf_count;
}

static bool is_heard(struct test_node *test, void *user)
{
    return test->node.ops->operations[FLYT_NODE_OPERATION_MIGRATION]->is_told;
}

/* What is told of one, by whom it may be ordered, and that its end is told until it was heard. */
static void test_a_migration(void **state)
{
    struct test_boss *boss = *state;
    struct test_node *test = boss->test;
    struct flyt_metrics *registry = flyt_metrics_new();
    struct flyt_node_metrics *metrics = flyt_node_metrics_new(registry);

    test->node.metrics = metrics;
    test->node.observe = flyt_node_metrics_observe;
    assert_int_equal(migrate(boss, boss->epoch, 5, 2, 1), FLYT_STATUS_NOT_FOUND);
    assert_int_equal(test_boss_apply(boss, 1), FLYT_STATUS_OK);
    assert_int_equal(ask_migration(boss, 5, false), FLYT_STATUS_NOT_FOUND);
    const struct flyt_credentials credentials = test_node_credentials(&test_boss_ticket);
    struct test_program vm = test_node_connect(test, &credentials, NULL, false);
    assert_string_equal(test_program_ask(test, &vm, "extent 1 0 4096"), "0");
    assert_string_equal(test_program_ask(test, &vm, "busy 1"), "0");
    assert_int_equal(migrate(boss, boss->epoch - 1, 5, 2, 1), FLYT_STATUS_STALE);
    assert_int_equal(migrate(boss, boss->epoch, 5, 2, 1), FLYT_STATUS_OK);
    assert_int_equal(migrate(boss, boss->epoch, 5, 2, 1), FLYT_STATUS_OK);
    assert_int_equal(migrate(boss, boss->epoch, 6, 3, 1), FLYT_STATUS_CONFLICT);
    test_node_until(test, is_told_copying, boss, "that it copies");
    assert_true(boss->migration.id == 5 && boss->migration.allocation_id == 0x77);
    assert_int_equal(boss->migration.session_count, 1);
    boss->migration_count = 0;
    test_node_until(test, is_told_more, boss, "it is told again, though nothing has changed");
    assert_int_equal(ask_migration(boss, 5, false), FLYT_STATUS_OK);
    assert_int_equal(boss->asked.phase, FLYT_MIGRATION_COPYING);
    boss->deaf_count = 2;
    assert_int_equal(ask_migration(boss, 5, true), FLYT_STATUS_OK);
    test_node_until(test, is_told_end, boss, "its end");
    test_node_until(test, is_heard, boss, "that it was heard");
    assert_int_equal(boss->migration.phase, FLYT_MIGRATION_FAILED);
    assert_int_equal(boss->migration.outcome.status, FLYT_STATUS_CONFLICT);
    assert_non_null(strstr(boss->text, "an operator"));
    unsigned before = boss->migration_count;
    test_node_run(test, 2 * FLYT_NODE_MIGRATION_REPORT_MS + 500);
    assert_int_equal(boss->migration_count, before);
    assert_int_equal(ask_migration(boss, 5, true), FLYT_STATUS_OK);
    assert_int_equal(boss->asked.phase, FLYT_MIGRATION_FAILED);
    close(vm.fd);
    while (flyt_node_allocation_find(&test->node, 0x77)->session_count)
        test_node_run(test, 20);
    /* One that is done; another manager hears of it, too. */
    assert_int_equal(migrate(boss, boss->epoch, 7, 3, 1), FLYT_STATUS_OK);
    test_node_until(test, is_heard, boss, "that it was heard");
    assert_int_equal(boss->migration.phase, FLYT_MIGRATION_DONE);
    assert_string_equal(boss->text, "");
    boss->migration_count = 0;
    boss->is_forgetful = true;
    while (boss->migration_count < 2)
        test_node_run(test, 20);
    flyt_node_metrics_refresh(metrics, &test->node);
    flyt_node_metrics_refresh(metrics, &test->node); /* each is counted once */
    char *text = flyt_metrics_text(registry);
    assert_non_null(strstr(text, "flyt_node_migrations_total{outcome=\"done\"} 1\n"));
    assert_non_null(strstr(text, "flyt_node_migrations_total{outcome=\"failed\"} 1\n"));
    assert_non_null(strstr(text, "flyt_node_migration_standstill_seconds_count 1\n"));
    assert_non_null(strstr(text, "flyt_sessions_moved_total 0\n"));
    free(text);
    test->node.observe = NULL;
    test->node.metrics = flyt_node_metrics_free(metrics);
    flyt_metrics_free(registry);
}

/* ---- to another node ---- */

static flyt_status send_away(struct test_boss *boss, struct test_far *far, uint64_t epoch)
{
    const struct test_far_wish wish = {.stream_count = 1, .stop_ms = 60000};
    char *url;
    flyt_order_send_args args = test_far_args(far, &wish, &url);

    args.epoch = epoch;
    args.allocation_id = 0x77;
    test_boss_order(boss, FLYT_ORDER_SEND, (xdrproc_t)xdr_flyt_order_send_args, &args, (xdrproc_t)xdr_flyt_outcome,
                    sizeof(flyt_outcome), test_boss_on_outcome);
    return boss->status;
}

static flyt_status switch_over(struct test_boss *boss, uint64_t epoch, uint64_t id)
{
    const flyt_order_switch_args args = {epoch, id, 1};

    test_boss_order(boss, FLYT_ORDER_SWITCH, (xdrproc_t)xdr_flyt_order_switch_args, &args,
                    (xdrproc_t)xdr_flyt_order_migration_res, sizeof(flyt_order_migration_res), test_boss_on_migration);
    return boss->status;
}

static flyt_status send_back(struct test_boss *boss, uint64_t epoch, uint64_t id)
{
    const flyt_order_send_back_args args = {epoch, id, (char *)"nobody came"};

    test_boss_order(boss, FLYT_ORDER_SEND_BACK, (xdrproc_t)xdr_flyt_order_send_back_args, &args,
                    (xdrproc_t)xdr_flyt_outcome, sizeof(flyt_outcome), test_boss_on_outcome);
    return boss->status;
}

static bool is_told_phase(struct test_node *test, void *user)
{
    struct test_boss *boss = user;

    return boss->migration.phase == boss->awaited_phase;
}

static void until_told(struct test_boss *boss, flyt_migration_phase phase)
{
    boss->awaited_phase = phase;
    test_node_until(boss->test, is_told_phase, boss, "that this phase is told");
}

static struct test_program begin_program(struct test_node *test)
{
    const struct flyt_credentials credentials = test_node_credentials(&test_boss_ticket);
    struct test_program vm = test_node_connect(test, &credentials, NULL, false);

    assert_string_equal(test_program_ask(test, &vm, "extent 1 0 4096"), "0");
    assert_string_equal(test_program_ask(test, &vm, "write 1 4711"), "0");
    return vm;
}

/* All orders of the node that programs leave, and what it tells. */
static void test_to_another_node(void **state)
{
    struct test_boss *boss = *state;
    struct test_node *test = boss->test;
    struct test_far far;

    test_far_open(&far, test);
    assert_int_equal(send_away(boss, &far, boss->epoch), FLYT_STATUS_NOT_FOUND);
    assert_int_equal(switch_over(boss, boss->epoch, TEST_MIGRATION_ID), FLYT_STATUS_NOT_FOUND);
    assert_int_equal(send_back(boss, boss->epoch, TEST_MIGRATION_ID), FLYT_STATUS_NOT_FOUND);
    assert_int_equal(test_boss_apply(boss, 1), FLYT_STATUS_OK);
    /* One within the node is another order's. */
    assert_int_equal(migrate(boss, boss->epoch, 5, 2, 1), FLYT_STATUS_OK);
    assert_int_equal(switch_over(boss, boss->epoch, 5), FLYT_STATUS_NOT_FOUND);
    assert_int_equal(send_back(boss, boss->epoch, 5), FLYT_STATUS_NOT_FOUND);
    until_told(boss, FLYT_MIGRATION_DONE);
    struct test_program vm = begin_program(test);
    assert_int_equal(send_away(boss, &far, boss->epoch - 1), FLYT_STATUS_STALE);
    assert_int_equal(send_away(boss, &far, boss->epoch), FLYT_STATUS_OK);
    test_far_take(&far, &vm);
    until_told(boss, FLYT_MIGRATION_ARRIVED);
    assert_true(boss->migration.id == TEST_MIGRATION_ID && boss->migration.allocation_id == 0x77);
    assert_int_equal(boss->migration.session_count, 1);
    assert_int_equal(switch_over(boss, boss->epoch - 1, TEST_MIGRATION_ID), FLYT_STATUS_STALE);
    assert_int_equal(switch_over(boss, boss->epoch, TEST_MIGRATION_ID), FLYT_STATUS_OK);
    assert_int_equal(boss->asked.phase, FLYT_MIGRATION_SWITCHING);
    assert_string_equal(test_program_ask(test, &vm, NULL), "moved for ever");
    close(vm.fd);
    assert_int_equal(ask_migration(boss, TEST_MIGRATION_ID, true), FLYT_STATUS_CONFLICT);
    assert_int_equal(boss->asked.phase, FLYT_MIGRATION_SWITCHING);
    test_node_until(test, test_boss_has_no_session, boss, "a heartbeat without the session");
    test_node_remove_now(test, 0x77);
    until_told(boss, FLYT_MIGRATION_DONE);
    assert_true(boss->migration.standstill_us > 0);
    test_far_close(&far);
}

/* The switch comes to nothing. */
static void test_from_another_node_again(void **state)
{
    struct test_boss *boss = *state;
    struct test_node *test = boss->test;
    struct test_far far;

    test_far_open(&far, test);
    assert_int_equal(test_boss_apply(boss, 1), FLYT_STATUS_OK);
    struct test_program vm = begin_program(test);
    assert_int_equal(send_away(boss, &far, boss->epoch), FLYT_STATUS_OK);
    test_far_take(&far, &vm);
    until_told(boss, FLYT_MIGRATION_ARRIVED);
    assert_int_equal(switch_over(boss, boss->epoch, TEST_MIGRATION_ID), FLYT_STATUS_OK);
    assert_string_equal(test_program_ask(test, &vm, NULL), "moved for ever");
    close(vm.fd);
    assert_int_equal(send_back(boss, boss->epoch - 1, TEST_MIGRATION_ID), FLYT_STATUS_STALE);
    assert_int_equal(send_back(boss, boss->epoch, TEST_MIGRATION_ID), FLYT_STATUS_OK);
    test_node_come_back(test, &test_boss_ticket, &vm);
    assert_string_equal(test_program_ask(test, &vm, "go_on"), "0");
    until_told(boss, FLYT_MIGRATION_FAILED);
    assert_non_null(strstr(boss->text, "nobody came"));
    assert_string_equal(test_program_ask(test, &vm, "read 1"), "4711");
    assert_int_equal(switch_over(boss, boss->epoch, TEST_MIGRATION_ID), FLYT_STATUS_CONFLICT);
    close(vm.fd);
    while (flyt_node_allocation_find(&test->node, 0x77)->session_count)
        test_node_run(test, 20);
    test_far_close(&far);
}

static flyt_status receive(struct test_boss *boss, uint64_t epoch)
{
    flyt_order_receive_args args = {
        .epoch = epoch, .migration_id = TEST_MIGRATION_ID, .allocation = *test_boss_wish(boss, 1)};

    memset(args.secret, 7, sizeof args.secret);
    test_boss_order(boss, FLYT_ORDER_RECEIVE, (xdrproc_t)xdr_flyt_order_receive_args, &args,
                    (xdrproc_t)xdr_flyt_outcome, sizeof(flyt_outcome), test_boss_on_outcome);
    return boss->status;
}

static bool has_registered_again(struct test_node *test, void *user)
{
    const struct test_boss *boss = user;

    return boss->register_count >= 2 && flyt_node_manager_is_registered(boss->manager);
}

static bool is_told_of(struct test_node *test, void *user)
{
    return ((const struct test_boss *)user)->figures.uses.uses_len == 1;
}

/* Before SWITCH it is no orphan to a cluster manager that does not know it, nor told of. */
static void test_from_another_node(void **state)
{
    struct test_boss *boss = *state;
    struct test_node *test = boss->test;

    assert_int_equal(receive(boss, boss->epoch - 1), FLYT_STATUS_STALE);
    assert_int_equal(receive(boss, boss->epoch), FLYT_STATUS_OK);
    until_told(boss, FLYT_MIGRATION_PREPARING);
    assert_true(boss->migration.id == TEST_MIGRATION_ID && boss->migration.allocation_id == 0x77);
    boss->is_forgetful = true;
    test_node_until(test, has_registered_again, boss, "another registration");
    assert_int_equal(boss->inventory.allocations.allocations_len, 0);
    const struct flyt_node_allocation *allocation = flyt_node_allocation_find(&test->node, 0x77);
    assert_int_equal(allocation->now.state, FLYT_ALLOCATION_ACTIVE);
    assert_int_equal(ask_migration(boss, TEST_MIGRATION_ID, false), FLYT_STATUS_OK);
    assert_int_equal(boss->asked.phase, FLYT_MIGRATION_PREPARING);
    assert_int_equal(switch_over(boss, boss->epoch - 1, TEST_MIGRATION_ID), FLYT_STATUS_STALE);
    assert_int_equal(switch_over(boss, boss->epoch, TEST_MIGRATION_ID), FLYT_STATUS_CONFLICT); /* one is wanted */
    assert_int_equal(ask_migration(boss, TEST_MIGRATION_ID, true), FLYT_STATUS_OK);
    boss->deaf_count = 1; /* it is told once more */
    until_told(boss, FLYT_MIGRATION_FAILED);
    assert_non_null(strstr(boss->text, "the migration was ended"));
    assert_null(flyt_node_allocation_find(&test->node, 0x77));
    assert_int_equal(ask_migration(boss, TEST_MIGRATION_ID, true), FLYT_STATUS_OK);
    assert_int_equal(boss->asked.phase, FLYT_MIGRATION_FAILED);
    assert_int_equal(receive(boss, boss->epoch), FLYT_STATUS_CONFLICT);
    assert_int_equal(switch_over(boss, boss->epoch, TEST_MIGRATION_ID), FLYT_STATUS_CONFLICT);
    /* Without programs it is done at once. */
    flyt_node_receive_find(&test->node, TEST_MIGRATION_ID)->op.id = 1;
    assert_int_equal(receive(boss, boss->epoch), FLYT_STATUS_OK);
    const flyt_order_switch_args none = {boss->epoch, TEST_MIGRATION_ID, 0};
    test_boss_order(boss, FLYT_ORDER_SWITCH, (xdrproc_t)xdr_flyt_order_switch_args, &none,
                    (xdrproc_t)xdr_flyt_order_migration_res, sizeof(flyt_order_migration_res), test_boss_on_migration);
    assert_int_equal(boss->status, FLYT_STATUS_OK);
    until_told(boss, FLYT_MIGRATION_DONE);
    test_node_until(test, is_told_of, boss, "the allocation in a heartbeat");
}

/* Servers are told SEND by it as by one to another node. */
static void test_one_through_host_memory_is_not_switched(void **state)
{
    struct test_boss *boss = *state;
    struct test_node *test = boss->test;

    assert_int_equal(test_boss_apply(boss, 1), FLYT_STATUS_OK);
    const struct flyt_credentials credentials = test_node_credentials(&test_boss_ticket);
    struct test_program vm = test_node_connect(test, &credentials, NULL, false);
    assert_string_equal(test_program_ask(test, &vm, "busy 1"), "0");
    test->node.gpus.items[0].compute_major = 0;
    assert_int_equal(migrate(boss, boss->epoch, 5, 2, 1), FLYT_STATUS_OK);
    assert_true(flyt_node_migration_find(&test->node, 5)->way->is_by_host);
    assert_int_equal(switch_over(boss, boss->epoch, 5), FLYT_STATUS_NOT_FOUND);
    assert_int_equal(send_back(boss, boss->epoch, 5), FLYT_STATUS_NOT_FOUND);
    assert_int_equal(ask_migration(boss, 5, true), FLYT_STATUS_OK);
    test_node_until(test, is_told_end, boss, "its end");
    assert_int_equal(boss->migration.phase, FLYT_MIGRATION_FAILED);
    assert_non_null(strstr(boss->text, "an operator"));
    close(vm.fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_migration, test_boss_set_up, test_boss_tear_down),
        cmocka_unit_test_setup_teardown(test_to_another_node, test_boss_set_up, test_boss_tear_down),
        cmocka_unit_test_setup_teardown(test_from_another_node_again, test_boss_set_up, test_boss_tear_down),
        cmocka_unit_test_setup_teardown(test_from_another_node, test_boss_set_up, test_boss_tear_down),
        cmocka_unit_test_setup_teardown(test_one_through_host_memory_is_not_switched, test_boss_set_up,
                                        test_boss_tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
