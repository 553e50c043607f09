/* Tests of servers that lose their link to a node manager that runs on, and come back to it (reattach.c); those that
 * come back to a new one are in node_test.c and migration_source_test.c. */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/node/link/link_dispatch.h"
#include "control/node/ops/migration.h"
#include "control/node/ops/ops.h"
#include "control/node/test/test_migration.h"
#include "control/node/test/test_node.h"
#include "control/node/test/test_saving.h"
#include "rpc/base/descriptors.h"
#include "rpc/transport/manager_link.h"

/* Says a line to the program's server, and waits for its answer, while the node manager stands still. */
static void say_unheard(struct test_program *program, const char *line, const char *answer)
{
    struct pollfd ready = {.fd = program->fd, .events = POLLIN};
    char text[64] = "";

    assert_int_equal(send(program->fd, line, strlen(line), MSG_NOSIGNAL), strlen(line));
    assert_int_equal(poll(&ready, 1, 60000), 1);
    assert_true(recv(program->fd, text, sizeof text - 1, 0) > 0);
    text[strcspn(text, "\n")] = 0;
    assert_string_equal(text, answer);
}

/* A server, and which link it had. */
struct linked {
    const struct test_program *program;
    const struct flyt_node_server *server;
    pid_t pid;
    sd_event_source *source;
};

static struct linked note_link(struct test_node *test, const struct test_program *program)
{
    const struct flyt_node_server *server = test_node_server(test, program);

    return (struct linked){program, server, server->pid, server->link_source};
}

static bool has_new_link(struct test_node *test, void *user)
{
    const struct linked *linked = user;
    const struct flyt_node_server *server = linked->server;

    assert_int_equal(server->pid, linked->pid);
    return server->link_source && server->link_source != linked->source;
}

static void until_linked(struct test_node *test, struct linked *linked)
{
    test_node_until(test, has_new_link, linked, "the server's new link");
    assert_int_equal(test->node.away_count, 0);
}

/* Both ends see it. The source of the link before is kept, so that no new one is where that was. */
static void cut_link(struct test_node *test, struct linked *linked)
{
    sd_event_source_ref(linked->source);
    assert_int_equal(shutdown(linked->server->link_fd, SHUT_RDWR), 0);
    until_linked(test, linked);
    sd_event_source_unref(linked->source);
}

/* The node manager had no CPU: there is much on the old link that it has not read, when the server comes back. */
static void test_what_the_old_link_holds(void **state)
{
    enum { COUNT = 24 };
    struct test_node *test = *state;
    struct test_wish small = test_one;

    test_node_grant(test, &test_one);
    struct test_program program = test_node_enter(test, &test_one);
    struct linked linked = note_link(test, &program);
    sd_event_source_ref(linked.source);
    say_unheard(&program, "relink 24 0 4096\n", "0");
    until_linked(test, &linked);
    sd_event_source_unref(linked.source);
    const struct flyt_node_server *server = test_node_server(test, &program);
    assert_ptr_equal(server, linked.server);
    assert_int_equal(server->state, FLYT_NODE_SERVER_SERVING);
    assert_int_equal(server->has.extents.count, COUNT);
    assert_int_equal(test_node_use(test, test_one.id).session_count, 1);
    assert_int_equal(test_node_used_bytes(test, &test_one), COUNT * 4096);
    /* It hears what it is told, and is heard. */
    small.revision = 2;
    small.group_count = 2;
    small.memory_bytes = 90 * MIB;
    test_node_grant(test, &small);
    while (test_node_use(test, test_one.id).slot.switch_state != FLYT_SWITCH_VACATED)
        test_node_run(test, 10);
    test_program_say(test, &program, "groups 0", "00000003");
    test_program_say(test, &program, "limit 0", "94371840");
    test_program_say(test, &program, "drop 7", "4096");
    test_node_leave(test, &test_one, &program, 1);
}

static bool is_hung_up(struct test_node *test, void *program)
{
    return test_node_server(test, program)->link_fd < 0;
}

/* What it was told meanwhile it is told anew. */
static void test_what_it_was_not_told(void **state)
{
    struct test_node *test = *state;
    struct test_wish small = test_one;

    test_node_grant(test, &test_one);
    struct test_program program = test_node_enter(test, &test_one);
    struct linked linked = note_link(test, &program);
    sd_event_source_ref(linked.source);
    test_program_say(test, &program, "hang_up", "0");
    test_node_until(test, is_hung_up, &program, "the end of the link");
    small.revision = 2;
    small.group_count = 2;
    small.memory_bytes = 90 * MIB;
    small.is_suspended = true;
    test_node_grant(test, &small);
    say_unheard(&program, "relink 0 0 0\n", "0");
    until_linked(test, &linked);
    sd_event_source_unref(linked.source);
    while (test_node_use(test, test_one.id).slot.switch_state != FLYT_SWITCH_VACATED ||
           !test_node_use(test, test_one.id).slot.is_suspended)
        test_node_run(test, 10);
    test_program_say(test, &program, "groups 0", "00000003");
    test_program_say(test, &program, "limit 0", "94371840");
    test_program_say(test, &program, "share 0", "suspended 0 0");
    test_node_leave(test, &test_one, &program, 1);
}

