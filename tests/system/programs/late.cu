// Has memory on its GPU and a stream, and no code there until it is told. usage: late
//
//   run     launches its kernel over its memory and compares it: "right MAJOR.MINOR", as cudaDeviceGetAttribute says
//   end     exit status 0
//
// The first line is "ready". A CUDA error is "error CODE NAME" and exit status 7, a wrong result "wrong …" and 8.
// nvcc: -gencode arch=compute_75,code=compute_75 -gencode arch=compute_90,code=compute_90
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 1 << 20 };

__global__ void turn(unsigned *words, unsigned count)
{
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        words[i] = words[i] * 2654435761u + i;
}

static void check(cudaError_t code)
{
    if (code == cudaSuccess)
        return;
    printf("error %d %s\n", (int)code, cudaGetErrorName(code));
    exit(7);
}

static void run(unsigned *device_words, unsigned *expected)
{
    static unsigned words[WORDS];
    int major, minor;

    turn<<<8, 128>>>(device_words, WORDS);
    check(cudaGetLastError());
    check(cudaMemcpy(words, device_words, sizeof words, cudaMemcpyDeviceToHost));
    for (unsigned i = 0; i < WORDS; i++) {
        expected[i] = expected[i] * 2654435761u + i;
        if (words[i] == expected[i])
            continue;
        printf("wrong word %u: %u, not %u\n", i, words[i], expected[i]);
        exit(8);
    }
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
    printf("right %d.%d\n", major, minor);
}

int main(void)
{
    static unsigned expected[WORDS];
    unsigned *words = NULL;
    cudaStream_t stream;
    char line[64];
    int major;

    setvbuf(stdout, NULL, _IOLBF, 0);
    for (unsigned i = 0; i < WORDS; i++)
        expected[i] = i ^ 0x5bd1e995;
    check(cudaMalloc(&words, sizeof expected));
    check(cudaMemcpy(words, expected, sizeof expected, cudaMemcpyHostToDevice));
    check(cudaStreamCreate(&stream));
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0)); // asked before it moves
    printf("ready\n");
    while (fgets(line, sizeof line, stdin) && strcmp(line, "end\n") != 0)
        run(words, expected);
    check(cudaStreamDestroy(stream));
    check(cudaFree(words));
    return 0;
}
