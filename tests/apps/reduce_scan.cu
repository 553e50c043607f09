// Reduction and prefix sums with shared memory, barriers and barrier reductions, over several blocks.
#include "check.h"

enum { COUNT = 20000, THREADS = 256, BLOCKS = (COUNT + THREADS - 1) / THREADS };

__global__ void reduce(const int *in, long long *total, int *most)
{
    __shared__ long long sums[THREADS];
    int i = blockIdx.x * THREADS + threadIdx.x, v = i < COUNT ? in[i] : 0;

    sums[threadIdx.x] = v;
    for (int half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    int odd = __syncthreads_count(v & 1), any = __syncthreads_or(v == 999), all = __syncthreads_and(v >= 0);
    if (threadIdx.x == 0) {
        atomicAdd((unsigned long long *)total, (unsigned long long)sums[0]);
        atomicAdd((unsigned long long *)total + 1, (unsigned long long)odd);
        atomicAdd((unsigned long long *)total + 2, any ? 1ull : 0ull);
        atomicAdd((unsigned long long *)total + 3, all ? 1ull : 0ull);
        atomicMax(most, (int)sums[0]);
    }
}

/* Inclusive sums within each block; each block's own sum goes to sums, where it is given. */
__global__ void scan(const int *in, int *out, int *sums, int count)
{
    __shared__ int buffer[2][THREADS];
    int i = blockIdx.x * THREADS + threadIdx.x, side = 0;

    buffer[0][threadIdx.x] = i < count ? in[i] : 0;
    __syncthreads();
    for (int step = 1; step < THREADS; step *= 2) {
        int v = buffer[side][threadIdx.x];

        if ((int)threadIdx.x >= step)
            v += buffer[side][threadIdx.x - step];
        side = !side;
        buffer[side][threadIdx.x] = v;
        __syncthreads();
    }
    if (i < count)
        out[i] = buffer[side][threadIdx.x];
    if (sums && threadIdx.x == THREADS - 1)
        sums[blockIdx.x] = buffer[side][threadIdx.x];
}

__global__ void add_before(int *out, const int *sums)
{
    int i = blockIdx.x * THREADS + threadIdx.x;

    if (i < COUNT && blockIdx.x > 0)
        out[i] += sums[blockIdx.x - 1];
}

static int in[COUNT], back[COUNT];

int main(void)
{
    int *device_in, *device_out, *sums, *most, want_most = 0, got_most, running = 0;
    long long *total, got[4], want[4] = {0};
    uint32_t seed = 31;

    for (int i = 0; i < COUNT; i++)
        in[i] = (int)(next_random(&seed) % 998);
    in[7777] = 999;
    for (int b = 0; b < BLOCKS; b++) {
        int sum = 0, any = 0;

        for (int i = b * THREADS; i < (b + 1) * THREADS && i < COUNT; i++) {
            sum += in[i];
            want[1] += in[i] & 1;
            any |= in[i] == 999;
        }
        want[0] += sum;
        want[2] += any;
        want[3]++;
        want_most = sum > want_most ? sum : want_most;
    }
    CHECK(cudaMalloc(&device_in, sizeof(in)));
    CHECK(cudaMalloc(&device_out, sizeof(in)));
    CHECK(cudaMalloc(&sums, 2 * BLOCKS * sizeof(int)));
    CHECK(cudaMalloc(&most, sizeof(int)));
    CHECK(cudaMalloc(&total, sizeof(got)));
    CHECK(cudaMemset(total, 0, sizeof(got)));
    CHECK(cudaMemset(most, 0, sizeof(int)));
    CHECK(cudaMemcpy(device_in, in, sizeof(in), cudaMemcpyHostToDevice));
    reduce<<<BLOCKS, THREADS>>>(device_in, total, most);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(got, total, sizeof(got), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(&got_most, most, sizeof(got_most), cudaMemcpyDeviceToHost));
    for (int i = 0; i < 4; i++)
        EXPECT(got[i] == want[i], "%d: %lld, expected %lld", i, got[i], want[i]);
    EXPECT_EQ(got_most, want_most);

    scan<<<BLOCKS, THREADS>>>(device_in, device_out, sums, COUNT);
    scan<<<1, THREADS>>>(sums, sums + BLOCKS, NULL, BLOCKS);
    add_before<<<BLOCKS, THREADS>>>(device_out, sums + BLOCKS);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, device_out, sizeof(back), cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; i++) {
        running += in[i];
        EXPECT(back[i] == running, "sum %d: %d, expected %d", i, back[i], running);
    }
    CHECK(cudaFree(device_in));
    CHECK(cudaFree(device_out));
    CHECK(cudaFree(sums));
    CHECK(cudaFree(most));
    CHECK(cudaFree(total));
    return 0;
}