/* Its node manager is new, and no other server was ready on the GPU yet. */
static void test_what_groups_have_is_not_known(void **state)
{
    struct test_node *test = *state;
    struct test_wish small = test_one;
    struct flyt_node_gpu *gpu = &test->node.gpus.items[0];

    test_node_grant(test, &test_one);
    struct test_program program = test_node_enter(test, &test_one);
    flyt_node_gpu_set_group_size(gpu, gpu->group_size);
    small.revision = 2;
    small.group_count = 2;
    test_node_grant(test, &small);
    while (test_node_use(test, test_one.id).slot.switch_state != FLYT_SWITCH_VACATED) {
        assert_int_not_equal(test_node_use(test, test_one.id).slot.switch_state, FLYT_SWITCH_KEPT);
        test_node_run(test, 10);
    }
    test_program_say(test, &program, "groups 0", "00000003");
    test_node_leave(test, &test_one, &program, 1);
}

static unsigned count_in(struct test_node *test, enum flyt_node_server_state state)
{
    unsigned count = 0;

    for (const struct flyt_node_server *server = test->node.servers; server; server = server->next)
        count += server->state == state;
    return count;
}

/* Its end was taken for that of its process, and a warm server has its memory already. */
static void test_one_that_was_given_up(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &test_one);
    struct test_program program = test_node_enter(test, &test_one);
    test_program_say(test, &program, "replaceable 1", "0");
    test_program_say(test, &program, "extent 1 0 4096", "0");
    test_node_until_warm(test);
    struct linked linked = note_link(test, &program);
    sd_event_source_ref(linked.source);
    test_program_say(test, &program, "hang_up", "0");
    test_node_until(test, is_hung_up, &program, "the end of the link");
    assert_int_equal(count_in(test, FLYT_NODE_SERVER_TAKING), 1);
    say_unheard(&program, "relink 0 0 0\n", "0");
    until_linked(test, &linked);
    sd_event_source_unref(linked.source);
    assert_int_equal(count_in(test, FLYT_NODE_SERVER_TAKING), 0);
    assert_int_equal(test_node_server(test, &program)->has.extents.count, 1);
    assert_int_equal(test_node_server(test, &program)->session->replacement.end_us, 0);
    assert_int_equal(test_node_use(test, test_one.id).session_count, 1);
    test_node_until_warm(test);
    test_node_leave(test, &test_one, &program, 1);
}

/* ---- who else comes ---- */

/* A connection as of the program's server, which it is not: it is sent away, and the session is left alone. */
static void come_as(struct test_node *test, struct test_program *program, uint64_t server_id, const char *words)
{
    static struct flyt_manager_link_message message;
    const struct flyt_node_server *server = test_node_server(test, program);
    struct flyt_manager_link_rejoin *rejoin = &message.rejoin;
    int fds[FLYT_MANAGER_LINK_DESCRIPTORS_MAX];
    unsigned fd_count = 0;

    message.kind = FLYT_MANAGER_LINK_REJOIN;
    message.data_bytes = 0;
    *rejoin = (struct flyt_manager_link_rejoin){.version = FLYT_MANAGER_LINK_VERSION};
    rejoin->session.server_id = server_id;
    rejoin->session.session_id = server->session->id;
    rejoin->session.allocation_id = flyt_node_server_allocation(server)->now.id;
    rejoin->session.slot_count = rejoin->session.ledger_count = 1;
    flyt_node_server_secret(&test->node, geteuid(), server_id, server->session->id,
                            flyt_node_server_allocation(server)->now.id, rejoin->session.rejoin_secret);
    int ledger_fd = flyt_ledger_fd(flyt_node_server_allocation(server)->slots[0].ledger);
    int fd = flyt_manager_link_connect(test->node.link_path);
    assert_true(fd >= 0);
    assert_int_equal(flyt_manager_link_send(fd, &message, &ledger_fd, 1), 0);
    assert_true(test_node_readable(test, fd));
    assert_int_equal(flyt_manager_link_receive(fd, &message, fds, &fd_count), 0);
    assert_int_equal(message.kind, FLYT_MANAGER_LINK_GO);
    test_contains((const char *)message.data, words);
    flyt_close(fd);
    assert_ptr_equal(test_node_server(test, program), server);
    test_program_say(test, program, "groups 0", "0000000f");
}

