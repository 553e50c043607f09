/* Tests of migrations (migration.h) that fail or are ended before the commit: all stay where they are. With fake
 * servers that fail where they are told to. */
#include <errno.h>
#include <fcntl.h>
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

#include "control/node/test/test_migration.h"
#include "control/node/test/test_node.h"

/* ---- failures ---- */

static const struct {
    const char *node_points, *server_points, *words;
} failures[] = {
    {"node.migrate.prepare:error", NULL, "node.migrate.prepare"},
    {"node.migrate.make:error", NULL, "node.migrate.make"},
    {"node.migrate.make:error:2", NULL, "node.migrate.make"},
    {"node.migrate.mirror:error", NULL, "node.migrate.mirror"},
    {"node.migrate.stop:error", NULL, "node.migrate.stop"},
    {"node.migrate.stop:error:2", NULL, "node.migrate.stop"},
    {"node.migrate.state:error:2", NULL, "node.migrate.state"},
    {"node.migrate.commit:error", NULL, "node.migrate.commit"},
    {"node.migrate.leave:error", NULL, "node.migrate.leave"},
    {NULL, "fake.prepare:error", "come to be elsewhere"},
    {NULL, "fake.prepare:kill", "new server process has ended"},
    {NULL, "fake.make:error", "cannot be made on GPU 1"},
    {NULL, "fake.make:kill", "new server process has ended"},
    {NULL, "fake.locks:kill", "new server process has ended"},
    {NULL, "fake.state:error", "come to be elsewhere"},
    {NULL, "fake.state:kill", "new server process has ended"},
};

static void test_failures(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    for (size_t i = 0; i < sizeof failures / sizeof failures[0]; i++) {
        test_migration_enter(test, programs, 2);
        test_node_make_fail(test, failures[i].node_points, failures[i].server_points);
        test_migration_start(test, 1);
        test_migration_until_failed(test, failures[i].words);
        assert_int_equal(test_migration_of(test)->op.status, strstr(failures[i].words, "cannot be made")
                                                                 ? FLYT_STATUS_NO_CAPACITY
                                                                 : FLYT_STATUS_UNAVAILABLE);
        test_node_make_fail(test, NULL, NULL);
        test_migration_stayed(test, programs, 2);
        test_node_leave(test, &test_one, programs, 2);
        test_migration_forget(test);
    }
}

static void test_the_state_cannot_be_kept(void **state)
{
    struct test_node *test = *state;
    struct test_program program;
    char part[128], next[128];

    test_migration_enter(test, &program, 1);
    snprintf(part, sizeof part, "%s/state.json.part", test->folder);
    snprintf(next, sizeof next, "%s/state.json.next", test->folder); /* neither ahead nor then */
    assert_int_equal(mkdir(part, 0700), 0);
    assert_int_equal(mkdir(next, 0700), 0);
    test_migration_start(test, 1);
    test_migration_until_failed(test, "state file cannot be written");
    assert_int_equal(rmdir(part), 0);
    assert_int_equal(rmdir(next), 0);
    test_migration_stayed(test, &program, 1);
    test_node_leave(test, &test_one, &program, 1);
}

/* It stops when it is asked for the third time. */
static void test_a_program_that_stops_late(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    test_migration_enter(test, programs, 2);
    test_program_say(test, &programs[1], "restless 2", "0");
    test_migration_start(test, 1);
    for (unsigned i = 0; i < 2; i++)
        test_migration_is_told_to_leave(test, &programs[i]);
    assert_int_equal(test_migration_of(test)->tries, 3);
    for (unsigned i = 0; i < 2; i++)
        test_migration_go_on(test, &programs[i]);
    test_migration_until(test, FLYT_MIGRATION_DONE);
    test_migration_is_only_on(test, 1);
    for (unsigned i = 0; i < 2; i++)
        test_program_say(test, &programs[i], "read 1", "4711");
    test_node_leave(test, &test_one, programs, 2);
}

