/* Tests of what sessions share (broker.h), with fake servers: tokens that name nothing, or are another VM's; servers
 * that die with a question under way; how much one may have; who is charged; and a node manager that is started anew.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/node/link/broker.h"
#include "control/node/test/test_node.h"

static const char *number(int value)
{
    static char text[16];

    snprintf(text, sizeof text, "%d", value);
    return text;
}

static void say(struct test_node *test, struct test_program *program, const char *line, int answer)
{
    test_program_say(test, program, line, number(answer));
}

/* A line whose answer is not waited for. */
static void tell(const struct test_program *program, const char *line)
{
    assert_int_equal(send(program->fd, line, strlen(line), MSG_NOSIGNAL), strlen(line));
}

/* A session with 8 MiB in extent 1, the first word of which is 4711, under token 5. */
static struct test_program enter_with_memory(struct test_node *test, const struct test_wish *wish)
{
    struct test_program program = test_node_enter(test, wish);

    say(test, &program, "extent 1 0 8388608", 0);
    say(test, &program, "write 1 4711", 0);
    say(test, &program, "export 5 1", 0);
    return program;
}

static void test_a_token_names_what_it_was_given_for(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &test_one);
    struct test_program one = enter_with_memory(test, &test_one), other = test_node_enter(test, &test_one);
    say(test, &one, "extent 2 0 2097152", 0);
    say(test, &one, "export 5 1", 0);         /* told once more */
    say(test, &one, "export 5 2", -EEXIST);   /* of something else */
    say(test, &one, "export 6 9", -ENOENT);   /* of nothing */
    say(test, &other, "export 5 1", -ENOENT); /* it has no such extent */
    say(test, &other, "extent 1 0 4194304", 0);
    say(test, &other, "export 5 1", -EEXIST); /* it is another session's */
    test_program_say(test, &other, "import 5", "0 8388608 4711");
    say(test, &other, "import 6", -ENOENT);
    say(test, &other, "import_event 5", -ENOENT); /* it names memory */
    say(test, &one, "unexport 5", 0);
    say(test, &one, "export 6 9", -ENOENT); /* by then the node manager has heard of it */
    say(test, &other, "import 5", -ENOENT);
    test_node_leave(test, &test_one, (struct test_program[]){one, other}, 2);
}

static void test_another_vm_has_nothing_by_it(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &test_one);
    test_node_grant(test, &test_other);
    struct test_program one = enter_with_memory(test, &test_one), stranger = test_node_enter(test, &test_other);
    test_program_say(test, &one, "export_event 8 1", "0 0 1");
    say(test, &stranger, "import 5", -ENOENT);
    say(test, &stranger, "import_event 8", -ENOENT);
    /* Nor does it keep others from theirs. */
    say(test, &stranger, "extent 1 0 2097152", 0);
    say(test, &stranger, "export 5 1", 0);
    test_node_leave(test, &test_one, &one, 1);
    test_node_leave(test, &test_other, &stranger, 1);
}

static void test_what_its_owner_frees_is_the_vms(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &test_one);
    struct test_program one = enter_with_memory(test, &test_one), other = test_node_enter(test, &test_one),
                        third = test_node_enter(test, &test_one);
    test_program_say(test, &other, "import 5", "0 8388608 4711");
    test_program_say(test, &third, "import 5", "0 8388608 4711");
    assert_int_equal(test_node_used_bytes(test, &test_one), 8 * MIB);
    say(test, &one, "drop 1", 8 * MIB);
    test_node_until_used(test, &test_one, 8 * MIB);
    say(test, &third, "import 5", -ENOENT); /* it is withdrawn */
    say(test, &other, "unimport 0", 0);
    test_node_until_used(test, &test_one, 8 * MIB);
    say(test, &third, "unimport 0", 0);
    test_node_until_used(test, &test_one, 0);
    test_node_leave(test, &test_one, (struct test_program[]){one, other, third}, 3);
}

static void test_what_its_owner_dies_with_is_the_vms(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &test_one);
    struct test_program one = enter_with_memory(test, &test_one), other = test_node_enter(test, &test_one);
    test_program_say(test, &other, "import 5", "0 8388608 4711");
    test_program_say(test, &one, "die", "gone");
    test_node_until_ended(test, &one);
    test_node_until_used(test, &test_one, 8 * MIB);
    test_program_say(test, &other, "die", "gone");
    test_node_until_ended(test, &other);
    test_node_until_used(test, &test_one, 0);
    close(one.fd);
    close(other.fd);
    test_node_leave(test, &test_one, NULL, 0);
}

