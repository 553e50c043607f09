/* Tests of programs that leave for another node while they run (send.h), with fake servers and a node that is played:
 * when they have left, and restarts of the node manager.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/node/link/link_dispatch.h"
#include "control/node/ops/ops.h"
#include "control/node/state/departed.h"
#include "control/node/test/test_send.h"
#include "control/node/uplink/report.h"

/* ---- after the switch ---- */

/* The one that was left, of which nothing is shown. */
static struct flyt_node_server *left_server(struct test_node *test, const struct test_program *program)
{
    for (struct flyt_node_server *server = test->node.servers; server; server = server->next)
        if (flyt_node_server_allocation(server) && server->session->id == program->session_id)
            return server;
    return NULL;
}

static bool is_gone(struct test_node *test, void *program)
{
    return !left_server(test, program);
}

static void returned(struct test_node *test, struct test_program *programs, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        test_migration_go_on(test, &programs[i]);
}

static void test_it_is_sent_back(void **state)
{
    struct test_far *far = *state;
    struct test_node *test = far->test;
    struct test_program programs[2];
    struct flyt_error err;

    test_send_arrive(far, programs, 2);
    test_send_all_leave(test, programs, 2);
    assert_int_equal(flyt_node_send_back(test_migration_of(test), "its client did not come", &err), FLYT_STATUS_OK);
    assert_int_equal(flyt_node_send_back(test_migration_of(test), "once more", &err), FLYT_STATUS_OK);
    returned(test, programs, 2);
    test_send_failed(far, "its client did not come");
    assert_int_equal(flyt_node_send_back(test_migration_of(test), "and again", &err), FLYT_STATUS_OK);
    assert_int_equal(test_send_count_shown(test), 2);
    test_send_stayed(far, programs, 2);
}

static bool is_failing(struct test_node *test, void *unused)
{
    return test_migration_of(test)->is_failing;
}

/* SWITCH has come, and one does not hear that it is to leave: its link is lost, it goes on, and the other one returns.
 */
static void test_one_that_cannot_leave(void **state)
{
    struct test_far *far = *state;
    struct test_node *test = far->test;
    struct test_program programs[2];

    test_send_arrive(far, programs, 2);
    struct flyt_node_server *server = left_server(test, &programs[0]);
    assert_int_equal(kill(server->pid, SIGSTOP), 0);
    flyt_node_server_hang_up(server);
    test_send_let_leave(test);
    assert_int_equal(server->state, FLYT_NODE_SERVER_LEFT);
    assert_int_equal(kill(server->pid, SIGCONT), 0);
    test_node_until(test, is_failing, NULL, "the migration fails");
    test_program_say(test, &programs[0], "read 1", "4711");
    test_send_is_told_to_leave(test, &programs[1]);
    returned(test, &programs[1], 1);
    test_send_failed(far, "had not left: its server process had lost its link to the node manager");
    test_send_stayed(far, programs, 2);
}

static void test_it_is_sent_back_before_it_has_left(void **state)
{
    struct test_far *far = *state;
    struct test_node *test = far->test;
    struct test_program program;
    struct flyt_error err;

    test_send_arrive(far, &program, 1);
    assert_int_equal(flyt_node_send_back(test_migration_of(test), "it was not switched", &err), FLYT_STATUS_OK);
    test_send_failed(far, "it was not switched");
    test_send_stayed(far, &program, 1);
}

/* Whether its server has said so, and that was read. */
static bool goes_on(struct test_node *test, void *program)
{
    return !flyt_node_move_at(test_node_server(test, program));
}

/* Sent back, and its client does not come. */
static void test_a_client_that_does_not_return(void **state)
{
    struct test_far *far = *state;
    struct test_node *test = far->test;
    struct test_program programs[2];
    struct flyt_error err;

    test_send_arrive(far, programs, 2);
    test_send_all_leave(test, programs, 2);
    assert_int_equal(flyt_node_send_back(test_migration_of(test), "it was not taken", &err), FLYT_STATUS_OK);
    test_migration_go_on(test, &programs[0]);
    test_node_until(test, goes_on, &programs[0], "that it goes on");
    test->node.ops->switch_ms = 1;
    test_node_until(test, is_gone, &programs[1], "the end of the other one");
    test->node.ops->switch_ms = TEST_LONG_MS;
    test_far_until(far, FLYT_MIGRATION_FAILED);
    test_contains(test_migration_of(test)->op.text, "it was not taken");
    test_send_stayed(far, programs, 1);
}

