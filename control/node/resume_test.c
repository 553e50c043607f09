/* Tests of sessions that go on at another server (resume.h), with fake servers that are killed. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/node/fault.h"
#include "control/node/report.h"
#include "control/node/resume.h"
#include "control/node/test_node.h"

#define MIB (1ull << 20)

enum { LONG_MS = 600000 }; /* nobody waits so long */

static const struct test_wish one = {.id = 0x11,
                                     .revision = 1,
                                     .epoch = 1,
                                     .vm_ip = "10.0.0.1",
                                     .generation = 1,
                                     .sessions_max = 8,
                                     .memory_bytes = 100 * MIB,
                                     .group_count = 4};
static const struct test_wish other = {.id = 0x22,
                                       .revision = 1,
                                       .epoch = 1,
                                       .vm_ip = "10.0.0.2",
                                       .generation = 1,
                                       .sessions_max = 8,
                                       .memory_bytes = 100 * MIB,
                                       .first_group = 4,
                                       .group_count = 4};

static const char *refused_text(void)
{
    static char text[16];

    snprintf(text, sizeof text, "%d", -ENOMEM);
    return text;
}

static struct test_program enter(struct test_node *test, const struct test_wish *wish)
{
    const struct flyt_credentials credentials = test_node_credentials(wish);
    struct test_program program = test_node_connect(test, &credentials, NULL, false);

    if (program.status != FLYT_HANDSHAKE_OK)
        fail_msg("refused: %s", program.message);
    return program;
}

static void say(struct test_node *test, struct test_program *program, const char *line, const char *answer)
{
    assert_string_equal(test_program_ask(test, program, line), answer);
}

static uint64_t used_bytes(struct test_node *test, const struct test_wish *wish)
{
    return test_node_use(test, wish->id).slot.memory_used_bytes;
}

static bool has_no_sessions(struct test_node *test, void *user)
{
    const struct test_wish *wish = user;
    struct flyt_node_allocation *allocation = flyt_node_allocation_find(&test->node, wish->id);

    return !allocation || !allocation->session_count;
}

static bool is_away(struct test_node *test, void *user)
{
    const struct test_program *program = user;

    return flyt_node_resume_find(&test->node, program->session_id) != NULL;
}

static bool is_not_served(struct test_node *test, void *user)
{
    const struct test_program *program = user;

    return !flyt_node_server_find(&test->node, program->session_id);
}

static bool has_an_extent(struct test_node *test, void *user)
{
    const struct test_program *program = user;
    const struct flyt_node_server *server = flyt_node_server_find(&test->node, program->session_id);

    return server && server->extents.count;
}

/* A replaceable one is killed. */
static void lose(struct test_node *test, struct test_program *program)
{
    say(test, program, "replaceable 1", "0");
    say(test, program, "die", "gone");
    close(program->fd);
    program->fd = -1;
    test_node_until(test, is_away, program, "the session waits for its client");
}

/* Its client comes back: the same session, the same token. */
static void come_back(struct test_node *test, const struct test_wish *wish, struct test_program *program)
{
    const struct flyt_credentials credentials = test_node_credentials(wish);
    struct test_program again = test_node_resume(test, &credentials, program->token, false);

    if (again.status != FLYT_HANDSHAKE_OK)
        fail_msg("refused: %s", again.message);
    assert_true(again.session_id == program->session_id);
    assert_memory_equal(again.token, program->token, sizeof again.token);
    *program = again;
}

static void is_refused(struct test_node *test, const struct test_wish *wish, const unsigned char *token, bool is_forged,
                       flyt_handshake_status status, const char *words)
{
    const struct flyt_credentials credentials = test_node_credentials(wish);
    struct test_program program = test_node_resume(test, &credentials, token, is_forged);

    assert_int_equal(program.status, status);
    if (!strstr(program.message, words))
        fail_msg("not \"%s\": %s", words, program.message);
}

static void leave(struct test_node *test, struct test_program *program, const struct test_wish *wish)
{
    close(program->fd);
    test_node_until(test, has_no_sessions, (void *)wish, "the session's end");
    assert_int_equal(used_bytes(test, wish), 0);
}

static const struct flyt_node_server *away_one(struct test_node *test)
{
    assert_int_equal(test->node.away_count, 1);
    return test->node.away;
}

/* ---- going on ---- */

