/* Tests of migrations (migration.h) that lose what they come from: servers that are left die, and the node manager is
 * restarted. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/node/attach/pool.h"
#include "control/node/ops/ops.h"
#include "control/node/ops/replace.h"
#include "control/node/test/test_migration.h"
#include "control/node/test/test_node.h"
#include "control/node/test/test_replace.h"
#include "rpc/base/fault_point.h"

/* ---- sources ---- */

static void test_a_source_dies_before_it_is_left(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    test_migration_enter(test, programs, 2);
    test_program_say(test, &programs[0], "busy 1", "0");
    test_program_say(test, &programs[0], "replaceable 1", "0");
    test_migration_start(test, 1);
    test_migration_until(test, FLYT_MIGRATION_COPYING);
    test_program_say(test, &programs[0], "die", "gone");
    close(programs[0].fd);
    test_migration_until(test, FLYT_MIGRATION_FAILED);
    test_contains(test_migration_of(test)->op.text, "ended unexpectedly");
    /* It is as replaceable as ever. */
    test_node_come_back(test, &test_one, &programs[0]);
    test_program_say(test, &programs[0], "resumed", "1 1");
    test_program_say(test, &programs[0], "charge 0 1048576", "0");
    test_migration_stayed(test, programs, 2);
    test_node_leave(test, &test_one, programs, 2);
}

static bool is_between_tries(struct test_node *test, void *unused)
{
    return test_migration_of(test)->pause_until_ms;
}

/* Nothing of it is moved then; it waits for its client on the side where the others stay, too. */
static void test_a_source_dies_between_two_tries(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    test_migration_enter(test, programs, 2);
    test_program_say(test, &programs[1], "restless 1", "0");
    test_program_say(test, &programs[0], "replaceable 1", "0");
    test_migration_start(test, 1);
    test_node_until(test, is_between_tries, NULL, "a try that has failed");
    test_migration_of(test)->pause_until_ms = UINT64_MAX; /* however long the rest takes */
    assert_int_equal(kill(test_node_server(test, &programs[0])->pid, SIGKILL), 0);
    test_node_until(test, test_node_is_away, &programs[0], "the session waits without a process");
    close(programs[0].fd);
    test_migration_of(test)->pause_until_ms = 1;
    test_migration_until_failed(test, "has lost its server process meanwhile");
    test_node_come_back(test, &test_one, &programs[0]);
    test_program_say(test, &programs[0], "resumed", "1 1");
    test_program_say(test, &programs[0], "charge 0 1048576", "0");
    test_migration_stayed(test, programs, 2);
    test_node_leave(test, &test_one, programs, 2);
}

/* Its client is on its way to what has been prepared. */
static void test_a_source_dies_when_it_was_left(void **state)
{
    struct test_node *test = *state;

    for (unsigned gpu = 0; gpu < 2; gpu++) {
        struct test_program programs[1];
        test_migration_set_out(test, programs, 1, gpu);
        assert_int_equal(kill(test_node_server(test, &programs[0])->pid, SIGKILL), 0);
        test_node_until(test, test_node_is_away, &programs[0], "the session waits without a process");
        test_migration_go_on(test, &programs[0]);
        test_migration_until(test, FLYT_MIGRATION_DONE);
        test_migration_is_only_on(test, gpu);
        test_program_say(test, &programs[0], "read 1", "4711");
        assert_int_equal(test_node_used_bytes(test, &test_one), 8 * MIB);
        test_node_leave(test, &test_one, programs, 1);
        test_migration_forget(test);
    }
}

static bool is_one_server(struct test_node *test, void *unused)
{
    return !test_migration_of(test)->moves->source;
}

static void test_a_source_dies_when_its_target_has_it(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    test_migration_set_out(test, &program, 1, 1);
    test_node_come_back(test, &test_one, &program);
    assert_int_equal(kill(test_migration_of(test)->moves->source->pid, SIGKILL), 0);
    test_node_until(test, is_one_server, NULL, "the end of the server that was left");
    test_program_say(test, &program, "read 1", "4711");
    test_program_say(test, &program, "go_on", "0");
    test_migration_until(test, FLYT_MIGRATION_DONE);
    test_migration_is_only_on(test, 1);
    test_node_leave(test, &test_one, &program, 1);
}

