// Eight host threads issue to the same two streams: nothing is lost, each thread's own order is kept within a
// stream, and all may wait for it.
#include "check.h"
#include <pthread.h>

enum { THREADS = 8, ROUNDS = 40 };

struct cell {
    int last;     /* the last round seen */
    int disorder; /* rounds that came too early or too late */
};

__global__ void visit(struct cell *cell, int *total, int round)
{
    if (cell->last != round - 1)
        cell->disorder++;
    cell->last = round;
    atomicAdd(total, round);
}

static cudaStream_t streams[2];
static struct cell *cells; /* one per thread */
static int *total;

static void *work(void *argument)
{
    intptr_t id = (intptr_t)argument;
    cudaStream_t stream = streams[id % 2];

    for (int round = 1; round <= ROUNDS; round++) {
        visit<<<1, 1, 0, stream>>>(cells + id, total, round);
        CHECK_LAUNCH();
        if (round % 10 == 0)
            CHECK(cudaStreamSynchronize(stream));
    }
    return NULL;
}

int main(void)
{
    struct cell back[THREADS];
    pthread_t threads[THREADS];
    int sum = 0;

    CHECK(cudaMalloc(&cells, sizeof(back)));
    CHECK(cudaMalloc(&total, sizeof(int)));
    CHECK(cudaMemset(cells, 0, sizeof(back)));
    CHECK(cudaMemset(total, 0, sizeof(int)));
    for (int i = 0; i < 2; i++)
        CHECK(cudaStreamCreate(&streams[i]));
    CHECK(cudaDeviceSynchronize());
    for (intptr_t i = 0; i < THREADS; i++)
        EXPECT(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        EXPECT(pthread_join(threads[i], NULL) == 0);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(back, cells, sizeof(back), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(&sum, total, sizeof(sum), cudaMemcpyDeviceToHost));
    for (int i = 0; i < THREADS; i++) {
        EXPECT_EQ(back[i].last, ROUNDS);
        EXPECT_EQ(back[i].disorder, 0);
    }
    EXPECT_EQ(sum, THREADS * ROUNDS * (ROUNDS + 1) / 2);
    for (int i = 0; i < 2; i++)
        CHECK(cudaStreamDestroy(streams[i]));
    CHECK(cudaFree(cells));
    CHECK(cudaFree(total));
    return 0;
}
