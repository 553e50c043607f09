/* Tests of what clients are told of sessions that have ended (tombstones.h), with fake servers that are killed. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/node/link/server.h"
#include "control/node/model/allocation.h"
#include "control/node/model/tombstones.h"
#include "control/node/test/test_node.h"

static const char reason[] = "and it could not go on at another one: it has what cannot be kept";

static struct test_program lose(struct test_node *test, const struct test_wish *wish)
{
    struct test_program program = test_node_enter(test, wish);

    test_program_say(test, &program, "replaceable 0", "0");
    test_program_say(test, &program, "die", "gone");
    close(program.fd);
    program.fd = -1;
    test_node_until_empty(test, wish);
    return program;
}

static void is_told(struct test_node *test, const struct test_wish *wish, const struct test_program *program,
                    const char *words)
{
    const struct flyt_credentials credentials = test_node_credentials(wish);
    struct test_program again = test_node_resume(test, &credentials, program->token, false);

    assert_int_equal(again.status, FLYT_HANDSHAKE_NO_SESSION);
    test_contains(again.message, words);
}

/* As the event is, and nobody but the VM whose it was. */
static void test_a_client_is_told_why(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &test_one);
    test_node_grant(test, &test_other);
    struct test_program program = lose(test, &test_one);
    test_contains(test->last_event, "session.ended");
    test_contains(test->last_event, reason);
    is_told(test, &test_one, &program, reason);
    is_told(test, &test_one, &program, "its server process ended by signal 9");
    is_told(test, &test_other, &program, "not there");
    program.token[0] ^= 1;
    is_told(test, &test_one, &program, "not there");
}

/* By the session's id, which is what is asked for one that was held until its server's process had ended. */
static void test_it_is_told_by_its_id(void **state)
{
    struct test_node *test = *state;
    struct flyt_error err = {0};

    test_node_grant(test, &test_one);
    struct test_program program = lose(test, &test_one);
    assert_int_equal(flyt_node_tombstones_tell(&test->node, program.session_id, &err), -ENOENT);
    test_contains(err.text, reason);
}

static void add(struct flyt_node *node, uint64_t id, uint64_t allocation_id, const char *why)
{
    struct flyt_node_allocation allocation = {.now.id = allocation_id};
    struct flyt_node_session session = {.id = id, .allocation = &allocation};

    memset(session.token, (int)id & 0xff, sizeof session.token);
    flyt_node_tombstones_add(node, &session, why);
}

static const char *told(const struct flyt_node *node, uint64_t id)
{
    static struct flyt_error err;

    assert_int_equal(flyt_node_tombstones_tell(node, id, &err), -ENOENT);
    return err.text;
}

static void test_the_last_ones_are_remembered(void **state)
{
    struct flyt_node node = {0};
    struct flyt_error err = {0};
    unsigned char token[FLYT_TOKEN_BYTES];

    assert_string_equal(told(&node, 1), "the session was ended");
    for (uint64_t id = 1; id <= FLYT_NODE_TOMBSTONES_MAX; id++)
        add(&node, id, 7, id == 1 ? "" : "why");
    assert_string_equal(told(&node, 1), "the session has ended");
    assert_string_equal(told(&node, 2), "the session has ended: why");
    /* Two more; one of them has been before, and was in an image meanwhile. */
    add(&node, FLYT_NODE_TOMBSTONES_MAX + 1, 7, "of the new one");
    add(&node, 100, 7, "later");
    assert_string_equal(told(&node, 1), "the session was ended");
    assert_string_equal(told(&node, 2), "the session was ended");
    assert_string_equal(told(&node, 3), "the session has ended: why");
    assert_string_equal(told(&node, FLYT_NODE_TOMBSTONES_MAX + 1), "the session has ended: of the new one");
    assert_string_equal(told(&node, 100), "the session has ended: later");
    memset(token, 100, sizeof token);
    assert_int_equal(flyt_node_tombstones_tell_token(&node, 7, token, sizeof token, &err), -ENOENT);
    assert_string_equal(err.text, "the session has ended: later");
    assert_int_equal(flyt_node_tombstones_tell_token(&node, 8, token, sizeof token, &err), -ENOENT);
    test_contains(err.text, "not there");
    assert_int_equal(flyt_node_tombstones_tell_token(&node, 7, token, sizeof token - 1, &err), -ENOENT);
    test_contains(err.text, "not there");
    flyt_node_tombstones_fini(&node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_NODE(test_a_client_is_told_why),
        TEST_NODE(test_it_is_told_by_its_id),
        cmocka_unit_test(test_the_last_ones_are_remembered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
