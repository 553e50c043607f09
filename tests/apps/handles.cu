// Handles that are not (or no longer) valid are refused without harm. CUDA leaves the use of destroyed handles
// undefined, so that part runs forwarded only: Flyt finds every unknown handle.
// nvcc: -lcuda
#include "check.h"
#include <cuda.h>

__global__ void set(int *p)
{
    *p = 1;
}

static void check_destroyed(void)
{
    cudaStream_t stream;
    cudaEvent_t event;
    float ms;

    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaEventCreate(&event));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaEventDestroy(event));
    EXPECT_ERR(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
    EXPECT_ERR(cudaStreamQuery(stream), cudaErrorInvalidResourceHandle);
    EXPECT_ERR(cudaStreamDestroy(stream), cudaErrorInvalidResourceHandle);
    EXPECT_ERR(cudaEventRecord(event, 0), cudaErrorInvalidResourceHandle);
    EXPECT_ERR(cudaEventQuery(event), cudaErrorInvalidResourceHandle);
    EXPECT_ERR(cudaEventSynchronize(event), cudaErrorInvalidResourceHandle);
    EXPECT_ERR(cudaEventElapsedTime(&ms, event, event), cudaErrorInvalidResourceHandle);
    EXPECT_ERR(cudaEventDestroy(event), cudaErrorInvalidResourceHandle);
    EXPECT_ERR(cudaStreamWaitEvent(0, event, 0), cudaErrorInvalidResourceHandle);
    set<<<1, 1, 0, stream>>>(NULL);
    EXPECT_ERR(cudaGetLastError(), cudaErrorInvalidResourceHandle);
}

/* Values that never were handles, among them a pointer to memory of the program. */
static void check_invented(void)
{
    long long memory[8] = {0};
    cudaStream_t streams[] = {(cudaStream_t)0x123456789abcull, (cudaStream_t)memory, (cudaStream_t)-1};
    CUmodule module = (CUmodule)memory;
    CUfunction function;

    for (int i = 0; i < 3; i++) {
        EXPECT_ERR(cudaStreamSynchronize(streams[i]), cudaErrorInvalidResourceHandle);
        EXPECT_ERR(cudaEventRecord((cudaEvent_t)streams[i], 0), cudaErrorInvalidResourceHandle);
    }
    EXPECT(cuModuleGetFunction(&function, module, "x") != CUDA_SUCCESS);
    EXPECT(cuModuleUnload(module) != CUDA_SUCCESS);
    EXPECT(cuLaunchKernel((CUfunction)memory, 1, 1, 1, 1, 1, 1, 0, 0, NULL, NULL) != CUDA_SUCCESS);
}

int main(void)
{
    int *p, back = 0;
    char *q;

    /* Defined by CUDA: these are errors everywhere. */
    CHECK(cudaMalloc(&p, sizeof(int)));
    CHECK(cudaMalloc(&q, 4096));
    EXPECT_ERR(cudaFree(q + 100), cudaErrorInvalidValue);
    CHECK(cudaFree(q));
    EXPECT_ERR(cudaFree(q), cudaErrorInvalidValue);
    EXPECT_ERR(cudaFree((void *)0x12345000), cudaErrorInvalidValue);
    EXPECT_ERR(cudaEventRecord(NULL, 0), cudaErrorInvalidResourceHandle);
    EXPECT_ERR(cudaEventQuery(NULL), cudaErrorInvalidResourceHandle);
    EXPECT_ERR(cudaStreamDestroy(NULL), cudaErrorInvalidResourceHandle);
    EXPECT(cuModuleUnload(NULL) != CUDA_SUCCESS);

    if (is_forwarded()) {
        check_destroyed();
        check_invented();
    }
    set<<<1, 1>>>(p);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(&back, p, sizeof(back), cudaMemcpyDeviceToHost));
    EXPECT_EQ(back, 1);
    CHECK(cudaFree(p));
    return 0;
}
