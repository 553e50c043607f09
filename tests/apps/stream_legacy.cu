// The legacy default stream waits for all blocking streams and they for it; a non-blocking stream takes no part.
#include "check.h"
#include "gate.h"

__global__ void set(int *p, int value)
{
    *p = value;
}
__global__ void copy(int *to, const int *from)
{
    *to = *from;
}

static int *cells; /* four ints on the device */

static int cell(int i)
{
    int value;
    cudaStream_t reader;

    /* Read through a stream of its own, so that reading orders nothing. */
    CHECK(cudaStreamCreateWithFlags(&reader, cudaStreamNonBlocking));
    CHECK(cudaMemcpyAsync(&value, cells + i, sizeof(value), cudaMemcpyDeviceToHost, reader));
    CHECK(cudaStreamSynchronize(reader));
    CHECK(cudaStreamDestroy(reader));
    return value;
}

static void clear(void)
{
    CHECK(cudaMemset(cells, 0, 4 * sizeof(int)));
    CHECK(cudaDeviceSynchronize());
}

/* blocking stream -> legacy stream -> another blocking stream, all behind one gate. */
static void check_blocking(void)
{
    struct gate gate = {};
    cudaStream_t a, b;

    clear();
    CHECK(cudaStreamCreate(&a));
    CHECK(cudaStreamCreate(&b));
    CHECK(cudaLaunchHostFunc(a, gate_wait, &gate));
    set<<<1, 1, 0, a>>>(cells, 41);
    copy<<<1, 1>>>(cells + 1, cells);
    copy<<<1, 1, 0, b>>>(cells + 2, cells + 1);
    CHECK_LAUNCH();
    gate_await_reached(&gate);
    usleep(20000);
    EXPECT_ERR(cudaStreamQuery(0), cudaErrorNotReady);
    EXPECT_ERR(cudaStreamQuery(b), cudaErrorNotReady);
    EXPECT_EQ(cell(1), 0);
    EXPECT_EQ(cell(2), 0);
    gate_open(&gate);
    CHECK(cudaStreamSynchronize(b));
    EXPECT_EQ(cell(1), 41);
    EXPECT_EQ(cell(2), 41);
    CHECK(cudaStreamDestroy(a));
    CHECK(cudaStreamDestroy(b));
}

/* Streams without legacy work between them are not ordered. */
static void check_independent(void)
{
    struct gate gate = {};
    cudaStream_t a, b;

    clear();
    CHECK(cudaStreamCreate(&a));
    CHECK(cudaStreamCreate(&b));
    CHECK(cudaLaunchHostFunc(a, gate_wait, &gate));
    set<<<1, 1, 0, b>>>(cells, 5);
    CHECK_LAUNCH();
    CHECK(cudaStreamSynchronize(b));
    EXPECT_EQ(cell(0), 5);
    gate_open(&gate);
    CHECK(cudaStreamDestroy(a));
    CHECK(cudaStreamDestroy(b));
    CHECK(cudaDeviceSynchronize());
}

static void check_non_blocking(void)
{
    struct gate gate = {};
    cudaStream_t n;

    clear();
    CHECK(cudaStreamCreateWithFlags(&n, cudaStreamNonBlocking));
    CHECK(cudaLaunchHostFunc(n, gate_wait, &gate));
    set<<<1, 1, 0, n>>>(cells, 1);
    set<<<1, 1>>>(cells + 1, 2);
    CHECK_LAUNCH();
    CHECK(cudaStreamSynchronize(0));
    EXPECT_EQ(cell(1), 2);
    EXPECT_EQ(cell(0), 0);
    EXPECT_ERR(cudaStreamQuery(n), cudaErrorNotReady);
    gate_open(&gate);
    CHECK(cudaStreamSynchronize(n));
    EXPECT_EQ(cell(0), 1);
    CHECK(cudaStreamDestroy(n));
}

/* The gate in the legacy stream itself holds a blocking stream, and cudaMemcpy (legacy too) comes after both. */
static void check_legacy_first(void)
{
    struct gate gate = {};
    cudaStream_t a;
    int value = 0;

    clear();
    CHECK(cudaStreamCreate(&a));
    CHECK(cudaLaunchHostFunc(cudaStreamLegacy, gate_wait, &gate));
    set<<<1, 1>>>(cells, 9);
    copy<<<1, 1, 0, a>>>(cells + 3, cells);
    CHECK_LAUNCH();
    gate_await_reached(&gate);
    EXPECT_ERR(cudaStreamQuery(a), cudaErrorNotReady);
    gate_open(&gate);
    CHECK(cudaMemcpy(&value, cells + 3, sizeof(value), cudaMemcpyDeviceToHost));
    EXPECT_EQ(value, 9);
    CHECK(cudaStreamDestroy(a));
}

int main(void)
{
    CHECK(cudaMalloc(&cells, 4 * sizeof(int)));
    check_blocking();
    check_independent();
    check_non_blocking();
    check_legacy_first();
    CHECK(cudaFree(cells));
    return 0;
}
