/* Tests of migrations (migration.h) whose targets or clients fail after the commit, while programs are on their way. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/node/ops/ops.h"
#include "control/node/ops/replace.h"
#include "control/node/test/test_migration.h"
#include "control/node/test/test_node.h"

/* ---- targets ---- */

/* They are back, and the commit is undone. */
static void taken_back(struct test_node *test, struct test_program *programs, unsigned count, const char *words)
{
    for (unsigned i = 0; i < count; i++) {
        test_program_say(test, &programs[i], "resumed", "no"); /* it never was anywhere else */
        test_program_say(test, &programs[i], "go_on", "0");
    }
    test_migration_until_failed(test, words);
    test_node_make_fail(test, NULL, NULL);
    test_migration_stayed(test, programs, count);
    test_node_leave(test, &test_one, programs, count);
}

/* The target ends when it is given the session; of several, too, as long as none has gone on. */
static void test_a_target_fails_after_the_commit(void **state)
{
    struct test_node *test = *state;
    static const char *const points[] = {"fake.session:error", "fake.session:kill"};

    for (size_t i = 0; i < 2; i++)
        for (unsigned gpu = 0; gpu < 2; gpu++) {
            struct test_program programs[2];
            test_migration_enter(test, programs, 2);
            test_node_make_fail(test, NULL, points[i]);
            test_migration_start(test, gpu);
            test_migration_is_told_to_leave(test, &programs[0]);
            test_migration_is_told_to_leave(test, &programs[1]);
            /* Its connection ends with the server. */
            const unsigned char *token = programs[0].token;
            struct flyt_node_server *source;
            struct flyt_error err;
            assert_int_equal(flyt_node_move_find_token(&test->node, test_migration_allocation(test), token,
                                                       FLYT_TOKEN_BYTES, &source, &err),
                             0);
            int ends[2];
            assert_int_equal(pipe(ends), 0);
            const struct flyt_node_ticket ticket = {.session_id = programs[0].session_id, .allocation_id = test_one.id};
            assert_int_equal(flyt_node_move_take_client(source, &ticket, ends[0], "a record of sixteen", 16), 0);
            for (unsigned j = 0; j < 2; j++)
                test_node_come_back(test, &test_one, &programs[j]);
            close(ends[1]);
            taken_back(test, programs, 2, "new server process");
            test_migration_forget(test);
        }
}

/* The client's connection to the target breaks before the session goes on there. */
static void test_a_client_loses_its_target(void **state)
{
    struct test_node *test = *state;

    for (unsigned gpu = 0; gpu < 2; gpu++) {
        struct test_program programs[1];
        test_migration_reach_target(test, programs, gpu);
        assert_int_equal(test_node_used_bytes(test, &test_one), 8 * MIB);
        int fd = programs[0].fd;
        test_node_come_back(test, &test_one, &programs[0]);
        close(fd);
        taken_back(test, programs, 1, "has lost its new server process");
        test_migration_forget(test);
    }
}

/* What the session shares with others of its VM is known again when it is back at its server. */
static void test_what_is_shared_goes_back_too(void **state)
{
    struct test_node *test = *state;

    for (unsigned gpu = 0; gpu < 2; gpu++) {
        struct test_program one;
        test_migration_enter(test, &one, 1);
        test_program_say(test, &one, "export 5 1", "0");
        test_program_say(test, &one, "export_event 8 21", "0 0 21");
        test_migration_start(test, gpu);
        test_migration_is_told_to_leave(test, &one);
        test_node_come_back(test, &test_one, &one);
        int fd = one.fd;
        test_node_come_back(test, &test_one, &one); /* it has lost the target */
        close(fd);
        test_program_say(test, &one, "go_on", "0");
        test_migration_until_failed(test, "has lost its new server process");
        struct test_program other = test_node_enter(test, &test_one);
        test_program_say(test, &other, "import 5", "0 8388608 4711");
        test_program_say(test, &other, "import_event 8", "0 0 21");
        test_node_leave(test, &test_one, (struct test_program[]){one, other}, 2);
        test_migration_forget(test);
    }
}

