// Works on the GPU until it is killed: allocates 64 MiB, then launches and copies in rounds and prints "round N" for
// each. For tests in which a program ends in the middle, or works beside others.
#include <stdio.h>

__global__ void step(unsigned *values)
{
    unsigned x = values[threadIdx.x];

    for (int i = 0; i < 500; i++)
        x = x * 1664525u + 1013904223u;
    values[threadIdx.x] = x;
}

int main(void)
{
    static unsigned host[1 << 16];
    unsigned *device;
    cudaStream_t stream;

    if (cudaMalloc(&device, 64 << 20) != cudaSuccess || cudaStreamCreate(&stream) != cudaSuccess)
        return 1;
    for (long round = 1;; round++) {
        for (int i = 0; i < 20; i++)
            step<<<2, 64, 0, stream>>>(device);
        if (cudaMemcpyAsync(host, device, sizeof(host), cudaMemcpyDeviceToHost, stream) != cudaSuccess ||
            cudaStreamSynchronize(stream) != cudaSuccess)
            return 1;
        printf("round %ld\n", round);
        fflush(stdout);
    }
}
