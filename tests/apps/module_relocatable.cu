// Units compiled apart for the compiler's default architecture (`nvcc -rdc=true`): where the linked machine code does not
// suit the GPU, the units' PTX is linked when the program runs. Variables and functions are shared, static ones of equal
// names are not; function pointers cross units in code, in tables and in kernel parameters.
// nvcc: -rdc=true
// with: relocatable_values.cu relocatable_steps.cu
#include "check.h"
#include "parts/relocatable.h"

extern __global__ void scale(float *values);

static __device__ int own = 3000;
static __device__ __noinline__ int helper(int x)
{
    return 3 * x + own;
}

__global__ void statics(int *out)
{
    own += 100;
    out[0] = helper(1);
    out[1] = from_values(1);
    out[2] = from_steps(1);
    out[3] = times<2>(7) + times<3>(7);
}

__global__ void pointers(int *out, step_fn given)
{
    step_fn mine = twice;

    out[0] = steps[0](21);
    out[1] = steps[1](21);
    out[2] = given(21);
    out[3] = mine == steps[0] && given == steps[1];
}

__global__ void tell(step_fn *out)
{
    *out = steps[1];
}

__global__ void walk(int *out)
{
    int sum = 0;

    for (const struct node *node = list; node; node = node->next)
        sum += node->value;
    out[0] = sum;
}

int main(void)
{
    int *out, back[4] = {0}, value = 0;
    float *values, host[4] = {2, 2, 2, 2}, factor[4];
    step_fn *place, given;

    CHECK(cudaMalloc(&out, sizeof(back)));
    statics<<<1, 1>>>(out);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, out, sizeof(back), cudaMemcpyDeviceToHost));
    EXPECT_EQ(back[0], 3103);
    EXPECT_EQ(back[1], 1002);
    EXPECT_EQ(back[2], 2012);
    EXPECT_EQ(back[3], 35);
    /* One counter for all units and all copies of times. */
    CHECK(cudaMemcpyFromSymbol(&value, counter, sizeof(value)));
    EXPECT_EQ(value, 9);

    CHECK(cudaMalloc(&place, sizeof(*place)));
    tell<<<1, 1>>>(place);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(&given, place, sizeof(given), cudaMemcpyDeviceToHost));
    pointers<<<1, 1>>>(out, given);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, out, sizeof(back), cudaMemcpyDeviceToHost));
    EXPECT_EQ(back[0], 42);
    EXPECT_EQ(back[1], 30);
    EXPECT_EQ(back[2], 30);
    EXPECT_EQ(back[3], 1);

    walk<<<1, 1>>>(out);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, out, sizeof(int), cudaMemcpyDeviceToHost));
    EXPECT_EQ(back[0], 320);

    CHECK(cudaMalloc(&values, sizeof(host)));
    CHECK(cudaMemcpy(values, host, sizeof(host), cudaMemcpyHostToDevice));
    scale<<<1, 4>>>(values);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(host, values, sizeof(host), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpyFromSymbol(factor, factors, sizeof(factor)));
    for (int i = 0; i < 4; i++)
        EXPECT(host[i] == 2 * factor[i] && factor[i] == i + 0.5f, "%d: %f %f", i, host[i], factor[i]);
    CHECK(cudaFree(values));
    CHECK(cudaFree(place));
    CHECK(cudaFree(out));
    return 0;
}