/* The GPU's client slots that are taken. */
static unsigned slots_of(const struct test_node *test, unsigned gpu)
{
    return test->node.starts[gpu].serving + flyt_node_replace_count(&test->node, &test->node.gpus.items[gpu]);
}

/* The client's connection breaks before SESSION is sent: the target waits for its next try, and has its slot. */
static void test_a_client_hangs_up_before_it_is_given(void **state)
{
    struct test_node *test = *state;

    for (unsigned i = 0; i < 4; i++) {
        const unsigned gpu = i & 1, is_dead = i >> 1;
        struct test_program program;
        test_migration_set_out(test, &program, 1, gpu);
        const struct flyt_node_server *target = test_migration_of(test)->moves->target.server;
        test_node_come_and_hang_up(test, &test_one, &program);
        assert_int_equal(slots_of(test, gpu), gpu == 0 ? 2 : 1);
        if (is_dead) { /* nothing else has its session any more */
            assert_int_equal(kill(test_migration_of(test)->moves->source->pid, SIGKILL), 0);
            test_node_until(test, test_node_is_away, &program, "the session waits without a process");
            assert_int_equal(slots_of(test, gpu), 1);
        }
        test_node_come_and_hang_up(test, &test_one, &program);
        test_node_come_back(test, &test_one, &program);
        assert_ptr_equal(test_node_server(test, &program), target);
        test_program_say(test, &program, "resumed", "1 1");
        test_program_say(test, &program, "go_on", "0");
        test_migration_until(test, FLYT_MIGRATION_DONE);
        test_migration_is_only_on(test, gpu);
        test_program_say(test, &program, "read 1", "4711");
        assert_int_equal(test_node_used_bytes(test, &test_one), 8 * MIB);
        test_node_leave(test, &test_one, &program, 1);
        test_migration_forget(test);
    }
}

/* SESSION cannot be sent to it. */
static void test_a_target_does_not_take_it(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    test_migration_set_out(test, &program, 1, 1);
    test_node_make_fail(test, "node.migrate.switch:error:1", NULL);
    test_node_come_back(test, &test_one, &program);
    taken_back(test, &program, 1, "does not take it");
}

/* Its link has ended, and its process has not: the program goes back as soon as its client has found that. */
static void test_a_target_cannot_be_reached(void **state)
{
    struct test_node *test = *state;

    for (unsigned gpu = 0; gpu < 2; gpu++) {
        struct test_program program;
        test_migration_set_out(test, &program, 1, gpu);
        const pid_t pid = test_node_cut_off(test, test_migration_of(test)->moves->target.server);
        assert_int_equal(test_node_try_to_come(test, &test_one, &program), FLYT_HANDSHAKE_BUSY);
        test_node_come_back(test, &test_one, &program);
        assert_int_equal(kill(pid, SIGKILL), 0);
        taken_back(test, &program, 1, "does not take it");
        test_migration_forget(test);
    }
}

/* The same, where its source has gone: nobody has the session any more. */
static void test_a_last_target_cannot_be_reached(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    test_migration_set_out(test, &program, 1, 1);
    assert_int_equal(kill(test_migration_of(test)->moves->source->pid, SIGKILL), 0);
    test_node_until(test, test_node_is_away, &program, "the session waits without a process");
    const pid_t pid = test_node_cut_off(test, test_migration_of(test)->moves->target.server);
    assert_int_equal(test_node_try_to_come(test, &test_one, &program), FLYT_HANDSHAKE_BUSY);
    test_node_come_in_vain(test, &test_one, &program);
    assert_int_equal(kill(pid, SIGKILL), 0);
    test_migration_until_failed(test, "does not take it");
    test_node_until_empty(test, &test_one);
    test_node_until_used(test, &test_one, 0);
}

static bool is_failing(struct test_node *test, void *unused)
{
    return test_migration_of(test)->is_failing;
}

