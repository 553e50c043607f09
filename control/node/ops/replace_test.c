/* Tests of sessions that go on at another server (replace.h), with fake servers that are killed. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/node/attach/attach.h"
#include "control/node/attach/pool.h"
#include "control/node/link/fault.h"
#include "control/node/ops/ops.h"
#include "control/node/ops/replace.h"
#include "control/node/test/test_node.h"
#include "control/node/test/test_replace.h"
#include "control/node/uplink/report.h"

static bool has_an_extent(struct test_node *test, void *user)
{
    const struct test_program *program = user;
    const struct flyt_node_server *server = flyt_node_server_find(&test->node, program->session_id);

    return server && server->has.extents.count;
}

/* A replaceable one is killed. */
static void lose(struct test_node *test, struct test_program *program)
{
    test_program_say(test, program, "replaceable 1", "0");
    test_program_say(test, program, "die", "gone");
    close(program->fd);
    program->fd = -1;
    test_node_until(test, test_node_is_away, program, "the session waits for its client");
}

static const struct flyt_node_session *away_one(struct test_node *test)
{
    assert_int_equal(test->node.away_count, 1);
    return test_node_away(test);
}

/* ---- going on ---- */

static void test_memory_goes_to_another_server(void **state)
{
    struct test_node *test = *state;
    char second_memory[128], third_memory[128];

    test_node_grant(test, &test_one);
    struct test_program program = test_node_enter(test, &test_one), neighbour = test_node_enter(test, &test_one);
    test_program_say(test, &program, "extent 1 0 8388608", "0");
    test_program_say(test, &program, "extent 2 0 4194304", "0");
    test_program_say(test, &program, "extent 3 0 6291456", "0");
    test_program_say(test, &program, "drop 3", "6291456");
    test_program_say(test, &program, "reserve 0 2097152", "0");
    test_program_say(test, &program, "charge 0 1048576", "0"); /* what went with the process */
    strcpy(second_memory, test_program_ask(test, &program, "memory 1"));
    strcpy(third_memory, test_program_ask(test, &program, "memory 2"));
    test_contains(second_memory, "0 8388608 200100000000 ");
    test_program_say(test, &neighbour, "charge 0 89128960", "0"); /* 85 MiB: nothing is left */
    assert_int_equal(test_node_used_bytes(test, &test_one), 100 * MIB);

    lose(test, &program);
    test_contains(test->last_event, "session.server_lost");
    test_contains(test->last_event, "signal 9");
    assert_int_equal(test_node_used_bytes(test, &test_one), 100 * MIB);
    test_program_say(test, &neighbour, "charge 0 1", test_replace_refused_text());
    assert_int_equal(test_node_use(test, test_one.id).session_count, 2);
    assert_int_equal(away_one(test)->has.extents.count, 2);
    assert_int_equal(test->node.starts[0].serving, 1);

    test_replace_come_back(test, &test_one, &program);
    test_contains(test->last_event, "session.resumed");
    assert_int_equal(test->node.away_count, 0);
    assert_int_equal(test->node.sessions_resumed, 1);
    assert_int_equal(test_node_use(test, test_one.id).session_count, 2);
    assert_int_equal(test->node.starts[0].serving, 2);
    /* Its memory, and nothing that its process had. */
    assert_int_equal(test_node_used_bytes(test, &test_one), 97 * MIB);
    test_program_say(test, &neighbour, "charge 0 3145729", test_replace_refused_text());
    test_program_say(test, &program, "resumed", "2 3");
    test_program_say(test, &program, "memory 1", second_memory);
    test_program_say(test, &program, "memory 2", third_memory);
    test_program_say(test, &program, "memory 3", "none");
    /* The new server's entry is its own. */
    test_program_say(test, &program, "extent 4 0 3145728", "0");
    test_program_say(test, &neighbour, "charge 0 1", test_replace_refused_text());
    test_program_say(test, &program, "drop 1", "8388608");
    assert_int_equal(test_node_used_bytes(test, &test_one), 92 * MIB);

    lose(test, &program);
    assert_int_equal(test_node_used_bytes(test, &test_one), 92 * MIB);
    test_program_say(test, &neighbour, "charge 0 8388608", "0");
    test_program_say(test, &neighbour, "charge 0 1", test_replace_refused_text());
    test_replace_come_back(test, &test_one, &program);
    test_program_say(test, &program, "resumed", "2 4");
    test_program_say(test, &program, "memory 2", third_memory);
    test_program_say(test, &program, "memory 1", "none");
    assert_int_equal(test_node_used_bytes(test, &test_one), 100 * MIB);
    close(neighbour.fd);
    test_node_leave(test, &test_one, &program, 1);
    assert_int_equal(test->node.sessions_started, 2);
    assert_int_equal(test->node.sessions_resumed, 2);
}

