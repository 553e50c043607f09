/* Tests of programs that leave for another node while they run (send.h), with fake servers and a node that is played:
 * until they have left. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/node/state/departed.h"
#include "control/node/test/test_send.h"
#include "control/node/uplink/report.h"

/* ---- as it should be ---- */

static void is_its_connection(const struct test_far_connection *connection, const struct test_program *program,
                              unsigned stream, unsigned stream_count)
{
    assert_true(connection->credentials.migration_id == TEST_MIGRATION_ID);
    assert_true(connection->credentials.allocation_id == test_one.id);
    assert_true(connection->credentials.session_id == program->session_id);
    assert_int_equal(connection->credentials.stream, stream);
    assert_int_equal(connection->credentials.stream_count, stream_count);
    assert_true(connection->credentials.started_ms > 0);
    test_contains(connection->credentials.client_address, "127.0.0.1:");
    assert_memory_equal(connection->token, program->token, sizeof connection->token);
    assert_int_equal(connection->pid, TEST_SEND_PROGRAM_PID);
    assert_string_equal(connection->program, "test_program");
}

/* Its server has them all, in their order, with the keys that the other node has. */
static void has_connections(struct test_far *far, const struct test_program *program, const struct test_far_wish *wish)
{
    char keys[80], number[12];
    int used = snprintf(keys, sizeof keys, "%d", wish->is_encrypted);

    for (unsigned stream = 0; stream <= wish->stream_count; stream++) {
        struct test_far_connection *connection = test_far_connection(far, program, stream);
        is_its_connection(connection, program, stream, wish->stream_count);
        used +=
            snprintf(keys + used, sizeof keys - (size_t)used, " %02x%02x", wish->is_encrypted ? connection->key[0] : 0,
                     wish->is_encrypted ? connection->key[sizeof connection->key - 1] : 0);
        snprintf(number, sizeof number, "%u", stream);
        if (stream)
            assert_string_equal(test_far_line(far, connection), number);
    }
    struct test_far_connection *first = test_far_connection(far, program, 0);
    test_far_say(first, "keys");
    assert_string_equal(test_far_line(far, first), keys);
}

static void send_all(struct test_node *test, unsigned count, unsigned stream_count, bool is_encrypted)
{
    const struct test_far_wish wish = {.stream_count = stream_count, .stop_ms = 60000, .is_encrypted = is_encrypted};
    struct test_program programs[3];
    struct test_far far;

    test_far_open(&far, test);
    test_migration_enter(test, programs, count);
    for (unsigned i = 0; i < count; i++)
        test_program_say(test, &programs[i], "busy 1", "0");
    assert_int_equal(test_far_order(&far, &wish, NULL), FLYT_STATUS_OK);
    assert_int_equal(test_far_order(&far, &wish, NULL), FLYT_STATUS_OK); /* it is known */
    for (unsigned i = 0; i < count; i++) {
        has_connections(&far, &programs[i], &wish);
        test_program_say(test, &programs[i], "busy 0", "0");
    }
    assert_int_equal(far.count, count * (1 + stream_count));
    test_far_take_all(&far, programs, count);
    assert_int_equal(test_send_count_shown(test), count);
    test_send_all_leave(test, programs, count);
    /* Whoever comes before it is known where to go comes again. */
    for (unsigned i = 0; i < count; i++) {
        const struct flyt_credentials credentials = test_node_credentials(&test_one);
        struct test_program again = test_node_resume(test, &credentials, programs[i].token, false);
        assert_int_equal(again.status, FLYT_HANDSHAKE_BUSY);
        test_contains(again.message, "node far");
    }
    assert_int_equal(test_send_count_shown(test), 0);
    assert_int_equal(test_node_use(test, test_one.id).session_count, count);
    test_send_take_back(test, count);
    assert_int_equal(test->node.sessions_moved, count);
    test_far_close(&far);
}

static void test_one_session(void **state)
{
    send_all(*state, 1, 2, true);
}

static void test_three_sessions(void **state)
{
    send_all(*state, 3, 0, false);
}

static void test_all_streams(void **state)
{
    send_all(*state, 2, FLYT_MIGRATION_STREAMS_MAX, true);
}

