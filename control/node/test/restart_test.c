/* Tests of restarts of the node manager, with fake servers that go on meanwhile. */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/node/ops/ops.h"
#include "control/node/runtime.h"
#include "control/node/test/test_node.h"
#include "rpc/base/clock.h"

/* A program whose server does not come back at once: it is stopped. */
static pid_t restart_without(struct test_node *test, const struct test_program *program)
{
    pid_t pid = flyt_node_server_find(&test->node, program->session_id)->pid;

    assert_int_equal(kill(pid, SIGSTOP), 0);
    test_node_stop(test);
    test_node_start(test);
    assert_true(test->node.is_reattaching);
    return pid;
}

static struct flyt_ledger *locked_ledger(const struct test_node *test)
{
    return flyt_node_allocation_find(&test->node, test_one.id)->locked_ledger;
}

static unsigned locked_entries(const struct test_node *test)
{
    struct flyt_ledger_state state;

    flyt_ledger_read(locked_ledger(test), &state);
    const uint64_t bytes = test->settings.vm_memory_host_bytes;
    assert_int_equal(state.limit_bytes, bytes ? bytes : UINT64_MAX);
    return state.entry_count;
}

static bool are_two(struct test_node *test, void *unused)
{
    return locked_entries(test) == 2;
}

static bool is_brought_back(struct test_node *test, void *unused)
{
    return locked_ledger(test) != NULL;
}

/* What sessions have page-locked: an entry for each, over a restart, which nobody has who has ended. */
static void test_page_locked_memory(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[3];

    test_node_grant(test, &test_one);
    programs[0] = test_node_enter(test, &test_one);
    assert_null(locked_ledger(test)); /* it is not bounded */
    test_node_leave(test, &test_one, programs, 1);
    test->settings.vm_memory_host_bytes = 100 * MIB;
    test_node_grant(test, &test_one);
    for (unsigned i = 0; i < 3; i++)
        programs[i] = test_node_enter(test, &test_one);
    assert_int_equal(locked_entries(test), 3);
    assert_int_equal(flyt_ledger_charge(locked_ledger(test), programs[0].session_id, 60 * MIB), 0);
    assert_int_equal(flyt_ledger_charge(locked_ledger(test), programs[1].session_id, 60 * MIB), -ENOMEM);
    close(programs[2].fd);
    test_node_until(test, are_two, NULL, "the third one's entry has gone with it");
    test_node_stop(test);
    test_node_start(test);
    test->settings.vm_memory_host_bytes = 200 * MIB;
    for (unsigned i = 0; i < 2; i++)
        test_node_until_back(test, &programs[i]);
    test_node_until(test, is_brought_back, NULL, "a server has brought it back");
    assert_int_equal(flyt_ledger_charged(locked_ledger(test), programs[0].session_id), 60 * MIB);
    /* The bound of now holds for all of them at once. */
    assert_int_equal(flyt_ledger_charge(locked_ledger(test), programs[1].session_id, 120 * MIB), 0);
    programs[2] = test_node_enter(test, &test_one);
    assert_int_equal(locked_entries(test), 3);
    assert_int_equal(flyt_ledger_charge(locked_ledger(test), programs[2].session_id, 120 * MIB), -ENOMEM);
    test->settings.vm_memory_host_bytes = 0;
    flyt_node_allocation_set_locked_limit(test->node.allocations);
    assert_int_equal(flyt_ledger_charge(locked_ledger(test), programs[2].session_id, 1024 * MIB), 0);
    test_node_leave(test, &test_one, programs, 3);
    assert_int_equal(locked_entries(test), 0);
}

static void test_restart_gives_nothing_away(void **state)
{
    struct test_node *test = *state;
    struct test_wish small = test_one, big = test_other;

    test_node_grant(test, &test_one);
    struct test_program program = test_node_enter(test, &test_one);
    pid_t pid = restart_without(test, &program);
    /* Its server has not come back yet: its data streams are opened later. */
    const struct flyt_credentials credentials = test_node_credentials(&test_one);
    assert_int_equal(test_node_connect(test, &credentials, program.token, false).status, FLYT_HANDSHAKE_BUSY);
    /* Nobody takes the allocation for an idle one. */
    assert_int_equal(test_node_use(test, test_one.id).session_count, 1);
    /* What is taken from it is not given to others before it is known that nobody uses it. */
    small.revision = 2;
    small.group_count = 2;
    test_node_grant(test, &small);
    assert_int_equal(test_node_use(test, test_one.id).slot.switch_state, FLYT_SWITCH_TARGET);
    big.first_group = 2;
    assert_int_equal(test_node_order(test, &big).status, FLYT_STATUS_CONFLICT);
    assert_int_equal(kill(pid, SIGCONT), 0);
    test_node_until_back(test, &program);
    while (test_node_use(test, test_one.id).slot.switch_state != FLYT_SWITCH_VACATED)
        test_node_run(test, 10);
    assert_string_equal(test_program_ask(test, &program, "groups 0"), "00000003");
    assert_int_equal(test_node_use(test, test_one.id).session_count, 1);
    test_node_grant(test, &big);
    close(program.fd);
}

