// Launches kernels whose blocks run together, as lines of standard input say, and answers each by a line:
// "launch N": a cooperative launch of N blocks of 128 threads, of which one fits an SM (shared memory): "launch CODE",
//   and 0 only where every block has seen all others;
// "sms": "sms ATTRIBUTE PROPERTY": what the program is told that its GPU has;
// "occupancy": "occupancy N": blocks of the kernel per SM;
// "end", also the end of input: "right 0" and exit status 0. The first line is "ready". usage: together
// nvcc: -std=c++17
#include <cooperative_groups.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 128, BLOCKS_MAX = 1024 };

static size_t shared_bytes;

static void check(cudaError_t error)
{
    if (error == cudaSuccess)
        return;
    printf("error %d %s\n", error, cudaGetErrorName(error));
    exit(7);
}

__global__ void meet(unsigned *arrived, unsigned *seen)
{
    extern __shared__ char unused[];
    if (threadIdx.x == 0)
        atomicAdd(arrived, 1);
    cooperative_groups::this_grid().sync();
    if (threadIdx.x == 0)
        seen[blockIdx.x] = *(volatile unsigned *)arrived;
}

static int launch(int blocks)
{
    static unsigned found[BLOCKS_MAX];
    unsigned *arrived, *seen;
    check(cudaMalloc(&arrived, sizeof *arrived));
    check(cudaMalloc(&seen, sizeof found));
    check(cudaMemset(arrived, 0, sizeof *arrived));
    check(cudaMemset(seen, 0, sizeof found));
    void *args[] = {&arrived, &seen};
    cudaError_t error = cudaLaunchCooperativeKernel((void *)meet, blocks, THREADS, args, shared_bytes, 0);
    // A refusal that comes with the answer of a later call counts as the launch's, and is no other call's.
    cudaError_t later = cudaDeviceSynchronize();
    cudaGetLastError();
    error = error == cudaSuccess ? later : error;
    check(cudaMemcpy(found, seen, sizeof found, cudaMemcpyDeviceToHost));
    for (int i = 0; error == cudaSuccess && i < blocks; i++)
        if (found[i] != (unsigned)blocks)
            return -1;
    check(cudaFree(arrived));
    check(cudaFree(seen));
    return error;
}

int main(void)
{
    char line[64];
    int per_sm = 0, most = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    shared_bytes = (size_t)most;
    check(cudaFuncSetAttribute(meet, cudaFuncAttributeMaxDynamicSharedMemorySize, most));
    printf("ready\n");
    while (fgets(line, sizeof line, stdin) && strncmp(line, "end", 3)) {
        int blocks = 0, attribute = 0;
        cudaDeviceProp properties;
        if (sscanf(line, "launch %d", &blocks) == 1 && blocks > 0 && blocks <= BLOCKS_MAX) {
            printf("launch %d\n", launch(blocks));
        } else if (!strncmp(line, "sms", 3)) {
            check(cudaDeviceGetAttribute(&attribute, cudaDevAttrMultiProcessorCount, 0));
            check(cudaGetDeviceProperties(&properties, 0));
            printf("sms %d %d\n", attribute, properties.multiProcessorCount);
        } else if (!strncmp(line, "occupancy", 9)) {
            check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, meet, THREADS, shared_bytes));
            printf("occupancy %d\n", per_sm);
        } else {
            printf("what\n");
        }
    }
    printf("right 0\n");
    return 0;
}