/* It dies between the commit and its client's coming; also when clients have come and hung up. */
static void test_a_target_dies_before_its_client_comes(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    for (unsigned have_hung_up = 0; have_hung_up < 2; have_hung_up++) {
        test_migration_set_out(test, programs, 2, 1);
        for (unsigned i = 0; i < 2 * have_hung_up; i++)
            test_node_come_and_hang_up(test, &test_one, &programs[i]);
        assert_int_equal(kill(test_migration_of(test)->moves->target.server->pid, SIGKILL), 0);
        test_node_until(test, is_failing, NULL, "its end is seen");
        test_node_come_back(test, &test_one, &programs[0]);
        test_node_come_back(test, &test_one, &programs[1]);
        taken_back(test, programs, 2, "new server process has ended");
        test_migration_forget(test);
    }
}

static bool has_lost_one(struct test_node *test, void *unused)
{
    return test_migration_of(test)->lost_count == 1;
}

/* One allocation's programs are on one side: one whose target dies when others have gone on ends. */
static void test_a_target_dies_when_another_has_gone_on(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    test_migration_set_out(test, programs, 2, 1);
    test_migration_go_on(test, &programs[0]);
    test_migration_until_one_has_moved(test);
    assert_int_equal(kill(test_migration_move_of(test, &programs[1])->target.server->pid, SIGKILL), 0);
    test_node_until(test, has_lost_one, NULL, "the other is lost");
    test_migration_until(test, FLYT_MIGRATION_DONE);
    assert_int_equal(test_migration_allocation(test)->session_count, 1);
    test_migration_is_only_on(test, 1);
    test_program_say(test, &programs[0], "read 1", "4711");
    assert_int_equal(test_node_used_bytes(test, &test_one), 8 * MIB);
    test_node_leave(test, &test_one, programs, 1);
}

/* ---- programs that wait for each other ---- */

/* Its client comes, and makes its objects again; whether it goes on then ("goes on"), or is held. */
static void is_whole(struct test_node *test, struct test_program *program, const char *want)
{
    test_node_come_back(test, &test_one, program);
    test_program_say(test, program, "goes_on", "no");
    test_program_say(test, program, "whole", want);
}

/* None goes on before all could. One that is alone waits for nobody. */
static void test_programs_go_on_together(void **state)
{
    enum { PROGRAMS = 3 };
    struct test_node *test = *state;
    struct test_program programs[PROGRAMS];

    for (unsigned i = 0; i < 2 * PROGRAMS; i++) {
        const unsigned gpu = i & 1, count = 1 + i / 2;
        test_migration_set_out(test, programs, count, gpu);
        for (unsigned n = 0; n < count; n++) {
            for (unsigned before = 0; before < n; before++)
                test_program_say(test, &programs[before], "goes_on", "no");
            is_whole(test, &programs[n], count > 1 ? "held" : "goes on");
        }
        test_migration_until(test, FLYT_MIGRATION_DONE);
        test_migration_is_only_on(test, gpu);
        for (unsigned n = 0; n < count; n++)
            test_program_say(test, &programs[n], "goes_on", "yes");
        assert_int_equal(test_migration_allocation(test)->session_count, count);
        test_node_leave(test, &test_one, programs, count);
        test_migration_forget(test);
    }
}

/* Nobody has gone on, though some could: all go back when one cannot. */
static void test_programs_go_back_together(void **state)
{
    enum { PROGRAMS = 3 };
    struct test_node *test = *state;
    struct test_program programs[PROGRAMS];

    for (unsigned i = 0; i < 4; i++) {
        const unsigned gpu = i & 1, is_dead = i >> 1;
        test_migration_set_out(test, programs, PROGRAMS, gpu);
        for (unsigned n = 0; n + 1 < PROGRAMS; n++)
            is_whole(test, &programs[n], "held");
        struct test_program *last = &programs[PROGRAMS - 1];
        test_node_come_back(test, &test_one, last);
        if (is_dead) {
            assert_int_equal(kill(test_node_server(test, last)->pid, SIGKILL), 0);
        } else { /* its objects are others: its client comes again */
            int fd = last->fd;
            test_node_come_back(test, &test_one, last);
            close(fd);
        }
        test_node_until(test, is_failing, NULL, "it is rolled back");
        for (unsigned n = 0; n < PROGRAMS - !is_dead; n++) {
            int fd = programs[n].fd;
            test_node_come_back(test, &test_one, &programs[n]);
            close(fd);
        }
        taken_back(test, programs, PROGRAMS, "new server process");
        test_migration_forget(test);
    }
}

