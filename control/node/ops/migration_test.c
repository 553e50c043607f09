/* Tests of VMs that move while their programs run (migration.h), as it should be and as it is refused; others in
 * migration_failure_test.c, migration_switch_test.c and migration_source_test.c. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/node/ops/move_state.h"
#include "control/node/ops/ops.h"
#include "control/node/state/remembered.h"
#include "control/node/test/test_migration.h"
#include "control/node/test/test_node.h"
#include "control/node/uplink/report.h"
#include "rpc/base/clock.h"
#include "rpc/base/fault_point.h"

/* ---- as it should be ---- */

static void move_all(struct test_node *test, unsigned gpu, unsigned count)
{
    struct test_program programs[4];
    char before[128], after[128];
    pid_t pids[4];

    test_migration_enter(test, programs, count);
    strcpy(before, test_program_ask(test, &programs[0], "memory 1"));
    for (unsigned i = 0; i < count; i++)
        pids[i] = test_node_server(test, &programs[i])->pid;
    test_migration_start(test, gpu);
    /* Nobody else is given either side meanwhile. */
    assert_int_equal(test_migration_wish_other(test, 0, 0).status, FLYT_STATUS_CONFLICT);
    assert_int_equal(test_migration_wish_other(test, gpu, 8).status, FLYT_STATUS_CONFLICT);
    test_migration_until(test, FLYT_MIGRATION_SWITCHING);
    assert_int_equal(test_migration_allocation(test)->now.revision, 2);
    assert_int_equal(test_migration_wish_other(test, 0, 0).status, FLYT_STATUS_CONFLICT);
    assert_int_equal(test_migration_wish_other(test, gpu, 8).status, FLYT_STATUS_CONFLICT);
    for (unsigned i = 0; i < count; i++) {
        test_migration_is_told_to_leave(test, &programs[i]);
        assert_int_equal(test_node_use(test, test_one.id).session_count, count);
        test_node_come_back(test, &test_one, &programs[i]);
        test_program_say(test, &programs[i], "resumed", "1 1");
        test_program_say(test, &programs[i], "read 1", "4711");
        test_program_say(test, &programs[i], "libraries", "1");
        test_program_say(test, &programs[i], "locks", "2");
        test_program_say(test, &programs[i], "go_on", "0");
        assert_int_not_equal(test_node_server(test, &programs[i])->pid, pids[i]);
    }
    test_migration_until(test, FLYT_MIGRATION_DONE);
    for (const struct flyt_node_server *server = test->node.servers; server; server = server->next)
        for (unsigned i = 0; i < count; i++)
            assert_true(server->pid != pids[i]); /* those that were left have gone */
    test_migration_is_only_on(test, gpu);
    assert_int_equal(test_node_used_bytes(test, &test_one), count * 8 * MIB);
    strcpy(after, test_program_ask(test, &programs[0], "memory 1"));
    assert_int_equal(strcmp(before, after) == 0, gpu == 0); /* given, or made anew */
    assert_int_equal(test_migration_wish_other(test, 0, 0).status, FLYT_STATUS_OK);
    assert_int_equal(test->node.sessions_moved, count);
    test_contains(test->last_event, "migration.done");
    /* They go on as any others: memory comes and goes, and they may move again. */
    for (unsigned i = 0; i < count; i++) {
        test_program_say(test, &programs[i], "extent 2 0 1048576", "0");
        test_program_say(test, &programs[i], "drop 1", "8388608");
        test_program_say(test, &programs[i], "drop 2", "1048576");
    }
    assert_int_equal(test_node_used_bytes(test, &test_one), 0);
    test_node_leave(test, &test_one, programs, count);
}

static void test_one_session(void **state)
{
    move_all(*state, 1, 1);
}

static void test_three_sessions(void **state)
{
    move_all(*state, 1, 3);
}

static void test_one_session_on_the_same_gpu(void **state)
{
    move_all(*state, 0, 1);
}

static void test_three_sessions_on_the_same_gpu(void **state)
{
    move_all(*state, 0, 3);
}

