// What Flyt does not forward yet is refused with cudaErrorNotSupported (never a silent success), and the program goes
// on. Natively there is nothing to refuse.
#include "check.h"

__global__ void set(int *p)
{
    *p = 1;
}

int main(void)
{
    cudaArray_t array = NULL;
    cudaStream_t stream;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    int *p, back = 0;

    if (!is_forwarded())
        SKIP("natively all of this is supported");
    CHECK(cudaMalloc(&p, sizeof(int)));
    CHECK(cudaStreamCreate(&stream));
    EXPECT_ERR(cudaMalloc3DArray(&array, &format, make_cudaExtent(64, 64, 0), cudaArraySparse), cudaErrorNotSupported);
    EXPECT_ERR(cudaMalloc3DArray(&array, &format, make_cudaExtent(64, 64, 0), cudaArrayDeferredMapping),
               cudaErrorNotSupported);
    set<<<1, 1, 0, stream>>>(p);
    CHECK_LAUNCH();
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(&back, p, sizeof(back), cudaMemcpyDeviceToHost));
    EXPECT_EQ(back, 1);
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(p));
    return 0;
}
