// A failing assert in a kernel names its place on stderr and ends the context with cudaErrorAssert for ever; one
// that holds does nothing.
#include "capture.h"
#include <assert.h>

__global__ void check_positive(const int *values)
{
    assert(values[threadIdx.x] > 0);
}

int main(void)
{
    static char text[65536];
    struct capture capture;
    int values[32], *device;
    void *p;

    for (int i = 0; i < 32; i++)
        values[i] = i + 1;
    CHECK(cudaMalloc(&device, sizeof(values)));
    CHECK(cudaMemcpy(device, values, sizeof(values), cudaMemcpyHostToDevice));
    check_positive<<<1, 32>>>(device);
    CHECK_LAUNCH();
    CHECK(cudaDeviceSynchronize());

    CHECK(cudaMemset(device + 5, 0, sizeof(int)));
    capture_begin(&capture, stderr);
    check_positive<<<1, 32>>>(device);
    cudaError_t launch = cudaGetLastError(), sync = cudaDeviceSynchronize();
    capture_end(&capture, text, sizeof(text));
    CHECK(launch);
    EXPECT(sync == cudaErrorAssert, "%s", cudaGetErrorName(sync));
    EXPECT(strstr(text, "device_assert.cu"), "%s", text);
    EXPECT(strstr(text, "values[threadIdx.x] > 0"), "%s", text);
    EXPECT(strstr(text, "block: [0,0,0], thread: [5,0,0]"), "%s", text);

    EXPECT(cudaGetLastError() == cudaErrorAssert, "the last error is told");
    EXPECT(cudaGetLastError() == cudaSuccess, "once");
    EXPECT(cudaMalloc(&p, 16) == cudaErrorAssert);
    EXPECT(cudaMemcpy(values, device, 4, cudaMemcpyDeviceToHost) == cudaErrorAssert);
    return 0;
}
