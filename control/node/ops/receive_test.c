/* Tests of programs that arrive from another node (receive.h, arrival.h, session_load.h), up to SWITCH. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/node/state/remembered.h"
#include "control/node/test/test_receive.h"
#include "rpc/base/fault_point.h"

/* ---- as it should be ---- */

static void test_programs_arrive(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[3], early;
    struct test_source sources[3];
    flyt_migration_use use;

    const struct flyt_credentials credentials = test_node_credentials(&test_one);
    test_sources_bring(test, sources, 3);
    assert_int_equal(test_receive(test), FLYT_STATUS_OK); /* once more */
    early = test_node_connect(test, &credentials, NULL, false);
    assert_int_equal(early.status, FLYT_HANDSHAKE_BUSY);
    test_contains(early.message, "on their way");
    for (unsigned i = 0; i < 3; i++) {
        programs[i] = test_source_client(&sources[i]);
        assert_int_equal(test_node_try_to_come(test, &test_one, &programs[i]), FLYT_HANDSHAKE_BUSY);
    }
    assert_int_equal(test_receive_count_shown(test), 0);
    assert_false(test_receive_is_told(test));
    test_receive_must_switch(test, 3);
    test_receive_must_switch(test, 3);
    assert_int_equal(test_receive_switch(test, 2).status, FLYT_STATUS_CONFLICT);
    assert_true(test_receive_is_told(test));
    for (unsigned i = 0; i < 3; i++) {
        test_source_go_on(test, &sources[i], &programs[i]);
        assert_int_equal(test_receive_count_shown(test), i);
        test_program_say(test, &programs[i], "go_on", "0");
        test_receive_until_shown(test, i + 1);
    }
    use = test_receive_until(test, FLYT_MIGRATION_DONE);
    assert_int_equal(use.session_count, 3);
    assert_int_equal(use.memory_bytes, 30 * MIB);
    assert_true(use.standstill_us > 0);
    test_contains(test->last_event, "receive.done");
    assert_null(test->node.state.receiving);
    assert_int_equal(test_receive_count_shown(test), 3);
    assert_int_equal(test_node_used_bytes(test, &test_one), 30 * MIB);
    assert_int_equal(test_receive_switch(test, 3).status, FLYT_STATUS_OK);
    early = test_node_enter(test, &test_one);
    test_program_say(test, &early, "quit", "gone");
    close(early.fd);
    for (unsigned i = 0; i < 3; i++)
        test_source_leave(&sources[i]);
    test_node_leave(test, &test_one, programs, 3);
}

static void test_without_programs(void **state)
{
    struct test_node *test = *state;

    test_receive_begin(test);
    test_receive_must_switch(test, 0);
    assert_int_equal(test_receive_until(test, FLYT_MIGRATION_DONE).session_count, 0);
    struct test_program program = test_node_enter(test, &test_one);
    test_node_leave(test, &test_one, &program, 1);
}

/* Each connection has the key that both sides compute of its challenge. */
static void test_keys(void **state)
{
    struct test_node *test = *state;
    const unsigned folder_count = test_receive_count_folders(test);
    struct test_source source = test_source_new(5, FLYT_MIGRATION_STREAMS_MAX);
    char text[64] = "1";
    int used = 1;

    assert_int_equal(test_receive_as(test, &test_one, TEST_MIGRATION, test_secret, true), FLYT_STATUS_OK);
    test_source_arrive(test, &source);
    for (unsigned i = 0; i <= FLYT_MIGRATION_STREAMS_MAX; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, " %02x%02x", source.keys[i][0],
                         source.keys[i][FLYT_TICKET_KEY_BYTES - 1]);
    test_source_tell(&source, 0, "keys");
    assert_string_equal(test_source_hear(test, &source), text);
    assert_int_equal(flyt_node_receive_cancel(test_received(test), "enough"), 0);
    assert_string_equal(test_source_hear(test, &source), "gone");
    test_source_leave(&source);
    test_receive_until_failed(test, folder_count, FLYT_STATUS_CONFLICT, "enough");
}

/* ---- test_refusals ---- */

