// Cooperative groups within a block: tiles of several sizes, coalesced groups, their ranks, shuffles, votes and
// barriers, and a reduction over each tile.
// nvcc: -std=c++17
#include "check.h"
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

enum { THREADS = 64, RESULTS = 9 };

__global__ void evaluate(const int *in, int *out)
{
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
    cg::thread_block_tile<8> tile = cg::tiled_partition<8>(warp);
    cg::thread_block_tile<4> small = cg::tiled_partition<4>(block);
    int i = (int)block.thread_rank(), v = in[i], *o = out + i * RESULTS;
    __shared__ int total;

    o[0] = (int)(tile.thread_rank() + 100 * tile.meta_group_rank() + 10000 * tile.size());
    o[1] = tile.shfl(v, 2);
    o[2] = tile.shfl_down(v, 3);
    o[3] = small.shfl_xor(v, 1);
    o[4] = (int)tile.ballot(v % 2) + 1000 * tile.any(v > 90) + 2000 * tile.all(v > 5);
    o[5] = cg::reduce(tile, v, cg::plus<int>());
    o[6] = cg::reduce(warp, v, cg::greater<int>());
    if (i == 0)
        total = 0;
    block.sync();
    if (v % 3 == 0) {
        cg::coalesced_group active = cg::coalesced_threads();

        o[7] = (int)(active.size() * 100 + active.thread_rank());
        if (active.thread_rank() == 0)
            atomicAdd(&total, (int)active.size());
    } else {
        o[7] = -1;
    }
    block.sync();
    o[8] = total;
}

static int values[THREADS];

static void expected(int i, int *o)
{
    int tile = i / 8 * 8, warp = i / 32 * 32, ballot = 0, any = 0, all = 1, sum = 0, most = values[warp];
    int active = 0, rank = 0, total = 0;

    for (int t = 0; t < 8; t++) {
        ballot |= (values[tile + t] % 2) << t;
        any |= values[tile + t] > 90;
        all &= values[tile + t] > 5;
        sum += values[tile + t];
    }
    for (int t = warp; t < warp + 32; t++) {
        most = values[t] > most ? values[t] : most;
        active += values[t] % 3 == 0;
        rank += t < i && values[t] % 3 == 0;
    }
    for (int t = 0; t < THREADS; t++)
        total += values[t] % 3 == 0;
    o[0] = i % 8 + 100 * (i % 32 / 8) + 10000 * 8;
    o[1] = values[tile + 2];
    o[2] = i % 8 + 3 < 8 ? values[i + 3] : values[i];
    o[3] = values[i ^ 1];
    o[4] = ballot + 1000 * any + 2000 * all;
    o[5] = sum;
    o[6] = most;
    o[7] = values[i] % 3 ? -1 : active * 100 + rank;
    o[8] = total;
}

int main(void)
{
    int back[THREADS * RESULTS], want[RESULTS], *in, *out;
    uint32_t seed = 77;

    for (int i = 0; i < THREADS; i++)
        values[i] = (int)(next_random(&seed) % 100);
    CHECK(cudaMalloc(&in, sizeof(values)));
    CHECK(cudaMalloc(&out, sizeof(back)));
    CHECK(cudaMemcpy(in, values, sizeof(values), cudaMemcpyHostToDevice));
    evaluate<<<1, THREADS>>>(in, out);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, out, sizeof(back), cudaMemcpyDeviceToHost));
    for (int i = 0; i < THREADS; i++) {
        expected(i, want);
        for (int r = 0; r < RESULTS; r++)
            EXPECT(back[i * RESULTS + r] == want[r], "thread %d, result %d: %d, expected %d", i, r,
                   back[i * RESULTS + r], want[r]);
    }
    CHECK(cudaFree(in));
    CHECK(cudaFree(out));
    return 0;
}
