/* Tests of images that are tried before their programs are let go of (restore_check.h), with fake servers that fail
 * where they are told to, or are killed. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/node/attach/pool.h"
#include "control/node/link/starts.h"
#include "control/node/ops/checkpoint.h"
#include "control/node/ops/ops.h"
#include "control/node/ops/restore_check.h"
#include "control/node/test/test_saving.h"
#include "rpc/base/fault_point.h"

static struct flyt_node_target *first_check(const struct test_node *test)
{
    return flyt_node_target_next(test->node.ops->targets, FLYT_NODE_ROLE_CHECK);
}

/* Nothing is left of what was tried, and they run on. */
static void are_as_before(struct test_node *test, struct test_program *programs, unsigned count)
{
    assert_null(first_check(test));
    assert_null(test->node.state.checkpointed);
    for (const struct flyt_node_server *server = test->node.servers; server; server = server->next)
        assert_true(!(struct flyt_node_restore_check *)server->role && server->state != FLYT_NODE_SERVER_PREPARING);
    test_saving_images_are(test, 0);
    test_saving_has_memory(test, programs, count);
}

static void is_refused(struct test_node *test, struct test_program *programs, unsigned count, const char *words)
{
    test_saving_must(test_saving_checkpoint(test, 0, false));
    test_saving_failed(test, FLYT_STATUS_UNAVAILABLE, words);
    test_contains(test->last_event, "checkpoint.failed");
    are_as_before(test, programs, count);
}

static bool is_untried(struct test_node *test, void *unused)
{
    return strstr(test->last_event, "checkpoint.untried") != NULL;
}

/* It is written, with a warning, and goes on from its image. */
static void waits_untried(struct test_node *test, struct test_program *program, const char *words)
{
    test_saving_must(test_saving_checkpoint(test, 0, false));
    test_node_until(test, is_untried, NULL, "the warning");
    test_contains(test->last_event, words);
    test_saving_until(test, FLYT_SAVING_DONE);
    assert_null(first_check(test));
    test_program_say(test, program, NULL, "moved for ever");
    test_program_say(test, program, NULL, "gone");
    close(program->fd);
    program->fd = -1;
    test_node_until_used(test, &test_one, 0);
}

static void test_an_image_that_cannot_be_restored(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    test_saving_enter(test, programs, 2);
    test_node_make_fail(test, NULL, "fake.try:error");
    is_refused(test, programs, 2, "program test_program of VM 10.0.0.1: a variable has come to be elsewhere");
    /* One that leaves them running is not tried: nothing depends on it. */
    test_saving_must(test_saving_checkpoint(test, 0, true));
    test_saving_until(test, FLYT_SAVING_DONE);
    assert_int_equal(test_saving_images(test, NULL), 2);
    test_node_make_fail(test, "node.checkpoint.try:error", NULL);
    test_saving_must(test_saving_checkpoint(test, 0, false));
    test_saving_failed(test, FLYT_STATUS_UNAVAILABLE, "node.checkpoint.try");
    test_saving_images_are(test, 2);
    test_node_make_fail(test, NULL, NULL);
    test_saving_suspend(test, programs, 2);
    test_saving_go_on(test, programs, 2);
    test_node_leave(test, &test_one, programs, 2);
}

/* They have no part in the VM: neither its memory nor its places. */
static void test_servers_that_die(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    test_saving_enter(test, &program, 1);
    test_node_make_fail(test, NULL, "fake.try:kill");
    is_refused(test, &program, 1, "3 server processes have ended unexpectedly");
    /* It was no image that these died of. */
    test_node_make_fail(test, NULL, "fake.prepare:kill");
    waits_untried(test, &program, "3 server processes have ended unexpectedly");
    test_node_make_fail(test, NULL, NULL);
    test_saving_go_on(test, &program, 1);
    test_node_make_fail(test, NULL, "fake.prepare:error");
    waits_untried(test, &program, "has come to be elsewhere");
    test_node_make_fail(test, NULL, NULL);
    test_saving_go_on(test, &program, 1);
    test_node_leave(test, &test_one, &program, 1);
}

static bool is_trying(struct test_node *test, void *unused)
{
    return first_check(test) && first_check(test)->state == FLYT_NODE_TARGET_LOADING;
}

static void until_it_hangs(struct test_node *test)
{
    test_node_make_fail(test, NULL, "fake.try:hang");
    test_saving_must(test_saving_checkpoint(test, 0, false));
    test_node_until(test, is_trying, NULL, "an image that is tried");
    assert_int_equal(test_saving_use(test).phase, FLYT_SAVING_STOPPING);
    assert_int_equal(flyt_node_allocation_find(&test->node, test_one.id)->session_count, 1);
    test_node_make_fail(test, NULL, NULL); /* those that come later */
}

static void test_it_is_tried_again(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    test_saving_enter(test, &program, 1);
    until_it_hangs(test);
    assert_int_equal(test_node_used_bytes(test, &test_one), 10 * MIB);
    kill(first_check(test)->server->pid, SIGKILL);
    assert_int_equal(test_saving_until(test, FLYT_SAVING_DONE).session_count, 1);
    assert_null(first_check(test));
    test_program_say(test, &program, NULL, "moved for ever");
    close(program.fd);
    program.fd = -1;
    test_saving_go_on(test, &program, 1);
    test_node_leave(test, &test_one, &program, 1);
}

static void test_it_is_called_off_meanwhile(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    test_saving_enter(test, &program, 1);
    test->settings.kill_grace_ms = TEST_GRACE_MS;
    until_it_hangs(test);
    flyt_node_operations_drop(flyt_node_allocation_find(&test->node, test_one.id), "enough of it");
    test_saving_failed(test, FLYT_STATUS_CONFLICT, "enough of it");
    are_as_before(test, &program, 1);
    until_it_hangs(test);
    kill(test_node_server(test, &program)->pid, SIGKILL);
    test_saving_failed(test, FLYT_STATUS_UNAVAILABLE, "ended unexpectedly");
    assert_null(first_check(test));
    test_saving_images_are(test, 0);
    close(program.fd);
    test_node_until_empty(test, &test_one);
    test_saving_enter(test, &program, 1);
    until_it_hangs(test);
    test_node_stop(test); /* the program goes on by itself */
    test_node_start(test);
    test_node_until_back(test, &program);
    are_as_before(test, &program, 1);
    test_node_leave(test, &test_one, &program, 1);
}

/* The GPU has no client slot for one more: what is to make room there is not refused for that. */
static void test_no_server_is_free(void **state)
{
    struct test_node *test = *state;
    struct test_program program;
    const uint64_t slots = test->settings.client_slots;

    test_saving_enter(test, &program, 1);
    test->settings.client_slots = 1;
    test->node.ops->restore_check_warm_ms = 1;
    flyt_node_starts_renew(&test->node, &test->node.gpus.items[0]);
    waits_untried(test, &program, "no server process became ready");
    test->settings.client_slots = slots;
    test_saving_go_on(test, &program, 1);
    test_node_leave(test, &test_one, &program, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_NODE(test_an_image_that_cannot_be_restored),
        TEST_NODE(test_servers_that_die),
        TEST_NODE(test_it_is_tried_again),
        TEST_NODE(test_it_is_called_off_meanwhile),
        TEST_NODE(test_no_server_is_free),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
