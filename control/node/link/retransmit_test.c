/* Tests of orders that do not come to a server, or that it does not answer: they hold all the same. */
#include <limits.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/node/link/retransmit.h"
#include "control/node/state/killed.h"
#include "control/node/test/test_node.h"
#include "rpc/base/clock.h"

int __real_flyt_manager_link_send(int socket_fd, const struct flyt_manager_link_message *message, const int *fds,
                                  unsigned fd_count);
int __wrap_flyt_manager_link_send(int socket_fd, const struct flyt_manager_link_message *message, const int *fds,
                                  unsigned fd_count);

/* What comes of messages of the node manager to servers that serve: the fake server is another program. */
static struct {
    int status;         /* all of them get it; 0: they are sent */
    unsigned failed;    /* how many got it */
    unsigned swallowed; /* sent, as it seems, and never read: */
    bool is_swallowing; /* … all of these */
    unsigned kinds[FLYT_MANAGER_LINK_KINDS];
} link_faults;

static bool is_order(uint32_t kind)
{
    return kind == FLYT_MANAGER_LINK_LIMIT || kind == FLYT_MANAGER_LINK_SM || kind == FLYT_MANAGER_LINK_SHARE ||
           kind == FLYT_MANAGER_LINK_NEED_DONE || kind == FLYT_MANAGER_LINK_EXTENT_CREDITED ||
           kind == FLYT_MANAGER_LINK_KILL || kind == FLYT_MANAGER_LINK_CAUSE;
}

int __wrap_flyt_manager_link_send(int socket_fd, const struct flyt_manager_link_message *message, const int *fds,
                                  unsigned fd_count)
{
    if (is_order(message->kind)) {
        link_faults.kinds[message->kind]++;
        link_faults.failed += link_faults.status != 0;
        link_faults.swallowed += link_faults.is_swallowing;
        if (link_faults.status)
            return link_faults.status;
        if (link_faults.is_swallowing)
            return 0;
    }
    return __real_flyt_manager_link_send(socket_fd, message, fds, fd_count);
}

static int set_up(void **state)
{
    memset(&link_faults, 0, sizeof link_faults);
    return test_node_set_up(state);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, test_node_tear_down)

/* ---- what is ordered of a program ---- */

/* Half of its SMs and of its memory, another priority, and that it is suspended. */
static struct test_wish less_of(const struct test_wish *wish)
{
    struct test_wish less = *wish;

    less.revision++;
    less.group_count = 2;
    less.memory_bytes = 50 * MIB;
    less.when_free = true;
    less.priority = 1;
    less.is_suspended = true;
    return less;
}

static struct flyt_node_allocation *allocation_of(struct test_node *test)
{
    return flyt_node_allocation_find(&test->node, test_one.id);
}

/* Nothing of it is outstanding, and it holds at the server. */
static bool has_less(struct test_node *test, void *user)
{
    const struct flyt_node_server *server = test_node_server(test, user);
    const struct test_outcome use = test_node_use(test, test_one.id);

    return server && use.slot.switch_state == FLYT_SWITCH_VACATED && use.slot.is_suspended &&
           server->limit_done[0] == server->limit_told[0].number &&
           !flyt_node_server_owes_answer(&test->node, allocation_of(test));
}

static void check_less(struct test_node *test, struct test_program *program)
{
    char limit[32];

    test_node_until(test, has_less, program, "that the server has what was ordered");
    snprintf(limit, sizeof limit, "%llu", 50 * MIB);
    assert_string_equal(test_program_ask(test, program, "groups 0"), "00000003");
    assert_string_equal(test_program_ask(test, program, "limit 0"), limit);
    test_contains(test_program_ask(test, program, "share 0"), "suspended 1 ");
    /* What it gave up is another's. */
    struct test_wish other = test_other;
    other.first_group = 2;
    other.group_count = 2;
    test_node_grant(test, &other);
    test_node_leave(test, &test_one, program, 1);
}

static struct test_program enter(struct test_node *test)
{
    test_node_grant(test, &test_one);
    return test_node_enter(test, &test_one);
}

