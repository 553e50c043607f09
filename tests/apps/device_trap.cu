// A kernel that traps ends the context: the error is reported by the next synchronization and by every call after.
#include "check.h"

__global__ void trap_if(int condition, int *p)
{
    if (condition)
        __trap();
    *p = 1;
}

int main(void)
{
    cudaError_t error;
    int *p, back = 0;

    CHECK(cudaMalloc(&p, sizeof(int)));
    trap_if<<<1, 1>>>(0, p);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(&back, p, sizeof(back), cudaMemcpyDeviceToHost));
    EXPECT_EQ(back, 1);
    trap_if<<<1, 32>>>(1, p);
    CHECK_LAUNCH();
    error = cudaDeviceSynchronize();
    /* Which of the two depends on the GPU's generation. */
    EXPECT(error == cudaErrorLaunchFailure || error == cudaErrorIllegalInstruction, "%s", cudaGetErrorName(error));
    EXPECT(cudaMemset(p, 0, sizeof(int)) == error);
    EXPECT(cudaFree(p) == error);
    EXPECT(cudaGetLastError() == error && cudaStreamQuery(NULL) == error && cudaGetLastError() == error);
    return 0;
}
