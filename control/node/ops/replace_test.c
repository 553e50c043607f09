/* Tests of sessions that go on at another server (replace.h), with fake servers that are killed. */
#include <errno.h>
#include <fcntl.h>
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

#include "control/node/attach/attach.h"
#include "control/node/attach/pool.h"
#include "control/node/link/fault.h"
#include "control/node/model/waiting.h"
#include "control/node/ops/ops.h"
#include "control/node/ops/replace.h"
#include "control/node/process/images.h"
#include "control/node/test/test_node.h"
#include "control/node/uplink/report.h"

static const char *refused_text(void)
{
    static char text[16];

    snprintf(text, sizeof text, "%d", -ENOMEM);
    return text;
}

static bool has_an_extent(struct test_node *test, void *user)
{
    const struct test_program *program = user;
    const struct flyt_node_server *server = flyt_node_server_find(&test->node, program->session_id);

    return server && server->extents.count;
}

static bool has_gone_on(struct test_node *test, void *user)
{
    return !test_node_server(test, user)->replacement.session_us;
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

/* Its client comes back and is let in at once. */
static void come_back(struct test_node *test, const struct test_wish *wish, struct test_program *program)
{
    assert_int_equal(test_node_try_to_come(test, wish, program), FLYT_HANDSHAKE_OK);
}

static void is_refused(struct test_node *test, const struct test_wish *wish, const unsigned char *token, bool is_forged,
                       flyt_handshake_status status, const char *words)
{
    const struct flyt_credentials credentials = test_node_credentials(wish);
    struct test_program program = test_node_resume(test, &credentials, token, is_forged);

    assert_int_equal(program.status, status);
    test_contains(program.message, words);
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
    test_program_say(test, &neighbour, "charge 0 1", refused_text());
    assert_int_equal(test_node_use(test, test_one.id).session_count, 2);
    assert_int_equal(away_one(test)->extents.count, 2);
    assert_int_equal(test->node.starts[0].serving, 1);

    come_back(test, &test_one, &program);
    test_contains(test->last_event, "session.resumed");
    assert_int_equal(test->node.away_count, 0);
    assert_int_equal(test->node.sessions_resumed, 1);
    assert_int_equal(test_node_use(test, test_one.id).session_count, 2);
    assert_int_equal(test->node.starts[0].serving, 2);
    /* Its memory, and nothing that its process had. */
    assert_int_equal(test_node_used_bytes(test, &test_one), 97 * MIB);
    test_program_say(test, &neighbour, "charge 0 3145729", refused_text());
    test_program_say(test, &program, "resumed", "2 3");
    test_program_say(test, &program, "memory 1", second_memory);
    test_program_say(test, &program, "memory 2", third_memory);
    test_program_say(test, &program, "memory 3", "none");
    /* The new server's entry is its own. */
    test_program_say(test, &program, "extent 4 0 3145728", "0");
    test_program_say(test, &neighbour, "charge 0 1", refused_text());
    test_program_say(test, &program, "drop 1", "8388608");
    assert_int_equal(test_node_used_bytes(test, &test_one), 92 * MIB);

    lose(test, &program);
    assert_int_equal(test_node_used_bytes(test, &test_one), 92 * MIB);
    test_program_say(test, &neighbour, "charge 0 8388608", "0");
    test_program_say(test, &neighbour, "charge 0 1", refused_text());
    come_back(test, &test_one, &program);
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
    come_back(test, &test_one, &program);
    test_program_say(test, &program, "limit 0", "52428800");
    test_program_say(test, &program, "groups 0", "00000300");
    test_contains(test_program_ask(test, &program, "share 0"), "suspended 3");
    test_program_say(test, &program, "charge 0 44040193", refused_text());
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
    assert_int_equal(away_one(test)->extents.count, COUNT);
    is_refused(test, &test_one, program.token, false, FLYT_HANDSHAKE_BUSY, "has failed");
    assert_int_equal(away_one(test)->extents.count, COUNT);
    assert_int_equal(test_node_used_bytes(test, &test_one), COUNT * 65536);
    come_back(test, &test_one, &program);
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
    come_back(test, &test_one, &program);
    test_program_say(test, &program, "left", "12 11 10 9");
    /* This one has said nothing. */
    lose(test, &program);
    come_back(test, &test_one, &program);
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
    come_back(test, &test_one, &program);
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
    come_back(test, &test_one, &program);
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
    is_refused(test, &test_one, program.token, false, FLYT_HANDSHAKE_BUSY, "may still come back");
    is_refused(test, &test_one, program.token, true, FLYT_HANDSHAKE_DENIED, "");
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
    come_back(test, &test_one, &program);
    test_program_say(test, &program, "memory 1", memory);
    test_node_leave(test, &test_one, &program, 1);
}

/* ---- a client that comes before its server's process has ended ---- */

static bool has_hung_up(struct test_node *test, void *user)
{
    return test_node_server(test, user)->link_fd < 0;
}

/* A replaceable one whose link has ended, while its process has not. */
static void hang_up(struct test_node *test, struct test_program *program)
{
    test_program_say(test, program, "replaceable 1", "0");
    test_program_say(test, program, "hang_up", "0");
    test_node_until(test, has_hung_up, program, "the link's end");
}

/* What is to happen to a session as soon as its client is held. */
struct while_held {
    struct test_node *test;
    const struct test_program *program;
    void (*act)(struct test_node *test, struct flyt_node_server *server);
    sd_event_source *timer;
    bool is_done;
};

static int on_look(sd_event_source *source, uint64_t usec, void *user)
{
    struct while_held *held = user;

    if (flyt_node_waiting_has_client(&held->test->node, held->program->session_id)) {
        held->is_done = true;
        held->act(held->test, test_node_server(held->test, held->program));
        return 0;
    }
    assert_true(sd_event_source_set_time_relative(source, 1000) >= 0);
    assert_true(sd_event_source_set_enabled(source, SD_EVENT_ONESHOT) >= 0);
    return 0;
}

/* The client comes, and `act` is done when it is held. How it was answered, in the end. */
static struct test_program come_early(struct test_node *test, const struct test_program *program,
                                      void (*act)(struct test_node *test, struct flyt_node_server *server))
{
    const struct flyt_credentials own = test_node_credentials(&test_one);
    struct while_held held = {.test = test, .program = program, .act = act};

    assert_true(sd_event_add_time_relative(test->node.event, &held.timer, CLOCK_MONOTONIC, 0, 1, on_look, &held) >= 0);
    struct test_program again = test_node_resume(test, &own, program->token, false);
    sd_event_source_disable_unref(held.timer);
    assert_true(held.is_done);
    return again;
}

static void kill_it(struct test_node *test, struct flyt_node_server *server)
{
    assert_int_equal(kill(server->pid, SIGKILL), 0);
}

static void end_it(struct test_node *test, struct flyt_node_server *server)
{
    flyt_node_server_end(server, "an operator has ended this session");
}

static struct flyt_node_server *taker(struct test_node *test)
{
    struct flyt_node_server *server = test->node.servers;

    while (server && server->state != FLYT_NODE_SERVER_TAKING)
        server = server->next;
    return server;
}

static bool has_memory_elsewhere(struct test_node *test, void *program)
{
    return taker(test) && test_node_server(test, program)->replacement.given_us;
}

/* The link has ended, the process has not, and another server has the session's memory. */
static struct flyt_node_server *give_ahead(struct test_node *test, struct test_program *program)
{
    test_node_grant(test, &test_one);
    *program = test_node_enter(test, &test_one);
    test_program_say(test, program, "extent 1 0 8388608", "0");
    test_program_say(test, program, "record 12 11 10 9", "0");
    test_node_until_warm(test);
    hang_up(test, program);
    test_node_until(test, has_memory_elsewhere, program, "another server has its memory");
    return taker(test);
}

static void kill_both(struct test_node *test, struct flyt_node_server *server)
{
    struct flyt_node_server *other = taker(test);
    siginfo_t info;

    kill_it(test, other);
    assert_int_equal(waitid(P_PID, (id_t)other->pid, &info, WEXITED | WNOWAIT), 0); /* before anything is sent to it */
    kill_it(test, server);
}

static void test_memory_is_given_before_the_end(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    const struct flyt_node_server *server = give_ahead(test, &program);
    /* Nothing else has changed. */
    assert_int_equal(test_node_server(test, &program)->state, FLYT_NODE_SERVER_SERVING);
    assert_int_equal(test_node_use(test, test_one.id).session_count, 1);
    assert_int_equal(test_node_used_bytes(test, &test_one), 8 * MIB);
    struct test_program again = come_early(test, &program, kill_it);
    close(program.fd);
    assert_int_equal(again.status, FLYT_HANDSHAKE_OK);
    assert_ptr_equal(test_node_server(test, &again), server);
    test_program_say(test, &again, "resumed", "1 1");
    test_program_say(test, &again, "left", "12 11 10 9"); /* as it was at the end */
    test_contains(test_program_ask(test, &again, "memory 1"), "0 8388608 ");
    assert_int_equal(test_node_used_bytes(test, &test_one), 8 * MIB);
    test_node_leave(test, &test_one, &again, 1);
}

/* The server that has its memory dies with the one that it is to follow: another one does as well. */
static void test_who_was_given_memory_dies(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    give_ahead(test, &program);
    struct test_program again = come_early(test, &program, kill_both);
    close(program.fd);
    if (again.status == FLYT_HANDSHAKE_BUSY) {
        again = program;
        test_node_come_back(test, &test_one, &again);
    }
    assert_int_equal(again.status, FLYT_HANDSHAKE_OK);
    test_program_say(test, &again, "resumed", "1 1");
    test_program_say(test, &again, "left", "12 11 10 9");
    assert_int_equal(test_node_used_bytes(test, &test_one), 8 * MIB);
    test_node_leave(test, &test_one, &again, 1);
}

static bool has_no_client(struct test_node *test, void *user)
{
    const struct test_program *program = user;

    return !flyt_node_waiting_has_client(&test->node, program->session_id);
}

/* Its connection has ended when it is its turn: the server that has the memory waits for the next one. */
static void test_a_client_gives_up_while_it_is_held(void **state)
{
    static struct flyt_manager_link_message message;
    struct test_node *test = *state;
    struct test_program program;
    int ends[2];

    struct flyt_node_server *server = give_ahead(test, &program), *session = test_node_server(test, &program);
    const struct flyt_node_ticket ticket = {.session_id = session->session_id, .allocation_id = test_one.id};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    flyt_node_pool_serve(&test->node, session->allocation, &ticket, ends[0], &message, 16);
    assert_true(flyt_node_waiting_has_client(&test->node, session->session_id));
    assert_int_equal(shutdown(ends[1], SHUT_RDWR), 0); /* a server that is being started may have it until it runs */
    close(ends[1]);
    kill_it(test, session);
    test_node_until(test, test_node_is_away, &program, "the session waits for its client");
    close(program.fd);
    test_node_until(test, has_no_client, &program, "the connection of its client is let go of");
    assert_int_equal(server->state, FLYT_NODE_SERVER_TAKING);
    come_back(test, &test_one, &program);
    assert_ptr_equal(test_node_server(test, &program), server);
    test_program_say(test, &program, "resumed", "1 1");
    test_node_leave(test, &test_one, &program, 1);
}

static bool has_no_taker(struct test_node *test, void *unused)
{
    return !taker(test);
}

/* With the session the server ends that has its memory. */
static void test_it_is_ended_after_its_memory_was_given(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    give_ahead(test, &program);
    test->settings.kill_grace_ms = TEST_GRACE_MS;
    end_it(test, test_node_server(test, &program));
    test_node_until_empty(test, &test_one);
    test_node_until(test, has_no_taker, NULL, "nobody is to go on with it");
    assert_int_equal(test->node.away_count, 0);
    test_node_until_used(test, &test_one, 0);
    close(program.fd);
    test_node_until_warm(test);
}

static bool is_gone(struct test_node *test, void *unused)
{
    return !flyt_node_allocation_find(&test->node, test_one.id);
}

static bool has_no_folder(struct test_node *test, void *folder)
{
    return access(folder, F_OK) != 0;
}

/* One that has its memory takes its time to end: what it has is not free as long, and its allocation is not gone. */
static void memory_that_was_given(struct test_node *test, bool ends_first)
{
    char folder[FLYT_MANAGER_LINK_FOLDER_BYTES];
    struct test_program program;
    siginfo_t info;

    const pid_t pid = give_ahead(test, &program)->pid;
    struct test_program neighbour = test_node_enter(test, &test_one);
    test_program_say(test, &neighbour, "charge 0 96468992", "0"); /* 92 MiB: nothing is left */
    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WSTOPPED), 0);
    struct flyt_node_server *session = test_node_server(test, &program);
    end_it(test, session);
    kill_it(test, session);
    test_node_until_ended(test, &program);
    test_contains(test->last_event, "session.ended");
    assert_int_equal(test_node_used_bytes(test, &test_one), 100 * MIB);
    test_program_say(test, &neighbour, "charge 0 1", refused_text());
    assert_int_equal(flyt_node_allocation_find(&test->node, test_one.id)->session_count, 1);
    close(program.fd);
    close(neighbour.fd);
    test_node_until_empty(test, &test_one);
    assert_int_equal(test_node_used_bytes(test, &test_one), 8 * MIB);
    assert_int_equal(flyt_node_images_folder(&test->node, test_one.vm_ip, folder), 0);
    test_node_remove(test, test_one.id);
    test_node_run(test, 50);
    assert_false(is_gone(test, NULL));
    if (ends_first) {
        test_node_stop(test);
        test_node_start(test); /* a thread has removed them, or does now */
        test_node_until(test, has_no_folder, folder, "the VM's images are removed");
    } else {
        assert_int_equal(kill(pid, SIGKILL), 0);
    }
    test_node_until(test, is_gone, NULL, "the removal");
}

