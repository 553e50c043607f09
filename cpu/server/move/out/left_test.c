/*
 * A session whose program has left for another server: what it keeps, and how it is taken back.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <fcntl.h>
#include <cmocka.h>

#include "cpu/server/test/fake_move.h"
#include "cpu/server/move/out/move.h"
#include "rpc/base/fault_point.h"

static void who_leaves_finds_everything_again(void **state)
{
    struct moved *self = *state;
    uint64_t address = alloc(self->client, 4 * MIB, CUDA_SUCCESS), used_bytes = flyt_fake_used_memory();
    create(self->client, 0, CU_STREAM_NON_BLOCKING);
    set(self->client, stream_id(0), address);
    fake_move_begin(self, FLYT_MANAGER_LINK_MOVE_GIVE);
    fake_move_stop_wholly(self);
    const uint64_t sequence = self->client->xid;
    flyt_back_moved moved = fake_move_leave(self);
    assert_int_equal(moved.sequence, sequence);
    assert_int_equal(moved.wait_ms, FLYT_MOVE_WAIT_MS);
    assert_int_equal(moved.flags, 0);
    assert_int_equal(atomic_load(&self->client->session.move->left_move_id), MOVE_ID);
    /* What comes behind that is nobody's. */
    SEND(self->client, FLYT_MEMORY_ALLOC, memory_alloc, .bytes = 64 * MIB);
    fake_move_order_of(self, FLYT_MANAGER_LINK_GO_ON, MOVE_ID); /* too late */
    fake_move_expect_nothing(self);
    shutdown(self->client->fd, SHUT_WR);
    fake_move_expect_left(self);
    fake_move_await_end(self);
    assert_int_equal(flyt_fake_used_memory(), used_bytes);
    assert_true(atomic_load(&self->client->session.move->is_leaving));
    /* Orders are carried out meanwhile. */
    self->order.limit = (struct flyt_manager_link_limit){.revision = 9, .memory_bytes = 256 * MIB};
    fake_move_order(self, FLYT_MANAGER_LINK_LIMIT, -1);
    fake_move_next(self);
    assert_int_equal(self->message.limit_done.revision, 9);
    assert_int_equal(self->message.limit_done.used_bytes, used_bytes);
    fake_move_suspend(self, true);
    fake_move_suspend(self, false);

    fake_move_take_back(self);
    assert_true(fake_move_is_whole(self, CUDA_SUCCESS));
    alloc(self->client, 64, CUDA_ERROR_NOT_PERMITTED);
    fake_move_resume_end(self, sequence + 1, CUDA_ERROR_INVALID_VALUE);
    fake_move_go_on_behind(self, sequence);
    assert_false(atomic_load(&self->client->session.move->is_leaving));
    assert_int_equal(atomic_load(&self->client->session.move->left_move_id), 0);
    /* Calls count on; stream and memory are there. */
    assert_int_equal(barrier(self->client).received, sequence + 1);
    set(self->client, stream_id(0), address);
    set(self->client, stream_id(0), address + 4 * MIB - 64);
    assert_int_equal(synchronize(self->client, stream_id(0)), CUDA_SUCCESS);
    assert_log("memset:1 memset:1 memset:1");
    assert_true(alloc(self->client, 4 * MIB, CUDA_SUCCESS) != address);
    fake_move_expect_nothing(self);
    /* And it can be moved again. */
    fake_move_begin(self, FLYT_MANAGER_LINK_MOVE_GIVE);
    fake_move_stop_wholly(self);
    fake_move_leave_wholly(self);
}

static void who_leaves_may_be_told_to_try_for_ever(void **state)
{
    struct moved *self = *state;
    flyt_back_moved moved;
    fake_move_begin(self, FLYT_MANAGER_LINK_MOVE_GIVE);
    fake_move_stop_wholly(self);
    const uint64_t sequence = self->client->xid;
    self->order.stop = (struct flyt_manager_link_stop){.move_id = MOVE_ID, .timeout_us = FLYT_MANAGER_LINK_FOR_EVER};
    fake_move_order(self, FLYT_MANAGER_LINK_LEAVE, -1);
    await_back(self->client, FLYT_BACK_MOVED, (xdrproc_t)xdr_flyt_back_moved, &moved);
    assert_int_equal(moved.sequence, sequence);
    assert_int_equal(moved.wait_ms, 0);
    shutdown(self->client->fd, SHUT_RDWR);
    fake_move_expect_left(self);
    fake_move_take_back(self);
    fake_move_go_on_behind(self, sequence);
}