static void test_nobody_runs(void **state)
{
    struct test_far *far = *state;
    struct test_node *test = far->test;

    test_node_grant(test, &test_one);
    test_far_start(far);
    test_far_until(far, FLYT_MIGRATION_ARRIVED);
    test_send_let_leave(test);
    test_send_take_back(test, 0);
    assert_int_equal(far->count, 0);
}

/* The order that ends it may be one for its state, too. */
static void test_it_is_ended_by_its_state(void **state)
{
    struct test_far *far = *state;
    struct test_node *test = far->test;
    struct test_wish ending = test_one;
    struct test_program program;

    test_send_arrive(far, &program, 1);
    test_send_all_leave(test, &program, 1);
    ending.revision = 2;
    ending.state = FLYT_ALLOCATION_ENDING;
    unsigned before = test->event_count;
    assert_int_equal(test_node_order(test, &ending).status, FLYT_STATUS_OK);
    test_node_until(test, test_send_is_done, NULL, "its end");
    assert_int_equal(test_migration_of(test)->op.phase, FLYT_MIGRATION_DONE);
    assert_int_equal(test->event_count, before + 1);
    test_contains(test->last_event, "migration.left");
    test_node_until_empty(test, &test_one);
    test_node_remove_now(test, test_one.id);
    assert_int_equal(flyt_node_departed_find(&test->node.state, test_one.id), 0);
}

static void test_figures(void **state)
{
    struct test_far *far = *state;
    struct test_node *test = far->test;
    struct test_program program;
    flyt_migration_use use;

    test_send_arrive(far, &program, 1);
    flyt_node_operation_use(&test_migration_of(test)->op, &use);
    assert_int_equal(use.phase, FLYT_MIGRATION_ARRIVED);
    assert_int_equal(use.session_count, 1);
    assert_int_equal(use.round, 2);
    assert_int_equal(use.memory_bytes, 4096);
    assert_int_equal(use.copied_bytes, 2 * 4096);
    assert_int_equal(use.last_bytes, 4096);
    assert_true(use.standstill_us > 0); /* so far: it lasts */
    const uint64_t so_far_us = use.standstill_us;
    test_send_all_leave(test, &program, 1);
    test_send_take_back(test, 1);
    assert_true(test_migration_of(test)->use.standstill_us > so_far_us);
    flyt_node_operation_use(&test_migration_of(test)->op, &use);
    assert_int_equal(use.session_count, 1);
    assert_int_equal(use.copied_bytes, 2 * 4096);
    assert_true(use.standstill_us > 0);
}

static void test_switch_again(void **state)
{
    struct test_far *far = *state;
    struct test_node *test = far->test;
    struct test_program program;
    struct flyt_error err;

    test_send_arrive(far, &program, 1);
    test_send_all_leave(test, &program, 1);
    assert_int_equal(test_send_do_switch(test, &err), FLYT_STATUS_OK);
    assert_int_equal(flyt_node_migration_cancel(test_migration_of(test), "too late"), -EALREADY);
    test_send_take_back(test, 1);
    assert_int_equal(test_send_do_switch(test, &err), FLYT_STATUS_OK);
    assert_int_equal(flyt_node_send_back(test_migration_of(test), "", &err), FLYT_STATUS_CONFLICT);
}

static void test_a_program_ends_while_it_is_copied(void **state)
{
    struct test_far *far = *state;
    struct test_node *test = far->test;
    struct test_program programs[2];

    test_migration_enter(test, programs, 2);
    test_program_say(test, &programs[1], "busy 1", "0");
    test_far_start(far);
    struct test_far_connection *connection = test_far_connection(far, &programs[1], 0);
    test_far_until(far, FLYT_MIGRATION_COPYING);
    test_program_say(test, &programs[1], "quit", "gone");
    close(programs[1].fd);
    test_node_until_ended(test, &programs[1]);
    assert_string_equal(test_far_line(far, connection), "gone");
    test_far_take_all(far, programs, 1);
    test_send_all_leave(test, programs, 1);
    test_send_take_back(test, 1);
}

/* ---- programs that begin ---- */

