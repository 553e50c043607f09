// Pinned host memory: cudaHostAlloc with its flags, cudaHostRegister, their use in asynchronous copies and
// their errors. Mapped memory works where canMapHostMemory is 1 and is refused by name where it is 0. Kernels reach
// what is registered natively; through Flyt they do not, which is said.
#include "mapped.h"
#include <sys/mman.h>

__global__ void increment(int *values, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < count)
        values[i]++;
}

enum { COUNT = 5000 };

/* Sends the pinned buffer through the device and back. */
static void round_trip(int *pinned)
{
    int *device;
    cudaStream_t stream;

    for (int i = 0; i < COUNT; i++)
        pinned[i] = i * 3;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMalloc(&device, COUNT * sizeof(int)));
    CHECK(cudaMemcpyAsync(device, pinned, COUNT * sizeof(int), cudaMemcpyHostToDevice, stream));
    increment<<<(COUNT + 127) / 128, 128, 0, stream>>>(device, COUNT);
    CHECK_LAUNCH();
    CHECK(cudaMemcpyAsync(pinned, device, COUNT * sizeof(int), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 0; i < COUNT; i++)
        EXPECT_EQ(pinned[i], i * 3 + 1);
    CHECK(cudaFree(device));
    CHECK(cudaStreamDestroy(stream));
}

static void check_mapped(int can_map)
{
    int *host, *device;

    if (!can_map) {
        EXPECT_ERR(cudaSetDeviceFlags(cudaDeviceMapHost), cudaErrorNotSupported);
        EXPECT_ERR(cudaHostAlloc(&host, 4096, cudaHostAllocMapped), cudaErrorNotSupported);
        return;
    }
    CHECK(cudaSetDeviceFlags(cudaDeviceMapHost));
    CHECK(cudaHostAlloc(&host, COUNT * sizeof(int), cudaHostAllocMapped));
    CHECK(cudaHostGetDevicePointer(&device, host, 0));
    for (int i = 0; i < COUNT; i++)
        host[i] = i;
    increment<<<(COUNT + 127) / 128, 128>>>(device, COUNT);
    CHECK_LAUNCH();
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < COUNT; i++)
        EXPECT_EQ(host[i], i + 1);
    CHECK(cudaFreeHost(host));
}

static void check_registered_for_kernels(int *memory, size_t bytes)
{
    struct cudaPointerAttributes attributes;
    int *device, uses_host_pointers;

    CHECK(cudaDeviceGetAttribute(&uses_host_pointers, cudaDevAttrCanUseHostPointerForRegisteredMem, 0));
    if (is_forwarded()) {
        EXPECT_EQ(uses_host_pointers, 0);
        for (int i = 0; i < 2; i++) { /* the line on stderr comes once */
            EXPECT_ERR(cudaHostRegister(memory, bytes, cudaHostRegisterMapped), cudaErrorNotSupported);
            EXPECT_ERR(cudaHostRegister(memory, bytes, cudaHostRegisterIoMemory), cudaErrorNotSupported);
        }
        EXPECT_ERR(cudaHostUnregister(memory), cudaErrorHostMemoryNotRegistered);
        CHECK(cudaHostRegister(memory, bytes, cudaHostRegisterPortable));
        for (int i = 0; i < 2; i++)
            EXPECT_ERR(cudaHostGetDevicePointer(&device, memory, 0), cudaErrorNotSupported);
        CHECK(cudaPointerGetAttributes(&attributes, memory + 7));
        EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
        EXPECT(attributes.hostPointer == memory + 7 && !attributes.devicePointer);
    } else {
        CHECK(cudaHostRegister(memory, bytes, cudaHostRegisterMapped));
        CHECK(cudaHostGetDevicePointer(&device, memory, 0));
        EXPECT(!uses_host_pointers || device == memory);
        for (int i = 0; i < COUNT; i++)
            memory[i] = i;
        increment<<<(COUNT + 127) / 128, 128>>>(device, COUNT);
        CHECK_LAUNCH();
        CHECK(cudaDeviceSynchronize());
        for (int i = 0; i < COUNT; i++)
            EXPECT_EQ(memory[i], i + 1);
    }
    round_trip(memory);
    CHECK(cudaHostUnregister(memory));
}

static void check_register(void)
{
    const size_t bytes = (COUNT * sizeof(int) + 4095) / 4096 * 4096;
    int *memory = (int *)aligned_alloc(4096, bytes);

    CHECK(cudaHostRegister(memory, bytes, cudaHostRegisterDefault));
    EXPECT_ERR(cudaHostRegister(memory, bytes, cudaHostRegisterDefault), cudaErrorHostMemoryAlreadyRegistered);
    round_trip(memory);
    CHECK(cudaHostUnregister(memory));
    EXPECT_ERR(cudaHostUnregister(memory), cudaErrorHostMemoryNotRegistered);
    round_trip(memory);
    check_registered_for_kernels(memory, bytes);
    free(memory);

    /* What the process does not have cannot be registered: a hole, and a range with a hole in it. */
    char *pages = (char *)mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(pages != MAP_FAILED && munmap(pages + 4096, 4096) == 0);
    EXPECT(cudaHostRegister(pages + 4096, 4096, cudaHostRegisterDefault) != cudaSuccess);
    EXPECT(cudaHostRegister(pages, 3 * 4096, cudaHostRegisterDefault) != cudaSuccess);
    cudaGetLastError();
    CHECK(cudaHostRegister(pages + 2 * 4096, 4096, cudaHostRegisterDefault));
    CHECK(cudaHostUnregister(pages + 2 * 4096));
    munmap(pages, 4096);
    munmap(pages + 2 * 4096, 4096);
}

int main(void)
{
    int local = 0;
    unsigned flags = 0;
    int *pinned;

    CHECK(cudaMallocHost(&pinned, COUNT * sizeof(int)));
    round_trip(pinned);
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaHostAlloc(&pinned, COUNT * sizeof(int), cudaHostAllocPortable));
    round_trip(pinned);
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaHostAlloc(&pinned, COUNT * sizeof(int), cudaHostAllocWriteCombined));
    CHECK(cudaHostGetFlags(&flags, pinned));
    EXPECT(flags & cudaHostAllocWriteCombined, "0x%x", flags);
    round_trip(pinned);
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFreeHost(NULL));
    EXPECT_ERR(cudaHostAlloc(&pinned, 4096, 0x7000), cudaErrorInvalidValue);
    EXPECT_ERR(cudaHostGetFlags(&flags, &local), cudaErrorInvalidValue);
    EXPECT_ERR(cudaFreeHost(&local), cudaErrorInvalidValue);
    check_mapped(can_map_host_memory());
    check_register();
    CHECK(cudaGetLastError());
    return 0;
}
