/* Tests of programs that have arrived from another node (receive.h), from SWITCH on; restarts of the node manager. */
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

#include "control/node/ops/ops.h"
#include "control/node/ops/replace.h"
#include "control/node/state/receive_record.h"
#include "control/node/test/test_receive.h"

/* ---- SWITCH ---- */

/* So many programs have arrived and may come. */
static void bring_and_switch(struct test_node *test, struct test_source *sources, unsigned count)
{
    test_sources_bring(test, sources, count);
    test_receive_must_switch(test, count);
}

static void test_switching(void **state)
{
    struct test_node *test = *state;
    const unsigned folder_count = test_receive_count_folders(test);
    struct test_source sources[2];
    struct test_switched switched;

    test_sources_bring(test, sources, 1);
    assert_int_equal(test_receive_switch(test, 0).status, FLYT_STATUS_CONFLICT);
    test_contains(test_receive_switch(test, 2).text, "1 programs have arrived and 0 are on their way, not 2");
    sources[1] = test_source_new(0x101, 1);
    test_source_arrive(test, &sources[1]);
    test_receive_until(test, FLYT_MIGRATION_COPYING);
    /* It waits for one that is about to have arrived, and not for ever. */
    test_receive_ask_to_switch(test, 2, &switched);
    test_node_run(test, 50);
    assert_int_equal(switched.status, (flyt_status)-1);
    assert_int_equal(test_receive_switch(test, 2).status, FLYT_STATUS_CONFLICT);
    test_received(test)->switching.until_ms = 0;
    test_node_until(test, test_receive_is_switched, &switched, "SWITCH is answered");
    assert_int_equal(switched.status, FLYT_STATUS_CONFLICT);
    test_contains(switched.text, "1 programs have arrived and 1 are on their way, not 2");
    test_node_make_fail(test, "node.receive.switch:error", NULL);
    test_receive_ask_to_switch(test, 2, &switched);
    test_received(test)->switching.until_ms += TEST_LONG_MS;
    test_source_tell(&sources[1], 0, "end 17");
    test_node_until(test, test_receive_is_switched, &switched, "SWITCH is answered");
    assert_int_equal(switched.status, FLYT_STATUS_UNAVAILABLE);
    /* What was carried out, and answered otherwise, is OK when it is ordered again. */
    test_node_make_fail(test, "node.receive.switched:error", NULL);
    assert_int_equal(test_receive_switch(test, 2).status, FLYT_STATUS_UNAVAILABLE);
    test_node_make_fail(test, NULL, NULL);
    test_receive_must_switch(test, 2);
    /* The programs go on elsewhere after all. */
    assert_int_equal(flyt_node_receive_cancel(test_received(test), "they have gone on"), 0);
    test_receive_until_failed(test, folder_count, FLYT_STATUS_CONFLICT, "they have gone on");
    test_source_leave(&sources[0]);
    test_source_leave(&sources[1]);
}

/* ---- after SWITCH ---- */

/* Its time is over. */
static void give_up(struct test_node *test, const struct test_source *source)
{
    struct flyt_node_session *session = flyt_node_replace_find(&test->node, source->session_id);

    assert_non_null(session);
    assert_true(sd_event_source_set_time_relative(session->timer, 0) >= 0);
}

static void test_no_client_comes(void **state)
{
    struct test_node *test = *state;
    const unsigned folder_count = test_receive_count_folders(test);
    struct test_source sources[2];

    bring_and_switch(test, sources, 2);
    const unsigned event_count = test->event_count;
    give_up(test, &sources[0]);
    test_receive_until_failed(test, folder_count, FLYT_STATUS_TIMEOUT, "has not come back");
    /* That it has failed, and no session's end. */
    assert_int_equal(test->event_count, event_count + 1);
    test_source_leave(&sources[0]);
    test_source_leave(&sources[1]);
}

