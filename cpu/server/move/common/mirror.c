#include "cpu/server/move/common/mirror.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/server/cuda/memory.h"
#include "cpu/server/core/session.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/id.h"

enum { ROOM_FIRST = 16 };

int flyt_mirrors_open(struct flyt_mirrors *mirrors, struct flyt_device *device, struct flyt_error *err)
{
    CUdeviceptr address = device->mirror_base;
    if (!address) {
        /* Another address than this is as good. */
        CUresult result = device->session->driver->cuMemAddressReserve(&address, FLYT_WINDOW_BYTES, FLYT_GRANULE_BYTES,
                                                                       flyt_mirror_base(device->ordinal), 0);
        if (result != CUDA_SUCCESS)
            return flyt_error_set(err, -ENOMEM,
                                  "device %u: no window of addresses for the memory of another server can be reserved, "
                                  "cuda_result=%d",
                                  device->ordinal, (int)result);
        device->mirror_base = address;
    }
    *mirrors = (struct flyt_mirrors){.device = device, .distance = address - flyt_window_base(device->ordinal)};
    return 0;
}

static void unmap(const struct flyt_mirrors *mirrors, const struct flyt_mirror *mirror)
{
    struct flyt_session *session = mirrors->device->session;
    CUresult result = session->driver->cuMemUnmap(mirror->address + mirrors->distance, mirror->bytes);
    if (result == CUDA_SUCCESS)
        result = session->driver->cuMemRelease(mirror->handle);
    flyt_session_check(session, result);
}

void flyt_mirrors_close(struct flyt_mirrors *mirrors)
{
    for (unsigned i = 0; i < mirrors->count; i++)
        unmap(mirrors, &mirrors->items[i]);
    free(mirrors->items);
    *mirrors = (struct flyt_mirrors){0};
}

/* The place of the first one that is not below the address. */
static unsigned place_of(const struct flyt_mirrors *mirrors, uint64_t address)
{
    unsigned low = 0, high = mirrors->count;
    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        if (mirrors->items[middle].address < address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct flyt_mirror *flyt_mirrors_find(const struct flyt_mirrors *mirrors, uint64_t address)
{
    unsigned place = place_of(mirrors, address);
    return place < mirrors->count && mirrors->items[place].address == address ? &mirrors->items[place] : NULL;
}

static int make_room(struct flyt_mirrors *mirrors)
{
    if (mirrors->count < mirrors->capacity)
        return 0;
    unsigned capacity = mirrors->capacity ? 2 * mirrors->capacity : ROOM_FIRST;
    struct flyt_mirror *items = reallocarray(mirrors->items, capacity, sizeof *items);
    if (!items)
        return -ENOMEM;
    mirrors->items = items;
    mirrors->capacity = capacity;
    return 0;
}

/* Whose memory it is, where the driver tells, and whether the device can reach that. 0 or -ENOLINK with a sentence. */
static int check_peer(const struct flyt_device *device, CUmemGenericAllocationHandle handle, struct flyt_error *err)
{
    const struct flyt_driver *driver = device->session->driver;
    CUmemAllocationProp properties = {0};
    int can_access = 0;
    if (flyt_fault_point("copying.peer") == FLYT_FAULT_ERROR)
        return flyt_error_set(err, -ENOLINK, "GPU %d cannot reach the other server's memory: a test wants it so",
                              (int)device->cu_device);
    if (driver->cuMemGetAllocationPropertiesFromHandle(&properties, handle) != CUDA_SUCCESS ||
        properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE || properties.location.id == device->cu_device)
        return 0;
    CUdevice other = properties.location.id;
    CUresult result = driver->cuDeviceCanAccessPeer(&can_access, device->cu_device, other);
    if (result == CUDA_SUCCESS && can_access)
        return 0;
    return flyt_error_set(err, -ENOLINK, "GPU %d cannot reach the memory of GPU %d", (int)device->cu_device,
                          (int)other);
}

/* Maps it for the device. The driver's error, and nothing is left behind. */
static CUresult map(const struct flyt_device *device, uint64_t address, uint64_t bytes,
                    CUmemGenericAllocationHandle handle)
{
    const struct flyt_driver *driver = device->session->driver;
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->cu_device},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = driver->cuMemMap(address, bytes, 0, handle, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver->cuMemSetAccess(address, bytes, &access, 1);
    if (result != CUDA_SUCCESS)
        driver->cuMemUnmap(address, bytes);
    return result;
}

static int status_of(CUresult result)
{
    switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
        return -ENOMEM;
    case CUDA_ERROR_NOT_SUPPORTED: /* the descriptor's memory has another size: an extent is mapped whole */
    case CUDA_ERROR_INVALID_VALUE:
        return -EINVAL;
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_PEER_ACCESS_UNSUPPORTED:
        return -ENOLINK;
    default:
        return -EIO;
    }
}

int flyt_mirrors_add(struct flyt_mirrors *mirrors, const struct flyt_manager_link_extent *extent, int fd,
                     struct flyt_error *err)
{
    struct flyt_device *device = mirrors->device;
    const struct flyt_driver *driver = device->session->driver;
    const unsigned long long id = extent->extent_id;
    CUmemGenericAllocationHandle handle;
    unsigned place = place_of(mirrors, extent->address);
    if (place < mirrors->count && mirrors->items[place].address == extent->address)
        return flyt_error_set(err, -EEXIST, "memory came twice for one extent, extent_id=%llu", id);
    if (make_room(mirrors) != 0)
        return flyt_error_set(err, -ENOMEM, "out of host memory");
    CUresult result =
        driver->cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (result != CUDA_SUCCESS)
        return flyt_error_set(err, status_of(result) == -ENOLINK ? -ENOLINK : -EINVAL,
                              "the other server's memory cannot be imported, extent_id=%llu cuda_result=%d", id,
                              (int)result);
    int status = check_peer(device, handle, err);
    if (status == 0) {
        result = map(device, extent->address + mirrors->distance, extent->bytes, handle);
        if (result != CUDA_SUCCESS)
            status = flyt_error_set(err, status_of(result),
                                    "the other server's memory cannot be mapped for GPU %d, extent_id=%llu "
                                    "cuda_result=%d",
                                    (int)device->cu_device, id, (int)result);
    }
    if (status) {
        driver->cuMemRelease(handle);
        return status;
    }
    memmove(mirrors->items + place + 1, mirrors->items + place, (mirrors->count - place) * sizeof *mirrors->items);
    mirrors->items[place] = (struct flyt_mirror){
        .extent_id = extent->extent_id, .address = extent->address, .bytes = extent->bytes, .handle = handle};
    mirrors->count++;
    return 0;
}

void flyt_mirrors_remove(struct flyt_mirrors *mirrors, struct flyt_mirror *mirror)
{
    unsigned place = (unsigned)(mirror - mirrors->items);
    unmap(mirrors, mirror);
    mirrors->count--;
    memmove(mirror, mirror + 1, (mirrors->count - place) * sizeof *mirror);
}
