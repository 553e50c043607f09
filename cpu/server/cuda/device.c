/* Calls about devices: properties, limits, peer access, reset. */
#include <errno.h>
#include <stdlib.h>

#include "cpu/server/core/device.h"
#include "cpu/server/cuda/account.h"
#include "cpu/server/core/call.h"
#include "cpu/server/cuda/memory.h"
#include "cpu/server/core/priority.h"
#include "cpu/server/core/progress.h"
#include "cpu/server/cuda/reserve.h"
#include "cpu/server/core/session.h"
#include "cpu/server/cuda/settings.h"
#include "flyt_objects.h"
#include "flyt_serve.h"
#include "rpc/api/attributes.h"

static struct flyt_device *find(struct flyt_call *call, uint32_t ordinal)
{
    return ordinal < call->session->device_count ? &call->session->devices[ordinal] : NULL;
}

/* A device whose properties are asked. Asking makes no context: that takes a part of the GPU's memory. Only what has
 * SMs of its own, which the context tells, is made; of a node's sessions all devices are. */
static CUresult find_to_ask(struct flyt_call *call, uint32_t ordinal, struct flyt_device **ret_device)
{
    struct flyt_device *device = find(call, ordinal);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    *ret_device = device;
    /* The range of priorities is one of the current context: any of the session's will do. */
    struct flyt_device *made = device;
    for (unsigned i = 0; i < call->session->device_count && !made->is_made && !device->group_size; i++)
        made = &call->session->devices[i];
    return made->is_made ? flyt_device_use(made) : flyt_device_make(device);
}

CUresult flyt_serve_device_info(struct flyt_call *call, const flyt_device_info_args *args, flyt_device_info_res *res)
{
    const struct flyt_driver *driver = call->session->driver;
    struct flyt_device *device;
    CUresult result = find_to_ask(call, args->device, &device);
    if (result != CUDA_SUCCESS)
        return result;
    char name[256] = "", bus_id[32] = "";
    size_t total_bytes = 0;
    CUuuid uuid = {0};
    result = driver->cuDeviceGetName(name, sizeof name, device->cu_device);
    if (result == CUDA_SUCCESS)
        result = driver->cuDeviceGetUuid(&uuid, device->cu_device);
    if (result == CUDA_SUCCESS)
        result = driver->cuDeviceTotalMem(&total_bytes, device->cu_device);
    if (result == CUDA_SUCCESS)
        result = driver->cuDeviceGetPCIBusId(bus_id, sizeof bus_id, device->cu_device);
    if (result == CUDA_SUCCESS)
        result = flyt_priority_range(device, &res->least_priority, &res->greatest_priority);
    if (result != CUDA_SUCCESS)
        return result;
    res->name = strdup(name);
    res->pci_bus_id = strdup(bus_id);
    res->attributes.attributes_val = calloc(CU_DEVICE_ATTRIBUTE_MAX, sizeof(int));
    if (!res->name || !res->pci_bus_id || !res->attributes.attributes_val)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(res->uuid, uuid.bytes, sizeof res->uuid);
    res->is_software = driver->is_soft;
    res->total_bytes = flyt_account_total(device, total_bytes);
    res->attributes.attributes_len = CU_DEVICE_ATTRIBUTE_MAX;
    for (int attribute = 1; attribute < CU_DEVICE_ATTRIBUTE_MAX; attribute++) {
        int value = 0;
        /* Numbers without a meaning are refused by the driver: 0. */
        driver->cuDeviceGetAttribute(&value, (CUdevice_attribute)attribute, device->cu_device);
        res->attributes.attributes_val[attribute] = flyt_attribute_shown((CUdevice_attribute)attribute, value);
    }
    /* Persisting lines are the whole GPU's, and windows are for them. */
    if (call->session->is_mps) {
        res->attributes.attributes_val[CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE] = 0;
        res->attributes.attributes_val[CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE] = 0;
    }
    /* What processes share goes through the node manager. Pools are the client's, and their memory is extents; events
     * are this server's own (core/event_share.h), whatever the GPU's driver can share. */
    int *can_share = &res->attributes.attributes_val[CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED];
    if (!call->session->manager)
        *can_share = 0;
    res->attributes.attributes_val[CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES] =
        *can_share ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
    res->attributes.attributes_val[CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED] = call->session->manager != NULL;
    /* The GPU, for the program, is what it was given of it. */
    if (device->group_size)
        res->attributes.attributes_val[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT] =
            (int)(device->shown_sms ? device->shown_sms : device->partition->sm_count);
    return CUDA_SUCCESS;
}