/* A server that nobody waits for is not started then (pool.c). */
static void test_when_there_is_haste(void **state)
{
    static const enum flyt_node_move_stage stages[] = {
        FLYT_NODE_MOVE_ASKED, FLYT_NODE_MOVE_COPYING,   FLYT_NODE_MOVE_STOPPING, FLYT_NODE_MOVE_STOPPED,
        FLYT_NODE_MOVE_LEFT,  FLYT_NODE_MOVE_RETURNING, FLYT_NODE_MOVE_OVER};
    static const struct flyt_node_target_ops target_ops = {.role = {.kind = FLYT_NODE_ROLE_MOVE_TARGET}};
    struct flyt_node_ops ops = {0};
    struct flyt_node node = {.ops = &ops};
    struct flyt_node_migration migration = {.op.node = &node};
    struct flyt_node_move move = {.migration = &migration};

    flyt_node_target_init(&move.target, &node, &migration.op, &target_ops);
    assert_false(flyt_node_targets_are_hasty(&node));
    for (int is_brief = 0; is_brief < 2; is_brief++) {
        move.stage = FLYT_NODE_MOVE_NEW;
        move.target.state = FLYT_NODE_TARGET_NEW;
        for (unsigned i = 0; i < sizeof stages / sizeof *stages; i++) {
            const enum flyt_node_move_stage stage = stages[i];
            const unsigned first = is_brief ? FLYT_NODE_MOVE_COPYING : FLYT_NODE_MOVE_STOPPING;
            const struct flyt_node_way_ends ends = {
                .is_same_node = true, .is_same_gpu = is_brief, .is_same_capability = true, .is_reachable = true};
            move.way = flyt_node_way_between(&ends);
            if (stage == FLYT_NODE_MOVE_COPYING)
                move.target.state = FLYT_NODE_TARGET_PREPARING;
            flyt_node_move_set_stage(&move, stage);
            assert_int_equal(move.target.hasty_until_ms != 0, stage >= first && stage < FLYT_NODE_MOVE_OVER);
        }
    }
    move.target.hasty_until_ms = flyt_clock_ms() + 3600 * 1000; /* however late this is executed */
    assert_true(flyt_node_targets_are_hasty(&node));
    move.target.hasty_until_ms = 1; /* that has lasted */
    assert_false(flyt_node_targets_are_hasty(&node));
    flyt_node_target_fini(&move.target);
    assert_null(ops.targets);
}

static void test_nobody_runs(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &test_one);
    test_migration_start(test, 1);
    test_migration_until(test, FLYT_MIGRATION_DONE);
    test_migration_is_only_on(test, 1);
    struct test_program program = test_node_enter(test, &test_one);
    assert_int_equal(test_node_server(test, &program)->gpu->index, 1);
    test_program_say(test, &program, "groups 0", "00000f00");
    test_node_leave(test, &test_one, &program, 1);
}

/* What is told of it, during and afterwards. */
static void test_figures(void **state)
{
    struct test_node *test = *state;
    struct test_program program;
    flyt_migration_use use;
    flyt_heartbeat_args args;

    test_migration_enter(test, &program, 1);
    test_program_say(test, &program, "extent 2 0 8388608", "0");
    test_migration_start(test, 1);
    assert_int_equal(test->node.migrations_ended, 0);
    test_migration_until(test, FLYT_MIGRATION_SWITCHING);
    flyt_node_operation_use(&test_migration_of(test)->op, &use);
    assert_true(use.id == TEST_MIGRATION_ID && use.allocation_id == test_one.id);
    assert_int_equal(use.session_count, 1);
    assert_int_equal(use.round, 2);
    assert_int_equal(use.memory_bytes, 2 * 4096);
    assert_int_equal(use.copied_bytes, 4 * 4096);
    assert_int_equal(use.last_bytes, 4096);
    assert_int_equal(use.standstill_us, 0);
    test_migration_is_told_to_leave(test, &program);
    test_node_come_back(test, &test_one, &program);
    /* Two servers, one session. */
    assert_int_equal(flyt_node_report_figures(&test->node, 1, &args), 0);
    assert_int_equal(args.sessions.sessions_len, 1);
    assert_int_equal(args.sessions.sessions_val[0].server_pid, test_node_server(test, &program)->pid);
    xdr_free((xdrproc_t)xdr_flyt_heartbeat_args, &args);
    test_program_say(test, &program, "go_on", "0");
    test_migration_until(test, FLYT_MIGRATION_DONE);
    flyt_node_operation_use(&test_migration_of(test)->op, &use);
    assert_int_equal(use.session_count, 1);
    assert_int_equal(use.copied_bytes, 4 * 4096);
    assert_int_equal(use.memory_bytes, 2 * 4096);
    assert_true(use.standstill_us > 0);
    assert_int_equal(use.outcome.status, FLYT_STATUS_OK);
    assert_int_equal(test->node.migrations_done, 1);
    test_program_say(test, &program, "state", "5 1"); /* so many lines before STOP */
    test_node_leave(test, &test_one, &program, 1);
}