static bool is_in_move(struct test_node *test, void *program)
{
    const struct flyt_node_server *server = test_node_server(test, program);

    return server && flyt_node_move_at(server) && flyt_node_move_at(server)->stage == FLYT_NODE_MOVE_COPYING;
}

static void test_a_program_that_begins_joins(void **state)
{
    struct test_far *far = *state;
    struct test_node *test = far->test;
    struct test_program programs[2];

    test_migration_enter(test, programs, 1);
    test_program_say(test, &programs[0], "busy 1", "0");
    test_far_start(far);
    test_far_until(far, FLYT_MIGRATION_COPYING);
    programs[1] = test_node_enter(test, &test_one);
    test_node_until(test, is_in_move, &programs[1], "it joins");
    test_program_say(test, &programs[1], "extent 1 0 8388608", "0");
    test_program_say(test, &programs[1], "write 1 4711", "0");
    test_program_say(test, &programs[0], "busy 0", "0");
    test_far_take_all(far, programs, 2);
    test_send_all_leave(test, programs, 2);
    test_send_take_back(test, 2);
}

static void test_a_program_that_begins_after_it_asks_again(void **state)
{
    struct test_far *far = *state;
    struct test_node *test = far->test;
    const struct flyt_credentials credentials = test_node_credentials(&test_one);
    struct test_program program;

    test_send_arrive(far, &program, 1);
    test_send_all_leave(test, &program, 1);
    struct test_program other = test_node_connect(test, &credentials, NULL, false);
    assert_int_equal(other.status, FLYT_HANDSHAKE_DENIED);
    test_contains(other.message, "go on at another node");
    test_send_take_back(test, 1);
}

static int do_later(sd_event_source *source, uint64_t usec, void *user)
{
    struct test_node *test = user;

    if (test->node.waiting_count) /* it is there */
        test_send_begin_switch(test);
    else
        assert_true(sd_event_source_set_time_relative(source, 10000) >= 0 &&
                    sd_event_source_set_enabled(source, SD_EVENT_ONESHOT) >= 0);
    return 0;
}

/* It waits from the stop on, and hears of the switch at once. */
static void test_a_program_that_begins_waits(void **state)
{
    struct test_far *far = *state;
    struct test_node *test = far->test;
    const struct flyt_credentials credentials = test_node_credentials(&test_one);
    sd_event_source *timer = NULL;
    struct test_program program;

    test_send_arrive(far, &program, 1);
    assert_true(sd_event_add_time_relative(test->event, &timer, CLOCK_MONOTONIC, 10000, 1, do_later, test) >= 0);
    struct test_program other = test_node_connect(test, &credentials, NULL, false);
    assert_int_equal(other.status, FLYT_HANDSHAKE_DENIED);
    assert_int_equal(test_migration_of(test)->op.phase, FLYT_MIGRATION_SWITCHING);
    sd_event_source_disable_unref(timer);
    test_send_is_told_to_leave(test, &program);
    test_send_take_back(test, 1);
}

static int cancel_later(sd_event_source *source, uint64_t usec, void *user)
{
    struct test_node *test = user;

    if (test->node.waiting_count)
        assert_int_equal(flyt_node_migration_cancel(test_migration_of(test), "it was ended"), 0);
    else
        assert_true(sd_event_source_set_time_relative(source, 10000) >= 0 &&
                    sd_event_source_set_enabled(source, SD_EVENT_ONESHOT) >= 0);
    return 0;
}

/* It waits, and is let in when all stay. */
static void test_a_program_that_begins_is_let_in(void **state)
{
    struct test_far *far = *state;
    struct test_node *test = far->test;
    struct test_program programs[2];
    sd_event_source *timer = NULL;

    test_send_arrive(far, programs, 1);
    assert_true(sd_event_add_time_relative(test->event, &timer, CLOCK_MONOTONIC, 10000, 1, cancel_later, test) >= 0);
    programs[1] = test_node_enter(test, &test_one);
    sd_event_source_disable_unref(timer);
    test_far_until(far, FLYT_MIGRATION_FAILED);
    test_program_say(test, &programs[0], "read 1", "4711");
    test_node_leave(test, &test_one, programs, 2);
}

/* ---- failures before the switch ---- */