static void test_some_come(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[3];
    struct test_source sources[3];

    bring_and_switch(test, sources, 3);
    for (unsigned i = 0; i < 2; i++) {
        test_source_go_on(test, &sources[i], &programs[i]);
        test_program_say(test, &programs[i], "go_on", "0");
        test_source_leave(&sources[i]);
    }
    assert_int_equal(flyt_node_receive_cancel(test_received(test), "too late"), -EALREADY);
    give_up(test, &sources[2]);
    assert_int_equal(test_receive_until(test, FLYT_MIGRATION_DONE).session_count, 2);
    assert_int_equal(test_received(test)->lost_count, 1);
    test_node_until_used(test, &test_one, 20 * MIB);
    programs[2] = test_source_client(&sources[2]);
    assert_int_equal(test_node_try_to_come(test, &test_one, &programs[2]), FLYT_HANDSHAKE_NO_SESSION);
    test_source_leave(&sources[2]);
    test_node_leave(test, &test_one, programs, 2);
}

/* With its client, before it has said that the session goes on. */
static void test_a_server_dies_with_its_client(void **state)
{
    struct test_node *test = *state;
    const unsigned folder_count = test_receive_count_folders(test);
    struct test_program program;
    struct test_source source;

    for (unsigned round = 0; round < 2; round++) {
        bring_and_switch(test, &source, 1);
        test_source_go_on(test, &source, &program);
        assert_int_equal(flyt_node_receive_cancel(test_received(test), "too late"), -EALREADY);
        const unsigned event_count = test->event_count;
        if (round) { /* its client loses it: it comes again */
            struct test_program again = test_source_client(&source);
            assert_int_equal(test_node_try_to_come(test, &test_one, &again), FLYT_HANDSHAKE_BUSY);
        } else {
            kill(test_node_server(test, &program)->pid, SIGKILL);
        }
        assert_string_equal(test_program_ask(test, &program, NULL), "gone");
        close(program.fd);
        test_receive_until_failed(test, folder_count, FLYT_STATUS_UNAVAILABLE,
                                  round ? "has lost its new" : "has ended before");
        assert_int_equal(test->event_count, event_count + 1);
        test_receive_forget(test);
        test_source_leave(&source);
    }
}

static void test_a_client_cannot_be_given(void **state)
{
    struct test_node *test = *state;
    const unsigned folder_count = test_receive_count_folders(test);
    struct test_program program;
    struct test_source source;

    bring_and_switch(test, &source, 1);
    test_node_make_fail(test, "node.load.client:error", NULL);
    program = test_source_client(&source);
    assert_int_equal(test_node_try_to_come(test, &test_one, &program), FLYT_HANDSHAKE_BUSY);
    test_receive_until_failed(test, folder_count, FLYT_STATUS_UNAVAILABLE, "does not take it");
    test_source_leave(&source);
}

/* Its server's link has ended, and its process has not: nobody else is given the session. */
static void test_a_server_cannot_be_reached(void **state)
{
    struct test_node *test = *state;
    const unsigned folder_count = test_receive_count_folders(test);
    struct test_program program;
    struct test_source source;

    bring_and_switch(test, &source, 1);
    const pid_t pid = test_node_cut_off(test, test_received(test)->arrivals->session_load.target.server);
    program = test_source_client(&source);
    assert_int_equal(test_node_try_to_come(test, &test_one, &program), FLYT_HANDSHAKE_BUSY);
    for (unsigned i = 0; i < 2; i++)
        assert_int_not_equal(test_node_try_to_come(test, &test_one, &program), FLYT_HANDSHAKE_OK);
    assert_int_equal(kill(pid, SIGKILL), 0);
    test_receive_until_failed(test, folder_count, FLYT_STATUS_UNAVAILABLE, "does not take it");
    test_source_leave(&source);
}

/* ---- earlier attempts ---- */

static bool is_loading(struct test_node *test, void *unused)
{
    const struct flyt_node_arrival *arrival = test_received(test)->arrivals;

    return arrival && arrival->session_load.target.state == FLYT_NODE_TARGET_LOADING;
}

static bool has_arrivals(struct test_node *test, void *count)
{
    unsigned there = 0;

    for (const struct flyt_node_arrival *arrival = test_received(test)->arrivals; arrival; arrival = arrival->next)
        there++;
    return there == *(const unsigned *)count;
}

/* It has gone on here and ends here, while the server process of an attempt before does not end: that it has ended is
 * told. What was tried before is forgotten when nothing is left of it. */
