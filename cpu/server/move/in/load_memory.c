#include "cpu/server/move/in/load_memory.h"

#include <errno.h>
#include <string.h>

#include "cpu/server/move/in/prepare.h"
#include "cpu/server/move/in/prepared.h"
#include "cpu/server/core/session.h"
#include "rpc/base/id.h"

static int driver_failed(struct flyt_error *err, const char *what, CUresult result)
{
    return flyt_error_set(err, result == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : -EIO, "%s, cuda_result=%d", what,
                          (int)result);
}

static CUresult use(const struct flyt_load_memory *memory, unsigned ordinal)
{
    memory->session->current_device = NULL;
    return memory->session->driver->cuCtxSetCurrent(memory->session->devices[ordinal].cu_primary);
}

static unsigned ordinal_of(uint64_t address)
{
    return (unsigned)flyt_window_device(address); /* it is an extent's */
}

static int link_broken(struct flyt_error *err, int status)
{
    return status ? flyt_error_set(err, status, "the node manager has gone") : 0;
}

static struct flyt_adopted_extent *find(const struct flyt_load_memory *memory, uint64_t address)
{
    struct flyt_adopted_extents *adopted = memory->adopted;
    for (size_t i = 0; i < adopted->count; i++)
        if (address - adopted->extents[i].extent.address < adopted->extents[i].extent.bytes)
            return &adopted->extents[i];
    return NULL;
}

/* ---- extents ---- */

/* The slot's number, by which the node manager knows the device; -1: there is none. */
static int slot_of(const struct flyt_session *session, int ordinal)
{
    const struct flyt_manager_link_session *granted = &session->prepare->granted;
    for (unsigned i = 0; i < granted->slot_count; i++)
        if ((int)granted->slots[i].device_index == ordinal)
            return (int)i;
    return -1;
}

static CUresult map(const struct flyt_load_memory *memory, const struct flyt_manager_link_extent *extent,
                    CUmemGenericAllocationHandle handle)
{
    const struct flyt_driver *driver = memory->session->driver;
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE,
                                                 .id = memory->session->devices[ordinal_of(extent->address)].cu_device},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = use(memory, ordinal_of(extent->address));
    if (result == CUDA_SUCCESS)
        result = driver->cuMemMap(extent->address, extent->bytes, 0, handle, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver->cuMemSetAccess(extent->address, extent->bytes, &access, 1);
    if (result != CUDA_SUCCESS)
        driver->cuMemUnmap(extent->address, extent->bytes);
    return result;
}

int flyt_load_memory_make(struct flyt_load_memory *memory, uint64_t address, uint64_t bytes, struct flyt_error *err)
{
    struct flyt_session *session = memory->session;
    struct flyt_manager_link_extent extent = {
        .extent_id = memory->last_extent_id + 1, .address = address, .bytes = bytes};
    int slot = slot_of(session, flyt_window_device(address));
    if (slot < 0)
        return flyt_error_set(err, -EBADMSG, "the image has memory of a device that the allocation has not");
    if (!memory->is_begun && memory->adopted->count)
        return flyt_error_set(err, -EPROTO, "the image has memory, and other memory was made before it came");
    extent.slot = (uint32_t)slot;
    CUmemGenericAllocationHandle handle;
    int status = flyt_prepare_make(session, memory->adopted, &extent, &handle);
    if (status)
        return flyt_error_set(err, status, "memory of the image cannot be made, bytes=%llu: %s",
                              (unsigned long long)bytes, strerror(-status));
    memory->is_begun = true;
    memory->last_extent_id++;
    CUresult result = map(memory, &extent, handle);
    if (result == CUDA_SUCCESS)
        return memory->teller ? link_broken(err, memory->teller->made(memory->teller->user, &extent, handle)) : 0;
    flyt_adopted_extents_drop(memory->adopted, session->driver, extent.extent_id);
    return driver_failed(err, "memory of the image cannot be mapped", result);
}

/* Waits until nothing on the device uses a buffer any more. */
static CUresult wait(struct flyt_load_memory *memory, unsigned ordinal)
{
    CUresult result = use(memory, ordinal);
    if (result == CUDA_SUCCESS)
        result = memory->session->driver->cuStreamSynchronize(NULL);
    for (unsigned i = 0; i < FLYT_LOAD_BUFFERS; i++)
        memory->buffers[i].is_on_way &= memory->buffers[i].ordinal != ordinal;
    return result;
}

static void unmap(const struct flyt_load_memory *memory, const struct flyt_adopted_extent *adopted)
{
    memory->session->driver->cuMemUnmap(adopted->extent.address, adopted->extent.bytes);
}

int flyt_load_memory_drop(struct flyt_load_memory *memory, uint64_t address, struct flyt_error *err)
{
    struct flyt_adopted_extent *adopted = find(memory, address);
    if (!adopted) /* the reader has checked that there is one */
        return flyt_error_set(err, -EBADMSG, "the image takes back memory that it has not");
    CUresult result = wait(memory, ordinal_of(address));
    if (result != CUDA_SUCCESS)
        return driver_failed(err, "pages of the image cannot be put to their place", result);
    const struct flyt_manager_link_extent extent = adopted->extent;
    unmap(memory, adopted);
    flyt_adopted_extents_drop(memory->adopted, memory->session->driver, extent.extent_id);
    return memory->teller ? link_broken(err, memory->teller->gone(memory->teller->user, &extent)) : 0;
}

