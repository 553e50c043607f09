// Physical memory of the host that the program maps itself: who may access it, host and kernels at one address, copies
// and sets, memory that is mapped twice, beside device memory and in its place; what is left of it, and what is
// refused.
// nvcc: -lcuda
#include <csetjmp>
#include <csignal>
#include <cuda.h>
#include "mapped.h"

static size_t granule;
static sigjmp_buf fault;

__global__ void add(unsigned *values, size_t count, unsigned value)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x)
        values[i] += value;
}

static void run(CUdeviceptr address, size_t count, unsigned value)
{
    add<<<8, 128>>>((unsigned *)address, count, value);
    CHECK_LAUNCH();
    CHECK_CU(cuCtxSynchronize());
}

static volatile unsigned *words(CUdeviceptr address)
{
    return (volatile unsigned *)(uintptr_t)address;
}

static CUmemAllocationProp memory_of(CUmemLocationType type, int id)
{
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = type;
    prop.location.id = id;
    return prop;
}

static CUmemGenericAllocationHandle create(size_t bytes, CUmemLocationType type = CU_MEM_LOCATION_TYPE_HOST)
{
    CUmemAllocationProp prop = memory_of(type, 0);
    CUmemGenericAllocationHandle handle = 0;
    CHECK_CU(cuMemCreate(&handle, bytes, &prop, 0));
    return handle;
}

