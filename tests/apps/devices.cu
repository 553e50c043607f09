// Devices in the runtime API: count, selection, properties against attributes, limits, flags, PCI bus id,
// priority range, memory information and versions agree with each other, and bad ordinals are refused.
#include "check.h"

static int attribute(cudaDeviceAttr attr)
{
    int value = -1;

    CHECK(cudaDeviceGetAttribute(&value, attr, 0));
    return value;
}

static void check_selection(int count)
{
    int device = -1;

    CHECK(cudaGetDevice(&device));
    EXPECT_EQ(device, 0);
    CHECK(cudaSetDevice(count - 1));
    CHECK(cudaGetDevice(&device));
    EXPECT_EQ(device, count - 1);
    EXPECT_ERR(cudaSetDevice(count), cudaErrorInvalidDevice);
    EXPECT_ERR(cudaSetDevice(-1), cudaErrorInvalidDevice);
    CHECK(cudaGetDevice(&device));
    EXPECT_EQ(device, count - 1);
    CHECK(cudaSetDevice(0));
    CHECK(cudaInitDevice(0, 0, 0));
}

static void check_properties(int count)
{
    cudaDeviceProp prop;
    int chosen = -1;

    memset(&prop, 0xee, sizeof(prop));
    CHECK(cudaGetDeviceProperties(&prop, 0));
    EXPECT(strnlen(prop.name, sizeof(prop.name)) > 0 && strnlen(prop.name, sizeof(prop.name)) < sizeof(prop.name));
    EXPECT_EQ(prop.warpSize, 32);
    EXPECT_EQ(prop.warpSize, attribute(cudaDevAttrWarpSize));
    EXPECT_EQ(prop.major, attribute(cudaDevAttrComputeCapabilityMajor));
    EXPECT_EQ(prop.minor, attribute(cudaDevAttrComputeCapabilityMinor));
    EXPECT_EQ(prop.multiProcessorCount, attribute(cudaDevAttrMultiProcessorCount));
    EXPECT_EQ(prop.maxThreadsPerBlock, attribute(cudaDevAttrMaxThreadsPerBlock));
    EXPECT_EQ(prop.maxThreadsPerMultiProcessor, attribute(cudaDevAttrMaxThreadsPerMultiProcessor));
    EXPECT_EQ(prop.maxThreadsDim[0], attribute(cudaDevAttrMaxBlockDimX));
    EXPECT_EQ(prop.maxThreadsDim[2], attribute(cudaDevAttrMaxBlockDimZ));
    EXPECT_EQ(prop.maxGridSize[0], attribute(cudaDevAttrMaxGridDimX));
    EXPECT_EQ(prop.maxGridSize[1], attribute(cudaDevAttrMaxGridDimY));
    EXPECT_EQ(prop.sharedMemPerBlock, attribute(cudaDevAttrMaxSharedMemoryPerBlock));
    EXPECT_EQ(prop.sharedMemPerBlockOptin, attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin));
    EXPECT_EQ(prop.sharedMemPerMultiprocessor, attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor));
    EXPECT_EQ(prop.regsPerBlock, attribute(cudaDevAttrMaxRegistersPerBlock));
    EXPECT_EQ(prop.totalConstMem, attribute(cudaDevAttrTotalConstantMemory));
    EXPECT_EQ(prop.l2CacheSize, attribute(cudaDevAttrL2CacheSize));
    EXPECT_EQ(prop.canMapHostMemory, attribute(cudaDevAttrCanMapHostMemory));
    EXPECT_EQ(prop.managedMemory, attribute(cudaDevAttrManagedMemory));
    EXPECT_EQ(prop.unifiedAddressing, attribute(cudaDevAttrUnifiedAddressing));
    EXPECT_EQ(prop.pciBusID, attribute(cudaDevAttrPciBusId));
    EXPECT_EQ(prop.asyncEngineCount, attribute(cudaDevAttrAsyncEngineCount));
    EXPECT(prop.major >= 7 && prop.maxThreadsPerBlock >= 1024 && prop.multiProcessorCount > 0);
    EXPECT(prop.sharedMemPerBlock >= 48 * 1024 && prop.totalConstMem >= 64 * 1024);

    EXPECT_ERR(cudaGetDeviceProperties(&prop, count), cudaErrorInvalidDevice);
    EXPECT_ERR(cudaDeviceGetAttribute(&chosen, cudaDevAttrWarpSize, count), cudaErrorInvalidDevice);
    EXPECT_ERR(cudaDeviceGetAttribute(&chosen, (cudaDeviceAttr)9999, 0), cudaErrorInvalidValue);
    CHECK(cudaGetDeviceProperties(&prop, 0));
    CHECK(cudaChooseDevice(&chosen, &prop));
    EXPECT(chosen >= 0 && chosen < count);
}

