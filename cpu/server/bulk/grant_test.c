/*
 * What a session grants of the data that comes to it: a window of each transfer ahead, then more as it gets on, and of
 * what cannot get on yet only so much as there is memory for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "cpu/server/test/fake_client.h"

enum { WINDOW = 4000, STEP = WINDOW / 4, BYTES = 5 * WINDOW, AHEAD = 6000, ONE = 1, OTHER = 2 };

static int set_up_window(void **state)
{
    struct fixture *self = make();
    self->session.transfers->window_bytes = WINDOW;
    self->session.transfers->ahead_bytes_max = AHEAD;
    assert_int_equal(pthread_create(&self->thread, NULL, serve, self), 0);
    *state = self;
    return 0;
}

static void name_transfer(struct fixture *self, uint64_t stream, uint64_t transfer_id, uint64_t address)
{
    SEND(self, FLYT_COPY_IN_TRANSFER, copy_in_transfer, .stream_id = stream, .dst = range(address, BYTES),
         .transfer_id = transfer_id, .bytes = BYTES);
}

static void expect_grant(struct fixture *self, uint64_t transfer_id, uint64_t offset_bytes, uint64_t bytes)
{
    flyt_back_grant grant;
    await_back(self, FLYT_BACK_GRANT, (xdrproc_t)xdr_flyt_back_grant, &grant);
    assert_int_equal(grant.transfer_id, transfer_id);
    assert_int_equal(grant.offset_bytes, offset_bytes);
    assert_int_equal(grant.bytes, bytes);
}

/* What comes next for both transfers, in any order and parts: from so much on, up to so much. */
static void expect_two(struct fixture *self, uint64_t one, uint64_t one_end, uint64_t other, uint64_t other_end)
{
    uint64_t granted[] = {[ONE] = one, [OTHER] = other};
    while (granted[ONE] < one_end || granted[OTHER] < other_end) {
        flyt_back_grant grant;
        await_back(self, FLYT_BACK_GRANT, (xdrproc_t)xdr_flyt_back_grant, &grant);
        assert_true(grant.transfer_id == ONE || grant.transfer_id == OTHER);
        assert_int_equal(grant.offset_bytes, granted[grant.transfer_id]);
        granted[grant.transfer_id] += grant.bytes;
    }
    assert_int_equal(granted[ONE], one_end);
    assert_int_equal(granted[OTHER], other_end);
}

/* A grant would come before the answer. */
static void expect_none(struct fixture *self)
{
    for (unsigned i = 0; i < 10; i++)
        query(self, legacy);
}

/* Chunk by chunk, each of which brings as much more, up to the transfer's end. */
static void a_window_moves_on_with_its_copy(void **state)
{
    struct fixture *self = *state;
    uint64_t address = alloc(self, BYTES, CUDA_SUCCESS);
    barrier(self);
    name_transfer(self, legacy, ONE, address);
    for (unsigned at = 0; at < BYTES; at += STEP) {
        send_chunk(self, ONE, at, STEP);
        if (at + WINDOW < BYTES)
            expect_grant(self, ONE, at + WINDOW, STEP);
    }
    assert_int_equal(synchronize(self, legacy), CUDA_SUCCESS);
    assert_int_equal(count_in_log("in:0"), BYTES / STEP);
}

/* What is not worth a word waits for more. */
static void small_steps_are_put_together(void **state)
{
    struct fixture *self = *state;
    uint64_t address = alloc(self, BYTES, CUDA_SUCCESS);
    barrier(self);
    name_transfer(self, legacy, ONE, address);
    send_chunk(self, ONE, 0, STEP - 1);
    while (count_in_log("in:0") < 1)
        assert_int_equal(query(self, legacy), CUDA_ERROR_NOT_READY);
    expect_none(self);
    send_chunk(self, ONE, STEP - 1, 2);
    expect_grant(self, ONE, WINDOW, STEP + 1);
}

/* Of copies that the GPU has not reached comes what there is memory for, in all; then what they had of it is for
 * others. */
