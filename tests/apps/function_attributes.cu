// Function attributes: what is read of a kernel, and 100 KB of dynamic shared memory after it was asked for.
#include "check.h"

__global__ void with_static_shared(int *p)
{
    __shared__ int s[256];

    s[threadIdx.x] = p[threadIdx.x];
    __syncthreads();
    p[threadIdx.x] = s[255 - threadIdx.x];
}

__global__ void __launch_bounds__(64) bounded(int *p)
{
    p[0] = 1;
}

__global__ void with_local(int *p, int n)
{
    int a[100];

    for (int i = 0; i < 100; i++)
        a[i] = p[i % n];
    for (int i = 0; i < n; i++)
        p[i] += a[p[i] % 100];
}

__global__ void use_dynamic(int *out, int words)
{
    extern __shared__ int dynamic[];

    for (int i = threadIdx.x; i < words; i += blockDim.x)
        dynamic[i] = i * 3;
    __syncthreads();
    if (threadIdx.x == 0) {
        out[0] = dynamic[words - 1];
        out[1] = dynamic[words / 2];
    }
}

int main(void)
{
    const int bytes = 100 * 1024, words = bytes / 4;
    cudaFuncAttributes attr;
    cudaDeviceProp prop;
    int *p, back[2];

    CHECK(cudaGetDeviceProperties(&prop, 0));
    CHECK(cudaMalloc(&p, 1024));
    CHECK(cudaFuncGetAttributes(&attr, (const void *)with_static_shared));
    EXPECT_EQ(attr.sharedSizeBytes, 1024);
    EXPECT_EQ(attr.maxThreadsPerBlock, prop.maxThreadsPerBlock);
    EXPECT(attr.numRegs > 0 && attr.numRegs <= 255, "%d", attr.numRegs);
    EXPECT_EQ(attr.ptxVersion, 75);
    EXPECT(attr.binaryVersion >= 75, "%d", attr.binaryVersion);
    CHECK(cudaFuncGetAttributes(&attr, (const void *)bounded));
    EXPECT_EQ(attr.maxThreadsPerBlock, 64);
    EXPECT_EQ(attr.sharedSizeBytes, 0);
    CHECK(cudaFuncGetAttributes(&attr, (const void *)with_local));
    EXPECT(attr.localSizeBytes >= 400, "%zu", attr.localSizeBytes);

    if (prop.sharedMemPerBlockOptin < (size_t)bytes)
        SKIP("this GPU allows %zu bytes of shared memory per block", prop.sharedMemPerBlockOptin);
    use_dynamic<<<1, 128, bytes>>>(p, words);
    EXPECT_ERR(cudaGetLastError(), cudaErrorInvalidValue);
    CHECK(cudaFuncSetAttribute((const void *)use_dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    CHECK(cudaFuncGetAttributes(&attr, (const void *)use_dynamic));
    EXPECT_EQ(attr.maxDynamicSharedSizeBytes, bytes);
    use_dynamic<<<1, 128, bytes>>>(p, words);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, p, sizeof(back), cudaMemcpyDeviceToHost));
    EXPECT_EQ(back[0], (words - 1) * 3);
    EXPECT_EQ(back[1], words / 2 * 3);

    CHECK(cudaFuncSetAttribute((const void *)use_dynamic, cudaFuncAttributePreferredSharedMemoryCarveout, 50));
    CHECK(cudaFuncSetCacheConfig((const void *)with_static_shared, cudaFuncCachePreferL1));
    EXPECT_ERR(cudaFuncSetAttribute((const void *)use_dynamic, (cudaFuncAttribute)1000, 1), cudaErrorInvalidValue);
    EXPECT_ERR(cudaFuncGetAttributes(&attr, (const void *)&prop), cudaErrorInvalidResourceHandle);
    CHECK(cudaFree(p));
    return 0;
}
