// CUDA_LAUNCH_BLOCKING=1: a launch, and a call of cuBLAS, return when their work is done. Without it a question right behind
// them would find that it is not.
// nvcc: -lcublas
#include "check.h"

#include <cublas_v2.h>
#include <stdlib.h>
#include <vector>

enum { N = 1024, ROUNDS = 3 };

static __global__ void spin(long long cycles, int *out)
{
    long long begin = clock64();
    while (clock64() - begin < cycles)
        ;
    *out = 1;
}

int main()
{
    setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
    cudaStream_t stream;
    cublasHandle_t handle;
    int *flag;
    float *a, *c;
    const float one = 1, zero = 0;
    std::vector<float> ones(N * N, 1.0f), result(N * N);
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMalloc(&flag, sizeof *flag));
    CHECK(cudaMalloc(&a, N * N * sizeof *a));
    CHECK(cudaMalloc(&c, N * N * sizeof *c));
    CHECK(cudaMemcpy(a, ones.data(), N * N * sizeof *a, cudaMemcpyHostToDevice));
    EXPECT_EQ(cublasCreate(&handle), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasSetStream(handle, stream), CUBLAS_STATUS_SUCCESS);
    for (int round = 0; round < ROUNDS; round++) {
        spin<<<1, 1, 0, stream>>>(20000000, flag);
        CHECK(cudaStreamQuery(stream));
        EXPECT_EQ(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, N, N, N, &one, a, N, a, N, &zero, c, N), CUBLAS_STATUS_SUCCESS);
        CHECK(cudaStreamQuery(stream));
    }
    CHECK(cudaMemcpy(result.data(), c, N * N * sizeof *c, cudaMemcpyDeviceToHost));
    for (float value : result)
        EXPECT(value == N, "%g", value);
    EXPECT_EQ(cublasDestroy(handle), CUBLAS_STATUS_SUCCESS);
    return 0;
}