static void test_memory_goes_to_another_server(void **state)
{
    struct test_node *test = *state;
    char second_memory[128], third_memory[128];

    test_node_grant(test, &one);
    struct test_program program = enter(test, &one), neighbour = enter(test, &one);
    say(test, &program, "extent 1 0 8388608", "0");
    say(test, &program, "extent 2 0 4194304", "0");
    say(test, &program, "extent 3 0 6291456", "0");
    say(test, &program, "drop 3", "6291456");
    say(test, &program, "reserve 0 2097152", "0");
    say(test, &program, "charge 0 1048576", "0"); /* what went with the process */
    strcpy(second_memory, test_program_ask(test, &program, "memory 1"));
    strcpy(third_memory, test_program_ask(test, &program, "memory 2"));
    assert_non_null(strstr(second_memory, "0 8388608 200100000000 "));
    say(test, &neighbour, "charge 0 89128960", "0"); /* 85 MiB: nothing is left */
    assert_int_equal(used_bytes(test, &one), 100 * MIB);

    lose(test, &program);
    assert_non_null(strstr(test->last_event, "session.server_lost"));
    assert_non_null(strstr(test->last_event, "signal 9"));
    assert_int_equal(used_bytes(test, &one), 100 * MIB);
    say(test, &neighbour, "charge 0 1", refused_text());
    assert_int_equal(test_node_use(test, one.id).session_count, 2);
    assert_int_equal(away_one(test)->extents.count, 2);
    assert_int_equal(test->node.starts[0].serving, 1);

    come_back(test, &one, &program);
    assert_non_null(strstr(test->last_event, "session.resumed"));
    assert_int_equal(test->node.away_count, 0);
    assert_int_equal(test->node.sessions_resumed, 1);
    assert_int_equal(test_node_use(test, one.id).session_count, 2);
    assert_int_equal(test->node.starts[0].serving, 2);
    /* Its memory, and nothing that its process had. */
    assert_int_equal(used_bytes(test, &one), 97 * MIB);
    say(test, &neighbour, "charge 0 3145729", refused_text());
    say(test, &program, "resumed", "2 3");
    say(test, &program, "memory 1", second_memory);
    say(test, &program, "memory 2", third_memory);
    say(test, &program, "memory 3", "none");
    /* The new server's entry is its own. */
    say(test, &program, "extent 4 0 3145728", "0");
    say(test, &neighbour, "charge 0 1", refused_text());
    say(test, &program, "drop 1", "8388608");
    assert_int_equal(used_bytes(test, &one), 92 * MIB);

    lose(test, &program);
    assert_int_equal(used_bytes(test, &one), 92 * MIB);
    say(test, &neighbour, "charge 0 8388608", "0");
    say(test, &neighbour, "charge 0 1", refused_text());
    come_back(test, &one, &program);
    say(test, &program, "resumed", "2 4");
    say(test, &program, "memory 2", third_memory);
    say(test, &program, "memory 1", "none");
    assert_int_equal(used_bytes(test, &one), 100 * MIB);
    close(neighbour.fd);
    leave(test, &program, &one);
    assert_int_equal(test->node.sessions_started, 2);
    assert_int_equal(test->node.sessions_resumed, 2);
}

static void test_it_has_what_its_vm_has_by_then(void **state)
{
    struct test_node *test = *state;
    struct test_wish wish = one;

    test_node_grant(test, &one);
    struct test_program program = enter(test, &one);
    say(test, &program, "extent 1 0 8388608", "0");
    lose(test, &program);
    /* Below what it has: refused at once, because nobody has anything to give back. */
    test->settings.limit_wait_ms = LONG_MS;
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
    assert_true(test_node_use(test, one.id).slot.is_suspended);
    come_back(test, &one, &program);
    say(test, &program, "limit 0", "52428800");
    say(test, &program, "groups 0", "00000300");
    assert_non_null(strstr(test_program_ask(test, &program, "share 0"), "suspended 3"));
    say(test, &program, "charge 0 44040193", refused_text());
    say(test, &program, "charge 0 44040192", "0");
    leave(test, &program, &one);
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

    test->node.resume_ms = LONG_MS;
    test_node_grant(test, &one);
    struct test_program program = enter(test, &one);
    say(test, &program, "extents 400 0 65536", "0");
    strcpy(last_memory, test_program_ask(test, &program, "memory 400"));
    lose(test, &program);
    assert_int_equal(away_one(test)->extents.count, COUNT);
    stop_warm_server(test);
    is_refused(test, &one, program.token, false, FLYT_HANDSHAKE_BUSY, "has failed");
    assert_int_equal(away_one(test)->extents.count, COUNT);
    assert_int_equal(used_bytes(test, &one), COUNT * 65536);
    come_back(test, &one, &program);
    say(test, &program, "resumed", "400 400");
    say(test, &program, "memory 400", last_memory);
    assert_int_equal(used_bytes(test, &one), COUNT * 65536);
    leave(test, &program, &one);
}

