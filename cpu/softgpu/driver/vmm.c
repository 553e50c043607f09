/* Virtual memory management: reservations, extents, mappings, and extents shared between processes. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cpu/softgpu/driver/driver.h"
#include "cpu/softgpu/driver/queue.h"

/* The name of an extent's memfd says what it is, of which device and for what: an importing process reads it back. */
#define EXTENT_NAME_FORMAT "flyt-softgpu-extent-%d-%u"
#define EXTENT_LINK_FORMAT "/memfd:" EXTENT_NAME_FORMAT

/* No one can take pages away from under a mapping. */
enum { EXTENT_SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

static bool is_granular(uint64_t n)
{
    return !(n & (FLYT_SOFT_GRANULE_BYTES - 1));
}

/* ---- reservations ---- */

/* The window that an address is reserved in; NULL: in none. */
static struct flyt_soft_ranges *window_of(struct flyt_soft_space *space, uint64_t address)
{
    if (address - FLYT_SOFT_FIXED_BASE < FLYT_SOFT_FIXED_BYTES)
        return &space->fixed;
    if (address - FLYT_SOFT_CHOSEN_BASE < FLYT_SOFT_CHOSEN_BYTES)
        return &space->chosen;
    return NULL;
}

/* Claims addresses of the process for a range of a window. False: something else is there. */
static bool claim(const struct flyt_soft_range *range)
{
    void *at = mmap((void *)range->start, range->bytes, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);

    if (at == MAP_FAILED)
        return false;
    if (at == (void *)range->start)
        return true;
    munmap(at, range->bytes);
    return false;
}

/* At the named address if that is free, else NULL. */
static struct flyt_soft_range *reserve_at_locked(struct flyt_soft_space *space, uint64_t address, uint64_t bytes)
{
    struct flyt_soft_ranges *window = window_of(space, address);
    struct flyt_soft_range *range;
    uint64_t hole_start, hole_bytes;

    if (!window || flyt_soft_ranges_take_at(window, address, bytes, &range) < 0)
        return NULL;
    if (claim(range))
        return range;
    (void)flyt_soft_ranges_give(window, range, &hole_start, &hole_bytes);
    return NULL;
}

struct flyt_soft_leaving {
    struct flyt_soft_leaving *next;
    struct flyt_soft_ranges *window;
    struct flyt_soft_range *range;
};

/* Ends a reservation: its addresses stay as they are until release_left_locked. */
static CUresult leave_locked(struct flyt_soft_space *space, struct flyt_soft_ranges *window,
                             struct flyt_soft_range *range)
{
    struct flyt_soft_leaving *leaving = malloc(sizeof(*leaving));

    if (!leaving)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *leaving = (struct flyt_soft_leaving){.next = space->leaving, .window = window, .range = range};
    range->owner = leaving;
    space->leaving = leaving;
    return CUDA_SUCCESS;
}

/* Gives ended reservations back to the process once no kernel or copy is queued or running that was given their
 * addresses while memory was mapped there. Work that is queued later finds nothing accessible. */
static void release_left_locked(struct flyt_soft_space *space)
{
    uint64_t hole_start, hole_bytes;

    if (!space->leaving || !flyt_soft_queue_is_idle())
        return;
    while (space->leaving) {
        struct flyt_soft_leaving *leaving = space->leaving;

        space->leaving = leaving->next;
        munmap((void *)leaving->range->start, leaving->range->bytes);
        (void)flyt_soft_ranges_give(leaving->window, leaving->range, &hole_start, &hole_bytes);
        free(leaving);
    }
}

FLYT_SOFT_API cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                                  unsigned long long flags)
{
    struct flyt_soft_driver *driver = flyt_soft_driver();
    struct flyt_soft_range *range = NULL;

    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!ptr || !size || !is_granular(size) || flags || alignment & (alignment - 1))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver->mutex);
    release_left_locked(&driver->space);
    if (addr && is_granular(addr) && !(alignment && addr & (alignment - 1)))
        range = reserve_at_locked(&driver->space, addr, size);
    /* The address is a hint: where it cannot be had, another one is as good. */
    while (!range && flyt_soft_ranges_take(&driver->space.chosen, size, alignment, &range) == 0) {
        if (claim(range))
            break;
        /* Something of the process's own lies there: leave that range taken, and look on. */
        range = NULL;
    }
    if (range)
        *ptr = range->start;
    pthread_mutex_unlock(&driver->mutex);
    return range ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

