// malloc and free in kernels: blocks of one launch are used and freed by others, do not overlap, and a request
// beyond the heap is NULL.
#include "check.h"

enum { THREADS = 96, WORDS = 20 };

__global__ void make(int **blocks)
{
    int *p = (int *)malloc(WORDS * sizeof(int));

    for (int i = 0; p && i < WORDS; i++)
        p[i] = threadIdx.x * 100 + i;
    blocks[threadIdx.x] = p;
}

__global__ void sum_and_free(int **blocks, int *sums)
{
    int *p = blocks[threadIdx.x], sum = 0;

    for (int i = 0; i < WORDS; i++)
        sum += p[i];
    sums[threadIdx.x] = sum;
    free(p);
}

__global__ void too_much(int *is_null, size_t bytes)
{
    void *p = malloc(bytes);

    *is_null = p == NULL;
    free(p);
}

/* The heap is reused: this needs it many times over. */
__global__ void again_and_again(int *failures)
{
    for (int i = 0; i < 50; i++) {
        char *p = (char *)malloc(16 << 10);

        if (p)
            p[0] = p[16383] = 1;
        else
            atomicAdd(failures, 1);
        free(p);
    }
}

int main(void)
{
    int **blocks, *sums, *addresses[THREADS], back[THREADS], value = -1;

    CHECK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 8 << 20));
    CHECK(cudaMalloc(&blocks, sizeof(addresses)));
    CHECK(cudaMalloc(&sums, sizeof(back)));
    for (int round = 0; round < 3; round++) {
        make<<<1, THREADS>>>(blocks);
        CHECK_LAUNCH();
        CHECK(cudaMemcpy(addresses, blocks, sizeof(addresses), cudaMemcpyDeviceToHost));
        for (int i = 0; i < THREADS; i++) {
            EXPECT(addresses[i] && (uintptr_t)addresses[i] % 16 == 0, "%p", (void *)addresses[i]);
            for (int j = 0; j < i; j++)
                EXPECT(llabs((long long)((char *)addresses[i] - (char *)addresses[j])) >= WORDS * 4);
        }
        sum_and_free<<<1, THREADS>>>(blocks, sums);
        CHECK_LAUNCH();
        CHECK(cudaMemcpy(back, sums, sizeof(back), cudaMemcpyDeviceToHost));
        for (int i = 0; i < THREADS; i++)
            EXPECT_EQ(back[i], i * 100 * WORDS + WORDS * (WORDS - 1) / 2);
    }
    too_much<<<1, 1>>>(sums, (size_t)1 << 40);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(&value, sums, sizeof(value), cudaMemcpyDeviceToHost));
    EXPECT_EQ(value, 1);
    CHECK(cudaMemset(sums, 0, sizeof(int)));
    again_and_again<<<1, 32>>>(sums);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(&value, sums, sizeof(value), cudaMemcpyDeviceToHost));
    EXPECT_EQ(value, 0);
    CHECK(cudaFree(blocks));
    CHECK(cudaFree(sums));
    return 0;
}
