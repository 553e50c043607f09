// Eight host threads, each with its own stream and memory, run their own sequences without disturbing each other.
#include "check.h"
#include <pthread.h>

enum { THREADS = 8, COUNT = 2000, ROUNDS = 25 };

__global__ void step(uint32_t *values, uint32_t salt)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < COUNT)
        values[i] = values[i] * 1664525u + salt + i;
}

static void *work(void *argument)
{
    uint32_t id = (uint32_t)(intptr_t)argument, *device, *host, *want;
    cudaStream_t stream;
    cudaEvent_t event;

    host = (uint32_t *)malloc(COUNT * sizeof(*host));
    want = (uint32_t *)malloc(COUNT * sizeof(*want));
    for (uint32_t i = 0; i < COUNT; i++)
        want[i] = host[i] = id * 1000003u + i;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&event));
    CHECK(cudaMalloc(&device, COUNT * sizeof(*device)));
    CHECK(cudaMemcpyAsync(device, host, COUNT * sizeof(*host), cudaMemcpyHostToDevice, stream));
    for (uint32_t round = 0; round < ROUNDS; round++) {
        step<<<(COUNT + 127) / 128, 128, 0, stream>>>(device, id + round);
        CHECK_LAUNCH();
        for (uint32_t i = 0; i < COUNT; i++)
            want[i] = want[i] * 1664525u + id + round + i;
        if (round % 8 == 0) {
            CHECK(cudaEventRecord(event, stream));
            CHECK(cudaEventSynchronize(event));
        }
    }
    CHECK(cudaMemcpyAsync(host, device, COUNT * sizeof(*host), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (uint32_t i = 0; i < COUNT; i++)
        EXPECT(host[i] == want[i], "thread %u, value %u: %u, expected %u", id, i, host[i], want[i]);
    CHECK(cudaFree(device));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaEventDestroy(event));
    CHECK(cudaGetLastError());
    free(host);
    free(want);
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];

    /* The threads also race for the very first CUDA call. */
    for (intptr_t i = 0; i < THREADS; i++)
        EXPECT(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        EXPECT(pthread_join(threads[i], NULL) == 0);
    return 0;
}
