// Streams, events and host functions of the driver API, and their exchange with the runtime API: a handle made
// by one is used by the other.
// nvcc: -lcuda
#include "check.h"
#include "gate.h"
#include <cuda.h>

__global__ void add(int *p, int n)
{
    *p += n;
}

static void bump(void *counter)
{
    ++*(int *)counter;
}

static void CUDA_CB bump_callback(CUstream stream, CUresult status, void *counter)
{
    EXPECT(status == CUDA_SUCCESS);
    ++*(int *)counter;
}

static void check_driver_made(int *device)
{
    struct gate gate = {};
    CUstream stream, other;
    CUevent event, end;
    unsigned flags = 99;
    int priority = 99, count = 0, back = 0;
    float ms = -1;

    CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_CU(cuStreamGetFlags(stream, &flags));
    EXPECT_EQ(flags, CU_STREAM_NON_BLOCKING);
    CHECK_CU(cuStreamCreateWithPriority(&other, CU_STREAM_DEFAULT, 0));
    CHECK_CU(cuStreamGetPriority(other, &priority));
    EXPECT_EQ(priority, 0);
    CHECK_CU(cuEventCreate(&event, CU_EVENT_DEFAULT));
    CHECK_CU(cuEventCreate(&end, CU_EVENT_DEFAULT));

    CHECK_CU(cuLaunchHostFunc(stream, gate_wait, &gate));
    add<<<1, 1, 0, stream>>>(device, 4);
    CHECK_LAUNCH();
    CHECK_CU(cuEventRecord(event, stream));
    CHECK_CU(cuStreamWaitEvent(other, event, 0));
    CHECK_CU(cuLaunchHostFunc(other, bump, &count));
    CHECK_CU(cuStreamAddCallback(other, bump_callback, &count, 0));
    CHECK_CU(cuEventRecord(end, other));
    EXPECT_CU(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    EXPECT_CU(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    gate_open(&gate);
    CHECK_CU(cuEventSynchronize(end));
    CHECK_CU(cuStreamSynchronize(other));
    EXPECT_EQ(count, 2);
    CHECK_CU(cuStreamQuery(other));
    CHECK_CU(cuEventElapsedTime(&ms, event, end));
    EXPECT(ms >= 0, "%f", ms);
    CHECK(cudaMemcpyAsync(&back, device, sizeof(back), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT_EQ(back, 4);
    CHECK_CU(cuEventDestroy(event));
    CHECK_CU(cuEventDestroy(end));
    CHECK_CU(cuStreamDestroy(stream));
    CHECK(cudaStreamDestroy(other));
}

static void check_runtime_made(int *device)
{
    cudaStream_t stream;
    cudaEvent_t event;
    CUcontext context, current;
    int back = 0;

    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaEventCreate(&event));
    CHECK_CU(cuMemsetD32Async((CUdeviceptr)device, 99, 1, stream));
    CHECK_CU(cuEventRecord(event, stream));
    CHECK(cudaEventSynchronize(event));
    CHECK_CU(cuMemcpyDtoH(&back, (CUdeviceptr)device, sizeof(back)));
    EXPECT_EQ(back, 99);
    CHECK_CU(cuStreamGetCtx(stream, &context));
    CHECK_CU(cuCtxGetCurrent(&current));
    EXPECT(context == current, "the stream belongs to the current context");
    CHECK(cudaEventDestroy(event));
    CHECK_CU(cuStreamDestroy(stream));
}

int main(void)
{
    int *device;

    CHECK_CU(cuInit(0));
    CHECK(cudaMalloc(&device, sizeof(int)));
    CHECK(cudaMemset(device, 0, sizeof(int)));
    CHECK(cudaDeviceSynchronize());
    check_driver_made(device);
    check_runtime_made(device);
    EXPECT_CU(cuStreamCreate(NULL, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK(cudaFree(device));
    return 0;
}
