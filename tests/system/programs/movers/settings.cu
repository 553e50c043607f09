// What a program has set and asks for again: nothing of it changes by itself.
// nvcc: -std=c++17
#include "movers.h"

#include <cooperative_groups.h>

extern __shared__ uint32_t shared_words[];

static __global__ void reverse_in_shared(uint32_t *words, uint32_t count)
{
    for (uint32_t i = threadIdx.x; i < count; i += blockDim.x)
        shared_words[i] = words[i];
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < count; i += blockDim.x)
        words[i] = shared_words[count - 1 - i];
}

struct large_shared_memory : mover {
    enum { BYTES = 56 * 1024, WORDS = BYTES / sizeof(uint32_t) };
    uint32_t *words;
    bool is_reversed = false;

    void set_up() override
    {
        CHECK(cudaFuncSetAttribute(reverse_in_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
        words = mover_words(WORDS);
        mover_fill(words, WORDS, 21);
    }
    void round() override
    {
        struct cudaFuncAttributes attributes;
        std::vector<uint32_t> wanted(WORDS);

        reverse_in_shared<<<1, 128, BYTES>>>(words, WORDS);
        CHECK_LAUNCH();
        is_reversed = !is_reversed;
        for (size_t i = 0; i < WORDS; i++)
            wanted[i] = mover_pattern(is_reversed ? WORDS - 1 - i : i, 21);
        mover_expect_words(words, wanted, "what went through shared memory");
        CHECK(cudaFuncGetAttributes(&attributes, reverse_in_shared));
        EXPECT_EQ(attributes.maxDynamicSharedSizeBytes, BYTES);
        reverse_in_shared<<<1, 128, BYTES + 4096>>>(words, WORDS);
        EXPECT_CODE(cudaGetLastError(), cudaErrorInvalidValue);
    }
};

static __global__ void __launch_bounds__(128) bounded(uint32_t *words)
{
    __shared__ uint32_t s[128];
    uint32_t local[50];

    s[threadIdx.x] = words[threadIdx.x];
    __syncthreads();
    for (int i = 0; i < 50; i++)
        local[i] = s[(threadIdx.x + i) % 128];
    for (int i = 0; i < 50; i++)
        words[threadIdx.x] += local[words[i] % 50];
}

struct kernel_attributes : mover {
    struct cudaFuncAttributes first;

    void set_up() override
    {
        CHECK(cudaFuncSetCacheConfig(bounded, cudaFuncCachePreferShared));
        CHECK(cudaFuncSetAttribute(bounded, cudaFuncAttributePreferredSharedMemoryCarveout, 40));
        CHECK(cudaFuncGetAttributes(&first, bounded));
        EXPECT_EQ(first.maxThreadsPerBlock, 128);
        EXPECT_EQ(first.sharedSizeBytes, 512);
    }
    void round() override
    {
        struct cudaFuncAttributes now;

        CHECK(cudaFuncGetAttributes(&now, bounded));
        EXPECT_EQ(now.numRegs, first.numRegs);
        EXPECT_EQ(now.sharedSizeBytes, first.sharedSizeBytes);
        EXPECT_EQ(now.constSizeBytes, first.constSizeBytes);
        EXPECT_EQ(now.localSizeBytes, first.localSizeBytes);
        EXPECT_EQ(now.maxThreadsPerBlock, first.maxThreadsPerBlock);
        EXPECT_EQ(now.ptxVersion, first.ptxVersion);
        EXPECT_EQ(now.preferredShmemCarveout, first.preferredShmemCarveout);
        mover_sleep_ms(1);
    }
};

struct occupancy : mover {
    enum { SIZES = 5 };
    int first[SIZES], block;

    void ask(int *ret_counts)
    {
        for (int i = 0; i < SIZES; i++)
            CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&ret_counts[i], reverse_in_shared, 32 << i, i * 5000));
    }
    void set_up() override
    {
        int grid;

        ask(first);
        CHECK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, reverse_in_shared, 0, 0));
    }
    void round() override
    {
        int now[SIZES], grid, block_now;

        ask(now);
        for (int i = 0; i < SIZES; i++)
            EXPECT(now[i] == first[i] && now[i] > 0, "%d blocks of %d threads fit, expected %d", now[i], 32 << i,
                   first[i]);
        CHECK(cudaOccupancyMaxPotentialBlockSize(&grid, &block_now, reverse_in_shared, 0, 0));
        EXPECT_EQ(block_now, block);
        mover_sleep_ms(1);
    }
};

