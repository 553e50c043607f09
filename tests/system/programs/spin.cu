// One kernel: "spin STEPS" launches it, says "launched", waits for its end and says "done"; STEPS 0: it never ends. A CUDA
// error is "error CODE NAME" and exit status 7.
#include <stdio.h>
#include <stdlib.h>

__global__ void spin(volatile unsigned *value, unsigned steps)
{
    for (unsigned i = 0; !steps || i < steps; i++)
        value[threadIdx.x] = value[threadIdx.x] * 1664525u + 1013904223u;
}

static void check(cudaError_t error)
{
    if (error) {
        printf("error %d %s\n", (int)error, cudaGetErrorName(error));
        fflush(stdout);
        _Exit(7);
    }
}

int main(int argc, char **argv)
{
    unsigned *value;

    check(cudaMalloc(&value, 32 * sizeof *value));
    spin<<<1, 32>>>(value, argc > 1 ? strtoul(argv[1], NULL, 10) : 0);
    check(cudaGetLastError());
    puts("launched");
    fflush(stdout);
    check(cudaDeviceSynchronize());
    puts("done");
    fflush(stdout);
    getchar(); // until its input ends
    return 0;
}
