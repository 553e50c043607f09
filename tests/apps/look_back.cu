// A single-pass prefix sum with decoupled look-back: each block draws its number, publishes its sum, and waits for the
// blocks before it, which started earlier and therefore finish.
#include "check.h"

enum { THREADS = 128, BLOCKS = 60, COUNT = THREADS * BLOCKS };

/* state in the upper half (0 nothing, 1 own sum, 2 sum of all up to here), the value in the lower */
__global__ void scan(const int *in, int *out, unsigned *next_block, unsigned long long *states)
{
    __shared__ int own[THREADS];
    __shared__ unsigned block;
    __shared__ int before;
    int t = threadIdx.x;

    if (t == 0)
        block = atomicAdd(next_block, 1);
    __syncthreads();
    own[t] = in[block * THREADS + t];
    for (int step = 1; step < THREADS; step *= 2) {
        __syncthreads();
        int v = t >= step ? own[t - step] : 0;
        __syncthreads();
        own[t] += v;
    }
    __syncthreads();
    if (t == 0) {
        unsigned sum = (unsigned)own[THREADS - 1], prefix = 0;

        __threadfence();
        atomicExch(&states[block], (block == 0 ? 2ull : 1ull) << 32 | sum);
        for (int b = (int)block - 1; b >= 0;) {
            unsigned long long state = atomicAdd(&states[b], 0ull);

            if (state >> 32 == 0)
                continue;
            prefix += (unsigned)state;
            if (state >> 32 == 2)
                break;
            b--;
        }
        if (block != 0)
            atomicExch(&states[block], 2ull << 32 | (prefix + sum));
        before = (int)prefix;
    }
    __syncthreads();
    out[block * THREADS + t] = own[t] + before;
}

int main(void)
{
    static int in[COUNT], back[COUNT];
    int *device_in, *device_out, running = 0;
    unsigned *next_block;
    unsigned long long *states;
    uint32_t seed = 3;

    for (int i = 0; i < COUNT; i++)
        in[i] = (int)(next_random(&seed) % 1000);
    CHECK(cudaMalloc(&device_in, sizeof(in)));
    CHECK(cudaMalloc(&device_out, sizeof(in)));
    CHECK(cudaMalloc(&next_block, sizeof(*next_block)));
    CHECK(cudaMalloc(&states, BLOCKS * sizeof(*states)));
    CHECK(cudaMemset(next_block, 0, sizeof(*next_block)));
    CHECK(cudaMemset(states, 0, BLOCKS * sizeof(*states)));
    CHECK(cudaMemcpy(device_in, in, sizeof(in), cudaMemcpyHostToDevice));
    scan<<<BLOCKS, THREADS>>>(device_in, device_out, next_block, states);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, device_out, sizeof(back), cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; i++) {
        running += in[i];
        EXPECT(back[i] == running, "sum %d: %d, expected %d", i, back[i], running);
    }
    CHECK(cudaFree(device_in));
    CHECK(cudaFree(device_out));
    CHECK(cudaFree(next_block));
    CHECK(cudaFree(states));
    return 0;
}
