// Large copies of odd lengths to and from odd addresses arrive whole, while other streams do small work; copies to the
// same host memory land in their stream's order, whatever their sizes.
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

/* Nothing waits between the copies of a round: the last one is what is there in the end. */
static void check_the_last_one_wins(void)
{
    enum { ROUNDS = 40, COPIES = 4 };
    const size_t bytes = (8u << 20) + 40000, small = 3000;
    unsigned char *device[COPIES], *pinned;
    cudaStream_t stream;

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMallocHost(&pinned, bytes));
    for (int i = 0; i < COPIES; i++) {
        CHECK(cudaMalloc(&device[i], bytes));
        CHECK(cudaMemsetAsync(device[i], i + 1, bytes, stream));
    }
    for (int round = 0; round < ROUNDS; round++) {
        unsigned char last = (unsigned char)(round % COPIES + 1);

        for (int i = 1; i <= COPIES; i++)
            CHECK(cudaMemcpyAsync(pinned, device[(round + i) % COPIES], bytes, cudaMemcpyDeviceToHost, stream));
        if (round % 2) /* over what has just been asked for, with the reply */
            CHECK(cudaMemcpyAsync(pinned + bytes - small, device[(round + 1) % COPIES], small, cudaMemcpyDeviceToHost,
                                  stream));
        CHECK(cudaStreamSynchronize(stream));
        size_t wrong = 0;
        for (size_t i = 0; i < bytes - small; i++)
            wrong += pinned[i] != last;
        EXPECT_EQ(wrong, 0);
        for (size_t i = bytes - small; i < bytes; i++)
            wrong += pinned[i] != (round % 2 ? (round + 1) % COPIES + 1 : last);
        EXPECT_EQ(wrong, 0);
    }
    for (int i = 0; i < COPIES; i++)
        CHECK(cudaFree(device[i]));
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaStreamDestroy(stream));
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
    check_the_last_one_wins();
    return 0;
}
