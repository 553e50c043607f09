#include "cpu/client/cuda/virtual.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cpu/client/bulk/arena.h"
#include "cpu/client/bulk/range.h"
#include "cpu/client/core/answer.h"
#include "cpu/client/core/instance.h"
#include "cpu/client/core/restore_call.h"
#include "cpu/client/core/table.h"
#include "cpu/client/core/thread.h"
#include "cpu/client/cuda/device.h"
#include "cpu/client/cuda/host.h"
#include "cpu/client/cuda/pool.h"
#include "rpc/base/id.h"
#include "rpc/base/log.h"
#include "rpc/base/region.h"

#define GRANULE_BYTES (2ull << 20)

struct reservation {
    struct reservation *next; /* by address */
    uint64_t address, bytes;  /* bytes: as asked for */
};

struct physical {
    struct flyt_record record;
    int device;
    uint64_t bytes, address; /* address: of its extent */
    unsigned handle_types;
    unsigned short usage;                 /* CU_MEM_CREATE_USAGE_… */
    unsigned handle_count, mapping_count; /* one of 0 both: the server is told to let it go */
    struct flyt_import *import;           /* that it is; NULL: none */
    uint64_t import_id;
    void (*ended)(struct flyt_import *import);
    void *host; /* of memory of the host: its pages in the region (host.h); NULL: a device's */
};

enum mapping_state {
    MAPPING_ASKED, /* the server has not answered */
    MAPPING_MADE,
    MAPPING_ENDING /* the server was told, and has not answered */
};

struct mapping {
    struct mapping *next; /* by address */
    enum mapping_state state;
    uint64_t address, bytes;
    struct physical *physical;
    unsigned access[FLYT_DEVICES_MAX]; /* CUmemAccess_flags, by device */
    unsigned host_access;              /* the program's own, to memory of the host */
    bool is_reached;                   /* of memory of the host: the server has it, and devices reach it */
};

/* Nobody who holds the mutex calls the server: the restore, which takes it, may be what the answer waits for. */
static struct {
    pthread_mutex_t mutex;
    struct reservation *reservations;
    struct mapping *mappings;
} books = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static struct flyt_table physical_table = FLYT_TABLE_INIT(FLYT_ID_PHYSICAL, struct physical, 1);

FLYT_ANSWER_CALL(ipc_physical)
FLYT_ANSWER_CALL(virtual_create)
FLYT_ANSWER_CALL(virtual_map)
FLYT_ANSWER_CALL(virtual_map_region)
FLYT_ANSWER_CALL(virtual_unmap)
FLYT_ANSWER_CALL(virtual_access)

static bool is_granular(uint64_t bytes)
{
    return bytes % GRANULE_BYTES == 0;
}

/* ---- reservations ---- */

static uint64_t whole_granules(uint64_t bytes)
{
    return (bytes + GRANULE_BYTES - 1) / GRANULE_BYTES * GRANULE_BYTES;
}

static uint64_t end_of(const struct reservation *one)
{
    return one->address + whole_granules(one->bytes);
}

/* The place in the list of a reservation of so many granules' bytes, at the first address that is free, from `from` on;
 * *ret_address: that. NULL: there is none. */
static struct reservation **find_free_locked(uint64_t from, uint64_t bytes, uint64_t alignment, uint64_t *ret_address)
{
    struct reservation **link = &books.reservations;
    uint64_t address = (from + alignment - 1) / alignment * alignment;
    for (; *link && (*link)->address < address + bytes; link = &(*link)->next)
        if (end_of(*link) > address)
            address = (end_of(*link) + alignment - 1) / alignment * alignment;
    *ret_address = address;
    return flyt_virtual_has(address, bytes) ? link : NULL;
}

/* At the wanted address where that is free, else at the first one that is. */
static CUresult reserve_locked(struct reservation *fresh, uint64_t alignment, uint64_t wanted)
{
    const uint64_t bytes = whole_granules(fresh->bytes);
    bool is_hint = wanted && wanted % alignment == 0 && flyt_virtual_has(wanted, bytes);
    struct reservation **link = is_hint ? find_free_locked(wanted, bytes, alignment, &fresh->address) : NULL;
    if (!link || fresh->address != wanted)
        link = find_free_locked(FLYT_VIRTUAL_BASE, bytes, alignment, &fresh->address);
    if (!link)
        return CUDA_ERROR_OUT_OF_MEMORY;
    fresh->next = *link;
    *link = fresh;
    return CUDA_SUCCESS;
}