FLYT_SOFT_API cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
    struct flyt_soft_driver *driver = flyt_soft_driver();
    struct flyt_soft_ranges *window;
    struct flyt_soft_range *range;
    CUresult r = CUDA_ERROR_INVALID_VALUE;

    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    pthread_mutex_lock(&driver->mutex);
    window = window_of(&driver->space, ptr);
    range = window ? flyt_soft_ranges_find(window, ptr) : NULL;
    if (range && range->start == ptr && range->bytes == size && !range->owner &&
        !flyt_soft_ranges_find_any(&driver->space.mappings, ptr, size))
        r = leave_locked(&driver->space, window, range);
    release_left_locked(&driver->space);
    pthread_mutex_unlock(&driver->mutex);
    return r;
}

/* ---- extents ---- */

/* The device that a description of memory asks for. */
static CUresult prop_check(const CUmemAllocationProp *prop, struct flyt_soft_device **ret_device)
{
    if (!flyt_soft_driver())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult r = flyt_soft_device_find(prop->location.id, ret_device);
    const unsigned usage = prop->allocFlags.usage;
    if (r == CUDA_SUCCESS && usage &&
        (usage != CU_MEM_CREATE_USAGE_HW_DECOMPRESS || !flyt_soft_decompresses(*ret_device)))
        r = CUDA_ERROR_NOT_SUPPORTED;
    return r;
}