static bool has_told_loss(struct test_node *test, void *unused)
{
    return strstr(test->last_event, "migration.session_lost");
}

/* Nobody misses it, until somebody wants it back. */
static void test_a_left_server_dies(void **state)
{
    struct test_node *test = *state;

    for (unsigned is_sent_back = 0; is_sent_back < 2; is_sent_back++) {
        struct test_program programs[2];
        struct flyt_error err;
        struct test_far far;
        test_far_open(&far, test);
        test_send_arrive(&far, programs, 2);
        test_send_all_leave(test, programs, 2);
        unsigned before = test->event_count;
        kill(left_server(test, &programs[0])->pid, SIGKILL);
        test_node_until(test, is_gone, &programs[0], "its end");
        test_node_run(test, 50);
        assert_int_equal(test->event_count, before);
        assert_int_equal(test_migration_of(test)->op.phase, FLYT_MIGRATION_SWITCHING);
        assert_int_equal(test_send_come(test, &programs[0]), FLYT_HANDSHAKE_BUSY);
        if (is_sent_back) {
            assert_int_equal(flyt_node_send_back(test_migration_of(test), "it was not taken", &err), FLYT_STATUS_OK);
            test_node_until(test, has_told_loss, NULL, "migration.session_lost");
            assert_int_equal(test_send_come(test, &programs[0]), FLYT_HANDSHAKE_NO_SESSION);
            test_migration_go_on(test, &programs[1]);
            test_send_failed(&far, "it was not taken");
            test_send_stayed(&far, &programs[1], 1);
        } else {
            test_send_take_back(test, 2);
            flyt_node_migrations_fini(&test->node);
        }
        test_far_close(&far);
    }
}

/* LEAVE does not reach it: the other node has it, and here it ends without a word, so that its client looks for it. */
static void test_a_program_is_not_told(void **state)
{
    struct test_far *far = *state;
    struct test_node *test = far->test;
    struct test_program programs[2];

    test_send_arrive(far, programs, 2);
    test_node_make_fail(test, "node.send.leave:error:2", NULL);
    test_send_let_leave(test);
    test_node_until(test, is_gone, &programs[1], "its end");
    test_node_make_fail(test, NULL, NULL);
    test_program_say(test, &programs[1], NULL, "gone");
    close(programs[1].fd);
    test_send_is_told_to_leave(test, &programs[0]);
    assert_int_equal(test_send_come(test, &programs[1]), FLYT_HANDSHAKE_BUSY);
    test_send_take_back(test, 2);
}

/* It is the other node's to end. */
static void test_a_left_session_is_not_known(void **state)
{
    struct test_far *far = *state;
    struct test_node *test = far->test;
    struct test_program program;

    test_send_arrive(far, &program, 1);
    assert_non_null(flyt_node_server_find(&test->node, program.session_id));
    test_send_all_leave(test, &program, 1);
    assert_null(flyt_node_server_find(&test->node, program.session_id));
    assert_non_null(left_server(test, &program));
    test_send_take_back(test, 1);
}

/* ---- what is measured ---- */

static struct flyt_metrics *measure(struct test_node *test)
{
    struct flyt_metrics *registry = flyt_metrics_new();

    test->node.metrics = flyt_node_metrics_new(registry);
    test->node.observe = flyt_node_metrics_observe;
    assert_non_null(test->node.metrics);
    return registry;
}

/* One has ended in this way; what so many took is known. */
static void has_measured(struct test_node *test, struct flyt_metrics *registry, const char *outcome, unsigned count)
{
    static const char *const names[] = {"standstill_seconds", "copied_bytes", "rounds"};
    char line[100];

    flyt_node_metrics_refresh(test->node.metrics, &test->node);
    char *text = flyt_metrics_text(registry);
    snprintf(line, sizeof line, "flyt_node_migrations_total{outcome=\"%s\"} 1\n", outcome);
    test_contains(text, line);
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(line, sizeof line, "flyt_node_migration_%s_count %u\n", names[i], count);
        test_contains(text, line);
    }
    free(text);
    test->node.observe = NULL;
    test->node.metrics = flyt_node_metrics_free(test->node.metrics);
    flyt_metrics_free(registry);
}

