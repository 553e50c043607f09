// What a capture forbids, what its streams and events answer meanwhile, and how it ends after that: the errors 900 to
// 908, legacy default stream and thread modes included.
// nvcc: -lpthread
#include "check.h"

#include <pthread.h>

enum { BYTES = 4096 };

static cudaStream_t stream, other, blocking;
static char *device;

static void begin(cudaStream_t in, cudaStreamCaptureMode mode)
{
    CHECK(cudaStreamBeginCapture(in, mode));
}

static void end_with(cudaStream_t in, cudaError_t want)
{
    cudaGraph_t graph = (cudaGraph_t)&graph;
    EXPECT_ERR(cudaStreamEndCapture(in, &graph), want);
    if (want == cudaSuccess)
        CHECK(cudaGraphDestroy(graph));
    else if (want != cudaErrorStreamCaptureWrongThread && want != cudaErrorStreamCaptureUnmatched)
        EXPECT(graph == NULL);
}

static cudaStreamCaptureStatus status_of(cudaStream_t in)
{
    cudaStreamCaptureStatus status;
    CHECK(cudaStreamIsCapturing(in, &status));
    return status;
}

/* What cannot be waited for, or asked, ends the capture. */
static void waiting(void)
{
    cudaEvent_t event;
    CHECK(cudaEventCreate(&event));
    begin(stream, cudaStreamCaptureModeRelaxed);
    EXPECT_ERR(cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
    EXPECT_EQ(status_of(stream), cudaStreamCaptureStatusInvalidated);
    EXPECT_ERR(cudaMemsetAsync(device, 0, BYTES, stream), cudaErrorStreamCaptureInvalidated);
    end_with(stream, cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(status_of(stream), cudaStreamCaptureStatusNone);
    begin(stream, cudaStreamCaptureModeRelaxed);
    EXPECT_ERR(cudaStreamQuery(stream), cudaErrorStreamCaptureUnsupported);
    end_with(stream, cudaErrorStreamCaptureInvalidated);
    begin(stream, cudaStreamCaptureModeRelaxed);
    EXPECT_ERR(cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
    end_with(stream, cudaErrorStreamCaptureInvalidated);
    begin(stream, cudaStreamCaptureModeRelaxed);
    CHECK(cudaEventRecord(event, stream));
    EXPECT_ERR(cudaEventQuery(event), cudaErrorCapturedEvent);
    end_with(stream, cudaErrorStreamCaptureInvalidated);
    begin(stream, cudaStreamCaptureModeRelaxed);
    CHECK(cudaEventRecord(event, stream));
    EXPECT_ERR(cudaEventSynchronize(event), cudaErrorCapturedEvent);
    end_with(stream, cudaErrorStreamCaptureInvalidated);
    /* Recorded anew, it is an event as any other. */
    CHECK(cudaEventRecord(event, stream));
    CHECK(cudaEventSynchronize(event));
    CHECK(cudaEventDestroy(event));
}

/* Streams that come in by events, or may not. */
static void crossing(void)
{
    cudaEvent_t event, outside;
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&outside, cudaEventDisableTiming));
    CHECK(cudaMemsetAsync(device, 0, BYTES, other));
    CHECK(cudaEventRecord(outside, other));
    begin(stream, cudaStreamCaptureModeGlobal);
    EXPECT_ERR(cudaStreamWaitEvent(stream, outside, 0), cudaErrorStreamCaptureIsolation);
    end_with(stream, cudaErrorStreamCaptureInvalidated);
    begin(stream, cudaStreamCaptureModeGlobal);
    CHECK(cudaMemsetAsync(device, 0, BYTES, stream));
    CHECK(cudaEventRecord(event, stream));
    CHECK(cudaStreamWaitEvent(other, event, 0));
    CHECK(cudaMemsetAsync(device, 1, BYTES, other));
    EXPECT_EQ(status_of(other), cudaStreamCaptureStatusActive);
    end_with(stream, cudaErrorStreamCaptureUnjoined);
    EXPECT_EQ(status_of(other), cudaStreamCaptureStatusNone);
    begin(stream, cudaStreamCaptureModeGlobal);
    CHECK(cudaEventRecord(event, stream));
    CHECK(cudaStreamWaitEvent(other, event, 0));
    end_with(other, cudaErrorStreamCaptureUnmatched);
    end_with(stream, cudaErrorStreamCaptureInvalidated);
    begin(stream, cudaStreamCaptureModeGlobal);
    begin(other, cudaStreamCaptureModeGlobal);
    CHECK(cudaEventRecord(event, stream));
    EXPECT_ERR(cudaStreamWaitEvent(other, event, 0), cudaErrorStreamCaptureMerge);
    end_with(stream, cudaErrorStreamCaptureInvalidated);
    end_with(other, cudaErrorStreamCaptureInvalidated);
    CHECK(cudaEventDestroy(event));
    CHECK(cudaEventDestroy(outside));
}

/* A legacy default stream would wait for blocking streams that are captured, and for no others. */
static void legacy(void)
{
    cudaStreamCaptureStatus status;
    EXPECT_ERR(cudaStreamBeginCapture(0, cudaStreamCaptureModeGlobal), cudaErrorStreamCaptureUnsupported);
    begin(blocking, cudaStreamCaptureModeRelaxed);
    EXPECT_ERR(cudaStreamIsCapturing(cudaStreamLegacy, &status), cudaErrorStreamCaptureImplicit);
    EXPECT_EQ(status_of(blocking), cudaStreamCaptureStatusActive);
    EXPECT_ERR(cudaMemset(device, 0, BYTES), cudaErrorStreamCaptureImplicit);
    end_with(blocking, cudaErrorStreamCaptureInvalidated);
    begin(stream, cudaStreamCaptureModeRelaxed);
    CHECK(cudaMemset(device, 0, BYTES));
    CHECK(cudaStreamIsCapturing(cudaStreamLegacy, &status));
    EXPECT_EQ(status, cudaStreamCaptureStatusNone);
    end_with(stream, cudaSuccess);
}

/* Calls that are not safe, by the mode of the capture and of the thread. */
static void unsafe(void)
{
    void *memory;
    begin(stream, cudaStreamCaptureModeGlobal);
    EXPECT_ERR(cudaMalloc(&memory, BYTES), cudaErrorStreamCaptureUnsupported);
    end_with(stream, cudaErrorStreamCaptureInvalidated);
    begin(stream, cudaStreamCaptureModeThreadLocal);
    EXPECT_ERR(cudaMalloc(&memory, BYTES), cudaErrorStreamCaptureUnsupported);
    end_with(stream, cudaErrorStreamCaptureInvalidated);
    begin(stream, cudaStreamCaptureModeRelaxed);
    CHECK(cudaMalloc(&memory, BYTES));
    CHECK(cudaFree(memory));
    end_with(stream, cudaSuccess);
    begin(stream, cudaStreamCaptureModeGlobal);
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
    EXPECT_EQ(mode, cudaStreamCaptureModeGlobal);
    CHECK(cudaMalloc(&memory, BYTES));
    CHECK(cudaFree(memory));
    CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
    end_with(stream, cudaSuccess);
}

static void *allocate(void *want)
{
    void *memory;
    cudaError_t error = cudaMalloc(&memory, BYTES);
    EXPECT_EQ(error, *(cudaError_t *)want);
    if (error == cudaSuccess)
        CHECK(cudaFree(memory));
    cudaGetLastError();
    return NULL;
}

static void *end_elsewhere(void *want)
{
    end_with(stream, *(cudaError_t *)want);
    return NULL;
}

static void in_thread(void *(*fn)(void *), cudaError_t want)
{
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, fn, &want) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
}

