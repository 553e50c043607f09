// A program with a __managed__ variable, which Flyt does not forward yet: kernels of its module are refused by name,
// and the rest of the program works.
#include "capture.h"

__managed__ int shared_variable;

__global__ void add(void)
{
    shared_variable++;
}

int main(void)
{
    int *memory;
    struct capture capture;
    char said[4096];

    if (!is_forwarded())
        SKIP("natively this is supported");
    capture_begin(&capture, stderr);
    add<<<1, 1>>>();
    cudaError_t first = cudaGetLastError();
    add<<<1, 1>>>();
    cudaError_t second = cudaGetLastError();
    capture_end(&capture, said, sizeof(said));
    EXPECT_EQ(first, cudaErrorNotSupported);
    EXPECT_EQ(second, cudaErrorNotSupported);
    EXPECT(count_of(said, "managed variable shared_variable") == 1, "said: %s", said);
    EXPECT(count_of(said, "\n") == 1, "said: %s", said);
    CHECK(cudaMalloc(&memory, 4));
    CHECK(cudaMemset(memory, 0, 4));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFree(memory));
    return 0;
}
