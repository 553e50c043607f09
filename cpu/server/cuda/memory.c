#include "cpu/server/cuda/memory.h"

#include <errno.h>
#include <stdlib.h>

#include "cpu/server/cuda/account.h"
#include "cpu/server/core/call.h"
#include "cpu/server/cuda/physical.h"
#include "cpu/server/cuda/constant.h"
#include "cpu/server/core/scrub.h"
#include "cpu/server/core/session.h"
#include "flyt_serve.h"
#include "rpc/base/id.h"
#include "rpc/base/log.h"

struct flyt_pending_free {
    struct flyt_pending_free *next;
    struct flyt_allocator *arena;
    uint64_t address, bytes;
    uint64_t sequence;          /* of the call */
    struct flyt_fence_set work; /* submitted before */
};

int flyt_memory_init(struct flyt_device *device, struct flyt_error *err)
{
    const struct flyt_driver *driver = device->session->driver;
    struct flyt_memory *memory = device->memory;
    uint64_t base = flyt_window_base(device->ordinal);
    flyt_allocator_init(&memory->addresses, FLYT_GRANULE_BYTES);
    flyt_allocator_init(&memory->small, FLYT_SMALL_ALIGN_BYTES);
    flyt_allocator_init(&memory->large, FLYT_GRANULE_BYTES);
    flyt_allocator_init(&memory->whole, FLYT_GRANULE_BYTES);
    flyt_allocator_init(&memory->imported, FLYT_GRANULE_BYTES);
    CUdeviceptr address = 0;
    CUresult result = driver->cuMemAddressReserve(&address, FLYT_WINDOW_BYTES, FLYT_GRANULE_BYTES, base, 0);
    if (result != CUDA_SUCCESS || address != base)
        return flyt_error_set(err, -EADDRINUSE,
                              "device %u: the address window at 0x%llx cannot be reserved, cuda_result=%d",
                              device->ordinal, (unsigned long long)base, (int)result);
    if (flyt_allocator_add(&memory->addresses, base, FLYT_WINDOW_BYTES) != 0)
        return flyt_error_set(err, -ENOMEM, "device %u: out of host memory", device->ordinal);
    return 0;
}

/* ---- extents ---- */

CUresult flyt_memory_allow(struct flyt_device *device, uint64_t address, uint64_t bytes)
{
    struct flyt_session *session = device->session;
    CUmemAccessDesc access[FLYT_DEVICES_MAX];
    size_t count = 0;
    for (unsigned i = 0; i < session->device_count; i++)
        if (i == device->ordinal || device->peer_mask & 1u << i)
            access[count++] = (CUmemAccessDesc){
                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = session->devices[i].cu_device},
                .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return session->driver->cuMemSetAccess(address, bytes, access, count);
}

/* What all memory of the GPU is made for: decompression, where the GPU has that. */
static unsigned short usage_of(const struct flyt_driver *driver, CUdevice cu_device)
{
    int mask = 0;
    CUresult result = driver->cuDeviceGetAttribute(&mask, CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK, cu_device);
    return result == CUDA_SUCCESS && mask ? CU_MEM_CREATE_USAGE_HW_DECOMPRESS : 0;
}

CUresult flyt_memory_create(const struct flyt_driver *driver, CUdevice cu_device, uint64_t bytes,
                            CUmemGenericAllocationHandle *ret_handle)
{
    CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = cu_device},
        .allocFlags = {.usage = usage_of(driver, cu_device)},
    };
    CUresult result = driver->cuMemCreate(ret_handle, bytes, &properties, 0);
    /* A driver may not make it exportable and for decompression in one: then it is not for that. */
    bool is_refused = result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_NOT_SUPPORTED;
    if (!is_refused || !properties.allocFlags.usage)
        return result;
    properties.allocFlags.usage = 0;
    return driver->cuMemCreate(ret_handle, bytes, &properties, 0);
}

/* Creates physical memory and maps it at the address. On failure nothing is left behind. */
static CUresult create(struct flyt_device *device, struct flyt_extent *extent)
{
    const struct flyt_driver *driver = device->session->driver;
    CUresult result = flyt_memory_create(driver, device->cu_device, extent->bytes, &extent->handle);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver->cuMemMap(extent->address, extent->bytes, 0, extent->handle, 0);
    if (result == CUDA_SUCCESS) {
        result = flyt_memory_allow(device, extent->address, extent->bytes);
        if (result == CUDA_SUCCESS)
            return CUDA_SUCCESS;
        driver->cuMemUnmap(extent->address, extent->bytes);
    }
    driver->cuMemRelease(extent->handle);
    return result;
}