/* Until the process sleeps: one that has connected has said then what it says first. */
static void until_asleep(pid_t pid)
{
    char path[64], state = 0;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    while (state != 'S') {
        FILE *file = fopen(path, "r");
        assert_non_null(file);
        assert_int_equal(fscanf(file, "%*d %*s %c", &state), 1);
        fclose(file);
        usleep(1000);
    }
}

/* The node manager has no CPU until the time for servers to come back is over: one that had come by then is heard
 * first. */
static void test_restart_hears_who_has_come(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &test_one);
    struct test_program program = test_node_enter(test, &test_one);
    pid_t pid = restart_without(test, &program);
    assert_int_equal(kill(pid, SIGCONT), 0);
    struct pollfd come = {.fd = test->node.ops->link_fd, .events = POLLIN};
    assert_int_equal(poll(&come, 1, 60000), 1);
    until_asleep(pid);
    assert_true(sd_event_source_set_time_relative(test->node.reattach_timer, 0) >= 0);
    while (test->node.is_reattaching)
        test_node_run(test, 10);
    test_node_until_back(test, &program);
    assert_int_equal(flyt_node_server_find(&test->node, program.session_id)->pid, pid);
    assert_int_equal(test_node_use(test, test_one.id).session_count, 1);
    close(program.fd);
}

/* What was taken before the restart, and is not vacated, is not free after it. */
static void test_restart_while_groups_are_vacated(void **state)
{
    struct test_node *test = *state;
    struct test_wish small = test_one, big = test_other;

    test_node_grant(test, &test_one);
    struct test_program program = test_node_enter(test, &test_one);
    assert_string_equal(test_program_ask(test, &program, "sluggish 1"), "0");
    small.revision = 2;
    small.group_count = 2;
    test_node_grant(test, &small);
    while (test_node_use(test, test_one.id).slot.switch_state != FLYT_SWITCH_SWITCHED)
        test_node_run(test, 10);
    pid_t pid = restart_without(test, &program);
    assert_int_equal(test_node_use(test, test_one.id).slot.switch_state, FLYT_SWITCH_TARGET);
    assert_int_equal(kill(pid, SIGCONT), 0);
    test_node_until_back(test, &program);
    while (test_node_use(test, test_one.id).slot.switch_state != FLYT_SWITCH_SWITCHED)
        test_node_run(test, 10);
    big.first_group = 2;
    assert_int_equal(test_node_order(test, &big).status, FLYT_STATUS_CONFLICT);
    close(program.fd);
    test_node_until_empty(test, &test_one);
    while (test_node_use(test, test_one.id).slot.switch_state != FLYT_SWITCH_VACATED)
        test_node_run(test, 10);
    test_node_grant(test, &big);
}

static void test_restart_with_a_lower_limit(void **state)
{
    struct test_node *test = *state;
    struct test_wish small = test_one;

    test_node_grant(test, &test_one);
    struct test_program program = test_node_enter(test, &test_one);
    assert_string_equal(test_program_ask(test, &program, "charge 0 62914560"), "0");
    pid_t pid = restart_without(test, &program);
    /* There is no ledger to set it in; the one that comes back has the limit of before. */
    small.revision = 2;
    small.memory_bytes = 64 * MIB;
    test_node_grant(test, &small);
    assert_int_equal(kill(pid, SIGCONT), 0);
    test_node_until_back(test, &program);
    assert_int_equal(test_node_use(test, test_one.id).slot.memory_bytes, 64 * MIB);
    char refused[16];
    snprintf(refused, sizeof refused, "%d", -ENOMEM);
    assert_string_equal(test_program_ask(test, &program, "charge 0 8388608"), refused);
    close(program.fd);
}