static void test_an_earlier_attempt_lingers(void **state)
{
    struct test_node *test = *state;
    struct test_program program, other;
    struct test_source sources[3];
    const unsigned two = 2;

    test_receive_begin(test);
    sources[0] = test_source_new(0x100, 0);
    test_source_arrive(test, &sources[0]);
    test_node_until(test, is_loading, NULL, "its server has the connection");
    const pid_t pid = test_received(test)->arrivals->session_load.target.server->pid;
    assert_int_equal(kill(pid, SIGSTOP), 0);
    for (unsigned i = 0; i < 2; i++) { /* the same program again, and another one */
        sources[1 + i] = test_source_new(0x100 + i, 0);
        test_source_copy_all(test, &sources[1 + i]);
    }
    test_receive_until(test, FLYT_MIGRATION_ARRIVED);
    test_receive_must_switch(test, 2);
    test_source_go_on(test, &sources[1], &program);
    test_program_say(test, &program, "go_on", "0");
    assert_int_equal(kill(pid, 0), 0);
    close(program.fd);
    test_node_until_ended(test, &program);
    test_contains(test->last_event, "session.ended");
    assert_int_equal(kill(pid, SIGKILL), 0);
    test_node_until(test, has_arrivals, (void *)&two, "the earlier attempt is forgotten");
    test_source_go_on(test, &sources[2], &other);
    test_program_say(test, &other, "go_on", "0");
    assert_int_equal(test_receive_until(test, FLYT_MIGRATION_DONE).session_count, 2);
    for (unsigned i = 0; i < 3; i++)
        test_source_leave(&sources[i]);
    test_node_leave(test, &test_one, &other, 1);
}

/* ---- ends ---- */

static void test_the_allocation_is_removed(void **state)
{
    struct test_node *test = *state;
    const unsigned folder_count = test_receive_count_folders(test);
    struct test_program program;
    struct test_source sources[2];

    for (unsigned round = 0; round < 3; round++) {
        test_sources_bring(test, sources, 2);
        if (round)
            test_receive_must_switch(test, 2);
        if (round == 2)
            test_source_go_on(test, &sources[1], &program);
        test_node_remove_now(test, test_one.id);
        test_receive_until_failed(test, folder_count, FLYT_STATUS_CONFLICT, "was taken back");
        if (round == 2) {
            test_contains(test_program_ask(test, &program, NULL), "killed: the allocation of this VM was taken back");
            close(program.fd);
        }
        test_receive_forget(test);
        test_source_leave(&sources[0]);
        test_source_leave(&sources[1]);
    }
}

/* ---- restarts ---- */

static void restart(struct test_node *test)
{
    test_node_stop(test);
    test_node_start(test);
}

struct returned {
    unsigned waiting, serving;
};

static bool have_returned(struct test_node *test, void *user)
{
    const struct returned *wanted = user;
    struct returned have = {0};

    for (const struct flyt_node_arrival *arrival = test_received(test)->arrivals; arrival; arrival = arrival->next)
        have.waiting++;
    for (const struct flyt_node_server *server = test->node.servers; server; server = server->next)
        have.serving += flyt_node_server_allocation(server) != NULL;
    return have.waiting == wanted->waiting && have.serving == wanted->serving;
}

/* So many servers come back, those that wait for their clients and those that have them, and no more can. */
static void restart_until(struct test_node *test, unsigned waiting, unsigned serving)
{
    struct returned wanted = {waiting, serving};

    restart(test);
    test_node_until(test, have_returned, &wanted, "so many have come back");
    test_node_end_rejoining(test);
}

/* All that come back do, and one of them is this one's. */
static bool are_all_waiting(struct test_node *test, void *source)
{
    for (const struct flyt_node_arrival *arrival = test_received(test)->arrivals; arrival; arrival = arrival->next)
        if (arrival->session_load.target.state != FLYT_NODE_TARGET_WAITING)
            return false;
    return flyt_node_replace_find(&test->node, ((const struct test_source *)source)->session_id) != NULL;
}