/* The same with its charge. is_last_try: as flyt_account_charge. */
static CUresult map(struct flyt_device *device, struct flyt_extent *extent, bool is_last_try)
{
    CUresult result = flyt_account_charge(device, extent->bytes, is_last_try);
    if (result != CUDA_SUCCESS)
        return result;
    result = create(device, extent);
    if (result == CUDA_SUCCESS)
        extent->extent_id = flyt_account_tell_extent(device, 0, extent->address, extent->bytes, extent->handle);
    else
        flyt_account_uncharge(device, extent->bytes);
    return result;
}

static void unmap(struct flyt_device *device, const struct flyt_extent *extent)
{
    const struct flyt_driver *driver = device->session->driver;
    device->session->observer->extent_gone(device->session, extent->extent_id);
    CUresult result = driver->cuMemUnmap(extent->address, extent->bytes);
    if (result == CUDA_SUCCESS)
        result = driver->cuMemRelease(extent->handle);
    /* What the driver has not taken back is still in use, and charged. */
    if (result == CUDA_SUCCESS)
        flyt_account_drop_extent(device, extent->extent_id, extent->address, extent->bytes);
    flyt_session_check(device->session, result);
}

/* Nothing of an extent that cannot be cleared is used. */
static CUresult clear(struct flyt_device *device, struct flyt_extent *extent)
{
    CUresult result = flyt_scrub_begin(device, extent->address, extent->bytes, &extent->cleared);
    if (result == CUDA_SUCCESS)
        return CUDA_SUCCESS;
    flyt_allocator_remove(extent->arena, extent->address, extent->bytes);
    unmap(device, extent);
    return result;
}

bool flyt_extent_is_clear(struct flyt_extent *extent)
{
    if (flyt_fence_poll(extent->cleared) != CUDA_SUCCESS)
        return false;
    extent->cleared = flyt_fence_unref(extent->cleared);
    return true;
}

/* Nothing depends on it: where it cannot be, the program's memory comes first. */
static void make_pad(struct flyt_device *device)
{
    const struct flyt_driver *driver = device->session->driver;
    struct flyt_memory *memory = device->memory;
    struct flyt_extent pad = {.address = flyt_window_base(device->ordinal), .bytes = FLYT_GRANULE_BYTES};
    if (memory->is_pad_tried || !device->session->has_pads)
        return;
    memory->is_pad_tried = true;
    if (flyt_allocator_take_at(&memory->addresses, pad.address, pad.bytes) != 0)
        return;
    if (create(device, &pad) == CUDA_SUCCESS) {
        /* Nobody reads what another has left there. */
        if (flyt_scrub_begin(device, pad.address, pad.bytes, &memory->pad_cleared) == CUDA_SUCCESS)
            return;
        driver->cuMemUnmap(pad.address, pad.bytes);
        driver->cuMemRelease(pad.handle);
    }
    flyt_allocator_free(&memory->addresses, pad.address);
}

