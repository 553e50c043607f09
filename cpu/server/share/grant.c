#include "cpu/server/share/grant.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cpu/server/core/session.h"
#include "cpu/server/cuda/coredump.h"
#include "cpu/server/cuda/image_cache.h"
#include "cpu/server/share/time_slice.h"

/* The GPU's number for the driver: by UUID, which names it wherever it is; a software GPU's is that of every node. */
static int find_gpu(const struct flyt_session *session, const struct flyt_manager_link_slot *slot, unsigned *ret_gpu)
{
    const struct flyt_driver *driver = session->driver;
    int count = 0;
    if (driver->cuDeviceGetCount(&count) != CUDA_SUCCESS)
        return -ENODEV;
    for (int i = 0; i < count && !driver->is_soft; i++) {
        CUdevice cu_device;
        CUuuid uuid;
        if (driver->cuDeviceGet(&cu_device, i) != CUDA_SUCCESS ||
            driver->cuDeviceGetUuid(&uuid, cu_device) != CUDA_SUCCESS ||
            memcmp(uuid.bytes, slot->gpu_uuid, sizeof uuid.bytes) != 0)
            continue;
        *ret_gpu = (unsigned)i;
        return 0;
    }
    if (!driver->is_soft || slot->gpu_index >= (unsigned)count)
        return -ENODEV;
    *ret_gpu = slot->gpu_index;
    return 0;
}

static int open_slot(struct flyt_session *session, const struct flyt_manager_link_slot *slot, struct flyt_error *err)
{
    struct flyt_device *device = &session->devices[slot->device_index];
    CUdevice warm_device = session->devices[0].cu_device;
    unsigned gpu;
    int status = find_gpu(session, slot, &gpu);
    if (status)
        return flyt_error_set(err, status, "device %u of the allocation: the node's driver has no such GPU",
                              slot->device_index);
    status = flyt_device_open(device, gpu, err);
    if (status)
        return status;
    /* The warm context is of use where the first device is on the GPU that the server was started for. */
    if (slot->device_index == 0 && device->cu_device != warm_device)
        device->cu_primary = NULL;
    return 0;
}

static int take_slot(struct flyt_session *session, const struct flyt_manager_link_session *granted, unsigned i,
                     struct flyt_error *err)
{
    const struct flyt_manager_link_slot *slot = &granted->slots[i];
    struct flyt_device *device = &session->devices[slot->device_index];
    int status = open_slot(session, slot, err);
    if (status)
        return status;
    device->slot = i;
    device->ledger = granted->ledger_count ? session->manager->ledgers[i] : NULL;
    device->group_size = slot->sm_count ? flyt_manager_link_group_size(granted, i) : 0;
    device->shown_sms = flyt_manager_link_shown(slot);
    memcpy(device->groups, slot->groups, sizeof device->groups);
    if (!session->manager)
        return 0;
    static const unsigned char no_groups[sizeof slot->groups];
    /* Without a limit it would have the whole GPU, whoever else is on it. */
    if (!device->group_size || memcmp(slot->groups, no_groups, sizeof no_groups) == 0)
        return flyt_error_set(err, -EINVAL, "device %u of the allocation has no SM groups", slot->device_index);
    status = flyt_time_slice_open(device, granted, i, session->manager->seats[i]);
    if (status)
        return flyt_error_set(err, status, "device %u of the allocation cannot take time slices with others: %s",
                              slot->device_index, strerror(-status));
    return 0;
}

/* Devices are numbered from 0 on, in any order. */
static int check_numbers(const struct flyt_manager_link_session *granted, struct flyt_error *err)
{
    bool is_taken[FLYT_DEVICES_MAX] = {false};
    for (unsigned i = 0; i < granted->slot_count; i++) {
        unsigned index = granted->slots[i].device_index;
        if (index >= granted->slot_count || is_taken[index])
            return flyt_error_set(err, -EINVAL, "the allocation's devices are not numbered from 0 on");
        is_taken[index] = true;
    }
    return 0;
}

