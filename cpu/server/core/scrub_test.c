/* New memory is cleared before anything uses it, and nobody waits for that on the host. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include "cpu/server/test/fake_client.h"

enum { MIB = 1 << 20 };

static int set_up_scrubbing(void **state)
{
    struct fixture *self = make();
    self->session.is_scrubbing = true;
    assert_int_equal(pthread_create(&self->thread, NULL, serve, self), 0);
    *state = self;
    return 0;
}

static void give_back(struct fixture *self, uint64_t address)
{
    SEND(self, FLYT_MEMORY_FREE, memory_free, .address = address);
}

/* Driver stream 0 is the legacy stream, 1 that which clears. */
static void work_comes_after_the_clearing(void **state)
{
    struct fixture *self = *state;
    flyt_fake_be_exact();
    flyt_fake_hold(1);
    uint64_t address = alloc(self, 64, CUDA_SUCCESS); /* answered though nothing is cleared */
    create(self, 0, CU_STREAM_NON_BLOCKING);
    set(self, stream_id(0), address);
    set(self, stream_id(0), address);
    set(self, legacy, address);
    barrier(self);
    assert_int_equal(count_in_log("wait:2<1"), 1);
    assert_int_equal(count_in_log("wait:0<1"), 1);
    assert_int_equal(query(self, stream_id(0)), CUDA_ERROR_NOT_READY);
    flyt_fake_release(1);
    assert_int_equal(synchronize(self, stream_id(0)), CUDA_SUCCESS);
    assert_int_equal(synchronize(self, legacy), CUDA_SUCCESS);
    /* What is clear stays so: memory that is used again within the session is not cleared again. */
    flyt_fake_log_clear();
    give_back(self, address);
    address = alloc(self, 64, CUDA_SUCCESS);
    set(self, legacy, address);
    barrier(self);
    assert_int_equal(count_in_log("memset:1"), 0);
    assert_int_equal(count_in_log("wait:"), 0);
}

/* The driver must not be told to unmap what it is still clearing. */
static void memory_is_not_given_back_while_it_is_cleared(void **state)
{
    struct fixture *self = *state;
    flyt_fake_set_memory(16 * MIB);
    flyt_fake_hold(1);
    uint64_t address = alloc(self, 16 * MIB, CUDA_SUCCESS);
    give_back(self, address);
    uint32_t xid = SEND(self, FLYT_MEMORY_ALLOC, memory_alloc, .bytes = 3 * MIB);
    flyt_memory_alloc_res res;
    barrier(self);
    assert_int_equal(flyt_fake_used_memory(), 16 * MIB);
    flyt_fake_release(1);
    await_reply(self, xid, (xdrproc_t)xdr_flyt_memory_alloc_res, &res);
    assert_int_equal(res.result, CUDA_SUCCESS);
}

/* Each extent, here of one allocation, is cleared by one operation; a driver that does none of them is not filled with
 * more than it takes. */
static void clearing_is_bounded(void **state)
{
    struct fixture *self = *state;
    flyt_memory_alloc_res res;
    flyt_fake_set_memory(1ull << 40);
    flyt_fake_hold(1);
    for (unsigned i = 0; i < FLYT_STREAM_DEPTH_MAX; i++)
        alloc(self, 300ull * MIB, CUDA_SUCCESS);
    uint32_t xid = SEND(self, FLYT_MEMORY_ALLOC, memory_alloc, .bytes = 300ull * MIB);
    barrier(self);
    assert_int_equal(count_in_log("memset:1"), FLYT_STREAM_DEPTH_MAX);
    flyt_fake_release(1);
    await_reply(self, xid, (xdrproc_t)xdr_flyt_memory_alloc_res, &res);
    assert_int_equal(res.result, CUDA_SUCCESS);
    assert_int_equal(count_in_log("memset:1"), FLYT_STREAM_DEPTH_MAX + 1);
}

static void without_scrubbing_nothing_is_cleared(void **state)
{
    struct fixture *self = *state;
    uint64_t address = alloc(self, 64, CUDA_SUCCESS);
    set(self, legacy, address);
    barrier(self);
    assert_log("memset:0");
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up_scrubbing, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(work_comes_after_the_clearing),
        TEST(memory_is_not_given_back_while_it_is_cleared),
        TEST(clearing_is_bounded),
        cmocka_unit_test_setup_teardown(without_scrubbing_nothing_is_cleared, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
