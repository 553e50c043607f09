/* Tests of programs that are to go on from images (restore.h, checkpointed.h), with fake servers that fail where they
 * are told to. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/node/model/allocation.h"
#include "control/node/ops/ops.h"
#include "control/node/ops/replace.h"
#include "control/node/ops/target.h"
#include "control/node/test/test_saving.h"
#include "rpc/base/fault_point.h"

/* ---- restores that fail ---- */

static void stays(struct test_node *test, struct test_program *programs, unsigned count)
{
    test_node_until_empty(test, &test_one);
    for (unsigned i = 0; i < count; i++) {
        assert_non_null(test_saving_record(test, &programs[i]));
        assert_int_equal(test_node_try_to_come(test, &test_one, &programs[i]), FLYT_HANDSHAKE_BUSY);
    }
    test_node_until_used(test, &test_one, 0);
}

static void test_servers_that_fail(void **state)
{
    static const struct {
        const char *points, *words;
        flyt_status status;
    } failures[] = {
        {"fake.prepare:error", "elsewhere", FLYT_STATUS_UNAVAILABLE},
        {"fake.prepare:kill", "has ended before", FLYT_STATUS_UNAVAILABLE},
        {"fake.make:error", "memory cannot be made", FLYT_STATUS_NO_CAPACITY},
        {"fake.state:error", "elsewhere", FLYT_STATUS_UNAVAILABLE},
        {"fake.state:kill", "has ended before", FLYT_STATUS_UNAVAILABLE},
    };
    struct test_node *test = *state;
    struct test_program program;

    test_saving_enter(test, &program, 1);
    test_saving_suspend(test, &program, 1);
    for (unsigned i = 0; i < sizeof failures / sizeof failures[0]; i++) {
        test_node_make_fail(test, NULL, failures[i].points);
        test_saving_must(test_saving_restore(test));
        test_saving_failed(test, failures[i].status, failures[i].words);
        test_contains(test->last_event, "restore.failed");
        stays(test, &program, 1);
    }
    test_node_make_fail(test, NULL, NULL);
    test_saving_go_on(test, &program, 1);
    test_node_leave(test, &test_one, &program, 1);
}

/* After its client has come, and after it was to come. */
static void test_a_server_dies_with_its_client(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    test_saving_enter(test, &program, 1);
    test_saving_suspend(test, &program, 1);
    test_saving_must(test_saving_restore(test));
    test_node_come_back(test, &test_one, &program);
    kill(test_node_server(test, &program)->pid, SIGKILL);
    test_saving_failed(test, FLYT_STATUS_UNAVAILABLE, "has ended before");
    close(program.fd);
    stays(test, &program, 1);
    /* Its client loses it: the server is ended. */
    test_saving_must(test_saving_restore(test));
    test_node_come_back(test, &test_one, &program);
    close(program.fd);
    for (unsigned i = 0; i < 500 && test_saving_use(test).phase < FLYT_SAVING_DONE; i++)
        if (test_node_try_to_come(test, &test_one, &program) != FLYT_HANDSHAKE_BUSY)
            fail_msg("its client is not told to try again");
    test_saving_until(test, FLYT_SAVING_FAILED);
    stays(test, &program, 1);
    test_saving_go_on(test, &program, 1);
    test_node_leave(test, &test_one, &program, 1);
}

/* Its server's link has ended, and its process has not: nobody else is given the session. */
static void test_a_server_cannot_be_reached(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    test_saving_enter(test, &program, 1);
    test_saving_suspend(test, &program, 1);
    test_saving_must(test_saving_restore(test));
    test_node_until(test, test_node_is_away, &program, "the session waits for its client");
    const pid_t pid = test_node_cut_off(test, flyt_node_replace_find(&test->node, program.session_id)->target);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(test_node_try_to_come(test, &test_one, &program), FLYT_HANDSHAKE_BUSY);
    assert_int_equal(kill(pid, SIGKILL), 0);
    test_saving_failed(test, FLYT_STATUS_UNAVAILABLE, "does not take it");
    stays(test, &program, 1);
    test_saving_go_on(test, &program, 1);
    test_node_leave(test, &test_one, &program, 1);
}

