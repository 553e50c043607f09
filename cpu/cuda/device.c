/*
 * Devices. A CUdevice is its ordinal; the calls work without a context.
 */
#include "cpu/cuda/driver.h"
#include <stdio.h>
#include <string.h>
#include "cpu/client/cuda/device.h"

enum { PCI_BUS_ID_ROOM_MIN = 13 }; /* "0000:00:00.0" and its end: cuDeviceGetPCIBusId asks for that much */

CUresult CUDAAPI cuDeviceGet(CUdevice *ret_device, int ordinal)
{
    FLYT_CUDA_ENTER();
    if (!ret_device)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = flyt_device_check(ordinal);
    if (result == CUDA_SUCCESS)
        *ret_device = ordinal;
    return result;
}

/* Copies as much as there is room for, and a final zero. */
static void give_string(char *to, int room, const char *from)
{
    snprintf(to, (size_t)room, "%s", from);
}

CUresult CUDAAPI cuDeviceGetName(char *ret_name, int room, CUdevice device)
{
    FLYT_CUDA_ENTER();
    if (!ret_name || room <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    const struct flyt_device_info *info;
    CUresult result = flyt_device_info(device, &info);
    if (result == CUDA_SUCCESS)
        give_string(ret_name, room, info->name);
    return result;
}

CUresult CUDAAPI cuDeviceGetUuid_v2(CUuuid *ret_uuid, CUdevice device)
{
    FLYT_CUDA_ENTER();
    if (!ret_uuid)
        return CUDA_ERROR_INVALID_VALUE;
    const struct flyt_device_info *info;
    CUresult result = flyt_device_info(device, &info);
    if (result == CUDA_SUCCESS) {
        _Static_assert(sizeof ret_uuid->bytes == sizeof info->uuid, "a UUID has 16 bytes");
        memcpy(ret_uuid->bytes, info->uuid, sizeof info->uuid);
    }
    return result;
}
FLYT_CUDA_SAME(cuDeviceGetUuid, cuDeviceGetUuid_v2);

CUresult CUDAAPI cuDeviceTotalMem_v2(size_t *ret_bytes, CUdevice device)
{
    FLYT_CUDA_ENTER();
    if (!ret_bytes)
        return CUDA_ERROR_INVALID_VALUE;
    const struct flyt_device_info *info;
    CUresult result = flyt_device_info_now(device, &info);
    if (result == CUDA_SUCCESS)
        *ret_bytes = info->total_bytes;
    return result;
}

CUresult CUDAAPI cuDeviceComputeCapability(int *ret_major, int *ret_minor, CUdevice device)
{
    FLYT_CUDA_ENTER();
    if (!ret_major || !ret_minor)
        return CUDA_ERROR_INVALID_VALUE;
    const struct flyt_device_info *info;
    CUresult result = flyt_device_info(device, &info);
    if (result == CUDA_SUCCESS) {
        *ret_major = info->attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR];
        *ret_minor = info->attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR];
    }
    return result;
}

CUresult CUDAAPI cuDeviceGetProperties(CUdevprop *ret_properties, CUdevice device)
{
    FLYT_CUDA_ENTER();
    if (!ret_properties)
        return CUDA_ERROR_INVALID_VALUE;
    const struct flyt_device_info *info;
    CUresult result = flyt_device_info(device, &info);
    if (result != CUDA_SUCCESS)
        return result;
    const int *value = info->attributes;
    *ret_properties = (CUdevprop){
        .maxThreadsPerBlock = value[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK],
        .maxThreadsDim = {value[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X], value[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y],
                          value[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z]},
        .maxGridSize = {value[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X], value[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y],
                        value[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z]},
        .sharedMemPerBlock = value[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK],
        .totalConstantMemory = value[CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY],
        .SIMDWidth = value[CU_DEVICE_ATTRIBUTE_WARP_SIZE],
        .memPitch = value[CU_DEVICE_ATTRIBUTE_MAX_PITCH],
        .regsPerBlock = value[CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK],
        .clockRate = value[CU_DEVICE_ATTRIBUTE_CLOCK_RATE],
        .textureAlign = value[CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT],
    };
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetPCIBusId(char *ret_pci_bus_id, int room, CUdevice device)
{
    FLYT_CUDA_ENTER();
    if (!ret_pci_bus_id || room < PCI_BUS_ID_ROOM_MIN)
        return CUDA_ERROR_INVALID_VALUE;
    const struct flyt_device_info *info;
    CUresult result = flyt_device_info(device, &info);
    if (result == CUDA_SUCCESS)
        give_string(ret_pci_bus_id, room, info->pci_bus_id);
    return result;
}