static int take_slots(struct flyt_session *session, const struct flyt_manager_link_session *granted,
                      struct flyt_error *err)
{
    int wrong = check_numbers(granted, err);
    if (wrong)
        return wrong;
    session->device_count = granted->slot_count;
    for (unsigned i = 0; i < granted->slot_count; i++) {
        int status = take_slot(session, granted, i, err);
        if (status)
            return status;
    }
    /* The first one last: its context is then current. */
    for (unsigned i = session->device_count; i-- > 0;) {
        CUresult result = flyt_device_make(&session->devices[i]);
        if (result != CUDA_SUCCESS)
            return flyt_error_set(err, -ENODEV, "device %u: no context can be made, cuda_result=%d%s", i, (int)result,
                                  result == CUDA_ERROR_INVALID_VALUE ? ": the driver's SM groups are not the node's"
                                                                     : "");
        const struct flyt_manager_link_slot *slot = &granted->slots[session->devices[i].slot];
        if (session->manager && session->devices[i].partition->sm_count != slot->sm_count)
            return flyt_error_set(err, -EINVAL,
                                  "device %u: the driver's SM groups are not the node's: those of this allocation have "
                                  "%u SMs there, and %u as the node knows them",
                                  i, session->devices[i].partition->sm_count, slot->sm_count);
    }
    return 0;
}

/* The folder of the VM's module images. */
static int take_images(struct flyt_session *session, const struct flyt_manager_link_session *granted,
                       struct flyt_error *err)
{
    if (*granted->image_folder) {
        struct flyt_image_cache images = {.bytes_max = granted->image_bytes_max};
        int status = flyt_image_cache_open(&images, granted->image_folder);
        if (status)
            return flyt_error_set(err, status, "the folder of the VM's module images cannot be opened: %s",
                                  strerror(-status));
        flyt_image_cache_close(session->images);
        *session->images = images;
    } else {
        session->images->bytes_max = granted->image_bytes_max;
    }
    return 0;
}

/* The contexts that take_slot and flyt_device_make will find; and one stream (that of print.c), as the other server had
 * before it loaded anything: where the driver puts a library's variables depends on what was made before. */
static int prepare_slot(struct flyt_session *session, const struct flyt_manager_link_session *granted, unsigned i,
                        struct flyt_error *err)
{
    const struct flyt_manager_link_slot *slot = &granted->slots[i];
    struct flyt_device *device = &session->devices[slot->device_index];
    const struct flyt_partition_context *partition;
    int status = open_slot(session, slot, err);
    if (status)
        return status;
    CUresult result = flyt_device_warm(device);
    if (result == CUDA_SUCCESS)
        result =
            flyt_partition_get(&device->partitions, session->driver, device->cu_device,
                               slot->sm_count ? flyt_manager_link_group_size(granted, i) : 0, slot->groups, &partition);
    if (result == CUDA_SUCCESS && !device->cu_idle_stream)
        result = session->driver->cuGreenCtxStreamCreate(&device->cu_idle_stream, partition->cu_green,
                                                         CU_STREAM_NON_BLOCKING, 0);
    return result == CUDA_SUCCESS ? 0
                                  : flyt_error_set(err, -ENODEV, "device %u: no context can be made, cuda_result=%d",
                                                   slot->device_index, (int)result);
}

void flyt_grant_name(struct flyt_session *session, const struct flyt_manager_link_session *granted)
{
    session->session_id = granted->session_id;
    snprintf(session->label, sizeof session->label, granted->slot_count ? "%016" PRIx64 : "%" PRIu64,
             granted->session_id);
}

/* The session's contexts elsewhere leave core dumps. Where they cannot here, its client hears of that. */
static void take_coredumps(struct flyt_session *session, const struct flyt_manager_link_session *granted)
{
    if (flyt_manager_link_leaves_coredumps(granted))
        flyt_coredump_go_on(session);
}

int flyt_grant_prepare(struct flyt_session *session, const struct flyt_manager_link_session *granted,
                       struct flyt_error *err)
{
    int status = granted->slot_count ? check_numbers(granted, err)
                                     : flyt_error_set(err, -EINVAL, "the allocation has no devices");
    if (status)
        return status;
    flyt_grant_name(session, granted);
    take_coredumps(session, granted);
    for (unsigned i = 0; i < granted->slot_count && !status; i++)
        status = prepare_slot(session, granted, i, err);
    if (status)
        return status;
    session->device_count = granted->slot_count;
    return take_images(session, granted, err);
}

int flyt_grant_take(struct flyt_session *session, const struct flyt_manager_link_session *granted,
                    struct flyt_error *err)
{
    flyt_grant_name(session, granted);
    session->is_encrypted = granted->is_encrypted;
    memcpy(session->token, granted->token, sizeof session->token);
    int status = take_images(session, granted, err);
    if (status)
        return status;
    take_coredumps(session, granted);
    return granted->slot_count ? take_slots(session, granted, err) : 0;
}