static void test_another_process_is_sent_away(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &test_one);
    struct test_program program = test_node_enter(test, &test_one);
    uint64_t server_id = test_node_server(test, &program)->has.server_id;
    come_as(test, &program, server_id, "there already"); /* with its secret, but it is this process */
    come_as(test, &program, server_id + 1, "there already");
    test_node_server(test, &program)->uid++; /* as if its server were another user */
    come_as(test, &program, server_id, "there already");
    test_node_server(test, &program)->uid--;
    test_node_leave(test, &test_one, &program, 1);
}

enum { STRANGER = 65534, CROWD = 20, LET_IN = 8 };

/* Connections of another user, which say nothing. */
static void crowd_in(const struct test_node *test, int *fds)
{
    assert_int_equal(seteuid(STRANGER), 0);
    for (unsigned i = 0; i < CROWD; i++)
        fds[i] = flyt_manager_link_connect(test->node.link_path);
    assert_int_equal(seteuid(0), 0);
}

static unsigned count_ended(const int *fds)
{
    unsigned count = 0;

    for (unsigned i = 0; i < CROWD; i++) {
        struct pollfd end = {.fd = fds[i], .events = POLLRDHUP};
        assert_true(fds[i] >= 0);
        count += poll(&end, 1, 0) == 1;
    }
    return count;
}

static bool are_sent_away(struct test_node *test, void *fds)
{
    return count_ended(fds) == CROWD - LET_IN;
}

static bool are_forgotten(struct test_node *test, void *unused)
{
    return test->node.ops->stranger_count == 0;
}

/* A server that was taken over fills neither the node manager's descriptors nor the room of other servers. */
static void test_a_crowd_of_one_user(void **state)
{
    struct test_node *test = *state;
    int fds[CROWD];

    if (getuid())
        skip(); /* it takes two users */
    assert_int_equal(chmod(test->folder, 0711), 0);
    assert_int_equal(chmod(test->node.link_path, 0666), 0);
    test_node_grant(test, &test_one);
    struct test_program program = test_node_enter(test, &test_one);
    for (unsigned i = 0; i < 2; i++) {
        crowd_in(test, fds);
        test_node_until(test, are_sent_away, fds, "what is too much is closed");
        assert_int_equal(test->node.ops->stranger_count, LET_IN);
        come_as(test, &program, test_node_server(test, &program)->has.server_id, "there already"); /* it is heard */
        for (unsigned j = 0; j < CROWD; j++)
            flyt_close(fds[j]);
        test_node_until(test, are_forgotten, NULL, "they have gone");
    }
    test_node_leave(test, &test_one, &program, 1);
}

/* It was to end, and has not heard so. */
static void test_one_that_is_ending(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &test_one);
    struct test_program program = test_node_enter(test, &test_one);
    struct flyt_node_server *server = test_node_server(test, &program);
    assert_int_equal(kill(server->pid, SIGSTOP), 0);
    flyt_node_server_end(server, "an operator wants it so");
    flyt_node_server_hang_up(server); /* before it has read that */
    assert_int_equal(kill(server->pid, SIGCONT), 0);
    test_node_until_empty(test, &test_one);
    flyt_close(program.fd);
}

/* ---- while its program moves ---- */

/* Before the commit it has given the move up by itself. */
static void test_a_move_before_the_commit(void **state)
{
    struct test_node *test = *state;
    static const char *const lines[] = {"busy 1", "mute 1"};
    static const flyt_migration_phase phases[] = {FLYT_MIGRATION_COPYING, FLYT_MIGRATION_STOPPING};

    for (size_t i = 0; i < 2; i++) {
        struct test_program programs[2];
        test_migration_enter(test, programs, 2);
        test_program_say(test, &programs[0], lines[i], "0");
        test_migration_start(test, 1);
        test_migration_until(test, phases[i]);
        struct linked linked = note_link(test, &programs[0]);
        cut_link(test, &linked);
        test_migration_until_failed(test, "had lost its link to the node manager");
        test_migration_stayed(test, programs, 2);
        test_node_leave(test, &test_one, programs, 2);
        test_migration_forget(test);
    }
}

static bool is_failing(struct test_node *test, void *unused)
{
    return test_migration_of(test)->is_failing;
}

static bool is_at_target(struct test_node *test, void *program)
{
    return flyt_node_move_is_loaded(test_migration_move_of(test, program));
}

/* They are given back, and go on. */
static void come_back_to_source(struct test_node *test, struct test_program *programs, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        test_node_come_back(test, &test_one, &programs[i]);
        test_program_say(test, &programs[i], "go_on", "0");
        test_program_say(test, &programs[i], "resumed", "no");
    }
}

