// Pools of pinned host memory: what they say of themselves, memory that is used in the order of a stream by copies, by
// functions of the host and, where devices reach host memory, by kernels; what comes back when; and what is refused.
#include "mapped.h"

enum { COUNT = 100000, BYTES = COUNT * 4, ROUNDS = 60 };

__global__ void multiply_add(unsigned *to, const unsigned *from, unsigned factor, unsigned term)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < COUNT)
        to[i] = from[i] * factor + term;
}

static bool is_reached; // devices reach host memory

static cudaMemPoolProps host_props(void)
{
    cudaMemPoolProps props = {};
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeHost;
    return props;
}

static void give_access(cudaMemPool_t pool)
{
    cudaMemAccessDesc access = {};
    cudaMemAccessFlags flags;
    access.location.type = cudaMemLocationTypeDevice;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    CHECK(cudaMemPoolGetAccess(&flags, pool, &access.location));
    EXPECT_EQ(flags, cudaMemAccessFlagsProtNone);
    if (!is_reached)
        return;
    CHECK(cudaMemPoolSetAccess(pool, &access, 1));
    CHECK(cudaMemPoolGetAccess(&flags, pool, &access.location));
    EXPECT_EQ(flags, cudaMemAccessFlagsProtReadWrite);
}

static unsigned long long mark(cudaMemPool_t pool, cudaMemPoolAttr attribute)
{
    unsigned long long value = 77;
    CHECK(cudaMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

struct rows {
    unsigned *host, *seen;
    unsigned n;
};

static void fill_rows(void *user)
{
    const struct rows *rows = (const struct rows *)user;
    for (unsigned i = 0; i < COUNT; i++)
        rows->host[i] = i * 3 + rows->n;
}

static void look_at_rows(void *user)
{
    const struct rows *rows = (const struct rows *)user;
    for (unsigned i = 0; i < COUNT; i++)
        *rows->seen += rows->host[i] != (i * 3 + rows->n) * 5 + 1;
}

// Each round has memory of its own, which it frees before anybody has waited for it.
static void rounds(cudaMemPool_t pool, cudaStream_t stream, unsigned *device)
{
    static struct rows rows[ROUNDS];
    unsigned wrong = 0;
    for (unsigned n = 0; n < ROUNDS; n++) {
        unsigned *in, *out;
        CHECK(cudaMallocFromPoolAsync((void **)&in, BYTES, pool, stream));
        CHECK(cudaMallocFromPoolAsync((void **)&out, BYTES, pool, stream));
        EXPECT(in != out, "two allocations are two");
        rows[n] = {in, &wrong, n};
        CHECK(cudaLaunchHostFunc(stream, fill_rows, &rows[n]));
        if (is_reached && n % 2) {
            multiply_add<<<(COUNT + 255) / 256, 256, 0, stream>>>(out, in, 5, 1);
        } else {
            CHECK(cudaMemcpyAsync(device, in, BYTES, cudaMemcpyDefault, stream));
            multiply_add<<<(COUNT + 255) / 256, 256, 0, stream>>>(device, device, 5, 1);
            CHECK(cudaMemcpyAsync(out, device, BYTES, cudaMemcpyDefault, stream));
        }
        CHECK(cudaFreeAsync(in, stream));
        static struct rows results[ROUNDS];
        results[n] = {out, &wrong, n};
        CHECK(cudaLaunchHostFunc(stream, look_at_rows, &results[n]));
        CHECK(cudaFreeAsync(out, stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    EXPECT_EQ(wrong, 0);
}

static void marks(cudaStream_t stream)
{
    cudaMemPoolProps props = host_props();
    cudaMemPool_t pool;
    cudaPointerAttributes about;
    unsigned long long keep = ~0ull;
    unsigned char *a, *b;
    CHECK(cudaMemPoolCreate(&pool, &props));
    give_access(pool);
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    CHECK(cudaMallocFromPoolAsync((void **)&a, 1 << 20, pool, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaPointerGetAttributes(&about, a));
    EXPECT_EQ(about.type, cudaMemoryTypeHost);
    EXPECT(about.hostPointer == a, "the program has it at its address");
    EXPECT_EQ(mark(pool, cudaMemPoolAttrUsedMemCurrent), 1 << 20);
    EXPECT(mark(pool, cudaMemPoolAttrReservedMemCurrent) >= 1 << 20, "what is used is reserved");
    memset(a, 0x5a, 1 << 20);
    CHECK(cudaFreeAsync(a, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT_EQ(mark(pool, cudaMemPoolAttrUsedMemCurrent), 0);
    EXPECT(mark(pool, cudaMemPoolAttrReservedMemCurrent) >= 1 << 20, "below the threshold all is kept");
    CHECK(cudaMallocFromPoolAsync((void **)&b, 1 << 20, pool, stream));
    CHECK(cudaFreeAsync(b, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemPoolTrimTo(pool, 0));
    EXPECT_EQ(mark(pool, cudaMemPoolAttrReservedMemCurrent), 0);
    CHECK(cudaMemPoolDestroy(pool));
    // What is left of a pool that was destroyed stays until it is freed.
    CHECK(cudaMemPoolCreate(&pool, &props));
    give_access(pool);
    CHECK(cudaMallocFromPoolAsync((void **)&a, BYTES, pool, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemPoolDestroy(pool));
    memset(a, 1, BYTES);
    CHECK(cudaFreeAsync(a, stream));
    CHECK(cudaStreamSynchronize(stream));
}

static void refusals(cudaStream_t stream)
{
    cudaMemPoolProps props = host_props();
    cudaMemPool_t pool;
    void *memory;
    props.handleTypes = cudaMemHandleTypePosixFileDescriptor;
    EXPECT_ERR(cudaMemPoolCreate(&pool, &props), cudaErrorInvalidValue);
    props = host_props();
    props.location.type = cudaMemLocationTypeHostNumaCurrent;
    EXPECT_ERR(cudaMemPoolCreate(&pool, &props), cudaErrorInvalidValue);
    props = host_props();
    props.maxSize = 32 << 20;
    CHECK(cudaMemPoolCreate(&pool, &props));
    give_access(pool);
    EXPECT_ERR(cudaMallocFromPoolAsync(&memory, 128 << 20, pool, stream), cudaErrorMemoryAllocation);
    CHECK(cudaMallocFromPoolAsync(&memory, 1 << 20, pool, stream));
    CHECK(cudaStreamSynchronize(stream));
    if (getenv("FLYT_TEST_FORWARDED")) // CUDA does not say what that does
        EXPECT_ERR(cudaFreeHost(memory), cudaErrorInvalidValue);
    CHECK(cudaFree(memory));
    CHECK(cudaMemPoolDestroy(pool));
}

static bool is_pinned(void *memory)
{
    cudaPointerAttributes about;
    CHECK(cudaPointerGetAttributes(&about, memory));
    return about.type == cudaMemoryTypeHost;
}

// A reset ends what the device's streams have allocated, used or not; there is memory to be had after it.
static void reset(void)
{
    enum { RESETS = 3 };
    for (unsigned n = 0; n < RESETS; n++) {
        cudaMemPoolProps props = host_props();
        cudaMemPool_t pool;
        cudaStream_t stream;
        unsigned char *used, *cached, *device, seen;
        unsigned long long keep = ~0ull;
        CHECK(cudaStreamCreate(&stream));
        CHECK(cudaMalloc((void **)&device, BYTES));
        CHECK(cudaMemPoolCreate(&pool, &props));
        give_access(pool);
        CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
        CHECK(cudaMallocFromPoolAsync((void **)&used, BYTES, pool, stream));
        CHECK(cudaMallocFromPoolAsync((void **)&cached, BYTES, pool, stream));
        CHECK(cudaStreamSynchronize(stream));
        memset(used, 0x40 + n, BYTES);
        CHECK(cudaMemcpyAsync(device, used, BYTES, cudaMemcpyDefault, stream));
        CHECK(cudaMemcpyAsync(cached, device, BYTES, cudaMemcpyDefault, stream));
        CHECK(cudaStreamSynchronize(stream));
        seen = cached[BYTES - 1];
        EXPECT_EQ(seen, 0x40 + n);
        CHECK(cudaFreeAsync(cached, stream));
        CHECK(cudaStreamSynchronize(stream));
        EXPECT(is_pinned(used), "it is in use");
        EXPECT(!is_pinned(cached), "the pool has it back");
        CHECK(cudaDeviceReset());
        if (getenv("FLYT_TEST_FORWARDED")) // CUDA does not say that of host memory
            EXPECT(!is_pinned(used) && !is_pinned(cached), "nothing is left of the context's");
    }
}

__global__ void wait_for(volatile unsigned *flag)
{
    while (!*flag)
        ;
}

// While a kernel waits for what the host does next, what another stream has freed goes back: nobody waits for the
// kernel.
static void beside_a_kernel_that_waits(cudaMemPool_t pool, cudaStream_t stream)
{
    volatile unsigned *flag;
    unsigned *words;
    cudaStream_t beside;
    CHECK(cudaStreamCreateWithFlags(&beside, cudaStreamNonBlocking));
    CHECK(cudaHostAlloc((void **)&flag, sizeof *flag, cudaHostAllocMapped));
    *flag = 0;
    wait_for<<<1, 1, 0, stream>>>(flag);
    CHECK_LAUNCH();
    for (unsigned round = 0; round < 10; round++) {
        CHECK(cudaMallocFromPoolAsync((void **)&words, BYTES, pool, beside));
        CHECK(cudaMemsetAsync(words, (int)round + 1, BYTES, beside));
        CHECK(cudaStreamSynchronize(beside));
        EXPECT_EQ(words[COUNT - 1], (round + 1) * 0x01010101u);
        CHECK(cudaFreeAsync(words, beside));
        CHECK(cudaStreamSynchronize(beside));
    }
    EXPECT_ERR(cudaStreamQuery(stream), cudaErrorNotReady);
    *flag = 1;
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaFreeHost((void *)flag));
    CHECK(cudaStreamDestroy(beside));
}

/* Memory of the NUMA node that is nearest to the device; 0 where the system has none (cuMemPoolCreate). */
static void of_a_numa_node(cudaStream_t stream)
{
    cudaMemPoolProps props = host_props();
    cudaMemPool_t pool;
    cudaMemAccessFlags flags;
    unsigned *words;
    int has_pools, node;

    CHECK(cudaDeviceGetAttribute(&has_pools, cudaDevAttrHostNumaMemoryPoolsSupported, 0));
    CHECK(cudaDeviceGetAttribute(&node, cudaDevAttrHostNumaId, 0));
    if (!has_pools)
        return;
    props.location.type = cudaMemLocationTypeHostNuma;
    props.location.id = node < 0 ? 0 : node;
    CHECK(cudaMemPoolCreate(&pool, &props));
    CHECK(cudaMemPoolGetAccess(&flags, pool, &props.location));
    EXPECT_EQ(flags, cudaMemAccessFlagsProtReadWrite);
    CHECK(cudaMallocFromPoolAsync((void **)&words, BYTES, pool, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (unsigned i = 0; i < COUNT; i++)
        words[i] = i ^ 0x55;
    EXPECT_EQ(words[COUNT - 1], (COUNT - 1) ^ 0x55);
    CHECK(cudaFreeAsync(words, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemPoolDestroy(pool));
    props.location.id = 4000;
    EXPECT_ERR(cudaMemPoolCreate(&pool, &props), cudaErrorInvalidValue);
}

int main(void)
{
    cudaMemPoolProps props = host_props();
    cudaMemPool_t pool;
    cudaStream_t stream;
    unsigned *device;
    int has_pools;
    CHECK(cudaDeviceGetAttribute(&has_pools, cudaDevAttrHostMemoryPoolsSupported, 0));
    if (!has_pools) {
        puts("skip: the device has no pools of host memory");
        return 77;
    }
    is_reached = can_map_host_memory();
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMalloc((void **)&device, BYTES));
    CHECK(cudaMemPoolCreate(&pool, &props));
    give_access(pool);
    rounds(pool, stream, device);
    if (is_reached)
        beside_a_kernel_that_waits(pool, stream);
    marks(stream);
    of_a_numa_node(stream);
    refusals(stream);
    CHECK(cudaMemPoolDestroy(pool));
    CHECK(cudaFree(device));
    CHECK(cudaStreamDestroy(stream));
    reset();
    return 0;
}
