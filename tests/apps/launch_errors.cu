// Launches that cannot be are refused with CUDA's codes at the launch itself, and the next good one works.
#include "check.h"

__global__ void mark(int *p)
{
    *p = 1;
}
__global__ void __launch_bounds__(64) small_blocks(int *p)
{
    *p = 2;
}
static void not_a_kernel(int *)
{
}

static int *cell;

static void check_still_works(void)
{
    int back = 0;

    CHECK(cudaMemset(cell, 0, sizeof(int)));
    mark<<<1, 1>>>(cell);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(&back, cell, sizeof(back), cudaMemcpyDeviceToHost));
    EXPECT_EQ(back, 1);
}

static void expect_refused(dim3 grid, dim3 block, size_t shared, cudaError_t code, int line)
{
    cudaError_t got;

    mark<<<grid, block, shared>>>(cell);
    got = cudaPeekAtLastError();
    EXPECT(got == code, "line %d: got %s, expected %s", line, cudaGetErrorName(got), cudaGetErrorName(code));
    EXPECT(cudaGetLastError() == code);
    EXPECT(cudaGetLastError() == cudaSuccess);
    check_still_works();
}

int main(void)
{
    cudaDeviceProp prop;
    void *args[] = {&cell};

    CHECK(cudaGetDeviceProperties(&prop, 0));
    CHECK(cudaMalloc(&cell, sizeof(int)));
    expect_refused(dim3(0), dim3(32), 0, cudaErrorInvalidValue, __LINE__);
    expect_refused(dim3(1), dim3(0), 0, cudaErrorInvalidValue, __LINE__);
    expect_refused(dim3(1, 0), dim3(1), 0, cudaErrorInvalidValue, __LINE__);
    expect_refused(dim3(1), dim3(prop.maxThreadsPerBlock + 1), 0, cudaErrorInvalidValue, __LINE__);
    expect_refused(dim3(1), dim3(32, 32, 2), 0, cudaErrorInvalidValue, __LINE__);
    expect_refused(dim3(1), dim3(1, 1, prop.maxThreadsDim[2] + 1), 0, cudaErrorInvalidValue, __LINE__);
    expect_refused(dim3(1, prop.maxGridSize[1] + 1), dim3(1), 0, cudaErrorInvalidValue, __LINE__);
    expect_refused(dim3(1), dim3(1), prop.sharedMemPerBlock + 1, cudaErrorInvalidValue, __LINE__);

    small_blocks<<<1, 128>>>(cell);
    EXPECT(cudaGetLastError() != cudaSuccess, "more threads than __launch_bounds__ allows");
    check_still_works();
    EXPECT_ERR(cudaLaunchKernel((const void *)not_a_kernel, dim3(1), dim3(1), args, 0, 0),
               cudaErrorInvalidResourceHandle);
    EXPECT_ERR(cudaLaunchKernel(NULL, dim3(1), dim3(1), args, 0, 0), cudaErrorInvalidDeviceFunction);
    EXPECT_ERR(cudaFuncSetAttribute((const void *)mark, cudaFuncAttributeMaxDynamicSharedMemorySize, 10 << 20),
               cudaErrorInvalidValue);
    check_still_works();
    CHECK(cudaFree(cell));
    return 0;
}
