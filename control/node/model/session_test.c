#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "control/node/model/allocation.h"
#include "control/node/model/server.h"

enum { ID = 7, ENTRY_ID = 11, TARGET_ENTRY_ID = 12 };

static const unsigned char token[FLYT_TOKEN_BYTES] = {1, 2, 3};

struct test {
    struct flyt_node node;
    struct flyt_node_allocation allocation;
    struct flyt_node_server present, target;
    struct flyt_node_session *session;
};

/* A session that a server has. */
static int set_up(void **state)
{
    struct test *test = *state = test_calloc(1, sizeof *test);

    test->allocation.node = &test->node;
    test->present = (struct flyt_node_server){.node = &test->node, .state = FLYT_NODE_SERVER_SERVING};
    test->present.has.server_id = ENTRY_ID;
    test->target = (struct flyt_node_server){.node = &test->node, .state = FLYT_NODE_SERVER_PREPARING};
    test->target.has.server_id = TARGET_ENTRY_ID;
    test->session = flyt_node_session_new(&test->node, &test->allocation, ID, token);
    assert_non_null(test->session);
    assert_int_equal(test->session->state, FLYT_NODE_SESSION_LOADING);
    flyt_node_session_serve(test->session, &test->present);
    return 0;
}

static int tear_down(void **state)
{
    struct test *test = *state;

    assert_null(test->node.sessions);
    assert_int_equal(test->node.session_count, 0);
    assert_int_equal(test->node.away_count, 0);
    test_free(test);
    return 0;
}

static void give_to_target(struct test *test)
{
    flyt_node_session_give(test->session);
}

static void test_its_server_leaves(void **state)
{
    struct test *test = *state;

    flyt_node_session_prepare(test->session, &test->target);
    assert_ptr_equal(flyt_node_session_server(test->session), &test->present);
    flyt_node_session_leave(&test->present);
    assert_null(test->present.session);
    assert_null(flyt_node_server_allocation(&test->present));
    assert_null(test->target.session); /* it was not given it */
    assert_null(flyt_node_session_find(&test->node, ID));
}

static void test_its_target_is_given_it(void **state)
{
    struct test *test = *state;

    flyt_node_session_prepare(test->session, &test->target);
    give_to_target(test);
    assert_ptr_equal(flyt_node_session_server(test->session), &test->target);
    assert_ptr_equal(flyt_node_session_has(test->session), &test->present.has);
    flyt_node_session_leave(&test->present);
    assert_ptr_equal(test->session->present, &test->target);
    assert_null(test->session->target);
    assert_ptr_equal(test->target.session, test->session);
    flyt_node_session_leave(&test->target);
}

static void test_its_target_fails(void **state)
{
    struct test *test = *state;

    flyt_node_session_prepare(test->session, &test->target);
    give_to_target(test);
    flyt_node_session_leave(&test->target);
    assert_ptr_equal(flyt_node_session_server(test->session), &test->present);
    assert_ptr_equal(test->present.session, test->session);
    flyt_node_session_leave(&test->present);
}

static void test_another_one_is_prepared(void **state)
{
    struct flyt_node_server other = {.state = FLYT_NODE_SERVER_PREPARING};
    struct test *test = *state;

    flyt_node_session_prepare(test->session, &test->target);
    flyt_node_session_prepare(test->session, &other);
    assert_null(test->target.session);
    assert_ptr_equal(test->session->target, &other);
    flyt_node_session_leave(&test->target); /* has no part in it any more */
    assert_ptr_equal(test->session->target, &other);
    flyt_node_session_leave(&test->present);
}

