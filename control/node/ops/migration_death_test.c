/*
 * Tests of migrations (migration.h) whose source dies between the stop of its program and the word to its client: what
 * is at the target is the session, and its client is told how far the dead server had come.
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

#include "control/node/ops/ops.h"
#include "control/node/test/test_migration.h"
#include "control/node/test/test_node.h"
#include "rpc/base/clock.h"

#define NO_PEERS "fake.mirror:error"

/* ---- what is waited for ---- */

struct awaited {
    const struct test_program *program;
    uint32_t kind;
    enum flyt_node_move_stage stage;
    enum flyt_node_target_state state;
};

static bool is_at(struct test_node *test, void *user)
{
    const struct awaited *awaited = user;
    const struct flyt_node_move *move = test_migration_move_of(test, awaited->program);

    /* By way of the host it is sent when it has stopped. */
    return move->way->link_kind == awaited->kind && move->stage == awaited->stage &&
           move->target.state == awaited->state && move->target.server && !move->awaited_count &&
           !move->locks_are_awaited && (move->extent_count || move->way->link_kind == FLYT_MANAGER_LINK_MOVE_SEND);
}

static void until_at(struct test_node *test, const struct test_program *program, uint32_t kind,
                     enum flyt_node_move_stage stage, enum flyt_node_target_state state)
{
    struct awaited awaited = {program, kind, stage, state};

    test_node_until(test, is_at, &awaited, "the move's stage");
}

/* ---- steps ---- */

/* Two programs, of which the first one's server says what it has done; both are copied and not ready to stop. */
static void enter(struct test_node *test, struct test_program *programs, uint32_t kind)
{
    test_node_make_fail(test, NULL, kind == FLYT_MANAGER_LINK_MOVE_SEND ? NO_PEERS : NULL);
    test_migration_enter(test, programs, 2);
    test_program_say(test, &programs[0], "record 3 2 1 5", "0");
    for (unsigned i = 0; i < 2; i++)
        test_program_say(test, &programs[i], "busy 1", "0");
    test_migration_start(test, kind != FLYT_MANAGER_LINK_MOVE_GIVE);
    for (unsigned i = 0; i < 2; i++)
        until_at(test, &programs[i], kind, FLYT_NODE_MOVE_COPYING, FLYT_NODE_TARGET_LOADING);
}

static pid_t freeze_target(struct test_node *test, const struct test_program *program)
{
    pid_t pid = test_migration_move_of(test, program)->target.server->pid;

    assert_int_equal(kill(pid, SIGSTOP), 0);
    return pid;
}

static void stop_both(struct test_node *test, struct test_program *programs)
{
    for (unsigned i = 0; i < 2; i++)
        test_program_say(test, &programs[i], "busy 0", "0");
}

static void kill_source(struct test_node *test, struct test_program *program)
{
    assert_int_equal(kill(test_node_server(test, program)->pid, SIGKILL), 0);
    test_node_until(test, test_node_is_away, program, "the session waits without a process");
    test_program_say(test, program, NULL, "gone");
    close(program->fd);
    program->fd = -1;
}

/* The client is told that everything up to where it stopped was executed, once, with the errors of the record. */
static void is_told_all(struct test_node *test, struct test_program *program)
{
    uint64_t sequence, library_count;
    char text[128];

    assert_int_equal(
        sscanf(test_program_ask(test, program, "state"), "%" SCNu64 " %" SCNu64, &sequence, &library_count), 2);
    assert_true(sequence > 3);
    snprintf(text, sizeof text, "%" PRIu64 " %" PRIu64 " %" PRIu64 " 5", sequence, sequence, sequence);
    test_program_say(test, program, "left", text);
}

