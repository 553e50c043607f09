// Barriers in shared memory: cuda::barrier with its phases, threads that drop out, copies that arrive, warps that
// produce for others, and the instructions themselves with parities.
// nvcc: -std=c++17 -diag-suppress 20054 -gencode arch=compute_80,code=[compute_80,sm_80] -gencode arch=compute_90,code=[compute_90,sm_90]
#include "tensor.h"
#include <cooperative_groups.h>
#include <cuda/barrier>

namespace cg = cooperative_groups;
typedef cuda::barrier<cuda::thread_scope_block> block_barrier;

enum { THREADS = 128, ROUNDS = 5 };

/* Every thread adds what its neighbours have, round after round. */
__global__ void meet(const int *in, int *out)
{
    __shared__ block_barrier barrier;
    __shared__ int values[2][THREADS];
    auto block = cg::this_thread_block();
    int i = threadIdx.x, value = in[i];

    if (i == 0)
        init(&barrier, THREADS);
    block.sync();
    for (int round = 0; round < ROUNDS; round++) {
        values[round % 2][i] = value;
        barrier.arrive_and_wait();
        value += values[round % 2][(i + 1) % THREADS] + values[round % 2][(i + THREADS - 1) % THREADS];
    }
    out[i] = value;
}

/* Threads leave one warp after the other; those that stay go on without them. */
__global__ void drop(int *out)
{
    __shared__ block_barrier barrier;
    __shared__ int count;
    int warp = threadIdx.x / 32;

    if (threadIdx.x == 0) {
        init(&barrier, THREADS);
        count = 0;
    }
    __syncthreads();
    for (int round = 0; round < warp; round++) {
        atomicAdd(&count, 1);
        barrier.wait(barrier.arrive());
        if (round + 1 == warp)
            out[threadIdx.x] = count; /* later rounds add only behind the next barrier of those that stay */
        barrier.arrive_and_wait();
    }
    if (warp == 0)
        out[threadIdx.x] = 0;
    barrier.arrive_and_drop();
}

/* A copy by all threads, whose bytes the barrier awaits. */
__global__ void copies(const int *in, int *out)
{
    __shared__ block_barrier barrier;
    __shared__ int values[THREADS];
    auto block = cg::this_thread_block();

    if (threadIdx.x == 0)
        init(&barrier, THREADS);
    block.sync();
    cuda::memcpy_async(block, values, in, sizeof(values), barrier);
    barrier.arrive_and_wait();
    out[threadIdx.x] = values[THREADS - 1 - threadIdx.x];
}

__device__ static void arrive(unsigned long long *barrier)
{
    asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(
                     (unsigned)__cvta_generic_to_shared(barrier))
                 : "memory");
}

__device__ static void wait(unsigned long long *barrier, unsigned parity)
{
    unsigned done = 0;

    while (!done)
#if __CUDA_ARCH__ >= 900
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
#else
        asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
#endif
                     : "=r"(done)
                     : "r"((unsigned)__cvta_generic_to_shared(barrier)), "r"(parity)
                     : "memory");
}

/* The first warp produces into one slot, the three others consume: full and empty take turns. */
__global__ void produce(const int *in, int *out)
{
    __shared__ unsigned long long full, empty;
    __shared__ int slot[32];
    int lane = threadIdx.x % 32, sum = 0;

    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 32;" ::"r"((unsigned)__cvta_generic_to_shared(&full)));
        asm volatile("mbarrier.init.shared.b64 [%0], 96;" ::"r"((unsigned)__cvta_generic_to_shared(&empty)));
    }
    __syncthreads();
    for (int round = 0; round < ROUNDS; round++)
        if (threadIdx.x < 32) {
            wait(&empty, (round + 1) % 2); /* the phase before the first one counts as over */
            slot[lane] = in[lane] * (round + 1);
            arrive(&full);
        } else {
            wait(&full, round % 2);
            sum += slot[31 - lane];
            arrive(&empty);
        }
    out[threadIdx.x] = sum;
}

static int in[THREADS], back[THREADS];

static void check_meeting(void)
{
    long long values[THREADS], next[THREADS];

    for (int i = 0; i < THREADS; i++)
        values[i] = in[i];
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < THREADS; i++)
            next[i] = values[i] + values[(i + 1) % THREADS] + values[(i + THREADS - 1) % THREADS];
        memcpy(values, next, sizeof(values));
    }
    for (int i = 0; i < THREADS; i++)
        EXPECT_EQ(back[i], values[i]);
}

int main(void)
{
    static const int counts[] = {0, 96, 96 + 64, 96 + 64 + 32};
    uint32_t seed = 5;
    int *device_in, *device_out;

    want_capability_8();
    for (int i = 0; i < THREADS; i++)
        in[i] = (int)(next_random(&seed) % 1000);
    device_in = on_device(in, THREADS);
    device_out = on_device(back, THREADS);
    meet<<<1, THREADS>>>(device_in, device_out);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, device_out, sizeof(back), cudaMemcpyDeviceToHost));
    check_meeting();
    drop<<<1, THREADS>>>(device_out);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, device_out, sizeof(back), cudaMemcpyDeviceToHost));
    for (int i = 0; i < THREADS; i++)
        EXPECT_EQ(back[i], counts[i / 32]);
    copies<<<1, THREADS>>>(device_in, device_out);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, device_out, sizeof(back), cudaMemcpyDeviceToHost));
    for (int i = 0; i < THREADS; i++)
        EXPECT_EQ(back[i], in[THREADS - 1 - i]);
    produce<<<1, THREADS>>>(device_in, device_out);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, device_out, sizeof(back), cudaMemcpyDeviceToHost));
    for (int i = 0; i < THREADS; i++)
        EXPECT_EQ(back[i], i < 32 ? 0 : in[31 - i % 32] * (ROUNDS * (ROUNDS + 1) / 2));
    CHECK(cudaFree(device_in));
    CHECK(cudaFree(device_out));
    return 0;
}