/* A client that was ended on its way never comes: the others do not wait for ever. */
static void test_a_program_waits_for_others_no_longer(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    test_migration_set_out(test, programs, 2, 1);
    is_whole(test, &programs[0], "held");
    test->node.ops->whole_ms = 1;
    test_migration_until_one_has_moved(test);
    test->node.ops->whole_ms = TEST_LONG_MS;
    test_program_say(test, &programs[0], "goes_on", "yes");
    is_whole(test, &programs[1], "goes on");
    test_migration_until(test, FLYT_MIGRATION_DONE);
    test_migration_is_only_on(test, 1);
    test_node_leave(test, &test_one, programs, 2);
}

/* Nothing of the session is left: the migration is done, without it. */
static void ends_on(struct test_node *test, unsigned gpu)
{
    test_node_until_empty(test, &test_one);
    test_migration_until(test, FLYT_MIGRATION_DONE);
    test_node_until_used(test, &test_one, 0);
    test_migration_is_only_on(test, gpu);
}

static void test_a_client_that_does_not_come(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    test_migration_enter(test, &program, 1);
    test->node.ops->switch_ms = 200;
    test_migration_start(test, 1);
    test_migration_is_told_to_leave(test, &program);
    ends_on(test, 1);
}

/* One that came, hung up, and does not come again. */
static void test_a_client_that_does_not_come_again(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    test_migration_set_out(test, &program, 1, 1);
    test_node_come_and_hang_up(test, &test_one, &program);
    assert_int_equal(test_migration_of(test)->moves->stage, FLYT_NODE_MOVE_LEFT);
    test->node.ops->switch_ms = 1;
    ends_on(test, 1);
}

/* One that is at the target and never says that it goes on. */
static void test_a_target_that_hangs(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    test_migration_reach_target(test, &program, 1);
    test->node.ops->switch_ms = 1;
    test_program_say(test, &program, NULL, "gone");
    test->node.ops->switch_ms = TEST_LONG_MS;
    close(program.fd);
    test_node_come_back(test, &test_one, &program);
    taken_back(test, &program, 1, "has not said in time");
}

/* Its session goes on at the target, which says so; but this is not read on its own. */
static void go_on_unread(struct test_program *program, struct flyt_node_server *target)
{
    char answer[2];

    assert_true(sd_event_source_set_enabled(target->link_source, SD_EVENT_OFF) >= 0);
    assert_int_equal(send(program->fd, "go_on\n", 6, MSG_NOSIGNAL), 6);
    assert_int_equal(recv(program->fd, answer, sizeof answer, MSG_WAITALL), sizeof answer);
    assert_memory_equal(answer, "0\n", sizeof answer);
}

static bool has_moved_or_fails(struct test_node *test, void *unused)
{
    return test->node.sessions_moved || is_failing(test, NULL) ||
           flyt_node_operation_has_ended(&test_migration_of(test)->op);
}