static void test_it_has_what_its_vm_has_by_then(void **state)
{
    struct test_node *test = *state;
    struct test_wish wish = test_one;

    test_node_grant(test, &test_one);
    struct test_program program = test_node_enter(test, &test_one);
    test_program_say(test, &program, "extent 1 0 8388608", "0");
    lose(test, &program);
    /* Below what it has: refused at once, because nobody has anything to give back. */
    wish.revision = 2;
    wish.memory_bytes = 4 * MIB;
    assert_int_equal(test_node_order(test, &wish).status, FLYT_STATUS_IN_USE);
    wish.memory_bytes = 50 * MIB;
    wish.first_group = 8;
    wish.group_count = 2;
    wish.generation = 2; /* ends no session */
    wish.priority = 3;
    wish.is_suspended = true;
    struct test_outcome outcome = test_node_order(test, &wish);
    assert_int_equal(outcome.status, FLYT_STATUS_OK);
    assert_int_equal(outcome.slot.switch_state, FLYT_SWITCH_VACATED); /* nothing of it is on the GPU */
    assert_true(test_node_use(test, test_one.id).slot.is_suspended);
    test_replace_come_back(test, &test_one, &program);
    test_program_say(test, &program, "limit 0", "52428800");
    test_program_say(test, &program, "groups 0", "00000300");
    test_contains(test_program_ask(test, &program, "share 0"), "suspended 3");
    test_program_say(test, &program, "charge 0 44040193", test_replace_refused_text());
    test_program_say(test, &program, "charge 0 44040192", "0");
    test_node_leave(test, &test_one, &program, 1);
}

/* The GPU's warm server reads nothing from now on, and its socket takes little. */
static struct flyt_node_server *stop_warm_server(struct test_node *test)
{
    const int bytes = 4096;
    siginfo_t info;

    test_node_until_warm(test);
    for (struct flyt_node_server *server = test->node.servers; server; server = server->next) {
        if (server->state != FLYT_NODE_SERVER_WARM || server->gpu->index != 0)
            continue;
        assert_int_equal(setsockopt(server->link_fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes), 0);
        assert_int_equal(kill(server->pid, SIGSTOP), 0);
        assert_int_equal(waitid(P_PID, (id_t)server->pid, &info, WSTOPPED), 0);
        return server;
    }
    fail_msg("no server is warm");
    return NULL;
}

/* More than a socket takes at once; and where the server does not read at all. */
static void test_it_is_given_as_fast_as_a_server_takes_it(void **state)
{
    enum { COUNT = 400 };
    struct test_node *test = *state;
    char last_memory[128];

    test_node_grant(test, &test_one);
    struct test_program program = test_node_enter(test, &test_one);
    test_program_say(test, &program, "extents 400 0 65536", "0");
    strcpy(last_memory, test_program_ask(test, &program, "memory 400"));
    const pid_t stopped_pid = stop_warm_server(test)->pid;
    lose(test, &program);
    assert_int_equal(away_one(test)->has.extents.count, COUNT);
    test_replace_is_refused(test, &test_one, program.token, false, FLYT_HANDSHAKE_BUSY, "has failed");
    assert_int_equal(away_one(test)->has.extents.count, COUNT);
    assert_int_equal(test_node_used_bytes(test, &test_one), COUNT * 65536);
    test_replace_come_back(test, &test_one, &program);
    test_program_say(test, &program, "resumed", "400 400");
    test_program_say(test, &program, "memory 400", last_memory);
    assert_int_equal(test_node_used_bytes(test, &test_one), COUNT * 65536);
    /* The first one has a part of it as long as it is there. */
    close(program.fd);
    test_node_until_empty(test, &test_one);
    assert_int_equal(test_node_used_bytes(test, &test_one), COUNT * 65536);
    assert_int_equal(kill(stopped_pid, SIGKILL), 0);
    test_node_until_used(test, &test_one, 0);
}