static void test_memory_that_was_given_is_not_free_before_its_end(void **state)
{
    memory_that_was_given(*state, false);
}

static void test_the_node_manager_ends_before_memory_is_free(void **state)
{
    memory_that_was_given(*state, true);
}

/* Neither of both is there for the next node manager, nor is what they had. */
static void test_the_node_manager_ends_after_memory_was_given(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    give_ahead(test, &program);
    const pid_t pid = test_node_server(test, &program)->pid;
    int fd = test_node_server(test, &program)->extents.first->fd;
    assert_int_equal(kill(pid, SIGKILL), 0);
    test_node_stop(test);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    close(program.fd);
    test_node_start(test);
    test_node_end_rejoining(test);
    is_refused(test, &test_one, program.token, false, FLYT_HANDSHAKE_NO_SESSION, "not there");
    test_node_until_warm(test);
}

/* It is held, and let in when the process has ended: once asked is enough. */
static void test_a_client_that_comes_early(void **state)
{
    struct test_node *test = *state;
    char memory[128];

    test_node_grant(test, &test_one);
    struct test_program program = test_node_enter(test, &test_one);
    test_program_say(test, &program, "extent 1 0 8388608", "0");
    test_program_say(test, &program, "record 12 11 10 9", "0");
    strcpy(memory, test_program_ask(test, &program, "memory 1"));
    hang_up(test, &program);
    struct test_program again = come_early(test, &program, kill_it);
    close(program.fd);
    assert_int_equal(again.status, FLYT_HANDSHAKE_OK);
    assert_true(again.session_id == program.session_id);
    test_program_say(test, &again, "resumed", "1 1");
    test_program_say(test, &again, "left", "12 11 10 9");
    test_program_say(test, &again, "memory 1", memory);
    assert_int_equal(test_node_used_bytes(test, &test_one), 8 * MIB);
    test_node_leave(test, &test_one, &again, 1);
}

