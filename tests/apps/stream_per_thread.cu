// A program built for the per-thread default stream: each thread has its own, <<<>>> and the plain calls use it,
// threads do not wait for each other, and the legacy stream is still ordered with it.
// nvcc: --default-stream per-thread
#include "check.h"
#include "gate.h"
#include <pthread.h>

__global__ void add(int *p, int n)
{
    *p += n;
}
__global__ void copy(int *to, const int *from)
{
    *to = *from;
}

static void *work_undisturbed(void *argument)
{
    int *cell = (int *)argument, back = 0, value = 100;

    CHECK(cudaMemcpy(cell, &value, sizeof(value), cudaMemcpyHostToDevice));
    for (int i = 0; i < 20; i++)
        add<<<1, 1>>>(cell, 2);
    CHECK_LAUNCH();
    CHECK(cudaMemcpyAsync(&back, cell, sizeof(back), cudaMemcpyDeviceToHost, 0));
    CHECK(cudaStreamSynchronize(0));
    EXPECT_EQ(back, 140);
    return NULL;
}

int main(void)
{
    struct gate gate = {}, legacy_gate = {};
    pthread_t thread;
    int *cells, back = 0;

    CHECK(cudaMalloc(&cells, 4 * sizeof(int)));
    CHECK(cudaMemset(cells, 0, 4 * sizeof(int)));
    CHECK(cudaDeviceSynchronize());

    /* This thread's default stream stands at a gate; another thread's runs on. */
    CHECK(cudaLaunchHostFunc(0, gate_wait, &gate));
    add<<<1, 1>>>(cells, 7);
    CHECK_LAUNCH();
    EXPECT_ERR(cudaStreamQuery(cudaStreamPerThread), cudaErrorNotReady);
    EXPECT(pthread_create(&thread, NULL, work_undisturbed, cells + 1) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
    EXPECT_ERR(cudaStreamQuery(0), cudaErrorNotReady);

    /* The legacy stream, named, waits for it, and it for the legacy stream. */
    copy<<<1, 1, 0, cudaStreamLegacy>>>(cells + 2, cells);
    CHECK(cudaLaunchHostFunc(cudaStreamLegacy, gate_wait, &legacy_gate));
    copy<<<1, 1>>>(cells + 3, cells + 2);
    CHECK_LAUNCH();
    gate_open(&gate);
    gate_await_reached(&legacy_gate);
    EXPECT_ERR(cudaStreamQuery(0), cudaErrorNotReady);
    gate_open(&legacy_gate);
    CHECK(cudaStreamSynchronize(0));
    CHECK(cudaMemcpy(&back, cells + 3, sizeof(back), cudaMemcpyDeviceToHost));
    EXPECT_EQ(back, 7);
    CHECK(cudaFree(cells));
    return 0;
}