static void test_restart_in_the_middle_of_an_end(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &test_one);
    struct test_program program = test_node_enter(test, &test_one);
    pid_t pid = restart_without(test, &program);
    test_node_remove(test, test_one.id);
    assert_false(test_node_is_removed(test, NULL));
    assert_int_equal(test_node_order(test, &test_other).status, FLYT_STATUS_OK);
    /* Again a restart: it is still known that it is to go. */
    test_node_stop(test);
    assert_int_equal(test->removal.order, FLYT_STATUS_UNAVAILABLE);
    test_node_start(test);
    test_node_remove(test, test_one.id);
    assert_int_equal(kill(pid, SIGCONT), 0);
    assert_string_equal(test_program_ask(test, &program, NULL), "gone");
    test_node_end_rejoining(test);
    test_node_until(test, test_node_is_removed, NULL, "the answer");
    assert_int_equal(test->removal.order, FLYT_STATUS_OK);
    assert_null(flyt_node_allocation_find(&test->node, test_one.id));
    close(program.fd);
}

/* One program may run, and a server of before the restart may still come back: who begins now is not refused, but waits
 * until it is known that it does not. */
static void test_restart_lets_programs_wait(void **state)
{
    struct test_node *test = *state;
    struct test_wish single = test_one;

    single.sessions_max = 1;
    test->settings.rejoin_ms = 500;
    test_node_grant(test, &single);
    struct test_program program = test_node_enter(test, &single);
    pid_t pid = restart_without(test, &program);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(test_node_use(test, test_one.id).session_count, 1);
    struct test_program fresh = test_node_enter(test, &single);
    assert_false(test->node.is_reattaching);
    assert_int_equal(test_node_use(test, test_one.id).session_count, 1);
    /* Now it is known: one more is too many. */
    const struct flyt_credentials credentials = test_node_credentials(&single);
    struct test_program late = test_node_connect(test, &credentials, NULL, false);
    assert_int_equal(late.status, FLYT_HANDSHAKE_BUSY);
    close(program.fd);
    close(fresh.fd);
    close(late.fd);
}

/* A server comes back while no descriptor is left: the loop does not spin, and it is taken when there is one. */
static void test_restart_without_descriptors(void **state)
{
    enum { TURNS_MAX = 200, MS = 500 };
    struct test_node *test = *state;
    struct rlimit before, none;
    unsigned turns = 0;

    test_node_grant(test, &test_one);
    struct test_program program = test_node_enter(test, &test_one);
    pid_t pid = restart_without(test, &program);
    test_node_until_warm(test);
    int lowest = dup(0);
    close(lowest);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = (rlim_t)lowest;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_int_equal(kill(pid, SIGCONT), 0);
    for (uint64_t end_ms = flyt_clock_ms() + MS; flyt_clock_ms() < end_ms && turns <= TURNS_MAX; turns++)
        assert_true(sd_event_run(test->event, MS * 1000) >= 0);
    bool has_come = flyt_node_server_find(&test->node, program.session_id) != NULL;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_false(has_come);
    assert_true(turns < TURNS_MAX);
    test_node_until_back(test, &program);
    assert_int_equal(flyt_node_server_find(&test->node, program.session_id)->pid, pid);
    close(program.fd);
}

static void test_restart_harms_nobody(void **state)
{
    struct test_node *test = *state;
    unsigned char key[FLYT_TICKET_KEY_BYTES];
    char refused[16];

    snprintf(refused, sizeof refused, "%d", -ENOMEM);
    test_node_grant(test, &test_one);
    test_node_grant(test, &test_other);
    struct test_program stays = test_node_enter(test, &test_one), dies = test_node_enter(test, &test_one);
    assert_string_equal(test_program_ask(test, &stays, "charge 0 62914560"), "0");
    assert_string_equal(test_program_ask(test, &stays, "extent 3 0 4194304"), "0");
    assert_string_equal(test_program_ask(test, &dies, "charge 0 20971520"), "0");
    memcpy(key, test->node.state.node_key, sizeof key);
    pid_t dying = flyt_node_server_find(&test->node, dies.session_id)->pid;
    test_node_stop(test);
    kill(dying, SIGKILL);
    test_node_start(test);
    assert_memory_equal(key, test->node.state.node_key, sizeof key);
    assert_true(test->node.is_reattaching);
    test_node_until_back(test, &stays);
    /* It is told to send its memory again, for there was no descriptor store. */
    struct flyt_node_server *server = flyt_node_server_find(&test->node, stays.session_id);
    assert_string_equal(server->session->ticket.program, "test_program");
    assert_false(server->is_child);
    assert_int_equal(test_node_used_bytes(test, &test_one), 84 * MIB);
    while (!server->has.extents.count)
        test_node_run(test, 10);
    assert_int_equal(server->has.extents.bytes, 4 * MIB);
    test_node_end_rejoining(test);
    /* The one that died meanwhile is no longer charged, and the limit still holds for both. */
    assert_int_equal(test_node_used_bytes(test, &test_one), 64 * MIB);
    assert_int_equal(test_node_use(test, test_one.id).session_count, 1);
    struct test_program fresh = test_node_enter(test, &test_one);
    assert_string_equal(test_program_ask(test, &fresh, "charge 0 41943040"), refused);
    assert_string_equal(test_program_ask(test, &stays, "charge 0 1048576"), "0");
    assert_string_equal(test_program_ask(test, &fresh, "charge 0 37748736"), refused);
    /* Data streams find it by its token. */
    assert_ptr_equal(flyt_node_server_find_token(&test->node, stays.token, sizeof stays.token), server);
    /* Killing it works, too. */
    flyt_node_server_end(server, "enough");
    assert_string_equal(test_program_ask(test, &stays, NULL), "killed: enough");
    while (test_node_use(test, test_one.id).session_count > 1)
        test_node_run(test, 10);
    assert_int_equal(test_node_used_bytes(test, &test_one), 0);
    close(stays.fd);
    close(dies.fd);
    close(fresh.fd);
}