static bool has_no_warm_server(struct test_node *test, void *unused)
{
    return !test->node.starts[0].warm && !test->node.starts[0].starting;
}

/* What its server had executed goes to the next one, as it stood when the process ended. */
static void test_what_was_executed_goes_along(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &test_one);
    struct test_program program = test_node_enter(test, &test_one);
    test_program_say(test, &program, "left", "no");
    test_program_say(test, &program, "record 5 5 4 0", "0");
    test_program_say(test, &program, "record 12 11 10 9", "0");
    lose(test, &program);
    test_replace_come_back(test, &test_one, &program);
    test_program_say(test, &program, "left", "12 11 10 9");
    /* This one has said nothing. */
    lose(test, &program);
    test_replace_come_back(test, &test_one, &program);
    test_program_say(test, &program, "left", "no");
    test_node_leave(test, &test_one, &program, 1);
}

/* It is started for it. */
static void test_its_client_waits_for_a_server(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &test_one);
    struct test_program program = test_node_enter(test, &test_one);
    test_program_say(test, &program, "extent 1 0 8388608", "0");
    test->settings.warm = 0;
    flyt_node_pool_fill(&test->node);
    test_node_until(test, has_no_warm_server, NULL, "no warm server is left");
    lose(test, &program);
    test_replace_come_back(test, &test_one, &program);
    test_program_say(test, &program, "resumed", "1 1");
    test_node_leave(test, &test_one, &program, 1);
}

/* Its place among the VM's programs, and among the GPU's clients, stays its own. */
static void test_its_place_stays(void **state)
{
    struct test_node *test = *state;
    struct test_wish single = test_one;

    single.sessions_max = 1;
    test_node_grant(test, &single);
    test_node_grant(test, &test_other);
    test->settings.client_slots = test->settings.warm + 1;
    test->node.attach->hold_ms = 0;
    struct test_program program = test_node_enter(test, &test_one);
    lose(test, &program);
    const struct flyt_credentials own = test_node_credentials(&test_one), foreign = test_node_credentials(&test_other);
    struct test_program late = test_node_connect(test, &own, NULL, false);
    assert_int_equal(late.status, FLYT_HANDSHAKE_BUSY);
    test_contains(late.message, "as many as its allocation allows");
    late = test_node_connect(test, &foreign, NULL, false);
    assert_int_equal(late.status, FLYT_HANDSHAKE_BUSY);
    test_contains(late.message, "client slots");
    test_replace_come_back(test, &test_one, &program);
    test_node_leave(test, &test_one, &program, 1);
    late = test_node_enter(test, &test_other);
    test_node_leave(test, &test_other, &late, 1);
}

/* A client that comes before its server has come back is to try again, for it may have been told to leave it. */
static void test_a_client_that_comes_back_first(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &test_one);
    struct test_program program = test_node_enter(test, &test_one);
    const pid_t pid = test_node_server(test, &program)->pid;
    assert_int_equal(kill(pid, SIGSTOP), 0);
    test_node_stop(test);
    test_node_start(test);
    test_replace_is_refused(test, &test_one, program.token, false, FLYT_HANDSHAKE_BUSY, "may still come back");
    test_replace_is_refused(test, &test_one, program.token, true, FLYT_HANDSHAKE_DENIED, "");
    assert_int_equal(kill(pid, SIGCONT), 0);
    test_node_until_back(test, &program);
    test_node_leave(test, &test_one, &program, 1);
}

/* A server that has come back after the node manager's restart is lost, while others may still come back. */
static void test_one_that_came_back_after_a_restart(void **state)
{
    struct test_node *test = *state;
    char memory[128];

    test_node_grant(test, &test_one);
    struct test_program program = test_node_enter(test, &test_one);
    test_program_say(test, &program, "extent 1 0 8388608", "0");
    strcpy(memory, test_program_ask(test, &program, "memory 1"));
    test_node_stop(test);
    test_node_start(test);
    test_node_until_back(test, &program);
    test_node_until(test, has_an_extent, &program, "it brings its memory");
    lose(test, &program);
    assert_int_equal(test_node_use(test, test_one.id).session_count, 1);
    test_node_end_rejoining(test);
    assert_int_equal(test_node_used_bytes(test, &test_one), 8 * MIB);
    test_replace_come_back(test, &test_one, &program);
    test_program_say(test, &program, "memory 1", memory);
    test_node_leave(test, &test_one, &program, 1);
}

