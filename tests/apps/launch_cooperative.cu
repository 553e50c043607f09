// A cooperative launch synchronizes its whole grid, by the runtime's own call and as a launch attribute; more
// blocks than fit at once are refused.
// nvcc: -std=c++17
#include "check.h"
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

enum { BLOCKS = 8, THREADS = 64, ROUNDS = 5 };

/* Each round every block reads what its neighbour wrote in the round before. */
__global__ void rotate(int *cells, int *next)
{
    cg::grid_group grid = cg::this_grid();
    int b = blockIdx.x;

    for (int round = 0; round < ROUNDS; round++) {
        if (threadIdx.x == 0)
            next[b] = cells[(b + 1) % gridDim.x] + 1;
        grid.sync();
        if (threadIdx.x == 0)
            cells[b] = next[b];
        grid.sync();
    }
    if (grid.thread_rank() == 0)
        next[BLOCKS] = (int)grid.size();
}

static void check_result(int *cells, int *next)
{
    int back[BLOCKS + 1];

    CHECK(cudaMemcpy(back, cells, BLOCKS * sizeof(int), cudaMemcpyDeviceToHost));
    for (int b = 0; b < BLOCKS; b++)
        EXPECT_EQ(back[b], (b + ROUNDS) % BLOCKS * 100 + ROUNDS);
    CHECK(cudaMemcpy(back, next, sizeof(back), cudaMemcpyDeviceToHost));
    EXPECT_EQ(back[BLOCKS], BLOCKS * THREADS);
}

int main(void)
{
    int *cells, *next, start[BLOCKS], supported = 0, per_sm = 0;
    void *args[] = {&cells, &next};
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute = {};
    cudaDeviceProp prop;

    CHECK(cudaGetDeviceProperties(&prop, 0));
    CHECK(cudaDeviceGetAttribute(&supported, cudaDevAttrCooperativeLaunch, 0));
    EXPECT_EQ(supported, 1);
    for (int b = 0; b < BLOCKS; b++)
        start[b] = b * 100;
    CHECK(cudaMalloc(&cells, sizeof(start)));
    CHECK(cudaMalloc(&next, sizeof(start) + sizeof(int)));

    CHECK(cudaMemcpy(cells, start, sizeof(start), cudaMemcpyHostToDevice));
    CHECK(cudaLaunchCooperativeKernel((const void *)rotate, dim3(BLOCKS), dim3(THREADS), args, 0, 0));
    check_result(cells, next);

    CHECK(cudaMemcpy(cells, start, sizeof(start), cudaMemcpyHostToDevice));
    config.gridDim = dim3(BLOCKS);
    config.blockDim = dim3(THREADS);
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
    CHECK(cudaLaunchKernelExC(&config, (const void *)rotate, args));
    check_result(cells, next);

    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, rotate, THREADS, 0));
    EXPECT_ERR(cudaLaunchCooperativeKernel((const void *)rotate, dim3(per_sm * prop.multiProcessorCount + 1),
                                           dim3(THREADS), args, 0, 0),
               cudaErrorCooperativeLaunchTooLarge);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFree(cells));
    CHECK(cudaFree(next));
    return 0;
}
