// Streams: creation with flags and priorities, what is asked of them, work in several of them, query and
// synchronize, and destruction while work is pending.
#include "check.h"
#include "gate.h"

__global__ void add(int *p, int n)
{
    *p += n;
}

static void check_properties(void)
{
    int least, greatest, priority = 99;
    unsigned flags = 99;
    unsigned long long id_a = 0, id_b = 0;
    cudaStream_t a, b;

    CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CHECK(cudaStreamCreate(&a));
    CHECK(cudaStreamGetFlags(a, &flags));
    EXPECT_EQ(flags, cudaStreamDefault);
    CHECK(cudaStreamGetPriority(a, &priority));
    EXPECT_EQ(priority, 0);
    CHECK(cudaStreamCreateWithPriority(&b, cudaStreamNonBlocking, greatest));
    CHECK(cudaStreamGetFlags(b, &flags));
    EXPECT_EQ(flags, cudaStreamNonBlocking);
    CHECK(cudaStreamGetPriority(b, &priority));
    EXPECT_EQ(priority, greatest);
    CHECK(cudaStreamGetId(a, &id_a));
    CHECK(cudaStreamGetId(b, &id_b));
    EXPECT(id_a != id_b);
    CHECK(cudaStreamDestroy(b));

    /* A priority out of range is clamped. */
    CHECK(cudaStreamCreateWithPriority(&b, cudaStreamDefault, greatest - 100));
    CHECK(cudaStreamGetPriority(b, &priority));
    EXPECT_EQ(priority, greatest);
    CHECK(cudaStreamDestroy(b));
    CHECK(cudaStreamDestroy(a));

    CHECK(cudaStreamGetFlags(0, &flags));
    EXPECT_EQ(flags, cudaStreamDefault);
    CHECK(cudaStreamGetPriority(cudaStreamPerThread, &priority));
    EXPECT_EQ(priority, 0);
    EXPECT_ERR(cudaStreamCreateWithFlags(&a, 0x100), cudaErrorInvalidValue);
    EXPECT_ERR(cudaStreamCreate(NULL), cudaErrorInvalidValue);
}

static void check_work(void)
{
    enum { STREAMS = 6 };
    cudaStream_t streams[STREAMS];
    int *counters, back[STREAMS];

    CHECK(cudaMalloc(&counters, sizeof(back)));
    CHECK(cudaMemset(counters, 0, sizeof(back)));
    for (int s = 0; s < STREAMS; s++)
        CHECK(cudaStreamCreateWithFlags(&streams[s], s % 2 ? cudaStreamNonBlocking : cudaStreamDefault));
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < 30; i++)
        for (int s = 0; s < STREAMS; s++)
            add<<<1, 1, 0, streams[s]>>>(counters + s, s + 1);
    CHECK_LAUNCH();
    for (int s = 0; s < STREAMS; s++) {
        CHECK(cudaStreamSynchronize(streams[s]));
        CHECK(cudaStreamQuery(streams[s]));
    }
    CHECK(cudaMemcpy(back, counters, sizeof(back), cudaMemcpyDeviceToHost));
    for (int s = 0; s < STREAMS; s++) {
        EXPECT_EQ(back[s], 30 * (s + 1));
        CHECK(cudaStreamDestroy(streams[s]));
    }
    CHECK(cudaFree(counters));
}

/* A query does not wait; destroying a stream lets its pending work finish. */
static void check_pending(void)
{
    struct gate gate = {};
    cudaStream_t stream;
    int *value, back = 0;

    CHECK(cudaMalloc(&value, sizeof(int)));
    CHECK(cudaMemset(value, 0, sizeof(int)));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaLaunchHostFunc(stream, gate_wait, &gate));
    add<<<1, 1, 0, stream>>>(value, 77);
    CHECK_LAUNCH();
    EXPECT_ERR(cudaStreamQuery(stream), cudaErrorNotReady);
    gate_await_reached(&gate);
    EXPECT_ERR(cudaStreamQuery(stream), cudaErrorNotReady);
    CHECK(cudaStreamDestroy(stream));
    gate_open(&gate);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(&back, value, sizeof(back), cudaMemcpyDeviceToHost));
    EXPECT_EQ(back, 77);
    CHECK(cudaFree(value));
}

/* What was destroyed gives its handle back, but not its id. */
static void check_ids(void)
{
    enum { STREAMS = 600 };
    static unsigned long long ids[STREAMS];
    cudaStream_t stream;

    for (int i = 0; i < STREAMS; i++) {
        CHECK(cudaStreamCreate(&stream));
        CHECK(cudaStreamGetId(stream, &ids[i]));
        CHECK(cudaStreamDestroy(stream));
        for (int j = 0; j < i; j++)
            EXPECT(ids[j] != ids[i], "streams %d and %d have the id %llu", j, i, ids[i]);
    }
}

int main(void)
{
    check_properties();
    check_ids();
    check_work();
    check_pending();
    CHECK(cudaGetLastError());
    return 0;
}