static bool is_ending(struct test_node *test, void *server)
{
    return ((const struct flyt_node_server *)server)->state == FLYT_NODE_SERVER_ENDING;
}

static bool has_no_warm_server(struct test_node *test, void *user)
{
    const struct flyt_node_starts *starts = user;

    return !starts->warm && !starts->starting;
}

/* What was prepared for it takes its time to end: its client is given to another server meanwhile. */
static void test_a_source_dies_while_its_cancelled_target_ends(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    test_migration_enter(test, &program, 1);
    test_program_say(test, &program, "busy 1", "0");
    test_program_say(test, &program, "replaceable 1", "0");
    test_migration_start(test, 1);
    test_migration_until(test, FLYT_MIGRATION_COPYING);
    struct flyt_node_server *target = test_migration_of(test)->moves->target.server;
    const pid_t pid = target->pid;
    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(flyt_node_migration_cancel(test_migration_of(test), "enough"), 0);
    test_node_until(test, is_ending, target, "the target is told to end");
    test->settings.warm = 0;
    test->node.starts[0].after_ms = UINT64_MAX;
    flyt_node_pool_fill(&test->node);
    test_node_until(test, has_no_warm_server, &test->node.starts[0], "no server is warm, or becomes so");
    assert_int_equal(kill(test_node_server(test, &program)->pid, SIGKILL), 0);
    test_node_until(test, test_node_is_away, &program, "the session waits without a process");
    close(program.fd);
    struct flyt_node_session *session = flyt_node_session_find(&test->node, program.session_id);
    assert_ptr_equal(session->target, target);
    assert_null(flyt_node_replace_server(session)); /* its client is held until one is warm */
    test->node.starts[0].after_ms = 0;
    test_replace_come_back(test, &test_one, &program);
    assert_int_equal(target->state, FLYT_NODE_SERVER_ENDING);
    assert_int_not_equal(test_node_server(test, &program)->pid, pid);
    test_program_say(test, &program, "resumed", "1 1");
    test_program_say(test, &program, "charge 0 1048576", "0");
    assert_int_equal(kill(pid, SIGCONT), 0);
    test_migration_until_failed(test, "enough");
    test_migration_stayed(test, &program, 1);
    test_node_leave(test, &test_one, &program, 1);
}

/* ---- memory that two servers have ---- */

static pid_t freeze(const struct flyt_node_server *server)
{
    assert_int_equal(kill(server->pid, SIGSTOP), 0);
    return server->pid;
}

/* The session ends, and a process that has its memory does not yet: that is charged until it has gone. */
static void stays_charged(struct test_node *test, const struct test_program *program, pid_t frozen, uint64_t bytes)
{
    close(program->fd);
    test_node_until_empty(test, &test_one);
    assert_int_equal(test_node_used_bytes(test, &test_one), bytes);
    assert_int_equal(kill(frozen, SIGKILL), 0);
    test_node_until_used(test, &test_one, 0);
}

static void test_a_target_outlives_its_session(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    test_migration_enter(test, &program, 1);
    test_program_say(test, &program, "busy 1", "0");
    test_migration_start(test, 0);
    test_migration_until_stage(test, FLYT_NODE_MOVE_COPYING, FLYT_NODE_TARGET_LOADING);
    stays_charged(test, &program, freeze(test_migration_of(test)->moves->target.server), 9 * MIB);
}

static void test_a_source_outlives_its_session(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    test_migration_set_out(test, &program, 1, 0);
    test_node_come_back(test, &test_one, &program);
    pid_t frozen = freeze(test_migration_of(test)->moves->source);
    test_program_say(test, &program, "go_on", "0");
    test_migration_until_one_has_moved(test);
    stays_charged(test, &program, frozen, 8 * MIB);
}

