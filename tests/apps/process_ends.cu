// A process may end in any way while CUDA work is pending: by exit, _exit, return from main, exit from another
// thread, with threads still at work, or by a signal. Each ends promptly and with its own status.
#include "check.h"
#include <pthread.h>
#include <signal.h>

__global__ void busy(unsigned *p, int rounds)
{
    unsigned x = threadIdx.x;

    for (int i = 0; i < rounds; i++)
        x = x * 1664525u + 1013904223u;
    p[threadIdx.x] = x;
}

/* Queues kernels, copies and an allocation that is never freed. */
static void start_work(void)
{
    static unsigned host[64];
    unsigned *p;
    cudaStream_t stream;

    CHECK(cudaMalloc(&p, 8 << 20));
    CHECK(cudaStreamCreate(&stream));
    for (int i = 0; i < 20; i++) {
        busy<<<4, 64, 0, stream>>>(p, 300);
        CHECK_LAUNCH();
        CHECK(cudaMemcpyAsync(host, p, sizeof(host), cudaMemcpyDeviceToHost, stream));
    }
}

static int by_exit(void)
{
    start_work();
    exit(31);
}

static int by_underscore_exit(void)
{
    start_work();
    _exit(32);
}

static int by_return(void)
{
    start_work();
    return 33;
}

static void *exit_34(void *unused)
{
    start_work();
    exit(34);
}

static int by_exit_from_a_thread(void)
{
    pthread_t thread;

    start_work();
    pthread_create(&thread, NULL, exit_34, NULL);
    pthread_join(thread, NULL);
    return 1;
}

static void *work_for_ever(void *unused)
{
    unsigned *p;

    CHECK(cudaMalloc(&p, 4096));
    for (;;) {
        busy<<<1, 32>>>(p, 10);
        usleep(50);
    }
    return NULL;
}

static int with_threads_at_work(void)
{
    pthread_t threads[3];

    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, work_for_ever, NULL);
    start_work();
    usleep(20000);
    _exit(35);
}

static int by_signal(void)
{
    start_work();
    raise(SIGKILL);
    return 1;
}

static int without_any_cuda(void)
{
    return 36;
}

int main(void)
{
    EXPECT_EQ(run_in_child(by_exit), 31);
    EXPECT_EQ(run_in_child(by_underscore_exit), 32);
    EXPECT_EQ(run_in_child(by_return), 33);
    EXPECT_EQ(run_in_child(by_exit_from_a_thread), 34);
    EXPECT_EQ(run_in_child(with_threads_at_work), 35);
    EXPECT_EQ(run_in_child(by_signal), 1000 + SIGKILL);
    EXPECT_EQ(run_in_child(without_any_cuda), 36);
    /* This process has used no CUDA yet and now does. */
    start_work();
    CHECK(cudaDeviceSynchronize());
    return 0;
}