/* NULL: it is none that arrives. */
static const struct flyt_node_session_load *loading_of(struct test_node *test, const struct test_source *source)
{
    const struct flyt_node_arrival *arrival = test_received(test)->arrivals;

    while (arrival && arrival->session_load.its.session_id != source->session_id)
        arrival = arrival->next;
    return arrival ? &arrival->session_load : NULL;
}

/* The process that is to have the session. */
static pid_t server_of(struct test_node *test, const struct test_source *source)
{
    const struct flyt_node_session_load *session_load = loading_of(test, source);

    assert_true(session_load && session_load->target.server);
    return session_load->target.server->pid;
}

static void test_a_restart_before_switch(void **state)
{
    struct test_node *test = *state;
    const unsigned folder_count = test_receive_count_folders(test);
    struct test_source source;

    test_sources_bring(test, &source, 1);
    restart(test);
    assert_string_equal(test_source_hear(test, &source), "gone");
    test_receive_until_failed(test, folder_count, FLYT_STATUS_UNAVAILABLE,
                              "was restarted before the programs had arrived");
    restart(test);
    assert_null(flyt_node_receive_find(&test->node, TEST_MIGRATION));
    test_source_leave(&source);
}

static bool has_ended(struct test_node *test, void *pid)
{
    return waitpid(*(const pid_t *)pid, NULL, WNOHANG) == *(const pid_t *)pid;
}

/* One that is killed ends none of its servers: they look for the next one, which sends them away. */
static void test_a_kill_before_switch(void **state)
{
    struct test_node *test = *state;
    const unsigned folder_count = test_receive_count_folders(test);
    struct test_source source;

    test_sources_bring(test, &source, 1);
    pid_t pid = server_of(test, &source);
    test_received(test)->is_switched = true; /* so that its end leaves the server alone; the state does not say so */
    restart(test);
    test_node_until(test, has_ended, &pid, "the server's end");
    test_receive_until_failed(test, folder_count, FLYT_STATUS_UNAVAILABLE,
                              "was restarted before the programs had arrived");
    test_source_leave(&source);
}

/* Of those that wait some are there no more, or all, being of before those that outlive their node manager. Nobody has
 * come yet, so that all fail. */
static void test_a_restart_before_clients(void **state)
{
    struct test_node *test = *state;
    const unsigned folder_count = test_receive_count_folders(test);
    struct test_program program;
    struct test_source sources[2];

    for (unsigned are_old = 0; are_old < 2; are_old++) {
        test_node_make_fail(test, NULL, are_old ? "fake.outlive:error" : NULL);
        bring_and_switch(test, sources, 2);
        if (!are_old)
            kill(server_of(test, &sources[0]), SIGKILL);
        restart(test);
        program = test_source_client(&sources[1]);
        assert_int_equal(test_received(test)->op.phase, FLYT_MIGRATION_SWITCHING);
        assert_int_equal(test_receive_switch(test, 2).status, FLYT_STATUS_OK);
        assert_int_equal(test_node_try_to_come(test, &test_one, &program), FLYT_HANDSHAKE_BUSY);
        assert_int_equal(flyt_node_receive_cancel(test_received(test), "too late"), -EALREADY);
        test_node_until(test, have_returned, &(struct returned){!are_old, 0}, "so many have come back");
        test_node_end_rejoining(test);
        test_receive_until_failed(test, folder_count, FLYT_STATUS_UNAVAILABLE,
                                  are_old ? "2 of 2 such processes are there no more"
                                          : "1 of 2 such processes are there no more");
        test_receive_forget(test);
        for (unsigned i = 0; i < 2; i++)
            test_source_leave(&sources[i]);
    }
    test_node_make_fail(test, NULL, NULL);
}

/* All of them wait for the next node manager, as often as it is restarted, and for their clients; memory is charged
 * once. */