/* It has left: it is come back to, or not, as with its link. */
static void test_a_move_after_the_commit(void **state)
{
    struct test_node *test = *state;

    for (unsigned has_gone_on = 0; has_gone_on < 2; has_gone_on++) {
        struct test_program programs[2];
        test_migration_set_out(test, programs, 2, 1);
        struct linked linked = note_link(test, &programs[0]);
        cut_link(test, &linked);
        assert_int_equal(linked.server->state, FLYT_NODE_SERVER_LEFT);
        if (has_gone_on) {
            for (unsigned i = 0; i < 2; i++)
                test_migration_go_on(test, &programs[i]);
            test_migration_until(test, FLYT_MIGRATION_DONE);
            test_migration_is_only_on(test, 1);
        } else {
            kill(test_migration_move_of(test, &programs[1])->target.server->pid, SIGKILL);
            test_node_until(test, is_failing, NULL, "the migration fails");
            come_back_to_source(test, programs, 2);
            test_migration_until(test, FLYT_MIGRATION_FAILED);
            test_migration_is_only_on(test, 0);
        }
        test_node_leave(test, &test_one, programs, 2);
        test_migration_forget(test);
    }
}

/* All is at the target, and LEAVE does not come to the source any more: it goes on, and so do the others. */
static void test_a_move_that_it_was_not_told_to_leave_for(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    test_migration_enter(test, programs, 2);
    test_program_say(test, &programs[1], "mute 1", "0");
    test_migration_start(test, 1);
    test_node_until(test, is_at_target, &programs[0], "the first one is at its target");
    struct linked linked = note_link(test, &programs[0]);
    sd_event_source_ref(linked.source);
    /* It does not see before the commit that its link has ended. */
    assert_int_equal(kill(linked.pid, SIGSTOP), 0);
    flyt_node_server_hang_up(test_node_server(test, &programs[0]));
    test_program_say(test, &programs[1], "mute 0", "0");
    test_migration_until(test, FLYT_MIGRATION_SWITCHING);
    assert_int_equal(linked.server->state, FLYT_NODE_SERVER_LEFT);
    assert_int_equal(kill(linked.pid, SIGCONT), 0);
    until_linked(test, &linked);
    sd_event_source_unref(linked.source);
    assert_int_equal(linked.server->state, FLYT_NODE_SERVER_SERVING);
    test_node_until(test, is_failing, NULL, "the migration fails");
    test_program_say(test, &programs[0], "read 1", "4711");
    test_program_say(test, &programs[0], "resumed", "no");
    test_migration_is_told_to_leave(test, &programs[1]);
    come_back_to_source(test, &programs[1], 1);
    test_migration_until_failed(test, "had lost its link to the node manager");
    test_migration_stayed(test, programs, 2);
    test_node_leave(test, &test_one, programs, 2);
}

/* The target has the session: it goes on without being told to. */
static void test_a_target(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    test_migration_reach_target(test, &program, 1);
    struct linked linked = note_link(test, &program);
    assert_ptr_equal(linked.server, test_migration_of(test)->moves->target.server);
    cut_link(test, &linked);
    test_program_say(test, &program, "go_on", "0");
    test_migration_until(test, FLYT_MIGRATION_DONE);
    test_migration_is_only_on(test, 1);
    test_node_leave(test, &test_one, &program, 1);
}

/* ---- while it is written to an image ---- */

static void test_a_checkpoint(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    test_saving_enter(test, programs, 2);
    test_program_say(test, &programs[0], "mute 1", "0");
    test_saving_must(test_saving_checkpoint(test, 0, false));
    test_saving_until(test, FLYT_SAVING_STOPPING);
    struct linked linked = note_link(test, &programs[0]);
    cut_link(test, &linked);
    test_saving_failed(test, FLYT_STATUS_UNAVAILABLE, "had lost its link to the node manager");
    test_saving_has_memory(test, programs, 2);
    test_saving_images_are(test, 0);
    test_node_leave(test, &test_one, programs, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_NODE(test_what_the_old_link_holds),
        TEST_NODE(test_what_it_was_not_told),
        TEST_NODE(test_what_groups_have_is_not_known),
        TEST_NODE(test_one_that_was_given_up),
        TEST_NODE(test_another_process_is_sent_away),
        TEST_NODE(test_a_crowd_of_one_user),
        TEST_NODE(test_one_that_is_ending),
        TEST_NODE(test_a_move_before_the_commit),
        TEST_NODE(test_a_move_after_the_commit),
        TEST_NODE(test_a_move_that_it_was_not_told_to_leave_for),
        TEST_NODE(test_a_target),
        TEST_NODE(test_a_checkpoint),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