/* Sums what all frames hold: the deeper, the more of the stack. */
static __device__ __noinline__ uint32_t descend(uint32_t depth)
{
    volatile uint32_t frame[64];

    for (uint32_t i = 0; i < 64; i++)
        frame[i] = depth * i;
    uint32_t below = depth ? descend(depth - 1) : 0;
    return below + frame[63] + frame[depth % 64];
}

static __global__ void go_down(uint32_t depth, uint32_t *ret_sum)
{
    *ret_sum = descend(depth);
}

struct device_limits : mover {
    enum { STACK_BYTES = 2048, DEPTH = 4 };
    static const unsigned flags = cudaDeviceScheduleBlockingSync;
    size_t stack_bytes, print_bytes, sync_depth_bytes;
    enum cudaFuncCache cache;
    uint32_t *sum;

    void set_up() override
    {
        CHECK(cudaSetDeviceFlags(flags));
        CHECK(cudaDeviceSetLimit(cudaLimitStackSize, STACK_BYTES));
        CHECK(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 2 << 20));
        CHECK(cudaDeviceSetCacheConfig(cudaFuncCachePreferL1));
        CHECK(cudaDeviceGetLimit(&stack_bytes, cudaLimitStackSize));
        CHECK(cudaDeviceGetLimit(&print_bytes, cudaLimitPrintfFifoSize));
        CHECK(cudaDeviceGetCacheConfig(&cache));
        EXPECT(stack_bytes >= STACK_BYTES && print_bytes >= 2 << 20, "limits of %zu and %zu bytes", stack_bytes,
               print_bytes);
        sum = mover_words(1);
    }
    void round() override
    {
        size_t now_bytes;
        enum cudaFuncCache now;
        unsigned got;
        uint32_t want = 0;

        go_down<<<1, 1>>>(DEPTH, sum);
        CHECK_LAUNCH();
        for (uint32_t depth = 0; depth <= DEPTH; depth++)
            want += depth * 63 + depth * (depth % 64);
        mover_expect_words(sum, {want}, "what is on a deep stack");
        CHECK(cudaDeviceGetLimit(&now_bytes, cudaLimitStackSize));
        EXPECT_EQ(now_bytes, stack_bytes);
        CHECK(cudaDeviceGetLimit(&now_bytes, cudaLimitPrintfFifoSize));
        EXPECT_EQ(now_bytes, print_bytes);
        CHECK(cudaDeviceGetCacheConfig(&now));
        EXPECT_EQ(now, cache);
        CHECK(cudaGetDeviceFlags(&got));
        EXPECT_EQ(got & cudaDeviceScheduleMask, flags);
    }
};

struct device_properties : mover {
    struct cudaDeviceProp first;

    void set_up() override
    {
        CHECK(cudaGetDeviceProperties(&first, 0));
    }
    void round() override
    {
        struct cudaDeviceProp now;
        int device, count;

        CHECK(cudaGetDevice(&device));
        EXPECT_EQ(device, 0);
        CHECK(cudaGetDeviceCount(&count));
        EXPECT(count > 0, "%d devices", count);
        CHECK(cudaGetDeviceProperties(&now, 0));
        EXPECT(!strcmp(now.name, first.name), "the device's name is %s, expected %s", now.name, first.name);
        EXPECT_EQ(now.totalGlobalMem, first.totalGlobalMem);
        EXPECT_EQ(now.major * 10 + now.minor, first.major * 10 + first.minor);
        EXPECT_EQ(now.warpSize, first.warpSize);
        EXPECT_EQ(now.sharedMemPerBlockOptin, first.sharedMemPerBlockOptin);
        EXPECT_EQ(now.maxThreadsPerMultiProcessor, first.maxThreadsPerMultiProcessor);
        mover_sleep_ms(1);
    }
};

/* In each pass every block takes what its neighbour had. */
static __global__ void pass_on(uint32_t *cells, uint32_t *next, uint32_t passes)
{
    cooperative_groups::grid_group grid = cooperative_groups::this_grid();

    for (uint32_t i = 0; i < passes; i++) {
        if (threadIdx.x == 0)
            next[blockIdx.x] = cells[(blockIdx.x + 1) % gridDim.x] * 3 + 1;
        grid.sync();
        if (threadIdx.x == 0)
            cells[blockIdx.x] = next[blockIdx.x];
        grid.sync();
    }
}

struct cooperative_launch : mover {
    enum { BLOCKS = 6, THREADS = 32, PASSES = 3 };
    uint32_t *cells, *next, passes = PASSES;
    std::vector<uint32_t> wanted;