/* Its client's connection ends before its server is given it: the server waits for its next try. */
static void test_a_client_hangs_up_before_it_is_given(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    test_saving_enter(test, &program, 1);
    test_saving_suspend(test, &program, 1);
    test_saving_must(test_saving_restore(test));
    test_node_until(test, test_node_is_away, &program, "the session waits for its client");
    const struct flyt_node_server *prepared = flyt_node_replace_find(&test->node, program.session_id)->target;
    for (unsigned i = 0; i < 2; i++) { /* it has one client slot all the time */
        assert_int_equal(test->node.starts[0].serving + flyt_node_replace_count(&test->node, prepared->gpu), 1);
        test_node_come_and_hang_up(test, &test_one, &program);
    }
    test_node_come_back(test, &test_one, &program);
    assert_ptr_equal(test_node_server(test, &program), prepared);
    test_program_say(test, &program, "resumed", "2 2");
    test_program_say(test, &program, "go_on", "0");
    test_saving_until(test, FLYT_SAVING_DONE);
    test_saving_has_memory(test, &program, 1);
    test_node_leave(test, &test_one, &program, 1);
}

/* A program that was let in, and for which no server is ready yet, has its client slot, and its place among those of
 * its VM. */
static void test_a_place_that_is_promised(void **state)
{
    struct test_node *test = *state;
    struct test_program program;
    struct test_wish wish = test_one;

    test_saving_enter(test, &program, 1);
    test_saving_suspend(test, &program, 1);
    struct test_program other = test_node_let_wait(test, &test_one);
    const uint64_t slots = test->settings.client_slots;
    test->settings.client_slots = 1;
    test_saving_must(test_saving_restore(test));
    test_saving_failed(test, FLYT_STATUS_NO_CAPACITY, "client slots");
    test->settings.client_slots = slots;
    wish.revision = 2;
    wish.sessions_max = 1;
    test_node_grant(test, &wish);
    test_saving_must(test_saving_restore(test));
    test_saving_failed(test, FLYT_STATUS_NO_CAPACITY, "as many as its allocation allows");
    test_node_let_start(test, &test_one, &other);
    test_node_leave(test, &test_one, &other, 1);
    test_saving_go_on(test, &program, 1);
    test_node_leave(test, &test_one, &program, 1);
}

static void test_a_client_that_does_not_come(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    test_saving_enter(test, &program, 1);
    test_saving_suspend(test, &program, 1);
    test->node.ops->switch_ms = 50;
    test_saving_must(test_saving_restore(test));
    test_saving_failed(test, FLYT_STATUS_TIMEOUT, "has not come back within");
    test->node.ops->switch_ms = TEST_LONG_MS;
    stays(test, &program, 1);
    test_saving_go_on(test, &program, 1);
    test_node_leave(test, &test_one, &program, 1);
}

/* A damaged image is refused before anything is changed, for all of them. */
static void test_a_damaged_image(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];
    unsigned char byte;
    char path[PATH_MAX];

    test_saving_enter(test, programs, 2);
    test_saving_suspend(test, programs, 2);
    assert_int_equal(test_saving_images(test, path), 2);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(pread(fd, &byte, 1, 300), 1);
        byte ^= 0x10;
        assert_int_equal(pwrite(fd, &byte, 1, 300), 1);
        if (i)
            break;
        test_saving_must(test_saving_restore(test));
        test_saving_failed(test, FLYT_STATUS_INVALID, "damaged");
        stays(test, programs, 2);
        for (const struct flyt_node_server *server = test->node.servers; server; server = server->next)
            assert_true(server->state <= FLYT_NODE_SERVER_WARM);
    }
    close(fd);
    test_saving_go_on(test, programs, 2);
    test_node_leave(test, &test_one, programs, 2);
}