FLYT_SOFT_API cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                            CUmemAllocationGranularity_flags option)
{
    struct flyt_soft_device *device;
    CUresult r = prop_check(prop, &device);

    if (r != CUDA_SUCCESS)
        return r;
    if (!granularity || (unsigned)option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
        return CUDA_ERROR_INVALID_VALUE;
    *granularity = FLYT_SOFT_GRANULE_BYTES;
    return CUDA_SUCCESS;
}

/* An extent around a descriptor, charged to its device. The descriptor is taken over on success. */
static CUresult extent_new(struct flyt_soft_device *device, int fd, uint64_t bytes,
                           CUmemAllocationHandleType handle_types, unsigned usage,
                           CUmemGenericAllocationHandle *ret_handle)
{
    struct flyt_soft_extent *extent = calloc(1, sizeof(*extent));

    if (!extent)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!flyt_soft_map_charge(&device->map, bytes)) {
        free(extent);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *extent = (struct flyt_soft_extent){
        .kind = FLYT_SOFT_EXTENT,
        .handle_refs = 1,
        .bytes = bytes,
        .id = flyt_soft_id_new(),
        .fd = fd,
        .device = device,
        .handle_types = handle_types,
        .is_decompressible = usage & CU_MEM_CREATE_USAGE_HW_DECOMPRESS,
    };
    *ret_handle = (CUmemGenericAllocationHandle)extent;
    return CUDA_SUCCESS;
}

/* Frees an extent that neither a handle nor a mapping refers to. */
static void extent_check_locked(struct flyt_soft_extent *extent)
{
    if (extent->handle_refs || extent->mapping_count)
        return;
    flyt_soft_map_uncharge(&extent->device->map, extent->bytes);
    close(extent->fd);
    extent->kind = FLYT_SOFT_DEAD;
    free(extent);
}

/* What another program may have left in memory that it gave back: no byte of it is 0. */
static int make_dirty(int fd, uint64_t bytes)
{
    char piece[65536];

    memset(piece, FLYT_SOFT_LEFTOVER, sizeof(piece));
    for (uint64_t at = 0; at < bytes; at += sizeof(piece))
        if (pwrite(fd, piece, sizeof(piece), (off_t)at) != (ssize_t)sizeof(piece))
            return -1;
    return 0;
}

/* A sealed memfd, or -1. Pages come into being as they are touched. */
static int extent_file_new(const struct flyt_soft_device *device, uint64_t bytes, unsigned usage)
{
    char name[64];
    int fd;

    snprintf(name, sizeof(name), EXTENT_NAME_FORMAT, device->index, usage);
    fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -1;
    if (ftruncate(fd, (off_t)bytes) < 0 || fcntl(fd, F_ADD_SEALS, EXTENT_SEALS) < 0 ||
        (flyt_soft_driver()->is_dirty && make_dirty(fd, bytes) < 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

FLYT_SOFT_API cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                          unsigned long long flags)
{
    struct flyt_soft_device *device;
    CUresult r = prop_check(prop, &device);
    int fd;

    if (r != CUDA_SUCCESS)
        return r;
    if (!handle || !size || !is_granular(size) || flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (size > device->map.total_bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    fd = extent_file_new(device, size, prop->allocFlags.usage);
    if (fd < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = extent_new(device, fd, size, prop->requestedHandleTypes, prop->allocFlags.usage, handle);
    if (r != CUDA_SUCCESS)
        close(fd);
    return r;
}

/* The extent of a handle, or NULL. */
static struct flyt_soft_extent *extent_find_locked(CUmemGenericAllocationHandle handle)
{
    struct flyt_soft_extent *extent = (struct flyt_soft_extent *)handle;

    return flyt_soft_is(extent, FLYT_SOFT_EXTENT) && extent->handle_refs ? extent : NULL;
}

FLYT_SOFT_API cuMemRelease(CUmemGenericAllocationHandle handle)
{
    struct flyt_soft_driver *driver = flyt_soft_driver();
    struct flyt_soft_extent *extent;

    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    pthread_mutex_lock(&driver->mutex);
    extent = extent_find_locked(handle);
    if (extent) {
        extent->handle_refs--;
        extent_check_locked(extent);
    }
    pthread_mutex_unlock(&driver->mutex);
    return extent ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

FLYT_SOFT_API cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
    struct flyt_soft_driver *driver = flyt_soft_driver();
    struct flyt_soft_range *mapping;
    struct flyt_soft_extent *extent;

    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver->mutex);
    mapping = flyt_soft_ranges_find(&driver->space.mappings, (uint64_t)addr);
    if (mapping) {
        extent = mapping->owner;
        extent->handle_refs++;
        *handle = (CUmemGenericAllocationHandle)extent;
    }
    pthread_mutex_unlock(&driver->mutex);
    return mapping ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

FLYT_SOFT_API cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
    struct flyt_soft_driver *driver = flyt_soft_driver();
    struct flyt_soft_extent *extent;

    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!prop)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver->mutex);
    extent = extent_find_locked(handle);
    if (extent)
        *prop = (CUmemAllocationProp){
            .type = CU_MEM_ALLOCATION_TYPE_PINNED,
            .requestedHandleTypes = extent->handle_types,
            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = extent->device->index},
            .allocFlags = {.usage = extent->is_decompressible ? CU_MEM_CREATE_USAGE_HW_DECOMPRESS : 0},
        };
    pthread_mutex_unlock(&driver->mutex);
    return extent ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- sharing ---- */

FLYT_SOFT_API cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
                                           CUmemAllocationHandleType handleType, unsigned long long flags)
{
    struct flyt_soft_driver *driver = flyt_soft_driver();
    struct flyt_soft_extent *extent;
    CUresult r = CUDA_ERROR_INVALID_VALUE;
    int fd;

    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!shareableHandle || flags || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver->mutex);
    extent = extent_find_locked(handle);
    if (extent && extent->handle_types & handleType) {
        fd = fcntl(extent->fd, F_DUPFD_CLOEXEC, 0);
        if (fd >= 0)
            memcpy(shareableHandle, &fd, sizeof(fd));
        r = fd < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&driver->mutex);
    return r;
}

/* Whether a descriptor is an extent of this driver, made by whatever process; its device, length and usage. */
static bool extent_file_read(int fd, struct flyt_soft_device **ret_device, uint64_t *ret_bytes, unsigned *ret_usage)
{
    char path[32], target[128];
    struct stat st;
    ssize_t n;
    int seals, index;

    seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & EXTENT_SEALS) != EXTENT_SEALS)
        return false;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    n = readlink(path, target, sizeof(target) - 1);
    if (n < 0 || fstat(fd, &st) < 0)
        return false;
    target[n] = 0;
    /* One of an older build has no usage. */
    *ret_usage = 0;
    if (sscanf(target, EXTENT_LINK_FORMAT, &index, ret_usage) < 1 ||
        flyt_soft_device_find(index, ret_device) != CUDA_SUCCESS)
        return false;
    *ret_bytes = (uint64_t)st.st_size;
    return st.st_size > 0 && is_granular(*ret_bytes);
}

