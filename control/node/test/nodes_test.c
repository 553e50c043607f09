/* Tests of two node managers, between which programs move (send.h, receive.h), with fake servers on both sides. */
#include <inttypes.h>
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

#include "control/node/attach/attach.h"
#include "control/node/ops/receive.h"
#include "control/node/ops/send.h"
#include "control/node/state/departed.h"
#include "control/node/test/test_migration.h"
#include "control/node/test/test_receive.h"
#include "control/node/test/test_send.h"

enum { STREAMS = 2 };

struct nodes {
    struct test_node *from, *to;
};

/* Both on one loop. */
static int set_up(void **state)
{
    struct nodes *nodes = calloc(1, sizeof *nodes);

    assert_non_null(nodes);
    nodes->from = test_node_new();
    nodes->to = test_node_new();
    sd_event_unref(nodes->to->event);
    nodes->to->event = sd_event_ref(nodes->from->event);
    test_node_start(nodes->from);
    test_node_start(nodes->to);
    test_node_until_warm(nodes->from);
    test_node_until_warm(nodes->to);
    *state = nodes;
    return 0;
}

static int tear_down(void **state)
{
    struct nodes *nodes = *state;
    void *from = nodes->from, *to = nodes->to;

    test_node_tear_down(&from);
    test_node_tear_down(&to);
    free(nodes);
    return 0;
}

/* ---- orders ---- */

static struct flyt_node_migration *sent(const struct nodes *nodes)
{
    return flyt_node_migration_find(&nodes->from->node, TEST_MIGRATION);
}

static void order(struct nodes *nodes, bool is_encrypted)
{
    char *urls[] = {nodes->to->node.attach->listen_urls[0]};
    flyt_order_send_args args = {.epoch = 1,
                                 .migration_id = TEST_MIGRATION,
                                 .allocation_id = test_one.id,
                                 .bounds = {.stop_ms = 60000},
                                 .node = (char *)"to",
                                 .urls = {1, urls},
                                 .stream_count = STREAMS,
                                 .is_encrypted = is_encrypted};
    struct flyt_error err;

    memcpy(args.secret, test_secret, sizeof args.secret);
    if (test_receive_as(nodes->to, &test_one, TEST_MIGRATION, test_secret, is_encrypted) != FLYT_STATUS_OK)
        fail_msg("not received: %s", test_refusal.text);
    if (flyt_node_send(&nodes->from->node, &args, &err) != FLYT_STATUS_OK)
        fail_msg("not sent: %s", err.text);
}

static bool has_phase(struct test_node *test, void *user)
{
    const struct flyt_node_migration *migration = flyt_node_migration_find(&test->node, TEST_MIGRATION);

    return migration->op.phase == *(const flyt_migration_phase *)user || flyt_node_operation_has_ended(&migration->op);
}

static void until(struct nodes *nodes, flyt_migration_phase phase)
{
    test_node_until(nodes->from, has_phase, &phase, "the phase of the node that is left");
    if (sent(nodes)->op.phase != phase)
        fail_msg("phase %d, not %d: %s", sent(nodes)->op.phase, phase, sent(nodes)->op.text);
}

static void arrive(struct nodes *nodes, struct test_program *programs, unsigned count, bool is_encrypted)
{
    test_migration_enter(nodes->from, programs, count);
    order(nodes, is_encrypted);
    until(nodes, FLYT_MIGRATION_ARRIVED);
}

/* Both are switched, in the order in which the cluster manager does it. */
static void switch_both(struct nodes *nodes, struct test_program *programs, unsigned count)
{
    struct flyt_error err;

    test_receive_must_switch(nodes->to, count);
    if (test_send_switch(nodes->from, sent(nodes), &err) != FLYT_STATUS_OK)
        fail_msg("not switched: %s", err.text);
    for (unsigned i = 0; i < count; i++) {
        test_program_say(nodes->from, &programs[i], NULL, "moved for ever");
        test_program_say(nodes->from, &programs[i], NULL, "gone");
        close(programs[i].fd);
        programs[i].fd = -1;
        assert_int_equal(test_node_try_to_come(nodes->from, &test_one, &programs[i]), FLYT_HANDSHAKE_BUSY);
    }
}