/* The server dies with its question under way: nothing of it stays. */
static void test_a_server_dies_before_its_answer(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &test_one);
    struct test_program one = enter_with_memory(test, &test_one), other = test_node_enter(test, &test_one);
    tell(&other, "import 5\ndie\n");
    test_node_until_ended(test, &other);
    close(other.fd);
    say(test, &one, "drop 1", 8 * MIB);
    test_node_until_used(test, &test_one, 0);

    /* One that exports has gone by the time that another asks. */
    other = test_node_enter(test, &test_one);
    say(test, &one, "extent 2 0 2097152", 0);
    tell(&one, "export 9 2\ndie\n");
    test_node_until_ended(test, &one);
    close(one.fd);
    say(test, &other, "import 9", -ENOENT);
    test_node_until_used(test, &test_one, 0);
    test_node_leave(test, &test_one, &other, 1);
}

static void say_each(struct test_node *test, struct test_program *program, const char *format, unsigned count,
                     const char *answer)
{
    char line[64];

    for (unsigned i = 0; i < count; i++) {
        snprintf(line, sizeof line, format, 1000 + i);
        test_program_say(test, program, line, answer);
    }
}

static void test_a_server_has_so_many(void **state)
{
    struct test_node *test = *state;
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    test_node_grant(test, &test_one);
    struct test_program one = enter_with_memory(test, &test_one), other = test_node_enter(test, &test_one);
    say_each(test, &one, "export %u 1", FLYT_NODE_SHARED_MAX - 1, "0");
    say(test, &one, "export 6 1", -ENOSPC);
    say_each(test, &one, "export_event %u 3", FLYT_NODE_SHARED_EVENTS_MAX, "0 0 3");
    say(test, &one, "export_event 6 3", -ENOSPC);
    say_each(test, &other, "import 5", FLYT_NODE_SHARED_MAX, "0 8388608 4711");
    say(test, &other, "import 5", -ENOSPC);
    /* One less, one more. */
    say(test, &one, "unexport 1000", 0);
    say(test, &one, "export 6 1", 0);
    test_program_say(test, &one, "export_event 7 4", "0 0 4"); /* 1000 was an event, too */
    say(test, &other, "unimport 0", 0);
    test_program_say(test, &other, "import 6", "0 8388608 4711");
    assert_int_equal(test_node_used_bytes(test, &test_one), 8 * MIB);
    test_node_leave(test, &test_one, (struct test_program[]){one, other}, 2);
}

static void test_an_event_is_its_first_page(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &test_one);
    struct test_program one = test_node_enter(test, &test_one), other = test_node_enter(test, &test_one);
    test_program_say(test, &one, "export_event 8 21", "0 0 21");
    test_program_say(test, &one, "export_event 8 22", "0 0 21");
    say(test, &other, "export_event 8 23", -EEXIST);
    test_program_say(test, &other, "import_event 8", "0 0 21");
    say(test, &other, "import_event 9", -ENOENT);
    say(test, &other, "import 8", -ENOENT); /* it names no memory */
    /* Its session goes on at another server. */
    say(test, &one, "replaceable 1", 0);
    test_program_say(test, &one, "die", "gone");
    close(one.fd);
    one.fd = -1;
    test_node_until(test, test_node_is_away, &one, "the session waits for its client");
    test_program_say(test, &other, "import_event 8", "0 0 21");
    assert_int_equal(test_node_try_to_come(test, &test_one, &one), FLYT_HANDSHAKE_OK);
    test_program_say(test, &one, "export_event 8 24", "0 0 21");
    say(test, &one, "unexport 8", 0);
    test_program_say(test, &one, "export_event 9 25", "0 0 25"); /* by then the node manager has heard of it */
    say(test, &other, "import_event 8", -ENOENT);
    test_program_say(test, &one, "die", "gone");
    close(one.fd);
    test_node_leave(test, &test_one, &other, 1);
}

/* Its server ends, and its session waits for its client. */
static void lose_server(struct test_node *test, struct test_program *program)
{
    say(test, program, "replaceable 1", 0);
    test_program_say(test, program, "die", "gone");
    close(program->fd);
    program->fd = -1;
    test_node_until(test, test_node_is_away, program, "the session waits for its client");
}

static bool one_is_waiting(struct test_node *test, void *program)
{
    return test_node_server(test, program)->has.broker.wanted_count == 1;
}

/* Sessions go on elsewhere, in any order: what one had of another's it has again when that one has exported it. */
static void test_what_is_wanted_again_is_waited_for(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &test_one);
    struct test_program one = enter_with_memory(test, &test_one), other = test_node_enter(test, &test_one);
    say(test, &other, "import_again 9", -ENOENT); /* nobody is on his way */
    lose_server(test, &one);
    say(test, &other, "import 9", -ENOENT);
    test_program_say(test, &other, "import_again 5", "0 8388608 4711"); /* what is known is there */
    tell(&other, "import_again 9\n");
    test_node_until(test, one_is_waiting, &other, "the question waits");
    assert_int_equal(test_node_try_to_come(test, &test_one, &one), FLYT_HANDSHAKE_OK);
    test_node_until(test, one_is_waiting, &other, "it waits still");
    say(test, &one, "export 9 1", 0);
    assert_string_equal(test_program_ask(test, &other, NULL), "0 8388608 4711");
    /* One that ends has nothing more to tell. */
    tell(&other, "import_again 10\n");
    test_node_until(test, one_is_waiting, &other, "the question waits");
    test_program_say(test, &one, "die", "gone");
    test_node_until_ended(test, &one);
    close(one.fd);
    assert_string_equal(test_program_ask(test, &other, NULL), number(-ENOENT));
    test_node_leave(test, &test_one, &other, 1);
}