    void set_up() override
    {
        cells = mover_words(BLOCKS);
        next = mover_words(BLOCKS);
        for (int i = 0; i < BLOCKS; i++)
            wanted.push_back(random());
        CHECK(cudaMemcpy(cells, wanted.data(), BLOCKS * sizeof *cells, cudaMemcpyHostToDevice));
    }
    void round() override
    {
        void *arguments[] = {&cells, &next, &passes};

        CHECK(cudaLaunchCooperativeKernel((const void *)pass_on, dim3(BLOCKS), dim3(THREADS), arguments, 0, 0));
        for (int i = 0; i < PASSES; i++) {
            std::vector<uint32_t> before = wanted;
            for (int b = 0; b < BLOCKS; b++)
                wanted[b] = before[(b + 1) % BLOCKS] * 3 + 1;
        }
        mover_expect_words(cells, wanted, "what the blocks have passed on");
    }
};

struct large_block {
    uint32_t words[900];
};

static __global__ void sum_parameters(struct large_block block, uint32_t *ret_sum)
{
    uint32_t sum = 0;

    for (int i = 0; i < 900; i++)
        sum = sum * 7 + block.words[i];
    *ret_sum = sum;
}

struct large_parameters : mover {
    uint32_t *sums;
    cudaStream_t stream;

    void set_up() override
    {
        sums = mover_words(4);
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    }
    void round() override
    {
        std::vector<uint32_t> wanted(4);

        for (int k = 0; k < 4; k++) {
            struct large_block block;
            for (uint32_t &word : block.words) {
                word = random();
                wanted[k] = wanted[k] * 7 + word;
            }
            sum_parameters<<<1, 1, 0, stream>>>(block, sums + k);
            CHECK_LAUNCH();
        }
        CHECK(cudaStreamSynchronize(stream));
        mover_expect_words(sums, wanted, "what kernels made of 3,600 bytes of parameters");
    }
};

struct stream_attributes : mover {
    cudaStream_t stream;
    uint32_t *words;

    static cudaStreamAttrValue of(cudaStream_t one, cudaStreamAttrID attribute)
    {
        cudaStreamAttrValue value;

        CHECK(cudaStreamGetAttribute(one, attribute, &value));
        return value;
    }
    void set_up() override
    {
        cudaStreamAttrValue value = {};

        words = mover_words(64);
        CHECK(cudaStreamCreate(&stream));
        value.syncPolicy = cudaSyncPolicyYield;
        CHECK(cudaStreamSetAttribute(stream, cudaStreamAttributeSynchronizationPolicy, &value));
        CHECK(cudaStreamSetAttribute(NULL, cudaStreamAttributeSynchronizationPolicy, &value));
        value.accessPolicyWindow.base_ptr = words;
        value.accessPolicyWindow.num_bytes = 256;
        value.accessPolicyWindow.hitRatio = 1;
        value.accessPolicyWindow.hitProp = cudaAccessPropertyStreaming;
        value.accessPolicyWindow.missProp = cudaAccessPropertyNormal;
        CHECK(cudaStreamSetAttribute(stream, cudaStreamAttributeAccessPolicyWindow, &value));
    }
    void round() override
    {
        cudaStream_t fresh;

        EXPECT_EQ((int)of(stream, cudaStreamAttributeSynchronizationPolicy).syncPolicy, (int)cudaSyncPolicyYield);
        EXPECT_EQ((int)of(NULL, cudaStreamAttributeSynchronizationPolicy).syncPolicy, (int)cudaSyncPolicyYield);
        EXPECT_EQ(of(stream, cudaStreamAttributeAccessPolicyWindow).accessPolicyWindow.num_bytes, (size_t)256);
        CHECK(cudaStreamCreate(&fresh));
        CHECK(cudaStreamCopyAttributes(fresh, stream));
        EXPECT_EQ((int)of(fresh, cudaStreamAttributeSynchronizationPolicy).syncPolicy, (int)cudaSyncPolicyYield);
        CHECK(cudaStreamDestroy(fresh));
        mover_sleep_ms(1);
    }
};

static const mover_entry entries[] = {
    {"stream_attributes", 0, mover_make<stream_attributes>, "attributes of streams, the default stream's too"},
    {"large_shared_memory", 0, mover_make<large_shared_memory>, "an attribute for 56 KiB of dynamic shared memory"},
    {"kernel_attributes", 0, mover_make<kernel_attributes>, "what is said of a kernel"},
    {"occupancy", 0, mover_make<occupancy>, "blocks that fit"},
    {"large_parameters", 0, mover_make<large_parameters>, "kernels with 3,600 bytes of parameters"},
    {"device_limits", 0, mover_make<device_limits>, "limits, flags and cache preference; a stack that needs its limit"},
    {"device_properties", 0, mover_make<device_properties>, "what is said of the device"},
    {"cooperative_launch", 0, mover_make<cooperative_launch>, "grids that wait for each other"},
};
MOVER_FAMILY(settings, entries);
