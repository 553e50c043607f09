// Managed memory that is attached: to the host, which may use it whatever the GPU does; to a stream, which may be idle
// while others are busy; back to all; and what becomes of it when its stream is destroyed.
// nvcc: -lpthread
#include <pthread.h>
#include "check.h"

enum { WORDS = 3000, LARGE_WORDS = 1 << 20 };

__global__ void add(uint32_t *words, size_t count, uint32_t value)
{
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        words[i] += value;
}

static void launch_add(uint32_t *words, size_t count, uint32_t value, cudaStream_t stream)
{
    add<<<4, 128, 0, stream>>>(words, count, value);
    CHECK_LAUNCH();
}

static uint32_t *alloc(size_t words, unsigned flags = cudaMemAttachGlobal)
{
    void *memory = NULL;

    CHECK(cudaMallocManaged(&memory, words * 4, flags));
    return (uint32_t *)memory;
}

static void fill(uint32_t *words, size_t count, uint32_t value)
{
    for (size_t i = 0; i < count; i++)
        words[i] = value;
}

static void expect_all(const uint32_t *words, size_t count, uint32_t value)
{
    for (size_t i = 0; i < count; i++)
        EXPECT(words[i] == value, "word %zu: %u, expected %u", i, words[i], value);
}

/* ---- a stream that stands still until it is told ---- */

struct gate {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool is_open;
};

static void wait_open(void *user)
{
    struct gate *gate = (struct gate *)user;

    pthread_mutex_lock(&gate->mutex);
    while (!gate->is_open)
        pthread_cond_wait(&gate->changed, &gate->mutex);
    pthread_mutex_unlock(&gate->mutex);
}

static void open_gate(struct gate *gate)
{
    pthread_mutex_lock(&gate->mutex);
    gate->is_open = true;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->mutex);
}

/* While the busy stream has work to come that uses `shared`, the host and the other stream use what is theirs. */
static void beside_a_busy_stream(size_t count)
{
    struct gate gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};
    uint32_t *shared = alloc(count), *own = alloc(count), *of_host = alloc(count, cudaMemAttachHost);
    cudaStream_t busy, stream;

    CHECK(cudaStreamCreateWithFlags(&busy, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    fill(shared, count, 1);
    CHECK(cudaStreamAttachMemAsync(stream, own));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaLaunchHostFunc(busy, wait_open, &gate));
    launch_add(shared, count, 5, busy);
    for (uint32_t round = 1; round <= 3; round++) {
        fill(own, count, round);
        fill(of_host, count, 10 * round);
        launch_add(own, count, 100, stream);
        expect_all(of_host, count, 10 * round);
        CHECK(cudaStreamSynchronize(stream));
        expect_all(own, count, 100 + round);
        expect_all(of_host, count, 10 * round);
        EXPECT_ERR(cudaStreamQuery(busy), cudaErrorNotReady);
    }
    open_gate(&gate);
    CHECK(cudaStreamSynchronize(busy));
    expect_all(shared, count, 6);
    expect_all(own, count, 103);
    CHECK(cudaFree(shared));
    CHECK(cudaFree(own));
    CHECK(cudaFree(of_host));
    CHECK(cudaStreamDestroy(busy));
    CHECK(cudaStreamDestroy(stream));
}

/* From one to the next: what was written before is there. */
static void moves_on(size_t count)
{
    uint32_t *words = alloc(count, cudaMemAttachHost);
    cudaStream_t first, second;
    cudaEvent_t event;

    CHECK(cudaStreamCreate(&first));
    CHECK(cudaStreamCreate(&second));
    CHECK(cudaEventCreate(&event));
    fill(words, count, 1);
    CHECK(cudaStreamAttachMemAsync(first, words, 0, cudaMemAttachSingle));
    launch_add(words, count, 1, first);
    CHECK(cudaEventRecord(event, first));
    CHECK(cudaEventSynchronize(event)); /* nothing of the stream comes after it */
    expect_all(words, count, 2);
    words[7] = 50;
    CHECK(cudaStreamSynchronize(first));
    CHECK(cudaStreamAttachMemAsync(second, words, count * 4, cudaMemAttachSingle));
    launch_add(words, count, 1, second);
    CHECK(cudaDeviceSynchronize());
    EXPECT_EQ(words[6], 3);
    EXPECT_EQ(words[7], 51);
    launch_add(words, count, 1, second);
    CHECK(cudaStreamAttachMemAsync(second, words, 0, cudaMemAttachHost));
    CHECK(cudaStreamSynchronize(second));
    EXPECT_EQ(words[count - 1], 4);
    words[count - 1] = 60;
    CHECK(cudaStreamAttachMemAsync(NULL, words, 0, cudaMemAttachGlobal));
    CHECK(cudaStreamSynchronize(NULL));
    launch_add(words, count, 1, first);
    CHECK(cudaStreamSynchronize(NULL)); /* which is behind all streams that block */
    EXPECT_EQ(words[count - 1], 61);
    EXPECT_EQ(words[0], 5);
    CHECK(cudaFree(words));
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
    CHECK(cudaEventDestroy(event));
}

