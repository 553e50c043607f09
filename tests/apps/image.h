/*
 * The one kernel of the programs image_*.cu, which differ in the form of the fat binary only, and its check.
 * EXPECTED_ON_SOFT is what its launch gives on the software GPU, which runs PTX alone, and EXPECTED_SAYING what is then
 * on the standard error, once; MACHINE_CODE_MAJOR, where
 * the image holds no PTX, is the compute capability that its machine code is for.
 */
#ifndef TESTS_APPS_IMAGE_H
#define TESTS_APPS_IMAGE_H

#include "capture.h"

#ifndef EXPECTED_SAYING
#define EXPECTED_SAYING "a module is refused"
#endif

__device__ const int primes[8] = {2, 3, 5, 7, 11, 13, 17, 19};

__global__ void weigh(int *out, int factor)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    out[i] = primes[i % 8] * factor + i;
}

int main(void)
{
    cudaDeviceProp prop;
    int *out, back[128];

    CHECK(cudaGetDeviceProperties(&prop, 0));
    CHECK(cudaMalloc(&out, sizeof(back)));
    if (IS_SOFT_NAME(prop.name) && EXPECTED_ON_SOFT != cudaSuccess) {
        struct capture capture;
        char said[4096];

        capture_begin(&capture, stderr);
        weigh<<<2, 64>>>(out, 3);
        cudaError_t first = cudaGetLastError();
        weigh<<<2, 64>>>(out, 3);
        cudaError_t second = cudaGetLastError();
        capture_end(&capture, said, sizeof(said));
        EXPECT_EQ(first, EXPECTED_ON_SOFT);
        EXPECT_EQ(second, EXPECTED_ON_SOFT);
        EXPECT(count_of(said, "\n") == 1 && count_of(said, EXPECTED_SAYING) == 1, "said: %s", said);
        CHECK(cudaDeviceSynchronize());
        return 0;
    }
#ifdef MACHINE_CODE_MAJOR
    if (!IS_SOFT_NAME(prop.name) && prop.major != MACHINE_CODE_MAJOR)
        SKIP("the machine code is for compute capability %d.x, the GPU has %d.%d", MACHINE_CODE_MAJOR, prop.major,
             prop.minor);
#endif
    weigh<<<2, 64>>>(out, 3);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, out, sizeof(back), cudaMemcpyDeviceToHost));
    for (int i = 0; i < 128; i++) {
        static const int host_primes[8] = {2, 3, 5, 7, 11, 13, 17, 19};

        EXPECT_EQ(back[i], host_primes[i % 8] * 3 + i);
    }
    CHECK(cudaFree(out));
    return 0;
}

#endif