FLYT_SOFT_API cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
                                             CUmemAllocationHandleType shHandleType)
{
    struct flyt_soft_device *device;
    uint64_t bytes;
    unsigned usage;
    CUresult r;
    int fd;

    if (!flyt_soft_driver())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!handle || shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    if (!extent_file_read((int)(intptr_t)osHandle, &device, &bytes, &usage))
        return CUDA_ERROR_INVALID_VALUE;
    fd = fcntl((int)(intptr_t)osHandle, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    r = extent_new(device, fd, bytes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, usage, handle);
    if (r != CUDA_SUCCESS)
        close(fd);
    return r;
}

bool flyt_soft_is_decompressible(const struct flyt_soft_device *device, uint64_t address)
{
    struct flyt_soft_driver *driver = flyt_soft_driver();

    if (flyt_soft_alloc_device(address) == device)
        return true;
    pthread_mutex_lock(&driver->mutex);
    const struct flyt_soft_range *mapping = flyt_soft_ranges_find(&driver->space.mappings, address);
    const struct flyt_soft_extent *extent = mapping ? mapping->owner : NULL;
    bool is_decompressible = extent && extent->device == device && extent->is_decompressible;
    pthread_mutex_unlock(&driver->mutex);
    return is_decompressible;
}

/* ---- mappings ---- */

/* Whether [start, start + bytes) lies within one reservation. */
static bool is_reserved_locked(struct flyt_soft_space *space, uint64_t start, uint64_t bytes)
{
    struct flyt_soft_ranges *window = window_of(space, start);
    const struct flyt_soft_range *range = window ? flyt_soft_ranges_find(window, start) : NULL;

    return range && !range->owner && bytes <= range->bytes && start - range->start <= range->bytes - bytes;
}

static CUresult map_locked(struct flyt_soft_space *space, uint64_t start, uint64_t bytes,
                           struct flyt_soft_extent *extent)
{
    struct flyt_soft_range *mapping;
    uint64_t hole_start, hole_bytes;
    void *at;

    if (!is_reserved_locked(space, start, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (flyt_soft_ranges_take_at(&space->mappings, start, bytes, &mapping) < 0)
        return CUDA_ERROR_INVALID_VALUE;
    /* Readable and writable for the process at once: what a device may touch is decided by its access table. */
    at = mmap((void *)start, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, extent->fd, 0);
    if (at == MAP_FAILED) {
        (void)flyt_soft_ranges_give(&space->mappings, mapping, &hole_start, &hole_bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    mapping->owner = extent;
    extent->mapping_count++;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                       unsigned long long flags)
{
    struct flyt_soft_driver *driver = flyt_soft_driver();
    struct flyt_soft_extent *extent;
    CUresult r = CUDA_ERROR_INVALID_VALUE;

    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!size || !is_granular(ptr | size | offset) || flags)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver->mutex);
    extent = extent_find_locked(handle);
    /* As the GPU's driver: an extent is mapped whole. */
    if (extent)
        r = offset || size != extent->bytes ? CUDA_ERROR_NOT_SUPPORTED : map_locked(&driver->space, ptr, size, extent);
    pthread_mutex_unlock(&driver->mutex);
    return r;
}

/* Whether no mapping sticks out of [start, start + bytes). */
static bool covers_whole_mappings_locked(const struct flyt_soft_space *space, uint64_t start, uint64_t bytes)
{
    const struct flyt_soft_range *first = flyt_soft_ranges_find(&space->mappings, start);
    const struct flyt_soft_range *last = flyt_soft_ranges_find(&space->mappings, start + bytes - 1);

    return (!first || first->start == start) && (!last || last->start + last->bytes == start + bytes);
}

static void unmap_locked(struct flyt_soft_driver *driver, struct flyt_soft_range *mapping)
{
    struct flyt_soft_extent *extent = mapping->owner;
    uint64_t start = mapping->start, bytes = mapping->bytes;
    uint64_t hole_start, hole_bytes;

    for (unsigned i = 0; i < driver->device_count; i++)
        flyt_soft_map_allow(&driver->devices[i].map, start, bytes, FLYT_SOFT_ACCESS_NONE);
    /* Replaced in one step by pages of nobody's: work that still uses the addresses does not crash the process. */
    if (mmap((void *)start, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1,
             0) == MAP_FAILED)
        mprotect((void *)start, bytes, PROT_NONE);
    (void)flyt_soft_ranges_give(&driver->space.mappings, mapping, &hole_start, &hole_bytes);
    extent->mapping_count--;
    extent_check_locked(extent);
}

FLYT_SOFT_API cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    struct flyt_soft_driver *driver = flyt_soft_driver();
    struct flyt_soft_range *mapping;
    CUresult r = CUDA_ERROR_INVALID_VALUE;

    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!size || !is_granular(ptr | size))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver->mutex);
    if (is_reserved_locked(&driver->space, ptr, size) && covers_whole_mappings_locked(&driver->space, ptr, size)) {
        while ((mapping = flyt_soft_ranges_find_any(&driver->space.mappings, ptr, size)))
            unmap_locked(driver, mapping);
        r = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&driver->mutex);
    return r;
}

