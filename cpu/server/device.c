#include "cpu/server/device.h"

#include <errno.h>
#include <stdlib.h>

#include "cpu/server/account.h"
#include "cpu/server/call.h"
#include "cpu/server/copying.h"
#include "cpu/server/partition.h"
#include "cpu/server/session.h"
#include "flyt_serve.h"

int flyt_device_init(struct flyt_device *device, struct flyt_session *session, unsigned ordinal, struct flyt_error *err)
{
    device->session = session;
    device->ordinal = ordinal;
    return flyt_memory_init(device, err);
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
    return device->session->driver->cuDevicePrimaryCtxRetain(&device->cu_primary, device->cu_device);
}

CUresult flyt_device_make(struct flyt_device *device)
{
    struct flyt_session *session = device->session;
    const struct flyt_driver *driver = session->driver;
    if (device->is_made)
        return flyt_device_use(device);
    CUresult result = flyt_device_warm(device);
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
    result = flyt_stream_new(device, flyt_legacy_stream_id(device->ordinal), 0, 0, true, &device->legacy);
    if (result == CUDA_SUCCESS)
        result = flyt_session_insert(session, &device->legacy->object, FLYT_ID_STREAM);
    if (result == CUDA_SUCCESS)
        flyt_page_add_stream(session, device->legacy);
    device->is_made = result == CUDA_SUCCESS;
    return result;
}

void flyt_device_fini(struct flyt_device *device)
{
    flyt_stream_free(device->carrier);
    flyt_stream_free(device->scrub);
    flyt_resize_fini(device);
    flyt_turn_fini(device);
    flyt_memory_fini(device);
    device->base.moment = flyt_moment_unref(device->base.moment);
    flyt_moment_pool_fini(device);
    flyt_partition_forget(&device->partitions);
}

CUresult flyt_device_use(struct flyt_device *device)
{
    struct flyt_session *session = device->session;
    if (session->current_device == device)
        return CUDA_SUCCESS;
    CUresult result = session->driver->cuCtxSetCurrent(device->partition->cu_context);
    if (result == CUDA_SUCCESS)
        session->current_device = device;
    return result;
}

/* ---- calls ---- */

static struct flyt_device *find(struct flyt_call *call, uint32_t ordinal)
{
    return ordinal < call->session->device_count ? &call->session->devices[ordinal] : NULL;
}

/* What Flyt does not have yet, whatever the GPU can. Their programs take the way for GPUs that cannot. */
static bool is_hidden(int attribute)
{
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST:
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS:
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES:
    case CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED:
        return true;
    default:
        return false;
    }
}

CUresult flyt_serve_device_info(struct flyt_call *call, const flyt_device_info_args *args, flyt_device_info_res *res)
{
    const struct flyt_driver *driver = call->session->driver;
    struct flyt_device *device;
    CUresult result = flyt_session_use_device(call->session, args->device, &device);
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
        result = driver->cuCtxGetStreamPriorityRange(&res->least_priority, &res->greatest_priority);
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
        if (!is_hidden(attribute) &&
            driver->cuDeviceGetAttribute(&value, (CUdevice_attribute)attribute, device->cu_device) == CUDA_SUCCESS)
            res->attributes.attributes_val[attribute] = value;
    }
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
    device->memory.attempt = call->sequence;
    result = call->session->driver->cuCtxGetLimit(&before, (CUlimit)args->limit);
    if (result == CUDA_SUCCESS)
        result = flyt_reserve_limit(device, (CUlimit)args->limit, args->value);
    bool is_early = result == CUDA_ERROR_NOT_READY;
    if (result == CUDA_SUCCESS) {
        result = call->session->driver->cuCtxSetLimit((CUlimit)args->limit, args->value);
        if (result != CUDA_SUCCESS)
            flyt_reserve_limit(device, (CUlimit)args->limit, before);
        else
            flyt_settings_note(&device->settings, args->limit, args->value);
        if (result == CUDA_SUCCESS && args->limit == CU_LIMIT_MALLOC_HEAP_SIZE)
            flyt_replaceable_note(call->session, FLYT_REASON_HEAP);
    }
    result = leave_primary(device, result);
    /* Memory is still to be given back. */
    call->session->is_retry_due |= is_early;
    return is_early ? FLYT_CALL_PARKED : result;
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
        flyt_settings_note(&device->settings, FLYT_SETTING_DEVICE_CACHE_CONFIG, args->cache_config);
    return leave_primary(device, result);
}

