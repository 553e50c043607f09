// Programs read a row before their first allocation, as one-sided stencils do at their edge. On a GPU there is
// something of the driver's; here there is memory, clear, which belongs to nobody.
#include "check.h"

__global__ void sum_before(const unsigned *p, unsigned *out)
{
    unsigned sum = 0;

    for (int i = 1; i <= 4096; i++)
        sum += p[-i];
    *out = sum;
}

static int read_before(size_t bytes)
{
    unsigned *first, *out, sum = 1;

    CHECK(cudaMalloc(&first, bytes));
    CHECK(cudaMalloc(&out, sizeof(*out)));
    CHECK(cudaMemset(first, 0xff, bytes));
    sum_before<<<1, 1>>>(first, out);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(&sum, out, sizeof(sum), cudaMemcpyDeviceToHost));
    EXPECT_EQ(sum, 0);
    /* It belongs to nobody: no copy reaches it. */
    EXPECT_ERR(cudaMemcpy(&sum, first - 1, sizeof(sum), cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    return 0;
}

static int small_first(void)
{
    return read_before(1000);
}

static int large_first(void)
{
    return read_before(32 << 20);
}

int main(void)
{
    if (!is_forwarded())
        SKIP("natively nobody knows what is there");
    EXPECT_EQ(run_in_child(small_first), 0);
    EXPECT_EQ(run_in_child(large_first), 0);
    return 0;
}