static void test_orders_that_are_refused(void **state)
{
    struct test_node *test = *state;
    const unsigned char none[sizeof test_secret] = {0};
    struct test_wish large = test_one, nowhere = test_one;
    const unsigned folder_count = test_receive_count_folders(test);

    large.memory_bytes = 2048 * MIB;
    nowhere.gpu = 99;
    assert_int_equal(test_receive_as(test, &test_one, 0, test_secret, false), FLYT_STATUS_INVALID);
    assert_int_equal(test_receive_as(test, &test_one, 1, none, false), FLYT_STATUS_INVALID);
    assert_int_equal(test_receive_as(test, &nowhere, 1, test_secret, false), FLYT_STATUS_NOT_FOUND);
    assert_int_equal(test_receive_as(test, &large, 1, test_secret, false), FLYT_STATUS_NO_CAPACITY);
    test_contains(test_refusal.text, "no room");
    test_node_make_fail(test, "node.receive.accept:error", NULL);
    assert_int_equal(test_receive(test), FLYT_STATUS_UNAVAILABLE);
    test_node_make_fail(test, NULL, NULL);
    test_receive_is_gone(test, folder_count);
    test_node_grant(test, &test_one);
    assert_int_equal(test_receive(test), FLYT_STATUS_CONFLICT);
    test_contains(test_refusal.text, "already");
    test_node_remove_now(test, test_one.id);
    test_receive_begin(test);
    assert_int_equal(test_receive_as(test, &test_one, 2, test_secret, false), FLYT_STATUS_CONFLICT);
    assert_int_equal(flyt_node_receive_cancel(test_received(test), "enough"), 0);
    test_receive_until_failed(test, folder_count, FLYT_STATUS_CONFLICT, "enough");
    assert_int_equal(test_receive(test), FLYT_STATUS_CONFLICT);
    test_contains(test_refusal.text, "has failed here: enough");
}

/* Other orders for the VM. */
static void test_one_order_at_a_time(void **state)
{
    struct test_node *test = *state;
    struct test_wish larger = test_one;
    const unsigned folder_count = test_receive_count_folders(test);

    larger.revision = 2;
    larger.group_count = 8;
    test_receive_begin(test);
    assert_int_equal(test_node_order(test, &test_one).status, FLYT_STATUS_OK); /* it is so */
    assert_int_equal(test_node_order(test, &larger).status, FLYT_STATUS_CONFLICT);
    larger.state = FLYT_ALLOCATION_ENDING;
    assert_int_equal(test_node_order(test, &larger).status, FLYT_STATUS_OK);
    test_receive_until_failed(test, folder_count, FLYT_STATUS_CONFLICT, "was taken back");
}

static void refused(struct test_dialed dialed, const char *words)
{
    assert_int_not_equal(dialed.status, 0);
    test_contains(dialed.sentence, words);
}

static void test_connections_that_are_refused(void **state)
{
    struct test_node *test = *state;
    struct flyt_migrate_credentials credentials = {
        .migration_id = TEST_MIGRATION, .allocation_id = test_one.id, .session_id = 5, .stream_count = 1};
    struct test_source source = test_source_new(5, 1), other = test_source_new(6, 1), third = test_source_new(7, 0);
    unsigned char forged[sizeof test_secret];
    char data[400];

    memcpy(forged, test_secret, sizeof forged);
    forged[7] ^= 1;
    size_t bytes = flyt_migrate_credentials_put(&credentials, data);
    refused(test_source_dial_as(test, &source, data, bytes, test_secret, 0), "nothing that migrates");
    test->settings.vm_sessions_max = 2;
    test_receive_begin(test);
    refused(test_source_dial_as(test, &source, data, bytes, forged, 0), "nothing that migrates");
    refused(test_source_dial_as(test, &source, "garbage", 7, test_secret, 0), "not of a kind");
    refused(test_source_dial_as(test, &source, data, bytes - 1, test_secret, 0), "not of a kind");
    data[bytes - 1] = 1; /* a name of one byte more than it has */
    credentials.migration_id++;
    bytes = flyt_migrate_credentials_put(&credentials, data);
    refused(test_source_dial_as(test, &source, data, bytes, test_secret, 0), "nothing that migrates");
    credentials.migration_id--;
    credentials.allocation_id++;
    bytes = flyt_migrate_credentials_put(&credentials, data);
    refused(test_source_dial_as(test, &source, data, bytes, test_secret, 0), "another allocation's");
    credentials.allocation_id--;
    credentials.session_id = 0;
    bytes = flyt_migrate_credentials_put(&credentials, data);
    refused(test_source_dial_as(test, &source, data, bytes, test_secret, 0), "no id");
    test_node_make_fail(test, "node.receive.connect:error", NULL);
    refused(test_source_dial(test, &source, 0), "node.receive.connect");
    test_node_make_fail(test, NULL, NULL);
    test_source_must_dial(test, &source, 0);
    refused(test_source_dial(test, &source, 0), "connection 0 of the session is there already");
    test_source_must_dial(test, &other, 1);
    refused(test_source_dial(test, &third, 0), "2 programs of the VM arrive already");
    test_source_must_dial(test, &source, 1);
    test_source_tell(&source, 1, "1");
    test_source_tell(&source, 0, "end 1");
    assert_string_equal(test_source_hear(test, &source), "0");
    test_receive_must_switch(test, 1);
    refused(test_source_dial(test, &other, 0), "have arrived already");
    test_source_leave(&source);
    test_source_leave(&other);
}

