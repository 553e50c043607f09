/* A fault is sticky. The device is broken from the middle of this program on: the order of its tests matters. */
#include <sched.h>
#include <stdatomic.h>

#include "cpu/softgpu/driver/test.h"

static CUlibrary library;
static CUstream broken_stream;

static int start(void **state)
{
    test_start();
    library = test_library();
    return 0;
}

static void callback(CUstream stream, CUresult status, void *user)
{
    *(CUresult *)user = status;
}

static void host_function(void *user)
{
    atomic_fetch_add((atomic_int *)user, 1);
}

/* Holds its stream until the atomic int is set. */
static void gate(void *user)
{
    while (!atomic_load((atomic_int *)user))
        sched_yield();
}

static void work_behind_a_fault_is_dropped(void **state)
{
    CUresult status = CUDA_SUCCESS;
    atomic_int host_calls = 0, is_open = 0;
    CUdeviceptr word;
    CUevent event;

    assert_ok(cuMemAlloc(&word, 4));
    assert_ok(cuStreamCreate(&broken_stream, CU_STREAM_NON_BLOCKING));
    assert_ok(cuEventCreate(&event, 0));
    /* All of it is submitted before the fault can happen. */
    assert_ok(cuLaunchHostFunc(broken_stream, gate, &is_open));
    assert_ok(test_launch(test_kernel(library, "fault"), broken_stream, word, 1));
    assert_ok(cuLaunchHostFunc(broken_stream, host_function, &host_calls));
    assert_ok(cuStreamAddCallback(broken_stream, callback, &status, 0));
    atomic_store(&is_open, 1);
    assert_int_equal(cuStreamSynchronize(broken_stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(atomic_load(&host_calls), 0);
    assert_int_equal(status, CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(cuEventQuery(event), CUDA_ERROR_ILLEGAL_ADDRESS);
    /* Said to have failed, and done. */
    assert_int_equal(cuEventDestroy(event), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void every_later_call_gives_the_error(void **state)
{
    CUstream stream;
    CUdeviceptr word;
    CUcontext ctx;
    size_t a, b;

    for (int i = 0; i < 2; i++) {
        assert_int_equal(cuMemAlloc(&word, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
        assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
        assert_int_equal(cuStreamCreate(&stream, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
        assert_int_equal(cuStreamQuery(broken_stream), CUDA_ERROR_ILLEGAL_ADDRESS);
        assert_int_equal(cuMemGetInfo(&a, &b), CUDA_ERROR_ILLEGAL_ADDRESS);
        assert_int_equal(test_launch(test_kernel(library, "add"), NULL, 0, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
        /* A new context of the device is no better. */
        assert_ok(cuDevicePrimaryCtxRetain(&ctx, 0));
        assert_ok(cuCtxSetCurrent(ctx));
    }
    assert_int_equal(cuDevicePrimaryCtxReset(0), CUDA_ERROR_NOT_PERMITTED);
}

/* What a GPU's driver still answers, so that memory can be handed on. */
static void memory_can_still_be_shared(void **state)
{
    CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
    };
    CUmemGenericAllocationHandle handle;
    CUcontext ctx;
    CUdevice device;

    assert_ok(cuMemCreate(&handle, 2 << 20, &prop, 0));
    assert_ok(cuMemRelease(handle));
    assert_ok(cuCtxGetCurrent(&ctx));
    assert_ok(cuCtxGetDevice(&device));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_behind_a_fault_is_dropped),
        cmocka_unit_test(every_later_call_gives_the_error),
        cmocka_unit_test(memory_can_still_be_shared),
    };

    return cmocka_run_group_tests(tests, start, NULL);
}
