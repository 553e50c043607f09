/* Tests of migrations (migration.h) between GPUs that cannot reach each other's memory, or are of different compute
 * capabilities: it goes through the host's. With fake servers that say so of every mirror, or find such GPUs. */
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

#include "control/node/test/test_migration.h"
#include "control/node/test/test_node.h"

#define NO_PEERS "fake.mirror:error"

static void enter(struct test_node *test, struct test_program *programs, unsigned count, const char *server_points)
{
    test_node_make_fail(test, NULL, server_points);
    test_migration_enter(test, programs, count);
}

static bool goes_by_host(struct test_node *test, void *unused)
{
    return test_migration_of(test)->way->is_by_host;
}

static void test_memory_goes_through_the_host(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[3];
    pid_t pids[3];
    flyt_migration_use use;

    enter(test, programs, 3, NO_PEERS);
    for (unsigned i = 0; i < 3; i++) {
        test_program_say(test, &programs[i], "extent 5 0 1048576", "0");
        test_program_say(test, &programs[i], "busy 1", "0");
        pids[i] = test_node_server(test, &programs[i])->pid;
    }
    test_migration_start(test, 1);
    test_node_until(test, goes_by_host, NULL, "it goes another way");
    test_migration_until(test, FLYT_MIGRATION_COPYING);
    for (unsigned i = 0; i < 3; i++) { /* it runs, and has more and less memory meanwhile */
        char line[64], word[32];
        snprintf(line, sizeof line, "write 5 %u", 100 + i);
        test_program_say(test, &programs[i], line, "0");
        test_program_say(test, &programs[i], "extent 6 0 2097152", "0");
        test_program_say(test, &programs[i], "write 6 66", "0");
        snprintf(word, sizeof word, "%u", 100 + i);
        test_program_say(test, &programs[i], "read 5", word);
        test_program_say(test, &programs[i], "busy 0", "0");
    }
    test_migration_until(test, FLYT_MIGRATION_SWITCHING);
    assert_int_equal(test_migration_of(test)->tries, 1); /* it was not the program's fault */
    for (unsigned i = 0; i < 3; i++) {
        char word[32];
        test_migration_is_told_to_leave(test, &programs[i]);
        test_node_come_back(test, &test_one, &programs[i]);
        test_program_say(test, &programs[i], "resumed", "3 6");
        test_program_say(test, &programs[i], "read 1", "4711");
        snprintf(word, sizeof word, "%u", 100 + i);
        test_program_say(test, &programs[i], "read 5", word);
        test_program_say(test, &programs[i], "read 6", "66");
        test_program_say(test, &programs[i], "go_on", "0");
        assert_int_not_equal(test_node_server(test, &programs[i])->pid, pids[i]);
    }
    test_migration_until(test, FLYT_MIGRATION_DONE);
    test_migration_is_only_on(test, 1);
    assert_int_equal(test_node_used_bytes(test, &test_one), 3 * 11 * MIB);
    flyt_node_operation_use(&test_migration_of(test)->op, &use);
    assert_int_equal(use.session_count, 3);
    assert_int_equal(use.memory_bytes, 3 * 3 * 4096);
    assert_true(use.copied_bytes >= 3 * 3 * 2 * 4096);
    assert_true(use.standstill_us > 0);
    test_contains(test->last_event, "migration.done");
    for (unsigned i = 0; i < 3; i++) {
        test_program_say(test, &programs[i], "drop 5", "1048576");
        test_program_say(test, &programs[i], "extent 7 0 1048576", "0");
    }
    test_node_leave(test, &test_one, programs, 3);
}

static bool moves_near(struct test_node *test, void *program)
{
    return test_node_server(test, program)->has.use.can_move == FLYT_MANAGER_LINK_CAN_MOVE_NEAR;
}

/* A server that is older than that way is not told of it: its program goes on. */
static void test_an_older_server(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    enter(test, programs, 2, NO_PEERS);
    test_program_say(test, &programs[0], "movable 1", "0");
    test_node_until(test, moves_near, &programs[0], "its USE");
    test_migration_start(test, 1);
    test_migration_until_failed(test, "its server process is older than moving by way of the host's");
    assert_int_equal(test_migration_of(test)->op.status, FLYT_STATUS_NOT_SUPPORTED);
    test_migration_stayed(test, programs, 2);
    test_node_leave(test, &test_one, programs, 2);
}

/* ---- sources without a link ---- */

static bool is_given_ahead(struct test_node *test, void *program)
{
    const struct flyt_node_server *server = test_node_server(test, program);

    return server->link_fd < 0 && server->session->target && server->session->replacement.given_us;
}