/* ---- as it should be ---- */

static void move_all(struct nodes *nodes, unsigned count, bool is_encrypted)
{
    struct test_program programs[3];

    arrive(nodes, programs, count, is_encrypted);
    switch_both(nodes, programs, count);
    for (unsigned i = 0; i < count; i++) {
        test_node_come_back(nodes->to, &test_one, &programs[i]);
        test_program_say(nodes->to, &programs[i], "read 1", "4711");
        test_program_say(nodes->to, &programs[i], "go_on", "0");
    }
    assert_int_equal(test_receive_until(nodes->to, FLYT_MIGRATION_DONE).session_count, count);
    test_node_remove_now(nodes->from, test_one.id);
    until(nodes, FLYT_MIGRATION_DONE);
    assert_int_equal(test_node_used_bytes(nodes->to, &test_one), count * 8 * MIB);
    assert_int_equal(nodes->from->node.starts[0].serving, 0);
    for (unsigned i = 0; i < count; i++)
        test_program_say(nodes->to, &programs[i], "drop 1", "8388608");
    test_node_leave(nodes->to, &test_one, programs, count);
}

static void test_one_session(void **state)
{
    move_all(*state, 1, false);
}

static void test_three_sessions(void **state)
{
    move_all(*state, 3, true);
}

static void test_nobody_runs(void **state)
{
    struct nodes *nodes = *state;

    test_node_grant(nodes->from, &test_one);
    order(nodes, false);
    until(nodes, FLYT_MIGRATION_ARRIVED);
    switch_both(nodes, NULL, 0);
    test_receive_until(nodes->to, FLYT_MIGRATION_DONE);
    test_node_remove_now(nodes->from, test_one.id);
    until(nodes, FLYT_MIGRATION_DONE);
}

static bool is_away(struct test_node *test, void *program)
{
    return test_node_is_away(test, program);
}

/* Both go on at the other node: nothing of them stays at the first one. */
static void done_with_two(struct nodes *nodes, struct test_program *programs)
{
    test_receive_until(nodes->to, FLYT_MIGRATION_DONE);
    test_node_remove_now(nodes->from, test_one.id);
    until(nodes, FLYT_MIGRATION_DONE);
    for (unsigned i = 0; i < 2; i++)
        test_program_say(nodes->to, &programs[i], "drop 1", "8388608");
    test_node_leave(nodes->to, &test_one, programs, 2);
}

/* One server dies when all has arrived: nobody has told its program where it goes on, or what it had done. */
static void test_a_source_dies(void **state)
{
    struct nodes *nodes = *state;
    struct test_program programs[2];
    struct flyt_error err;
    uint64_t sequence;
    char text[120];

    test_migration_enter(nodes->from, programs, 2);
    test_program_say(nodes->from, &programs[0], "record 2 2 2 3", "0");
    order(nodes, false);
    until(nodes, FLYT_MIGRATION_ARRIVED);
    assert_int_equal(kill(test_node_server(nodes->from, &programs[0])->pid, SIGKILL), 0);
    test_node_until(nodes->from, is_away, &programs[0], "the session waits without a process");
    test_program_say(nodes->from, &programs[0], NULL, "gone");
    close(programs[0].fd);
    assert_int_equal(test_node_try_to_come(nodes->from, &test_one, &programs[0]), FLYT_HANDSHAKE_BUSY);
    test_receive_must_switch(nodes->to, 2);
    assert_int_equal(test_send_switch(nodes->from, sent(nodes), &err), FLYT_STATUS_OK);
    test_program_say(nodes->from, &programs[1], NULL, "moved for ever");
    close(programs[1].fd);
    assert_int_equal(test_node_try_to_come(nodes->from, &test_one, &programs[0]), FLYT_HANDSHAKE_BUSY);
    for (unsigned i = 0; i < 2; i++) {
        test_node_come_back(nodes->to, &test_one, &programs[i]);
        assert_int_equal(sscanf(test_program_ask(nodes->to, &programs[i], "state"), "%" SCNu64, &sequence), 1);
        snprintf(text, sizeof text, "%" PRIu64 " %" PRIu64 " %" PRIu64 " 3", sequence, sequence, sequence);
        test_program_say(nodes->to, &programs[i], "left", text);
        test_program_say(nodes->to, &programs[i], "read 1", "4711");
        test_program_say(nodes->to, &programs[i], "go_on", "0");
    }
    done_with_two(nodes, programs);
}

