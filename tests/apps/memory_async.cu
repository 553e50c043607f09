// Asynchronous copies in every direction, from pageable and pinned memory, with explicit kinds and with
// cudaMemcpyDefault, keep the order of their stream; a pageable source may be changed as soon as the call is back.
#include "check.h"

enum { COUNT = 3001 };

__global__ void scale(const int *in, int *out, int factor)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < COUNT)
        out[i] = in[i] * factor;
}

static void check_pipeline(int *source, int *result, int kinds_given)
{
    const size_t bytes = COUNT * sizeof(int);
    cudaMemcpyKind to = kinds_given ? cudaMemcpyHostToDevice : cudaMemcpyDefault;
    cudaMemcpyKind across = kinds_given ? cudaMemcpyDeviceToDevice : cudaMemcpyDefault;
    cudaMemcpyKind back = kinds_given ? cudaMemcpyDeviceToHost : cudaMemcpyDefault;
    cudaStream_t stream;
    int *a, *b, *c;

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMalloc(&a, bytes));
    CHECK(cudaMalloc(&b, bytes));
    CHECK(cudaMalloc(&c, bytes));
    for (int i = 0; i < COUNT; i++)
        source[i] = i - 1000;
    for (int round = 1; round <= 20; round++) {
        CHECK(cudaMemcpyAsync(a, source, bytes, to, stream));
        CHECK(cudaMemsetAsync(b, round, bytes, stream));
        scale<<<(COUNT + 255) / 256, 256, 0, stream>>>(a, b, round);
        CHECK_LAUNCH();
        CHECK(cudaMemcpyAsync(c, b, bytes, across, stream));
        CHECK(cudaMemcpyAsync(result, c, bytes, back, stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 0; i < COUNT; i++)
        EXPECT_EQ(result[i], (i - 1000) * 20);
    CHECK(cudaFree(a));
    CHECK(cudaFree(b));
    CHECK(cudaFree(c));
    CHECK(cudaStreamDestroy(stream));
}

/* CUDA stages a pageable source of an asynchronous copy before the call returns. */
static void check_pageable_is_read_at_once(void)
{
    int *device[16], value, back;

    for (int i = 0; i < 16; i++) {
        CHECK(cudaMalloc(&device[i], sizeof(int)));
        value = 100 + i;
        CHECK(cudaMemcpyAsync(device[i], &value, sizeof(value), cudaMemcpyHostToDevice, 0));
        value = -1;
    }
    for (int i = 0; i < 16; i++) {
        CHECK(cudaMemcpy(&back, device[i], sizeof(back), cudaMemcpyDeviceToHost));
        EXPECT_EQ(back, 100 + i);
        CHECK(cudaFree(device[i]));
    }
}

int main(void)
{
    static int pageable[2][COUNT];
    int *pinned[2], host[4] = {1, 2, 3, 4}, copy[4] = {0};

    for (int i = 0; i < 2; i++)
        CHECK(cudaMallocHost(&pinned[i], COUNT * sizeof(int)));
    for (int kinds_given = 0; kinds_given < 2; kinds_given++) {
        check_pipeline(pageable[0], pageable[1], kinds_given);
        check_pipeline(pinned[0], pinned[1], kinds_given);
        check_pipeline(pageable[0], pinned[1], kinds_given);
    }
    check_pageable_is_read_at_once();
    CHECK(cudaMemcpyAsync(copy, host, sizeof(host), cudaMemcpyHostToHost, 0));
    CHECK(cudaStreamSynchronize(0));
    EXPECT(memcmp(copy, host, sizeof(host)) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(cudaFreeHost(pinned[i]));
    return 0;
}
