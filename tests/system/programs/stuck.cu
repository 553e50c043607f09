// Has the driver wait for a kernel that never ends: unloads a library while a kernel runs, and starts the other kernel
// before that one is done. Says "working" when the first kernel's stream was waited for, and waits to be killed.
#include <stdio.h>
#include <unistd.h>

__global__ void count(unsigned *value, unsigned to)
{
    unsigned x = *value;

    for (unsigned i = 0; i < to; i++)
        x = x * 1664525u + 1013904223u;
    *value = x;
}

__global__ void never_end(volatile unsigned *value)
{
    while (value[1] == 0)
        value[0]++;
}

static const char image[] = ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry nothing()\n{\nret;\n}\n";

int main(void)
{
    unsigned *device;
    cudaStream_t first, second;
    cudaLibrary_t library;

    if (cudaMalloc(&device, 4096) != cudaSuccess || cudaMemset(device, 0, 4096) != cudaSuccess ||
        cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking) != cudaSuccess ||
        cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking) != cudaSuccess ||
        cudaLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0) != cudaSuccess ||
        cudaDeviceSynchronize() != cudaSuccess)
        return 1;
    count<<<1, 1, 0, first>>>(device + 8, 10000000);
    if (cudaLibraryUnload(library) != cudaSuccess)
        return 1;
    never_end<<<1, 1, 0, second>>>(device);
    if (cudaStreamSynchronize(first) != cudaSuccess)
        return 1;
    printf("working\n");
    fflush(stdout);
    for (;;)
        pause();
}