static void test_a_restart_while_all_wait(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[3];
    struct test_source sources[3];

    bring_and_switch(test, sources, 3);
    for (unsigned i = 0; i < 3; i++) {
        const pid_t pid = server_of(test, &sources[1]);
        if (i == 1) { /* another one while they come back */
            restart(test);
            test_node_until(test, have_returned, &(struct returned){3, 0}, "they have come back");
        }
        restart_until(test, 3, 0);
        test_node_until(test, are_all_waiting, &sources[0], "they wait for their clients again");
        assert_int_equal(server_of(test, &sources[1]), pid);
        assert_int_equal(test_node_used_bytes(test, &test_one), 30 * MIB);
        assert_int_equal(test_received(test)->op.phase, FLYT_MIGRATION_SWITCHING);
        assert_int_equal(test_receive_count_shown(test), 0);
    }
    for (unsigned i = 0; i < 3; i++) {
        test_source_go_on(test, &sources[i], &programs[i]);
        test_program_say(test, &programs[i], "left", "17 17 17 3");
        test_program_say(test, &programs[i], "go_on", "0");
        test_source_leave(&sources[i]);
    }
    flyt_migration_use use = test_receive_until(test, FLYT_MIGRATION_DONE);
    assert_int_equal(use.session_count, 3);
    assert_int_equal(test_received(test)->lost_count, 0);
    assert_null(test->node.state.receiving);
    assert_int_equal(test_node_used_bytes(test, &test_one), 30 * MIB);
    test_receive_until_shown(test, 3);
    test_node_leave(test, &test_one, programs, 3);
}

/* Who has the client wins, and who waits for it waits on. */
static void test_a_restart_with_a_client(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[3];
    struct test_source sources[3];

    bring_and_switch(test, sources, 3);
    test_source_go_on(test, &sources[0], &programs[0]);
    test_source_go_on(test, &sources[2], &programs[2]);
    test_program_say(test, &programs[2], "go_on", "0"); /* the other one has not said that it goes on */
    restart(test);
    test_node_until_back(test, &programs[0]);
    test_program_say(test, &programs[0], "go_on", "0");
    /* As soon as all have come back with their ledger. */
    test_node_until(test, are_all_waiting, &sources[1], "it waits for its client again");
    assert_true(test->node.is_reattaching);
    test_node_until_back(test, &programs[2]); /* which nobody has waited for: it is known to go on */
    test_node_end_rejoining(test);
    assert_int_equal(test_node_used_bytes(test, &test_one), 30 * MIB);
    test_source_go_on(test, &sources[1], &programs[1]);
    test_program_say(test, &programs[1], "go_on", "0");
    assert_int_equal(test_receive_until(test, FLYT_MIGRATION_DONE).session_count, 3);
    assert_int_equal(test_received(test)->lost_count, 0);
    assert_null(test->node.state.receiving);
    test_program_say(test, &programs[0], "read 1", "4967");
    assert_int_equal(test_node_used_bytes(test, &test_one), 30 * MIB);
    for (unsigned i = 0; i < 3; i++)
        test_source_leave(&sources[i]);
    test_node_leave(test, &test_one, programs, 3);
}

/* It tells its memory once more, which nobody else may be granted before. */
static bool is_welcome(struct test_node *test, void *source)
{
    const struct flyt_node_session_load *session_load = loading_of(test, source);

    if (!session_load || session_load->target.state != FLYT_NODE_TARGET_LOADING)
        return false;
    assert_int_equal(test_node_used_bytes(test, &test_one), 20 * MIB);
    return true;
}

/* The node manager ends when the ledger's entry has become the server's, which has not been given the client. */
static void test_a_restart_while_a_client_is_given(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];
    struct test_source sources[2];

    bring_and_switch(test, sources, 2);
    test_source_go_on(test, &sources[0], &programs[0]);
    test_program_say(test, &programs[0], "go_on", "0");
    const struct flyt_node_session_load *session_load = loading_of(test, &sources[1]);
    struct flyt_ledger *ledger = flyt_node_allocation_find(&test->node, test_one.id)->slots[0].ledger;
    assert_int_equal(flyt_ledger_move(ledger, session_load->session->has.server_id,
                                      session_load->target.server->has.server_id, 10 * MIB),
                     0);
    restart(test);
    test_node_until(test, is_welcome, &sources[1], "both have come back");
    test_node_until(test, are_all_waiting, &sources[1], "it waits for its client again");
    assert_int_equal(test_node_used_bytes(test, &test_one), 20 * MIB);
    test_source_go_on(test, &sources[1], &programs[1]);
    test_program_say(test, &programs[1], "go_on", "0");
    test_receive_until(test, FLYT_MIGRATION_DONE);
    for (unsigned i = 0; i < 2; i++)
        test_source_leave(&sources[i]);
    test_node_leave(test, &test_one, programs, 2);
}

