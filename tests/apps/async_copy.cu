// Copies into shared memory that go on while threads do something else: the pipeline of cuda_pipeline.h, that of
// cuda/pipeline with stages, and those of cooperative groups. What arrives is checked element by element.
// nvcc: -std=c++17 -diag-suppress 20054 -gencode arch=compute_80,code=[compute_80,sm_80] -gencode arch=compute_90,code=sm_90
#include "tensor.h"
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda/pipeline>
#include <cuda_pipeline.h>

namespace cg = cooperative_groups;

enum { THREADS = 128, BATCHES = 6, COUNT = THREADS * BATCHES };

/* Elements of four, eight and sixteen bytes; of the last copy only a part is read, and the rest is zeros. */
__global__ void single_elements(const int *in, int *out)
{
    __shared__ int one[THREADS];
    __shared__ int2 two[THREADS];
    __shared__ int4 four[THREADS], part[THREADS];
    int i = threadIdx.x;

    __pipeline_memcpy_async(&one[i], &in[i], sizeof(int));
    __pipeline_commit();
    __pipeline_memcpy_async(&two[i], &((const int2 *)in)[i], sizeof(int2));
    __pipeline_memcpy_async(&four[i], &((const int4 *)in)[i], sizeof(int4));
    __pipeline_memcpy_async(&part[i], &((const int4 *)in)[i], sizeof(int4), 8);
    __pipeline_commit();
    __pipeline_wait_prior(1);
    __syncthreads();
    out[i] = one[THREADS - 1 - i];
    __pipeline_wait_prior(0);
    __syncthreads();
    out[THREADS + i] = two[THREADS - 1 - i].y;
    out[2 * THREADS + i] = four[THREADS - 1 - i].w;
    out[3 * THREADS + i] = part[THREADS - 1 - i].y + part[THREADS - 1 - i].z + part[THREADS - 1 - i].w;
}

/* Two stages: a batch is read while the next one is on its way. */
__global__ void stages(const int *in, int *out)
{
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    __shared__ alignas(16) int buffers[2][THREADS];
    auto block = cg::this_thread_block();
    auto pipeline = cuda::make_pipeline(block, &state);
    auto fetch = [&](int batch) {
        pipeline.producer_acquire();
        cuda::memcpy_async(block, buffers[batch % 2], in + batch * THREADS,
                           cuda::aligned_size_t<16>(sizeof(int) * THREADS), pipeline);
        pipeline.producer_commit();
    };

    fetch(0);
    for (int batch = 0; batch < BATCHES; batch++) {
        if (batch + 1 < BATCHES)
            fetch(batch + 1);
        pipeline.consumer_wait();
        out[batch * THREADS + threadIdx.x] = buffers[batch % 2][THREADS - 1 - threadIdx.x];
        pipeline.consumer_release();
    }
}

__global__ void groups(const int *in, int *out)
{
    __shared__ int buffer[COUNT];
    auto block = cg::this_thread_block();
    auto tile = cg::tiled_partition<32>(block);
    int first = tile.meta_group_rank() * (COUNT / 4);

    cg::memcpy_async(tile, buffer + first, in + first, sizeof(int) * (COUNT / 4));
    cg::wait(tile);
    block.sync();
    for (int i = threadIdx.x; i < COUNT; i += THREADS)
        out[i] = buffer[COUNT - 1 - i];
}

static int in[4 * COUNT], back[COUNT];

static void check_single(void)
{
    for (int i = 0; i < THREADS; i++) {
        int other = THREADS - 1 - i;

        EXPECT_EQ(back[i], in[other]);
        EXPECT_EQ(back[THREADS + i], in[2 * other + 1]);
        EXPECT_EQ(back[2 * THREADS + i], in[4 * other + 3]);
        EXPECT_EQ(back[3 * THREADS + i], in[4 * other + 1]);
    }
}

int main(void)
{
    uint32_t seed = 3;
    int *device_in, *device_out;

    want_capability_8();
    for (int i = 0; i < 4 * COUNT; i++)
        in[i] = (int)next_random(&seed);
    device_in = on_device(in, 4 * COUNT);
    device_out = on_device(back, COUNT);
    single_elements<<<1, THREADS>>>(device_in, device_out);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, device_out, sizeof(back), cudaMemcpyDeviceToHost));
    check_single();
    stages<<<1, THREADS>>>(device_in, device_out);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, device_out, sizeof(back), cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; i++)
        EXPECT_EQ(back[i], in[i / THREADS * THREADS + THREADS - 1 - i % THREADS]);
    groups<<<1, THREADS>>>(device_in, device_out);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, device_out, sizeof(back), cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; i++)
        EXPECT_EQ(back[i], in[COUNT - 1 - i]);
    CHECK(cudaFree(device_in));
    CHECK(cudaFree(device_out));
    return 0;
}
