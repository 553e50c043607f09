// A program with a __managed__ variable, which Flyt does not forward yet: kernels of its module are refused by name,
// and the rest of the program works.
#include "check.h"

__managed__ int shared_variable;

__global__ void add(void)
{
    shared_variable++;
}

int main(void)
{
    int *memory;

    if (!is_forwarded())
        SKIP("natively this is supported");
    add<<<1, 1>>>();
    EXPECT_EQ(cudaGetLastError(), cudaErrorNotSupported);
    CHECK(cudaMalloc(&memory, 4));
    CHECK(cudaMemset(memory, 0, 4));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFree(memory));
    return 0;
}