/* ---- who may ---- */

static void test_its_token_and_its_vm_decide(void **state)
{
    struct test_node *test = *state;
    unsigned char wrong[FLYT_TOKEN_BYTES] = {1};

    test_node_grant(test, &test_one);
    test_node_grant(test, &test_other);
    struct test_program program = test_node_enter(test, &test_one);
    test_program_say(test, &program, "extent 1 0 8388608", "0");
    /* As long as its server is there it is not given away, even where that is not seen at once. */
    struct test_program again = {.status = FLYT_HANDSHAKE_BUSY};
    const struct flyt_credentials own = test_node_credentials(&test_one);
    while (again.status == FLYT_HANDSHAKE_BUSY) {
        again = test_node_resume(test, &own, program.token, false);
        assert_int_not_equal(again.status, FLYT_HANDSHAKE_OK);
        test_node_run(test, 50);
    }
    assert_int_equal(again.status, FLYT_HANDSHAKE_NO_SESSION);
    test_contains(again.message, "at its own server");
    test_program_say(test, &program, "memory 2", "none"); /* it goes on */

    lose(test, &program);
    test_replace_is_refused(test, &test_one, wrong, false, FLYT_HANDSHAKE_NO_SESSION, "not there");
    test_replace_is_refused(test, &test_other, program.token, false, FLYT_HANDSHAKE_NO_SESSION, "not there");
    test_replace_is_refused(test, &test_one, program.token, true, FLYT_HANDSHAKE_DENIED, "not one of this node's");
    test_replace_is_refused(test, &test_one, NULL, false, FLYT_HANDSHAKE_NO_SESSION, "not there");
    assert_int_equal(test_node_connect(test, &own, program.token, false).status, FLYT_HANDSHAKE_NO_SESSION);
    test_replace_come_back(test, &test_one, &program);
    test_node_leave(test, &test_one, &program, 1);
    test_replace_is_refused(test, &test_one, program.token, false, FLYT_HANDSHAKE_NO_SESSION, "has ended");
}

static void test_it_is_reported(void **state)
{
    struct test_node *test = *state;
    flyt_heartbeat_args args;

    test_node_grant(test, &test_one);
    struct test_program program = test_node_enter(test, &test_one);
    lose(test, &program);
    assert_int_equal(flyt_node_report_figures(&test->node, 1, &args), 0);
    assert_int_equal(args.sessions.sessions_len, 1);
    const flyt_session_use *use = &args.sessions.sessions_val[0];
    assert_true(use->id == program.session_id && use->allocation_id == test_one.id && use->client_pid == 99);
    assert_string_equal(use->program_name, "test_program");
    assert_int_equal(use->server_pid, 0);
    assert_true(use->is_replaceable);
    test_contains(use->why_not, "waits for its client");
    xdr_free((xdrproc_t)xdr_flyt_heartbeat_args, &args);
    test_replace_come_back(test, &test_one, &program);
    assert_int_equal(flyt_node_report_figures(&test->node, 2, &args), 0);
    assert_int_equal(args.sessions.sessions_len, 1);
    assert_int_not_equal(args.sessions.sessions_val[0].server_pid, 0);
    assert_false(args.sessions.sessions_val[0].is_replaceable); /* before its new server says so */
    xdr_free((xdrproc_t)xdr_flyt_heartbeat_args, &args);
    test_node_leave(test, &test_one, &program, 1);
}

/* ---- ending ---- */

