// nvcc: -rdc=true -lcudadevrt
// A program whose kernels launch others, which Flyt refuses: these would run outside of the program's share of the GPU.
// Kernels of its module are refused by name, and the rest of the program works.
#include "capture.h"

__global__ void child(int *p)
{
    *p += 1;
}

__global__ void parent(int *p)
{
    child<<<1, 1>>>(p);
}

int main(void)
{
    int *memory;
    struct capture capture;
    char said[4096];

    if (!is_forwarded())
        SKIP("natively this is supported");
    CHECK(cudaMalloc(&memory, 4));
    capture_begin(&capture, stderr);
    parent<<<1, 1>>>(memory);
    cudaError_t first = cudaGetLastError();
    parent<<<1, 1>>>(memory);
    cudaError_t second = cudaGetLastError();
    capture_end(&capture, said, sizeof(said));
    EXPECT_EQ(first, cudaErrorNotSupported);
    EXPECT_EQ(second, cudaErrorNotSupported);
    EXPECT(count_of(said, "device-side launch") == 1, "said: %s", said);
    CHECK(cudaMemset(memory, 0, 4));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFree(memory));
    return 0;
}