static void what_comes_before_its_turn_is_bounded(void **state)
{
    struct fixture *self = *state;
    uint64_t address = alloc(self, BYTES, CUDA_SUCCESS);
    create(self, 0, CU_STREAM_NON_BLOCKING);
    create(self, 1, CU_STREAM_NON_BLOCKING);
    flyt_fake_hold(1);
    flyt_fake_hold(2);
    set(self, stream_id(0), address);
    set(self, stream_id(1), address);
    barrier(self);
    name_transfer(self, stream_id(0), ONE, address);
    name_transfer(self, stream_id(1), OTHER, address);
    send_chunk(self, ONE, 0, WINDOW);
    expect_grant(self, ONE, WINDOW, WINDOW);
    send_chunk(self, OTHER, 0, WINDOW);
    send_chunk(self, ONE, WINDOW, WINDOW);
    expect_none(self);
    flyt_fake_release(1);
    expect_two(self, 2 * WINDOW, 3 * WINDOW, WINDOW, 2 * WINDOW);
    flyt_fake_release(2);
}

/* Likewise of one whose call has not come: nobody says yet how much it will be. */
static void what_nobody_has_named_is_bounded(void **state)
{
    struct fixture *self = *state;
    uint64_t address = alloc(self, BYTES, CUDA_SUCCESS);
    barrier(self);
    send_chunk(self, ONE, 0, WINDOW);
    expect_grant(self, ONE, WINDOW, WINDOW);
    send_chunk(self, OTHER, 0, WINDOW);
    send_chunk(self, ONE, WINDOW, WINDOW);
    expect_none(self);
    name_transfer(self, legacy, ONE, address);
    expect_two(self, 2 * WINDOW, 3 * WINDOW, WINDOW, 2 * WINDOW);
}

/* The client gets rid of the data of a copy that failed. */
static void what_was_refused_is_granted_as_a_whole(void **state)
{
    struct fixture *self = *state;
    flyt_back_transfer_failed failed;
    flyt_back_call_error error;
    barrier(self);
    name_transfer(self, legacy, ONE, 4096);
    await_back(self, FLYT_BACK_TRANSFER_FAILED, (xdrproc_t)xdr_flyt_back_transfer_failed, &failed);
    assert_int_equal(failed.transfer_id, ONE);
    await_back(self, FLYT_BACK_CALL_ERROR, (xdrproc_t)xdr_flyt_back_call_error, &error);
    expect_grant(self, ONE, WINDOW, BYTES - WINDOW);
    send_chunk(self, ONE, 0, BYTES);
    barrier(self);
    assert_int_equal(self->session.transfers->count, 0);
}

/* A client that takes what it was not granted. */
static void more_than_was_granted_ends_the_session(void **state)
{
    static const struct {
        bool is_named;
        unsigned offset, bytes;
    } chunks[] = {{true, 0, WINDOW + 1}, {true, WINDOW, 1}, {false, 0, WINDOW + 1}, {false, BYTES, 1}};
    for (unsigned i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        set_up_window(state);
        struct fixture *self = *state;
        uint64_t address = alloc(self, BYTES, CUDA_SUCCESS);
        barrier(self);
        if (chunks[i].is_named)
            name_transfer(self, legacy, ONE, address);
        send_chunk(self, ONE, chunks[i].offset, chunks[i].bytes);
        while (receive(self)) /* up to its end */
            continue;
        assert_non_null(strstr(self->session.end_reason, "behind what was granted"));
        tear_down(state);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_window_moves_on_with_its_copy, set_up_window, tear_down),
        cmocka_unit_test_setup_teardown(small_steps_are_put_together, set_up_window, tear_down),
        cmocka_unit_test_setup_teardown(what_comes_before_its_turn_is_bounded, set_up_window, tear_down),
        cmocka_unit_test_setup_teardown(what_nobody_has_named_is_bounded, set_up_window, tear_down),
        cmocka_unit_test_setup_teardown(what_was_refused_is_granted_as_a_whole, set_up_window, tear_down),
        cmocka_unit_test(more_than_was_granted_ends_the_session),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
