// Separate compilation: device functions, a kernel and a variable are used across translation units that the
// device linker has joined.
// nvcc: -rdc=true -gencode arch=compute_75,code=compute_75 -gencode arch=compute_90,code=sm_90
// with: rdc.cu
#include "check.h"

extern __device__ int shared_counter;
extern __device__ int twice_plus_counter(int x);
extern __global__ void through_both(int *out, int x);

__device__ int defined_in_main(int x)
{
    return twice_plus_counter(x) * 10;
}

__global__ void use(int *out, int x)
{
    out[0] = twice_plus_counter(x);
    shared_counter++;
}

int main(void)
{
    int *out, back = 0;

    CHECK(cudaMalloc(&out, sizeof(int)));
    use<<<1, 1>>>(out, 50);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(&back, out, sizeof(back), cudaMemcpyDeviceToHost));
    EXPECT_EQ(back, 105);
    through_both<<<1, 1>>>(out, 1);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(&back, out, sizeof(back), cudaMemcpyDeviceToHost));
    EXPECT_EQ(back, 80);
    CHECK(cudaMemcpyFromSymbol(&back, shared_counter, sizeof(back)));
    EXPECT_EQ(back, 6);
    CHECK(cudaFree(out));
    return 0;
}
