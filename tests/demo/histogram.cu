/* A histogram of bytes with atomics in shared and global memory on two streams, compared with the CPU's counts. */
#include "demo.h"
#include <vector>

__global__ void count(const unsigned char *bytes, size_t length, unsigned *bins)
{
    __shared__ unsigned mine[256];
    mine[threadIdx.x] = 0;
    __syncthreads();
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < length; i += gridDim.x * blockDim.x)
        atomicAdd(&mine[bytes[i]], 1u);
    __syncthreads();
    atomicAdd(&bins[threadIdx.x], mine[threadIdx.x]);
}

int main()
{
    const size_t length = 4 << 20, half = length / 2;
    print_device();
    unsigned char *bytes, *device;
    unsigned *bins, *bins_device;
    CHECK(cudaMallocHost(&bytes, length));
    CHECK(cudaMallocHost(&bins, 256 * sizeof *bins));
    std::vector<unsigned> expected(256);
    unsigned state = 7;
    for (size_t i = 0; i < length; i++) {
        state = state * 1664525 + 1013904223;
        bytes[i] = (state >> 24) & (state >> 16);
        expected[bytes[i]]++;
    }
    CHECK(cudaMalloc(&device, length));
    CHECK(cudaMalloc(&bins_device, 256 * sizeof *bins));
    CHECK(cudaMemset(bins_device, 0, 256 * sizeof *bins));
    cudaStream_t streams[2];
    for (int i = 0; i < 2; i++) {
        CHECK(cudaStreamCreate(&streams[i]));
        CHECK(cudaMemcpyAsync(device + i * half, bytes + i * half, half, cudaMemcpyHostToDevice, streams[i]));
        count<<<16, 256, 0, streams[i]>>>(device + i * half, half, bins_device);
    }
    CHECK(cudaMemcpy(bins, bins_device, 256 * sizeof *bins, cudaMemcpyDeviceToHost));
    int differ = 0;
    for (int i = 0; i < 256; i++)
        differ += bins[i] != expected[i];
    printf("    %zu bytes, %d of 256 bins differ from the CPU's: %s\n", length, differ, differ ? "WRONG" : "correct");
    return differ ? 1 : 0;
}