/* Its link ends, and its process does not yet: a warm server has its memory. */
static void hang_up(struct test_node *test, struct test_program *program)
{
    test_program_say(test, program, "replaceable 1", "0");
    test_node_until_warm(test);
    test_program_say(test, program, "hang_up", "0");
    test_node_until(test, is_given_ahead, program, "another server has its memory");
}

/* The process ends now, and the program goes on where it was. */
static void go_on_here(struct test_node *test, struct test_program *program)
{
    assert_int_equal(kill(test_node_server(test, program)->pid, SIGKILL), 0);
    test_node_until(test, test_node_is_away, program, "the session waits without a process");
    close(program->fd);
    test_node_come_back(test, &test_one, program);
    test_program_say(test, program, "resumed", "1 1");
    test_program_say(test, program, "charge 0 1048576", "0");
}

static void test_one_without_its_link_is_not_moved(void **state)
{
    const flyt_migration_bounds bounds = {.stop_ms = 60000};
    const struct test_wish wish = test_migration_target(1);
    struct test_node *test = *state;
    struct test_program program;
    struct flyt_error err;

    enter(test, &program, 1, NO_PEERS);
    hang_up(test, &program);
    assert_int_equal(test_migration_order(test, TEST_MIGRATION_ID, &wish, &bounds, &err), FLYT_STATUS_IN_USE);
    test_contains(err.text, "lost its link");
    go_on_here(test, &program);
    test_migration_stayed(test, &program, 1);
    test_node_leave(test, &test_one, &program, 1);
}

static bool is_between_tries(struct test_node *test, void *unused)
{
    return test_migration_of(test)->pause_until_ms;
}

static void test_one_loses_its_link_between_two_tries(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    enter(test, programs, 2, NO_PEERS);
    test_program_say(test, &programs[1], "restless 1", "0");
    test_migration_start(test, 1);
    test_node_until(test, is_between_tries, NULL, "a try that has failed");
    test_migration_of(test)->pause_until_ms = UINT64_MAX; /* however long the rest takes */
    hang_up(test, &programs[0]);
    test_migration_of(test)->pause_until_ms = 1;
    test_migration_until_failed(test, "lost its link");
    go_on_here(test, &programs[0]);
    for (const struct flyt_node_server *server = test->node.servers; server; server = server->next)
        assert_int_not_equal(server->state, FLYT_NODE_SERVER_TAKING);
    test_migration_stayed(test, programs, 2);
    test_node_leave(test, &test_one, programs, 2);
}

/* ---- compute capabilities ---- */

/* Servers that start from now on find these. */
static void set_capabilities(struct test_node *test, const char *first, const char *second)
{
    struct flyt_strings *capabilities = &test->settings.software_cc;

    for (size_t i = 0; i < capabilities->count; i++)
        free(capabilities->items[i]);
    free(capabilities->items);
    capabilities->count = 2;
    capabilities->items = calloc(2, sizeof *capabilities->items);
    assert_non_null(capabilities->items);
    capabilities->items[0] = strdup(first);
    capabilities->items[1] = strdup(second);
}

static bool are_known(struct test_node *test, void *unused)
{
    return test->node.gpus.items[0].is_known && test->node.gpus.items[1].is_known;
}

static void test_it_does_at_once_to_another_capability(void **state)
{
    static const char *const others[] = {"8.0", "9.1"};
    struct test_node *test = *state;
    struct test_program programs[3];

    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        test_node_stop(test);
        set_capabilities(test, i % 2 ? others[i] : "9.0", i % 2 ? "9.0" : others[i]);
        test_node_start(test);
        enter(test, programs, 3, NULL);
        test_node_until(test, are_known, NULL, "servers are ready on both");
        test_migration_start(test, 1);
        assert_true(goes_by_host(test, NULL));
        test_migration_until(test, FLYT_MIGRATION_SWITCHING);
        assert_int_equal(test_migration_of(test)->tries, 1);
        for (unsigned j = 0; j < 3; j++) {
            test_migration_is_told_to_leave(test, &programs[j]);
            test_node_come_back(test, &test_one, &programs[j]);
            test_program_say(test, &programs[j], "read 1", "4711");
            test_program_say(test, &programs[j], "go_on", "0");
        }
        test_migration_until(test, FLYT_MIGRATION_DONE);
        test_migration_is_only_on(test, 1);
        test_node_leave(test, &test_one, programs, 3);
        test_migration_forget(test);
    }
}