/* Maps a new extent of `bytes`, multiples of the granule, and gives it to the arena, being cleared. */
static CUresult grow(struct flyt_device *device, struct flyt_allocator *arena, uint64_t bytes, bool is_last_try)
{
    struct flyt_memory *memory = device->memory;
    if (!flyt_scrub_has_room(device))
        return CUDA_ERROR_NOT_READY;
    make_pad(device);
    struct flyt_extent *extent = calloc(1, sizeof *extent);
    if (!extent || memory->extent_count >= FLYT_EXTENTS_MAX ||
        flyt_allocator_take(&memory->addresses, bytes, &extent->address) != 0) {
        free(extent);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    extent->bytes = bytes;
    extent->arena = arena;
    CUresult result = map(device, extent, is_last_try);
    if (result == CUDA_SUCCESS && flyt_allocator_add(arena, extent->address, bytes) != 0) {
        unmap(device, extent);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    } else if (result == CUDA_SUCCESS) {
        result = clear(device, extent);
    }
    if (result != CUDA_SUCCESS) {
        flyt_allocator_free(&memory->addresses, extent->address);
        free(extent);
        return result;
    }
    extent->next = memory->extents;
    memory->extents = extent;
    memory->extent_count++;
    memory->extent_bytes += bytes;
    return CUDA_SUCCESS;
}

/* Whether the extent is free, and nothing reads it any more. */
static bool can_go(struct flyt_device *device, struct flyt_extent *extent)
{
    if (!extent->arena || !flyt_extent_is_clear(extent) ||
        !flyt_allocator_is_free(extent->arena, extent->address, extent->bytes))
        return false;
    bool is_let_go = device->session->observer->extent_leaving(device, extent);
    device->memory->is_copied |= !is_let_go;
    return is_let_go;
}

/* Free, in extents that are divided. */
static uint64_t divided_bytes(const struct flyt_memory *memory)
{
    return memory->small.free_bytes + memory->large.free_bytes;
}

/* Gives free extents back to the driver until at most kept_bytes of mapped memory are free. None of those that are not
 * divided is kept. */
static void shrink(struct flyt_device *device, uint64_t kept_bytes)
{
    struct flyt_memory *memory = device->memory;
    memory->is_copied = false;
    for (struct flyt_extent **link = &memory->extents; *link;) {
        struct flyt_extent *extent = *link;
        const bool is_kept = extent->arena != &memory->whole && divided_bytes(memory) <= kept_bytes;
        if (is_kept || !can_go(device, extent) ||
            flyt_allocator_remove(extent->arena, extent->address, extent->bytes) != 0) {
            link = &extent->next;
            continue;
        }
        unmap(device, extent);
        flyt_allocator_free(&memory->addresses, extent->address);
        *link = extent->next;
        memory->extent_count--;
        memory->extent_bytes -= extent->bytes;
        free(extent);
    }
}

static CUresult set_access(const struct flyt_device *device, const struct flyt_extent *extent,
                           const struct flyt_device *peer, bool is_enabled)
{
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = peer->cu_device},
                                    .flags = is_enabled ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                                        : CU_MEM_ACCESS_FLAGS_PROT_NONE};
    return device->session->driver->cuMemSetAccess(extent->address, extent->bytes, &access, 1);
}

/* All that the driver takes: who has no access in the books, here and at the client, is to have as little as can be. */
static CUresult take_access(const struct flyt_device *device, const struct flyt_extent *first,
                            const struct flyt_device *peer)
{
    CUresult result = CUDA_SUCCESS;
    for (const struct flyt_extent *extent = first; extent; extent = extent->next) {
        CUresult one = set_access(device, extent, peer, false);
        if (result == CUDA_SUCCESS)
            result = one;
    }
    return result;
}

static CUresult take_all_access(const struct flyt_device *device, const struct flyt_device *peer)
{
    CUresult result = take_access(device, device->memory->extents, peer);
    CUresult of_imports = take_access(device, device->memory->imports, peer);
    return result == CUDA_SUCCESS ? of_imports : result;
}

static CUresult give_access(const struct flyt_device *device, const struct flyt_extent *first,
                            const struct flyt_device *peer)
{
    CUresult result = CUDA_SUCCESS;
    for (const struct flyt_extent *extent = first; extent && result == CUDA_SUCCESS; extent = extent->next)
        result = set_access(device, extent, peer, true);
    return result;
}

CUresult flyt_memory_set_peer(struct flyt_device *device, const struct flyt_device *peer, bool is_enabled)
{
    uint32_t bit = 1u << peer->ordinal;
    device->peer_mask &= ~bit;
    if (!is_enabled)
        return take_all_access(device, peer);
    CUresult result = give_access(device, device->memory->extents, peer);
    if (result == CUDA_SUCCESS)
        result = give_access(device, device->memory->imports, peer);
    if (result == CUDA_SUCCESS)
        device->peer_mask |= bit;
    else
        take_all_access(device, peer);
    return result;
}

/* ---- allocations ---- */

static uint64_t round_up(uint64_t bytes, uint64_t quantum_bytes)
{
    return (bytes + quantum_bytes - 1) / quantum_bytes * quantum_bytes;
}