static const char *const points[] = {"node.send.connect",   "node.send.hand_over", "node.send.stop",
                                     "node.send.connect:2", "node.send.stop:2",    "node.send.arrive"};

static void test_failures(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];
    char variable[80], name[40];

    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        struct test_far far;
        const char *colon = strchr(points[i], ':');
        snprintf(name, sizeof name, "%.*s", colon ? (int)(colon - points[i]) : 39, points[i]);
        snprintf(variable, sizeof variable, "%s:error%s", name, colon ? colon : "");
        test_far_open(&far, test);
        test_migration_enter(test, programs, 2);
        test_node_make_fail(test, variable, NULL);
        test_far_start(&far);
        if (!strcmp(name, "node.send.arrive"))
            test_far_take(&far, &programs[1]);
        test_send_failed(&far, name);
        test_node_make_fail(test, NULL, NULL);
        test_send_stayed(&far, programs, 2);
        test_far_close(&far);
    }
}

static bool cannot_move(struct test_node *test, void *program)
{
    const struct flyt_node_server *server = test_node_server(test, program);

    return server->has.has_use && !server->has.use.can_move;
}

static bool moves_near(struct test_node *test, void *program)
{
    return test_node_server(test, program)->has.use.can_move == FLYT_MANAGER_LINK_CAN_MOVE_NEAR;
}

static void test_refusals(void **state)
{
    struct test_far *far = *state;
    struct test_node *test = far->test;
    const struct test_far_wish wish = {.stop_ms = 60000}, many = {.stream_count = FLYT_MIGRATION_STREAMS_MAX + 1};
    struct test_program program;
    struct flyt_error err;

    assert_int_equal(test_far_order(far, &wish, &err), FLYT_STATUS_NOT_FOUND);
    test_migration_enter(test, &program, 1);
    assert_int_equal(test_far_order(far, &many, &err), FLYT_STATUS_INVALID);
    test_node_make_fail(test, "node.send.accept:error", NULL);
    assert_int_equal(test_far_order(far, &wish, &err), FLYT_STATUS_UNAVAILABLE);
    test_contains(err.text, "node.send.accept");
    test_node_make_fail(test, NULL, NULL);
    snprintf(far->url, sizeof far->url, "nonsense");
    assert_int_equal(test_far_order(far, &wish, &err), FLYT_STATUS_INVALID);
    test_contains(err.text, "no address");
    assert_null(test_migration_of(test));
    test_program_say(test, &program, "movable 0", "0");
    test_node_until(test, cannot_move, &program, "its USE");
    assert_int_equal(test_far_order(far, &wish, &err), FLYT_STATUS_NOT_SUPPORTED);
    test_contains(err.text, "of an older build");
    test_program_say(test, &program, "movable 1", "0");
    test_node_until(test, moves_near, &program, "its USE");
    assert_int_equal(test_far_order(far, &wish, &err), FLYT_STATUS_NOT_SUPPORTED);
    test_contains(err.text, "program test_program of VM 10.0.0.1 cannot be moved: " FLYT_NODE_MOVE_TOO_OLD);
    assert_null(test_migration_of(test));
    test_migration_stayed(test, &program, 1);
    test_node_leave(test, &test_one, &program, 1);
}

/* Its server is older, and says so only when it has begun: nothing was sent, and nobody was stopped. */
static void test_an_older_server(void **state)
{
    struct test_far *far = *state;
    struct test_node *test = far->test;
    struct test_program programs[2];

    test_migration_enter(test, programs, 2);
    test_program_say(test, &programs[1], "movable 1", "0");
    test_node_until(test, moves_near, &programs[1], "its USE");
    test_node_server(test, &programs[1])->has.has_use = false; /* it has not come yet */
    test_far_start(far);
    test_program_say(test, &programs[1], "movable 1", "0");
    test_send_failed(far, FLYT_NODE_MOVE_TOO_OLD);
    assert_int_equal(test_migration_of(test)->op.status, FLYT_STATUS_NOT_SUPPORTED);
    flyt_migration_use use;
    flyt_node_operation_use(&test_migration_of(test)->op, &use);
    assert_int_equal(use.standstill_us, 0);
    test_send_stayed(far, programs, 2);
}

