// Launches in steps, as programs of CUDA 3 made them: block, shared memory and parameters are set one by one, stay for
// the launches that follow, and the function is launched with a grid or as one block.
// nvcc: -lcuda -Wno-deprecated-declarations -Xcompiler -Wno-deprecated-declarations
#include "check.h"
#include <cuda.h>

enum { BLOCKS = 6, THREADS = 32, WORDS = BLOCKS * 2 * THREADS };

extern __shared__ unsigned shared[];

__global__ void note(unsigned *words, unsigned term, float factor)
{
    unsigned block = blockIdx.x + blockIdx.y * gridDim.x;
    shared[threadIdx.x] = (unsigned)(factor * 2) + term;
    __syncthreads();
    words[block * blockDim.x + threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x] + block;
}

static unsigned *words;

static void expect_blocks(CUstream stream, unsigned count, unsigned base)
{
    static unsigned got[WORDS];
    CHECK_CU(cuMemcpyDtoHAsync(got, (CUdeviceptr)(uintptr_t)words, sizeof got, stream));
    CHECK_CU(cuStreamSynchronize(stream));
    for (unsigned i = 0; i < WORDS; i++)
        EXPECT_EQ(got[i], i / THREADS < count ? base + i / THREADS : 0);
    CHECK_CU(cuMemsetD8Async((CUdeviceptr)(uintptr_t)words, 0, sizeof got, stream));
    CHECK_CU(cuStreamSynchronize(stream));
}

int main(void)
{
    cudaFunction_t runtime_function;
    CUstream stream;
    CHECK(cudaMalloc((void **)&words, WORDS * sizeof *words));
    CHECK(cudaMemset(words, 0, WORDS * sizeof *words));
    CHECK(cudaGetFuncBySymbol(&runtime_function, (const void *)note));
    CUfunction function = (CUfunction)runtime_function;
    CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_CU(cuFuncSetBlockShape(function, THREADS, 1, 1));
    CHECK_CU(cuFuncSetSharedSize(function, THREADS * sizeof(unsigned)));
    CHECK_CU(cuParamSetv(function, 0, &words, sizeof words));
    CHECK_CU(cuParamSeti(function, 8, 100));
    CHECK_CU(cuParamSetf(function, 12, 2.5f));
    CHECK_CU(cuParamSetSize(function, 16));
    CHECK_CU(cuLaunch(function));
    CHECK_CU(cuStreamSynchronize(NULL));
    expect_blocks(NULL, 1, 105);
    CHECK_CU(cuLaunchGrid(function, BLOCKS, 1));
    expect_blocks(NULL, BLOCKS, 105);
    CHECK_CU(cuParamSeti(function, 8, 7));
    CHECK_CU(cuLaunchGridAsync(function, BLOCKS, 2, stream));
    CHECK_CU(cuParamSeti(function, 8, 8)); // what was launched goes on
    expect_blocks(stream, BLOCKS * 2, 12);
    EXPECT(cuLaunchGrid(function, 0, 1) != CUDA_SUCCESS, "no blocks");
    EXPECT(cuFuncSetBlockShape(function, 0, 1, 1) != CUDA_SUCCESS, "no threads");
    EXPECT_CU(cuLaunch(NULL), CUDA_ERROR_INVALID_HANDLE);
    CHECK_CU(cuStreamDestroy(stream));
    CHECK(cudaFree(words));
    return 0;
}