static bool has_noted(struct test_node *test, void *count)
{
    return test_received(test)->record->moved_count == *(const unsigned *)count;
}

/* Runs the loop until it is known that so many have gone on. */
static void until_noted(struct test_node *test, unsigned count)
{
    test_node_until(test, has_noted, &count, "so many have gone on");
}

static bool is_saved(struct test_node *test, void *session_id)
{
    struct flyt_node_state state;
    struct flyt_error err;
    bool is_new;

    assert_int_equal(flyt_node_state_read(test->settings.state_dir, &err, &state, &is_new), 0);
    assert_non_null(state.receiving);
    bool is_its = state.receiving->moved_count == 1 && state.receiving->moved[0] == *(const uint64_t *)session_id;
    flyt_node_state_fini(&state);
    return is_its;
}

/* The session is the only one that has gone on, as the state says that is on the disk. */
static void is_kept(struct test_node *test, const struct test_program *program)
{
    uint64_t session_id = program->session_id;

    test_node_until(test, is_saved, &session_id, "it is written who goes on");
}

/* It has gone on here and has ended: it is none of those that the restart has lost, and the others go on here. That it
 * went on is written when nobody stands still, or the node manager ends. */
static void test_a_restart_when_one_has_ended(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];
    struct test_source sources[2];

    for (unsigned round = 0; round < 2; round++) {
        bring_and_switch(test, sources, 2);
        test_source_go_on(test, &sources[0], &programs[0]);
        test_program_say(test, &programs[0], "go_on", "0");
        until_noted(test, 1);
        if (round)
            is_kept(test, &programs[0]);
        close(programs[0].fd);
        test_node_until_ended(test, &programs[0]);
        restart_until(test, 1, 0);
        is_kept(test, &programs[0]);
        test_node_until(test, are_all_waiting, &sources[1], "it waits for its client again");
        assert_int_equal(flyt_node_receive_cancel(test_received(test), "too late"), -EALREADY);
        test_source_go_on(test, &sources[1], &programs[1]);
        test_program_say(test, &programs[1], "go_on", "0");
        assert_int_equal(test_receive_until(test, FLYT_MIGRATION_DONE).session_count, 2);
        assert_int_equal(test_received(test)->lost_count, 0);
        assert_null(test->node.state.receiving);
        for (unsigned i = 0; i < 2; i++)
            test_source_leave(&sources[i]);
        test_node_leave(test, &test_one, &programs[1], 1);
        test_node_remove_now(test, test_one.id);
        test_receive_forget(test);
    }
}

/* Nobody waits for it when all others are back. */
static void test_a_restart_does_not_wait_for_one_that_has_ended(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[3];
    struct test_source sources[3];

    bring_and_switch(test, sources, 3);
    for (unsigned i = 0; i < 2; i++) {
        test_source_go_on(test, &sources[i], &programs[i]);
        test_program_say(test, &programs[i], "go_on", "0");
    }
    until_noted(test, 2);
    close(programs[0].fd);
    test_node_until_ended(test, &programs[0]);
    restart(test);
    test_node_until(test, are_all_waiting, &sources[2], "it waits for its client again");
    assert_true(test->node.is_reattaching);
    test_node_until_back(test, &programs[1]);
    test_node_end_rejoining(test);
    test_node_until_used(test, &test_one, 20 * MIB);
    test_source_go_on(test, &sources[2], &programs[2]);
    test_program_say(test, &programs[2], "go_on", "0");
    assert_int_equal(test_receive_until(test, FLYT_MIGRATION_DONE).session_count, 3);
    assert_int_equal(test_received(test)->lost_count, 0);
    for (unsigned i = 0; i < 3; i++)
        test_source_leave(&sources[i]);
    test_node_leave(test, &test_one, &programs[1], 2);
}

