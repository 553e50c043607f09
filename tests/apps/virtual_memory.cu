// Virtual memory that the program manages itself: addresses reserved, physical memory created, mapped side by side and
// twice, access given and taken; copies, sets and kernels across mappings; a segment that grows and shrinks, as a
// caching allocator's does; and what is refused.
// nvcc: -lcuda
#include "check.h"
#include <cuda.h>

enum { PIECES = 4 };
static size_t granule;
static CUmemAllocationProp device_memory;

__global__ void write_index(unsigned *values, size_t count, unsigned seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x)
        values[i] = (unsigned)i * 2654435761u + seed;
}

__global__ void add_one(unsigned *values, size_t count)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x)
        values[i]++;
}

static CUdeviceptr reserve(size_t bytes)
{
    CUdeviceptr address = 0;

    CHECK_CU(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    EXPECT(address && address % granule == 0, "%#llx", (unsigned long long)address);
    return address;
}

static CUmemGenericAllocationHandle create(size_t bytes)
{
    CUmemGenericAllocationHandle handle = 0;

    CHECK_CU(cuMemCreate(&handle, bytes, &device_memory, 0));
    EXPECT(handle != 0);
    return handle;
}

static void allow(CUdeviceptr address, size_t bytes, CUmemAccess_flags flags)
{
    CUmemAccessDesc access = {};

    access.location = device_memory.location;
    access.flags = flags;
    CHECK_CU(cuMemSetAccess(address, bytes, &access, 1));
}

static unsigned long long allowed(CUdeviceptr address)
{
    unsigned long long flags = 77;

    CHECK_CU(cuMemGetAccess(&flags, &device_memory.location, address));
    return flags;
}

static void expect_pattern(CUdeviceptr address, size_t count, unsigned seed, unsigned more)
{
    unsigned *values = (unsigned *)malloc(count * sizeof *values);

    CHECK_CU(cuMemcpyDtoH(values, address, count * sizeof *values));
    for (size_t i = 0; i < count; i++)
        EXPECT(values[i] == (unsigned)i * 2654435761u + seed + more, "word %zu: %u", i, values[i]);
    free(values);
}

static void check_properties(void)
{
    CUmemAllocationProp found;
    CUmemGenericAllocationHandle handle = create(2 * granule), again = 0;
    CUdeviceptr address = reserve(2 * granule);

    memset(&found, 0x5a, sizeof found);
    CHECK_CU(cuMemGetAllocationPropertiesFromHandle(&found, handle));
    EXPECT_EQ(found.type, CU_MEM_ALLOCATION_TYPE_PINNED);
    EXPECT_EQ(found.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
    EXPECT_EQ(found.location.id, 0);
    CHECK_CU(cuMemMap(address, 2 * granule, 0, handle, 0));
    CHECK_CU(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(address + granule + 5)));
    EXPECT(again == handle, "the handle is another one");
    CHECK_CU(cuMemRelease(handle));
    CHECK_CU(cuMemRelease(again));
    allow(address, 2 * granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE); /* what is mapped lasts without a handle */
    CHECK_CU(cuMemsetD8(address, 7, 2 * granule));
    CHECK_CU(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)address));
    CHECK_CU(cuMemUnmap(address, 2 * granule));
    CHECK_CU(cuMemMap(address, 2 * granule, 0, again, 0));
    allow(address, 2 * granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    unsigned char byte = 0;
    CHECK_CU(cuMemcpyDtoH(&byte, address + 2 * granule - 1, 1)); /* and keeps what was in it */
    EXPECT_EQ(byte, 7);
    CHECK_CU(cuMemUnmap(address, 2 * granule));
    CHECK_CU(cuMemRelease(again));
    CHECK_CU(cuMemAddressFree(address, 2 * granule));
}