static bool has_no_warm_server(struct test_node *test, void *unused)
{
    return !test->node.starts[0].warm && !test->node.starts[0].starting;
}

/* It is started for it. */
static void test_its_client_waits_for_a_server(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &one);
    struct test_program program = enter(test, &one);
    say(test, &program, "extent 1 0 8388608", "0");
    test->settings.warm = 0;
    lose(test, &program);
    test_node_until(test, has_no_warm_server, NULL, "no warm server is left");
    come_back(test, &one, &program);
    say(test, &program, "resumed", "1 1");
    leave(test, &program, &one);
}

/* Its place among the VM's programs, and among the GPU's clients, stays its own. */
static void test_its_place_stays(void **state)
{
    struct test_node *test = *state;
    struct test_wish single = one;

    single.sessions_max = 1;
    test_node_grant(test, &single);
    test_node_grant(test, &other);
    test->settings.client_slots = test->settings.warm + 1;
    struct test_program program = enter(test, &one);
    lose(test, &program);
    const struct flyt_credentials own = test_node_credentials(&one), foreign = test_node_credentials(&other);
    struct test_program late = test_node_connect(test, &own, NULL, false);
    assert_int_equal(late.status, FLYT_HANDSHAKE_BUSY);
    assert_non_null(strstr(late.message, "as many as its allocation allows"));
    late = test_node_connect(test, &foreign, NULL, false);
    assert_int_equal(late.status, FLYT_HANDSHAKE_BUSY);
    assert_non_null(strstr(late.message, "client slots"));
    come_back(test, &one, &program);
    leave(test, &program, &one);
    late = enter(test, &other);
    leave(test, &late, &other);
}

static bool is_served(struct test_node *test, void *user)
{
    const struct test_program *program = user;

    return flyt_node_server_find(&test->node, program->session_id) != NULL;
}

static bool is_rejoining_over(struct test_node *test, void *unused)
{
    return !test->node.is_rejoining;
}

/* A server that has come back after the node manager's restart is lost, while others may still come back. */
static void test_one_that_came_back_after_a_restart(void **state)
{
    struct test_node *test = *state;
    char memory[128];

    test_node_grant(test, &one);
    struct test_program program = enter(test, &one);
    say(test, &program, "extent 1 0 8388608", "0");
    strcpy(memory, test_program_ask(test, &program, "memory 1"));
    test_node_stop(test);
    test_node_start(test);
    test->node.resume_ms = LONG_MS;
    test_node_until(test, is_served, &program, "the server comes back");
    test_node_until(test, has_an_extent, &program, "it brings its memory");
    lose(test, &program);
    assert_int_equal(test_node_use(test, one.id).session_count, 1);
    test_node_until(test, is_rejoining_over, NULL, "nobody may come back any more");
    assert_int_equal(used_bytes(test, &one), 8 * MIB);
    come_back(test, &one, &program);
    say(test, &program, "memory 1", memory);
    leave(test, &program, &one);
}

/* ---- who may ---- */

