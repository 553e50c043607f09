// Occupancy: the numbers that follow from the device's limits for a small kernel, their fall with shared memory,
// and block sizes that are suggested can be launched. The driver API says the same.
// nvcc: -lcuda
#include "check.h"
#include <cuda.h>

__global__ void tiny(int *p)
{
    extern __shared__ int s[];

    if (p)
        *p = s[0] = 1;
}

int main(void)
{
    cudaDeviceProp prop;
    int blocks = 0, driver_blocks = 0, few = 0, min_grid = 0, block = 0;
    size_t dynamic = 0;
    cudaFunction_t function;

    CHECK(cudaGetDeviceProperties(&prop, 0));
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, tiny, 256, 0));
    EXPECT_EQ(blocks, prop.maxThreadsPerMultiProcessor / 256);
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, tiny, 32, 0));
    EXPECT_EQ(blocks, prop.maxBlocksPerMultiProcessor);
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, tiny, 1024, 0, cudaOccupancyDefault));
    EXPECT_EQ(blocks, prop.maxThreadsPerMultiProcessor / 1024);

    /* 40,000 bytes each: shared memory is the limit. Blocks also take reservedSharedMemPerBlock bytes. */
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&few, tiny, 64, 40000));
    EXPECT_EQ(few, prop.sharedMemPerMultiprocessor / (40000 + 64 + prop.reservedSharedMemPerBlock));

    CHECK(cudaGetFuncBySymbol(&function, (const void *)tiny));
    CHECK_CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&driver_blocks, (CUfunction)function, 1024, 0));
    EXPECT_EQ(driver_blocks, blocks);

    CHECK(cudaOccupancyMaxPotentialBlockSize(&min_grid, &block, tiny, 0, 0));
    EXPECT(block % 32 == 0 && block > 0 && block <= prop.maxThreadsPerBlock, "%d", block);
    EXPECT(min_grid >= prop.multiProcessorCount, "%d", min_grid);
    CHECK(cudaOccupancyMaxPotentialBlockSize(&min_grid, &block, tiny, 0, 128));
    EXPECT(block > 0 && block <= 128, "%d", block);
    tiny<<<min_grid, block, 4>>>(NULL);
    CHECK_LAUNCH();
    CHECK(cudaDeviceSynchronize());

    CHECK(cudaOccupancyAvailableDynamicSMemPerBlock(&dynamic, tiny, 2, 128));
    EXPECT(dynamic > 0 && dynamic <= prop.sharedMemPerMultiprocessor / 2, "%zu", dynamic);
    EXPECT_ERR(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, (const void *)&prop, 32, 0),
               cudaErrorInvalidResourceHandle);
    return 0;
}
