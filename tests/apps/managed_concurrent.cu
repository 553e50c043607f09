// Managed memory that the host uses while kernels do (where concurrentManagedAccess is 1): the two hear each other, add
// to the same words, and see what the other one has written without a synchronization; prefetches change nothing of it.
#include "check.h"
#include <string.h>
#include <thread>

enum { ROUNDS = 50, HOST_ADDS = 20000, THREADS = 256, DEVICE_ADDS = 100, WORDS = 1 << 20 };

template <typename T> static T *alloc(size_t count, unsigned flags = cudaMemAttachGlobal)
{
    T *memory = NULL;
    CHECK(cudaMallocManaged((void **)&memory, count * sizeof *memory, flags));
    return memory;
}

// The host says numbers, and hears each of them with 1 added.
__global__ void converse(volatile unsigned *said, volatile unsigned *answered, unsigned rounds)
{
    for (unsigned round = 1; round <= rounds; round++) {
        while (*said != round)
            ;
        *answered = round + 1;
        __threadfence_system();
    }
}

static void they_hear_each_other(void)
{
    volatile unsigned *words = alloc<unsigned>(64);
    cudaStream_t stream;
    words[0] = words[32] = 0;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    converse<<<1, 1, 0, stream>>>(words, words + 32, ROUNDS);
    CHECK_LAUNCH();
    for (unsigned round = 1; round <= ROUNDS; round++) {
        words[0] = round;
        while (words[32] != round + 1)
            ;
    }
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree((void *)words));
}

struct sums {
    unsigned together;
    unsigned long long wide;
    unsigned owner; // who has the lock: 0 nobody
    unsigned locked;
};

__device__ void lock(unsigned *owner, unsigned who)
{
    while (atomicCAS_system(owner, 0, who) != 0)
        ;
    __threadfence_system();
}

// The lock is held by one of all threads on either side.
__global__ void add(sums *all, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        atomicAdd_system(&all->together, 1u);
        atomicAdd_system(&all->wide, 1ull << 20);
    }
    if (threadIdx.x)
        return;
    for (unsigned i = 0; i < count; i++) {
        lock(&all->owner, 1);
        *(volatile unsigned *)&all->locked += 1;
        __threadfence_system();
        atomicExch_system(&all->owner, 0);
    }
}