/* Without its stream the memory is what it was when it was allocated: everybody's. */
static void stream_is_destroyed(size_t count)
{
    uint32_t *words = alloc(count);
    cudaStream_t stream, other;

    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamCreate(&other));
    CHECK(cudaStreamAttachMemAsync(stream, words));
    CHECK(cudaStreamSynchronize(stream));
    fill(words, count, 1);
    launch_add(words, count, 1, stream);
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaDeviceSynchronize());
    expect_all(words, count, 2);
    words[1] = 9;
    launch_add(words, count, 1, other);
    CHECK(cudaStreamSynchronize(other));
    EXPECT_EQ(words[0], 3);
    EXPECT_EQ(words[1], 10);
    CHECK(cudaFree(words));
    CHECK(cudaStreamDestroy(other));
}

/* Copies name their memory, whoever it is attached to. */
static void copies(size_t count)
{
    uint32_t *words = alloc(count, cudaMemAttachHost), back[4] = {0}, *device;

    CHECK(cudaMalloc(&device, count * 4));
    fill(words, count, 3);
    CHECK(cudaMemcpy(device, words, count * 4, cudaMemcpyDefault));
    words[2] = 8;
    launch_add(device, count, 1, 0);
    CHECK(cudaMemcpy(back, device, sizeof back, cudaMemcpyDeviceToHost));
    EXPECT_EQ(back[2], 4);
    EXPECT_EQ(words[2], 8);
    CHECK(cudaMemcpy(words + count / 2, device, count * 2, cudaMemcpyDefault));
    EXPECT_EQ(words[2], 8);
    EXPECT_EQ(words[count - 1], 4);
    words[count - 1] = 5;
    CHECK(cudaMemcpy(back, words + count - 4, sizeof back, cudaMemcpyDefault));
    EXPECT_EQ(back[3], 5);
    CHECK(cudaFree(words));
    CHECK(cudaFree(device));
}

static void refused(void)
{
    uint32_t *words = alloc(WORDS), *device;
    cudaStream_t stream;

    CHECK(cudaMalloc(&device, 64));
    CHECK(cudaStreamCreate(&stream));
    EXPECT(cudaStreamAttachMemAsync(NULL, words, 0, cudaMemAttachSingle) != cudaSuccess);
    EXPECT(cudaStreamAttachMemAsync(stream, words, 0, 7) != cudaSuccess);
    EXPECT(cudaStreamAttachMemAsync(stream, words, 4096, cudaMemAttachSingle) != cudaSuccess);
    EXPECT(cudaStreamAttachMemAsync(stream, device, 0, cudaMemAttachSingle) != cudaSuccess);
    cudaGetLastError();
    words[0] = 4;
    launch_add(words, 1, 1, 0);
    CHECK(cudaDeviceSynchronize());
    EXPECT_EQ(words[0], 5);
    CHECK(cudaFree(words));
    CHECK(cudaFree(device));
    CHECK(cudaStreamDestroy(stream));
}

int main(void)
{
    int is_there = 0;

    CHECK(cudaDeviceGetAttribute(&is_there, cudaDevAttrManagedMemory, 0));
    if (!is_there)
        SKIP("the device has no managed memory");
    launch_add(alloc(1), 1, 1, 0); /* natively a kernel that is loaded while a host function waits, waits for that */
    CHECK(cudaDeviceSynchronize());
    for (size_t count : {(size_t)WORDS, (size_t)LARGE_WORDS}) {
        beside_a_busy_stream(count);
        moves_on(count);
        stream_is_destroyed(count);
        copies(count);
    }
    refused();
    return 0;
}
