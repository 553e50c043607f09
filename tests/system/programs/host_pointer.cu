// Launches a kernel that follows an address of the program's own memory, of the kind that the argument names, after others
// that did not; prints what the synchronization returned. "none": an address that is nobody's.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct holder {
    int count;
    float *values;
    double weight;
};

__global__ void fill(float *p, size_t count, float value)
{
    for (size_t i = 0; i < count; i++)
        p[i] = value;
}

__global__ void fill_held(float value, struct holder held)
{
    for (int i = 0; i < held.count; i++)
        held.values[i] = value;
}

static float in_program[16];

int main(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "none";
    float on_stack[16], *device, *p = (float *)0x10;
    if (cudaMalloc(&device, 64) != cudaSuccess)
        return 1;
    fill<<<1, 1>>>(device, 16, 1);
    /* Complete, and of no interest whatever it was given: it does not follow it. */
    float *unused = (float *)malloc(64);
    fill<<<1, 1>>>(unused, 0, 1);
    if (cudaDeviceSynchronize() != cudaSuccess)
        return 1;
    if (!strcmp(kind, "pinned") || !strcmp(kind, "held"))
        cudaHostAlloc(&p, 64, 0);
    else if (!strcmp(kind, "heap"))
        p = (float *)malloc(64);
    else if (!strcmp(kind, "mapped"))
        p = (float *)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    else if (!strcmp(kind, "stack"))
        p = on_stack;
    else if (!strcmp(kind, "variable"))
        p = in_program;
    else if (!strcmp(kind, "registered")) {
        p = (float *)aligned_alloc(4096, 4096);
        cudaHostRegister(p, 4096, 0);
    }
    struct holder held = {16, p, 1.5};
    if (!strcmp(kind, "held"))
        fill_held<<<1, 1>>>(2, held);
    else
        fill<<<1, 1>>>(p + 1, (size_t)1 << 40, 2);
    cudaError_t error = cudaDeviceSynchronize();
    printf("%d\n", (int)error);
    return 0;
}