static void test_a_client_that_does_not_come(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &test_one);
    struct test_program program = test_node_enter(test, &test_one);
    test_program_say(test, &program, "extent 1 0 8388608", "0");
    test->node.ops->replace_ms = 300;
    test_program_say(test, &program, "replaceable 1", "0");
    test_node_until(test, has_an_extent, &program, "the extent is held");
    int fd = flyt_node_server_find(&test->node, program.session_id)->has.extents.first->fd;
    test_program_say(test, &program, "die", "gone");
    close(program.fd);
    test_node_until_empty(test, &test_one);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    test_node_until_used(test, &test_one, 0); /* a server that was given it has it for a moment more */
    assert_int_equal(test->node.away_count, 0);
    test_contains(test->last_event, "session.ended");
    test_contains(test->last_event, "signal 9");
    test_contains(test->last_event, "has not come back");
    test_replace_is_refused(test, &test_one, program.token, false, FLYT_HANDSHAKE_NO_SESSION,
                            "has not come back within");
}

static void test_it_is_ended_while_it_waits(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &test_one);
    struct test_program program = test_node_enter(test, &test_one);
    test_program_say(test, &program, "extent 1 0 8388608", "0");
    lose(test, &program);
    flyt_node_replace_end(flyt_node_replace_find(&test->node, program.session_id),
                          "an operator has ended this session");
    test_replace_is_refused(test, &test_one, program.token, false, FLYT_HANDSHAKE_NO_SESSION, "an operator has ended");
    test_node_until_empty(test, &test_one);
    test_node_until_used(test, &test_one, 0);
    test_contains(test->last_event, "an operator has ended");
    /* The allocation is taken back. */
    program = test_node_enter(test, &test_one);
    test_program_say(test, &program, "extent 1 0 8388608", "0");
    lose(test, &program);
    test_node_remove_now(test, test_one.id);
    assert_int_equal(test->node.away_count, 0);
}

/* Its client waits for a server, or one is given the session, when the session is ended. */
static void test_it_is_ended_while_it_is_given(void **state)
{
    struct test_node *test = *state;
    static struct flyt_manager_link_message message;
    struct flyt_error err;
    int ends[2];

    test_node_grant(test, &test_one);
    struct test_program program = test_node_enter(test, &test_one);
    test_program_say(test, &program, "extents 400 0 65536", "0");
    struct flyt_node_server *warm = stop_warm_server(test);
    struct flyt_node_session *unused;
    const pid_t pid = warm->pid;
    lose(test, &program);
    struct flyt_node_session *session = flyt_node_replace_find(&test->node, program.session_id);
    assert_ptr_equal(flyt_node_replace_server(session), warm);
    const struct flyt_node_ticket ticket = {.session_id = session->id, .allocation_id = test_one.id};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    assert_int_equal(flyt_node_replace_give(warm, session, &ticket, ends[0], &message, 16), 0);
    assert_int_equal(warm->state, FLYT_NODE_SERVER_TAKING);
    assert_int_equal(
        flyt_node_replace_find_token(&test->node, session->allocation, program.token, FLYT_TOKEN_BYTES, &unused, &err),
        -EBUSY);
    flyt_node_replace_end(session, "an operator has ended this session");
    test_node_until_empty(test, &test_one);
    assert_int_equal(test_node_used_bytes(test, &test_one), 400 * 65536); /* the server is there */
    assert_true(recv(ends[1], &message, sizeof message, 0) > 0);          /* told so */
    assert_int_equal(recv(ends[1], &message, sizeof message, 0), 0);
    close(ends[1]);
    assert_int_equal(kill(pid, SIGKILL), 0);
    test_node_until_used(test, &test_one, 0);
    test_node_until_warm(test);
}

static void test_a_server_that_dies_before_it_is_whole_again(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &test_one);
    struct test_program program = test_node_enter(test, &test_one);
    test_program_say(test, &program, "extent 1 0 8388608", "0");
    lose(test, &program);
    test_replace_come_back(test, &test_one, &program);
    test_program_say(test, &program, "die", "gone");
    close(program.fd);
    test_node_until_empty(test, &test_one);
    assert_int_equal(test->node.away_count, 0);
    assert_int_equal(test_node_used_bytes(test, &test_one), 0);
}