static void test_its_token_and_its_vm_decide(void **state)
{
    struct test_node *test = *state;
    unsigned char wrong[FLYT_TOKEN_BYTES] = {1};

    test_node_grant(test, &one);
    test_node_grant(test, &other);
    struct test_program program = enter(test, &one);
    say(test, &program, "extent 1 0 8388608", "0");
    /* As long as its server is there it is not given away, even where that is not seen at once. */
    struct test_program again = {.status = FLYT_HANDSHAKE_BUSY};
    const struct flyt_credentials own = test_node_credentials(&one);
    while (again.status == FLYT_HANDSHAKE_BUSY) {
        again = test_node_resume(test, &own, program.token, false);
        assert_int_not_equal(again.status, FLYT_HANDSHAKE_OK);
        test_node_run(test, 50);
    }
    assert_int_equal(again.status, FLYT_HANDSHAKE_NO_SESSION);
    assert_non_null(strstr(again.message, "at its own server"));
    say(test, &program, "memory 2", "none"); /* it goes on */

    lose(test, &program);
    is_refused(test, &one, wrong, false, FLYT_HANDSHAKE_NO_SESSION, "not there");
    is_refused(test, &other, program.token, false, FLYT_HANDSHAKE_NO_SESSION, "not there");
    is_refused(test, &one, program.token, true, FLYT_HANDSHAKE_DENIED, "not one of this node's");
    is_refused(test, &one, NULL, false, FLYT_HANDSHAKE_NO_SESSION, "not there");
    assert_int_equal(test_node_connect(test, &own, program.token, false).status, FLYT_HANDSHAKE_NO_SESSION);
    come_back(test, &one, &program);
    leave(test, &program, &one);
    is_refused(test, &one, program.token, false, FLYT_HANDSHAKE_NO_SESSION, "not there");
}

static void test_it_is_reported(void **state)
{
    struct test_node *test = *state;
    flyt_heartbeat_args args;

    test_node_grant(test, &one);
    struct test_program program = enter(test, &one);
    lose(test, &program);
    assert_int_equal(flyt_node_report_figures(&test->node, 1, &args), 0);
    assert_int_equal(args.sessions.sessions_len, 1);
    const flyt_session_use *use = &args.sessions.sessions_val[0];
    assert_true(use->id == program.session_id && use->allocation_id == one.id && use->client_pid == 99);
    assert_string_equal(use->program_name, "test_program");
    assert_int_equal(use->server_pid, 0);
    assert_true(use->is_replaceable);
    assert_non_null(strstr(use->why_not, "waits for its client"));
    xdr_free((xdrproc_t)xdr_flyt_heartbeat_args, &args);
    come_back(test, &one, &program);
    assert_int_equal(flyt_node_report_figures(&test->node, 2, &args), 0);
    assert_int_equal(args.sessions.sessions_len, 1);
    assert_int_not_equal(args.sessions.sessions_val[0].server_pid, 0);
    assert_false(args.sessions.sessions_val[0].is_replaceable); /* before its new server says so */
    xdr_free((xdrproc_t)xdr_flyt_heartbeat_args, &args);
    leave(test, &program, &one);
}

/* ---- ending ---- */

static void test_a_client_that_does_not_come(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &one);
    struct test_program program = enter(test, &one);
    say(test, &program, "extent 1 0 8388608", "0");
    test->node.resume_ms = 300;
    say(test, &program, "replaceable 1", "0");
    test_node_until(test, has_an_extent, &program, "the extent is held");
    int fd = flyt_node_server_find(&test->node, program.session_id)->extents.first->fd;
    say(test, &program, "die", "gone");
    close(program.fd);
    test_node_until(test, has_no_sessions, (void *)&one, "the session's end");
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    assert_int_equal(used_bytes(test, &one), 0);
    assert_int_equal(test->node.away_count, 0);
    assert_non_null(strstr(test->last_event, "session.ended"));
    assert_non_null(strstr(test->last_event, "signal 9"));
    assert_non_null(strstr(test->last_event, "has not come back"));
    is_refused(test, &one, program.token, false, FLYT_HANDSHAKE_NO_SESSION, "not there");
}

static void test_it_is_ended_while_it_waits(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &one);
    test->node.resume_ms = LONG_MS;
    struct test_program program = enter(test, &one);
    say(test, &program, "extent 1 0 8388608", "0");
    lose(test, &program);
    flyt_node_resume_end(flyt_node_resume_find(&test->node, program.session_id), "an operator has ended this session");
    is_refused(test, &one, program.token, false, FLYT_HANDSHAKE_NO_SESSION, "session is");
    test_node_until(test, has_no_sessions, (void *)&one, "the session's end");
    assert_int_equal(used_bytes(test, &one), 0);
    assert_non_null(strstr(test->last_event, "an operator has ended"));
    /* The allocation is taken back. */
    program = enter(test, &one);
    say(test, &program, "extent 1 0 8388608", "0");
    lose(test, &program);
    test_node_remove(test, one.id);
    test_node_until(test, test_node_is_removed, NULL, "the order's outcome");
    assert_int_equal(test->removal.order, FLYT_STATUS_OK);
    assert_null(flyt_node_allocation_find(&test->node, one.id));
    assert_int_equal(test->node.away_count, 0);
}

