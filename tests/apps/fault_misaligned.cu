// A misaligned access is cudaErrorMisalignedAddress and ends the context.
#include "check.h"

__global__ void store(char *p)
{
    *(int *)p = 1;
}

int main(void)
{
    char *p;

    CHECK(cudaMalloc(&p, 64));
    store<<<1, 1>>>(p + 4);
    CHECK_LAUNCH();
    CHECK(cudaDeviceSynchronize());
    store<<<1, 1>>>(p + 2);
    CHECK_LAUNCH();
    EXPECT(cudaDeviceSynchronize() == cudaErrorMisalignedAddress);
    EXPECT(cudaMemset(p, 0, 4) == cudaErrorMisalignedAddress);
    EXPECT(cudaGetLastError() == cudaErrorMisalignedAddress && cudaStreamQuery(NULL) == cudaErrorMisalignedAddress);
    return 0;
}