static bool are_left(struct test_node *test, void *unused)
{
    unsigned left = 0;

    for (const struct flyt_node_server *server = test->node.servers; server; server = server->next)
        left += server->state == FLYT_NODE_SERVER_LEFT;
    return left == 2;
}

static bool have_gone(struct test_node *test, void *pids)
{
    for (const struct flyt_node_server *server = test->node.servers; server; server = server->next)
        if (server->pid == ((pid_t *)pids)[0] || server->pid == ((pid_t *)pids)[1])
            return false;
    return true;
}

/* The servers that were left are killed as soon as the sessions go on: those that hang too, which else have kill_grace.
 * Nothing comes of it. */
static void test_sources_killed_after_the_switch(void **state)
{
    struct test_node *test = *state;

    for (unsigned gpu = 0; gpu < 2; gpu++) {
        struct test_program programs[2];
        pid_t pids[2];
        test_migration_enter(test, programs, 2);
        assert_int_equal(flyt_fault_set("node.migrate.source_end:error"), 0);
        for (unsigned i = 0; i < 2; i++)
            pids[i] = test_node_server(test, &programs[i])->pid;
        test_migration_start(test, gpu);
        for (unsigned i = 0; i < 2; i++)
            test_migration_is_told_to_leave(test, &programs[i]);
        test_node_until(test, are_left, NULL, "both are left");
        for (unsigned i = 0; i < 2; i++)
            assert_int_equal(kill(pids[i], SIGSTOP), 0);
        for (unsigned i = 0; i < 2; i++)
            test_migration_go_on(test, &programs[i]);
        test_migration_until(test, FLYT_MIGRATION_DONE);
        test_node_until(test, have_gone, pids, "their ends");
        assert_int_equal(flyt_fault_set(NULL), 0);
        test_migration_is_only_on(test, gpu);
        for (unsigned i = 0; i < 2; i++)
            test_program_say(test, &programs[i], "read 1", "4711");
        assert_int_equal(test_node_used_bytes(test, &test_one), 2 * 8 * MIB);
        test_node_leave(test, &test_one, programs, 2);
        test_migration_forget(test);
    }
}

/* One that hangs is killed. */
static void test_a_source_that_does_not_end(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    test_migration_enter(test, &program, 1);
    test_program_say(test, &program, "stubborn", "0");
    test->settings.kill_grace_ms = TEST_GRACE_MS;
    test_migration_start(test, 1);
    test_migration_is_told_to_leave(test, &program);
    test_migration_go_on(test, &program);
    test_migration_until(test, FLYT_MIGRATION_DONE);
    test_migration_is_only_on(test, 1);
    test_node_leave(test, &test_one, &program, 1);
}

/* ---- the node manager is restarted ---- */

static bool is_served(struct test_node *test, void *user)
{
    const struct flyt_node_server *server = test_node_server(test, user);

    return server && server->has.extents.count && !server->came_with;
}

static void restart(struct test_node *test, struct test_program *programs, unsigned count)
{
    test_node_stop(test);
    test_node_start(test);
    assert_null(test->node.ops->operations[FLYT_NODE_OPERATION_MIGRATION]);
    for (unsigned i = 0; i < count; i++)
        test_node_until(test, is_served, &programs[i], "the server comes back");
}

static void test_a_restart_before_the_commit(void **state)
{
    struct test_node *test = *state;
    static const char *const lines[] = {"busy 1", "mute 1"};
    static const flyt_migration_phase phases[] = {FLYT_MIGRATION_COPYING, FLYT_MIGRATION_STOPPING};

    for (size_t i = 0; i < 2; i++) {
        struct test_program programs[2];
        test_migration_enter(test, programs, 2);
        test_program_say(test, &programs[0], lines[i], "0");
        test_migration_start(test, 1);
        test_migration_until(test, phases[i]);
        restart(test, programs, 2);
        test_node_until_warm(test);
        test_migration_stayed(test, programs, 2);
        test_node_leave(test, &test_one, programs, 2);
        test_migration_forget(test);
    }
}

