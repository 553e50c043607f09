// Small synchronous copies out of pageable memory: they are in order with everything, they wait for work before them, and
// whatever comes behind them sees them.
#include "check.h"
#include "gate.h"

#include <pthread.h>

enum { COUNT = 2000, BYTES_MAX = 65536 };

__global__ void set(int *p, int value)
{
    *p = value;
}
__global__ void add(int *sum, const int *value)
{
    *sum += *value;
}
__global__ void sum_up(unsigned *sum, const unsigned char *bytes, int count)
{
    unsigned total = 0;
    for (int i = 0; i < count; i++)
        total += bytes[i];
    *sum = total;
}

/* Takes long enough that a copy which does not wait for it returns before its end. */
__global__ void set_late(volatile int *p, int value)
{
    for (int i = 0; i < 1000000; i++)
        *p = -i;
    *p = value;
}

static int *device_int(int value)
{
    int *p;

    CHECK(cudaMalloc(&p, sizeof(*p)));
    CHECK(cudaMemcpy(p, &value, sizeof(value), cudaMemcpyHostToDevice));
    return p;
}

static int value_of(const int *p)
{
    int value;

    CHECK(cudaMemcpy(&value, p, sizeof(value), cudaMemcpyDeviceToHost));
    return value;
}

/* Each kernel sees the copy before it and none behind it, and the program's memory may be changed at once. */
static void check_order(void)
{
    int *sum = device_int(0), *cell = device_int(0), value;

    for (value = 1; value <= COUNT; value++) {
        CHECK(cudaMemcpy(cell, &value, sizeof(value), cudaMemcpyHostToDevice));
        add<<<1, 1>>>(sum, cell);
    }
    CHECK_LAUNCH();
    EXPECT_EQ(value_of(sum), COUNT * (COUNT + 1) / 2);
    /* Without kernels between: the last one counts. */
    for (value = 1; value <= COUNT; value++)
        CHECK(cudaMemcpy(cell, &value, sizeof(value), cudaMemcpyHostToDevice));
    add<<<1, 1>>>(sum, cell);
    EXPECT_EQ(value_of(sum), COUNT * (COUNT + 1) / 2 + COUNT);
    CHECK(cudaFree(sum));
    CHECK(cudaFree(cell));
}

static void check_sizes(void)
{
    static const int sizes[] = {1, 3, 4096, 65535, 65536, 65537, 100000};
    static unsigned char bytes[100000];
    unsigned char *device;
    unsigned *sum, seen;

    CHECK(cudaMalloc(&device, sizeof(bytes)));
    CHECK(cudaMalloc(&sum, sizeof(*sum)));
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        unsigned expected = 0;
        for (int k = 0; k < sizes[i]; k++)
            expected += bytes[k] = (unsigned char)(k * 7 + (int)i);
        CHECK(cudaMemcpy(device, bytes, sizes[i], cudaMemcpyHostToDevice));
        memset(bytes, 0xee, sizes[i]);
        sum_up<<<1, 1>>>(sum, device, sizes[i]);
        CHECK(cudaMemcpy(&seen, sum, sizeof(seen), cudaMemcpyDeviceToHost));
        EXPECT_EQ(seen, expected);
    }
    CHECK(cudaFree(device));
    CHECK(cudaFree(sum));
}

/* ---- waiting for what is before them ---- */

struct waiting {
    int *cell;
    int is_done;
};

