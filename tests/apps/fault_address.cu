// An access outside every allocation is cudaErrorIllegalAddress: reported at the synchronization, by every later
// call in every thread, in the driver API too, and not cleared by asking.
// nvcc: -lcuda
#include "check.h"
#include <cuda.h>
#include <pthread.h>

__global__ void store(int *p)
{
    *p = 1;
}

static void *other_thread(void *unused)
{
    void *p;

    EXPECT(cudaMalloc(&p, 16) == cudaErrorIllegalAddress);
    return NULL;
}

int main(void)
{
    pthread_t thread;
    cudaStream_t stream;
    cudaDeviceProp properties;
    int *good, back = 0;
    void *p;

    CHECK(cudaMalloc(&good, sizeof(int)));
    CHECK(cudaStreamCreate(&stream));
    store<<<1, 1, 0, stream>>>(good);
    CHECK_LAUNCH();
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(&back, good, sizeof(back), cudaMemcpyDeviceToHost));
    EXPECT_EQ(back, 1);

    store<<<1, 1, 0, stream>>>((int *)0x10);
    CHECK_LAUNCH();
    EXPECT(cudaStreamSynchronize(stream) == cudaErrorIllegalAddress);
    EXPECT(cudaPeekAtLastError() == cudaErrorIllegalAddress);
    EXPECT(cudaGetLastError() == cudaErrorIllegalAddress);
    EXPECT(cudaGetLastError() == cudaSuccess, "asking resets the last error, not the context's");
    EXPECT(cudaMalloc(&p, 16) == cudaErrorIllegalAddress);
    EXPECT(cudaFree(good) == cudaErrorIllegalAddress);
    EXPECT(cudaMemcpy(&back, good, sizeof(back), cudaMemcpyDeviceToHost) == cudaErrorIllegalAddress);
    store<<<1, 1>>>(good);
    EXPECT(cudaGetLastError() == cudaErrorIllegalAddress);
    EXPECT(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
    EXPECT_CU(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT(pthread_create(&thread, NULL, other_thread, NULL) == 0 && pthread_join(thread, NULL) == 0);

    /* Questions about devices are answered; a reset succeeds and leaves a process without one. */
    CHECK(cudaGetDeviceCount(&back));
    CHECK(cudaGetDeviceProperties(&properties, 0));
    CHECK(cudaSetDevice(0));
    CHECK(cudaDeviceReset());
    EXPECT(cudaMalloc(&p, 16) == cudaErrorDevicesUnavailable);
    EXPECT(cudaStreamCreate(&stream) == cudaErrorDevicesUnavailable);
    CHECK(cudaDriverGetVersion(&back));
    return 0;
}