static void they_add_to_the_same_words(void)
{
    sums *all = alloc<sums>(1);
    memset(all, 0, sizeof *all);
    add<<<1, THREADS>>>(all, DEVICE_ADDS);
    CHECK_LAUNCH();
    for (unsigned i = 0; i < HOST_ADDS; i++) {
        __atomic_fetch_add(&all->together, 1, __ATOMIC_RELAXED);
        __atomic_fetch_add(&all->wide, 1ull << 20, __ATOMIC_RELAXED);
    }
    for (unsigned i = 0; i < DEVICE_ADDS; i++) {
        unsigned nobody = 0;
        while (!__atomic_compare_exchange_n(&all->owner, &nobody, 2, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            nobody = 0;
        all->locked++;
        __atomic_store_n(&all->owner, 0, __ATOMIC_SEQ_CST);
    }
    CHECK(cudaDeviceSynchronize());
    EXPECT_EQ(all->together, HOST_ADDS + THREADS * DEVICE_ADDS);
    EXPECT_EQ(all->wide, (unsigned long long)(HOST_ADDS + THREADS * DEVICE_ADDS) << 20);
    EXPECT_EQ(all->locked, 2 * DEVICE_ADDS);
    CHECK(cudaFree(all));
}

__global__ void fill_then_tell(unsigned *words, unsigned count, volatile unsigned *is_done)
{
    for (unsigned i = threadIdx.x; i < count; i += blockDim.x)
        words[i] = words[i] * 2654435761u + i;
    __threadfence_system();
    __syncthreads();
    if (!threadIdx.x) {
        *is_done = 1;
        __threadfence_system();
    }
}

// Without a synchronization the host sees what a kernel has written before it said so, and writes meanwhile elsewhere.
static void the_host_looks_before_the_end(cudaMemLocation place, cudaMemLocation home)
{
    unsigned *words = alloc<unsigned>(2 * WORDS);
    volatile unsigned *flags = alloc<unsigned>(64);
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (unsigned i = 0; i < 2 * WORDS; i++)
        words[i] = i + 3;
    flags[0] = flags[32] = 0;
    CHECK(cudaMemPrefetchAsync(words, WORDS * sizeof *words, place, 0, stream));
    fill_then_tell<<<1, 256, 0, stream>>>(words, WORDS, flags + 32);
    CHECK_LAUNCH();
    converse<<<1, 1, 0, stream>>>(flags, flags + 1, 1); // so that the stream does not end before the host has looked
    CHECK_LAUNCH();
    for (unsigned i = WORDS; i < 2 * WORDS; i += 1000)
        words[i] = 7;
    while (!flags[32])
        ;
    for (unsigned i = 0; i < WORDS; i++)
        EXPECT_EQ(words[i], (i + 3) * 2654435761u + i);
    EXPECT_ERR(cudaStreamQuery(stream), cudaErrorNotReady);
    flags[0] = 1;
    CHECK(cudaMemPrefetchAsync(words, 2 * WORDS * sizeof *words, home, 0, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (unsigned i = 0; i < WORDS; i++) {
        EXPECT_EQ(words[i], (i + 3) * 2654435761u + i);
        EXPECT_EQ(words[WORDS + i], i % 1000 ? WORDS + i + 3 : 7);
    }
    CHECK(cudaFree(words));
    CHECK(cudaFree((void *)flags));
    CHECK(cudaStreamDestroy(stream));
}

// Beside device memory and pageable memory, in both directions, asynchronously.
static void copies(void)
{
    unsigned *managed = alloc<unsigned>(WORDS), *other = alloc<unsigned>(WORDS, cudaMemAttachHost), *device;
    CHECK(cudaMalloc((void **)&device, WORDS * sizeof *device));
    for (unsigned i = 0; i < WORDS; i++)
        managed[i] = i ^ 0x5555;
    CHECK(cudaMemcpyAsync(device, managed, WORDS * sizeof *device, cudaMemcpyDefault, 0));
    CHECK(cudaMemcpyAsync(other, device, WORDS * sizeof *device, cudaMemcpyDefault, 0));
    CHECK(cudaMemsetAsync(managed, 0x21, WORDS * sizeof *managed / 2, 0));
    CHECK(cudaMemcpyAsync(managed + WORDS / 2, other, WORDS * sizeof *managed / 2, cudaMemcpyDeviceToDevice, 0));
    CHECK(cudaDeviceSynchronize());
    for (unsigned i = 0; i < WORDS; i++) {
        EXPECT_EQ(other[i], i ^ 0x5555);
        EXPECT_EQ(managed[i], i < WORDS / 2 ? 0x21212121 : (i - WORDS / 2) ^ 0x5555);
    }
    if (is_forwarded()) // CUDA does not say that it looks for the end
        EXPECT_ERR(cudaMemcpy(managed + 1, device, WORDS * sizeof *device, cudaMemcpyDefault), cudaErrorInvalidValue);
    EXPECT_ERR(cudaFreeHost(managed), cudaErrorInvalidValue);
    CHECK(cudaFree(managed));
    EXPECT_ERR(cudaFree(managed), cudaErrorInvalidValue);
    CHECK(cudaFree(other));
    CHECK(cudaFree(device));
}

// A kernel waits for what the host does last. Nothing asynchronous that stands behind it in its stream waits for its
// end.
static void nothing_waits_for_a_kernel_that_waits(void)
{
    enum { ROW = 4096, SIDE = 64 };
    volatile unsigned *flags = alloc<unsigned>(64);
    unsigned *filled = alloc<unsigned>(WORDS), *copied = alloc<unsigned>(WORDS), *pinned;
    unsigned pageable[SIDE];
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMallocHost((void **)&pinned, WORDS * sizeof *pinned));
    for (unsigned i = 0; i < WORDS; i++)
        copied[i] = pinned[i] = 1, filled[i] = i;
    flags[0] = flags[32] = 0;
    for (unsigned i = 0; i < SIDE; i++)
        pageable[i] = i + 9;
    converse<<<1, 1, 0, stream>>>(flags, flags + 32, 1);
    CHECK_LAUNCH();
    CHECK(
        cudaMemcpyAsync(copied, filled, WORDS * sizeof *copied / 2, cudaMemcpyDefault, stream)); // before it is filled
    CHECK(cudaMemsetAsync(filled, 0x21, WORDS * sizeof *filled, stream));
    CHECK(cudaMemset2DAsync(filled, ROW, 0x43, SIDE, SIDE, stream));
    CHECK(cudaMemcpyAsync(pinned, filled, WORDS * sizeof *pinned / 2, cudaMemcpyDefault, stream));
    CHECK(cudaMemsetAsync(pinned + WORDS / 2, 0x65, WORDS * sizeof *pinned / 2, stream));
    CHECK(cudaMemcpyAsync(copied + WORDS / 2, pageable, sizeof pageable, cudaMemcpyDefault, stream));
    memset(pageable, 0, sizeof pageable);
    EXPECT_ERR(cudaFreeAsync(filled, stream), cudaErrorNotSupported);
    EXPECT_ERR(cudaStreamQuery(stream), cudaErrorNotReady);
    EXPECT_EQ(filled[WORDS - 1], WORDS - 1);
    EXPECT_EQ(pinned[WORDS - 1], 1);
    flags[0] = 1;
    CHECK(cudaStreamSynchronize(stream));
    for (unsigned i = 0; i < WORDS; i++) {
        const bool is_row = i / (ROW / 4) < SIDE && i % (ROW / 4) < SIDE / 4;
        const unsigned fill = is_row ? 0x43434343 : 0x21212121;
        EXPECT_EQ(filled[i], fill);
        EXPECT_EQ(pinned[i], i < WORDS / 2 ? fill : 0x65656565);
        EXPECT_EQ(copied[i], i < WORDS / 2 ? i : i - WORDS / 2 < SIDE ? i - WORDS / 2 + 9 : 1);
    }
    EXPECT_EQ(flags[32], 2);
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree((void *)flags));
    CHECK(cudaFree(filled));
    CHECK(cudaFree(copied));
}

// Threads of the program, each with memory and kernels of its own, one of which frees while others run.
static void many_threads(void)
{
    std::thread threads[4];
    for (std::thread &one : threads)
        one = std::thread([] {
            for (int round = 0; round < 20; round++) {
                unsigned *words = alloc<unsigned>(5000);
                volatile unsigned *is_done = alloc<unsigned>(1);
                memset(words, 0, 5000 * sizeof *words);
                *is_done = 0;
                fill_then_tell<<<1, 64, 0, cudaStreamPerThread>>>(words, 5000, is_done);
                CHECK_LAUNCH();
                while (!*is_done)
                    ;
                EXPECT_EQ(words[4999], 4999);
                CHECK(cudaFree(words));
                CHECK(cudaFree((void *)is_done));
            }
        });
    for (std::thread &one : threads)
        one.join();
}

// CUDA says so of every device with this access. Through Flyt kernels reach the host's memory over the bus, which may
// have some atomics only.
static bool are_atomics_of_both(void)
{
    cudaDeviceProp properties;
    CHECK(cudaGetDeviceProperties(&properties, 0));
    return !is_forwarded() || properties.hostNativeAtomicSupported || IS_SOFT_NAME(properties.name);
}

int main(void)
{
    int is_concurrent = 0;
    CHECK(cudaDeviceGetAttribute(&is_concurrent, cudaDevAttrConcurrentManagedAccess, 0));
    if (!is_concurrent)
        SKIP("the host does not use managed memory while kernels do");
    const cudaMemLocation host = {cudaMemLocationTypeHost, 0}, device = {cudaMemLocationTypeDevice, 0};
    they_hear_each_other();
    if (are_atomics_of_both())
        they_add_to_the_same_words();
    the_host_looks_before_the_end(device, host);
    the_host_looks_before_the_end(host, device);
    copies();
    nothing_waits_for_a_kernel_that_waits();
    many_threads();
    return 0;
}