/* Images cannot be read: that ends by time, with the node manager, and with the allocation. */
static void test_a_disk_that_does_not_read(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    test_saving_enter(test, &program, 1);
    test_saving_write(test);
    test_saving_suspend(test, &program, 1);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(flyt_fault_set(i ? "node.restore.flatten:hang" : "node.restore.read:hang"), 0);
        test_saving.restore_timeout_s = 1;
        test_saving_must(test_saving_restore(test));
        test_saving_failed(test, FLYT_STATUS_TIMEOUT, i ? "" : "were not read after 1 s");
        test_saving.restore_timeout_s = 0;
        assert_int_equal(flyt_fault_set(NULL), 0);
        stays(test, &program, 1);
    }
    test_saving_go_on(test, &program, 1);
    test_saving_suspend(test, &program, 1);
    assert_int_equal(flyt_fault_set("node.restore.read:hang"), 0);
    test_saving_must(test_saving_restore(test));
    test_node_stop(test);
    test_node_start(test);
    assert_non_null(test_saving_record(test, &program));
    test_node_end_rejoining(test);
    test_saving_must(test_saving_restore(test));
    test_node_remove_now(test, test_one.id);
    test_saving_failed(test, FLYT_STATUS_CONFLICT, "its session was ended");
    assert_int_equal(flyt_fault_set(NULL), 0);
    assert_null(test->node.state.checkpointed);
}

static void note_status(void *user, flyt_status status, const char *text)
{
    *(flyt_status *)user = status;
    if (status != FLYT_STATUS_OK)
        assert_true(*text);
}

/* Nor is it seen which are there: the order is answered all the same, at the node manager's end too. */
static void test_a_disk_that_does_not_show(void **state)
{
    struct test_node *test = *state;
    struct test_program program;
    char folder[FLYT_NAME_BYTES_MAX];
    const flyt_order_restore_args args = {.id = 4711, .folder = folder};
    flyt_status status = FLYT_STATUS_OK;

    test_saving_folder(test, folder);
    test_saving_enter(test, &program, 1);
    test_saving_suspend(test, &program, 1);
    assert_int_equal(flyt_fault_set("node.restore.look:hang"), 0);
    test_saving.restore_timeout_s = 1; /* before it would be answered anyhow */
    assert_int_equal(test_saving_restore(test), FLYT_STATUS_TIMEOUT);
    test_contains(test_saving.refusal.text, "was not looked into after 1 s");
    test_saving_failed(test, FLYT_STATUS_TIMEOUT, "was not looked into after 1 s"); /* whoever asks for it */
    test_saving.restore_timeout_s = 0;
    test_saving_must(test_saving_restore(test));
    assert_int_equal(test_saving_use(test).phase, FLYT_SAVING_PREPARING);
    assert_int_equal(
        test_saving_order_restore(test, &(flyt_order_restore_args){.id = test_saving.last_id, .folder = folder}),
        FLYT_STATUS_OK); /* the same one */
    flyt_node_restore(&test->node, &args, note_status, &status);
    assert_non_null(flyt_node_restore_find(&test->node, args.id));
    assert_null(test_saving_record(test, &program)->restoring);
    test_node_stop(test);
    assert_int_equal(status, FLYT_STATUS_UNAVAILABLE);
    test_node_start(test);
    test_node_until_warm(test);
    stays(test, &program, 1);
    assert_int_equal(flyt_fault_set(NULL), 0);
    test_node_end_rejoining(test);
    test_saving_must(test_saving_restore(test));
    test_node_come_back(test, &test_one, &program);
    test_program_say(test, &program, "go_on", "0");
    test_saving_until(test, FLYT_SAVING_DONE);
    test_saving_has_memory(test, &program, 1);
    test_node_leave(test, &test_one, &program, 1);
}

struct noted {
    unsigned count; /* of answers */
    flyt_status status;
    char text[512];
};

static void note_answer(void *user, flyt_status status, const char *text)
{
    struct noted *noted = user;

    noted->count++;
    noted->status = status;
    snprintf(noted->text, sizeof noted->text, "%s", text);
}

static bool is_answered(struct test_node *test, void *noted)
{
    return ((const struct noted *)noted)->count > 0;
}

/* The VM goes while the folder is looked at. Who waits for the answer gets it, and who has ordered it again, or asked
 * for it, and was told that it is under way finds why it has failed: also where nobody had done so before. */
