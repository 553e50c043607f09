/* Pools over a channel without a server: which calls there are, and when what was freed comes back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>
#include "cpu/client/core/fake_channel.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/copy.h"
#include "cpu/client/cuda/memory.h"
#include "cpu/client/cuda/pool.h"
#include "cpu/client/cuda/stream.h"
#include "rpc/base/id.h"

enum { BYTES = 100000 };

static uint64_t next_address = FLYT_WINDOW_BASE;
static unsigned blocks_left = 1000; /* that the server has */

static void serve(unsigned procedure, const void *args, void *res, void *data)
{
    if (procedure == FLYT_DEVICE_INFO)
        fake_serve_device_info(res);
    if (procedure == FLYT_MEMORY_FREE)
        blocks_left++;
    if (procedure == FLYT_DEVICE_SYNCHRONIZE || procedure == FLYT_STREAM_SYNCHRONIZE)
        fake.progress.completed = fake.sequence;
    if (procedure != FLYT_MEMORY_ALLOC)
        return;
    if (!blocks_left) {
        ((flyt_memory_alloc_res *)res)->result = CUDA_ERROR_OUT_OF_MEMORY;
        return;
    }
    blocks_left--;
    ((flyt_memory_alloc_res *)res)->address = next_address;
    next_address += 1 << 24;
}

static CUdeviceptr alloc(CUmemoryPool pool, CUstream stream)
{
    CUdeviceptr address;
    assert_int_equal(flyt_pool_alloc(BYTES, pool, stream, &address), CUDA_SUCCESS);
    return address;
}

static void work(CUdeviceptr address, CUstream stream)
{
    struct flyt_fill fill = {.address = address, .width = 16, .height = 1, .depth = 1, .element_bytes = 1};
    assert_int_equal(flyt_fill(&fill, stream, true), CUDA_SUCCESS);
}

static CUmemoryPool make_pool(uint64_t threshold_bytes)
{
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemoryPool pool;
    assert_int_equal(flyt_pool_create(&props, &pool), CUDA_SUCCESS);
    assert_int_equal(flyt_pool_set_attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold_bytes), CUDA_SUCCESS);
    return pool;
}

static uint64_t reserved(CUmemoryPool pool)
{
    cuuint64_t bytes;
    assert_int_equal(flyt_pool_get_attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes), CUDA_SUCCESS);
    return bytes;
}

static CUstream make_stream(void)
{
    CUstream stream;
    assert_int_equal(flyt_stream_create(CU_STREAM_NON_BLOCKING, 0, &stream), CUDA_SUCCESS);
    return stream;
}

static void what_is_freed_comes_back_in_order(void **state)
{
    CUmemoryPool pool = make_pool(UINT64_MAX);
    CUstream one = make_stream(), two = make_stream();
    CUdeviceptr first = alloc(pool, one);
    const unsigned allocs = fake.call_count[FLYT_MEMORY_ALLOC], frees = fake.call_count[FLYT_MEMORY_FREE];
    for (int i = 0; i < 100; i++) { /* in one stream at once, without a message */
        work(first, one);
        assert_int_equal(flyt_pool_free(first, one), CUDA_SUCCESS);
        assert_int_equal(alloc(pool, one), first);
    }
    assert_int_equal(fake.call_count[FLYT_MEMORY_ALLOC], allocs);
    work(first, one);
    fake.progress.completed = fake.sequence - 1;
    assert_int_equal(flyt_pool_free(first, one), CUDA_SUCCESS);
    CUdeviceptr second = alloc(pool, two); /* what uses the first is not complete */
    assert_true(second != first);
    fake.progress.completed = fake.sequence;
    assert_int_equal(alloc(pool, two), first);
    assert_int_equal(fake.call_count[FLYT_MEMORY_ALLOC], allocs + 1);
    assert_int_equal(flyt_pool_free(first, two), CUDA_SUCCESS);
    assert_int_equal(flyt_pool_free(first, two), CUDA_ERROR_INVALID_VALUE); /* twice */
    assert_int_equal(flyt_memory_free(first), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_memory_free(second), CUDA_SUCCESS); /* of a pool, too */
    assert_int_equal(fake.call_count[FLYT_MEMORY_FREE], frees + 1);
    assert_int_equal(flyt_pool_trim(pool, 0), CUDA_SUCCESS);
    assert_int_equal(fake.call_count[FLYT_MEMORY_FREE], frees + 2);
    assert_int_equal(reserved(pool), 0);
    assert_int_equal(flyt_pool_destroy(pool), CUDA_SUCCESS);
    assert_int_equal(flyt_pool_destroy(pool), CUDA_ERROR_INVALID_VALUE);
}

