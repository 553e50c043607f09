// Running out of device memory is cudaErrorMemoryAllocation, harms nothing, and what is freed can be used again.
// A GPU is asked for impossible sizes only; the software GPU's few GiB are really filled.
#include "check.h"

__global__ void fill(int *p, int value)
{
    p[threadIdx.x] = value + threadIdx.x;
}

static void check_works(void)
{
    int *p, back[64];

    CHECK(cudaMalloc(&p, 64 << 20));
    fill<<<1, 64>>>(p, 5);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, p, sizeof(back), cudaMemcpyDeviceToHost));
    EXPECT_EQ(back[63], 68);
    CHECK(cudaFree(p));
}

static void fill_device(void)
{
    const size_t chunk = 256u << 20;
    void *chunks[256];
    int count = 0, refused_at;
    cudaError_t error;

    while (count < 256 && (error = cudaMalloc(&chunks[count], chunk)) == cudaSuccess)
        count++;
    EXPECT_ERR(error, cudaErrorMemoryAllocation);
    EXPECT(count >= 2, "only %d chunks of 256 MiB", count);
    refused_at = count;
    CHECK(cudaFree(chunks[count / 2]));
    CHECK(cudaMalloc(&chunks[count / 2], chunk));
    while (count > 0)
        CHECK(cudaFree(chunks[--count]));
    /* All of it is there again. */
    while (count < refused_at && cudaMalloc(&chunks[count], chunk) == cudaSuccess)
        count++;
    EXPECT_EQ(count, refused_at);
    while (count > 0)
        CHECK(cudaFree(chunks[--count]));
}

int main(void)
{
    void *p = NULL;
    size_t free_bytes, total_bytes, pitch;
    cudaDeviceProp prop;

    CHECK(cudaGetDeviceProperties(&prop, 0));
    CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
    EXPECT_ERR(cudaMalloc(&p, prop.totalGlobalMem + ((size_t)1 << 30)), cudaErrorMemoryAllocation);
    EXPECT_ERR(cudaMalloc(&p, (size_t)1 << 50), cudaErrorMemoryAllocation);
    EXPECT_ERR(cudaMalloc(&p, SIZE_MAX / 2), cudaErrorMemoryAllocation);
    EXPECT_ERR(cudaMallocPitch(&p, &pitch, (size_t)1 << 30, (size_t)1 << 20), cudaErrorMemoryAllocation);
    check_works();
    if (IS_SOFT_NAME(prop.name))
        fill_device();
    check_works();
    CHECK(cudaGetLastError());
    return 0;
}
