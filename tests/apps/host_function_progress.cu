// No deadlock where stream A waits in a host function for what another thread does on stream B: copies, launches
// and synchronization there all go on while A is held. Memory is pinned and allocated beforehand: natively an
// asynchronous copy to pageable memory holds up its thread until the stream gets there.
#include "check.h"
#include "gate.h"
#include <pthread.h>

__global__ void first_use(int *p)
{
    *p = 1;
}
__global__ void late_use(int *p)
{
    *p += 41;
}

static struct gate gate;
static int *p_a, *p_b, *back_a, *back_b;

static void *work_on_b(void *unused)
{
    cudaStream_t b;
    cudaEvent_t event;

    gate_await_reached(&gate);
    CHECK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&event));
    CHECK(cudaMemsetAsync(p_b, 0, sizeof(int), b));
    first_use<<<1, 1, 0, b>>>(p_b);
    late_use<<<1, 1, 0, b>>>(p_b);
    CHECK_LAUNCH();
    CHECK(cudaEventRecord(event, b));
    CHECK(cudaEventSynchronize(event));
    CHECK(cudaMemcpyAsync(back_b, p_b, sizeof(int), cudaMemcpyDeviceToHost, b));
    CHECK(cudaStreamSynchronize(b));
    EXPECT_EQ(*back_b, 42);
    CHECK(cudaStreamDestroy(b));
    CHECK(cudaEventDestroy(event));
    gate_open(&gate);
    return NULL;
}

int main(void)
{
    cudaStream_t a;
    pthread_t thread;

    CHECK(cudaMalloc(&p_a, sizeof(int)));
    CHECK(cudaMalloc(&p_b, sizeof(int)));
    CHECK(cudaMallocHost(&back_a, sizeof(int)));
    CHECK(cudaMallocHost(&back_b, sizeof(int)));
    CHECK(cudaMemset(p_a, 0, sizeof(int)));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    EXPECT(pthread_create(&thread, NULL, work_on_b, NULL) == 0);
    CHECK(cudaLaunchHostFunc(a, gate_wait, &gate));
    for (int i = 0; i < 50; i++)
        first_use<<<1, 1, 0, a>>>(p_a);
    late_use<<<1, 1, 0, a>>>(p_a);
    CHECK_LAUNCH();
    CHECK(cudaMemcpyAsync(back_a, p_a, sizeof(int), cudaMemcpyDeviceToHost, a));
    /* This thread waits for A, which waits for the other thread's use of B. */
    CHECK(cudaStreamSynchronize(a));
    EXPECT_EQ(*back_a, 42);
    EXPECT(pthread_join(thread, NULL) == 0);
    CHECK(cudaFree(p_a));
    CHECK(cudaFree(p_b));
    CHECK(cudaFreeHost(back_a));
    CHECK(cudaFreeHost(back_b));
    CHECK(cudaStreamDestroy(a));
    return 0;
}
