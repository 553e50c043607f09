// cudaStreamWaitEvent orders streams: a chain and a diamond over non-blocking streams, an event recorded again
// after the wait was issued, an event never recorded, and many streams behind one gate.
#include "check.h"
#include "gate.h"

__global__ void add_twice(int *to, const int *a, const int *b)
{
    *to = *a + *b;
}
__global__ void set(int *p, int value)
{
    *p = value;
}

enum { STREAMS = 8 };

static cudaStream_t streams[STREAMS];
static int *cells;

static int read_cell(int i)
{
    int value;

    CHECK(cudaMemcpy(&value, cells + i, sizeof(value), cudaMemcpyDeviceToHost));
    return value;
}

/* 0 -> 1 and 2 -> 3 */
static void check_diamond(void)
{
    struct gate gate = {};
    cudaEvent_t done[3];

    for (int i = 0; i < 3; i++)
        CHECK(cudaEventCreateWithFlags(&done[i], cudaEventDisableTiming));
    CHECK(cudaLaunchHostFunc(streams[0], gate_wait, &gate));
    set<<<1, 1, 0, streams[0]>>>(cells, 3);
    CHECK(cudaEventRecord(done[0], streams[0]));
    for (int i = 1; i < 3; i++) {
        CHECK(cudaStreamWaitEvent(streams[i], done[0], 0));
        add_twice<<<1, 1, 0, streams[i]>>>(cells + i, cells, cells);
        CHECK(cudaEventRecord(done[i], streams[i]));
        CHECK(cudaStreamWaitEvent(streams[3], done[i], 0));
    }
    add_twice<<<1, 1, 0, streams[3]>>>(cells + 3, cells + 1, cells + 2);
    CHECK_LAUNCH();
    gate_await_reached(&gate);
    EXPECT_ERR(cudaStreamQuery(streams[3]), cudaErrorNotReady);
    EXPECT_ERR(cudaEventQuery(done[2]), cudaErrorNotReady);
    gate_open(&gate);
    CHECK(cudaStreamSynchronize(streams[3]));
    EXPECT_EQ(read_cell(3), 12);
    for (int i = 0; i < 3; i++)
        CHECK(cudaEventDestroy(done[i]));
}

/* A wait is for the record that was the latest when the wait was issued. */
static void check_recorded_again(void)
{
    struct gate gate = {};
    cudaEvent_t event;

    CHECK(cudaEventCreate(&event));
    CHECK(cudaStreamWaitEvent(streams[5], event, 0));
    CHECK(cudaStreamSynchronize(streams[5]));
    set<<<1, 1, 0, streams[4]>>>(cells + 4, 11);
    CHECK(cudaEventRecord(event, streams[4]));
    CHECK(cudaStreamWaitEvent(streams[5], event, 0));
    CHECK(cudaLaunchHostFunc(streams[6], gate_wait, &gate));
    CHECK(cudaEventRecord(event, streams[6]));
    add_twice<<<1, 1, 0, streams[5]>>>(cells + 5, cells + 4, cells + 4);
    CHECK_LAUNCH();
    CHECK(cudaStreamSynchronize(streams[5]));
    EXPECT_ERR(cudaEventQuery(event), cudaErrorNotReady);
    gate_open(&gate);
    CHECK(cudaEventSynchronize(event));
    EXPECT_EQ(read_cell(5), 22);
    CHECK(cudaEventDestroy(event));
}

/* The event may be destroyed while streams wait for it. */
static void check_fan_out(void)
{
    struct gate gate = {};
    cudaEvent_t event;

    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    set<<<1, 1, 0, streams[0]>>>(cells, 0);
    CHECK(cudaLaunchHostFunc(streams[0], gate_wait, &gate));
    set<<<1, 1, 0, streams[0]>>>(cells, 21);
    CHECK(cudaEventRecord(event, streams[0]));
    for (int i = 1; i < STREAMS; i++) {
        CHECK(cudaStreamWaitEvent(streams[i], event, 0));
        add_twice<<<1, 1, 0, streams[i]>>>(cells + i, cells, cells);
    }
    CHECK_LAUNCH();
    CHECK(cudaEventDestroy(event));
    gate_open(&gate);
    CHECK(cudaDeviceSynchronize());
    for (int i = 1; i < STREAMS; i++)
        EXPECT_EQ(read_cell(i), 42);
}

int main(void)
{
    CHECK(cudaMalloc(&cells, STREAMS * sizeof(int)));
    for (int i = 0; i < STREAMS; i++)
        CHECK(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
    check_diamond();
    check_recorded_again();
    check_fan_out();
    for (int i = 0; i < STREAMS; i++)
        CHECK(cudaStreamDestroy(streams[i]));
    CHECK(cudaFree(cells));
    return 0;
}
