#include "cpu/server/move/in/adopted_extents.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/server/cuda/memory.h"
#include "cpu/server/core/session.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/id.h"

enum { ROOM_FIRST = 64 };

static bool is_announced(const struct flyt_adopted_extents *adopted, const struct flyt_manager_link_resume *resume)
{
    return adopted->resume.is_ahead && !resume->is_ahead && adopted->resume.extent_count == resume->extent_count &&
           adopted->resume.last_extent_id == resume->last_extent_id;
}

void flyt_adopted_extents_begin(struct flyt_adopted_extents *adopted, const struct flyt_manager_link_resume *resume)
{
    if (adopted->is_resume && !is_announced(adopted, resume) && !adopted->err.code)
        flyt_error_set(&adopted->err, -EPROTO, "the node manager says twice that a session goes on");
    if (adopted->is_prepared != (resume->is_made != 0) && !adopted->err.code)
        flyt_error_set(&adopted->err, -EPROTO, "the node manager says that the session's memory was %s",
                       resume->is_made ? "made, and has made none" : "not made, and has made some");
    adopted->is_resume = true;
    adopted->resume = *resume;
}

/* What can be told without the slots. */
int flyt_adopted_extents_check(const struct flyt_adopted_extents *adopted,
                               const struct flyt_manager_link_extent *extent, struct flyt_error *err)
{
    const unsigned long long id = extent->extent_id;
    if (adopted->is_prepared ? adopted->is_resume || adopted->count >= FLYT_MANAGER_LINK_EXTENTS_MAX
                             : !adopted->is_resume || adopted->count >= adopted->resume.extent_count)
        return flyt_error_set(err, -EPROTO, "the node manager gives memory that it has not announced, extent_id=%llu",
                              id);
    if (!id || (!adopted->is_prepared && id > adopted->resume.last_extent_id))
        return flyt_error_set(err, -EPROTO, "the node manager gives memory under an id that cannot be, extent_id=%llu",
                              id);
    if (!extent->bytes || extent->bytes % FLYT_GRANULE_BYTES || extent->address % FLYT_GRANULE_BYTES ||
        extent->bytes > FLYT_WINDOW_BYTES || flyt_window_device(extent->address) < 0 ||
        flyt_window_device(extent->address) != flyt_window_device(extent->address + extent->bytes - 1))
        return flyt_error_set(err, -EPROTO,
                              "the node manager gives memory that is no extent, extent_id=%llu bytes=%llu", id,
                              (unsigned long long)extent->bytes);
    return 0;
}

static int make_room(struct flyt_adopted_extents *adopted)
{
    if (adopted->count < adopted->room)
        return 0;
    size_t room = adopted->room ? 2 * adopted->room : ROOM_FIRST;
    struct flyt_adopted_extent *extents = reallocarray(adopted->extents, room, sizeof *extents);
    if (!extents)
        return -ENOMEM;
    adopted->extents = extents;
    adopted->room = room;
    return 0;
}

int flyt_adopted_extents_add(struct flyt_adopted_extents *adopted, const struct flyt_manager_link_extent *extent,
                             CUmemGenericAllocationHandle handle)
{
    for (size_t i = 0; i < adopted->count; i++)
        if (adopted->extents[i].extent.extent_id == extent->extent_id)
            return -EEXIST;
    if (make_room(adopted) != 0)
        return -ENOMEM;
    adopted->extents[adopted->count++] = (struct flyt_adopted_extent){.extent = *extent, .handle = handle};
    return 0;
}