static void test_memory_comes_and_goes_meanwhile(void **state)
{
    struct test_node *test = *state;

    for (unsigned gpu = 0; gpu < 2; gpu++) {
        struct test_program programs[2];
        test_migration_enter(test, programs, 1);
        test_program_say(test, &programs[0], "extent 2 0 1048576", "0");
        test_program_say(test, &programs[0], "busy 1", "0");
        test_migration_start(test, gpu);
        test_migration_until(test, FLYT_MIGRATION_COPYING);
        test_program_say(test, &programs[0], "extent 3 0 2097152", "0");
        test_program_say(test, &programs[0], "write 3 33", "0");
        test_program_say(test, &programs[0], "drop 2", "1048576");
        test_program_say(test, &programs[0], "library 8", "0");
        /* Made and gone before anybody can have answered. */
        test_program_say(test, &programs[0], "extent 4 0 65536", "0");
        test_program_say(test, &programs[0], "drop 4", "65536");
        /* One that begins joins. */
        programs[1] = test_node_enter(test, &test_one);
        test_program_say(test, &programs[1], "busy 1", "0");
        assert_int_equal(test_node_server(test, &programs[1])->gpu->index, 0);
        test_program_say(test, &programs[1], "extent 1 0 1048576", "0");
        test_program_say(test, &programs[1], "write 1 55", "0");
        test_node_run(test, 300);
        assert_int_equal(test_migration_of(test)->op.phase, FLYT_MIGRATION_COPYING);
        test_program_say(test, &programs[0], "write 1 44", "0");
        test_program_say(test, &programs[0], "busy 0", "0");
        test_program_say(test, &programs[1], "busy 0", "0");
        test_migration_until(test, FLYT_MIGRATION_SWITCHING);
        for (unsigned i = 0; i < 2; i++) {
            test_migration_is_told_to_leave(test, &programs[i]);
            test_migration_go_on(test, &programs[i]);
        }
        test_migration_until(test, FLYT_MIGRATION_DONE);
        test_migration_is_only_on(test, gpu);
        test_program_say(test, &programs[0], "resumed", "2 4");
        test_program_say(test, &programs[0], "read 1", "44");
        test_program_say(test, &programs[0], "read 3", "33");
        test_program_say(test, &programs[0], "memory 2", "none");
        test_program_say(test, &programs[0], "libraries", "2");
        test_program_say(test, &programs[1], "read 1", "55");
        assert_int_equal(test_node_used_bytes(test, &test_one), 11 * MIB);
        test_node_leave(test, &test_one, programs, 2);
        test_node_stop(test);
        char path[128];
        snprintf(path, sizeof path, "%s/state.json", test->folder);
        assert_int_equal(unlink(path), 0);
        test_node_start(test);
        test_node_until_warm(test);
    }
}

/* More than a socket takes at once, in both directions. */
static void test_many_extents(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    test_node_grant(test, &test_one);
    program = test_node_enter(test, &test_one);
    test_program_say(test, &program, "extents 400 0 65536", "0");
    test_program_say(test, &program, "write 400 17", "0");
    for (unsigned round = 0; round < 2; round++) {
        struct test_wish wish = test_migration_target(1 - round);
        wish.revision = 2 + round;
        wish.first_group = 8 - 8 * round;
        const flyt_migration_bounds bounds = {0};
        assert_int_equal(test_migration_order(test, TEST_MIGRATION_ID + round, &wish, &bounds, NULL), FLYT_STATUS_OK);
        test_migration_is_told_to_leave(test, &program);
        test_migration_go_on(test, &program);
        test_program_say(test, &program, "resumed", "400 400");
        test_program_say(test, &program, "read 400", "17");
        const flyt_migration_phase done = FLYT_MIGRATION_DONE;
        while (test->node.ops->operations[FLYT_NODE_OPERATION_MIGRATION]->phase < done)
            test_node_run(test, 20);
        test_migration_is_only_on(test, 1 - round);
        assert_int_equal(test_node_used_bytes(test, &test_one), 400 * 65536);
    }
    test_node_leave(test, &test_one, &program, 1);
}

