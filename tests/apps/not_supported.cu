// What Flyt does not forward yet is refused with cudaErrorNotSupported (never a silent success), and the program goes
// on. Natively there is nothing to refuse.
#include "check.h"

__global__ void set(int *p)
{
    *p = 1;
}

int main(void)
{
    cudaIpcMemHandle_t ipc_memory;
    cudaIpcEventHandle_t ipc_event;
    cudaArray_t array = NULL;
    cudaStream_t stream;
    cudaEvent_t event;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    cudaResourceDesc resource = {};
    cudaTextureDesc texture = {};
    cudaTextureObject_t object;
    int *p, back = 0;

    if (!is_forwarded())
        SKIP("natively all of this is supported");
    CHECK(cudaMalloc(&p, sizeof(int)));
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaEventCreate(&event));
    EXPECT_ERR(cudaMallocArray(&array, &format, 16, 16), cudaErrorNotSupported);
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = p;
    resource.res.linear.desc = format;
    resource.res.linear.sizeInBytes = sizeof(int);
    EXPECT_ERR(cudaCreateTextureObject(&object, &resource, &texture, NULL), cudaErrorNotSupported);
    EXPECT_ERR(cudaIpcGetMemHandle(&ipc_memory, p), cudaErrorNotSupported);
    EXPECT_ERR(cudaIpcGetEventHandle(&ipc_event, event), cudaErrorNotSupported);
    set<<<1, 1, 0, stream>>>(p);
    CHECK_LAUNCH();
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(&back, p, sizeof(back), cudaMemcpyDeviceToHost));
    EXPECT_EQ(back, 1);
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaEventDestroy(event));
    CHECK(cudaFree(p));
    return 0;
}
