// The one attribute of pointers that a program sets: synchronous memory operations. What is refused.
// nvcc: -lcuda
#include "check.h"
#include <cuda.h>

static unsigned sync_memops(CUdeviceptr address)
{
    unsigned value = 7;

    CHECK_CU(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address));
    return value;
}

// Copies within the device, and fills, which return early else, are complete when they return.
static void check_copies(CUdeviceptr words, CUdeviceptr others, size_t bytes)
{
    unsigned value = 0;

    for (int round = 1; round <= 20; round++) {
        CHECK_CU(cuMemsetD32(words, (unsigned)round, bytes / 4));
        CHECK_CU(cuStreamQuery(NULL));
        CHECK_CU(cuMemcpyDtoD(others, words, bytes));
        CHECK_CU(cuStreamQuery(NULL));
        CHECK_CU(cuMemcpyDtoH(&value, others + bytes - 4, 4));
        EXPECT_EQ(value, (unsigned)round);
    }
}

int main(void)
{
    CUdeviceptr words, others;
    void *pinned;
    unsigned on = 1, off = 0;
    size_t bytes = 1 << 20;
    unsigned on_stack;

    CHECK(cudaFree(NULL));
    CHECK_CU(cuMemAlloc(&words, bytes));
    CHECK_CU(cuMemAlloc(&others, bytes));
    CHECK_CU(cuMemAllocHost(&pinned, 4096));
    EXPECT_EQ(sync_memops(words), 0u);
    CHECK_CU(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, words + 256));
    EXPECT_EQ(sync_memops(words), 1u);
    EXPECT_EQ(sync_memops(others), 0u);
    check_copies(words, others, bytes);
    CHECK_CU(cuPointerSetAttribute(&off, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, words));
    EXPECT_EQ(sync_memops(words), 0u);
    EXPECT_CU(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_BUFFER_ID, words), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, (CUdeviceptr)&on_stack),
              CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemFreeHost(pinned));
    CHECK_CU(cuMemFree(words));
    CHECK_CU(cuMemFree(others));
    return 0;
}