static void test_a_program_that_never_stops(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    test_migration_enter(test, programs, 2);
    test_program_say(test, &programs[0], "restless 100", "0");
    test_migration_start(test, 1);
    test_migration_until_failed(test, "its program does not stop");
    assert_int_equal(test_migration_of(test)->op.status, FLYT_STATUS_TIMEOUT);
    assert_int_equal(test_migration_of(test)->tries, FLYT_NODE_MIGRATION_TRIES);
    test_migration_stayed(test, programs, 2);
    test_node_leave(test, &test_one, programs, 2);
}

static void test_its_time_is_over(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    test_migration_enter(test, &program, 1);
    test_program_say(test, &program, "busy 1", "0");
    test_migration_start_within(test, 1, 1);
    test_migration_until_failed(test, "not through after 1 s");
    assert_int_equal(test_migration_of(test)->op.status, FLYT_STATUS_TIMEOUT);
    test_migration_stayed(test, &program, 1);
    test_node_leave(test, &test_one, &program, 1);
}

/* ---- ended by an operator ---- */

/* In this stage, where its program has said the line, or servers hang. All stays as it was. */
static void cancel_in(struct test_node *test, enum flyt_node_move_stage stage, enum flyt_node_target_state state,
                      const char *line, const char *server_points)
{
    struct test_program program;

    test_migration_enter(test, &program, 1);
    if (line)
        test_program_say(test, &program, line, "0");
    test_node_make_fail(test, NULL, server_points);
    test->settings.kill_grace_ms = TEST_GRACE_MS;
    test_migration_start(test, 1);
    test_migration_until_stage(test, stage, state);
    struct flyt_node_migration *its = test_migration_of(test);
    assert_int_equal(flyt_node_migration_cancel(its, "an operator has ended the migration"), 0);
    test_migration_until_failed(test, "an operator");
    assert_int_equal(its->op.status, FLYT_STATUS_CONFLICT);
    assert_int_equal(flyt_node_migration_cancel(its, "again"), -EALREADY);
    test_node_make_fail(test, NULL, NULL);
    test_migration_stayed(test, &program, 1);
    test_node_leave(test, &test_one, &program, 1);
}

static void test_cancel_while_preparing(void **state)
{
    cancel_in(*state, FLYT_NODE_MOVE_COPYING, FLYT_NODE_TARGET_PREPARING, NULL, "fake.prepare:hang");
}

static void test_cancel_while_copying(void **state)
{
    cancel_in(*state, FLYT_NODE_MOVE_COPYING, FLYT_NODE_TARGET_LOADING, NULL, "fake.make:hang");
}

static void test_cancel_while_stopping(void **state)
{
    cancel_in(*state, FLYT_NODE_MOVE_STOPPING, FLYT_NODE_TARGET_LOADING, "mute 1", NULL);
}

static void test_cancel_while_loading(void **state)
{
    cancel_in(*state, FLYT_NODE_MOVE_STOPPED, FLYT_NODE_TARGET_LOADING, NULL, "fake.state:hang");
}

static void test_cancel_comes_too_late(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    test_migration_set_out(test, &program, 1, 1);
    assert_int_equal(flyt_node_migration_cancel(test_migration_of(test), "too late"), -EALREADY);
    test_migration_go_on(test, &program);
    test_migration_until(test, FLYT_MIGRATION_DONE);
    test_migration_is_only_on(test, 1);
    test_node_leave(test, &test_one, &program, 1);
}

/* ---- bounds ---- */

/* They come and go while there is no target yet: so many, of so many bytes. */
static void test_libraries_without_bounds(void **state)
{
    struct test_node *test = *state;
    static struct flyt_manager_link_message told = {.kind = FLYT_MANAGER_LINK_LIBRARY};

    for (unsigned i = 0; i < 2; i++) {
        struct test_program program;
        test_migration_enter(test, &program, 1);
        test_migration_start(test, 1);
        test_migration_until_stage(test, FLYT_NODE_MOVE_COPYING, FLYT_NODE_TARGET_WANTED);
        struct flyt_node_move *move = test_migration_of(test)->moves;
        assert_null(move->target.server);
        told.data_bytes = i ? FLYT_MANAGER_LINK_DATA_BYTES_MAX : 1;
        unsigned count_max = i ? FLYT_NODE_MOVE_LIBRARIES_BYTES_MAX / told.data_bytes : FLYT_NODE_MOVE_LIBRARIES_MAX;
        for (unsigned count = move->library_count; count < count_max; count++) {
            told.library.has_ended = count % 2;
            flyt_node_move_on_message(move->source, &told, -1);
        }
        assert_int_equal(move->outcome, 0);
        flyt_node_move_on_message(move->source, &told, -1);
        assert_int_equal(move->outcome, -ENOBUFS);
        test_migration_until_failed(test, "more libraries than the node manager keeps");
        test_migration_stayed(test, &program, 1);
        test_node_leave(test, &test_one, &program, 1);
        test_migration_forget(test);
    }
}