/* ---- pages ---- */

/* A buffer that the GPU does not read any more. */
static CUresult take_buffer(struct flyt_load_memory *memory, struct flyt_load_buffer **ret_buffer)
{
    struct flyt_load_buffer *buffer = &memory->buffers[memory->next];
    CUresult result = CUDA_SUCCESS;
    memory->next = (memory->next + 1) % FLYT_LOAD_BUFFERS;
    if (buffer->is_on_way)
        result = wait(memory, buffer->ordinal);
    if (result == CUDA_SUCCESS && !buffer->pages)
        result = memory->session->driver->cuMemHostAlloc(&buffer->pages, FLYT_CHECKPOINT_PAYLOAD_BYTES_MAX,
                                                         CU_MEMHOSTALLOC_PORTABLE);
    *ret_buffer = buffer;
    return result;
}

/* Runs of pages may go over the end of an extent into the next one, where one command may not. */
CUresult flyt_load_memory_put(const struct flyt_load_memory *memory, uint64_t address, const unsigned char *pages,
                              uint64_t bytes, CUstream cu_stream)
{
    const struct flyt_driver *driver = memory->session->driver;
    CUresult result = CUDA_SUCCESS;
    while (bytes && result == CUDA_SUCCESS) {
        const struct flyt_adopted_extent *adopted = find(memory, address);
        if (!adopted)
            return CUDA_ERROR_INVALID_VALUE; /* the reader has checked that there is one */
        uint64_t part = adopted->extent.address + adopted->extent.bytes - address;
        if (part > bytes)
            part = bytes;
        result = pages ? driver->cuMemcpyHtoDAsync(address, pages, part, cu_stream)
                       : driver->cuMemsetD8Async(address, 0, part, cu_stream);
        address += part;
        pages = pages ? pages + part : NULL;
        bytes -= part;
    }
    return result;
}

int flyt_load_memory_fill(struct flyt_load_memory *memory, struct flyt_checkpoint_reader *reader,
                          const struct flyt_checkpoint_record *record, struct flyt_error *err)
{
    static const char what[] = "pages of the image cannot be put to their place";
    const flyt_checkpoint_pages *pages = &record->body->pages;
    struct flyt_load_buffer *buffer = NULL;
    unsigned ordinal = ordinal_of(pages->address);
    if (pages->encoding == FLYT_CHECKPOINT_PARENT) /* others follow, as there is no parent */
        return 0;
    CUresult result = use(memory, ordinal);
    if (result == CUDA_SUCCESS && pages->encoding != FLYT_CHECKPOINT_ZERO)
        result = take_buffer(memory, &buffer);
    if (result != CUDA_SUCCESS)
        return driver_failed(err, what, result);
    int status = buffer ? flyt_checkpoint_place(reader, buffer->pages, err) : 0;
    if (status)
        return status;
    result = use(memory, ordinal);
    if (result == CUDA_SUCCESS)
        result = flyt_load_memory_put(memory, pages->address, buffer ? buffer->pages : NULL, record->place_bytes, NULL);
    if (buffer)
        *buffer = (struct flyt_load_buffer){buffer->pages, true, ordinal};
    return result == CUDA_SUCCESS ? 0 : driver_failed(err, what, result);
}

int flyt_load_memory_try(struct flyt_load_memory *memory, const flyt_checkpoint_pages *pages, struct flyt_error *err)
{
    struct flyt_load_buffer *buffer;
    unsigned ordinal = ordinal_of(pages->address);
    if (pages->encoding == FLYT_CHECKPOINT_ZERO)
        return 0;
    CUresult result = use(memory, ordinal);
    if (result == CUDA_SUCCESS)
        result = take_buffer(memory, &buffer);
    return result == CUDA_SUCCESS ? 0 : driver_failed(err, "there is no page-locked memory for pages", result);
}

int flyt_load_memory_settle(struct flyt_load_memory *memory, struct flyt_error *err)
{
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; memory->is_begun && i < memory->session->device_count && result == CUDA_SUCCESS; i++)
        result = wait(memory, i);
    return result == CUDA_SUCCESS ? 0 : driver_failed(err, "pages of the image cannot be put to their place", result);
}

void flyt_load_memory_end(struct flyt_load_memory *memory, bool keeps_extents)
{
    const struct flyt_driver *driver = memory->session->driver;
    struct flyt_error err;
    flyt_load_memory_settle(memory, &err); /* what has failed was told */
    for (size_t i = 0; memory->is_begun && i < memory->adopted->count; i++)
        unmap(memory, &memory->adopted->extents[i]);
    while (memory->is_begun && !keeps_extents && memory->adopted->count)
        flyt_adopted_extents_drop(memory->adopted, driver, memory->adopted->extents[0].extent.extent_id);
    for (unsigned i = 0; i < FLYT_LOAD_BUFFERS; i++)
        if (memory->buffers[i].pages)
            driver->cuMemFreeHost(memory->buffers[i].pages);
}
