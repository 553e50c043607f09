// A store far outside a block's shared memory, and one to NULL, end the context and nothing else: each
// happens in a process of its own, while the parent, which starts CUDA afterwards, is undisturbed.
#include "check.h"

__global__ void beyond_shared(int *out, unsigned offset)
{
    __shared__ int s[32];

    s[threadIdx.x] = threadIdx.x;
    *(volatile int *)((char *)s + offset) = 1;
    out[threadIdx.x] = s[threadIdx.x];
}

__global__ void write_to_null(int *out)
{
    *(volatile int *)NULL = 5, *out = 1;
}

static int store_beyond_shared(void)
{
    cudaError_t error;
    int *out;

    CHECK(cudaMalloc(&out, 128));
    beyond_shared<<<1, 32>>>(out, 64u << 20);
    CHECK_LAUNCH();
    error = cudaDeviceSynchronize();
    /* Which one it is depends on the GPU's generation: an H200 says illegal instruction. */
    EXPECT(error == cudaErrorIllegalAddress || error == cudaErrorLaunchFailure || error == cudaErrorIllegalInstruction,
           "%s", cudaGetErrorName(error));
    EXPECT(cudaGetLastError() == error && cudaStreamQuery(NULL) == error);
    return 41;
}

static int store_to_null(void)
{
    int *out;

    CHECK(cudaMalloc(&out, 128));
    write_to_null<<<1, 1>>>(out);
    CHECK_LAUNCH();
    return cudaDeviceSynchronize() == cudaErrorIllegalAddress ? 42 : 1;
}

int main(void)
{
    int *out, back[32];

    EXPECT_EQ(run_in_child(store_beyond_shared), 41);
    EXPECT_EQ(run_in_child(store_to_null), 42);
    CHECK(cudaMalloc(&out, sizeof(back)));
    beyond_shared<<<1, 32>>>(out, 0);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, out, sizeof(back), cudaMemcpyDeviceToHost));
    EXPECT_EQ(back[31], 31);
    return 0;
}
