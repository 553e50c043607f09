// A call that is not waited for fails, and the thread that made it has ended: somebody hears of it, and only once. Natively
// the call itself says so. Where errors come later, the process does: the next call of any thread that can return one.
// nvcc: -Xcompiler -pthread
#include "check.h"
#include <pthread.h>

enum { ROUNDS = 50, BYTES = 64 };

/* Nobody's memory: no allocation and no mapping of a process lies there. */
static void *const nowhere = (void *)0x500000000000;

/* One call and nothing else: what this thread does not hear from it, it never hears. */
static void *set(void *user)
{
    *(cudaError_t *)user = cudaMemsetAsync(nowhere, 1, BYTES, cudaStreamPerThread);
    return NULL;
}

static cudaError_t set_in_thread(void)
{
    cudaError_t heard = cudaErrorUnknown;
    pthread_t thread;

    EXPECT(pthread_create(&thread, NULL, set, &heard) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
    return heard;
}

int main(void)
{
    CHECK(cudaFree(NULL));
    for (int round = 0; round < ROUNDS; round++) {
        cudaError_t heard = set_in_thread();
        cudaError_t later = cudaDeviceSynchronize();

        EXPECT_EQ(heard != cudaSuccess ? heard : later, cudaErrorInvalidValue);
        EXPECT(heard == cudaSuccess || later == cudaSuccess, "both the thread and the process heard of it");
        EXPECT_EQ(cudaGetLastError(), later);
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaGetLastError());
    }
    return 0;
}
