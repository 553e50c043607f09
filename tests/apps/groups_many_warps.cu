// Cooperative groups of more than a warp: tiles of 64 and 256 threads synchronise, shuffle through shared memory that the
// system reserves, and reduce, each tile by itself.
// nvcc: -std=c++17 -gencode arch=compute_80,code=compute_80 -gencode arch=compute_90,code=sm_90
#include "check.h"
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

enum { THREADS = 512, BLOCKS = 3 };

template <int N> __global__ void tiles(int *sums, int *ranks)
{
    __shared__ int seen[THREADS];
    auto tile = cg::tiled_partition<N>(cg::this_thread_block());
    int at = blockIdx.x * THREADS + threadIdx.x;
    int base = threadIdx.x / N * N;

    seen[threadIdx.x] = threadIdx.x;
    tile.sync();
    /* What another warp of the tile wrote before. */
    ranks[at] = seen[base + (threadIdx.x - base + 33) % N] == base + (int)(threadIdx.x - base + 33) % N
                    ? (int)tile.thread_rank()
                    : -1;
    sums[at] = cg::reduce(tile, at, cg::plus<int>()) + (tile.any(threadIdx.x == 5) ? 1 : 0);
}

template <int N> static void check(int *sums, int *ranks)
{
    static int sum[BLOCKS * THREADS], rank[BLOCKS * THREADS];

    CHECK(cudaMemset(sums, 0, sizeof(sum)));
    tiles<N><<<BLOCKS, THREADS>>>(sums, ranks);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(sum, sums, sizeof(sum), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(rank, ranks, sizeof(rank), cudaMemcpyDeviceToHost));
    for (int i = 0; i < BLOCKS * THREADS; i++) {
        int first = i / N * N, expected = first % THREADS == 0;

        for (int j = first; j < first + N; j++)
            expected += j;
        EXPECT_EQ(rank[i], i % N);
        EXPECT_EQ(sum[i], expected);
    }
}

int main(void)
{
    int *sums, *ranks, major = 0;

    CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    if (major < 8) {
        printf("skip: needs compute capability 8.0\n");
        return 77;
    }
    CHECK(cudaMalloc(&sums, BLOCKS * THREADS * sizeof(int)));
    CHECK(cudaMalloc(&ranks, BLOCKS * THREADS * sizeof(int)));
    check<64>(sums, ranks);
    check<256>(sums, ranks);
    CHECK(cudaFree(ranks));
    CHECK(cudaFree(sums));
    return 0;
}
