// Has the address of page-locked host memory in device memory alone: no launch and no call of a library names it. At each
// "check" a kernel adds to that memory by it, and "right N" is printed where the host sees what it expects. "forget" takes
// the address out of device memory.
#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 4096 };

struct holder {
    uint32_t padding[3], count;
    uint32_t *values;
};

__global__ void add(const struct holder *holder, uint32_t step)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (holder->values && i < holder->count)
        holder->values[i] += step * (i + 1);
}

static void check(cudaError_t error)
{
    if (!error)
        return;
    printf("cuda %d %s\n", (int)error, cudaGetErrorName(error));
    exit(1);
}

int main(void)
{
    char line[64];
    uint32_t sums = 0, checks = 0;
    struct holder holder = {{0}, COUNT, NULL}, *device;

    check(cudaMallocHost((void **)&holder.values, COUNT * sizeof *holder.values));
    memset(holder.values, 0, COUNT * sizeof *holder.values);
    check(cudaMalloc((void **)&device, sizeof *device));
    check(cudaMemcpy(device, &holder, sizeof holder, cudaMemcpyHostToDevice));
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && strcmp(line, "end\n") != 0) {
        if (!strcmp(line, "forget\n")) {
            check(cudaMemset(device, 0, sizeof *device));
            printf("forgotten\n");
        } else {
            sums += ++checks;
            add<<<COUNT / 256, 256>>>(device, checks);
            check(cudaDeviceSynchronize());
            for (uint32_t i = 0; i < COUNT; i++)
                if (holder.values[i] != sums * (i + 1)) {
                    printf("wrong: value %u is %u\n", i, holder.values[i]);
                    return 1;
                }
            printf("right %u\n", checks);
        }
        fflush(stdout);
    }
    printf("ended\n");
    return 0;
}