/* The first stop comes to nothing: it arrives with the second one. */
static void test_it_is_tried_again(void **state)
{
    struct nodes *nodes = *state;
    struct test_program programs[2];

    test_migration_enter(nodes->from, programs, 2);
    test_program_say(nodes->from, &programs[0], "restless 1", "0");
    order(nodes, false);
    until(nodes, FLYT_MIGRATION_ARRIVED);
    assert_int_equal(sent(nodes)->tries, 2);
    switch_both(nodes, programs, 2);
    for (unsigned i = 0; i < 2; i++) {
        test_node_come_back(nodes->to, &test_one, &programs[i]);
        test_program_say(nodes->to, &programs[i], "read 1", "4711");
        test_program_say(nodes->to, &programs[i], "go_on", "0");
    }
    done_with_two(nodes, programs);
}

/* ---- failures ---- */

static void stayed(struct nodes *nodes, struct test_program *programs, unsigned count)
{
    until(nodes, FLYT_MIGRATION_FAILED);
    test_migration_stayed(nodes->from, programs, count);
    test_node_leave(nodes->from, &test_one, programs, count);
}

/* The target is told that it is over: its servers go, and their connections. */
static void test_the_target_gives_up(void **state)
{
    struct nodes *nodes = *state;
    struct test_program programs[2];

    test_migration_enter(nodes->from, programs, 2);
    test_program_say(nodes->from, &programs[0], "busy 1", "0");
    order(nodes, false);
    until(nodes, FLYT_MIGRATION_COPYING);
    test_receive_until(nodes->to, FLYT_MIGRATION_COPYING);
    assert_int_equal(flyt_node_receive_cancel(test_received(nodes->to), "it was ended"), 0);
    test_receive_until(nodes->to, FLYT_MIGRATION_FAILED);
    stayed(nodes, programs, 2);
    assert_null(flyt_node_allocation_find(&nodes->to->node, test_one.id));
}

/* The target is not told, and its programs are there: the source alone goes on. */
static void test_the_source_gives_up(void **state)
{
    struct nodes *nodes = *state;
    struct test_program programs[2];

    arrive(nodes, programs, 2, false);
    assert_int_equal(flyt_node_migration_cancel(sent(nodes), "it was ended"), 0);
    stayed(nodes, programs, 2);
    assert_int_equal(flyt_node_receive_cancel(test_received(nodes->to), "it was ended"), 0);
    test_receive_until(nodes->to, FLYT_MIGRATION_FAILED);
    assert_null(flyt_node_allocation_find(&nodes->to->node, test_one.id));
}

/* The target fails when it has all, before anybody has come. */
static void test_it_is_sent_back(void **state)
{
    struct nodes *nodes = *state;
    struct test_program programs[2];
    struct flyt_error err;

    arrive(nodes, programs, 2, false);
    switch_both(nodes, programs, 2);
    for (struct flyt_node_server *server = nodes->to->node.servers; server; server = server->next)
        kill(server->pid, SIGKILL);
    test_receive_until(nodes->to, FLYT_MIGRATION_FAILED);
    assert_int_equal(flyt_node_send_back(sent(nodes), "its target has failed", &err), FLYT_STATUS_OK);
    for (unsigned i = 0; i < 2; i++)
        test_migration_go_on(nodes->from, &programs[i]);
    until(nodes, FLYT_MIGRATION_FAILED);
    assert_int_equal(flyt_node_departed_find(&nodes->from->node.state, test_one.id), 0);
    stayed(nodes, programs, 2);
}