/* ---- messages that cannot be sent for a while ---- */

static bool have_failed(struct test_node *test, void *user)
{
    return link_faults.failed >= *(const unsigned *)user;
}

static void orders_wait_for(struct test_node *test, int status)
{
    struct test_program program = enter(test);
    const struct test_wish less = less_of(&test_one);
    unsigned failures = 8;

    link_faults.status = status;
    test_node_grant(test, &less);
    test_node_until(test, have_failed, &failures, "that the messages are tried again and again");
    assert_int_equal(test_node_use(test, test_one.id).slot.switch_state, FLYT_SWITCH_TARGET);
    link_faults.status = 0;
    check_less(test, &program);
}

static void test_a_full_socket(void **state)
{
    orders_wait_for(*state, -EAGAIN);
}

static void test_no_buffers(void **state)
{
    orders_wait_for(*state, -ENOBUFS);
}

static bool has_said(struct test_node *test, void *fd)
{
    return test_node_readable(test, *(int *)fd);
}

/* What is no absolute state comes, too: the credit that `drop` waits for, and that a session is to end. */
static void test_answers_wait_too(void **state)
{
    struct test_node *test = *state;
    struct test_program program = enter(test);
    char line[64];

    snprintf(line, sizeof line, "extent 1 0 %llu", 2 * MIB);
    test_program_say(test, &program, line, "0");
    link_faults.status = -ENOBUFS;
    snprintf(line, sizeof line, "drop 1 0 %llu\n", 2 * MIB);
    assert_int_equal(write(program.fd, line, strlen(line)), (ssize_t)strlen(line));
    unsigned failures = 1;
    test_node_until(test, have_failed, &failures, "that the credit cannot be told");
    link_faults.status = 0;
    test_contains(test_program_ask(test, &program, NULL), "0");
    link_faults.status = -EAGAIN;
    failures = link_faults.failed + 2;
    flyt_node_server_end(test_node_server(test, &program), "it is to end");
    test_node_until(test, have_failed, &failures, "that the end cannot be told");
    link_faults.status = 0;
    test_node_until(test, has_said, &program.fd, "that the program is told");
    assert_string_equal(test_program_ask(test, &program, NULL), "killed: it is to end");
    close(program.fd);
}

/* ---- messages that never come there ---- */

static bool has_swallowed(struct test_node *test, void *user)
{
    return link_faults.kinds[FLYT_MANAGER_LINK_SM] && link_faults.kinds[FLYT_MANAGER_LINK_LIMIT] &&
           link_faults.kinds[FLYT_MANAGER_LINK_SHARE];
}

static void test_lost_orders_are_repeated(void **state)
{
    struct test_node *test = *state;
    struct test_program program = enter(test);
    const struct test_wish less = less_of(&test_one);

    link_faults.is_swallowing = true;
    test_node_grant(test, &less);
    test_node_until(test, has_swallowed, NULL, "that all were said");
    link_faults.is_swallowing = false;
    check_less(test, &program);
}

/* An order comes twice, and is answered twice: nothing is different for it. */
static void test_orders_come_twice(void **state)
{
    struct test_node *test = *state;
    struct test_program program = enter(test);
    struct test_wish more = test_one;

    more.revision = 2;
    more.group_count = 3;
    test_node_grant(test, &more);
    struct flyt_node_server *server = test_node_server(test, &program);
    flyt_node_server_tell_groups(server, 0);
    flyt_node_server_tell_limit(server, 0, 100 * MIB, 2, true);
    flyt_node_server_repeat_limit(server, 0);
    while (test_node_use(test, test_one.id).slot.switch_state != FLYT_SWITCH_VACATED ||
           flyt_node_server_owes_answer(&test->node, allocation_of(test)))
        test_node_run(test, 10);
    const struct flyt_manager_link_limit_done of_before = {.number = UINT64_MAX};
    flyt_node_server_tell_limit(server, 0, 100 * MIB, 2, true);
    flyt_node_server_limit_done(server, &of_before);
    assert_true(flyt_node_server_owes_answer(&test->node, allocation_of(test)));
    while (flyt_node_server_owes_answer(&test->node, allocation_of(test)))
        test_node_run(test, 10);
    close(program.fd);
}

