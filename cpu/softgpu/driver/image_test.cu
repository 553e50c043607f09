/* Device code for image_test.c, which loads it in every form that nvcc gives images. */
#include <cooperative_groups.h>
#include <cstdio>

__device__ int offset_by = 100;
__constant__ int factors[4] = {1, 2, 3, 4};

extern "C" __global__ void scale(int *data, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < count)
        data[i] = data[i] * factors[i % 4] + offset_by;
}

extern "C" __global__ void say(const char *what, int number)
{
    printf("%s says %d\n", what ? "something" : "nothing", number);
}

/* Every thread takes memory, so that the block's sum is right only if the pieces do not overlap. */
extern "C" __global__ void heap(int *sum)
{
    int *mine = (int *)malloc(64);

    if (!mine)
        return;
    for (int i = 0; i < 16; i++)
        mine[i] = threadIdx.x;
    __syncthreads();
    atomicAdd(sum, mine[15]);
    free(mine);
}

/* Each block needs what every other has written before the grid's barrier. */
extern "C" __global__ void together(int *data, int *sum)
{
    cooperative_groups::grid_group grid = cooperative_groups::this_grid();

    if (threadIdx.x == 0)
        data[blockIdx.x] = blockIdx.x + 1;
    grid.sync();
    if (threadIdx.x == 0)
        atomicAdd(sum, data[(blockIdx.x + 1) % gridDim.x]);
}
