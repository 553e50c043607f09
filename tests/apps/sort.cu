// Sorting: bitonic in dynamic shared memory and over global memory, and radix sort of pairs with shared histograms.
#include "check.h"

enum { COUNT = 4096, BLOCK_ITEMS = 512 };

__device__ void order(uint32_t &a, uint32_t &b, int ascending)
{
    if ((a > b) == ascending) {
        uint32_t t = a;

        a = b;
        b = t;
    }
}

/* Each block sorts its items, every other block downwards. */
__global__ void sort_blocks(uint32_t *items)
{
    extern __shared__ uint32_t s[];
    uint32_t *mine = items + blockIdx.x * BLOCK_ITEMS;
    unsigned t = threadIdx.x;

    s[t] = mine[t];
    s[t + blockDim.x] = mine[t + blockDim.x];
    for (unsigned size = 2; size <= BLOCK_ITEMS; size *= 2)
        for (unsigned stride = size / 2; stride; stride /= 2) {
            unsigned at = 2 * t - (t & (stride - 1));
            int up = size == BLOCK_ITEMS ? blockIdx.x % 2 == 0 : (at & size) == 0;

            __syncthreads();
            order(s[at], s[at + stride], up);
        }
    __syncthreads();
    mine[t] = s[t];
    mine[t + blockDim.x] = s[t + blockDim.x];
}

__global__ void merge_step(uint32_t *items, unsigned size, unsigned stride)
{
    unsigned t = blockIdx.x * blockDim.x + threadIdx.x, at = 2 * t - (t & (stride - 1));

    order(items[at], items[at + stride], (at & size) == 0);
}

/* One pass of a stable radix sort by one block: thread t owns digit t of 16. */
__global__ void radix_pass(const uint32_t *keys, const int *values, uint32_t *keys_out, int *values_out, int shift,
                           int count)
{
    __shared__ int digits[16], first[16];

    if (threadIdx.x < 16)
        digits[threadIdx.x] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += blockDim.x)
        atomicAdd(&digits[keys[i] >> shift & 15], 1);
    __syncthreads();
    if (threadIdx.x < 16) {
        int at = 0;

        for (unsigned d = 0; d < threadIdx.x; d++)
            at += digits[d];
        first[threadIdx.x] = at;
        for (int i = 0; i < count; i++)
            if ((keys[i] >> shift & 15) == threadIdx.x) {
                keys_out[first[threadIdx.x]] = keys[i];
                values_out[first[threadIdx.x]++] = values[i];
            }
    }
}

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static uint32_t items[COUNT], sorted[COUNT], back[COUNT];

static void check_bitonic(void)
{
    uint32_t *device;

    CHECK(cudaMalloc(&device, sizeof(items)));
    CHECK(cudaMemcpy(device, items, sizeof(items), cudaMemcpyHostToDevice));
    sort_blocks<<<COUNT / BLOCK_ITEMS, BLOCK_ITEMS / 2, BLOCK_ITEMS * sizeof(uint32_t)>>>(device);
    for (unsigned size = 2 * BLOCK_ITEMS; size <= COUNT; size *= 2)
        for (unsigned stride = size / 2; stride; stride /= 2)
            merge_step<<<COUNT / 512, 256>>>(device, size, stride);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, device, sizeof(back), cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; i++)
        EXPECT_EQ(back[i], sorted[i]);
    CHECK(cudaFree(device));
}

static void check_radix(void)
{
    enum { N = 600 };
    uint32_t *keys[2];
    int *values[2], order_of[N];

    for (int i = 0; i < 2; i++) {
        CHECK(cudaMalloc(&keys[i], N * sizeof(uint32_t)));
        CHECK(cudaMalloc(&values[i], N * sizeof(int)));
    }
    for (int i = 0; i < N; i++)
        order_of[i] = i;
    CHECK(cudaMemcpy(keys[0], items, N * sizeof(uint32_t), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(values[0], order_of, sizeof(order_of), cudaMemcpyHostToDevice));
    for (int pass = 0; pass < 8; pass++)
        radix_pass<<<1, 128>>>(keys[pass % 2], values[pass % 2], keys[!(pass % 2)], values[!(pass % 2)], 4 * pass, N);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, keys[0], N * sizeof(uint32_t), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(order_of, values[0], sizeof(order_of), cudaMemcpyDeviceToHost));
    memcpy(sorted, items, sizeof(items));
    qsort(sorted, N, sizeof(sorted[0]), compare);
    for (int i = 0; i < N; i++) {
        EXPECT_EQ(back[i], sorted[i]);
        EXPECT_EQ(items[order_of[i]], back[i]);
    }
}

int main(void)
{
    uint32_t seed = 2024;

    for (int i = 0; i < COUNT; i++)
        items[i] = next_random(&seed) >> (i % 3 * 8);
    memcpy(sorted, items, sizeof(items));
    qsort(sorted, COUNT, sizeof(sorted[0]), compare);
    check_bitonic();
    check_radix();
    return 0;
}
