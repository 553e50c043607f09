// Stream-ordered allocation: memory that is used between its allocation and its free in a stream's order, pools with
// their marks, thresholds and attributes, what comes back in the same stream and in another one, and what is refused.
#include "check.h"

enum { COUNT = 200000, ROUNDS = 200 };

__global__ void fill(unsigned *values, int count, unsigned n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        values[i] = i * 2654435761u + n;
}

__global__ void add_all(const unsigned *values, int count, unsigned n, unsigned *wrong)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count && values[i] != i * 2654435761u + n)
        atomicAdd(wrong, 1);
}

static unsigned long long mark(cudaMemPool_t pool, cudaMemPoolAttr attribute)
{
    unsigned long long value = 77;
    CHECK(cudaMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

static int flag(cudaMemPool_t pool, cudaMemPoolAttr attribute)
{
    int value = 77;
    CHECK(cudaMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

static cudaMemPool_t make(size_t bytes_max)
{
    cudaMemPoolProps props = {};
    cudaMemPool_t pool;
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    props.maxSize = bytes_max;
    CHECK(cudaMemPoolCreate(&pool, &props));
    return pool;
}

/* Each round has memory of its own, which it frees before anybody has waited for it. */
static void rounds(cudaStream_t one, cudaStream_t two, unsigned *wrong)
{
    for (unsigned n = 0; n < ROUNDS; n++) {
        cudaStream_t stream = n % 3 ? one : two;
        unsigned *values;
        int count = COUNT - n % 5;
        CHECK(cudaMallocAsync((void **)&values, count * sizeof *values, stream));
        fill<<<(count + 255) / 256, 256, 0, stream>>>(values, count, n);
        add_all<<<(count + 255) / 256, 256, 0, stream>>>(values, count, n, wrong);
        CHECK(cudaFreeAsync(values, stream));
    }
    unsigned seen;
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(&seen, wrong, sizeof seen, cudaMemcpyDeviceToHost));
    EXPECT_EQ(seen, 0);
}

static void test_defaults(void)
{
    cudaMemPool_t pool, current, own = make(0);
    int is_supported;
    CHECK(cudaDeviceGetAttribute(&is_supported, cudaDevAttrMemoryPoolsSupported, 0));
    EXPECT_EQ(is_supported, 1);
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cudaDeviceGetMemPool(&current, 0));
    EXPECT(pool == current, "the current pool is the default one");
    EXPECT_EQ(mark(pool, cudaMemPoolAttrReleaseThreshold), 0);
    EXPECT_EQ(flag(pool, cudaMemPoolReuseFollowEventDependencies), 1);
    EXPECT_EQ(flag(pool, cudaMemPoolReuseAllowOpportunistic), 1);
    EXPECT_EQ(flag(pool, cudaMemPoolReuseAllowInternalDependencies), 1);
    CHECK(cudaDeviceSetMemPool(0, own));
    CHECK(cudaDeviceGetMemPool(&current, 0));
    EXPECT(current == own, "the current pool is the one that was set");
    CHECK(cudaMemPoolDestroy(own));
    CHECK(cudaDeviceGetMemPool(&current, 0));
    EXPECT(current == pool, "a pool that is destroyed is not the current one");
    EXPECT_ERR(cudaMemPoolDestroy(pool), cudaErrorInvalidValue);
    EXPECT_ERR(cudaDeviceGetDefaultMemPool(&pool, 1000), cudaErrorInvalidDevice);
}

static void test_marks(cudaStream_t stream)
{
    cudaMemPool_t pool = make(0);
    unsigned long long keep = ~0ull, zero = 0, one = 1;
    int off = 0;
    char *a, *b;
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    EXPECT_EQ(mark(pool, cudaMemPoolAttrReleaseThreshold), keep);
    CHECK(cudaMallocFromPoolAsync((void **)&a, 1 << 20, pool, stream));
    CHECK(cudaMallocFromPoolAsync((void **)&b, 3 << 20, pool, stream));
    EXPECT_EQ(mark(pool, cudaMemPoolAttrUsedMemCurrent), 4 << 20);
    EXPECT_EQ(mark(pool, cudaMemPoolAttrUsedMemHigh), 4 << 20);
    EXPECT(mark(pool, cudaMemPoolAttrReservedMemCurrent) >= 4 << 20, "what is used is reserved");
    CHECK(cudaMemsetAsync(a, 1, 1 << 20, stream));
    CHECK(cudaMemsetAsync(b, 2, 3 << 20, stream));
    CHECK(cudaFreeAsync(b, stream));
    EXPECT_EQ(mark(pool, cudaMemPoolAttrUsedMemHigh), 4 << 20);
    CHECK(cudaStreamSynchronize(stream));
    EXPECT_EQ(mark(pool, cudaMemPoolAttrUsedMemCurrent), 1 << 20);
    EXPECT(mark(pool, cudaMemPoolAttrReservedMemCurrent) >= 4 << 20, "below the threshold all is kept");
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &zero));
    EXPECT_EQ(mark(pool, cudaMemPoolAttrUsedMemHigh), 1 << 20);
    EXPECT_ERR(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &one), cudaErrorInvalidValue);
    EXPECT_ERR(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &zero), cudaErrorInvalidValue);
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowOpportunistic, &off));
    EXPECT_EQ(flag(pool, cudaMemPoolReuseAllowOpportunistic), 0);
    CHECK(cudaFreeAsync(a, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemPoolTrimTo(pool, 0));
    EXPECT_EQ(mark(pool, cudaMemPoolAttrReservedMemCurrent), 0);
    CHECK(cudaMemPoolDestroy(pool));
}