/* One that has ended tells nobody why, neither who knew its secret nor who takes that for none. */
static void test_connections_after_its_end(void **state)
{
    struct test_node *test = *state;
    const struct flyt_migrate_credentials credentials = {
        .migration_id = TEST_MIGRATION, .allocation_id = test_one.id, .session_id = 5};
    const unsigned char none[sizeof test_secret] = {0};
    const unsigned folder_count = test_receive_count_folders(test);
    struct test_source source = test_source_new(5, 0);
    char data[400];
    size_t bytes = flyt_migrate_credentials_put(&credentials, data);

    test_receive_begin(test);
    assert_int_equal(flyt_node_receive_cancel(test_received(test), "enough"), 0);
    test_receive_until_failed(test, folder_count, FLYT_STATUS_CONFLICT, "enough");
    refused(test_source_dial_as(test, &source, data, bytes, none, 0), "nothing that migrates");
    refused(test_source_dial_as(test, &source, data, bytes, test_secret, 0), "nothing that migrates");
    test_source_leave(&source);
}

/* ---- connections that fail ---- */

static bool has_arrivals(struct test_node *test, void *count)
{
    unsigned found = 0;

    for (const struct flyt_node_arrival *arrival = test_received(test)->arrivals; arrival; arrival = arrival->next)
        found++;
    return found == *(const unsigned *)count;
}

static void until_arrivals(struct test_node *test, unsigned count)
{
    test_node_until(test, has_arrivals, &count, "so many arrive");
}

static void test_a_connection_is_missing(void **state)
{
    struct test_node *test = *state;
    struct test_source source = test_source_new(0x100, 2);
    struct test_program program;

    test_receive_begin(test);
    test_source_must_dial(test, &source, 0);
    test_source_must_dial(test, &source, 2);
    assert_int_equal(test_receive_until(test, FLYT_MIGRATION_COPYING).session_count, 1);
    test_received(test)->arrivals->session_load.target.state_ms -= LONG_AGO_MS;
    until_arrivals(test, 0);
    assert_string_equal(test_source_hear(test, &source), "gone");
    test_contains(test_receive_switch(test, 1).text, "2 of its 3 connections");
    test_source_leave(&source);
    /* Those that have hung up do not count when it begins again. */
    test_source_must_dial(test, &source, 1);
    test_source_must_dial(test, &source, 2);
    test_source_leave(&source);
    test_source_copy_all(test, &source);
    test_receive_must_switch(test, 1);
    test_source_go_on(test, &source, &program);
    test_program_say(test, &program, "go_on", "0");
    test_receive_until(test, FLYT_MIGRATION_DONE);
    test_source_leave(&source);
    test_node_leave(test, &test_one, &program, 1);
}

static bool is_copied(struct test_node *test, void *unused)
{
    return test_node_used_bytes(test, &test_one) == 10 * MIB;
}

