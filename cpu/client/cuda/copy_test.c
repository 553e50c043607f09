/*
 * Which small synchronous copies are waited for, and what waits before it: over a channel without a server, which plays
 * one that has executed what the test says.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "cpu/client/bulk/range.h"
#include "cpu/client/core/fake_channel.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/copy.h"
#include "cpu/client/cuda/host.h"
#include "cpu/client/cuda/memory.h"
#include "cpu/client/cuda/stream.h"
#include "rpc/base/id.h"

enum { BUFFER_BYTES = 1 << 20 };

static uint64_t next_address = FLYT_WINDOW_BASE;

/* The last transfer to the host, and the thread of the last copy to the device. */
static uint64_t out_transfer_id, out_bytes;
static uint32_t copying_thread;

/* The bytes of the transfer come when somebody waits. */
static void deliver(void)
{
    void *place = out_bytes ? fake.handlers->chunk_place(fake.user, out_transfer_id, 0, out_bytes) : NULL;
    if (!place)
        return;
    memset(place, 7, out_bytes);
    fake.handlers->chunk_done(fake.user, out_transfer_id, 0, out_bytes);
    out_bytes = 0;
}

static void serve(unsigned procedure, const void *args, void *res, void *data)
{
    switch (procedure) {
    case FLYT_MEMORY_ALLOC:
        ((flyt_memory_alloc_res *)res)->address = next_address;
        next_address += 1 << 24;
        break;
    case FLYT_COPY_IN:
        copying_thread = ((const flyt_copy_in_args *)args)->thread;
        break;
    case FLYT_COPY_OUT_TRANSFER:
        out_transfer_id = ((const flyt_copy_out_transfer_args *)args)->transfer_id;
        out_bytes = ((const flyt_copy_out_transfer_args *)args)->bytes;
        break;
    case FLYT_STREAM_SYNCHRONIZE:
        deliver();
        break;
    default:
        break;
    }
}

static CUresult plain(enum flyt_place dst_place, uint64_t dst, enum flyt_place src_place, uint64_t src, uint64_t bytes,
                      bool is_async)
{
    struct flyt_copy copy = flyt_copy_plain(dst_place, dst, src_place, src, bytes);
    return flyt_copy(&copy, NULL, is_async);
}

static CUresult copy_small(CUdeviceptr device, uint64_t bytes)
{
    static char host[FLYT_INLINE_BYTES_MAX + 1];
    return plain(FLYT_PLACE_DEVICE, device, FLYT_PLACE_HOST, (uint64_t)(uintptr_t)host, bytes, false);
}

/* Whether a copy of so many bytes succeeds and waits. */
static bool waits(CUdeviceptr device, uint64_t bytes)
{
    unsigned before = fake.call_count[FLYT_STREAM_SYNCHRONIZE];
    assert_int_equal(copy_small(device, bytes), CUDA_SUCCESS);
    return fake.call_count[FLYT_STREAM_SYNCHRONIZE] != before;
}

static void launch_work(CUdeviceptr device, CUstream stream)
{
    struct flyt_fill fill = {.address = device, .width = 16, .height = 1, .depth = 1, .element_bytes = 1};
    assert_int_equal(flyt_fill(&fill, stream, true), CUDA_SUCCESS);
}

static void settle(void)
{
    fake.progress.completed = 0; /* nothing is known but by waiting */
    assert_int_equal(flyt_stream_synchronize(NULL), CUDA_SUCCESS);
}

