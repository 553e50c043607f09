/*
 * Pools that processes share. A pool has no memory of its own: its descriptor says which pool of which device it is,
 * and what is exported of it has a token, as any allocation (token.h), which the node manager checks.
 */
#include "cpu/client/ipc/ipc.h"

#include <string.h>
#include <unistd.h>

#include "cpu/client/bulk/range.h"
#include "cpu/client/core/instance.h"
#include "cpu/client/cuda/pool.h"
#include "cpu/client/ipc/descriptor.h"
#include "cpu/client/ipc/token.h"

static const char pool_magic[FLYT_DESCRIPTOR_MAGIC_BYTES] = "flyt pool";
static const char pointer_magic[8] = "flytpool";

/* What is in CUmemPoolPtrExportData. */
struct content {
    unsigned char token[FLYT_TOKEN_OF_MEMORY_BYTES]; /* of the extent, */
    uint64_t offset, bytes;                          /* and what was allocated in it */
    uint64_t pool_id;
    char magic[sizeof pointer_magic];
};
_Static_assert(sizeof(struct content) == sizeof(CUmemPoolPtrExportData), "layout of exported pointers");

CUresult flyt_ipc_export_pool(CUmemoryPool pool, CUmemAllocationHandleType type, unsigned long long flags,
                              void *ret_handle)
{
    struct flyt_pool_shared shared;
    struct flyt_descriptor_content content = {0};
    int fd;
    CUresult result = flyt_descriptor_check_type(type);
    if (!result && flags)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = flyt_pool_describe(pool, &shared);
    if (!result && (shared.is_imported || !(shared.handle_types & type)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    memcpy(content.magic, pool_magic, sizeof pool_magic);
    memcpy(content.token, &shared.pool_id, sizeof shared.pool_id);
    content.number = flyt_wire_device((unsigned)shared.device);
    result = flyt_descriptor_write(&content, &fd);
    if (!result)
        memcpy(ret_handle, &fd, sizeof fd);
    return result;
}

CUresult flyt_ipc_import_pool(void *os_handle, CUmemAllocationHandleType type, unsigned long long flags,
                              CUmemoryPool *ret_pool)
{
    struct flyt_descriptor_content content;
    uint64_t pool_id;
    CUresult result = flyt_descriptor_check_type(type);
    if (!result && (flags || !flyt_descriptor_read((int)(intptr_t)os_handle, pool_magic, &content)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    int device = content.number < FLYT_DEVICES_MAX ? flyt_seen_device((unsigned)content.number) : -1;
    memcpy(&pool_id, content.token, sizeof pool_id);
    return device < 0 ? CUDA_ERROR_INVALID_DEVICE : flyt_pool_adopt(device, pool_id, ret_pool);
}

CUresult flyt_ipc_export_pointer(CUmemPoolPtrExportData *ret_data, CUdeviceptr address)
{
    struct content content = {0};
    struct flyt_pool_shared shared;
    struct flyt_range range;
    CUmemoryPool pool;
    unsigned handle_types;
    CUresult result = flyt_client_enter();
    if (!result && !flyt_ipc_is_supported())
        result = flyt_not_supported("pool shared without a node manager");
    if (!result && (!flyt_range_find(address, &range) || range.base != address || !flyt_range_is_ipc_capable(&range) ||
                    !flyt_pool_has(address, &pool, &handle_types) || !handle_types))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = flyt_pool_describe(pool, &shared);
    if (!result)
        result = flyt_ipc_export(address, range.buffer_id, content.token, &content.offset);
    if (result)
        return result;
    content.bytes = range.bytes;
    content.pool_id = shared.pool_id;
    memcpy(content.magic, pointer_magic, sizeof pointer_magic);
    memcpy(ret_data, &content, sizeof content);
    return CUDA_SUCCESS;
}

/* The program has freed it, or its context has ended. */
static CUresult end_pointer(struct flyt_import *import, uint64_t address, bool is_on_server)
{
    flyt_range_remove(address, FLYT_RANGE_IMPORTED, NULL);
    return flyt_ipc_import_end(import->record.minted_id, is_on_server);
}

static CUresult enter_pointer(struct flyt_import *import, CUmemoryPool pool, const struct content *content)
{
    const struct flyt_range range = {.base = import->address + content->offset,
                                     .bytes = content->bytes,
                                     .kind = FLYT_RANGE_IMPORTED,
                                     .device = import->device};
    if (content->offset >= import->bytes || content->bytes > import->bytes - content->offset)
        return CUDA_ERROR_INVALID_VALUE;
    if (flyt_range_insert(&range))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = flyt_pool_adopt_block(pool, range.base, range.bytes, import, end_pointer);
    if (result)
        flyt_range_remove(range.base, FLYT_RANGE_IMPORTED, NULL);
    return result;
}

CUresult flyt_ipc_import_pointer(CUdeviceptr *ret_address, CUmemoryPool pool, const CUmemPoolPtrExportData *data)
{
    struct content content;
    struct flyt_pool_shared shared;
    struct flyt_import *import;
    CUresult result = flyt_client_enter();
    if (!result && !flyt_ipc_is_supported())
        result = flyt_not_supported("pool shared without a node manager");
    if (!result)
        result = flyt_pool_describe(pool, &shared);
    if (result)
        return result;
    memcpy(&content, data, sizeof content);
    if (!shared.is_imported || memcmp(content.magic, pointer_magic, sizeof pointer_magic) || !content.bytes ||
        content.pool_id != shared.pool_id)
        return CUDA_ERROR_INVALID_VALUE;
    result = flyt_ipc_import(content.token, &import);
    if (result)
        return result;
    result = enter_pointer(import, pool, &content);
    if (result)
        flyt_ipc_import_end(import->record.minted_id, true);
    else
        *ret_address = import->address + content.offset;
    return result;
}
