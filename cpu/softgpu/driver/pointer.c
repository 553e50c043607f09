/* What an address is: attributes of pointers. */
#include <string.h>

#include "cpu/softgpu/driver/driver.h"
#include "cpu/softgpu/driver/managed.h"

/* Everything about an address that an attribute can ask for. */
struct pointer_info {
    uint64_t address;
    CUmemorytype type;
    struct flyt_soft_device *device;
    uint64_t start, bytes;                 /* of the allocation */
    uint64_t mapping_start, mapping_bytes; /* of the memory behind it */
    uint64_t id;
    unsigned handle_types;
    bool is_managed;
};

static void set_range(struct pointer_info *info, const struct flyt_soft_range *range)
{
    info->start = range->start;
    info->bytes = range->asked_bytes;
    info->mapping_start = range->start;
    info->mapping_bytes = range->bytes;
    /* Ranges in use at the same time never start at the same address. */
    info->id = range->start >> 4;
}

/* Addresses that the driver's mutex covers: mappings and registered host memory. */
static bool find_locked(const struct flyt_soft_space *space, struct pointer_info *info)
{
    const struct flyt_soft_range *range = flyt_soft_ranges_find(&space->mappings, info->address);
    const struct flyt_soft_extent *extent;

    if (range) {
        extent = range->owner;
        set_range(info, range);
        info->type = CU_MEMORYTYPE_DEVICE;
        info->device = extent->device;
        info->id = extent->id;
        info->handle_types = extent->handle_types;
        return true;
    }
    range = flyt_soft_ranges_find(&space->registered, info->address);
    if (!range)
        return false;
    set_range(info, range);
    info->type = CU_MEMORYTYPE_HOST;
    return true;
}

/* False: an address that the driver knows nothing of. */
static bool pointer_find(uint64_t address, struct pointer_info *ret_info)
{
    struct flyt_soft_driver *driver = flyt_soft_driver();
    struct flyt_soft_device *device = flyt_soft_alloc_device(address);
    struct flyt_soft_range range;
    bool is_found;

    *ret_info = (struct pointer_info){.address = address, .device = &driver->devices[0]};
    if (device && flyt_soft_pool_find(&device->map.alloc, address, &range)) {
        set_range(ret_info, &range);
        ret_info->type = CU_MEMORYTYPE_DEVICE;
        ret_info->device = device;
        return true;
    }
    if (flyt_soft_pool_find(&driver->space.host, address, &range)) {
        set_range(ret_info, &range);
        ret_info->is_managed = flyt_soft_managed_find(address, &ret_info->start, &ret_info->bytes, &ret_info->device);
        ret_info->type = ret_info->is_managed ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
        return true;
    }
    for (unsigned i = 0; i < driver->device_count; i++) {
        if (flyt_soft_pool_find(&driver->devices[i].map.globals, address, &range)) {
            set_range(ret_info, &range);
            ret_info->type = CU_MEMORYTYPE_DEVICE;
            ret_info->device = &driver->devices[i];
            return true;
        }
    }
    pthread_mutex_lock(&driver->mutex);
    is_found = find_locked(&driver->space, ret_info);
    pthread_mutex_unlock(&driver->mutex);
    return is_found;
}

static void put_u32(void *data, unsigned value)
{
    memcpy(data, &value, sizeof(value));
}

/* Booleans are written as one byte, as their type in CUDA is. */
static void put_bool(void *data, bool value)
{
    memcpy(data, &value, sizeof(value));
}

static void put_u64(void *data, uint64_t value)
{
    memcpy(data, &value, sizeof(value));
}

static CUresult attribute_get(void *data, CUpointer_attribute attribute, const struct pointer_info *info)
{
    bool is_host = info->type == CU_MEMORYTYPE_HOST;
    uint8_t access = flyt_soft_map_access(&info->device->map, info->address);

    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        put_u64(data, (uint64_t)info->device->primary);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        put_u32(data, info->type);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        if (is_host && !access)
            return CUDA_ERROR_INVALID_VALUE;
        put_u64(data, info->address);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (!is_host && !info->is_managed)
            return CUDA_ERROR_INVALID_VALUE;
        put_u64(data, info->address);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
        return CUDA_ERROR_NOT_SUPPORTED;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        put_u64(data, info->id);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        put_bool(data, info->is_managed);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        put_bool(data, false);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        put_u32(data, (unsigned)info->device->index);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        put_u64(data, info->start);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        put_u64(data, info->bytes);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        put_bool(data, true);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        put_u64(data, info->handle_types);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        put_u32(data, access);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        put_u64(data, 0);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        put_u64(data, info->mapping_bytes);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        put_u64(data, info->mapping_start);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        put_u64(data, info->id);
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

FLYT_SOFT_API cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    struct CUctx_st *ctx;
    struct pointer_info info;
    CUresult r = flyt_soft_enter_broken(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (!data || !pointer_find(ptr, &info))
        return CUDA_ERROR_INVALID_VALUE;
    return attribute_get(data, attribute, &info);
}

/* How many bytes an attribute has, for the zeros that stand for an address that is unknown. */
static size_t attribute_bytes(CUpointer_attribute attribute)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        return sizeof(unsigned);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        return sizeof(bool);
    default:
        return sizeof(uint64_t);
    }
}

/* Unlike the singular, an address that is unknown is no error: its attributes are zero (the ordinal: -2). */
FLYT_SOFT_API cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes, void **data,
                                     CUdeviceptr ptr)
{
    struct CUctx_st *ctx;
    struct pointer_info info;
    bool is_known;
    CUresult r = flyt_soft_enter_broken(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (!attributes || !data)
        return CUDA_ERROR_INVALID_VALUE;
    is_known = pointer_find(ptr, &info);
    for (unsigned i = 0; i < numAttributes; i++) {
        if (!data[i] || (int)attributes[i] < CU_POINTER_ATTRIBUTE_CONTEXT ||
            attributes[i] > CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE)
            return CUDA_ERROR_INVALID_VALUE;
        if (is_known && attribute_get(data[i], attributes[i], &info) == CUDA_SUCCESS)
            continue;
        if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
            put_u32(data[i], (unsigned)-2);
        else
            memset(data[i], 0, attribute_bytes(attributes[i]));
    }
    return CUDA_SUCCESS;
}
