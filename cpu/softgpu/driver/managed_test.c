/* Managed memory: host and device have it at the same time; what it is, what was said of it, and what is refused. */
#include <stdbool.h>

#include "cpu/softgpu/driver/test.h"

static const CUmemLocation host = {.type = CU_MEM_LOCATION_TYPE_HOST}, device = {.type = CU_MEM_LOCATION_TYPE_DEVICE};

static CUdeviceptr alloc(size_t bytes)
{
    CUdeviceptr memory;

    assert_ok(cuMemAllocManaged(&memory, bytes, CU_MEM_ATTACH_GLOBAL));
    return memory;
}

static void both_sides_have_it(void **state)
{
    CUlibrary library = test_library();
    CUdeviceptr memory = alloc(3 << 20), large = alloc(100);
    volatile uint32_t *word = (uint32_t *)(uintptr_t)(memory + (2 << 20));
    uint32_t back = 0;

    *word = 5;
    assert_ok(test_launch(test_kernel(library, "add"), NULL, (CUdeviceptr)(uintptr_t)word, 7));
    assert_ok(cuCtxSynchronize());
    assert_int_equal(*word, 12);
    assert_ok(cuMemcpyDtoH(&back, (CUdeviceptr)(uintptr_t)word, 4));
    assert_int_equal(back, 12);
    *word = 0; /* while a kernel waits for it */
    assert_ok(test_launch(test_kernel(library, "spin"), NULL, (CUdeviceptr)(uintptr_t)word, 0));
    assert_int_equal(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    *word = 1;
    assert_ok(cuCtxSynchronize());
    assert_ok(cuMemFree(memory));
    assert_ok(cuMemFree(large));
    assert_int_equal(cuMemFree(memory), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuLibraryUnload(library));
}

static void what_it_is(void **state)
{
    CUdeviceptr memory = alloc(5000), base = 0;
    size_t bytes = 0;
    unsigned type = 0;
    bool is_managed = false;
    void *pointer = NULL;

    assert_ok(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, memory + 4999));
    assert_true(is_managed);
    assert_ok(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory));
    assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
    assert_ok(cuPointerGetAttribute(&pointer, CU_POINTER_ATTRIBUTE_HOST_POINTER, memory + 1));
    assert_ptr_equal(pointer, (void *)(uintptr_t)(memory + 1));
    assert_ok(cuMemGetAddressRange(&base, &bytes, memory + 100));
    assert_int_equal(base, memory);
    assert_int_equal(bytes, 5000);
    assert_int_equal(cuMemFreeHost((void *)(uintptr_t)memory), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemHostGetFlags(&type, (void *)(uintptr_t)memory), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuMemFree(memory));
    assert_int_equal(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory), CUDA_ERROR_INVALID_VALUE);
}

static int attribute(CUmem_range_attribute which, CUdeviceptr memory, size_t bytes)
{
    int value = -1000;

    assert_ok(cuMemRangeGetAttribute(&value, sizeof(value), which, memory, bytes));
    return value;
}

static void what_was_said(void **state)
{
    CUdeviceptr memory = alloc(8 * 4096);
    int list[3];

    assert_int_equal(attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, memory, 8 * 4096), CU_DEVICE_INVALID);
    assert_ok(cuMemAdvise(memory + 4096, 5000, CU_MEM_ADVISE_SET_READ_MOSTLY, device));
    assert_int_equal(attribute(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory + 4096, 8192), 1);
    assert_int_equal(attribute(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory, 8192), 0);
    assert_ok(cuMemAdvise(memory, 8 * 4096, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, device));
    assert_int_equal(attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, memory, 8 * 4096), 0);
    assert_ok(cuMemAdvise(memory, 4096, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, host));
    assert_int_equal(attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, memory, 8 * 4096), CU_DEVICE_INVALID);
    assert_int_equal(attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE, memory, 1), CU_MEM_LOCATION_TYPE_HOST);
    assert_ok(cuMemAdvise(memory, 4096, CU_MEM_ADVISE_SET_ACCESSED_BY, host));
    assert_ok(cuMemAdvise(memory, 4096, CU_MEM_ADVISE_SET_ACCESSED_BY, device));
    assert_ok(cuMemRangeGetAttribute(list, sizeof(list), CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, memory, 4096));
    assert_int_equal(list[0], CU_DEVICE_CPU);
    assert_int_equal(list[1], 0);
    assert_int_equal(list[2], CU_DEVICE_INVALID);
    assert_ok(cuMemPrefetchAsync(memory, 8 * 4096, device, 0, NULL));
    assert_int_equal(attribute(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, memory, 8 * 4096), 0);
    assert_ok(cuMemFree(memory));
}

static void refusals(void **state)
{
    CUdeviceptr memory = alloc(4096), ordinary;
    CUstream stream;
    int value;

    assert_ok(cuMemAlloc(&ordinary, 4096));
    assert_ok(cuStreamCreate(&stream, 0));
    assert_int_equal(cuMemAllocManaged(&ordinary, 0, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAllocManaged(&ordinary, 4, CU_MEM_ATTACH_SINGLE), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAdvise(ordinary, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, host), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAdvise(memory, 8192, CU_MEM_ADVISE_SET_READ_MOSTLY, host), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAdvise(memory, 4096, 0, host), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemRangeGetAttribute(&value, 3, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory, 4096),
                     CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuStreamAttachMemAsync(stream, memory, 0, CU_MEM_ATTACH_SINGLE));
    assert_ok(cuStreamAttachMemAsync(stream, memory, 4096, CU_MEM_ATTACH_HOST));
    assert_int_equal(cuStreamAttachMemAsync(NULL, memory, 0, CU_MEM_ATTACH_SINGLE), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuStreamAttachMemAsync(stream, memory, 5, CU_MEM_ATTACH_SINGLE), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuStreamAttachMemAsync(stream, ordinary, 0, CU_MEM_ATTACH_SINGLE), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuStreamDestroy(stream));
    assert_ok(cuMemFree(ordinary));
    assert_ok(cuMemFree(memory));
}

static int start(void **state)
{
    test_start();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_sides_have_it),
        cmocka_unit_test(what_it_is),
        cmocka_unit_test(what_was_said),
        cmocka_unit_test(refusals),
    };

    return cmocka_run_group_tests(tests, start, NULL);
}