/* The target fails at each of its steps while there is still time: the programs go on where they are, each time. */
static void test_the_target_fails(void **state)
{
    static const struct {
        const char *node_points, *server_points;
    } failures[] = {
        {"node.receive.connect:error:3", NULL},
        {"node.load.prepare:error", NULL},
        {"node.load.begin:error", NULL},
        {"node.load.made:error", "fake.state:hang"}, /* no server acknowledges anything before it is ended for that */
        {NULL, "fake.prepare:kill"},
        {NULL, "fake.make:error"},
        {NULL, "fake.state:error"},
        {NULL, "fake.state:kill"},
    };
    struct nodes *nodes = *state;
    struct test_program programs[2];

    test_migration_enter(nodes->from, programs, 2);
    nodes->to->settings.kill_grace_ms = TEST_GRACE_MS;
    for (unsigned i = 0; i < sizeof failures / sizeof failures[0]; i++) {
        test_node_make_fail(nodes->to, failures[i].node_points, failures[i].server_points);
        order(nodes, false);
        until(nodes, FLYT_MIGRATION_FAILED);
        if (!i) /* what it was refused with, at once: only one that is busy is asked again */
            test_contains(sent(nodes)->op.text, "node.receive.connect");
        flyt_node_receive_cancel(test_received(nodes->to), "the source has failed");
        test_receive_until(nodes->to, FLYT_MIGRATION_FAILED);
        test_node_make_fail(nodes->to, NULL, NULL);
        assert_null(flyt_node_allocation_find(&nodes->to->node, test_one.id));
        for (unsigned j = 0; j < 2; j++)
            test_program_say(nodes->from, &programs[j], "read 1", "4711");
        sent(nodes)->op.id = 1;
        test_receive_forget(nodes->to);
    }
    for (unsigned i = 0; i < 2; i++)
        test_program_say(nodes->from, &programs[i], "drop 1", "8388608");
    test_node_leave(nodes->from, &test_one, programs, 2);
}

static void restart(struct test_node *test)
{
    test_node_stop(test);
    test_node_start(test);
    test_node_until_warm(test);
}

/* Before SWITCH: all stay. After it, when one client has come: that one goes on there, the other one does when it
 * comes. */
static void test_the_target_is_restarted(void **state)
{
    struct nodes *nodes = *state;
    struct test_program programs[2];

    arrive(nodes, programs, 2, false);
    restart(nodes->to);
    test_receive_until(nodes->to, FLYT_MIGRATION_FAILED);
    assert_int_equal(flyt_node_migration_cancel(sent(nodes), "the target was restarted"), 0);
    until(nodes, FLYT_MIGRATION_FAILED);
    sent(nodes)->op.id = 1;
    test_receive_forget(nodes->to);
    order(nodes, false);
    until(nodes, FLYT_MIGRATION_ARRIVED);
    switch_both(nodes, programs, 2);
    test_node_come_back(nodes->to, &test_one, &programs[0]);
    restart(nodes->to);
    test_node_until_back(nodes->to, &programs[0]);
    test_program_say(nodes->to, &programs[0], "go_on", "0");
    test_node_until(nodes->to, test_node_is_away, &programs[1], "the server of the other one waits for it again");
    test_node_come_back(nodes->to, &test_one, &programs[1]);
    test_program_say(nodes->to, &programs[1], "go_on", "0");
    assert_int_equal(test_receive_until(nodes->to, FLYT_MIGRATION_DONE).session_count, 2);
    test_program_say(nodes->to, &programs[0], "read 1", "4711");
    test_node_remove_now(nodes->from, test_one.id);
    until(nodes, FLYT_MIGRATION_DONE);
    test_program_say(nodes->to, &programs[0], "drop 1", "8388608");
    test_node_leave(nodes->to, &test_one, programs, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_one_session, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_three_sessions, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_nobody_runs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_source_dies, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_it_is_tried_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_target_gives_up, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_source_gives_up, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_it_is_sent_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_target_fails, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_target_is_restarted, set_up, tear_down),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