static void what_is_above_the_threshold_goes_at_a_synchronization(void **state)
{
    CUmemoryPool none = make_pool(0), all = make_pool(UINT64_MAX);
    CUstream stream = make_stream();
    CUdeviceptr kept = alloc(all, stream), gone = alloc(none, stream), used = alloc(none, stream);
    const uint64_t bytes = reserved(all);
    work(gone, stream);
    fake.progress.completed = 0;
    assert_int_equal(flyt_pool_free(kept, stream), CUDA_SUCCESS);
    assert_int_equal(flyt_pool_free(gone, stream), CUDA_SUCCESS);
    assert_int_equal(flyt_pool_trim(none, 0), CUDA_SUCCESS); /* nothing is complete */
    assert_int_equal(reserved(none), 2 * bytes);
    assert_int_equal(flyt_stream_synchronize(stream), CUDA_SUCCESS);
    assert_int_equal(reserved(none), bytes);
    assert_int_equal(reserved(all), bytes);
    assert_int_equal(flyt_pool_destroy(none), CUDA_SUCCESS); /* it goes with what is used of it */
    assert_int_equal(flyt_pool_destroy(all), CUDA_SUCCESS);
    const unsigned frees = fake.call_count[FLYT_MEMORY_FREE];
    assert_int_equal(flyt_pool_free(used, stream), CUDA_SUCCESS);
    assert_int_equal(flyt_stream_synchronize(stream), CUDA_SUCCESS);
    assert_int_equal(fake.call_count[FLYT_MEMORY_FREE], frees + 1);
}

static void memory_that_is_kept_is_given_back_where_there_is_none(void **state)
{
    CUmemoryPool pool = make_pool(UINT64_MAX);
    CUstream stream = make_stream();
    CUdeviceptr other, block = alloc(pool, stream);
    work(block, stream);
    fake.progress.completed = 0;
    assert_int_equal(flyt_pool_free(block, stream), CUDA_SUCCESS);
    blocks_left = 0;
    const unsigned waits = fake.call_count[FLYT_DEVICE_SYNCHRONIZE];
    assert_int_equal(flyt_memory_alloc(BYTES, &other), CUDA_SUCCESS); /* of another size, too */
    assert_int_equal(fake.call_count[FLYT_DEVICE_SYNCHRONIZE], waits + 1);
    assert_int_equal(reserved(pool), 0);
    blocks_left = 0;
    assert_int_equal(flyt_memory_alloc(BYTES, &block), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(flyt_pool_alloc(BYTES, pool, stream, &block), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(flyt_memory_free(other), CUDA_SUCCESS);
    assert_int_equal(flyt_pool_destroy(pool), CUDA_SUCCESS);
}

int main(void)
{
    setenv("FLYT_SERVER", "unix:///nowhere", 1);
    fake.serve = serve;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_freed_comes_back_in_order),
        cmocka_unit_test(what_is_above_the_threshold_goes_at_a_synchronization),
        cmocka_unit_test(memory_that_is_kept_is_given_back_where_there_is_none),
    };
    return flyt_runtime_enter() ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