/* Of those that waited one dies with the node manager, one when it has come back, one then waits for nobody: each has
 * ended, for another one has its client. */
static void test_a_restart_loses_some(void **state)
{
    struct test_node *test = *state;
    struct test_program program;
    struct test_source sources[4];

    bring_and_switch(test, sources, 4);
    test_source_go_on(test, &sources[0], &program);
    test_program_say(test, &program, "go_on", "0");
    const pid_t pids[] = {server_of(test, &sources[1]), server_of(test, &sources[2])};
    kill(pids[0], SIGKILL);
    restart_until(test, 2, 1);
    test_node_until(test, are_all_waiting, &sources[2], "they wait for their clients again");
    assert_int_equal(test_node_used_bytes(test, &test_one), 30 * MIB);
    kill(pids[1], SIGKILL);
    give_up(test, &sources[3]);
    assert_int_equal(test_receive_until(test, FLYT_MIGRATION_DONE).session_count, 1);
    assert_int_equal(test_received(test)->lost_count, 3);
    test_node_until_used(test, &test_one, 10 * MIB);
    for (unsigned i = 0; i < 4; i++)
        test_source_leave(&sources[i]);
    test_node_leave(test, &test_one, &program, 1);
}

/* An operator ends them: one that waits for its client, and one that has it. They are no failures. */
static void test_sessions_are_ended(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[3];
    struct test_source sources[3];

    bring_and_switch(test, sources, 3);
    test_source_go_on(test, &sources[1], &programs[1]);
    struct flyt_node_server *server = test_node_server(test, &programs[1]);
    flyt_node_server_end_anywhere(server, "an operator has ended this session");
    test_program_say(test, &programs[1], NULL, "killed: an operator has ended this session");
    close(programs[1].fd);
    flyt_node_replace_end(flyt_node_replace_find(&test->node, sources[2].session_id),
                          "an operator has ended this session");
    test_source_go_on(test, &sources[0], &programs[0]);
    test_program_say(test, &programs[0], "go_on", "0");
    assert_int_equal(test_receive_until(test, FLYT_MIGRATION_DONE).session_count, 1);
    assert_int_equal(test_received(test)->lost_count, 0);
    test_node_until_used(test, &test_one, 10 * MIB);
    for (unsigned i = 0; i < 3; i++)
        test_source_leave(&sources[i]);
    test_node_leave(test, &test_one, programs, 1);
}

/* It goes on here, and a restart finds that so, although that could not be written. */
static void test_the_end_is_not_written(void **state)
{
    struct test_node *test = *state;
    struct test_program program;
    struct test_source source;

    bring_and_switch(test, &source, 1);
    test_source_go_on(test, &source, &program);
    test_node_make_fail(test, "node.receive.done:error", NULL);
    test_program_say(test, &program, "go_on", "0");
    test_receive_until(test, FLYT_MIGRATION_DONE);
    test_node_make_fail(test, NULL, NULL);
    restart(test);
    assert_int_equal(test_received(test)->op.phase, FLYT_MIGRATION_SWITCHING);
    test_node_until_back(test, &program);
    test_node_end_rejoining(test);
    assert_int_equal(test_receive_until(test, FLYT_MIGRATION_DONE).session_count, 1);
    test_source_leave(&source);
    test_node_leave(test, &test_one, &program, 1);
}

/* ---- programs that wait for each other ---- */

/* It has its client, which makes its objects again; whether it goes on then ("goes on"), or is held. */
static void is_whole(struct test_node *test, const struct test_source *source, struct test_program *ret_program,
                     const char *want)
{
    test_source_go_on(test, source, ret_program);
    test_program_say(test, ret_program, "goes_on", "no");
    test_program_say(test, ret_program, "whole", want);
}

static bool has_moved(struct test_node *test, void *unused)
{
    return test_received(test)->moved_count;
}

