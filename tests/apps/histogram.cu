// Histograms of bytes: with atomics in global memory, in shared memory, and by warp with match.
#include "check.h"

enum { BYTES = 50000, BINS = 256 };

__global__ void in_global(const unsigned char *data, unsigned *bins)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < BYTES; i += gridDim.x * blockDim.x)
        atomicAdd(&bins[data[i]], 1);
}

__global__ void in_shared(const unsigned char *data, unsigned *bins)
{
    __shared__ unsigned own[BINS];

    for (int b = threadIdx.x; b < BINS; b += blockDim.x)
        own[b] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < BYTES; i += gridDim.x * blockDim.x)
        atomicAdd(&own[data[i]], 1);
    __syncthreads();
    for (int b = threadIdx.x; b < BINS; b += blockDim.x)
        atomicAdd(&bins[b], own[b]);
}

/* The lanes that hold the same byte elect one that adds for all. */
__global__ void by_warp(const unsigned char *data, unsigned *bins)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < BYTES; i += gridDim.x * blockDim.x) {
        unsigned same = __match_any_sync(__activemask(), data[i]);

        if ((int)(threadIdx.x % 32) == __ffs((int)same) - 1)
            atomicAdd(&bins[data[i]], (unsigned)__popc(same));
    }
}

int main(void)
{
    static unsigned char data[BYTES];
    unsigned want[BINS] = {0}, back[BINS], *bins;
    unsigned char *device;
    uint32_t seed = 8;

    for (int i = 0; i < BYTES; i++) {
        data[i] = (unsigned char)(next_random(&seed) % 256 & next_random(&seed));
        want[data[i]]++;
    }
    CHECK(cudaMalloc(&device, BYTES));
    CHECK(cudaMalloc(&bins, sizeof(back)));
    CHECK(cudaMemcpy(device, data, BYTES, cudaMemcpyHostToDevice));
    for (int way = 0; way < 3; way++) {
        CHECK(cudaMemset(bins, 0, sizeof(back)));
        if (way == 0)
            in_global<<<12, 128>>>(device, bins);
        else if (way == 1)
            in_shared<<<12, 128>>>(device, bins);
        else
            by_warp<<<12, 128>>>(device, bins);
        CHECK_LAUNCH();
        CHECK(cudaMemcpy(back, bins, sizeof(back), cudaMemcpyDeviceToHost));
        for (int b = 0; b < BINS; b++)
            EXPECT(back[b] == want[b], "way %d, bin %d: %u, expected %u", way, b, back[b], want[b]);
    }
    CHECK(cudaFree(device));
    CHECK(cudaFree(bins));
    return 0;
}
