/* Tests of SMs that are shared in time, priority and suspended VMs, with fake servers: who gets which token, what may
 * overlap, what is told when, and restarts. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/node/link/share.h"
#include "control/node/test/test_node.h"
#include "rpc/base/time_slices.h"

static const struct test_wish one = {.id = 0x11,
                                     .revision = 1,
                                     .epoch = 1,
                                     .vm_ip = "10.0.0.1",
                                     .generation = 1,
                                     .sessions_max = 8,
                                     .memory_bytes = 100 * MIB,
                                     .group_count = 4,
                                     .minimum_pct = 20,
                                     .maximum_pct = 80,
                                     .window_ms = 100};
static const struct test_wish other = {.id = 0x22,
                                       .revision = 1,
                                       .epoch = 1,
                                       .vm_ip = "10.0.0.2",
                                       .generation = 1,
                                       .sessions_max = 8,
                                       .memory_bytes = 100 * MIB,
                                       .first_group = 2,
                                       .group_count = 4,
                                       .minimum_pct = 50,
                                       .maximum_pct = 100,
                                       .window_ms = 200,
                                       .priority = 3};

static void is_refused(struct test_node *test, const struct test_wish *wish, flyt_status status, const char *words)
{
    struct test_outcome outcome = test_node_order(test, wish);

    assert_int_equal(outcome.status, status);
    test_contains(outcome.text, words);
}

static struct flyt_time_slices *time_slices_of(const struct test_node *test, unsigned gpu)
{
    return test->node.gpus.items[gpu].time_slices;
}

/* What the program's server says of its slot: state, priority and the GPU's token (or none). */
static void expect_share(struct test_node *test, struct test_program *program, const char *state, int priority,
                         const struct flyt_time_slices *time_slices)
{
    struct stat info = {0};
    char text[80];

    if (time_slices)
        assert_int_equal(fstat(flyt_time_slices_fd(time_slices), &info), 0);
    snprintf(text, sizeof text, "%s %d %ju", state, priority, (uintmax_t)info.st_ino);
    const char *said = test_program_ask(test, program, "share 0");
    /* What it was told may still be on its way. */
    for (unsigned i = 0; i < 3000 && strcmp(said, text) != 0; i++) {
        test_node_run(test, 20);
        said = test_program_ask(test, program, "share 0");
    }
    assert_string_equal(said, text);
}

static void expect_tenant(const struct test_node *test, const struct test_wish *wish)
{
    struct flyt_time_slices_state its;

    assert_int_equal(
        flyt_time_slices_read(time_slices_of(test, wish->gpu), flyt_manager_link_tenant(wish->id, 0), &its), 0);
    assert_int_equal(its.share.minimum_pct, wish->minimum_pct);
    assert_int_equal(its.share.maximum_pct, wish->maximum_pct);
    assert_int_equal(its.share.window_ms, wish->window_ms);
    assert_int_equal(its.share.priority, wish->priority);
}

/* ---- tests ---- */

static void test_sms_are_shared_in_time_slices_or_not_at_all(void **state)
{
    struct test_node *test = *state;
    struct test_wish exclusive = {.id = 0x33,
                                  .revision = 1,
                                  .epoch = 1,
                                  .vm_ip = "10.0.0.3",
                                  .generation = 1,
                                  .memory_bytes = MIB,
                                  .first_group = 5,
                                  .group_count = 2};

    test_node_grant(test, &one);
    test_node_grant(test, &other); /* groups 2 and 3 are both's */
    is_refused(test, &exclusive, FLYT_STATUS_CONFLICT, "SM group 5");
    exclusive.first_group = 6;
    test_node_grant(test, &exclusive);
    struct test_wish wider = one;
    wider.revision = 2;
    wider.group_count = 7; /* time-sharing gives no right to what is another's alone */
    is_refused(test, &wider, FLYT_STATUS_CONFLICT, "10.0.0.3");
    expect_tenant(test, &one);
    expect_tenant(test, &other);
    struct test_program first = test_node_enter(test, &one), second = test_node_enter(test, &other);
    expect_share(test, &first, "active", 0, time_slices_of(test, 0));
    expect_share(test, &second, "active", 3, time_slices_of(test, 0));
    struct test_program alone = test_node_enter(test, &exclusive);
    expect_share(test, &alone, "active", 0, NULL);
    assert_null(time_slices_of(test, 1));
    close(first.fd);
    close(second.fd);
    close(alone.fd);
}

static void test_bad_shares_are_refused(void **state)
{
    struct test_node *test = *state;
    struct test_wish wish = one;

    wish.maximum_pct = 10;
    is_refused(test, &wish, FLYT_STATUS_INVALID, "share of 20 to 10 %");
    wish.maximum_pct = 101;
    is_refused(test, &wish, FLYT_STATUS_INVALID, "101 %");
    wish = one;
    wish.window_ms = 5;
    is_refused(test, &wish, FLYT_STATUS_INVALID, "5 ms");
    wish.window_ms = 0;
    is_refused(test, &wish, FLYT_STATUS_INVALID, "needs a window");
    assert_null(test->node.allocations);
}

/* The classes never meet on a GPU. */
static void test_classes_do_not_mix(void **state)
{
    struct test_node *test = *state;
    struct test_wish wish = one;

    wish.is_strict = true;
    is_refused(test, &wish, FLYT_STATUS_INVALID, "shared VMs only");
    test->node.gpus.items[0].isolation = FLYT_ISOLATION_STRICT;
    test_node_grant(test, &wish);
    is_refused(test, &other, FLYT_STATUS_INVALID, "strict VMs only");
}