static void test_it_does_not_to_the_same_one(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    test_node_stop(test);
    set_capabilities(test, "8.0", "8.0");
    test_node_start(test);
    enter(test, &program, 1, NULL);
    test_node_until(test, are_known, NULL, "servers are ready on both");
    test_migration_start(test, 1);
    assert_true(test_migration_of(test)->way->is_mirrored);
    test_migration_is_told_to_leave(test, &program);
    test_migration_go_on(test, &program);
    test_migration_until(test, FLYT_MIGRATION_DONE);
    assert_true(test_migration_of(test)->way->is_mirrored);
    test_node_leave(test, &test_one, &program, 1);
}

/* Before a server has said what a GPU is, it may be any: after a restart, say. */
static void test_it_does_to_an_unknown_one(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    enter(test, &program, 1, NULL);
    test_node_until(test, are_known, NULL, "servers are ready on both");
    test->node.gpus.items[0].compute_major = 0;
    test_migration_start(test, 1);
    assert_true(goes_by_host(test, NULL));
    test_migration_is_told_to_leave(test, &program);
    test_migration_go_on(test, &program);
    test_migration_until(test, FLYT_MIGRATION_DONE);
    test_node_leave(test, &test_one, &program, 1);
}

/* ---- failures ---- */

static const struct {
    const char *node_points, *server_points, *words;
} failures[] = {
    {"node.migrate.host:error", NO_PEERS, "node.migrate.host"},
    {"node.migrate.host:error:2", NO_PEERS, "node.migrate.host"},
    {"node.migrate.stop:error:2", NO_PEERS, "node.migrate.stop"},
    {"node.migrate.state:error:2", NO_PEERS, "node.migrate.state"},
    {"node.migrate.commit:error", NO_PEERS, "node.migrate.commit"},
    /* Where a target fails in the midst of it, its source may say so first, in its own words. */
    {NULL, NO_PEERS ",fake.state:error", ""},
    {NULL, NO_PEERS ",fake.receive_make:kill", ""},
    {NULL, NO_PEERS ",fake.receive_make:error", "cannot be made on GPU 1"},
};

static void test_failures(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    for (size_t i = 0; i < sizeof failures / sizeof failures[0]; i++) {
        enter(test, programs, 2, failures[i].server_points);
        test_node_make_fail(test, failures[i].node_points, failures[i].server_points);
        test_migration_start(test, 1);
        test_migration_until_failed(test, failures[i].words);
        test_node_make_fail(test, NULL, NULL);
        test_migration_stayed(test, programs, 2);
        test_node_leave(test, &test_one, programs, 2);
        test_migration_forget(test);
    }
}

static bool is_failing(struct test_node *test, void *unused)
{
    return test_migration_of(test)->is_failing;
}

/* The target dies while memory goes there. */
static void test_a_target_dies_meanwhile(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    enter(test, &program, 1, NO_PEERS);
    test_program_say(test, &program, "busy 1", "0");
    test_migration_start(test, 1);
    test_node_until(test, goes_by_host, NULL, "it goes another way");
    test_migration_until(test, FLYT_MIGRATION_COPYING);
    assert_int_equal(kill(test_migration_of(test)->moves->target.server->pid, SIGKILL), 0);
    test_migration_until_failed(test, "ended");
    test_node_make_fail(test, NULL, NULL);
    test_migration_stayed(test, &program, 1);
    test_node_leave(test, &test_one, &program, 1);
}

/* It dies when its programs have left: they are taken back. */
static void test_a_target_dies_after_the_commit(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    enter(test, &program, 1, NO_PEERS);
    test_migration_start(test, 1);
    test_migration_is_told_to_leave(test, &program);
    assert_int_equal(kill(test_migration_of(test)->moves->target.server->pid, SIGKILL), 0);
    test_node_until(test, is_failing, NULL, "its end is seen");
    test_node_come_back(test, &test_one, &program);
    test_program_say(test, &program, "resumed", "no");
    test_program_say(test, &program, "go_on", "0");
    test_migration_until_failed(test, "new server process has ended");
    test_node_make_fail(test, NULL, NULL);
    test_migration_stayed(test, &program, 1);
    test_node_leave(test, &test_one, &program, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_NODE(test_memory_goes_through_the_host),
        TEST_NODE(test_an_older_server),
        TEST_NODE(test_one_without_its_link_is_not_moved),
        TEST_NODE(test_one_loses_its_link_between_two_tries),
        TEST_NODE(test_it_does_at_once_to_another_capability),
        TEST_NODE(test_it_does_not_to_the_same_one),
        TEST_NODE(test_it_does_to_an_unknown_one),
        TEST_NODE(test_failures),
        TEST_NODE(test_a_target_dies_meanwhile),
        TEST_NODE(test_a_target_dies_after_the_commit),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
