/*
 * Device memory, pinned host memory, and what is known of a pointer.
 */
#include "cpu/cuda/driver.h"
#include <string.h>
#include "cpu/client/cuda/device.h"
#include "cpu/client/cuda/host.h"
#include "cpu/client/cuda/memory.h"
#include "cpu/client/ipc/ipc.h"

/* ---- device memory ---- */

CUresult CUDAAPI cuMemFree_v2(CUdeviceptr address)
{
    FLYT_CUDA_ENTER();
    CUresult result = flyt_cuda_need_context();
    return result == CUDA_ERROR_CONTEXT_IS_DESTROYED ? result : flyt_memory_free(address);
}

/* ---- pinned host memory ---- */

CUresult CUDAAPI cuMemFreeHost(void *address)
{
    FLYT_CUDA_ENTER();
    if (!address)
        return CUDA_SUCCESS;
    CUresult result = flyt_cuda_need_context();
    return result == CUDA_ERROR_CONTEXT_IS_DESTROYED ? result : flyt_host_free(address);
}

/* ---- pointers ---- */

enum { ORDINAL_UNKNOWN = -2 }; /* what cuPointerGetAttributes says of memory that CUDA does not know */

/* An attribute's value as the program's variable holds it. */
struct attribute_value {
    union {
        unsigned u32;
        int s32;
        uint64_t u64;
        void *pointer;
    };
    size_t bytes;
};

#define VALUE_U32(x)     ((struct attribute_value){.u32 = (x), .bytes = 4})
#define VALUE_S32(x)     ((struct attribute_value){.s32 = (x), .bytes = 4})
#define VALUE_U64(x)     ((struct attribute_value){.u64 = (x), .bytes = 8})
#define VALUE_POINTER(x) ((struct attribute_value){.pointer = (x), .bytes = sizeof(void *)})

/* All memory of a device, but modules' variables: NVIDIA's driver says so of an H200's, too, which decompresses
 * nothing. */
static bool is_decompressible(const struct flyt_pointer *pointer)
{
    return pointer->kind == FLYT_POINTER_DEVICE && !pointer->is_variable && !pointer->is_managed;
}

/* CUDA_ERROR_INVALID_VALUE: the pointer has no such attribute; *ret_value is then what a list of attributes gets. */
static CUresult pointer_attribute(CUpointer_attribute attribute, const struct flyt_pointer *pointer, uint64_t address,
                                  struct attribute_value *ret_value)
{
    bool is_known = pointer->kind != FLYT_POINTER_UNKNOWN, is_device = pointer->kind == FLYT_POINTER_DEVICE;
    bool has_it = is_known;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *ret_value = VALUE_POINTER(is_known ? pointer->context : NULL);
        break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *ret_value = VALUE_U32(is_device ? CU_MEMORYTYPE_DEVICE : is_known ? CU_MEMORYTYPE_HOST : 0);
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        has_it = is_device || pointer->is_mapped;
        *ret_value = VALUE_U64(has_it ? address : 0);
        break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        has_it = pointer->kind == FLYT_POINTER_HOST || pointer->is_managed;
        *ret_value = VALUE_U64(has_it ? address : 0);
        break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *ret_value = VALUE_U64(is_known ? pointer->buffer_id : 0);
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *ret_value = VALUE_S32(is_known ? pointer->device : ORDINAL_UNKNOWN);
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *ret_value = VALUE_U64(is_known ? pointer->base : 0);
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *ret_value = VALUE_U64(is_known ? pointer->bytes : 0);
        break;
    case CU_POINTER_ATTRIBUTE_MAPPED: /* to an allocation, the host's too: nothing is only reserved */
        *ret_value = VALUE_U32(is_known);
        break;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: /* the current context's */
        *ret_value = VALUE_U32(flyt_pointer_is_reached(pointer) ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE
                                                                : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE);
        break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *ret_value = VALUE_U64(flyt_ipc_pointer_find(address).handle_types);
        break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *ret_value = VALUE_U64((uintptr_t)flyt_ipc_pointer_find(address).pool);
        break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *ret_value = VALUE_U32(pointer->is_synchronous);
        break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *ret_value = VALUE_U32(pointer->is_managed);
        break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *ret_value = VALUE_U32(flyt_ipc_pointer_find(address).has_handle);
        break;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        *ret_value = VALUE_U32(0);
        break;
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        *ret_value = VALUE_U32(is_decompressible(pointer));
        break;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
        return flyt_not_supported("cuPointerGetAttribute of CU_POINTER_ATTRIBUTE_P2P_TOKENS");
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        return flyt_not_supported("cuPointerGetAttribute of CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID");
    default:
        *ret_value = (struct attribute_value){.bytes = 0};
        has_it = false;
    }
    return has_it ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuPointerGetAttribute(void *ret_data, CUpointer_attribute attribute, CUdeviceptr address)
{
    FLYT_CUDA_ENTER();
    if (!ret_data || !address)
        return CUDA_ERROR_INVALID_VALUE;
    struct flyt_pointer pointer;
    struct attribute_value value;
    CUresult result = flyt_pointer_find((const void *)address, &pointer);
    if (result == CUDA_SUCCESS)
        result = pointer_attribute(attribute, &pointer, address, &value);
    if (result == CUDA_SUCCESS)
        memcpy(ret_data, &value, value.bytes);
    return result;
}

/* An attribute that the pointer lacks is no error here: it reads as zero, the ordinal as ORDINAL_UNKNOWN. */
CUresult CUDAAPI cuPointerGetAttributes(unsigned attribute_count, CUpointer_attribute *attributes, void **ret_data,
                                        CUdeviceptr address)
{
    FLYT_CUDA_ENTER();
    if (!attribute_count || !attributes || !ret_data)
        return CUDA_ERROR_INVALID_VALUE;
    struct flyt_pointer pointer;
    CUresult result = flyt_pointer_find((const void *)address, &pointer);
    for (unsigned i = 0; result == CUDA_SUCCESS && i < attribute_count; i++) {
        struct attribute_value value;
        result = pointer_attribute(attributes[i], &pointer, address, &value);
        if (result == CUDA_ERROR_INVALID_VALUE && value.bytes)
            result = CUDA_SUCCESS;
        if (result == CUDA_SUCCESS)
            memcpy(ret_data[i], &value, value.bytes);
    }
    return result;
}