CUresult flyt_virtual_reserve(size_t bytes, size_t alignment, CUdeviceptr wanted, unsigned long long flags,
                              CUdeviceptr *ret_address)
{
    const uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    CUresult result = flyt_client_enter();
    if (result)
        return result;
    if (!ret_address || !bytes || flags || bytes % page_bytes || wanted % page_bytes || alignment & (alignment - 1))
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes > FLYT_VIRTUAL_BYTES || alignment > FLYT_VIRTUAL_BYTES)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct reservation *fresh = calloc(1, sizeof *fresh);
    if (!fresh)
        return CUDA_ERROR_OUT_OF_MEMORY;
    fresh->bytes = bytes;
    pthread_mutex_lock(&books.mutex);
    result = reserve_locked(fresh, alignment > GRANULE_BYTES ? alignment : GRANULE_BYTES, wanted);
    if (!result)
        *ret_address = fresh->address;
    pthread_mutex_unlock(&books.mutex);
    if (result)
        free(fresh);
    return result;
}

/* The first mapping that ends behind the address. */
static struct mapping **place_locked(uint64_t address)
{
    struct mapping **link = &books.mappings;
    while (*link && (*link)->address + (*link)->bytes <= address)
        link = &(*link)->next;
    return link;
}

/* The mapping that begins there; NULL: none does. */
static struct mapping *find_mapping_locked(uint64_t address)
{
    struct mapping *one = *place_locked(address);
    return one && one->address == address ? one : NULL;
}

static bool has_mapping_locked(uint64_t address, uint64_t bytes)
{
    const struct mapping *one = *place_locked(address);
    return one && one->address < address + bytes;
}