/* None goes on before all could. One that is alone waits for nobody. */
static void test_programs_go_on_together(void **state)
{
    enum { PROGRAMS = 3 };
    struct test_node *test = *state;
    struct test_program programs[PROGRAMS];
    struct test_source sources[PROGRAMS];

    for (unsigned count = 1; count <= PROGRAMS; count++) {
        bring_and_switch(test, sources, count);
        for (unsigned i = 0; i < count; i++) {
            for (unsigned before = 0; before < i; before++)
                test_program_say(test, &programs[before], "goes_on", "no");
            assert_int_equal(test_received(test)->moved_count, 0);
            is_whole(test, &sources[i], &programs[i], count > 1 ? "held" : "goes on");
        }
        assert_int_equal(test_receive_until(test, FLYT_MIGRATION_DONE).session_count, count);
        for (unsigned i = 0; i < count; i++) {
            test_program_say(test, &programs[i], "goes_on", "yes");
            test_source_leave(&sources[i]);
        }
        test_node_leave(test, &test_one, programs, count);
        test_node_remove(test, test_one.id);
        test_receive_forget(test);
    }
}

/* Nobody has gone on, though one could: when the other cannot, both go on where they were. */
static void test_programs_do_not_go_on_without_another(void **state)
{
    struct test_node *test = *state;
    const unsigned folder_count = test_receive_count_folders(test);
    struct test_program programs[2];
    struct test_source sources[2];

    for (unsigned round = 0; round < 2; round++) {
        bring_and_switch(test, sources, 2);
        is_whole(test, &sources[0], &programs[0], "held");
        test_source_go_on(test, &sources[1], &programs[1]);
        if (round) { /* its objects are others: its client comes again */
            struct test_program again = test_source_client(&sources[1]);
            assert_int_equal(test_node_try_to_come(test, &test_one, &again), FLYT_HANDSHAKE_BUSY);
        } else {
            kill(test_node_server(test, &programs[1])->pid, SIGKILL);
        }
        for (unsigned i = 0; i < 2; i++) {
            assert_string_equal(test_program_ask(test, &programs[i], NULL), "gone");
            close(programs[i].fd);
            test_source_leave(&sources[i]);
        }
        test_receive_until_failed(test, folder_count, FLYT_STATUS_UNAVAILABLE,
                                  round ? "has lost its new" : "has ended before");
        test_receive_forget(test);
    }
}

/* A client that was ended on its way never comes: the others do not wait for ever. */
static void test_a_program_waits_for_others_no_longer(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];
    struct test_source sources[2];

    bring_and_switch(test, sources, 2);
    is_whole(test, &sources[0], &programs[0], "held");
    test->node.ops->whole_ms = 1;
    test_node_until(test, has_moved, NULL, "one goes on");
    test->node.ops->whole_ms = TEST_LONG_MS;
    is_whole(test, &sources[1], &programs[1], "held"); /* and is let go at once */
    assert_int_equal(test_receive_until(test, FLYT_MIGRATION_DONE).session_count, 2);
    test_source_leave(&sources[0]);
    test_source_leave(&sources[1]);
    test_node_leave(test, &test_one, programs, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_NODE(test_switching),
        TEST_NODE(test_no_client_comes),
        TEST_NODE(test_some_come),
        TEST_NODE(test_a_server_dies_with_its_client),
        TEST_NODE(test_a_client_cannot_be_given),
        TEST_NODE(test_a_server_cannot_be_reached),
        TEST_NODE(test_an_earlier_attempt_lingers),
        TEST_NODE(test_the_allocation_is_removed),
        TEST_NODE(test_a_restart_before_switch),
        TEST_NODE(test_a_kill_before_switch),
        TEST_NODE(test_a_restart_before_clients),
        TEST_NODE(test_a_restart_while_all_wait),
        TEST_NODE(test_a_restart_with_a_client),
        TEST_NODE(test_a_restart_while_a_client_is_given),
        TEST_NODE(test_a_restart_when_one_has_ended),
        TEST_NODE(test_a_restart_does_not_wait_for_one_that_has_ended),
        TEST_NODE(test_a_restart_loses_some),
        TEST_NODE(test_sessions_are_ended),
        TEST_NODE(test_the_end_is_not_written),
        TEST_NODE(test_programs_go_on_together),
        TEST_NODE(test_programs_do_not_go_on_without_another),
        TEST_NODE(test_a_program_waits_for_others_no_longer),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