/* One range of addresses over several pieces of memory, in another order than they were made in. */
static void check_neighbours(void)
{
    CUmemGenericAllocationHandle handles[PIECES];
    const size_t bytes = PIECES * granule, count = bytes / sizeof(unsigned);
    CUdeviceptr address = reserve(bytes);
    unsigned *values = (unsigned *)malloc(bytes);

    for (int i = 0; i < PIECES; i++)
        handles[i] = create(granule);
    for (int i = 0; i < PIECES; i++)
        CHECK_CU(cuMemMap(address + (PIECES - 1 - i) * granule, granule, 0, handles[i], 0));
    EXPECT_EQ(allowed(address), 0);
    allow(address, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    EXPECT_EQ(allowed(address + bytes - 1), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    write_index<<<64, 256>>>((unsigned *)(uintptr_t)address, count, 5);
    CHECK_LAUNCH();
    expect_pattern(address, count, 5, 0);
    for (size_t i = 0; i < count; i++)
        values[i] = (unsigned)i * 2654435761u + 9;
    CHECK_CU(cuMemcpyHtoD(address, values, bytes));
    add_one<<<64, 256>>>((unsigned *)(uintptr_t)address, count);
    CHECK_LAUNCH();
    expect_pattern(address, count, 9, 1);
    CHECK_CU(cuMemsetD32(address + granule - 8, 0xabcdef01, 4)); /* over the border */
    CHECK_CU(cuMemcpyDtoH(values, address + granule - 12, 24));
    EXPECT(values[0] != 0xabcdef01 && values[5] != 0xabcdef01);
    for (int i = 1; i < 5; i++)
        EXPECT(values[i] == 0xabcdef01, "word %d: %#x", i, values[i]);
    CUdeviceptr linear;
    CHECK_CU(cuMemAlloc(&linear, bytes));
    CHECK_CU(cuMemcpyDtoD(linear, address, bytes));
    CHECK_CU(cuMemcpyDtoD(address, linear, bytes));
    CHECK_CU(cuMemFree(linear));
    CHECK_CU(cuMemUnmap(address, bytes)); /* all of them at once */
    for (int i = 0; i < PIECES; i++)
        CHECK_CU(cuMemRelease(handles[i]));
    CHECK_CU(cuMemAddressFree(address, bytes));
    free(values);
}

/* The same memory at two places: what is written at one is read at the other behind it. */
static void check_twice(void)
{
    CUmemGenericAllocationHandle handle = create(granule);
    CUdeviceptr one = reserve(granule), other = reserve(granule);
    const size_t count = granule / sizeof(unsigned);

    CHECK_CU(cuMemMap(one, granule, 0, handle, 0));
    CHECK_CU(cuMemMap(other, granule, 0, handle, 0));
    allow(one, granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    allow(other, granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    write_index<<<16, 256>>>((unsigned *)(uintptr_t)one, count, 3);
    add_one<<<16, 256>>>((unsigned *)(uintptr_t)other, count);
    CHECK_LAUNCH();
    expect_pattern(one, count, 3, 1);
    expect_pattern(other, count, 3, 1);
    CHECK_CU(cuMemRelease(handle));
    CHECK_CU(cuMemUnmap(one, granule));
    expect_pattern(other, count, 3, 1);
    CHECK_CU(cuMemUnmap(other, granule));
    CHECK_CU(cuMemAddressFree(one, granule));
    CHECK_CU(cuMemAddressFree(other, granule));
}

/* A segment of addresses that grows at its end while it is worked in, and gives pieces in its middle back. */
static void check_segment(void)
{
    const int room = 32;
    CUmemGenericAllocationHandle handles[32];
    CUdeviceptr address = reserve(room * granule);
    cudaStream_t stream;
    const size_t count = granule / sizeof(unsigned);

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int i = 0; i < room; i++) {
        handles[i] = create(granule);
        CHECK_CU(cuMemMap(address + i * granule, granule, 0, handles[i], 0));
        allow(address + i * granule, granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        write_index<<<16, 256, 0, stream>>>((unsigned *)(uintptr_t)(address + i * granule), count, i);
    }
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 8; i < 16; i++) {
        CHECK_CU(cuMemUnmap(address + i * granule, granule));
        CHECK_CU(cuMemRelease(handles[i]));
    }
    for (int i = 0; i < room; i++)
        if (i < 8 || i >= 16)
            expect_pattern(address + i * granule, count, i, 0);
    unsigned word;
    EXPECT_CU(cuMemcpyDtoH(&word, address + 9 * granule, 4), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemUnmap(address, 8 * granule));
    CHECK_CU(cuMemUnmap(address + 16 * granule, 16 * granule));
    for (int i = 0; i < room; i++)
        if (i < 8 || i >= 16)
            CHECK_CU(cuMemRelease(handles[i]));
    CHECK_CU(cuMemAddressFree(address, room * granule));
    CHECK(cudaStreamDestroy(stream));
}

/* What is created is missing from the device's memory, and is there again. Others may have the GPU, too, and take or
 * give back theirs meanwhile: then it is seen again. */
static void check_memory_info(void)
{
    enum { TRIES = 50 };
    size_t before, with, after, total;
    const size_t bytes = 64 << 20;
    CUmemGenericAllocationHandle handle;

    for (int tries = 0;; tries++) {
        CHECK_CU(cuMemGetInfo(&before, &total));
        handle = create(bytes);
        CHECK_CU(cuMemGetInfo(&with, &total));
        CHECK_CU(cuMemRelease(handle));
        CHECK_CU(cuMemGetInfo(&after, &total));
        if (with + bytes <= before + (8 << 20) && after >= with + bytes)
            break;
        EXPECT(tries < TRIES, "%zu bytes free before, %zu with it, %zu after", before, with, after);
        usleep(20000);
    }
    EXPECT_CU(cuMemCreate(&handle, total / granule * granule + 16 * granule, &device_memory, 0),
              CUDA_ERROR_OUT_OF_MEMORY);
}

static void check_refusals(void)
{
    CUmemAllocationProp wrong = device_memory;
    CUmemGenericAllocationHandle handle = create(granule), other = 0;
    CUdeviceptr address = 0, free_address = reserve(4 * granule);
    CUmemAccessDesc access = {};
    unsigned long long flags;
    size_t bytes;

    EXPECT_CU(cuMemAddressReserve(NULL, granule, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuMemAddressReserve(&address, 0, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuMemAddressReserve(&address, granule, 3, 0, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuMemAddressReserve(&address, granule, 0, 0, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuMemCreate(&other, granule + 4096, &device_memory, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuMemCreate(&other, 0, &device_memory, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuMemCreate(&other, granule, &device_memory, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuMemCreate(NULL, granule, &device_memory, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuMemCreate(&other, granule, NULL, 0), CUDA_ERROR_INVALID_VALUE);
    wrong.location.id = 1000;
    EXPECT_CU(cuMemCreate(&other, granule, &wrong, 0), CUDA_ERROR_INVALID_DEVICE);
    wrong = device_memory;
    wrong.type = (CUmemAllocationType)77;
    EXPECT_CU(cuMemCreate(&other, granule, &wrong, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuMemGetAllocationGranularity(NULL, &device_memory, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuMemGetAllocationGranularity(&bytes, NULL, CU_MEM_ALLOC_GRANULARITY_MINIMUM), CUDA_ERROR_INVALID_VALUE);

    EXPECT_CU(cuMemMap(free_address, 2 * granule, 0, handle, 0), CUDA_ERROR_NOT_SUPPORTED); /* more than there is */
    EXPECT_CU(cuMemMap(free_address, granule, granule, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_CU(cuMemMap(free_address, granule, 0, handle, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuMemMap(free_address + 4096, granule, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemUnmap(free_address, granule)); /* nothing is there */
    access.location = device_memory.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    EXPECT_CU(cuMemSetAccess(free_address, granule, &access, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuMemGetAccess(&flags, &device_memory.location, free_address), CUDA_ERROR_INVALID_VALUE);

    CHECK_CU(cuMemMap(free_address, granule, 0, handle, 0));
    EXPECT_CU(cuMemMap(free_address, granule, 0, handle, 0), CUDA_ERROR_INVALID_VALUE); /* mapped already */
    EXPECT_CU(cuMemSetAccess(free_address, granule, NULL, 1), CUDA_ERROR_INVALID_VALUE);
    access.location.id = 1000;
    EXPECT_CU(cuMemSetAccess(free_address, granule, &access, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuMemAddressFree(free_address, 4 * granule), CUDA_ERROR_INVALID_VALUE); /* in use */
    CHECK_CU(cuMemUnmap(free_address, granule));
    EXPECT_CU(cuMemAddressFree(free_address, 3 * granule), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemAddressFree(free_address, 4 * granule));
    CHECK_CU(cuMemRelease(handle));
}

int main(void)
{
    int has_it = 0;

    CHECK(cudaSetDevice(0));
    CHECK(cudaFree(0));
    CHECK_CU(cuDeviceGetAttribute(&has_it, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    EXPECT_EQ(has_it, 1);
    device_memory.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    device_memory.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CHECK_CU(cuMemGetAllocationGranularity(&granule, &device_memory, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    EXPECT(granule >= 65536 && (granule & (granule - 1)) == 0, "%zu", granule);
    check_properties();
    check_neighbours();
    check_twice();
    check_segment();
    check_memory_info();
    check_refusals();
    CHECK(cudaDeviceSynchronize());
    return 0;
}
