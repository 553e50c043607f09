// Host functions and stream callbacks run in stream order, once each, after the work before them and before the
// work behind them, with the arguments they were given; calling CUDA inside them is refused.
#include "check.h"

enum { COUNT = 200 };

__global__ void add(int *p, int n)
{
    *p += n;
}

static int order[2 * COUNT + 1], order_count;
static int *pinned;

static void note(void *value)
{
    order[order_count++] = (int)(intptr_t)value;
}

static void CUDART_CB note_callback(cudaStream_t stream, cudaError_t status, void *value)
{
    EXPECT(status == cudaSuccess, "%d", status);
    order[order_count++] = (int)(intptr_t)value;
}

/* The copy before it in the stream has arrived. */
static void check_pinned(void *expected)
{
    EXPECT(*pinned == (int)(intptr_t)expected, "%d, expected %d", *pinned, (int)(intptr_t)expected);
}

static void call_cuda(void *ret_error)
{
    void *p = NULL;

    *(cudaError_t *)ret_error = cudaMalloc(&p, 1024);
}

int main(void)
{
    cudaStream_t stream;
    cudaError_t inside = cudaSuccess;
    int *device;

    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMalloc(&device, sizeof(int)));
    CHECK(cudaMallocHost(&pinned, sizeof(int)));
    CHECK(cudaMemset(device, 0, sizeof(int)));
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < COUNT; i++) {
        add<<<1, 1, 0, stream>>>(device, 3);
        CHECK_LAUNCH();
        if (i % 20 == 0) {
            CHECK(cudaMemcpyAsync(pinned, device, sizeof(int), cudaMemcpyDeviceToHost, stream));
            CHECK(cudaLaunchHostFunc(stream, check_pinned, (void *)(intptr_t)(3 * (i + 1))));
        }
        CHECK(cudaLaunchHostFunc(stream, note, (void *)(intptr_t)(2 * i)));
        CHECK(cudaStreamAddCallback(stream, note_callback, (void *)(intptr_t)(2 * i + 1), 0));
    }
    CHECK(cudaStreamSynchronize(stream));
    EXPECT_EQ(order_count, 2 * COUNT);
    for (int i = 0; i < 2 * COUNT; i++)
        EXPECT_EQ(order[i], i);

    /* In the default stream too. */
    CHECK(cudaLaunchHostFunc(0, note, (void *)(intptr_t)12345));
    CHECK(cudaDeviceSynchronize());
    EXPECT_EQ(order[2 * COUNT], 12345);

    CHECK(cudaLaunchHostFunc(stream, call_cuda, &inside));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(inside == cudaErrorNotPermitted, "%d", inside);
    EXPECT_ERR(cudaLaunchHostFunc(stream, NULL, NULL), cudaErrorInvalidValue);
    EXPECT_ERR(cudaStreamAddCallback(stream, note_callback, NULL, 1), cudaErrorInvalidValue);
    CHECK(cudaFree(device));
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaStreamDestroy(stream));
    return 0;
}
