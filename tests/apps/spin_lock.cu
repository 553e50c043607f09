// A spin lock over blocks and among the threads of a warp (which needs independent thread scheduling), and a producer
// and a consumer in two blocks that hand values over with fences.
#include "check.h"

enum { BLOCKS = 4, THREADS = 32, ROUNDS = 5, ITEMS = 50 };

__device__ int lock_word;
__device__ volatile int mailbox_full;
__device__ volatile int mailbox;

__global__ void count_under_lock(volatile int *counter)
{
    for (int i = 0; i < ROUNDS; i++) {
        int done = 0;

        while (!done) {
            if (atomicCAS(&lock_word, 0, 1) == 0) {
                __threadfence();
                *counter = *counter + 1;
                __threadfence();
                atomicExch(&lock_word, 0);
                done = 1;
            }
        }
    }
}

/* Two blocks that run at the same time: a cooperative launch grants it. */
__global__ void hand_over(int *received)
{
    if (threadIdx.x != 0)
        return;
    if (blockIdx.x == 0) {
        for (int i = 0; i < ITEMS; i++) {
            while (mailbox_full)
                __nanosleep(100);
            mailbox = i * i;
            __threadfence();
            mailbox_full = 1;
        }
    } else {
        for (int i = 0; i < ITEMS; i++) {
            while (!mailbox_full)
                __nanosleep(100);
            __threadfence();
            received[i] = mailbox;
            __threadfence();
            mailbox_full = 0;
        }
    }
}

int main(void)
{
    int *memory, back[ITEMS];
    void *args[] = {&memory};

    CHECK(cudaMalloc(&memory, sizeof(back)));
    CHECK(cudaMemset(memory, 0, sizeof(back)));
    count_under_lock<<<BLOCKS, THREADS>>>(memory);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, memory, sizeof(int), cudaMemcpyDeviceToHost));
    EXPECT_EQ(back[0], BLOCKS * THREADS * ROUNDS);
    CHECK(cudaLaunchCooperativeKernel((const void *)hand_over, dim3(2), dim3(32), args, 0, 0));
    CHECK(cudaMemcpy(back, memory, sizeof(back), cudaMemcpyDeviceToHost));
    for (int i = 0; i < ITEMS; i++)
        EXPECT_EQ(back[i], i * i);
    CHECK(cudaFree(memory));
    return 0;
}