/* Whatever is no unexpected end of a replaceable one ends the session as ever. */
static void test_other_ends_are_ends(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &test_one);
    struct test_program program = test_node_enter(test, &test_one); /* it never said that it is */
    test_program_say(test, &program, "die", "gone");
    close(program.fd);
    test_node_until_empty(test, &test_one);
    program = test_node_enter(test, &test_one);
    test_program_say(test, &program, "replaceable 1", "0");
    test_program_say(test, &program, "replaceable 0", "0");
    test_program_say(test, &program, "die", "gone");
    close(program.fd);
    test_node_until_empty(test, &test_one);
    program = test_node_enter(test, &test_one);
    test_program_say(test, &program, "replaceable 1", "0");
    test_program_say(test, &program, "quit", "gone");
    close(program.fd);
    test_node_until_empty(test, &test_one);
    for (unsigned is_stubborn = 0; is_stubborn < 2; is_stubborn++) {
        program = test_node_enter(test, &test_one);
        test_program_say(test, &program, "replaceable 1", "0");
        if (is_stubborn)
            test_program_say(test, &program, "stubborn", "0");
        test->settings.kill_grace_ms = is_stubborn ? TEST_GRACE_MS : TEST_LONG_MS;
        flyt_node_server_end(flyt_node_server_find(&test->node, program.session_id), "by will");
        test_node_until_ended(test, &program);
        assert_true(test_node_is_empty(test, (void *)&test_one));
        close(program.fd);
    }
    assert_int_equal(test->node.away_count, 0);
    assert_int_equal(test_node_used_bytes(test, &test_one), 0);
}

/* ---- faults that end all that share a GPU ---- */

static bool is_known_replaceable(struct test_node *test, void *user)
{
    const struct test_program *program = user;

    return flyt_node_server_find(&test->node, program->session_id)->has.use.is_replaceable;
}

static void make_replaceable(struct test_node *test, struct test_program *program)
{
    test_program_say(test, program, "replaceable 1", "0");
    test_node_until(test, is_known_replaceable, program, "it is replaceable");
}

/* As its server says; all that belong together before the loop runs again. */
static void report_fault(struct test_node *test, const struct test_program *program, bool had_work)
{
    flyt_node_fault_report(flyt_node_server_find(&test->node, program->session_id), "an illegal address", had_work);
}

static void test_a_neighbours_fault(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &test_one);
    test_node_grant(test, &test_other);
    struct test_program culprit = test_node_enter(test, &test_one), busy = test_node_enter(test, &test_one),
                        firm = test_node_enter(test, &test_one);
    struct test_program told = test_node_enter(test, &test_other), silent = test_node_enter(test, &test_other);
    test_program_say(test, &silent, "extent 1 0 8388608", "0");
    make_replaceable(test, &culprit);
    make_replaceable(test, &busy);
    make_replaceable(test, &told);
    make_replaceable(test, &silent);
    report_fault(test, &culprit, true);
    report_fault(test, &busy, true);
    report_fault(test, &told, false);
    test_node_until(test, test_node_is_away, &silent, "the session of one that said nothing waits");
    assert_int_equal(test_node_used_bytes(test, &test_other), 8 * MIB);
    test_node_until_empty(test, &test_one);
    /* A call of its program has failed: that is to hear why. */
    test_node_until_ended(test, &told);
    assert_int_equal(test->node.away_count, 1);
    test_contains(test_node_away(test)->has.why_not, "faulted");
    /* Not a word of an end. */
    test_program_say(test, &silent, NULL, "gone");
    test_contains(test_program_ask(test, &firm, NULL), "killed: a program on this GPU faulted");
    close(told.fd);
    close(silent.fd);
    test_replace_come_back(test, &test_other, &silent);
    test_program_say(test, &silent, "resumed", "1 1");
    assert_int_equal(test_node_used_bytes(test, &test_other), 8 * MIB);
    close(culprit.fd);
    close(busy.fd);
    close(firm.fd);
    test_node_leave(test, &test_other, &silent, 1);
}

/* Whoever's driver writes a core dump is the one that faulted, and ends when that is there and its program has heard.
 */
static void test_a_dump_is_let_be_written(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &test_one);
    test_node_grant(test, &test_other);
    struct test_program dumper = test_node_enter(test, &test_one), neighbour = test_node_enter(test, &test_other);
    make_replaceable(test, &dumper);
    struct flyt_node_server *server = flyt_node_server_find(&test->node, dumper.session_id);
    flyt_node_fault_dumps(server, true);
    report_fault(test, &neighbour, false);
    test_node_until_ended(test, &neighbour);
    test_contains(test->last_event, "session.ended");
    test_contains(test->last_event, "program on this GPU faulted");
    assert_ptr_equal(flyt_node_server_find(&test->node, dumper.session_id), server);
    assert_int_equal(server->state, FLYT_NODE_SERVER_SERVING);
    assert_true(server->fault.is_hit);
    flyt_node_fault_dumps(server, false);
    report_fault(test, &dumper, true);
    assert_int_equal(server->state, FLYT_NODE_SERVER_SERVING); /* its program is to hear of it */
    test_node_until_ended(test, &dumper);
    assert_int_equal(test->node.away_count, 0);
    close(dumper.fd);
    close(neighbour.fd);
}

