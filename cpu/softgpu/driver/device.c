/* Devices and their properties. */
#include <stdio.h>
#include <string.h>

#include "cpu/softgpu/driver/driver.h"

/*
 * The compute capabilities that the software GPU can pose as. What a block may have at most grew with each of them;
 * the smallest group of SMs is that of cuDevSmResourceSplitByCount.
 */
static const struct flyt_soft_arch archs[] = {
    {.major = 7,
     .minor = 5,
     .threads_per_sm = 1024,
     .blocks_per_sm = 16,
     .shared_per_sm_bytes = 64 << 10,
     .shared_optin_bytes = 64 << 10,
     .shared_reserved_bytes = 0,
     .sm_group_min = 2},
    {.major = 8,
     .minor = 0,
     .threads_per_sm = 2048,
     .blocks_per_sm = 32,
     .shared_per_sm_bytes = 164 << 10,
     .shared_optin_bytes = 163 << 10,
     .shared_reserved_bytes = 1 << 10,
     .sm_group_min = 4},
    {.major = 8,
     .minor = 6,
     .threads_per_sm = 1536,
     .blocks_per_sm = 16,
     .shared_per_sm_bytes = 100 << 10,
     .shared_optin_bytes = 99 << 10,
     .shared_reserved_bytes = 1 << 10,
     .sm_group_min = 4},
    {.major = 8,
     .minor = 7,
     .threads_per_sm = 1536,
     .blocks_per_sm = 16,
     .shared_per_sm_bytes = 164 << 10,
     .shared_optin_bytes = 163 << 10,
     .shared_reserved_bytes = 1 << 10,
     .sm_group_min = 4},
    {.major = 8,
     .minor = 9,
     .threads_per_sm = 1536,
     .blocks_per_sm = 24,
     .shared_per_sm_bytes = 100 << 10,
     .shared_optin_bytes = 99 << 10,
     .shared_reserved_bytes = 1 << 10,
     .sm_group_min = 4},
    {.major = 9,
     .minor = 0,
     .threads_per_sm = 2048,
     .blocks_per_sm = 32,
     .shared_per_sm_bytes = 228 << 10,
     .shared_optin_bytes = 227 << 10,
     .shared_reserved_bytes = 1 << 10,
     .sm_group_min = 8},
    {.major = 10,
     .minor = 0,
     .threads_per_sm = 2048,
     .blocks_per_sm = 32,
     .shared_per_sm_bytes = 228 << 10,
     .shared_optin_bytes = 227 << 10,
     .shared_reserved_bytes = 1 << 10,
     .sm_group_min = 8},
    {.major = 12,
     .minor = 0,
     .threads_per_sm = 1536,
     .blocks_per_sm = 24,
     .shared_per_sm_bytes = 100 << 10,
     .shared_optin_bytes = 99 << 10,
     .shared_reserved_bytes = 1 << 10,
     .sm_group_min = 8},
};

/*
 * Attributes that are the same for every configuration; 0 where not named. Sizes that only describe textures and
 * speed are those of a GPU of compute capability 9.0, so that programs that look at them take their usual path. What
 * the software GPU lacks is 0: memory pools, clusters, stream memory operations, GPUDirect.
 */
static const int constant_attributes[CU_DEVICE_ATTRIBUTE_MAX] = {
    [CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X] = 1024,
    [CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y] = 1024,
    [CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z] = 64,
    [CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X] = INT32_MAX,
    [CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y] = 65535,
    [CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z] = 65535,
    [CU_DEVICE_ATTRIBUTE_MAX_PITCH] = INT32_MAX,
    [CU_DEVICE_ATTRIBUTE_CLOCK_RATE] = 1980000,
    [CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT] = 512,
    [CU_DEVICE_ATTRIBUTE_GPU_OVERLAP] = 1,
    [CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY] = 1,
    [CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM] = 1,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH] = 131072,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH] = 131072,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT] = 65536,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH] = 16384,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT] = 16384,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH] = 16384,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH] = 32768,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT] = 32768,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS] = 2048,
    [CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT] = 512,
    [CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS] = 1,
    [CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE] = 3201000,
    [CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH] = 6016,
    [CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE] = 62914560,
    [CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT] = 3,
    [CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING] = 1,
    [CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY] = 1,
    [CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS] = 1,
    [CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS] = 1,
    [CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR] = 1,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH] = 32768,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS] = 2048,
    [CU_DEVICE_ATTRIBUTE_CAN_TEX2D_GATHER] = 1,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH] = 32768,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT] = 32768,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE] = 8192,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE] = 8192,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE] = 32768,
    [CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT] = 32,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH] = 32768,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH] = 32768,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS] = 2046,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH] = 32768,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH] = 131072,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT] = 65536,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH] = 16384,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT] = 16384,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH] = 16384,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH] = 32768,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS] = 2048,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH] = 32768,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT] = 32768,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS] = 2048,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH] = 32768,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH] = 32768,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS] = 2046,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH] = 268435456,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH] = 131072,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT] = 65000,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH] = 2097120,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH] = 32768,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT] = 32768,
    [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH] = 32768,
    [CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED] = 1,
    [CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED] = 1,
    [CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED] = 1,
    [CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO] = 2,
    [CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED] = 1,
    [CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH] = 1,
    [CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED] = 1,
    [CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED] = 1,
    [CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED] = 1,
    [CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT] = 1,
    [CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE] = FLYT_SOFT_ACCESS_WINDOW_BYTES,
    [CU_DEVICE_ATTRIBUTE_NUMA_ID] = -1,
    [CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = FLYT_SOFT_BLOCK_THREADS_MAX,
    [CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK] = FLYT_SOFT_SHARED_DEFAULT_BYTES,
    [CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY] = 65536,
    [CU_DEVICE_ATTRIBUTE_WARP_SIZE] = FLYT_SOFT_WARP_THREADS,
    [CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK] = FLYT_SOFT_REGISTERS_PER_SM,
    [CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR] = FLYT_SOFT_REGISTERS_PER_SM,
};

