// Errors: names and texts are CUDA's, the last error is kept per thread until it is asked for, peeking leaves
// it, success does not clear it, and an API error harms nothing that follows.
#include "check.h"
#include <pthread.h>

static const struct {
    cudaError_t code;
    const char *name, *text;
} known[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidPitchValue, "cudaErrorInvalidPitchValue", "invalid pitch argument"},
    {cudaErrorInvalidSymbol, "cudaErrorInvalidSymbol", "invalid device symbol"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources", "too many resources requested for launch"},
    {cudaErrorAssert, "cudaErrorAssert", "device-side assert triggered"},
    {cudaErrorMisalignedAddress, "cudaErrorMisalignedAddress", "misaligned address"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorCooperativeLaunchTooLarge, "cudaErrorCooperativeLaunchTooLarge", "too many blocks in cooperative launch"},
    {cudaErrorNotPermitted, "cudaErrorNotPermitted", "operation not permitted"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {(cudaError_t)123456, "unrecognized error code", "unrecognized error code"},
};

static void check_texts(void)
{
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        const char *name = cudaGetErrorName(known[i].code), *text = cudaGetErrorString(known[i].code);

        EXPECT(strcmp(name, known[i].name) == 0, "%s, expected %s", name, known[i].name);
        EXPECT(strcmp(text, known[i].text) == 0, "%s, expected %s", text, known[i].text);
    }
}

static void *other_thread(void *unused)
{
    EXPECT(cudaPeekAtLastError() == cudaSuccess, "another thread's error is not this one's");
    EXPECT(cudaSetDevice(-1) == cudaErrorInvalidDevice);
    return NULL;
}

int main(void)
{
    pthread_t thread;
    void *memory = NULL;
    int device;

    check_texts();
    EXPECT(cudaGetLastError() == cudaSuccess);
    EXPECT(cudaMalloc(NULL, 16) == cudaErrorInvalidValue);
    EXPECT(cudaPeekAtLastError() == cudaErrorInvalidValue);
    EXPECT(cudaPeekAtLastError() == cudaErrorInvalidValue, "peeking leaves the error");
    CHECK(cudaGetDevice(&device));
    CHECK(cudaMalloc(&memory, 16));
    EXPECT(cudaPeekAtLastError() == cudaErrorInvalidValue, "success leaves the error");

    EXPECT(pthread_create(&thread, NULL, other_thread, NULL) == 0 && pthread_join(thread, NULL) == 0);
    EXPECT(cudaPeekAtLastError() == cudaErrorInvalidValue, "another thread's error changed this one's");

    EXPECT(cudaSetDevice(-1) == cudaErrorInvalidDevice);
    EXPECT(cudaGetLastError() == cudaErrorInvalidDevice, "the newest error is kept");
    EXPECT(cudaGetLastError() == cudaSuccess, "asking resets it");

    CHECK(cudaMemset(memory, 1, 16));
    CHECK(cudaFree(memory));
    CHECK(cudaDeviceSynchronize());
    return 0;
}