static void test_a_vm_goes_while_it_is_looked(void **state)
{
    struct test_node *test = *state;
    struct test_program program;
    char folder[FLYT_NAME_BYTES_MAX];

    test_saving_folder(test, folder);
    for (unsigned i = 0; i < 3; i++) {
        struct noted first = {0}, second = {0};
        flyt_saving_use use;
        test_saving_enter(test, &program, 1);
        test_saving_suspend(test, &program, 1);
        const flyt_order_restore_args args = {.id = ++test_saving.last_id, .folder = folder};
        /* The loop, which would hear of what was seen, stands still until the VM has gone. */
        flyt_node_restore(&test->node, &args, note_answer, &first);
        if (i == 1) {
            flyt_node_restore(&test->node, &args, note_answer, &second);
            assert_int_equal(second.count, 1);
            assert_int_equal(second.status, FLYT_STATUS_OK);
        } else if (i == 2) {
            flyt_node_restore_tell(flyt_node_restore_find(&test->node, args.id), &use);
            assert_int_equal(use.phase, FLYT_SAVING_PREPARING);
        }
        assert_int_equal(first.count, 0);
        flyt_node_checkpointed_drop_all(&test->node, flyt_node_allocation_find(&test->node, test_one.id),
                                        "its VM goes");
        test_node_until(test, is_answered, &first, "the order's answer");
        assert_int_equal(first.count, 1);
        const bool is_late = first.status == FLYT_STATUS_OK; /* the machine was so busy that the time came first */
        assert_true(is_late || first.status == FLYT_STATUS_NOT_FOUND);
        test_contains(first.text, is_late ? "" : "is of a program that waits on this node");
        assert_int_equal(second.count, i == 1);
        test_saving_failed(test, FLYT_STATUS_NOT_FOUND, "is of a program that waits on this node");
        assert_int_equal(test_saving_use(test).session_count, 0);
        const bool is_event = strstr(test->last_event, "restore.failed") != NULL;
        assert_int_equal(is_event, is_late || i > 0); /* else nobody heard that it had begun */
        assert_null(test->node.state.checkpointed);
        assert_null(flyt_node_target_next(test->node.ops->targets, FLYT_NODE_ROLE_LOAD));
        test_node_remove_now(test, test_one.id);
    }
}

/* Who was told that it has begun finds that it could not. */
static void test_a_look_that_takes_long(void **state)
{
    const unsigned timeout_s = FLYT_NODE_RESTORE_ANSWER_MS / 1000 + 1;
    struct test_node *test = *state;
    struct test_program program;

    test_saving_enter(test, &program, 1);
    test_saving_suspend(test, &program, 1);
    assert_int_equal(flyt_fault_set("node.restore.look:hang"), 0);
    test_saving.restore_timeout_s = timeout_s;
    flyt_status status = test_saving_restore(test);
    if (status == FLYT_STATUS_OK) {
        test_saving_failed(test, FLYT_STATUS_TIMEOUT, "was not looked into after");
        test_contains(test->last_event, "restore.failed");
        assert_int_equal(test_saving_use(test).session_count, 0);
    } else { /* the machine was so busy that this came first */
        assert_int_equal(status, FLYT_STATUS_TIMEOUT);
    }
    test_saving.restore_timeout_s = 0;
    assert_int_equal(flyt_fault_set(NULL), 0);
    stays(test, &program, 1);
    test_saving_go_on(test, &program, 1);
    test_node_leave(test, &test_one, &program, 1);
}

/* A pipe that nobody writes to stands where the image was, or one that it builds on. */
static void test_a_pipe_for_an_image(void **state)
{
    struct test_node *test = *state;
    struct test_program program;
    char older[PATH_MAX], newer[PATH_MAX], away[PATH_MAX + 8];

    test_saving_enter(test, &program, 1);
    test_saving_write(test);
    test_saving_parents(test, older);
    test_saving_suspend(test, &program, 1);
    test_saving_parents(test, newer);
    snprintf(away, sizeof away, "%s.away", newer);
    for (unsigned i = 0; i < 2; i++) {
        const char *path = i ? older : newer;
        assert_int_equal(rename(path, away), 0);
        assert_int_equal(mkfifo(path, 0600), 0);
        test_saving_must(test_saving_restore(test));
        test_saving_failed(test, FLYT_STATUS_INVALID, "it is no file");
        assert_int_equal(rename(away, path), 0);
        stays(test, &program, 1);
    }
    test_saving_go_on(test, &program, 1);
    test_node_leave(test, &test_one, &program, 1);
}