/* Cut off, garbage, begun anew although it was here: what becomes of it is the other node's to decide. */
static void test_it_is_tried_again(void **state)
{
    struct test_node *test = *state;
    struct test_source source = test_source_new(0x100, 1);
    struct test_program program;

    test_receive_begin(test);
    test_source_arrive(test, &source);
    test_source_leave(&source);
    until_arrivals(test, 0);
    test_source_arrive(test, &source);
    test_source_copy(&source);
    test_node_until(test, is_copied, NULL, "its memory is here");
    test_source_leave(&source);
    until_arrivals(test, 0);
    test_node_until_used(test, &test_one, 0);
    test_contains(test_receive_switch(test, 1).text, "the other node has gone");
    test_source_arrive(test, &source);
    test_source_copy(&source);
    test_source_tell(&source, 0, "rubbish");
    assert_string_equal(test_source_hear(test, &source), "gone");
    until_arrivals(test, 0);
    test_source_leave(&source);
    test_contains(test_receive_switch(test, 1).text, "that is no image");
    test_node_make_fail(test, NULL, "fake.state:error");
    test_source_arrive(test, &source);
    test_source_tell(&source, 0, "end 1");
    until_arrivals(test, 0);
    test_source_leave(&source);
    test_contains(test_receive_switch(test, 1).text, "a variable has come to be elsewhere");
    test_node_make_fail(test, NULL, NULL);
    test_source_copy_all(test, &source);
    test_receive_until(test, FLYT_MIGRATION_ARRIVED);
    test_source_leave(&source);
    test_source_copy_all(test, &source);
    test_receive_until(test, FLYT_MIGRATION_ARRIVED);
    until_arrivals(test, 1);
    assert_int_equal(test_node_used_bytes(test, &test_one), 10 * MIB);
    test_receive_must_switch(test, 1);
    test_source_go_on(test, &source, &program);
    test_program_say(test, &program, "go_on", "0");
    test_receive_until(test, FLYT_MIGRATION_DONE);
    test_source_leave(&source);
    test_node_leave(test, &test_one, &program, 1);
}

static bool is_dropped(struct test_node *test, void *unused)
{
    return !test_received(test)->arrivals->session_load.session;
}

/* What its server has made is not free before that has gone, and the allocation is there as long. */
static void test_memory_of_one_that_is_dropped(void **state)
{
    struct test_node *test = *state;
    const unsigned folder_count = test_receive_count_folders(test);
    struct test_source source = test_source_new(0x100, 0);
    siginfo_t info;

    test_receive_begin(test);
    test_source_arrive(test, &source);
    test_source_copy(&source);
    test_node_until(test, is_copied, NULL, "its memory is here");
    const pid_t pid = test_received(test)->arrivals->session_load.target.server->pid;
    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WSTOPPED), 0);
    assert_int_equal(flyt_node_receive_cancel(test_received(test), "an operator wants that"), 0);
    test_node_until(test, is_dropped, NULL, "there is no session any more");
    assert_true(is_copied(test, NULL));
    assert_int_equal(kill(pid, SIGKILL), 0);
    test_receive_until_failed(test, folder_count, FLYT_STATUS_CONFLICT, "an operator wants that");
    test_source_leave(&source);
}

/* Ended ones are remembered, so many, and those whose end was not told yet. */
static void test_what_is_remembered(void **state)
{
    struct test_node *test = *state;

    for (unsigned i = 0; i < FLYT_NODE_TOMBSTONES_MAX + 3; i++) {
        test_receive_begin(test);
        assert_int_equal(flyt_node_receive_cancel(test_received(test), "enough"), 0);
        test_receive_until(test, FLYT_MIGRATION_FAILED);
        test_received(test)->op.is_told = i != 1;
        test_received(test)->op.id = 1000 + i;
    }
    for (unsigned i = 0; i < FLYT_NODE_TOMBSTONES_MAX + 3; i++)
        assert_int_equal(flyt_node_receive_find(&test->node, 1000 + i) != NULL, i >= 3 || i == 1);
}

/* ---- what fails here ---- */

