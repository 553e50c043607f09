/* Calls that a sound program does not make: each is an error, and the process and its other objects are unharmed. */
#include <string.h>
#include <sys/mman.h>

#include "cpu/softgpu/driver/driver.h"
#include "cpu/softgpu/driver/test.h"

#define WINDOW  ((CUdeviceptr)0x200000000000)
#define GRANULE ((size_t)2 << 20)

static const CUmemAllocationProp extent_prop = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
};

static const CUmemAccessDesc read_write = {
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
};

/* Sizes that run over the end of all addresses. */
static void sizes_do_not_wrap(void **state)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr base;

    assert_ok(cuMemAddressReserve(&base, 2 * GRANULE, 0, WINDOW, 0));
    assert_ok(cuMemCreate(&handle, GRANULE, &extent_prop, 0));
    assert_ok(cuMemMap(base, GRANULE, 0, handle, 0));
    assert_int_equal(cuMemSetAccess(base, 0 - base, &read_write, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemSetAccess(base, 0 - GRANULE, &read_write, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemSetAccess(0 - GRANULE, GRANULE, &read_write, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemUnmap(base, 0 - base), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemUnmap(base, 0 - GRANULE), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemMap(base + GRANULE, 0 - GRANULE, 0, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(cuMemAddressFree(base, 0 - base), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuMemSetAccess(base, GRANULE, &read_write, 1));
    assert_ok(cuMemsetD8(base, 1, GRANULE));
    assert_int_equal(cuMemsetD8(base, 1, 0 - base), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemsetD2D32(base, SIZE_MAX & ~(size_t)3, 1, 4, 3), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuMemUnmap(base, GRANULE));
    assert_ok(cuMemRelease(handle));
    assert_ok(cuMemAddressFree(base, 2 * GRANULE));
}

static void copies_need_two_sides(void **state)
{
    CUDA_MEMCPY2D plane = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                           .srcPitch = 16,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstPitch = 16,
                           .WidthInBytes = 16,
                           .Height = 2};
    CUdeviceptr memory;
    uint32_t word = 7;

    assert_ok(cuMemAlloc(&memory, 64));
    assert_int_equal(cuMemcpyHtoD(memory, NULL, 4), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemcpyDtoH(NULL, memory, 4), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemcpyHtoDAsync(memory, NULL, 4, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemcpyDtoHAsync(NULL, memory, 4, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemcpy(memory, 0, 4), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemcpy(0, memory, 4), CUDA_ERROR_INVALID_VALUE);
    plane.dstDevice = memory;
    assert_int_equal(cuMemcpy2D(&plane), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemcpy2D(NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemcpy3D(NULL), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuMemcpyHtoD(memory, NULL, 0)); /* nothing is copied from nowhere */
    assert_ok(cuMemcpyHtoD(memory, &word, 4));
    word = 0;
    assert_ok(cuMemcpyDtoH(&word, memory, 4));
    assert_int_equal(word, 7);
    assert_ok(cuMemFree(memory));
    assert_int_equal(cuMemFree(memory), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemFreeHost(&word), CUDA_ERROR_INVALID_VALUE);
}

/* A library's module goes with its library, whether it has kernels or not. */
static void modules_of_libraries_stay(void **state)
{
    static const char ptx[] =
        ".version 9.0\n.target sm_75\n.address_size 64\n.visible .global .align 4 .u32 lonely = 42;\n";
    CUlibrary library;
    CUdeviceptr lonely;
    CUmodule module;
    uint32_t value = 0;
    size_t bytes;

    assert_ok(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
    assert_ok(cuLibraryGetModule(&module, library));
    assert_int_equal(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
    assert_ok(cuLibraryGetGlobal(&lonely, &bytes, library, "lonely"));
    assert_int_equal(bytes, 4);
    assert_ok(cuMemcpyDtoH(&value, lonely, 4));
    assert_int_equal(value, 42);
    assert_ok(cuLibraryUnload(library));
}

static CUresult launch_block(CUfunction kernel, unsigned x, unsigned y, unsigned z)
{
    return cuLaunchKernel(kernel, 1, 1, 1, x, y, z, 0, NULL, NULL, NULL);
}

/* The launch itself refuses them (.reqntid, .maxntid), and nothing comes later. */
static void blocks_that_kernels_do_not_take(void **state)
{
    static const char ptx[] =
        ".version 9.0\n.target sm_75\n.address_size 64\n.visible .entry demands() .reqntid 32, 2, 1 { ret; }\n"
        ".visible .entry bounds() .maxntid 16, 4, 1 { ret; }\n";
    CUlibrary library;

    assert_ok(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
    CUfunction demands = test_kernel(library, "demands"), bounds = test_kernel(library, "bounds");
    assert_int_equal(launch_block(demands, 64, 1, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(launch_block(demands, 32, 2, 2), CUDA_ERROR_INVALID_VALUE);
    assert_ok(launch_block(demands, 32, 2, 1));
    assert_int_equal(launch_block(bounds, 65, 1, 1), CUDA_ERROR_INVALID_VALUE);
    assert_ok(launch_block(bounds, 64, 1, 1));
    assert_ok(cuCtxSynchronize());
    assert_ok(cuLibraryUnload(library));
}

/* Streams of a context do not outlive it, though they can still be destroyed. */
static void streams_end_with_their_context(void **state)
{
    CUcontext primary, ctx;
    CUstream stream;
    CUevent event;
    CUdeviceptr memory;

    assert_ok(cuCtxGetCurrent(&primary));
    assert_ok(cuMemAlloc(&memory, 64));
    assert_ok(cuEventCreate(&event, 0));
    assert_ok(cuCtxCreate(&ctx, NULL, 0, 0));
    assert_ok(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    assert_ok(cuMemsetD8Async(memory, 1, 64, NULL)); /* the context's legacy stream comes into being */
    assert_ok(cuMemsetD8Async(memory, 2, 64, stream));
    assert_ok(cuEventRecord(event, stream));
    assert_ok(cuCtxDestroy(ctx));
    assert_ok(cuCtxSetCurrent(primary));
    assert_int_equal(cuMemsetD8Async(memory, 3, 64, stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    assert_int_equal(cuEventRecord(event, stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    assert_int_equal(cuStreamSynchronize(stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    assert_ok(cuEventSynchronize(event));
    assert_ok(cuStreamDestroy(stream));
    assert_ok(cuEventDestroy(event));
    assert_ok(cuMemFree(memory));
}

static _Alignas(4096) char host_memory[3 * 4096];

/* Only memory of the program's own can be registered, and each byte once. */
static void registrations_do_not_overlap(void **state)
{
    CUdeviceptr device_memory, reserved;
    void *pinned;
    uint32_t word = 5;

    assert_ok(cuMemHostRegister(host_memory + 4096, 4096, 0));
    assert_int_equal(cuMemHostRegister(host_memory, sizeof(host_memory), 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    assert_int_equal(cuMemHostRegister(host_memory + 4096, 4096, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    assert_ok(cuMemHostUnregister(host_memory + 4096));
    assert_int_equal(cuMemHostUnregister(host_memory + 4096), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);

    assert_ok(cuMemHostAlloc(&pinned, 2 * GRANULE, 0));
    assert_int_equal(cuMemHostRegister(pinned, 2 * GRANULE, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    assert_ok(cuMemFreeHost(pinned));
    assert_ok(cuMemAlloc(&device_memory, 4 * GRANULE));
    assert_int_equal(cuMemHostRegister((void *)device_memory, 2 * GRANULE, 0), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuMemcpyHtoD(device_memory, &word, 4));
    assert_ok(cuMemFree(device_memory));
    assert_ok(cuMemAddressReserve(&reserved, GRANULE, 0, WINDOW, 0));
    assert_int_equal(cuMemHostRegister((void *)reserved, GRANULE, 0), CUDA_ERROR_INVALID_VALUE);
    /* What the program has put there is its own, as an H200's driver (580.159.04) takes it. */
    assert_ptr_equal(
        mmap((void *)reserved, GRANULE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
        (void *)reserved);
    assert_ok(cuMemHostRegister((void *)reserved, GRANULE, CU_MEMHOSTREGISTER_DEVICEMAP));
    assert_ok(cuMemHostGetDevicePointer(&device_memory, (void *)reserved, 0));
    assert_int_equal(device_memory, reserved);
    assert_ok(cuMemsetD8(reserved, 3, GRANULE));
    assert_ok(cuCtxSynchronize());
    assert_int_equal(((char *)reserved)[GRANULE - 1], 3);
    assert_ok(cuMemHostUnregister((void *)reserved));
    assert_int_equal(cuMemsetD8(reserved, 3, GRANULE), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuMemAddressFree(reserved, GRANULE));
}

enum { HEAP_ROUNDS = 300000 };

static void *ask_for_too_much(void *argument)
{
    for (int i = 0; i < HEAP_ROUNDS; i++)
        if (flyt_soft_heap_alloc(argument, (uint64_t)1 << 40))
            return argument;
    return NULL;
}

/* Device malloc: a request that cannot be met does not make another thread's fail. */
static void a_request_that_fails_takes_nothing(void **state)
{
    struct flyt_soft_device *device = &flyt_soft_driver()->devices[0];
    pthread_t thread;
    void *met;

    assert_int_equal(pthread_create(&thread, NULL, ask_for_too_much, device), 0);
    for (int i = 0; i < HEAP_ROUNDS; i++) {
        uint64_t address = flyt_soft_heap_alloc(device, 64);

        assert_true(address != 0);
        flyt_soft_heap_free(device, address);
        flyt_soft_heap_free(device, address + 16); /* no start of a piece: nothing happens */
    }
    pthread_join(thread, &met);
    assert_null(met);
    assert_int_equal(atomic_load(&device->map.heap_used_bytes), 0);
    assert_int_equal(flyt_soft_heap_alloc(device, UINT64_MAX), 0);
    assert_int_equal(flyt_soft_heap_alloc(device, 0), 0);
}

static int set_up(void **state)
{
    test_start();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_need_two_sides),
        cmocka_unit_test(modules_of_libraries_stay),
        cmocka_unit_test(blocks_that_kernels_do_not_take),
        cmocka_unit_test(registrations_do_not_overlap),
        cmocka_unit_test(streams_end_with_their_context),
        cmocka_unit_test(sizes_do_not_wrap),
        cmocka_unit_test(a_request_that_fails_takes_nothing),
    };

    return cmocka_run_group_tests(tests, set_up, NULL);
}