/* Each answer of a server of an older build, which has no number, is for one of the orders. */
static void test_older_servers_answer_each(void **state)
{
    struct test_node *test = *state;
    struct test_program program = enter(test);
    struct flyt_node_server *server = test_node_server(test, &program);
    const struct flyt_manager_link_limit_done older = {.revision = 1};

    link_faults.is_swallowing = true;
    flyt_node_server_tell_limit(server, 0, 100 * MIB, 1, true);
    flyt_node_server_tell_limit(server, 0, 100 * MIB, 1, true);
    flyt_node_server_limit_done(server, &older);
    assert_true(flyt_node_server_owes_answer(&test->node, allocation_of(test)));
    flyt_node_server_limit_done(server, &older);
    assert_false(flyt_node_server_owes_answer(&test->node, allocation_of(test)));
    flyt_node_server_limit_done(server, &older);
    assert_false(flyt_node_server_owes_answer(&test->node, allocation_of(test)));
    link_faults.is_swallowing = false;
    close(program.fd);
}

/* ---- servers that are stopped ---- */

static void test_a_stopped_server_goes_on(void **state)
{
    struct test_node *test = *state;
    struct test_program program = enter(test);
    struct test_wish less = less_of(&test_one), back = test_one;
    pid_t pid = test_node_server(test, &program)->pid;

    assert_int_equal(kill(pid, SIGSTOP), 0);
    /* More than its socket takes. */
    for (unsigned i = 0; i < 500; i++) {
        back.revision = less.revision + 1;
        test_node_grant(test, &less);
        test_node_grant(test, &back);
        less.revision = back.revision + 1;
    }
    test_node_grant(test, &less);
    assert_false(flyt_node_link_queue_is_empty(&test_node_server(test, &program)->queue));
    assert_int_equal(test_node_use(test, test_one.id).slot.switch_state, FLYT_SWITCH_TARGET);
    test_node_run(test, 100);
    assert_int_equal(kill(pid, SIGCONT), 0);
    check_less(test, &program);
}

static void is_ended_for_silence(struct test_node *test, struct test_program *program, pid_t pid)
{
    while (!strstr(test->last_event, "session.silent"))
        test_node_run(test, 10);
    /* It does not hear that it is to end either. */
    test_node_until_empty(test, &test_one);
    while (!kill(pid, 0)) /* the thread that starts servers reaps them */
        test_node_run(test, 10);
    assert_int_equal(errno, ESRCH);
    close(program->fd);
}

static void test_a_server_that_stays_stopped(void **state)
{
    struct test_node *test = *state;
    struct test_program program = enter(test);
    const struct test_wish less = less_of(&test_one);
    pid_t pid = test_node_server(test, &program)->pid;

    test->settings.server_lost_ms = 1500;
    test->settings.kill_grace_ms = TEST_GRACE_MS;
    assert_int_equal(kill(pid, SIGSTOP), 0);
    test_node_grant(test, &less);
    is_ended_for_silence(test, &program, pid);
}

/* What it leaves unread is bounded, too. */
static void test_a_server_that_reads_nothing(void **state)
{
    struct test_node *test = *state;
    struct test_program program = enter(test);
    pid_t pid = test_node_server(test, &program)->pid;

    test->settings.kill_grace_ms = TEST_GRACE_MS;
    assert_int_equal(kill(pid, SIGSTOP), 0);
    for (unsigned i = 0; i <= FLYT_NODE_LINK_QUEUE_MAX + 1000 && !strstr(test->last_event, "session.silent"); i++)
        flyt_node_server_tell_limit(test_node_server(test, &program), 0, 100 * MIB, 1, false);
    is_ended_for_silence(test, &program, pid);
}

