// Devices in the driver API: what cuDevice* says agrees with the runtime API, calls before cuInit are refused,
// and bad ordinals and attributes are found.
// nvcc: -lcuda
#include "check.h"
#include <cuda.h>

static void check_attributes(CUdevice device)
{
    int major = 0, minor = 0, value = 0;
    cudaDeviceProp prop;

    CHECK(cudaGetDeviceProperties(&prop, 0));
    CHECK_CU(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
    CHECK_CU(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
    EXPECT_EQ(prop.major, major);
    EXPECT_EQ(prop.minor, minor);
    CHECK_CU(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
    EXPECT_EQ(prop.multiProcessorCount, value);
    CHECK_CU(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, device));
    EXPECT_EQ(value, 1);
    EXPECT_CU(cuDeviceGetAttribute(&value, (CUdevice_attribute)9999, device), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 999), CUDA_ERROR_INVALID_DEVICE);
}

static void check_identity(CUdevice device)
{
    char name[256] = "", pci[32] = "";
    cudaDeviceProp prop;
    CUuuid uuid;
    CUdevice found = -1;
    size_t bytes = 0;

    CHECK(cudaGetDeviceProperties(&prop, 0));
    CHECK_CU(cuDeviceGetName(name, sizeof(name), device));
    EXPECT(strcmp(name, prop.name) == 0, "%s, %s", name, prop.name);
    memset(name, 'x', sizeof(name));
    CHECK_CU(cuDeviceGetName(name, 5, device));
    EXPECT(strnlen(name, 5) == 4, "a short buffer holds a short string");
    CHECK_CU(cuDeviceGetUuid(&uuid, device));
    EXPECT(memcmp(&uuid, &prop.uuid, sizeof(uuid)) == 0);
    CHECK_CU(cuDeviceTotalMem(&bytes, device));
    EXPECT_EQ(bytes, prop.totalGlobalMem);
    CHECK_CU(cuDeviceGetPCIBusId(pci, sizeof(pci), device));
    CHECK_CU(cuDeviceGetByPCIBusId(&found, pci));
    EXPECT_EQ(found, device);
}

static void check_error_texts(void)
{
    const char *text = NULL;

    CHECK_CU(cuGetErrorName(CUDA_ERROR_INVALID_VALUE, &text));
    EXPECT(strcmp(text, "CUDA_ERROR_INVALID_VALUE") == 0, "%s", text);
    CHECK_CU(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
    EXPECT(strcmp(text, "out of memory") == 0, "%s", text);
    EXPECT_CU(cuGetErrorName((CUresult)123456, &text), CUDA_ERROR_INVALID_VALUE);
    EXPECT(text == NULL);
}

int main(void)
{
    int count = 0, runtime_count = 0, version = 0;
    CUdevice device = -1;
    size_t limit = 0;
    int least = 99, greatest = 99;

    EXPECT_CU(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_CU(cuInit(1), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuInit(0));
    CHECK_CU(cuInit(0));
    CHECK_CU(cuDriverGetVersion(&version));
    EXPECT(version >= 13000, "%d", version);
    CHECK_CU(cuDeviceGetCount(&count));
    CHECK(cudaGetDeviceCount(&runtime_count));
    EXPECT_EQ(count, runtime_count);
    CHECK_CU(cuDeviceGet(&device, 0));
    EXPECT_CU(cuDeviceGet(&device, count), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_CU(cuDeviceGet(&device, -1), CUDA_ERROR_INVALID_DEVICE);
    CHECK_CU(cuDeviceGet(&device, 0));
    check_attributes(device);
    check_identity(device);
    check_error_texts();

    /* The runtime's context is the primary one, and has the driver API's limits. */
    CHECK(cudaFree(NULL));
    CHECK_CU(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 8192));
    CHECK(cudaDeviceGetLimit(&limit, cudaLimitStackSize));
    EXPECT(limit >= 8192, "%zu", limit);
    CHECK_CU(cuCtxGetStreamPriorityRange(&least, &greatest));
    EXPECT(greatest <= least && least <= 0);
    return 0;
}