/* How much to map for a request that no free range can take: the more, the more is mapped already, so that any number
 * of allocations takes few extents. */
static uint64_t extent_bytes(const struct flyt_memory *memory, const struct flyt_allocator *arena, uint64_t bytes)
{
    bool is_large = arena == &memory->large;
    uint64_t share = arena->total_bytes / (is_large ? 32 : 4);
    uint64_t share_max = is_large ? FLYT_CACHED_BYTES_MAX / 4 : 32 * FLYT_GRANULE_BYTES;
    uint64_t wanted = share < share_max ? share : share_max;
    return round_up(bytes > wanted ? bytes : wanted, FLYT_GRANULE_BYTES);
}

/* Mapped, and the program's no more. */
static uint64_t cached_bytes(const struct flyt_memory *memory)
{
    return divided_bytes(memory) + memory->whole.free_bytes + memory->pending_bytes;
}

static void tell_cached(struct flyt_device *device)
{
    flyt_account_set_cached(device, cached_bytes(device->memory));
}

/* Whether memory that was freed is still to be given back. */
static bool is_more_to_come(const struct flyt_memory *memory)
{
    return memory->pending_first || memory->is_copied;
}

static CUresult take_or_grow(struct flyt_device *device, uint64_t bytes, uint64_t *ret_address)
{
    struct flyt_memory *memory = device->memory;
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes > FLYT_WINDOW_BYTES)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct flyt_allocator *arena = bytes <= FLYT_SMALL_BYTES_MAX ? &memory->small : &memory->large;
    if (memory->pending_first)
        flyt_memory_reap(device);
    if (flyt_allocator_take(arena, bytes, ret_address) == 0)
        return CUDA_SUCCESS;
    CUresult result = grow(device, arena, extent_bytes(memory, arena, bytes), false);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        shrink(device, 0);
        result = grow(device, arena, round_up(bytes, FLYT_GRANULE_BYTES), !is_more_to_come(memory));
    }
    if (result == CUDA_ERROR_OUT_OF_MEMORY && is_more_to_come(memory))
        return CUDA_ERROR_NOT_READY;
    if (result != CUDA_SUCCESS)
        return result;
    return flyt_allocator_take(arena, bytes, ret_address) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult flyt_memory_alloc(struct flyt_device *device, uint64_t bytes, uint64_t *ret_address)
{
    CUresult result = take_or_grow(device, bytes, ret_address);
    tell_cached(device);
    return result;
}

CUresult flyt_memory_reserve(struct flyt_device *device, uint64_t bytes)
{
    const struct flyt_memory *memory = device->memory;
    CUresult result = flyt_account_reserve(device, bytes, false);
    if (result != CUDA_ERROR_OUT_OF_MEMORY)
        return result;
    flyt_memory_give_back(device, false);
    result = flyt_account_reserve(device, bytes, !is_more_to_come(memory));
    return result == CUDA_ERROR_OUT_OF_MEMORY && is_more_to_come(memory) ? CUDA_ERROR_NOT_READY : result;
}

static struct flyt_allocator *arena_of(struct flyt_memory *memory, uint64_t address, uint64_t *ret_address,
                                       uint64_t *ret_bytes)
{
    if (flyt_allocator_find(&memory->small, address, ret_address, ret_bytes))
        return &memory->small;
    return flyt_allocator_find(&memory->large, address, ret_address, ret_bytes) ? &memory->large : NULL;
}

CUresult flyt_memory_free(struct flyt_device *device, uint64_t address, uint64_t sequence)
{
    struct flyt_memory *memory = device->memory;
    uint64_t start, bytes;
    struct flyt_allocator *arena = arena_of(memory, address, &start, &bytes);
    if (!arena || start != address)
        return CUDA_ERROR_INVALID_VALUE;
    struct flyt_pending_free *pending = calloc(1, sizeof *pending);
    if (!pending)
        return CUDA_ERROR_OUT_OF_MEMORY;
    /* Any stream's work may use the memory, that of peers included. */
    CUresult result = flyt_stream_mark_busy(device->session, NULL, &pending->work);
    if (result != CUDA_SUCCESS) {
        flyt_fence_set_fini(&pending->work);
        free(pending);
        return result;
    }
    if (memory->freed)
        memory->freed(device, address, bytes);
    flyt_allocator_retire(arena, address, &bytes);
    pending->arena = arena;
    pending->address = address;
    pending->bytes = bytes;
    pending->sequence = sequence;
    *(memory->pending_first ? &memory->pending_last->next : &memory->pending_first) = pending;
    memory->pending_last = pending;
    memory->pending_bytes += bytes;
    flyt_memory_reap(device);
    return CUDA_SUCCESS;
}