/* That one goes on has been said, and not been read, when another one's target dies: it has gone on all the same. */
static void test_a_target_dies_when_another_has_said_that_it_goes_on(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    test_migration_set_out(test, programs, 2, 1);
    for (unsigned i = 0; i < 2; i++) {
        test_node_come_back(test, &test_one, &programs[i]);
        test_program_say(test, &programs[i], "resumed", "1 1");
    }
    struct flyt_node_server *target = test_migration_move_of(test, &programs[0])->target.server;
    go_on_unread(&programs[0], target);
    assert_int_equal(kill(test_migration_move_of(test, &programs[1])->target.server->pid, SIGKILL), 0);
    test_node_until(test, has_moved_or_fails, NULL, "the other's end is seen to");
    assert_int_equal(test->node.sessions_moved, 1);
    assert_true(sd_event_source_set_enabled(target->link_source, SD_EVENT_ON) >= 0);
    test_migration_until(test, FLYT_MIGRATION_DONE);
    assert_int_equal(test_migration_of(test)->lost_count, 1);
    assert_int_equal(test_migration_allocation(test)->session_count, 1);
    test_migration_is_only_on(test, 1);
    test_program_say(test, &programs[0], "read 1", "4711");
    close(programs[1].fd);
    test_node_leave(test, &test_one, programs, 1);
}

/* The same of one whose time is over. */
static void test_a_target_has_said_in_time_that_it_goes_on(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    test_migration_reach_target(test, &program, 1);
    struct flyt_node_server *target = test_migration_of(test)->moves->target.server;
    go_on_unread(&program, target);
    test->node.ops->switch_ms = 1;
    test_node_until(test, has_moved_or_fails, NULL, "its time is over");
    assert_int_equal(test->node.sessions_moved, 1);
    test->node.ops->switch_ms = TEST_LONG_MS;
    assert_true(sd_event_source_set_enabled(target->link_source, SD_EVENT_ON) >= 0);
    test_migration_until(test, FLYT_MIGRATION_DONE);
    test_migration_is_only_on(test, 1);
    test_program_say(test, &program, "read 1", "4711");
    test_node_leave(test, &test_one, &program, 1);
}

/* ---- sessions that are ended ---- */

static void test_a_session_is_ended_on_its_way(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    test_migration_set_out(test, &program, 1, 1);
    flyt_node_server_end(test_node_server(test, &program), "an operator has ended this session");
    ends_on(test, 1);
}

/* At its target, which has not said that it goes on: it does not come back to its source. */
static void test_a_session_is_ended_where_it_is_to_go_on(void **state)
{
    struct test_node *test = *state;

    for (unsigned gpu = 0; gpu < 2; gpu++) {
        struct test_program program;
        test_migration_reach_target(test, &program, gpu);
        struct flyt_node_server *target = flyt_node_server_find(&test->node, program.session_id);
        assert_ptr_equal(target, test_migration_of(test)->moves->target.server);
        flyt_node_server_end_anywhere(target, "an operator has ended this session");
        ends_on(test, gpu);
        close(program.fd);
        test_migration_forget(test);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_NODE(test_a_target_fails_after_the_commit),
        TEST_NODE(test_a_client_loses_its_target),
        TEST_NODE(test_what_is_shared_goes_back_too),
        TEST_NODE(test_a_client_hangs_up_before_it_is_given),
        TEST_NODE(test_a_target_does_not_take_it),
        TEST_NODE(test_a_target_cannot_be_reached),
        TEST_NODE(test_a_last_target_cannot_be_reached),
        TEST_NODE(test_a_target_dies_before_its_client_comes),
        TEST_NODE(test_a_target_dies_when_another_has_gone_on),
        TEST_NODE(test_programs_go_on_together),
        TEST_NODE(test_programs_go_back_together),
        TEST_NODE(test_a_program_waits_for_others_no_longer),
        TEST_NODE(test_a_client_that_does_not_come),
        TEST_NODE(test_a_client_that_does_not_come_again),
        TEST_NODE(test_a_target_that_hangs),
        TEST_NODE(test_a_target_dies_when_another_has_said_that_it_goes_on),
        TEST_NODE(test_a_target_has_said_in_time_that_it_goes_on),
        TEST_NODE(test_a_session_is_ended_on_its_way),
        TEST_NODE(test_a_session_is_ended_where_it_is_to_go_on),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