/* Limits and preferences belong to the primary context: a green context shares its memory and modules. */
static CUresult enter_primary(struct flyt_call *call, uint32_t ordinal, struct flyt_device **ret_device)
{
    CUresult result = flyt_session_use_device(call->session, ordinal, ret_device);
    if (result == CUDA_SUCCESS)
        result = call->session->driver->cuCtxSetCurrent((*ret_device)->cu_primary);
    return result;
}

static CUresult leave_primary(struct flyt_device *device, CUresult result)
{
    CUresult back = device->session->driver->cuCtxSetCurrent(device->partition->cu_context);
    return result == CUDA_SUCCESS ? back : result;
}

CUresult flyt_serve_device_limit_get(struct flyt_call *call, const flyt_device_limit_get_args *args,
                                     flyt_device_limit_get_res *res)
{
    struct flyt_device *device;
    size_t value = 0;
    if (args->limit >= CU_LIMIT_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_primary(call, args->device, &device);
    if (result != CUDA_SUCCESS)
        return result;
    result = leave_primary(device, call->session->driver->cuCtxGetLimit(&value, (CUlimit)args->limit));
    res->value = value;
    return result;
}

CUresult flyt_serve_device_limit_set(struct flyt_call *call, const flyt_device_limit_set_args *args,
                                     flyt_device_limit_set_res *res)
{
    struct flyt_device *device;
    if (args->limit >= CU_LIMIT_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (flyt_settings_is_passed_over(call->session))
        return CUDA_SUCCESS;
    CUresult result = enter_primary(call, args->device, &device);
    if (result != CUDA_SUCCESS)
        return result;
    size_t before = 0;
    device->memory->attempt = call->sequence;
    result = call->session->driver->cuCtxGetLimit(&before, (CUlimit)args->limit);
    if (result == CUDA_SUCCESS)
        result = flyt_reserve_limit(device, (CUlimit)args->limit, args->value);
    bool is_early = result == CUDA_ERROR_NOT_READY;
    if (result == CUDA_SUCCESS) {
        result = call->session->driver->cuCtxSetLimit((CUlimit)args->limit, args->value);
        if (result != CUDA_SUCCESS)
            flyt_reserve_limit(device, (CUlimit)args->limit, before);
        else
            flyt_settings_note(device->settings, args->limit, args->value);
        if (result == CUDA_SUCCESS && args->limit == CU_LIMIT_MALLOC_HEAP_SIZE)
            call->session->observer->used(call->session, FLYT_USE_HEAP);
    }
    result = leave_primary(device, result);
    /* Memory is still to be given back. */
    call->session->is_retry_due |= is_early;
    return is_early ? FLYT_CALL_RETRY : result;
}

CUresult flyt_serve_device_cache_config_set(struct flyt_call *call, const flyt_device_cache_config_set_args *args)
{
    struct flyt_device *device;
    if (flyt_settings_is_passed_over(call->session))
        return CUDA_SUCCESS;
    CUresult result = enter_primary(call, args->device, &device);
    if (result != CUDA_SUCCESS)
        return result;
    result = call->session->driver->cuCtxSetCacheConfig((CUfunc_cache)args->cache_config);
    if (result == CUDA_SUCCESS)
        flyt_settings_note(device->settings, FLYT_SETTING_DEVICE_CACHE_CONFIG, args->cache_config);
    return leave_primary(device, result);
}

CUresult flyt_serve_device_budget_watch(struct flyt_call *call, const flyt_device_budget_watch_args *args)
{
    struct flyt_device *device = find(call, args->device);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    device->is_budget_watched = args->is_watched != 0;
    flyt_memory_tell_over_budget(device);
    return CUDA_SUCCESS;
}

CUresult flyt_serve_device_synchronize(struct flyt_call *call, const flyt_device_synchronize_args *args,
                                       flyt_device_synchronize_res *res)
{
    struct flyt_device *device = find(call, args->device);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    struct flyt_fence_set set = {0};
    CUresult result = flyt_stream_mark_busy(call->session, device, &set);
    if (result != CUDA_SUCCESS) {
        flyt_fence_set_fini(&set);
        return result;
    }
    return flyt_job_reply_after(call, &set);
}

CUresult flyt_serve_device_peer_info(struct flyt_call *call, const flyt_device_peer_info_args *args,
                                     flyt_device_peer_info_res *res)
{
    const struct flyt_driver *driver = call->session->driver;
    struct flyt_device *device = find(call, args->device), *peer = find(call, args->peer_device);
    if (!device || !peer)
        return CUDA_ERROR_INVALID_DEVICE;
    int can_access = 0, rank = 0, atomics = 0;
    CUresult result = driver->cuDeviceCanAccessPeer(&can_access, device->cu_device, peer->cu_device);
    if (result == CUDA_SUCCESS && device != peer)
        result = driver->cuDeviceGetP2PAttribute(&rank, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, device->cu_device,
                                                 peer->cu_device);
    if (result == CUDA_SUCCESS && device != peer)
        result = driver->cuDeviceGetP2PAttribute(&atomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED,
                                                 device->cu_device, peer->cu_device);
    res->can_access = (u_int)can_access;
    res->performance_rank = rank;
    res->native_atomics = (u_int)atomics;
    return result;
}

CUresult flyt_serve_device_peer_access_set(struct flyt_call *call, const flyt_device_peer_access_set_args *args,
                                           flyt_device_peer_access_set_res *res)
{
    struct flyt_device *device, *peer;
    if (args->device == args->peer_device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (flyt_settings_is_passed_over(call->session))
        return CUDA_SUCCESS;
    CUresult result = flyt_session_use_device(call->session, args->device, &device);
    if (result == CUDA_SUCCESS)
        result = flyt_session_use_device(call->session, args->peer_device, &peer);
    if (result != CUDA_SUCCESS)
        return result;
    /* `device` is to reach what lies on `peer_device`. */
    return flyt_memory_set_peer(peer, device, args->is_enabled);
}

CUresult flyt_serve_profiler_set(struct flyt_call *call, const flyt_profiler_set_args *args)
{
    const struct flyt_driver *driver = call->session->driver;
    return args->is_on ? driver->cuProfilerStart() : driver->cuProfilerStop();
}

CUresult flyt_serve_session_barrier(struct flyt_call *call, const flyt_session_barrier_args *args,
                                    flyt_session_barrier_res *res)
{
    if (flyt_jobs_unexecuted(call->session, false) >= call->sequence)
        return CUDA_SUCCESS;
    /* Jobs that hold no stream (modules being loaded) are earlier calls too; the end of each brings a new scan. */
    return FLYT_CALL_RETRY;
}

/* ---- reset ---- */

struct reset_job {
    struct flyt_job job;
    struct flyt_device *device;
    bool has_ended_apart;
    int staying; /* how many more stand against moving then */
};

static CUresult end_apart(struct flyt_job *job)
{
    struct reset_job *self = (struct reset_job *)job;
    self->staying = job->session->end_apart(job->session, self->device);
    return CUDA_SUCCESS;
}

/* All memory goes: what copies it is to be done with it, too. */
static CUresult reset_advance(struct flyt_job *job)
{
    struct reset_job *self = (struct reset_job *)job;
    if (!job->session->observer->memory_leaving(self->device))
        return CUDA_ERROR_NOT_READY;
    if (self->has_ended_apart || !job->session->end_apart)
        return CUDA_SUCCESS;
    self->has_ended_apart = true;
    return flyt_job_run(job, end_apart);
}

static void reset_finish(struct flyt_job *job, CUresult result)
{
    struct flyt_session *session = job->session;
    struct flyt_device *device = ((struct reset_job *)job)->device;
    const int staying = ((struct reset_job *)job)->staying;
    for (int i = 0; i < abs(staying); i++)
        session->observer->staying(session, FLYT_STAYING_COMMUNICATOR, staying > 0);
    flyt_print_flush(session);
    flyt_objects_drop(session, device);
    flyt_stream_query(device->legacy);
    device->legacy->executed_calls = 0;
    if (result == CUDA_SUCCESS)
        result = flyt_device_use(device);
    if (result == CUDA_SUCCESS) /* its client does not set them again where the session goes on */
        result = flyt_session_check(session, flyt_stream_attributes_forget(device->legacy));
    flyt_memory_reset(device);
    flyt_job_reply(job, result);
}

static const struct flyt_job_ops reset_ops = {reset_advance, reset_finish, NULL};

CUresult flyt_serve_device_reset(struct flyt_call *call, const flyt_device_reset_args *args, flyt_device_reset_res *res)
{
    struct flyt_device *device = find(call, args->device);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!device->is_made)
        return CUDA_SUCCESS;
    CUresult result;
    struct reset_job *self = flyt_stream_job_after_all(call, sizeof *self, &result);
    if (!self)
        return result;
    self->device = device;
    result = flyt_job_begin(&self->job, &reset_ops, call);
    /* Calls that other threads make meanwhile would meet half of what there was. */
    flyt_job_keep_unexecuted(&self->job);
    return result;
}