/* One ends while it is moved: the others move. */
static void test_a_program_ends_meanwhile(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    test_migration_enter(test, programs, 2);
    test_program_say(test, &programs[0], "busy 1", "0");
    test_migration_start(test, 1);
    test_migration_until(test, FLYT_MIGRATION_COPYING);
    test_program_say(test, &programs[0], "quit", "gone");
    close(programs[0].fd);
    test_migration_is_told_to_leave(test, &programs[1]);
    test_migration_go_on(test, &programs[1]);
    test_migration_until(test, FLYT_MIGRATION_DONE);
    test_migration_is_only_on(test, 1);
    test_node_leave(test, &test_one, &programs[1], 1);
}

/* ---- what is refused ---- */

static void is_refused(struct test_node *test, uint64_t id, const struct test_wish *wish, flyt_status status,
                       const char *words)
{
    const flyt_migration_bounds bounds = {0};
    struct flyt_error err = {0};

    assert_int_equal(test_migration_order(test, id, wish, &bounds, &err), status);
    test_contains(err.text, words);
}

/* A program that was let in, and for which no server is ready yet, has its client slot. */
static void test_a_slot_that_is_promised(void **state)
{
    const struct test_wish wish = test_migration_target(1);
    struct test_node *test = *state;
    struct test_program program;
    struct test_wish other = test_other;

    test_migration_enter(test, &program, 1);
    other.gpu = 1;
    test_node_grant(test, &other);
    struct test_program waiting = test_node_let_wait(test, &other);
    const uint64_t slots = test->settings.client_slots;
    test->settings.client_slots = 1;
    is_refused(test, 5, &wish, FLYT_STATUS_NO_CAPACITY, "client slots");
    test->settings.client_slots = slots;
    test_node_let_start(test, &other, &waiting);
    test_node_leave(test, &other, &waiting, 1);
    test_node_leave(test, &test_one, &program, 1);
}

static void test_refusals(void **state)
{
    struct test_node *test = *state;
    struct test_program program;
    struct test_wish wish = test_migration_target(1);

    is_refused(test, 5, &wish, FLYT_STATUS_NOT_FOUND, "no such allocation");
    test_migration_enter(test, &program, 1);
    is_refused(test, 0, &wish, FLYT_STATUS_INVALID, "needs an id");
    wish.revision = 1;
    is_refused(test, 5, &wish, FLYT_STATUS_STALE, "has revision 1");
    wish = test_migration_target(7);
    is_refused(test, 5, &wish, FLYT_STATUS_NOT_FOUND, "has no GPU");
    wish = test_migration_target(1);
    wish.is_strict = true;
    is_refused(test, 5, &wish, FLYT_STATUS_INVALID, "class");
    wish = test_migration_target(1);
    wish.first_group = 14;
    is_refused(test, 5, &wish, FLYT_STATUS_INVALID, "no group 16");
    wish = test_migration_target(1);
    wish.memory_bytes = 2048 * MIB;
    is_refused(test, 5, &wish, FLYT_STATUS_NO_CAPACITY, "no room");
    wish.memory_bytes = 8 * MIB;
    is_refused(test, 5, &wish, FLYT_STATUS_IN_USE, "in use");
    wish = test_migration_target(1);
    assert_int_equal(test_migration_wish_other(test, 1, 8).status, FLYT_STATUS_OK);
    is_refused(test, 5, &wish, FLYT_STATUS_CONFLICT, "still used by VM 10.0.0.2");
    wish.first_group = 0;
    uint64_t slots = test->settings.client_slots;
    test->settings.client_slots = 1;
    is_refused(test, 5, &wish, FLYT_STATUS_NO_CAPACITY, "client slots");
    test->settings.client_slots = slots;
    test->node.gpus.items[1].health = FLYT_HEALTH_FAILED;
    is_refused(test, 5, &wish, FLYT_STATUS_UNAVAILABLE, "has failed");
    test->node.gpus.items[1].health = FLYT_HEALTH_OK;
    assert_int_equal(flyt_fault_set("node.migrate.accept:error"), 0);
    is_refused(test, 5, &wish, FLYT_STATUS_UNAVAILABLE, "node.migrate.accept");
    assert_int_equal(flyt_fault_set(NULL), 0);
    assert_null(test->node.ops->operations[FLYT_NODE_OPERATION_MIGRATION]);
    test_migration_is_only_on(test, 0);
    test_node_leave(test, &test_one, &program, 1);
}

