/*
 * What a real server process on the software GPU leaves of its calls when it is killed at each point of one, and what
 * the next server says of it. The node manager is played (fake_node.h), and so is the program.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "cpu/server/test/fake_node.h"
#include "rpc/base/fault_point.h"
#include "rpc/transport/handshake.h"

enum { MIB = 1 << 20, LAST = 4 /* the call in which it is killed */ };

static int set_up(void **state)
{
    fake_node_fixture_new(state, sizeof(struct fake_node));
    return 0;
}

static int tear_down(void **state)
{
    unsetenv(FLYT_FAULT_VARIABLE);
    return fake_node_tear_down(state);
}

/* The first server fails at this point (NULL: nowhere); every later one does not. */
static void begin(struct fake_node *node, const char *fault)
{
    if (fault)
        setenv(FLYT_FAULT_VARIABLE, fault, 1);
    fake_node_begin(node, fake_one_gpu, 64 * MIB);
    unsetenv(FLYT_FAULT_VARIABLE);
    fake_node_let_rejoin(node);
    fake_node_connect(node);
}

static const struct flyt_call_record *record_of(struct fake_server *server)
{
    pthread_mutex_lock(&server->mutex);
    const struct flyt_call_record *record = server->record;
    pthread_mutex_unlock(&server->mutex);
    return record;
}

static void await_complete(struct fake_server *server, uint64_t sequence)
{
    const struct flyt_call_record *record = NULL;
    for (unsigned i = 0; i < 60000 && (!record || flyt_call_record_read(record).completed < sequence); i++) {
        usleep(1000);
        record = record_of(server);
    }
    assert_non_null(record);
    assert_int_equal(flyt_call_record_read(record).completed, sequence);
}

static void expect_state(struct flyt_call_state is, struct flyt_call_state want)
{
    assert_int_equal(is.begun, want.begun);
    assert_int_equal(is.executed, want.executed);
    assert_int_equal(is.completed, want.completed);
    assert_int_equal(is.error_count, want.error_count);
}

/* The second server has what the first had, and says how far that had come. */
static void replace(struct fake_node *node, struct flyt_call_state want)
{
    flyt_session_left_at_res left;
    fake_server_kill(node->first); /* where it is not dead yet */
    fake_wire_close(&node->wire);
    assert_non_null(node->first->record);
    expect_state(flyt_call_record_read(node->first->record), want);
    fake_server_start(node->second, fake_one_gpu);
    fake_server_give(node->second, node->first);
    fake_listener_grant_again(&node->listener, node->second, node->first);
    assert_int_equal(fake_node_come_back(node), FLYT_HANDSHAKE_OK);
    assert_int_equal(FAKE_WIRE_CALL(&node->wire, FLYT_SESSION_LEFT_AT, session_left_at, &left, .thread = 1),
                     CUDA_SUCCESS);
    assert_int_equal(left.is_known, 1);
    expect_state((struct flyt_call_state){left.begun, left.executed, left.completed, left.error_count}, want);
}

static void each_point_of_a_call_is_told_apart(void **state)
{
    static const struct {
        const char *point;
        struct flyt_call_state want;
    } cases[] = {
        {"memory_set.received", {LAST - 1, LAST - 1, LAST - 1, 0}},
        {"memory_set.begun", {LAST, LAST - 1, LAST - 1, 0}},
        {"memory_set.done", {LAST, LAST - 1, LAST - 1, 0}},
        {"memory_set.executed", {LAST, LAST, LAST - 1, 0}},
    };
    struct fake_node *node = *state;
    struct fake_range range = {.bytes = 2 * MIB};
    char fault[64];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(fault, sizeof fault, "%s:kill:2", cases[i].point);
        begin(node, fault);
        assert_int_equal(fake_program_alloc(&node->wire, range.bytes, &range.address), CUDA_SUCCESS);
        fake_program_fill(&node->wire, range.address, range.bytes, 0x11);
        assert_int_equal(fake_program_synchronize(&node->wire, legacy), CUDA_SUCCESS);
        await_complete(node->first, LAST - 1);
        fake_program_fill(&node->wire, range.address, range.bytes, 0x22);
        fake_server_wait_true(node->first, &node->first->is_hung_up);
        replace(node, cases[i].want);
        assert_int_equal(fake_program_resume_begin(&node->wire), CUDA_SUCCESS);
        assert_int_equal(fake_program_restore(&node->wire, &range, 1), CUDA_SUCCESS);
        assert_int_equal(fake_program_resume_end(&node->wire, LAST - 1), CUDA_SUCCESS);
        /* What had not begun has done nothing. */
        if (cases[i].want.begun < LAST)
            assert_int_equal(fake_program_byte_at(&node->wire, range.address), 0x11);
        fake_node_finish(node, node->second);
        node->ledger = flyt_ledger_close(node->ledger);
    }
}

/* Its numbers go on behind the call that the session went on behind, and errors are those of its own connection. */
static void numbers_go_on(void **state)
{
    struct fake_node *node = *state;
    begin(node, NULL);
    FAKE_WIRE_SEND(&node->wire, FLYT_MEMORY_FREE, memory_free, .address = 0x200000000000);
    assert_int_equal(fake_program_barrier(&node->wire), CUDA_SUCCESS);
    await_complete(node->first, 2);
    replace(node, (struct flyt_call_state){2, 2, 2, 1});
    assert_int_equal(fake_program_resume_begin(&node->wire), CUDA_SUCCESS);
    assert_int_equal(fake_program_resume_end(&node->wire, 1000), CUDA_SUCCESS);
    await_complete(node->second, 1000);
    assert_int_equal(fake_program_barrier(&node->wire), CUDA_SUCCESS);
    await_complete(node->second, 1001);
    fake_node_next(node);
    replace(node, (struct flyt_call_state){1001, 1001, 1001, 0});
    assert_int_equal(fake_program_resume_begin(&node->wire), CUDA_SUCCESS);
    assert_int_equal(fake_program_resume_end(&node->wire, 1001), CUDA_SUCCESS);
    fake_node_finish(node, node->second);
}

/* Its program has gone, which the thread that would end the session cannot see. */
static void an_end_in_the_middle_of_a_call_is_told(void **state)
{
    struct fake_node *node = *state;
    struct fake_range range = {.bytes = 2 * MIB};
    begin(node, "memory_set.begun:hang");
    assert_int_equal(fake_program_alloc(&node->wire, range.bytes, &range.address), CUDA_SUCCESS);
    assert_int_equal(node->first->use.is_ending, 0);
    fake_program_fill(&node->wire, range.address, range.bytes, 0x11);
    fake_wire_close(&node->wire);
    fake_server_wait(node->first, &node->first->use.is_ending, 1);
    fake_node_finish(node, node->first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_point_of_a_call_is_told_apart, set_up, tear_down),
        cmocka_unit_test_setup_teardown(numbers_go_on, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_end_in_the_middle_of_a_call_is_told, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, fake_node_begin_all, fake_node_end_all);
}