static void test_orphans_and_strangers(void **state)
{
    struct test_node *test = *state;
    char path[128];

    test_node_grant(test, &test_one);
    struct test_program program = test_node_enter(test, &test_one);
    test_node_stop(test);
    /* The state is lost but for the key: the allocation comes back with its server. */
    snprintf(path, sizeof path, "%s/state.json", test->folder);
    struct flyt_node_state kept;
    struct flyt_error err;
    bool is_new;
    assert_int_equal(flyt_node_state_read(test->folder, &err, &kept, &is_new), 0);
    assert_false(is_new);
    assert_int_equal(flyt_node_state_write(test->folder, &kept, NULL, 0, &err), 0);
    flyt_node_state_fini(&kept);
    test_node_start(test);
    test_node_until_back(test, &program);
    assert_int_equal(flyt_node_allocation_find(&test->node, test_one.id)->now.state, FLYT_ALLOCATION_ORPHAN);
    /* The cluster manager takes it in. */
    test_node_grant(test, &test_one);
    assert_int_equal(flyt_node_allocation_find(&test->node, test_one.id)->now.state, FLYT_ALLOCATION_ACTIVE);
    assert_string_equal(test_program_ask(test, &program, "charge 0 1048576"), "0");
    assert_int_equal(test_node_used_bytes(test, &test_one), MIB);
    test_node_stop(test);
    /* With another key nobody can prove who it is: its server is told to go. */
    unlink(path);
    test_node_start(test);
    assert_string_equal(test_program_ask(test, &program, NULL), "gone");
    assert_null(test->node.allocations);
    close(program.fd);
}

/* The folder is the first one's: what it has read there would be older than what is written meanwhile. */
static void test_a_second_one_writes_nothing(void **state)
{
    struct test_node *test = *state;
    struct flyt_node_gpus none = {0};
    struct flyt_node second;
    struct stat before, after;
    struct flyt_error err = {0};
    char path[128];

    test_node_grant(test, &test_one);
    snprintf(path, sizeof path, "%s/state.json", test->folder);
    assert_int_equal(stat(path, &before), 0);
    memset(&second, 0, sizeof second);
    assert_int_equal(flyt_node_init(&second, test->event, NULL, &test->settings, &none, NULL, &err), -EADDRINUSE);
    test_contains(err.text, "another node manager runs");
    flyt_node_fini(&second);
    assert_int_equal(stat(path, &after), 0);
    assert_true(before.st_ino == after.st_ino);
    struct test_program program = test_node_enter(test, &test_one);
    test_node_stop(test); /* servers find it where it was */
    test_node_start(test);
    test_node_until_back(test, &program);
    close(program.fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_NODE(test_restart_gives_nothing_away),
        TEST_NODE(test_restart_hears_who_has_come),
        TEST_NODE(test_restart_while_groups_are_vacated),
        TEST_NODE(test_restart_with_a_lower_limit),
        TEST_NODE(test_restart_in_the_middle_of_an_end),
        TEST_NODE(test_restart_harms_nobody),
        TEST_NODE(test_page_locked_memory),
        TEST_NODE(test_restart_without_descriptors),
        TEST_NODE(test_restart_lets_programs_wait),
        TEST_NODE(test_orphans_and_strangers),
        TEST_NODE(test_a_second_one_writes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
