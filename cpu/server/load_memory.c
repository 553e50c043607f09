#include "cpu/server/load_memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/server/session.h"
#include "rpc/base/id.h"

enum { ROOM_FIRST = 64 };

static int driver_failed(const char *what, uint64_t address, CUresult result, struct flyt_error *err)
{
    return flyt_error_set(err, -EIO, "the memory at %#llx cannot be %s, cuda_result=%d", (unsigned long long)address,
                          what, (int)result);
}

/* The slot whose device has the address in its window; -1: none. */
static int slot_of(const struct flyt_session *session, uint64_t address)
{
    const struct flyt_server_link_session *granted = &session->prepare.granted;
    for (unsigned i = 0; i < granted->slot_count; i++)
        if (flyt_window_device(address) == (int)granted->slots[i].device_index)
            return (int)i;
    return -1;
}

static int make_room(struct flyt_load_memory *self)
{
    if (self->count < self->room)
        return 0;
    size_t room = self->room ? 2 * self->room : ROOM_FIRST;
    struct flyt_server_link_extent *extents = reallocarray(self->extents, room, sizeof *extents);
    if (!extents)
        return -ENOMEM;
    self->extents = extents;
    self->room = room;
    return 0;
}

static CUresult map(const struct flyt_load_memory *self, const struct flyt_server_link_extent *extent,
                    CUmemGenericAllocationHandle handle)
{
    struct flyt_session *session = self->session;
    struct flyt_device *device = &session->devices[flyt_window_device(extent->address)];
    CUresult result = session->driver->cuMemMap(extent->address, extent->bytes, 0, handle, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = flyt_memory_allow(device, extent->address, extent->bytes);
    if (result != CUDA_SUCCESS)
        session->driver->cuMemUnmap(extent->address, extent->bytes);
    return result;
}

int flyt_load_memory_make(struct flyt_load_memory *self, const flyt_checkpoint_extent *extent, struct flyt_error *err)
{
    const unsigned long long address = extent->address;
    int slot = slot_of(self->session, extent->address);
    if (slot < 0)
        return flyt_error_set(err, -EBADMSG, "the memory at %#llx is in no device's window", address);
    if (make_room(self) != 0)
        return flyt_error_set(err, -ENOMEM, "out of host memory");
    const struct flyt_server_link_extent its = {
        .extent_id = self->count + 1, .bytes = extent->bytes, .address = extent->address, .slot = (uint32_t)slot};
    int outcome, status = flyt_prepare_make(self->session, self->given, &its, self->message, self->link_fd, &outcome);
    if (!status)
        status = outcome;
    if (status)
        return flyt_error_set(err, status, "the memory at %#llx cannot be made, bytes=%llu: %s", address,
                              (unsigned long long)extent->bytes, strerror(-status));
    CUresult result = map(self, &its, self->given->extents[self->given->count - 1].handle);
    if (result != CUDA_SUCCESS)
        return driver_failed("mapped", extent->address, result, err);
    self->extents[self->count++] = its;
    return 0;
}

int flyt_load_memory_write(struct flyt_load_memory *self, struct flyt_checkpoint_reader *reader,
                           const struct flyt_checkpoint_record *record, void *piece, struct flyt_error *err)
{
    const flyt_checkpoint_pages *pages = &record->body->pages;
    struct flyt_session *session = self->session;
    const struct flyt_driver *driver = session->driver;
    const uint64_t bytes = (uint64_t)pages->page_count * FLYT_CHECKPOINT_PAGE_BYTES;
    if (pages->encoding == FLYT_CHECKPOINT_PARENT)
        return flyt_error_set(err, -ENOTSUP, "the image has pages of another one, which it builds on");
    session->current_device = NULL;
    CUresult result = driver->cuCtxSetCurrent(session->devices[flyt_window_device(pages->address)].cu_primary);
    if (result == CUDA_SUCCESS && !record->place_bytes) {
        result = driver->cuMemsetD8Async(pages->address, 0, bytes, NULL);
    } else if (result == CUDA_SUCCESS) {
        int status = flyt_checkpoint_place(reader, piece, err);
        if (status)
            return status;
        result = driver->cuMemcpyHtoDAsync(pages->address, piece, record->place_bytes, NULL);
    }
    CUresult waited = driver->cuStreamSynchronize(NULL);
    if (result == CUDA_SUCCESS)
        result = waited;
    return result == CUDA_SUCCESS ? 0 : driver_failed("written", pages->address, result, err);
}

int flyt_load_memory_end(struct flyt_load_memory *self, struct flyt_error *err)
{
    int status = 0;
    for (size_t i = 0; i < self->count; i++) {
        const struct flyt_server_link_extent *extent = &self->extents[i];
        CUresult result = self->session->driver->cuMemUnmap(extent->address, extent->bytes);
        if (result != CUDA_SUCCESS)
            status = driver_failed("unmapped", extent->address, result, err);
    }
    free(self->extents);
    self->extents = NULL;
    self->count = self->room = 0;
    return status;
}