static void who_fails_to_come_back_may_try_again(void **state)
{
    struct moved *self = *state;
    unsigned char other[FLYT_TOKEN_BYTES] = {1};
    uint64_t address = alloc(self->client, 64, CUDA_SUCCESS);
    fake_move_begin(self, FLYT_MANAGER_LINK_MOVE_GIVE);
    fake_move_stop_wholly(self);
    const uint64_t sequence = self->client->xid;
    fake_move_leave_wholly(self);
    /* Another session's client, a new one's, one that goes before the end, one that speaks too soon. */
    assert_int_equal(fake_move_take_back_with(self, other, FLYT_CONNECTION_RESUME), FLYT_HANDSHAKE_NO_SESSION);
    fake_move_await_end(self);
    assert_int_equal(fake_move_take_back_with(self, self->client->session.token, FLYT_CONNECTION_SESSION),
                     FLYT_HANDSHAKE_NO_SESSION);
    fake_move_await_end(self);
    fake_move_take_back(self);
    assert_true(fake_move_is_whole(self, CUDA_SUCCESS));
    shutdown(self->client->fd, SHUT_RDWR);
    fake_move_take_back(self); /* whether that end was seen or not */
    assert_true(fake_move_is_whole(self, CUDA_SUCCESS));
    assert_int_equal(flyt_fault_set("move.take_back:error:1"), 0);
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    self->order.stop = (struct flyt_manager_link_stop){.move_id = MOVE_ID};
    self->order.data_bytes = 1;
    fake_move_order(self, FLYT_MANAGER_LINK_TAKE_BACK, fds[1]);
    char byte;
    assert_int_equal(recv(fds[0], &byte, 1, 0), 0);
    close(fds[0]);
    fake_move_take_back(self);
    fake_move_go_on_behind(self, sequence);
    fake_move_expect_work(self, address);
}