/* Its client waits for a server, or one is given the session, when the session is ended. */
static void test_it_is_ended_while_it_is_given(void **state)
{
    struct test_node *test = *state;
    static struct flyt_server_link_message message;
    struct flyt_error err;
    int ends[2];

    test->node.resume_ms = LONG_MS;
    test_node_grant(test, &one);
    struct test_program program = enter(test, &one);
    say(test, &program, "extents 400 0 65536", "0");
    lose(test, &program);
    struct flyt_node_server *session = flyt_node_resume_find(&test->node, program.session_id), *unused;
    struct flyt_node_server *warm = stop_warm_server(test);
    const struct flyt_node_ticket ticket = {.session_id = session->session_id, .allocation_id = one.id};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    assert_int_equal(flyt_node_resume_give(warm, session, &ticket, ends[0], &message, 16), 0);
    assert_int_equal(warm->state, FLYT_NODE_SERVER_TAKING);
    assert_int_equal(
        flyt_node_resume_find_token(&test->node, session->allocation, program.token, FLYT_TOKEN_BYTES, &unused, &err),
        -EBUSY);
    flyt_node_resume_end(session, "an operator has ended this session");
    test_node_until(test, has_no_sessions, (void *)&one, "the session's end");
    assert_int_equal(used_bytes(test, &one), 0);
    assert_true(recv(ends[1], &message, sizeof message, 0) > 0); /* told so */
    assert_int_equal(recv(ends[1], &message, sizeof message, 0), 0);
    close(ends[1]);
    test_node_until_warm(test);
}

static void test_a_server_that_dies_before_it_is_whole_again(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &one);
    test->node.resume_ms = LONG_MS;
    struct test_program program = enter(test, &one);
    say(test, &program, "extent 1 0 8388608", "0");
    lose(test, &program);
    come_back(test, &one, &program);
    say(test, &program, "die", "gone");
    close(program.fd);
    test_node_until(test, has_no_sessions, (void *)&one, "the session's end");
    assert_int_equal(test->node.away_count, 0);
    assert_int_equal(used_bytes(test, &one), 0);
}

/* Whatever is no unexpected end of a replaceable one ends the session as ever. */
static void test_other_ends_are_ends(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &one);
    test->node.resume_ms = LONG_MS;
    struct test_program program = enter(test, &one); /* it never said that it is */
    say(test, &program, "die", "gone");
    close(program.fd);
    test_node_until(test, has_no_sessions, (void *)&one, "the end of one that said nothing");
    program = enter(test, &one);
    say(test, &program, "replaceable 1", "0");
    say(test, &program, "replaceable 0", "0");
    say(test, &program, "die", "gone");
    close(program.fd);
    test_node_until(test, has_no_sessions, (void *)&one, "the end of one that is not replaceable");
    program = enter(test, &one);
    say(test, &program, "replaceable 1", "0");
    say(test, &program, "quit", "gone");
    close(program.fd);
    test_node_until(test, has_no_sessions, (void *)&one, "the end of one that returned");
    for (unsigned is_stubborn = 0; is_stubborn < 2; is_stubborn++) {
        program = enter(test, &one);
        say(test, &program, "replaceable 1", "0");
        if (is_stubborn)
            say(test, &program, "stubborn", "0");
        flyt_node_server_end(flyt_node_server_find(&test->node, program.session_id), "by will");
        test_node_until(test, is_not_served, &program, "the end of one that was told to end");
        assert_true(has_no_sessions(test, (void *)&one));
        close(program.fd);
    }
    assert_int_equal(test->node.away_count, 0);
    assert_int_equal(used_bytes(test, &one), 0);
}

/* ---- faults that end all that share a GPU ---- */

static bool is_known_replaceable(struct test_node *test, void *user)
{
    const struct test_program *program = user;

    return flyt_node_server_find(&test->node, program->session_id)->use.is_replaceable;
}