static bool says_it_cannot(struct test_node *test, void *user)
{
    const struct flyt_node_server *server = test_node_server(test, user);

    return server->has.has_use && !server->has.use.can_move;
}

static bool says_it_can(struct test_node *test, void *user)
{
    return test_node_server(test, user)->has.use.can_move;
}

static void test_sessions_that_cannot(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];
    struct test_wish wish = test_migration_target(1);

    test_migration_enter(test, programs, 2);
    test_program_say(test, &programs[1], "movable 0", "0");
    test_node_until(test, says_it_cannot, &programs[1], "it says that it cannot be moved");
    is_refused(test, 5, &wish, FLYT_STATUS_NOT_SUPPORTED, "test_program of VM 10.0.0.1 cannot be moved");
    test_program_say(test, &programs[1], "movable 1", "0"); /* an older server: within the node */
    test_program_say(test, &programs[1], "refusing 1", "0");
    test_node_until(test, says_it_can, &programs[1], "it says that it can be moved");
    test_migration_start(test, 1);
    test_migration_until_failed(test, "a kernel of it allocates memory");
    assert_int_equal(test_migration_of(test)->op.status, FLYT_STATUS_NOT_SUPPORTED);
    test_contains(test_migration_of(test)->op.text, "program test_program of VM 10.0.0.1");
    /* One that waits for its client. */
    test_program_say(test, &programs[1], "replaceable 1", "0");
    test_program_say(test, &programs[1], "die", "gone");
    close(programs[1].fd);
    test_node_until(test, test_node_is_away, &programs[1], "the session waits for its client");
    is_refused(test, 5, &wish, FLYT_STATUS_IN_USE, "has lost its server process");
    test_node_come_back(test, &test_one, &programs[1]);
    test_contains(test->last_event, "session.resumed");
    test_program_say(test, &programs[1], "write 1 4711", "0");
    test_program_say(test, &programs[1], "charge 0 1048576", "0");
    test_migration_stayed(test, programs, 2);
    test_node_leave(test, &test_one, programs, 2);
}

static void test_one_at_a_time(void **state)
{
    struct test_node *test = *state;
    struct test_program program;
    struct test_wish wish = test_migration_target(1);
    const flyt_migration_bounds none = {0};

    test_migration_enter(test, &program, 1);
    test_program_say(test, &program, "busy 1", "0");
    test_migration_start(test, 1);
    /* The same one again is what there is. */
    assert_int_equal(test_migration_order(test, TEST_MIGRATION_ID, &wish, &none, NULL), FLYT_STATUS_OK);
    wish.revision = 3;
    is_refused(test, 5, &wish, FLYT_STATUS_CONFLICT, "a migration of VM 10.0.0.1 is under way");
    /* Nor is it changed otherwise. */
    wish = test_one;
    wish.revision = 2;
    wish.memory_bytes = 50 * MIB;
    struct test_outcome outcome = test_node_order(test, &wish);
    assert_int_equal(outcome.status, FLYT_STATUS_CONFLICT);
    test_contains(outcome.text, "a migration of VM 10.0.0.1 is under way");
    assert_int_equal(test_node_order(test, &test_one).status, FLYT_STATUS_OK); /* as it is */
    test_program_say(test, &program, "busy 0", "0");
    test_migration_is_told_to_leave(test, &program);
    test_migration_go_on(test, &program);
    test_migration_until(test, FLYT_MIGRATION_DONE);
    assert_int_equal(test_migration_order(test, TEST_MIGRATION_ID, &wish, &none, NULL), FLYT_STATUS_OK);
    assert_int_equal(test_migration_of(test)->op.phase, FLYT_MIGRATION_DONE);
    test_migration_is_only_on(test, 1);
    test_node_leave(test, &test_one, &program, 1);
}

/* ---- others ---- */

static int on_cancel(sd_event_source *source, uint64_t usec, void *user)
{
    flyt_node_migration_cancel(user, "an operator has ended the migration");
    return 0;
}

/* While the others stand still one that begins waits; here until it is clear that they stay. */
static void test_a_program_that_begins_waits(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];
    sd_event_source *timer = NULL;

    test_migration_enter(test, programs, 1);
    test_program_say(test, &programs[0], "mute 1", "0");
    test_migration_start(test, 1);
    test_migration_until(test, FLYT_MIGRATION_STOPPING);
    assert_true(sd_event_add_time_relative(test->event, &timer, CLOCK_MONOTONIC, 500000, 1, on_cancel,
                                           test_migration_of(test)) >= 0);
    programs[1] = test_node_enter(test, &test_one);
    assert_int_not_equal(test_migration_of(test)->op.status, FLYT_STATUS_OK); /* not before */
    assert_int_equal(test_node_server(test, &programs[1])->gpu->index, 0);
    test_migration_until_failed(test, "an operator");
    sd_event_source_disable_unref(timer);
    test_node_leave(test, &test_one, programs, 2);
}