CUresult flyt_virtual_free(CUdeviceptr address, size_t bytes)
{
    CUresult result = flyt_client_enter();
    if (result)
        return result;
    pthread_mutex_lock(&books.mutex);
    struct reservation **link = &books.reservations, *gone;
    while (*link && (*link)->address != address)
        link = &(*link)->next;
    gone = *link;
    if (gone && (gone->bytes != bytes || has_mapping_locked(address, bytes)))
        gone = NULL;
    if (gone)
        *link = gone->next;
    pthread_mutex_unlock(&books.mutex);
    free(gone);
    return gone ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- physical memory ---- */

static bool is_host(const CUmemLocation *location)
{
    return location->type == CU_MEM_LOCATION_TYPE_HOST || location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
}

/* Of the one node, 0, that there is. */
static CUresult check_host_properties(const CUmemAllocationProp *properties)
{
    const bool is_node = properties->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
    if ((is_node && properties->location.id) || properties->allocFlags.gpuDirectRDMACapable ||
        (properties->requestedHandleTypes &&
         (!is_node || properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)))
        return CUDA_ERROR_INVALID_VALUE;
    if (properties->requestedHandleTypes)
        return flyt_not_supported("physical memory of the host that is shared with other processes (cuMemCreate)");
    if (properties->allocFlags.usage)
        return flyt_not_supported("physical memory of the host for a special use (cuMemCreate)");
    if (!flyt_arena_is_mapped() || !flyt_client.is_virtual_reserved ||
        !flyt_channel_has(flyt_client.channel, FLYT_VIRTUAL_MAP_REGION))
        return flyt_not_supported("physical memory of the host (cuMemCreate)");
    return CUDA_SUCCESS;
}

/* What memory may be made of. */
static CUresult check_properties(const CUmemAllocationProp *properties)
{
    const struct flyt_device_info *info;
    const unsigned known = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (!properties || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (is_host(&properties->location))
        return check_host_properties(properties);
    if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) /* CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, too */
        return CUDA_ERROR_INVALID_VALUE;
    if ((unsigned)properties->requestedHandleTypes & ~known || properties->win32HandleMetaData)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (properties->allocFlags.usage & CU_MEM_CREATE_USAGE_TILE_POOL)
        return flyt_not_supported("physical memory for sparse arrays (cuMemCreate)");
    if (properties->allocFlags.usage & ~CU_MEM_CREATE_USAGE_HW_DECOMPRESS)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = flyt_device_info(properties->location.id, &info);
    /* All memory of a device that decompresses is made for it. */
    if (!result && properties->allocFlags.usage && !info->attributes[CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK])
        result = flyt_not_supported("memory for decompression by a GPU that cannot (cuMemCreate)");
    return result;
}

CUresult flyt_virtual_granularity(const CUmemAllocationProp *properties, int option, size_t *ret_bytes)
{
    CUresult result = flyt_client_enter();
    if (!result && !(properties && is_host(&properties->location)))
        result = check_properties(properties);
    if (result)
        return result;
    if (!ret_bytes || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM && option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
        return CUDA_ERROR_INVALID_VALUE;
    *ret_bytes = GRANULE_BYTES;
    return CUDA_SUCCESS;
}

/* Pages of the region, which belong to no context. */
static CUresult take_host(struct physical *physical)
{
    CUresult result =
        flyt_host_take(physical->bytes, CU_MEMHOSTALLOC_PORTABLE | FLYT_HOST_PHYSICAL, 0, 0, &physical->host);
    if (!result) {
        physical->record.created = 1;
        flyt_table_publish(&physical->record);
    }
    return result;
}

static CUresult ask_for(struct physical *physical)
{
    flyt_virtual_create_args args = {.thread = flyt_thread_number(),
                                     .physical_id = physical->record.minted_id,
                                     .device = (unsigned)physical->device,
                                     .bytes = physical->bytes};
    flyt_virtual_create_res res = {0};
    int status = call_virtual_create(&args, &res);
    CUresult result = flyt_client_reply(status, res.result, "virtual_create");
    if (!result) {
        physical->address = res.address;
        physical->record.created = 1; /* by an earlier call than any behind which the session goes on */
        flyt_table_publish(&physical->record);
    }
    flyt_answer_end();
    return result;
}

CUresult flyt_virtual_create(size_t bytes, const CUmemAllocationProp *properties, unsigned long long flags,
                             CUmemGenericAllocationHandle *ret_handle)
{
    CUresult result = flyt_client_enter();
    if (!result && (!ret_handle || flags || !bytes || !is_granular(bytes)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = check_properties(properties);
    struct physical *physical = result ? NULL : flyt_table_new(&physical_table);
    if (!physical)
        return result ? result : CUDA_ERROR_OUT_OF_MEMORY;
    const bool is_of_host = is_host(&properties->location);
    physical->device = is_of_host ? 0 : properties->location.id;
    physical->bytes = bytes;
    physical->handle_types = (unsigned)properties->requestedHandleTypes;
    physical->usage = properties->allocFlags.usage;
    physical->handle_count = 1;
    physical->mapping_count = 0;
    physical->import = NULL;
    physical->host = NULL;
    result = is_of_host ? take_host(physical) : ask_for(physical);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && !is_of_host && flyt_pool_give_back(physical->device))
        result = ask_for(physical);
    if (result)
        flyt_table_free(&physical_table, &physical->record);
    else
        *ret_handle = physical->record.minted_id;
    return result;
}

/* What the program has a handle of; NULL: it is none. */
static struct physical *find_locked(CUmemGenericAllocationHandle handle)
{
    struct physical *physical = flyt_table_find(&physical_table, handle);
    return physical && physical->handle_count ? physical : NULL;
}

/* With its last handle and its last mapping it goes. Whether that was so: then the caller lets it go, without the
 * mutex. */
static bool has_gone_locked(const struct physical *physical)
{
    return !physical->handle_count && !physical->mapping_count &&
           flyt_table_take(&physical_table, physical->record.minted_id);
}

static CUresult let_go(struct physical *physical)
{
    if (physical->host) {
        CUresult result = flyt_host_give_later(physical->host, FLYT_HOST_PHYSICAL);
        flyt_table_free(&physical_table, &physical->record);
        return result;
    }
    flyt_virtual_release_args args = {.thread = flyt_thread_number(), .physical_id = physical->record.minted_id};
    struct flyt_import *import = physical->import;
    void (*ended)(struct flyt_import *) = physical->ended;
    int status = flyt_send_virtual_release(flyt_client.channel, &args, &physical->record.destroyed);
    flyt_table_free(&physical_table, &physical->record);
    if (import)
        ended(import);
    return flyt_client_status(status, "virtual_release");
}

CUresult flyt_virtual_release(CUmemGenericAllocationHandle handle)
{
    CUresult result = flyt_client_enter_release();
    if (result)
        return result;
    pthread_mutex_lock(&books.mutex);
    struct physical *physical = find_locked(handle);
    if (physical)
        physical->handle_count--;
    bool is_gone = physical && has_gone_locked(physical);
    pthread_mutex_unlock(&books.mutex);
    if (!physical)
        return CUDA_ERROR_INVALID_VALUE;
    return is_gone ? let_go(physical) : CUDA_SUCCESS;
}

CUresult flyt_virtual_retain(CUdeviceptr address, CUmemGenericAllocationHandle *ret_handle)
{
    CUresult result = flyt_client_enter();
    if (result || !ret_handle)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&books.mutex);
    const struct mapping *one = *place_locked(address);
    if (one && one->address <= address && one->state == MAPPING_MADE) {
        one->physical->handle_count++;
        *ret_handle = one->physical->record.minted_id;
    } else {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_unlock(&books.mutex);
    return result;
}

CUresult flyt_virtual_properties(CUmemGenericAllocationHandle handle, CUmemAllocationProp *ret_properties)
{
    CUresult result = flyt_client_enter();
    if (result || !ret_properties)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&books.mutex);
    const struct physical *physical = find_locked(handle);
    if (physical)
        *ret_properties = (CUmemAllocationProp){
            .type = CU_MEM_ALLOCATION_TYPE_PINNED,
            .requestedHandleTypes = (CUmemAllocationHandleType)physical->handle_types,
            .location = {.type = physical->host ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE,
                         .id = physical->device},
            .allocFlags = {.usage = physical->usage}};
    pthread_mutex_unlock(&books.mutex);
    return physical ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult flyt_virtual_describe(CUmemGenericAllocationHandle handle, struct flyt_virtual_memory *ret_memory)
{
    pthread_mutex_lock(&books.mutex);
    const struct physical *physical = find_locked(handle);
    if (physical)
        *ret_memory = (struct flyt_virtual_memory){.address = physical->address,
                                                   .bytes = physical->bytes,
                                                   .handle_types = physical->handle_types,
                                                   .import = physical->import};
    pthread_mutex_unlock(&books.mutex);
    return physical ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool flyt_virtual_is_there(uint64_t physical_id)
{
    return flyt_table_find(&physical_table, physical_id) != NULL;
}

unsigned flyt_virtual_handle_types(CUdeviceptr address)
{
    pthread_mutex_lock(&books.mutex);
    const struct mapping *one = *place_locked(address);
    unsigned types = one && one->address <= address ? one->physical->handle_types : 0;
    pthread_mutex_unlock(&books.mutex);
    return types;
}

CUresult flyt_virtual_adopt(struct flyt_import *import, uint64_t import_id, int device, uint64_t bytes,
                            void (*ended)(struct flyt_import *import), CUmemGenericAllocationHandle *ret_handle)
{
    struct physical *physical = flyt_table_new(&physical_table);
    if (!physical)
        return CUDA_ERROR_OUT_OF_MEMORY;
    physical->device = device;
    physical->bytes = bytes;
    physical->address = 0;
    physical->handle_types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    physical->handle_count = 1;
    physical->mapping_count = 0;
    physical->host = NULL;
    physical->import = import;
    physical->import_id = import_id;
    physical->ended = ended;
    flyt_ipc_physical_args args = {
        .thread = flyt_thread_number(), .physical_id = physical->record.minted_id, .import_id = import_id};
    flyt_ipc_physical_res res = {0};
    int status = call_ipc_physical(&args, &res);
    CUresult result = flyt_client_reply(status, res.result, "ipc_physical");
    if (!result) {
        physical->record.created = 1;
        flyt_table_publish(&physical->record);
        *ret_handle = physical->record.minted_id;
    }
    flyt_answer_end();
    if (result)
        flyt_table_free(&physical_table, &physical->record);
    return result;
}

/* ---- mappings ---- */

/* Whether one reservation has all of it. */
static bool is_reserved_locked(uint64_t address, uint64_t bytes)
{
    const struct reservation *one = books.reservations;
    while (one && end_of(one) <= address)
        one = one->next;
    return one && one->address <= address && bytes <= end_of(one) - address;
}

/* The first of the mappings that the range is, each as a whole; NULL: it is not. */
static struct mapping *first_in_locked(uint64_t address, uint64_t bytes)
{
    struct mapping *first = *place_locked(address), *one = first;
    uint64_t at = address;
    while (one && one->state == MAPPING_MADE && one->address == at && one->bytes <= address + bytes - at) {
        at += one->bytes;
        one = one->next;
    }
    return bytes && at == address + bytes ? first : NULL;
}

/* Enters what the server is asked for. */
static CUresult enter_mapping(struct mapping *fresh, CUmemGenericAllocationHandle handle)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&books.mutex);
    fresh->physical = find_locked(handle);
    bool is_free = fresh->physical && is_reserved_locked(fresh->address, fresh->bytes) &&
                   !has_mapping_locked(fresh->address, fresh->bytes);
    if (is_free && fresh->bytes > fresh->physical->bytes) {
        result = CUDA_ERROR_NOT_SUPPORTED; /* as the driver says */
    } else if (is_free) {
        struct mapping **link = place_locked(fresh->address);
        fresh->next = *link;
        *link = fresh;
        fresh->physical->mapping_count++;
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&books.mutex);
    return result;
}

/* Takes it out of the books. Whether its physical memory goes with it. */
static bool remove_mapping_locked(const struct mapping *gone)
{
    struct mapping **link = &books.mappings;
    while (*link != gone)
        link = &(*link)->next;
    *link = gone->next;
    gone->physical->mapping_count--;
    return has_gone_locked(gone->physical);
}

/* Copies know it from now on. */
static CUresult add_range(const struct mapping *mapping)
{
    const struct flyt_range range = {.base = mapping->address,
                                     .bytes = mapping->bytes,
                                     .kind = FLYT_RANGE_MAPPED,
                                     .is_of_host = mapping->physical->host != NULL,
                                     .device = mapping->physical->device};
    return flyt_range_insert(&range) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

/* They are nobody's any more, and stay reserved. */
static void hide(const struct mapping *mapping)
{
    void *address = (void *)(uintptr_t)mapping->address; /* NOLINT: as above */
    if (mmap(address, mapping->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) ==
        MAP_FAILED)
        flyt_warn("memory of the host is not unmapped bytes=%llu: %m", (unsigned long long)mapping->bytes);
}

/* The program's own pages at the address: those of the memory, which it may not touch yet. */
static bool show(const struct mapping *mapping)
{
    void *address = (void *)(uintptr_t)mapping->address; /* NOLINT: a fixed place is the point */
    uint64_t offset_bytes;
    const bool is_there = flyt_arena_find((uint64_t)(uintptr_t)mapping->physical->host, &offset_bytes) &&
                          !flyt_region_map_again(flyt_channel_region(flyt_client.channel), offset_bytes, mapping->bytes,
                                                 mapping->address);
    if (is_there && !mprotect(address, mapping->bytes, PROT_NONE))
        return true;
    flyt_warn("memory of the host is not mapped bytes=%llu: %m", (unsigned long long)mapping->bytes);
    hide(mapping);
    return false;
}

/* Memory of the host is mapped here; the server has it when a device is to reach it. */
static CUresult ask_to_map(struct mapping *mapping)
{
    const bool is_host = mapping->physical->host != NULL;
    flyt_virtual_map_args args = {.thread = flyt_thread_number(),
                                  .physical_id = mapping->physical->record.minted_id,
                                  .address = mapping->address,
                                  .bytes = mapping->bytes};
    flyt_virtual_map_res res = {0};
    int status = is_host ? 0 : call_virtual_map(&args, &res);
    CUresult result = flyt_client_reply(status, res.result, "virtual_map");
    if (is_host && !result && !show(mapping))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&books.mutex);
    bool is_gone = result && remove_mapping_locked(mapping);
    if (!result)
        mapping->state = MAPPING_MADE;
    pthread_mutex_unlock(&books.mutex);
    flyt_answer_end();
    if (is_gone)
        let_go(mapping->physical);
    if (result)
        free(mapping);
    return result;
}

CUresult flyt_virtual_map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                          unsigned long long flags)
{
    CUresult result = flyt_client_enter();
    if (result)
        return result;
    if (!bytes || flags || !is_granular(address) || !is_granular(bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (offset)
        return CUDA_ERROR_NOT_SUPPORTED; /* as the driver says */
    struct mapping *fresh = calloc(1, sizeof *fresh);
    if (!fresh)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *fresh = (struct mapping){.state = MAPPING_ASKED, .address = address, .bytes = bytes};
    result = enter_mapping(fresh, handle);
    if (result) {
        free(fresh);
        return result;
    }
    result = ask_to_map(fresh);
    if (!result && (result = add_range(fresh)))
        flyt_virtual_unmap(address, bytes);
    return result;
}

/* What was mapped in the range is in nobody's way any more, or stays as it is. */
static void end_unmapping(uint64_t address, uint64_t bytes, bool is_unmapped)
{
    for (uint64_t at = address; at < address + bytes;) {
        pthread_mutex_lock(&books.mutex);
        struct mapping *one = *place_locked(at);
        if (is_unmapped)
            flyt_range_remove(at, FLYT_RANGE_MAPPED, NULL);
        at += one->bytes;
        one->state = MAPPING_MADE;
        if (is_unmapped && one->physical->host)
            hide(one);
        bool is_gone = is_unmapped && remove_mapping_locked(one);
        pthread_mutex_unlock(&books.mutex);
        if (is_gone)
            let_go(one->physical);
        if (is_unmapped)
            free(one);
    }
}

static CUresult ask_to_unmap(uint64_t address, uint64_t bytes)
{
    flyt_virtual_unmap_args args = {.thread = flyt_thread_number(), .address = address, .bytes = bytes};
    flyt_virtual_unmap_res res = {0};
    int status = call_virtual_unmap(&args, &res);
    return flyt_client_reply(status, res.result, "virtual_unmap");
}

/* Of a mapping of the host's memory: whether devices reach it now. Its books, and those of copies. */
static void note_reached(uint64_t address, bool is_reached)
{
    pthread_mutex_lock(&books.mutex);
    struct mapping *one = find_mapping_locked(address);
    if (one)
        one->is_reached = is_reached;
    pthread_mutex_unlock(&books.mutex);
    flyt_range_set_reached(address, is_reached);
}

/* One after the other, where some are of the host: the server has those that devices reach. */
static CUresult unmap_each(uint64_t address, uint64_t bytes)
{
    CUresult result = CUDA_SUCCESS;
    for (uint64_t at = address, one_bytes; at < address + bytes && !result; at += one_bytes) {
        pthread_mutex_lock(&books.mutex);
        const struct mapping *one = *place_locked(at);
        const bool is_at_server = !one->physical->host || one->is_reached;
        one_bytes = one->bytes;
        pthread_mutex_unlock(&books.mutex);
        result = is_at_server ? ask_to_unmap(at, one_bytes) : CUDA_SUCCESS;
        end_unmapping(at, result ? address + bytes - at : one_bytes, !result);
        flyt_answer_end();
    }
    return result;
}

CUresult flyt_virtual_unmap(CUdeviceptr address, size_t bytes)
{
    bool is_any_host = false;
    CUresult result = flyt_client_enter();
    if (result)
        return result;
    pthread_mutex_lock(&books.mutex);
    struct mapping *first = first_in_locked(address, bytes);
    for (struct mapping *one = first; one && one->address < address + bytes; one = one->next) {
        one->state = MAPPING_ENDING;
        is_any_host |= one->physical->host != NULL;
    }
    const bool is_nothing = !first && is_reserved_locked(address, bytes) && !has_mapping_locked(address, bytes);
    pthread_mutex_unlock(&books.mutex);
    if (!first)
        return is_nothing ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (is_any_host)
        return unmap_each(address, bytes);
    result = ask_to_unmap(address, bytes);
    end_unmapping(address, bytes, !result);
    flyt_answer_end();
    return result;
}

/* ---- access ---- */

/* To memory of the host the program has access as devices have; to that of devices never, which may be said. */
static CUresult check_access(const CUmemAccessDesc *desc, bool is_of_host)
{
    const struct flyt_device_info *info;
    if (desc->location.type != CU_MEM_LOCATION_TYPE_DEVICE && !is_host(&desc->location))
        return CUDA_ERROR_INVALID_VALUE;
    if (desc->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
        desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        return CUDA_ERROR_INVALID_VALUE;
    if (is_host(&desc->location))
        return is_of_host || desc->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = flyt_device_info(desc->location.id, &info);
    return result == CUDA_ERROR_INVALID_DEVICE ? CUDA_ERROR_INVALID_VALUE : result;
}

static void note_access(uint64_t address, uint64_t bytes, int device, unsigned flags)
{
    pthread_mutex_lock(&books.mutex);
    struct mapping *first = first_in_locked(address, bytes);
    for (struct mapping *one = first; one && one->address < address + bytes; one = one->next)
        one->access[device] = flags;
    pthread_mutex_unlock(&books.mutex);
}

/* Of memory of devices. */
static CUresult ask_for_access(uint64_t address, uint64_t bytes, const CUmemAccessDesc *desc)
{
    if (is_host(&desc->location)) /* none, as ever */
        return CUDA_SUCCESS;
    flyt_virtual_access_args args = {.thread = flyt_thread_number(),
                                     .device = (unsigned)desc->location.id,
                                     .address = address,
                                     .bytes = bytes,
                                     .flags = (unsigned)desc->flags};
    flyt_virtual_access_res res = {0};
    int status = call_virtual_access(&args, &res);
    CUresult result = flyt_client_reply(status, res.result, "virtual_access");
    if (!result)
        note_access(address, bytes, desc->location.id, (unsigned)desc->flags);
    flyt_answer_end();
    return result;
}

/* ---- access to memory of the host ---- */

/* Whether the range is mapped; then whether some of it, and all of it, is memory of the host. */
static bool find_kinds(uint64_t address, uint64_t bytes, bool *ret_is_any, bool *ret_is_all)
{
    pthread_mutex_lock(&books.mutex);
    const struct mapping *first = first_in_locked(address, bytes);
    *ret_is_any = false;
    *ret_is_all = true;
    for (const struct mapping *one = first; one && one->address < address + bytes; one = one->next) {
        *ret_is_any |= one->physical->host != NULL;
        *ret_is_all &= one->physical->host != NULL;
    }
    pthread_mutex_unlock(&books.mutex);
    return first != NULL;
}

/* Devices reach a mapping from now on: all of them, for reading and writing, whatever each may. */
static CUresult reach(const struct mapping *one)
{
    uint64_t server;
    flyt_virtual_map_region_args args = {
        .thread = flyt_thread_number(), .address = one->address, .bytes = one->bytes, .region_id = FLYT_REGION_ID};
    flyt_virtual_map_region_res res = {0};
    const uint64_t host = (uint64_t)(uintptr_t)one->physical->host;
    flyt_host_note_reached();
    if (!flyt_arena_find(host, &args.offset_bytes) || !flyt_host_is_shared(host, &server))
        return CUDA_ERROR_OUT_OF_MEMORY;
    int status = call_virtual_map_region(&args, &res);
    CUresult result = flyt_client_reply(status, res.result, "virtual_map_region");
    if (!result)
        note_reached(one->address, true);
    flyt_answer_end();
    return result;
}

/* No device reaches it any more. */
static CUresult unreach(const struct mapping *one)
{
    CUresult result = ask_to_unmap(one->address, one->bytes);
    if (!result)
        note_reached(one->address, false);
    flyt_answer_end();
    return result;
}

/* Whether a device may access it when `device` has got these flags. */
static bool is_for_devices(const struct mapping *one, int device, unsigned flags)
{
    bool is = flags != 0;
    for (int other = 0; other < FLYT_DEVICES_MAX && !is; other++)
        is = other != device && one->access[other];
    return is;
}

static CUresult allow_host(const struct mapping *one, unsigned flags)
{
    const int rights = (flags & CU_MEM_ACCESS_FLAGS_PROT_READ ? PROT_READ : PROT_NONE) |
                       (flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_WRITE : PROT_NONE);
    return mprotect((void *)(uintptr_t)one->address, one->bytes, rights) /* NOLINT: the program's own pages */
               ? CUDA_ERROR_OUT_OF_MEMORY
               : CUDA_SUCCESS;
}

static CUresult allow_one(const struct mapping *one, const CUmemAccessDesc *desc)
{
    const bool is_of_program = is_host(&desc->location);
    const unsigned flags = (unsigned)desc->flags;
    CUresult result = CUDA_SUCCESS;
    if (is_of_program)
        result = allow_host(one, flags);
    else if (is_for_devices(one, desc->location.id, flags) != one->is_reached)
        result = one->is_reached ? unreach(one) : reach(one);
    pthread_mutex_lock(&books.mutex);
    struct mapping *noted = result ? NULL : find_mapping_locked(one->address);
    if (noted)
        *(is_of_program ? &noted->host_access : &noted->access[desc->location.id]) = flags;
    pthread_mutex_unlock(&books.mutex);
    return result;
}

/* One mapping after the other, where some are of the host: all of them, one thread after the other. */
static CUresult allow_each(uint64_t address, uint64_t bytes, const CUmemAccessDesc *desc)
{
    static pthread_mutex_t reaching = PTHREAD_MUTEX_INITIALIZER;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&reaching);
    for (uint64_t at = address; at < address + bytes && !result;) {
        pthread_mutex_lock(&books.mutex);
        const struct mapping *found = find_mapping_locked(at);
        const struct mapping one = found ? *found : (struct mapping){0};
        const bool is_of_host = found && found->physical->host;
        pthread_mutex_unlock(&books.mutex);
        if (!found) /* another thread has unmapped it */
            result = CUDA_ERROR_INVALID_VALUE;
        else
            result = is_of_host ? allow_one(&one, desc) : ask_for_access(at, one.bytes, desc);
        at += one.bytes;
    }
    pthread_mutex_unlock(&reaching);
    return result;
}

CUresult flyt_virtual_set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *descs, size_t count)
{
    bool is_any_host, is_all_host;
    CUresult result = flyt_client_enter();
    if (!result && (!descs || !count || !find_kinds(address, bytes, &is_any_host, &is_all_host)))
        result = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && !result; i++)
        result = check_access(&descs[i], is_all_host);
    for (size_t i = 0; i < count && !result; i++)
        result = is_any_host ? allow_each(address, bytes, &descs[i]) : ask_for_access(address, bytes, &descs[i]);
    return result;
}

CUresult flyt_virtual_get_access(const CUmemLocation *location, CUdeviceptr address, unsigned long long *ret_flags)
{
    const struct flyt_device_info *info;
    struct mapping found = {0};
    CUresult result = flyt_client_enter();
    if (!result && (!ret_flags || !location))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    pthread_mutex_lock(&books.mutex);
    const struct mapping *one = *place_locked(address);
    if (one && one->address <= address && one->state == MAPPING_MADE)
        found = *one;
    pthread_mutex_unlock(&books.mutex);
    if (!found.bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_host(location))
        result = location->type == CU_MEM_LOCATION_TYPE_DEVICE ? flyt_device_info(location->id, &info)
                                                               : CUDA_ERROR_INVALID_DEVICE;
    if (!result)
        *ret_flags = is_host(location) ? found.host_access : found.access[location->id];
    return result;
}

/* ---- at another server ---- */

static int make_own(struct flyt_restore *restore, const struct physical *one)
{
    flyt_virtual_restore_args args = {.thread = FLYT_RESTORE_THREAD,
                                      .physical_id = one->record.minted_id,
                                      .device = (unsigned)one->device,
                                      .address = one->address,
                                      .bytes = one->bytes};
    flyt_virtual_restore_res res = {0};
    int sent = flyt_call_virtual_restore(restore->fresh, &args, &res);
    return flyt_restore_answered(restore, sent, res.result, "physical memory of device %d, %llu bytes", one->device,
                                 (unsigned long long)one->bytes);
}

static int make_imported(struct flyt_restore *restore, const struct physical *one)
{
    flyt_ipc_physical_args args = {
        .thread = FLYT_RESTORE_THREAD, .physical_id = one->record.minted_id, .import_id = one->import_id};
    flyt_ipc_physical_res res = {0};
    int sent = flyt_call_ipc_physical(restore->fresh, &args, &res);
    return flyt_restore_answered(restore, sent, res.result, "physical memory of another process, %llu bytes",
                                 (unsigned long long)one->bytes);
}

static int make_physical(struct flyt_restore *restore, bool is_imported)
{
    const struct physical *one;
    uint32_t slot = 0;
    int status = 0;
    while (!status && (one = flyt_table_next_at(&physical_table, restore->sequence, &slot)))
        if (!one->host && (one->import != NULL) == is_imported)
            status = is_imported ? make_imported(restore, one) : make_own(restore, one);
    return status;
}

static int map_again(struct flyt_restore *restore, const struct mapping *mapping)
{
    flyt_virtual_map_args args = {.thread = FLYT_RESTORE_THREAD,
                                  .physical_id = mapping->physical->record.minted_id,
                                  .address = mapping->address,
                                  .bytes = mapping->bytes};
    flyt_virtual_map_res res = {0};
    int sent = flyt_call_virtual_map(restore->fresh, &args, &res);
    return flyt_restore_answered(restore, sent, res.result, "the mapping at %#llx",
                                 (unsigned long long)mapping->address);
}

/* Memory of devices, which the server has mapped, if it has answered. */
static bool is_at_server(const struct mapping *mapping)
{
    return mapping->state != MAPPING_ASKED && !mapping->physical->host;
}

/* Of neighbours with the same access in one call. Returns the first mapping behind them. */
static const struct mapping *allow_again(struct flyt_restore *restore, const struct mapping *first, int device,
                                         int *status)
{
    flyt_virtual_access_args args = {.thread = FLYT_RESTORE_THREAD,
                                     .device = (unsigned)device,
                                     .address = first->address,
                                     .flags = first->access[device]};
    flyt_virtual_access_res res = {0};
    const struct mapping *next = first;
    for (; next && is_at_server(next) && next->address == args.address + args.bytes &&
           next->access[device] == first->access[device];
         next = next->next)
        args.bytes += next->bytes;
    if (args.flags) {
        int sent = flyt_call_virtual_access(restore->fresh, &args, &res);
        *status = flyt_restore_answered(restore, sent, res.result, "access of device %d to what is mapped at %#llx",
                                        device, (unsigned long long)args.address);
    }
    return next;
}

int flyt_virtual_restore_own(struct flyt_restore *restore)
{
    return make_physical(restore, false);
}

int flyt_virtual_restore(struct flyt_restore *restore)
{
    int status = make_physical(restore, true);
    pthread_mutex_lock(&books.mutex);
    for (const struct mapping *one = books.mappings; one && !status; one = one->next)
        if (is_at_server(one))
            status = map_again(restore, one);
    for (int device = 0; device < (int)flyt_client.device_count && !status; device++)
        for (const struct mapping *one = books.mappings; one && !status;)
            one = !is_at_server(one) ? one->next : allow_again(restore, one, device, &status);
    pthread_mutex_unlock(&books.mutex);
    return status;
}

static int reach_again(struct flyt_restore *restore, const struct mapping *one)
{
    flyt_virtual_map_region_args args = {
        .thread = FLYT_RESTORE_THREAD, .address = one->address, .bytes = one->bytes, .region_id = FLYT_REGION_ID};
    flyt_virtual_map_region_res res = {0};
    flyt_arena_find((uint64_t)(uintptr_t)one->physical->host, &args.offset_bytes);
    int sent = flyt_call_virtual_map_region(restore->fresh, &args, &res);
    return flyt_restore_answered(restore, sent, res.result, "memory of the host at %#llx",
                                 (unsigned long long)one->address);
}

int flyt_virtual_restore_host(struct flyt_restore *restore)
{
    int status = 0;
    pthread_mutex_lock(&books.mutex);
    for (const struct mapping *one = books.mappings; one && !status; one = one->next)
        if (one->is_reached)
            status = reach_again(restore, one);
    pthread_mutex_unlock(&books.mutex);
    return status;
}
