/* Tests of programs that the listener holds (pool.h) because there is no place for them when they come. */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/node/attach/attach.h"
#include "control/node/attach/pool.h"
#include "control/node/test/test_node.h"

#define FULL "VM 10.0.0.1 has 1 programs on its GPU, as many as its allocation allows"

/* One program may run, and does. */
static struct test_program fill(struct test_node *test, struct test_wish *ret_wish)
{
    *ret_wish = test_one;
    ret_wish->sessions_max = 1;
    test_node_grant(test, ret_wish);
    return test_node_enter(test, ret_wish);
}

static bool are_held(struct test_node *test, void *count)
{
    return test->node.held_count == *(unsigned *)count;
}

static void until_held(struct test_node *test, unsigned count)
{
    test_node_until(test, are_held, &count, "programs are held");
}

/* One more, which is held. */
static struct test_program knock(struct test_node *test, const struct test_wish *wish)
{
    const struct flyt_credentials credentials = test_node_credentials(wish);
    unsigned before = test->node.held_count;

    struct test_program program = test_node_knock(test, &credentials);
    assert_int_equal(program.status, FLYT_HANDSHAKE_CHALLENGE);
    until_held(test, before + 1);
    return program;
}

static void is_let_in(struct test_node *test, struct test_program *program)
{
    test_node_hear(test, program);
    if (program->status != FLYT_HANDSHAKE_OK)
        fail_msg("refused: %s", program->message);
    test_program_say(test, program, "groups 0", "0000000f");
}

static void is_refused(struct test_node *test, const struct test_wish *wish, const char *words)
{
    const struct flyt_credentials credentials = test_node_credentials(wish);
    struct test_program program = test_node_connect(test, &credentials, NULL, false);

    assert_int_equal(program.status, FLYT_HANDSHAKE_BUSY);
    test_contains(program.message, words);
}

static bool has_answer(const struct test_program *program)
{
    struct pollfd ready = {.fd = program->fd, .events = POLLIN};

    return poll(&ready, 1, 0) > 0;
}

/* The first one has ended, which its server, that is not scheduled, has not noticed. */
static void test_an_end_that_is_not_known_yet(void **state)
{
    struct test_node *test = *state;
    struct test_wish wish;

    struct test_program first = fill(test, &wish);
    pid_t pid = test_node_server(test, &first)->pid;
    test->node.attach->hold_ms = TEST_LONG_MS;
    assert_int_equal(kill(pid, SIGSTOP), 0);
    close(first.fd);
    struct test_program second = knock(test, &wish);
    test_node_run(test, 50);
    assert_false(has_answer(&second));
    assert_int_equal(kill(pid, SIGCONT), 0);
    is_let_in(test, &second);
    assert_int_equal(test->node.held_count, 0);
    assert_int_equal(test->node.sessions_refused, 0);
    test_node_leave(test, &wish, &second, 1);
}

static void test_nobody_ends(void **state)
{
    struct test_node *test = *state;
    struct test_wish wish;

    struct test_program first = fill(test, &wish);
    test->node.attach->hold_ms = 100;
    is_refused(test, &wish, FULL);
    assert_int_equal(test->node.held_count, 0);
    test_program_say(test, &first, "groups 0", "0000000f");
    test_node_leave(test, &wish, &first, 1);
}

static bool is_dying(struct test_node *test, void *program)
{
    return flyt_node_server_is_dying(test_node_server(test, program));
}

/* That a session ends is known, and how long that takes is not: one program is held for its place, but no second. */
static void test_an_end_that_takes_its_time(void **state)
{
    struct test_node *test = *state;
    struct test_wish wish;

    struct test_program first = fill(test, &wish);
    test->node.attach->hold_ms = 0;
    is_refused(test, &wish, FULL);
    test_program_say(test, &first, "hang_up", "0");
    test_node_until(test, is_dying, &first, "that is seen");
    struct test_program second = knock(test, &wish);
    is_refused(test, &wish, FULL);
    assert_false(has_answer(&second));
    close(first.fd);
    is_let_in(test, &second);
    test_node_leave(test, &wish, &second, 1);
}