static void test_a_session_that_cannot(void **state)
{
    struct test_far *far = *state;
    struct test_node *test = far->test;
    struct test_program programs[2];

    test_migration_enter(test, programs, 2);
    test_program_say(test, &programs[0], "refusing 1", "0");
    test_far_start(far);
    test_send_failed(far, "a kernel of it allocates memory");
    assert_int_equal(test_migration_of(test)->op.status, FLYT_STATUS_NOT_SUPPORTED);
    test_send_stayed(far, programs, 2);
}

static void test_other_orders_wait(void **state)
{
    struct test_far *far = *state;
    struct test_node *test = far->test;
    struct test_wish wish = test_one;
    struct test_program program;
    struct flyt_error err;

    test_send_arrive(far, &program, 1);
    wish.revision = 2;
    wish.memory_bytes = 50 * MIB;
    assert_int_equal(test_node_order(test, &wish).status, FLYT_STATUS_CONFLICT);
    wish = test_migration_target(1);
    const flyt_migration_bounds bounds = {0};
    assert_int_equal(test_migration_order(test, 0x77, &wish, &bounds, &err), FLYT_STATUS_CONFLICT);
    assert_int_equal(flyt_node_migration_cancel(test_migration_of(test), "it was ended"), 0);
    test_send_failed(far, "it was ended");
    test_send_stayed(far, &program, 1);
}

/* ---- the listener ---- */

static void test_nobody_is_there(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];
    struct test_far far;

    test_far_open(&far, test);
    test_far_close(&far);
    far.count = 0;
    test_migration_enter(test, programs, 2);
    test_far_start(&far);
    test_send_failed(&far, "node far cannot be connected to");
    assert_int_equal(test_migration_of(test)->op.status, FLYT_STATUS_UNAVAILABLE);
    test_send_stayed(&far, programs, 2);
}

static void test_the_listener_refuses(void **state)
{
    struct test_node *test = *state;

    for (unsigned i = 0; i < 2; i++) {
        const struct test_far_wish wish = {.stop_ms = 60000, .stream_count = 1, .is_forged = i == 1};
        struct test_program program;
        struct test_far far;
        test_far_open(&far, test);
        far.refuses = i == 0;
        test_migration_enter(test, &program, 1);
        assert_int_equal(test_far_order(&far, &wish, NULL), FLYT_STATUS_OK);
        test_send_failed(&far, "no such program is awaited");
        test_send_stayed(&far, &program, 1);
        test_far_close(&far);
    }
}

static void test_the_listener_is_busy(void **state)
{
    struct test_far *far = *state;
    struct test_node *test = far->test;
    const struct test_far_wish wish = {.stop_ms = 60000, .stream_count = 2};
    struct test_program program;

    far->busy_count = 2;
    test_migration_enter(test, &program, 1);
    assert_int_equal(test_far_order(far, &wish, NULL), FLYT_STATUS_OK);
    test_far_until(far, FLYT_MIGRATION_COPYING);
    assert_int_equal(far->refused_count, 2);
    test_far_take_all(far, &program, 1);
    test_send_all_leave(test, &program, 1);
    test_send_take_back(test, 1);
}

static void cut(struct test_far_connection *connection)
{
    close(connection->fd);
    connection->fd = -1;
}

static void test_it_is_cut_while_copying(void **state)
{
    struct test_far *far = *state;
    struct test_node *test = far->test;
    struct test_program programs[2];

    test_migration_enter(test, programs, 2);
    test_program_say(test, &programs[0], "busy 1", "0");
    test_far_start(far);
    struct test_far_connection *connection = test_far_connection(far, &programs[1], 0);
    test_far_until(far, FLYT_MIGRATION_COPYING);
    cut(connection);
    test_send_failed(far, "the connection to the other node has ended");
    test_send_stayed(far, programs, 2);
}

static void test_it_is_cut_while_stopping(void **state)
{
    struct test_far *far = *state;
    struct test_node *test = far->test;
    struct test_program programs[2];

    test_migration_enter(test, programs, 2);
    test_far_start(far);
    test_far_take(far, &programs[0]);
    cut(test_far_connection(far, &programs[1], 0));
    test_send_failed(far, "the connection to the other node has ended");
    test_send_stayed(far, programs, 2);
}

