// Gives the GPU a queue of kernels at once and waits for their end. usage: queue COUNT
// Each kernel takes 64 blocks of 32 threads some steps further; after the last one all words are compared with what the CPU
// computes. Prints "ready" before the first launch, "queued" after the last, "right COUNT" at the end and exits with 0.
#include <stdio.h>
#include <stdlib.h>

enum { BLOCKS = 64, THREADS = 32, STEPS = 150 };

static void check(cudaError_t error)
{
    if (error == cudaSuccess)
        return;
    printf("error %d %s\n", error, cudaGetErrorName(error));
    exit(7);
}

__host__ __device__ static unsigned further(unsigned x, unsigned round)
{
    for (unsigned i = 0; i < STEPS; i++)
        x = (x ^ round) * 1664525u + i;
    return x;
}

__global__ void work(unsigned *words, unsigned round)
{
    unsigned i = blockIdx.x * THREADS + threadIdx.x;
    words[i] = further(words[i], round);
}

int main(int argc, char **argv)
{
    static unsigned found[BLOCKS * THREADS];
    int count = argc > 1 ? atoi(argv[1]) : 0;
    unsigned *words, expected = 0;
    cudaStream_t stream;
    if (count < 1)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    check(cudaMalloc(&words, sizeof found));
    check(cudaMemset(words, 0, sizeof found));
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    check(cudaDeviceSynchronize());
    printf("ready\n");
    for (int round = 0; round < count; round++) {
        work<<<BLOCKS, THREADS, 0, stream>>>(words, round);
        expected = further(expected, round);
    }
    check(cudaGetLastError());
    printf("queued\n");
    check(cudaStreamSynchronize(stream));
    check(cudaMemcpy(found, words, sizeof found, cudaMemcpyDeviceToHost));
    for (int i = 0; i < BLOCKS * THREADS; i++) {
        if (found[i] == expected)
            continue;
        printf("wrong word %d: %u, not %u\n", i, found[i], expected);
        return 8;
    }
    printf("right %d\n", count);
    return 0;
}
