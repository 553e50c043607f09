// Relocatable device code with PTX alone, which nvcc leaves to be linked where the program runs, and behind which it
// puts the device runtime: nothing of that is used.
// nvcc: -rdc=true -gencode arch=compute_75,code=compute_75
// with: rdc.cu
#include "check.h"

extern __device__ int shared_counter;
extern __device__ int twice_plus_counter(int x);
extern __global__ void through_both(int *out, int x);

__device__ int defined_in_main(int x)
{
    return twice_plus_counter(x) * 10;
}

int main(void)
{
    int *out, back = 0;

    CHECK(cudaMalloc(&out, sizeof(int)));
    through_both<<<1, 1>>>(out, 2);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(&back, out, sizeof(back), cudaMemcpyDeviceToHost));
    EXPECT_EQ(back, 90);
    CHECK(cudaMemcpyFromSymbol(&back, shared_counter, sizeof(back)));
    EXPECT_EQ(back, 5);
    CHECK(cudaFree(out));
    return 0;
}