static void test_the_other_node_cannot_take_it(void **state)
{
    struct test_node *test = *state;

    for (unsigned is_late = 0; is_late < 2; is_late++) {
        struct test_program programs[2];
        struct test_far far;
        test_far_open(&far, test);
        test_migration_enter(test, programs, 2);
        test_program_say(test, &programs[0], is_late ? "busy 0" : "busy 1", "0");
        test_far_start(&far);
        struct test_far_connection *connection = test_far_connection(&far, &programs[1], 0);
        if (is_late)
            test_contains(test_far_line(&far, connection), "make");
        test_far_say(connection, "its GPU has no memory left");
        test_send_failed(&far, "its GPU has no memory left");
        test_send_stayed(&far, programs, 2);
        test_far_close(&far);
    }
}

static void test_it_fails_when_it_has_arrived(void **state)
{
    struct test_far *far = *state;
    struct test_program programs[2];

    test_send_arrive(far, programs, 2);
    test_far_say(test_far_connection(far, &programs[0], 0), "its GPU has failed");
    test_send_failed(far, "its GPU has failed");
    test_send_stayed(far, programs, 2);
}

/* It is tried again, with new connections. */
static void test_a_program_that_stops_late(void **state)
{
    struct test_far *far = *state;
    struct test_node *test = far->test;
    struct test_program programs[2];

    test_migration_enter(test, programs, 2);
    test_program_say(test, &programs[0], "restless 1", "0");
    test_far_start(far);
    struct test_far_connection *firsts[] = {test_far_connection(far, &programs[0], 0),
                                            test_far_connection(far, &programs[1], 0)};
    for (unsigned i = 0; i < 2; i++) {
        while (strcmp(test_far_line(far, firsts[i]), "gone") != 0)
            continue;
        cut(firsts[i]);
    }
    test_far_take_all(far, programs, 2);
    assert_int_equal(test_migration_of(test)->tries, 2);
    assert_int_equal(far->count, 4);
    test_send_all_leave(test, programs, 2);
    test_send_take_back(test, 2);
}

/* ---- everything is there ---- */

static void test_no_switch_comes(void **state)
{
    struct test_far *far = *state;
    struct test_node *test = far->test;
    struct test_program programs[2];

    test_send_arrive(far, programs, 2);
    test_node_run(test, 300);
    assert_int_equal(test_migration_of(test)->op.phase, FLYT_MIGRATION_ARRIVED);
    test_migration_of(test)->sending->arrived_ms -= 60000 + FLYT_NODE_SEND_GRACE_MS;
    test_send_failed(far, "has not said in time");
    assert_int_equal(test_migration_of(test)->op.status, FLYT_STATUS_TIMEOUT);
    test_send_stayed(far, programs, 2);
}

static void test_cancel(void **state)
{
    struct test_node *test = *state;

    for (unsigned i = 0; i < TEST_SEND_PHASES; i++) {
        struct test_program programs[2];
        struct test_far far;
        test_far_open(&far, test);
        test_send_reach(&far, programs, i);
        assert_int_equal(flyt_node_migration_cancel(test_migration_of(test), "it was ended"), 0);
        test_send_failed(&far, "it was ended");
        test_send_stayed(&far, programs, 2);
        test_far_close(&far);
    }
}

static void test_a_switch_that_comes_early(void **state)
{
    struct test_far *far = *state;
    struct test_node *test = far->test;
    struct test_program program;
    struct flyt_error err;

    test_migration_enter(test, &program, 1);
    test_program_say(test, &program, "busy 1", "0");
    test_far_start(far);
    test_far_until(far, FLYT_MIGRATION_COPYING);
    assert_int_equal(test_send_do_switch(test, &err), FLYT_STATUS_CONFLICT);
    test_contains(err.text, "not everything has arrived");
    test_send_failed(far, "not everything has arrived"); /* as it was answered */
    test_send_stayed(far, &program, 1);
}

