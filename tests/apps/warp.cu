// Warp operations: shuffles of all kinds and widths with 32- and 64-bit values, votes, match and active mask, in whole
// warps and in diverged ones, against a model of the warp on the host.
#include "check.h"

enum { RESULTS = 16, WARPS = 2 };

__global__ void evaluate(const int *in, long long *out)
{
    const unsigned all = 0xffffffffu;
    int i = threadIdx.x, lane = i % 32, v = in[i];
    long long *o = out + i * RESULTS, wide = (long long)v << 33 | lane;

    o[0] = __shfl_sync(all, v, lane * 7 % 32);
    o[1] = __shfl_up_sync(all, v, 3);
    o[2] = __shfl_down_sync(all, v, 5);
    o[3] = __shfl_xor_sync(all, v, 9);
    o[4] = __shfl_sync(all, v, 3, 8);
    o[5] = __shfl_up_sync(all, v, 1, 4);
    o[6] = __shfl_down_sync(all, v, 2, 16);
    o[7] = __shfl_xor_sync(all, wide, 1);
    o[8] = __ballot_sync(all, v % 3 == 0);
    o[9] = __all_sync(all, v > -1000) | __any_sync(all, v == 17) << 1 | __all_sync(all, v % 2) << 2;
    o[10] = __match_any_sync(all, v % 4);
    o[11] = __match_any_sync(all, (long long)(v % 3) << 40);
    o[12] = o[13] = 0;
    /* Half of the warp is elsewhere. */
    if (lane % 2) {
        o[12] = __ballot_sync(0xaaaaaaaau, v > 50);
        o[13] = __shfl_sync(0xaaaaaaaau, v, lane ^ 2);
    } else {
        o[12] = __popc(__ballot_sync(0x55555555u, 1));
        o[13] = __shfl_down_sync(0x55555555u, v, 2);
    }
    __syncwarp();
    o[14] = __shfl_sync(all, (float)v, 31) * 2;
    double sum = v;
    for (int d = 16; d; d /= 2)
        sum += __shfl_xor_sync(all, sum, d);
    o[15] = (long long)sum;
}

/* The same for lane of a warp whose values are v. */
static void expected(const int *v, int lane, long long *o)
{
    unsigned ballot = 0, odd_ballot = 0, match = 0, match3 = 0;
    int any = 0, all_odd = 1, sum = 0;

    for (int l = 0; l < 32; l++) {
        ballot |= (unsigned)(v[l] % 3 == 0) << l;
        odd_ballot |= (unsigned)(l % 2 && v[l] > 50) << l;
        match |= (unsigned)(v[l] % 4 == v[lane] % 4) << l;
        match3 |= (unsigned)(v[l] % 3 == v[lane] % 3) << l;
        any |= v[l] == 17;
        all_odd &= v[l] % 2;
        sum += v[l];
    }
    o[0] = v[lane * 7 % 32];
    o[1] = lane >= 3 ? v[lane - 3] : v[lane];
    o[2] = lane + 5 < 32 ? v[lane + 5] : v[lane];
    o[3] = v[lane ^ 9];
    o[4] = v[lane / 8 * 8 + 3];
    o[5] = lane % 4 ? v[lane - 1] : v[lane];
    o[6] = lane % 16 + 2 < 16 ? v[lane + 2] : v[lane];
    o[7] = (long long)v[lane ^ 1] << 33 | (lane ^ 1);
    o[8] = ballot; /* as unsigned: __ballot_sync returns unsigned */
    o[9] = 1 | any << 1 | (all_odd ? 4 : 0);
    o[10] = match;
    o[11] = match3;
    o[12] = lane % 2 ? odd_ballot : 16;
    o[13] = lane % 2 ? v[lane ^ 2] : v[lane + 2 < 32 ? lane + 2 : lane];
    o[14] = v[31] * 2;
    o[15] = sum;
}

int main(void)
{
    int values[WARPS * 32], *in;
    long long back[WARPS * 32 * RESULTS], want[RESULTS], *out;
    uint32_t seed = 5;

    for (int i = 0; i < WARPS * 32; i++)
        values[i] = (int)(next_random(&seed) % 100);
    values[40] = 17;
    CHECK(cudaMalloc(&in, sizeof(values)));
    CHECK(cudaMalloc(&out, sizeof(back)));
    CHECK(cudaMemcpy(in, values, sizeof(values), cudaMemcpyHostToDevice));
    evaluate<<<1, WARPS * 32>>>(in, out);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, out, sizeof(back), cudaMemcpyDeviceToHost));
    for (int i = 0; i < WARPS * 32; i++) {
        expected(values + i / 32 * 32, i % 32, want);
        for (int r = 0; r < RESULTS; r++)
            EXPECT(back[i * RESULTS + r] == want[r], "thread %d, result %d: %lld, expected %lld", i, r,
                   back[i * RESULTS + r], want[r]);
    }
    CHECK(cudaFree(in));
    CHECK(cudaFree(out));
    return 0;
}
