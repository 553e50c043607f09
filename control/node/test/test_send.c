#include "control/node/test/test_send.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/node/state/departed.h"
#include "control/node/uplink/report.h"

/* What has come of SWITCH. */
struct switching {
    bool has_answer;
    flyt_status status;
    struct flyt_error *err;
};

static void note_switched(void *user, const struct flyt_node_migration *migration, flyt_status status, const char *text)
{
    struct switching *switching = user;

    switching->has_answer = true;
    switching->status = status;
    flyt_error_set(switching->err, 0, "%s", text);
}

static bool has_answer(struct test_node *test, void *user)
{
    return ((struct switching *)user)->has_answer;
}

flyt_status test_send_switch(struct test_node *test, struct flyt_node_migration *migration, struct flyt_error *ret_err)
{
    struct switching switching = {.err = ret_err};

    *ret_err = (struct flyt_error){0};
    flyt_node_send_switch(migration, note_switched, &switching);
    test_node_until(test, has_answer, &switching, "an answer to SWITCH");
    return switching.status;
}

flyt_status test_send_do_switch(struct test_node *test, struct flyt_error *ret_err)
{
    return test_send_switch(test, test_migration_of(test), ret_err);
}

static void ignore(void *user, const struct flyt_node_migration *migration, flyt_status status, const char *text)
{
}

void test_send_begin_switch(struct test_node *test)
{
    flyt_node_send_switch(test_migration_of(test), ignore, NULL);
}

void test_send_let_leave(struct test_node *test)
{
    struct flyt_error err;

    if (test_send_do_switch(test, &err) != FLYT_STATUS_OK)
        fail_msg("not switched: %s", err.text);
    assert_int_equal(test_migration_of(test)->op.phase, FLYT_MIGRATION_SWITCHING);
}

void test_send_is_told_to_leave(struct test_node *test, struct test_program *program)
{
    test_program_say(test, program, NULL, "moved for ever");
    test_program_say(test, program, NULL, "gone");
    close(program->fd);
    program->fd = -1;
}

void test_send_all_leave(struct test_node *test, struct test_program *programs, unsigned count)
{
    test_send_let_leave(test);
    for (unsigned i = 0; i < count; i++)
        test_send_is_told_to_leave(test, &programs[i]);
}

void test_send_arrive(struct test_far *far, struct test_program *programs, unsigned count)
{
    test_migration_enter(far->test, programs, count);
    test_far_start(far);
    test_far_take_all(far, programs, count);
}

void test_send_reach(struct test_far *far, struct test_program *programs, unsigned number)
{
    /* What a server is told so that it stays there; the last: nothing. */
    static const char *const lines[TEST_SEND_PHASES] = {"busy 1", "mute 1", NULL};
    static const flyt_migration_phase phases[TEST_SEND_PHASES] = {FLYT_MIGRATION_COPYING, FLYT_MIGRATION_STOPPING,
                                                                  FLYT_MIGRATION_ARRIVED};

    test_migration_enter(far->test, programs, 2);
    if (lines[number])
        test_program_say(far->test, &programs[0], lines[number], "0");
    test_far_start(far);
    if (!lines[number])
        test_far_take_all(far, programs, 2);
    test_far_until(far, phases[number]);
}

unsigned test_send_count_shown(struct test_node *test)
{
    flyt_heartbeat_args args = {0};

    assert_int_equal(flyt_node_report_figures(&test->node, 1, &args), 0);
    unsigned count = args.sessions.sessions_len;
    xdr_free((xdrproc_t)xdr_flyt_heartbeat_args, &args);
    return count;
}

bool test_send_is_done(struct test_node *test, void *unused)
{
    return flyt_node_operation_has_ended(&test_migration_of(test)->op);
}

void test_send_take_back(struct test_node *test, unsigned count)
{
    unsigned before = test->event_count;

    test_node_remove_now(test, test_one.id);
    test_node_until(test, test_send_is_done, NULL, "its end");
    assert_int_equal(test_migration_of(test)->op.phase, FLYT_MIGRATION_DONE);
    assert_null(test_migration_allocation(test));
    assert_int_equal(test->event_count, before + 1);
    test_contains(test->last_event, "migration.left");
    assert_int_equal(test_migration_of(test)->use.session_count, count);
    assert_int_equal(flyt_node_departed_find(&test->node.state, test_one.id), 0);
    assert_int_equal(test->node.starts[0].serving, 0);
    for (const struct flyt_node_server *server = test->node.servers; server; server = server->next)
        assert_null(flyt_node_server_allocation(server));
}

flyt_handshake_status test_send_come(struct test_node *test, struct test_program *program)
{
    return test_node_try_to_come(test, &test_one, program);
}

void test_send_failed(struct test_far *far, const char *words)
{
    test_far_until(far, FLYT_MIGRATION_FAILED);
    test_contains(test_migration_of(far->test)->op.text, words);
    test_contains(far->test->last_event, "migration.failed");
}

void test_send_stayed(struct test_far *far, struct test_program *programs, unsigned count)
{
    struct flyt_error err;

    assert_int_equal(test_send_do_switch(far->test, &err), FLYT_STATUS_CONFLICT);
    assert_int_equal(flyt_node_departed_find(&far->test->node.state, test_one.id), 0);
    test_migration_stayed(far->test, programs, count);
    test_node_leave(far->test, &test_one, programs, count);
    test_migration_forget(far->test);
}