/* Of an event that its maker has destroyed, those who had it have one page, also where it has to be a new one. */
static void test_a_destroyed_event_is_there_for_who_had_it(void **state)
{
    struct test_node *test = *state;
    char page[64];

    test_node_grant(test, &test_one);
    struct test_program one = test_node_enter(test, &test_one), other = test_node_enter(test, &test_one),
                        third = test_node_enter(test, &test_one);
    test_program_say(test, &one, "export_event 8 21", "0 0 21");
    test_program_say(test, &other, "import_event 8", "0 0 21");
    say(test, &one, "unexport 8", 0);
    test_program_say(test, &one, "export_event 9 22", "0 0 22"); /* by then the node manager has heard of it */
    say(test, &third, "import_event 8", -ENOENT);
    test_program_say(test, &third, "import_event_again 8", "0 0 21");
    say(test, &other, "unexport 8", 0);
    say(test, &third, "unexport 8", 0);
    snprintf(page, sizeof page, "%s", test_program_ask(test, &third, "import_event_again 8"));
    assert_string_not_equal(page, number(-ENOENT));
    assert_string_not_equal(page, "0 0 21");
    test_program_say(test, &other, "import_event_again 8", page);
    say(test, &one, "import_event 8", -ENOENT);
    test_node_leave(test, &test_one, (struct test_program[]){one, other, third}, 3);
}

/* Who made it has gone, into an image say, and comes back: it is one event with what the others have of it. */
static void test_a_maker_that_comes_back_has_the_same_page(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &test_one);
    struct test_program one = test_node_enter(test, &test_one), other = test_node_enter(test, &test_one);
    test_program_say(test, &one, "export_event 8 21", "0 0 21");
    test_program_say(test, &other, "import_event 8", "0 0 21");
    test_program_say(test, &one, "die", "gone");
    test_node_until_ended(test, &one);
    close(one.fd);
    one = test_node_enter(test, &test_one);
    test_program_say(test, &one, "export_event 8 22", "0 0 21");
    test_node_leave(test, &test_one, (struct test_program[]){one, other}, 2);
}

static bool all_are_waiting(struct test_node *test, void *program)
{
    return test_node_server(test, program)->has.broker.wanted_count == 3;
}

/* It knows nothing of what servers share until they have told: who asks before waits until all have come back. */
static void test_the_node_manager_is_started_anew(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &test_one);
    struct test_program one = enter_with_memory(test, &test_one), other = test_node_enter(test, &test_one);
    test_program_say(test, &other, "import 5", "0 8388608 4711");
    test_node_stop(test);
    test_node_start(test);
    test_node_until_back(test, &one);
    test_node_until_back(test, &other);
    say(test, &other, "imported 0", 0);
    tell(&other, "import 5\nimport 6\nimport_event 8\n");
    test_node_until(test, all_are_waiting, &other, "the questions wait");
    say(test, &one, "export 5 1", 0);
    test_program_say(test, &one, "export_event 8 31", "0 0 31");
    test_node_end_rejoining(test);
    bool has_memory = false, has_nothing = false, has_event = false;
    for (unsigned i = 0; i < 3; i++) {
        const char *answer = test_program_ask(test, &other, NULL);
        has_memory |= !strcmp(answer, "0 8388608 4711");
        has_nothing |= !strcmp(answer, number(-ENOENT));
        has_event |= !strcmp(answer, "0 0 31");
    }
    assert_true(has_memory && has_nothing && has_event);
    /* It has the memory twice now, as it was told once more that it has it. */
    say(test, &one, "drop 1", 8 * MIB);
    test_node_until_used(test, &test_one, 8 * MIB);
    test_node_leave(test, &test_one, (struct test_program[]){one, other}, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_NODE(test_a_token_names_what_it_was_given_for),
        TEST_NODE(test_another_vm_has_nothing_by_it),
        TEST_NODE(test_what_its_owner_frees_is_the_vms),
        TEST_NODE(test_what_its_owner_dies_with_is_the_vms),
        TEST_NODE(test_a_server_dies_before_its_answer),
        TEST_NODE(test_a_server_has_so_many),
        TEST_NODE(test_an_event_is_its_first_page),
        TEST_NODE(test_the_node_manager_is_started_anew),
        TEST_NODE(test_what_is_wanted_again_is_waited_for),
        TEST_NODE(test_a_destroyed_event_is_there_for_who_had_it),
        TEST_NODE(test_a_maker_that_comes_back_has_the_same_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
