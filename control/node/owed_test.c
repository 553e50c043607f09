/* Tests of memory that is given back while a server that was stopped holds the ledger (owed.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "control/node/owed.h"
#include "control/node/test_node.h"
#include "rpc/base/test_holder.h"

static struct flyt_ledger *ledger_of(const struct test_node *test, const struct test_wish *wish)
{
    return flyt_node_allocation_find(&test->node, wish->id)->slots[0].ledger;
}

static pid_t hold(const struct test_node *test, const struct test_wish *wish)
{
    pid_t holder = test_holder_begin(flyt_ledger_fd(ledger_of(test, wish)));

    assert_true(holder > 0);
    return holder;
}

static bool is_settled(struct test_node *test, void *wish)
{
    return !flyt_ledger_owes(ledger_of(test, wish));
}

static bool has_one_session(struct test_node *test, void *wish)
{
    return test_node_use(test, ((const struct test_wish *)wish)->id).session_count == 1;
}

/* Its server's death takes back what it had, when that can be. */
static void test_a_server_that_has_died(void **state)
{
    struct test_node *test = *state;
    struct test_wish wish = test_one;

    test_node_grant(test, &wish);
    struct test_program program = test_node_enter(test, &wish), other = test_node_enter(test, &wish);
    test_program_say(test, &program, "charge 0 31457280", "0");
    test_program_say(test, &other, "charge 0 1048576", "0");
    pid_t holder = hold(test, &wish);
    assert_string_equal(test_program_ask(test, &program, "die"), "gone");
    test_node_until(test, has_one_session, &wish, "one session has ended");
    assert_true(flyt_ledger_owes(ledger_of(test, &wish)));
    assert_int_equal(test_node_used_bytes(test, &wish), 31 * MIB);
    test_node_run(test, 3 * FLYT_NODE_OWED_MS); /* it looks again, in vain */
    assert_int_equal(test_node_used_bytes(test, &wish), 31 * MIB);
    assert_true(test_holder_end(holder));
    test_node_until(test, is_settled, &wish, "it is given back");
    test_node_leave(test, &wish, &other, 1);
}

/* What the node manager cannot credit its server is told to credit itself. */
static void test_an_extent_that_is_not_credited(void **state)
{
    struct test_node *test = *state;
    struct test_wish wish = test_one;

    test_node_grant(test, &wish);
    struct test_program program = test_node_enter(test, &wish);
    test_program_say(test, &program, "extent 1 0 2097152", "0");
    test_program_say(test, &program, "extent 2 0 4194304", "0");
    assert_int_equal(test_node_used_bytes(test, &wish), 6 * MIB);
    pid_t holder = hold(test, &wish);
    test_program_say(test, &program, "drop 2", "0");
    assert_int_equal(test_node_use(test, wish.id).slot.memory_used_bytes, 6 * MIB);
    assert_true(test_holder_end(holder));
    test_program_say(test, &program, "release 0 4194304", "0");
    test_program_say(test, &program, "drop 1", "2097152");
    test_node_leave(test, &wish, &program, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_NODE(test_a_server_that_has_died),
        TEST_NODE(test_an_extent_that_is_not_credited),
    };
    return cmocka_run_group_tests_name("owed", tests, NULL, NULL);
}