/* A target that does not read is told so much: in messages, and in bytes. */
static void test_a_target_that_does_not_read(void **state)
{
    struct test_node *test = *state;
    static struct flyt_manager_link_message told = {.kind = FLYT_MANAGER_LINK_LIBRARY};

    for (unsigned i = 0; i < 2; i++) {
        struct test_program program;
        test_migration_enter(test, &program, 1);
        test_program_say(test, &program, "busy 1", "0");
        test->settings.kill_grace_ms = TEST_GRACE_MS;
        test_migration_start(test, 0);
        test_migration_until_stage(test, FLYT_NODE_MOVE_COPYING, FLYT_NODE_TARGET_LOADING);
        struct flyt_node_move *move = test_migration_of(test)->moves;
        const struct flyt_node_link_queue *queue = &move->target.server->queue;
        assert_int_equal(kill(move->target.server->pid, SIGSTOP), 0);
        told.data_bytes = i ? FLYT_MANAGER_LINK_DATA_BYTES_MAX : 1;
        unsigned sent_count = 0;
        while (!move->outcome && sent_count++ < 2 * FLYT_NODE_LINK_QUEUE_MAX)
            flyt_node_move_on_message(move->source, &told, -1);
        assert_int_equal(move->outcome, -ENOBUFS);
        assert_true(queue->count <= FLYT_NODE_LINK_QUEUE_MAX && queue->bytes <= FLYT_NODE_LINK_QUEUE_BYTES_MAX);
        assert_true(i ? queue->count < FLYT_NODE_LINK_QUEUE_MAX : queue->count == FLYT_NODE_LINK_QUEUE_MAX);
        test_migration_until_failed(test, "does not read what it is told");
        test_migration_stayed(test, &program, 1);
        test_node_leave(test, &test_one, &program, 1);
        test_migration_forget(test);
    }
}

static void is_closed(int fd)
{
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    assert_int_equal(errno, EBADF);
}

static bool is_awaited(struct test_node *test, void *unused)
{
    const struct flyt_node_move *move = test_migration_of(test)->moves;

    return flyt_node_move_is_copying(move) && move->awaited_count;
}

static bool are_locks_awaited(struct test_node *test, void *unused)
{
    const struct flyt_node_move *move = test_migration_of(test)->moves;

    return flyt_node_move_is_copying(move) && move->is_ready && move->locks_are_awaited && !move->awaited_count;
}

/* The program is not stopped before its page-locked memory is locked ahead, or it is clear that it is not. */
static void test_locks_are_awaited(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    test_migration_enter(test, &program, 1);
    test_node_make_fail(test, NULL, "fake.locks:hang");
    test->settings.kill_grace_ms = TEST_GRACE_MS;
    test_migration_start(test, 1);
    test_node_until(test, are_locks_awaited, NULL, "all but that is there");
    assert_false(flyt_node_move_is_ready(test_migration_of(test)->moves));
    assert_int_equal(test_migration_of(test)->moves->stage, FLYT_NODE_MOVE_COPYING);
    test_migration_of(test)->moves->asked_ms -= FLYT_NODE_MOVE_PREPARE_MS + 1;
    test_migration_until_failed(test, "does not make or lock its memory in time");
    test_node_make_fail(test, NULL, "fake.locks:error");
    flyt_node_migrations_fini(&test->node);
    test_migration_start(test, 1);
    test_migration_until(test, FLYT_MIGRATION_SWITCHING);
    assert_int_equal(test_migration_of(test)->moves->locked.missed_count, 3);
    test_migration_is_told_to_leave(test, &program);
    test_node_come_back(test, &test_one, &program);
    test_program_say(test, &program, "resumed", "1 1");
    test_program_say(test, &program, "go_on", "0");
    test_migration_until(test, FLYT_MIGRATION_DONE);
    test_node_make_fail(test, NULL, NULL);
    test_node_leave(test, &test_one, &program, 1);
}

