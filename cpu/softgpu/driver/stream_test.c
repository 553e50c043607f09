/* Order within streams, across streams, and of host functions. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "cpu/softgpu/driver/test.h"

static CUlibrary library;

static int start(void **state)
{
    test_start();
    library = test_library();
    return 0;
}

static CUdeviceptr word_new(uint32_t value)
{
    CUdeviceptr word;

    assert_ok(cuMemAlloc(&word, 4));
    assert_ok(cuMemsetD32(word, value, 1));
    return word;
}

static uint32_t word_read(CUdeviceptr word)
{
    uint32_t value;

    assert_ok(cuMemcpyDtoH(&value, word, 4));
    return value;
}

static CUstream stream_new(void)
{
    CUstream stream;

    assert_ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static void a_stream_keeps_its_order(void **state)
{
    CUdeviceptr word = word_new(0);
    CUstream stream = stream_new();
    uint32_t expected = 0;

    for (uint32_t i = 0; i < 200; i++) {
        assert_ok(test_launch(test_kernel(library, "add"), stream, word, i));
        assert_ok(test_launch(test_kernel(library, "mul"), stream, word, 3));
        expected = (expected + i) * 3;
    }
    assert_ok(cuStreamSynchronize(stream));
    assert_int_equal(word_read(word), expected);
    assert_ok(cuStreamDestroy(stream));
    assert_ok(cuMemFree(word));
}

/* The first stream spins until the test lets it go: nothing of the second may have run before. */
static void a_wait_holds_a_stream_up_until_the_event(void **state)
{
    CUdeviceptr gate = word_new(0), word = word_new(1);
    CUstream first = stream_new(), second = stream_new(), third = stream_new();
    CUevent event;

    assert_ok(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    assert_ok(test_launch(test_kernel(library, "spin"), first, gate, 0));
    assert_ok(test_launch(test_kernel(library, "mul"), first, word, 10));
    assert_ok(cuEventRecord(event, first));
    assert_int_equal(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    assert_ok(cuStreamWaitEvent(second, event, 0));
    assert_ok(test_launch(test_kernel(library, "add"), second, word, 5));
    assert_int_equal(cuStreamQuery(second), CUDA_ERROR_NOT_READY);
    /* A stream that has nothing to do with it goes on meanwhile. */
    assert_ok(cuMemsetD32Async(gate, 1, 1, third));
    assert_ok(cuStreamSynchronize(second));
    assert_int_equal(word_read(word), 15);
    assert_ok(cuEventQuery(event));
    assert_ok(cuStreamQuery(first));
    assert_ok(cuEventDestroy(event));
    assert_ok(cuStreamDestroy(first));
    assert_ok(cuStreamDestroy(second));
    assert_ok(cuStreamDestroy(third));
}

/* The wait is for the record that there was when the wait was issued, whatever is recorded later. */
static void recording_again_does_not_move_an_earlier_wait(void **state)
{
    CUdeviceptr gate = word_new(0), word = word_new(0);
    CUstream first = stream_new(), second = stream_new();
    CUevent event;

    assert_ok(cuEventCreate(&event, 0));
    assert_ok(cuEventRecord(event, first));
    assert_ok(cuStreamWaitEvent(second, event, 0));
    assert_ok(test_launch(test_kernel(library, "spin"), first, gate, 0));
    assert_ok(cuEventRecord(event, first));
    assert_ok(test_launch(test_kernel(library, "add"), second, word, 1));
    assert_ok(cuStreamSynchronize(second));
    assert_int_equal(word_read(word), 1);
    assert_int_equal(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    assert_ok(cuMemsetD32(gate, 1, 1));
    assert_ok(cuEventSynchronize(event));
    assert_ok(cuEventDestroy(event));
    assert_ok(cuStreamDestroy(first));
    assert_ok(cuStreamDestroy(second));
}

/* Thirty streams wait for one that spins, with fewer threads than that: waiting takes no thread. */
static void many_streams_may_wait(void **state)
{
    enum { STREAMS = 30 };
    CUdeviceptr gate = word_new(0), word = word_new(0);
    CUstream first = stream_new(), streams[STREAMS];
    CUevent event;

    assert_ok(cuEventCreate(&event, 0));
    assert_ok(test_launch(test_kernel(library, "spin"), first, gate, 0));
    assert_ok(cuEventRecord(event, first));
    for (int i = 0; i < STREAMS; i++) {
        streams[i] = stream_new();
        assert_ok(cuStreamWaitEvent(streams[i], event, 0));
        assert_ok(cuEventRecord(event, streams[i]));
    }
    assert_ok(cuStreamWaitEvent(first, event, 0));
    assert_ok(test_launch(test_kernel(library, "add"), first, word, 1));
    assert_ok(cuMemsetD32(gate, 1, 1));
    assert_ok(cuCtxSynchronize());
    assert_int_equal(word_read(word), 1);
    for (int i = 0; i < STREAMS; i++)
        assert_ok(cuStreamDestroy(streams[i]));
    assert_ok(cuEventDestroy(event));
    assert_ok(cuStreamDestroy(first));
}

struct host_state {
    atomic_int count;
    atomic_bool may_go;
    pthread_t caller;
    bool is_own_thread;
};

static void host_wait(void *user)
{
    struct host_state *host = user;
    struct timespec pause = {.tv_nsec = 100000};

    while (!atomic_load(&host->may_go))
        nanosleep(&pause, NULL);
    host->is_own_thread = pthread_equal(pthread_self(), host->caller);
    atomic_fetch_add(&host->count, 1);
}

static void host_go(void *user)
{
    struct host_state *host = user;

    atomic_store(&host->may_go, true);
}

/* A host function that waits for another stream's does not keep that one from running. */
static void host_functions_run_in_order_and_stop_nobody(void **state)
{
    struct host_state host = {.caller = pthread_self()};
    CUstream first = stream_new(), second = stream_new();

    assert_ok(cuLaunchHostFunc(first, host_wait, &host));
    assert_int_equal(cuStreamQuery(first), CUDA_ERROR_NOT_READY);
    assert_ok(cuLaunchHostFunc(second, host_go, &host));
    assert_ok(cuStreamSynchronize(first));
    assert_int_equal(atomic_load(&host.count), 1);
    assert_false(host.is_own_thread);
    assert_ok(cuStreamDestroy(first));
    assert_ok(cuStreamDestroy(second));
}

static void callback(CUstream stream, CUresult status, void *user)
{
    *(CUresult *)user = status;
}

static void callbacks_are_told_the_status(void **state)
{
    CUresult status = CUDA_ERROR_UNKNOWN;
    CUstream stream = stream_new();

    assert_ok(cuStreamAddCallback(stream, callback, &status, 0));
    assert_ok(cuStreamSynchronize(stream));
    assert_int_equal(status, CUDA_SUCCESS);
    assert_ok(cuStreamDestroy(stream));
}

/* Blocking streams wait for the legacy stream and it for them; non-blocking ones take no part. */
static void the_legacy_stream_joins_blocking_streams(void **state)
{
    CUdeviceptr gate = word_new(0), word = word_new(0);
    CUstream blocking, other = stream_new();

    assert_ok(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    assert_ok(test_launch(test_kernel(library, "spin"), blocking, gate, 0));
    assert_ok(test_launch(test_kernel(library, "add"), blocking, word, 2));
    assert_ok(test_launch(test_kernel(library, "mul"), NULL, word, 7));
    assert_int_equal(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    assert_ok(cuMemsetD32Async(gate, 1, 1, other));
    assert_ok(cuStreamSynchronize(CU_STREAM_LEGACY));
    assert_int_equal(word_read(word), 14);
    assert_ok(cuStreamDestroy(blocking));
    assert_ok(cuStreamDestroy(other));
}

static void events_measure_time(void **state)
{
    CUstream stream = stream_new();
    CUevent a, b;
    float ms = -1;

    assert_ok(cuEventCreate(&a, 0));
    assert_ok(cuEventCreate(&b, 0));
    assert_int_equal(cuEventElapsedTime(&ms, a, b), CUDA_ERROR_INVALID_HANDLE);
    assert_ok(cuEventRecord(a, stream));
    assert_ok(cuEventRecord(b, stream));
    assert_ok(cuEventSynchronize(b));
    assert_ok(cuEventElapsedTime(&ms, a, b));
    assert_true(ms >= 0 && ms < 10000);
    assert_ok(cuEventDestroy(a));
    assert_ok(cuEventDestroy(b));
    assert_ok(cuStreamDestroy(stream));
}

/* A pageable source may be changed as soon as the call has returned, a page-locked one is read by the stream. */
static void the_source_of_a_copy_is_read_when_cuda_says(void **state)
{
    CUdeviceptr gate = word_new(0), a = word_new(0), b = word_new(0);
    CUstream stream = stream_new(), other = stream_new();
    uint32_t pageable = 1, *pinned;

    assert_ok(cuMemHostAlloc((void **)&pinned, 4, 0));
    *pinned = 1;
    assert_ok(test_launch(test_kernel(library, "spin"), stream, gate, 0));
    assert_ok(cuMemcpyHtoDAsync(a, &pageable, 4, stream));
    assert_ok(cuMemcpyHtoDAsync(b, pinned, 4, stream));
    pageable = 2;
    *pinned = 2;
    assert_ok(cuMemsetD32Async(gate, 1, 1, other));
    assert_ok(cuStreamSynchronize(stream));
    assert_int_equal(word_read(a), 1);
    assert_int_equal(word_read(b), 2);
    assert_ok(cuMemFreeHost(pinned));
    assert_ok(cuStreamDestroy(stream));
    assert_ok(cuStreamDestroy(other));
}

/* A stream that is destroyed finishes what it has. */
static void destroying_a_stream_loses_no_work(void **state)
{
    CUdeviceptr gate = word_new(0), word = word_new(0);
    CUstream stream = stream_new();

    assert_ok(test_launch(test_kernel(library, "spin"), stream, gate, 0));
    assert_ok(test_launch(test_kernel(library, "add"), stream, word, 9));
    assert_ok(cuStreamDestroy(stream));
    assert_ok(cuMemsetD32(gate, 1, 1));
    assert_ok(cuCtxSynchronize());
    assert_int_equal(word_read(word), 9);
}

/* A thread's mode is kept and told, whatever number it is, as a GPU's driver does. */
static void capture_modes_are_exchanged(void **state)
{
    CUstreamCaptureMode mode = (CUstreamCaptureMode)9;

    assert_int_equal(cuThreadExchangeStreamCaptureMode(NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
    assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_int_equal(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
    assert_int_equal(mode, 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(capture_modes_are_exchanged),
        cmocka_unit_test(a_stream_keeps_its_order),
        cmocka_unit_test(a_wait_holds_a_stream_up_until_the_event),
        cmocka_unit_test(recording_again_does_not_move_an_earlier_wait),
        cmocka_unit_test(many_streams_may_wait),
        cmocka_unit_test(host_functions_run_in_order_and_stop_nobody),
        cmocka_unit_test(callbacks_are_told_the_status),
        cmocka_unit_test(the_legacy_stream_joins_blocking_streams),
        cmocka_unit_test(events_measure_time),
        cmocka_unit_test(the_source_of_a_copy_is_read_when_cuda_says),
        cmocka_unit_test(destroying_a_stream_loses_no_work),
    };

    return cmocka_run_group_tests(tests, start, NULL);
}