static void *copy_in_thread(void *user)
{
    struct waiting *waiting = (struct waiting *)user;
    int value = 5;

    CHECK(cudaMemcpy(waiting->cell, &value, sizeof(value), cudaMemcpyHostToDevice));
    __atomic_store_n(&waiting->is_done, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* A kernel behind a gate, in this stream: the copy of another thread waits for it. */
static void check_wait(cudaStream_t stream)
{
    struct waiting waiting = {device_int(0), 0};
    struct gate gate = {};
    int *ran = device_int(0), seen;
    pthread_t thread;

    CHECK(cudaDeviceSynchronize());
    CHECK(cudaLaunchHostFunc(stream, gate_wait, &gate));
    set<<<1, 1, 0, stream>>>(ran, 1);
    CHECK_LAUNCH();
    gate_await_reached(&gate);
    EXPECT(pthread_create(&thread, NULL, copy_in_thread, &waiting) == 0);
    usleep(50000);
    EXPECT(!__atomic_load_n(&waiting.is_done, __ATOMIC_ACQUIRE), "a copy did not wait for the stream");
    gate_open(&gate);
    pthread_join(thread, NULL);
    CHECK(cudaMemcpy(&seen, ran, sizeof(seen), cudaMemcpyDeviceToHost));
    EXPECT_EQ(seen, 1);
    EXPECT_EQ(value_of(waiting.cell), 5);
    CHECK(cudaFree(ran));
    CHECK(cudaFree(waiting.cell));
}

/* The same without a host function, which alone makes copies wait: what is pending is a kernel. */
static void check_wait_for_kernel(cudaStream_t stream)
{
    int *cell = device_int(0), *late = device_int(0), value = 5;
    cudaEvent_t event;

    CHECK(cudaEventCreate(&event));
    for (int round = 0; round < 5; round++) {
        CHECK(cudaMemcpy(cell, &value, sizeof(value), cudaMemcpyHostToDevice));
        set_late<<<1, 1, 0, stream>>>(late, round);
        CHECK(cudaEventRecord(event, stream));
        CHECK(cudaMemcpy(cell, &value, sizeof(value), cudaMemcpyHostToDevice));
        CHECK(cudaEventQuery(event));
        CHECK(cudaMemcpy(cell, &value, sizeof(value), cudaMemcpyHostToDevice));
        EXPECT_EQ(value_of(late), round);
    }
    CHECK(cudaEventDestroy(event));
    CHECK(cudaFree(cell));
    CHECK(cudaFree(late));
}

/* A program may use such a copy to wait for bytes that come to pinned memory, and to use pinned memory again. */
static void check_pinned(void)
{
    enum { INTS = 1 << 20 };
    int *device, *pinned, *cell = device_int(0), value = 1;

    CHECK(cudaMalloc(&device, INTS * sizeof(int)));
    CHECK(cudaMallocHost(&pinned, INTS * sizeof(int)));
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < INTS; i++)
            pinned[i] = i + round;
        CHECK(cudaMemcpyAsync(device, pinned, INTS * sizeof(int), cudaMemcpyHostToDevice, 0));
        CHECK(cudaMemcpy(cell, &value, sizeof(value), cudaMemcpyHostToDevice));
        memset(pinned, 0xff, INTS * sizeof(int));
        CHECK(cudaMemcpyAsync(pinned, device, INTS * sizeof(int), cudaMemcpyDeviceToHost, 0));
        CHECK(cudaMemcpy(cell, &value, sizeof(value), cudaMemcpyHostToDevice));
        for (int i = 0; i < INTS; i++)
            EXPECT_EQ(pinned[i], i + round);
    }
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(device));
    CHECK(cudaFree(cell));
}

/* ---- what comes behind them ---- */