void flyt_memory_reap(struct flyt_device *device)
{
    struct flyt_memory *memory = device->memory;
    struct flyt_pending_free *pending;
    while ((pending = memory->pending_first)) {
        /* Of a session that is fatal it stays until the process ends: what used it is not known to be done. */
        if (flyt_fence_set_poll(&pending->work) != CUDA_SUCCESS)
            break;
        flyt_allocator_free(pending->arena, pending->address);
        memory->pending_bytes -= pending->bytes;
        memory->pending_first = pending->next;
        flyt_fence_set_fini(&pending->work);
        free(pending);
    }
    if (memory->is_sinking)
        memory->is_sinking = flyt_account_over(device) > 0;
    uint64_t kept_bytes = memory->is_sinking ? 0 : FLYT_CACHED_BYTES_MAX;
    if (memory->whole.free_bytes || divided_bytes(memory) > kept_bytes)
        shrink(device, kept_bytes);
    tell_cached(device);
}

bool flyt_memory_is_freeing(const struct flyt_device *device, uint64_t before_sequence)
{
    /* Calls that free are executed in their order (they come after all), so the list is in it, too. */
    const struct flyt_pending_free *pending = device->memory->pending_first;
    return (pending && pending->sequence < before_sequence) ||
           flyt_defer_has(device->session, FLYT_MEMORY_FREE, before_sequence);
}

void flyt_memory_give_back(struct flyt_device *device, bool when_free)
{
    device->memory->is_sinking |= when_free;
    flyt_memory_reap(device);
    shrink(device, 0);
    tell_cached(device);
}

void flyt_memory_tell_over_budget(struct flyt_device *device)
{
    const struct flyt_session *session = device->session;
    flyt_back_over_budget over = {.device = (unsigned)(device - session->devices), .bytes = flyt_account_over(device)};
    if (device->is_budget_watched && over.bytes)
        flyt_connection_call_back(session->connection, FLYT_BACK_OVER_BUDGET, (xdrproc_t)xdr_flyt_back_over_budget,
                                  &over);
}

void flyt_memory_settle(struct flyt_device *device)
{
    if (device->memory->is_sinking)
        flyt_memory_reap(device);
    flyt_account_settle(device);
}

void flyt_memory_tell_extents(struct flyt_device *device, bool holds_nothing)
{
    /* Also those that it was told of: what was under way when it ended may never have been read. */
    for (struct flyt_extent *extent = device->memory->extents; extent; extent = extent->next)
        extent->extent_id =
            flyt_account_tell_extent(device, extent->extent_id, extent->address, extent->bytes, extent->handle);
    flyt_account_retell_debts(device, holds_nothing);
}

static void drop_pending(struct flyt_memory *memory)
{
    struct flyt_pending_free *pending;
    while ((pending = memory->pending_first)) {
        memory->pending_first = pending->next;
        flyt_fence_set_fini(&pending->work);
        free(pending);
    }
    memory->pending_bytes = 0;
}

static void forget_given(struct flyt_memory *memory)
{
    free(memory->given);
    memory->given = NULL;
    memory->given_count = 0;
}

void flyt_memory_reset(struct flyt_device *device)
{
    struct flyt_memory *memory = device->memory;
    drop_pending(memory);
    forget_given(memory);
    flyt_allocator_fini(&memory->small);
    flyt_allocator_fini(&memory->large);
    for (struct flyt_extent **link = &memory->extents, *extent; (extent = *link);) {
        if (extent->arena == &memory->whole) {
            link = &extent->next;
            continue;
        }
        *link = extent->next;
        memory->extent_count--;
        memory->extent_bytes -= extent->bytes;
        flyt_fence_unref(extent->cleared);
        unmap(device, extent);
        flyt_allocator_free(&memory->addresses, extent->address);
        free(extent);
    }
    tell_cached(device);
}

