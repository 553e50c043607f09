#include "cpu/server/core/device.h"

#include <errno.h>
#include <stdlib.h>

#include "cpu/server/core/partition.h"
#include "cpu/server/core/session.h"
#include "cpu/server/core/stream.h"
#include "flyt_serve.h"
#include "rpc/api/attributes.h"

int flyt_device_init(struct flyt_device *device, struct flyt_session *session, unsigned ordinal, struct flyt_error *err)
{
    device->session = session;
    device->ordinal = ordinal;
    for (unsigned i = 0; (*session->parts)[i]; i++) {
        int status = (*session->parts)[i]->device_init ? (*session->parts)[i]->device_init(device, err) : 0;
        if (status)
            return status;
    }
    return 0;
}

int flyt_device_open(struct flyt_device *device, unsigned gpu, struct flyt_error *err)
{
    CUresult result = device->session->driver->cuDeviceGet(&device->cu_device, (int)gpu);
    if (result != CUDA_SUCCESS)
        return flyt_error_set(err, -ENODEV, "GPU %u cannot be opened, cuda_result=%d", gpu, (int)result);
    return 0;
}

CUresult flyt_device_warm(struct flyt_device *device)
{
    if (device->cu_primary)
        return CUDA_SUCCESS;
    device->leaves_coredumps = device->session->leaves_coredumps;
    return device->session->driver->cuDevicePrimaryCtxRetain(&device->cu_primary, device->cu_device);
}

static CUresult make_legacy(struct flyt_device *device)
{
    struct flyt_session *session = device->session;
    CUresult result = flyt_stream_new(device, flyt_legacy_stream_id(device->ordinal), 0, 0, true, &device->legacy);
    if (result == CUDA_SUCCESS)
        result = flyt_session_insert(session, &device->legacy->object, FLYT_ID_STREAM);
    if (result == CUDA_SUCCESS)
        flyt_progress_writer_add_stream(session, device->legacy);
    return result;
}

CUresult flyt_device_make(struct flyt_device *device)
{
    struct flyt_session *session = device->session;
    const struct flyt_driver *driver = session->driver;
    if (device->is_made)
        return flyt_device_use(device);
    CUresult result = flyt_device_warm(device);
    for (unsigned i = 0; result == CUDA_SUCCESS && (*session->parts)[i]; i++)
        if ((*session->parts)[i]->device_made)
            (*session->parts)[i]->device_made(device);
    /* A session without a limit has all SMs. Its streams are in a green context all the same, so that a limit can
     * come. */
    if (result == CUDA_SUCCESS)
        result = flyt_partition_get(&device->partitions, driver, device->cu_device, device->group_size, device->groups,
                                    &device->partition);
    if (result == CUDA_SUCCESS)
        result = driver->cuCtxSetCurrent(device->partition->cu_context);
    if (result != CUDA_SUCCESS)
        return result;
    session->current_device = device;
    result = device->legacy ? flyt_stream_replace(device->legacy) : make_legacy(device);
    device->is_made = result == CUDA_SUCCESS;
    return result;
}

CUresult flyt_device_end(struct flyt_device *device)
{
    struct flyt_session *session = device->session;
    const struct flyt_driver *driver = session->driver;
    for (unsigned i = 0; (*session->parts)[i]; i++)
        if ((*session->parts)[i]->device_ending)
            (*session->parts)[i]->device_ending(device);
    device->copy_stream = flyt_stream_free(device->copy_stream);
    device->scrub = flyt_stream_free(device->scrub);
    if (device->cu_idle_stream)
        driver->cuStreamDestroy(device->cu_idle_stream);
    device->cu_idle_stream = NULL;
    if (device->is_made)
        flyt_stream_end(device->legacy);
    flyt_fence_pool_fini(device);
    device->is_made = false;
    device->partition = NULL;
    session->current_device = NULL;
    CUresult result = driver->cuCtxSetCurrent(NULL);
    CUresult ended = flyt_partition_end(&device->partitions, driver);
    result = result == CUDA_SUCCESS ? ended : result;
    if (result == CUDA_SUCCESS)
        result = driver->cuDevicePrimaryCtxRelease(device->cu_device);
    device->cu_primary = NULL;
    /* Whoever else in this process retains it. */
    return result == CUDA_SUCCESS ? driver->cuDevicePrimaryCtxReset(device->cu_device) : result;
}

void flyt_device_fini(struct flyt_device *device)
{
    flyt_stream_free(device->copy_stream);
    flyt_stream_free(device->scrub);
    unsigned count = 0;
    while ((*device->session->parts)[count])
        count++;
    while (count-- > 0)
        if ((*device->session->parts)[count]->device_fini)
            (*device->session->parts)[count]->device_fini(device);
    device->base.fence = flyt_fence_unref(device->base.fence);
    flyt_fence_pool_fini(device);
    flyt_partition_forget(&device->partitions);
}

void flyt_device_hold(struct flyt_device *device, struct flyt_device_hold *hold)
{
    *hold =
        (struct flyt_device_hold){.next = device->holds_first, .device = device, .switch_count = device->switch_count};
    if (hold->next)
        hold->next->prev = hold;
    device->holds_first = hold;
}

void flyt_device_release(struct flyt_device_hold *hold)
{
    if (!hold->device)
        return;
    *(hold->prev ? &hold->prev->next : &hold->device->holds_first) = hold->next;
    if (hold->next)
        hold->next->prev = hold->prev;
    hold->device = NULL;
}

bool flyt_device_has_switched(const struct flyt_device_hold *hold)
{
    return hold->switch_count != hold->device->switch_count;
}

bool flyt_device_is_held(const struct flyt_device *device, uint64_t switch_count)
{
    for (const struct flyt_device_hold *hold = device->holds_first; hold; hold = hold->next)
        if (hold->switch_count <= switch_count)
            return true;
    return false;
}

CUresult flyt_session_use_device(struct flyt_session *session, uint32_t ordinal, struct flyt_device **ret_device)
{
    if (ordinal >= session->device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    struct flyt_device *device = &session->devices[ordinal];
    CUresult result = flyt_device_make(device);
    if (result == CUDA_SUCCESS)
        *ret_device = device;
    return result;
}
