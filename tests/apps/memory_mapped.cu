// Host memory that kernels reach (where canMapHostMemory is 1): by its device pointer and by its own, with and without
// cudaHostAllocMapped, several pieces at once and after others were freed; atomics on it, a kernel that hears from the host while
// it runs and answers, copies and fills that name it as device memory, and what is said of its pointers.
// nvcc: -lcuda
#include "mapped.h"
#include <cuda.h>
#include <string.h>

enum { COUNT = 3000, PIECES = 24, ADDERS = 4096 };

__global__ void scale(unsigned *to, const unsigned *from, int count, unsigned by)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        to[i] = from[i] * by + i;
}

__global__ void add_all(unsigned *sum, unsigned long long *wide, unsigned *most)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd_system(sum, i);
    atomicAdd_system(wide, (unsigned long long)i << 20);
    atomicMax_system(most, i * 7 % ADDERS);
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

static unsigned *piece(size_t count, unsigned flags)
{
    unsigned *host;
    CHECK(cudaHostAlloc(&host, count * sizeof *host, flags));
    return host;
}

static void check_scaled(const unsigned *to, const unsigned *from, unsigned by)
{
    for (unsigned i = 0; i < COUNT; i++)
        EXPECT_EQ(to[i], from[i] * by + i);
}

static void pieces_beside_each_other()
{
    unsigned *pieces[PIECES];
    for (int i = 0; i < PIECES; i++) {
        pieces[i] = piece(COUNT, i % 2 ? cudaHostAllocMapped : i % 3 ? cudaHostAllocPortable : cudaHostAllocDefault);
        for (unsigned k = 0; k < COUNT; k++)
            pieces[i][k] = i * 100000 + k;
    }
    for (int i = 1; i < PIECES; i += 3) { // holes
        CHECK(cudaFreeHost(pieces[i]));
        pieces[i] = NULL;
    }
    for (int i = 0; i + 2 < PIECES; i += 3) { // by the pointers themselves, and by those that are told
        unsigned *to, *from = pieces[i];
        CHECK(cudaHostGetDevicePointer(&to, pieces[i + 2], 0));
        scale<<<(COUNT + 255) / 256, 256>>>(to, from, COUNT, 3 + i);
        CHECK_LAUNCH();
    }
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i + 2 < PIECES; i += 3)
        check_scaled(pieces[i + 2], pieces[i], 3 + i);
    for (unsigned *one : pieces)
        if (one)
            CHECK(cudaFreeHost(one));
}

static void atomics()
{
    struct sums {
        unsigned long long wide;
        unsigned sum, most;
    } *sums, *device;
    CHECK(cudaHostAlloc(&sums, sizeof *sums, cudaHostAllocMapped));
    memset(sums, 0, sizeof *sums);
    CHECK(cudaHostGetDevicePointer(&device, sums, 0));
    add_all<<<ADDERS / 128, 128>>>(&device->sum, &device->wide, &device->most);
    CHECK_LAUNCH();
    CHECK(cudaDeviceSynchronize());
    EXPECT_EQ(sums->sum, ADDERS / 2 * (ADDERS - 1));
    EXPECT_EQ(sums->wide, ((unsigned long long)ADDERS / 2 * (ADDERS - 1)) << 20);
    EXPECT_EQ(sums->most, ADDERS - 1);
    CHECK(cudaFreeHost(sums));
}

static void a_kernel_hears_from_the_host()
{
    enum { ROUNDS = 50 };
    volatile unsigned *words = piece(64, cudaHostAllocMapped);
    cudaStream_t stream;
    words[0] = words[32] = 0;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    converse<<<1, 1, 0, stream>>>(words, words + 32, ROUNDS);
    CHECK_LAUNCH();
    EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
    for (unsigned round = 1; round <= ROUNDS; round++) {
        words[0] = round;
        while (words[32] != round + 1)
            ;
    }
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFreeHost((void *)words));
}

static void copies_and_fills()
{
    unsigned *host = piece(COUNT, cudaHostAllocMapped), *device, *mapped;
    CHECK(cudaHostGetDevicePointer(&mapped, host, 0));
    CHECK(cudaMalloc(&device, COUNT * sizeof *device));
    CHECK(cudaMemset(mapped, 0x11, COUNT * sizeof *host));
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < COUNT; i++)
        EXPECT_EQ(host[i], 0x11111111u);
    CHECK(cudaMemcpy(device, mapped, COUNT * sizeof *host, cudaMemcpyDeviceToDevice));
    scale<<<(COUNT + 255) / 256, 256>>>(device, device, COUNT, 5);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(mapped, device, COUNT * sizeof *host, cudaMemcpyDefault));
    CHECK(cudaDeviceSynchronize());
    for (unsigned i = 0; i < COUNT; i++)
        EXPECT_EQ(host[i], 0x11111111u * 5 + i);
    CHECK(cudaFree(device));
    CHECK(cudaFreeHost(host));
}

static void what_is_said()
{
    unsigned *host = piece(COUNT, cudaHostAllocDefault);
    struct cudaPointerAttributes attributes;
    CUdeviceptr pointer = 0;
    unsigned flags;
    CHECK(cudaPointerGetAttributes(&attributes, host + 5));
    EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
    EXPECT(attributes.devicePointer == host + 5 && attributes.hostPointer == host + 5);
    EXPECT_EQ(cuPointerGetAttribute(&pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, (CUdeviceptr)(host + 7)), CUDA_SUCCESS);
    EXPECT_EQ(pointer, (CUdeviceptr)(host + 7));
    CHECK(cudaHostGetFlags(&flags, host));
    EXPECT_EQ(flags & cudaHostAllocMapped, cudaHostAllocMapped); // with unified addressing all of it is
    CHECK(cudaFreeHost(host));
}

int main()
{
    if (!can_map_host_memory()) {
        unsigned *host;
        EXPECT_ERR(cudaHostAlloc(&host, 4096, cudaHostAllocMapped), cudaErrorNotSupported);
        puts("no mapped host memory");
        return 0;
    }
    CHECK(cudaSetDeviceFlags(cudaDeviceMapHost));
    pieces_beside_each_other();
    atomics();
    a_kernel_hears_from_the_host();
    copies_and_fills();
    what_is_said();
    return 0;
}