static void check_pci_bus_id(void)
{
    char id[32] = "";
    unsigned domain, bus, slot, function;
    int device = -1;

    CHECK(cudaDeviceGetPCIBusId(id, sizeof(id), 0));
    EXPECT(sscanf(id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) == 4, "%s", id);
    EXPECT_EQ(bus, attribute(cudaDevAttrPciBusId));
    CHECK(cudaDeviceGetByPCIBusId(&device, id));
    EXPECT_EQ(device, 0);
    EXPECT(cudaDeviceGetByPCIBusId(&device, "ffff:ff:1f.0") != cudaSuccess);
    cudaGetLastError();
}

static void check_limits_and_flags(void)
{
    size_t value = 0;
    unsigned flags = 0;
    cudaFuncCache cache;

    CHECK(cudaDeviceSetLimit(cudaLimitStackSize, 4096));
    CHECK(cudaDeviceGetLimit(&value, cudaLimitStackSize));
    EXPECT(value >= 4096, "%zu", value);
    CHECK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 16u << 20));
    CHECK(cudaDeviceGetLimit(&value, cudaLimitMallocHeapSize));
    EXPECT(value >= 16u << 20, "%zu", value);
    CHECK(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 2u << 20));
    CHECK(cudaDeviceGetLimit(&value, cudaLimitPrintfFifoSize));
    EXPECT(value >= 2u << 20, "%zu", value);
    EXPECT(cudaDeviceGetLimit(&value, (cudaLimit)0x7777) != cudaSuccess);
    cudaGetLastError();

    CHECK(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync));
    CHECK(cudaGetDeviceFlags(&flags));
    EXPECT_EQ(flags & cudaDeviceScheduleMask, cudaDeviceScheduleBlockingSync);
    EXPECT_ERR(cudaSetDeviceFlags(0x7fff0000), cudaErrorInvalidValue);

    CHECK(cudaDeviceSetCacheConfig(cudaFuncCachePreferShared));
    CHECK(cudaDeviceGetCacheConfig(&cache));
    CHECK(cudaDeviceSynchronize());
}

static void check_memory_info(void)
{
    const size_t bytes = 512u << 20;
    int attempt;

    /* Other programs may come and go on the same GPU meanwhile: one undisturbed attempt is enough. */
    for (attempt = 0; attempt < 10; attempt++) {
        size_t free_before = 0, free_with = 0, total = 0;
        void *memory = NULL;

        CHECK(cudaMemGetInfo(&free_before, &total));
        EXPECT(free_before > 0 && free_before <= total, "%zu of %zu", free_before, total);
        CHECK(cudaMalloc(&memory, bytes));
        CHECK(cudaMemGetInfo(&free_with, &total));
        CHECK(cudaFree(memory));
        if (free_with + bytes / 2 <= free_before)
            return;
        usleep(50000);
    }
    EXPECT(0, "cudaMemGetInfo does not show an allocation of %zu bytes", bytes);
}

int main(void)
{
    int count = 0, driver = 0, runtime = 0, least = 99, greatest = 99;

    CHECK(cudaGetDeviceCount(&count));
    EXPECT(count >= 1);
    EXPECT_ERR(cudaGetDeviceCount(NULL), cudaErrorInvalidValue);
    check_selection(count);
    check_properties(count);
    check_pci_bus_id();
    check_limits_and_flags();
    check_memory_info();

    CHECK(cudaRuntimeGetVersion(&runtime));
    CHECK(cudaDriverGetVersion(&driver));
    EXPECT_EQ(runtime / 1000, CUDART_VERSION / 1000);
    EXPECT(driver >= CUDART_VERSION / 1000 * 1000, "%d", driver);
    CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    EXPECT(greatest <= least && least <= 0, "%d..%d", least, greatest);
    return 0;
}
