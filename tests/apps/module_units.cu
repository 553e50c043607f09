// A program of several translation units: each is a module of its own, and statics of the same name stay apart.
// with: unit.cu
#include "check.h"

int unit_bump(int *device_out);

static __device__ int state = 100;
static __global__ void bump(int *out)
{
    *out = ++state;
}

int main(void)
{
    int *out, value = 0;

    CHECK(cudaMalloc(&out, sizeof(int)));
    for (int round = 1; round <= 3; round++) {
        bump<<<1, 1>>>(out);
        CHECK_LAUNCH();
        CHECK(cudaMemcpy(&value, out, sizeof(value), cudaMemcpyDeviceToHost));
        EXPECT_EQ(value, 100 + round);
        EXPECT_EQ(unit_bump(out), 200 + round);
    }
    CHECK(cudaMemcpyFromSymbol(&value, state, sizeof(value)));
    EXPECT_EQ(value, 103);
    CHECK(cudaFree(out));
    return 0;
}
