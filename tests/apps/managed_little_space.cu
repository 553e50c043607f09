// Managed memory where the system gives the program little address space, so that the window of device addresses is not
// reserved: it lies there all the same.
#include <sys/resource.h>
#include "check.h"

__global__ void add(uint32_t *words, size_t count, uint32_t value)
{
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        words[i] += value;
}

static void there_and_back(size_t count)
{
    uint32_t *words = NULL;

    CHECK(cudaMallocManaged((void **)&words, count * sizeof(*words)));
    for (size_t i = 0; i < count; i++)
        words[i] = i;
    add<<<2, 64>>>(words, count, 7);
    CHECK_LAUNCH();
    CHECK(cudaDeviceSynchronize());
    for (size_t i = 0; i < count; i++)
        EXPECT_EQ(words[i], i + 7);
    CHECK(cudaFree(words));
}

int main(void)
{
    struct rlimit limit = {(rlim_t)8 << 30, (rlim_t)8 << 30};

    if (!is_forwarded())
        SKIP("natively CUDA itself takes more");
    if (setrlimit(RLIMIT_AS, &limit))
        SKIP("the system does not limit it");
    there_and_back(1000);
    there_and_back(3 << 20);
    there_and_back(1000);
    return 0;
}