/* They stand still from the order to stop: who asks when they may leave is told how long that is already. */
static void test_how_long_they_stand_still(void **state)
{
    struct test_far *far = *state;
    struct test_node *test = far->test;
    struct flyt_metrics *registry = measure(test);
    struct test_program programs[2];
    flyt_migration_use use;

    test_send_arrive(far, programs, 2);
    test_send_let_leave(test);
    flyt_node_operation_use(&test_migration_of(test)->op, &use); /* nobody has left yet */
    assert_true(use.standstill_us > 0);
    for (unsigned i = 0; i < 2; i++)
        test_send_is_told_to_leave(test, &programs[i]);
    test_send_take_back(test, 2);
    assert_true(test_migration_of(test)->use.standstill_us >= use.standstill_us);
    has_measured(test, registry, "done", 1);
}

/* ---- the node manager is restarted ---- */

static bool is_served(struct test_node *test, void *user)
{
    const struct flyt_node_server *server = left_server(test, user);

    return server && server->has.extents.count;
}

static void restart(struct test_node *test, struct test_program *programs, unsigned count)
{
    test_node_stop(test);
    test_node_start(test);
    for (unsigned i = 0; i < count; i++)
        test_node_until(test, is_served, &programs[i], "the server comes back");
}

static void test_a_restart_before_the_switch(void **state)
{
    struct test_node *test = *state;

    for (unsigned i = 0; i < TEST_SEND_PHASES; i++) {
        struct test_program programs[2];
        struct test_far far;
        test_far_open(&far, test);
        test_send_reach(&far, programs, i);
        restart(test, programs, 2);
        assert_null(test->node.ops->operations[FLYT_NODE_OPERATION_MIGRATION]);
        test_node_until_warm(test);
        test_migration_stayed(test, programs, 2);
        test_node_leave(test, &test_one, programs, 2);
        test_migration_forget(test);
        test_far_close(&far);
    }
}

static void test_a_restart_after_the_switch(void **state)
{
    struct test_node *test = *state;

    for (unsigned is_sent_back = 0; is_sent_back < 2; is_sent_back++) {
        struct test_program programs[2];
        struct flyt_error err;
        struct test_far far;
        test_far_open(&far, test);
        test_send_arrive(&far, programs, 2);
        test_send_all_leave(test, programs, 2);
        restart(test, programs, 2);
        struct flyt_metrics *registry = measure(test);
        assert_int_equal(test_migration_of(test)->op.phase, FLYT_MIGRATION_SWITCHING);
        assert_int_equal(test_send_do_switch(test, &err), FLYT_STATUS_OK);
        assert_int_equal(test_send_count_shown(test), 0);
        for (unsigned i = 0; i < 2; i++)
            assert_int_equal(test_send_come(test, &programs[i]), FLYT_HANDSHAKE_BUSY);
        if (is_sent_back) {
            assert_int_equal(flyt_node_send_back(test_migration_of(test), "it was not taken", &err), FLYT_STATUS_OK);
            returned(test, programs, 2);
            test_send_failed(&far, "it was not taken");
            has_measured(test, registry, "failed", 0);
            test_node_until_warm(test);
            test_send_stayed(&far, programs, 2);
        } else {
            test_send_take_back(test, 2);
            has_measured(test, registry, "done", 0);
            flyt_node_migrations_fini(&test->node);
        }
        test_far_close(&far);
    }
}

/* Its end comes when the state says that they may leave, and no program has been told so. */
static void test_a_restart_within_the_switch(void **state)
{
    struct test_far *far = *state;
    struct test_node *test = far->test;
    struct test_program programs[2];

    test_send_arrive(far, programs, 2);
    assert_int_equal(flyt_node_departed_add(&test->node.state, test_one.id, TEST_MIGRATION_ID), 0);
    assert_int_equal(flyt_node_save(&test->node), 0);
    restart(test, programs, 2);
    test_send_failed(far, "had not left when the node manager was restarted");
    test_node_until_warm(test);
    test_send_stayed(far, programs, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_FAR(test_one_that_cannot_leave),
        TEST_FAR(test_it_is_sent_back),
        TEST_FAR(test_it_is_sent_back_before_it_has_left),
        TEST_FAR(test_a_client_that_does_not_return),
        TEST_NODE(test_a_left_server_dies),
        TEST_FAR(test_a_program_is_not_told),
        TEST_FAR(test_a_left_session_is_not_known),
        TEST_NODE(test_a_restart_before_the_switch),
        TEST_FAR(test_how_long_they_stand_still),
        TEST_NODE(test_a_restart_after_the_switch),
        TEST_FAR(test_a_restart_within_the_switch),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
