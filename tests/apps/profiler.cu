// Profiler start and stop may stand around work, without a profiler too.
// nvcc: -lcuda
#include "check.h"
#include <cuda.h>
#include <cudaProfiler.h>
#include <cuda_profiler_api.h>

__global__ void set(int *p)
{
    *p = 6;
}

int main(void)
{
    int *p, back = 0;

    CHECK(cudaMalloc(&p, sizeof(int)));
    CHECK(cudaProfilerStart());
    set<<<1, 1>>>(p);
    CHECK_LAUNCH();
    CHECK(cudaProfilerStop());
    CHECK_CU(cuProfilerStart());
    CHECK_CU(cuProfilerStop());
    CHECK(cudaMemcpy(&back, p, sizeof(back), cudaMemcpyDeviceToHost));
    EXPECT_EQ(back, 6);
    CHECK(cudaFree(p));
    return 0;
}