static void test_a_program_has_ended(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    test_saving_enter(test, programs, 2);
    test_saving_suspend(test, programs, 2);
    test_saving_record(test, &programs[0])->asked_ms -= LONG_AGO_MS;
    test_saving_must(test_saving_restore(test));
    test_node_come_back(test, &test_one, &programs[1]);
    test_program_say(test, &programs[1], "go_on", "0");
    test_saving_failed(test, FLYT_STATUS_NOT_FOUND, "it has ended");
    assert_int_equal(test_saving_use(test).session_count, 1);
    assert_null(test->node.state.checkpointed);
    assert_int_equal(test_node_try_to_come(test, &test_one, &programs[0]), FLYT_HANDSHAKE_NO_SESSION);
    test_program_say(test, &programs[1], "read 1", "4712");
    test_node_leave(test, &test_one, &programs[1], 1);
}

static void test_no_room(void **state)
{
    struct test_node *test = *state;
    struct test_wish smaller = test_one;
    struct test_program program;

    test_saving_enter(test, &program, 1);
    test_saving_suspend(test, &program, 1);
    smaller.memory_bytes = 9 * MIB;
    smaller.revision = 2;
    assert_int_equal(test_node_order(test, &smaller).status, FLYT_STATUS_OK);
    test_saving_must(test_saving_restore(test));
    test_saving_failed(test, FLYT_STATUS_NO_CAPACITY, "no room for its memory, 10485760 bytes so far");
    stays(test, &program, 1);
    smaller.memory_bytes = 10 * MIB;
    smaller.revision = 3;
    assert_int_equal(test_node_order(test, &smaller).status, FLYT_STATUS_OK);
    test_saving_go_on(test, &program, 1);
    test_node_leave(test, &test_one, &program, 1);
}

/* ---- ends ---- */

static void test_the_allocation_is_removed(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    test_saving_enter(test, &program, 1);
    test_saving_suspend(test, &program, 1);
    test_node_remove_now(test, test_one.id);
    assert_null(test->node.state.checkpointed);
    assert_int_equal(test_saving_restore(test), FLYT_STATUS_NOT_FOUND);
    /* And while it is being restored, its client not having come. */
    test_saving_enter(test, &program, 1);
    test_saving_suspend(test, &program, 1);
    test_saving_must(test_saving_restore(test));
    test_saving_until(test, FLYT_SAVING_SWITCHING);
    test_node_remove_now(test, test_one.id);
    assert_null(test->node.state.checkpointed);
    test_saving_failed(test, FLYT_STATUS_CONFLICT, "its session was ended");
}

static bool is_forgotten(struct test_node *test, void *program)
{
    return !test_saving_record(test, program);
}

/* The program has not been told when the node manager dies, and goes on; its record goes with its coming back. */
static void test_a_restart_before_it_has_left(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    test_saving_enter(test, &program, 1);
    assert_non_null(
        flyt_node_checkpointed_add(&test->node, test_node_server(test, &program), "/nowhere", "none.flyt", 5));
    assert_int_equal(flyt_node_save(&test->node), 0);
    test_node_stop(test);
    test_node_start(test);
    assert_non_null(test_saving_record(test, &program));
    test_node_until(test, is_forgotten, &program, "its record goes");
    assert_null(test->node.state.checkpointed);
    test_saving_has_memory(test, &program, 1);
    test_node_leave(test, &test_one, &program, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_NODE(test_servers_that_fail),
        TEST_NODE(test_a_server_dies_with_its_client),
        TEST_NODE(test_a_server_cannot_be_reached),
        TEST_NODE(test_a_client_hangs_up_before_it_is_given),
        TEST_NODE(test_a_place_that_is_promised),
        TEST_NODE(test_a_client_that_does_not_come),
        TEST_NODE(test_a_damaged_image),
        TEST_NODE(test_a_disk_that_does_not_read),
        TEST_NODE(test_a_disk_that_does_not_show),
        TEST_NODE(test_a_look_that_takes_long),
        TEST_NODE(test_a_pipe_for_an_image),
        TEST_NODE(test_a_vm_goes_while_it_is_looked),
        TEST_NODE(test_a_program_has_ended),
        TEST_NODE(test_no_room),
        TEST_NODE(test_the_allocation_is_removed),
        TEST_NODE(test_a_restart_before_it_has_left),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