static int open_null(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    return fd;
}

/* LOCKS that nobody wants. */
static void test_descriptors_of_locks(void **state)
{
    struct test_node *test = *state;
    static struct flyt_manager_link_message told;
    struct test_program program;

    test_migration_enter(test, &program, 1);
    test_program_say(test, &program, "mute 1", "0");
    test_migration_start(test, 1);
    test_migration_until(test, FLYT_MIGRATION_STOPPING);
    struct flyt_node_move *move = test_migration_of(test)->moves;
    told.kind = FLYT_MANAGER_LINK_LOCKS;
    told.locks = (struct flyt_manager_link_locks){.move_id = move->move_id + 1, .has_memory = 1};
    for (unsigned i = 0; i < 3; i++) {
        int fd = open_null();
        told.locks.move_id += i == 1 ? UINT64_MAX : 0; /* its own, from its target, and when it has failed */
        if (i == 1)
            flyt_node_target_on_message(move->target.server, &told, fd);
        move->outcome = i == 2 ? -EIO : 0;
        if (i != 1)
            flyt_node_move_on_message(move->source, &told, fd);
        is_closed(fd);
    }
    test_migration_until_failed(test, "");
    test_migration_stayed(test, &program, 1);
    test_node_leave(test, &test_one, &program, 1);
}

/* Answers of a failure that come with a descriptor. */
static void test_descriptors_of_failures(void **state)
{
    struct test_node *test = *state;
    static struct flyt_manager_link_message told;
    struct test_program program;

    test_migration_enter(test, &program, 1);
    test_node_make_fail(test, NULL, "fake.make:hang");
    test->settings.kill_grace_ms = TEST_GRACE_MS;
    test_migration_start(test, 1);
    test_node_until(test, is_awaited, NULL, "memory is to be made");
    struct flyt_node_move *move = test_migration_of(test)->moves;
    told.kind = FLYT_MANAGER_LINK_MADE;
    told.made = (struct flyt_manager_link_made){.extent = move->extents->extent, .outcome = -ENOMEM};
    int fd = open_null();
    flyt_node_target_on_message(move->target.server, &told, fd);
    is_closed(fd);
    test_migration_until_failed(test, "cannot be made on GPU 1");
    test_node_make_fail(test, NULL, NULL);
    flyt_node_migrations_fini(&test->node);
    test_program_say(test, &program, "mute 1", "0");
    test_migration_start(test, 1);
    test_migration_until(test, FLYT_MIGRATION_STOPPING);
    move = test_migration_of(test)->moves;
    told.kind = FLYT_MANAGER_LINK_STOPPED;
    told.stopped = (struct flyt_manager_link_stopped){.move_id = move->move_id, .outcome = -EIO};
    fd = open_null();
    flyt_node_move_on_message(move->source, &told, fd);
    is_closed(fd);
    test_migration_until_failed(test, strerror(EIO));
    test_migration_stayed(test, &program, 1);
    test_node_leave(test, &test_one, &program, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_NODE(test_failures),
        TEST_NODE(test_the_state_cannot_be_kept),
        TEST_NODE(test_a_program_that_stops_late),
        TEST_NODE(test_a_program_that_never_stops),
        TEST_NODE(test_its_time_is_over),
        TEST_NODE(test_cancel_while_preparing),
        TEST_NODE(test_cancel_while_copying),
        TEST_NODE(test_cancel_while_stopping),
        TEST_NODE(test_cancel_while_loading),
        TEST_NODE(test_cancel_comes_too_late),
        TEST_NODE(test_libraries_without_bounds),
        TEST_NODE(test_a_target_that_does_not_read),
        TEST_NODE(test_locks_are_awaited),
        TEST_NODE(test_descriptors_of_locks),
        TEST_NODE(test_descriptors_of_failures),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