static void threads(void)
{
    begin(stream, cudaStreamCaptureModeGlobal);
    in_thread(allocate, cudaErrorStreamCaptureUnsupported);
    end_with(stream, cudaErrorStreamCaptureInvalidated);
    begin(stream, cudaStreamCaptureModeThreadLocal);
    in_thread(allocate, cudaSuccess);
    end_with(stream, cudaSuccess);
    begin(stream, cudaStreamCaptureModeThreadLocal);
    in_thread(end_elsewhere, cudaErrorStreamCaptureWrongThread);
    end_with(stream, cudaErrorIllegalState); /* it has ended all the same */
    begin(stream, cudaStreamCaptureModeRelaxed);
    in_thread(end_elsewhere, cudaSuccess);
}

static void beginnings(void)
{
    cudaGraph_t graph;
    EXPECT_ERR(cudaStreamEndCapture(stream, &graph), cudaErrorIllegalState);
    begin(stream, cudaStreamCaptureModeGlobal);
    EXPECT_ERR(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaErrorIllegalState);
    end_with(stream, cudaSuccess);
}

int main(void)
{
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CHECK(cudaStreamCreate(&blocking));
    CHECK(cudaMalloc((void **)&device, BYTES));
    beginnings();
    waiting();
    crossing();
    legacy();
    unsafe();
    threads();
    CHECK(cudaMemset(device, 0, BYTES));
    CHECK(cudaDeviceSynchronize());
    printf("ok\n");
    return 0;
}
