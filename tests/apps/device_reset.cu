// cudaDeviceReset ends everything of the process on the device: module variables have their initial values
// again, all memory is back, and the program goes on with a new context as if it had just started.
#include "check.h"

__device__ int counter = 5;
__global__ void add(int n)
{
    counter += n;
}

static int read_counter(void)
{
    int value = 0;

    CHECK(cudaMemcpyFromSymbol(&value, counter, sizeof(value)));
    return value;
}

int main(void)
{
    void *memory = NULL;
    cudaStream_t stream;
    int round;

    for (round = 0; round < 3; round++) {
        EXPECT_EQ(read_counter(), 5);
        CHECK(cudaMalloc(&memory, 1 << 20));
        CHECK(cudaStreamCreate(&stream));
        add<<<1, 1, 0, stream>>>(round + 1);
        CHECK_LAUNCH();
        CHECK(cudaStreamSynchronize(stream));
        EXPECT_EQ(read_counter(), 6 + round);
        CHECK(cudaDeviceReset());
        CHECK(cudaGetLastError());
    }
    EXPECT_ERR(cudaFree(memory), cudaErrorInvalidValue);
    return 0;
}