static CUdeviceptr reserve(size_t bytes)
{
    CUdeviceptr address = 0;
    CHECK_CU(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    return address;
}

static CUresult set(CUdeviceptr address, size_t bytes, CUmemLocationType type, int flags, int id = 0)
{
    CUmemAccessDesc desc = {};
    desc.location.type = type;
    desc.location.id = id;
    desc.flags = (CUmemAccess_flags)flags;
    return cuMemSetAccess(address, bytes, &desc, 1);
}

static unsigned long long get(CUdeviceptr address, CUmemLocationType type, int id = 0)
{
    CUmemLocation location = {};
    unsigned long long flags = 77;
    location.type = type;
    location.id = id;
    CHECK_CU(cuMemGetAccess(&flags, &location, address));
    return flags;
}

static void allow_all(CUdeviceptr address, size_t bytes)
{
    CHECK_CU(set(address, bytes, CU_MEM_LOCATION_TYPE_HOST, 3));
    CHECK_CU(set(address, bytes, CU_MEM_LOCATION_TYPE_DEVICE, 3));
}

static void on_fault(int signal)
{
    siglongjmp(fault, signal);
}

static bool can_read(CUdeviceptr address)
{
    if (sigsetjmp(fault, 1))
        return false;
    (void)*words(address);
    return true;
}

static bool can_write(CUdeviceptr address)
{
    if (sigsetjmp(fault, 1))
        return false;
    *words(address) = *words(address);
    return true;
}

static void refusals(void)
{
    const struct {
        CUmemLocationType type;
        int id;
    } nowhere[] = {{CU_MEM_LOCATION_TYPE_INVALID, 0},
                   {CU_MEM_LOCATION_TYPE_HOST_NUMA, 4000},
                   {CU_MEM_LOCATION_TYPE_HOST_NUMA, -1},
                   {CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0}};
    CUmemGenericAllocationHandle handle;
    for (const auto &one : nowhere) {
        CUmemAllocationProp prop = memory_of(one.type, one.id);
        EXPECT_CU(cuMemCreate(&handle, granule, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    }
    CUmemAllocationProp prop = memory_of(CU_MEM_LOCATION_TYPE_HOST, 0);
    EXPECT_CU(cuMemCreate(&handle, granule / 2, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuMemCreate(&handle, 0, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    EXPECT_CU(cuMemCreate(&handle, granule, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    prop = memory_of(CU_MEM_LOCATION_TYPE_HOST, 0);
    prop.allocFlags.gpuDirectRDMACapable = 1;
    EXPECT_CU(cuMemCreate(&handle, granule, &prop, 0), CUDA_ERROR_INVALID_VALUE);
}

static void what_it_is(CUmemLocationType type)
{
    CUmemGenericAllocationHandle handle = create(2 * granule, type), again = 0;
    CUdeviceptr address = reserve(4 * granule);
    CUmemAllocationProp found;
    cudaPointerAttributes about;
    CHECK_CU(cuMemGetAllocationPropertiesFromHandle(&found, handle));
    EXPECT_EQ(found.location.type, CU_MEM_LOCATION_TYPE_HOST_NUMA);
    EXPECT_EQ(found.location.id, 0);
    EXPECT_EQ(found.requestedHandleTypes, 0);
    CHECK_CU(cuMemMap(address, 2 * granule, 0, handle, 0));
    CHECK_CU(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(address + granule)));
    EXPECT(again == handle, "the handle is another one");
    CHECK_CU(cuMemRelease(again));
    allow_all(address, 2 * granule);
    CHECK(cudaPointerGetAttributes(&about, (void *)(uintptr_t)address));
    EXPECT_EQ(about.type, cudaMemoryTypeHost);
    EXPECT(about.hostPointer == (void *)(uintptr_t)address && about.devicePointer == about.hostPointer, "%p %p",
           about.hostPointer, about.devicePointer);
    EXPECT_CU(cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuMemFreeHost((void *)(uintptr_t)address), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemRelease(handle)); // what is mapped lasts without one
    *words(address + 2 * granule - 4) = 5;
    run(address + 2 * granule - 4, 1, 2);
    EXPECT_EQ(*words(address + 2 * granule - 4), 7);
    EXPECT_CU(cuMemAddressFree(address, 4 * granule), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemUnmap(address, 2 * granule));
    EXPECT(!can_read(address), "nothing is mapped there");
    CHECK_CU(cuMemAddressFree(address, 4 * granule));
}

static void rights(void)
{
    CUmemGenericAllocationHandle handle = create(2 * granule);
    CUdeviceptr address = reserve(2 * granule);
    CUmemLocation location = {};
    unsigned long long flags;
    CHECK_CU(cuMemMap(address, 2 * granule, 0, handle, 0));
    EXPECT(!can_read(address), "without access");
    EXPECT_EQ(get(address, CU_MEM_LOCATION_TYPE_HOST), 0);
    EXPECT_EQ(get(address, CU_MEM_LOCATION_TYPE_DEVICE), 0);
    EXPECT_CU(set(address, granule, CU_MEM_LOCATION_TYPE_HOST, 3), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(set(address, 2 * granule, CU_MEM_LOCATION_TYPE_HOST, 2), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(set(address, 2 * granule, CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 3), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(set(address, 2 * granule, CU_MEM_LOCATION_TYPE_INVALID, 3), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(set(address, 2 * granule, CU_MEM_LOCATION_TYPE_HOST, 3, 5));
    EXPECT(can_write(address), "with access");
    EXPECT_EQ(get(address, CU_MEM_LOCATION_TYPE_HOST), 3);
    EXPECT_EQ(get(address, CU_MEM_LOCATION_TYPE_HOST_NUMA, 50), 3);
    EXPECT_EQ(get(address, CU_MEM_LOCATION_TYPE_DEVICE), 0);
    location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
    EXPECT_CU(cuMemGetAccess(&flags, &location, address), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_CU(cuMemsetD32(address, 5, 4), CUDA_ERROR_INVALID_VALUE); // no device may
    for (size_t i = 0; i < 2 * granule; i += 512)
        EXPECT_EQ(*words(address + i), 0); // fresh
    *words(address) = 40;
    CHECK_CU(set(address, 2 * granule, CU_MEM_LOCATION_TYPE_HOST_NUMA, 1, 50));
    EXPECT(can_read(address) && !can_write(address), "to be read alone");
    CHECK_CU(set(address, 2 * granule, CU_MEM_LOCATION_TYPE_HOST, 0));
    EXPECT(!can_read(address), "access is taken");
    CHECK_CU(set(address, 2 * granule, CU_MEM_LOCATION_TYPE_DEVICE, 3));
    EXPECT_EQ(get(address, CU_MEM_LOCATION_TYPE_DEVICE), 3);
    run(address, 1, 2);
    EXPECT(!can_read(address), "the device's alone");
    CHECK_CU(set(address, 2 * granule, CU_MEM_LOCATION_TYPE_HOST, 3));
    EXPECT_EQ(*words(address), 42);
    CHECK_CU(set(address, 2 * granule, CU_MEM_LOCATION_TYPE_DEVICE, 0));
    EXPECT_EQ(get(address, CU_MEM_LOCATION_TYPE_DEVICE), 0);
    EXPECT_EQ(*words(address), 42);
    CHECK_CU(set(address, 2 * granule, CU_MEM_LOCATION_TYPE_DEVICE, 3));
    run(address, 1, 2);
    EXPECT_EQ(*words(address), 44);
    CHECK_CU(cuMemUnmap(address, 2 * granule));
    CHECK_CU(cuMemRelease(handle));
    CHECK_CU(cuMemAddressFree(address, 2 * granule));
}

// Copies of every direction, and sets, find it as any memory.
static void copies(void)
{
    const size_t count = granule / 4;
    CUmemGenericAllocationHandle handle = create(granule);
    CUdeviceptr address = reserve(granule), device;
    unsigned *here = (unsigned *)malloc(granule);
    size_t wrong = 0;
    CHECK_CU(cuMemMap(address, granule, 0, handle, 0));
    allow_all(address, granule);
    CHECK_CU(cuMemAlloc(&device, granule));
    for (size_t i = 0; i < count; i++)
        words(address)[i] = (unsigned)i ^ 0x5555;
    CHECK(cudaMemcpy((void *)device, (void *)address, granule, cudaMemcpyHostToDevice));
    run(device, count, 3);
    CHECK_CU(cuMemsetD32(address, 9, count));
    for (size_t i = 0; i < count; i++)
        wrong += words(address)[i] != 9;
    CHECK(cudaMemcpy((void *)address, (void *)device, granule, cudaMemcpyDefault));
    for (size_t i = 0; i < count; i++)
        wrong += words(address)[i] != ((unsigned)i ^ 0x5555) + 3;
    CHECK_CU(cuMemcpyDtoH(here, address, granule));
    for (size_t i = 0; i < count; i++)
        wrong += here[i] != ((unsigned)i ^ 0x5555) + 3;
    for (size_t i = 0; i < count; i++)
        here[i] = (unsigned)i * 7;
    CHECK_CU(cuMemcpyHtoDAsync(address, here, granule, 0));
    CHECK_CU(cuMemcpyDtoDAsync(device, address, granule, 0));
    CHECK_CU(cuMemsetD8Async(device, 0x11, 8, 0));
    CHECK(cudaMemcpyAsync((void *)address, (void *)device, granule, cudaMemcpyDeviceToHost, 0));
    CHECK_CU(cuCtxSynchronize());
    for (size_t i = 0; i < count; i++)
        wrong += words(address)[i] != (i < 2 ? 0x11111111 : (unsigned)i * 7);
    EXPECT_EQ(wrong, 0);
    free(here);
    CHECK_CU(cuMemFree(device));
    CHECK_CU(cuMemUnmap(address, granule));
    CHECK_CU(cuMemRelease(handle));
    CHECK_CU(cuMemAddressFree(address, granule));
}

// Mapped at two addresses, with device memory beside; then each in the other's place.
static void places(void)
{
    CUmemGenericAllocationHandle host = create(granule), device = create(granule, CU_MEM_LOCATION_TYPE_DEVICE);
    CUdeviceptr address = reserve(3 * granule);
    unsigned seen = 0;
    CHECK_CU(cuMemMap(address, granule, 0, host, 0));
    CHECK_CU(cuMemMap(address + granule, granule, 0, device, 0));
    CHECK_CU(cuMemMap(address + 2 * granule, granule, 0, host, 0));
    allow_all(address, granule);
    CHECK_CU(set(address + granule, granule, CU_MEM_LOCATION_TYPE_DEVICE, 3));
    EXPECT_CU(set(address + granule, granule, CU_MEM_LOCATION_TYPE_HOST, 3), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_CU(set(address + granule, granule, CU_MEM_LOCATION_TYPE_HOST_NUMA, 1), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_CU(set(address + granule, granule, CU_MEM_LOCATION_TYPE_HOST, 2), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(set(address + granule, granule, CU_MEM_LOCATION_TYPE_HOST, 0));
    allow_all(address + 2 * granule, granule);
    CHECK_CU(cuMemsetD32(address + granule, 70, granule / 4));
    *words(address + 4) = 50;
    run(address + 2 * granule + 4, 1, 5);
    EXPECT_EQ(*words(address + 4), 55);
    run(address + granule, 2, 1);
    CHECK_CU(cuMemUnmap(address, granule));
    EXPECT_EQ(*words(address + 2 * granule + 4), 55);
    CHECK_CU(cuMemUnmap(address + granule, granule));
    CHECK_CU(cuMemMap(address, granule, 0, device, 0));
    CHECK_CU(set(address, granule, CU_MEM_LOCATION_TYPE_DEVICE, 3));
    CHECK_CU(cuMemcpyDtoH(&seen, address + 4, 4));
    EXPECT_EQ(seen, 71);
    CHECK_CU(cuMemMap(address + granule, granule, 0, host, 0));
    CHECK_CU(set(address, 3 * granule, CU_MEM_LOCATION_TYPE_DEVICE, 3)); // of both at once
    CHECK_CU(set(address + granule, 2 * granule, CU_MEM_LOCATION_TYPE_HOST, 3));
    run(address + granule + 4, 1, 1);
    EXPECT_EQ(*words(address + 2 * granule + 4), 56);
    run(address + 4, 1, 1);
    CHECK_CU(cuMemUnmap(address, 3 * granule));
    CHECK_CU(cuMemMap(address + granule, granule, 0, device, 0));
    CHECK_CU(set(address + granule, granule, CU_MEM_LOCATION_TYPE_DEVICE, 3));
    CHECK_CU(cuMemcpyDtoH(&seen, address + granule + 4, 4));
    EXPECT_EQ(seen, 72);
    CHECK_CU(cuMemUnmap(address + granule, granule));
    CHECK_CU(cuMemRelease(device));
    CHECK_CU(cuMemRelease(host));
    CHECK_CU(cuMemAddressFree(address, 3 * granule));
}

// There is as much of it again when it was released.
static void again_and_again(void)
{
    for (unsigned n = 0; n < 20; n++) {
        CUmemGenericAllocationHandle handle = create(16 * granule);
        CUdeviceptr address = reserve(16 * granule);
        CHECK_CU(cuMemMap(address, 16 * granule, 0, handle, 0));
        allow_all(address, 16 * granule);
        EXPECT_EQ(*words(address + 16 * granule - 4), 0);
        *words(address + 16 * granule - 4) = n;
        run(address + 16 * granule - 4, 1, 100);
        EXPECT_EQ(*words(address + 16 * granule - 4), n + 100);
        CHECK_CU(cuMemRelease(handle));
        CHECK_CU(cuMemUnmap(address, 16 * granule));
        CHECK_CU(cuMemAddressFree(address, 16 * granule));
    }
}

int main(void)
{
    struct sigaction action = {};
    int has_host, has_node;
    CHECK(cudaSetDevice(0));
    CHECK(cudaFree(0));
    CHECK_CU(cuDeviceGetAttribute(&has_host, CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    CHECK_CU(cuDeviceGetAttribute(&has_node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    EXPECT_EQ(has_host, can_map_host_memory());
    if (!has_host)
        SKIP("there is no physical memory of the host");
    CUmemAllocationProp prop = memory_of(CU_MEM_LOCATION_TYPE_HOST, 0);
    CHECK_CU(cuMemGetAllocationGranularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    action.sa_handler = on_fault;
    sigaction(SIGSEGV, &action, NULL);
    refusals();
    what_it_is(CU_MEM_LOCATION_TYPE_HOST);
    if (has_node)
        what_it_is(CU_MEM_LOCATION_TYPE_HOST_NUMA);
    rights();
    copies();
    places();
    again_and_again();
    return 0;
}