static void test_shares_change_and_go(void **state)
{
    struct test_node *test = *state;
    struct test_wish wish = one;
    uint64_t ids[FLYT_TIME_SLICE_TENANTS_MAX];

    test_node_grant(test, &one);
    struct test_program program = test_node_enter(test, &one);
    wish.revision = 2;
    wish.minimum_pct = 60;
    wish.maximum_pct = 60;
    wish.window_ms = 50;
    wish.priority = -2;
    test_node_grant(test, &wish);
    expect_tenant(test, &wish);
    expect_share(test, &program, "active", -2, time_slices_of(test, 0));
    /* A server that has joined is taken out when its process has gone. */
    uint64_t server_id = test->node.servers->has.server_id;
    for (struct flyt_node_server *server = test->node.servers; server; server = server->next)
        if (flyt_node_server_allocation(server))
            server_id = server->has.server_id;
    assert_true(flyt_time_slices_has(time_slices_of(test, 0), server_id));
    test_program_ask(test, &program, "die");
    while (flyt_time_slices_has(time_slices_of(test, 0), server_id))
        test_node_run(test, 20);
    assert_int_equal(flyt_time_slices_list(time_slices_of(test, 0), ids), 1);
    test_node_remove_now(test, one.id);
    assert_int_equal(flyt_time_slices_list(time_slices_of(test, 0), ids), 0);
    close(program.fd);
}

static bool is_suspended(struct test_node *test, void *user)
{
    return test_node_use(test, one.id).slot.is_suspended;
}

/* It is said to be suspended when all its programs have said so; later ones begin as it is. */
static void test_suspend(void **state)
{
    struct test_node *test = *state;
    struct test_wish wish = one;

    wish.minimum_pct = wish.maximum_pct = wish.window_ms = 0; /* it needs no token for that */
    test_node_grant(test, &wish);
    struct test_program first = test_node_enter(test, &wish), second = test_node_enter(test, &wish);
    assert_false(is_suspended(test, NULL));
    test_program_ask(test, &second, "silent 1");
    wish.revision = 2;
    wish.is_suspended = true;
    test_node_grant(test, &wish);
    expect_share(test, &first, "suspended", 0, NULL);
    expect_share(test, &second, "suspended", 0, NULL);
    test_node_run(test, 100);
    assert_false(is_suspended(test, NULL));
    test_program_ask(test, &second, "silent 0");
    test_node_until(test, is_suspended, NULL, "the second program's word");
    struct test_program third = test_node_enter(test, &wish);
    expect_share(test, &third, "suspended", 0, NULL);
    assert_true(is_suspended(test, NULL));
    /* Over a restart: who comes back has to say so again. */
    test_program_ask(test, &second, "silent 1");
    test_node_stop(test);
    test_node_start(test);
    assert_true(flyt_node_allocation_find(&test->node, one.id)->now.is_suspended);
    expect_share(test, &first, "suspended", 0, NULL);
    test_node_run(test, 200);
    assert_false(is_suspended(test, NULL));
    test_program_ask(test, &second, "silent 0");
    test_node_until(test, is_suspended, NULL, "all programs' word");
    wish.revision = 3;
    wish.is_suspended = false;
    test_node_grant(test, &wish);
    expect_share(test, &third, "active", 0, NULL);
    assert_false(is_suspended(test, NULL));
    close(first.fd);
    close(second.fd);
    close(third.fd);
}

/* The token goes with the node manager; who comes back gets a place of the new one, with the shares as they are then.
 */
static void test_restart_makes_a_new_token(void **state)
{
    struct test_node *test = *state;
    struct test_wish wish = other;
    struct stat before, after;
    uint64_t ids[FLYT_TIME_SLICE_SERVERS_MAX];

    test_node_grant(test, &one);
    test_node_grant(test, &other);
    struct test_program first = test_node_enter(test, &one);
    assert_int_equal(fstat(flyt_time_slices_fd(time_slices_of(test, 0)), &before), 0);
    test_node_stop(test);
    test_node_start(test);
    test_node_until_back(test, &first);
    test_node_end_rejoining(test);
    assert_int_equal(fstat(flyt_time_slices_fd(time_slices_of(test, 0)), &after), 0);
    assert_int_not_equal(before.st_ino, after.st_ino);
    expect_share(test, &first, "active", 0, time_slices_of(test, 0));
    struct test_program second = test_node_enter(test, &other);
    expect_share(test, &second, "active", 3, time_slices_of(test, 0));
    expect_tenant(test, &one);
    expect_tenant(test, &other);
    assert_int_equal(flyt_time_slices_servers(time_slices_of(test, 0), ids), 2);
    /* Shares change before the servers are back. */
    test_node_stop(test);
    test_node_start(test);
    wish.revision = 2;
    wish.minimum_pct = 70;
    wish.priority = 4;
    test_node_grant(test, &wish);
    test_node_until_back(test, &first);
    test_node_until_back(test, &second);
    test_node_end_rejoining(test);
    expect_share(test, &first, "active", 0, time_slices_of(test, 0));
    expect_share(test, &second, "active", 4, time_slices_of(test, 0));
    expect_tenant(test, &one);
    expect_tenant(test, &wish);
    assert_int_equal(flyt_time_slices_servers(time_slices_of(test, 0), ids), 2);
    close(first.fd);
    close(second.fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_NODE(test_sms_are_shared_in_time_slices_or_not_at_all),
        TEST_NODE(test_bad_shares_are_refused),
        TEST_NODE(test_classes_do_not_mix),
        TEST_NODE(test_shares_change_and_go),
        TEST_NODE(test_suspend),
        TEST_NODE(test_restart_makes_a_new_token),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