static void check_streams(void)
{
    int *cell = device_int(0), *sum = device_int(0), value;
    cudaStream_t blocking, other;
    cudaEvent_t event;

    CHECK(cudaStreamCreate(&blocking));
    CHECK(cudaEventCreate(&event));
    for (value = 1; value <= 100; value++) {
        CHECK(cudaMemcpy(cell, &value, sizeof(value), cudaMemcpyHostToDevice));
        add<<<1, 1, 0, blocking>>>(sum, cell);
    }
    CHECK(cudaMemcpy(cell, &value, sizeof(value), cudaMemcpyHostToDevice));
    CHECK(cudaEventRecord(event, 0));
    CHECK(cudaEventSynchronize(event));
    EXPECT_EQ(value_of(sum), 5050);
    EXPECT_EQ(value_of(cell), 101);

    CHECK(cudaMemset(sum, 0, sizeof(*sum)));
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    for (value = 1; value <= 100; value++) {
        CHECK(cudaMemcpy(cell, &value, sizeof(value), cudaMemcpyHostToDevice));
        CHECK(cudaStreamSynchronize(0)); /* CUDA promises nothing to such a stream without it */
        add<<<1, 1, 0, other>>>(sum, cell);
        CHECK(cudaStreamSynchronize(other));
    }
    EXPECT_EQ(value_of(sum), 5050);
    CHECK(cudaStreamDestroy(blocking));
    CHECK(cudaStreamDestroy(other));
    CHECK(cudaEventDestroy(event));
    CHECK(cudaFree(cell));
    CHECK(cudaFree(sum));
}

static void *copy_and_end(void *user)
{
    int *cells = (int *)user;

    for (int i = 0; i < 100; i++) {
        int value = i + 1;
        CHECK(cudaMemcpy(cells + i, &value, sizeof(value), cudaMemcpyHostToDevice));
    }
    return NULL;
}

/* A thread that has ended behind its copies; and memory that is freed behind them, and is given again. */
static void check_ends(void)
{
    int *cells, seen[100];
    pthread_t thread;

    CHECK(cudaMalloc(&cells, sizeof(seen)));
    EXPECT(pthread_create(&thread, NULL, copy_and_end, cells) == 0);
    pthread_join(thread, NULL);
    CHECK(cudaMemcpy(seen, cells, sizeof(seen), cudaMemcpyDeviceToHost));
    for (int i = 0; i < 100; i++)
        EXPECT_EQ(seen[i], i + 1);
    CHECK(cudaFree(cells));
    for (int i = 0; i < 200; i++) {
        int *cell = device_int(i);
        EXPECT_EQ(value_of(cell), i);
        CHECK(cudaMalloc(&cells, sizeof(seen)));
        copy_and_end(cells);
        CHECK(cudaFree(cells));
        CHECK(cudaFree(cell));
    }
}

/* A wrong place is told by the call itself, and the next one is good. */
static void check_errors(void)
{
    int *cell = device_int(3), *gone = device_int(3), value = 4;
    static char bytes[BYTES_MAX];

    CHECK(cudaFree(gone));
    for (int i = 0; i < 3; i++) {
        CHECK(cudaMemcpy(cell, &value, sizeof(value), cudaMemcpyHostToDevice));
        EXPECT_ERR(cudaMemcpy(NULL, &value, sizeof(value), cudaMemcpyHostToDevice), cudaErrorInvalidValue);
        EXPECT_ERR(cudaMemcpy(&value, bytes, sizeof(value), cudaMemcpyHostToDevice), cudaErrorInvalidValue);
        EXPECT_EQ(value, 4);
        CHECK(cudaMemcpy(cell, &value, sizeof(value), cudaMemcpyHostToDevice));
    }
    EXPECT_EQ(value_of(cell), 4);
    if (getenv("FLYT_TEST_FORWARDED")) {
        EXPECT_ERR(cudaMemcpy(gone, &value, sizeof(value), cudaMemcpyHostToDevice), cudaErrorInvalidValue);
        EXPECT_ERR(cudaMemcpy(cell, bytes, sizeof(bytes), cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    }
    EXPECT_EQ(value_of(cell), 4);
    CHECK(cudaFree(cell));
}

int main()
{
    cudaStream_t blocking;

    check_order();
    check_sizes();
    check_wait(0);
    check_wait_for_kernel(0);
    CHECK(cudaStreamCreate(&blocking));
    check_wait(blocking);
    check_wait_for_kernel(blocking);
    CHECK(cudaStreamDestroy(blocking));
    check_pinned();
    check_ends();
    check_errors();
    check_streams();
    return 0;
}