static void remove_in(struct test_node *test, flyt_migration_phase phase, const char *line)
{
    struct test_program programs[2];

    test_migration_enter(test, programs, 2);
    if (line)
        test_program_say(test, &programs[0], line, "0");
    test_migration_start(test, 1);
    test_migration_until(test, phase);
    test_node_remove_now(test, test_one.id);
    test_migration_until(test, FLYT_MIGRATION_FAILED);
    for (unsigned i = 0; i < 2; i++)
        close(programs[i].fd);
    assert_int_equal(test->node.starts[0].serving + test->node.starts[1].serving, 0);
    flyt_node_migrations_fini(&test->node);
}

static void test_the_allocation_is_removed(void **state)
{
    struct test_node *test = *state;

    remove_in(test, FLYT_MIGRATION_PREPARING, NULL);
    remove_in(test, FLYT_MIGRATION_COPYING, "busy 1");
    remove_in(test, FLYT_MIGRATION_STOPPING, "mute 1");
    remove_in(test, FLYT_MIGRATION_SWITCHING, NULL);
}

/* Ended ones are remembered, so many, and those whose end was not told yet; metrics have seen all. */
static void test_what_is_remembered(void **state)
{
    struct test_node *test = *state;
    const flyt_migration_bounds none = {0};
    struct test_wish wish = test_migration_target(0);
    const unsigned count = FLYT_NODE_TOMBSTONES_MAX + 3;
    struct flyt_metrics *registry = flyt_metrics_new();
    char line[80];

    test->node.metrics = flyt_node_metrics_new(registry);
    test->node.observe = flyt_node_metrics_observe;
    assert_non_null(test->node.metrics);

    test_node_grant(test, &test_one);
    for (unsigned i = 0; i < count; i++) {
        wish.gpu = i % 2;
        wish.revision = 2 + i;
        assert_int_equal(test_migration_order(test, 1 + i, &wish, &none, NULL), FLYT_STATUS_OK);
        while (!flyt_node_operation_has_ended(&flyt_node_migration_find(&test->node, 1 + i)->op))
            assert_true(sd_event_run(test->event, 20000) >= 0);
        flyt_node_migration_find(&test->node, 1 + i)->op.is_told = i != 1;
    }
    for (unsigned i = 0; i < count; i++) {
        const struct flyt_node_migration *its = flyt_node_migration_find(&test->node, 1 + i);
        assert_int_equal(its != NULL, i >= 3 || i == 1);
        assert_true(!its || its->op.phase == FLYT_MIGRATION_DONE);
    }
    flyt_node_metrics_refresh(test->node.metrics, &test->node);
    char *text = flyt_metrics_text(registry);
    snprintf(line, sizeof line, "flyt_node_migration_standstill_seconds_count %u\n", count);
    test_contains(text, line);
    snprintf(line, sizeof line, "flyt_node_migration_rounds_count %u\n", count);
    test_contains(text, line);
    free(text);
    test->node.observe = NULL;
    test->node.metrics = flyt_node_metrics_free(test->node.metrics);
    flyt_metrics_free(registry);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_NODE(test_one_session),
        TEST_NODE(test_three_sessions),
        TEST_NODE(test_one_session_on_the_same_gpu),
        TEST_NODE(test_three_sessions_on_the_same_gpu),
        cmocka_unit_test(test_when_there_is_haste),
        TEST_NODE(test_nobody_runs),
        TEST_NODE(test_figures),
        TEST_NODE(test_memory_comes_and_goes_meanwhile),
        TEST_NODE(test_many_extents),
        TEST_NODE(test_a_program_ends_meanwhile),
        TEST_NODE(test_a_slot_that_is_promised),
        TEST_NODE(test_refusals),
        TEST_NODE(test_sessions_that_cannot),
        TEST_NODE(test_one_at_a_time),
        TEST_NODE(test_a_program_that_begins_waits),
        TEST_NODE(test_the_allocation_is_removed),
        TEST_NODE(test_what_is_remembered),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
