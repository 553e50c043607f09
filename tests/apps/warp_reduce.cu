// What lanes of a warp reduce by the instructions of GPUs from compute capability 8.0 on: all operations, in whole warps and in
// diverged ones, against a loop on the host over the lanes that take part.
// nvcc: -gencode arch=compute_80,code=[compute_80,sm_80] -gencode arch=compute_90,code=[compute_90,sm_90]
#include "check.h"

enum { KINDS = 8, WARPS = 2, SETS = 3 };

__device__ static void reduce(unsigned members, int v, unsigned *o)
{
    o[0] = __reduce_add_sync(members, v);
    o[1] = __reduce_add_sync(members, (unsigned)v);
    o[2] = __reduce_min_sync(members, v);
    o[3] = __reduce_min_sync(members, (unsigned)v);
    o[4] = __reduce_max_sync(members, v);
    o[5] = __reduce_max_sync(members, (unsigned)v);
    o[6] = __reduce_and_sync(members, (unsigned)v) ^ __reduce_or_sync(members, (unsigned)v);
    o[7] = __reduce_xor_sync(members, (unsigned)v);
}

/* Those with which a lane reduces: all; every third one, while the others are elsewhere, 0 for these; its tile of eight. */
__host__ __device__ static unsigned members_of(int set, int lane)
{
    return set == 0 ? 0xffffffffu : set == 1 ? (lane % 3 ? 0 : 0x49249249u) : 0xffu << lane / 8 * 8;
}

__global__ void evaluate(const int *in, unsigned *out)
{
    int i = threadIdx.x, lane = i % 32, v = in[i];
    unsigned *o = out + i * SETS * KINDS;

    reduce(members_of(0, lane), v, o);
    if (lane % 3 == 0)
        reduce(members_of(1, lane), v, o + KINDS);
    __syncwarp();
    reduce(members_of(2, lane), v, o + 2 * KINDS);
}

static void expected(const int *v, unsigned members, unsigned *o)
{
    long long sum = 0, least[2] = {1ll << 40, 1ll << 40}, most[2] = {-(1ll << 40), -(1ll << 40)};
    unsigned all = 0xffffffffu, any = 0, odd = 0;
    for (int l = 0; l < 32; l++) {
        const long long one[2] = {v[l], (unsigned)v[l]};
        if (!(members >> l & 1))
            continue;
        for (int s = 0; s < 2; s++) {
            least[s] = one[s] < least[s] ? one[s] : least[s];
            most[s] = one[s] > most[s] ? one[s] : most[s];
        }
        sum += v[l];
        all &= (unsigned)v[l];
        any |= (unsigned)v[l];
        odd ^= (unsigned)v[l];
    }
    const unsigned results[KINDS] = {(unsigned)sum,     (unsigned)sum,     (unsigned)least[0], (unsigned)least[1],
                                     (unsigned)most[0], (unsigned)most[1], all ^ any,          odd};
    for (int k = 0; k < KINDS; k++)
        o[k] = results[k];
}

int main(void)
{
    static unsigned back[WARPS * 32 * SETS * KINDS], want[KINDS];
    int values[WARPS * 32], *in;
    unsigned *out;
    uint32_t seed = 11;

    for (int i = 0; i < WARPS * 32; i++)
        values[i] = (int)(next_random(&seed) * 65537u);
    values[3] = -1;
    values[7] = (int)0x80000000;
    values[40] = 0x7fffffff;
    CHECK(cudaMalloc(&in, sizeof(values)));
    CHECK(cudaMalloc(&out, sizeof(back)));
    CHECK(cudaMemcpy(in, values, sizeof(values), cudaMemcpyHostToDevice));
    evaluate<<<1, WARPS * 32>>>(in, out);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, out, sizeof(back), cudaMemcpyDeviceToHost));
    for (int i = 0; i < WARPS * 32; i++)
        for (int set = 0; set < SETS; set++) {
            if (!members_of(set, i % 32))
                continue;
            expected(values + i / 32 * 32, members_of(set, i % 32), want);
            for (int k = 0; k < KINDS; k++) {
                unsigned got = back[(i * SETS + set) * KINDS + k];
                EXPECT(got == want[k], "thread %d, set %d, result %d: %#x, expected %#x", i, set, k, got, want[k]);
            }
        }
    CHECK(cudaFree(in));
    CHECK(cudaFree(out));
    return 0;
}