/* The clients were told to leave; who was to take them has gone with the node manager. */
static void test_a_restart_after_the_commit(void **state)
{
    struct test_node *test = *state;

    for (unsigned gpu = 0; gpu < 2; gpu++) {
        struct test_program programs[2];
        test_migration_set_out(test, programs, 2, gpu);
        restart(test, programs, 2);
        for (unsigned i = 0; i < 2; i++) {
            test_node_come_back(test, &test_one, &programs[i]);
            test_program_say(test, &programs[i], "resumed", "no");
            test_program_say(test, &programs[i], "go_on", "0");
            test_program_say(test, &programs[i], "read 1", "4711");
        }
        assert_int_equal(test_migration_allocation(test)->slots[0].gpu->index, 0);
        assert_null(test_migration_allocation(test)->slots[0].held_gpu);
        assert_int_equal(test_node_used_bytes(test, &test_one), 18 * MIB);
        test_node_leave(test, &test_one, programs, 2);
        test_migration_forget(test);
    }
}

static bool has_gone(struct test_node *test, void *user)
{
    return waitpid(*(const pid_t *)user, NULL, WNOHANG) != 0; /* the node manager of before had started it */
}

/* The target has the session: it comes back with it, and the one that was left is sent away. */
static void test_a_restart_when_the_target_has_it(void **state)
{
    struct test_node *test = *state;

    for (unsigned gpu = 0; gpu < 2; gpu++) {
        struct test_program programs[1];
        test_migration_reach_target(test, programs, gpu);
        const struct flyt_node_server *source = test_migration_of(test)->moves->source;
        pid_t pid = source->pid;
        restart(test, programs, 1);
        test_program_say(test, &programs[0], "go_on", "0");
        test_program_say(test, &programs[0], "read 1", "4711");
        test_node_until(test, has_gone, &pid, "the end of the server that was left");
        assert_int_equal(test_migration_allocation(test)->slots[0].gpu->index, gpu);
        assert_int_equal(test_migration_allocation(test)->session_count, 1);
        assert_int_equal(test_node_used_bytes(test, &test_one), 8 * MIB);
        test_node_leave(test, &test_one, programs, 1);
        test_migration_forget(test);
    }
}

static bool is_one_session(struct test_node *test, void *unused)
{
    return test_migration_allocation(test)->session_count == 1;
}

/* One has gone on at its target when the node manager is restarted, the other has not. */
static void test_a_restart_in_between(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    test_migration_set_out(test, programs, 2, 1);
    test_migration_go_on(test, &programs[0]);
    test_migration_until_one_has_moved(test);
    restart(test, programs, 1);
    test_node_come_in_vain(test, &test_one, &programs[1]);
    test_node_end_rejoining(test); /* what its servers had is counted till then, where they have not come back */
    test_program_say(test, &programs[0], "read 1", "4711");
    assert_int_equal(test_migration_allocation(test)->slots[0].gpu->index, 1);
    test_node_until(test, is_one_session, NULL, "the end of the other session"); /* its server may take a moment */
    test_node_leave(test, &test_one, programs, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_NODE(test_a_source_dies_before_it_is_left),
        TEST_NODE(test_a_source_dies_between_two_tries),
        TEST_NODE(test_a_source_dies_while_its_cancelled_target_ends),
        TEST_NODE(test_a_source_dies_when_it_was_left),
        TEST_NODE(test_a_source_dies_when_its_target_has_it),
        TEST_NODE(test_a_target_outlives_its_session),
        TEST_NODE(test_a_source_outlives_its_session),
        TEST_NODE(test_sources_killed_after_the_switch),
        TEST_NODE(test_a_source_that_does_not_end),
        TEST_NODE(test_a_restart_before_the_commit),
        TEST_NODE(test_a_restart_after_the_commit),
        TEST_NODE(test_a_restart_when_the_target_has_it),
        TEST_NODE(test_a_restart_in_between),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