static void ends_well(struct test_node *test, struct test_program *programs, uint32_t kind)
{
    test_migration_is_told_to_leave(test, &programs[1]);
    test_node_come_back(test, &test_one, &programs[0]);
    is_told_all(test, &programs[0]);
    test_program_say(test, &programs[0], "go_on", "0");
    test_migration_go_on(test, &programs[1]);
    test_migration_until(test, FLYT_MIGRATION_DONE);
    test_migration_is_only_on(test, kind != FLYT_MANAGER_LINK_MOVE_GIVE);
    for (unsigned i = 0; i < 2; i++)
        test_program_say(test, &programs[i], "read 1", "4711");
    assert_int_equal(test_node_used_bytes(test, &test_one), 2 * 8 * MIB);
    test_node_leave(test, &test_one, programs, 2);
    test_migration_forget(test);
    test_node_make_fail(test, NULL, NULL);
}

/* ---- it goes on at the target ---- */

static const uint32_t kinds[] = {FLYT_MANAGER_LINK_MOVE_GIVE, FLYT_MANAGER_LINK_MOVE_MIRROR,
                                 FLYT_MANAGER_LINK_MOVE_SEND};

/* The source dies at a stage that lasts while the target of a program is frozen, and its client comes before that and
 * after it. */
static void dies_at(struct test_node *test, uint32_t kind, enum flyt_node_target_state state, unsigned whose_is_frozen)
{
    struct test_program programs[2];

    enter(test, programs, kind);
    pid_t frozen = freeze_target(test, &programs[whose_is_frozen]);
    stop_both(test, programs);
    until_at(test, &programs[0], kind, FLYT_NODE_MOVE_STOPPED, state);
    assert_int_equal(test_node_try_to_come(test, &test_one, &programs[0]), FLYT_HANDSHAKE_BUSY);
    kill_source(test, &programs[0]);
    assert_int_equal(test_node_try_to_come(test, &test_one, &programs[0]), FLYT_HANDSHAKE_BUSY);
    assert_int_equal(kill(frozen, SIGCONT), 0);
    ends_well(test, programs, kind);
}

/* Everything is at its target, not yet all of the other's. */
static void test_when_all_is_loaded(void **state)
{
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++)
        dies_at(*state, kinds[i], FLYT_NODE_TARGET_LOADED, 1);
}

/* What it had is on its way to its target. By way of the host it has stopped only when all is there. */
static void test_while_it_is_loaded(void **state)
{
    for (unsigned i = 0; i < 2; i++)
        dies_at(*state, kinds[i], FLYT_NODE_TARGET_LOADING, 0);
}

static bool has_waited_too_long(struct test_node *test, void *user)
{
    const struct flyt_node_session *session = test_node_away(test);

    return session && flyt_clock_ms() > session->away_until_ms + 50;
}

/* Its client is told to try again for longer than it would be waited for otherwise. */
static void test_it_takes_long_to_decide(void **state)
{
    struct test_node *test = *state;
    unsigned replace_ms = test->node.ops->replace_ms;
    struct test_program programs[2];

    enter(test, programs, FLYT_MANAGER_LINK_MOVE_MIRROR);
    pid_t frozen = freeze_target(test, &programs[1]);
    stop_both(test, programs);
    until_at(test, &programs[0], FLYT_MANAGER_LINK_MOVE_MIRROR, FLYT_NODE_MOVE_STOPPED, FLYT_NODE_TARGET_LOADED);
    test->node.ops->replace_ms = 1;
    kill_source(test, &programs[0]);
    test_node_until(test, has_waited_too_long, NULL, "its time is over");
    test->node.ops->replace_ms = replace_ms;
    assert_int_equal(test_node_try_to_come(test, &test_one, &programs[0]), FLYT_HANDSHAKE_BUSY);
    assert_int_equal(kill(frozen, SIGCONT), 0);
    ends_well(test, programs, FLYT_MANAGER_LINK_MOVE_MIRROR);
}