/* What is freed in a stream comes back in it at once. */
static void test_same_stream(cudaStream_t stream)
{
    cudaMemPool_t pool = make(0);
    char *a, *b;
    CHECK(cudaMallocFromPoolAsync((void **)&a, 5 << 20, pool, stream));
    CHECK(cudaFreeAsync(a, stream));
    CHECK(cudaMallocFromPoolAsync((void **)&b, 5 << 20, pool, stream));
    EXPECT(a == b, "the same memory");
    cudaPointerAttributes attributes;
    CHECK(cudaPointerGetAttributes(&attributes, b + 100));
    EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
    CHECK(cudaFreeAsync(b, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaPointerGetAttributes(&attributes, b + 100));
    EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
    CHECK(cudaMallocFromPoolAsync((void **)&b, 5 << 20, pool, stream));
    CHECK(cudaFree(b));
    CHECK(cudaMemPoolDestroy(pool));
    CHECK(cudaMalloc((void **)&a, 4096));
    CHECK(cudaFreeAsync(a, stream));
    CHECK(cudaStreamSynchronize(stream));
}

/* A pool that is destroyed while something of it is in use. */
static void test_destroyed(cudaStream_t stream, unsigned *wrong)
{
    cudaMemPool_t pool = make(0);
    unsigned *values, seen;
    CHECK(cudaMallocFromPoolAsync((void **)&values, COUNT * sizeof *values, pool, stream));
    CHECK(cudaMemPoolDestroy(pool));
    fill<<<(COUNT + 255) / 256, 256, 0, stream>>>(values, COUNT, 3);
    add_all<<<(COUNT + 255) / 256, 256, 0, stream>>>(values, COUNT, 3, wrong);
    CHECK(cudaFreeAsync(values, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(&seen, wrong, sizeof seen, cudaMemcpyDeviceToHost));
    EXPECT_EQ(seen, 0);
}

static void test_access(void)
{
    cudaMemPool_t pool = make(0);
    cudaMemLocation here = {};
    cudaMemAccessFlags flags;
    here.type = cudaMemLocationTypeDevice;
    CHECK(cudaMemPoolGetAccess(&flags, pool, &here));
    EXPECT_EQ(flags, cudaMemAccessFlagsProtReadWrite);
    cudaMemAccessDesc none = {};
    none.location = here;
    none.flags = cudaMemAccessFlagsProtNone;
    EXPECT_ERR(cudaMemPoolSetAccess(pool, &none, 1), cudaErrorInvalidDevice);
    none.flags = cudaMemAccessFlagsProtReadWrite;
    CHECK(cudaMemPoolSetAccess(pool, &none, 1));
    CHECK(cudaMemPoolDestroy(pool));
}

static void test_refused(cudaStream_t stream)
{
    void *address;
    EXPECT_ERR(cudaMallocAsync(NULL, 4096, stream), cudaErrorInvalidValue);
    CHECK(cudaMallocAsync(&address, 0, stream));
    EXPECT(!address, "no bytes have no memory");
    CHECK(cudaFreeAsync(NULL, stream));
    cudaMemPoolProps props = {};
    cudaMemPool_t none;
    EXPECT_ERR(cudaMemPoolCreate(&none, &props), cudaErrorInvalidValue);
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    props.location.id = 99;
    EXPECT_ERR(cudaMemPoolCreate(&none, &props), cudaErrorInvalidValue);
    EXPECT_ERR(cudaMallocAsync(&address, (size_t)1 << 60, stream), cudaErrorMemoryAllocation);
    EXPECT_ERR(cudaFreeAsync((void *)0x12345600, stream), cudaErrorInvalidValue);
    cudaMemPool_t pool = make(64 << 20);
    void *blocks[3];
    CHECK(cudaMallocFromPoolAsync(&blocks[0], 30 << 20, pool, stream));
    CHECK(cudaMallocFromPoolAsync(&blocks[1], 30 << 20, pool, stream));
    EXPECT_ERR(cudaMallocFromPoolAsync(&blocks[2], 30 << 20, pool, stream), cudaErrorMemoryAllocation);
    CHECK(cudaFreeAsync(blocks[0], stream));
    CHECK(cudaFreeAsync(blocks[1], stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemPoolDestroy(pool));
}

int main(void)
{
    cudaStream_t one, two;
    unsigned *wrong;
    CHECK(cudaStreamCreate(&one));
    CHECK(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
    CHECK(cudaMalloc(&wrong, sizeof *wrong));
    CHECK(cudaMemset(wrong, 0, sizeof *wrong));
    CHECK(cudaDeviceSynchronize());
    test_defaults();
    rounds(one, two, wrong);
    rounds(one, one, wrong);
    rounds(0, one, wrong);
    test_marks(one);
    test_marks(two);
    test_same_stream(one);
    test_same_stream(two);
    test_destroyed(two, wrong);
    test_access();
    test_refused(one);
    return 0;
}