CUresult flyt_serve_device_synchronize(struct flyt_call *call, const flyt_device_synchronize_args *args,
                                       flyt_device_synchronize_res *res)
{
    struct flyt_device *device = find(call, args->device);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    struct flyt_moment_set set = {0};
    CUresult result = flyt_stream_mark_busy(call->session, device, &set);
    if (result != CUDA_SUCCESS) {
        flyt_moment_set_fini(&set);
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
    return FLYT_CALL_PARKED;
}

/* ---- reset ---- */

struct reset_job {
    struct flyt_job job;
    struct flyt_device *device;
    struct flyt_moment_set work;
};

static CUresult reset_advance(struct flyt_job *job)
{
    struct reset_job *self = (struct reset_job *)job;
    CUresult result = flyt_moment_set_poll(&self->work);
    /* Then all memory goes: what copies it is to be done with it, too. */
    return result == CUDA_SUCCESS && !flyt_copying_let_go_all(self->device) ? CUDA_ERROR_NOT_READY : result;
}

static int drop_stream(void *user, uint64_t number, void *object)
{
    struct flyt_stream *stream = object;
    if (stream->device == user && !stream->is_legacy && !stream->job) {
        flyt_stream_remove(stream);
        flyt_stream_free(stream);
    }
    return 0;
}

static int drop_event(void *user, uint64_t number, void *object)
{
    struct flyt_event *event = object;
    if (event->device == user)
        flyt_event_destroy(event);
    return 0;
}

static int drop_library(void *user, uint64_t number, void *object)
{
    flyt_library_destroy(object);
    return 0;
}

static void reset_finish(struct flyt_job *job, CUresult result)
{
    struct flyt_session *session = job->session;
    struct flyt_device *device = ((struct reset_job *)job)->device;
    flyt_print_flush(session);
    flyt_idtable_each(&session->objects.streams, drop_stream, device);
    flyt_idtable_each(&session->objects.events, drop_event, device);
    /* Libraries are loaded for all devices: they go with the only one. */
    if (session->device_count == 1)
        flyt_idtable_each(&session->objects.libraries, drop_library, NULL);
    flyt_stream_query(device->legacy);
    device->legacy->executed_calls = 0;
    flyt_memory_reset(device);
    flyt_job_reply(job, result);
}

static void reset_free(struct flyt_job *job)
{
    struct reset_job *self = (struct reset_job *)job;
    flyt_moment_set_fini(&self->work);
    free(self);
}

static const struct flyt_job_ops reset_ops = {reset_advance, reset_finish, reset_free};

CUresult flyt_serve_device_reset(struct flyt_call *call, const flyt_device_reset_args *args, flyt_device_reset_res *res)
{
    struct flyt_device *device = find(call, args->device);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!device->is_made)
        return CUDA_SUCCESS;
    struct reset_job *self = calloc(1, sizeof *self);
    if (!self)
        return CUDA_ERROR_OUT_OF_MEMORY;
    self->device = device;
    CUresult result = flyt_stream_mark_busy(call->session, NULL, &self->work);
    if (result != CUDA_SUCCESS) {
        reset_free(&self->job);
        return result;
    }
    flyt_job_start(&self->job, &reset_ops, call, NULL);
    /* Calls that other threads make meanwhile would meet half of what there was. */
    flyt_job_keep_unexecuted(&self->job);
    return FLYT_CALL_DEFERRED;
}