/* It was left, and whether its client has been told so nobody knows. */
static void test_when_it_was_left(void **state)
{
    struct test_node *test = *state;

    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct test_program programs[2];
        enter(test, programs, kinds[i]);
        stop_both(test, programs);
        test_migration_is_told_to_leave(test, &programs[0]);
        programs[0].fd = -1;
        assert_int_equal(kill(test_migration_move_of(test, &programs[0])->source->pid, SIGKILL), 0);
        test_node_until(test, test_node_is_away, &programs[0], "the session waits without a process");
        ends_well(test, programs, kinds[i]);
    }
}

/* It lives, has lost its client's connection, and is left. */
static void test_a_source_that_lives_tells_as_much(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    enter(test, programs, FLYT_MANAGER_LINK_MOVE_MIRROR);
    stop_both(test, programs);
    test_migration_is_told_to_leave(test, &programs[0]);
    ends_well(test, programs, FLYT_MANAGER_LINK_MOVE_MIRROR);
}

/* ---- it does not ---- */

/* The others stay: so does this one, without a target, where it can be without its server. */
static void test_the_others_stay(void **state)
{
    struct test_node *test = *state;

    for (unsigned can_wait = 0; can_wait < 2; can_wait++) {
        struct test_program programs[2];
        enter(test, programs, FLYT_MANAGER_LINK_MOVE_MIRROR);
        test_program_say(test, &programs[0], can_wait ? "replaceable 1" : "replaceable 0", "0");
        pid_t frozen = freeze_target(test, &programs[1]);
        stop_both(test, programs);
        until_at(test, &programs[0], FLYT_MANAGER_LINK_MOVE_MIRROR, FLYT_NODE_MOVE_STOPPED, FLYT_NODE_TARGET_LOADED);
        kill_source(test, &programs[0]);
        assert_int_equal(kill(frozen, SIGKILL), 0);
        test_migration_until_failed(test, "ended");
        if (can_wait) {
            test_node_come_back(test, &test_one, &programs[0]);
            test_program_say(test, &programs[0], "resumed", "1 1");
            test_program_say(test, &programs[0], "left", "3 2 1 5");
            test_program_say(test, &programs[0], "charge 0 1048576", "0");
        } else {
            assert_int_equal(test_node_try_to_come(test, &test_one, &programs[0]), FLYT_HANDSHAKE_NO_SESSION);
        }
        test_migration_stayed(test, &programs[!can_wait], 1 + can_wait);
        test_node_leave(test, &test_one, &programs[!can_wait], 1 + can_wait);
        test_migration_forget(test);
    }
}

/* Something was begun behind the call at which it had stopped: what is at the target is older. */
static void test_it_had_gone_on(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    enter(test, programs, FLYT_MANAGER_LINK_MOVE_MIRROR);
    test_program_say(test, &programs[0], "record 1000 3 3 5", "0");
    freeze_target(test, &programs[1]);
    test->settings.kill_grace_ms = TEST_GRACE_MS;
    stop_both(test, programs);
    until_at(test, &programs[0], FLYT_MANAGER_LINK_MOVE_MIRROR, FLYT_NODE_MOVE_STOPPED, FLYT_NODE_TARGET_LOADED);
    assert_int_equal(kill(test_node_server(test, &programs[0])->pid, SIGKILL), 0);
    test_migration_until_failed(test, "ended unexpectedly");
    test_program_say(test, &programs[0], NULL, "gone");
    assert_int_equal(test_node_try_to_come(test, &test_one, &programs[0]), FLYT_HANDSHAKE_NO_SESSION);
    test_migration_stayed(test, &programs[1], 1);
    close(programs[0].fd);
    test_node_leave(test, &test_one, &programs[1], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_NODE(test_when_all_is_loaded),
        TEST_NODE(test_while_it_is_loaded),
        TEST_NODE(test_it_takes_long_to_decide),
        TEST_NODE(test_when_it_was_left),
        TEST_NODE(test_a_source_that_lives_tells_as_much),
        TEST_NODE(test_the_others_stay),
        TEST_NODE(test_it_had_gone_on),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
