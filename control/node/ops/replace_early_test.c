/* Tests of sessions that go on at another server (replace.h) whose client, or whose memory, comes there before their
 * server's process has ended. */
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

#include "control/node/attach/pool.h"
#include "control/node/link/starts.h"
#include "control/node/model/waiting.h"
#include "control/node/ops/replace.h"
#include "control/node/ops/target.h"
#include "control/node/process/images.h"
#include "control/node/test/test_node.h"
#include "control/node/test/test_replace.h"

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
    return taker(test) && test_node_server(test, program)->session->replacement.given_us;
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
    const struct flyt_node_ticket ticket = {.session_id = session->session->id, .allocation_id = test_one.id};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    flyt_node_pool_serve(&test->node, flyt_node_server_allocation(session), &ticket, ends[0], &message, 16);
    assert_true(flyt_node_waiting_has_client(&test->node, session->session->id));
    assert_int_equal(shutdown(ends[1], SHUT_RDWR), 0); /* a server that is being started may have it until it runs */
    close(ends[1]);
    kill_it(test, session);
    test_node_until(test, test_node_is_away, &program, "the session waits for its client");
    close(program.fd);
    test_node_until(test, has_no_client, &program, "the connection of its client is let go of");
    assert_int_equal(server->state, FLYT_NODE_SERVER_TAKING);
    test_replace_come_back(test, &test_one, &program);
    assert_ptr_equal(test_node_server(test, &program), server);
    test_program_say(test, &program, "resumed", "1 1");
    test_node_leave(test, &test_one, &program, 1);
}

static bool has_no_taker(struct test_node *test, void *unused)
{
    return !taker(test);
}

/* A move, for one, prepares its own target: the server that has the memory has no part in the session any more. */
static void test_another_one_is_prepared_after_its_memory_was_given(void **state)
{
    static const struct flyt_node_target_ops ops = {.role = {.kind = FLYT_NODE_ROLE_MOVE_TARGET}};
    struct test_node *test = *state;
    struct test_program program;

    struct flyt_node_server *first = give_ahead(test, &program), *server = test_node_server(test, &program);
    struct flyt_node_server *second = flyt_node_starts_take(&test->node, &test->node.gpus.items[1]);
    assert_non_null(second);
    struct flyt_node_operation operation = {.node = &test->node};
    struct flyt_node_target target;
    flyt_node_target_init(&target, &test->node, &operation, &ops);
    flyt_node_target_begin(&target, second, server->session);
    assert_int_equal(first->state, FLYT_NODE_SERVER_ENDING);
    assert_false(flyt_node_target_at(first)->giving.is_begun);
    assert_null(first->session);
    assert_ptr_equal(server->session->target, second);
    flyt_node_target_fini(&target);
    flyt_node_target_end(second);
    struct test_program again = come_early(test, &program, kill_it);
    close(program.fd);
    assert_int_equal(again.status, FLYT_HANDSHAKE_OK);
    test_program_say(test, &again, "resumed", "1 1");
    assert_null(taker(test));
    assert_int_equal(test_node_used_bytes(test, &test_one), 8 * MIB);
    test_node_leave(test, &test_one, &again, 1);
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
    test_program_say(test, &neighbour, "charge 0 1", test_replace_refused_text());
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
    int fd = test_node_server(test, &program)->has.extents.first->fd;
    assert_int_equal(kill(pid, SIGKILL), 0);
    test_node_stop(test);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    close(program.fd);
    test_node_start(test);
    test_node_end_rejoining(test);
    test_replace_is_refused(test, &test_one, program.token, false, FLYT_HANDSHAKE_NO_SESSION, "not there");
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
    assert_true(server->session->replacement.end_us &&
                server->session->replacement.end_us <= server->session->replacement.come_us);
    assert_true(server->session->replacement.come_us <= server->session->replacement.gone_us);
    assert_true(server->session->replacement.given_us &&
                server->session->replacement.gone_us <= server->session->replacement.session_us);
    assert_true(server->session->replacement.given_us <= server->session->replacement.session_us);
    test_program_say(test, &again, "go_on", "0");
    test_node_until(test, test_replace_has_gone_on, &again, "that it goes on is known");
    assert_int_equal(server->session->replacement.end_us, 0); /* the next one is measured anew */
    test_node_leave(test, &test_one, &again, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_NODE(test_a_client_that_comes_early),
        TEST_NODE(test_a_client_that_knows_first),
        TEST_NODE(test_its_session_is_ended_while_a_client_is_held),
        TEST_NODE(test_its_replacement_is_measured),
        TEST_NODE(test_memory_is_given_before_the_end),
        TEST_NODE(test_who_was_given_memory_dies),
        TEST_NODE(test_another_one_is_prepared_after_its_memory_was_given),
        TEST_NODE(test_a_client_gives_up_while_it_is_held),
        TEST_NODE(test_it_is_ended_after_its_memory_was_given),
        TEST_NODE(test_memory_that_was_given_is_not_free_before_its_end),
        TEST_NODE(test_the_node_manager_ends_before_memory_is_free),
        TEST_NODE(test_the_node_manager_ends_after_memory_was_given),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