static void test_the_switch_fails(void **state)
{
    struct test_far *far = *state;
    struct test_node *test = far->test;
    struct test_program programs[2];
    struct flyt_error err;

    test_send_arrive(far, programs, 2);
    test_node_make_fail(test, "node.send.switch:error", NULL);
    assert_int_equal(test_send_do_switch(test, &err), FLYT_STATUS_CONFLICT);
    test_send_failed(far, "node.send.switch");
    test_node_make_fail(test, NULL, NULL);
    test_send_stayed(far, programs, 2);
}

static void test_the_state_cannot_be_kept(void **state)
{
    struct test_far *far = *state;
    struct test_node *test = far->test;
    struct test_program program;
    struct flyt_error err;
    char path[128];

    test_send_arrive(far, &program, 1);
    snprintf(path, sizeof path, "%s/state.json.part", test->folder);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(test_send_do_switch(test, &err), FLYT_STATUS_CONFLICT);
    test_contains(err.text, "state file cannot be written");
    test_send_failed(far, "state file cannot be written");
    assert_int_equal(rmdir(path), 0);
    test_send_stayed(far, &program, 1);
}

static void test_a_session_is_ended_when_it_has_arrived(void **state)
{
    struct test_far *far = *state;
    struct test_node *test = far->test;
    struct test_program programs[2];

    test_send_arrive(far, programs, 2);
    flyt_node_server_end_anywhere(test_node_server(test, &programs[0]), "an operator has ended this session");
    test_send_failed(far, "it has ended while it stood still");
    close(programs[0].fd);
    test_send_stayed(far, &programs[1], 1);
}

static void test_a_server_dies_when_it_has_arrived(void **state)
{
    struct test_far *far = *state;
    struct test_node *test = far->test;
    struct test_program programs[2];

    test_send_arrive(far, programs, 2);
    kill(test_node_server(test, &programs[0])->pid, SIGKILL);
    test_send_failed(far, "ended unexpectedly");
    close(programs[0].fd);
    test_send_stayed(far, &programs[1], 1);
}

static void test_the_allocation_is_removed_before(void **state)
{
    struct test_far *far = *state;
    struct test_node *test = far->test;
    struct test_program program;

    test_send_arrive(far, &program, 1);
    test_node_remove_now(test, test_one.id);
    test_far_until(far, FLYT_MIGRATION_FAILED);
    test_contains(test_migration_of(test)->op.text, "was taken back");
    close(program.fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_NODE(test_one_session),
        TEST_NODE(test_three_sessions),
        TEST_NODE(test_all_streams),
        TEST_FAR(test_nobody_runs),
        TEST_FAR(test_it_is_ended_by_its_state),
        TEST_FAR(test_figures),
        TEST_FAR(test_switch_again),
        TEST_FAR(test_a_program_ends_while_it_is_copied),
        TEST_FAR(test_a_program_that_begins_joins),
        TEST_FAR(test_a_program_that_begins_after_it_asks_again),
        TEST_FAR(test_a_program_that_begins_waits),
        TEST_FAR(test_a_program_that_begins_is_let_in),
        TEST_NODE(test_failures),
        TEST_FAR(test_refusals),
        TEST_FAR(test_an_older_server),
        TEST_FAR(test_a_session_that_cannot),
        TEST_FAR(test_other_orders_wait),
        TEST_NODE(test_nobody_is_there),
        TEST_NODE(test_the_listener_refuses),
        TEST_FAR(test_the_listener_is_busy),
        TEST_FAR(test_it_is_cut_while_copying),
        TEST_FAR(test_it_is_cut_while_stopping),
        TEST_NODE(test_the_other_node_cannot_take_it),
        TEST_FAR(test_it_fails_when_it_has_arrived),
        TEST_FAR(test_a_program_that_stops_late),
        TEST_FAR(test_no_switch_comes),
        TEST_NODE(test_cancel),
        TEST_FAR(test_a_switch_that_comes_early),
        TEST_FAR(test_the_switch_fails),
        TEST_FAR(test_the_state_cannot_be_kept),
        TEST_FAR(test_a_session_is_ended_when_it_has_arrived),
        TEST_FAR(test_a_server_dies_when_it_has_arrived),
        TEST_FAR(test_the_allocation_is_removed_before),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
