// A kernel that launches another one is refused by these words, and the rest of the program works.
// nvcc: -rdc=true -lcudadevrt -gencode arch=compute_90,code=compute_90
#include "capture.h"

__global__ void child(int *out)
{
    *out = 1;
}

__global__ void parent(int *out)
{
    child<<<1, 1>>>(out);
}

int main(void)
{
    struct capture capture;
    char said[4096];
    int *out;

    if (!is_forwarded())
        SKIP("natively this is supported");
    CHECK(cudaMalloc(&out, 4));
    capture_begin(&capture, stderr);
    parent<<<1, 1>>>(out);
    cudaError_t first = cudaGetLastError();
    parent<<<1, 1>>>(out);
    cudaError_t second = cudaGetLastError();
    capture_end(&capture, said, sizeof(said));
    EXPECT_EQ(first, cudaErrorNotSupported);
    EXPECT_EQ(second, cudaErrorNotSupported);
    EXPECT(count_of(said, "\n") == 1 && count_of(said, "device-side launch") == 1, "said: %s", said);
    CHECK(cudaMemset(out, 0, 4));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFree(out));
    return 0;
}