/* Whether [start, start + bytes) is mapped throughout, by mappings that do not stick out of it. */
static bool is_mapped_locked(const struct flyt_soft_space *space, uint64_t start, uint64_t bytes)
{
    const struct flyt_soft_range *mapping;

    if (start + bytes < start || !covers_whole_mappings_locked(space, start, bytes))
        return false;
    for (uint64_t at = start; at < start + bytes; at = mapping->start + mapping->bytes) {
        mapping = flyt_soft_ranges_find(&space->mappings, at);
        if (!mapping)
            return false;
    }
    return true;
}

FLYT_SOFT_API cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
    struct flyt_soft_driver *driver = flyt_soft_driver();
    struct flyt_soft_device *device;
    CUresult r = CUDA_SUCCESS;

    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!size || !is_granular(ptr | size) || !desc || !count)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
            return CUDA_ERROR_NOT_SUPPORTED;
        r = flyt_soft_device_find(desc[i].location.id, &device);
        if (r != CUDA_SUCCESS)
            return r;
        if (desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
            desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            return CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_lock(&driver->mutex);
    if (is_mapped_locked(&driver->space, ptr, size)) {
        /* The flags have the access table's values. */
        for (size_t i = 0; i < count; i++)
            flyt_soft_map_allow(&driver->devices[desc[i].location.id].map, ptr, size, (uint8_t)desc[i].flags);
    } else {
        r = CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_unlock(&driver->mutex);
    return r;
}

FLYT_SOFT_API cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
    struct flyt_soft_driver *driver = flyt_soft_driver();
    struct flyt_soft_device *device;
    bool is_mapped;
    CUresult r;

    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    r = flyt_soft_device_find(location->id, &device);
    if (r != CUDA_SUCCESS)
        return r;
    pthread_mutex_lock(&driver->mutex);
    is_mapped = flyt_soft_ranges_find(&driver->space.mappings, ptr) != NULL;
    pthread_mutex_unlock(&driver->mutex);
    if (!is_mapped)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = flyt_soft_map_access(&device->map, ptr);
    return CUDA_SUCCESS;
}
