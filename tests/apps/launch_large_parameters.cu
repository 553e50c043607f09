// Kernel parameters of 4,096 bytes and of the greatest possible size, 32,764 bytes, by value.
#include "check.h"

struct medium {
    int values[1022];
};
struct large {
    int values[(32764 - 8) / 4];
};

template <typename T> __global__ void sum(long long *out, const __grid_constant__ T p)
{
    const int count = (int)(sizeof(p.values) / sizeof(p.values[0]));
    long long s = 0;

    for (int i = threadIdx.x; i < count; i += blockDim.x)
        s += (long long)p.values[i] * (i + 1);
    atomicAdd((unsigned long long *)out, (unsigned long long)s);
}

template <typename T> static void check(void)
{
    static T p;
    const int count = (int)(sizeof(p.values) / sizeof(p.values[0]));
    long long *out, back = 0, want = 0;

    CHECK(cudaMalloc(&out, sizeof(back)));
    CHECK(cudaMemset(out, 0, sizeof(back)));
    for (int i = 0; i < count; i++) {
        p.values[i] = i * 17 - 100000;
        want += (long long)p.values[i] * (i + 1);
    }
    sum<T><<<1, 128>>>(out, p);
    CHECK_LAUNCH();
    memset(&p, 0, sizeof(p));
    CHECK(cudaMemcpy(&back, out, sizeof(back), cudaMemcpyDeviceToHost));
    EXPECT_EQ(back, want);
    CHECK(cudaFree(out));
}

int main(void)
{
    check<medium>();
    check<large>();
    return 0;
}
