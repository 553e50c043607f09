/* Device memory by cuMemAlloc, page-locked and registered host memory. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cpu/softgpu/driver/driver.h"
#include "cpu/softgpu/driver/managed.h"
#include "cpu/softgpu/driver/queue.h"

enum {
    PITCH_ALIGN = 512,
    HOST_ALIGN = 4096,
    HOST_ALLOC_FLAGS = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED,
    HOST_REGISTER_FLAGS = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP,
};

/* A range's owner word holds the flags that the memory was made with. */
static void *flags_owner(unsigned flags)
{
    return (void *)(uintptr_t)flags;
}

/* ---- device memory ---- */

FLYT_SOFT_API cuMemGetInfo(size_t *free, size_t *total)
{
    struct CUctx_st *ctx;
    CUresult r = flyt_soft_enter(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (!free || !total)
        return CUDA_ERROR_INVALID_VALUE;
    *total = ctx->device->map.total_bytes;
    *free = *total - atomic_load(&ctx->device->map.used_bytes);
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuMemAlloc(CUdeviceptr *dptr, size_t bytesize)
{
    struct CUctx_st *ctx;
    uint64_t address;
    CUresult r = flyt_soft_enter(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (!dptr || !bytesize)
        return CUDA_ERROR_INVALID_VALUE;
    r = flyt_soft_pool_alloc(&ctx->device->map.alloc, bytesize, FLYT_SOFT_ALLOC_ALIGN, NULL, &address);
    if (r == CUDA_SUCCESS)
        *dptr = address;
    return r;
}

FLYT_SOFT_API cuMemAllocPitch(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
                              unsigned int ElementSizeBytes)
{
    size_t pitch_bytes = (WidthInBytes + PITCH_ALIGN - 1) & ~(size_t)(PITCH_ALIGN - 1);
    size_t total_bytes;
    CUresult r;

    if (!pPitch || !WidthInBytes || !Height ||
        (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16) || pitch_bytes < WidthInBytes ||
        __builtin_mul_overflow(pitch_bytes, Height, &total_bytes))
        return CUDA_ERROR_INVALID_VALUE;
    r = cuMemAlloc(dptr, total_bytes);
    if (r == CUDA_SUCCESS)
        *pPitch = pitch_bytes;
    return r;
}

/* Waits for all work of the device, as CUDA does: what still uses the memory is done with it. */
FLYT_SOFT_API cuMemFree(CUdeviceptr dptr)
{
    struct CUctx_st *ctx;
    struct flyt_soft_device *device;
    uint64_t start, bytes;
    CUresult r = flyt_soft_enter_broken(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (!dptr)
        return flyt_soft_leave(ctx, CUDA_SUCCESS);
    device = flyt_soft_alloc_device(dptr);
    if (!device && !flyt_soft_managed_find(dptr, &start, &bytes, &device))
        return CUDA_ERROR_INVALID_VALUE;
    flyt_soft_device_drain(ctx->device);
    if (flyt_soft_managed_free(dptr))
        return flyt_soft_leave(ctx, CUDA_SUCCESS);
    return flyt_soft_leave(ctx, flyt_soft_pool_free(&device->map.alloc, dptr));
}

FLYT_SOFT_API cuMemGetAddressRange(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
    struct flyt_soft_driver *driver = flyt_soft_driver();
    struct CUctx_st *ctx;
    struct flyt_soft_device *device;
    struct flyt_soft_range found = {0};
    const struct flyt_soft_range *mapping;
    CUresult r = flyt_soft_enter(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    device = flyt_soft_alloc_device(dptr);
    if (flyt_soft_managed_find(dptr, &found.start, &found.asked_bytes, &device)) {
        found.bytes = found.asked_bytes;
    } else if (!device || !flyt_soft_pool_find(&device->map.alloc, dptr, &found)) {
        pthread_mutex_lock(&driver->mutex);
        mapping = flyt_soft_ranges_find(&driver->space.mappings, dptr);
        if (mapping)
            found = *mapping;
        pthread_mutex_unlock(&driver->mutex);
    }
    if (!found.bytes)
        return CUDA_ERROR_NOT_FOUND;
    if (pbase)
        *pbase = found.start;
    if (psize)
        *psize = found.asked_bytes;
    return CUDA_SUCCESS;
}

/* ---- host memory ---- */

FLYT_SOFT_API cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
    struct CUctx_st *ctx;
    uint64_t address;
    CUresult r = flyt_soft_enter(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (!pp || !bytesize || Flags & ~(unsigned)HOST_ALLOC_FLAGS)
        return CUDA_ERROR_INVALID_VALUE;
    /* With unified addressing host memory is mapped, asked for or not. */
    r = flyt_soft_pool_alloc(&flyt_soft_driver()->space.host, bytesize, HOST_ALIGN,
                             flags_owner(Flags | CU_MEMHOSTALLOC_DEVICEMAP), &address);
    if (r == CUDA_SUCCESS)
        *pp = (void *)address;
    return r;
}

FLYT_SOFT_API cuMemAllocHost(void **pp, size_t bytesize)
{
    return cuMemHostAlloc(pp, bytesize, 0);
}

/* It lies among the page-locked memory, and is none. */
static bool is_managed(uint64_t address)
{
    struct flyt_soft_device *device;
    uint64_t start, bytes;

    return flyt_soft_managed_find(address, &start, &bytes, &device);
}

FLYT_SOFT_API cuMemFreeHost(void *p)
{
    struct CUctx_st *ctx;
    CUresult r = flyt_soft_enter_broken(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (!p)
        return flyt_soft_leave(ctx, CUDA_SUCCESS);
    if (is_managed((uint64_t)p))
        return CUDA_ERROR_INVALID_VALUE;
    flyt_soft_device_drain(ctx->device);
    return flyt_soft_leave(ctx, flyt_soft_pool_free(&flyt_soft_driver()->space.host, (uint64_t)p));
}

/* Whether the process may write all pages of a range. */
static bool is_writable(uint64_t start, uint64_t bytes)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), first = start & ~(page - 1);

    return !madvise((void *)first, (start + bytes - first + page - 1) & ~(page - 1), MADV_POPULATE_WRITE);
}

/*
 * Whether the program may register [start, start + bytes): memory of its own. In the span of device addresses that is
 * only what it has put into the last part; as with NVIDIA's driver also in place of what it has reserved there, where
 * nothing is mapped.
 */
static CUresult register_check_locked(const struct flyt_soft_space *space, uint64_t start, uint64_t bytes)
{
    uint64_t last = start + bytes - 1;

    if (start - FLYT_SOFT_HOST_BASE < FLYT_SOFT_HOST_BYTES || last - FLYT_SOFT_HOST_BASE < FLYT_SOFT_HOST_BYTES ||
        flyt_soft_ranges_find_any(&space->registered, start, bytes))
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    if (start < FLYT_SOFT_FIXED_BASE && last >= FLYT_SOFT_SPAN_BASE)
        return CUDA_ERROR_INVALID_VALUE;
    return flyt_soft_ranges_find_any(&space->mappings, start, bytes) ||
                   (flyt_soft_ranges_find_any(&space->fixed, start, bytes) && !is_writable(start, bytes))
               ? CUDA_ERROR_INVALID_VALUE
               : CUDA_SUCCESS;
}

static void allow_all_locked(uint64_t start, uint64_t bytes, uint8_t access)
{
    struct flyt_soft_driver *driver = flyt_soft_driver();

    for (unsigned i = 0; i < driver->device_count; i++)
        flyt_soft_map_allow(&driver->devices[i].map, start, bytes, access);
}

/* Whether the process has memory all over a granule: device code that goes astray there must not end it. */
static bool is_all_there(uint64_t granule)
{
    unsigned char pages[FLYT_SOFT_GRANULE_BYTES / 4096];

    return !mincore((void *)granule, FLYT_SOFT_GRANULE_BYTES, pages);
}

/*
 * Registered memory can be copied to and from like page-locked memory. Device code can use it in the address span, by
 * granules: what shares one with it, in the part of the span that is the program's own, it can use as well.
 */
static void map_registered_locked(uint64_t start, uint64_t bytes, bool is_on)
{
    const struct flyt_soft_space *space = &flyt_soft_driver()->space;
    const uint64_t end = start + bytes, mask = FLYT_SOFT_GRANULE_BYTES - 1;

    if (!flyt_soft_is_in_span(start) || !flyt_soft_is_in_span(end - 1))
        return;
    for (uint64_t granule = start & ~mask; granule < end; granule += FLYT_SOFT_GRANULE_BYTES) {
        bool is_whole = granule >= start && FLYT_SOFT_GRANULE_BYTES <= end - granule;
        if (is_on && (is_whole || is_all_there(granule)))
            allow_all_locked(granule, FLYT_SOFT_GRANULE_BYTES, FLYT_SOFT_ACCESS_READ_WRITE);
        else if (!is_on && !flyt_soft_ranges_find_any(&space->registered, granule, FLYT_SOFT_GRANULE_BYTES))
            allow_all_locked(granule, FLYT_SOFT_GRANULE_BYTES, FLYT_SOFT_ACCESS_NONE);
    }
}

FLYT_SOFT_API cuMemHostRegister(void *p, size_t bytesize, unsigned int Flags)
{
    struct flyt_soft_driver *driver = flyt_soft_driver();
    struct CUctx_st *ctx;
    struct flyt_soft_range *range;
    uint64_t start = (uint64_t)p;
    CUresult r = flyt_soft_enter(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (!p || !bytesize || start + bytesize < start)
        return CUDA_ERROR_INVALID_VALUE;
    if (Flags & (CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (Flags & ~(unsigned)HOST_REGISTER_FLAGS)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver->mutex);
    r = register_check_locked(&driver->space, start, bytesize);
    if (r == CUDA_SUCCESS && flyt_soft_ranges_take_at(&driver->space.registered, start, bytesize, &range) < 0)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS) {
        range->owner = flags_owner(Flags);
        map_registered_locked(start, bytesize, true);
    }
    pthread_mutex_unlock(&driver->mutex);
    return r;
}

FLYT_SOFT_API cuMemHostUnregister(void *p)
{
    struct flyt_soft_driver *driver = flyt_soft_driver();
    struct CUctx_st *ctx;
    struct flyt_soft_range *range;
    uint64_t hole_start, hole_bytes;
    CUresult r = flyt_soft_enter(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    flyt_soft_device_drain(ctx->device);
    pthread_mutex_lock(&driver->mutex);
    range = flyt_soft_ranges_find(&driver->space.registered, (uint64_t)p);
    if (!range || range->start != (uint64_t)p) {
        r = CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    } else {
        const uint64_t bytes = range->bytes;
        if (flyt_soft_ranges_give(&driver->space.registered, range, &hole_start, &hole_bytes) < 0)
            r = CUDA_ERROR_OUT_OF_MEMORY;
        else
            map_registered_locked((uint64_t)p, bytes, false);
    }
    pthread_mutex_unlock(&driver->mutex);
    return r;
}

/* The flags of page-locked or registered memory. False: neither. */
static bool find_host(const void *p, struct flyt_soft_range *ret_range)
{
    struct flyt_soft_driver *driver = flyt_soft_driver();
    const struct flyt_soft_range *range;

    if (flyt_soft_pool_find(&driver->space.host, (uint64_t)p, ret_range))
        return !is_managed((uint64_t)p);
    pthread_mutex_lock(&driver->mutex);
    range = flyt_soft_ranges_find(&driver->space.registered, (uint64_t)p);
    if (range)
        *ret_range = *range;
    pthread_mutex_unlock(&driver->mutex);
    return range != NULL;
}

FLYT_SOFT_API cuMemHostGetDevicePointer(CUdeviceptr *pdptr, void *p, unsigned int Flags)
{
    struct CUctx_st *ctx;
    struct flyt_soft_range range;
    CUresult r = flyt_soft_enter(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (!pdptr || Flags || !find_host(p, &range))
        return CUDA_ERROR_INVALID_VALUE;
    if (!flyt_soft_is_device_memory((uint64_t)p, 1))
        return CUDA_ERROR_NOT_SUPPORTED;
    *pdptr = (CUdeviceptr)p;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuMemHostGetFlags(unsigned int *pFlags, void *p)
{
    struct CUctx_st *ctx;
    struct flyt_soft_range range;
    CUresult r = flyt_soft_enter(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (!pFlags || !find_host(p, &range))
        return CUDA_ERROR_INVALID_VALUE;
    *pFlags = (unsigned)(uintptr_t)range.owner;
    return CUDA_SUCCESS;
}

/* ---- peers ---- */

/* All devices of a process share one address span; access by cuMemSetAccess is what counts, this only checks. */
FLYT_SOFT_API cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
    struct CUctx_st *ctx;
    CUresult r = flyt_soft_enter(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (Flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (!flyt_soft_is(peerContext, FLYT_SOFT_CONTEXT) || peerContext->device == ctx->device)
        return CUDA_ERROR_INVALID_CONTEXT;
    return CUDA_SUCCESS;
}
