// Compiled with nvcc's default, the static runtime, which Flyt cannot serve: prints the code of its first call.
// nvcc: -cudart static
#include <stdio.h>

int main(void)
{
    void *p;
    cudaError_t error = cudaMalloc(&p, 4096);
    printf("cudaMalloc %d\n", (int)error);
    return error ? 7 : 0;
}