void flyt_memory_fini(struct flyt_device *device)
{
    struct flyt_memory *memory = device->memory;
    drop_pending(memory);
    flyt_allocator_fini(&memory->small);
    flyt_allocator_fini(&memory->large);
    flyt_allocator_fini(&memory->whole);
    flyt_allocator_fini(&memory->imported);
    flyt_allocator_fini(&memory->addresses);
    flyt_account_fini(device);
    flyt_fence_unref(memory->pad_cleared);
    struct flyt_extent *extent;
    while ((extent = memory->extents)) {
        memory->extents = extent->next;
        flyt_fence_unref(extent->cleared);
        free(extent);
    }
    forget_given(memory);
}

CUresult flyt_memory_info(struct flyt_device *device, uint64_t *ret_free_bytes, uint64_t *ret_total_bytes)
{
    struct flyt_memory *memory = device->memory;
    size_t free_bytes, total_bytes;
    flyt_memory_reap(device);
    CUresult result = device->session->driver->cuMemGetInfo(&free_bytes, &total_bytes);
    if (result != CUDA_SUCCESS)
        return result;
    *ret_free_bytes = flyt_account_left(device, free_bytes, cached_bytes(memory));
    *ret_total_bytes = flyt_account_total(device, total_bytes);
    return CUDA_SUCCESS;
}

/* A range outside of the window: module variables, which the driver places. It must say itself that it is device
 * memory: an address of this process must never be taken for one. */
static bool is_variable(struct flyt_session *session, uint64_t address, uint64_t bytes, struct flyt_device **ret_device)
{
    const struct flyt_driver *driver = session->driver;
    unsigned type = 0, ordinal = 0;
    CUdeviceptr start = 0;
    size_t range_bytes = 0;
    if (driver->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) != CUDA_SUCCESS ||
        type != CU_MEMORYTYPE_DEVICE ||
        driver->cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) != CUDA_SUCCESS ||
        driver->cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address) != CUDA_SUCCESS ||
        driver->cuPointerGetAttribute(&range_bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address) != CUDA_SUCCESS)
        return false;
    unsigned i = 0;
    while (i < session->device_count && session->devices[i].cu_device != (CUdevice)ordinal)
        i++;
    if (i == session->device_count || address < start || address - start > range_bytes ||
        bytes > range_bytes - (address - start))
        return false;
    if (!flyt_constant_find(session, address)) {
        session->observer->used(session, FLYT_USE_ADDRESS);
        session->observer->address_used(session, address);
    }
    *ret_device = &session->devices[i];
    return true;
}

bool flyt_memory_covers(struct flyt_session *session, uint64_t address, uint64_t bytes, struct flyt_device **ret_device)
{
    int ordinal = flyt_window_device(address);
    if (flyt_virtual_has(address, 1))
        return flyt_mappings_cover(session, address, bytes, ret_device);
    if (ordinal < 0)
        return is_variable(session, address, bytes, ret_device);
    if ((unsigned)ordinal >= session->device_count)
        return false;
    struct flyt_device *device = &session->devices[ordinal];
    uint64_t start, block_bytes;
    bool is_found = arena_of(device->memory, address, &start, &block_bytes) ||
                    flyt_allocator_find(&device->memory->imported, address, &start, &block_bytes);
    if (!is_found || bytes > block_bytes - (address - start))
        return false;
    *ret_device = device;
    return true;
}

bool flyt_memory_has(const struct flyt_device *device, uint64_t address)
{
    uint64_t start, bytes;
    return arena_of(device->memory, address, &start, &bytes) ||
           flyt_allocator_find(&device->memory->whole, address, &start, &bytes);
}

/* ---- physical memory ---- */

static CUresult grow_whole(struct flyt_device *device, uint64_t bytes)
{
    struct flyt_memory *memory = device->memory;
    if (bytes > FLYT_WINDOW_BYTES)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = grow(device, &memory->whole, bytes, false);
    if (result != CUDA_ERROR_OUT_OF_MEMORY)
        return result;
    flyt_memory_give_back(device, false);
    result = grow(device, &memory->whole, bytes, !is_more_to_come(memory));
    return result == CUDA_ERROR_OUT_OF_MEMORY && is_more_to_come(memory) ? CUDA_ERROR_NOT_READY : result;
}