/* One that says so without an end has its time, once; then it is no reason to be let. */
static void test_a_dump_has_its_time(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &test_one);
    test_node_grant(test, &test_other);
    struct test_program dumper = test_node_enter(test, &test_one), neighbour = test_node_enter(test, &test_other);
    struct flyt_node_server *server = flyt_node_server_find(&test->node, dumper.session_id);
    flyt_node_fault_dumps(server, true);
    assert_true(server->coredumps.since_ms > FLYT_NODE_FAULT_DUMP_MS);
    server->coredumps.since_ms -= FLYT_NODE_FAULT_DUMP_MS;
    uint64_t since_ms = server->coredumps.since_ms;
    flyt_node_fault_dumps(server, false);
    flyt_node_fault_dumps(server, true);
    assert_int_equal(server->coredumps.since_ms, since_ms);
    report_fault(test, &neighbour, true);
    /* It is no suspect of that fault, and ends with it at once. */
    test_node_until_ended(test, &dumper);
    test_contains(test_program_ask(test, &dumper, NULL), "killed: another program on this GPU faulted");
    test_node_until_ended(test, &neighbour);
    close(dumper.fd);
    close(neighbour.fd);
}

/* Nobody had work: it may be anybody's. */
static void test_a_fault_of_nobody_known(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &test_one);
    struct test_program first = test_node_enter(test, &test_one), second = test_node_enter(test, &test_one);
    make_replaceable(test, &first);
    make_replaceable(test, &second);
    report_fault(test, &first, false);
    test_node_until_empty(test, &test_one);
    assert_int_equal(test->node.away_count, 0);
    close(first.fd);
    close(second.fd);
}

/* What waits when the node manager ends is not there after it: memory, charge and session are gone. */
static void test_the_node_manager_ends(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &test_one);
    struct test_program program = test_node_enter(test, &test_one);
    test_program_say(test, &program, "extent 1 0 8388608", "0");
    lose(test, &program);
    int fd = away_one(test)->has.extents.first->fd;
    test_node_stop(test);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    test_node_start(test);
    test_node_until_warm(test);
    /* As long as nobody knows that it had no server process. */
    test_replace_is_refused(test, &test_one, program.token, false, FLYT_HANDSHAKE_BUSY, "may still come back");
    test_node_end_rejoining(test);
    test_replace_is_refused(test, &test_one, program.token, false, FLYT_HANDSHAKE_NO_SESSION, "not there");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_NODE(test_memory_goes_to_another_server),
        TEST_NODE(test_it_has_what_its_vm_has_by_then),
        TEST_NODE(test_it_is_given_as_fast_as_a_server_takes_it),
        TEST_NODE(test_what_was_executed_goes_along),
        TEST_NODE(test_its_client_waits_for_a_server),
        TEST_NODE(test_its_place_stays),
        TEST_NODE(test_a_client_that_comes_back_first),
        TEST_NODE(test_one_that_came_back_after_a_restart),
        TEST_NODE(test_its_token_and_its_vm_decide),
        TEST_NODE(test_it_is_reported),
        TEST_NODE(test_a_client_that_does_not_come),
        TEST_NODE(test_it_is_ended_while_it_waits),
        TEST_NODE(test_it_is_ended_while_it_is_given),
        TEST_NODE(test_a_server_that_dies_before_it_is_whole_again),
        TEST_NODE(test_other_ends_are_ends),
        TEST_NODE(test_a_neighbours_fault),
        TEST_NODE(test_a_dump_has_its_time),
        TEST_NODE(test_a_fault_of_nobody_known),
        TEST_NODE(test_a_dump_is_let_be_written),
        TEST_NODE(test_the_node_manager_ends),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
