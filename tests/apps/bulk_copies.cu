// Large copies of odd lengths to and from odd addresses arrive whole, while other streams do small work.
#include "check.h"

static void fill(unsigned char *p, size_t bytes, uint32_t seed)
{
    size_t i;

    for (i = 0; i + 4 <= bytes; i += 4) {
        uint32_t r = next_random(&seed);

        memcpy(p + i, &r, 4);
    }
    for (; i < bytes; i++)
        p[i] = (unsigned char)next_random(&seed);
}

__global__ void add(int *p)
{
    *p += 1;
}

int main(void)
{
    const size_t bytes = (24u << 20) + 12345;
    unsigned char *pageable = (unsigned char *)malloc(bytes), *back = (unsigned char *)malloc(bytes), *pinned, *device;
    cudaStream_t bulk, small;
    int *counter, count = 0;

    CHECK(cudaMalloc(&device, bytes + 64));
    CHECK(cudaMalloc(&counter, sizeof(int)));
    CHECK(cudaMemset(counter, 0, sizeof(int)));
    CHECK(cudaMallocHost(&pinned, bytes));
    CHECK(cudaStreamCreateWithFlags(&bulk, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&small, cudaStreamNonBlocking));
    CHECK(cudaDeviceSynchronize());

    fill(pageable, bytes, 7);
    CHECK(cudaMemcpy(device + 3, pageable, bytes, cudaMemcpyHostToDevice));
    memset(back, 0, bytes);
    CHECK(cudaMemcpy(back, device + 3, bytes, cudaMemcpyDeviceToHost));
    EXPECT(memcmp(back, pageable, bytes) == 0, "pageable, synchronous");

    fill(pinned, bytes, 99);
    CHECK(cudaMemcpyAsync(device + 16, pinned, bytes, cudaMemcpyHostToDevice, bulk));
    for (int i = 0; i < 50; i++)
        add<<<1, 1, 0, small>>>(counter);
    CHECK_LAUNCH();
    CHECK(cudaMemcpyAsync(back, device + 16, bytes, cudaMemcpyDeviceToHost, bulk));
    for (int i = 0; i < 50; i++) {
        add<<<1, 1, 0, small>>>(counter);
        CHECK_LAUNCH();
        if (i % 10 == 0)
            CHECK(cudaStreamSynchronize(small));
    }
    CHECK(cudaStreamSynchronize(bulk));
    EXPECT(memcmp(back, pinned, bytes) == 0, "pinned, asynchronous");
    CHECK(cudaMemcpyAsync(&count, counter, sizeof(count), cudaMemcpyDeviceToHost, small));
    CHECK(cudaStreamSynchronize(small));
    EXPECT_EQ(count, 100);
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(device));
    CHECK(cudaFree(counter));
    free(pageable);
    free(back);
    return 0;
}