static void test_small_copies_return_early(void **state)
{
    CUdeviceptr device;
    assert_int_equal(flyt_memory_alloc(2 * FLYT_INLINE_BYTES_MAX, &device), CUDA_SUCCESS);
    settle();
    unsigned before = fake.call_count[FLYT_COPY_IN];
    for (int i = 0; i < 5; i++)
        assert_false(waits(device, 1 + (uint64_t)i * FLYT_INLINE_BYTES_MAX / 5));
    assert_false(waits(device, FLYT_INLINE_BYTES_MAX));
    assert_int_equal(fake.call_count[FLYT_COPY_IN], before + 6);
    assert_true(waits(device, FLYT_INLINE_BYTES_MAX + 1));
    /* An error of theirs is told by the next call. */
    assert_false(waits(device, 8));
    fake.handlers->call_error(fake.user, fake.sequence, copying_thread, CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(copy_small(device, 8), CUDA_ERROR_OUT_OF_MEMORY);
    assert_false(waits(device, 8));
    /* A wrong place is refused at the call. */
    before = fake.call_count[FLYT_COPY_IN];
    assert_int_equal(copy_small(device + 2 * FLYT_INLINE_BYTES_MAX - 7, 8), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(copy_small(device + 2 * FLYT_INLINE_BYTES_MAX, 8), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(fake.call_count[FLYT_COPY_IN], before);
}

static void test_small_copies_wait_for_work(void **state)
{
    CUdeviceptr device;
    CUstream blocking;
    assert_int_equal(flyt_memory_alloc(1000, &device), CUDA_SUCCESS);
    assert_int_equal(flyt_stream_create(0, 0, &blocking), CUDA_SUCCESS);
    settle();
    launch_work(device, NULL);
    assert_true(waits(device, 8));
    assert_false(waits(device, 8));
    /* The legacy stream is ordered behind the blocking ones. */
    launch_work(device, blocking);
    assert_true(waits(device, 8));
    assert_false(waits(device, 8));
    /* Known to be complete without having been waited for, and not before. */
    launch_work(device, NULL);
    fake.progress.completed = fake.sequence;
    assert_false(waits(device, 8));
    launch_work(device, blocking);
    fake.progress.completed = fake.sequence - 1;
    assert_true(waits(device, 8));
    /* A synchronization of another stream says nothing of this one. */
    launch_work(device, NULL);
    assert_int_equal(flyt_stream_synchronize(blocking), CUDA_SUCCESS);
    assert_true(waits(device, 8));
    assert_int_equal(flyt_stream_destroy(blocking), CUDA_SUCCESS);
    settle();
}

/* What is waited for always: pinned memory, which CUDA says is read when the copy returns; while bytes still come to
 * the program's memory; and where what comes next may not be ordered behind the copy. */
static void test_small_copies_that_always_wait(void **state)
{
    static char host[64];
    CUdeviceptr device;
    CUstream own = CU_STREAM_PER_THREAD, other;
    void *pinned;
    assert_int_equal(flyt_memory_alloc(BUFFER_BYTES, &device), CUDA_SUCCESS);
    assert_int_equal(flyt_host_alloc(BUFFER_BYTES, 0, &pinned), CUDA_SUCCESS);
    uint64_t address = (uint64_t)(uintptr_t)pinned;
    settle();
    unsigned before = fake.call_count[FLYT_STREAM_SYNCHRONIZE];
    assert_int_equal(plain(FLYT_PLACE_DEVICE, device, FLYT_PLACE_HOST, address, 8, false), CUDA_SUCCESS);
    assert_int_equal(fake.call_count[FLYT_STREAM_SYNCHRONIZE], before + 1);

    struct flyt_copy copy =
        flyt_copy_plain(FLYT_PLACE_DEVICE, device, FLYT_PLACE_HOST, (uint64_t)(uintptr_t)host, sizeof host);
    assert_int_equal(flyt_copy(&copy, own, false), CUDA_SUCCESS);
    assert_int_equal(fake.call_count[FLYT_STREAM_SYNCHRONIZE], before + 2);
    settle();

    /* One that returned early is waited for when there can be something that is not ordered behind it. */
    assert_false(waits(device, 8));
    before = fake.call_count[FLYT_STREAM_SYNCHRONIZE];
    assert_int_equal(flyt_stream_create(CU_STREAM_NON_BLOCKING, 0, &other), CUDA_SUCCESS);
    assert_int_equal(fake.call_count[FLYT_STREAM_SYNCHRONIZE], before + 1);
    assert_true(waits(device, 8));
    assert_int_equal(flyt_stream_destroy(other), CUDA_SUCCESS);
    assert_false(waits(device, 8));

    /* A pinned source may not have been read yet when later small copies are issued. */
    assert_int_equal(plain(FLYT_PLACE_DEVICE, device, FLYT_PLACE_HOST, address, BUFFER_BYTES, true), CUDA_SUCCESS);
    assert_true(waits(device, 8));

    assert_int_equal(plain(FLYT_PLACE_HOST, address, FLYT_PLACE_DEVICE, device, BUFFER_BYTES, true), CUDA_SUCCESS);
    fake.progress.completed = fake.sequence; /* the call is complete, of its bytes none is there */
    assert_true(waits(device, 8));
    assert_int_equal(((char *)pinned)[BUFFER_BYTES - 1], 7);
    assert_false(waits(device, 8));
    assert_int_equal(flyt_host_free(pinned), CUDA_SUCCESS);
}

static void test_a_program_with_two_devices_waits(void **state)
{
    CUdeviceptr device;
    assert_int_equal(flyt_memory_alloc(1000, &device), CUDA_SUCCESS);
    settle();
    assert_false(waits(device, 8));
    assert_int_equal(flyt_runtime_device_set(1), CUDA_SUCCESS);
    unsigned before = fake.call_count[FLYT_STREAM_SYNCHRONIZE];
    assert_true(waits(device, 8)); /* memory of another device than the stream's */
    assert_int_equal(fake.call_count[FLYT_STREAM_SYNCHRONIZE],
                     before + 2); /* and what returned early on the first one */
    assert_int_equal(flyt_runtime_device_set(0), CUDA_SUCCESS);
    settle();
    assert_true(waits(device, 8));
}

int main(void)
{
    setenv("FLYT_SERVER", "unix:///nowhere", 1);
    fake.serve = serve;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_copies_return_early),
        cmocka_unit_test(test_small_copies_wait_for_work),
        cmocka_unit_test(test_small_copies_that_always_wait),
        cmocka_unit_test(test_a_program_with_two_devices_waits),
    };
    return flyt_runtime_enter() ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
