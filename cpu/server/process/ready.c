#include "cpu/server/process/ready.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/server/core/partition.h"

enum { UUID_TEXT_BYTES = 48 };

/* nvml.h is no part of every toolkit; these have not changed since the first version. */
struct nvml_memory {
    unsigned long long total, free, used;
};
typedef int (*nvml_init_fn)(void);
typedef int (*nvml_find_fn)(const char *uuid, void **ret_device);
typedef int (*nvml_memory_fn)(void *device, struct nvml_memory *ret_memory);

static void print_uuid(const CUuuid *uuid, char *text)
{
    char *at = text + sprintf(text, "GPU-");
    for (unsigned i = 0; i < sizeof uuid->bytes; i++)
        at += sprintf(at, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", (unsigned char)uuid->bytes[i]);
}

uint64_t flyt_ready_used_bytes(const struct flyt_driver *driver, CUdevice cu_device)
{
    CUuuid uuid;
    char text[UUID_TEXT_BYTES];
    void *device;
    struct nvml_memory memory;
    if (driver->is_soft || driver->cuDeviceGetUuid(&uuid, cu_device) != CUDA_SUCCESS)
        return 0;
    print_uuid(&uuid, text);
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return 0;
    nvml_init_fn init = (nvml_init_fn)dlsym(library, "nvmlInit_v2");
    nvml_find_fn find = (nvml_find_fn)dlsym(library, "nvmlDeviceGetHandleByUUID");
    nvml_memory_fn read = (nvml_memory_fn)dlsym(library, "nvmlDeviceGetMemoryInfo");
    if (!init || !find || !read || init() || find(text, &device) || read(device, &memory))
        return 0;
    return memory.used;
}

static int fill_groups(const struct flyt_driver *driver, CUdevice cu_device, unsigned group_size,
                       struct flyt_error *err, struct flyt_manager_link_ready *ready)
{
    struct flyt_partition *partition = calloc(1, sizeof *partition);
    if (!partition)
        return flyt_error_set(err, -ENOMEM, "out of host memory");
    CUresult result = flyt_partition_split(driver, cu_device, group_size, partition);
    if (result == CUDA_SUCCESS) {
        ready->group_size = group_size;
        ready->group_count = partition->count;
        for (unsigned i = 0; i < partition->count; i++)
            ready->group_sms[i] = (uint16_t)partition->groups[i].sm.smCount;
    }
    free(partition);
    if (result == CUDA_ERROR_NOT_SUPPORTED)
        return flyt_error_set(err, -ENOTSUP,
                              "the GPU or its driver has no green contexts: no VM can be kept to its SMs");
    if (result != CUDA_SUCCESS)
        return flyt_error_set(err, -EINVAL, "the GPU's SMs cannot be split into groups of %u, cuda_result=%d",
                              group_size, (int)result);
    return 0;
}

static CUresult fill_device(const struct flyt_driver *driver, CUdevice cu_device, struct flyt_manager_link_ready *ready)
{
    int sm_count = 0, major = 0, minor = 0, version = 0, is_mps = 0;
    size_t bytes = 0;
    CUuuid uuid = {0};
    CUresult result = driver->cuDeviceGetName(ready->name, sizeof ready->name - 1, cu_device);
    if (result == CUDA_SUCCESS)
        result = driver->cuDeviceGetUuid(&uuid, cu_device);
    if (result == CUDA_SUCCESS)
        result = driver->cuDeviceTotalMem(&bytes, cu_device);
    if (result == CUDA_SUCCESS)
        result = driver->cuDriverGetVersion(&version);
    if (result == CUDA_SUCCESS)
        result = driver->cuDeviceGetAttribute(&sm_count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, cu_device);
    if (result == CUDA_SUCCESS)
        result = driver->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, cu_device);
    if (result == CUDA_SUCCESS)
        result = driver->cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, cu_device);
    memcpy(ready->gpu_uuid, uuid.bytes, sizeof ready->gpu_uuid);
    ready->memory_bytes = bytes;
    ready->sm_count = (uint32_t)sm_count;
    ready->compute_major = (uint32_t)major;
    ready->compute_minor = (uint32_t)minor;
    ready->driver_version = (uint32_t)version;
    /* Drivers that do not know the attribute have no MPS that could be asked for. */
    ready->is_mps =
        driver->cuDeviceGetAttribute(&is_mps, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, cu_device) == CUDA_SUCCESS && is_mps;
    return result;
}

int flyt_ready_fill(const struct flyt_driver *driver, CUdevice cu_device, unsigned group_size, struct flyt_error *err,
                    struct flyt_manager_link_ready *ret_ready)
{
    struct flyt_manager_link_ready ready = {.version = FLYT_MANAGER_LINK_VERSION};
    CUresult result = fill_device(driver, cu_device, &ready);
    if (result != CUDA_SUCCESS)
        return flyt_error_set(err, -ENODEV, "the GPU does not say what it is, cuda_result=%d", (int)result);
    int status = group_size ? fill_groups(driver, cu_device, group_size, err, &ready) : 0;
    if (status == 0)
        *ret_ready = ready;
    return status;
}
