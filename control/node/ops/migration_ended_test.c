/*
 * Tests of migrations (migration.h) while which a program ends by itself, at each step before it would leave: the
 * others move, whatever its new server says of connections that have ended, and nobody waits for its process, which
 * takes its time to go.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/node/test/test_migration.h"
#include "control/node/test/test_node.h"

#define NO_PEERS "fake.mirror:error"

enum { PROGRAMS = 3, MOVED = PROGRAMS - 1 };

static const uint32_t kinds[] = {FLYT_MANAGER_LINK_MOVE_SEND, FLYT_MANAGER_LINK_MOVE_MIRROR,
                                 FLYT_MANAGER_LINK_MOVE_GIVE};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* Three programs, whose memory goes the way of this kind. */
static void enter(struct test_node *test, struct test_program *programs, uint32_t kind)
{
    test_node_make_fail(test, NULL, kind == FLYT_MANAGER_LINK_MOVE_SEND ? NO_PEERS : NULL);
    test_migration_enter(test, programs, PROGRAMS);
    for (unsigned i = 0; i < PROGRAMS; i++)
        test_program_say(test, &programs[i], "busy 1", "0");
}

static bool are_copied(struct test_node *test, void *user)
{
    const struct flyt_node_migration *migration = test_migration_of(test);
    unsigned count = 0;

    for (const struct flyt_node_move *move = migration->moves; move; move = move->next)
        count +=
            flyt_node_move_is_copying(move) && move->way->link_kind == *(const uint32_t *)user && move->state.phase;
    return count == PROGRAMS;
}

static void start(struct test_node *test, uint32_t kind)
{
    test_migration_start(test, kind != FLYT_MANAGER_LINK_MOVE_GIVE);
    test_node_until(test, are_copied, &kind, "all are copied");
}

/* Without an answer: it has ended. */
static void end(struct test_node *test, struct test_program *program, const char *line)
{
    char text[32];

    int bytes = snprintf(text, sizeof text, "%s\n", line);
    assert_int_equal(write(program->fd, text, (size_t)bytes), bytes);
    test_program_say(test, program, NULL, "gone");
}

/* The others are moved, though its process is there; the migration ends with that. */
static void the_others_move(struct test_node *test, struct test_program *programs, uint32_t kind, pid_t pid)
{
    flyt_migration_use use;

    for (unsigned i = 0; i < MOVED; i++) {
        test_migration_is_told_to_leave(test, &programs[i]);
        test_migration_go_on(test, &programs[i]);
    }
    assert_int_equal(kill(pid, SIGKILL), 0);
    test_migration_until(test, FLYT_MIGRATION_DONE);
    flyt_node_operation_use(&test_migration_of(test)->op, &use);
    assert_int_equal(use.session_count, MOVED);
    assert_int_equal(test_migration_of(test)->tries, 1);
    assert_int_equal(test_migration_of(test)->ended_count, 1);
    assert_int_equal(test_migration_of(test)->lost_count, 0);
    test_contains(test->last_event, "migration.done");
    test_contains(test->last_event, "1 of its programs ended meanwhile");
    test_migration_is_only_on(test, kind != FLYT_MANAGER_LINK_MOVE_GIVE);
    for (unsigned i = 0; i < MOVED; i++)
        test_program_say(test, &programs[i], "read 1", "4711");
    close(programs[MOVED].fd);
    test_node_leave(test, &test_one, programs, MOVED);
    test_migration_forget(test);
    test_node_make_fail(test, NULL, NULL);
}

static void test_while_it_is_copied(void **state)
{
    struct test_node *test = *state;

    for (unsigned i = 0; i < KINDS; i++) {
        struct test_program programs[PROGRAMS];
        enter(test, programs, kinds[i]);
        start(test, kinds[i]);
        pid_t pid = test_node_server(test, &programs[MOVED])->pid;
        end(test, &programs[MOVED], "linger 0");
        for (unsigned j = 0; j < MOVED; j++)
            test_program_say(test, &programs[j], "busy 0", "0");
        the_others_move(test, programs, kinds[i], pid);
    }
}

/* `when` 1: it never stops; 2: all of it is at its new server, or on its way. */
static void ends_when_stopped(struct test_node *test, uint32_t kind, unsigned when)
{
    struct test_program programs[PROGRAMS];
    char line[16];

    enter(test, programs, kind);
    start(test, kind);
    pid_t pid = test_node_server(test, &programs[MOVED])->pid;
    snprintf(line, sizeof line, "linger %u", when);
    test_program_say(test, &programs[MOVED], line, "0");
    for (unsigned i = 0; i < PROGRAMS; i++)
        test_program_say(test, &programs[i], "busy 0", "0");
    the_others_move(test, programs, kind, pid);
}