static bool is_ending(struct test_node *test, void *program)
{
    return test_node_server(test, program)->has.use.is_ending;
}

/* The same where its server says that its program has gone. */
static void test_an_end_that_is_told(void **state)
{
    struct test_node *test = *state;
    struct test_wish wish;

    struct test_program first = fill(test, &wish);
    test->node.attach->hold_ms = 0;
    test_program_say(test, &first, "ending", "0");
    test_node_until(test, is_ending, &first, "that is heard");
    struct test_program second = knock(test, &wish);
    is_refused(test, &wish, FULL);
    close(first.fd);
    is_let_in(test, &second);
    test_node_leave(test, &wish, &second, 1);
}

static void test_one_that_hangs_up(void **state)
{
    struct test_node *test = *state;
    struct test_wish wish;

    struct test_program first = fill(test, &wish);
    test->node.attach->hold_ms = TEST_LONG_MS;
    struct test_program impatient = knock(test, &wish), second = knock(test, &wish);
    close(impatient.fd);
    until_held(test, 1);
    assert_int_equal(test->node.sessions_refused, 0);
    close(first.fd);
    is_let_in(test, &second);
    test_node_leave(test, &wish, &second, 1);
}

/* No more than so many of an allocation, and nobody else waits for them. */
static void test_many(void **state)
{
    struct test_node *test = *state;
    struct test_program held[FLYT_NODE_HELD_MAX];
    struct test_wish wish;

    struct test_program first = fill(test, &wish);
    test_node_grant(test, &test_other);
    test->node.attach->hold_ms = TEST_LONG_MS;
    for (unsigned i = 0; i < FLYT_NODE_HELD_MAX; i++)
        held[i] = knock(test, &wish);
    is_refused(test, &wish, FULL);
    struct test_program other = test_node_enter(test, &test_other);
    for (unsigned i = 0; i < FLYT_NODE_HELD_MAX; i++)
        close(held[i].fd);
    until_held(test, 0);
    test_node_leave(test, &wish, &first, 1);
    test_node_leave(test, &test_other, &other, 1);
}

static bool are_warm(struct test_node *test, void *count)
{
    return test->node.starts[0].warm == *(unsigned *)count;
}

/* They come in as they came to the listener, one after the other. */
static void test_their_order(void **state)
{
    enum { MANY = 4 };
    struct test_node *test = *state;
    struct test_program held[MANY + 1];
    struct test_wish wish;
    unsigned warm = MANY + 1;

    struct test_program first = fill(test, &wish);
    test->settings.warm = warm;
    flyt_node_pool_fill(&test->node);
    test_node_until(test, are_warm, &warm, "a warm server for each");
    test->node.attach->hold_ms = TEST_LONG_MS;
    for (unsigned i = 0; i < MANY; i++)
        held[i] = knock(test, &wish);
    close(first.fd);
    for (unsigned i = 0; i < MANY + 1; i++) {
        is_let_in(test, &held[i]);
        if (!i)
            held[MANY] = knock(test, &wish); /* one that comes now is the last one all the same */
        for (unsigned j = i + 1; j < MANY + 1; j++)
            assert_false(has_answer(&held[j]));
        assert_int_equal(test->node.held_count, MANY - i);
        assert_int_equal(test_node_use(test, wish.id).session_count, 1);
        close(held[i].fd);
    }
    test_node_until_empty(test, &wish);
}

