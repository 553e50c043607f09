/*
 * The memory of a session that goes on at this server. Its extents are mapped before the client is there; nobody has
 * kept which of them was divided among small allocations. An extent never served both kinds, and the size of an
 * allocation tells its kind: so the first allocation in an extent tells that of the extent. One with no allocation in
 * it may become either.
 */
#include <errno.h>
#include <stdlib.h>

#include "cpu/server/cuda/allocator.h"
#include "cpu/server/core/device.h"
#include "cpu/server/cuda/memory.h"
#include "cpu/server/core/session.h"
#include "flyt_serve.h"
#include "rpc/base/id.h"

/* The first given extent that ends behind the address: its place among them. */
static unsigned place_of(const struct flyt_memory *memory, uint64_t address)
{
    unsigned low = 0, high = memory->given_count;
    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        const struct flyt_extent *extent = memory->given[middle];
        if (extent->address + extent->bytes <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Enters it into both lists. */
static void enter(struct flyt_memory *memory, struct flyt_extent *extent)
{
    unsigned place = place_of(memory, extent->address);
    for (unsigned i = memory->given_count++; i > place; i--)
        memory->given[i] = memory->given[i - 1];
    memory->given[place] = extent;
    extent->next = memory->extents;
    memory->extents = extent;
    memory->extent_count++;
    memory->extent_bytes += extent->bytes;
}

CUresult flyt_memory_adopt(struct flyt_device *device, uint64_t extent_id, uint64_t address, uint64_t bytes,
                           CUmemGenericAllocationHandle handle, bool is_mapped)
{
    struct flyt_memory *memory = device->memory;
    if (!memory->given)
        memory->given = calloc(FLYT_EXTENTS_MAX, sizeof(struct flyt_extent *));
    struct flyt_extent *extent = calloc(1, sizeof *extent);
    if (!extent || !memory->given || memory->given_count >= FLYT_EXTENTS_MAX ||
        memory->extent_count >= FLYT_EXTENTS_MAX) {
        free(extent);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *extent = (struct flyt_extent){
        .address = address, .bytes = bytes, .handle = handle, .extent_id = extent_id, .is_allowed = is_mapped};
    int status = flyt_allocator_take_at(&memory->addresses, address, bytes);
    CUresult result = CUDA_SUCCESS;
    if (status == 0 && !is_mapped)
        result = device->session->driver->cuMemMap(address, bytes, 0, handle, 0);
    if (status == 0 && result == CUDA_SUCCESS) {
        enter(memory, extent);
        return CUDA_SUCCESS;
    }
    if (status == 0)
        flyt_allocator_free(&memory->addresses, address);
    free(extent);
    if (status == 0)
        return result;
    return status == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
}

CUresult flyt_memory_allow_adopted(struct flyt_device *device)
{
    const struct flyt_memory *memory = device->memory;
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0, end; i < memory->given_count && result == CUDA_SUCCESS; i = end) {
        const uint64_t address = memory->given[i]->address;
        uint64_t bytes = memory->given[i]->bytes;
        for (end = i + 1; end < memory->given_count && memory->given[end]->address == address + bytes &&
                          memory->given[end]->is_allowed == memory->given[i]->is_allowed;
             end++)
            bytes += memory->given[end]->bytes;
        if (!memory->given[i]->is_allowed)
            result = flyt_memory_allow(device, address, bytes);
    }
    return result;
}

/* Whether the range lies in given extents, without a gap, that can be this arena's, and nothing is there. */
static bool is_room(const struct flyt_memory *memory, const struct flyt_allocator *arena, uint64_t address,
                    uint64_t bytes)
{
    const uint64_t end = address + bytes;
    for (unsigned i = place_of(memory, address); address < end; i++) {
        const struct flyt_extent *extent = i < memory->given_count ? memory->given[i] : NULL;
        if (!extent || extent->address > address || (extent->arena && extent->arena != arena))
            return false;
        uint64_t extent_end = extent->address + extent->bytes, part_end = extent_end < end ? extent_end : end;
        if (extent->arena && !flyt_allocator_is_free(arena, address, part_end - address))
            return false;
        address = part_end;
    }
    return true;
}

CUresult flyt_memory_restore(struct flyt_device *device, uint64_t address, uint64_t bytes)
{
    struct flyt_memory *memory = device->memory;
    struct flyt_allocator *arena = bytes <= FLYT_SMALL_BYTES_MAX ? &memory->small : &memory->large;
    if (!bytes || bytes > FLYT_WINDOW_BYTES || address % arena->quantum_bytes ||
        flyt_window_device(address) != (int)device->ordinal)
        return CUDA_ERROR_INVALID_VALUE;
    bytes = (bytes + arena->quantum_bytes - 1) / arena->quantum_bytes * arena->quantum_bytes;
    if (!is_room(memory, arena, address, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = place_of(memory, address); i < memory->given_count && memory->given[i]->address < address + bytes;
         i++) {
        struct flyt_extent *extent = memory->given[i];
        if (extent->arena)
            continue;
        if (flyt_allocator_add(arena, extent->address, extent->bytes) != 0)
            return CUDA_ERROR_OUT_OF_MEMORY;
        extent->arena = arena;
    }
    return flyt_allocator_take_at(arena, address, bytes) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult flyt_memory_restore_whole(struct flyt_device *device, uint64_t address, uint64_t bytes,
                                   struct flyt_extent **ret_extent)
{
    struct flyt_memory *memory = device->memory;
    const unsigned place = place_of(memory, address);
    struct flyt_extent *extent = place < memory->given_count ? memory->given[place] : NULL;
    if (!extent || extent->address != address || extent->bytes != bytes || extent->arena)
        return CUDA_ERROR_INVALID_VALUE;
    if (flyt_allocator_add(&memory->whole, address, bytes) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    extent->arena = &memory->whole;
    if (flyt_allocator_take_at(&memory->whole, address, bytes) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *ret_extent = extent;
    return CUDA_SUCCESS;
}

CUresult flyt_memory_settle_adopted(struct flyt_device *device)
{
    struct flyt_memory *memory = device->memory;
    for (unsigned i = 0; i < memory->given_count; i++) {
        struct flyt_extent *extent = memory->given[i];
        if (extent->arena)
            continue;
        if (flyt_allocator_add(&memory->large, extent->address, extent->bytes) != 0)
            return CUDA_ERROR_OUT_OF_MEMORY;
        extent->arena = &memory->large;
    }
    free(memory->given);
    memory->given = NULL;
    memory->given_count = 0;
    flyt_memory_reap(device);
    return CUDA_SUCCESS;
}