static unsigned count_descriptors(void)
{
    unsigned count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* Whatever a program sends that comes back ends its connection at most, and leaves nothing behind. */
static void nonsense_ends_a_connection_only(void **state)
{
    static const unsigned char nonsense[] = {0x80, 0, 0, 4, 'n', 'o', 'n', 'e'}, endless[] = {0xff, 0xff, 0xff, 0xff};
    struct moved *self = *state;
    uint64_t address = alloc(self->client, 64, CUDA_SUCCESS);
    unsigned descriptors = 0;
    fake_move_begin(self, FLYT_MANAGER_LINK_MOVE_GIVE);
    fake_move_stop_wholly(self);
    const uint64_t sequence = self->client->xid;
    fake_move_leave_wholly(self);
    for (unsigned i = 0; i < 12; i++) {
        fake_move_take_back(self);
        assert_true(fake_move_is_whole(self, CUDA_SUCCESS));
        if (i % 3 == 0) {
            assert_int_equal(send(self->client->fd, nonsense, sizeof nonsense, MSG_NOSIGNAL), sizeof nonsense);
        } else if (i % 3 == 1) {
            assert_int_equal(send(self->client->fd, endless, sizeof endless, MSG_NOSIGNAL), sizeof endless);
        } else { /* half a chunk of a transfer that nobody began */
            char record[256], data[64] = "half";
            const flyt_chunk chunk = {.transfer_id = 9, .data = {.data_len = sizeof data, .data_val = data}};
            size_t bytes =
                encode_call(self->client, record, sizeof record, FLYT_CHUNK, (xdrproc_t)xdr_flyt_chunk, &chunk);
            assert_int_equal(send(self->client->fd, record, bytes - 32, MSG_NOSIGNAL), bytes - 32);
            shutdown(self->client->fd, SHUT_WR);
        }
        fake_move_await_end(self);
        fake_move_expect_nothing(self);
        if (i == 2)
            descriptors = count_descriptors();
        else if (i > 2)
            assert_int_equal(count_descriptors(), descriptors);
    }
    fake_move_take_back(self);
    fake_move_go_on_behind(self, sequence);
    fake_move_expect_work(self, address);
}

static void who_does_not_leave_is_shown_out(void **state)
{
    struct moved *self = *state;
    fake_move_begin(self, FLYT_MANAGER_LINK_MOVE_GIVE);
    fake_move_stop_wholly(self);
    fake_move_leave(self);
    fake_move_expect_nothing(self);
    fake_move_pass_time(self, FLYT_MOVE_LEAVE_MS * 1000);
    fake_move_expect_left(self);
    fake_move_await_end(self);
}

/* It has ended its connection in a way that the server has not seen when it is back already. */
static void who_is_back_before_its_end_is_seen_is_taken(void **state)
{
    struct moved *self = *state;
    uint64_t address = alloc(self->client, 64, CUDA_SUCCESS);
    fake_move_begin(self, FLYT_MANAGER_LINK_MOVE_GIVE);
    fake_move_stop_wholly(self);
    const uint64_t sequence = self->client->xid;
    fake_move_leave(self);
    int before_fd = dup(self->client->fd);
    fake_move_take_back(self);
    fake_move_expect_left(self);
    fake_move_go_on_behind(self, sequence);
    fake_move_expect_work(self, address);
    close(before_fd);
}

static void expect_left_at(struct moved *self, uint64_t sequence, uint64_t error_count)
{
    flyt_session_left_at_res res;
    uint32_t xid = SEND(self->client, FLYT_SESSION_LEFT_AT, session_left_at, .thread = 1);
    await_reply(self->client, xid, (xdrproc_t)xdr_flyt_session_left_at_res, &res);
    assert_int_equal(res.result, CUDA_SUCCESS);
    assert_int_equal(res.is_known, 1);
    assert_int_equal(res.begun, sequence);
    assert_int_equal(res.executed, sequence);
    assert_int_equal(res.completed, sequence);
    assert_int_equal(res.error_count, error_count);
}

static void leaving_fails_where_a_test_wants_it(void **state)
{
    struct moved *self = *state;
    flyt_back_call_error error;
    SEND(self->client, FLYT_MEMORY_FREE, memory_free, .address = 0x200000000000);
    await_back(self->client, FLYT_BACK_CALL_ERROR, (xdrproc_t)xdr_flyt_back_call_error, &error);
    fake_move_begin(self, FLYT_MANAGER_LINK_MOVE_GIVE);
    fake_move_stop_wholly(self);
    assert_int_equal(flyt_fault_set("move.leave:error"), 0);
    fake_move_order_of(self, FLYT_MANAGER_LINK_LEAVE, MOVE_ID);
    fake_move_await_end(self); /* without a word */
    fake_move_expect_left(self);
    const uint64_t sequence = self->client->xid;
    /* It is told what MOVED would have said, as often as it asks, and what it may not have heard. */
    for (unsigned i = 0; i < 2; i++) {
        fake_move_take_back(self);
        expect_left_at(self, sequence, 1);
    }
    fake_move_go_on_behind(self, sequence);
    fake_move_begin(self, FLYT_MANAGER_LINK_MOVE_GIVE);
    fake_move_stop_wholly(self);
    assert_int_equal(flyt_fault_set("move.left:error"), 0);
    fake_move_leave(self);
    shutdown(self->client->fd, SHUT_RDWR);
    fake_move_expect_nothing(self);
}

static void a_session_that_was_left_ends_by_order(void **state)
{
    struct moved *self = *state;
    fake_move_begin(self, FLYT_MANAGER_LINK_MOVE_GIVE);
    fake_move_stop_wholly(self);
    fake_move_leave_wholly(self);
    fake_move_take_back(self);
    fake_move_order(self, FLYT_MANAGER_LINK_KILL, -1);
    fake_move_await_end(self);
    /* The thread's end is waited for by whoever takes this down. */
}

static void a_program_that_ends_meanwhile_ends_the_session(void **state)
{
    struct moved *self = *state;
    fake_move_begin(self, FLYT_MANAGER_LINK_MOVE_GIVE);
    fake_move_stop_wholly(self);
    shutdown(self->client->fd, SHUT_RDWR);
    pthread_join(self->client->thread, NULL);
    assert_int_equal(pthread_create(&self->client->thread, NULL, serve, self->client), 0); /* ends at once */
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fake_move_set_up, fake_move_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(who_leaves_finds_everything_again),
        TEST(who_leaves_may_be_told_to_try_for_ever),
        TEST(who_fails_to_come_back_may_try_again),
        TEST(nonsense_ends_a_connection_only),
        TEST(who_does_not_leave_is_shown_out),
        TEST(who_is_back_before_its_end_is_seen_is_taken),
        TEST(leaving_fails_where_a_test_wants_it),
        TEST(a_session_that_was_left_ends_by_order),
        TEST(a_program_that_ends_meanwhile_ends_the_session),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