static void test_what_holds_meanwhile(void **state)
{
    struct test_node *test = *state;
    struct test_wish wish;

    test->settings.vm_attach_burst = 2;
    test->settings.vm_attach_rate = 0;
    struct test_program first = fill(test, &wish);
    test->node.attach->hold_ms = TEST_LONG_MS;
    struct test_program second = knock(test, &wish), third = knock(test, &wish);
    /* A place that an order makes is as good as one that was left. */
    wish.revision = wish.sessions_max = 2;
    test_node_grant(test, &wish);
    is_let_in(test, &second);
    /* Whoever comes in does so at the VM's rate. */
    close(first.fd);
    test_node_hear(test, &third);
    assert_int_equal(third.status, FLYT_HANDSHAKE_BUSY);
    test_contains(third.message, "in a second");
    test->settings.vm_attach_burst = 8;
    flyt_node_allocation_find(&test->node, wish.id)->tokens_mil = 8000;
    first = test_node_enter(test, &wish);
    third = knock(test, &wish);
    wish.revision = 3;
    wish.state = FLYT_ALLOCATION_BLOCKED;
    test_node_grant(test, &wish);
    test_node_hear(test, &third);
    assert_int_equal(third.status, FLYT_HANDSHAKE_DENIED);
    test_contains(third.message, "blocked");
    test_node_leave(test, &wish, (struct test_program[]){first, second}, 2);
}

/* The same where all VMs together have too many. */
static void test_client_slots(void **state)
{
    struct test_node *test = *state;
    struct test_wish wish;

    test_node_grant(test, &test_other);
    test->settings.client_slots = test->settings.warm + 1;
    struct test_program first = fill(test, &wish);
    test->node.attach->hold_ms = 0;
    is_refused(test, &test_other, "client slots");
    test->node.attach->hold_ms = TEST_LONG_MS;
    struct test_program second = knock(test, &test_other);
    close(first.fd);
    test_node_hear(test, &second);
    assert_int_equal(second.status, FLYT_HANDSHAKE_OK);
    test_node_leave(test, &test_other, &second, 1);
}

static bool has_no_warm_server(struct test_node *test, void *unused)
{
    return !test->node.starts[0].warm && !test->node.starts[0].starting;
}

static bool is_one_let_in(struct test_node *test, void *unused)
{
    return test->node.waiting_count == 1;
}

/* One slot is free, for which no server is ready yet: whoever comes in first has it, and the others wait on. */
static void test_a_client_slot_that_is_promised(void **state)
{
    enum { MANY = 2 };
    struct test_node *test = *state;
    struct test_program held[MANY + 1];

    test_node_grant(test, &test_one);
    test_node_grant(test, &test_other);
    struct test_program first = test_node_enter(test, &test_one);
    test->settings.warm = 0;
    test->settings.client_slots = 1;
    flyt_node_pool_fill(&test->node);
    test_node_until(test, has_no_warm_server, NULL, "no server is warm, or becomes so");
    test->node.attach->hold_ms = TEST_LONG_MS;
    for (unsigned i = 0; i < MANY; i++)
        held[i] = knock(test, i == 1 ? &test_one : &test_other);
    close(first.fd);
    test_node_until(test, is_one_let_in, NULL, "one has a place");
    assert_int_equal(test->node.held_count, MANY - 1);
    /* One that comes now, as well. */
    held[MANY] = knock(test, &test_one);
    for (unsigned i = 0; i < MANY + 1; i++) {
        test_node_hear(test, &held[i]);
        if (held[i].status != FLYT_HANDSHAKE_OK)
            fail_msg("refused: %s", held[i].message);
        for (unsigned j = i + 1; j < MANY + 1; j++)
            assert_false(has_answer(&held[j]));
        assert_int_equal(test->node.held_count, MANY - i);
        close(held[i].fd);
    }
    assert_int_equal(test->node.sessions_refused, 0);
    test_node_until_empty(test, &test_one);
    test_node_until_empty(test, &test_other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_NODE(test_an_end_that_is_not_known_yet),
        TEST_NODE(test_an_end_that_takes_its_time),
        TEST_NODE(test_an_end_that_is_told),
        TEST_NODE(test_nobody_ends),
        TEST_NODE(test_one_that_hangs_up),
        TEST_NODE(test_many),
        TEST_NODE(test_their_order),
        TEST_NODE(test_what_holds_meanwhile),
        TEST_NODE(test_client_slots),
        TEST_NODE(test_a_client_slot_that_is_promised),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