static void test_one_that_works_is_not_ended(void **state)
{
    struct test_node *test = *state;
    struct test_program program = enter(test);
    struct test_wish less = less_of(&test_one);

    /* It never says that it is suspended, for its kernels run on, but answers what everybody answers. */
    test->settings.server_lost_ms = 1000;
    test_program_say(test, &program, "silent 1", "0");
    test_node_grant(test, &less);
    uint64_t until_ms = flyt_clock_ms() + 4000;
    while (flyt_clock_ms() < until_ms)
        test_node_run(test, 10);
    assert_non_null(test_node_server(test, &program));
    test_program_say(test, &program, "silent 0", "0");
    check_less(test, &program);
}

/* ---- restarts between an order and its answer ---- */

static void test_restart_after_lost_orders(void **state)
{
    struct test_node *test = *state;
    struct test_program program = enter(test);
    const struct test_wish less = less_of(&test_one);

    link_faults.is_swallowing = true;
    test_node_grant(test, &less);
    test_node_until(test, has_swallowed, NULL, "that all were said");
    link_faults.is_swallowing = false;
    test_node_stop(test);
    test_node_start(test);
    test_node_until_back(test, &program);
    check_less(test, &program);
}

static void test_restart_with_a_stopped_server(void **state)
{
    struct test_node *test = *state;
    struct test_program program = enter(test);
    const struct test_wish less = less_of(&test_one);
    pid_t pid = test_node_server(test, &program)->pid;

    assert_int_equal(kill(pid, SIGSTOP), 0);
    test_node_grant(test, &less);
    test_node_stop(test);
    test_node_start(test);
    assert_int_equal(kill(pid, SIGCONT), 0);
    test_node_until_back(test, &program);
    check_less(test, &program);
}

static void note_status(void *user, int status)
{
    *(int *)user = status;
}

static bool is_told(struct test_node *test, void *user)
{
    return *(int *)user != INT_MAX;
}

static int end_for_good(struct test_node *test, const struct test_program *program)
{
    int status = INT_MAX;

    assert_int_equal(
        flyt_node_server_end_for_good(test_node_server(test, program), FLYT_NODE_KILLED_TEXT, note_status, &status), 0);
    test_node_until(test, is_told, &status, "that it is written");
    return status;
}

static void test_restart_after_a_lost_end(void **state)
{
    struct test_node *test = *state;
    struct test_program program = enter(test);

    link_faults.is_swallowing = true;
    assert_int_equal(end_for_good(test, &program), 0);
    assert_int_equal(link_faults.kinds[FLYT_MANAGER_LINK_KILL], 1);
    link_faults.is_swallowing = false;
    test_node_stop(test);
    test_node_start(test);
    test_contains(test_program_ask(test, &program, NULL), "killed: " FLYT_NODE_KILLED_TEXT);
    test_node_until_empty(test, &test_one);
    assert_null(test->node.state.killed);
    close(program.fd);
}

static void test_an_end_that_cannot_be_written(void **state)
{
    struct test_node *test = *state;
    struct test_program program = enter(test);
    char gone[80];

    snprintf(gone, sizeof gone, "%s.gone", test->folder);
    assert_int_equal(rename(test->folder, gone), 0);
    assert_int_not_equal(end_for_good(test, &program), 0);
    assert_int_equal(rename(gone, test->folder), 0);
    assert_null(test->node.state.killed);
    assert_int_equal(test_node_server(test, &program)->state, FLYT_NODE_SERVER_SERVING);
    test_program_say(test, &program, "charge 0 4096", "0");
    close(program.fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_full_socket),
        TEST(test_no_buffers),
        TEST(test_answers_wait_too),
        TEST(test_lost_orders_are_repeated),
        TEST(test_orders_come_twice),
        TEST(test_older_servers_answer_each),
        TEST(test_a_stopped_server_goes_on),
        TEST(test_a_server_that_stays_stopped),
        TEST(test_a_server_that_reads_nothing),
        TEST(test_one_that_works_is_not_ended),
        TEST(test_restart_after_lost_orders),
        TEST(test_restart_with_a_stopped_server),
        TEST(test_restart_after_a_lost_end),
        TEST(test_an_end_that_cannot_be_written),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