static void test_while_it_stops(void **state)
{
    for (unsigned i = 0; i < KINDS; i++)
        ends_when_stopped(*state, kinds[i], 1);
}

static void test_when_it_has_stopped(void **state)
{
    for (unsigned i = 0; i < KINDS; i++)
        ends_when_stopped(*state, kinds[i], 2);
}

/* The migration is then of no program, and ends well. */
static void test_the_only_one(void **state)
{
    struct test_node *test = *state;
    flyt_migration_use use;

    for (unsigned i = 0; i < KINDS; i++) {
        struct test_program program;
        test_node_make_fail(test, NULL, kinds[i] == FLYT_MANAGER_LINK_MOVE_SEND ? NO_PEERS : NULL);
        test_migration_enter(test, &program, 1);
        test_program_say(test, &program, "linger 1", "0");
        pid_t pid = test_node_server(test, &program)->pid;
        test_migration_start(test, kinds[i] != FLYT_MANAGER_LINK_MOVE_GIVE);
        test_program_say(test, &program, NULL, "gone");
        assert_int_equal(kill(pid, SIGKILL), 0);
        test_migration_until(test, FLYT_MIGRATION_DONE);
        flyt_node_operation_use(&test_migration_of(test)->op, &use);
        assert_int_equal(use.session_count, 0);
        assert_int_equal(test_migration_of(test)->ended_count, 1);
        close(program.fd);
        test_node_leave(test, &test_one, NULL, 0);
        test_migration_forget(test);
        test_node_make_fail(test, NULL, NULL);
    }
}

static bool is_between_tries(struct test_node *test, void *unused)
{
    return test_migration_of(test)->pause_until_ms;
}

static bool has_one_ended(struct test_node *test, void *unused)
{
    return test_migration_of(test)->ended_count;
}

static bool has_gone(struct test_node *test, void *id)
{
    return !flyt_node_session_find(&test->node, *(uint64_t *)id);
}

/* It ends during a try that fails, and its process goes before the next one. */
static void test_one_is_counted_once(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[PROGRAMS];

    enter(test, programs, FLYT_MANAGER_LINK_MOVE_MIRROR);
    test_program_say(test, &programs[0], "restless 1", "0");
    start(test, FLYT_MANAGER_LINK_MOVE_MIRROR);
    const struct flyt_node_server *server = test_node_server(test, &programs[MOVED]);
    uint64_t id = server->session->id;
    pid_t pid = server->pid;
    end(test, &programs[MOVED], "linger 0");
    test_node_until(test, has_one_ended, NULL, "one has ended");
    for (unsigned i = 0; i < MOVED; i++)
        test_program_say(test, &programs[i], "busy 0", "0");
    test_node_until(test, is_between_tries, NULL, "a try that has failed");
    test_migration_of(test)->pause_until_ms = UINT64_MAX; /* however long the rest takes */
    assert_int_equal(kill(pid, SIGKILL), 0);
    test_node_until(test, has_gone, &id, "its process has gone");
    assert_int_equal(test_migration_of(test)->ended_count, 1);
    test_migration_of(test)->pause_until_ms = 1;
    for (unsigned i = 0; i < MOVED; i++) {
        test_migration_is_told_to_leave(test, &programs[i]);
        test_migration_go_on(test, &programs[i]);
    }
    test_migration_until(test, FLYT_MIGRATION_DONE);
    assert_int_equal(test_migration_of(test)->tries, 2);
    test_contains(test->last_event, "1 of its programs ended meanwhile");
    close(programs[MOVED].fd);
    test_node_leave(test, &test_one, programs, MOVED);
    test_migration_forget(test);
    test_node_make_fail(test, NULL, NULL);
}

/* Not by itself: its server has died. */
static void test_a_server_that_dies_is_a_failure(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[PROGRAMS];

    enter(test, programs, FLYT_MANAGER_LINK_MOVE_SEND);
    start(test, FLYT_MANAGER_LINK_MOVE_SEND);
    assert_int_equal(kill(test_node_server(test, &programs[MOVED])->pid, SIGKILL), 0);
    test_migration_until_failed(test, "");
    test_program_say(test, &programs[MOVED], NULL, "gone");
    close(programs[MOVED].fd);
    test_node_make_fail(test, NULL, NULL);
    test_migration_stayed(test, programs, MOVED);
    test_node_leave(test, &test_one, programs, MOVED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_NODE(test_while_it_is_copied),  TEST_NODE(test_while_it_stops),
        TEST_NODE(test_when_it_has_stopped), TEST_NODE(test_the_only_one),
        TEST_NODE(test_one_is_counted_once), TEST_NODE(test_a_server_that_dies_is_a_failure),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
