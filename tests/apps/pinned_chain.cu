// Pinned buffers that the stream itself fills: a copy from the device into a buffer that a later copy to the device
// reads, and a host function that writes the buffer a later copy reads. The copy must see what the stream wrote.
#include "check.h"

enum { COUNT = 4096, LINKS = 12 };

__global__ void add(int *values, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < COUNT)
        values[i] += n;
}

struct edit {
    int *buffer;
    int round;
};

static void write_buffer(void *argument)
{
    struct edit *e = (struct edit *)argument;

    for (int i = 0; i < COUNT; i++)
        e->buffer[i] = e->buffer[i] * 2 + e->round;
}

/* device -> pinned -> device -> ..., LINKS times, nothing waited for in between. */
static void check_copies(cudaStream_t stream, int *pinned[LINKS], int *a, int *b)
{
    const size_t bytes = COUNT * sizeof(int);

    for (int i = 0; i < LINKS; i++)
        memset(pinned[i], 0xff, bytes);
    CHECK(cudaMemsetAsync(a, 0, bytes, stream));
    for (int i = 0; i < LINKS; i++) {
        add<<<COUNT / 128, 128, 0, stream>>>(a, i + 1);
        CHECK_LAUNCH();
        CHECK(cudaMemcpyAsync(pinned[i], a, bytes, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaMemcpyAsync(b, pinned[i], bytes, cudaMemcpyHostToDevice, stream));
        int *swap = a;
        a = b;
        b = swap;
    }
    CHECK(cudaMemcpyAsync(pinned[0], a, bytes, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 0; i < COUNT; i++)
        EXPECT_EQ(pinned[0][i], LINKS * (LINKS + 1) / 2);
    EXPECT_EQ(pinned[2][7], 6);
}

/* The same buffer all the time: device -> pinned, host function, pinned -> device. */
static void check_host_functions(cudaStream_t stream, int *buffer, int *a)
{
    static struct edit edits[LINKS];
    const size_t bytes = COUNT * sizeof(int);
    int want = 3;

    CHECK(cudaMemsetAsync(a, 0, bytes, stream));
    add<<<COUNT / 128, 128, 0, stream>>>(a, want);
    for (int i = 0; i < LINKS; i++) {
        edits[i].buffer = buffer;
        edits[i].round = i;
        CHECK(cudaMemcpyAsync(buffer, a, bytes, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaLaunchHostFunc(stream, write_buffer, &edits[i]));
        CHECK(cudaMemcpyAsync(a, buffer, bytes, cudaMemcpyHostToDevice, stream));
        add<<<COUNT / 128, 128, 0, stream>>>(a, 1);
        CHECK_LAUNCH();
        want = want * 2 + i + 1;
    }
    CHECK(cudaMemcpyAsync(buffer, a, bytes, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 0; i < COUNT; i++)
        EXPECT_EQ(buffer[i], want);
}

/* The writer is in another stream, an event in between. */
static void check_across_streams(cudaStream_t stream, int *buffer, int *a, int *b)
{
    const size_t bytes = COUNT * sizeof(int);
    cudaStream_t other;
    cudaEvent_t event;

    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    for (int round = 1; round <= 5; round++) {
        CHECK(cudaMemsetAsync(a, 0, bytes, stream));
        add<<<COUNT / 128, 128, 0, stream>>>(a, round * 1000);
        CHECK_LAUNCH();
        CHECK(cudaMemcpyAsync(buffer, a, bytes, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaEventRecord(event, stream));
        CHECK(cudaStreamWaitEvent(other, event, 0));
        CHECK(cudaMemcpyAsync(b, buffer, bytes, cudaMemcpyHostToDevice, other));
        CHECK(cudaMemcpyAsync(buffer, b, bytes, cudaMemcpyDeviceToHost, other));
        CHECK(cudaStreamSynchronize(other));
        EXPECT_EQ(buffer[COUNT - 1], round * 1000);
    }
    CHECK(cudaStreamDestroy(other));
    CHECK(cudaEventDestroy(event));
}

int main(void)
{
    int *pinned[LINKS], *a, *b;
    cudaStream_t stream;

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMalloc(&a, COUNT * sizeof(int)));
    CHECK(cudaMalloc(&b, COUNT * sizeof(int)));
    for (int i = 0; i < LINKS; i++)
        CHECK(cudaMallocHost(&pinned[i], COUNT * sizeof(int)));
    check_copies(stream, pinned, a, b);
    check_host_functions(stream, pinned[0], a);
    check_across_streams(stream, pinned[1], a, b);
    for (int i = 0; i < LINKS; i++)
        CHECK(cudaFreeHost(pinned[i]));
    CHECK(cudaFree(a));
    CHECK(cudaFree(b));
    CHECK(cudaStreamDestroy(stream));
    return 0;
}