static void test_it_waits_without_a_server(void **state)
{
    struct test *test = *state;

    assert_false(flyt_node_sessions_have_entry(&test->node, ENTRY_ID)); /* a server's */
    flyt_node_session_lose(test->session);
    flyt_node_session_wait(test->session);
    assert_null(test->present.session);
    assert_int_equal(test->present.has.server_id, 0);
    assert_int_equal(flyt_node_session_has(test->session)->server_id, ENTRY_ID);
    assert_true(flyt_node_sessions_have_entry(&test->node, ENTRY_ID));
    assert_int_equal(test->node.away_count, 1);
    flyt_node_session_leave(&test->present); /* frees nothing of it */
    assert_ptr_equal(flyt_node_session_find(&test->node, ID), test->session);
    flyt_node_session_prepare(test->session, &test->target);
    assert_null(flyt_node_session_server(test->session));
    give_to_target(test);
    flyt_node_session_serve(test->session, &test->target);
    assert_int_equal(test->node.away_count, 0);
    assert_null(test->session->target);
    assert_int_equal(flyt_node_session_has(test->session)->server_id, TARGET_ENTRY_ID);
    assert_false(flyt_node_sessions_have_entry(&test->node, ENTRY_ID));
    flyt_node_session_leave(&test->target);
}

static void test_it_ends_without_a_server(void **state)
{
    struct test *test = *state;

    flyt_node_session_lose(test->session);
    flyt_node_session_wait(test->session);
    flyt_node_session_prepare(test->session, &test->target);
    flyt_node_session_end(test->session);
    assert_int_equal(test->node.away_count, 1);
    flyt_node_session_free(test->session);
    assert_null(test->target.session);
}

/* An image's session may come again while what was left of the one before ends. */
static void test_it_is_found(void **state)
{
    static const unsigned char wrong[FLYT_TOKEN_BYTES] = {1, 2, 4};
    struct flyt_node_allocation other = {.node = NULL};
    struct test *test = *state;

    assert_ptr_equal(flyt_node_session_find_token(&test->node, NULL, token, sizeof token), test->session);
    assert_ptr_equal(flyt_node_session_find_token(&test->node, &test->allocation, token, sizeof token), test->session);
    assert_null(flyt_node_session_find_token(&test->node, &other, token, sizeof token));
    assert_null(flyt_node_session_find_token(&test->node, NULL, wrong, sizeof wrong));
    assert_null(flyt_node_session_find_token(&test->node, NULL, token, sizeof token - 1));
    assert_null(flyt_node_session_find(&test->node, ID + 1));
    struct flyt_node_session *later = flyt_node_session_new(&test->node, &test->allocation, ID, token);
    assert_ptr_equal(flyt_node_session_find(&test->node, ID), later);
    flyt_node_session_free(later);
    assert_ptr_equal(flyt_node_session_find(&test->node, ID), test->session);
    flyt_node_session_leave(&test->present);
}

static void test_whether_it_is_shown(void **state)
{
    const struct flyt_node_role_ops load_ops = {.kind = FLYT_NODE_ROLE_LOAD}, move_ops = {.kind = FLYT_NODE_ROLE_MOVE};
    struct flyt_node_role load = {&load_ops}, move = {&move_ops};
    struct test *test = *state;

    assert_true(flyt_node_session_is_shown(test->session));
    flyt_node_session_prepare(test->session, &test->target);
    test->target.role = &move;
    assert_true(flyt_node_session_is_shown(test->session));
    test->target.role = &load;
    assert_false(flyt_node_session_is_shown(test->session));
    test->target.role = NULL;
    test->session->has_gone = true;
    assert_false(flyt_node_session_is_shown(test->session));
    flyt_node_session_leave(&test->present);
    struct flyt_node_session *loading = flyt_node_session_new(&test->node, &test->allocation, ID, token);
    assert_false(flyt_node_session_is_shown(loading));
    flyt_node_session_free(loading);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_its_server_leaves),
        TEST(test_its_target_is_given_it),
        TEST(test_its_target_fails),
        TEST(test_another_one_is_prepared),
        TEST(test_it_waits_without_a_server),
        TEST(test_it_ends_without_a_server),
        TEST(test_it_is_found),
        TEST(test_whether_it_is_shown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