CUresult flyt_adopted_extents_place(struct flyt_adopted_extents *adopted, struct flyt_session *session)
{
    struct flyt_adopted_extent *last = &adopted->extents[adopted->count - 1];
    const struct flyt_manager_link_extent *extent = &last->extent;
    struct flyt_device *device = &session->devices[flyt_window_device(extent->address)];
    session->current_device = NULL;
    CUresult result = session->driver->cuCtxSetCurrent(device->cu_primary);
    if (result == CUDA_SUCCESS && flyt_fault_point("prepare.place") == FLYT_FAULT_ERROR)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        result = session->driver->cuMemMap(extent->address, extent->bytes, 0, last->handle, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = flyt_memory_allow(device, extent->address, extent->bytes);
    last->is_placed = result == CUDA_SUCCESS;
    if (result != CUDA_SUCCESS)
        session->driver->cuMemUnmap(extent->address, extent->bytes);
    return result;
}

void flyt_adopted_extents_drop(struct flyt_adopted_extents *adopted, const struct flyt_driver *driver,
                               uint64_t extent_id)
{
    size_t i = 0;
    while (i < adopted->count && adopted->extents[i].extent.extent_id != extent_id)
        i++;
    if (i == adopted->count)
        return;
    if (adopted->extents[i].is_placed)
        driver->cuMemUnmap(adopted->extents[i].extent.address, adopted->extents[i].extent.bytes);
    driver->cuMemRelease(adopted->extents[i].handle);
    adopted->extents[i] = adopted->extents[--adopted->count];
}

void flyt_adopted_extents_take(struct flyt_adopted_extents *adopted, const struct flyt_driver *driver,
                               const struct flyt_manager_link_extent *extent, int fd)
{
    struct flyt_error err = {0};
    CUmemGenericAllocationHandle handle = 0;
    int status = flyt_adopted_extents_check(adopted, extent, &err);
    if (status == 0 && make_room(adopted) != 0)
        status = flyt_error_set(&err, -ENOMEM, "out of host memory");
    if (status == 0) {
        CUresult result = driver->cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
                                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        if (result != CUDA_SUCCESS)
            status = flyt_error_set(&err, -EINVAL,
                                    "the session's memory cannot be taken over, extent_id=%llu cuda_result=%d",
                                    (unsigned long long)extent->extent_id, (int)result);
    }
    flyt_close(fd);
    if (status == 0)
        adopted->extents[adopted->count++] = (struct flyt_adopted_extent){.extent = *extent, .handle = handle};
    else if (!adopted->err.code)
        adopted->err = err;
}

static int map_one(struct flyt_session *session, const struct flyt_manager_link_session *granted,
                   const struct flyt_adopted_extent *adopted, struct flyt_error *err)
{
    const struct flyt_manager_link_extent *extent = &adopted->extent;
    const unsigned long long id = extent->extent_id;
    if (extent->slot >= granted->slot_count)
        return flyt_error_set(err, -EPROTO, "memory was given of a slot that the allocation has not, extent_id=%llu",
                              id);
    unsigned ordinal = granted->slots[extent->slot].device_index;
    if (flyt_window_device(extent->address) != (int)ordinal)
        return flyt_error_set(err, -EPROTO, "memory was given outside of its device's window, extent_id=%llu", id);
    CUresult result = flyt_memory_adopt(&session->devices[ordinal], id, extent->address, extent->bytes, adopted->handle,
                                        adopted->is_placed);
    if (result == CUDA_ERROR_INVALID_VALUE)
        return flyt_error_set(err, -EPROTO,
                              "memory was given where other memory is, or not as large as it is, "
                              "extent_id=%llu",
                              id);
    if (result != CUDA_SUCCESS)
        return flyt_error_set(err, -ENOMEM,
                              "the session's memory cannot be put where it was, extent_id=%llu cuda_result=%d", id,
                              (int)result);
    atomic_fetch_add(&session->manager->extent_count, 1);
    return 0;
}

static int compare_ids(const void *left, const void *right)
{
    uint64_t a = ((const struct flyt_adopted_extent *)left)->extent.extent_id;
    uint64_t b = ((const struct flyt_adopted_extent *)right)->extent.extent_id;
    return a < b ? -1 : a > b;
}

int flyt_adopted_extents_map(struct flyt_adopted_extents *adopted, struct flyt_session *session,
                             const struct flyt_manager_link_session *granted, struct flyt_error *err)
{
    if (adopted->err.code) {
        *err = adopted->err;
        return adopted->err.code;
    }
    if (!adopted->is_resume)
        return 0;
    if (adopted->resume.is_ahead)
        return flyt_error_set(err, -EPROTO,
                              "the node manager has not said that the process that had the session has ended");
    if (adopted->count != adopted->resume.extent_count)
        return flyt_error_set(err, -EPROTO, "%s%zu of the session's %llu pieces of memory were given",
                              adopted->count < adopted->resume.extent_count ? "only " : "", adopted->count,
                              (unsigned long long)adopted->resume.extent_count);
    if (adopted->count)
        qsort(adopted->extents, adopted->count, sizeof *adopted->extents, compare_ids);
    for (size_t i = 0; i < adopted->count; i++) {
        if (i && compare_ids(&adopted->extents[i - 1], &adopted->extents[i]) == 0)
            return flyt_error_set(err, -EPROTO, "memory was given twice under one id, extent_id=%llu",
                                  (unsigned long long)adopted->extents[i].extent.extent_id);
        if (adopted->extents[i].extent.extent_id > adopted->resume.last_extent_id)
            return flyt_error_set(err, -EPROTO,
                                  "the node manager gives memory under an id that cannot be, extent_id=%llu",
                                  (unsigned long long)adopted->extents[i].extent.extent_id);
        int status = map_one(session, granted, &adopted->extents[i], err);
        if (status)
            return status;
    }
    for (unsigned i = 0; i < session->device_count; i++) {
        CUresult result = flyt_memory_allow_adopted(&session->devices[i]);
        if (result != CUDA_SUCCESS)
            return flyt_error_set(err, -ENOMEM, "device %u cannot access the session's memory, cuda_result=%d", i,
                                  (int)result);
    }
    session->manager->last_extent_id = adopted->resume.last_extent_id;
    /* What the process before had reserved for its driver (reserve.h) went with it. */
    for (unsigned i = 0; i < granted->ledger_count; i++) {
        int status = flyt_ledger_reserve(session->manager->ledgers[i], granted->server_id, 0);
        if (status)
            return flyt_error_set(err, status, "the allocation's memory ledgers cannot be used: %s", strerror(-status));
    }
    const struct flyt_manager_link_resume *before = &adopted->resume;
    session->execution.has_before = before->has_record;
    session->execution.before =
        (struct flyt_call_state){before->begun, before->executed, before->completed, before->error_count};
    session->resume.state = FLYT_RESUME_AWAITED;
    session->resume.is_held = before->is_held;
    return 0;
}

void flyt_adopted_extents_free(struct flyt_adopted_extents *adopted)
{
    free(adopted->extents);
    *adopted = (struct flyt_adopted_extents){0};
}
