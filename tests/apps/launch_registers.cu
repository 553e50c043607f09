// A kernel with many values at a time: as many threads as its attributes and the occupancy calculator tell can be
// launched, and one that is refused is refused at its launch.
#include "check.h"

enum { VALUES = 64 };

template <int BOUND> __device__ __forceinline__ void mix(int *out, const int *in)
{
    int v[VALUES], thread = blockIdx.x * blockDim.x + threadIdx.x, sum = 0;

#pragma unroll
    for (int i = 0; i < VALUES; i++)
        v[i] = in[(thread * VALUES + i) % (1024 * VALUES)];
        /* All are needed until the end: each round gives every value something of the one before it. */
#pragma unroll
    for (int round = 0; round < 4; round++)
#pragma unroll
        for (int i = 0; i < VALUES; i++)
            v[i] = v[i] * 3 + v[(i + VALUES - 1) % VALUES];
#pragma unroll
    for (int i = 0; i < VALUES; i++)
        sum = sum * 31 + v[i];
    out[thread] = sum;
}

__global__ void unbounded(int *out, const int *in)
{
    mix<0>(out, in);
}

__global__ void __launch_bounds__(256) bounded(int *out, const int *in)
{
    mix<256>(out, in);
}

static int expected(const int *in, int thread)
{
    unsigned v[VALUES], sum = 0;

    for (int i = 0; i < VALUES; i++)
        v[i] = (unsigned)in[(thread * VALUES + i) % (1024 * VALUES)];
    for (int round = 0; round < 4; round++)
        for (int i = 0; i < VALUES; i++)
            v[i] = v[i] * 3 + v[(i + VALUES - 1) % VALUES];
    for (int i = 0; i < VALUES; i++)
        sum = sum * 31 + v[i];
    return (int)sum;
}

typedef void kernel_fn(int *out, const int *in);

static int in[1024 * VALUES], back[1024];

static void launch(kernel_fn *kernel, int threads, int *d_out, const int *d_in)
{
    CHECK(cudaMemset(d_out, 0, sizeof(back)));
    kernel<<<1, threads>>>(d_out, d_in);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, d_out, sizeof(back), cudaMemcpyDeviceToHost));
    for (int i = 0; i < threads; i++)
        EXPECT_EQ(back[i], expected(in, i));
}

/* What is told of the kernel is consistent; returns the largest block. */
static int check_attributes(kernel_fn *kernel)
{
    cudaFuncAttributes attributes;
    int blocks = 0, grid = 0, block = 0;

    CHECK(cudaFuncGetAttributes(&attributes, (const void *)kernel));
    EXPECT(attributes.numRegs > 0 && attributes.numRegs * attributes.maxThreadsPerBlock <= 65536,
           "%d registers, %d threads", attributes.numRegs, attributes.maxThreadsPerBlock);
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, attributes.maxThreadsPerBlock, 0));
    EXPECT(blocks >= 1, "%d blocks of %d threads", blocks, attributes.maxThreadsPerBlock);
    CHECK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, kernel, 0, 0));
    EXPECT(block >= 32 && block <= attributes.maxThreadsPerBlock, "%d of %d threads", block,
           attributes.maxThreadsPerBlock);
    return attributes.maxThreadsPerBlock;
}

int main(void)
{
    int *d_in, *d_out, most;
    cudaDeviceProp prop;
    uint32_t seed = 7;

    for (int i = 0; i < 1024 * VALUES; i++)
        in[i] = (int)next_random(&seed);
    CHECK(cudaMalloc(&d_in, sizeof(in)));
    CHECK(cudaMalloc(&d_out, sizeof(back)));
    CHECK(cudaMemcpy(d_in, in, sizeof(in), cudaMemcpyHostToDevice));
    most = check_attributes(unbounded);
    CHECK(cudaGetDeviceProperties(&prop, 0));
    if (IS_SOFT_NAME(prop.name)) /* where nobody knows the registers that a GPU would take, none are too many */
        EXPECT_EQ(most, 1024);
    launch(unbounded, most, d_out, d_in);
    most = check_attributes(bounded);
    EXPECT_EQ(most, 256);
    launch(bounded, most, d_out, d_in);
    bounded<<<1, 257>>>(d_out, d_in);
    EXPECT_ERR(cudaGetLastError(), cudaErrorInvalidValue);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFree(d_in));
    CHECK(cudaFree(d_out));
    return 0;
}