static void make_replaceable(struct test_node *test, struct test_program *program)
{
    say(test, program, "replaceable 1", "0");
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

    test_node_grant(test, &one);
    test_node_grant(test, &other);
    test->node.resume_ms = LONG_MS;
    struct test_program culprit = enter(test, &one), busy = enter(test, &one), firm = enter(test, &one);
    struct test_program told = enter(test, &other), silent = enter(test, &other);
    say(test, &silent, "extent 1 0 8388608", "0");
    make_replaceable(test, &culprit);
    make_replaceable(test, &busy);
    make_replaceable(test, &told);
    make_replaceable(test, &silent);
    report_fault(test, &culprit, true);
    report_fault(test, &busy, true);
    report_fault(test, &told, false);
    test_node_until(test, is_away, &silent, "the session of one that said nothing waits");
    assert_int_equal(used_bytes(test, &other), 8 * MIB);
    test_node_until(test, has_no_sessions, (void *)&one, "the ends of those that had work, or are not replaceable");
    /* A call of its program has failed: that is to hear why. */
    test_node_until(test, is_not_served, &told, "the end of one that had looked at its GPU");
    assert_int_equal(test->node.away_count, 1);
    assert_non_null(strstr(test->node.away->why_not, "faulted"));
    /* Not a word of an end. */
    say(test, &silent, NULL, "gone");
    assert_non_null(strstr(test_program_ask(test, &firm, NULL), "killed: a program on this GPU faulted"));
    close(told.fd);
    close(silent.fd);
    come_back(test, &other, &silent);
    say(test, &silent, "resumed", "1 1");
    assert_int_equal(used_bytes(test, &other), 8 * MIB);
    close(culprit.fd);
    close(busy.fd);
    close(firm.fd);
    leave(test, &silent, &other);
}

/* Nobody had work: it may be anybody's. */
static void test_a_fault_of_nobody_known(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &one);
    test->node.resume_ms = LONG_MS;
    struct test_program first = enter(test, &one), second = enter(test, &one);
    make_replaceable(test, &first);
    make_replaceable(test, &second);
    report_fault(test, &first, false);
    test_node_until(test, has_no_sessions, (void *)&one, "all end");
    assert_int_equal(test->node.away_count, 0);
    close(first.fd);
    close(second.fd);
}

/* What waits when the node manager ends is not there after it: memory, charge and session are gone. */
static void test_the_node_manager_ends(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &one);
    test->node.resume_ms = LONG_MS;
    struct test_program program = enter(test, &one);
    say(test, &program, "extent 1 0 8388608", "0");
    lose(test, &program);
    int fd = away_one(test)->extents.first->fd;
    test_node_stop(test);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    test_node_start(test);
    test_node_until_warm(test);
    is_refused(test, &one, program.token, false, FLYT_HANDSHAKE_NO_SESSION, "not there");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_memory_goes_to_another_server, test_node_set_up, test_node_tear_down),
        cmocka_unit_test_setup_teardown(test_it_has_what_its_vm_has_by_then, test_node_set_up, test_node_tear_down),
        cmocka_unit_test_setup_teardown(test_it_is_given_as_fast_as_a_server_takes_it, test_node_set_up,
                                        test_node_tear_down),
        cmocka_unit_test_setup_teardown(test_its_client_waits_for_a_server, test_node_set_up, test_node_tear_down),
        cmocka_unit_test_setup_teardown(test_its_place_stays, test_node_set_up, test_node_tear_down),
        cmocka_unit_test_setup_teardown(test_one_that_came_back_after_a_restart, test_node_set_up, test_node_tear_down),
        cmocka_unit_test_setup_teardown(test_its_token_and_its_vm_decide, test_node_set_up, test_node_tear_down),
        cmocka_unit_test_setup_teardown(test_it_is_reported, test_node_set_up, test_node_tear_down),
        cmocka_unit_test_setup_teardown(test_a_client_that_does_not_come, test_node_set_up, test_node_tear_down),
        cmocka_unit_test_setup_teardown(test_it_is_ended_while_it_waits, test_node_set_up, test_node_tear_down),
        cmocka_unit_test_setup_teardown(test_it_is_ended_while_it_is_given, test_node_set_up, test_node_tear_down),
        cmocka_unit_test_setup_teardown(test_a_server_that_dies_before_it_is_whole_again, test_node_set_up,
                                        test_node_tear_down),
        cmocka_unit_test_setup_teardown(test_other_ends_are_ends, test_node_set_up, test_node_tear_down),
        cmocka_unit_test_setup_teardown(test_a_neighbours_fault, test_node_set_up, test_node_tear_down),
        cmocka_unit_test_setup_teardown(test_a_fault_of_nobody_known, test_node_set_up, test_node_tear_down),
        cmocka_unit_test_setup_teardown(test_the_node_manager_ends, test_node_set_up, test_node_tear_down),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