static void test_failures_before_switch(void **state)
{
    static const struct {
        const char *node_points, *server_points, *words;
        flyt_status status;
    } failures[] = {
        {NULL, "fake.prepare:error", "elsewhere", FLYT_STATUS_UNAVAILABLE},
        {NULL, "fake.prepare:kill", "has ended before", FLYT_STATUS_UNAVAILABLE},
        {NULL, "fake.make:error", "memory cannot be made", FLYT_STATUS_NO_CAPACITY},
        {NULL, "fake.make:kill", "has ended before", FLYT_STATUS_UNAVAILABLE},
        {NULL, "fake.state:kill", "has ended before", FLYT_STATUS_UNAVAILABLE},
        {"node.load.prepare:error", NULL, "node.load.prepare", FLYT_STATUS_UNAVAILABLE},
        {"node.load.begin:error", NULL, "node.load.begin", FLYT_STATUS_UNAVAILABLE},
        {"node.load.made:error", NULL, "node.load.made", FLYT_STATUS_UNAVAILABLE},
    };
    struct test_node *test = *state;
    const unsigned folder_count = test_receive_count_folders(test);

    for (unsigned i = 0; i < sizeof failures / sizeof failures[0]; i++) {
        struct test_source source = test_source_new(0x100, 1), other = test_source_new(0x101, 0);
        test_receive_begin(test);
        test_source_copy_all(test, &other);
        test_receive_until(test, FLYT_MIGRATION_ARRIVED);
        test_node_make_fail(test, failures[i].node_points, failures[i].server_points);
        test_source_arrive(test, &source);
        send(source.fds[0], "make 1 8388608 1\nend 1\n", 23, MSG_NOSIGNAL);
        test_receive_until_failed(test, folder_count, failures[i].status, failures[i].words);
        test_node_make_fail(test, NULL, NULL);
        test_receive_forget(test);
        test_source_leave(&source);
        test_source_leave(&other);
    }
}

static void test_no_room(void **state)
{
    struct test_node *test = *state;
    const unsigned folder_count = test_receive_count_folders(test);
    struct test_source source = test_source_new(0x100, 0);

    test_receive_begin(test);
    test_source_arrive(test, &source);
    for (unsigned i = 1; i <= 9; i++) {
        test_source_tell(&source, 0, "make 1 104857600 1");
        test_source_tell(&source, 0, "gone 1");
    }
    test_source_tell(&source, 0, "make 1 104857600 1");
    test_source_tell(&source, 0, "make 2 1 1");
    test_receive_until_failed(test, folder_count, FLYT_STATUS_NO_CAPACITY,
                              "no room for its memory, 104857601 bytes so far");
    test_source_leave(&source);
}

static void test_a_server_that_has_it_dies(void **state)
{
    struct test_node *test = *state;
    const unsigned folder_count = test_receive_count_folders(test);
    struct test_source source;

    test_sources_bring(test, &source, 1);
    kill(test_received(test)->arrivals->session_load.target.server->pid, SIGKILL);
    test_receive_until_failed(test, folder_count, FLYT_STATUS_UNAVAILABLE, "has ended before");
    assert_int_equal(test_receive_switch(test, 1).status, FLYT_STATUS_CONFLICT);
    test_source_leave(&source);
}

static void test_time_limits(void **state)
{
    struct test_node *test = *state;
    const unsigned folder_count = test_receive_count_folders(test);
    struct test_source source;

    test_receive_begin(test);
    test_received(test)->op.started_ms -= LONG_AGO_MS;
    test_receive_until_failed(test, folder_count, FLYT_STATUS_TIMEOUT, "had not arrived after 3600 s");
    test_receive_forget(test);
    test_sources_bring(test, &source, 1);
    test_received(test)->arrived_ms -= LONG_AGO_MS;
    test_receive_until_failed(test, folder_count, FLYT_STATUS_TIMEOUT, "nobody has said that they go on here");
    test_source_leave(&source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_NODE(test_programs_arrive),
        TEST_NODE(test_without_programs),
        TEST_NODE(test_keys),
        TEST_NODE(test_orders_that_are_refused),
        TEST_NODE(test_one_order_at_a_time),
        TEST_NODE(test_connections_that_are_refused),
        TEST_NODE(test_connections_after_its_end),
        TEST_NODE(test_a_connection_is_missing),
        TEST_NODE(test_it_is_tried_again),
        TEST_NODE(test_memory_of_one_that_is_dropped),
        TEST_NODE(test_what_is_remembered),
        TEST_NODE(test_failures_before_switch),
        TEST_NODE(test_no_room),
        TEST_NODE(test_a_server_that_has_it_dies),
        TEST_NODE(test_time_limits),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