/* Also where the link has not ended yet. */
static void test_a_client_that_knows_first(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &test_one);
    struct test_program program = test_node_enter(test, &test_one);
    test_program_say(test, &program, "extent 1 0 8388608", "0");
    test_program_say(test, &program, "replaceable 1", "0");
    struct test_program again = come_early(test, &program, kill_it);
    close(program.fd);
    assert_int_equal(again.status, FLYT_HANDSHAKE_OK);
    test_program_say(test, &again, "resumed", "1 1");
    test_node_leave(test, &test_one, &again, 1);
}

static void test_its_session_is_ended_while_a_client_is_held(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &test_one);
    struct test_program program = test_node_enter(test, &test_one);
    hang_up(test, &program);
    struct test_program again = come_early(test, &program, end_it);
    assert_int_equal(again.status, FLYT_HANDSHAKE_NO_SESSION);
    close(program.fd);
    test_node_until_empty(test, &test_one);
    assert_int_equal(test->node.away_count, 0);
    assert_int_equal(test_node_used_bytes(test, &test_one), 0);
}

/* The end of its link, its process's, the client's coming, memory, the session: in this order here. */
static void test_its_replacement_is_measured(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &test_one);
    struct test_program program = test_node_enter(test, &test_one);
    test_program_say(test, &program, "extent 1 0 8388608", "0");
    hang_up(test, &program);
    struct test_program again = come_early(test, &program, kill_it);
    close(program.fd);
    assert_int_equal(again.status, FLYT_HANDSHAKE_OK);
    const struct flyt_node_server *server = test_node_server(test, &again);
    assert_true(server->replacement.end_us && server->replacement.end_us <= server->replacement.come_us);
    assert_true(server->replacement.come_us <= server->replacement.gone_us);
    assert_true(server->replacement.given_us && server->replacement.gone_us <= server->replacement.session_us);
    assert_true(server->replacement.given_us <= server->replacement.session_us);
    test_program_say(test, &again, "go_on", "0");
    test_node_until(test, has_gone_on, &again, "that it goes on is known");
    assert_int_equal(server->replacement.end_us, 0); /* the next one is measured anew */
    test_node_leave(test, &test_one, &again, 1);
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
    is_refused(test, &test_one, wrong, false, FLYT_HANDSHAKE_NO_SESSION, "not there");
    is_refused(test, &test_other, program.token, false, FLYT_HANDSHAKE_NO_SESSION, "not there");
    is_refused(test, &test_one, program.token, true, FLYT_HANDSHAKE_DENIED, "not one of this node's");
    is_refused(test, &test_one, NULL, false, FLYT_HANDSHAKE_NO_SESSION, "not there");
    assert_int_equal(test_node_connect(test, &own, program.token, false).status, FLYT_HANDSHAKE_NO_SESSION);
    come_back(test, &test_one, &program);
    test_node_leave(test, &test_one, &program, 1);
    is_refused(test, &test_one, program.token, false, FLYT_HANDSHAKE_NO_SESSION, "has ended");
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
    come_back(test, &test_one, &program);
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
    int fd = flyt_node_server_find(&test->node, program.session_id)->extents.first->fd;
    test_program_say(test, &program, "die", "gone");
    close(program.fd);
    test_node_until_empty(test, &test_one);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    test_node_until_used(test, &test_one, 0); /* a server that was given it has it for a moment more */
    assert_int_equal(test->node.away_count, 0);
    test_contains(test->last_event, "session.ended");
    test_contains(test->last_event, "signal 9");
    test_contains(test->last_event, "has not come back");
    is_refused(test, &test_one, program.token, false, FLYT_HANDSHAKE_NO_SESSION, "has not come back within");
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
    is_refused(test, &test_one, program.token, false, FLYT_HANDSHAKE_NO_SESSION, "an operator has ended");
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
    struct flyt_node_server *warm = stop_warm_server(test), *unused;
    const pid_t pid = warm->pid;
    lose(test, &program);
    struct flyt_node_server *session = flyt_node_replace_find(&test->node, program.session_id);
    assert_ptr_equal(flyt_node_replace_server(session), warm);
    const struct flyt_node_ticket ticket = {.session_id = session->session_id, .allocation_id = test_one.id};
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
    come_back(test, &test_one, &program);
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

    return flyt_node_server_find(&test->node, program->session_id)->use.is_replaceable;
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
    test_contains(test->node.away->why_not, "faulted");
    /* Not a word of an end. */
    test_program_say(test, &silent, NULL, "gone");
    test_contains(test_program_ask(test, &firm, NULL), "killed: a program on this GPU faulted");
    close(told.fd);
    close(silent.fd);
    come_back(test, &test_other, &silent);
    test_program_say(test, &silent, "resumed", "1 1");
    assert_int_equal(test_node_used_bytes(test, &test_other), 8 * MIB);
    close(culprit.fd);
    close(busy.fd);
    close(firm.fd);
    test_node_leave(test, &test_other, &silent, 1);
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
    int fd = away_one(test)->extents.first->fd;
    test_node_stop(test);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    test_node_start(test);
    test_node_until_warm(test);
    /* As long as nobody knows that it had no server process. */
    is_refused(test, &test_one, program.token, false, FLYT_HANDSHAKE_BUSY, "may still come back");
    test_node_end_rejoining(test);
    is_refused(test, &test_one, program.token, false, FLYT_HANDSHAKE_NO_SESSION, "not there");
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
        TEST_NODE(test_a_client_that_comes_early),
        TEST_NODE(test_a_client_that_knows_first),
        TEST_NODE(test_its_session_is_ended_while_a_client_is_held),
        TEST_NODE(test_its_replacement_is_measured),
        TEST_NODE(test_memory_is_given_before_the_end),
        TEST_NODE(test_who_was_given_memory_dies),
        TEST_NODE(test_a_client_gives_up_while_it_is_held),
        TEST_NODE(test_it_is_ended_after_its_memory_was_given),
        TEST_NODE(test_memory_that_was_given_is_not_free_before_its_end),
        TEST_NODE(test_the_node_manager_ends_before_memory_is_free),
        TEST_NODE(test_the_node_manager_ends_after_memory_was_given),
        TEST_NODE(test_its_token_and_its_vm_decide),
        TEST_NODE(test_it_is_reported),
        TEST_NODE(test_a_client_that_does_not_come),
        TEST_NODE(test_it_is_ended_while_it_waits),
        TEST_NODE(test_it_is_ended_while_it_is_given),
        TEST_NODE(test_a_server_that_dies_before_it_is_whole_again),
        TEST_NODE(test_other_ends_are_ends),
        TEST_NODE(test_a_neighbours_fault),
        TEST_NODE(test_a_fault_of_nobody_known),
        TEST_NODE(test_the_node_manager_ends),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
