// What a device's attributes claim, works: each is followed by the call that it is about. Where the attribute says no, the
// program may not call; through Flyt the call is then refused by name.
// nvcc: -lcuda
#include <cuda.h>
#include "mapped.h"
#include <sys/mman.h>

static CUdevice device;

static int ask(CUdevice_attribute attribute)
{
    int value = -1000;

    CHECK_CU(cuDeviceGetAttribute(&value, attribute, device));
    return value;
}

/* The result of the call where the attribute claims something; else, through Flyt, it must be refused. */
#define CLAIM(attribute, ...)                                                                                          \
    do {                                                                                                               \
        bool claims = ask(attribute) > 0;                                                                              \
        if (claims)                                                                                                    \
            EXPECT_CU((__VA_ARGS__), CUDA_SUCCESS);                                                                    \
        else if (is_forwarded())                                                                                       \
            EXPECT_CU((__VA_ARGS__), CUDA_ERROR_NOT_SUPPORTED);                                                        \
    } while (0)

static void host_memory(void)
{
    void *pinned = NULL;
    CUdeviceptr mapped = 0, managed = 0;
    void *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    EXPECT_EQ(ask(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY), can_map_host_memory());
    CLAIM(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, cuMemHostAlloc(&pinned, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    if (pinned) {
        CHECK_CU(cuMemHostGetDevicePointer(&mapped, pinned, 0));
        CHECK_CU(cuMemFreeHost(pinned));
    }
    CLAIM(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
    if (managed)
        CHECK_CU(cuMemFree(managed));
    CLAIM(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, cuMemHostRegister(pages, 8192, 0));
    CHECK_CU(cuMemHostUnregister(pages));
    if (ask(CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED)) {
        CHECK_CU(cuMemHostRegister(pages, 8192, CU_MEMHOSTREGISTER_READ_ONLY));
        CHECK_CU(cuMemHostUnregister(pages));
    }
    /* No attribute is about this: kernels reach registered memory natively, and through Flyt they do not. */
    EXPECT_CU(cuMemHostRegister(pages, 8192, CU_MEMHOSTREGISTER_DEVICEMAP),
              is_forwarded() ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS);
    EXPECT_CU(cuMemHostUnregister(pages), is_forwarded() ? CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED : CUDA_SUCCESS);
    munmap(pages, 8192);
}

static void arrays(void)
{
    CUDA_ARRAY_DESCRIPTOR flat = {64, 0, CU_AD_FORMAT_FLOAT, 1};
    CUDA_ARRAY3D_DESCRIPTOR deep = {16, 16, 16, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SURFACE_LDST};
    CUarray array = NULL;

    CLAIM(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH, cuArrayCreate(&array, &flat));
    CLAIM(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH, cuArray3DCreate(&array, &deep));
    CLAIM(CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH, cuArray3DCreate(&array, &deep));
    EXPECT(ask(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT) > 0 && ask(CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT) > 0);
}

static void memory_calls(void)
{
    CUdeviceptr address = 0, memory;
    CUmemPoolProps pool_properties = {};
    CUmemoryPool pool = NULL;
    CUstreamAttrValue attribute = {};

    CHECK_CU(cuMemAlloc(&memory, 4096));
    CLAIM(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, cuMemAddressReserve(&address, 2u << 20, 0, 0, 0));
    pool_properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    pool_properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CLAIM(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, cuMemPoolCreate(&pool, &pool_properties));
    CLAIM(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, cuStreamWriteValue64(NULL, memory, 7, 0));
    CLAIM(CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE, cuCtxResetPersistingL2Cache());
    attribute.accessPolicyWindow.base_ptr = (void *)memory;
    CLAIM(CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE,
          cuStreamSetAttribute(NULL, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &attribute));
    if (ask(CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT) > 1) {
        attribute.memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
        CHECK_CU(cuStreamSetAttribute(NULL, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, &attribute));
    }
    CHECK_CU(cuMemFree(memory));
}

static void sharing(void)
{
    CUevent event = NULL;
    CUmulticastObjectProp properties = {};
    size_t granularity;

    CLAIM(CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED,
          cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    properties.numDevices = 1;
    properties.size = 2u << 20;
    if (ask(CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED) == 0 && is_forwarded())
        EXPECT_CU(cuMulticastGetGranularity(&granularity, &properties, CU_MULTICAST_GRANULARITY_MINIMUM),
                  CUDA_ERROR_NOT_SUPPORTED);
}

static void tensor_maps(void)
{
    CUtensorMap map;
    CUdeviceptr memory;
    cuuint64_t size = 256, stride = 0;
    cuuint32_t box = 64, step = 1;

    CHECK_CU(cuMemAlloc(&memory, 4096));
    CUresult result = cuTensorMapEncodeTiled(
        &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 1, (void *)memory, &size, &stride, &box, &step,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    /* The software GPU encodes them, and has no instruction that takes one. */
    if (ask(CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED))
        CHECK_CU(result);
    CHECK_CU(cuMemFree(memory));
}

/* The runtime's properties and attributes are those of the driver, whichever is asked. */
static void runtime_agrees(void)
{
    cudaDeviceProp properties;
    int value, other;

    CHECK(cudaGetDeviceProperties(&properties, 0));
    EXPECT_EQ(properties.maxTexture1D, ask(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH));
    EXPECT_EQ(properties.maxSurface3D[2], ask(CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH));
    EXPECT_EQ(properties.persistingL2CacheMaxSize, ask(CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE));
    EXPECT_EQ(properties.accessPolicyMaxWindowSize, ask(CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE));
    EXPECT_EQ(properties.memoryPoolsSupported, ask(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED));
    EXPECT_EQ(properties.integrated, ask(CU_DEVICE_ATTRIBUTE_INTEGRATED));
    EXPECT_EQ(properties.unifiedFunctionPointers, ask(CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS));
    EXPECT_EQ(properties.hostNumaId, ask(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID));
    for (int attribute = 1; attribute < CU_DEVICE_ATTRIBUTE_MAX; attribute++) {
        if (cuDeviceGetAttribute(&value, (CUdevice_attribute)attribute, device) != CUDA_SUCCESS)
            continue;
        CHECK(cudaDeviceGetAttribute(&other, (cudaDeviceAttr)attribute, 0));
        EXPECT(value == other || attribute == CU_DEVICE_ATTRIBUTE_CLOCK_RATE ||
                   attribute == CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE,
               "attribute %d: %d and %d", attribute, value, other);
    }
    EXPECT_EQ(ask(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING), 1);
}

int main(void)
{
    CUcontext context;

    CHECK_CU(cuInit(0));
    CHECK_CU(cuDeviceGet(&device, 0));
    CHECK_CU(cuDevicePrimaryCtxRetain(&context, device));
    CHECK_CU(cuCtxSetCurrent(context));
    host_memory();
    arrays();
    memory_calls();
    sharing();
    tensor_maps();
    runtime_agrees();
    return 0;
}
