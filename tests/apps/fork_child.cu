// fork: a child made before the first CUDA call uses CUDA as any process; a child made afterwards cannot (CUDA
// says so), ends normally, and leaves the parent's CUDA undisturbed.
#include "check.h"

__global__ void square(int *p)
{
    p[threadIdx.x] = threadIdx.x * threadIdx.x;
}

static void use_cuda(void)
{
    int *p, back[64];

    CHECK(cudaMalloc(&p, sizeof(back)));
    square<<<1, 64>>>(p);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, p, sizeof(back), cudaMemcpyDeviceToHost));
    for (int i = 0; i < 64; i++)
        EXPECT_EQ(back[i], i * i);
    CHECK(cudaFree(p));
}

static int fresh_child(void)
{
    use_cuda();
    return 21;
}

static int late_child(void)
{
    return 22;
}

static int late_child_that_tries(void)
{
    void *p = NULL;

    return cudaMalloc(&p, 1024) == cudaErrorInitializationError ? 23 : 1;
}

int main(void)
{
    EXPECT_EQ(run_in_child(fresh_child), 21);
    use_cuda();
    EXPECT_EQ(run_in_child(late_child), 22);
    use_cuda();
    EXPECT_EQ(run_in_child(late_child_that_tries), 23);
    use_cuda();
    return 0;
}