CUresult flyt_memory_create_whole(struct flyt_device *device, uint64_t sequence, uint64_t bytes,
                                  struct flyt_extent **ret_extent)
{
    struct flyt_memory *memory = device->memory;
    memory->attempt = sequence;
    CUresult result = grow_whole(device, bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && flyt_defer_has(device->session, FLYT_MEMORY_FREE, sequence))
        result = CUDA_ERROR_NOT_READY;
    if (result == CUDA_SUCCESS &&
        flyt_allocator_take_at(&memory->whole, memory->extents->address, memory->extents->bytes) != 0)
        result = CUDA_ERROR_OUT_OF_MEMORY; /* and the extent, which is free, goes with the next that is */
    if (result == CUDA_SUCCESS)
        *ret_extent = memory->extents;
    tell_cached(device);
    return result;
}

void flyt_memory_free_whole(struct flyt_device *device, const struct flyt_extent *extent)
{
    if (device->memory->freed)
        device->memory->freed(device, extent->address, extent->bytes);
    flyt_allocator_free(&device->memory->whole, extent->address);
    flyt_memory_reap(device);
}

/* ---- calls ---- */

/* An allocation that must wait for freed memory: for work that may still use it, or for a call that frees some and
 * waits itself. */
struct alloc_job {
    struct flyt_job job;
    struct flyt_device *device;
    uint64_t bytes, address;
};

/* `sequence` is that of the call: what frees memory before it must be waited for, as CUDA's own functions do. */
static CUresult try_alloc(struct flyt_device *device, uint64_t sequence, uint64_t bytes, uint64_t *ret_address)
{
    device->memory->attempt = sequence;
    CUresult result = flyt_memory_alloc(device, bytes, ret_address);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && flyt_defer_has(device->session, FLYT_MEMORY_FREE, sequence))
        return CUDA_ERROR_NOT_READY;
    return result;
}

static CUresult alloc_advance(struct flyt_job *job)
{
    struct alloc_job *self = (struct alloc_job *)job;
    if (job->session->fatal != CUDA_SUCCESS)
        return job->session->fatal;
    CUresult result = flyt_device_use(self->device);
    return result == CUDA_SUCCESS ? try_alloc(self->device, job->sequence, self->bytes, &self->address) : result;
}

static void alloc_finish(struct flyt_job *job, CUresult result)
{
    struct alloc_job *self = (struct alloc_job *)job;
    flyt_memory_alloc_res res = {.address = self->address};
    flyt_job_reply_with(job, result, &res, sizeof res);
}

static const struct flyt_job_ops alloc_ops = {alloc_advance, alloc_finish, NULL};

CUresult flyt_serve_memory_alloc(struct flyt_call *call, const flyt_memory_alloc_args *args, flyt_memory_alloc_res *res)
{
    struct flyt_device *device;
    CUresult result = flyt_session_use_device(call->session, args->device, &device);
    if (result == CUDA_SUCCESS)
        result = try_alloc(device, call->sequence, args->bytes, &res->address);
    if (result != CUDA_ERROR_NOT_READY)
        return result;
    struct alloc_job *self = calloc(1, sizeof *self);
    if (!self)
        return CUDA_ERROR_OUT_OF_MEMORY;
    self->device = device;
    self->bytes = args->bytes;
    flyt_job_start(&self->job, &alloc_ops, call, NULL);
    return FLYT_CALL_STARTED;
}

CUresult flyt_serve_memory_free(struct flyt_call *call, const flyt_memory_free_args *args)
{
    int ordinal = flyt_window_device(args->address);
    if (ordinal < 0 || (unsigned)ordinal >= call->session->device_count)
        return CUDA_ERROR_INVALID_VALUE;
    return flyt_memory_free(&call->session->devices[ordinal], args->address, call->sequence);
}

CUresult flyt_serve_device_memory_info(struct flyt_call *call, const flyt_device_memory_info_args *args,
                                       flyt_device_memory_info_res *res)
{
    struct flyt_device *device;
    CUresult result = flyt_session_use_device(call->session, args->device, &device);
    return result == CUDA_SUCCESS ? flyt_memory_info(device, &res->free_bytes, &res->total_bytes) : result;
}