/* PCI device numbers begin here, on bus 0 of domain 0: where no machine has a GPU. */
enum { PCI_DEVICE_FIRST = 16 };

bool flyt_soft_arch_find(int major, int minor, struct flyt_soft_arch *ret_arch)
{
    for (unsigned i = 0; i < sizeof(archs) / sizeof(archs[0]); i++) {
        if (archs[i].major == major && archs[i].minor == minor) {
            *ret_arch = archs[i];
            return true;
        }
    }
    return false;
}

CUresult flyt_soft_device_find(CUdevice ordinal, struct flyt_soft_device **ret_device)
{
    struct flyt_soft_driver *driver = flyt_soft_driver();

    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (ordinal < 0 || (unsigned)ordinal >= driver->device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    *ret_device = &driver->devices[ordinal];
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuDeviceGetCount(int *count)
{
    if (!flyt_soft_driver())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = (int)flyt_soft_driver()->device_count;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuDeviceGet(CUdevice *device, int ordinal)
{
    struct flyt_soft_device *found;
    CUresult r = flyt_soft_device_find(ordinal, &found);

    if (r != CUDA_SUCCESS)
        return r;
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    *device = found->index;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuDeviceGetName(char *name, int len, CUdevice dev)
{
    struct flyt_soft_device *device;
    CUresult r = flyt_soft_device_find(dev, &device);

    if (r != CUDA_SUCCESS)
        return r;
    if (!name || len <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(name, (size_t)len, "Flyt software GPU");
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
    struct flyt_soft_device *device;
    CUresult r = flyt_soft_device_find(dev, &device);

    if (r != CUDA_SUCCESS)
        return r;
    if (!uuid)
        return CUDA_ERROR_INVALID_VALUE;
    *uuid = device->uuid;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuDeviceTotalMem(size_t *bytes, CUdevice dev)
{
    struct flyt_soft_device *device;
    CUresult r = flyt_soft_device_find(dev, &device);

    if (r != CUDA_SUCCESS)
        return r;
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    *bytes = device->map.total_bytes;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
{
    struct flyt_soft_device *device;
    CUresult r = flyt_soft_device_find(dev, &device);

    if (r != CUDA_SUCCESS)
        return r;
    if (!pi || (int)attrib <= 0 || (int)attrib >= CU_DEVICE_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    switch (attrib) {
    case CU_DEVICE_ATTRIBUTE_MPS_ENABLED:
        *pi = flyt_soft_driver()->faults != NULL;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *pi = (int)device->sm_count;
        break;
    case CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK:
        *pi = flyt_soft_decompresses(device) ? CU_MEM_DECOMPRESS_ALGORITHM_LZ4 : 0;
        break;
    case CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH:
        *pi = flyt_soft_decompresses(device) ? FLYT_SOFT_DECOMPRESS_BYTES_MAX : 0;
        break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *pi = device->arch.major;
        break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *pi = device->arch.minor;
        break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
        *pi = (int)device->arch.threads_per_sm;
        break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
        *pi = (int)device->arch.blocks_per_sm;
        break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
        *pi = (int)device->arch.shared_per_sm_bytes;
        break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        *pi = (int)device->arch.shared_optin_bytes;
        break;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
        *pi = (int)device->arch.shared_reserved_bytes;
        break;
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
        *pi = PCI_DEVICE_FIRST + device->index;
        break;
    default:
        *pi = constant_attributes[attrib];
    }
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)
{
    struct flyt_soft_device *device;
    CUresult r = flyt_soft_device_find(dev, &device);

    if (r != CUDA_SUCCESS)
        return r;
    if (!pciBusId || len <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(pciBusId, (size_t)len, "0000:00:%02X.0", PCI_DEVICE_FIRST + device->index);
    return CUDA_SUCCESS;
}

/* "[domain:]bus:device[.function]", in hexadecimal. */
FLYT_SOFT_API cuDeviceGetByPCIBusId(CUdevice *dev, const char *pciBusId)
{
    unsigned domain = 0, bus, device, function = 0;

    if (!flyt_soft_driver())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!dev || !pciBusId)
        return CUDA_ERROR_INVALID_VALUE;
    if (sscanf(pciBusId, "%x:%x:%x.%x", &domain, &bus, &device, &function) < 3) {
        domain = 0;
        function = 0;
        if (sscanf(pciBusId, "%x:%x.%x", &bus, &device, &function) < 2)
            return CUDA_ERROR_INVALID_VALUE;
    }
    if (domain || bus || function || device < PCI_DEVICE_FIRST ||
        device - PCI_DEVICE_FIRST >= flyt_soft_driver()->device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    *dev = (CUdevice)(device - PCI_DEVICE_FIRST);
    return CUDA_SUCCESS;
}

/* ---- peers: every device reaches the memory of every other ---- */

FLYT_SOFT_API cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev)
{
    struct flyt_soft_device *device, *peer;
    CUresult r = flyt_soft_device_find(dev, &device);

    if (r == CUDA_SUCCESS)
        r = flyt_soft_device_find(peerDev, &peer);
    if (r != CUDA_SUCCESS)
        return r;
    if (!canAccessPeer)
        return CUDA_ERROR_INVALID_VALUE;
    *canAccessPeer = device != peer;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attrib, CUdevice srcDevice, CUdevice dstDevice)
{
    struct flyt_soft_device *source, *destination;
    CUresult r = flyt_soft_device_find(srcDevice, &source);

    if (r == CUDA_SUCCESS)
        r = flyt_soft_device_find(dstDevice, &destination);
    if (r != CUDA_SUCCESS)
        return r;
    if (!value || source == destination)
        return CUDA_ERROR_INVALID_VALUE;
    switch (attrib) {
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
        *value = 1;
        return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED:
        *value = 0;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* What the interpreter does of an operation (PTX atom and red), it does in the memory of every device. */
static unsigned atomic_capabilities(CUatomicOperation operation)
{
    const unsigned bits_32 = CU_ATOMIC_CAPABILITY_SCALAR_32, any_bits = bits_32 | CU_ATOMIC_CAPABILITY_SCALAR_64;
    const unsigned any_sign = CU_ATOMIC_CAPABILITY_SIGNED | CU_ATOMIC_CAPABILITY_UNSIGNED;
    switch (operation) {
    case CU_ATOMIC_OPERATION_FLOAT_MIN:
    case CU_ATOMIC_OPERATION_FLOAT_MAX:
        return 0;
    case CU_ATOMIC_OPERATION_FLOAT_ADD:
        return any_bits | CU_ATOMIC_CAPABILITY_SIGNED | CU_ATOMIC_CAPABILITY_REDUCTION;
    case CU_ATOMIC_OPERATION_INTEGER_INCREMENT:
    case CU_ATOMIC_OPERATION_INTEGER_DECREMENT:
        return bits_32 | CU_ATOMIC_CAPABILITY_UNSIGNED | CU_ATOMIC_CAPABILITY_REDUCTION;
    case CU_ATOMIC_OPERATION_EXCHANGE:
    case CU_ATOMIC_OPERATION_CAS:
        return any_bits | any_sign; /* whose result is what they are for */
    default:
        return any_bits | any_sign | CU_ATOMIC_CAPABILITY_REDUCTION;
    }
}

static CUresult tell_atomics(unsigned *capabilities, const CUatomicOperation *operations, unsigned count)
{
    if (!capabilities || !operations || !count)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++)
        if ((unsigned)operations[i] >= CU_ATOMIC_OPERATION_MAX)
            return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++)
        capabilities[i] = atomic_capabilities(operations[i]);
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuDeviceGetHostAtomicCapabilities(unsigned int *capabilities, const CUatomicOperation *operations,
                                                unsigned int count, CUdevice dev)
{
    struct flyt_soft_device *device;
    CUresult r = flyt_soft_device_find(dev, &device);

    return r == CUDA_SUCCESS ? tell_atomics(capabilities, operations, count) : r;
}

FLYT_SOFT_API cuDeviceGetP2PAtomicCapabilities(unsigned int *capabilities, const CUatomicOperation *operations,
                                               unsigned int count, CUdevice srcDevice, CUdevice dstDevice)
{
    struct flyt_soft_device *source, *destination;
    CUresult r = flyt_soft_device_find(srcDevice, &source);

    if (r == CUDA_SUCCESS)
        r = flyt_soft_device_find(dstDevice, &destination);
    if (r == CUDA_SUCCESS && source == destination)
        r = CUDA_ERROR_INVALID_DEVICE;
    return r == CUDA_SUCCESS ? tell_atomics(capabilities, operations, count) : r;
}
